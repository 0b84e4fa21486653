// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Decoding on a device: teams, how many splits there are, launch.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attention/fragments/factors.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/decode/decode_fragments.hpp>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Teams for up to four rows and for more of them, in arithmetic. More rows of float64 have no room
/// in scratch.
template <class Exec, class Factor>
struct DecodeShapes {
  using Few = DecodeShape<FewRowFragmentsFor<Exec, Factor, 4>, 4, 256, 8, 2>;
  using Many = DecodeShape<FewRowFragmentsFor<Exec, Factor, 8>, 4, 128, 4, 2>;
};
template <class Exec>
struct DecodeShapes<Exec, double> {
  using Few = DecodeShape<FewRowFragmentsFor<Exec, double, 4>, 4, 128, 8, 2>;
  using Many = Few;
};
/// Teams for 16 rows, by matrix instructions.
template <class F>
struct DecodeMatrixShape {
  using type = DecodeShape<F, 4, 128, 4, 2>;
};

/// Cuts up the keys so that teams fill a device some times over, as far as it saves time: each team
/// takes as long as its keys, and as some more to start and to end.
template <class Exec, class T>
DecodePlan decode_fragment_plan(Exec const& exec, abi::AttentionArgs const& g,
                                std::int64_t wanted) {
  constexpr std::int64_t unit = 128, least = 256, more = 192;
  std::int64_t const rows = decode_rows_of_sequence(g);
  std::int64_t const tile = sizeof(T) <= 2 ? 16 : sizeof(T) == 4 && rows > 4 ? 8 : 4;
  std::int64_t const room = std::int64_t{2} * multiprocessors_of(exec);
  std::int64_t const teams =
      std::max<std::int64_t>(g.batch * g.heads_kv * ((rows + tile - 1) / tile), 1);
  auto const plan_of = [&](std::int64_t splits) {
    std::int64_t const share = std::max<std::int64_t>((g.seqlen_kv + splits - 1) / splits, 1);
    std::int64_t const chunk = round_up(share, unit);
    return DecodePlan{static_cast<int>(tile), static_cast<int>(unit), 0, chunk,
                      std::max<std::int64_t>((g.seqlen_kv + chunk - 1) / chunk, 1)};
  };
  if (wanted != 0) return plan_of(std::min(wanted, std::max<std::int64_t>(g.seqlen_kv, 1)));
  DecodePlan best = plan_of(1);
  auto const time_of = [&](DecodePlan const& plan) {
    return (teams * plan.splits + room - 1) / room * (plan.chunk + more);
  };
  for (std::int64_t times = 1; times <= 4; ++times) {
    DecodePlan const plan = plan_of(std::clamp<std::int64_t>(
        times * room / teams, 1, std::clamp<std::int64_t>(g.seqlen_kv / least, 1, 128)));
    if (time_of(plan) < time_of(best)) best = plan;
  }
  return best;
}

/// Launches the splits of a problem that has rows. Asynchronous on `exec`.
template <class T, class Out, class Exec, class Functors>
void decode_fragments(char const* operation, Exec const& exec, abi::AttentionArgs const& g,
                      Functors const& functors, DecodePlan const& plan,
                      AttentionAccumulator<T>* out, AttentionAccumulator<T>* lse) {
  using Factor = ForwardFactor<Exec, T, Out, Functors>;
  auto const start = [&]<class Shape>(std::type_identity<Shape>) {
    using Kernel = DecodeFragments<Exec, Shape, T, Out, Functors>;
    std::int64_t const tiles = decode_row_tiles(g, Kernel::rows);
    Kernel const kernel{{{g, functors}},
                        stage_of<typename Kernel::Features>(g.q, g.q_stride),
                        stage_of<typename Kernel::Features>(g.k, g.k_stride),
                        stage_of<typename Kernel::Values>(g.v, g.v_stride),
                        plan,
                        tiles,
                        out,
                        lse};
    launch(operation, "portable/split",
           tile_policy<Kernel>(
               operation, exec,
               plan.splits * tiles * decode_batch(g) * g.heads_kv * Kernel::feature_slices(g)),
           kernel);
  };
  if constexpr (rounds_attention_weights<Exec, T, Out, Functors>) {
    start(std::type_identity<typename DecodeMatrixShape<FragmentsFor<Exec, Factor>>::type>{});
  } else {
    using Shapes = DecodeShapes<Exec, Factor>;
    using Many = typename Shapes::Many;
    return decode_rows_of_sequence(g) > Shapes::Few::rows_of_thread &&
                   g.head_dim <= Many::query_steps * Many::key_features
               ? start(std::type_identity<Many>{})
               : start(std::type_identity<typename Shapes::Few>{});
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
