// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rows of a matrix that travel between ranks: blocks that go round behind products, and partial
/// results on their way to the rank that they are summed on.
#pragma once

#include <attikos/distributed/agreement.hpp>
#include <attikos/distributed/schedule.hpp>
#include <attikos/distributed/transfers.hpp>
#include <attikos/gemm/gemm.hpp>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A matrix of rank 2 as a tensor of rank 4, which copies take.
inline AnyTensor matrix_at(void* data, DType type, std::int64_t rows, std::int64_t columns) {
  return dense_rows(data, type, 1, 1, rows, columns, columns);
}
inline AnyTensor rows_of_matrix(AnyTensor const& x, std::int64_t first, std::int64_t rows) {
  return part_of(x, {{0, 0, first}, {1, 1, rows}});
}

/// The last two dimensions as a View, const where T is.
template <class T, class Exec>
auto matrix_view(AnyTensor const& x) {
  using View =
      Kokkos::View<T**, Kokkos::LayoutStride, Kokkos::Device<Exec, typename Exec::memory_space>,
                   Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  auto const size = [](std::int64_t n) { return static_cast<std::size_t>(n); };
  return View(static_cast<T*>(x.output()),
              Kokkos::LayoutStride(size(x.extent[2]), size(x.stride[2]), size(x.extent[3]),
                                   size(x.stride[3])));
}

/// What operations on rows of matrices share: rows are dealt out to ranks by shards of one
/// sequence.
template <class T, class Exec>
class RowExchange {
 public:
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
  using Piece = distributed::Piece;

  RowExchange(char const* operation, Exec const& exec, distributed::Communicator& comm,
              distributed::Shards const& shards)
      : operation_(operation), exec_(exec), comm_(comm), shards_(shards) {}

 protected:
  static constexpr auto element = static_cast<std::int64_t>(sizeof(T));
  static constexpr auto acc = static_cast<std::int64_t>(sizeof(Acc));
  static constexpr int block_slot = 0, sum_slot = 1;  ///< of exchanges; sums have two

  // --- blocks of rows that go round -------------------------------------------------------------
  void prepare_ring(std::int64_t columns) {
    message_rows(operation_, shards_.max_rows());
    for (int b = 0; b < 2; ++b)
      blocks_[b] =
          MessageBuffer<Exec>(operation_, comm_, b, shards_.max_rows() * columns * element);
  }
  /// Calls f(rank whose rows they are, rows), the next ones on their way meanwhile.
  template <class F>
  void ring(AnyTensor const& own, F const& f) {
    int const n = comm_.size();
    std::int64_t const columns = own.extent[3], row_bytes = columns * element;
    QueueRef const queue(exec_);
    copy_rows<T, T>(exec_, operation_, own,
                    matrix_at(blocks_[0].data, own.type, own.extent[2], columns));
    blocks_[0].to_wire(exec_, own.extent[2] * row_bytes);
    for (int step = 0; step < n; ++step) {
      auto const s = distributed::ring_step(comm_.rank(), n, step);
      MessageBuffer<Exec> const &here = blocks_[step % 2], &next = blocks_[(step + 1) % 2];
      std::int64_t const rows = shards_.rows(s.block);
      std::int64_t const rows_next = shards_.rows((s.block - 1 + n) % n);
      if (s.transfers)
        comm_.transport().start(queue, block_slot, "attikos::distributed: a block of rows is free",
                                row_bytes, {s.from, next.wire, rows_next}, {s.to, here.wire, rows});
      f(s.block, matrix_at(here.data, own.type, rows, columns));
      if (s.transfers) {
        comm_.transport().finish(queue, block_slot);
        next.from_wire(exec_, rows_next * row_bytes);
      }
    }
  }

  // --- partial results that are summed by the rank whose rows they are --------------------------
  void prepare_sums(std::int64_t columns) {
    columns_ = columns;
    std::int64_t const own = shards_.rows(comm_.rank());
    message_rows(operation_, std::max(shards_.max_rows(), own * comm_.size()));
    for (int b = 0; b < 2; ++b)
      partial_[b] =
          MessageBuffer<Exec>(operation_, comm_, 2 + b, shards_.max_rows() * columns * acc);
    all_ = MessageBuffer<Exec>(operation_, comm_, 4, own * comm_.size() * columns * acc);
  }
  /// Where this rank's partial result for rank `target` is to be written.
  AnyTensor partial_for(int target) {
    std::int64_t const rows = shards_.rows(target);
    if (target == comm_.rank())
      return matrix_at(static_cast<char*>(all_.data) + rows * target * columns_ * acc,
                       dtype_of<Acc>, rows, columns_);
    comm_.transport().finish(QueueRef(exec_), sum_slot + turn_);
    return matrix_at(partial_[turn_].data, dtype_of<Acc>, rows, columns_);
  }
  /// Sends it once it is written, and expects one of the rank that has this rank's rows by then:
  /// whoever is as far ahead of this rank as this rank is of `target`.
  void send_partial(int target) {
    int const n = comm_.size(), me = comm_.rank();
    if (target == me) return;
    int const source = (2 * me - target + n) % n;
    std::int64_t const rows = shards_.rows(target), own = shards_.rows(me);
    partial_[turn_].to_wire(exec_, rows * columns_ * acc);
    RankRows const from{source, static_cast<char*>(all_.wire) + own * source * columns_ * acc, own};
    RankRows const to{target, partial_[turn_].wire, rows};
    comm_.transport().start(QueueRef(exec_), sum_slot + turn_,
                            "attikos::distributed: a partial result is there", columns_ * acc, from,
                            to);
    turn_ = 1 - turn_;
  }
  /// Adds what has come, in the order of ranks, and rounds it once.
  void finish_sums(AnyTensor const& result) {
    int const n = comm_.size();
    std::int64_t const own = shards_.rows(comm_.rank()), bytes = own * columns_ * acc;
    for (int turn = 0; turn < 2; ++turn) comm_.transport().finish(QueueRef(exec_), sum_slot + turn);
    for (int r = 0; r < n; ++r)
      if (r != comm_.rank()) all_.from_wire_at(exec_, bytes * r, bytes);
    failure_.throw_if_one_failed(operation_, comm_);
    auto const part = [&](int r) {
      return matrix_at(static_cast<char*>(all_.data) + bytes * r, dtype_of<Acc>, own, columns_);
    };
    for (int r = 1; r < n; ++r) copy_rows<Acc, Acc, true>(exec_, operation_, part(r), part(0));
    copy_rows<Acc, T>(exec_, operation_, part(0), result);
  }

  char const* operation_;
  Exec const& exec_;
  distributed::Communicator& comm_;
  distributed::Shards const& shards_;
  CallFailure failure_;

 private:
  MessageBuffer<Exec> blocks_[2], partial_[2], all_;
  std::int64_t columns_ = 0;
  int turn_ = 0;
};

/// Checks that are the same of all operations on rows of matrices.
inline void check_row_shards(char const* operation, distributed::Communicator const& comm,
                             distributed::Shards const& shards) {
  if (shards.ranks() != comm.size())
    raise<ShapeError>(operation, ": the shards are for ", shards.ranks(), " ranks; expected ",
                      comm.size(), ", as the communicator has");
  if (shards.sequences() != 1)
    raise<ShapeError>(operation, ": the shards have ", shards.sequences(),
                      " sequences; expected one, the rows of the whole matrix");
}
inline void check_extent(char const* operation, char const* name, AnyTensor const& x, int dimension,
                         std::int64_t wanted, char const* why) {
  check_extents(operation, name, x);
  if (x.extent[dimension] != wanted)
    raise<ShapeError>(operation, ": ", name, " is ", describe(x), "; expected ", wanted,
                      " in dimension ", dimension, ", ", why);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
