// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// append_kv/sm80_simt called directly: cases over padded and packed tokens, plain and paged
/// caches, and the comparison of every byte of memory with float64.
#pragma once

#include <attikos/abi/append_kv_cuda.hpp>
#include <attikos/core/dtypes.hpp>
#include <attikos/reference/append_kv_reference.hpp>
#include <attikos/reference/rope_reference.hpp>
#include <memory>

#include "attention/attention_cases.hpp"

namespace {

using abi::AppendKvArgs;
using AppendKernel = abi::AppendKvSm80Simt;

struct AppendCase {
  std::int64_t batch = 3, heads = 2, seqlen = 5, d = 64, dv = 64, capacity = 40;
  std::int64_t page_size = 0;  ///< 0: plain; else divides capacity
  std::int64_t rotary = 0;     ///< features that are rotated; 0: no tables
  bool interleaved = false, half_width = false;
  std::int64_t table_rows = 50;
  std::int64_t heads_q = 0, seqlen_q = 0;  ///< 0: no queries
  bool share = false, in_place = false;
  std::vector<int> lengths = {7, 38, 0};  ///< of the cache; empty: none given
  std::vector<int> counts = {};           ///< of new tokens
  std::vector<int> cu = {}, cu_q = {};    ///< offsets of packed tokens, queries
  bool wide = false;                      ///< offsets of 64 bits
  Order order = Order::heads_first, order_cache = Order::heads_first;
  double amplitude = 2;
};

inline std::string describe(AppendCase const& t) {
  std::ostringstream text;
  text << "batch " << t.batch << " heads " << t.heads << " new " << t.seqlen << " d " << t.d << '/'
       << t.dv << " capacity " << t.capacity << " page " << t.page_size << " rotary " << t.rotary
       << (t.interleaved ? " interleaved" : "") << (t.half_width ? " half width" : "")
       << " table rows " << t.table_rows << " queries " << t.heads_q << 'x' << t.seqlen_q
       << (t.share ? " shared" : "") << (t.in_place ? " in place" : "") << " lengths "
       << t.lengths.size() << " counts " << t.counts.size() << " packed " << t.cu.size() << ' '
       << t.cu_q.size() << (t.wide ? " wide" : "") << " order " << static_cast<int>(t.order)
       << static_cast<int>(t.order_cache);
  return text.str();
}

/// What storing as T may lose of a number that is itself off by `error`.
template <class T>
double stored_error(double value, double error) {
  double const reach = std::abs(value) + error;
  if constexpr (sizeof(T) == 1) return error + half_spacing<T>(reach);
  double const least = std::is_same_v<T, __half> ? 0x1p-25 : 0;  // subnormal
  return error + std::max(rounding<T>() * reach, least);
}

/// The tensors of a case on both sides. What no sequence owns is NaN; bytes between rows are 0xFF.
template <class X, class C, class Table>
struct AppendProblem {
  AppendCase t;
  std::int64_t batch, max_pages, num_pages;
  bool packed, packed_q;
  Tensor4<X> k, v, q, q_out;
  Tensor4<C> k_cache, v_cache;
  Tensor4<Table> cos, sin;
  std::vector<int> table;
  DeviceArray<int> lengths, counts, pages;
  DeviceArray<int> cu, cu_q;
  DeviceArray<std::int64_t> cu_wide, cu_q_wide;

  explicit AppendProblem(AppendCase const& c)
      : t(c),
        batch(!c.cu.empty()     ? static_cast<std::int64_t>(c.cu.size()) - 1
              : !c.cu_q.empty() ? static_cast<std::int64_t>(c.cu_q.size()) - 1
                                : c.batch),
        max_pages(c.page_size == 0 ? 0 : c.capacity / c.page_size),
        num_pages(batch * max_pages + 2),
        packed(!c.cu.empty()),
        packed_q(!c.cu_q.empty()),
        k(packed ? 1 : batch, c.heads, c.seqlen, c.d, c.order, 1, c.amplitude),
        v(packed ? 1 : batch, c.heads, c.seqlen, c.dv, c.order, 2, c.amplitude),
        q(packed_q ? 1 : batch, c.heads_q, c.seqlen_q, c.d, c.order, 3, c.amplitude),
        q_out(packed_q ? 1 : batch, c.heads_q, c.seqlen_q, c.d, c.order_cache, 4, 1),
        k_cache(c.page_size == 0 ? batch : num_pages, c.heads,
                c.page_size == 0 ? c.capacity : c.page_size, c.d, c.order_cache, 5, 1),
        v_cache(c.page_size == 0 ? batch : num_pages, c.heads,
                c.page_size == 0 ? c.capacity : c.page_size, c.dv, c.order_cache, 6, 1),
        cos(1, 1, c.table_rows, c.half_width ? c.rotary / 2 : c.rotary, c.order, 7, 1),
        sin(1, 1, c.table_rows, c.half_width ? c.rotary / 2 : c.rotary, c.order, 8, 1),
        table(make_table()),
        lengths(c.lengths),
        counts(c.counts),
        pages(table),
        cu(c.cu),
        cu_q(c.cu_q),
        cu_wide(wide_offsets(c.cu)),
        cu_q_wide(wide_offsets(c.cu_q)) {
    for (auto* x : {&k, &v}) poison_unowned(*x, t.cu, t.counts);
    poison_unowned(q, t.cu_q, {});
    k.upload(), v.upload(), q.upload(), q_out.upload();
    k_cache.upload(), v_cache.upload(), cos.upload(), sin.upload();
  }

  /// Pages of a sequence lie backwards and between those of the others; some entries are no pages.
  std::vector<int> make_table() const {
    std::vector<int> all;
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t n = 0; n < max_pages; ++n) {
        std::int64_t const entry = 1 + b + (max_pages - 1 - n) * batch;
        bool const bad = (b * 3 + n) % 7 == 4;
        all.push_back(static_cast<int>(!bad         ? entry
                                       : n % 3 == 0 ? -1
                                       : n % 3 == 1 ? num_pages
                                                    : 1 << 30));
      }
    return all;
  }

  /// The sequence of row `row` in [outer, :, row, :] and its number there; −1: none.
  std::pair<std::int64_t, std::int64_t> token(std::int64_t outer, std::int64_t row,
                                              std::vector<int> const& offsets,
                                              std::vector<int> const& count) const {
    if (offsets.empty()) {
      bool const none = !count.empty() && row >= count[static_cast<std::size_t>(outer)];
      return {none ? -1 : outer, row};
    }
    for (std::size_t b = 0; b + 1 < offsets.size(); ++b)
      if (row >= offsets[b] && row < offsets[b + 1])
        return {static_cast<std::int64_t>(b), row - offsets[b]};
    return {-1, row};
  }
  void poison_unowned(Tensor4<X>& x, std::vector<int> const& offsets,
                      std::vector<int> const& count) {
    for (std::int64_t o = 0; o < x.extent[0]; ++o)
      for (std::int64_t r = 0; r < x.extent[2]; ++r)
        if (token(o, r, offsets, count).first < 0)
          for (std::int64_t h = 0; h < x.extent[1]; ++h) x.poison(o, h, r);
  }

  std::int64_t start(std::int64_t b) const {
    return t.lengths.empty() ? 0 : t.lengths[static_cast<std::size_t>(b)];
  }

  AppendKvArgs arguments() {
    AppendKvArgs g;
    g.k_new = k.begin(), g.v_new = v.begin(), g.k_cache = k_cache.begin();
    g.v_cache = v_cache.begin();
    g.type_new = dtype_of<X>(), g.type_cache = dtype_of<C>();
    g.batch = batch, g.heads = t.heads, g.seqlen_new = t.seqlen;
    g.head_dim = t.d, g.head_dim_v = t.dv, g.capacity = t.capacity;
    for (int r = 0; r < 4; ++r) {
      g.k_new_stride[r] = k.stride[r], g.v_new_stride[r] = v.stride[r];
      g.k_cache_stride[r] = k_cache.stride[r], g.v_cache_stride[r] = v_cache.stride[r];
      g.q_stride[r] = q.stride[r], g.q_out_stride[r] = q_out.stride[r];
      mislead(k.extent[r], {&g.k_new_stride[r]});
      mislead(v.extent[r], {&g.v_new_stride[r]});
      mislead(k_cache.extent[r], {&g.k_cache_stride[r]});
      mislead(v_cache.extent[r], {&g.v_cache_stride[r]});
      mislead(q.extent[r], {&g.q_stride[r], &g.q_out_stride[r]});
    }
    if (packed)
      g.cu_seqlens_new =
          t.wide ? abi::Offsets{cu_wide.data, true, 2} : abi::Offsets{cu.data, false, 1};
    g.new_lengths = counts.data, g.new_lengths_stride = 1;
    g.cache_lengths = lengths.data, g.cache_lengths_stride = 1;
    if (t.page_size != 0) {
      g.page_table = pages.data, g.page_table_stride[0] = max_pages, g.page_table_stride[1] = 1;
      g.page_size = t.page_size, g.num_pages = num_pages;
    }
    if (t.rotary != 0) {
      g.cos = cos.begin(), g.sin = sin.begin(), g.type_table = dtype_of<Table>();
      g.table_rows = t.table_rows, g.rotary_dim = t.rotary;
      for (int r = 0; r < 2; ++r) {
        g.cos_stride[r] = cos.stride[2 + r], g.sin_stride[r] = sin.stride[2 + r];
        mislead(cos.extent[2 + r], {&g.cos_stride[r], &g.sin_stride[r]});
      }
      g.interleaved = t.interleaved, g.half_width = t.half_width;
    }
    if (t.heads_q != 0) {
      g.q = q.begin(), g.q_out = t.in_place ? q.begin() : q_out.begin();
      if (t.in_place) std::copy(g.q_stride, g.q_stride + 4, g.q_out_stride);
      g.heads_q = t.heads_q, g.seqlen_q = t.seqlen_q;
      g.queries_share_position = t.share;
      if (packed_q)
        g.cu_seqlens_q =
            t.wide ? abi::Offsets{cu_q_wide.data, true, 2} : abi::Offsets{cu_q.data, false, 1};
    }
    g.type_q = g.type_q_out = g.type_new;
    return g;
  }

  /// A head as it has to arrive: rotated for `position` if `rotates`.
  reference::RopeHead head(Tensor4<X> const& x, std::int64_t o, std::int64_t h, std::int64_t r,
                           std::int64_t position, bool rotates) const {
    std::vector<double> features, c, s;
    for (std::int64_t e = 0; e < x.extent[3]; ++e) features.push_back(x.value(o, h, r, e));
    if (rotates && t.rotary != 0) {
      std::int64_t const row = std::clamp<std::int64_t>(position, 0, t.table_rows - 1);
      for (std::int64_t e = 0; e < cos.extent[3]; ++e) {
        c.push_back(cos.value(0, 0, row, e));
        s.push_back(sin.value(0, 0, row, e));
      }
      if (t.half_width) {
        c = reference::rope_full_width(c, t.interleaved);
        s = reference::rope_full_width(s, t.interleaved);
      }
    }
    return reference::rope_head(features, c, s, t.interleaved, false);
  }

  /// One row that was written, as `after` has it, against the head it should be; then `x` takes it
  /// over.
  template <class T>
  void compare_row(Tensor4<T>& x, std::vector<unsigned char> const& after, std::int64_t o,
                   std::int64_t h, std::int64_t r, reference::RopeHead const& expected,
                   bool rotates) {
    double const u = std::is_same_v<X, double> ? 0x1p-53 : 0x1p-24;
    for (std::int64_t e = 0; e < x.extent[3]; ++e) {
      auto const n = static_cast<std::size_t>(e);
      bool const turned = rotates && e < t.rotary, exact = !turned && std::is_same_v<T, X>;
      double const want = expected.out[n];
      // Two products and a sum. 2u of them is twice the oracle's own error of float64.
      double const error =
          turned ? (std::is_same_v<X, double> ? 5 : 3) * u * expected.magnitude[n] : 0;
      double const bound = exact ? 0 : stored_error<T>(want, error);
      std::memcpy(static_cast<void*>(&x.at(o, h, r, e)),
                  after.data() + x.offset(o, h, r, e) * sizeof(T), sizeof(T));
      double const got = x.value(o, h, r, e);
      ASSERT_EQ(std::abs(got - want) <= bound, true)
          << "at " << o << ' ' << h << ' ' << r << ' ' << e << ": " << got << ", expected " << want
          << " within " << bound;
    }
  }

  template <class T>
  static std::vector<unsigned char> download(Tensor4<T> const& x) {
    std::vector<unsigned char> bytes(x.host.size());
    EXPECT_EQ(cudaMemcpy(bytes.data(), x.device, bytes.size(), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return bytes;
  }

  void compare_cache(Tensor4<C>& cache, Tensor4<X> const& x, bool rotates) {
    auto const after = download(cache);
    for (std::int64_t o = 0; o < x.extent[0]; ++o)
      for (std::int64_t r = 0; r < x.extent[2]; ++r) {
        auto const [b, i] = token(o, r, t.cu, t.counts);
        if (b < 0) continue;
        std::int64_t const position = start(b) + i;
        std::vector<std::int64_t> const own(table.begin() + b * max_pages,
                                            table.begin() + (b + 1) * max_pages);
        auto const slot = t.page_size == 0
                              ? reference::plain_slot(b, position, t.capacity)
                              : reference::paged_slot(own, position, t.page_size, num_pages);
        if (!slot) continue;
        for (std::int64_t h = 0; h < t.heads; ++h) {
          compare_row(cache, after, slot->outer, h, slot->row, head(x, o, h, r, position, rotates),
                      rotates);
          STOP_AT_FAILURE;
        }
      }
    EXPECT_EQ(cache.host == after, true) << "memory changed that no new position stands for";
  }

  void compare_queries(AppendKvArgs const& g) {
    Tensor4<X>& out = t.in_place ? q : q_out;
    auto const after = download(out);
    std::vector<std::vector<reference::RopeHead>> expected;  // before `q` takes over what came back
    auto const visit = [&](auto const& f) {
      for (std::int64_t o = 0; o < q.extent[0]; ++o)
        for (std::int64_t r = 0; r < q.extent[2]; ++r)
          for (std::int64_t h = 0; h < q.extent[1]; ++h) f(o, r, h);
    };
    visit([&](std::int64_t o, std::int64_t r, std::int64_t h) {
      auto const [b, i] = token(o, r, t.cu_q, {});
      bool const none = b < 0;
      auto row =
          none ? reference::RopeHead{} : head(q, o, h, r, start(b) + (t.share ? 0 : i), true);
      if (none) row.out.assign(static_cast<std::size_t>(t.d), 0), row.magnitude = row.out;
      expected.push_back({row});
    });
    std::size_t n = 0;
    visit([&](std::int64_t o, std::int64_t r, std::int64_t h) {
      if (testing::Test::HasFatalFailure()) return;
      compare_row(out, after, o, h, r, expected[n++][0], g.cos != nullptr);
    });
    STOP_AT_FAILURE;
    EXPECT_EQ(out.host == after, true) << "memory changed beside the queries";
  }
};

template <class X, class C = X, class Table = float>
void run_append(AppendCase const& t) {
  SKIP_IF_LEFT_OUT(AppendKernel);
  Device const device = abi::query_device(abi::current_device());
  ASSERT_GE(device.compute_major, 8) << "this suite needs a card of compute capability 8.0";
  SCOPED_TRACE(describe(t) + " types " + dtype_name(dtype_of<X>()) + ' ' +
               dtype_name(dtype_of<C>()) + ' ' + dtype_name(dtype_of<Table>()));
  // Few threads wanted: many heads to a thread; many: one.
  for (int multiprocessors : {1, device.sm_count}) {
    AppendProblem<X, C, Table> x(t);
    AppendKvArgs const g = x.arguments();
    Device pretended = device;
    pretended.sm_count = multiprocessors;
    ASSERT_STREQ(AppendKernel::accepts(g, pretended).reason, "");
    ASSERT_EQ(AppendKernel::launch(g, pretended, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaDeviceSynchronize());
    x.compare_cache(x.k_cache, x.k, true);
    STOP_AT_FAILURE;
    x.compare_cache(x.v_cache, x.v, false);
    STOP_AT_FAILURE;
    if (t.heads_q != 0) x.compare_queries(g);
    STOP_AT_FAILURE;
  }
}

}  // namespace
