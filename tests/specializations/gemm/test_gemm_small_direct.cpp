// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm80_small_f32 and gemm/sm80_small_f64 called directly: batches in strides and behind
// pointers, against sums in long double.
#include <cstring>
#include <limits>
#include <sstream>
#include <string>

#include "direct_matrix.hpp"

namespace {

/// How a batch lies in memory.
enum class Lies { rows, columns, odd_rows, odd_columns, padded_rows, apart, backwards, shared };
constexpr Lies inputs[] = {Lies::rows,        Lies::columns, Lies::odd_rows,  Lies::odd_columns,
                           Lies::padded_rows, Lies::apart,   Lies::backwards, Lies::shared};

/// Small matrices [batch, rows, columns] in memory that is NaN elsewhere, with a pointer to each.
/// Behind the pointers they lie in another order, every second one an element further.
template <class T>
struct SmallBatch {
  std::int64_t batch, rows, columns, stride_batch = 0, stride_row = 1, stride_column = 1, origin;
  bool behind_pointers;
  std::vector<T> host;
  T* device = nullptr;
  T** pointers = nullptr;

  SmallBatch(std::int64_t batch_, std::int64_t rows_, std::int64_t columns_, Lies lies,
             bool behind_pointers_, std::uint32_t seed)
      : batch(batch_), rows(rows_), columns(columns_), behind_pointers(behind_pointers_) {
    bool const by_columns = lies == Lies::columns || lies == Lies::odd_columns;
    std::int64_t const inner = by_columns ? rows : columns, outer = by_columns ? columns : rows;
    std::int64_t leading = inner, step = 1;
    if (lies == Lies::odd_rows || lies == Lies::odd_columns) leading += 1 + inner % 2;
    if (lies == Lies::padded_rows) leading = (inner + 3) / 4 * 4 + 8;
    if (lies == Lies::apart) step = 3, leading = 3 * inner + 2;
    stride_row = by_columns ? step : leading, stride_column = by_columns ? leading : step;
    std::int64_t const room = leading * std::max<std::int64_t>(outer, 1);
    origin = 8;
    if (lies == Lies::backwards) {
      origin += leading * (outer - 1) + inner - 1;
      stride_row = -stride_row, stride_column = -stride_column;
    }
    bool const dense = lies == Lies::rows || lies == Lies::columns;
    stride_batch = lies == Lies::shared ? 0 : dense ? room : room + 5;
    if (behind_pointers) stride_batch = room + 9;
    host.assign(static_cast<std::size_t>(16 + (room + 9) * batch),
                std::numeric_limits<T>::quiet_NaN());
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
          auto const index = lies == Lies::shared && !behind_pointers
                                 ? i * columns + j
                                 : (b * rows + i) * columns + j;
          auto const bits = mix(seed ^ mix(static_cast<std::uint32_t>(index)));
          host[at(b, i, j)] = static_cast<T>(bits) / T(2147483647.7) - T(1);
        }
  }
  SmallBatch(SmallBatch const&) = delete;
  SmallBatch& operator=(SmallBatch const&) = delete;
  ~SmallBatch() { cudaFree(device), cudaFree(pointers); }

  std::int64_t begin_of(std::int64_t b) const {
    if (!behind_pointers) return origin + b * stride_batch;
    return origin + (batch - 1 - b) * stride_batch + b % 2;
  }
  std::size_t at(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return static_cast<std::size_t>(begin_of(b) + i * stride_row + j * stride_column);
  }
  void upload() {
    if (device == nullptr) {
      ASSERT_CUDA(cudaMalloc(&device, host.size() * sizeof(T)));
    }
    ASSERT_CUDA(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
    if (!behind_pointers) return;
    auto const count = static_cast<std::size_t>(batch);
    std::vector<T*> list(count);
    for (std::int64_t b = 0; b < batch; ++b)
      list[static_cast<std::size_t>(b)] = device + begin_of(b);
    ASSERT_CUDA(cudaMalloc(&pointers, count * sizeof(T*)));
    ASSERT_CUDA(cudaMemcpy(pointers, list.data(), count * sizeof(T*), cudaMemcpyHostToDevice));
  }
};

struct SmallCase {
  std::int64_t m, n, k, batch = 37;
  Lies a = Lies::rows, b = Lies::rows, c = Lies::rows;
  int pointers = 0;  // bits: A, B, C
  double alpha = 1, beta = 0, scale = 1;
};

template <class T>
using KernelOf =
    std::conditional_t<std::is_same_v<T, float>, abi::GemmSm80SmallF32, abi::GemmSm80SmallF64>;

int small_runs = 0;
double small_worst[2] = {};

/// With u half the spacing and S = Σ|a||b|: k multiply-adds are off by u k S, the factors add a
/// rounding for each of their operations.
template <class T>
void run_small(SmallCase const& t, std::vector<int> const& multiprocessors = {1, 132}) {
  SKIP_IF_LEFT_OUT(KernelOf<T>);
  std::ostringstream text;
  text << dtype_name(dtype_of<T>()) << " m" << t.m << " n" << t.n << " k" << t.k << " batch"
       << t.batch << " lies " << static_cast<int>(t.a) << static_cast<int>(t.b)
       << static_cast<int>(t.c) << " pointers " << t.pointers;
  SCOPED_TRACE(text.str());
  SmallBatch<T> a(t.batch, t.m, t.k, t.a, (t.pointers & 1) != 0, 1);
  SmallBatch<T> b(t.batch, t.k, t.n, t.b, (t.pointers & 2) != 0, 2);
  SmallBatch<T> c(t.batch, t.m, t.n, t.c, (t.pointers & 4) != 0, 3);
  if (t.beta == 0) std::fill(c.host.begin(), c.host.end(), std::numeric_limits<T>::quiet_NaN());
  a.upload(), b.upload(), c.upload();
  GemmArgs g;
  g.a = a.device + a.origin, g.b = b.device + b.origin, g.c = c.device + c.origin;
  g.type_a = g.type_b = g.type_c = dtype_of<T>();
  g.m = t.m, g.n = t.n, g.k = t.k, g.batch = t.batch;
  g.a_batch = a.stride_batch, g.a_m = a.stride_row, g.a_k = a.stride_column;
  g.b_batch = b.stride_batch, g.b_k = b.stride_row, g.b_n = b.stride_column;
  g.c_batch = c.stride_batch, g.c_m = c.stride_row, g.c_n = c.stride_column;
  if (t.pointers & 1)
    g.a_pointers = reinterpret_cast<void**>(a.pointers), g.a = nullptr, g.a_batch = 1;
  if (t.pointers & 2)
    g.b_pointers = reinterpret_cast<void**>(b.pointers), g.b = nullptr, g.b_batch = 1;
  if (t.pointers & 4)
    g.c_pointers = reinterpret_cast<void**>(c.pointers), g.c = nullptr, g.c_batch = 1;
  // Extents of 1 may carry any stride.
  if (t.m == 1) g.a_m = 977, g.c_m = -3;
  if (t.n == 1) g.b_n = 977, g.c_n = 7;
  if (t.k == 1) g.a_k = -977, g.b_k = 5;
  g.alpha = t.alpha, g.beta = t.beta, g.scale = t.scale;

  auto expected = c.host;
  std::vector<double> bounds(c.host.size(), -1);
  double const u = rounding<T>();
  for (std::int64_t l = 0; l < t.batch; ++l)
    for (std::int64_t i = 0; i < t.m; ++i)
      for (std::int64_t j = 0; j < t.n; ++j) {
        long double sum = 0, size = 0;
        for (std::int64_t p = 0; p < t.k; ++p) {
          long double const product =
              static_cast<long double>(a.host[a.at(l, i, p)]) * b.host[b.at(l, p, j)];
          sum += product, size += std::abs(product);
        }
        auto const to = c.at(l, i, j);
        long double const old = t.beta == 0 ? 0 : t.beta * static_cast<long double>(c.host[to]);
        long double const y = static_cast<long double>(t.scale) * (t.alpha * sum + old);
        expected[to] = static_cast<T>(y);
        bounds[to] =
            std::abs(t.scale) * u *
                static_cast<double>((t.k + 6) * std::abs(t.alpha) * size + 6 * std::abs(old)) +
            2 * u * static_cast<double>(std::abs(y));
      }
  for (int count : multiprocessors) {
    Device device = abi::query_device(abi::current_device());
    device.sm_count = count;
    std::vector<T> results[2];
    for (auto& result : results) {
      result.resize(c.host.size());
      ASSERT_CUDA(
          cudaMemcpy(c.device, c.host.data(), c.host.size() * sizeof(T), cudaMemcpyHostToDevice));
      poison_shared_memory();
      ASSERT_STREQ(KernelOf<T>::accepts(g, device).reason, "");
      ASSERT_EQ(KernelOf<T>::launch(g, device, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaDeviceSynchronize());
      ASSERT_CUDA(
          cudaMemcpy(result.data(), c.device, result.size() * sizeof(T), cudaMemcpyDeviceToHost));
    }
    EXPECT_EQ(std::memcmp(results[0].data(), results[1].data(), results[0].size() * sizeof(T)), 0)
        << "a second call gave other bits";
    int wrong = 0;
    for (std::size_t e = 0; e < bounds.size(); ++e) {
      T const got = results[0][e];
      if (bounds[e] < 0) {
        if (std::memcmp(&got, &c.host[e], sizeof(T)) != 0 && wrong++ == 0)
          ADD_FAILURE() << "memory around C was written, at " << e << " of " << bounds.size();
        continue;
      }
      double const error = std::abs(static_cast<double>(got - expected[e]));
      if (!(error <= bounds[e]) && wrong++ == 0)
        ADD_FAILURE() << "element at " << e << " is " << got << ", expected " << expected[e]
                      << " ± " << bounds[e];
      if (bounds[e] > 0) {
        double& worst = small_worst[std::is_same_v<T, double>];
        worst = std::max(worst, error / bounds[e]);
      }
    }
    ++small_runs;
    if (testing::Test::HasFailure()) return;
  }
}

void run_both(SmallCase const& t) {
  run_small<float>(t);
  if (!testing::Test::HasFailure()) run_small<double>(t);
}

void report(char const* name) {
  std::printf("%s: %d runs, worst ratios to the bound %.3f (float32), %.3f (float64)\n", name,
              small_runs, small_worst[0], small_worst[1]);
}

constexpr std::int64_t few_extents[] = {1,  2,  3,  4,  5,  7,  8,  9,  13, 16,
                                        17, 24, 31, 32, 33, 47, 48, 63, 64};

TEST(SmallRuns, Shapes) {
  unsigned turn = 0;
  for (std::int64_t m : few_extents)
    for (std::int64_t n : few_extents) {
      std::int64_t const k = few_extents[(turn * 7 + 3) % 19];
      SmallCase t{m, n, k};
      t.batch = 2 + turn % 11;
      if (std::max({m, n, k}) > 32) t.batch = 264;
      if (m * n > 1000 && t.batch > 100) t.batch = 264 + turn % 5;
      run_small<float>(t, {132});
      run_small<double>(t, {132});
      ++turn;
      if (testing::Test::HasFailure()) return;
    }
  for (std::int64_t e : few_extents) {
    run_both({e, e, e, 301});
    if (testing::Test::HasFailure()) return;
  }
  report("shapes");
}

TEST(SmallRuns, Layouts) {
  std::int64_t const shapes[][3] = {{8, 8, 8},    {5, 7, 3},    {16, 12, 20},
                                    {23, 32, 17}, {33, 50, 41}, {64, 64, 64}};
  unsigned turn = 0;
  for (auto const& s : shapes)
    for (Lies a : inputs)
      for (Lies b : inputs) {
        SmallCase t{s[0], s[1], s[2], s[0] > 32 ? 270 : 45, a, b, inputs[turn % 7]};
        t.alpha = turn % 3 == 0 ? 1 : -0.75, t.beta = turn % 2 == 0 ? 0 : 0.5;
        t.scale = turn % 5 == 0 ? 3 : 1;
        ++turn;
        run_small<float>(t, {1});
        run_small<double>(t, {1});
        if (testing::Test::HasFailure()) return;
      }
  report("layouts");
}

TEST(SmallRuns, BehindPointers) {
  for (std::int64_t e : {1, 4, 8, 11, 16, 30, 32, 40, 64})
    for (int pointers = 1; pointers < 8; ++pointers) {
      SmallCase t{e, e, e, 40};
      t.pointers = pointers;
      t.beta = pointers % 2 == 0 ? 0.25 : 0;
      t.a = pointers == 3 ? Lies::columns : Lies::rows;
      t.b = pointers == 5 ? Lies::columns : Lies::rows;
      t.c = pointers == 6 ? Lies::columns : Lies::padded_rows;
      run_both(t);
      t.batch = 1, t.n = 5, t.a = Lies::odd_rows;
      run_both(t);
      if (testing::Test::HasFailure()) return;
    }
  report("pointers");
}

TEST(SmallRuns, NothingToSum) {
  SKIP_IF_LEFT_OUT(abi::GemmSm80SmallF32);
  for (std::int64_t e : {1, 8, 31, 64}) {
    SmallCase t{e, e, 0, 300};
    run_both(t);
    t.beta = -2;
    run_both(t);
    t.pointers = 7;
    run_both(t);
  }
  GemmArgs g;  // nothing to write: no address is followed
  g.m = 8, g.n = 0, g.k = 8, g.batch = 100;
  Device const device = abi::query_device(abi::current_device());
  EXPECT_EQ(abi::GemmSm80SmallF32::launch(g, device, nullptr), cudaSuccess);
}

TEST(SmallRuns, ManyProducts) {
  for (std::int64_t e : {3, 8, 16}) {
    run_small<float>({e, e, e, 100003}, {132});
    run_small<double>({e, e, e, 100003}, {132});
  }
  report("many");
}

/// Products more than 2^31 elements apart.
TEST(SmallRuns, FarApart) {
  SKIP_IF_LEFT_OUT(abi::GemmSm80SmallF32);
  std::int64_t const stride = (std::int64_t{1} << 31) + 12;
  float* memory = nullptr;
  std::size_t const bytes = static_cast<std::size_t>(stride + 4096) * sizeof(float);
  if (cudaMalloc(&memory, bytes) != cudaSuccess) {
    cudaGetLastError();
    GTEST_SKIP() << "needs 8 GB of device memory";
  }
  std::vector<float> a(64), b(64), c(64);
  for (std::size_t i = 0; i < 64; ++i)
    a[i] = static_cast<float>(i), b[i] = static_cast<float>(63 - i);
  for (std::int64_t l : {0, 1}) {
    ASSERT_CUDA(cudaMemcpy(memory + l * stride, a.data(), 256, cudaMemcpyHostToDevice));
    ASSERT_CUDA(cudaMemcpy(memory + l * stride + 64, b.data(), 256, cudaMemcpyHostToDevice));
  }
  GemmArgs g;
  g.a = memory, g.b = memory + 64, g.c = memory + 128;
  g.type_a = g.type_b = g.type_c = DType::float32;
  g.m = g.n = g.k = 8, g.batch = 2;
  g.a_batch = g.b_batch = g.c_batch = stride;
  g.a_m = g.b_k = g.c_m = 8, g.a_k = g.b_n = g.c_n = 1;
  ASSERT_EQ(abi::GemmSm80SmallF32::launch(g, abi::query_device(abi::current_device()), nullptr),
            cudaSuccess);
  for (std::int64_t l : {0, 1}) {
    ASSERT_CUDA(cudaMemcpy(c.data(), memory + l * stride + 128, 256, cudaMemcpyDeviceToHost));
    for (std::size_t i = 0; i < 8; ++i)
      for (std::size_t j = 0; j < 8; ++j) {
        float sum = 0;  // exact in integers
        for (std::size_t p = 0; p < 8; ++p) sum += a[8 * i + p] * b[8 * p + j];
        EXPECT_EQ(c[8 * i + j], sum);
      }
  }
  cudaFree(memory);
}

/// A call in a graph reads what its operands hold when the graph runs.
TEST(SmallRuns, InAGraph) {
  SKIP_IF_LEFT_OUT(abi::GemmSm80SmallF64);
  SmallBatch<double> a(50, 8, 8, Lies::rows, false, 1), b(50, 8, 8, Lies::rows, false, 2),
      c(50, 8, 8, Lies::rows, false, 3);
  a.upload(), b.upload(), c.upload();
  GemmArgs g;
  g.a = a.device + a.origin, g.b = b.device + b.origin, g.c = c.device + c.origin;
  g.type_a = g.type_b = g.type_c = DType::float64;
  g.m = g.n = g.k = 8, g.batch = 50;
  g.a_batch = g.b_batch = g.c_batch = 64, g.a_m = g.b_k = g.c_m = 8, g.a_k = g.b_n = g.c_n = 1;
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t run;
  ASSERT_CUDA(cudaStreamCreate(&stream));
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  ASSERT_EQ(abi::GemmSm80SmallF64::launch(g, abi::query_device(abi::current_device()), stream),
            cudaSuccess);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  ASSERT_CUDA(cudaGraphInstantiate(&run, graph, 0));
  for (double factor : {1.0, 2.0}) {
    for (double& x : a.host) x *= factor;
    a.upload();
    ASSERT_CUDA(cudaGraphLaunch(run, stream));
    ASSERT_CUDA(cudaStreamSynchronize(stream));
    auto result = c.host;
    ASSERT_CUDA(cudaMemcpy(result.data(), c.device, result.size() * sizeof(double),
                           cudaMemcpyDeviceToHost));
    double sum = 0;
    for (std::int64_t p = 0; p < 8; ++p) sum += a.host[a.at(49, 7, p)] * b.host[b.at(49, p, 6)];
    EXPECT_NEAR(result[c.at(49, 7, 6)], sum, 1e-14);
  }
  ASSERT_CUDA(cudaGraphExecDestroy(run));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST(SmallRefuses, WhatItCannotDo) {
  SKIP_IF_LEFT_OUT(abi::GemmSm80SmallF32, abi::GemmSm80SmallF64);
  alignas(16) static float somewhere[4];
  static void* list[1];
  Device const device{0, 8, 0, abi::Architecture::ampere, 108, 166912};
  auto const reason = [&](auto change) {
    GemmArgs g;
    g.a = g.b = g.c = somewhere;
    g.type_a = g.type_b = g.type_c = DType::float32;
    g.m = g.n = g.k = g.a_m = g.b_k = g.c_m = 64, g.a_k = g.b_n = g.c_n = 1;
    g.batch = 216, g.a_batch = g.b_batch = g.c_batch = 4096;
    Device d = device;
    change(g, d);
    auto const verdict = abi::GemmSm80SmallF32::accepts(g, d);
    EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
    return std::string(verdict.reason);
  };
  EXPECT_EQ(reason([](GemmArgs&, Device&) {}), "");
  EXPECT_EQ(reason([](GemmArgs&, Device& d) { d = Device{}; }), "no CUDA device");
  EXPECT_EQ(reason([](GemmArgs&, Device& d) { d.compute_major = 7; }),
            "device is older than sm_80");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.type_b = DType::float64; }),
            "it multiplies other element types");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.type_c = DType::float16; }),
            "it does not write C's element type");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.k = 65; }), "an extent is above 64");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.m = -1; }), "an extent is negative");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.batch = 215; }),
            "it is for batches of many products");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.batch = 2, g.m = g.n = g.k = 32; }), "");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.batch = 1, g.m = g.n = g.k = 8; }),
            "it is for batches of many products");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.batch = 1, g.a_pointers = list, g.a = nullptr; }),
            "");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.batch = 0, g.k = 0; }), "");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.a = nullptr; }), "A is a null pointer");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.c_batch = 0; }),
            "C has a zero stride, so its elements overlap");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.bias = somewhere; }), "it has no bias");
  EXPECT_EQ(
      reason([](GemmArgs& g, Device&) { g.counts = reinterpret_cast<int const*>(somewhere); }),
      "it does not count the rows of each matrix");
  EXPECT_EQ(reason([](GemmArgs& g, Device&) { g.tile.m = 8; }), "its tile cannot be set");
  GemmArgs g;
  EXPECT_STREQ(abi::GemmSm80SmallF64::accepts(g, device).reason,
               "it multiplies other element types");
  g.type_a = g.type_b = g.type_c = DType::float64;
  EXPECT_STREQ(abi::GemmSm80SmallF64::accepts(g, device).reason, "");
}

}  // namespace
