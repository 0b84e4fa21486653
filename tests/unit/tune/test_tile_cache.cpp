// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Tiles: what is refused, and a cache file that survives damage, other devices and other writers.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <atomic>
#include <attikos/tune/autotune.hpp>
#include <attikos/tune/tile_cache.hpp>
#include <attikos/tune/tile_config.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/messages.hpp"

namespace attikos::tune_test {
namespace {

using namespace attikos::tune;
namespace fs = std::filesystem;
using Exec = Kokkos::DefaultExecutionSpace;

TileKey key_of(std::int64_t m, std::string device = "Device") {
  TileKey key;
  key.device = std::move(device);
  key.execution_space = "Space";
  key.operation = "gemm";
  key.types = "float32, float32, float32";
  key.m = m;
  key.n = 200;
  key.k = 300;
  return key;
}

/// A folder of its own for each test.
class TileCacheFile : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("attikos_test" + attikos::tune::detail::unique_suffix());
    fs::create_directories(folder_);
    file = folder_ / "tiles.txt";
  }
  void TearDown() override {
    // Whatever happened, no temporary file stays.
    for (auto const& entry : fs::recursive_directory_iterator(folder_))
      EXPECT_EQ(entry.path().filename().string().find(".tmp."), std::string::npos) << entry.path();
    fs::remove_all(folder_);
  }
  std::string read() const {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void write(std::string const& text) const { std::ofstream(file, std::ios::binary) << text; }
  /// A file with three entries.
  void write_three() const {
    TileCache cache(file);
    for (int i = 1; i <= 3; ++i) cache.store(key_of(i), {{16 * i, 32 * i, 64 * i}, 1e-3 * i});
    cache.save();
  }

  fs::path file, folder_;
};

TEST_F(TileCacheFile, KeepsWhatWasStored) {
  {
    TileCache cache(file);
    EXPECT_EQ(cache.size(), 0u);
    EXPECT_FALSE(cache.lookup(key_of(1)));
    cache.store(key_of(1), {{12, 34, 56}, 0.25});
    EXPECT_EQ(cache.lookup(key_of(1)), (TileEntry{{12, 34, 56}, 0.25}));
    EXPECT_FALSE(fs::exists(file)) << "only save() writes";
    cache.save();
    EXPECT_TRUE(fs::exists(file));
  }
  TileCache const again(file);
  EXPECT_EQ(again.lookup(key_of(1)), (TileEntry{{12, 34, 56}, 0.25}));
  EXPECT_EQ(again.size(), 1u);
  EXPECT_EQ(again.rejected_lines(), 0u);
  TileCache memory;
  memory.store(key_of(1), {{1, 2, 3}, 0});
  memory.save();
  memory.load();
  EXPECT_TRUE(memory.lookup(key_of(1)));
}

TEST_F(TileCacheFile, EveryPartOfTheKeyCounts) {
  TileCache cache(file);
  cache.store(key_of(1), {{1, 1, 1}, 1});
  for (int part = 0; part < 9; ++part) {
    TileKey other = key_of(1);
    if (part == 0) other.device = "Another";
    if (part == 1) other.execution_space = "Another";
    if (part == 2) other.version = "99.0.0";
    if (part == 3) other.operation = "attention";
    if (part == 4) other.types = "float16";
    if (part == 5) other.batch = 2;
    if (part == 6) other.m = 2;
    if (part == 7) other.n = 2;
    if (part == 8) other.k = 2;
    EXPECT_FALSE(cache.lookup(other)) << part;
  }
  // What lies on both sides of a separator cannot be moved over it.
  TileKey left = key_of(1), right = key_of(1);
  left.device = "a|b";
  left.execution_space = "c";
  right.device = "a";
  right.execution_space = "b|c";
  EXPECT_NE(left.to_string(), right.to_string());
  left.device = "a%7cb";
  right = left;
  right.device = "a|b";
  EXPECT_NE(left.to_string(), right.to_string());
}

TEST_F(TileCacheFile, KeysWithOddCharactersSurvive) {
  TileKey odd = key_of(5, "tab\there\nline | %09 größe");
  {
    TileCache cache(file);
    cache.store(odd, {{8, 16, 24}, 0.5});
    cache.save();
  }
  TileCache const again(file);
  EXPECT_EQ(again.rejected_lines(), 0u);
  EXPECT_EQ(again.lookup(odd), (TileEntry{{8, 16, 24}, 0.5}));
}

TEST_F(TileCacheFile, TheMachineIsInTheKey) {
  Exec const exec;
  auto const key = make_key(exec, "gemm", "float32", 2, 3, 4, 5);
  auto const info = device_info(exec);
  EXPECT_EQ(key.device, info.name);
  EXPECT_EQ(key.version, ATTIKOS_VERSION_STRING);
  EXPECT_EQ(key.execution_space.rfind(info.execution_space, 0), 0u);
  EXPECT_NE(key.to_string().find(ATTIKOS_VERSION_STRING), std::string::npos);
  EXPECT_NE(key.to_string().find("|gemm|float32|2|3|4|5"), std::string::npos) << key.to_string();
}

TEST_F(TileCacheFile, ADamagedByteCostsOneEntryAtMostAndInventsNone) {
  write_three();
  std::string const text = read();
  std::size_t const first_line = text.find('\n');
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ (i % 2 == 0 ? 1 : 32));
    write(damaged);
    TileCache const cache(file);
    int kept = 0;
    for (int e = 1; e <= 3; ++e) {
      auto const entry = cache.lookup(key_of(e));
      if (!entry) continue;
      ++kept;
      EXPECT_EQ(entry->tile, (TileConfig{16 * e, 32 * e, 64 * e})) << "byte " << i;
    }
    EXPECT_EQ(cache.size(), static_cast<std::size_t>(kept)) << "byte " << i;
    // A line break that is lost costs the two lines that it parted; the first line costs all.
    EXPECT_GE(kept, i <= first_line ? 0 : text[i] == '\n' ? 1 : 2) << "byte " << i;
  }
}

TEST_F(TileCacheFile, ACutFileKeepsItsWholeLines) {
  write_three();
  std::string const text = read();
  for (std::size_t length = 0; length <= text.size(); ++length) {
    write(text.substr(0, length));
    TileCache const cache(file);
    auto const lines = std::count(text.begin(), text.begin() + static_cast<long>(length), '\n');
    EXPECT_GE(cache.size() + 1, static_cast<std::size_t>(std::max<long>(lines, 1))) << length;
    EXPECT_LE(cache.size(), static_cast<std::size_t>(lines)) << length;
  }
}

TEST_F(TileCacheFile, WhatIsNoCacheCountsAsEmptyAndIsReplaced) {
  std::string const garbage[] = {"",
                                 "\n",
                                 "hello\nworld\n",
                                 std::string(5000, '\0'),
                                 "attikos tile cache, format 2\nabc\n",
                                 std::string("\xFF\xFE\x00\n\t\t\t\t\t\n", 10)};
  for (auto const& text : garbage) {
    write(text);
    TileCache cache(file);
    EXPECT_EQ(cache.size(), 0u);
    cache.store(key_of(1), {{1, 2, 3}, 1});
    cache.save();
    EXPECT_EQ(TileCache(file).size(), 1u);
  }
  write("x");
  fs::resize_file(file, std::uintmax_t{17} << 20);  // mostly a hole
  EXPECT_EQ(TileCache(file).size(), 0u);
}

TEST_F(TileCacheFile, LinesWithARightChecksumAndAWrongTileAreRejected) {
  write_three();
  std::string text = read();
  for (char const* body :
       {"0\t1\t1\t5\tkey", "-8\t1\t1\t5\tkey", "1\t1\t5\tkey", "1\t1\t1\t-5\tkey", "1\t1\t1\t5\t",
        "99999999999\t1\t1\t5\tkey", "1 \t1\t1\t5\tkey", "1\t1\t1\t5x\tkey", ""})
    text += attikos::tune::detail::hexadecimal(attikos::tune::detail::checksum(body)) + "\t" +
            body + "\n";
  write(text);
  TileCache const cache(file);
  EXPECT_EQ(cache.size(), 3u);
  EXPECT_EQ(cache.rejected_lines(), 9u);
}

TEST_F(TileCacheFile, WritersAddToOneAnother) {
  TileCache first(file), second(file);
  first.store(key_of(1), {{1, 1, 1}, 1});
  first.store(key_of(9), {{2, 2, 2}, 1});
  second.store(key_of(2, "Another device"), {{3, 3, 3}, 1});
  second.store(key_of(9), {{4, 4, 4}, 1});
  first.save();
  second.save();
  EXPECT_EQ(second.size(), 3u) << "save() learns what others wrote";
  TileCache const all(file);
  EXPECT_EQ(all.size(), 3u);
  EXPECT_TRUE(all.lookup(key_of(1)));
  EXPECT_TRUE(all.lookup(key_of(2, "Another device")));
  EXPECT_EQ(all.lookup(key_of(9))->tile, (TileConfig{4, 4, 4})) << "the last writer's own entry";
  // load() learns too, and keeps what is not saved yet.
  first.store(key_of(7), {{7, 7, 7}, 1});
  first.load();
  EXPECT_EQ(first.size(), 4u);
  EXPECT_EQ(first.lookup(key_of(9))->tile, (TileConfig{4, 4, 4}));
  first.save();
  EXPECT_EQ(TileCache(file).size(), 4u);
  EXPECT_EQ(TileCache(file).lookup(key_of(9))->tile, (TileConfig{4, 4, 4}))
      << "an entry saved long ago does not return";
}

TEST_F(TileCacheFile, ConcurrentWritersLoseNothingAndReadersSeeWholeFiles) {
  constexpr int writers = 4, entries = 25;
  std::atomic<bool> done{false};
  std::atomic<int> damaged{0};
  std::thread reader([&] {
    std::size_t before = 0;
    while (!done) {
      TileCache const cache(file);
      if (cache.rejected_lines() != 0 || cache.size() < before) ++damaged;
      before = cache.size();
    }
  });
  std::vector<std::thread> threads;
  for (int w = 0; w < writers; ++w) {
    threads.emplace_back([&, w] {
      TileCache cache(file);
      for (int e = 0; e < entries; ++e) {
        cache.store(key_of(1000 * w + e), {{w + 1, e + 1, 1}, 1});
        cache.save();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  done = true;
  reader.join();
  EXPECT_EQ(damaged, 0);
  TileCache const all(file);
#if __has_include(<sys/file.h>)
  EXPECT_EQ(all.size(), static_cast<std::size_t>(writers * entries));
#endif
  for (int w = 0; w < writers; ++w)
    EXPECT_EQ(all.lookup(key_of(1000 * w + entries - 1))->tile, (TileConfig{w + 1, entries, 1}));
}

TEST_F(TileCacheFile, FoldersAreMadeAndFailuresAreTyped) {
  file = folder_ / "a" / "b" / "tiles.txt";
  write_three();
  EXPECT_EQ(TileCache(file).size(), 3u);
  // A file where a folder should be.
  TileCache blocked(file / "tiles.txt");
  blocked.store(key_of(1), {{1, 1, 1}, 1});
  test::expect_error<ResourceError>([&] { blocked.save(); },
                                    {"attikos::tune::TileCache: the file ", "tiles.txt",
                                     " could not be replaced: it cannot be written"});
  EXPECT_TRUE(blocked.lookup(key_of(1)));
  // A folder where the file should be.
  TileCache folder(folder_ / "a");
  EXPECT_EQ(folder.size(), 0u);
  folder.store(key_of(1), {{1, 1, 1}, 1});
  test::expect_error<ResourceError>([&] { folder.save(); }, {"could not be replaced: "});
}

TEST_F(TileCacheFile, WhatIsNoMeasurementIsRefused) {
  TileCache cache(file);
  for (TileEntry const& entry :
       {TileEntry{{0, 1, 1}, 1}, TileEntry{{1, -1, 1}, 1}, TileEntry{{1, 1, 1}, -1},
        TileEntry{{1, 1, 1}, std::numeric_limits<double>::infinity()}})
    test::expect_error<ShapeError>([&] { cache.store(key_of(1), entry); },
                                   {"attikos::tune::TileCache: the tile ", "is no measurement"});
  EXPECT_EQ(cache.size(), 0u);
}

// --- check_tile
// -----------------------------------------------------------------------------------

std::size_t bytes_of(TileConfig const& t) {
  return 4 * static_cast<std::size_t>(t.tile_m * t.tile_k + t.tile_k * t.tile_n);
}

TEST(CheckTile, TakesWhatFits) {
  TileLimits const limits{
      .m = 100, .n = 100, .k = 7, .multiple_m = 6, .multiple_n = 16, .max_bytes = 10000};
  for (TileConfig const& tile :
       {TileConfig{6, 16, 1}, TileConfig{102, 112, 7}, TileConfig{48, 32, 7}})
    EXPECT_NO_THROW(check_tile("gemm", tile, limits, bytes_of)) << to_string(tile);
  // Nothing to compute leaves one block.
  EXPECT_NO_THROW(check_tile("gemm", {6, 16, 1}, {.multiple_m = 6, .multiple_n = 16}, bytes_of));
}

TEST(CheckTile, RefusesTheRest) {
  TileLimits const limits{
      .m = 100, .n = 100, .k = 7, .multiple_m = 6, .multiple_n = 16, .max_bytes = 5000};
  auto const refuse = [&]<class E>(E*, TileConfig const& tile,
                                   std::initializer_list<std::string> parts) {
    test::expect_error<E>([&] { check_tile("gemm", tile, limits, bytes_of); }, parts);
  };
  ShapeError* const shape = nullptr;
  UnsupportedError* const unsupported = nullptr;
  ResourceError* const resource = nullptr;
  refuse(shape, {0, 16, 1}, {"attikos::gemm: tile_m is 0; expected 1 or more"});
  refuse(shape, {6, -16, 1}, {"attikos::gemm: tile_n is -16; expected 1 or more"});
  refuse(shape, {6, 16, std::numeric_limits<int>::min()}, {"attikos::gemm: tile_k is -2147483648"});
  refuse(shape, {108, 16, 1},
         {"attikos::gemm: tile_m is 108; expected at most 102 since m is 100"});
  refuse(shape, {6, 16, 8}, {"attikos::gemm: tile_k is 8; expected at most 7 since k is 7"});
  refuse(unsupported, {6, 24, 1},
         {"attikos::gemm: tile_n is 24; expected a multiple of 16, the kernel's register block"});
  refuse(resource, {102, 112, 7},
         {"attikos::gemm: a tile of 102 x 112 x 7 needs 5992", "expected at most 5000"});
}

TEST(CheckTile, ZerosTakeTheAutomaticExtent) {
  EXPECT_EQ(completed({0, 5, 0}, {1, 2, 3}), (TileConfig{1, 5, 3}));
  EXPECT_EQ(completed({}, {1, 2, 3}), (TileConfig{1, 2, 3}));
}

// --- autotune
// -------------------------------------------------------------------------------------

TEST(Autotune, TakesTheFastestAndRemembersIt) {
  TileCache cache;
  std::vector<TileConfig> const candidates{{1, 1, 1}, {2, 2, 2}, {3, 3, 3}};
  int calls = 0;
  auto const call = [&](TileConfig const& tile) {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(tile.tile_m == 2 ? 1 : 15));
  };
  perf::RunnerOptions const options{.warmup = 0, .repetitions = 3};
  EXPECT_EQ(autotune(Exec(), cache, key_of(1), candidates, call, options), candidates[1]);
  EXPECT_EQ(calls, 9);
  EXPECT_EQ(cache.lookup(key_of(1))->tile, candidates[1]);
  EXPECT_GE(cache.lookup(key_of(1))->seconds, 0.001);
  EXPECT_EQ(autotune(Exec(), cache, key_of(1), candidates, call, options), candidates[1]);
  EXPECT_EQ(calls, 9) << "the cache answers";
  // A cached tile that is no candidate is not taken.
  cache.store(key_of(1), {{64, 64, 64}, 1e-9});
  EXPECT_EQ(autotune(Exec(), cache, key_of(1), candidates, call, options), candidates[1]);
  EXPECT_EQ(calls, 18);
}

TEST(Autotune, LeavesOutTilesThatDoNotRun) {
  TileCache cache;
  auto const call = [](TileConfig const& tile) {
    if (tile.tile_m != 3) throw std::runtime_error("too large");
  };
  EXPECT_EQ(autotune(Exec(), cache, key_of(1), {{1, 1, 1}, {3, 3, 3}, {2, 2, 2}}, call),
            (TileConfig{3, 3, 3}));
  test::expect_error<ResourceError>(
      [&] {
        autotune(Exec(), cache, key_of(2), {{1, 1, 1}, {2, 2, 2}}, call);
      },
      {"attikos::tune::autotune: none of 2 tiles runs for gemm: too large"});
  test::expect_error<ResourceError>([&] { autotune(Exec(), cache, key_of(2), {}, call); },
                                    {"none of 0 tiles runs for gemm: there are none"});
  EXPECT_FALSE(cache.lookup(key_of(2)));
}

}  // namespace
}  // namespace attikos::tune_test
