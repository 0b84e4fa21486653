// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that the kernels of attention/sm90_wgmma_* come in. plan.cuh says which call takes
/// which, params.cuh what follows from a shape. Kernels' symbols carry the shapes' names, and so
/// does ptxas_allowances.txt.
#pragma once

#include <cstdint>

#include "common/schedule.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace sm90_attention_shapes {

/// What scores are beside scale·q·k with a positive scale.
enum class Scores : std::uint8_t {
  products,  ///< nothing else
  terms,     ///< with any terms; a second set of weights has no registers beside a third warpgroup
  softcap,   ///< terms but a bias; weights come straight from products where softcap is all
  bias,      ///< and a bias, which the copy engine brings
  columns    ///< and ALiBi or a bias that all queries share: see score_columns.cuh
};

/// Head dimensions up to `D` of queries and keys and `Dv` of values, tiles of `Queries` queries,
/// 64 for each consumer warpgroup, blocks of `Keys` keys.
template <int D, int Dv, int Queries, int Keys, Schedule Order, Scores Kind = Scores::products>
struct Shape {
  static constexpr int d = D, dv = Dv, queries = Queries, keys = Keys;
  static constexpr Schedule schedule = Order;
  static constexpr Scores scores = Kind;
};

constexpr Schedule turns = Schedule::ping_pong, together = Schedule::cooperative;

// Figures: TFLOP/s from <H200 700 W, CUDA 13.0, 16384 tokens, heads × head_dim 2048>, in full
// attention of sequences of these lengths, and what else was tried.

// clang-format off
// 16 bits, figures of bfloat16:
//                           d   dv queries keys  order    scores             512 2048 16384
struct D32        : Shape<  32,  32,  128, 128, turns>                     {}; // 204  253  267
struct D32Wide    : Shape<  32,  32,  192, 128, turns>                     {}; // 227  295  318
struct D64        : Shape<  64,  64,  128, 128, turns>                     {}; //      445  469
struct D64Wide    : Shape<  64,  64,  192, 128, turns>                     {}; //      468  495
struct D64Columns : Shape<  64,  64,  192, 128, turns,    Scores::columns> {};
struct D64Bias    : Shape<  64,  64,  192, 128, turns,    Scores::bias>    {};
struct D64Softcap : Shape<  64,  64,  128, 128, turns,    Scores::softcap> {};
struct D64Terms   : Shape<  64,  64,  128, 128, turns,    Scores::terms>   {};
struct D96        : Shape<  96,  96,  128, 128, turns>                     {};
struct D128       : Shape< 128, 128,  128, 128, turns>                     {}; // (1)
struct D128Columns: Shape< 128, 128,  128, 128, turns,    Scores::columns> {};
struct D128Bias   : Shape< 128, 128,  128, 128, turns,    Scores::bias>    {};
struct D128Softcap: Shape< 128, 128,  128, 128, turns,    Scores::softcap> {};
struct D128Terms  : Shape< 128, 128,  128, 128, turns,    Scores::terms>   {};
struct D192V128   : Shape< 192, 128,  128, 128, turns>                     {}; // (2)      726
struct D64V256    : Shape<  64, 256,  128,  64, turns>                     {}; // (3)      695
struct D192       : Shape< 192, 192,  128,  96, turns>                     {};
struct D256       : Shape< 256, 256,  128,  64, together>                  {}; // 543 (4)
struct D256Columns: Shape< 256, 256,  128,  64, together, Scores::columns> {};
struct D256Bias   : Shape< 256, 256,  128,  64, together, Scores::bias>    {};
struct D256Softcap: Shape< 256, 256,  128,  64, turns,    Scores::softcap> {};
struct D256Terms  : Shape< 256, 256,  128,  64, together, Scores::terms>   {};
// D32 and D32Wide under a causal mask: 135, 220 and 265; 120, 234 and 306. D64 and D64Wide: at
// 1024, 427 and 405; causal at 4096, 437 and 429; at 16384 with a window of 1024, whose keys a tile
// of 192 queries covers less well, 411 and 400.
// (1) With blocks of 160 and 176 keys no more below length 4096; 160 leave no registers for a
//     second set of weights.
// (2) At 1024, 4096 and 16384, 655, 714 and 726; as D192, 585, 650 and 643; with blocks of 112
//     keys, 618, 711 and 721.
// (3) At the same, 619, 711 and 695; as D256, 389, 454 and 479.
// (4) With blocks of 80 keys, 521; causal, 347 and 325.

// 8 bits, figures of float8_e4m3:
//                              d   dv queries keys  order    scores           512 2048 16384
struct D32WideBytes  : Shape<  32,  32,  192, 128, turns>                   {}; // 203  261  307 (1)
struct D64WideBytes  : Shape<  64,  64,  192, 128, turns>                   {}; //           610 (2)
struct D64Bytes      : Shape<  64,  64,  128, 192, together>                {}; //           509 (3)
struct D64TermsBytes : Shape<  64,  64,  128, 128, turns,    Scores::terms> {};
struct D96Bytes      : Shape<  96,  96,  128, 192, together>                {}; // 420  614  752 (4)
struct D128Bytes     : Shape< 128, 128,  128, 192, together>                {}; //           852 (5)
struct D128TermsBytes: Shape< 128, 128,  128, 128, turns,    Scores::terms> {};
struct D192V128Bytes : Shape< 192, 128,  128, 160, turns>                   {}; // 495  845  930 (6)
struct D64V256Bytes  : Shape<  64, 256,  128, 128, together>                {}; // 491  749  790 (7)
struct D192Bytes     : Shape< 192, 192,  128, 128, together>                {}; // 640  918  985 (8)
struct D256Bytes     : Shape< 256, 256,  128, 128, together>                {};
struct D256TermsBytes: Shape< 256, 256,  128,  64, turns,    Scores::terms> {};
// (1) As D64WideBytes, 198, 250 and 291.
// (2) Not in turns, 560.
// (3) With blocks of 128 and 160 keys, 462 and 486. Few queries fill it with several heads.
// (4) As D128Bytes, 402, 571 and 644; with blocks of 160 keys, 382, 599 and 665.
// (5) With blocks of 128 and 160 keys, 793 and 830; in turns, with 128, 160 and 192, 780, 817, 843.
// (6), (7), (8) As D256Bytes, 468, 654 and 689; 461, 658 and 675; 568, 795 and 801.
// clang-format on

}  // namespace sm90_attention_shapes
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
