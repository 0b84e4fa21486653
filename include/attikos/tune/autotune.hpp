// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// autotune(): the fastest of some tiles, from the cache or by measurement. Not part of
/// attikos.hpp.
#pragma once

#include <algorithm>
#include <attikos/perf/runner.hpp>
#include <attikos/tune/tile_cache.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace tune {

/// The tile that `call(tile)` is fastest with.
///
/// \param exec        instance that `call` works on; measured as perf::Runner does, which fences it
/// \param cache       asked first, and given what was measured; the caller saves it
/// \param key         what the tile is for, e.g. from make_key()
/// \param candidates  tiles to choose from; a cached tile counts only if it is one of them, so that
///                    no file can bring in a tile that was not checked
/// \param call        runs the operation with one tile; a tile for which it throws is left out
///
/// Throws ResourceError if no candidate runs; its message has the last one's reason.
template <ExecutionSpace Exec, class Call>
TileConfig autotune(Exec const& exec, TileCache& cache, TileKey const& key,
                    std::vector<TileConfig> const& candidates, Call&& call,
                    perf::RunnerOptions const& options = {.warmup = 2, .repetitions = 7}) {
  if (auto const known = cache.lookup(key);
      known && std::find(candidates.begin(), candidates.end(), known->tile) != candidates.end())
    return known->tile;
  auto bench = perf::runner(exec, options);
  std::optional<TileEntry> best;
  std::string reason = "there are none";
  for (TileConfig const& tile : candidates) {
    auto const m =
        bench.run({.problem = key.operation, .name = to_string(tile)}, [&] { call(tile); });
    if (!m.ok()) {
      reason = m.error;
    } else if (double const seconds = m.median_seconds(); !best || seconds < best->seconds) {
      best = TileEntry{tile, seconds};
    }
  }
  if (!best)
    attikos::detail::raise<ResourceError>("tune::autotune: none of ", candidates.size(),
                                          " tiles runs for ", key.operation, ": ", reason);
  cache.store(key, *best);
  return best->tile;
}

}  // namespace tune
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
