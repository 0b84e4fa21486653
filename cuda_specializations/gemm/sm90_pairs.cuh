// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The epilogue where the sums lie: each thread has pairs of neighbouring columns.
#pragma once

#include "sm90_params.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// Numbers of columns `column`, `column` + 1 and of those 8, 16, ... further on, as far as there
/// are columns. They lie side by side, pairs at multiples of their size.
template <int Blocks>
__device__ __forceinline__ void load_columns(void const* data, DType type, int column, int columns,
                                             float2 (&w)[Blocks]) {
  bool const floats = type == DType::float32;
#pragma unroll
  for (int b = 0; b < Blocks; ++b) {
    w[b] = {0, 0};
    if (column + 8 * b < columns) {
      if (floats)
        w[b] = *reinterpret_cast<float2 const*>(static_cast<float const*>(data) + column + 8 * b);
      else
        w[b].x = *reinterpret_cast<float const*>(static_cast<__half const*>(data) + column + 8 * b);
    }
  }
  if (floats) return;
#pragma unroll
  for (int b = 0; b < Blocks; ++b) w[b] = unpack(type, __float_as_uint(w[b].x));
}

/// Where an epilogue has factors of rows and columns and nothing else: those of a thread's rows,
/// and the way to those of its columns.
template <class Config>
class Sm90LineFactors {
 public:
  __device__ __forceinline__ Sm90LineFactors(Sm90Params const& p, int thread, int z, int row0,
                                             int column0)
      : p_(p),
        columns_(p.epilogue.column_factors + z * p.epilogue.column_factors_batch),
        first_(column0 + thread % 4 * 2) {
    Sm90Epilogue const& e = p.epilogue;
    float const all = e.alpha * (e.factor != nullptr ? e.scale * *e.factor : e.scale);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int const row = min(row0 + line_of_sum<Config>(i, thread), p.m - 1);
      rows_[i] = all;
      if (e.row_factors != nullptr)
        rows_[i] *= e.row_factors[z * e.row_factors_batch + row * e.row_factors_stride];
    }
  }

  /// Those of 8 · `Blocks` columns, `at` columns from the first on.
  template <int Blocks>
  __device__ __forceinline__ void load(int at, float2 (&factor)[Blocks]) const {
    Sm90Epilogue const& e = p_.epilogue;
    if (e.column_factors != nullptr && e.column_factors_stride != 0)
      return load_columns(columns_, DType::float32, first_ + at, p_.n, factor);
    float const one = e.column_factors != nullptr ? *columns_ : 1;
#pragma unroll
    for (int b = 0; b < Blocks; ++b) factor[b].x = factor[b].y = one;
  }

  /// Sum number `r` of a thread's sums of these columns.
  template <int Blocks>
  __device__ __forceinline__ float apply(float sum, int r, float2 const (&factor)[Blocks]) const {
    return sum * rows_[r / 2 % 2] * (r % 2 == 0 ? factor[r / 4].x : factor[r / 4].y);
  }

 private:
  Sm90Params const& p_;
  float const* const columns_;
  int const first_;
  float rows_[2];
};

/// What 16-bit elements of C or of a residual a thread adds to its sums of 64 rows and `Columns`
/// columns, as they come from memory.
template <class Config, int Columns>
class AddedPairs {
 public:
  __device__ __forceinline__ AddedPairs(Sm90Params const& p, int thread, int z, int row0,
                                        int column)
      : on_(p.epilogue.beta != 0 || p.epilogue.residual.data != nullptr) {
    if (!on_) return;
    Sm90Epilogue const& e = p.epilogue;
    bool const of_c = e.beta != 0;
    type_ = of_c ? e.type_c : e.residual.type;
    auto const* const data = static_cast<__half const*>(of_c ? e.c : e.residual.data);
    std::int64_t const batch = of_c ? e.c_batch : e.residual.batch_stride,
                       line = of_c ? e.c_m : e.residual.stride_m;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      int const row = min(row0 + line_of_sum<Config>(i, thread), p.m - 1);
      auto const* const from =
          reinterpret_cast<std::uint32_t const*>(data + z * batch + row * line + column);
#pragma unroll
      for (int b = 0; b < Columns / 8; ++b) pairs_[b][i] = column + 8 * b < p.n ? from[4 * b] : 0;
    }
  }

  /// Adds `factor` times them.
  __device__ __forceinline__ void add(float factor, float (&v)[Columns / 2]) const {
#pragma unroll
    for (int r = 0; r < Columns / 2; r += 2) {
      float2 const two = unpack(type_, pairs_[r / 4][r / 2 % 2]);
      v[r] += factor * two.x, v[r + 1] += factor * two.y;
    }
  }

 private:
  bool const on_;
  DType type_ = DType::bfloat16;
  std::uint32_t pairs_[Columns / 8][2];
};

/// Applies an activation to many sums at a time; `Inlined`: or to four, by a call, where there are
/// no registers for more.
template <bool Inlined, int Size>
__device__ __forceinline__ void activate_pairs(Activation activation, float (&v)[Size]) {
  auto const apply = [&](auto function) {
#pragma unroll
    for (int r = 0; r < Size; ++r) v[r] = function(v[r]);
  };
  if (activation == Activation::none) return;
  if (activation == Activation::relu) {
    apply([](float x) { return relu(x); });
  } else if constexpr (!Inlined) {
#pragma unroll
    for (int r = 0; r < Size; r += 4) {
      float4 const a = activate_four(activation, {v[r], v[r + 1], v[r + 2], v[r + 3]});
      v[r] = a.x, v[r + 1] = a.y, v[r + 2] = a.z, v[r + 3] = a.w;
    }
  } else if (activation == Activation::gelu) {
    apply([](float x) { return fast_gelu(x); });
  } else if (activation == Activation::gelu_tanh) {
    apply([](float x) { return fast_gelu_tanh(x); });
  } else {
    apply([](float x) { return fast_silu(x); });
  }
}

/// The epilogue in registers, for 64 rows from `row0` and `Columns` columns from `column` on: `v`
/// holds sums.
template <class Config, int Columns>
__device__ __forceinline__ void finish_pairs(Sm90Params const& p, int thread, int z, int row0,
                                             int column, float (&v)[Columns / 2]) {
  Sm90Epilogue const& e = p.epilogue;
  constexpr int blocks = Columns / 8;
  int const first = column + thread % 4 * 2;
  bool const factors = e.column_factors != nullptr && e.column_factors_stride != 0;
  bool const biased = e.bias.data != nullptr && e.bias.stride_n != 0;
  float row_factor[2] = {1, 1}, row_bias[2] = {0, 0};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    int const row = min(row0 + line_of_sum<Config>(i, thread), p.m - 1);
    if (e.row_factors != nullptr)
      row_factor[i] = e.row_factors[z * e.row_factors_batch + row * e.row_factors_stride];
    if (e.bias.data != nullptr && !biased)
      row_bias[i] = load_as_float(e.bias.data, e.bias.type, row * e.bias.stride_m);
  }
  if (factors) {
    float2 factor[blocks];
    load_columns(e.column_factors + z * e.column_factors_batch, DType::float32, first, p.n, factor);
#pragma unroll
    for (int r = 0; r < Columns / 2; ++r) v[r] *= r % 2 == 0 ? factor[r / 4].x : factor[r / 4].y;
  }
  AddedPairs<Config, Columns> const added(p, thread, z, row0, first);  // C or the residual
  float2 bias[blocks];
  if (biased) load_columns(e.bias.data, e.bias.type, first, p.n, bias);
  float const column_factor =
      e.column_factors != nullptr && !factors ? e.column_factors[z * e.column_factors_batch] : 1;
  float const scale = e.factor != nullptr ? e.scale * *e.factor : e.scale;
#pragma unroll
  for (int r = 0; r < Columns / 2; ++r) v[r] = v[r] * row_factor[r / 2 % 2] * column_factor;
#pragma unroll
  for (int r = 0; r < Columns / 2; ++r) v[r] *= e.alpha;
  if (e.beta != 0) added.add(e.beta, v);
#pragma unroll
  for (int r = 0; r < Columns / 2; ++r) v[r] *= scale;
  if (biased) {
#pragma unroll
    for (int r = 0; r < Columns / 2; ++r) v[r] += r % 2 == 0 ? bias[r / 4].x : bias[r / 4].y;
  } else {
#pragma unroll
    for (int r = 0; r < Columns / 2; ++r) v[r] += row_bias[r / 2 % 2];
  }
  activate_pairs<!Config::promoted>(e.activation, v);
  if (e.residual.data != nullptr) added.add(1, v);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
