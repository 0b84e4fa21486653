// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Flash attention on a device: which kernel takes a call, with which tile.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attention/attention_arguments.hpp>
#include <attikos/attention/attention_dot_blocks.hpp>
#include <attikos/attention/fragments/factors.hpp>
#include <attikos/attention/fragments/registers.hpp>
#include <attikos/attention/fragments/scratch.hpp>
#include <attikos/core/launch.hpp>
#include <string>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Whether scores stay in registers. More features have no room there.
inline bool takes_attention_in_registers(abi::AttentionArgs const& g) {
  return g.head_dim <= 128 && g.head_dim_v <= 128;
}

/// Shapes for heads of up to 64 features, and of more.
template <class F>
struct AttentionShapes {
  using Narrow = AttentionShape<F, 4, 2, 64, 64, 2>;
  using Wide = AttentionShape<F, 4, 1, 64, 128, 2>;
};
/// Those by way of scratch, in which features are of values alone. A team has more of them where
/// elements are small.
template <class F>
struct ScratchShapes {
  using Narrow = AttentionShape<F, 4, 1, 64, 64, 3>;
  using Wide = AttentionShape<F, 4, 1, 64, 128, 3>;
};
template <class F>
requires(F::lanes > 1 && sizeof(typename F::Element) == 2) struct ScratchShapes<F> {
  using Narrow = AttentionShape<F, 4, 1, 64, 128, 3>;
  using Wide = AttentionShape<F, 4, 1, 64, 256, 2>;
};
template <class F>
requires(F::lanes > 1 && sizeof(typename F::Element) == 8) struct ScratchShapes<F> {
  using Narrow = AttentionShape<F, 4, 1, 32, 64, 3>;
  using Wide = AttentionShape<F, 4, 1, 32, 128, 2>;
};

template <class Kernel, class Exec, class Functors>
void launch_attention_fragments(Exec const& exec, abi::AttentionArgs const& g,
                                Functors const& functors, std::int64_t slices) {
  using Shape = typename Kernel::Shape;
  std::int64_t const tiles_q = query_tiles(g, Shape::rows);
  Kernel const kernel{{{g, functors}},
                      stage_of<decltype(Kernel::stage_q)>(g.q, g.q_stride),
                      stage_of<decltype(Kernel::stage_k)>(g.k, g.k_stride),
                      stage_of<decltype(Kernel::stage_v)>(g.v, g.v_stride),
                      tiles_q};
  launch("attention", portable_name(AttentionAlgorithm::flash),
         tile_policy<Kernel>("attention", exec, tiles_q * query_groups(g) * slices), kernel);
}

/// By what the portable flash kernel multiplies, by name; empty: by arithmetic that all have.
template <class Exec, class T, class Out, class Functors>
std::string attention_forward_instructions(abi::AttentionArgs const& g) {
  if constexpr (multiplies_in_fragments<Exec>)
    return FragmentsFor<Exec, ForwardFactor<Exec, T, Out, Functors>>::name;
  else
    return attention_instructions<Exec, T, Functors>(g);
}

/// Launches attention in fragments. Asynchronous on `exec`.
template <class T, class Out, class Exec, class Functors>
void attention_fragments(Exec const& exec, abi::AttentionArgs const& g, Functors const& functors) {
  using F = FragmentsFor<Exec, ForwardFactor<Exec, T, Out, Functors>>;
  if constexpr (rounds_attention_weights<Exec, T, Out, Functors>) {
    if (takes_attention_in_registers(g)) {
      using Shapes = AttentionShapes<F>;
      auto const start = [&]<class Shape>(std::type_identity<Shape>) {
        launch_attention_fragments<AttentionInRegisters<Exec, Shape, T, Out, Functors>>(
            exec, g, functors, 1);
      };
      return g.head_dim <= 64 && g.head_dim_v <= 64
                 ? start(std::type_identity<typename Shapes::Narrow>{})
                 : start(std::type_identity<typename Shapes::Wide>{});
    }
  }
  using Shapes = ScratchShapes<F>;
  auto const start = [&]<class Shape>(std::type_identity<Shape>) {
    using Kernel = AttentionByScratch<Exec, Shape, T, Out, Functors>;
    launch_attention_fragments<Kernel>(exec, g, functors, Kernel::feature_slices(g));
  };
  if (g.head_dim_v <= Shapes::Narrow::features)
    start(std::type_identity<typename Shapes::Narrow>{});
  else
    start(std::type_identity<typename Shapes::Wide>{});
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
