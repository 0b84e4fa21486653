// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-distributed.md shows of calls over
// ranks, part by part; tests run it on several.
#include <mpi.h>

#include <attikos/attikos.hpp>
#include <attikos/distributed/attention.hpp>
#include <attikos/distributed/redistribute.hpp>
#include <attikos/distributed/tensor_parallel.hpp>

#include "common.hpp"

namespace distributed = attikos::distributed;
using distributed::Shards;

using View3 = Kokkos::View<double***>;
using Matrix = Kokkos::View<double**>;

/// The rows of a rank, of a tensor with all positions.
/// All ranks have the same numbers by random().
View3 rows_of(Shards const& shards, int rank,
              View3 const& whole) {
  View3 const mine("mine", whole.extent(0),
                   std::size_t(shards.rows(rank)),
                   whole.extent(2));
  auto const all = Kokkos::ALL;
  for (auto const& piece : shards.pieces(rank))
    Kokkos::deep_copy(
        Kokkos::subview(
            mine, all,
            std::pair(piece.local,
                      piece.local + piece.rows()),
            all),
        Kokkos::subview(whole, all,
                        std::pair(piece.begin, piece.end),
                        all));
  return mine;
}

Matrix rows_of(Shards const& shards, int rank,
               Matrix const& x) {
  View3 const mine = rows_of(
      shards, rank,
      View3(x.data(), 1, x.extent(0), x.extent(1)));
  Matrix const result("rows", mine.extent(1),
                      mine.extent(2));
  Kokkos::deep_copy(
      result,
      Kokkos::subview(mine, 0, Kokkos::ALL, Kokkos::ALL));
  return result;
}

void attention(Space const& exec) {
  auto const all_q = random<View3>(4, 60, 16),
             all_k = random<View3>(2, 90, 16),
             all_v = random<View3>(2, 90, 16);
  // [communicator]
  // Once, with what is known of the machine: by that the
  // strategy is chosen. gpu_aware if MPI takes pointers
  // to memory of devices. What ranks have agreed on once
  // is not compared again.
  distributed::CommunicatorOptions options;
  options.gpu_aware = false;
  options.agree = distributed::Agree::first_call_alike;
  options.machine.bandwidth = 12e9;
  distributed::Communicator comm(MPI_COMM_WORLD, options);
  // [communicator]
  auto const shards_q = Shards::zigzag(60, comm.size()),
             shards_kv =
                 Shards::contiguous(90, comm.size());
  auto const q = rows_of(shards_q, comm.rank(), all_q),
             k = rows_of(shards_kv, comm.rank(), all_k),
             v = rows_of(shards_kv, comm.rank(), all_v);
  View3 out("out", 4, q.extent(1), 16);
  // [spread-attention]
  // 60 new queries over 90 keys, of which they are the
  // last
  // 60. Each rank has its rows of q, and others of k and
  // v, [heads, rows, head_dim], and gets its rows of out.
  distributed::ContextShards const shards(shards_q,
                                          shards_kv);
  distributed::attention(exec, comm, shards, q, k, v, out,
                         {.causal = true});
  // [spread-attention]
  exec.fence();
  View3 whole("whole", 4, 60, 16);
  Kokkos::View<double****> const whole4(whole.data(), 1,
                                        4, 60, 16);
  auto const rank4 = [](View3 const& x) {
    return Kokkos::View<double****>(
        x.data(), 1, x.extent(0), x.extent(1),
        x.extent(2));
  };
  attikos::attention(exec, rank4(all_q), rank4(all_k),
                     rank4(all_v), whole4,
                     {.causal = true});
  expect_same(out, rows_of(shards_q, comm.rank(), whole),
              1e-12, "rows of attention");

  // [communication-error]
  // A message that fails leaves outputs undefined and the
  // communicator dead: the program goes on with a new
  // one, or not at all. check() is for MPI calls of one's
  // own.
  bool failed = false;
  try {
    double const number = 1;
    comm.check("MPI_Send",
               MPI_Send(&number, 1, MPI_DOUBLE,
                        /*to nobody*/ comm.size(), 0,
                        comm.handle()));
  } catch (attikos::CommunicationError const& error) {
    failed = !comm.alive();
    std::printf("%s\n", error.what());
  }
  // [communication-error]
  expect(failed, "a message to nobody fails");
}

void products(Space const& exec) {
  distributed::Communicator comm(MPI_COMM_WORLD);
  auto const shards = Shards::contiguous(50, comm.size());
  auto const all_x = random<Matrix>(50, 12),
             all_up = random<Matrix>(12, 40),
             all_down = random<Matrix>(40, 12);
  int const first = 40 * comm.rank() / comm.size(),
            last = 40 * (comm.rank() + 1) / comm.size();
  auto const all = Kokkos::ALL;
  auto const part = std::pair(first, last);
  auto const up = Kokkos::subview(all_up, all, part);
  auto const down = Kokkos::subview(all_down, part, all);
  auto const x = rows_of(shards, comm.rank(), all_x);
  auto const rows = x.extent(0);
  // [spread-products]
  // relu(x·up)·down with weights spread over the ranks:
  // the first product gathers rows of x and has all rows
  // of some features, the second sums over features and
  // deals rows out again.
  Matrix features("features", 50, last - first),
      out("out", rows, 12);
  distributed::column_parallel_gemm(
      exec, comm, shards, x, up, features,
      {.activation = attikos::Activation::relu});
  distributed::row_parallel_gemm(exec, comm, shards,
                                 features, down, out);
  // [spread-products]
  exec.fence();
  Matrix all_features("all_features", 50, 40),
      whole("whole", 50, 12);
  attikos::gemm(
      exec, all_x, all_up, all_features,
      {.activation = attikos::Activation::relu});
  attikos::gemm(exec, all_features, all_down, whole);
  exec.fence();
  expect_same(out, rows_of(shards, comm.rank(), whole),
              1e-12, "rows of products");
}

void matrices(Space const& exec) {
  distributed::Communicator comm(MPI_COMM_WORLD);
  int const rank = comm.rank(),
            grid_columns = comm.size() % 2 == 0 ? 2 : 1;
  using Local =
      Kokkos::View<double**, Kokkos::LayoutLeft>;
  // [redistribute]
  // A matrix as ScaLAPACK has it, in blocks of 8 × 6 over
  // a grid of ranks, each rank's part column-major; and
  // as rows, which column_parallel_gemm() takes.
  distributed::BlockCyclic const blocks{
      .rows = 50,
      .columns = 40,
      .block_rows = 8,
      .block_columns = 6,
      .grid_rows = comm.size() / grid_columns,
      .grid_columns = grid_columns,
      .order = distributed::GridOrder::row_major};
  auto const cyclic =
      distributed::MatrixShards::block_cyclic(blocks);
  auto const shards = Shards::contiguous(50, comm.size());
  auto const by_rows =
      distributed::MatrixShards::by_rows(shards, 40);

  Local part("part", cyclic.rows(rank),
             cyclic.columns(rank));
  Matrix rows("rows", by_rows.rows(rank), 40);
  for (auto const& r : cyclic.row_runs(rank))
    for (auto const& c : cyclic.column_runs(rank))
      for (auto i = r.begin; i < r.end; ++i)
        for (auto j = c.begin; j < c.end; ++j)
          part(r.local + i - r.begin,
               c.local + j - c.begin) =
              double(100 * i + j);
  distributed::redistribute(exec, comm, cyclic, part,
                            by_rows, rows);
  // [redistribute]
  exec.fence();
  bool same = true;
  for (auto const& r : by_rows.row_runs(rank))
    for (auto i = r.begin; i < r.end; ++i)
      for (int j = 0; j < 40; ++j)
        same = same && rows(r.local + i - r.begin, j) ==
                           double(100 * i + j);
  expect(same, "rows of a matrix in blocks");
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  {
    Kokkos::ScopeGuard const guard(argc, argv);
    Space const exec;
    attention(exec);
    products(exec);
    matrices(exec);
    std::printf("all parts ran\n");
  }
  MPI_Finalize();
}
