// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Gradients of attention on a device in fragments (core/fragments/): which kernels take a call,
/// with which tile. Scores are computed anew from q, k and the log-sum-exp.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/fragments/gradients_by_scratch.hpp>
#include <attikos/attention/fragments/gradients_in_registers.hpp>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Type in which gradients are multiplied: T where a device has instructions for it.
template <class Exec, class T>
using GradientFactor =
    std::conditional_t<has_matrix_instructions<Exec, T>, T, AttentionAccumulator<T>>;

/// Shapes for heads of up to 64 features, and of more, of which rows and what pairs have stay in
/// registers.
template <class F, GradientOf What>
struct GradientShapes {
  using Narrow = AttentionShape<F, 4, 1, What == GradientOf::query ? 64 : 48, 64, 2>;
  using Wide = AttentionShape<F, 4, 1, 48, 128, 2>;
};
/// Those by way of scratch, for up to 64 features of a gradient, and for more.
template <class F>
struct GradientScratchShapes {
  using Narrow = AttentionShape<F, 4, 1, 64, 64, 3>;
  using Wide = AttentionShape<F, 4, 1, 64, 128, 2>;
};
template <class F>
requires(F::lanes > 1 && sizeof(typename F::Element) == 8) struct GradientScratchShapes<F> {
  using Narrow = AttentionShape<F, 4, 1, 32, 64, 3>;
  using Wide = AttentionShape<F, 4, 1, 32, 128, 2>;
};

/// A kernel with its policy. Throws what cannot be launched.
template <class Kernel>
struct GradientLaunch {
  Kernel kernel;
  typename Kernel::Policy policy;
};
template <class Kernel, class Exec, class Functors, class Acc>
GradientLaunch<Kernel> gradient_launch(Exec const& exec, abi::AttentionBackwardArgs const& a,
                                       Functors const& functors, Acc const* delta) {
  struct Tensor {
    void const* data;
    std::int64_t const (&stride)[4];
  };
  abi::AttentionArgs const& g = a.forward;
  Tensor const q{g.q, g.q_stride}, k{g.k, g.k_stride}, v{g.v, g.v_stride},
      dout{a.dout, a.dout_stride};
  constexpr bool by_key = Kernel::by_key;
  auto const stage = []<class Stage>(std::type_identity<Stage>, Tensor const& from) {
    return stage_of<Stage>(from.data, from.stride);
  };
  constexpr std::type_identity<decltype(Kernel::stage_first)> rows;
  constexpr std::type_identity<decltype(Kernel::stage_first_cols)> cols;
  typename Kernel::Base const base{{a, functors}, Kernel::row_tiles(g), delta};
  auto const kernel = [&]() -> Kernel {
    Tensor const first = by_key ? k : q, second = by_key ? v : dout;
    Tensor const first_cols = by_key ? q : k, second_cols = by_key ? dout : v;
    if constexpr (Kernel::copies_summed)
      return {base,
              stage(rows, first),
              stage(rows, second),
              stage(cols, first_cols),
              stage(cols, second_cols),
              stage(std::type_identity<typename Kernel::Summed>{},
                    Kernel::of_value ? second_cols : first_cols)};
    else
      return {base, stage(rows, first), stage(rows, second), stage(cols, first_cols),
              stage(cols, second_cols)};
  }();
  return {kernel, tile_policy<Kernel>("attention_backward", exec,
                                      base.tiles * Kernel::groups(g) * Kernel::slices(g))};
}

/// Whether one walk through the queries may compute dk and dv, and whether it does: without a
/// functor, which has one shape for all heads.
template <class Exec, class T, class Functors>
inline constexpr bool may_join_key_and_value =
    FragmentsFor<Exec, GradientFactor<Exec, T>>::sums_make_left && !Functors::has_score &&
    !Functors::has_weight;
template <class Exec, class T, class Functors>
bool joins_key_and_value(abi::AttentionArgs const& g) {
  using F = FragmentsFor<Exec, GradientFactor<Exec, T>>;
  return may_join_key_and_value<Exec, T, Functors> &&
         std::max(g.head_dim, g.head_dim_v) <=
             GradientShapes<F, GradientOf::key_and_value>::Narrow::features;
}

/// Calls run(launch) with what computes one gradient, or those of key and value where
/// joins_key_and_value() says so. It may have no teams.
template <GradientOf What, class T, class Exec, class Functors, class Acc, class Run>
void with_gradient_launch(Exec const& exec, abi::AttentionBackwardArgs const& a,
                          Functors const& functors, Acc const* delta, Run const& run) {
  using F = FragmentsFor<Exec, GradientFactor<Exec, T>>;
  using InRegisters = GradientShapes<F, What>;
  using ByScratch = GradientScratchShapes<F>;
  abi::AttentionArgs const& g = a.forward;
  auto const with = [&]<class Kernel>(std::type_identity<Kernel>) {
    run(gradient_launch<Kernel>(exec, a, functors, delta));
  };
  using Narrow = GradientInRegisters<Exec, typename InRegisters::Narrow, T, Functors, What>;
  using Wide = GradientInRegisters<Exec, typename InRegisters::Wide, T, Functors, What>;
  if constexpr (What == GradientOf::key_and_value) {
    with(std::type_identity<Narrow>{});
  } else {
    std::int64_t const widest = std::max(g.head_dim, g.head_dim_v);
    // One shape has to do for each set of functors: compilation takes seconds for each kernel. A
    // block mask alone has both that keep rows in registers: the scales of float16 follow the
    // tile, and it gives the bits of the same mask given densely.
    constexpr bool alone = !Functors::has_score && !Functors::has_weight;
    if constexpr (F::sums_make_left) {
      // Of keys and values apart there are no narrow heads, where they are joined.
      if constexpr (alone && What == GradientOf::query) {
        if (widest <= InRegisters::Narrow::features) return with(std::type_identity<Narrow>{});
      }
      if (widest <= InRegisters::Wide::features) return with(std::type_identity<Wide>{});
    }
    using NarrowByScratch = GradientByScratch<Exec, typename ByScratch::Narrow, T, Functors, What>;
    using WideByScratch = GradientByScratch<Exec, typename ByScratch::Wide, T, Functors, What>;
    if constexpr (std::is_same_v<Functors, NoFunctors> && !F::sums_make_left) {
      if (NarrowByScratch::width(g) <= ByScratch::Narrow::features)
        return with(std::type_identity<NarrowByScratch>{});
    }
    with(std::type_identity<WideByScratch>{});
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
