// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attikos-measure: what the ranks of mpiexec can do, as a machine file for attikos-plan, and what
// calls on them take, to hold plans to.
#include <mpi.h>

#include <algorithm>
#include <attikos/attikos.hpp>
#include <attikos/distributed/attention.hpp>
#include <attikos/distributed/plan/machine.hpp>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "fit.hpp"

namespace {

namespace distributed = attikos::distributed;
namespace plan = distributed::plan;
using nlohmann::ordered_json;
using Exec = Kokkos::DefaultExecutionSpace;
using Tensor4 = Kokkos::View<float****>;
using Matrix = Kokkos::View<float**>;

char const* const help_text =
    R"(Usage: mpiexec -n N attikos-measure --out FILE [option...]
Writes a machine file: rates of attention, products and copies of a rank while all are at work, in float32, and
latency and bandwidth of messages inside nodes and between them.

  --out FILE           the machine file
  --name NAME          of the machine (default "measured")
  --heads N --kv-heads N --head-dim N
                       of attention (default 8, 8, 64)
  --runs FILE          times of distributed::attention() too, as JSON
  --lengths LIST       of the sequences of these runs (default 1024,2048,4096)
)";

struct Settings {
  std::string out, name = "measured", runs;
  std::int64_t heads = 8, kv_heads = 8, head_dim = 64;
  std::vector<std::int64_t> lengths{1024, 2048, 4096};
};

Settings settings_of(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  Settings s;
  auto const take = [&](char const* name, auto const& f) {
    auto const found = given.find(name);
    if (found == given.end()) return;
    f(found->second);
    given.erase(found);
  };
  auto const count = [](std::string const& text) {
    char* end = nullptr;
    long long const value = std::strtoll(text.c_str(), &end, 10);
    if (value < 1 || *end != '\0')
      throw std::runtime_error("\"" + text + "\" is no whole number from 1 on");
    return static_cast<std::int64_t>(value);
  };
  take("--out", [&](auto const& text) { s.out = text; });
  take("--name", [&](auto const& text) { s.name = text; });
  take("--runs", [&](auto const& text) { s.runs = text; });
  take("--heads", [&](auto const& text) { s.heads = count(text); });
  take("--kv-heads", [&](auto const& text) { s.kv_heads = count(text); });
  take("--head-dim", [&](auto const& text) { s.head_dim = count(text); });
  take("--lengths", [&](std::string text) {
    s.lengths.clear();
    for (std::size_t comma = 0; comma != std::string::npos;) {
      comma = text.find(',');
      s.lengths.push_back(count(text.substr(0, comma)));
      if (comma != std::string::npos) text = text.substr(comma + 1);
    }
  });
  if (!given.empty()) throw std::runtime_error("no option \"" + given.begin()->first + "\"");
  if (argc % 2 == 0 || s.out.empty()) throw std::runtime_error("--out and a file are needed");
  return s;
}

/// Seconds of f on the slowest rank: the median of several times for which all begin together.
template <class F>
double seconds_of(MPI_Comm comm, F const& f, int times = 9) {
  Exec const exec;
  std::vector<double> all;
  for (int i = 0; i <= times; ++i) {  // the first one is not counted
    exec.fence();
    MPI_Barrier(comm);
    double const begin = MPI_Wtime();
    f(exec);
    exec.fence();
    double mine = MPI_Wtime() - begin, most = mine;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, comm);
    if (i > 0) all.push_back(most);
  }
  std::nth_element(all.begin(), all.begin() + times / 2, all.end());
  return all[static_cast<std::size_t>(times / 2)];
}

void measure_rank(MPI_Comm comm, Settings const& s, plan::Machine& m) {
  auto const n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  constexpr std::int64_t rows = 512, most_keys = 4096;
  Tensor4 const q("q", 1, n(s.heads), n(rows), n(s.head_dim)),
      out("out", 1, n(s.heads), n(rows), n(s.head_dim));
  Tensor4 const k("k", 1, n(s.kv_heads), n(most_keys), n(s.head_dim)),
      v("v", 1, n(s.kv_heads), n(most_keys), n(s.head_dim));
  Kokkos::View<float***> const lse("lse", 1, n(s.heads), n(rows));
  std::vector<std::pair<double, double>> points;
  // A row costs launch/rows + (keys + row_keys)·operations/rate.
  for (std::int64_t keys : {128, 256, 512, 1024, 2048, 4096}) {
    auto const range = std::pair<std::int64_t, std::int64_t>(0, keys);
    auto const some_k = Kokkos::subview(k, Kokkos::ALL, Kokkos::ALL, range, Kokkos::ALL);
    auto const some_v = Kokkos::subview(v, Kokkos::ALL, Kokkos::ALL, range, Kokkos::ALL);
    points.emplace_back(static_cast<double>(keys), seconds_of(comm, [&](Exec const& exec) {
                          attikos::attention(exec, q, some_k, some_v, out, lse);
                        }));
  }
  auto const line = attikos_plan::fit(points);
  double const per_key = 4.0 * static_cast<double>(s.heads * s.head_dim * rows);
  m.attention = per_key / line.slope;

  Tensor4 const one("one", 1, 1, 1, n(s.head_dim));
  Tensor4 const one_out("one_out", 1, 1, 1, n(s.head_dim));
  m.launch =
      seconds_of(comm, [&](Exec const& exec) { attikos::attention(exec, one, one, one, one_out); });
  m.row_keys = std::max(0.0, line.constant - m.launch) / line.slope;

  // The same number of rows and keys with a mask.
  auto const range = std::pair<std::int64_t, std::int64_t>(0, rows);
  auto const some_k = Kokkos::subview(k, Kokkos::ALL, Kokkos::ALL, range, Kokkos::ALL);
  auto const some_v = Kokkos::subview(v, Kokkos::ALL, Kokkos::ALL, range, Kokkos::ALL);
  double const masked = seconds_of(comm, [&](Exec const& exec) {
    attikos::attention(exec, q, some_k, some_v, out, lse, {.causal = true});
  });
  constexpr double seen = (rows + 1) / 2.0;
  m.masked_keys = std::max(0.0, (masked - m.launch) / line.slope - seen - m.row_keys);

  Matrix const a("a", 512, 1024), b("b", 1024, 1024), c("c", 512, 1024);
  m.gemm = 2.0 * 512 * 1024 * 1024 /
           seconds_of(comm, [&](Exec const& exec) { attikos::gemm(exec, a, b, c); });

  constexpr std::size_t bytes = std::size_t{1} << 26;
  Kokkos::View<char*> const from("from", bytes), to("to", bytes);
  m.memory_bandwidth = 2.0 * static_cast<double>(bytes) / seconds_of(comm, [&](Exec const& exec) {
                         Kokkos::deep_copy(exec, to, from);
                       });
}

/// Each rank sends to the next one as in a step of a ring, in the memory of the host.
plan::Link measure_link(MPI_Comm all, MPI_Comm ring) {
  int rank = 0, ranks = 1;
  MPI_Comm_rank(ring, &rank);
  MPI_Comm_size(ring, &ranks);
  std::vector<char> from(std::size_t{1} << 24, 1), to(from);
  std::vector<std::pair<double, double>> points;
  for (int bytes = 1 << 10; bytes <= 1 << 24; bytes *= 4)
    points.emplace_back(
        bytes, seconds_of(all, [&](Exec const&) {
          MPI_Request requests[2];
          MPI_Irecv(to.data(), bytes, MPI_BYTE, (rank + ranks - 1) % ranks, 0, ring, &requests[0]);
          MPI_Isend(from.data(), bytes, MPI_BYTE, (rank + 1) % ranks, 0, ring, &requests[1]);
          MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        }));
  auto const line = attikos_plan::fit(points);
  return {line.constant, 1 / line.slope};
}

void measure_links(MPI_Comm comm, plan::Machine& m) {
  int rank = 0, in_node = 0;
  MPI_Comm_rank(comm, &rank);
  MPI_Comm node = MPI_COMM_NULL, across = MPI_COMM_NULL;
  MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
  MPI_Comm_size(node, &m.ranks_per_node);
  MPI_Comm_rank(node, &in_node);
  MPI_Comm_split(comm, in_node, rank, &across);  // those at the same place of their nodes
  int nodes = 1;
  MPI_Comm_size(across, &nodes);
  MPI_Allreduce(MPI_IN_PLACE, &nodes, 1, MPI_INT, MPI_MAX, comm);
  MPI_Allreduce(MPI_IN_PLACE, &m.ranks_per_node, 1, MPI_INT, MPI_MAX, comm);
  m.inside = m.outside = measure_link(comm, m.ranks_per_node > 1 ? node : across);
  if (m.ranks_per_node > 1 && nodes > 1) m.outside = measure_link(comm, across);
  m.cards = m.ranks_per_node;  // what a rank has while all of its node send
  MPI_Comm_free(&node);
  MPI_Comm_free(&across);
}

ordered_json measure_runs(MPI_Comm comm, Settings const& s) {
  using distributed::Strategy;
  ordered_json runs = ordered_json::array();
  distributed::Communicator ranks(comm);
  auto const n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  for (std::int64_t const length : s.lengths)
    for (bool const causal : {false, true})
      for (Strategy const strategy : {Strategy::ring, Strategy::all_gather, Strategy::all_to_all}) {
        if (strategy == Strategy::all_to_all && s.heads < ranks.size()) continue;
        auto const shards = causal ? distributed::Shards::zigzag(length, ranks.size())
                                   : distributed::Shards::contiguous(length, ranks.size());
        std::size_t const rows = n(shards.rows(ranks.rank()));
        Tensor4 const q("q", 1, n(s.heads), rows, n(s.head_dim)),
            out("out", 1, n(s.heads), rows, n(s.head_dim));
        Tensor4 const k("k", 1, n(s.kv_heads), rows, n(s.head_dim)),
            v("v", 1, n(s.kv_heads), rows, n(s.head_dim));
        Kokkos::View<float***> const lse("lse", 1, n(s.heads), rows);
        double const seconds = seconds_of(comm, [&](Exec const& exec) {
          distributed::attention(exec, ranks, shards, q, k, v, out, lse,
                                 {.causal = causal, .strategy = strategy});
        });
        runs.push_back({{"ranks", ranks.size()},
                        {"length", length},
                        {"heads", s.heads},
                        {"kv_heads", s.kv_heads},
                        {"head_dim", s.head_dim},
                        {"type", "float32"},
                        {"causal", causal},
                        {"layout", strategy_name(strategy)},
                        {"seconds", seconds}});
      }
  return runs;
}

void write(std::string const& path, ordered_json const& content) {
  std::ofstream file(path);
  file << content.dump(1) << '\n';
  if (!file.flush()) throw std::runtime_error(path + " cannot be written");
}

void measure(int argc, char** argv) {
  Settings const s = settings_of(argc, argv);
  plan::Machine m;
  m.name = s.name;
  measure_rank(MPI_COMM_WORLD, s, m);
  measure_links(MPI_COMM_WORLD, m);
  ordered_json const runs = s.runs.empty() ? ordered_json() : measure_runs(MPI_COMM_WORLD, s);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) return;
  write(s.out, plan::machine_file<ordered_json>(m));
  if (!s.runs.empty()) write(s.runs, runs);
}

}  // namespace

int main(int argc, char** argv) {
  int provided = 0, result = 0;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) return 1;
  {
    Kokkos::ScopeGuard const guard(argc, argv);
    try {
      measure(argc, argv);
    } catch (std::exception const& error) {
      std::cerr << "attikos-measure: " << error.what() << '\n' << help_text;
      result = 1;
    }
  }
  if (result != 0) MPI_Abort(MPI_COMM_WORLD, result);  // others may wait
  MPI_Finalize();
  return result;
}
