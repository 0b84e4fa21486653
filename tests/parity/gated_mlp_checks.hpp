// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One gated_mlp problem, forward or backward: build it, run it, compare every element with the
// oracle.
#pragma once

#include <attikos/mlp/gated_mlp.hpp>
#include <attikos/mlp/gated_mlp_backward.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_gated_mlp.hpp"

namespace attikos::test {

struct GatedMlpCase {
  std::int64_t batch, tokens, hidden, intermediate;  ///< batch -1 means rank 2
  GatedMlpOptions options = {};
  Layout x = Layout::right, weights = Layout::right, out = Layout::right;
  bool kept = false;               ///< with projections(gate, up), of out's type
  double largest = 1;              ///< operands are uniform in [-largest, largest]
  std::int64_t rows_checked = 64;  ///< of each sequence, forward; they are spread over all of it
};

inline double (*act_of(GatedMlpCase const& p))(double) {
  return p.options.activation == Activation::silu   ? reference::silu
         : p.options.activation == Activation::gelu ? reference::gelu
                                                    : reference::gelu_tanh;
}
inline double (*slope_of(GatedMlpCase const& p))(double) {
  return p.options.activation == Activation::silu   ? reference::silu_slope
         : p.options.activation == Activation::gelu ? reference::gelu_slope
                                                    : reference::gelu_tanh_slope;
}

inline std::string describe(GatedMlpCase const& p) {
  std::ostringstream text;
  text << "batch " << p.batch << " tokens " << p.tokens << " hidden " << p.hidden
       << " intermediate " << p.intermediate << " activation "
       << activation_name(p.options.activation) << " layouts " << layout_name(p.x) << ", "
       << layout_name(p.weights) << ", " << layout_name(p.out) << (p.kept ? " kept" : "")
       << " largest " << p.largest << " kernel '" << p.options.kernel << "'";
  return text.str();
}

/// X is the type of x and dx, W that of the weights, Out that of out and dout, Dw that of the
/// weights' gradients.
template <class Exec, class X, class W, class Out, class Dw = W>
struct GatedMlpOperands {
  Tensor<X, 3, Exec> x, dx;
  Tensor<W, 2, Exec> gate, up;
  Tensor<Out, 3, Exec> out, dout, gates, ups;  ///< the last two are the projections
  Tensor<Dw, 2, Exec> dgate, dup;

  explicit GatedMlpOperands(GatedMlpCase const& p)
      : x({std::abs(p.batch), p.tokens, p.hidden}, p.x),
        dx({std::abs(p.batch), p.tokens, p.hidden}, p.out),
        gate({p.intermediate, p.hidden}, p.weights),
        up({p.intermediate, p.hidden}, p.weights == Layout::right ? Layout::right : Layout::padded),
        out({std::abs(p.batch), p.tokens, p.intermediate}, p.out),
        dout({std::abs(p.batch), p.tokens, p.intermediate}, p.x),
        gates({std::abs(p.batch), p.tokens, p.intermediate}, p.x),
        ups({std::abs(p.batch), p.tokens, p.intermediate}, p.out),
        dgate({p.intermediate, p.hidden}, p.out),
        dup({p.intermediate, p.hidden}, p.x) {
    Random random(static_cast<std::uint64_t>(p.tokens * 1009 + p.intermediate * 31 + p.hidden));
    x.fill_uniform(random, -p.largest, p.largest);
    gate.fill_uniform(random, -p.largest, p.largest);
    up.fill_uniform(random, -p.largest, p.largest);
    dout.fill_uniform(random, -p.largest, p.largest);
  }

  void forward(GatedMlpCase const& p) {
    auto const call = [&](auto const& in, auto const& to, auto const& g, auto const& u) {
      if (p.kept)
        gated_mlp(Exec(), in, gate.const_view(), up.const_view(), to, p.options, projections(g, u));
      else
        gated_mlp(Exec(), in, gate.const_view(), up.const_view(), to, p.options);
    };
    if (p.batch >= 0)
      call(x.const_view(), out.view(), gates.view(), ups.view());
    else
      call(x.const_front(), out.front(), gates.front(), ups.front());
  }

  /// With a workspace of exactly the promised size, full of NaN.
  void backward(GatedMlpCase const& p) {
    std::size_t const bytes = gated_mlp_backward_workspace_size(x.view(), gate.view(), dout.view());
    EXPECT_EQ(bytes % sizeof(float), 0u);
    Tensor<float, 1, Exec> memory({static_cast<std::int64_t>(bytes / sizeof(float))});
    auto const space = workspace(
        Kokkos::View<float*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
            memory.view().data(), bytes / sizeof(float)));
    if (p.kept) forward(p);
    auto const call = [&](auto const& in, auto const& d, auto const& to, auto const& g,
                          auto const& u) {
      if (p.kept)
        gated_mlp_backward(Exec(), in, gate.const_view(), up.const_view(), d, to, dgate.view(),
                           dup.view(), p.options, space, projections(g, u));
      else
        gated_mlp_backward(Exec(), in, gate.const_view(), up.const_view(), d, to, dgate.view(),
                           dup.view(), p.options, space);
    };
    if (p.batch >= 0)
      call(x.const_view(), dout.const_view(), dx.view(), gates.const_view(), ups.const_view());
    else
      call(x.const_front(), dout.const_front(), dx.front(), gates.const_front(), ups.const_front());
    memory.download();
    EXPECT_EQ(memory.writes_outside(), 0u) << "past the workspace: " << describe(p);
  }

  reference::GatedMlpElement element(GatedMlpCase const& p, std::int64_t b, std::int64_t t,
                                     std::int64_t i) const {
    return reference::gated_mlp_element(
        p.hidden, [&](std::int64_t l) { return x.value(b, t, l); },
        [&](std::int64_t l) { return gate.value(i, l); },
        [&](std::int64_t l) { return up.value(i, l); }, act_of(p));
  }

  using Acc = Accumulator<X, W, Out>;
  /// What dG and dU are rounded to, and gate and up where a backward call computes them.
  using Between = std::conditional_t<std::is_same_v<X, W> && std::is_same_v<X, Out>, X, Acc>;
  static std::string types() {
    bool const same = std::is_same_v<X, W> && std::is_same_v<X, Out> && std::is_same_v<X, Dw>;
    return type_name<X>() +
           (same ? "" : std::string("_") + type_name<W>() + "_" + type_name<Out>()) + "/" +
           Exec::name();
  }
};

/// Compares an element that is stored as `T`; `kind` says of what roundings its variance is.
template <class T>
void add_stored(Comparison& comparison, double got, double want, SplitError const& error,
                double ErrorParts::*kind, std::initializer_list<std::int64_t> index) {
  double const steady = error.steady + rounding<T>(std::abs(want) + error.bound());
  if (error.variance == 0) return comparison.add(got, want, steady, index);
  Stored const stored = stored_as<T>();
  ErrorParts parts{error.steady};
  if (stored.roundoff != 0) parts = stored_parts(want, steady, stored.roundoff, stored.smallest);
  parts.*kind += error.variance;
  comparison.add(got, want, steady + error.bound() - error.steady, parts, index);
}

template <class Exec, class X, class W = X, class Out = X>
void check_gated_mlp(GatedMlpCase const& p) {
  GatedMlpOperands<Exec, X, W, Out> o(p);
  o.forward(p);
  o.out.download();
  EXPECT_EQ(o.out.writes_outside(), 0u) << describe(p);
  using Acc = typename decltype(o)::Acc;
  Comparison comparison((p.kept ? "gated_mlp/kept/" : "gated_mlp/") + o.types(), describe(p),
                        stored_as<Out>());
  std::int64_t const step = std::max<std::int64_t>(1, p.tokens / p.rows_checked);
  o.out.for_each([&](auto const& index) {
    auto const [b, t, i] = index;
    double const got = o.out.value(b, t, i);
    if (t % step != 0 && t != p.tokens - 1) {
      if (std::isnan(got)) comparison.add(got, 0, 0, {b, t, i});  // must have been written
      return;
    }
    auto const want = o.element(p, b, t, i);
    double const act = act_of(p)(want.gate);
    SplitError const error = p.kept ? gated_mlp_error<Acc, Out>(p.hidden, want, act)
                                    : gated_mlp_error<Acc>(p.hidden, want, act);
    add_stored<Out>(comparison, got, want.value, error, &ErrorParts::own, {b, t, i});
  });
  if (!p.kept) return;
  auto const projection = [&](char const* name, auto& got, auto const& of) {
    got.download();
    EXPECT_EQ(got.writes_outside(), 0u) << describe(p);
    Comparison stored(std::string("gated_mlp/") + name + "/" + o.types(), describe(p),
                      stored_as<Out>());
    got.for_each([&](auto const& index) {
      auto const [b, t, i] = index;
      auto const [value, error] =
          of(o.element(p, b, t, i), gated_mlp_errors<Acc>(p.hidden, o.element(p, b, t, i)));
      stored.add(got.value(b, t, i), value, error + rounding<Out>(std::abs(value) + error),
                 {b, t, i});
    });
  };
  double const twice = oracle_factor<Acc>();
  projection("gates", o.gates,
             [&](auto const& e, auto const& r) { return std::pair(e.gate, twice * r.gate); });
  projection("ups", o.ups,
             [&](auto const& e, auto const& r) { return std::pair(e.up, twice * r.up); });
}

/// A sum of products whose first factors have errors.
struct GradientSum {
  double value = 0, magnitude = 0, inherited = 0, variance = 0;
  void add(double first, SplitError const& error, double second) {
    value += first * second;
    magnitude += std::abs(first * second) + (error.bound() - error.steady) * std::abs(second);
    inherited += error.steady * std::abs(second);
    variance += error.variance * second * second;
  }
  /// That of a sum of `terms`, made in `parts`.
  template <class Acc>
  SplitError error(double terms, double parts) const {
    return {gradient_error<Acc>(terms, parts, magnitude, inherited), variance};
  }
};

template <class Exec, class X, class W = X, class Out = X, class Dw = W>
void check_gated_mlp_backward(GatedMlpCase const& p) {
  using Operands = GatedMlpOperands<Exec, X, W, Out, Dw>;
  using Acc = typename Operands::Acc;
  Operands o(p);
  o.backward(p);
  o.dx.download();
  o.dgate.download();
  o.dup.download();
  EXPECT_EQ(o.dx.writes_outside(), 0u) << describe(p);
  EXPECT_EQ(o.dgate.writes_outside(), 0u) << describe(p);
  EXPECT_EQ(o.dup.writes_outside(), 0u) << describe(p);

  std::int64_t const batch = std::abs(p.batch), n = p.intermediate, h = p.hidden;
  std::vector<GradientSum> dx(sz(batch * p.tokens * h)), dgate(sz(n * h)), dup(sz(n * h));
  o.dout.for_each([&](auto const& index) {
    auto const [b, t, i] = index;
    auto const e = o.element(p, b, t, i);
    double const d = o.dout.value(b, t, i);
    double const act = act_of(p)(e.gate), slope = slope_of(p)(e.gate);
    auto const s = reference::gated_mlp_slopes(e, d, act_of(p), slope_of(p));
    using Between = typename Operands::Between;
    SplitError const gate_error = dgate_error<Acc, Between>(h, e, d, slope);
    SplitError const up_error = dup_error<Acc, Between>(h, e, d, act);
    for (std::int64_t l = 0; l < h; ++l) {
      auto& sum = dx[sz((b * p.tokens + t) * h + l)];
      sum.add(s.dgate, gate_error, o.gate.value(i, l));
      sum.add(s.dup, up_error, o.up.value(i, l));
      dgate[sz(i * h + l)].add(s.dgate, gate_error, o.x.value(b, t, l));
      dup[sz(i * h + l)].add(s.dup, up_error, o.x.value(b, t, l));
    }
  });
  double const tokens = static_cast<double>(batch * p.tokens), parts = static_cast<double>(batch);
  auto const name = [&](char const* what) { return std::string(what) + o.types(); };
  {
    Comparison comparison(name("gated_mlp_backward/dx/"), describe(p), stored_as<X>());
    o.dx.for_each([&](auto const& index) {
      auto const [b, t, l] = index;
      auto const& s = dx[sz((b * p.tokens + t) * h + l)];
      add_stored<X>(comparison, o.dx.value(b, t, l), s.value,
                    s.template error<Acc>(2 * static_cast<double>(n), 2), &ErrorParts::shared,
                    {b, t, l});
    });
  }
  auto const weight = [&](char const* what, auto const& got, std::vector<GradientSum> const& want) {
    // Of one token they are products of single numbers: no norms.
    bool const norms = batch * p.tokens > 1;
    Comparison comparison(name(what), describe(p), norms ? stored_as<Dw>() : Stored{});
    got.for_each([&](auto const& index) {
      auto const [i, l] = index;
      auto const& s = want[sz(i * h + l)];
      SplitError error = s.template error<Acc>(tokens, parts);
      if (!norms) error = {error.bound(), 0};
      add_stored<Dw>(comparison, got.value(i, l), s.value, error, &ErrorParts::shared, {i, l});
    });
  };
  weight("gated_mlp_backward/dgate/", o.dgate, dgate);
  weight("gated_mlp_backward/dup/", o.dup, dup);
}

}  // namespace attikos::test
