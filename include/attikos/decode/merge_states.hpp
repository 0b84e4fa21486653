// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// merge_states(): attention over a set of keys from attention over its parts.
#pragma once

#include <algorithm>
#include <attikos/core/extras.hpp>
#include <attikos/core/fragments/unroll.hpp>
#include <attikos/core/rows/device_elements.hpp>
#include <attikos/core/rows/rows.hpp>
#include <cstddef>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The same tensor with a dimension of extent 1 put in before dimension `At`.
template <int At, class T, int Rank>
TensorRef<T, Rank + 1> with_dimension(TensorRef<T, Rank> const& x) {
  TensorRef<T, Rank + 1> result{};
  result.data = x.data;
  for (int r = 0; r <= Rank; ++r) {
    result.extent[r] = r == At ? 1 : x.extent[r < At ? r : r - 1];
    result.stride[r] = r == At ? 0 : x.stride[r < At ? r : r - 1];
  }
  return result;
}

/// The state of one (batch, head, query) in one part: its output row, the row's stride, its lse.
template <class P, class L>
struct StateRow {
  P const* out;
  std::int64_t stride;
  L lse;
};

/// Whether rows consist of runs of `Width` neighbors that a device moves at once.
template <int Width, class T, int Rank>
bool tensor_moves_at_once(TensorRef<T, Rank> const& x) {
  bool moves = moves_at_once<Width>(x.data, x.stride[Rank - 1]) && x.extent[Rank - 1] % Width == 0;
  for (int r = 0; r + 1 < Rank; ++r)
    moves = moves && (x.extent[r] <= 1 || x.stride[r] % pack_size<T, Width> == 0);
  return moves;
}

/// Two parts in tensors of their own.
template <class P_, class L_>
struct TwoStates {
  using P = P_;
  using L = L_;
  TensorRef<P const, 4> out[2];
  TensorRef<L const, 3> lse[2];
  KOKKOS_INLINE_FUNCTION std::int64_t count() const { return 2; }
  KOKKOS_INLINE_FUNCTION StateRow<P, L> operator()(std::int64_t s, std::int64_t b, std::int64_t h,
                                                   std::int64_t i) const {
    return {out[s].ptr(b, h, i, 0), out[s].stride[3], lse[s](b, h, i)};
  }
  template <int Width>
  bool moves_at_once() const {
    return tensor_moves_at_once<Width>(out[0]) && tensor_moves_at_once<Width>(out[1]);
  }
};

/// Parts along dimension 0.
template <class P_, class L_>
struct SplitStates {
  using P = P_;
  using L = L_;
  TensorRef<P const, 5> out;
  TensorRef<L const, 4> lse;
  KOKKOS_INLINE_FUNCTION std::int64_t count() const { return out.extent[0]; }
  KOKKOS_INLINE_FUNCTION StateRow<P, L> operator()(std::int64_t s, std::int64_t b, std::int64_t h,
                                                   std::int64_t i) const {
    return {out.ptr(s, b, h, i, 0), out.stride[4], lse(s, b, h, i)};
  }
  template <int Width>
  bool moves_at_once() const {
    return tensor_moves_at_once<Width>(out);
  }
};

/// One logit per head that joins the denominator when states are merged; data null: none.
struct MergedSinks {
  DType type = DType::float32;
  void const* data = nullptr;
  std::int64_t stride = 0;
};

/// One row of the result. Parts are taken in ascending order. Every lane reads all of a row's lse
/// before one of them writes the result's, which may be the same memory.
template <class Acc, class States, class Out, class Lse>
struct MergeStatesRow {
  States states;
  TensorRef<Out, 4> out;
  TensorRef<Lse, 3> lse;  ///< data null: not wanted
  MergedSinks sinks = {};
  /// Of a device: rows are runs of `width` neighbors that it moves at once.
  bool by_neighbors = false;

  using P = typename States::P;
  static constexpr int width =
      widest_access / static_cast<int>(sizeof(P) > sizeof(Out) ? sizeof(P) : sizeof(Out));

  struct Position {
    std::int64_t b, h, i;
  };
  struct Sum {
    Acc shift, inverse, lse;
  };

  KOKKOS_INLINE_FUNCTION Position position(std::int64_t index) const {
    std::int64_t const bh = index / out.extent[2];
    return {bh / out.extent[1], bh % out.extent[1], index % out.extent[2]};
  }

  /// Parts that a device loads before it looks at the first of them.
  static constexpr int at_once = 8;

  /// Calls each(lse) for the parts in ascending order, `AtOnce` of which are loaded at a time.
  template <int AtOnce, class Each>
  KOKKOS_INLINE_FUNCTION void for_each_lse(Position const& p, Each const& each) const {
    std::int64_t const count = states.count();
    for (std::int64_t first = 0; first < count; first += AtOnce) {
      Acc lse_of[AtOnce] = {};
      ATTIKOS_UNROLL_DEVICE
      for (int e = 0; e < AtOnce; ++e)
        if (first + e < count) lse_of[e] = static_cast<Acc>(states(first + e, p.b, p.h, p.i).lse);
      ATTIKOS_UNROLL_DEVICE
      for (int e = 0; e < AtOnce; ++e)
        if (first + e < count) each(lse_of[e]);
    }
  }

  template <int AtOnce>
  KOKKOS_INLINE_FUNCTION Sum sum(Position const& p) const {
    constexpr Acc low = -Kokkos::Experimental::infinity_v<Acc>;
    Acc maximum = low;
    for_each_lse<AtOnce>(p, [&](Acc l) {
      if (l > maximum) maximum = l;
    });
    Acc sink = low;  // a row that saw no key stays empty, sink or not
    if (sinks.data != nullptr && maximum != low) {
      sink = load_any<Acc>(sinks.type, sinks.data, p.h * sinks.stride);
      if (sink > maximum) maximum = sink;
    }
    Acc const shift = maximum == low ? Acc(0) : maximum;  // nothing but −∞ then sums to 0
    Acc total = Kokkos::exp(sink - shift);
    for_each_lse<AtOnce>(p, [&](Acc l) { total += Kokkos::exp(l - shift); });
    return total == Acc(0) ? Sum{shift, Acc(0), low}
                           : Sum{shift, Acc(1) / total, shift + Kokkos::log(total)};
  }

  KOKKOS_INLINE_FUNCTION static Acc weight(Sum const& sum, Acc state_lse) {
    return Kokkos::exp(state_lse - sum.shift) * sum.inverse;
  }

  void host_row(std::int64_t index) const {
    constexpr int W = host::lanes<Acc>;
    constexpr int block = 8;  // vectors of features per pass over the parts
    Position const p = position(index);
    Sum const total = sum<1>(p);
    std::int64_t const size = out.extent[3];
    for (std::int64_t c = 0; c < size; c += block * W) {
      host::Vec<Acc> acc[block] = {};
      auto const each = [&](auto&& f) {
        for (int v = 0; v < block && c + v * W < size; ++v) {
          std::int64_t const at = c + v * W;
          f(acc[v], at, size - at < W ? static_cast<int>(size - at) : W);
        }
      };
      for (std::int64_t s = 0; s < states.count(); ++s) {
        auto const state = states(s, p.b, p.h, p.i);
        Acc const w = weight(total, static_cast<Acc>(state.lse));
        if (w == Acc(0)) continue;  // what an empty part holds is not looked at
        each([&](host::Vec<Acc>& sum_of, std::int64_t at, int count) {
          sum_of += w * host::load_row<Acc>(state.out + at * state.stride, state.stride, count);
        });
      }
      each([&](host::Vec<Acc>& sum_of, std::int64_t at, int count) {
        host::put<Acc>(out.ptr(p.b, p.h, p.i, at), out.stride[3], count, sum_of);
      });
    }
    if (lse.data != nullptr) lse(p.b, p.h, p.i) = static_cast<Lse>(total.lse);
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    Position const p = position(index);
    Sum const total = sum<at_once>(p);
    if (by_neighbors) {
      std::int64_t const runs = out.extent[3] / width;
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, runs), [&](std::int64_t run) {
        Acc acc[width] = {};
        std::int64_t const count = states.count();
        for (std::int64_t first = 0; first < count; first += at_once) {
          Acc w[at_once];
          Loaded<P, width> part[at_once];
          ATTIKOS_UNROLL_DEVICE
          for (int e = 0; e < at_once; ++e) {
            w[e] = Acc(0);
            if (first + e >= count) continue;
            auto const state = states(first + e, p.b, p.h, p.i);
            w[e] = weight(total, static_cast<Acc>(state.lse));
            // What an empty part holds is not looked at.
            if (w[e] != Acc(0)) part[e].load(state.out + run * width);
          }
          ATTIKOS_UNROLL_DEVICE
          for (int e = 0; e < at_once; ++e) {
            if (w[e] == Acc(0)) continue;
            for (int i = 0; i < width; ++i) acc[i] += w[e] * part[e].template value<Acc>(i);
          }
        }
        store_nearest(out.ptr(p.b, p.h, p.i, run * width), acc);
      });
      return put_lse(team, p, total);
    }
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, out.extent[3]), [&](std::int64_t c) {
      Acc acc = 0;
      for (std::int64_t s = 0; s < states.count(); ++s) {
        auto const state = states(s, p.b, p.h, p.i);
        Acc const w = weight(total, static_cast<Acc>(state.lse));
        if (w != Acc(0)) acc += w * static_cast<Acc>(state.out[c * state.stride]);
      }
      out(p.b, p.h, p.i, c) = static_cast<Out>(acc);
    });
    put_lse(team, p, total);
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void put_lse(Team const& team, Position const& p, Sum const& total) const {
    if (lse.data != nullptr)
      Kokkos::single(Kokkos::PerThread(team),
                     [&] { lse(p.b, p.h, p.i) = static_cast<Lse>(total.lse); });
  }
};

/// A partial state's tensors against the result's: extents of `out` and `lse` behind `skip` leading
/// dimensions.
template <class P, int RankP, class L, int RankL, class Out, int Rank>
void check_state(char const* out_name, char const* lse_name, TensorRef<P, RankP> const& state,
                 TensorRef<L, RankL> const& state_lse, TensorRef<Out, Rank> const& out) {
  constexpr int skip = RankP - Rank;
  for (int r = 0; r < Rank; ++r)
    if (state.extent[r + skip] != out.extent[r])
      raise<ShapeError>("merge_states: ", out_name, " is ", describe(state),
                        "; expected the extents of out", skip == 1 ? " behind the splits" : "",
                        ", which is ", describe(out));
  for (int r = 0; r < RankL; ++r)
    if (state_lse.extent[r] != state.extent[r])
      raise<ShapeError>("merge_states: ", lse_name, " is ", describe(state_lse),
                        "; expected the extents of ", out_name,
                        " without its last dimension, which is ", describe(state));
}

template <ExecutionSpace Exec, TensorLike P, TensorLike L>
void check_state_tensors(char const* out_name, char const* lse_name, P const& out, L const& lse) {
  check_tensor<Exec, P>();
  check_tensor<Exec, L>();
  static_assert(is_floating_element<element_t<P>>,
                "attikos::merge_states: outputs hold floating-point elements");
  static_assert(std::is_same_v<element_t<L>, float> || std::is_same_v<element_t<L>, double>,
                "attikos::merge_states: an lse holds float or double");
  static_assert(rank_of<L> == rank_of<P> - 1,
                "attikos::merge_states: an lse is its output without the last dimension");
  check_extents("merge_states", out_name, out);
  check_extents("merge_states", lse_name, lse);
}

/// Launches with checked states. `lse` is a tensor or Absent.
template <class States, ExecutionSpace Exec, TensorLike Out, class Lse>
void merge_states_launch(Exec const& exec, States const& states, Out const& out, Lse const& lse) {
  using O = element_t<Out>;
  constexpr bool joined = rank_of<Out> == 3;
  auto const rank4 = [](auto const& ref) {
    if constexpr (joined) {
      return with_dimension<0>(ref);
    } else {
      return ref;
    }
  };
  auto const run = [&]<class LseElement>(TensorRef<LseElement, 3> const& lse_ref) {
    using Acc =
        std::conditional_t<std::is_same_v<typename States::P, double> ||
                               std::is_same_v<typename States::L, double> ||
                               std::is_same_v<O, double> || std::is_same_v<LseElement, double>,
                           double, float>;
    auto const out_ref = rank4(to_ref(out));
    using Row = MergeStatesRow<Acc, States, O, LseElement>;
    Row row{states, out_ref, lse_ref};
    row.by_neighbors = !is_host_space<Exec> && states.template moves_at_once<Row::width>() &&
                       tensor_moves_at_once<Row::width>(out_ref);
    // 16 lanes hold a row of 128 elements of 16 bits.
    launch_rows<16>(exec, "merge_states", row,
                    out_ref.extent[0] * out_ref.extent[1] * out_ref.extent[2]);
  };
  if constexpr (is_present<Lse>) {
    run(rank4(to_ref(lse)));
  } else {
    run(TensorRef<typename States::L, 3>{});
  }
}

/// What both forms ask of their results.
template <ExecutionSpace Exec, TensorLike Out, class Lse>
void check_merged(Out const& out, Lse const& lse) {
  static_assert(rank_of<Out> == 3 || rank_of<Out> == 4,
                "attikos::merge_states: out has rank 4 [batch, heads, seqlen, dv] or 3 with the "
                "first two joined");
  check_output<Exec>(out);
  check_extents("merge_states", "out", out);
  static_assert(is_floating_element<element_t<Out>>,
                "attikos::merge_states: out holds floating-point elements");
  if constexpr (is_present<Lse>) {
    check_output<Exec>(lse);
    check_state_tensors<Exec>("out", "lse", out, lse);
    check_state("out", "lse", to_ref(out), to_ref(lse), to_ref(out));
  }
}

template <ExecutionSpace Exec, TensorLike OutA, TensorLike LseA, TensorLike OutB, TensorLike LseB,
          TensorLike Out, class Lse>
void merge_two_states(Exec const& exec, OutA const& out_a, LseA const& lse_a, OutB const& out_b,
                      LseB const& lse_b, Out const& out, Lse const& lse) {
  static_assert(rank_of<OutA> == rank_of<Out> && rank_of<OutB> == rank_of<Out>,
                "attikos::merge_states: out_a, out_b and out have one rank");
  static_assert(std::is_same_v<element_t<OutA>, element_t<OutB>> &&
                    std::is_same_v<element_t<LseA>, element_t<LseB>>,
                "attikos::merge_states: the two states have the same element types");
  check_merged<Exec>(out, lse);
  check_state_tensors<Exec>("out_a", "lse_a", out_a, lse_a);
  check_state_tensors<Exec>("out_b", "lse_b", out_b, lse_b);
  check_state("out_a", "lse_a", to_ref(out_a), to_ref(lse_a), to_ref(out));
  check_state("out_b", "lse_b", to_ref(out_b), to_ref(lse_b), to_ref(out));
  check_outputs("merge_states", {{"out", any_tensor(out)}, {"lse", any_tensor(lse)}},
                {{"out_a", any_tensor(out_a), 0},
                 {"lse_a", any_tensor(lse_a), 1},
                 {"out_b", any_tensor(out_b), 0},
                 {"lse_b", any_tensor(lse_b), 1}});
  TwoStates<element_t<OutA>, element_t<LseA>> states{};
  auto const put = [&](int s, auto const& o, auto const& l) {
    if constexpr (rank_of<Out> == 3) {
      states.out[s] = with_dimension<0>(to_const_ref(o));
      states.lse[s] = with_dimension<0>(to_const_ref(l));
    } else {
      states.out[s] = to_const_ref(o);
      states.lse[s] = to_const_ref(l);
    }
  };
  put(0, out_a, lse_a);
  put(1, out_b, lse_b);
  merge_states_launch(exec, states, out, lse);
}

/// Splits along dimension 0 without the one that a result is: those before it and those behind it.
struct OtherSplits {
  AnyTensor before, behind;

  OtherSplits(AnyTensor const& all, AnyTensor const& result) : before(all), behind(all) {
    behind.extent[0] = 0;
    AnyTensor split = all;
    split.rank = all.rank - 1;
    std::copy(all.extent + 1, all.extent + all.rank, split.extent);
    std::copy(all.stride + 1, all.stride + all.rank, split.stride);
    std::int64_t const step = all.stride[0] * dtype_size(all.type);
    auto const apart = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(result.data) -
                                                 reinterpret_cast<std::uintptr_t>(all.data));
    std::int64_t const index = step == 0 ? 0 : apart / step;
    if (index < 0 || index >= all.extent[0]) return;
    split.data = all.as<std::byte>() + index * step;
    if (!is_same_memory(split, result)) return;
    before.extent[0] = index;
    behind.data = all.as<std::byte>() + (index + 1) * step;
    behind.extent[0] = all.extent[0] - index - 1;
  }
};

template <ExecutionSpace Exec, TensorLike P, TensorLike L, TensorLike Out, class Lse>
void merge_split_states(Exec const& exec, P const& outs, L const& lses, Out const& out,
                        Lse const& lse) {
  static_assert(rank_of<P> == rank_of<Out> + 1,
                "attikos::merge_states: outs has the dimensions of out behind the splits");
  check_merged<Exec>(out, lse);
  check_state_tensors<Exec>("outs", "lses", outs, lses);
  check_state("outs", "lses", to_ref(outs), to_ref(lses), to_ref(out));
  AnyTensor const any_out = any_tensor(out), any_lse = any_tensor(lse);
  OtherSplits const other_outs(any_tensor(outs), any_out), other_lses(any_tensor(lses), any_lse);
  check_outputs("merge_states", {{"out", any_out}, {"lse", any_lse}},
                {{"outs", other_outs.before},
                 {"outs", other_outs.behind},
                 {"lses", other_lses.before},
                 {"lses", other_lses.behind}});
  SplitStates<element_t<P>, element_t<L>> states{};
  if constexpr (rank_of<P> == 4) {
    states.out = with_dimension<1>(to_const_ref(outs));
    states.lse = with_dimension<1>(to_const_ref(lses));
  } else {
    states.out = to_const_ref(outs);
    states.lse = to_const_ref(lses);
  }
  merge_states_launch(exec, states, out, lse);
}

}  // namespace detail

/// Attention over the union of two disjoint sets of keys, from attention over each:
/// lse = log(e^lse_a + e^lse_b), out = e^(lse_a − lse)·out_a + e^(lse_b − lse)·out_b.
///
/// \param exec          execution space instance; the call is asynchronous on it and never fences
/// \param out_a, out_b  [batch, heads, seqlen, dv], or [batch·heads, seqlen, dv]
/// \param lse_a, lse_b  [batch, heads, seqlen], natural logarithms, as attention() gives them
/// \param out           the extents of out_a
/// \param lse           the extents of lse_a; may be left out
///
/// A state of lse −∞ saw no key: its output is not read, and the other state comes through exactly;
/// two such states give 0 and −∞. An lse of NaN or +∞ gives NaN. Sinks belong to no partial state:
/// attention over the parts runs without them. out and lse may be out_a and lse_a, or out_b and
/// lse_b, themselves, so that a cascade can accumulate in place; any other overlap is not allowed.
///
/// Types: any floating-point element for each output, float or double for an lse; computed in
/// float, in double if one of them is double. Any strides, zero extents. Determinism: run to run,
/// and for any number of host threads. Throws ShapeError, StrideError, Error before anything is
/// launched.
///
/// Source: T. Dao et al., "Flash-Decoding for long-context inference", 2023; Z. Ye et al.,
/// "FlashInfer", arXiv:2501.01005.
template <ExecutionSpace Exec, TensorLike OutA, TensorLike LseA, TensorLike OutB, TensorLike LseB,
          TensorLike Out, TensorLike Lse>
void merge_states(Exec const& exec, OutA const& out_a, LseA const& lse_a, OutB const& out_b,
                  LseB const& lse_b, Out const& out, Lse const& lse) {
  detail::merge_two_states(exec, out_a, lse_a, out_b, lse_b, out, lse);
}

/// The same without the log-sum-exp of the union.
template <ExecutionSpace Exec, TensorLike OutA, TensorLike LseA, TensorLike OutB, TensorLike LseB,
          TensorLike Out>
void merge_states(Exec const& exec, OutA const& out_a, LseA const& lse_a, OutB const& out_b,
                  LseB const& lse_b, Out const& out) {
  detail::merge_two_states(exec, out_a, lse_a, out_b, lse_b, out, detail::Absent{});
}

/// The same on an instance of the default execution space.
template <TensorLike OutA, TensorLike LseA, TensorLike OutB, TensorLike LseB, TensorLike Out,
          TensorLike Lse>
void merge_states(OutA const& out_a, LseA const& lse_a, OutB const& out_b, LseB const& lse_b,
                  Out const& out, Lse const& lse) {
  merge_states(Kokkos::DefaultExecutionSpace{}, out_a, lse_a, out_b, lse_b, out, lse);
}

/// Attention over any number of disjoint sets of keys, which lie along dimension 0:
/// lse = log Σ_s e^lses[s], out = Σ_s e^(lses[s] − lse)·outs[s].
///
/// \param exec  execution space instance; the call is asynchronous on it and never fences
/// \param outs  [splits, batch, heads, seqlen, dv], or [splits, batch·heads, seqlen, dv]
/// \param lses  [splits, batch, heads, seqlen]
/// \param out   [batch, heads, seqlen, dv]
/// \param lse   [batch, heads, seqlen]; may be left out
///
/// Everything else is as with two states: splits of lse −∞ are not read, no split at all gives 0
/// and −∞, splits are summed in ascending order. out and lse may be one split of outs and lses.
template <ExecutionSpace Exec, TensorLike Outs, TensorLike Lses, TensorLike Out, TensorLike Lse>
void merge_states(Exec const& exec, Outs const& outs, Lses const& lses, Out const& out,
                  Lse const& lse) {
  detail::merge_split_states(exec, outs, lses, out, lse);
}

/// The same without the log-sum-exp of the union.
template <ExecutionSpace Exec, TensorLike Outs, TensorLike Lses, TensorLike Out>
void merge_states(Exec const& exec, Outs const& outs, Lses const& lses, Out const& out) {
  detail::merge_split_states(exec, outs, lses, out, detail::Absent{});
}

/// The same on an instance of the default execution space.
template <TensorLike Outs, TensorLike Lses, TensorLike Out, TensorLike Lse>
void merge_states(Outs const& outs, Lses const& lses, Out const& out, Lse const& lse) {
  merge_states(Kokkos::DefaultExecutionSpace{}, outs, lses, out, lse);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
