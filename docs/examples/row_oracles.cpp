// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-testing.md shows of oracles of rows,
// part by part; a test runs it.
#include <attikos/attikos.hpp>
#include <attikos/reference/adamw_reference.hpp>
#include <attikos/reference/cross_entropy_reference.hpp>
#include <attikos/reference/embedding_reference.hpp>
#include <attikos/reference/norm_backward_reference.hpp>
#include <attikos/reference/reduce_reference.hpp>
#include <attikos/reference/rope_reference.hpp>
#include <attikos/reference/softmax_reference.hpp>
#include <attikos/testing/testing.hpp>
#include <vector>

#include "common.hpp"

namespace reference = attikos::reference;
namespace testing = attikos::testing;

using View4 = Kokkos::View<float****>;
using View3 = Kokkos::View<float***>;
using Matrix = Kokkos::View<float**>;
using Vector = Kokkos::View<float*>;
using Indices = Kokkos::View<int*>;

Row all(Vector const& x) {
  auto const host = on_host(x);
  return Row(host.data(), host.data() + host.span());
}

void norms(Space const& exec) {
  constexpr int n = 100;
  auto const x = random<Matrix>(6, n),
             g = random<Matrix>(6, n);
  auto const weight = random<Vector>(n),
             bias = random<Vector>(n);
  Matrix rms("rms", 6, n), layer("layer", 6, n),
      unit("unit", 6, n);
  attikos::rms_norm(exec, x, weight, rms);
  attikos::layer_norm(exec, x, weight, bias, layer);
  attikos::l2_normalize(exec, x, unit);
  // [norms]
  // Rows as vectors of double; bounds by row and column.
  // That of layer_norm knows how far the mean lies from
  // 0.
  Row const w = all(weight), b = all(bias);
  for (int i = 0; i < 6; ++i) {
    Row const in = row(x, i);
    Row const exact_rms =
        reference::rms_norm_row(in, w, 1e-6);
    reference::LayerNormRow const exact =
        reference::layer_norm_row(in, w, b, 1e-5);
    Row const exact_unit =
        reference::l2_normalize_row(in, 1e-12);
    for (int c = 0; c < n; ++c) {
      expect(std::abs(row(rms, i)[c] - exact_rms[c]) <=
                 testing::scaled_row_bound<float>(
                     n, exact_rms[c]),
             "rms_norm");
      expect(std::abs(row(layer, i)[c] - exact.out[c]) <=
                 testing::layer_norm_bound<float>(
                     exact, c, in[c], w[c], b[c], 1e-5),
             "layer_norm");
      expect(std::abs(row(unit, i)[c] - exact_unit[c]) <=
                 testing::scaled_row_bound<float>(
                     n, exact_unit[c]),
             "l2_normalize");
    }
  }
  // [norms]

  Matrix dx("dx", 6, n), dx2("dx2", 6, n),
      dx3("dx3", 6, n);
  Vector dweight("dweight", n), unused("unused", n),
      dbias("dbias", n);
  attikos::rms_norm_backward(exec, x, weight, g, dx,
                             dweight);
  attikos::layer_norm_backward(exec, x, weight, g, dx2,
                               unused, dbias);
  attikos::l2_normalize_backward(exec, x, g, dx3);
  // [norm-gradients]
  // Gradients of Σ g·norm(x) of a row; that of the weight
  // is g times `normalized`, summed over rows.
  using reference::NormGradientRow;
  Row const g4 = row(g, 4), x4 = row(x, 4);
  NormGradientRow const of_rms =
      reference::rms_norm_gradient_row(x4, w, g4, 1e-6);
  NormGradientRow const of_layer =
      reference::layer_norm_gradient_row(x4, w, g4, 1e-5);
  NormGradientRow const of_unit =
      reference::l2_normalize_gradient_row(x4, g4, 1e-12);
  double of_weight = 0;
  for (int i = 0; i < 6; ++i)
    of_weight +=
        row(g, i)[9] * reference::rms_norm_gradient_row(
                           row(x, i), w, row(g, i), 1e-6)
                           .normalized[9];
  // [norm-gradients]
  expect_near(row(dx, 4)[9], of_rms.dx[9], 1e-5, "dx");
  expect_near(row(dx2, 4)[9], of_layer.dx[9], 1e-5, "dx");
  expect_near(row(dx3, 4)[9], of_unit.dx[9], 1e-5, "dx");
  expect_near(all(dweight)[9], of_weight, 1e-5,
              "dweight");
}

void softmax(Space const& exec) {
  constexpr int n = 50;
  auto const x = random<Matrix>(6, n),
             g = random<Matrix>(6, n);
  Matrix p("p", 6, n), y("y", 6, n), dx("dx", 6, n),
      dx2("dx2", 6, n);
  attikos::softmax(exec, x, p, {.scale = 4});
  attikos::log_softmax(exec, x, y, {.scale = 4});
  attikos::softmax_backward(exec, p, g, dx, {.scale = 4});
  attikos::log_softmax_backward(exec, y, g, dx2,
                                {.scale = 4});
  // [softmax]
  // The scale is 4. Gradients take what the forward pass
  // gave, as those of the library do.
  Row const in = row(x, 2), g2 = row(g, 2);
  Row const exact = reference::softmax_row(in, 4);
  for (int c = 0; c < n; ++c)
    expect(std::abs(row(p, 2)[c] - exact[c]) <=
               testing::softmax_bound<float>(in, 4,
                                             exact[c]),
           "a probability");
  Row const logs = reference::log_softmax_row(in, 4);
  Row const slope =
      reference::softmax_gradient_row(exact, g2, 4);
  Row const log_slope =
      reference::log_softmax_gradient_row(logs, g2, 4);
  // [softmax]
  expect_near(row(y, 2)[9], logs[9], 1e-5, "a logarithm");
  expect_near(row(dx, 2)[9], slope[9], 1e-5, "dx");
  expect_near(row(dx2, 2)[9], log_slope[9], 1e-5, "dx");

  auto const tokens = random<View3>(1, n, 3);
  Matrix mean("mean", 1, 3);
  attikos::mean_pool(exec, tokens, mean);
  auto const ht = on_host(tokens);
  // [mean]
  // A feature of all tokens, and the bound of its mean.
  Row feature;
  for (int s = 0; s < n; ++s)
    feature.push_back(ht(0, s, 2));
  double const wanted = reference::mean(feature);
  double const bound =
      testing::mean_bound<float>(feature, wanted);
  expect(std::abs(row(mean, 0)[2] - wanted) <= bound,
         "a mean");
  // [mean]
}

void losses(Space const& exec) {
  auto const logits = random<Matrix>(2, 30);
  auto const labels = list<Indices>({7, 4});
  auto const dloss = list<Vector>({1, 0.5f});
  Vector loss("loss", 2), lse("lse", 2);
  Matrix dlogits("dlogits", 2, 30);
  attikos::CrossEntropyOptions const options{
      .label_smoothing = 0.1};
  attikos::cross_entropy(exec, logits, labels, loss, lse,
                         options);
  attikos::cross_entropy_backward(
      exec, logits, labels, lse, dloss, dlogits, options);
  // [cross-entropy]
  // Label 4, smoothing 0.1, no row ignored but those of
  // −100. With g = 1/2 the gradient is half of softmax
  // less the target.
  Row const x = row(logits, 1);
  double const exact =
      reference::cross_entropy_row(x, 4, 0.1, -100);
  double const log_sum = reference::log_sum_exp_row(x);
  Row const slope = reference::cross_entropy_gradient_row(
      x, log_sum, 4, 0.5, 0.1, -100);
  double const target =
      reference::cross_entropy_target(30, 4, 0.1, 9);
  // [cross-entropy]
  expect_near(all(loss)[1], exact, 1e-5, "a loss");
  expect_near(all(lse)[1], log_sum, 1e-5, "an lse");
  expect_near(row(dlogits, 1)[9], slope[9], 1e-6,
              "a gradient");
  expect_near(
      slope[9],
      0.5 * (reference::softmax_row(x, 1)[9] - target),
      1e-12, "softmax less the target");

  auto const ids = list<Indices>({7, 0, 7, 9});
  auto const dout = random<Matrix>(4, 5);
  Matrix dtable("dtable", 10, 5);
  attikos::embedding_backward(exec, ids, dout, dtable,
                              {.padding_index = 0});
  auto const hd = on_host(dout);
  // [embedding]
  // A column at a time: sums, and of how many terms.
  Row column;
  for (int i = 0; i < 4; ++i) column.push_back(hd(i, 3));
  std::vector<reference::EmbeddingGradient> const sums =
      reference::embedding_gradient_column(
          {7, 0, 7, 9}, column, /*rows=*/10,
          /*padding_index=*/0);
  // [embedding]
  expect(sums[7].terms == 2, "the terms of an id");
  expect_near(row(dtable, 7)[3], sums[7].sum, 1e-6,
              "the gradient of a row");
}

void optimizer(Space const& exec) {
  auto const weight = random<Vector>(10),
             gradient = random<Vector>(10);
  Vector m("m", 10), v("v", 10);
  double const begin = all(weight)[3];
  for (int step = 1; step <= 5; ++step)
    attikos::adamw_step(exec, weight, gradient, m, v,
                        {.step = step});
  // [adamw]
  // Five steps of one element. The first moment lacks
  // what bias_correction() says of the gradient's mean.
  reference::AdamWSettings settings{.learning_rate = 1e-3,
                                    .beta1 = 0.9,
                                    .beta2 = 0.999,
                                    .epsilon = 1e-8,
                                    .weight_decay = 1e-2,
                                    .step = 1,
                                    .gradient_scale = 1};
  double const g = on_host(gradient)(3);
  reference::AdamWElement element{begin, 0, 0};
  for (; settings.step <= 5; ++settings.step)
    element = reference::adamw(element, g, settings);
  double const mean = element.exp_avg /
                      reference::bias_correction(0.9, 5);
  // [adamw]
  expect_near(all(weight)[3], element.weight, 1e-6,
              "a weight after five steps");
  expect_near(mean, g, 1e-12, "the mean of one gradient");
}

void rotations(Space const& exec) {
  auto const x = random<View4>(1, 1, 1, 12);
  auto const cos = random<Matrix>(1, 4),
             sin = random<Matrix>(1, 4);
  View4 out("out", 1, 1, 1, 12),
      back("back", 1, 1, 1, 12);
  attikos::RopeOptions const options{
      .style = attikos::RopeStyle::interleaved,
      .rotary_dim = 8};
  attikos::rope(exec, x, cos, sin, out, options);
  attikos::rope_backward(exec, out, cos, sin, back,
                         options);
  auto const hx = on_host(x), ho = on_host(out),
             hb = on_host(back);
  Row const in(hx.data(), hx.data() + 12);
  // [rope]
  // A head of 12 features, of which 8 are rotated by
  // tables with an entry for each of 4 pairs of
  // neighbors. The rotation is a matrix, its transpose
  // the gradient.
  Row const c =
      reference::rope_full_width(row(cos, 0), true);
  Row const s =
      reference::rope_full_width(row(sin, 0), true);
  reference::RopeHead const turned =
      reference::rope_head(in, c, s, /*interleaved=*/true,
                           /*transposed=*/false);
  reference::RopeHead const turned_back =
      reference::rope_head(turned.out, c, s, true, true);
  reference::RopePartner const other =
      reference::rope_partner(5, 8, true);
  // [rope]
  expect_near(ho(0, 0, 0, 5), turned.out[5], 1e-6,
              "a rotated feature");
  expect_near(hb(0, 0, 0, 5), turned_back.out[5], 1e-6,
              "a feature rotated back");
  expect(other.index == 4 && other.sign == 1,
         "the partner of feature 5");

  auto const token = random<View3>(1, 1, 12);
  auto const weight = random<Vector>(12);
  auto const cos6 = random<Matrix>(1, 6),
             sin6 = random<Matrix>(1, 6);
  View3 fused("fused", 1, 1, 12);
  attikos::rms_norm_rope(exec, token, weight, cos6, sin6,
                         fused);
  auto const ht = on_host(token), hf = on_host(fused);
  Row const features(ht.data(), ht.data() + 12);
  // [rms-norm-rope]
  // A token of two heads of 6 features: normalized as a
  // whole, then rotated head by head. The same in two
  // steps.
  Row const c6 = row(cos6, 0), s6 = row(sin6, 0);
  reference::RopeHead const at_once =
      reference::rms_norm_rope_row(features, all(weight),
                                   1e-6, c6, s6, false);
  reference::RopeHead const in_steps =
      reference::rope_heads(
          reference::rms_norm_row(features, all(weight),
                                  1e-6),
          c6, s6, false, false);
  // [rms-norm-rope]
  expect_near(hf(0, 0, 7), at_once.out[7], 1e-6,
              "a feature, normalized and rotated");
  expect_near(in_steps.out[7], at_once.out[7], 1e-12,
              "the same in two steps");
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  norms(exec);
  softmax(exec);
  losses(exec);
  optimizer(exec);
  rotations(exec);
  std::printf("all parts ran\n");
}
