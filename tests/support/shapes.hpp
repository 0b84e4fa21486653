// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Shape tables: nothing, one, primes, one less and one more than any tile a kernel may use.
#pragma once

#include <array>
#include <cstdint>

namespace attikos::test {

struct MatrixShape {
  std::int64_t m, n, k;
};

/// Small shapes, every one of which meets every layout.
inline constexpr std::array small_matrices{
    MatrixShape{1, 1, 1},   MatrixShape{7, 5, 3},    MatrixShape{1, 37, 19},
    MatrixShape{23, 1, 11}, MatrixShape{13, 17, 33}, MatrixShape{16, 16, 16},
};

/// Shapes around the edges of tiles (6, 12, 14, 16, 32, 64, 128, 256), primes, long and flat ones.
inline constexpr std::array edge_matrices{
    MatrixShape{11, 13, 15},   MatrixShape{12, 14, 16},   MatrixShape{13, 15, 17},
    MatrixShape{31, 63, 127},  MatrixShape{32, 64, 128},  MatrixShape{33, 65, 129},
    MatrixShape{63, 31, 255},  MatrixShape{65, 33, 257},  MatrixShape{127, 129, 31},
    MatrixShape{128, 128, 64}, MatrixShape{129, 127, 65}, MatrixShape{255, 17, 5},
    MatrixShape{257, 33, 3},   MatrixShape{5, 257, 2},    MatrixShape{3, 255, 1},
    MatrixShape{1, 1, 1031},   MatrixShape{2, 3, 769},    MatrixShape{101, 97, 89},
};

/// Anything may be empty.
inline constexpr std::array empty_matrices{
    MatrixShape{0, 5, 3}, MatrixShape{5, 0, 3}, MatrixShape{5, 3, 0},
    MatrixShape{0, 0, 0}, MatrixShape{1, 1, 0}, MatrixShape{0, 0, 7},
};

struct AttentionShape {
  std::int64_t batch, heads_q, heads_kv, seqlen_q, seqlen_kv, d, dv;
};

inline constexpr std::array attention_shapes{
    AttentionShape{1, 1, 1, 1, 1, 1, 1},        AttentionShape{2, 1, 1, 1, 65, 3, 5},
    AttentionShape{1, 4, 2, 17, 13, 8, 8},      AttentionShape{2, 3, 1, 5, 129, 16, 16},
    AttentionShape{1, 2, 2, 33, 31, 31, 33},    AttentionShape{1, 2, 1, 64, 64, 64, 64},
    AttentionShape{1, 1, 1, 63, 257, 64, 32},   AttentionShape{1, 6, 2, 15, 127, 80, 80},
    AttentionShape{1, 1, 1, 65, 128, 128, 128}, AttentionShape{1, 2, 1, 9, 67, 200, 72},
    AttentionShape{1, 1, 1, 128, 7, 16, 24},    AttentionShape{3, 1, 1, 2, 1, 48, 1},
    AttentionShape{1, 1, 1, 3, 1031, 40, 40},
};

/// B, heads, queries, keys, d or dv may be 0.
inline constexpr std::array empty_attention_shapes{
    AttentionShape{0, 2, 1, 5, 7, 8, 8}, AttentionShape{2, 0, 0, 5, 7, 8, 8},
    AttentionShape{2, 2, 1, 0, 7, 8, 8}, AttentionShape{2, 2, 1, 5, 0, 8, 8},
    AttentionShape{1, 2, 2, 5, 7, 8, 0}, AttentionShape{0, 0, 0, 0, 0, 8, 0},
};

/// Row lengths for the row-wise operations.
inline constexpr std::array<std::int64_t, 16> row_lengths{1,  2,  3,  7,   15,  16,  17,  31,
                                                          33, 64, 65, 127, 129, 257, 384, 1031};

}  // namespace attikos::test
