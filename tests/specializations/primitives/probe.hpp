// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What the probes of the primitive layer share: memory of the device, matrices of small integers
/// that every element type holds exactly, and comparison without a bound. All probes fail without a
/// card that runs what they are compiled for.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <attikos/config.hpp>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "dawdle.hpp"

#pragma nv_diag_suppress 177  // GoogleTest's test_info_ members are unused by design

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

#define ASSERT_CUDA(call) ASSERT_EQ(call, cudaSuccess) << cudaGetErrorString(cudaPeekAtLastError())

using Bytes = std::vector<unsigned char>;
using E4 = __nv_fp8_e4m3;
using E5 = __nv_fp8_e5m2;

__global__ void nothing() {}

/// Leaves tests out on devices that their machine code does not load on.
class Probe : public testing::Test {
 protected:
  void SetUp() override {
    cudaFuncAttributes attributes;
    if (cudaFuncGetAttributes(&attributes, nothing) != cudaErrorNoKernelImageForDevice) return;
    static_cast<void>(cudaGetLastError());
    GTEST_SKIP() << "no machine code for this device";
  }
};

/// An array on the device, all bytes 0xFF until something is written.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t count) : count_(count) {
    if (cudaMalloc(&data_, count * sizeof(T)) != cudaSuccess ||
        cudaMemset(data_, 0xFF, count * sizeof(T)) != cudaSuccess)
      ADD_FAILURE() << "no device memory";
  }
  explicit DeviceArray(std::vector<T> const& values) : DeviceArray(values.size()) {
    if (cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice) != cudaSuccess)
      ADD_FAILURE() << "no copy to the device";
  }
  DeviceArray(DeviceArray const&) = delete;
  DeviceArray& operator=(DeviceArray const&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  std::vector<T> host() const {
    std::vector<T> values(count_);
    cudaError_t const status =
        cudaMemcpy(values.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost);
    EXPECT_EQ(status, cudaSuccess) << cudaGetErrorString(status);
    return values;
  }

 private:
  T* data_ = nullptr;
  std::size_t count_;
};

/// A matrix of integers of at most `limit` in magnitude, without a pattern.
struct Integers {
  int rows, columns;
  std::vector<int> values;

  Integers(int rows_, int columns_, int limit, std::uint32_t seed)
      : rows(rows_), columns(columns_), values(static_cast<std::size_t>(rows_ * columns_)) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      auto const bits = mix(seed * 0x9E3779B9u + static_cast<std::uint32_t>(i));
      values[i] = static_cast<int>(bits % static_cast<unsigned>(2 * limit + 1)) - limit;
    }
  }
  int operator()(int i, int j) const { return values[static_cast<std::size_t>(i * columns + j)]; }
};

/// Up to which magnitude the products' operands go: all integers up to there are exact in T, and
/// so are the sums, in the 14 bits that float8 products keep as well.
template <class T>
constexpr int limit_of() {
  if constexpr (std::is_same_v<T, std::int8_t>) return 127;
  if constexpr (sizeof(T) == 1) return 7;
  return 15;
}

template <class T>
T element(int value) {
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<T>(value);
  else
    return T(static_cast<float>(value));
}

/// The matrix as elements of T, row by row.
template <class T>
Bytes rows_of(Integers const& m) {
  Bytes bytes(m.values.size() * sizeof(T));
  for (std::size_t i = 0; i < m.values.size(); ++i) {
    T const x = element<T>(m.values[i]);
    std::memcpy(&bytes[i * sizeof(T)], &x, sizeof(T));
  }
  return bytes;
}

/// Where byte `address` of lines of 128 bytes lies once its 16-byte chunk has been exchanged with
/// the one whose number differs by the line's: PTX ISA, "Swizzling modes", 128 bytes.
inline std::size_t swizzled(std::size_t address) { return address ^ (address >> 7 & 7) << 4; }

/// An operand in shared memory, k along lines: columns of 128 bytes of k, each of all rows.
template <class T>
Bytes k_major_image(Integers const& m) {
  Bytes const rows = rows_of<T>(m);
  std::size_t const pitch = static_cast<std::size_t>(m.columns) * sizeof(T);
  Bytes image(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    std::size_t const row = i / pitch, k = i % pitch;
    image[swizzled((k / 128 * static_cast<std::size_t>(m.rows) + row) * 128 + k % 128)] = rows[i];
  }
  return image;
}

/// An operand in shared memory, its rows along lines: for each 128 bytes of rows a line per k.
/// Where the rows do not fill the last lines there is poison.
template <class T>
Bytes mn_major_image(Integers const& m) {
  Bytes const rows = rows_of<T>(m);
  std::size_t const line = 128 / sizeof(T), depth = static_cast<std::size_t>(m.columns);
  Bytes image((static_cast<std::size_t>(m.rows) + line - 1) / line * depth * 128, 0xFF);
  for (std::size_t i = 0; i < m.values.size(); ++i) {
    std::size_t const row = i / depth, k = i % depth;
    std::size_t const at = (row / line * depth + k) * 128 + row % line * sizeof(T);
    std::memcpy(&image[swizzled(at)], &rows[i * sizeof(T)], sizeof(T));
  }
  return image;
}

/// start + A · Bᵀ over columns `begin` to `end` of both.
inline std::vector<double> product(Integers const& a, Integers const& b, int first_row, int rows,
                                   int begin, int end, double start) {
  std::vector<double> d;
  for (int i = first_row; i < first_row + rows; ++i)
    for (int j = 0; j < b.rows; ++j) {
      double sum = start;
      for (int k = begin; k < end; ++k) sum += static_cast<double>(a(i, k)) * b(j, k);
      d.push_back(sum);
    }
  return d;
}

/// Compares bit for bit as far as T goes, and says where the first difference is.
template <class T, class U>
void expect_same(T const* got, std::vector<U> const& expected, char const* what) {
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = expected.size(); i-- > 0;)
    if (!(got[i] == static_cast<T>(expected[i]))) ++wrong, first = i;
  EXPECT_EQ(wrong, 0u) << what << ": of " << expected.size() << " differ, the first is number "
                       << first << ": " << +got[first] << " for " << +expected[first];
}
template <class T, class U>
void expect_same(std::vector<T> const& got, std::vector<U> const& expected, char const* what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  expect_same(got.data(), expected, what);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
