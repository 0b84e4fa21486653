// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm90_wgmma_* and gemm/sm90_simt_f32 called directly over memory of cudaMalloc. Sm90Runs
// fails without a Hopper card.
#include <algorithm>
#include <array>
#include <thread>

#include "companion/direct_replay.hpp"
#include "direct_gemm_sm90.hpp"

namespace {

template <class A, class B, class C>
void shapes(bool fast = false) {
  std::int64_t const extents[][3] = {
      {1, 1, 1},      {1, 131, 7},     {131, 1, 129},  {5, 3, 64},      {16, 200, 65},
      {200, 16, 257}, {64, 64, 512},   {63, 65, 448},  {65, 127, 96},   {128, 128, 384},
      {129, 257, 40}, {257, 131, 449}, {300, 520, 72}, {72, 264, 1024}, {40, 136, 600}};
  for (auto const& e : extents)
    for (int layout = 0; layout < 8; ++layout) {
      Case t{e[0], e[1], e[2]};
      t.trans_c = (layout & 1) != 0, t.trans_a = (layout & 2) != 0, t.trans_b = (layout & 4) == 0;
      // Of 8-bit operands, at least one has its unit stride along K.
      if (sizeof(A) == 1 && t.trans_a && !t.trans_b && t.k > 1) continue;
      t.fast = fast;
      run<A, B, C>(t);
      if (testing::Test::HasFailure()) return;
    }
}

TEST(Sm90Runs, ShapesFloat16) { shapes<__half, __half, __half>(); }
TEST(Sm90Runs, ShapesFloat16ToFloat32) { shapes<__half, __half, float>(); }
TEST(Sm90Runs, ShapesBfloat16) { shapes<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16>(); }
TEST(Sm90Runs, ShapesBfloat16ToFloat32) { shapes<__nv_bfloat16, __nv_bfloat16, float>(); }
TEST(Sm90Runs, ShapesOfOneTypeToTheOther) {
  shapes<__half, __half, __nv_bfloat16>();
  shapes<__nv_bfloat16, __nv_bfloat16, __half>();
}
TEST(Sm90Runs, ShapesFloat32) { shapes<float, float, float>(); }
TEST(Sm90Runs, ShapesFloat8) {
  shapes<E4, E4, __nv_bfloat16>();
  shapes<E4, E5, float>();
  shapes<E5, E4, __half>();
  shapes<E5, E5, float>();
}
TEST(Sm90Runs, ShapesFloat8Fast) {
  shapes<E4, E4, float>(true);
  shapes<E4, E5, __nv_bfloat16>(true);
}
TEST(Sm90Runs, ShapesInt8) {
  shapes<std::int8_t, std::int8_t, int>();
  shapes<std::int8_t, std::int8_t, float>();
}

/// Factors that change every 128 along K, with row and column factors of the other operand, in all
/// configurations and from registers, however they lie.
TEST(Sm90Runs, BlockScales) {
  std::array<std::int64_t, 3> const sizes[] = {
      {200, 300, 720}, {8, 520, 1104}, {130, 40, 400}, {500, 264, 128}};
  int turn = 0;
  for (auto [rows, columns] :
       {std::array<std::int64_t, 2>{1, 128}, {128, 128}, {128, 1}, {1, 1}, {1, 0}, {0, 128}})
    for (auto [m, n, k] : sizes)
      for (int layout = 0; layout < 3; ++layout) {
        Case t{m, n, k};
        t.block_rows = rows, t.block_columns = columns, t.batch = 2;
        t.trans_a = layout == 1, t.trans_b = layout != 2, t.trans_c = layout == 2;
        t.fast = layout == 1, t.bias = layout == 0;
        t.lie = static_cast<Case::Blocks>((turn + turn / 3) % 3), ++turn;
        run<E4, E4, __nv_bfloat16>(t);
        if (testing::Test::HasFailure()) return;
      }
}

template <class A, class B, class C>
void epilogues() {
  for (auto activation : {Activation::none, Activation::relu, Activation::gelu,
                          Activation::gelu_tanh, Activation::silu})
    for (auto along : {BiasAlong::n, BiasAlong::m})
      for (std::int64_t m : {24, 140}) {
        Case t{m, 131, 200};
        t.alpha = 0.7, t.beta = 0.3, t.scale = 1.3, t.batch = 2, t.pad_c = 3;
        t.activation = activation, t.bias = t.residual = true, t.bias_along = along;
        t.factors = sizeof(A) == 1;
        t.trans_c = along == BiasAlong::m;
        run<A, B, C>(t);
        t.trans_b = false;  // turned, and from registers where operands are of 8 bits
        run<A, B, C>(t);
        if (testing::Test::HasFailure()) return;
      }
}

/// Epilogues that are finished in registers (one number for a row or a column, and activations) and
/// four elements at a time (C or a residual beside), with columns in whole groups of 8, of 4, and
/// not.
template <class A, class B, class C>
void fast_epilogues() {
  int turn = 0;
  for (bool matrix : {false, true})
    for (std::int64_t n : {136, 132, 131, 24})
      for (std::int64_t m : {24, 300})
        for (int layout = 0; layout < 4; ++layout, ++turn) {
          Case t{m, n, 200};
          t.alpha = 0.7, t.scale = turn % 2 == 0 ? 1 : 1.3, t.batch = 2;
          t.device_scale = turn % 3 == 0 && n > 1;
          t.activation = std::array{Activation::none, Activation::relu, Activation::gelu,
                                    Activation::gelu_tanh, Activation::silu}[turn % 5];
          t.bias = turn % 7 != 0, t.bias_along = turn % 3 == 1 ? BiasAlong::m : BiasAlong::n;
          t.factors = sizeof(A) == 1 && turn % 4 != 0;
          t.one_factor = sizeof(A) == 1 && turn % 4 == 3;
          t.trans_c = layout == 1, t.trans_b = layout != 2;
          t.trans_a = layout == 3, t.trans_c = t.trans_c || (layout == 3 && turn % 8 < 4);
          if (matrix) {
            t.residual = turn % 2 == 0, t.residual_as_c = turn % 4 < 3;
            if (!t.residual) t.beta = 0.3;
          }
          if (turn % 11 == 0) t.activation = Activation::none, t.bias = false;  // factors alone
          run<A, B, C>(t);
          if (testing::Test::HasFailure()) return;
        }
}

TEST(Sm90Runs, FastEpiloguesFloat16) { fast_epilogues<__half, __half, __half>(); }
TEST(Sm90Runs, FastEpiloguesBfloat16) {
  fast_epilogues<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16>();
  fast_epilogues<__nv_bfloat16, __nv_bfloat16, float>();
}
TEST(Sm90Runs, FastEpiloguesFloat8) { fast_epilogues<E4, E4, __nv_bfloat16>(); }
TEST(Sm90Runs, FastEpiloguesInt8) {
  fast_epilogues<std::int8_t, std::int8_t, __nv_bfloat16>();
  fast_epilogues<std::int8_t, std::int8_t, float>();
}

TEST(Sm90Runs, EpiloguesFloat16) { epilogues<__half, __half, __half>(); }
TEST(Sm90Runs, EpiloguesBfloat16ToFloat32) { epilogues<__nv_bfloat16, __nv_bfloat16, float>(); }
TEST(Sm90Runs, EpiloguesFloat32) { epilogues<float, float, float>(); }
TEST(Sm90Runs, EpiloguesFloat8) { epilogues<E4, E4, __nv_bfloat16>(); }
TEST(Sm90Runs, EpiloguesInt8) { epilogues<std::int8_t, std::int8_t, __nv_bfloat16>(); }

/// Factors alone, which come beside the products, and none: sums of one stage, of fewer stages than
/// a block has places for and of more, in tiles whole and cut, many of them a block's.
TEST(Sm90Runs, FactorsAlone) {
  std::int64_t const sizes[][2] = {{200, 392}, {136, 576}};
  int turn = 0;
  for (auto [m, n] : sizes)
    for (std::int64_t k : {80, 520})
      for (bool fast : {false, true}) {
        Case t{m, n, k};
        t.batch = turn % 2 + 1, t.fast = fast, t.alpha = 0.7;
        t.factors = turn % 3 == 0, t.one_factor = turn % 3 == 1;
        t.device_scale = turn % 4 == 0, t.scale = turn % 2 == 0 ? 1.3 : 1;
        ++turn;
        run<E4, E4, __nv_bfloat16>(t);
        t.trans_c = true;
        run<E5, E4, __half>(t);
        if (fast) run<std::int8_t, std::int8_t, __nv_bfloat16>(t);
        if (testing::Test::HasFailure()) return;
      }
}

/// Long sums of few tiles, which a cluster of blocks shares out where the device would idle
/// otherwise.
TEST(Sm90Runs, SharesOfK) {
  for (bool trans_b : {false, true})
    for (std::int64_t k : {2100, 8200}) {
      Case t{24, 72, k};
      t.trans_b = trans_b;
      run<__half, __half, __half>(t);
      t.m = 100, t.residual = true;
      run<__nv_bfloat16, __nv_bfloat16, float>(t);
    }
  Case t{16, 200, 8208};
  run<E4, E4, float>(t);
  run<std::int8_t, std::int8_t, int>(t);
}

/// Factors that go round the ring of stages many times, within one tile and from tile to tile.
TEST(Sm90Runs, BlockScalesOfLongSums) {
  for (auto [rows, columns] : {std::array<std::int64_t, 2>{1, 128}, {1, 1}, {128, 0}})
    for (bool trans_a : {false, true}) {
      Case t{140, 136, 4112};
      t.block_rows = rows, t.block_columns = columns, t.trans_a = trans_a;
      t.lie = rows == columns ? Case::Blocks::by_rows : Case::Blocks::along_k;
      run<E4, E4, __nv_bfloat16>(t);
      t.m = 40;
      run<E4, E4, float>(t);
    }
}

/// Tiles of many rounds on one multiprocessor: pairs of blocks that share B's tile, an odd number
/// of tiles along M.
TEST(Sm90Runs, PairsOfBlocks) {
  Case t{257, 264, 4104};
  run<__half, __half, __half>(t);
  t.bias = t.residual = t.residual_as_c = true, t.activation = Activation::gelu;
  run<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16>(t);  // finished in registers
  t = Case{257, 264, 4104};
  t.trans_a = true, t.trans_b = false;
  run<__nv_bfloat16, __nv_bfloat16, float>(t);
  t = Case{257, 520, 4112};
  run<E4, E5, float>(t);
  t.fast = true;
  run<E4, E4, __nv_bfloat16>(t);
  run<std::int8_t, std::int8_t, int>(t);
  t.trans_a = true;  // A from registers
  run<std::int8_t, std::int8_t, int>(t);
  run<E4, E4, __nv_bfloat16>(t);
  t.trans_a = t.trans_b = false;
  run<std::int8_t, std::int8_t, int>(t);
  run<E4, E5, float>(t);
}

/// Tiles of 128 × 64: too many of 64 × 64 to have a place each, too few of 128 × 128 to fill the
/// device.
TEST(Sm90Runs, NarrowTiles) {
  Case t{1000, 704, 72};
  run<__half, __half, __half>(t);
  t.trans_a = true, t.trans_b = false;
  run<__nv_bfloat16, __nv_bfloat16, float>(t);
  for (int layout : {1, 2, 3}) {  // broad ones in turns, on 8 multiprocessors
    t.n = 1152, t.k = 200, t.trans_a = layout != 1, t.trans_b = layout == 3;
    run<__half, __half, __half>(t);
  }
}

/// Tiles of 48 ... 224 columns, even on 8 multiprocessors, whole and cut, by vectors or one by one.
TEST(Sm90Runs, EvenTiles) {
  std::int64_t const sizes[][2] = {{128, 384}, {128, 376}, {256, 384},  {250, 380},
                                   {512, 384}, {512, 376}, {128, 896},  {120, 890},
                                   {256, 896}, {250, 890}, {1000, 1144}};
  for (auto [m, n] : sizes)
    for (bool bias : {false, true}) {
      Case t{m, n, 200};
      t.bias = bias;
      run<__half, __half, __half>(t);
      run<__nv_bfloat16, __nv_bfloat16, float>(t);
      t.fast = true;
      run<E4, E4, __nv_bfloat16>(t);
    }
}

/// 65 to 128 columns of a long operand, of which two blocks share out K; of a very long one, four.
TEST(Sm90Runs, SharedKOfWideTiles) {
  for (std::int64_t m : {128, 100}) {
    run<__half, __half, __half>({m, 256, 2100});
    run<std::int8_t, std::int8_t, int>({m, 250, 4112});
    Case t{m, m + 16, 12304};
    t.bias = m == 100, t.fast = true;
    run<__nv_bfloat16, __nv_bfloat16, __nv_bfloat16>(t);
    t.factors = true;  // alone, or with a bias
    run<E4, E4, __nv_bfloat16>(t);
  }
}

TEST(Sm90Runs, OnAThreadThatHasCalledNothing) {
  SKIP_IF_LEFT_OUT(abi::GemmSm90WgmmaF16);
  Device const device = abi::query_device(abi::current_device());
  Matrix<__half> a(1, 64, 64, false, 0, false, 1), b(1, 64, 64, true, 0, false, 2),
      c(1, 64, 64, false, 0, false, 3);
  a.upload(), b.upload(), c.upload();
  GemmArgs g;
  g.a = a.begin(), g.b = b.begin(), g.c = c.begin();
  g.type_a = g.type_b = g.type_c = DType::float16;
  g.m = g.n = g.k = 64, g.batch = 1;
  g.a_m = a.stride_row, g.a_k = 1, g.b_k = 1, g.b_n = b.stride_column;
  g.c_m = c.stride_row, g.c_n = 1;
  ASSERT_EQ(abi::GemmSm90WgmmaF16::launch(g, device, nullptr), cudaSuccess);
  int status = -1;
  std::thread([&] { status = abi::GemmSm90WgmmaF16::launch(g, device, nullptr); }).join();
  EXPECT_EQ(status, cudaSuccess);
  ASSERT_CUDA(cudaDeviceSynchronize());
}

TEST(Sm90Runs, Int8AddsToC) {
  Case t{150, 140, 96};
  t.beta = 1;
  run<std::int8_t, std::int8_t, int>(t);
}

TEST(Sm90Runs, BatchesAndABroadcastB) {
  for (bool shared : {false, true})
    for (std::int64_t n : {24, 136}) {
      Case t{130, n, 100};
      t.batch = 5, t.shared_b = shared;
      run<__half, __half, __half>(t);
    }
}

TEST(Sm90Runs, TheSameBitsEveryTime) {
  SKIP_IF_LEFT_OUT(abi::GemmSm90WgmmaF16);
  Device const device = abi::query_device(abi::current_device());
  for (auto [m, n, k] : {std::array<std::int64_t, 3>{16, 1024, 8192}, {1000, 1304, 2048}}) {
    Matrix<__half> a(1, m, k, false, 0, false, 1), b(1, k, n, true, 0, false, 2),
        c(1, m, n, false, 0, false, 3);
    a.upload(), b.upload();
    GemmArgs g;
    g.a = a.begin(), g.b = b.begin();
    g.type_a = g.type_b = g.type_c = DType::float16;
    g.m = m, g.n = n, g.k = k, g.batch = 1;
    g.a_m = a.stride_row, g.a_k = 1, g.b_k = 1, g.b_n = b.stride_column;
    g.c_m = c.stride_row, g.c_n = 1;
    std::vector<unsigned char> first, again(c.host.size());
    for (int repeat = 0; repeat < 100; ++repeat) {
      c.upload();
      g.c = c.begin();
      ASSERT_EQ(abi::GemmSm90WgmmaF16::launch(g, device, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaMemcpy(again.data(), c.device, again.size(), cudaMemcpyDeviceToHost));
      if (repeat == 0) first = again;
      ASSERT_EQ(first, again) << "repeat " << repeat;
    }
  }
}

/// Each of three products multiplies what the one before has written, and may begin before that one
/// ends.
TEST(Sm90Runs, CanBeCaptured) {
  SKIP_IF_LEFT_OUT(abi::GemmSm90WgmmaF16);
  Device const device = abi::query_device(abi::current_device());
  Matrix<__half> x(4, 256, 256, false, 0, false, 1), b(1, 256, 256, true, 0, false, 2);
  x.upload(), b.upload();
  GemmArgs g;
  g.b = b.begin(), g.type_a = g.type_b = g.type_c = DType::float16;
  g.m = g.n = g.k = 256, g.batch = 1, g.alpha = 0.125;
  g.a_m = g.c_m = x.stride_row, g.a_k = g.b_k = g.c_n = 1, g.b_n = b.stride_column;
  auto const matrix = [&](int i) { return x.begin() + i * x.stride_batch; };
  captured_equals(
      {{matrix(1), static_cast<std::size_t>(3 * x.stride_batch) * sizeof(__half)}},
      [&](cudaStream_t stream) {
        int status = cudaSuccess;
        for (int i = 0; i < 3 && status == cudaSuccess; ++i) {
          g.a = matrix(i), g.c = matrix(i + 1);
          status = abi::GemmSm90WgmmaF16::launch(g, device, stream);
          if (!abi::stream_is_capturing(stream)) cudaStreamSynchronize(stream);
        }
        return status;
      },
      [&](int round) {
        for (std::int64_t i = 0; i < 256; ++i) x.at(0, i, i) = static_cast<float>(round);
        x.upload();
      });
}

/// Weights that the launch before writes: a product with few rows asks L2 for them while that one
/// runs, and must still read what it writes.
TEST(Sm90Runs, WeightsOfTheLaunchBefore) {
  SKIP_IF_LEFT_OUT(abi::GemmSm90WgmmaBf16);
  using T = __nv_bfloat16;
  Device const device = abi::query_device(abi::current_device());
  constexpr std::int64_t features = 2048, inputs = 1024, inner = 512;
  for (std::int64_t tokens : {1, 16, 32, 64}) {
    Matrix<T> u(1, features, inner, false, 0, false, 1), v(1, inner, inputs, true, 0, false, 2),
        weights(1, features, inputs, false, 0, false, 3), x(1, tokens, inputs, false, 0, false, 4),
        y(1, tokens, features, false, 0, false, 5);
    u.upload(), v.upload(), weights.upload(), x.upload(), y.upload();
    GemmArgs first;
    first.type_a = first.type_b = first.type_c = DType::bfloat16, first.batch = 1;
    GemmArgs second = first;
    first.a = u.begin(), first.b = v.begin(), first.c = weights.begin();
    first.m = features, first.n = inputs, first.k = inner;
    first.a_m = u.stride_row, first.b_n = v.stride_column, first.c_m = weights.stride_row;
    second.a = x.begin(), second.b = weights.begin(), second.c = y.begin();
    second.m = tokens, second.n = features, second.k = inputs;
    second.a_m = x.stride_row, second.b_n = weights.stride_row, second.c_m = y.stride_row;
    first.a_k = first.b_k = first.c_n = second.a_k = second.b_k = second.c_n = 1;
    captured_equals(
        {{weights.device, weights.host.size()}, {y.device, y.host.size()}},
        [&](cudaStream_t stream) {
          int const status = abi::GemmSm90WgmmaBf16::launch(first, device, stream);
          if (!abi::stream_is_capturing(stream)) cudaStreamSynchronize(stream);
          return status == cudaSuccess ? abi::GemmSm90WgmmaBf16::launch(second, device, stream)
                                       : status;
        },
        [&](int round) {
          Matrix<T> const next(1, features, inner, false, 0, false,
                               100 + static_cast<std::uint32_t>(round));
          ASSERT_CUDA(
              cudaMemcpy(u.device, next.host.data(), u.host.size(), cudaMemcpyHostToDevice));
        });
  }
}

TEST(Sm90Runs, WorstErrorOverBound) {
  RecordProperty("worst_error_over_bound", std::to_string(worst_ratio));
  std::printf("worst error / bound: %.3f\n", worst_ratio);
  EXPECT_LE(worst_ratio, 1);
}

}  // namespace
