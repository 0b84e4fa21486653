// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-gemm.md shows of packed weights and
// of tiles, part by part; a test runs it.
#include <attikos/attikos.hpp>
#include <attikos/gemm/autotune_gemm.hpp>
#include <filesystem>
#include <vector>

#include "common.hpp"

using Matrix = Kokkos::View<float**>;
using Host = Kokkos::DefaultHostExecutionSpace;
using Element = attikos::bfloat16;
using HostMatrix =
    Kokkos::View<Element**, Kokkos::LayoutRight,
                 Kokkos::HostSpace>;

void pack_b() {
  auto const weights = random<HostMatrix>(96, 64),
             x = random<HostMatrix>(8, 64);
  HostMatrix y("y", 8, 96), z("z", 8, 96);
  // [pack_b]
  // Weights of a layer, packed once for all its calls on
  // a host, into memory that the result owns …
  attikos::PackBOptions const options{.trans_b = true};
  auto const packed =
      attikos::pack_b(Host(), weights, options);
  attikos::gemm(Host(), x, packed, y, {.trans_b = true});

  // … or into memory of your own, which must stay.
  Kokkos::View<std::byte*, Kokkos::HostSpace> memory(
      "memory", attikos::pack_b_size(weights, options));
  auto const again =
      attikos::pack_b(Host(), weights, memory, options);
  // [pack_b]
  attikos::gemm(Host(), x, weights, z, {.trans_b = true});
  Host().fence();
  for (int i = 0; i < 8; ++i)
    for (int j = 0; j < 96; ++j)
      expect(float(y(i, j)) == float(z(i, j)),
             "the same bits with a packed factor");
  attikos::gemm(Host(), x, again, z, {.trans_b = true});
  Host().fence();
  expect(float(y(7, 95)) == float(z(7, 95)),
         "the same bits with memory of one's own");

  // A file that an earlier run of this program wrote.
  attikos::PackedLayout const in_file = packed.layout;
  auto const* const mapped = packed.memory.data();
  // [stored]
  // Packed weights in a file, with their layout, serve
  // all processes in which pack_b() would do the same;
  // others pack again. A mapped file is aligned as is
  // wanted here.
  auto const wanted = attikos::packed_b_layout<Element>(
      attikos::host_isa(), 64, 96, true);
  bool const fits =
      in_file == wanted &&
      reinterpret_cast<std::uintptr_t>(mapped) %
              attikos::packed_b_alignment ==
          0;
  using Packed = attikos::PackedB<Element>;
  Packed const loaded =
      fits ? Packed{Packed::Memory(mapped, in_file.bytes),
                    in_file}
           : attikos::pack_b(Host(), weights, options);
  // Where no instruction wants them in another order, a
  // file is but a copy of the weights.
  bool const worth_a_file =
      wanted.form != attikos::PackedForm::plain;
  // [stored]
  expect(fits, "what this process packed fits it");
  expect(worth_a_file, "bfloat16 lies in panels");
  attikos::gemm(Host(), x, loaded, z, {.trans_b = true});
  Host().fence();
  expect(float(y(7, 95)) == float(z(7, 95)),
         "the same bits with a packed file");
}

void tiles(Space const& exec) {
  auto const a = random<Matrix>(200, 150),
             b = random<Matrix>(150, 100);
  Matrix c("c", 200, 100), d("d", 200, 100);
  attikos::gemm(exec, a, b, d);
  // [tiles]
  // The tile that a call takes, and the call with
  // another: 0 leaves an extent to the library. Bits stay
  // the same.
  attikos::tune::TileConfig tile =
      attikos::gemm_tile(exec, a, b, c);
  std::printf("%s\n", to_string(tile).c_str());
  tile.tile_m = tile.tile_n = 0;
  attikos::gemm(exec, a, b, c,
                attikos::with_tile({}, tile));
  // [tiles]
  expect(on_host(c)(190, 90) == on_host(d)(190, 90),
         "the same bits with another tile");

  auto const file =
      std::filesystem::temp_directory_path() /
      ("attikos_docs_tiles." +
       std::to_string(std::random_device{}()));
  // [autotune]
  // The fastest tile on this machine: measured once, then
  // found in a file, which many processes may share.
  attikos::tune::TileCache cache(file);
  auto const best =
      attikos::autotune_gemm(exec, a, b, c, {}, cache);
  cache.save();
  attikos::gemm(exec, a, b, c,
                attikos::with_tile({}, best));
  // [autotune]
  attikos::tune::TileCache const reread(file);
  expect(reread.size() == 1, "one tile in the file");
  expect(on_host(c)(190, 90) == on_host(d)(190, 90),
         "the same bits with the best tile");
  std::filesystem::remove(file);
}

void transpose(Space const& exec, Matrix const& x,
               Matrix const& y,
               attikos::tune::TileConfig const& tile) {
  int const m = int(x.extent(0)), n = int(x.extent(1));
  int const tile_m = tile.tile_m, tile_n = tile.tile_n;
  int const rows = (m + tile_m - 1) / tile_m,
            columns = (n + tile_n - 1) / tile_n;
  Kokkos::parallel_for(
      "transpose",
      Kokkos::RangePolicy(exec, 0, rows * columns),
      KOKKOS_LAMBDA(int at) {
        int const i0 = at / columns * tile_m,
                  j0 = at % columns * tile_n;
        for (int i = i0; i < i0 + tile_m && i < m; ++i)
          for (int j = j0; j < j0 + tile_n && j < n; ++j)
            y(j, i) = x(i, j);
      });
}

void tiles_of_ones_own(Space const& exec) {
  constexpr int m = 300, n = 200;
  auto const x = random<Matrix>(m, n);
  Matrix y("y", n, m);
  // [own-tiles]
  // A kernel of one's own, transpose(exec, x, y, tile),
  // by the same cache. What the best tile may depend on
  // is the key; tiles that are refused are left out.
  using namespace attikos::tune;
  TileCache cache;  // in memory alone, without a file
  TileKey const key =
      make_key(exec, "transpose", "float", 1, m, n, 1);
  TileConfig const automatic{32, 32, 1};
  std::vector<TileConfig> candidates;
  for (int width : {0, 8, 16, 1024})
    candidates.push_back(
        completed({width, width, 0}, automatic));
  TileLimits const limits{.m = m,
                          .n = n,
                          .k = 1,
                          .multiple_m = 8,
                          .multiple_n = 8};
  auto const bytes = [](TileConfig const&) {
    return std::size_t(0);  // of scratch memory
  };
  auto const best = autotune(
      exec, cache, key, candidates,
      [&](TileConfig const& tile) {
        check_tile("transpose", tile, limits, bytes);
        transpose(exec, x, y, tile);
      });
  // [own-tiles]
  exec.fence();
  expect(best.tile_m <= 32, "1024 is beyond the matrix");
  expect(on_host(y)(150, 250) == on_host(x)(250, 150),
         "a transposed element");

  // [tile-entries]
  // What was measured, or what is known from elsewhere.
  TileEntry const measured = *cache.lookup(key);
  std::printf("%s: %.3g µs\n",
              to_string(measured.tile).c_str(),
              measured.seconds * 1e6);
  cache.store(key, {automatic, 1e-6});
  // [tile-entries]
  expect(measured.tile == best, "what was measured");
  expect(cache.lookup(key)->tile == automatic,
         "what was stored");
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  pack_b();
  tiles(exec);
  tiles_of_ones_own(exec);
  std::printf("all parts ran\n");
}
