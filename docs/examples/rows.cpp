// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-rows.md shows, part by part; a test
// runs it.
#include <array>
#include <attikos/attikos.hpp>
#include <limits>
#include <span>

#include "common.hpp"

using View3 = Kokkos::View<double***>;
using View4 = Kokkos::View<double****>;
using Matrix = Kokkos::View<double**>;
using Vector = Kokkos::View<double*>;
using Indices = Kokkos::View<int*>;
using Bytes = Kokkos::View<char*>;

void norms(Space const& exec) {
  // [norms]
  // Rows are the last dimension. `eps` joins the mean
  // square, or the variance; outputs may be inputs.
  auto const x = random<Matrix>(128, 512);
  auto const weight = random<Vector>(512),
             bias = random<Vector>(512);
  Matrix y("y", 128, 512), z("z", 128, 512);
  attikos::rms_norm(exec, x, weight, y, {.eps = 1e-6});
  attikos::layer_norm(exec, x, weight, bias, z,
                      {.eps = 1e-5});
  // [norms]
  auto const host = on_host(x);
  double sum = 0, squares = 0;
  for (int j = 0; j < 512; ++j) {
    sum += host(7, j);
    squares += host(7, j) * host(7, j);
  }
  double const mean = sum / 512, square = squares / 512;
  double const w = on_host(weight)(9), v = host(7, 9);
  expect_near(on_host(y)(7, 9),
              v * w / std::sqrt(square + 1e-6), 1e-12,
              "rms_norm");
  double const variance = square - mean * mean + 1e-5;
  expect_near(on_host(z)(7, 9),
              (v - mean) / std::sqrt(variance) * w +
                  on_host(bias)(9),
              1e-12, "layer_norm");
}

void norm_gradients(Space const& exec) {
  auto const x = random<Matrix>(24, 32),
             dy = random<Matrix>(24, 32);
  auto const weight = random<Vector>(32),
             bias = random<Vector>(32);
  // [norm-gradients]
  // x and weight are what the norm had, dy the gradient
  // of its result. Both calls add up rows in a workspace.
  Matrix dx("dx", 24, 32);
  Vector dweight("dweight", 32), dbias("dbias", 32);
  Bytes memory(
      "memory",
      std::max(
          attikos::rms_norm_backward_workspace_size(
              x, weight, dy),
          attikos::layer_norm_backward_workspace_size(
              x, weight, dy)));
  attikos::RmsNormOptions const root{.eps = 1e-3};
  attikos::rms_norm_backward(exec, x, weight, dy, dx,
                             dweight, root,
                             attikos::workspace(memory));

  attikos::LayerNormOptions const centered{.eps = 1e-3};
  Matrix dx2("dx2", 24, 32);
  Vector dweight2("dweight2", 32);
  attikos::layer_norm_backward(
      exec, x, weight, dy, dx2, dweight2, dbias, centered,
      attikos::workspace(memory));
  // [norm-gradients]
  Matrix y("y", 24, 32);
  auto const rms = [&] {
    attikos::rms_norm(exec, x, weight, y, root);
    return dot(y, dy);
  };
  expect_gradient(x, dx, rms, "dx of rms_norm");
  expect_gradient(weight, dweight, rms, "dweight");
  auto const layer = [&] {
    attikos::layer_norm(exec, x, weight, bias, y,
                        centered);
    return dot(y, dy);
  };
  expect_gradient(x, dx2, layer, "dx of layer_norm");
  expect_gradient(weight, dweight2, layer, "dweight");
  expect_gradient(bias, dbias, layer, "dbias");
}

void residual_stream(Space const& exec) {
  auto const branch = random<Matrix>(24, 32),
             before = random<Matrix>(24, 32),
             dy = random<Matrix>(24, 32);
  auto const weight = random<Vector>(32);
  Matrix stream("stream", 24, 32), y("y", 24, 32);
  Matrix dstream("dstream", 24, 32), dx("dx", 24, 32);
  Vector dweight("dweight", 32);
  Kokkos::deep_copy(stream, before);
  // [residual-stream]
  // stream += branch and y = norm(stream), and on the way
  // back the gradient that went past the norm, dstream.
  attikos::rms_norm(exec, branch, weight, y, {},
                    attikos::residual(stream),
                    attikos::residual_sum(stream));
  attikos::rms_norm_backward(exec, stream, weight, dy, dx,
                             dweight, {},
                             attikos::residual(dstream));
  // [residual-stream]
  Matrix plain("plain", 24, 32);
  attikos::rms_norm(exec, stream, weight, plain);
  expect_near(
      on_host(stream)(3, 5),
      on_host(branch)(3, 5) + on_host(before)(3, 5),
      1e-15, "stream");
  expect_near(on_host(y)(3, 5), on_host(plain)(3, 5),
              1e-14, "rms_norm of a stream");
  expect_gradient(
      stream, dx,
      [&] {
        attikos::rms_norm(exec, stream, weight, plain);
        return dot(plain, dy);
      },
      "dx of a stream");
}

void unit_length(Space const& exec) {
  // [unit-length]
  // Embeddings of length 1, so that a product of two is
  // their cosine; rows shorter than eps are not blown up.
  auto const x = random<Matrix>(10, 64),
             dy = random<Matrix>(10, 64);
  Matrix y("y", 10, 64), dx("dx", 10, 64),
      cosine("cosine", 10, 10);
  attikos::L2NormalizeOptions const options{.eps = 1e-8};
  attikos::l2_normalize(exec, x, y, options);
  attikos::gemm(exec, y, y, cosine, {.trans_b = true});
  attikos::l2_normalize_backward(exec, x, dy, dx,
                                 options);
  // [unit-length]
  expect_near(on_host(cosine)(4, 4), 1, 1e-12,
              "a length");
  auto const loss = [&] {
    attikos::l2_normalize(exec, x, y, options);
    return dot(y, dy);
  };
  expect_gradient(x, dx, loss, "dx of l2_normalize");
}

void softmax(Space const& exec) {
  auto const x = random<Matrix>(20, 50),
             g = random<Matrix>(20, 50);
  // [softmax]
  // `scale` is the inverse of a temperature. Gradients
  // take what the forward call gave, not what it had.
  attikos::SoftmaxOptions const cool{.scale = 1 / 0.7};
  Matrix p("p", 20, 50), log_p("log_p", 20, 50);
  attikos::softmax(exec, x, p, cool);
  attikos::log_softmax(exec, x, log_p, cool);

  Matrix dx("dx", 20, 50), dx2("dx2", 20, 50);
  attikos::softmax_backward(exec, p, g, dx, cool);
  attikos::log_softmax_backward(exec, log_p, g, dx2,
                                cool);
  // [softmax]
  expect_near(std::log(on_host(p)(3, 8)),
              on_host(log_p)(3, 8), 1e-12, "a logarithm");
  expect_gradient(
      x, dx,
      [&] {
        attikos::softmax(exec, x, p, cool);
        return dot(p, g);
      },
      "dx of softmax");
  expect_gradient(
      x, dx2,
      [&] {
        attikos::log_softmax(exec, x, log_p, cool);
        return dot(log_p, g);
      },
      "dx of log_softmax");
}

void mean_pool(Space const& exec) {
  auto const x = random<View3>(3, 20, 16);
  auto const dout = random<Matrix>(3, 16);
  // [mean-pool]
  // A vector for each sequence: the mean of its tokens,
  // padding aside. x is [batch, seqlen, hidden].
  auto const used = list<Indices>({20, 7, 1});
  Matrix out("out", 3, 16);
  attikos::mean_pool(exec, x, out, {},
                     attikos::lengths(used));
  View3 dx("dx", 3, 20, 16);
  attikos::mean_pool_backward(exec, dout, dx, {},
                              attikos::lengths(used));
  // [mean-pool]
  expect_near(on_host(out)(2, 5), on_host(x)(2, 0, 5),
              1e-15, "the mean of one token");
  expect_near(on_host(dx)(1, 6, 5),
              on_host(dout)(1, 5) / 7, 1e-15,
              "the share of a token");
  expect(on_host(dx)(1, 7, 5) == 0, "dx of padding");
}

void cross_entropy(Space const& exec) {
  auto const logits = random<Matrix>(4, 10);
  // [cross-entropy]
  // Row 1 does not count; the others share the mean, so
  // that 1/3 is the factor of each row's loss.
  attikos::CrossEntropyOptions const options{
      .label_smoothing = 0.1, .ignore_index = -1};
  auto const labels = list<Indices>({3, -1, 0, 9});
  Vector loss("loss", 4), lse("lse", 4),
      dloss("dloss", 4);
  attikos::cross_entropy(exec, logits, labels, loss, lse,
                         options);

  Kokkos::deep_copy(exec, dloss, 1.0 / 3);
  Matrix dlogits("dlogits", 4, 10);
  attikos::cross_entropy_backward(
      exec, logits, labels, lse, dloss, dlogits, options);
  // [cross-entropy]
  expect(on_host(loss)(1) == 0, "a loss that counts not");
  expect_gradient(
      logits, dlogits,
      [&] {
        attikos::cross_entropy(exec, logits, labels, loss,
                               options);
        return dot(loss, dloss);
      },
      "dlogits");
}

void linear_cross_entropy(Space const& exec) {
  auto const hidden = random<Matrix>(300, 24),
             weight = random<Matrix>(50, 24);
  Indices labels("labels", 300);
  // [linear-cross-entropy]
  // The last layer of a language model and its loss, with
  // logits of 64 rows at a time instead of all 300.
  attikos::LinearCrossEntropyOptions const options{
      .rows_at_once = 64};
  Vector loss("loss", 300), dloss("dloss", 300);
  Matrix dhidden("dhidden", 300, 24),
      dweight("dweight", 50, 24);
  Kokkos::deep_copy(exec, dloss, 1.0 / 300);
  auto const bytes =
      attikos::linear_cross_entropy_workspace_size(
          hidden, weight, options);
  Bytes memory("memory", bytes);
  attikos::linear_cross_entropy(
      exec, hidden, weight, labels, dloss, loss, dhidden,
      dweight, options, attikos::workspace(memory));
  // [linear-cross-entropy]
  auto const mean = [&] {
    // Evaluation: `none` for what is not wanted.
    attikos::linear_cross_entropy(
        exec, hidden, weight, labels, attikos::none, loss,
        attikos::none, attikos::none, options);
    return dot(loss, dloss);
  };
  expect_gradient(hidden, dhidden, mean, "dhidden");
  expect_gradient(weight, dweight, mean, "dweight");
}

void embedding(Space const& exec) {
  auto const table = random<Matrix>(100, 16),
             dout = random<Matrix>(4, 16);
  // [embedding]
  // Rows of a table by id. The gradient adds up where an
  // id repeats, and to what dtable holds if beta is 1.
  auto const ids = list<Indices>({7, 0, 7, 99});
  Matrix out("out", 4, 16), dtable("dtable", 100, 16);
  attikos::embedding(exec, table, ids, out);

  attikos::EmbeddingBackwardOptions const options{
      .padding_index = 0, .beta = 1};
  Bytes memory("memory",
               attikos::embedding_backward_workspace_size(
                   ids, dout, dtable));
  attikos::embedding_backward(exec, ids, dout, dtable,
                              options,
                              attikos::workspace(memory));
  // [embedding]
  expect(on_host(out)(2, 5) == on_host(table)(7, 5),
         "a row of the table");
  auto const d = on_host(dout);
  expect_near(on_host(dtable)(7, 5), d(0, 5) + d(2, 5),
              1e-15, "the sum of an id's gradients");
  expect(on_host(dtable)(0, 5) == 0,
         "padding's gradient");
}

void adamw(Space const& exec) {
  auto const weight = random<Matrix>(8, 16),
             gradient = random<Matrix>(8, 16);
  Matrix before("before", 8, 16);
  Kokkos::deep_copy(before, weight);
  // [adamw]
  // Moments begin as zeros and are the caller's to keep;
  // `step` counts from 1. Gradients of a scaled loss are
  // divided by the scale on the way.
  Matrix exp_avg("exp_avg", 8, 16),
      exp_avg_sq("exp_avg_sq", 8, 16);
  attikos::AdamWOptions options{
      .learning_rate = 1e-2, .gradient_scale = 1.0 / 8};
  for (options.step = 1; options.step <= 3;
       ++options.step)
    attikos::adamw_step(exec, weight, gradient, exp_avg,
                        exp_avg_sq, options);
  // [adamw]
  // Under one gradient each step is the learning rate in
  // the direction of its sign, and some decay.
  double const down =
      on_host(gradient)(2, 3) > 0 ? -1 : 1;
  double w = on_host(before)(2, 3);
  for (int i = 0; i < 3; ++i)
    w = w * (1 - 1e-4) + 1e-2 * down;
  expect_near(on_host(weight)(2, 3), w, 1e-6, "a weight");
}

void adamw_of_several(Space const& exec) {
  using Element = attikos::bfloat16;
  using Half = Kokkos::View<Element*>;
  using Single = Kokkos::View<float*>;
  auto const g1 = random<Half>(100),
             g2 = random<Half>(30);
  // [adamw-several]
  // All parameters of a model in one launch. Weights of
  // 16 bits lose small steps: the first keeps float32
  // ones.
  Half w1("w1", 100), w2("w2", 30);
  Single m1("m1", 100), v1("v1", 100), m2("m2", 30),
      v2("v2", 30), exact("exact", 100);
  std::array const parameters{
      attikos::adamw_parameter(exec, w1, g1, m1, v1,
                               attikos::master(exact)),
      attikos::adamw_parameter(exec, w2, g2, m2, v2)};
  using Parameter = attikos::AdamWParameter<Element>;
  attikos::adamw_step(
      exec, std::span<Parameter const>(parameters),
      {.learning_rate = 1e-3});
  // [adamw-several]
  expect_near(std::abs(on_host(exact)(7)), 1e-3, 1e-6,
              "a step of float32 weights");
  expect(float(on_host(w1)(7)) ==
             float(Element(on_host(exact)(7))),
         "the parameter is the rounding");
  expect_near(std::abs(float(on_host(w2)(7))), 1e-3, 1e-5,
              "a step of a parameter of 16 bits");
}

void rope(Space const& exec) {
  // [rope]
  // q is [batch, heads, seqlen, head_dim]; row s of the
  // tables belongs to position s, all pairs side by side.
  auto const q = random<View4>(2, 8, 100, 64);
  View4 out("out", 2, 8, 100, 64);
  Matrix cos("cos", 4096, 32), sin("sin", 4096, 32);
  Kokkos::parallel_for(
      Kokkos::MDRangePolicy(exec, {0, 0}, {4096, 32}),
      KOKKOS_LAMBDA(int s, int i) {
        double const angle =
            s * Kokkos::pow(10000.0, -i / 32.0);
        cos(s, i) = Kokkos::cos(angle);
        sin(s, i) = Kokkos::sin(angle);
      });
  // Tables with an entry for a pair, not for a feature,
  // say so by rotary_dim; tokens begin at position 17.
  attikos::RopeOptions const options{
      .position_offset = 17, .rotary_dim = 64};
  attikos::rope(exec, q, cos, sin, out, options);
  // [rope]
  auto const x = on_host(q);
  double const angle = 17 + 5;  // of pair 0 of token 5
  expect_near(on_host(out)(1, 2, 5, 0),
              x(1, 2, 5, 0) * std::cos(angle) -
                  x(1, 2, 5, 32) * std::sin(angle),
              1e-12, "a rotated feature");

  // [rope-styles]
  // GPT-J's pairs, neighbors, in the first half of each
  // head alone; every sequence starts where its cache
  // ends.
  auto const used = list<Indices>({40, 3});
  attikos::RopeOptions const neighbors{
      .style = attikos::RopeStyle::interleaved};
  auto const half = std::pair(0, 32);
  auto const cos2 =
                 Kokkos::subview(cos, Kokkos::ALL, half),
             sin2 =
                 Kokkos::subview(sin, Kokkos::ALL, half);
  attikos::rope(exec, q, cos2, sin2, out, neighbors,
                attikos::positions(used));
  View4 dq("dq", 2, 8, 100, 64);  // rotated back
  attikos::rope_backward(exec, out, cos2, sin2, dq,
                         neighbors,
                         attikos::positions(used));
  // [rope-styles]
  auto const y = on_host(out);
  double const turn = 3 + 5;
  expect_near(y(1, 2, 5, 0),
              x(1, 2, 5, 0) * std::cos(turn) -
                  x(1, 2, 5, 1) * std::sin(turn),
              1e-12, "a rotated neighbor");
  expect(y(1, 2, 5, 40) == x(1, 2, 5, 40), "the rest");
}

void qk_norm(Space const& exec) {
  // [qk-norm]
  // Queries of 4 heads of 16 features, each head with a
  // norm of its own, then rotated: one pass over memory.
  auto const x = random<View3>(2, 10, 64),
             dout = random<View3>(2, 10, 64);
  auto const weight = random<Vector>(16);
  auto const cos = random<Matrix>(10, 16),
             sin = random<Matrix>(10, 16);
  View3 out("out", 2, 10, 64), dx("dx", 2, 10, 64);
  attikos::RmsNormRopeOptions const options{
      .norm = attikos::NormExtent::head};
  attikos::rms_norm_rope(exec, x, weight, cos, sin, out,
                         options);

  Vector dweight("dweight", 16);
  Bytes memory(
      "memory",
      attikos::rms_norm_rope_backward_workspace_size(
          x, weight, dout));
  attikos::rms_norm_rope_backward(
      exec, x, weight, cos, sin, dout, dx, dweight,
      options, attikos::workspace(memory));
  // [qk-norm]
  auto const loss = [&] {
    attikos::rms_norm_rope(exec, x, weight, cos, sin, out,
                           options);
    return dot(out, dout);
  };
  expect_gradient(x, dx, loss, "dx of rms_norm_rope");
  expect_gradient(weight, dweight, loss, "dweight");
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  norms(exec);
  norm_gradients(exec);
  residual_stream(exec);
  unit_length(exec);
  softmax(exec);
  mean_pool(exec);
  cross_entropy(exec);
  linear_cross_entropy(exec);
  embedding(exec);
  adamw(exec);
  adamw_of_several(exec);
  rope(exec);
  qk_norm(exec);
  std::printf("all parts ran\n");
}
