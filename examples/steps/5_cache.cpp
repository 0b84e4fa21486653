// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Step 5: generation, token by token, against a cache of pages that sequences take as they grow.
#include <attikos/attikos.hpp>
#include <cstdio>

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Kokkos::DefaultExecutionSpace const exec;
  constexpr int batch = 2, heads = 8, heads_kv = 2, head_dim = 64;
  constexpr int page_size = 16, pages = 8, pages_each = 4, steps = 40;
  using Tensor = Kokkos::View<float****>;
  Tensor k_pages("k", pages, heads_kv, page_size, head_dim),
      v_pages("v", pages, heads_kv, page_size, head_dim);
  Tensor k_new("k_new", batch, heads_kv, 1, head_dim), v_new("v_new", batch, heads_kv, 1, head_dim);
  Tensor q("q", batch, heads, 1, head_dim), out("out", batch, heads, 1, head_dim);
  Kokkos::View<int**> table("table", batch, pages_each);  // the pages of each sequence
  Kokkos::View<int*> used("used", batch);                 // positions of the cache in use
  Kokkos::parallel_for(
      "pages", Kokkos::RangePolicy(exec, 0, batch * pages_each),
      // Pages that lie apart, to show that they may.
      KOKKOS_LAMBDA(int i) { table(i % batch, i / batch) = pages - 1 - i; });

  auto const cache = attikos::paged(table, page_size);
  for (int step = 0; step < steps; ++step) {
    // What a model computes from the last token.
    Kokkos::deep_copy(exec, k_new, 0.0f);
    Kokkos::deep_copy(exec, v_new, static_cast<float>(step));
    attikos::append_kv(exec, k_new, v_new, k_pages, v_pages, {}, attikos::cache_lengths(used),
                       cache);
    Kokkos::parallel_for(
        "grow", Kokkos::RangePolicy(exec, 0, batch), KOKKOS_LAMBDA(int b) { ++used(b); });
    attikos::decode(exec, q, k_pages, v_pages, out, {}, attikos::lengths(attikos::none, used),
                    cache);
  }
  exec.fence();

  // All keys are alike: the mean of values 0 … 39.
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), out);
  std::printf("after %d tokens: %.4f\n", steps, double(host(1, 7, 0, 0)));
}
