// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm80_mma_*, gemm/sm80_simt_f32 and gemm/sm89_mma_f8 with what the device alone knows: groups
// of rows, counted rows, arrays of pointers; against sums in long double. Rows of no group are NaN.
#include <array>
#include <cstring>
#include <sstream>
#include <string>

#include "direct_matrix.hpp"

namespace {

using abi::GemmSm80MmaBf16;
using abi::GemmSm80MmaF16;
using abi::GemmSm80MmaF64;
using abi::GemmSm80MmaS8;
using abi::GemmSm80MmaTf32;
using abi::GemmSm80MmaTf32x3;
using abi::GemmSm80SimtF32;
using abi::GemmSm89MmaF8;

/// What the rows of a product are.
enum class Rows { all, grouped, counted };

struct ListsCase {
  std::int64_t m, n, k, batch = 1;  ///< of groups `batch` does not count
  Rows rows = Rows::all;
  std::vector<std::int64_t> list{};  ///< offsets of groups, or counts
  int pointers = 0;                  ///< bits: A, B, C
  bool wide = false, trans_a = false, trans_b = true, trans_c = false, shared_b = false;
  std::int64_t pad = 0;    ///< elements between rows beside what makes them multiples of 16 bytes
  std::int64_t shift = 0;  ///< elements that addresses are past such a multiple
  std::int64_t step = 0;   ///< elements more from one matrix to the next
  double alpha = 1, beta = 0, scale = 1;
  Activation activation = Activation::none;
  bool bias = false, residual = false;
  BiasAlong bias_along = BiasAlong::n;
  int factors = 0;  ///< none; one for A and one for each group or matrix; of rows and columns
};

int lists_runs = 0;
double lists_worst = 0;

/// Memory on the device that a list is copied to.
struct DeviceList {
  void* data = nullptr;
  template <class T>
  explicit DeviceList(std::vector<T> const& list) {
    assign(list);
  }
  template <class T>
  void assign(std::vector<T> const& list) {
    std::size_t const bytes = std::max<std::size_t>(list.size(), 1) * sizeof(T);
    if (data == nullptr) {
      ASSERT_CUDA(cudaMalloc(&data, bytes));
    }
    ASSERT_CUDA(cudaMemcpy(data, list.data(), list.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceList(DeviceList const&) = delete;
  DeviceList& operator=(DeviceList const&) = delete;
  ~DeviceList() { cudaFree(data); }
};

/// Every second entry of the list that a kernel reads, so that its stride matters.
template <class T>
std::vector<T> spread(std::vector<std::int64_t> const& list) {
  std::vector<T> entries(2 * list.size(), T(-1));
  for (std::size_t i = 0; i < list.size(); ++i) entries[2 * i] = static_cast<T>(list[i]);
  return entries;
}

/// Pointers to the matrices, at every second place; none to those of which `used` says no.
template <class T, class Used>
std::vector<T*> pointers_to(Matrix<T> const& x, Used const& used) {
  std::vector<T*> list(2 * static_cast<std::size_t>(x.batch), nullptr);
  for (std::int64_t b = 0; b < x.batch; ++b)
    if (used(b)) list[2 * static_cast<std::size_t>(b)] = x.begin() + b * x.stride_batch;
  return list;
}

/// The sum of products and how far a kernel's may be off: see test_gemm_sm80_direct.cpp.
template <class Kernel, class A>
struct ExactSum {
  std::int64_t count;
  long double value = 0;
  double size = 0;
  Float8Loss loss{count};

  void add(long double product) {
    auto const x = static_cast<double>(product);
    value += product, size += std::abs(x);
    loss.add(x);
  }
  double error() const {
    if (std::is_same_v<A, std::int8_t>) return 0;
    bool const thrice = std::is_same_v<Kernel, GemmSm80MmaTf32x3>;
    double const u = std::is_same_v<A, double> ? 0x1p-52 : 0x1p-23;
    double result = u * static_cast<double>((thrice ? 2 : 1) * count + 8) * size;
    if (std::is_same_v<Kernel, GemmSm80MmaTf32>) result += 0x1p-10 * 1.001 * size;
    if (std::is_same_v<Kernel, GemmSm89MmaF8>) result += loss.value();
    return result;
  }
};

/// Runs a case twice with each shape of tile, and compares.
template <class Kernel, class A, class B, class C>
void run_lists(ListsCase const& t) {
  SKIP_IF_LEFT_OUT(Kernel);
  Device const real = abi::query_device(abi::current_device());
  ASSERT_TRUE(real.at_least(8, 9)) << "this suite needs a card of sm_89 or newer";
  std::ostringstream text;
  text << Kernel::name << " m" << t.m << " n" << t.n << " k" << t.k << " batch" << t.batch
       << " trans " << t.trans_a << t.trans_b << t.trans_c << " pad" << t.pad << " shift" << t.shift
       << " step" << t.step << " pointers" << t.pointers << " rows " << static_cast<int>(t.rows);
  for (std::size_t i = 0; i < std::min<std::size_t>(t.list.size(), 50); ++i)
    text << ' ' << t.list[i];
  SCOPED_TRACE(text.str());
  bool const grouped = t.rows == Rows::grouped, counted = t.rows == Rows::counted;
  std::int64_t const matrices =
      grouped ? static_cast<std::int64_t>(t.list.size()) - 1 : t.batch;  // of B
  std::int64_t const batch = grouped ? 1 : t.batch;
  using Addend = std::conditional_t<std::is_same_v<A, double>, double, __nv_bfloat16>;
  Matrix<A> a(batch, t.m, t.k, t.trans_a, t.pad, false, 1);
  Matrix<B> b(matrices, t.k, t.n, t.trans_b, t.pad, t.shared_b, 2);
  Matrix<C> c(batch, t.m, t.n, t.trans_c, t.pad, false, 3);
  Matrix<float> bias(1, 1, std::max(t.m, t.n), false, 0, false, 4);
  Matrix<Addend> residual(batch, t.m, t.n, !t.trans_c, 3, false, 5);
  Matrix<float> rows(batch, 1, t.m, false, 3, false, 6),
      columns(matrices, 1, t.n, false, 1, false, 7);
  auto const move = [&](auto& x, std::uint32_t seed) {
    if (x.stride_batch != 0) x.stride_batch += t.step;
    x.host.resize(x.host.size() + static_cast<std::size_t>(x.batch * t.step * 8));
    fill(x, t.shift, seed);
  };
  move(a, 1), move(b, 2), move(c, 3);
  if (t.beta == 0) c.forget();

  // Which matrix of B a row is multiplied by; none: -1.
  auto const clamp = [&](std::int64_t x) { return std::min(std::max<std::int64_t>(x, 0), t.m); };
  std::vector<std::int64_t> matrix_of(static_cast<std::size_t>(batch * t.m), -1);
  auto const of = [&](std::int64_t l, std::int64_t i) -> std::int64_t& {
    return matrix_of[static_cast<std::size_t>(l * t.m + i)];
  };
  for (std::int64_t g = 0; g < matrices; ++g) {
    auto const at = static_cast<std::size_t>(g);
    std::int64_t const from = grouped ? clamp(t.list[at]) : 0;
    std::int64_t const to = grouped ? clamp(t.list[at + 1]) : counted ? clamp(t.list[at]) : t.m;
    for (std::int64_t i = from; i < to; ++i) of(grouped ? 0 : g, i) = g;
  }
  auto const has_rows = [&](std::int64_t l) {
    for (std::int64_t i = 0; i < t.m; ++i)
      if ((grouped && of(0, i) == l) || (!grouped && of(l, i) >= 0)) return true;
    return false;
  };
  for (std::int64_t l = 0; l < batch; ++l)
    for (std::int64_t i = 0; i < t.m; ++i)
      for (std::int64_t p = 0; p < t.k && of(l, i) < 0; ++p)
        std::memset(&a.host[static_cast<std::size_t>(a.offset(l, i, p)) * sizeof(A)], 0xFF,
                    sizeof(A));
  a.upload(), b.upload(), c.upload(), bias.upload(), residual.upload(), rows.upload();
  columns.upload();
  auto const all = [](std::int64_t) { return true; };
  auto const used = [&](std::int64_t l) { return t.k > 0 && has_rows(l); };
  DeviceList const list_a(pointers_to(a, used)), list_b(pointers_to(b, used)),
      list_c(pointers_to(c, all));
  DeviceList const entries32(spread<std::int32_t>(t.list)), entries64(spread<std::int64_t>(t.list));

  GemmArgs g;
  g.a = a.begin(), g.b = b.begin(), g.c = c.begin();
  g.type_a = dtype_of<A>(), g.type_b = dtype_of<B>(), g.type_c = dtype_of<C>();
  g.m = t.m, g.n = t.n, g.k = t.k, g.batch = batch;
  g.a_batch = a.stride_batch, g.a_m = a.stride_row, g.a_k = a.stride_column;
  g.b_batch = b.stride_batch, g.b_k = b.stride_row, g.b_n = b.stride_column;
  g.c_batch = c.stride_batch, g.c_m = c.stride_row, g.c_n = c.stride_column;
  if (t.pointers & 1) g.a = nullptr, g.a_pointers = static_cast<void**>(list_a.data), g.a_batch = 2;
  if (t.pointers & 2) g.b = nullptr, g.b_pointers = static_cast<void**>(list_b.data), g.b_batch = 2;
  if (t.pointers & 4) g.c = nullptr, g.c_pointers = static_cast<void**>(list_c.data), g.c_batch = 2;
  if (grouped) {
    g.offsets = t.wide ? entries64.data : entries32.data, g.offsets_stride = 2;
    g.type_offsets = t.wide ? DType::int64 : DType::int32, g.groups = matrices;
  }
  if (counted) g.counts = static_cast<std::int32_t const*>(entries32.data), g.counts_stride = 2;
  g.alpha = t.alpha, g.beta = t.beta, g.scale = t.scale, g.activation = t.activation;
  g.compute = std::is_same_v<Kernel, GemmSm80MmaTf32>     ? Compute::tf32
              : std::is_same_v<Kernel, GemmSm80MmaTf32x3> ? Compute::tf32x3
                                                          : Compute::ieee;
  if (t.bias) g.bias = bias.begin(), g.bias_along = t.bias_along, g.bias_stride = 1;
  if (t.residual) {
    g.residual = residual.begin(), g.type_residual = dtype_of<Addend>();
    g.residual_batch = residual.stride_batch;
    g.residual_m = residual.stride_row, g.residual_n = residual.stride_column;
  }
  bool const one = t.factors == 1;
  if (t.factors != 0) {
    g.scale_a = {rows.begin(), one ? 0 : rows.stride_batch, one ? 0 : 1, 0, 0, 0};
    g.scale_b = {columns.begin(), columns.stride_batch, 0, one ? 0 : 1, 0, 0};
  }

  // Elements of no group are expected to be what they were.
  std::vector<double> expected, bounds;
  double const u = std::is_same_v<A, double> ? 0x1p-52 : 0x1p-23;
  for (std::int64_t l = 0; l < batch; ++l)
    for (std::int64_t i = 0; i < t.m; ++i)
      for (std::int64_t j = 0; j < t.n && of(l, i) >= 0; ++j) {
        std::int64_t const z = of(l, i);
        ExactSum<Kernel, A> sum{t.k};
        for (std::int64_t p = 0; p < t.k; ++p)
          sum.add(static_cast<long double>(a.value(l, i, p)) * b.value(t.shared_b ? 0 : z, p, j));
        double const of_row = t.factors == 0 ? 1 : rows.value(one ? 0 : l, 0, one ? 0 : i);
        double const of_column = t.factors == 0 ? 1 : columns.value(z, 0, one ? 0 : j);
        double const old = t.beta == 0 ? 0 : t.beta * c.value(l, i, j);
        double const add = t.bias ? bias.value(0, 0, t.bias_along == BiasAlong::n ? j : i) : 0;
        double const r = t.residual ? residual.value(l, i, j) : 0;
        double const gain = t.scale * t.alpha * of_row * of_column;
        double const x = gain * static_cast<double>(sum.value) + t.scale * old + add;
        double const y = activate(t.activation, x) + r;
        double error = std::abs(gain) * sum.error();
        if (!std::is_same_v<C, int>) {
          error += 7 * u * (std::abs(gain) * sum.size + std::abs(t.scale * old)) +
                   u * (std::abs(x) + std::abs(add));
          error = 1.13 * error + 8 * u * std::abs(x) + u * (std::abs(y) + std::abs(r)) + 1e-37;
          error += rounding<C>() * (std::abs(y) + error);
          if (sizeof(C) == 2) error += 0x1p-25;
        }
        expected.push_back(y), bounds.push_back(error);
      }

  for (int sm_count : {1, 1000000}) {
    SCOPED_TRACE("multiprocessors " + std::to_string(sm_count));
    Device device = real;
    device.sm_count = sm_count;
    device.shared_memory_per_block_optin = 99 * 1024;
    std::vector<unsigned char> results[2];
    for (auto& result : results) {
      result.resize(c.host.size());
      c.upload();
      ASSERT_STREQ(Kernel::accepts(g, device).reason, "");
      ASSERT_EQ(Kernel::launch(g, device, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaDeviceSynchronize());
      ASSERT_CUDA(cudaMemcpy(result.data(), c.device, result.size(), cudaMemcpyDeviceToHost));
    }
    EXPECT_EQ(results[0], results[1]) << "a second call gave other bits";
    auto untouched = c.host;
    std::size_t at = 0;
    int wrong = 0;
    ResultNorms<C> norms;
    for (std::int64_t l = 0; l < batch; ++l)
      for (std::int64_t i = 0; i < t.m; ++i, norms.end_row())
        for (std::int64_t j = 0; j < t.n && of(l, i) >= 0; ++j, ++at) {
          auto const index = static_cast<std::size_t>(c.offset(l, i, j)) * sizeof(C);
          C got;
          std::memcpy(&got, &results[0][index], sizeof got);
          std::memcpy(&untouched[index], &got, sizeof got);
          double const difference = std::abs(wide(got) - expected[at]);
          double const ratio = difference == 0 ? 0 : difference / bounds[at];
          norms.add(wide(got), expected[at], bounds[at]);
          if (!(ratio <= 1) && wrong++ == 0)
            ADD_FAILURE() << "[" << l << ", " << i << ", " << j << "] is " << wide(got)
                          << ", expected " << expected[at] << " ± " << bounds[at];
          lists_worst = std::max(lists_worst, ratio);
        }
    EXPECT_EQ(untouched, results[0]) << "memory of no group was written";
    if (t.k > 1 && t.alpha != 0) norms.check("direct gemm/lists", "C");
    ++lists_runs;
    if (testing::Test::HasFailure()) return;
  }
}

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
