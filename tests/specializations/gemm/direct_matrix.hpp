// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Operands of kernels that are called directly: poisoned memory of cudaMalloc, and the oracle's
/// view of it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <attikos/abi/gemm.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "../../support/error_norms.hpp"
#include "../../support/ratchet.hpp"
#include "direct_common.hpp"

namespace {

using namespace attikos;
namespace abi = attikos::abi;  // the standard library has a global ::abi
using abi::Device;
using abi::GemmArgs;
using E4 = __nv_fp8_e4m3;
using E5 = __nv_fp8_e5m2;

template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, __half>) return DType::float16;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return DType::bfloat16;
  if constexpr (std::is_same_v<T, E4>) return DType::float8_e4m3;
  if constexpr (std::is_same_v<T, E5>) return DType::float8_e5m2;
  if constexpr (std::is_same_v<T, std::int8_t>) return DType::int8;
  if constexpr (std::is_same_v<T, int>) return DType::int32;
  if constexpr (std::is_same_v<T, double>) return DType::float64;
  return DType::float32;
}

template <class T>
double wide(T x) {
  if constexpr (std::is_integral_v<T> || std::is_same_v<T, double>)
    return x;
  else
    return static_cast<double>(static_cast<float>(x));
}

/// Distance between neighbours of a value of type T, relative to it, halved.
template <class T>
constexpr double rounding() {
  if constexpr (std::is_same_v<T, __half>) return 0x1p-11;
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return 0x1p-8;
  if constexpr (std::is_same_v<T, int>) return 0;
  if constexpr (std::is_same_v<T, double>) return 0x1p-53;
  return 0x1p-24;
}

/// What tensor cores may lose of a float8 sum of `count` products: of every 32 of them, and of the
/// sum that they are added to, what lies below 2^-13 of the largest. Promoted sums begin again
/// after 128.
class Float8Loss {
 public:
  explicit Float8Loss(std::int64_t count, bool fast = false) : count_(count), fast_(fast) {}

  /// The next product; what it is added to is multiplied by `factor` later.
  void add(double product, double factor = 1) {
    if (!fast_ && at_ % 128 == 0) part_ = 0;
    part_ += product;
    largest_ = std::max(largest_, std::abs(product));
    if (++at_ % 32 != 0 && at_ != count_) return;
    lost_ += std::abs(factor) * 33 * 0x1p-13 * std::max(largest_, std::abs(part_));
    largest_ = std::abs(part_);
  }
  double value() const { return lost_; }

 private:
  std::int64_t count_, at_ = 0;
  bool fast_;
  double part_ = 0, largest_ = 0, lost_ = 0;
};

/// The largest number of an 8-bit type, and half the distance of its neighbours at a magnitude.
template <class T>
constexpr double largest() {
  return std::is_same_v<T, std::int8_t> ? 127 : std::is_same_v<T, E4> ? 448 : 57344;
}
template <class T>
double half_spacing(double magnitude) {
  if constexpr (std::is_same_v<T, std::int8_t>) return 0.5;
  constexpr int bits = std::is_same_v<T, E4> ? 3 : 2, least = std::is_same_v<T, E4> ? -6 : -14;
  int const exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), least) : least;
  return std::ldexp(0.5, exponent - bits);
}

/// What an 8-bit element is next to, a number in reach of the kernel's error divided by the scale
/// of the output, and how far it may be from that.
struct Quantized {
  double value, bound;
};
template <class T>
Quantized quantized(double y, double error, double scale_out) {
  double const limit = largest<T>(), lowest = std::is_same_v<T, std::int8_t> ? -128 : -limit;
  double const quotient = y / scale_out;
  if (std::isnan(quotient) && std::is_same_v<T, std::int8_t>) return {0, 0};
  if (std::isinf(y)) {  // no large number, but the sign of an overflow
    double const shown = std::is_same_v<T, std::int8_t> ? 127
                         : std::is_same_v<T, E4>        ? NAN
                                                        : INFINITY;
    return {std::copysign(shown, quotient), 0};
  }
  double const before = std::isfinite(y) ? error / scale_out + 0x1p-24 * std::abs(quotient) : 0;
  return {std::clamp(quotient, lowest, limit),
          std::isfinite(y) ? before + half_spacing<T>(std::min(std::abs(quotient) + before, limit))
                           : 0};
}

/// A matrix [batch, rows, columns] in memory of which every other byte is 0xFF: NaN in every
/// floating type.
template <class T>
struct Matrix {
  std::int64_t batch = 0, rows = 0, columns = 0, stride_batch = 0, stride_row = 0,
               stride_column = 0, origin = 0;
  std::vector<unsigned char> host;
  unsigned char* device = nullptr;

  Matrix(std::int64_t batch_, std::int64_t rows_, std::int64_t columns_, bool by_columns,
         std::int64_t pad, bool shared, std::uint32_t seed)
      : batch(batch_), rows(rows_), columns(columns_) {
    auto const per_16 = static_cast<std::int64_t>(16 / sizeof(T));
    std::int64_t const inner = by_columns ? rows : columns, outer = by_columns ? columns : rows;
    std::int64_t const leading = (inner + per_16 - 1) / per_16 * per_16 + pad;
    stride_row = by_columns ? 1 : leading;
    stride_column = by_columns ? leading : 1;
    stride_batch = shared ? 0 : leading * (outer + 1);
    origin = 4 * per_16;
    auto const matrices = shared ? 1 : batch;
    host.assign(
        static_cast<std::size_t>(origin + matrices * leading * (outer + 1) + 64) * sizeof(T), 0xFF);
    for (std::int64_t b = 0; b < matrices; ++b)
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j) {
          auto const bits =
              mix(seed ^ mix(static_cast<std::uint32_t>((b * rows + i) * columns + j)));
          if constexpr (std::is_integral_v<T>)
            at(b, i, j) = static_cast<T>(static_cast<int>(bits % 255) - 127);
          else
            at(b, i, j) = T(static_cast<float>(bits % 4097) / 2048.0f - 1.0f);
        }
  }
  Matrix(Matrix const&) = delete;
  Matrix& operator=(Matrix const&) = delete;
  ~Matrix() { cudaFree(device); }

  std::int64_t offset(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return origin + b * stride_batch + i * stride_row + j * stride_column;
  }
  T& at(std::int64_t b, std::int64_t i, std::int64_t j) {
    return reinterpret_cast<T*>(host.data())[offset(b, i, j)];
  }
  double value(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return wide(reinterpret_cast<T const*>(host.data())[offset(b, i, j)]);
  }
  void forget() { std::fill(host.begin(), host.end(), 0xFF); }
  void upload() {
    if (device == nullptr) {
      ASSERT_CUDA(cudaMalloc(&device, host.size()));
    }
    ASSERT_CUDA(cudaMemcpy(device, host.data(), host.size(), cudaMemcpyHostToDevice));
  }
  T* begin() const { return reinterpret_cast<T*>(device) + origin; }
};

/// Moves a matrix by some elements and fills it with numbers of all bits that its type has.
template <class T>
void fill(Matrix<T>& x, std::int64_t shift, std::uint32_t seed) {
  x.forget();
  x.origin += shift;
  for (std::int64_t b = 0; b < (x.stride_batch == 0 ? 1 : x.batch); ++b)
    for (std::int64_t i = 0; i < x.rows; ++i)
      for (std::int64_t j = 0; j < x.columns; ++j) {
        auto const at = static_cast<std::uint32_t>((b * x.rows + i) * x.columns + j);
        auto const bits = mix(seed ^ mix(at));
        if constexpr (std::is_integral_v<T>)
          x.at(b, i, j) = static_cast<T>(static_cast<int>(bits % 255) - 127);
        else if constexpr (std::is_same_v<T, double>)
          x.at(b, i, j) = bits * 0x1p-31 - 1 + mix(bits) * 0x1p-63;
        else
          x.at(b, i, j) = T(static_cast<float>(bits * 0x1p-31 - 1));
      }
}

/// What results of type C are off by together; see error_norms.hpp. Nothing for 32 bits and more.
template <class C>
class ResultNorms {
 public:
  /// The next element of a row, which is `bound` at most off.
  void add(double got, double expected, double bound) {
    constexpr bool half = std::is_same_v<C, __half>;
    if constexpr (sizeof(C) == 2) {
      norms_.add(got - expected, expected,
                 test::stored_parts(expected, bound, rounding<C>(), half ? 0x1p-24 : 0));
    } else if constexpr (sizeof(C) == 1) {
      double const own =
          std::min(bound, half_spacing<C>(std::min(std::abs(expected), largest<C>())));
      norms_.add(got - expected, expected, {bound - own, own * own / 3, 0});
    }
  }
  void add(double got, double expected, test::ErrorParts const& parts) {
    if (sizeof(C) <= 2) norms_.add(got - expected, expected, parts);
  }
  void end_row() { norms_.end_row(); }
  /// Fails once where every element is within its bound, but not all of them.
  void check(std::string const& name, char const* what = "") {
    if (sizeof(C) > 2) return;
    double const ratio = norms_.worst();
    if (testing::Test::HasFailure()) return;
    test::keep_worst_ratio(name + "/norms", ratio);
    if (!(ratio <= 1))
      ADD_FAILURE() << what << ": error / bound of norm " << norms_.norm_ratio() << ", mean "
                    << norms_.mean_ratio() << ", gain " << norms_.gain_ratio()
                    << ", worst of a row " << norms_.worst_row();
  }

 private:
  test::ErrorNorms norms_;
};

/// Compares C on the device, extents [batch, m, n], with what its elements, the last dimension
/// first, should be and by how much they may be off; what lies between them must be as it was
/// uploaded. `worst`: the largest error over its bound. Products of single numbers have no norms.
template <class C>
void compare_result(Matrix<C> const& c, std::int64_t batch, std::int64_t m, std::int64_t n,
                    std::vector<double> const& expected, std::vector<double> const& bounds,
                    double& worst, bool with_norms = true) {
  std::vector<unsigned char> result(c.host.size());
  ASSERT_CUDA(cudaMemcpy(result.data(), c.device, result.size(), cudaMemcpyDeviceToHost));
  auto untouched = c.host;
  std::size_t at = 0;
  ResultNorms<C> norms;
  worst = 0;
  for (std::int64_t l = 0; l < batch; ++l)
    for (std::int64_t i = 0; i < m; ++i, norms.end_row())
      for (std::int64_t j = 0; j < n; ++j, ++at) {
        auto const index = static_cast<std::size_t>(c.offset(l, i, j)) * sizeof(C);
        C got;
        std::memcpy(&got, &result[index], sizeof got);
        std::memcpy(&untouched[index], &got, sizeof got);
        double const difference = std::abs(wide(got) - expected[at]);
        double const ratio = difference == 0 ? 0 : difference / bounds[at];
        norms.add(wide(got), expected[at], bounds[at]);
        if (!(ratio <= 1) && worst <= 1) {
          ADD_FAILURE() << "[" << l << ", " << i << ", " << j << "] is " << wide(got)
                        << ", expected " << expected[at] << " ± " << bounds[at];
        }
        worst = std::max(worst, std::isnan(ratio) ? INFINITY : ratio);
      }
  EXPECT_EQ(untouched, result) << "memory around C was written";
  std::string const name = std::string("direct gemm/") + dtype_name(dtype_of<C>());
  test::keep_worst_ratio(name, worst);
  if (with_norms) norms.check(name, "C");
}

}  // namespace
