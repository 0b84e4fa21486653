// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The epilogue where the sums lie: each thread has pairs of neighbouring columns.
#pragma once

#include <attikos/ptx/cp_async.hpp>

#include "params.cuh"
#include "ptx/registers.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/thread_index.cuh"

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
  for (int b = 0; b < Blocks; ++b) w[b] = widen_pair(type, __float_as_uint(w[b].x));
}

/// The factors of an epilogue that has nothing else. Those that are the same for all of C are read
/// once; those of a tile's rows and columns come to shared memory beside its products, so that the
/// epilogue waits for none.
template <class Config>
class Sm90RowColumnFactors {
 public:
  /// `place`: where a warpgroup's factors lie: of columns, then of rows. Its threads put there
  /// those that are not fetched, seen behind the next barrier.
  __device__ __forceinline__ Sm90RowColumnFactors(Sm90Params const& p, std::uint32_t place)
      : p_(p), place_(place), all_(p.epilogue.alpha) {
    Epilogue const& e = p.epilogue;
    if (!e.more_than_alpha || !e.only_row_column_factors) return;
    all_ *= e.factor != nullptr ? e.scale * *e.factor : e.scale;
    float const row = e.row_factors != nullptr && !e.rows_ahead ? *e.row_factors : 1;
    float const column = e.column_factors != nullptr && !e.columns_ahead ? *e.column_factors : 1;
    if (!fetched()) {
      first_ = row, all_ *= column;
      return;
    }
    for (int i = static_cast<int>(threadIdx.x) % 128; i < columns + rows; i += 128)
      if (i < columns ? !e.columns_ahead : !e.rows_ahead)
        store_shared(place + 4 * i, i < columns ? column : row);
  }

  __device__ __forceinline__ bool fetched() const {
    return p_.epilogue.rows_ahead || p_.epilogue.columns_ahead;
  }

  /// Starts to bring those of the tile at row `row0`, column `column0`.
  __device__ __forceinline__ void fetch(int z, int row0, int column0) const {
    Epilogue const& e = p_.epilogue;
    if (!fetched()) return;
    int const thread = fresh_thread() % 128;
    if (e.columns_ahead) {
      float const* const from = e.column_factors + z * e.column_factors_batch;
#pragma unroll
      for (int i = 0; i < columns; i += 128) {
        int const column = min(column0 + i + thread, p_.n - 1);
        if (i + 128 <= columns || i + thread < columns)  // the stride is 1 or 0
          copy_async_four(place_ + 4 * (i + thread),
                          from + (e.column_factors_stride != 0 ? column : 0));
      }
    }
    if (e.rows_ahead && thread < rows) {
      int const row = min(row0 + thread, p_.m - 1);
      copy_async_four(place_ + 4 * (columns + thread),
                      e.row_factors + z * e.row_factors_batch + row * e.row_factors_stride);
    }
    copy_async_commit();
  }
  /// Waits for those that this thread brings. Others see them behind the next barrier.
  static __device__ __forceinline__ void finish() { copy_async_wait<0>(); }

  /// Multiplies sums of wave `wave` from column `at` of the tile on.
  template <bool Fetched, class Acc, int Size>
  __device__ __forceinline__ void apply(Acc const* sums, int thread, int wave, int at,
                                        float (&v)[Size]) const {
    float row[2] = {first_, first_};
    if (Fetched) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        row[i] = all_ * load_shared_word(
                            place_ + 4 * (columns + 64 * wave + line_of_sum<Config>(i, thread)));
    }
#pragma unroll
    for (int r = 0; r < Size; r += 4) {
      float2 column{all_, all_};
      if (Fetched) column = load_shared_two(place_ + 4 * (at + 2 * r + thread % 4 * 2));
#pragma unroll
      for (int i = 0; i < 4; ++i)
        v[r + i] =
            static_cast<float>(sums[r + i]) * row[i / 2] * (i % 2 == 0 ? column.x : column.y);
    }
  }

 private:
  static constexpr int columns = Config::tile_n, rows = 64 * Config::waves;
  Sm90Params const& p_;
  std::uint32_t const place_;
  float all_, first_ = 1;
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
    Epilogue const& e = p.epilogue;
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
      float2 const two = widen_pair(type_, pairs_[r / 4][r / 2 % 2]);
      v[r] += factor * two.x, v[r + 1] += factor * two.y;
    }
  }

 private:
  bool const on_;
  DType type_ = DType::bfloat16;
  std::uint32_t pairs_[Columns / 8][2];
};

/// alpha times 64 rows of sums from `row0`, and what there is to add to them of C or of a residual,
/// for as many columns from `column` on as `v` has pairs.
template <class Config, class Acc, int Size>
__device__ __forceinline__ void add_pairs(Sm90Params const& p, int thread, int z, int row0,
                                          int column, Acc const* sums, float (&v)[Size]) {
  constexpr int together =  // there are no registers for more
      Size % 16 == 0 && Config::tile_n < 256 ? 16 : 8;
  float const factor = p.epilogue.beta != 0 ? p.epilogue.beta : 1;
#pragma unroll
  for (int at = 0; at < Size; at += together) {
    make_opaque(z);  // nor for addresses
    AddedPairs<Config, 2 * together> const added(p, thread, z, row0,
                                                 column + 2 * at + thread % 4 * 2);
    float part[together];
#pragma unroll
    for (int r = 0; r < together; ++r)
      part[r] = p.epilogue.alpha * static_cast<float>(sums[at + r]);
    added.add(factor, part);
#pragma unroll
    for (int r = 0; r < together; ++r) v[at + r] = part[r];
  }
}

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

/// Whether a kernel stores the arguments of act: beside wide tiles of an A in registers there are
/// none for the calls.
template <class Config>
constexpr bool keeps_arguments = !(Config::registers_a && Config::tile_n > 128);

/// Stores arguments of act where pairs lie together: two of `row` and two of `next`, from `column`
/// on. One piece of code for all, as calls that want them are seldom.
__device__ __noinline__ void keep_pairs(Sm90Params const& p, float4 v, int z, int row, int next,
                                        int column) {
  PreActivation const& to = p.epilogue.pre_activation;
  if (column >= p.n) return;
  auto const store = [&](int m, float x, float y) {
    std::int64_t const at = z * to.batch_stride + m * to.stride_m + column;
    if (m >= p.m) return;
    if (to.type == DType::float32)
      *reinterpret_cast<float2*>(static_cast<float*>(to.data) + at) = {x, y};
    else
      *reinterpret_cast<std::uint32_t*>(static_cast<std::uint16_t*>(to.data) + at) =
          pack_pair(to.type, x, y);
  };
  store(row, v.x, v.y);
  store(next, v.z, v.w);
}

/// The epilogue in registers, for 64 rows from `row0` and `Columns` columns from `column` on: `v`
/// holds sums.
template <class Config, int Columns>
__device__ __forceinline__ void finish_pairs(Sm90Params const& p, int thread, int z, int row0,
                                             int column, float (&v)[Columns / 2]) {
  Epilogue const& e = p.epilogue;
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
  if (keeps_arguments<Config> && e.pre_activation.data != nullptr) {
#pragma unroll
    for (int r = 0; r < Columns / 2; r += 4)
      keep_pairs(p, {v[r], v[r + 1], v[r + 2], v[r + 3]}, z, row0 + line_of_sum<Config>(0, thread),
                 row0 + line_of_sum<Config>(1, thread), first + 2 * r);
  }
  activate_pairs<!Config::promoted>(e.activation, v);
  if (e.residual.data != nullptr) added.add(1, v);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
