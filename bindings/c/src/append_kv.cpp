// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// New keys and values into a cache.
#include <attikos/append_kv/append_kv.hpp>
#include <attikos/append_kv/validate_append_kv.hpp>
#include <cstddef>

#include "attention_call.hpp"
#include "explanation.hpp"
#include "rope_table.hpp"

namespace attikos::c {
namespace {

constexpr char const* append_kv_name = "append_kv";

/// Calls f with the type of a cache for new keys of type T: T itself, 16 bits beside float, float8
/// beside 16 bits.
template <class T, class F>
void visit_cache(Tensor const& cache, F const& f) {
  if constexpr (sizeof(T) == 2) {
    visit_dtype<T, float8_e4m3>(append_kv_name, cache, f);
  } else if constexpr (sizeof(T) == 4) {
    visit_dtype<T, float16, bfloat16>(append_kv_name, cache, f);
  } else {
    visit_dtype<T>(append_kv_name, cache, f);
  }
}

AppendKvOptions append_kv_options(attikos_append_kv_options const& from) {
  AppendKvOptions to;
  ATTIKOS_APPEND_KV_OPTIONS(ATTIKOS_COPY_OPTION)
  static_assert(ATTIKOS_UNCOPIED(ATTIKOS_APPEND_KV_OPTIONS, AppendKvOptions) == 2,
                "interleaved and check are read by hand");
  to.style = from.interleaved != 0 ? RopeStyle::interleaved : RopeStyle::half_split;
  return to;
}

struct AppendCall {
  attikos_context const& context;
  Explanation* log;  ///< null: run; else find out what would run
  attikos_append_kv_options const& given;
  Tensor k_new, v_new, k_cache, v_cache, lengths, counts, cu_q, cu_kv, pages, cos, sin, q, q_out;
  bool has_lengths, has_counts, has_cu_q, has_cu_kv, has_pages, has_tables, has_queries;

  AppendCall(attikos_context const& where, Explanation* explanation,
             attikos_append_kv_options const& o)
      : context(where),
        log(explanation),
        given(o),
        has_tables(o.rotary_cos != nullptr || o.rotary_sin != nullptr),
        has_queries(o.q != nullptr || o.q_out != nullptr) {
    has_lengths = read_int32("cache_lengths", o.cache_lengths, 1, lengths);
    has_counts = read_int32("new_lengths", o.new_lengths, 1, counts);
    has_cu_q = read_int32("cu_seqlens of q", o.cu_seqlens_q, 1, cu_q);
    has_cu_kv = read_int32("cu_seqlens of kv", o.cu_seqlens_kv, 1, cu_kv);
    has_pages = read_int32("page table", o.page_table, 2, pages);
    if (has_counts && has_cu_kv)
      fail(ATTIKOS_UNSUPPORTED, append_kv_name,
           ": new_lengths go with padded k_new; packed k_new has its lengths in cu_seqlens");
    if (has_tables) {
      cos = read_rope_table(append_kv_name, "rotary_cos", o.rotary_cos, context);
      sin = read_rope_table(append_kv_name, "rotary_sin", o.rotary_sin, context);
      expect_same_dtype(append_kv_name, sin, cos);
    }
    if (has_queries) {
      if (!has_tables)
        fail(ATTIKOS_NULL_ARGUMENT, append_kv_name,
             ": queries are rotated but rotary_cos and rotary_sin are null");
      int const rank = has_cu_q ? 3 : 4;
      q = read_tensor(append_kv_name, "q", o.q, rank, rank, context);
      q_out = read_tensor(append_kv_name, "q_out", o.q_out, rank, rank, context);
    } else if (has_cu_q) {
      fail(ATTIKOS_NULL_ARGUMENT, append_kv_name,
           ": cu_seqlens of q go with q and q_out, which are null");
    }
  }

  bool read_int32(char const* name, attikos_tensor const* tensor, int rank, Tensor& to) const {
    if (tensor == nullptr) return false;
    to = read_tensor(append_kv_name, name, tensor, rank, rank, context);
    visit_dtype<std::int32_t>(append_kv_name, to, [](auto) {});
    return true;
  }

  void read(attikos_tensor const* new_keys, attikos_tensor const* new_values,
            attikos_tensor const* key_cache, attikos_tensor const* value_cache) {
    int const rank = has_cu_kv ? 3 : 4;
    k_new = read_tensor(append_kv_name, "k_new", new_keys, rank, rank, context);
    v_new = read_tensor(append_kv_name, "v_new", new_values, rank, rank, context);
    k_cache = read_tensor(append_kv_name, "k_cache", key_cache, 4, 4, context);
    v_cache = read_tensor(append_kv_name, "v_cache", value_cache, 4, 4, context);
    expect_same_dtype(append_kv_name, v_new, k_new);
    expect_same_dtype(append_kv_name, v_cache, k_cache);
    if (has_queries) {
      expect_same_dtype(append_kv_name, q, k_new);
      expect_same_dtype(append_kv_name, q_out, k_cache);
    }
  }

  /// New keys of type T into caches of type C.
  template <class T, class C>
  void run() const {
    if (has_tables) {
      visit_beside<T>(append_kv_name, cos,
                      [&]<class Table>(std::type_identity<Table>) { run<T, C, Table>(); });
    } else {
      run<T, C, void>();
    }
  }

 private:
  template <class T, class C, class Table>
  void run() const {
    AppendKvOptions const options = append_kv_options(given);
    auto const t = tensors();
    run_on(context, [&](auto const& exec) {
      if (given.check != 0 && log == nullptr) attikos::detail::validate_append_kv_run(exec, t);
      attikos::detail::append_kv_run<T, C, Table, T, C>(exec, t, options, log);
    });
  }

  attikos::detail::AppendKvTensors tensors() const {
    auto const any = [](bool has, Tensor const& x) {
      return has ? x.any() : attikos::detail::AnyTensor{};
    };
    attikos::detail::AppendKvTensors t;
    t.k_new = k_new.any();
    t.v_new = v_new.any();
    t.k_cache = k_cache.any();
    t.v_cache = v_cache.any();
    t.cache_lengths = any(has_lengths, lengths);
    t.new_lengths = any(has_counts, counts);
    t.page_table = any(has_pages, pages);
    if (has_pages) t.page_size = k_cache.extent[2];
    t.cu_q = any(has_cu_q, cu_q);
    t.cu_kv = any(has_cu_kv, cu_kv);
    t.cos = any(has_tables, cos);
    t.sin = any(has_tables, sin);
    t.q = any(has_queries, q);
    t.q_out = any(has_queries, q_out);
    return t;
  }
};

void run_append(attikos_context* context, attikos_tensor const* k_new, attikos_tensor const* v_new,
                attikos_tensor const* k_cache, attikos_tensor const* v_cache,
                attikos_append_kv_options const* options, Explanation* log) {
  auto const& where = expect_context(append_kv_name, context);
  auto const o = read_options(append_kv_name, options);
  AppendCall call(where, log, o);
  call.read(k_new, v_new, k_cache, v_cache);
  visit_floating(append_kv_name, call.k_new, [&]<class T>(std::type_identity<T>) {
    visit_cache<T>(call.k_cache, [&]<class C>(std::type_identity<C>) { call.run<T, C>(); });
  });
}

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_append_kv(attikos_context* context, attikos_tensor const* k_new,
                                 attikos_tensor const* v_new, attikos_tensor const* k_cache,
                                 attikos_tensor const* v_cache,
                                 attikos_append_kv_options const* options) {
  return guarded([&] { run_append(context, k_new, v_new, k_cache, v_cache, options, nullptr); });
}

attikos_status attikos_explain_append_kv(attikos_context* context, attikos_tensor const* k_new,
                                         attikos_tensor const* v_new, attikos_tensor const* k_cache,
                                         attikos_tensor const* v_cache,
                                         attikos_append_kv_options const* options, char* text,
                                         size_t size, size_t* length) {
  return guarded([&] {
    explain_into({text, size, length}, "explain_append_kv", [&](attikos::Explanation* log) {
      run_append(context, k_new, v_new, k_cache, v_cache, options, log);
    });
  });
}
}
