// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-decode.md shows, part by part; a
// test runs it.
#include <attikos/attikos.hpp>

#include "common.hpp"

using View5 = Kokkos::View<float*****>;
using View4 = Kokkos::View<float****>;
using View3 = Kokkos::View<float***>;
using Matrix = Kokkos::View<float**>;
using Indices = Kokkos::View<int*>;
using Strided3 =
    Kokkos::View<float***, Kokkos::LayoutStride>;
using Strided4 =
    Kokkos::View<float****, Kokkos::LayoutStride>;

constexpr int heads = 8, heads_kv = 2, features = 64;

void decode(Space const& exec) {
  constexpr int pages = 12, page_size = 16;
  // [decode]
  // A paged cache of three sequences: append a token to
  // each, then attend to all of them.
  View4 k_cache("k", pages, heads_kv, page_size,
                features),
      v_cache("v", pages, heads_kv, page_size, features);
  Kokkos::View<int**> table("table", 3,
                            4);  // their pages
  Kokkos::parallel_for(
      Kokkos::RangePolicy(exec, 0, pages),
      KOKKOS_LAMBDA(int i) { table(i / 4, i % 4) = i; });
  auto const used = list<Indices>({17, 0, 40}),
             after = list<Indices>({18, 1, 41});
  auto const k_new =
                 random<View4>(3, heads_kv, 1, features),
             v_new =
                 random<View4>(3, heads_kv, 1, features);
  auto const pages_of = attikos::paged(table, page_size);
  attikos::append_kv(exec, k_new, v_new, k_cache, v_cache,
                     {}, attikos::cache_lengths(used),
                     pages_of);

  auto const q = random<View4>(3, heads, 1, features);
  View4 out("out", 3, heads, 1, features);
  attikos::decode(exec, q, k_cache, v_cache, out, {},
                  pages_of,
                  attikos::lengths(attikos::none, after));
  // [decode]
  expect_near(on_host(out)(1, 5, 0, 9),
              on_host(v_new)(1, 1, 0, 9), 1e-6,
              "attention to a single token");
}

void packed_queries(Space const& exec) {
  auto const k = random<View4>(3, heads_kv, 128,
                               features),
             v = random<View4>(3, heads_kv, 128,
                               features);
  auto const q = random<View3>(heads, 7, features);
  View3 out("out", heads, 7, features);
  // [packed-queries]
  // 4, 1 and 2 queries of three sequences, such as a
  // chunk of a prompt beside tokens: [heads, 7,
  // features]. The last queries stand at the ends of what
  // is cached.
  auto const begins = list<Indices>({0, 4, 5, 7});
  auto const cached = list<Indices>({4, 100, 77});
  attikos::decode(
      exec, q, k, v, out, {.causal = true},
      attikos::cu_seqlens(begins, attikos::none),
      attikos::lengths(attikos::none, cached));
  // [packed-queries]
  expect_near(on_host(out)(5, 0, 9),
              on_host(v)(0, 1, 0, 9), 1e-6,
              "the first query of a prompt");

  // Sequence 1 by itself.
  Strided4 const one(
      q.data() + 4 * features,
      Kokkos::LayoutStride(1, 0, heads, 7 * features, 1,
                           0, features, 1));
  View4 out_one("out_one", 1, heads, 1, features);
  auto const all = Kokkos::ALL;
  auto const some = std::pair(1, 2),
             keys = std::pair(0, 100);
  attikos::attention(
      exec, one, Kokkos::subview(k, some, all, keys, all),
      Kokkos::subview(v, some, all, keys, all), out_one);
  expect_near(on_host(out)(5, 4, 9),
              on_host(out_one)(0, 5, 0, 9), 1e-5,
              "a query of a sequence by itself");
}

void same_bits(Space const& exec) {
  auto const k = random<View4>(3, heads_kv, 512,
                               features),
             v = random<View4>(3, heads_kv, 512,
                               features),
             q = random<View4>(3, heads, 1, features);
  View4 out("out", 3, heads, 1, features);
  // [same-bits]
  // Bits that do not depend on what else is in the batch,
  // so that a sequence can be replayed by itself.
  attikos::DecodeOptions const options{
      .determinism =
          attikos::Determinism::batch_invariant};
  Kokkos::View<char*> memory(
      "memory", attikos::decode_workspace_size(
                    exec, q, k, v, options));
  attikos::decode(exec, q, k, v, out, options,
                  attikos::workspace(memory));
  // [same-bits]
  View4 alone("alone", 1, heads, 1, features);
  auto const all = Kokkos::ALL;
  auto const last = std::pair(2, 3);
  attikos::decode(exec,
                  Kokkos::subview(q, last, all, all, all),
                  Kokkos::subview(k, last, all, all, all),
                  Kokkos::subview(v, last, all, all, all),
                  alone, options);
  expect(on_host(out)(2, 3, 0, 4) ==
             on_host(alone)(0, 3, 0, 4),
         "the same bits in a batch of one");
}

void shared_prefix(Space const& exec) {
  constexpr int batch = 4, prefix = 100;
  auto const q = random<View4>(batch, heads, 1, features);
  auto const k_all = random<View4>(1, heads_kv, prefix,
                                   features),
             v_all = random<View4>(1, heads_kv, prefix,
                                   features);
  auto const k_own = random<View4>(batch, heads_kv, 20,
                                   features),
             v_own = random<View4>(batch, heads_kv, 20,
                                   features);
  // [shared-prefix]
  // Sequences that begin alike: their queries together
  // read the keys of the prefix once, then each its own.
  // [batch, heads, 1, d] seen as [1, heads, batch, d]:
  auto const folded = [](View4 const& x) {
    return Strided4(x.data(),
                    Kokkos::LayoutStride(
                        1, 0, heads, features, batch,
                        heads * features, features, 1));
  };
  View4 out_all("out_all", batch, heads, 1, features),
      out("out", batch, heads, 1, features);
  View3 lse_all("lse_all", batch, heads, 1),
      lse("lse", batch, heads, 1);
  Strided3 const folded_lse(
      lse_all.data(),
      Kokkos::LayoutStride(1, 0, heads, 1, batch, heads));
  attikos::attention(exec, folded(q), k_all, v_all,
                     folded(out_all), folded_lse);
  attikos::decode(exec, q, k_own, v_own, out, lse);
  // In place; log-sum-exps say what each part weighs.
  attikos::merge_states(exec, out_all, lse_all, out, lse,
                        out, lse);
  // [shared-prefix]

  View4 k("k", 1, heads_kv, prefix + 20, features),
      v("v", 1, heads_kv, prefix + 20, features),
      whole("whole", 1, heads, 1, features);
  auto const all = Kokkos::ALL;
  auto const second = std::pair(1, 2);
  auto const begin = std::pair(0, prefix),
             end = std::pair(prefix, prefix + 20);
  auto const join = [&](View4 const& to,
                        View4 const& first,
                        View4 const& own) {
    Kokkos::deep_copy(
        Kokkos::subview(to, all, all, begin, all), first);
    Kokkos::deep_copy(
        Kokkos::subview(to, all, all, end, all),
        Kokkos::subview(own, second, all, all, all));
  };
  join(k, k_all, k_own);
  join(v, v_all, v_own);
  attikos::decode(
      exec, Kokkos::subview(q, second, all, all, all), k,
      v, whole);
  expect_near(on_host(out)(1, 6, 0, 3),
              on_host(whole)(0, 6, 0, 3), 1e-5,
              "attention over both parts");
}

void merged_parts(Space const& exec) {
  constexpr int parts = 4, keys = 64;
  auto const q = random<View4>(2, heads, 1, features),
             k = random<View4>(2, heads_kv, parts * keys,
                               features),
             v = random<View4>(2, heads_kv, parts * keys,
                               features);
  // [merge-states]
  // A cache in several parts, of other processes say: any
  // number of results along dimension 0, merged at once.
  View5 outs("outs", parts, 2, heads, 1, features);
  View4 lses("lses", parts, 2, heads, 1);
  auto const all = Kokkos::ALL;
  for (int p = 0; p < parts; ++p) {
    auto const part = std::pair(p * keys, (p + 1) * keys);
    attikos::decode(
        exec, q, Kokkos::subview(k, all, all, part, all),
        Kokkos::subview(v, all, all, part, all),
        Kokkos::subview(outs, p, all, all, all, all),
        Kokkos::subview(lses, p, all, all, all));
  }
  View4 out("out", 2, heads, 1, features);
  attikos::merge_states(exec, outs, lses, out);
  // [merge-states]
  View4 whole("whole", 2, heads, 1, features);
  attikos::decode(exec, q, k, v, whole);
  expect_same(out, whole, 1e-5,
              "attention over all parts");
}

void append(Space const& exec) {
  auto const k_new =
                 random<View4>(2, heads_kv, 3, features),
             v_new =
                 random<View4>(2, heads_kv, 3, features),
             q = random<View4>(2, heads, 3, features);
  auto const cos = random<Matrix>(64, features),
             sin = random<Matrix>(64, features);
  View4 k_cache("k", 2, heads_kv, 64, features),
      v_cache("v", 2, heads_kv, 64, features),
      q_turned("q_turned", 2, heads, 3, features);
  // [append]
  // Up to 3 new tokens a sequence, here 3 and 1. Keys are
  // rotated by their positions on the way into the cache,
  // and the queries with them.
  auto const used = list<Indices>({10, 40}),
             fresh = list<Indices>({3, 1});
  attikos::AppendKvOptions const options{
      .style = attikos::RopeStyle::half_split};
  attikos::append_kv(exec, k_new, v_new, k_cache, v_cache,
                     options,
                     attikos::cache_lengths(used),
                     attikos::new_lengths(fresh),
                     attikos::rotary(cos, sin),
                     attikos::queries(q, q_turned));
  // [append]
  auto const x = on_host(k_new), y = on_host(k_cache);
  auto const c = on_host(cos), s = on_host(sin);
  expect_near(y(1, 1, 40, 5),
              x(1, 1, 0, 5) * c(40, 5) -
                  x(1, 1, 0, 37) * s(40, 5),
              1e-6, "a rotated key");
  expect(y(1, 1, 41, 5) == 0, "a token that is not new");
  auto const from = on_host(q), to = on_host(q_turned);
  expect_near(to(0, 7, 2, 5),
              from(0, 7, 2, 5) * c(12, 5) -
                  from(0, 7, 2, 37) * s(12, 5),
              1e-6, "a rotated query");

  // [append-validate]
  // What does not fit into the cache is left out. This
  // reads the lengths and says of whom, where that
  // matters more than waiting for the device.
  auto const nearly = list<Indices>({10, 62});
  bool refused = false;
  try {
    attikos::validate_append_kv(
        exec, k_new, k_cache,
        attikos::cache_lengths(nearly));
  } catch (attikos::ShapeError const& error) {
    refused = true;  // 62 and 3 more are beyond 64
    std::printf("%s\n", error.what());
  }
  // [append-validate]
  expect(refused, "a cache that is too small is refused");
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  decode(exec);
  packed_queries(exec);
  same_bits(exec);
  shared_prefix(exec);
  merged_parts(exec);
  append(exec);
  std::printf("all parts ran\n");
}
