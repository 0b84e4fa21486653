// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Vector loops over one row on a host: conversion, epilogue terms, activations, reductions.
///
/// Reductions keep one partial sum per lane and add the lanes in a fixed tree, so that a row gives
/// the same bits whatever thread runs it.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/simd_exp.hpp>
#include <attikos/epilogue/activation.hpp>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// One element of a tensor whose type is known only at run time.
template <class Acc>
KOKKOS_INLINE_FUNCTION Acc load_any(DType type, void const* data, std::int64_t offset) {
  switch (type) {
    case DType::float64:
      return static_cast<Acc>(static_cast<double const*>(data)[offset]);
    case DType::float32:
      return static_cast<Acc>(static_cast<float const*>(data)[offset]);
    case DType::float16:
      return static_cast<Acc>(static_cast<float16 const*>(data)[offset]);
    case DType::bfloat16:
      return static_cast<Acc>(static_cast<bfloat16 const*>(data)[offset]);
    case DType::int32:
      return static_cast<Acc>(static_cast<std::int32_t const*>(data)[offset]);
    default:
      return Acc(0);
  }
}

/// Stores a number in a tensor whose floating type is known only at run time.
template <class Acc>
KOKKOS_INLINE_FUNCTION void store_any(DType type, void* data, std::int64_t offset, Acc value) {
  switch (type) {
    case DType::float64:
      static_cast<double*>(data)[offset] = static_cast<double>(value);
      break;
    case DType::float32:
      static_cast<float*>(data)[offset] = static_cast<float>(value);
      break;
    case DType::float16:
      static_cast<float16*>(data)[offset] = static_cast<float16>(value);
      break;
    case DType::bfloat16:
      static_cast<bfloat16*>(data)[offset] = static_cast<bfloat16>(value);
      break;
    default:
      break;
  }
}

namespace host {

/// Calls f(offset, vector, count) over `n` elements at a stride, W at a time; lanes past the end
/// hold `fill`.
template <class Acc, class T, class F>
inline void for_each_vector(T const* p, std::int64_t stride, std::int64_t n, Acc fill, F&& f) {
  constexpr int W = lanes<Acc>;
  std::int64_t j = 0;
  if (stride == 1)
    for (; j + W <= n; j += W) f(j, load<Acc, W>(p + j), W);
  for (; j < n; j += W) {
    int const count = n - j < W ? static_cast<int>(n - j) : W;
    f(j, load_partial<Acc, W>(p + j * stride, stride, count, fill), count);
  }
}

/// `count` ≤ W elements at a stride; missing lanes are 0.
template <class Acc, class T>
inline Vec<Acc> load_row(T const* p, std::int64_t stride, int count) {
  constexpr int W = lanes<Acc>;
  return stride == 1 && count == W ? load<Acc, W>(p)
                                   : load_partial<Acc, W>(p, stride, count, Acc(0));
}

/// Stores the first `count` lanes at a stride, whole vectors where possible.
template <class Acc, class T>
inline void put(T* p, std::int64_t stride, int count, Vec<Acc> v) {
  constexpr int W = lanes<Acc>;
  if (stride == 1 && count == W)
    store<Acc, W>(p, v);
  else
    store_partial<Acc, W>(p, stride, count, v);
}

/// W elements of a tensor whose type is known only at run time.
template <class Acc>
inline Vec<Acc> load_vector_any(DType type, void const* data, std::int64_t offset,
                                std::int64_t stride, int count) {
  auto const get = [&]<class T>(T const* p) { return load_row<Acc>(p + offset, stride, count); };
  switch (type) {
    case DType::float64:
      return get(static_cast<double const*>(data));
    case DType::float32:
      return get(static_cast<float const*>(data));
    case DType::float16:
      return get(static_cast<float16 const*>(data));
    case DType::bfloat16:
      return get(static_cast<bfloat16 const*>(data));
    case DType::int32:
      return get(static_cast<std::int32_t const*>(data));
    default:
      return Vec<Acc>{};
  }
}

/// A row that is read: elements [j, j + count) as lanes, `fill` behind them. `Dense`: they lie side
/// by side, which the loops are compiled for.
template <class Acc, bool Dense, class T>
struct RowReader {
  T const* data;
  std::int64_t stride;

  inline __attribute__((always_inline)) Vec<Acc> operator()(std::int64_t j, int count,
                                                            Acc fill = Acc(0)) const {
    constexpr int W = lanes<Acc>;
    if constexpr (Dense) {
      return count == W ? load<Acc, W>(data + j) : load_partial<Acc, W>(data + j, 1, count, fill);
    } else {
      return load_partial<Acc, W>(data + j * stride, stride, count, fill);
    }
  }
};

/// N sums, or whatever add(j, count, sums) does, over the vectors of `n` elements; in two sets that
/// take turns, so that no vector waits for the one before. Lanes past the end are add's to leave
/// out.
template <class Acc, int N>
struct Partials {
  Vec<Acc> of[N];
};
template <class Acc, int N, class Add, class Join>
inline __attribute__((always_inline)) Partials<Acc, N> reduce_row(std::int64_t n,
                                                                  Partials<Acc, N> const& start,
                                                                  Add const& add,
                                                                  Join const& join) {
  constexpr int W = lanes<Acc>;
  Partials<Acc, N> even = start, odd = start;
  std::int64_t j = 0;
  for (; j + 2 * W <= n; j += 2 * W) {
    add(j, W, even.of);
    add(j + W, W, odd.of);
  }
  if (j + W <= n) {
    add(j, W, even.of);
    j += W;
  }
  if (j < n) add(j, static_cast<int>(n - j), odd.of);
  for (int i = 0; i < N; ++i) even.of[i] = join(even.of[i], odd.of[i]);
  return even;
}

/// reduce_row() of sums.
template <class Acc, int N, class Add>
inline __attribute__((always_inline)) Partials<Acc, N> sum_row(std::int64_t n, Add const& add) {
  return reduce_row<Acc, N>(n, Partials<Acc, N>{}, add,
                            [](Vec<Acc> a, Vec<Acc> b) -> Vec<Acc> { return a + b; });
}

/// Bytes of the last cache before the memory.
inline std::size_t last_level_cache_bytes() {
  static std::size_t const bytes = [] {
    std::size_t const found = last_level_cache_of_processor();
    return found > 0 ? found : std::size_t{32} << 20;
  }();
  return bytes;
}

/// Whether an output of this size is stored past the caches: with what it is computed from it would
/// not stay in them, and a store that goes by them does not read the memory first.
inline bool goes_past_caches(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes) >= last_level_cache_bytes() / 2;
}

/// What a row is followed by in memory, to be fetched while that row is stored.
template <class... T>
struct Ahead {
  std::tuple<T const*...> next;
  inline __attribute__((always_inline)) void fetch(std::int64_t j) const {
    std::apply([&](auto const*... p) { (__builtin_prefetch(p + j), ...); }, next);
  }
};

/// to[j] = what f(j, count) has in its lanes, for all `n` elements of a row; `past` the caches
/// where the row is aligned to elements, while the rows `ahead` are fetched.
/// finish_stores_past_caches() comes after the last row.
template <class Acc, bool Dense, class T, class F, class... Next>
inline __attribute__((always_inline)) void write_row(T* to, std::int64_t stride, std::int64_t n,
                                                     bool past, Ahead<Next...> const& ahead,
                                                     F const& f) {
  constexpr int W = lanes<Acc>;
  std::int64_t j = 0;
  if constexpr (Dense) {
    if (past && n >= 2 * W) {
      constexpr std::size_t bytes = W * sizeof(T);
      std::size_t const beyond = reinterpret_cast<std::uintptr_t>(to) % bytes;
      if (beyond % sizeof(T) == 0) {
        if (beyond != 0) {
          int const head = static_cast<int>((bytes - beyond) / sizeof(T));
          store_partial<Acc, W>(to, 1, head, f(0, head));
          j = head;
        }
        for (; j + W <= n; j += W) {
          ahead.fetch(j);
          store_past<Acc, W>(to + j, f(j, W));
        }
      }
    }
    for (; j + W <= n; j += W) store<Acc, W>(to + j, f(j, W));
    if (j < n) {
      int const count = static_cast<int>(n - j);
      store_partial<Acc, W>(to + j, 1, count, f(j, count));
    }
  } else {
    for (; j < n; j += W) {
      int const count = n - j < W ? static_cast<int>(n - j) : W;
      store_partial<Acc, W>(to + j * stride, stride, count, f(j, count));
    }
  }
}

/// A row that is written in pieces of any order, `past` the caches where they are whole vectors and
/// aligned.
template <class Acc, bool Dense, class T>
struct RowWriter {
  T* data;
  std::int64_t stride;
  bool past;

  inline __attribute__((always_inline)) void operator()(std::int64_t j, Vec<Acc> v,
                                                        int count) const {
    constexpr int W = lanes<Acc>;
    if constexpr (Dense) {
      T* const p = data + j;
      if (count != W)
        store_partial<Acc, W>(p, 1, count, v);
      else if (past && reinterpret_cast<std::uintptr_t>(p) % (W * sizeof(T)) == 0)
        store_past<Acc, W>(p, v);
      else
        store<Acc, W>(p, v);
    } else {
      store_partial<Acc, W>(data + j * stride, stride, count, v);
    }
  }
};

/// Sums over rows, a vector of columns at a time; the first row is what they begin with.
template <class Acc>
struct SumsOfRows {
  bool first;
  inline __attribute__((always_inline)) void operator()(Acc* p, Vec<Acc> v, int count) const {
    if (!first) v += load_row<Acc>(p, 1, count);
    put<Acc>(p, 1, count, v);
  }
  /// The same with a·b.
  inline __attribute__((always_inline)) void operator()(Acc* p, Vec<Acc> a, Vec<Acc> b,
                                                        int count) const {
    Vec<Acc> v = a * b;
    if (!first) v = multiply_add<Acc, lanes<Acc>>(a, b, load_row<Acc>(p, 1, count));
    put<Acc>(p, 1, count, v);
  }
};

/// Calls f(std::bool_constant) with whether all strides are 1.
template <class F>
inline void with_dense(bool dense, F const& f) {
  if (dense)
    f(std::true_type{});
  else
    f(std::false_type{});
}

/// Lane-wise twin of attikos::scaled_erfc().
inline Vec<float> scaled_erfc(Vec<float> t) { return ATTIKOS_SCALED_ERFC(t); }

/// Lane-wise twin of gelu().
template <class Acc>
inline Vec<Acc> gelu_vector(Vec<Acc> x) {
  constexpr int W = lanes<Acc>;
  if constexpr (std::is_same_v<Acc, float>) {
    // x·Φ(x) from the tail Φ(-|x|), which stays accurate where 1 + erf would cancel. It is 0 in
    // float beyond 15.
    Vec<Acc> const magnitude = x < 0.0f ? -x : x;
    Vec<Acc> const m = magnitude > 15.0f ? broadcast<Acc, W>(15.0f) : magnitude;
    Vec<Acc> const z = m * 0.70710678118654752440f;
    Vec<Acc> const tail = 0.5f * m * (exp<Acc, W>(-z * z) * scaled_erfc(1.0f / (1.0f + 0.3f * z)));
    return x < 0.0f ? -tail : x - tail;
  } else {
    Acc lane[W];
    store<Acc, W>(lane, x);
    for (int l = 0; l < W; ++l) lane[l] = gelu(lane[l]);
    return load<Acc, W>(lane);
  }
}

/// Lane-wise twin of apply_activation().
template <class Acc>
inline Vec<Acc> activate(Activation activation, Vec<Acc> x) {
  constexpr int W = lanes<Acc>;
  switch (activation) {
    case Activation::relu:
      return x < Acc(0) ? Vec<Acc>{} : x;
    case Activation::silu:
      return x / (Acc(1) + exp<Acc, W>(-x));
    case Activation::gelu_tanh: {
      // x/2·(1 + tanh u) = x·σ(2u)
      Vec<Acc> const u = Acc(0.79788456080286535588) * (x + Acc(0.044715) * x * x * x);
      return x / (Acc(1) + exp<Acc, W>(Acc(-2) * u));
    }
    case Activation::gelu:
      return gelu_vector<Acc>(x);
    case Activation::none:
      break;
  }
  return x;
}

}  // namespace host
}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
