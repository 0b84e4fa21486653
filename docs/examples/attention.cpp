// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-attention.md shows, part by part; a
// test runs it.
#include <attikos/attikos.hpp>
#include <limits>

#include "common.hpp"

using View4 = Kokkos::View<double****>;
using View3 = Kokkos::View<double***>;
using Matrix = Kokkos::View<double**>;
using Vector = Kokkos::View<double*>;
using Indices = Kokkos::View<int*>;

/// Attention of one row by its formula: the result at
/// feature 0. score(j) is −∞ where the key is not seen.
template <class Score, class V>
double plainly(int keys, Score const& score, V const& v,
               int b, int h) {
  double sum = 0, total = 0;
  for (int j = 0; j < keys; ++j) {
    double const e = std::exp(score(j));
    sum += e * v(b, h, j, 0);
    total += e;
  }
  return sum / total;
}

template <class Q, class K>
double product(Q const& q, K const& k, int b, int h,
               int i, int h_kv, int j) {
  double sum = 0;
  for (int c = 0; c < int(q.extent(3)); ++c)
    sum += q(b, h, i, c) * k(b, h_kv, j, c);
  return sum / std::sqrt(double(q.extent(3)));
}

constexpr double never =
    -std::numeric_limits<double>::infinity();

void attention(Space const& exec) {
  // [attention]
  // 8 query heads over 2 key heads, a causal window, and
  // padding behind 90 positions. Then the gradients.
  auto const q = random<View4>(2, 8, 100, 64),
             k = random<View4>(2, 2, 100, 64),
             v = random<View4>(2, 2, 100, 64),
             dout = random<View4>(2, 8, 100, 64);
  View4 out("out", 2, 8, 100, 64);
  View3 lse("lse", 2, 8, 100);
  auto const lengths = list<Indices>({90, 90});
  attikos::AttentionOptions const options{
      .causal = true, .window_left = 32};
  attikos::attention(exec, q, k, v, out, lse, options,
                     attikos::lengths(lengths));

  View4 dq("dq", 2, 8, 100, 64), dk("dk", 2, 2, 100, 64),
      dv("dv", 2, 2, 100, 64);
  attikos::attention_backward(exec, q, k, v, out, lse,
                              dout, dq, dk, dv, options,
                              attikos::lengths(lengths));
  // [attention]
  auto const hq = on_host(q), hk = on_host(k);
  double const wanted = plainly(
      90,
      [&](int j) {
        bool const seen = j <= 60 && j >= 60 - 32;
        return seen ? product(hq, hk, 1, 7, 60, 1, j)
                    : never;
      },
      on_host(v), 1, 1);
  expect_near(on_host(out)(1, 7, 60, 0), wanted, 1e-12,
              "attention");
  expect(on_host(out)(1, 7, 95, 0) == 0, "padding");
  auto const loss = [&] {
    attikos::attention(exec, q, k, v, out, lse, options,
                       attikos::lengths(lengths));
    return dot(out, dout);
  };
  expect_gradient(q, dq, loss, "dq");
  expect_gradient(k, dk, loss, "dk");
}

void scores(Space const& exec) {
  auto const q = random<View4>(1, 4, 40, 16),
             k = random<View4>(1, 4, 40, 16),
             v = random<View4>(1, 4, 40, 16);
  View4 out("out", 1, 4, 40, 16);
  // [scores]
  // Scores bounded by ±30, keys of the query's own chunk
  // of 16 positions alone, and a penalty for distance.
  auto const slopes = list<Kokkos::View<float*>>(
      {0.25f, 0.0625f, 0.015625f, 0.00390625f});
  attikos::attention(exec, q, k, v, out,
                     {.causal = true,
                      .softcap = 30,
                      .attention_chunk = 16},
                     attikos::alibi(slopes));
  // [scores]
  auto const hq = on_host(q), hk = on_host(k);
  double const wanted = plainly(
      40,
      [&](int j) {
        if (j > 29 || j < 16) return never;
        double const s = product(hq, hk, 0, 1, 29, 1, j);
        return 30 * std::tanh(s / 30) - 0.0625 * (29 - j);
      },
      on_host(v), 0, 1);
  expect_near(on_host(out)(0, 1, 29, 0), wanted, 1e-12,
              "attention with terms");
}

void masks(Space const& exec) {
  auto const q = random<View4>(2, 2, 20, 16),
             v = random<View4>(2, 2, 20, 16);
  View4 out("out", 2, 2, 20, 16);
  // [mask]
  // true: takes part. Extents that are missing or 1 serve
  // all: here one row of keys for each entry of the
  // batch.
  Kokkos::View<bool****> keys("keys", 2, 1, 1, 20);
  Kokkos::parallel_for(
      Kokkos::MDRangePolicy(exec, {0, 0}, {2, 20}),
      KOKKOS_LAMBDA(int b, int j) {
        keys(b, 0, 0, j) = j % 3 == b;
      });
  attikos::attention(exec, q, q, v, out, {},
                     attikos::mask(keys));
  // [mask]
  auto const hq = on_host(q);
  double const wanted = plainly(
      20,
      [&](int j) {
        return j % 3 == 1 ? product(hq, hq, 1, 0, 7, 0, j)
                          : never;
      },
      on_host(v), 1, 0);
  expect_near(on_host(out)(1, 0, 7, 0), wanted, 1e-12,
              "attention with a mask");
}

void learned_terms(Space const& exec) {
  auto const q = random<View4>(2, 4, 24, 16),
             k = random<View4>(2, 4, 24, 16),
             v = random<View4>(2, 4, 24, 16),
             dout = random<View4>(2, 4, 24, 16);
  View4 out("out", 2, 4, 24, 16), dq("dq", 2, 4, 24, 16),
      dk("dk", 2, 4, 24, 16), dv("dv", 2, 4, 24, 16);
  View3 lse("lse", 2, 4, 24);
  // [learned-terms]
  // A bias that the batch shares, and for each head a
  // sink: a logit in the denominator alone, so that a
  // query may attend to nothing. Both are parameters.
  auto const bias = random<View3>(4, 24, 24);
  auto const sink = random<Vector>(4);
  attikos::attention(exec, q, k, v, out, lse, {},
                     attikos::bias(bias),
                     attikos::sinks(sink));

  View3 dbias("dbias", 4, 24, 24);
  Vector dsink("dsink", 4);
  auto const bytes =
      attikos::attention_backward_workspace_size(
          exec, q, k, v, {}, attikos::bias(bias),
          attikos::sinks(sink));
  Kokkos::View<char*> memory("memory", bytes);
  attikos::attention_backward(
      exec, q, k, v, out, lse, dout, dq, dk, dv, {},
      attikos::bias(bias), attikos::sinks(sink),
      attikos::d_bias(dbias), attikos::d_sinks(dsink),
      attikos::workspace(memory));
  // [learned-terms]
  auto const loss = [&] {
    attikos::attention(exec, q, k, v, out, lse, {},
                       attikos::bias(bias),
                       attikos::sinks(sink));
    return dot(out, dout);
  };
  expect_gradient(bias, dbias, loss,
                  "the bias's gradient");
  expect_gradient(sink, dsink, loss,
                  "the sinks' gradient");
}

void tiles_of_a_mask(Space const& exec) {
  constexpr int seqlen = 256, tile = 64;
  auto const q = random<View4>(1, 2, seqlen, 16),
             v = random<View4>(1, 2, seqlen, 16);
  View4 out("out", 1, 2, seqlen, 16);
  // [tiles-of-a-mask]
  // Tiles of a mask whose pattern is known need not be
  // found: the first 64 keys, and the query's own tile
  // up to the query.
  using attikos::BlockKind;
  Kokkos::View<std::int8_t**> kinds("kinds", 4, 4);
  Kokkos::parallel_for(
      Kokkos::MDRangePolicy(exec, {0, 0}, {4, 4}),
      KOKKOS_LAMBDA(int i, int j) {
        kinds(i, j) =
            std::int8_t(i == j   ? BlockKind::partial
                        : j == 0 ? BlockKind::full
                                 : BlockKind::empty);
      });
  using Index = std::int64_t;
  auto const seen =
      KOKKOS_LAMBDA(Index, Index, Index i, Index j) {
    return j <= i && (j < tile || j / tile == i / tile);
  };
  attikos::attention(
      exec, q, q, v, out, {},
      attikos::block_mask(kinds, seen,
                          {seqlen, seqlen, tile, tile}));
  // [tiles-of-a-mask]
  auto const hq = on_host(q);
  double const wanted = plainly(
      seqlen,
      [&](int j) {
        return seen(0, 0, 150, j)
                   ? product(hq, hq, 0, 1, 150, 1, j)
                   : never;
      },
      on_host(v), 0, 1);
  expect_near(on_host(out)(0, 1, 150, 0), wanted, 1e-12,
              "attention with a block mask");
}

void packed(Space const& exec) {
  auto const x = random<View3>(2, 30, 16);
  View3 out("out", 2, 30, 16);
  // [validate]
  // Kernels clamp offsets, since they are on the device.
  // While a program is young, have them read and checked:
  // this waits for the device.
  auto const offsets = list<Indices>({0, 12, 5, 30});
  bool refused = false;
  try {
    attikos::validate_cu_seqlens(exec, offsets, 30);
  } catch (attikos::ShapeError const& error) {
    refused = true;  // 5 comes behind 12
    std::printf("%s\n", error.what());
  }
  // [validate]
  expect(refused, "offsets that descend are refused");
  auto const ascending = list<Indices>({0, 5, 12, 30});
  attikos::validate_cu_seqlens(exec, ascending, 30);
  attikos::attention(exec, x, x, x, out, {.causal = true},
                     attikos::cu_seqlens(ascending));
  expect_near(on_host(out)(1, 5, 3), on_host(x)(1, 5, 3),
              1e-12, "the first row of a sequence");
}

void float8(Space const& exec) {
  using Element = attikos::float8_e4m3;
  using Heads = Kokkos::View<float***>;
  auto const q = random<Heads>(4, 32, 64),
             k = random<Heads>(4, 32, 64),
             v = random<Heads>(4, 32, 64);
  Heads out("out", 4, 32, 64);
  // [float8]
  // [batch·heads, seqlen, head_dim], rounded with a scale
  // for each tensor, which attention multiplies back.
  Kokkos::View<Element***> q8("q8", 4, 32, 64),
      k8("k8", 4, 32, 64), v8("v8", 4, 32, 64);
  Kokkos::View<float*> q_scale("q_scale", 1),
      k_scale("k_scale", 1), v_scale("v_scale", 1);
  attikos::quantize(exec, q, q8, q_scale);
  attikos::quantize(exec, k, k8, k_scale);
  attikos::quantize(exec, v, v8, v_scale);
  attikos::attention(
      exec, q8, k8, v8, out, {.causal = true},
      attikos::descale(q_scale, k_scale, v_scale));
  // [float8]
  // Half a spacing of e4m3 is 1/16; row 0 sees one value.
  expect_near(on_host(out)(3, 0, 9), on_host(v)(3, 0, 9),
              1.0 / 16, "a value in float8");
}

void algorithms(Space const& exec) {
  auto const q = random<View4>(1, 2, 70, 16),
             v = random<View4>(1, 2, 70, 16);
  View4 out("out", 1, 2, 70, 16),
      plain("plain", 1, 2, 70, 16);
  // [algorithms]
  // When a result is doubted: the same by a kernel that
  // stores all scores and sums them one after the other.
  // Named, it is taken or the call throws.
  using attikos::AttentionAlgorithm;
  attikos::attention(exec, q, q, v, out);
  attikos::attention(
      exec, q, q, v, plain,
      {.algorithm = AttentionAlgorithm::naive,
       .kernel = attikos::portable_name(
           AttentionAlgorithm::naive)});
  // [algorithms]
  expect_near(on_host(out)(0, 1, 69, 5),
              on_host(plain)(0, 1, 69, 5), 1e-12,
              "two algorithms");
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  attention(exec);
  scores(exec);
  masks(exec);
  learned_terms(exec);
  tiles_of_a_mask(exec);
  packed(exec);
  float8(exec);
  algorithms(exec);
  std::printf("all parts ran\n");
}
