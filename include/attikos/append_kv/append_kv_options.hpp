// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What an append_kv call may ask for besides its keys and values.
#pragma once

#include <attikos/attention/attention_options.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/norm/rope_options.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of append_kv(); those that C has by the same name are rows of abi/option_tables.h.
struct AppendKvOptions {
  RopeStyle style = RopeStyle::half_split;  ///< which features rotary(cos, sin) rotates in pairs
  /// queries_share_position: every query of queries(q, out) is rotated as the first one, for
  /// attention without a causal mask or window; else query i as position cache length + i.
  ATTIKOS_OPTION_QUERIES_SHARE_POSITION(ATTIKOS_CXX_OPTION_MEMBER)
  /// rotary_dim: how many leading features rotary(cos, sin) rotates; the width of the tables (which
  /// 0 stands for), or twice that for tables that hold one entry per pair.
  ATTIKOS_OPTION_APPENDED_ROTARY_DIM(ATTIKOS_CXX_OPTION_MEMBER)
  char const* kernel = "";  ///< "" chooses; a name demands it and never falls back
};

/// How much of the cache each sequence has in use. See cache_lengths().
template <TensorLike T>
struct CacheLengths {
  T view;
};

/// Numbers of positions in use before the call: int32 [batch], read on the device. append_kv() does
/// not advance them.
template <TensorLike T>
CacheLengths<T> cache_lengths(T const& view) {
  return {view};
}

/// How many tokens of each sequence are new. See new_lengths().
template <TensorLike T>
struct NewLengths {
  T view;
};

/// Numbers of new tokens of padded sequences: int32 [batch], read on the device and clamped to [0,
/// seqlen_new]. Positions behind them are neither read nor appended.
template <TensorLike T>
NewLengths<T> new_lengths(T const& view) {
  return {view};
}

/// Packed new keys and values beside queries that are padded, or not there.
template <TensorLike Kv>
CuSeqlens<detail::Absent, Kv> cu_seqlens(detail::Absent, Kv const& kv) {
  return {{}, kv};
}

/// Rotary embedding on the way into the cache. See rotary().
template <TensorLike Cos, TensorLike Sin>
struct Rotary {
  Cos cos;
  Sin sin;
};

/// Rotates new keys by tables as those of rope(): [positions, rotary_dim] or [1, positions, 1,
/// rotary_dim], of half that width with AppendKvOptions::rotary_dim.
template <TensorLike Cos, TensorLike Sin>
Rotary<Cos, Sin> rotary(Cos const& cos, Sin const& sin) {
  return {cos, sin};
}

/// Queries to rotate along with the new keys. See queries().
template <TensorLike Q, TensorLike Out>
struct Queries {
  Q q;
  Out out;
};

/// Rotates q [batch, heads_q, seqlen_q, head_dim] into `out` of the same extents, which may be q
/// itself. Needs rotary(cos, sin).
template <TensorLike Q, TensorLike Out>
Queries<Q, Out> queries(Q const& q, Out const& out) {
  return {q, out};
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
