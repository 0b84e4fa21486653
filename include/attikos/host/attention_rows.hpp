// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What attention does between its two products on the blocks of dot_product.hpp: a row of float32
/// scores becomes the row of bfloat16 weights that the product with values takes as its left
/// factor.
#pragma once

#include <attikos/host/dot_product.hpp>

#if defined(ATTIKOS_HOST_X86)

#define ATTIKOS_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define ATTIKOS_AVX512_INLINE \
  inline __attribute__((always_inline, target("avx512f,avx512bw,avx512dq,avx512vl,fma")))

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail::host::avx512 {

/// Scores are taken to weights 32 at a time: one register of bfloat16.
inline constexpr int weight_step = 32;

ATTIKOS_AVX512_INLINE Floats broadcast(float value) { return value - Floats{}; }

/// a·b + c and a·b − c, rounded once whatever the compiler makes of such expressions.
ATTIKOS_AVX512_INLINE Floats multiply_add(Floats a, Floats b, Floats c) {
  asm("vfmadd213ps %2, %1, %0" : "+v"(a) : "v"(b), "v"(c));
  return a;
}

ATTIKOS_AVX512_INLINE Floats multiply_subtract(Floats a, Floats b, Floats c) {
  asm("vfmsub213ps %2, %1, %0" : "+v"(a) : "v"(b), "v"(c));
  return a;
}

/// The larger in each lane; `b` where either is NaN.
ATTIKOS_AVX512_INLINE Floats larger(Floats a, Floats b) {
  asm("vmaxps %1, %2, %0" : "=v"(b) : "v"(b), "v"(a));
  return b;
}

/// The largest lane, in all of them.
ATTIKOS_AVX512_INLINE Floats largest_lane(Floats v) {
  Floats other;
  asm("vshuff32x4 $0x4e, %1, %1, %0" : "=v"(other) : "v"(v));
  v = larger(v, other);
  asm("vshuff32x4 $0xb1, %1, %1, %0" : "=v"(other) : "v"(v));
  v = larger(v, other);
  asm("vpermilps $0x4e, %1, %0" : "=v"(other) : "v"(v));
  v = larger(v, other);
  asm("vpermilps $0xb1, %1, %0" : "=v"(other) : "v"(v));
  return larger(v, other);
}

/// Lanes [first, last) of v, −∞ in the others.
ATTIKOS_AVX512_INLINE Floats keep_between(Floats v, int first, int last) {
  auto const below = [](int n) { return n <= 0 ? 0u : n >= 16 ? 0xffffu : (1u << n) - 1; };
  auto const hidden = static_cast<std::uint16_t>(~(below(last) & ~below(first)));
  Floats const low = broadcast(-__builtin_inff());
  asm("vmovaps %1, %0%{%2%}" : "+v"(v) : "v"(low), "Yk"(hidden));
  return v;
}

/// The first `count` floats at p, 0 behind them; reads nothing else.
ATTIKOS_AVX512_INLINE Floats load_floats(float const* p, int count) {
  Words const bits = load_bytes(p, count <= 0 ? 0 : count >= 16 ? 64 : 4 * count);
  Floats v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

/// x[j, j + weight_step) where it is in [first, last), −∞ elsewhere.
ATTIKOS_AVX512_INLINE void hide_scores(float* x, int j, int first, int last) {
  for (int half = j; half < j + weight_step; half += 16)
    store(x + half, keep_between(load_as<Floats>(x + half), first - half, last - half));
}

/// What weights of a row are relative to: w = 2^(factor·(score − maximum)).
struct WeightScale {
  float factor;  ///< above 0: log2(e), times the scale of scores that have none yet
  float least;   ///< differences below, −126/factor, have a weight of 0

  explicit WeightScale(float of_scores)
      : factor(of_scores * 1.44269504f), least(-126.0f / factor) {}
};

/// 2^(factor·x) for x ≤ 0 or NaN, to within 3·2^-24: 2^n · 2^r with |r| ≤ 1/2, the latter a
/// polynomial of least maximal relative error (1.6·2^-24) that is 1 at 0. 0 below the smallest
/// normal number.
ATTIKOS_AVX512_INLINE Floats weight_of(Floats x, Floats factor, Floats least) {
  Floats const magic = broadcast(12582912.0f);  // 1.5·2^23: adding it rounds to an integer
  Floats const n = multiply_add(x, factor, magic) - magic;
  Floats const r = multiply_subtract(x, factor, n);
  Floats p = broadcast(0.001326472731307149f);
  p = multiply_add(p, r, broadcast(0.009671512991189957f));
  p = multiply_add(p, r, broadcast(0.05550733581185341f));
  p = multiply_add(p, r, broadcast(0.24022242426872253f));
  p = multiply_add(p, r, broadcast(0.6931470036506653f));
  p = multiply_add(p, r, broadcast(1.0f));
  // A NaN is not less than anything and stays one.
  std::uint16_t normal;
  asm("vcmpps $21, %2, %1, %0" : "=Yk"(normal) : "v"(x), "v"(least));
  asm("vscalefps %1, %0, %0%{%2%}%{z%}" : "+v"(p) : "v"(n), "Yk"(normal));
  return p;
}

/// Two vectors as 32 numbers of bfloat16, the first one's first.
ATTIKOS_AVX512_INLINE Words to_bfloat16(Floats first, Floats second) {
  Words v;
  asm("vcvtne2ps2bf16 %1, %2, %0" : "=v"(v) : "v"(first), "v"(second));
  return v;
}

/// A row of queries between blocks of keys.
struct WeightRow {
  float* maximum;  ///< of the scores so far, −∞ before any
  float* sums;     ///< of weights so far, 16 lanes
  float* out;      ///< of weights times values so far
  int out_cols;    ///< a multiple of 16
};

/// Scores x[first, last) become weights, relative to the largest so far, in `weights`, bfloat16;
/// all others of [0, cols) get a weight of 0, whatever x has there. `cols` is a multiple of
/// weight_step. What the row has summed up so far follows its maximum. Weights are summed as they
/// are before they are rounded, each into the lane of its number modulo 16, so that it does not
/// matter how many hidden ones are beside them.
ATTIKOS_AVX512 inline void softmax_row(float* x, std::uint16_t* weights, int first, int last,
                                       int cols, WeightScale const& scale, WeightRow const& row) {
  int const begin = first / weight_step * weight_step;
  int const end = last > first ? (last + weight_step - 1) / weight_step * weight_step : begin;
  for (int j = 0; j < begin; j += weight_step) store(weights + j, Words{});
  for (int j = end; j < cols; j += weight_step) store(weights + j, Words{});
  if (end == begin) return;
  if (first != begin) hide_scores(x, begin, first, last);
  if (last != end) hide_scores(x, end - weight_step, first, last);

  Floats best = broadcast(-__builtin_inff()), best_too = best;
  for (int j = begin; j < end; j += weight_step) {  // a NaN is never the largest, but gets a weight
    best = larger(load_as<Floats>(x + j), best);
    best_too = larger(load_as<Floats>(x + j + 16), best_too);
  }
  float const before = *row.maximum;
  float const seen = largest_lane(larger(best, best_too))[0];
  float const now = seen > before ? seen : before;
  // No finite score yet: each weight is 0. (And none before: there is nothing to move.)
  Floats const shift = broadcast(now == -__builtin_inff() ? 0.0f : now);
  Floats const factor = broadcast(scale.factor), least = broadcast(scale.least);
  Floats total{}, total_too{};
  for (int j = begin; j < end; j += weight_step) {
    Floats const w = weight_of(load_as<Floats>(x + j) - shift, factor, least);
    Floats const too = weight_of(load_as<Floats>(x + j + 16) - shift, factor, least);
    total += w;
    total_too += too;
    store(weights + j, to_bfloat16(w, too));
  }
  total += total_too;
  Floats sums = load_as<Floats>(row.sums);
  if (now != before && before != -__builtin_inff()) {
    Floats const correction = weight_of(broadcast(before) - shift, factor, least);
    sums = sums * correction;
    for (int c = 0; c < row.out_cols; c += 16)
      store(row.out + c, load_as<Floats>(row.out + c) * correction);
  }
  store(row.sums, sums + total);
  *row.maximum = now;
}

/// Columns that a row of queries sees.
struct VisibleColumns {
  int first, last;
};

/// softmax_row() of `rows` rows, which are `ld` scores, row_words words of weights, 16 sums and
/// `ldo` outputs apart.
ATTIKOS_AVX512 inline void softmax_rows(float* x, std::int64_t ld, std::uint32_t* weights,
                                        VisibleColumns const* visible, int rows, int cols,
                                        WeightScale const& scale, WeightRow row, std::int64_t ldo) {
  for (int i = 0; i < rows; ++i) {
    softmax_row(x, reinterpret_cast<std::uint16_t*>(weights), visible[i].first, visible[i].last,
                cols, scale, row);
    x += ld;
    weights += row_words;
    row.maximum += 1;
    row.sums += 16;
    row.out += ldo;
  }
}

/// What a row of pairs has in common, or each of its columns, on the way back.
struct GradientRow {
  float const *lse, *delta;  ///< lse +∞ where no key is seen
  float scale;
};

/// 32 pairs of columns from j on; see gradient_row(). `Hides` where some are outside [first, last).
template <bool ByKey, bool Hides>
ATTIKOS_AVX512_INLINE void gradient_step(float const* x, float const* y, std::uint16_t* weights,
                                         std::uint16_t* gradients, int j, int first, int last,
                                         GradientRow const& row) {
  Floats const factor = broadcast(1.44269504f), least = broadcast(-126.0f / 1.44269504f);
  Floats const scale = broadcast(row.scale), zero{};
  Floats p[2], slope[2];
  for (int half = 0; half < 2; ++half) {
    int const at = j + 16 * half;
    Floats const lse = ByKey ? load_as<Floats>(row.lse + at) : broadcast(*row.lse);
    Floats const delta = ByKey ? load_as<Floats>(row.delta + at) : broadcast(*row.delta);
    Floats exponent = multiply_subtract(load_as<Floats>(x + at), scale, lse);
    if constexpr (Hides) exponent = keep_between(exponent, first - at, last - at);
    p[half] = weight_of(exponent, factor, least);
    Floats const product = (load_as<Floats>(y + at) - delta) * scale;
    std::uint16_t some;
    asm("vcmpps $4, %2, %1, %0" : "=Yk"(some) : "v"(p[half]), "v"(zero));
    asm("vmulps %2, %1, %0%{%3%}%{z%}"
        : "=v"(slope[half])
        : "v"(p[half]), "v"(product), "Yk"(some));
  }
  store(weights + j, to_bfloat16(p[0], p[1]));
  store(gradients + j, to_bfloat16(slope[0], slope[1]));
}

/// A row of pairs on the way back, of one key (`ByKey`, `row` has an entry for each column) or one
/// query: from dot products x and y = dout·v to weights e^(scale·x − lse) and the gradients of dot
/// products, weight·(y − delta)·scale, in bfloat16. Both are 0 outside [first, last) of [0, cols),
/// and the gradient is where the weight is. `cols` is a multiple of weight_step.
template <bool ByKey>
ATTIKOS_AVX512 inline void gradient_row(float const* x, float const* y, std::uint16_t* weights,
                                        std::uint16_t* gradients, int first, int last, int cols,
                                        GradientRow const& row) {
  int const begin = first / weight_step * weight_step;
  int const end = last > first ? (last + weight_step - 1) / weight_step * weight_step : begin;
  for (int j = 0; j < cols; j += weight_step) {
    if (j < begin || j >= end) {
      store(weights + j, Words{});
      store(gradients + j, Words{});
    } else if (j < first || j + weight_step > last) {
      gradient_step<ByKey, true>(x, y, weights, gradients, j, first, last, row);
    } else {
      gradient_step<ByKey, false>(x, y, weights, gradients, j, first, last, row);
    }
  }
}

/// The first `count` floats as bfloat16, 0 behind them up to a multiple of weight_step.
ATTIKOS_AVX512 inline void round_row(float const* x, std::uint16_t* to, int count) {
  for (int j = 0; j < count; j += weight_step)
    store(to + j,
          to_bfloat16(load_floats(x + j, count - j), load_floats(x + j + 16, count - j - 16)));
}

/// Puts 0 where a packed factor of bfloat16 has NaN or an infinity; whether it had any.
ATTIKOS_AVX512 inline bool clear_not_finite(std::uint32_t* packed, std::int64_t words) {
  // The exponent plus its unit reaches the sign where all its bits are 1.
  Words const exponent = broadcast(0x7f807f80u), unit = broadcast(0x00800080u);
  Words found{};
  for (std::int64_t i = 0; i < words; i += 16)
    found |= (load_as<Words>(packed + i) & exponent) + unit;
  std::uint32_t any = 0;
  for (int l = 0; l < 16; ++l) any |= found[l];
  if ((any & 0x80008000u) == 0) return false;
  for (std::int64_t i = 0; i < words; ++i)
    for (int half = 0; half < 32; half += 16)
      if ((packed[i] >> half & 0x7f80u) == 0x7f80u) packed[i] &= ~(0xffffu << half);
  return true;
}

}  // namespace detail::host::avx512
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos

#undef ATTIKOS_AVX512
#undef ATTIKOS_AVX512_INLINE

#endif  // ATTIKOS_HOST_X86
