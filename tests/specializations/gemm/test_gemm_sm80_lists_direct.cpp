// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm80_mma_*, gemm/sm80_simt_f32 and gemm/sm89_mma_f8 with what the device alone knows: groups
// of rows, counted rows, arrays of pointers; against sums in long double. Rows of no group are NaN.
#include <array>

#include "direct_gemm_lists.hpp"

namespace {

/// The same case of every element type.
void run_types(ListsCase t) {
  run_lists<GemmSm80MmaF16, __half, __half, __half>(t);
  run_lists<GemmSm80MmaBf16, __nv_bfloat16, __nv_bfloat16, float>(t);
  run_lists<GemmSm80MmaF64, double, double, double>(t);
  run_lists<GemmSm80MmaTf32, float, float, float>(t);
  run_lists<GemmSm80MmaTf32x3, float, float, float>(t);
  run_lists<GemmSm80SimtF32, float, float, float>(t);
  run_lists<GemmSm80MmaS8, std::int8_t, std::int8_t, int>(t);
  run_lists<GemmSm89MmaF8, E4, E5, __half>(t);
}

void report_lists(char const* name) {
  std::printf("%s: %d runs, worst ratio to the bound %.3f\n", name, lists_runs, lists_worst);
}

TEST(Sm80ListsRuns, Partitions) {
  std::vector<std::int64_t> many, few;
  for (std::int64_t i = 0; i <= 1100; ++i) many.push_back(i / 5);
  for (std::int64_t i = 0; i <= 40; ++i) few.push_back(i);
  std::vector<std::vector<std::int64_t>> const partitions{{0, 0},
                                                          {0, 7},
                                                          {0, 3, 3, 10},
                                                          {2, 5, 9},
                                                          {0, 64, 128, 129},
                                                          {0, 33, 130, 258, 258, 403},
                                                          few,
                                                          many,
                                                          {0, 0, 0, 0, 300},
                                                          {400, 500, 500},
                                                          {50, 40, 40},
                                                          {-5, 10, 10, 20, 9000}};
  int turn = 0;
  for (auto const& offsets : partitions) {
    for (int layout = 0; layout < 8; ++layout, ++turn) {
      ListsCase t{410, 72, 40, 1, Rows::grouped, offsets};
      if (offsets.size() > 1000) t.n = 8;
      t.wide = turn % 2 == 0, t.pad = turn % 3, t.shift = turn % 5 == 4;
      t.trans_a = (layout & 1) != 0, t.trans_b = (layout & 2) != 0, t.trans_c = (layout & 4) != 0;
      run_lists<GemmSm80MmaF16, __half, __half, __half>(t);
      run_lists<GemmSm80MmaS8, std::int8_t, std::int8_t, int>(t);
      run_lists<GemmSm80SimtF32, float, float, float>(t);
      if (testing::Test::HasFailure()) return;
    }
  }
  report_lists("partitions");
}

/// More groups than rows, and groups of one row.
TEST(Sm80ListsRuns, EveryType) {
  for (int layout = 0; layout < 4; ++layout) {
    ListsCase t{150, 136, 200, 1, Rows::grouped, {1, 2, 2, 3, 100, 149}};
    t.trans_a = (layout & 1) != 0, t.trans_b = (layout & 2) != 0, t.pad = layout == 1 ? 1 : 0;
    run_types(t);
    t.m = 3, t.list = {0, 1, 1, 1, 2, 2, 3, 3};
    run_types(t);
    if (testing::Test::HasFailure()) return;
  }
  report_lists("types");
}

TEST(Sm80ListsRuns, CountedRows) {
  for (bool shared : {false, true}) {
    ListsCase t{130, 200, 72, 7, Rows::counted, {0, 1, 130, 77, -4, 1000, 128}};
    t.shared_b = shared, t.trans_b = !shared, t.pad = shared ? 1 : 0;
    run_types(t);
    t.trans_c = true, t.pointers = shared ? 5 : 7;  // null where nothing counts
    run_types(t);
    if (testing::Test::HasFailure()) return;
  }
  report_lists("counts");
}

/// Every mix of pointers and strides; matrices that are whole elements past any alignment.
TEST(Sm80ListsRuns, Pointers) {
  for (int pointers = 1; pointers < 8; ++pointers)
    for (std::int64_t step : {0, 1, 4}) {
      ListsCase t{70, 136, 80, 5};
      t.pointers = pointers, t.step = step;
      t.trans_a = pointers == 3, t.trans_b = step != 4, t.trans_c = pointers >= 6 && step == 1;
      t.beta = step == 4 ? 1 : 0;
      run_types(t);
      if (testing::Test::HasFailure()) return;
    }
  report_lists("pointers");
}

TEST(Sm80ListsRuns, GroupsBehindPointers) {
  ListsCase t{300, 72, 64, 1, Rows::grouped, {0, 130, 130, 131, 290}};
  for (std::int64_t step : {0, 3}) {
    t.step = step, t.pointers = 2;
    run_types(t);
    t.pointers = 7, t.trans_b = step == 0;
    run_lists<GemmSm80MmaF16, __half, __half, __half>(t);
  }
}

TEST(Sm80ListsRuns, SumsOfNothing) {
  ListsCase t{70, 33, 0, 3};
  t.pointers = 7, t.bias = true;
  run_lists<GemmSm80MmaF16, __half, __half, __half>(t);
  t.rows = Rows::grouped, t.list = {5, 6, 70};
  run_lists<GemmSm80MmaF64, double, double, double>(t);
  for (auto [m, n, batch] : {std::array<std::int64_t, 3>{0, 5, 1}, {5, 0, 1}, {5, 5, 0}}) {
    ListsCase none{m, n, 7, batch};
    none.pointers = 7;
    run_lists<GemmSm80MmaF16, __half, __half, __half>(none);
  }
  run_lists<GemmSm80MmaF16, __half, __half, __half>({5, 5, 7, 1, Rows::grouped, {3}});
}

TEST(Sm80ListsRuns, Epilogues) {
  for (auto activation : {Activation::none, Activation::relu, Activation::gelu,
                          Activation::gelu_tanh, Activation::silu})
    for (auto rows : {Rows::all, Rows::grouped, Rows::counted}) {
      ListsCase t{180, 72, 64, 4, rows};
      if (rows == Rows::grouped) t.list = {0, 40, 41, 170};
      if (rows == Rows::counted) t.list = {180, 0, 33, 129};
      t.alpha = 0.7, t.beta = 0.3, t.scale = 1.5, t.activation = activation;
      t.bias = t.residual = true;
      t.bias_along = activation == Activation::relu ? BiasAlong::m : BiasAlong::n;
      t.trans_c = activation == Activation::silu;
      if (rows != Rows::grouped) t.pointers = 7;
      run_lists<GemmSm80MmaBf16, __nv_bfloat16, __nv_bfloat16, __nv_bfloat16>(t);
      run_lists<GemmSm80MmaF64, double, double, double>(t);
      for (int factors : {1, 2}) {
        t.factors = factors;
        run_lists<GemmSm80MmaS8, std::int8_t, std::int8_t, float>(t);
        run_lists<GemmSm89MmaF8, E5, E4, float>(t);
      }
      if (testing::Test::HasFailure()) return;
    }
  report_lists("epilogues");
}

/// Sums that go round the ring of stages, and bands of tiles.
TEST(Sm80ListsRuns, ManyTiles) {
  ListsCase t{2300, 72, 328, 1, Rows::grouped, {0, 1200, 1210, 1338, 2300}};
  run_lists<GemmSm80MmaF16, __half, __half, __half>(t);
  run_lists<GemmSm80SimtF32, float, float, float>(t);
  run_lists<GemmSm89MmaF8, E4, E4, __half>(t);
}

/// Offsets in no order name rows inside C all the same, and no others are written.
TEST(Sm80ListsRuns, OffsetsInNoOrder) {
  SKIP_IF_LEFT_OUT(GemmSm80MmaTf32);
  Device const device = abi::query_device(abi::current_device());
  Matrix<float> a(1, 300, 40, false, 0, false, 1), b(50, 40, 24, true, 0, false, 2),
      c(1, 300, 24, false, 4, false, 3);
  c.forget();
  a.upload(), b.upload();
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    std::vector<std::int64_t> offsets;
    for (std::uint32_t i = 0; i < 51; ++i)
      offsets.push_back(static_cast<std::int64_t>(mix(seed * 64 + i) % 500) - 100);
    DeviceList const list(offsets);
    GemmArgs g;
    c.upload();
    g.a = a.begin(), g.b = b.begin(), g.c = c.begin();
    g.type_a = g.type_b = g.type_c = DType::float32, g.compute = Compute::tf32;
    g.m = 300, g.n = 24, g.k = 40, g.batch = 1, g.groups = 50;
    g.a_m = a.stride_row, g.a_k = 1, g.b_batch = b.stride_batch, g.b_k = 1;
    g.b_n = b.stride_column, g.c_m = c.stride_row, g.c_n = 1;
    g.offsets = list.data, g.offsets_stride = 1, g.type_offsets = DType::int64;
    ASSERT_EQ(GemmSm80MmaTf32::launch(g, device, nullptr), cudaSuccess);
    ASSERT_CUDA(cudaDeviceSynchronize());
    std::vector<unsigned char> result(c.host.size());
    ASSERT_CUDA(cudaMemcpy(result.data(), c.device, result.size(), cudaMemcpyDeviceToHost));
    auto untouched = c.host;
    for (std::int64_t i = 0; i < 300; ++i) {
      bool named = false;
      for (std::size_t z = 0; z < 50; ++z) named |= offsets[z] <= i && i < offsets[z + 1];
      auto const row = static_cast<std::size_t>(c.offset(0, i, 0)) * sizeof(float);
      if (named) std::memcpy(&untouched[row], &result[row], 24 * sizeof(float));
    }
    ASSERT_EQ(untouched, result) << "seed " << seed;
  }
}

/// A call in a graph follows what its lists become.
TEST(Sm80ListsRuns, InAGraph) {
  SKIP_IF_LEFT_OUT(GemmSm80MmaF64);
  Matrix<double> a(1, 200, 16, false, 0, false, 1), b(3, 16, 8, true, 0, false, 2),
      c(1, 200, 8, false, 0, false, 3);
  a.upload(), b.upload(), c.upload();
  auto pointers = pointers_to(b, [](std::int64_t) { return true; });
  std::vector<std::int32_t> offsets{0, 0, 0, 0};
  DeviceList list_b(pointers), list(offsets);
  GemmArgs g;
  g.a = a.begin(), g.c = c.begin();
  g.type_a = g.type_b = g.type_c = DType::float64;
  g.m = 200, g.n = 8, g.k = 16, g.batch = 1, g.groups = 3;
  g.b_pointers = static_cast<void**>(list_b.data), g.b_batch = 2;
  g.a_m = a.stride_row, g.a_k = 1, g.b_k = 1, g.b_n = b.stride_column;
  g.c_m = c.stride_row, g.c_n = 1, g.offsets = list.data, g.offsets_stride = 1;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t run;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_EQ(GemmSm80MmaF64::launch(g, abi::query_device(abi::current_device()), stream),
            cudaSuccess);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&run, graph, 0));
  for (std::vector<std::int32_t> const& next :
       {std::vector<std::int32_t>{0, 5, 9, 200}, {10, 150, 151, 160}, {0, 0, 0, 0}}) {
    list.assign(next);
    std::swap(pointers[0], pointers[4]);
    list_b.assign(pointers);
    c.upload();
    ASSERT_CUDA(cudaGraphLaunch(run, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    std::vector<double> expected, bounds;
    for (std::int64_t i = 0; i < 200; ++i)
      for (std::int64_t j = 0; j < 8; ++j) {
        double value = c.value(0, i, j);
        for (std::int64_t z = 0; z < 3; ++z) {
          auto const at = static_cast<std::size_t>(z);
          if (i < next[at] || i >= next[at + 1]) continue;
          std::int64_t const matrix = (pointers[2 * at] - b.begin()) / b.stride_batch;
          value = 0;
          for (std::int64_t p = 0; p < 16; ++p) value += a.value(0, i, p) * b.value(matrix, p, j);
        }
        expected.push_back(value), bounds.push_back(1e-13);
      }
    double worst = 0;
    compare_result(c, 1, 200, 8, expected, bounds, worst);
  }
  ASSERT_CUDA(cudaGraphExecDestroy(run));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

}  // namespace
