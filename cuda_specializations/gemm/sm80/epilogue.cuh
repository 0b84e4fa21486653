// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From the accumulators of a warp to C, through the warp's share of shared memory, so that a warp
/// stores along rows of C.
#pragma once

#include "load.cuh"
#include "ptx/mbarrier.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

__device__ __forceinline__ double load_as_double(void const* data, DType type, std::int64_t at) {
  if (type == DType::float64) return static_cast<double const*>(data)[at];
  return static_cast<double>(load_as_float(data, type, at));
}

/// argument_of() for float64.
__device__ __forceinline__ double argument_of(Sm80Params const& p, double sum, std::int64_t z,
                                              std::int64_t m, std::int64_t n) {
  Epilogue const& e = p.epilogue;
  double v = sum * p.alpha;
  if (p.beta != 0) v += p.beta * static_cast<double*>(e.c)[z * e.c_batch + m * e.c_m + n * e.c_n];
  v *= e.factor != nullptr ? p.scale * static_cast<double>(*e.factor) : p.scale;
  if (e.bias.data != nullptr)
    v += load_as_double(e.bias.data, e.bias.type, m * e.bias.stride_m + n * e.bias.stride_n);
  return v;
}

__device__ __forceinline__ void keep_double(Sm80Params const& p, double sum, std::int64_t z,
                                            std::int64_t m, std::int64_t n) {
  PreActivation const& to = p.epilogue.pre_activation;
  std::int64_t const at = z * to.batch_stride + m * to.stride_m + n * to.stride_n;
  double const v = argument_of(p, sum, z, m, n);
  switch (to.type) {
    case DType::float64:
      static_cast<double*>(to.data)[at] = v;
      break;
    case DType::float32:
      static_cast<float*>(to.data)[at] = static_cast<float>(v);
      break;
    case DType::float16:
      static_cast<__half*>(to.data)[at] = __double2half(v);
      break;
    default:
      static_cast<__nv_bfloat16*>(to.data)[at] = __double2bfloat16(v);
  }
}

/// finish() for float64, which stores as well.
__device__ __forceinline__ void store_double(Sm80Params const& p, double sum, std::int64_t z,
                                             std::int64_t m, std::int64_t n) {
  Epilogue const& e = p.epilogue;
  double v = apply_activation(e.activation, argument_of(p, sum, z, m, n));
  if (e.residual.data != nullptr)
    v += load_as_double(
        e.residual.data, e.residual.type,
        z * e.residual.batch_stride + m * e.residual.stride_m + n * e.residual.stride_n);
  static_cast<double*>(e.c)[z * e.c_batch + m * e.c_m + n * e.c_n] = v;
}

/// Rows of a warp's tile that are staged at a time, and the distance of staged rows.
template <class Config>
struct Staging {
  static constexpr int stride = Config::warp_n + 8;  ///< two rows apart: other banks
  static constexpr int row_bytes =
      Config::warps * stride * static_cast<int>(sizeof(typename Config::Acc));
  static constexpr int rows =
      Config::warp_m * row_bytes <= Config::shared_bytes ? Config::warp_m : Config::warp_m / 2;
  static_assert(rows * row_bytes <= Config::shared_bytes && rows % 16 == 0);
};

/// Stores the arguments of act of staged rows, `Stride` apart, eight at a time but for float64.
template <class Acc, int Rows, int Columns, int Stride>
__device__ __noinline__ void keep_staged(Sm80Params const& p, Acc const* staged, int z, int m0,
                                         int n0) {
  constexpr int width = std::is_same_v<Acc, double> ? 1 : 8, chunks = Columns / width;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x) % 32; i < Rows * chunks; i += 32) {
    int const row = i / chunks, column = i % chunks * width, m = m0 + row, n = n0 + column;
    if (m >= p.m || n >= p.n) continue;
    auto const* const from = staged + row * Stride + column;
    if constexpr (width == 1) {
      keep_double(p, *from, z, m, n);
    } else {
      float v[8];
#pragma unroll
      for (int j = 0; j < 8; ++j) v[j] = static_cast<float>(from[j]);
      keep_eight(p.epilogue, v, false, min(8, p.n - n), z, m, n);
    }
  }
  __syncwarp();  // C has been read
}

/// Stores staged rows, of which the first is (z, m0, n0), with nothing but alpha to apply and
/// wherever they go: each lane a column, or two.
template <class Config>
__device__ __noinline__ void store_rows_times_alpha(Sm80Params const& p,
                                                    typename Config::Acc const* staged, int z,
                                                    int m0, int n0) {
  using S = Staging<Config>;
  Epilogue const& e = p.epilogue;
  int const rows = min(S::rows, p.m - m0), columns = min(Config::warp_n, p.n - n0);
#pragma unroll 1
  for (int column = static_cast<int>(threadIdx.x) % 32; column < columns; column += 32) {
    std::int64_t const to = z * e.c_batch + m0 * e.c_m + (n0 + column) * e.c_n;
    auto const sum_at = [&](int row) { return staged[row * S::stride + column]; };
    if constexpr (std::is_same_v<typename Config::Acc, double>) {
      double* c = static_cast<double*>(e.c) + to;
#pragma unroll 8
      for (int row = 0; row < S::rows; ++row, c += e.c_m)
        if (row < rows) *c = p.alpha * sum_at(row);
    } else {
      store_times_alpha<S::rows>(e, to, e.c_m, rows, sum_at);
    }
  }
}

/// Stores staged rows, of which the first is (z, m0, n0).
template <class Config>
__device__ __forceinline__ void store_staged(Sm80Params const& p,
                                             typename Config::Acc const* staged, int z, int m0,
                                             int n0) {
  using Acc = typename Config::Acc;
  using S = Staging<Config>;
  Epilogue const& e = p.epilogue;
  int const lane = static_cast<int>(threadIdx.x) % 32;
  if (p.whole) {
    auto const each = [&](auto width, auto store) {
      constexpr int chunks = Config::warp_n / decltype(width)::value;
#pragma unroll 2
      for (int i = lane; i < S::rows * chunks; i += 32) {
        int const row = i / chunks, column = i % chunks * decltype(width)::value;
        if (m0 + row >= p.m || n0 + column >= p.n) continue;
        store(staged + row * S::stride + column,
              z * e.c_batch + (m0 + row) * e.c_m + (n0 + column));
      }
    };
    if constexpr (std::is_same_v<Acc, float>) {
      if (e.type_c == DType::float32) {
        each(std::integral_constant<int, 4>{}, [&](float const* v, std::int64_t to) {
          *reinterpret_cast<float4*>(static_cast<float*>(e.c) + to) =
              make_float4(e.alpha * v[0], e.alpha * v[1], e.alpha * v[2], e.alpha * v[3]);
        });
      } else {
        each(std::integral_constant<int, 8>{}, [&](float const* v, std::int64_t to) {
          auto const two = [&](int j) {
            return pack_pair(e.type_c, e.alpha * v[j], e.alpha * v[j + 1]);
          };
          *reinterpret_cast<uint4*>(static_cast<std::uint16_t*>(e.c) + to) =
              make_uint4(two(0), two(2), two(4), two(6));
        });
      }
    } else if constexpr (std::is_same_v<Acc, int>) {
      each(std::integral_constant<int, 4>{}, [&](int const* v, std::int64_t to) {
        *reinterpret_cast<int4*>(static_cast<int*>(e.c) + to) = make_int4(v[0], v[1], v[2], v[3]);
      });
    } else {
      each(std::integral_constant<int, 2>{}, [&](double const* v, std::int64_t to) {
        *reinterpret_cast<double2*>(static_cast<double*>(e.c) + to) =
            make_double2(p.alpha * v[0], p.alpha * v[1]);
      });
    }
    return;
  }
  if (e.only_alpha) return store_rows_times_alpha<Config>(p, staged, z, m0, n0);
  if (e.pre_activation.data != nullptr)
    keep_staged<Acc, S::rows, Config::warp_n, S::stride>(p, staged, z, m0, n0);
#pragma unroll 1
  for (int i = lane; i < S::rows * Config::warp_n; i += 32) {
    int const row = i / Config::warp_n, column = i % Config::warp_n;
    int const m = m0 + row, n = n0 + column;
    if (m >= p.m || n >= p.n) continue;
    Acc const sum = staged[row * S::stride + column];
    if constexpr (std::is_same_v<Acc, double>)
      store_double(p, sum, z, m, n);
    else
      finish_element(e, sum, z, m, n);
  }
}

/// Stores a warp's tile, which begins at (z, m0, n0). All warps are done with the stages.
template <class Config>
__device__ __forceinline__ void store_warp(
    Sm80Params const& p,
    typename Config::Acc const (&acc)[Config::fragments_m][2 * Config::fragments_n][4],
    unsigned char* shared, int z, int m0, int n0) {
  using Acc = typename Config::Acc;
  using S = Staging<Config>;
  int const lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, q = lane % 4;
  Acc* const staged =
      reinterpret_cast<Acc*>(shared) + static_cast<int>(threadIdx.x) / 32 * (S::rows * S::stride);
#pragma unroll
  for (int part = 0; part < Config::warp_m / S::rows; ++part) {
    if (part > 0) __syncwarp();
#pragma unroll
    for (int i = 0; i < S::rows / 16; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        Acc* const row =
            staged + (16 * i + fragment_row<Config::size, Config::mn_a>(g + 8 * h)) * S::stride;
#pragma unroll
        for (int j = 0; j < 2 * Config::fragments_n; ++j) {
          Acc const* const two = &acc[part * (S::rows / 16) + i][j][2 * h];
          int const column =
              16 * (j / 2) + fragment_row<Config::size, Config::mn_b>(8 * (j % 2) + 2 * q);
          constexpr int next = Config::size == 1 && Config::mn_b ? 2 : 1;  // to column 2 q + 1
          row[column] = two[0];
          row[column + next] = two[1];
        }
      }
    __syncwarp();
    store_staged<Config>(p, staged, z, m0 + part * S::rows, n0);
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
