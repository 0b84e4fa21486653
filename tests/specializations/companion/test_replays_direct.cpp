// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Kernels captured into graphs and replayed while what they read changes on the device: contents,
// offsets, counts, lengths, tables of pages. The suite fails without a Hopper
// card.
#include <attikos/abi/gated_mlp.hpp>
#include <tuple>

#include "decode/direct_decode.hpp"
#include "direct_replay.hpp"

namespace {

/// A matrix of the same extents with other contents takes the place of `x` on the device.
template <class T>
void renew(Matrix<T> const& x, int round) {
  Matrix<T> const next(x.batch, x.rows, x.columns, x.stride_row == 1, 0, false,
                       100 + static_cast<std::uint32_t>(round));
  ASSERT_EQ(next.host.size(), x.host.size());
  ASSERT_CUDA(cudaMemcpy(x.device, next.host.data(), x.host.size(), cudaMemcpyHostToDevice));
}

/// A product of many steps whose A changes; `ask` completes the call.
template <class Kernel, class T, class C, class Ask>
void replay_product(std::int64_t m, std::int64_t n, std::int64_t k, Ask ask) {
  SKIP_IF_LEFT_OUT(Kernel);
  SCOPED_TRACE(testing::Message() << Kernel::name << ' ' << m << ' ' << n << ' ' << k);
  Matrix<T> a(1, m, k, false, 0, false, 1), b(1, k, n, true, 0, false, 2);
  Matrix<C> c(1, m, n, false, 0, false, 3);
  a.upload(), b.upload(), c.upload();
  GemmArgs g;
  g.a = a.begin(), g.b = b.begin(), g.c = c.begin();
  g.type_a = g.type_b = dtype_of<T>(), g.type_c = dtype_of<C>();
  g.m = m, g.n = n, g.k = k, g.batch = 1;
  g.a_m = a.stride_row, g.a_k = g.b_k = g.c_n = 1, g.b_n = b.stride_column, g.c_m = c.stride_row;
  ask(g);
  Device const device = abi::query_device(abi::current_device());
  ASSERT_STREQ(Kernel::accepts(g, device).reason, "");
  captured_equals(
      {{c.device, c.host.size()}},
      [&](cudaStream_t stream) { return Kernel::launch(g, device, stream); },
      [&](int round) { renew(a, round); });
}
template <class Kernel, class T, class C = T>
void replay_product(std::int64_t m, std::int64_t n, std::int64_t k) {
  replay_product<Kernel, T, C>(m, n, k, [](GemmArgs& g) { g.compute = Compute::tf32x3; });
}

TEST(ReplayRuns, Sm90Products) {
  replay_product<abi::GemmSm90WgmmaF16, __half>(1000, 1304, 2048);
  replay_product<abi::GemmSm90WgmmaBf16, __nv_bfloat16>(16, 1024, 8192);  // shares of K
  replay_product<abi::GemmSm90WgmmaF16, __half>(100, 256, 8200);
  replay_product<abi::GemmSm90WgmmaS8, std::int8_t, int>(1000, 776, 1040);
  replay_product<abi::GemmSm90WgmmaS8, std::int8_t, int>(24, 512, 8208);
  replay_product<abi::GemmSm90WgmmaF8, E4, __nv_bfloat16>(1000, 776, 1040);
  replay_product<abi::GemmSm90SimtF32, float>(1000, 776, 520);
  replay_product<abi::GemmSm90SimtF32, float>(128, 136, 4100);
  replay_product<abi::GemmSm90WgmmaTf32x3, float>(1000, 776, 1032);
  replay_product<abi::GemmSm90MmaF64, double>(2000, 1928, 200);
}

TEST(ReplayRuns, OtherProducts) {
  replay_product<abi::GemmSm75WmmaF16, __half, float>(500, 300, 1111);
  replay_product<abi::GemmSm80MmaF16, __half>(500, 300, 1111);
  replay_product<abi::GemmSm80MmaBf16, __nv_bfloat16>(500, 300, 1111);
  replay_product<abi::GemmSm80MmaS8, std::int8_t, int>(500, 300, 1111);
  replay_product<abi::GemmSm80MmaF64, double>(500, 300, 555);
  replay_product<abi::GemmSm80MmaTf32x3, float>(500, 300, 1111);
  replay_product<abi::GemmSm80MmaTf32, float, float>(
      500, 300, 1111, [](GemmArgs& g) { g.compute = Compute::tf32; });
  replay_product<abi::GemmSm80SimtF32, float>(500, 300, 1111);
  replay_product<abi::GemmSm89MmaF8, E4, float>(500, 300, 1111);
}

/// Factors for every 128 along K of rows and of 128 columns, together by row or along K.
TEST(ReplayRuns, FactorsOfBlocks) {
  for (bool by_rows : {false, true}) {
    Matrix<float> rows(1, 1000, 16, by_rows, 0, false, 4), columns(1, 16, 7, by_rows, 0, false, 5);
    rows.upload(), columns.upload();
    replay_product<abi::GemmSm90WgmmaF8, E4, __nv_bfloat16>(1000, 776, 2048, [&](GemmArgs& g) {
      g.scale_a = {rows.begin(), 0, rows.stride_row, rows.stride_column, 0, 7};
      g.scale_b = {columns.begin(), 0, columns.stride_row, columns.stride_column, 7, 7};
    });
  }
}

TEST(ReplayRuns, GatedMlp) {
  SKIP_IF_LEFT_OUT(abi::GatedMlpSm90WgmmaBf16);
  using T = __nv_bfloat16;
  for (std::int64_t tokens : {16, 520}) {
    Matrix<T> x(1, tokens, 1032, false, 0, false, 1), gate(1, 648, 1032, false, 0, false, 2),
        up(1, 648, 1032, false, 0, false, 3), out(1, tokens, 648, false, 0, false, 4);
    x.upload(), gate.upload(), up.upload(), out.upload();
    abi::GatedMlpArgs g;
    g.x = x.begin(), g.gate_weight = gate.begin(), g.up_weight = up.begin(), g.out = out.begin();
    g.type_x = g.type_weight = g.type_out = DType::bfloat16;
    g.batch = 1, g.tokens = tokens, g.hidden = 1032, g.intermediate = 648;
    g.x_token = x.stride_row, g.gate_intermediate = gate.stride_row;
    g.up_intermediate = up.stride_row, g.out_token = out.stride_row;
    g.x_hidden = g.gate_hidden = g.up_hidden = g.out_intermediate = 1;
    g.activation = Activation::silu;
    Device const device = abi::query_device(abi::current_device());
    captured_equals(
        {{out.device, out.host.size()}},
        [&](cudaStream_t stream) { return abi::GatedMlpSm90WgmmaBf16::launch(g, device, stream); },
        [&](int round) { renew(x, round); });
  }
}

/// Offsets or counts are others in each round: groups of no rows and of all, entries out of range.
template <class Kernel, class T>
void replay_groups(bool masked) {
  SKIP_IF_LEFT_OUT(Kernel);
  SCOPED_TRACE(testing::Message() << Kernel::name << (masked ? " counts" : " offsets"));
  std::vector<std::vector<int>> const lists{{0, 300, 300, 421, 700},
                                            {0, 0, 0, 0, 700},
                                            {5, 69, 70, 200, 201},
                                            {-7, 128, 256, 384, 9000},
                                            {0, 175, 350, 525, 600}};
  std::int64_t const batch = masked ? 4 : 1, m = masked ? 256 : 700, n = 392, k = 1040;
  Matrix<T> a(batch, m, k, false, 0, false, 1), b(4, k, n, true, 0, false, 2);
  Matrix<__nv_bfloat16> c(batch, m, n, false, 0, false, 3);
  a.upload(), b.upload(), c.upload();
  DeviceArray<int> const list(lists[0]);
  GemmArgs g;
  g.a = a.begin(), g.b = b.begin(), g.c = c.begin();
  g.type_a = g.type_b = dtype_of<T>(), g.type_c = DType::bfloat16;
  g.m = m, g.n = n, g.k = k, g.batch = batch;
  g.a_batch = a.stride_batch, g.b_batch = b.stride_batch, g.c_batch = c.stride_batch;
  g.a_m = a.stride_row, g.a_k = g.b_k = g.c_n = 1, g.b_n = b.stride_column, g.c_m = c.stride_row;
  if (masked)
    g.counts = list.data, g.counts_stride = 1;
  else
    g.offsets = list.data, g.offsets_stride = 1, g.groups = 4;
  Device const device = abi::query_device(abi::current_device());
  ASSERT_STREQ(Kernel::accepts(g, device).reason, "");
  captured_equals(
      {{c.device, c.host.size()}},
      [&](cudaStream_t stream) { return Kernel::launch(g, device, stream); },
      [&](int round) {
        ASSERT_CUDA(cudaMemcpy(list.data, lists[static_cast<std::size_t>(round)].data(), 20,
                               cudaMemcpyHostToDevice));
      });
}

TEST(ReplayRuns, Groups) {
  for (bool masked : {false, true}) {
    replay_groups<abi::GemmSm90GroupedF16, __half>(masked);
    replay_groups<abi::GemmSm90GroupedBf16, __nv_bfloat16>(masked);
    replay_groups<abi::GemmSm90GroupedF8, E4>(masked);
    replay_groups<abi::GemmSm90GroupedS8, std::int8_t>(masked);
    replay_groups<abi::GemmSm80MmaF16, __half>(masked);
  }
}

void put(DeviceArray<int> const& array, std::vector<int> const& values) {
  ASSERT_CUDA(cudaMemcpy(array.data, values.data(), values.size() * 4, cudaMemcpyHostToDevice));
}

/// Lengths, boundaries and the table of pages, whichever a case has, are others in each round.
template <class T>
void change_lists(DecodeProblem<T> const& x, int round) {
  auto const below = [&](std::int64_t n, std::uint32_t seed) {
    return static_cast<int>(mix(seed + 64 * static_cast<std::uint32_t>(round)) %
                            static_cast<std::uint32_t>(n));
  };
  for (auto [list, lengths, most] : {std::tuple{x.lengths_q.get(), &x.t.lengths_q, x.t.len_q},
                                     {x.lengths_kv.get(), &x.t.lengths_kv, x.t.len_kv}}) {
    auto values = *lengths;
    std::uint32_t seed = 1;
    for (int& value : values) value = below(most + 1, seed++);
    if (!values.empty()) put(*list, values);
  }
  for (auto [list, boundaries] :
       {std::tuple{x.cu_q.get(), &x.t.cu_q}, {x.cu_kv.get(), &x.t.cu_kv}}) {
    auto values = *boundaries;
    for (std::size_t i = 1; i + 1 < values.size(); ++i)
      values[i] += below(40, static_cast<std::uint32_t>(i));
    if (!values.empty()) put(*list, values);
  }
  if (x.table.empty()) return;
  auto table = x.table;
  std::rotate(table.begin(), table.begin() + 3 * round, table.end());
  put(*x.pages, table);
}

/// `Out`: another type of out than that of q, k and v.
template <class Kernel, class T, class Out = T>
void replay_attention(DecodeCase const& t, Compute compute = Compute::ieee) {
  SKIP_IF_LEFT_OUT(Kernel);
  SCOPED_TRACE(Kernel::name + (' ' + describe(t, std::is_same_v<T, __half>)));
  DecodeProblem<T> x(t);
  Tensor4<Out> out(x.out.extent[0], t.heads, t.len_q, t.dv, t.order, 4, 1);
  out.upload(), x.lse.upload();
  AttentionArgs g = x.arguments();
  g.out = out.begin(), g.type_out = dtype_of<Out>(), g.lse = x.lse.begin(), g.compute = compute;
  for (int r = 0; r < 4; ++r) g.out_stride[r] = r == 0 && x.packed_q ? 0 : out.stride[r];
  Device const device = abi::query_device(abi::current_device());
  ASSERT_STREQ(Kernel::accepts(g, device).reason, "");
  captured_equals(
      {{out.device, out.host.size()}, {x.lse.device, x.lse.host.size()}},
      [&](cudaStream_t stream) { return Kernel::launch(g, device, stream); },
      [&](int round) { change_lists(x, round); });
}

/// A call whose keys are the output of the one ahead of it, in a graph and with a pause between
/// the two.
template <class Kernel, class T>
void replay_chain(std::int64_t d, std::int64_t length) {
  SKIP_IF_LEFT_OUT(Kernel);
  DecodeCase t{.batch = 4, .heads = 8, .heads_kv = 8, .len_q = length, .len_kv = length};
  t.d = t.dv = d;
  SCOPED_TRACE(Kernel::name + (' ' + describe(t, std::is_same_v<T, __half>)));
  DecodeProblem<T> second(t);
  t.lengths_kv.assign(4, static_cast<int>(length));  // change from round to round
  DecodeProblem<T> first(t);
  second.out.upload();
  AttentionArgs g[2] = {first.arguments(), second.arguments()};
  g[0].out = second.k.begin(), g[1].out = second.out.begin();
  for (int r = 0; r < 4; ++r)
    g[0].out_stride[r] = second.k.stride[r], g[1].out_stride[r] = second.out.stride[r];
  Device const device = abi::query_device(abi::current_device());
  for (AttentionArgs& call : g) {
    call.lse = nullptr;
    ASSERT_STREQ(Kernel::accepts(call, device).reason, "");
  }
  captured_equals(
      {{second.k.device, second.k.host.size()}, {second.out.device, second.out.host.size()}},
      [&](cudaStream_t stream) {
        int const status = Kernel::launch(g[0], device, stream);
        if (!abi::stream_is_capturing(stream)) cudaStreamSynchronize(stream);
        return status == cudaSuccess ? Kernel::launch(g[1], device, stream) : status;
      },
      [&](int round) { change_lists(first, round); });
}

/// Padded sequences, with a value of NaN that some rows must not see and are repaired for.
DecodeCase padded(std::int64_t d, std::int64_t length = 333) {
  auto const all = static_cast<int>(length);
  return {.batch = 4,
          .heads = 8,
          .heads_kv = 2,
          .len_q = length,
          .len_kv = length,
          .d = d,
          .dv = d,
          .causal = true,
          .lengths_q = {all, all, all, all},
          .lengths_kv = {all, all, all, all},
          .bad_keys = {70}};
}
DecodeCase packed(std::int64_t d, int length = 200) {
  DecodeCase t = padded(d);
  t.lengths_q = t.lengths_kv = {};
  t.cu_q = t.cu_kv = {0, length, 2 * length, 3 * length, 4 * length};
  t.len_q = t.len_kv = 4 * length;
  t.order = t.order_out = Order::positions_first;
  return t;
}
DecodeCase paged(std::int64_t d, std::int64_t page_size = 16) {
  DecodeCase t = padded(d, 336);
  t.page_size = page_size, t.lengths_q = {};
  return t;
}

TEST(ReplayRuns, AttentionSm90) {
  for (std::int64_t d : {32, 64, 96, 128, 192, 256}) {
    for (auto const& t : {padded(d), packed(d), paged(d), paged(d, 24), paged(d, 7)}) {
      replay_attention<abi::AttentionSm90WgmmaF16, __half>(t);
      replay_attention<abi::AttentionSm90WgmmaBf16, __nv_bfloat16>(t);
    }
    replay_attention<abi::AttentionSm90WgmmaE4m3, E4, __half>(padded(d));
    replay_attention<abi::AttentionSm90WgmmaE4m3, E4, __nv_bfloat16>(packed(d));
    replay_attention<abi::AttentionSm90WgmmaE4m3, E4, __half>(paged(d));
  }
}

TEST(ReplayRuns, AttentionOfAttention) {
  for (std::int64_t d : {64, 128, 256}) {
    replay_chain<abi::AttentionSm90WgmmaF16, __half>(d, 700);
    replay_chain<abi::AttentionSm90WgmmaBf16, __nv_bfloat16>(d, 700);
    replay_chain<abi::AttentionSm80MmaBf16, __nv_bfloat16>(d, 700);
    replay_chain<abi::AttentionSm80SimtF32, float>(d, 200);
  }
  for (std::int64_t d : {64, 128}) {
    replay_chain<abi::AttentionSm90ShortBf16, __nv_bfloat16>(d, 128);
    replay_chain<abi::AttentionSm80ShortF16, __half>(d, 100);
  }
}

TEST(ReplayRuns, AttentionShort) {
  for (std::int64_t d : {32, 64, 128})
    for (auto const& t : {padded(d, 120), packed(d, 100)}) {
      replay_attention<abi::AttentionSm90ShortF16, __half>(t);
      replay_attention<abi::AttentionSm90ShortBf16, __nv_bfloat16>(t);
      replay_attention<abi::AttentionSm80ShortF16, __half>(t);
      replay_attention<abi::AttentionSm80ShortBf16, __nv_bfloat16>(t);
    }
}

TEST(ReplayRuns, AttentionSm80) {
  for (std::int64_t d : {32, 64, 96, 128})
    for (auto const& t : {padded(d), packed(d), paged(d, 24)}) {
      replay_attention<abi::AttentionSm80MmaF16, __half>(t);
      replay_attention<abi::AttentionSm80MmaBf16, __nv_bfloat16>(t);
      replay_attention<abi::AttentionSm80MmaE4m3, E4, __half>(t);
      replay_attention<abi::AttentionSm80MmaF64, double>(t);
      replay_attention<abi::AttentionSm80SimtF32, float>(t);
      replay_attention<abi::AttentionSm80MmaTf32x3, float>(t, Compute::tf32x3);
      replay_attention<abi::AttentionSm75WmmaF16, __half>(t);
    }
}

}  // namespace
