// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Step 8: a mask by a predicate, with tiles that tell where it need not be asked: what no query of
// a tile sees is left out, forward and backward.
#include <attikos/attikos.hpp>
#include <cstdint>
#include <cstdio>

/// Keys of the query's own document, up to the query itself.
struct SameDocument {
  Kokkos::View<int const*> document;  // of every position

  KOKKOS_FUNCTION bool operator()(std::int64_t, std::int64_t, std::int64_t i,
                                  std::int64_t j) const {
    return j <= i && document(i) == document(j);
  }
};

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Kokkos::DefaultExecutionSpace const exec;
  constexpr int heads = 4, seqlen = 1024, head_dim = 32, length = 100;  // of a document
  using Tensor = Kokkos::View<float****>;
  Tensor q("q", 1, heads, seqlen, head_dim), k("k", 1, heads, seqlen, head_dim),
      v("v", 1, heads, seqlen, head_dim), out("out", 1, heads, seqlen, head_dim);
  Tensor dq("dq", 1, heads, seqlen, head_dim), dk("dk", 1, heads, seqlen, head_dim),
      dv("dv", 1, heads, seqlen, head_dim);
  Kokkos::View<float***> lse("lse", 1, heads, seqlen);
  Kokkos::View<int*> document("document", seqlen);
  Kokkos::parallel_for(
      "documents", Kokkos::RangePolicy(exec, 0, seqlen), KOKKOS_LAMBDA(int s) {
        document(s) = s / length;
        for (int h = 0; h < heads; ++h)
          for (int c = 0; c < head_dim; ++c) v(0, h, s, c) = static_cast<float>(document(s));
      });

  // One mask for all batches and heads, in tiles of 64 queries by 64 keys; kernels have tiles of
  // their own. It serves as many calls as the documents stay where they are.
  attikos::BlockMaskShape const shape{seqlen, seqlen, 64, 64};
  Kokkos::View<std::int8_t**> tiles("tiles", shape.tiles_q(), shape.tiles_kv());
  auto const blocks = attikos::make_block_mask(exec, SameDocument{document}, tiles, shape);
  attikos::attention(exec, q, k, v, out, lse, {}, blocks);
  attikos::attention_backward(exec, q, k, v, out, lse, out, dq, dk, dv, {}, blocks);
  exec.fence();

  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
  auto const kinds = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), tiles);
  int left = 0;
  for (std::size_t i = 0; i < kinds.extent(0); ++i)
    for (std::size_t j = 0; j < kinds.extent(1); ++j)
      left += kinds(i, j) != static_cast<std::int8_t>(attikos::BlockKind::empty) ? 1 : 0;
  std::printf("documents of positions 0, 440, 1023: %g, %g, %g; %d of %zu tiles are looked at\n",
              double(host(0, 0, 0, 0)), double(host(0, 1, 440, 0)), double(host(0, 3, 1023, 0)),
              left, kinds.size());
}
