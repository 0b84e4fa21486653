// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Runs gemm/sm80_* on groups of rows, counted rows and arrays of pointers, and compares with sums
/// in long double.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

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

/// A number and how far a kernel's may be off.
struct Expected {
  double value, error;
};

/// The operands of a case, on the host and the device.
template <class Kernel, class A, class B, class C>
struct ListsProblem {
  using Addend = std::conditional_t<std::is_same_v<A, double>, double, __nv_bfloat16>;

  ListsCase const& t;
  bool const grouped = t.rows == Rows::grouped, counted = t.rows == Rows::counted,
             one = t.factors == 1;
  std::int64_t const matrices =
      grouped ? static_cast<std::int64_t>(t.list.size()) - 1 : t.batch;  // of B
  std::int64_t const batch = grouped ? 1 : t.batch;
  Matrix<A> a{batch, t.m, t.k, t.trans_a, t.pad, false, 1};
  Matrix<B> b{matrices, t.k, t.n, t.trans_b, t.pad, t.shared_b, 2};
  Matrix<C> c{batch, t.m, t.n, t.trans_c, t.pad, false, 3};
  Matrix<float> bias{1, 1, std::max(t.m, t.n), false, 0, false, 4};
  Matrix<Addend> residual{batch, t.m, t.n, !t.trans_c, 3, false, 5};
  Matrix<float> rows{batch, 1, t.m, false, 3, false, 6},
      columns{matrices, 1, t.n, false, 1, false, 7};
  /// Which matrix of B a row is multiplied by; none: -1.
  std::vector<std::int64_t> matrix_of = find_matrices();
  std::optional<DeviceList> list_a, list_b, list_c;
  DeviceList entries32{spread<std::int32_t>(t.list)}, entries64{spread<std::int64_t>(t.list)};

  explicit ListsProblem(ListsCase const& problem) : t(problem) {
    move(a, 1), move(b, 2), move(c, 3);
    if (t.beta == 0) c.forget();
    for (std::int64_t l = 0; l < batch; ++l)
      for (std::int64_t i = 0; i < t.m; ++i)
        for (std::int64_t p = 0; p < t.k && of(l, i) < 0; ++p)
          std::memset(&a.host[static_cast<std::size_t>(a.offset(l, i, p)) * sizeof(A)], 0xFF,
                      sizeof(A));
    a.upload(), b.upload(), c.upload(), bias.upload(), residual.upload(), rows.upload();
    columns.upload();
    auto const all = [](std::int64_t) { return true; };
    auto const used = [&](std::int64_t l) { return t.k > 0 && has_rows(l); };
    list_a.emplace(pointers_to(a, used)), list_b.emplace(pointers_to(b, used));
    list_c.emplace(pointers_to(c, all));
  }

  template <class Element>
  void move(Matrix<Element>& x, std::uint32_t seed) const {
    if (x.stride_batch != 0) x.stride_batch += t.step;
    x.host.resize(x.host.size() + static_cast<std::size_t>(x.batch * t.step * 8));
    fill(x, t.shift, seed);
  }
  std::int64_t of(std::int64_t l, std::int64_t i) const {
    return matrix_of[static_cast<std::size_t>(l * t.m + i)];
  }
  std::vector<std::int64_t> find_matrices() const {
    auto const clamp = [&](std::int64_t x) { return std::min(std::max<std::int64_t>(x, 0), t.m); };
    std::vector<std::int64_t> found(static_cast<std::size_t>(batch * t.m), -1);
    for (std::int64_t g = 0; g < matrices; ++g) {
      auto const at = static_cast<std::size_t>(g);
      std::int64_t const from = grouped ? clamp(t.list[at]) : 0;
      std::int64_t const to = grouped ? clamp(t.list[at + 1]) : counted ? clamp(t.list[at]) : t.m;
      for (std::int64_t i = from; i < to; ++i)
        found[static_cast<std::size_t>((grouped ? 0 : g) * t.m + i)] = g;
    }
    return found;
  }
  bool has_rows(std::int64_t l) const {
    for (std::int64_t i = 0; i < t.m; ++i)
      if ((grouped && of(0, i) == l) || (!grouped && of(l, i) >= 0)) return true;
    return false;
  }

  GemmArgs arguments() const {
    GemmArgs g;
    g.a = a.begin(), g.b = b.begin(), g.c = c.begin();
    g.type_a = dtype_of<A>(), g.type_b = dtype_of<B>(), g.type_c = dtype_of<C>();
    g.m = t.m, g.n = t.n, g.k = t.k, g.batch = batch;
    g.a_batch = a.stride_batch, g.a_m = a.stride_row, g.a_k = a.stride_column;
    g.b_batch = b.stride_batch, g.b_k = b.stride_row, g.b_n = b.stride_column;
    g.c_batch = c.stride_batch, g.c_m = c.stride_row, g.c_n = c.stride_column;
    if (t.pointers & 1)
      g.a = nullptr, g.a_pointers = static_cast<void**>(list_a->data), g.a_batch = 2;
    if (t.pointers & 2)
      g.b = nullptr, g.b_pointers = static_cast<void**>(list_b->data), g.b_batch = 2;
    if (t.pointers & 4)
      g.c = nullptr, g.c_pointers = static_cast<void**>(list_c->data), g.c_batch = 2;
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
    if (t.factors != 0) {
      g.scale_a = {rows.begin(), one ? 0 : rows.stride_batch, one ? 0 : 1, 0, 0, 0};
      g.scale_b = {columns.begin(), columns.stride_batch, 0, one ? 0 : 1, 0, 0};
    }
    return g;
  }

  Expected expected(std::int64_t l, std::int64_t i, std::int64_t j) const {
    double const u = std::is_same_v<A, double> ? 0x1p-52 : 0x1p-23;
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
    return {y, error};
  }

  /// Compares what lies where C did with what is expected, row by row, and expects elements of no
  /// group as they were.
  void compare(std::vector<unsigned char> const& result, std::vector<Expected> const& all) const {
    auto untouched = c.host;
    std::size_t at = 0;
    int wrong = 0;
    ResultNorms<C> norms;
    for (std::int64_t l = 0; l < batch; ++l)
      for (std::int64_t i = 0; i < t.m; ++i, norms.end_row())
        for (std::int64_t j = 0; j < t.n && of(l, i) >= 0; ++j, ++at) {
          auto const index = static_cast<std::size_t>(c.offset(l, i, j)) * sizeof(C);
          C got;
          std::memcpy(&got, &result[index], sizeof got);
          std::memcpy(&untouched[index], &got, sizeof got);
          double const difference = std::abs(wide(got) - all[at].value);
          double const ratio = difference == 0 ? 0 : difference / all[at].error;
          norms.add(wide(got), all[at].value, all[at].error);
          if (!(ratio <= 1) && wrong++ == 0)
            ADD_FAILURE() << "[" << l << ", " << i << ", " << j << "] is " << wide(got)
                          << ", expected " << all[at].value << " ± " << all[at].error;
          lists_worst = std::max(lists_worst, ratio);
        }
    EXPECT_EQ(untouched, result) << "memory of no group was written";
    test::keep_worst_ratio("direct gemm/lists", lists_worst);
    if (t.k > 1 && t.alpha != 0) norms.check("direct gemm/lists", "C");
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
  ListsProblem<Kernel, A, B, C> problem(t);
  GemmArgs const g = problem.arguments();
  auto& c = problem.c;
  std::vector<Expected> expected;
  for (std::int64_t l = 0; l < problem.batch; ++l)
    for (std::int64_t i = 0; i < t.m; ++i)
      for (std::int64_t j = 0; j < t.n && problem.of(l, i) >= 0; ++j)
        expected.push_back(problem.expected(l, i, j));

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
    problem.compare(results[0], expected);
    ++lists_runs;
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
