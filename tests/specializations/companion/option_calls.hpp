// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Calls that set one option each, of every operation. The options are the rows of the tables
/// beside the arguments; what an option is set to follows from the type of its member.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "all_kernels.hpp"

namespace attikos::test {

/// Where the pointers of calls lead: memory of a device, or addresses that nothing reads.
struct Regions {
  static constexpr std::size_t bytes = std::size_t{1} << 27;
  std::uintptr_t floats = 0;     ///< float32 in [0.25, 1.25)
  std::uintptr_t ascending = 0;  ///< int32: 7, 14, 21, ...
  std::uintptr_t few = 0;        ///< int32 in [1, 15]
  std::uintptr_t flags = 0;      ///< bytes, 0 or 1
  std::uintptr_t results = 0;    ///< what a call writes, one region each
  std::uintptr_t more_results = 0;
  std::uintptr_t workspace = 0;
  std::uintptr_t matrices[16] = {};  ///< by type
  std::uintptr_t pointers[16] = {};  ///< addresses in them, by type
  std::uintptr_t result_pointers = 0;

  /// Part of the matrices of a type, a quarter of a region from one to the next.
  void* matrix(DType type, int part) const {
    return reinterpret_cast<void*>(matrices[static_cast<int>(type)] +
                                   static_cast<std::size_t>(part) * (bytes / 4));
  }
};

/// A call that is about to ask for an option.
template <class Args>
struct Asking {
  Args& g;
  std::string_view name;
  Regions const& at;

  void operator()(bool& x) const { x = !x; }
  void operator()(double& x) const { x += 1; }
  void operator()(std::int64_t& x) const { ++x; }
  template <class Enumeration>
  requires std::is_enum_v<Enumeration>
  void operator()(Enumeration& x) const {
    x = static_cast<Enumeration>(x == Enumeration{0} ? 1 : static_cast<int>(x) - 1);
  }
  void operator()(void const*& x) const {
    x = reinterpret_cast<void const*>(name == "offsets" ? at.ascending : at.floats);
  }
  void operator()(void*& x) const { x = reinterpret_cast<void*>(at.more_results); }
  void operator()(float const*& x) const { x = reinterpret_cast<float const*>(at.floats); }
  void operator()(std::int32_t const*& x) const {
    x = reinterpret_cast<std::int32_t const*>(at.few);
  }
  void operator()(std::uint8_t const*& x) const {
    x = reinterpret_cast<std::uint8_t const*>(at.flags);
  }
  void operator()(std::int8_t const*& x) const {
    x = reinterpret_cast<std::int8_t const*>(at.flags);
  }
  void operator()(void const* const*& x) const {
    x = reinterpret_cast<void const* const*>(at.pointers[static_cast<int>(g.type_a)]);
  }
  void operator()(void* const*& x) const { x = reinterpret_cast<void* const*>(at.result_pointers); }
  void operator()(abi::Offsets& x) const { x.data = reinterpret_cast<void const*>(at.ascending); }
  void operator()(abi::ScaleGrid& x) const { x.data = reinterpret_cast<float const*>(at.floats); }
  void operator()(abi::GemmTile& x) const { x.m = 128; }
};

template <class Args, class Member>
void ask(Args& g, std::string_view name, Regions const& at, Member& x) {
  Asking<Args>{g, name, at}(x);
}

/// Arguments among which a call's options are.
template <class Args>
Args& with_options(Args& g) {
  return g;
}
inline abi::AttentionArgs& with_options(abi::AttentionBackwardArgs& a) { return a.forward; }
inline abi::AttentionArgs const& with_options(abi::AttentionBackwardArgs const& a) {
  return a.forward;
}

/// Where a second gradient, and those of terms, begin in a region of results.
/// In float64 one takes 3 MB.
constexpr std::size_t second_gradient = std::size_t{1} << 22, more_gradients = second_gradient * 2;

/// What has to change with an option for a call to make sense.
inline void complete(abi::AttentionArgs& g, std::string_view name, Regions const& at) {
  std::int64_t const sequences = std::max<std::int64_t>(g.batch, 1);
  auto const pack = [&](std::int64_t& seqlen, std::int64_t(&stride)[4], std::int64_t(&other)[4]) {
    seqlen *= sequences;
    for (auto* s : {&stride, &other}) (*s)[0] = 0, (*s)[1] *= sequences;
  };
  if (name == "cu_seqlens_kv") {
    pack(g.seqlen_kv, g.k_stride, g.v_stride);
    g.cu_seqlens_q = g.cu_seqlens_kv;
  }
  if (name == "cu_seqlens_q" || name == "cu_seqlens_kv") pack(g.seqlen_q, g.q_stride, g.out_stride);
  if (name == "lengths_q" && g.lengths_kv == nullptr)
    g.lengths_kv = reinterpret_cast<std::int32_t const*>(at.few);
}
inline void complete(abi::AttentionBackwardArgs& a, std::string_view name, Regions const& at) {
  complete(a.forward, name, at);
  std::int64_t const sequences = std::max<std::int64_t>(a.forward.batch, 1);
  auto const pack = [&](std::int64_t(&stride)[4]) { stride[0] = 0, stride[1] *= sequences; };
  if (name == "cu_seqlens_kv") pack(a.dk_stride), pack(a.dv_stride);
  if (name == "cu_seqlens_q" || name == "cu_seqlens_kv") pack(a.dout_stride), pack(a.dq_stride);
  // What sinks do to weights is in the log-sum-exp already.
  if (name == "sinks") a.d_sinks = reinterpret_cast<void*>(at.more_results + more_gradients);
}
inline void complete(abi::AppendKvArgs& g, std::string_view name, Regions const& at) {
  if (name == "cos" || name == "sin") g.cos = g.sin = reinterpret_cast<void const*>(at.floats);
  if (name == "q" || name == "q_out") {
    g.q = at.matrix(g.type_q, 2);
    g.q_out = reinterpret_cast<void*>(at.more_results);
    g.heads_q = 2, g.seqlen_q = 3;
    g.cos = g.sin = reinterpret_cast<void const*>(at.floats);
  }
  if (name == "cu_seqlens_new") g.seqlen_new *= g.batch, g.k_new_stride[0] = g.v_new_stride[0] = 0;
}
inline void complete(abi::GemmArgs&, std::string_view, Regions const&) {}
inline void complete(abi::GatedMlpArgs&, std::string_view, Regions const&) {}

/// Whether a call can be: no user's has groups of rows and counts of them at once.
template <class Args>
bool means_something(Args const&) {
  return true;
}
inline bool means_something(abi::GemmArgs const& g) {
  return g.offsets == nullptr || g.counts == nullptr;
}

/// An option of calls with such arguments, and how a call comes to ask for it.
template <class Args, class Option>
struct Question {
  std::string name;
  Option option;
  std::function<void(Args&, Regions const&)> ask;
};
#define ATTIKOS_TEST_QUESTION(member, reason)                   \
  {#member, Option::member, [](Args& g, Regions const& at) {    \
     ask(with_options(g), #member, at, with_options(g).member); \
     complete(g, #member, at);                                  \
   }},
#define ATTIKOS_TEST_LATER_QUESTION(kind, name, initial, meaning) ATTIKOS_TEST_QUESTION(name, )

template <class Args>
auto questions() {
  if constexpr (std::is_same_v<Args, abi::AppendKvArgs>) {
    using Option = abi::AppendKvOption;
    return std::vector<Question<Args, Option>>{ATTIKOS_APPEND_KV_ARGUMENTS(ATTIKOS_TEST_QUESTION)};
  } else if constexpr (std::is_same_v<Args, abi::GemmArgs>) {
    using Option = abi::GemmOption;
    return std::vector<Question<Args, Option>>{ATTIKOS_GEMM_ARGUMENTS(ATTIKOS_TEST_QUESTION)};
  } else if constexpr (std::is_same_v<Args, abi::GatedMlpArgs>) {
    using Option = abi::GatedMlpOption;
    return std::vector<Question<Args, Option>>{ATTIKOS_GATED_MLP_ARGUMENTS(ATTIKOS_TEST_QUESTION)};
  } else {
    using Option = abi::AttentionOption;
    return std::vector<Question<Args, Option>>{ATTIKOS_ATTENTION_ARGUMENTS(
        ATTIKOS_TEST_QUESTION) ATTIKOS_LATER_SCORE_OPTIONS(ATTIKOS_TEST_LATER_QUESTION)};
  }
}

/// Types of elements, floats first.
inline constexpr DType element_types[] = {DType::float16, DType::bfloat16,    DType::float32,
                                          DType::float64, DType::float8_e4m3, DType::float8_e5m2,
                                          DType::int8,    DType::int32};

/// Strides of a dense tensor.
inline void lay_out(std::int64_t (&stride)[4], std::int64_t heads, std::int64_t rows,
                    std::int64_t columns) {
  stride[0] = heads * rows * columns, stride[1] = rows * columns, stride[2] = columns,
  stride[3] = 1;
}

/// Calls of all types that kernels may take as they are. What an option needs beside its own
/// pointer, strides and extents, is there already.
template <class Args>
void add_attention_calls(std::vector<Args>& calls, Regions const& at, std::int64_t seqlen_q,
                         std::int64_t seqlen_kv, bool causal) {
  for (DType type : element_types)
    for (DType out : element_types)
      for (Compute compute : {Compute::ieee, Compute::tf32x3}) {
        if (dtype_size(type) != 1 && out != type) continue;
        Args g{};
        g.type = type, g.type_out = out, g.compute = compute, g.causal = causal;
        g.batch = 16, g.heads_q = 4, g.heads_kv = 4, g.head_dim = g.head_dim_v = 64;
        g.seqlen_q = seqlen_q, g.seqlen_kv = seqlen_kv;
        g.softmax_scale = 0.125;
        g.q = at.matrix(type, 0), g.k = at.matrix(type, 1), g.v = at.matrix(type, 2);
        g.out = reinterpret_cast<void*>(at.results);
        lay_out(g.q_stride, g.heads_q, seqlen_q, 64),
            lay_out(g.out_stride, g.heads_q, seqlen_q, 64);
        lay_out(g.k_stride, g.heads_kv, seqlen_kv, 64),
            lay_out(g.v_stride, g.heads_kv, seqlen_kv, 64);
        g.lse_stride[0] = g.heads_q * seqlen_q, g.lse_stride[1] = seqlen_q, g.lse_stride[2] = 1;
        g.page_size = 16, g.num_pages = 16;
        g.page_table_stride[0] = seqlen_kv / 16, g.page_table_stride[1] = 1;
        g.lengths_q_stride[0] = g.lengths_kv_stride[0] = 1;
        g.bias_stride[2] = g.mask_stride[2] = seqlen_kv, g.bias_stride[3] = g.mask_stride[3] = 1;
        g.alibi_stride[1] = g.sinks_stride = 1;
        calls.push_back(g);
      }
}

inline std::vector<abi::AttentionArgs> plain_calls(std::type_identity<abi::AttentionArgs>,
                                                   Regions const& at) {
  std::vector<abi::AttentionArgs> calls;
  add_attention_calls(calls, at, 96, 96, false);
  add_attention_calls(calls, at, 64, 96, true);
  return calls;
}
/// Of gradients of terms the first begins behind two others.
inline std::vector<abi::AttentionBackwardArgs> plain_calls(
    std::type_identity<abi::AttentionBackwardArgs>, Regions const& at) {
  std::vector<abi::AttentionBackwardArgs> calls;
  for (auto& g : plain_calls(std::type_identity<abi::AttentionArgs>{}, at)) {
    abi::AttentionBackwardArgs a;
    g.out = static_cast<char*>(at.matrix(g.type, 3)) + (1 << 16);
    g.lse = reinterpret_cast<void*>(at.floats);
    a.forward = g, a.dout = at.matrix(g.type, 3);
    a.dq = reinterpret_cast<void*>(at.results);
    a.dk = reinterpret_cast<void*>(at.more_results);
    a.dv = reinterpret_cast<void*>(at.more_results + second_gradient);
    for (int r = 0; r < 4; ++r) {
      a.dout_stride[r] = a.dq_stride[r] = g.q_stride[r];
      a.dk_stride[r] = a.dv_stride[r] = g.k_stride[r];
    }
    a.d_sinks_stride = 1;
    a.workspace = reinterpret_cast<void*>(at.workspace);
    calls.push_back(a);
  }
  return calls;
}
inline std::vector<abi::DecodeArgs> plain_calls(std::type_identity<abi::DecodeArgs>,
                                                Regions const& at) {
  std::vector<abi::DecodeArgs> calls;
  add_attention_calls(calls, at, 4, 512, false);
  add_attention_calls(calls, at, 4, 512, true);
  for (auto& g : calls) g.workspace = reinterpret_cast<void*>(at.workspace);
  return calls;
}

inline std::vector<abi::AppendKvArgs> plain_calls(std::type_identity<abi::AppendKvArgs>,
                                                  Regions const& at) {
  std::vector<abi::AppendKvArgs> calls;
  for (DType type : element_types)
    for (DType cache : element_types)
      for (bool rotated : {false, true}) {
        abi::AppendKvArgs g{};
        g.type_new = g.type_q = g.type_q_out = type, g.type_cache = cache;
        g.k_new = at.matrix(type, 0), g.v_new = at.matrix(type, 1);
        g.k_cache = reinterpret_cast<void*>(at.results);
        g.v_cache = reinterpret_cast<void*>(at.results + Regions::bytes / 2);
        g.batch = 4, g.heads = 2, g.seqlen_new = 3;
        g.head_dim = g.head_dim_v = 64, g.capacity = 64;
        lay_out(g.k_new_stride, 2, 3 * 4, 64), lay_out(g.v_new_stride, 2, 3 * 4, 64);
        lay_out(g.q_stride, 2, 3, 64), lay_out(g.q_out_stride, 2, 3, 64);
        lay_out(g.k_cache_stride, 2, 64, 64), lay_out(g.v_cache_stride, 2, 64, 64);
        g.new_lengths_stride = g.cache_lengths_stride = 1;
        g.page_size = 16, g.num_pages = 16;
        g.page_table_stride[0] = 4, g.page_table_stride[1] = 1;
        g.table_rows = 64, g.rotary_dim = 32;
        g.cos_stride[0] = g.sin_stride[0] = 32, g.cos_stride[1] = g.sin_stride[1] = 1;
        if (rotated) complete(g, "q", at);
        calls.push_back(g);
      }
  return calls;
}

inline std::vector<abi::GemmArgs> plain_calls(std::type_identity<abi::GemmArgs>,
                                              Regions const& at) {
  struct Extents {
    std::int64_t m, n, k, batch;
  };
  std::vector<abi::GemmArgs> calls;
  for (Extents const e :
       {Extents{256, 256, 256, 1}, {16, 16, 16, 1000}, {128, 128, 128, 2}, {4096, 4096, 64, 1}})
    for (DType a : element_types)
      for (DType b : element_types)
        for (DType c : element_types)
          for (Compute compute : {Compute::ieee, Compute::tf32, Compute::tf32x3})
            // Plain, groups, counted rows, and each of them biased.
            for (int form = 0; form < 6; ++form) {
              if (dtype_size(a) != dtype_size(b) || (dtype_size(a) != 1 && a != b)) continue;
              if (compute != Compute::ieee && a != DType::float32) continue;
              abi::GemmArgs g{};
              g.type_a = a, g.type_b = b, g.type_c = c, g.compute = compute;
              g.m = e.m, g.n = e.n, g.k = e.k, g.batch = e.batch;
              g.a = at.matrix(a, 0), g.b = at.matrix(b, 1);
              g.c = reinterpret_cast<void*>(at.results);
              g.a_batch = e.m * e.k, g.a_m = e.k, g.a_k = 1;
              g.b_batch = e.n * e.k, g.b_n = e.k, g.b_k = 1;
              g.c_batch = e.m * e.n, g.c_m = e.n, g.c_n = 1;
              g.residual_batch = g.pre_activation_batch = g.c_batch;
              g.residual_m = g.pre_activation_m = e.n, g.residual_n = g.pre_activation_n = 1;
              g.bias_stride = g.counts_stride = g.offsets_stride = 1, g.groups = 2;
              if (form >= 3) Asking<abi::GemmArgs>{g, "bias", at}(g.bias);
              if (form % 3 == 1) Asking<abi::GemmArgs>{g, "offsets", at}(g.offsets);
              if (form % 3 == 2) Asking<abi::GemmArgs>{g, "counts", at}(g.counts);
              calls.push_back(g);
            }
  return calls;
}

inline std::vector<abi::GatedMlpArgs> plain_calls(std::type_identity<abi::GatedMlpArgs>,
                                                  Regions const& at) {
  std::vector<abi::GatedMlpArgs> calls;
  for (DType type : element_types) {
    abi::GatedMlpArgs g{};
    g.type_x = g.type_weight = g.type_out = type;
    g.x = at.matrix(type, 0), g.gate_weight = at.matrix(type, 1), g.up_weight = at.matrix(type, 2);
    g.out = reinterpret_cast<void*>(at.results);
    g.batch = 1, g.tokens = 128, g.hidden = 256, g.intermediate = 256;
    g.x_batch = 128 * 256, g.x_token = g.gate_intermediate = g.up_intermediate = 256;
    g.x_hidden = g.gate_hidden = g.up_hidden = 1;
    g.out_batch = 128 * 256, g.out_token = 256, g.out_intermediate = 1;
    calls.push_back(g);
  }
  return calls;
}

/// Those that a kernel takes on a device.
template <class Kernel, class Args>
std::vector<Args> taken_calls(std::vector<Args> const& calls, abi::Device const& device) {
  std::vector<Args> taken;
  for (Args const& g : calls)
    if (Kernel::accepts(g, device).ok) taken.push_back(g);
  return taken;
}

}  // namespace attikos::test
