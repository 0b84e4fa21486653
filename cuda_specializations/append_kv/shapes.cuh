// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The shapes that the kernels of append_kv/sm80_simt come in, and their blocks. Kernels' symbols
/// carry the shapes' names.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

/// Threads of a block.
constexpr int append_kv_threads = 256;

namespace append_kv_shapes {

/// Elements that a thread moves at once, which a rotated or converted row has in groups: 16 bytes,
/// at most 4, since each takes four entries of the tables into registers. `Heads`, of which the
/// loads are under way together: more cost registers, and so blocks. `ItemHeads`: for as many heads
/// a token is found, and entries of the tables read, once, where that leaves threads enough.
template <int Group, int Heads, int ItemHeads>
struct Shape {
  static constexpr int group = Group, heads = Heads, item_heads = ItemHeads;
};

// Figures: µs from <H200 700 W, CUDA 13.0, bfloat16, 131072 rows of keys and of values, head_dim
// 128>.

// clang-format off
//                   group heads item heads
struct Copied  : Shape<1, 2, 2> {}; // 35.7; with 4 heads of an item, 36.2. A group is its element
struct Fours   : Shape<4, 2, 8> {}; // rotated 41.8; with 4 heads of an item, 43.5
struct Pairs   : Shape<2, 2, 8> {}; // of float64
struct Singles : Shape<1, 2, 8> {}; // of any alignment
// clang-format on

}  // namespace append_kv_shapes
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
