// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One gemm problem: build it, run it, compare every element with the oracle.
#pragma once

#include <attikos/attikos.hpp>
#include <attikos/reference/gemm_reference.hpp>
#include <sstream>
#include <string>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance.hpp"

namespace attikos::test {

enum class BiasKind { none, along_n, along_m };
/// How an operand lacks the batch: not at all, extent 1, or rank 2.
enum class Batch { full, extent_1, rank_2 };

struct GemmCase {
  std::int64_t batch, m, n, k;  ///< batch 0 with rank 3; -1 means rank 2
  GemmOptions options = {};
  BiasKind bias = BiasKind::none;
  bool residual = false;
  Layout a = Layout::right, b = Layout::right, c = Layout::right;
  Batch batch_a = Batch::full, batch_b = Batch::full;
  double largest = 1;              ///< operands are uniform in [-largest, largest]
  std::int64_t rows_checked = 64;  ///< of each matrix; they are spread over all of it
};

inline double (*reference_activation(Activation activation))(double) {
  switch (activation) {
    case Activation::none:
      return reference::identity;
    case Activation::relu:
      return reference::relu;
    case Activation::gelu:
      return reference::gelu;
    case Activation::gelu_tanh:
      return reference::gelu_tanh;
    case Activation::silu:
      return reference::silu;
  }
  return nullptr;
}

inline std::string describe(GemmCase const& p) {
  std::ostringstream text;
  text << "batch " << p.batch << " m " << p.m << " n " << p.n << " k " << p.k << " trans "
       << p.options.trans_a << p.options.trans_b << " alpha " << p.options.alpha << " beta "
       << p.options.beta << " scale " << p.options.scale << " activation "
       << static_cast<int>(p.options.activation) << " bias " << static_cast<int>(p.bias)
       << " residual " << p.residual << " layouts " << layout_name(p.a) << ", " << layout_name(p.b)
       << ", " << layout_name(p.c) << " batches " << static_cast<int>(p.batch_a) << ", "
       << static_cast<int>(p.batch_b) << " kernel '" << p.options.kernel << "'";
  return text.str();
}

template <class Exec, class TA, class TB, class TC>
struct GemmOperands {
  Tensor<TA, 3, Exec> a;
  Tensor<TB, 3, Exec> b;
  Tensor<TC, 3, Exec> c;
  Tensor<TC, 3, Exec> residual;
  Tensor<TC, 1, Exec> bias;

  explicit GemmOperands(GemmCase const& p)
      : a({p.batch_a == Batch::full ? std::abs(p.batch) : 1, p.options.trans_a ? p.k : p.m,
           p.options.trans_a ? p.m : p.k},
          p.a),
        b({p.batch_b == Batch::full ? std::abs(p.batch) : 1, p.options.trans_b ? p.n : p.k,
           p.options.trans_b ? p.k : p.n},
          p.b),
        c({std::abs(p.batch), p.m, p.n}, p.c),
        residual({std::abs(p.batch), p.m, p.n},
                 p.c == Layout::left ? Layout::padded : Layout::left),
        bias({p.bias == BiasKind::along_m ? p.m : p.n}, Layout::strided) {}
};

template <class Exec, class O>
void call_gemm(Exec const& exec, GemmCase const& p, O& o) {
  if (p.batch >= 0) {
    // Rank 3; the extras are tried together, the rank 2 calls below try them alone.
    if (p.batch_a == Batch::rank_2) {
      gemm(exec, o.a.const_front(), o.b.view(), o.c.view(), p.options);
    } else if (p.batch_b == Batch::rank_2) {
      gemm(exec, o.a.view(), o.b.const_front(), o.c.view(), p.options);
    } else if (p.bias != BiasKind::none && p.residual) {
      gemm(exec, o.a.const_view(), o.b.const_view(), o.c.view(), p.options,
           residual(o.residual.const_view()), bias(o.bias.const_view()));
    } else {
      gemm(exec, o.a.const_view(), o.b.const_view(), o.c.view(), p.options);
    }
    return;
  }
  auto const a = o.a.const_front();
  auto const b = o.b.const_front();
  if (p.bias != BiasKind::none && p.residual) {
    gemm(exec, a, b, o.c.front(), p.options, bias(o.bias.const_view()),
         residual(o.residual.const_front()));
  } else if (p.bias != BiasKind::none) {
    gemm(exec, a, b, o.c.front(), p.options, bias(o.bias.const_view()));
  } else if (p.residual) {
    gemm(exec, a, b, o.c.front(), p.options, residual(o.residual.const_front()));
  } else {
    gemm(exec, a, b, o.c.front(), p.options);
  }
}

/// Builds the operands, makes the call, as a rule call_gemm(), and compares what it gives.
template <class Exec, class TA, class TB, class TC, class Call>
void check_gemm_by(GemmCase p, Call const& call) {
  if (p.bias == BiasKind::along_m) p.options.bias_along = BiasAlong::m;
  GemmOperands<Exec, TA, TB, TC> o(p);
  Random random(static_cast<std::uint64_t>(p.m * 1009 + p.n * 31 + p.k));
  o.a.fill_uniform(random, -p.largest, p.largest);
  o.b.fill_uniform(random, -p.largest, p.largest);
  // Without beta, C stays full of NaN, which must not reach the result.
  if (p.options.beta != 0) o.c.fill_uniform(random);
  if (p.residual) o.residual.fill_uniform(random);
  if (p.bias != BiasKind::none) o.bias.fill_uniform(random);
  auto before = o.c;
  call(Exec(), p, o);
  o.c.download();
  EXPECT_EQ(o.c.writes_outside(), 0u) << describe(p);

  bool const same = std::is_same_v<TA, TB> && std::is_same_v<TA, TC>;
  Comparison comparison(
      std::string("gemm/") + type_name<TA>() +
          (same ? "" : std::string("_") + type_name<TB>() + "_" + type_name<TC>()) + "/" +
          Exec::name(),
      describe(p), p.k > 1 && p.options.alpha != 0 ? stored_as<TC>() : Stored{});
  std::int64_t const step = std::max<std::int64_t>(1, p.m / p.rows_checked);
  for (std::int64_t bt = 0; bt < std::abs(p.batch); ++bt) {
    std::int64_t const ba = p.batch_a == Batch::full ? bt : 0;
    std::int64_t const bb = p.batch_b == Batch::full ? bt : 0;
    // Elements between the checked rows must at least have been written.
    for (std::int64_t i = 0; i < p.m; ++i) {
      for (std::int64_t j = 0; j < p.n; ++j) {
        double const got = o.c.value(bt, i, j);
        if (i % step != 0 && i != p.m - 1) {
          if (std::isnan(got)) comparison.add(got, 0, 0, {bt, i, j});
          continue;
        }
        reference::GemmTerms const terms{
            p.options.alpha,
            p.options.beta,
            p.options.beta != 0 ? before.value(bt, i, j) : 0.0,
            p.options.scale,
            p.bias == BiasKind::none ? 0.0 : o.bias.value(p.bias == BiasKind::along_m ? i : j),
            p.residual ? o.residual.value(bt, i, j) : 0.0,
            reference_activation(p.options.activation)};
        auto const want = reference::gemm_element(
            p.k,
            [&](std::int64_t l) {
              return p.options.trans_a ? o.a.value(ba, l, i) : o.a.value(ba, i, l);
            },
            [&](std::int64_t l) {
              return p.options.trans_b ? o.b.value(bb, j, l) : o.b.value(bb, l, j);
            },
            terms);
        comparison.add(got, want.value, gemm_bound<Accumulator<TA, TB, TC>, TC>(p.k, want, terms),
                       {bt, i, j});
      }
    }
  }
}

template <class Exec, class TA, class TB = TA, class TC = TA>
void check_gemm(GemmCase const& p) {
  check_gemm_by<Exec, TA, TB, TC>(
      p, [](Exec const& exec, GemmCase const& q, auto& o) { call_gemm(exec, q, o); });
}

}  // namespace attikos::test
