// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A transformer block over a sequence that is spread over ranks: long_context [positions]
#include <mpi.h>

#include <algorithm>
#include <attikos/attikos.hpp>
#include <attikos/distributed/attention.hpp>
#include <attikos/distributed/attention_backward.hpp>
#include <attikos/distributed/tensor_parallel.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace {

namespace distributed = attikos::distributed;
using Exec = Kokkos::DefaultExecutionSpace;
using Tensor4 = Kokkos::View<float****>;
using Matrix = Kokkos::View<float**>;

constexpr int heads_q = 8, heads_kv = 2, head_dim = 32, hidden = heads_q * head_dim,
              intermediate = 512;

/// Numbers in [-1, 1] that depend on `seed` and the position in the whole alone.
template <class View>
void fill(View const& view, unsigned seed, float scale = 1) {
  auto const host = Kokkos::create_mirror_view(view);
  unsigned state = 2654435761u * (seed + 1);
  for (std::size_t i = 0; i < host.size(); ++i) {
    state = state * 1664525u + 1013904223u;
    host.data()[i] = scale * (static_cast<float>(state >> 8) * 0x1p-23f - 1);
  }
  Kokkos::deep_copy(view, host);
}

/// Sum of a·b over all positions of all ranks.
double dot(distributed::Communicator& comm, Tensor4 const& a, Tensor4 const& b) {
  double mine = 0, all = 0;
  float const *const x = a.data(), *const y = b.data();
  Kokkos::parallel_reduce(
      "dot", Kokkos::RangePolicy<Exec>(0, static_cast<std::int64_t>(a.size())),
      KOKKOS_LAMBDA(std::int64_t i, double& sum) { sum += double(x[i]) * double(y[i]); }, mine);
  comm.check("MPI_Allreduce", MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, comm.handle()));
  return all;
}

/// One rank's share of the block.
struct Block {
  distributed::Communicator& comm;
  distributed::Shards shards;
  std::int64_t rows;
  Exec exec = {};
  distributed::AttentionOptions options = {.causal = true, .strategy = distributed::Strategy::ring};
  Tensor4 q, k, v, out;
  Kokkos::View<float***> lse;

  Block(distributed::Communicator& ranks, std::int64_t length)
      : comm(ranks),
        shards(distributed::Shards::zigzag(length, ranks.size())),
        rows(shards.rows(ranks.rank())),
        q("q", 1, heads_q, rows, head_dim),
        k("k", 1, heads_kv, rows, head_dim),
        v("v", 1, heads_kv, rows, head_dim),
        out("out", 1, heads_q, rows, head_dim),
        lse("lse", 1, heads_q, rows) {
    auto const seed = static_cast<unsigned>(comm.rank());
    fill(q, 3 * seed);
    fill(k, 3 * seed + 1);
    fill(v, 3 * seed + 2);
  }

  void attention() { distributed::attention(exec, comm, shards, q, k, v, out, lse, options); }

  /// Whether the sum of the output changes by what the gradients say. Returns the relative error.
  double check_gradients() {
    Tensor4 const dout("dout", 1, heads_q, rows, head_dim), dq("dq", 1, heads_q, rows, head_dim),
        dk("dk", 1, heads_kv, rows, head_dim), dv("dv", 1, heads_kv, rows, head_dim);
    fill(dout, 77 + static_cast<unsigned>(comm.rank()));
    distributed::attention_backward(exec, comm, shards, q, k, v, out, lse, dout, dq, dk, dv,
                                    options);
    // Values enter linearly: Σ dout·out(v) = Σ dv·v, exactly but for rounding.
    double const by_output = dot(comm, dout, out), by_gradient = dot(comm, dv, v);
    double const size = std::sqrt(dot(comm, dv, dv) * dot(comm, v, v));
    return std::abs(by_output - by_gradient) / std::max(size, 1e-30);
  }

  /// Rows go into the layer with their features side by side.
  void feed_forward() {
    Matrix const x("x", rows, hidden), result("result", rows, hidden);
    auto const heads = out;
    Kokkos::parallel_for(
        "rows", Kokkos::MDRangePolicy<Exec, Kokkos::Rank<2>>(exec, {0, 0}, {rows, hidden}),
        KOKKOS_LAMBDA(std::int64_t i, std::int64_t c) {
          x(i, c) = heads(0, c / head_dim, i, c % head_dim);
        });
    int const features =
        intermediate * (comm.rank() + 1) / comm.size() - intermediate * comm.rank() / comm.size();
    Matrix const gate("gate", features, hidden), up("up", features, hidden),
        down("down", hidden, features);
    auto const seed = 1000 + 3 * static_cast<unsigned>(comm.rank());
    fill(gate, seed, 0.1f);
    fill(up, seed + 1, 0.1f);
    fill(down, seed + 2, 0.1f);
    distributed::gated_mlp(exec, comm, shards, x, gate, up, down, result);
    exec.fence("long_context: done");
  }
};

int run(MPI_Comm mpi, std::int64_t length) {
  distributed::Communicator comm(mpi);
  Block block(comm, length);
  if (comm.rank() == 0)
    std::printf("%lld positions on %d ranks; strategies by the cost model:\n%s",
                static_cast<long long>(length), comm.size(),
                distributed::explain(attikos::op::attention, comm, block.shards, block.q, block.k,
                                     block.v, block.options)
                    .text()
                    .c_str());
  block.attention();
  double const error = block.check_gradients();
  block.feed_forward();
  std::printf("rank %d: %lld positions, %.1f MB of buffers\n", comm.rank(),
              static_cast<long long>(block.rows), static_cast<double>(comm.buffer_bytes()) / 1e6);
  bool const good = error < 1e-5;  // of rounding in float: far below what a missing block makes
  if (comm.rank() == 0)
    std::printf("outputs and gradients %s: relative error %.1e\n", good ? "agree" : "differ",
                error);
  return good ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int result = 1;
  {
    Kokkos::ScopeGuard const guard(argc, argv);
    try {
      result = run(MPI_COMM_WORLD, argc > 1 ? std::atoll(argv[1]) : 4096);
    } catch (attikos::Error const& error) {
      std::fprintf(stderr, "long_context: %s\n", error.what());
    }
  }
  MPI_Finalize();
  return result;
}
