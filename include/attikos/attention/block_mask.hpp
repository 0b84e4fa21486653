// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A mask given as a predicate of pairs, with what it comes to in tiles of pairs: block_mask(), and
/// make_block_mask(), which fills in the tiles.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/dispatch/to_abi.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/core/overlap.hpp>
#include <attikos/core/tile.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// What an element of a block mask says of the pairs of its tile. Other numbers count as `partial`.
enum class BlockKind : std::int8_t {
  empty = 0,   ///< the predicate is false for all
  full = 1,    ///< the predicate is true for all
  partial = 2  ///< the predicate is asked
};

/// Extents of a block mask: those of the problem, and of a tile. Any size of tile goes with any
/// kernel; whole multiples of the kernel's own, such as 128, cost least.
struct BlockMaskShape {
  std::int64_t seqlen_q = 0, seqlen_kv = 0;
  std::int64_t block_q = 128, block_kv = 128;  ///< queries and keys of a tile

  /// Number of tiles along the queries.
  constexpr std::int64_t tiles_q() const noexcept { return tiles(seqlen_q, block_q); }
  /// Number of tiles along the keys.
  constexpr std::int64_t tiles_kv() const noexcept { return tiles(seqlen_kv, block_kv); }

 private:
  static constexpr std::int64_t tiles(std::int64_t seqlen, std::int64_t block) noexcept {
    return block < 1 ? 0 : seqlen / block + (seqlen % block != 0 ? 1 : 0);
  }
};

/// A predicate with its tiles. See block_mask().
template <TensorLike T, class F>
struct BlockMask {
  T view;
  F predicate;
  BlockMaskShape shape;
};

/// Query i sees key j only if `predicate(b, h, i, j)` is true, arguments as score() has them. The
/// predicate is a KOKKOS_FUNCTION, cheap to copy, compiled into the portable kernel; it is asked in
/// partial tiles alone. attention() and attention_backward() leave out empty tiles, and what their
/// queries, keys and values hold, a NaN for example, adds nothing.
///
/// \param view       a BlockKind for each tile as std::int8_t, [batch, heads_q, tiles_q, tiles_kv];
///                   batch and heads may be 1 or left out: one mask for all. What make_block_mask()
///                   writes, or the caller's own
/// \param predicate  of (batch, query head, query, key), positions within their sequences
/// \param shape      extents of the problem, exactly, and of a tile: tile (I, J) has queries
///                   [I·block_q, (I + 1)·block_q) and keys [J·block_kv, (J + 1)·block_kv). Packed
///                   sequences have extents of their own: there `shape` says what the tiles tell
///                   of, and the predicate is asked of pairs past it
template <TensorLike T, class F>
BlockMask<T, F> block_mask(T const& view, F const& predicate, BlockMaskShape const& shape) {
  return {view, predicate, shape};
}

namespace detail {

/// Throws Error for a tile without pairs, ShapeError unless `view` has an element for each tile.
inline void check_block_mask(char const* operation, AnyTensor const& view,
                             BlockMaskShape const& shape) {
  check_extents(operation, "block mask", view);
  auto const at_least = [&](char const* name, std::int64_t value, std::int64_t least) {
    if (value < least)
      raise<Error>(operation, ": ", name, " of the block mask is ", value, "; expected at least ",
                   least);
  };
  at_least("block_q", shape.block_q, 1);
  at_least("block_kv", shape.block_kv, 1);
  at_least("seqlen_q", shape.seqlen_q, 0);
  at_least("seqlen_kv", shape.seqlen_kv, 0);
  std::int64_t const tiles_q = shape.tiles_q(), tiles_kv = shape.tiles_kv();
  if (view.extent[view.rank - 2] != tiles_q || view.extent[view.rank - 1] != tiles_kv)
    raise<ShapeError>(operation, ": block mask is ", describe(view), "; expected ", tiles_q, " x ",
                      tiles_kv, " at the last, tiles of ", shape.block_q, " x ", shape.block_kv,
                      " pairs of ", shape.seqlen_q, " x ", shape.seqlen_kv);
}

/// The tiles without their static type.
template <ExecutionSpace Exec, TensorLike T>
AnyTensor any_block_mask(T const& view) {
  check_tensor<Exec, T>();
  static_assert(std::is_same_v<element_t<T>, std::int8_t>, "attikos: a block mask is std::int8_t");
  static_assert(rank_of<T> >= 2 && rank_of<T> <= 4,
                "attikos: a block mask has rank 2, 3 or 4: [batch, heads, tiles_q, tiles_kv]");
  return any_tensor(view);
}

/// One team for each tile.
template <class Exec, class F>
struct MakeBlockMask {
  using Traits = TileTraits<Exec, float>;
  using Policy = Kokkos::TeamPolicy<Exec, Kokkos::Schedule<Kokkos::Dynamic>>;
  using Team = typename Policy::member_type;

  F predicate;
  BlockMaskShape shape;
  std::int8_t* tiles;
  std::int64_t heads, tiles_q, tiles_kv, stride[4];

  KOKKOS_INLINE_FUNCTION void operator()(Team const& team) const {
    std::int64_t rest = team.league_rank();
    std::int64_t const tj = rest % tiles_kv;
    rest /= tiles_kv;
    std::int64_t const ti = rest % tiles_q;
    rest /= tiles_q;
    std::int64_t const h = rest % heads, b = rest / heads;
    std::int64_t const i0 = ti * shape.block_q, j0 = tj * shape.block_kv;
    std::int64_t const rows = least(shape.block_q, shape.seqlen_q - i0);
    std::int64_t const cols = least(shape.block_kv, shape.seqlen_kv - j0);
    std::int64_t seen = 0;
    std::int64_t pairs = rows * cols;
    if constexpr (Traits::host) {
      // What the first pairs say of a tile that is partial is enough.
      std::int64_t asked = 0;
      for (; asked < pairs && (seen == 0 || seen == asked); ++asked)
        seen += predicate(b, h, i0 + asked / cols, j0 + asked % cols) ? 1 : 0;
      pairs = asked;
    } else {
      Kokkos::parallel_reduce(
          Kokkos::TeamVectorRange(team, pairs),
          [&](std::int64_t index, std::int64_t& count) {
            count += predicate(b, h, i0 + index / cols, j0 + index % cols) ? 1 : 0;
          },
          seen);
    }
    BlockKind const kind = seen == 0       ? BlockKind::empty
                           : seen == pairs ? BlockKind::full
                                           : BlockKind::partial;
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      tiles[b * stride[0] + h * stride[1] + ti * stride[2] + tj * stride[3]] =
          static_cast<std::int8_t>(kind);
    });
  }

 private:
  static KOKKOS_INLINE_FUNCTION std::int64_t least(std::int64_t a, std::int64_t b) {
    return a < b ? a : b;
  }
};

}  // namespace detail

/// Asks a predicate about all pairs and writes what it says of each tile: the mask that
/// attention() and attention_backward() take. It costs a call of the predicate for each pair of
/// each batch and head of `view` (fewer on a host), and holds for as many calls as the predicate's
/// answers stay what they are.
///
/// \param exec       execution space instance; the call is asynchronous on it and never fences
/// \param predicate  see block_mask()
/// \param view       std::int8_t, [batch, heads_q, tiles_q, tiles_kv]; where a leading extent is 1
///                   or left out, the predicate is asked with 0 and must not depend on it
/// \param shape      extents of the problem and of a tile: shape.tiles_q() and shape.tiles_kv() are
///                   the last extents of `view`
/// \return block_mask(view, predicate, shape), an extra argument of calls on `exec`
///
/// Any strides, zero extents. Throws ShapeError, StrideError, Error, UnsupportedError before
/// anything is launched. Source: the block masks of J. Dong et al., "Flex Attention",
/// arXiv:2412.05496.
template <ExecutionSpace Exec, class F, TensorLike T>
BlockMask<T, F> make_block_mask(Exec const& exec, F const& predicate, T const& view,
                                BlockMaskShape const& shape) {
  constexpr char const* operation = "make_block_mask";
  detail::check_writable(view);
  detail::AnyTensor const given = detail::any_block_mask<Exec>(view);
  detail::check_block_mask(operation, given, shape);
  detail::check_outputs(operation, {{"view", given}}, {});
  detail::AnyTensor const x = given.with_rank(4);
  using Kernel = detail::MakeBlockMask<Exec, F>;
  using Traits = typename Kernel::Traits;
  Kernel const kernel{predicate,
                      shape,
                      static_cast<std::int8_t*>(x.output()),
                      x.extent[1],
                      x.extent[2],
                      x.extent[3],
                      {x.stride[0], x.stride[1], x.stride[2], x.stride[3]}};
  std::int64_t const teams = x.extent[0] * x.extent[1] * x.extent[2] * x.extent[3];
  if (teams > 0)
    detail::launch(operation, "portable",
                   typename Kernel::Policy(exec, detail::checked_league(operation, teams),
                                           Traits::team_size, Traits::vector_length),
                   kernel);
  return {view, predicate, shape};
}

/// The same on an instance of the default execution space.
template <class F, TensorLike T>
BlockMask<T, F> make_block_mask(F const& predicate, T const& view, BlockMaskShape const& shape) {
  return make_block_mask(Kokkos::DefaultExecutionSpace{}, predicate, view, shape);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
