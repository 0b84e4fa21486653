// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What guide/concepts.md and guide/dispatch.md show, part
// by part; a test runs it.
#include <attikos/attikos.hpp>
#include <attikos/list_kernels.hpp>
#include <cstdio>
#include <cstdlib>

using Space = Kokkos::DefaultExecutionSpace;

void expect(bool truth, char const* what) {
  if (truth) return;
  std::printf("wrong: %s\n", what);
  std::exit(1);
}

void calls(Space const& exec) {
  Kokkos::View<float****> q("q", 2, 8, 64, 64),
      out("out", 2, 8, 64, 64);
  Kokkos::View<float***> lse("lse", 2, 8, 64);
  Kokkos::View<int*> lengths("lengths", 2);
  Kokkos::View<float**> mask("bias", 64, 64);
  Kokkos::deep_copy(lengths, 50);

  // [call]
  // Inputs, then outputs.
  attikos::attention(exec, q, q, q, out);
  // One output more.
  attikos::attention(exec, q, q, q, out, lse);
  // On the default execution space.
  attikos::attention(q, q, q, out);
  // [call]

  // [options]
  attikos::AttentionOptions options;
  options.causal = true;
  options.window_left = 16;
  attikos::attention(exec, q, q, q, out, options);
  // The same:
  attikos::attention(exec, q, q, q, out,
                     {.causal = true, .window_left = 16});
  // [options]

  // [extras]
  attikos::attention(exec, q, q, q, out, {.causal = true},
                     attikos::lengths(lengths),
                     attikos::bias(mask));
  // Lengths of the keys alone:
  attikos::attention(
      exec, q, q, q, out, {},
      attikos::lengths(attikos::none, lengths));
  // [extras]
  exec.fence();
}

void strides(Space const& exec) {
  // [strides]
  using Left =
      Kokkos::View<float****, Kokkos::LayoutLeft>;
  Left q("q", 2, 8, 64, 64);
  // The first 32 queries of each sequence.
  auto const all = Kokkos::ALL;
  auto const some =
      Kokkos::subview(q, all, all, std::pair(0, 32), all);
  // [batch, seqlen, heads, head_dim] with heads first:
  // the same memory.
  Kokkos::View<float****> heads_last("k", 2, 64, 8, 64);
  auto const k = attikos::heads_first(heads_last);
  Kokkos::View<float****> out("out", 2, 8, 32, 64);
  attikos::attention(exec, some, k, k, out);
  // [strides]
  exec.fence();
}

void errors(Space const& exec) {
  // [errors]
  Kokkos::View<float**> a("a", 512, 256),
      b("b", 512, 128), c("c", 512, 128);
  try {
    attikos::gemm(exec, a, b, c);
    expect(
        false,
        "a product whose extents do not fit was taken");
  } catch (attikos::ShapeError const& error) {
    std::printf("%s\n", error.what());
  }
  // [errors]
}

void workspace(Space const& exec) {
  Kokkos::View<float****> q("q", 1, 4, 64, 32),
      out("out", 1, 4, 64, 32);
  // [workspace]
  attikos::AttentionOptions const stored{
      .algorithm = attikos::AttentionAlgorithm::tiled};
  auto const bytes =
      attikos::attention_workspace_size(q, q, q, stored);
  Kokkos::View<char*> memory("memory", bytes);
  attikos::attention(exec, q, q, q, out, stored,
                     attikos::workspace(memory));
  // [workspace]
  exec.fence();
}

void mask_by_functor(Space const& exec) {
  Kokkos::View<double****> q("q", 1, 2, 20, 8),
      out("out", 1, 2, 20, 8);
  // [functor]
  // A key counts for a query only where both are even or
  // both are odd.
  using Index = std::int64_t;
  double const never =
      -Kokkos::Experimental::infinity_v<double>;
  auto const parity = KOKKOS_LAMBDA(
      double score, Index, Index, Index i, Index j) {
    return (i + j) % 2 == 0 ? score : never;
  };
  attikos::attention(exec, q, q, q, out, {},
                     attikos::score(parity));
  // [functor]
  exec.fence();
}

void mask_by_predicate(Space const& exec) {
  Kokkos::View<float****> q("q", 1, 2, 1000, 32),
      out("out", 1, 2, 1000, 32);
  // [block-mask]
  // Documents of 100 positions. One mask for all batches
  // and heads, in tiles of 128 queries by 128 keys.
  using Index = std::int64_t;
  auto const same_document =
      KOKKOS_LAMBDA(Index, Index, Index i, Index j) {
    return i / 100 == j / 100;
  };
  attikos::BlockMaskShape const shape{1000, 1000, 128,
                                      128};
  Kokkos::View<std::int8_t**> tiles(
      "tiles", shape.tiles_q(), shape.tiles_kv());
  auto const blocks = attikos::make_block_mask(
      exec, same_document, tiles, shape);
  attikos::attention(exec, q, q, q, out, {.causal = true},
                     blocks);
  // [block-mask]
  exec.fence();
}

void explained(Space const& exec) {
  Kokkos::View<float****> q("q", 1, 8, 64, 64),
      out("out", 1, 8, 64, 64);
  // [explain]
  attikos::Explanation const told = attikos::explain(
      attikos::op::attention, exec, q, q, q, out);
  std::printf("%s\n", told.to_string().c_str());
  // [explain]
  expect(!told.kernel.empty(), "explain names no kernel");
  bool listed = false;
  // [list-kernels]
  // All that attention() may run in this build.
  for (attikos::KernelInfo const& kernel :
       attikos::list_kernels(attikos::op::attention)) {
    std::printf("%s: %s\n", kernel.name.c_str(),
                kernel.description.c_str());
    listed = listed || kernel.name == told.kernel;
  }
  // [list-kernels]
  expect(listed, "list_kernels() lacks what is run");
  // [demand]
  // This kernel or an error:
  attikos::attention(exec, q, q, q, out,
                     {.kernel = "portable/flash"});
  // [demand]
  exec.fence();
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  calls(exec);
  strides(exec);
  workspace(exec);
  mask_by_functor(exec);
  mask_by_predicate(exec);
  explained(exec);
  errors(exec);
  std::printf("all parts ran\n");
}
