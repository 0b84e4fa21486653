// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Few rows of queries against keys and values as they lie in memory: on a host the time of packing
/// a tile is many times that of multiplying it by a handful of rows.
#pragma once

#include <attikos/attention/attention_head.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Up to this many rows of one key head a host reads keys and values in place. With 128 features of
/// float32 or bfloat16 packing them is no slower from about 12 rows on.
inline constexpr int direct_rows = 8;

namespace host {

/// Lane l becomes the sum of the lanes of v[l], all in trees of one shape.
template <class T, int W, int Half = W / 2>
inline Vec<T, W> sum_lanes(Vec<T, W> (&v)[W]) {
  for (int i = 0; i < Half; ++i)
    v[i] = interleave<false, T, W>(v[i], v[i + Half]) + interleave<true, T, W>(v[i], v[i + Half]);
  if constexpr (Half > 1) {
    return sum_lanes<T, W, Half / 2>(v);
  } else {
    return v[0];
  }
}

/// scores[r][j] = q[r]·(key j) for `Rows` rows and `count` ≤ W/Rows keys that lie `stride` apart.
/// What a dot product gives does not depend on how many are computed together.
template <int Rows, class Acc, class T>
inline void dot_block(Acc const* q, int ldq, T const* keys, std::int64_t stride, int count, int d,
                      Acc* scores, int lds) {
  constexpr int W = lanes<Acc>, Keys = W / Rows;
  T const* key[Keys];
  for (int j = 0; j < Keys; ++j) key[j] = keys + (j < count ? j : count - 1) * stride;
  Vec<Acc> sum[W] = {};
  int p = 0;
  for (; p + W <= d; p += W) {
    Vec<Acc> k[Keys];
    for (int j = 0; j < Keys; ++j) k[j] = load<Acc, W>(key[j] + p);
    for (int r = 0; r < Rows; ++r) {
      Vec<Acc> const x = load<Acc, W>(q + r * ldq + p);
      for (int j = 0; j < Keys; ++j)
        sum[r * Keys + j] = multiply_add<Acc, W>(x, k[j], sum[r * Keys + j]);
    }
  }
  if (p < d)
    for (int j = 0; j < Keys; ++j) {
      Vec<Acc> const k = load_partial<Acc, W>(key[j] + p, 1, d - p, Acc(0));
      for (int r = 0; r < Rows; ++r)
        sum[r * Keys + j] = multiply_add<Acc, W>(
            load_partial<Acc, W>(q + r * ldq + p, 1, d - p, Acc(0)), k, sum[r * Keys + j]);
    }
  Acc lane[W];
  store<Acc, W>(lane, sum_lanes<Acc, W>(sum));
  for (int r = 0; r < Rows; ++r)
    for (int j = 0; j < count; ++j) scores[r * lds + j] = lane[r * Keys + j];
}

/// scores = q·kᵀ for `rows` rows and the keys [j0, j0 + cols) of a head whose features are
/// contiguous.
template <class Acc, class Head>
inline void direct_scores(Acc const* q, int ldq, int rows, Head const& head, std::int64_t j0,
                          int cols, int d, Acc* scores, int lds) {
  constexpr int W = lanes<Acc>;
  for (int c = 0; c < cols;) {
    auto const* const keys = head.key(j0 + c);
    int const run = head.run(j0 + c, cols - c);
    std::int64_t const stride = head.k.row_stride;
    auto const block = [&]<int Rows>(std::integral_constant<int, Rows>, int r, int j) {
      constexpr int most = W / Rows;
      dot_block<Rows>(q + r * ldq, ldq, keys + j * stride, stride, run - j < most ? run - j : most,
                      d, scores + r * lds + c + j, lds);
    };
    // Four keys (two of double) stay in the first-level cache while all rows meet them.
    constexpr int few = W < 4 ? W : 4;
    int const whole = rows / few * few;
    for (int j = 0; j < run; j += W / few)
      for (int r = 0; r < whole; r += few) block(std::integral_constant<int, few>{}, r, j);
    int r = whole;
    if constexpr (few > 2)
      if (rows - r >= 2) {
        for (int j = 0; j < run; j += W / 2) block(std::integral_constant<int, 2>{}, r, j);
        r += 2;
      }
    for (; r < rows; ++r)
      for (int j = 0; j < run; j += W) block(std::integral_constant<int, 1>{}, r, j);
    c += run;
  }
}

/// out[r] += Σ_j p[r][j]·(value j), `Cols` vectors of `Rows` rows; with `Skip` over the weights
/// that are not 0.
template <int Rows, int Cols, bool Skip, class Acc, class T>
inline void value_block(Acc const* p, int lds, T const* values, std::int64_t stride, int count,
                        Acc* out, int ldo) {
  constexpr int W = lanes<Acc>;
  Vec<Acc> sum[Rows][Cols];
  for (int r = 0; r < Rows; ++r)
    for (int c = 0; c < Cols; ++c) sum[r][c] = load<Acc, W>(out + r * ldo + c * W);
  for (int j = 0; j < count; ++j, values += stride) {
    Vec<Acc> v[Cols];
    for (int c = 0; c < Cols; ++c) v[c] = load<Acc, W>(values + c * W);
    for (int r = 0; r < Rows; ++r) {
      Acc const weight = p[r * lds + j];
      if (Skip && weight == Acc(0)) continue;
      for (int c = 0; c < Cols; ++c)
        sum[r][c] = multiply_add<Acc, W>(broadcast<Acc, W>(weight), v[c], sum[r][c]);
    }
  }
  for (int r = 0; r < Rows; ++r)
    for (int c = 0; c < Cols; ++c) store<Acc, W>(out + r * ldo + c * W, sum[r][c]);
}

/// The last features of a row, fewer than a vector.
template <bool Skip, class Acc, class T>
inline void value_tail(Acc const* p, T const* values, std::int64_t stride, int count, Acc* out,
                       int features) {
  for (int j = 0; j < count; ++j, values += stride) {
    if (Skip && p[j] == Acc(0)) continue;
    for (int c = 0; c < features; ++c)
      out[c] = multiply_add(p[j], static_cast<Acc>(values[c]), out[c]);
  }
}

/// `Rows` rows against one run of values.
template <int Rows, bool Skip, class Acc, class T>
inline void value_rows(Acc const* p, int lds, T const* values, std::int64_t stride, int count,
                       int dv, Acc* out, int ldo) {
  constexpr int W = lanes<Acc>, Cols = register_count / 2 / Rows;
  int c = 0;
  for (; c + Cols * W <= dv; c += Cols * W)
    value_block<Rows, Cols, Skip>(p, lds, values + c, stride, count, out + c, ldo);
  for (; c + W <= dv; c += W)
    value_block<Rows, 1, Skip>(p, lds, values + c, stride, count, out + c, ldo);
  for (int r = 0; r < Rows && c < dv; ++r)
    value_tail<Skip>(p + r * lds, values + c, stride, count, out + r * ldo + c, dv - c);
}

/// out += p·v for `rows` rows and the values [j0, j0 + cols) of a head whose features are
/// contiguous; with `Skip` a weight of 0 keeps its value out, NaN or not.
template <bool Skip, class Acc, class Head>
inline void direct_values(Acc const* p, int lds, int rows, Head const& head, std::int64_t j0,
                          int cols, int dv, Acc* out, int ldo) {
  for (int c = 0; c < cols;) {
    auto const* const values = head.value(j0 + c);
    int const run = head.run(j0 + c, cols - c);
    int r = 0;
    auto const some = [&]<int Rows>(std::integral_constant<int, Rows>) {
      for (; r + Rows <= rows; r += Rows)
        value_rows<Rows, Skip>(p + r * lds + c, lds, values, head.v.row_stride, run, dv,
                               out + r * ldo, ldo);
    };
    some(std::integral_constant<int, 4>{});
    some(std::integral_constant<int, 2>{});
    some(std::integral_constant<int, 1>{});
    c += run;
  }
}

}  // namespace host
}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
