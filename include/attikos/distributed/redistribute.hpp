// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// distributed::redistribute(): a matrix that ranks hold in one way, held in another.
#pragma once

#include <attikos/distributed/matrix_shards.hpp>
#include <attikos/distributed/row_blocks.hpp>
#include <optional>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// What of a message is for one rank, or from it: lines of numbers, dense, a line for each of some
/// columns (or rows) of this rank's matrix.
struct MessagePart {
  std::int64_t at = 0;                         ///< first number in the message
  std::int64_t first_line = 0, lines = 0;      ///< in the list of lines
  std::int64_t first_number = 0, numbers = 0;  ///< in the list of what a line has
  std::int64_t first_tile = 0;                 ///< of all tiles of the message
  static constexpr std::int64_t edge = 64;     ///< of a tile
  KOKKOS_INLINE_FUNCTION std::int64_t tiles_across() const { return (numbers + edge - 1) / edge; }
  KOKKOS_INLINE_FUNCTION std::int64_t tiles() const {
    return (lines + edge - 1) / edge * tiles_across();
  }
};

/// One message of a rank, and what of its matrix is in it.
class MatrixMessage {
 public:
  using Run = distributed::MatrixShards::Run;

  /// \param own, other how the rank and the others hold the matrix at this end of the way, at the
  ///                   other end
  MatrixMessage(distributed::MatrixShards const& own, distributed::MatrixShards const& other,
                int rank, bool by_columns) {
    for (int r = 0; r < own.ranks(); ++r) {
      MessagePart part;
      part.at = numbers_;
      part.first_tile = tiles_;
      part.first_line = static_cast<std::int64_t>(lists_[0].size());
      part.first_number = static_cast<std::int64_t>(lists_[1].size());
      add_common(own.row_runs(rank), other.row_runs(r), lists_[by_columns ? 1 : 0]);
      add_common(own.column_runs(rank), other.column_runs(r), lists_[by_columns ? 0 : 1]);
      part.lines = static_cast<std::int64_t>(lists_[0].size()) - part.first_line;
      part.numbers = static_cast<std::int64_t>(lists_[1].size()) - part.first_number;
      numbers_ += part.lines * part.numbers;
      tiles_ += part.tiles();
      parts_.push_back(part);
    }
  }

  std::int64_t numbers() const { return numbers_; }
  std::int64_t tiles() const { return tiles_; }
  RowParts of_ranks() const {
    RowParts counts;
    for (MessagePart const& part : parts_) counts.add(part.lines * part.numbers);
    return counts;
  }

  /// Bytes of the lists, and the lists one behind the other: parts, lines, what lines have.
  std::size_t list_bytes() const {
    return parts_.size() * sizeof(MessagePart) +
           (lists_[0].size() + lists_[1].size()) * sizeof(std::int64_t);
  }
  void write_lists(char* to) const {
    auto const put = [&](auto const& list) {
      std::size_t const bytes = list.size() * sizeof list[0];
      if (bytes > 0) std::memcpy(to, list.data(), bytes);
      to += bytes;
    };
    put(parts_), put(lists_[0]), put(lists_[1]);
  }
  std::size_t parts_count() const { return parts_.size(); }
  std::size_t lines_count() const { return lists_[0].size(); }

 private:
  /// Where this rank has what both hold of one dimension, ascending in the whole.
  static void add_common(std::vector<Run> const& mine, std::vector<Run> const& theirs,
                         std::vector<std::int64_t>& list) {
    std::size_t a = 0, b = 0;
    while (a < mine.size() && b < theirs.size()) {
      std::int64_t const begin = std::max(mine[a].begin, theirs[b].begin);
      std::int64_t const end = std::min(mine[a].end, theirs[b].end);
      for (std::int64_t i = begin; i < end; ++i) list.push_back(mine[a].local + i - mine[a].begin);
      (mine[a].end < theirs[b].end ? a : b) += 1;
    }
  }

  std::vector<MessagePart> parts_;
  std::vector<std::int64_t> lists_[2];
  std::int64_t numbers_ = 0, tiles_ = 0;
};

/// Numbers of a matrix into a message, or out of it, a tile at a time, so that both sides are
/// walked along their lines within a cache.
template <class E, bool ToMessage>
struct MoveTile {
  E* matrix;
  std::int64_t line_stride, number_stride;
  E* message;
  MessagePart const* parts;
  std::int64_t const *lines, *numbers;
  std::int64_t count;  ///< of parts

  KOKKOS_INLINE_FUNCTION MessagePart const& part_of(std::int64_t tile) const {
    std::int64_t low = 0, high = count;  // the last part that begins at or before the tile
    while (high - low > 1) {
      std::int64_t const middle = low + (high - low) / 2;
      (parts[middle].first_tile <= tile ? low : high) = middle;
    }
    return parts[low];
  }
  struct Tile {
    std::int64_t line, number, lines, numbers;
  };
  KOKKOS_INLINE_FUNCTION static Tile tile_of(MessagePart const& part, std::int64_t tile) {
    constexpr std::int64_t edge = MessagePart::edge;
    std::int64_t const at = tile - part.first_tile, across = part.tiles_across();
    Tile t{at / across * edge, at % across * edge, 0, 0};
    t.lines = part.lines - t.line < edge ? part.lines - t.line : edge;
    t.numbers = part.numbers - t.number < edge ? part.numbers - t.number : edge;
    return t;
  }
  KOKKOS_INLINE_FUNCTION void move(MessagePart const& part, std::int64_t line,
                                   std::int64_t number) const {
    E& here = matrix[lines[part.first_line + line] * line_stride +
                     numbers[part.first_number + number] * number_stride];
    E& there = message[part.at + line * part.numbers + number];
    if constexpr (ToMessage)
      there = here;
    else
      here = there;
  }

  void host_row(std::int64_t tile) const {
    MessagePart const& part = part_of(tile);
    Tile const t = tile_of(part, tile);
    for (std::int64_t i = 0; i < t.lines; ++i)
      for (std::int64_t j = 0; j < t.numbers; ++j) move(part, t.line + i, t.number + j);
  }
  /// Neighboring lanes write neighbors; what they read comes through the cache.
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t tile) const {
    MessagePart const& part = part_of(tile);
    Tile const t = tile_of(part, tile);
    bool const along = ToMessage || number_stride <= line_stride;
    std::int64_t const inner = along ? t.numbers : t.lines;
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, t.lines * t.numbers), [&](std::int64_t n) {
      std::int64_t const a = n / inner, b = n % inner;
      move(part, t.line + (along ? a : b), t.number + (along ? b : a));
    });
  }
};

/// A call of distributed::redistribute().
template <class Exec>
class Redistribution {
 public:
  static constexpr char const* operation = "distributed::redistribute";
  using Space = typename Exec::memory_space;
  using Shards = distributed::MatrixShards;

  Redistribution(Exec const& exec, distributed::Communicator& comm, Shards const& from,
                 AnyTensor const& a, Shards const& to, AnyTensor const& b)
      : exec_(exec),
        comm_(comm),
        a_(a),
        b_(b),
        // Lines as one of the ends has them, which both know.
        by_columns_(from.column_major() || to.column_major()),
        sent_(from, to, comm.rank(), by_columns_),
        got_(to, from, comm.rank(), by_columns_) {}

  /// Everything that can fail on one rank alone.
  void prepare() {
    std::int64_t const size = dtype_size(a_.type);
    for (std::int64_t count : {sent_.numbers(), got_.numbers()})
      if (count > std::numeric_limits<int>::max())
        raise<UnsupportedError>(operation, ": rank ", comm_.rank(), " has ", count,
                                " elements; expected at most ", std::numeric_limits<int>::max(),
                                ", which messages can count");
    if (comm_.transport().recording(QueueRef(exec_)))
      raise<UnsupportedError>(operation,
                              ": the call is captured into a graph, which would not keep its lists "
                              "of rows and columns; expected a call outside of a capture");
    out_ = MessageBuffer<Exec>(operation, comm_, 0, sent_.numbers() * size);
    in_ = MessageBuffer<Exec>(operation, comm_, 1, got_.numbers() * size);
    lists_[0] = comm_.template buffer<Space>(operation, 40, sent_.list_bytes());
    lists_[1] = comm_.template buffer<Space>(operation, 41, got_.list_bytes());
  }

  void run() {
    switch (dtype_size(a_.type)) {
      case 1:
        return run_as<std::uint8_t>();
      case 2:
        return run_as<std::uint16_t>();
      case 4:
        return run_as<std::uint32_t>();
      default:
        return run_as<std::uint64_t>();
    }
  }

 private:
  template <class E>
  void run_as() {
    auto const bytes = static_cast<std::int64_t>(sizeof(E));
    QueueRef const queue(exec_);
    move<E, true>(a_, sent_, lists_[0], out_.data);
    out_.to_wire(exec_, sent_.numbers() * bytes);
    comm_.transport().exchange_rows(queue, "attikos::distributed: a matrix is packed", bytes,
                                    out_.wire, sent_.of_ranks(), in_.wire, got_.of_ranks());
    in_.from_wire(exec_, got_.numbers() * bytes);
    move<E, false>(b_, got_, lists_[1], in_.data);
  }

  template <class E, bool ToMessage>
  void move(AnyTensor const& matrix, MatrixMessage const& message, void* lists, void* data) {
    if (message.numbers() == 0) return;
    std::vector<char> on_host(message.list_bytes());
    message.write_lists(on_host.data());
    using Traits = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
    // From memory that is not pinned: it has been read when this returns.
    Kokkos::deep_copy(
        exec_, Kokkos::View<char*, Space, Traits>(static_cast<char*>(lists), on_host.size()),
        Kokkos::View<char const*, Kokkos::HostSpace, Traits>(on_host.data(), on_host.size()));
    auto const* const parts = static_cast<MessagePart const*>(lists);
    auto const* const lines = reinterpret_cast<std::int64_t const*>(parts + message.parts_count());
    launch_rows(
        exec_, operation,
        MoveTile<E, ToMessage>{static_cast<E*>(matrix.output()), matrix.stride[by_columns_ ? 1 : 0],
                               matrix.stride[by_columns_ ? 0 : 1], static_cast<E*>(data), parts,
                               lines, lines + message.lines_count(),
                               static_cast<std::int64_t>(message.parts_count())},
        message.tiles(), MessagePart::edge * MessagePart::edge);
  }

  Exec const& exec_;
  distributed::Communicator& comm_;
  AnyTensor a_, b_;
  bool by_columns_;
  MatrixMessage sent_, got_;
  MessageBuffer<Exec> out_, in_;
  void* lists_[2] = {};
};

inline void check_matrix_shards(char const* operation, distributed::Communicator const& comm,
                                char const* name, distributed::MatrixShards const& shards) {
  if (shards.ranks() != comm.size())
    raise<ShapeError>(operation, ": ", name, " is for ", shards.ranks(),
                      " ranks; expected the communicator's ", comm.size());
}

}  // namespace detail

namespace distributed {

/// The same matrix, held by the ranks in another way: to hand a ScaLAPACK-style code's blocks to
/// column_parallel_gemm() or row_parallel_gemm() and to give it back what they make of them, or
/// to go from rows to columns.
///
/// \param exec  execution space instance; kernels are asynchronous on it
/// \param comm  communicator
/// \param from  which rank holds what of a; the same on all ranks
/// \param a     [from.rows(rank), from.columns(rank)], any strides: ScaLAPACK's local arrays are
///              those of a LayoutStride with strides 1 and LLD_, or of a LayoutLeft
/// \param to    which rank is to hold what of b; the same on all ranks, with the extents of `from`
/// \param b     [to.rows(rank), to.columns(rank)]; may not share memory with a
///
/// One exchange of all ranks with all; each element is copied into a message and out of it as it
/// is, whatever its type. Memory: this rank's elements of both, once more. Types: any that
/// tensors may have, the same for both. Throws on all ranks alike, before anything is sent or
/// written: ShapeError, DtypeError, StrideError, Error, UnsupportedError, ResourceError;
/// CommunicationError for a message that fails.
template <ExecutionSpace Exec, TensorLike A, TensorLike B>
void redistribute(Exec const& exec, Communicator& comm, MatrixShards const& from, A const& a,
                  MatrixShards const& to, B const& b) {
  namespace d = ::attikos::detail;
  d::check_tensor<Exec, A>();
  d::check_tensor<Exec, B>();
  d::check_writable(b);
  static_assert(rank_of<A> == 2 && rank_of<B> == 2, "attikos::distributed: matrices have rank 2");
  static_assert(std::is_same_v<element_t<A>, element_t<B>>,
                "attikos::distributed::redistribute: a and b have the same element type");
  using Call = d::Redistribution<Exec>;
  constexpr char const* operation = Call::operation;
  std::optional<Call> call;
  d::agree(exec, comm, d::DistributedOperation::redistribute,
           [&](std::vector<d::CommonArgument>& common) {
             auto const x = d::any_tensor(a), y = d::any_tensor(b);
             int const rank = comm.rank();
             d::check_matrix_shards(operation, comm, "from", from);
             d::check_matrix_shards(operation, comm, "to", to);
             if (from.rows() != to.rows() || from.columns() != to.columns())
               d::raise<ShapeError>(operation, ": from is of ", from.rows(), " × ", from.columns(),
                                    " elements and to of ", to.rows(), " × ", to.columns(),
                                    "; expected the same matrix");
             d::check_extent(operation, "a", x, 0, from.rows(rank), "this rank's rows of from");
             d::check_extent(operation, "a", x, 1, from.columns(rank),
                             "this rank's columns of from");
             d::check_extent(operation, "b", y, 0, to.rows(rank), "this rank's rows of to");
             d::check_extent(operation, "b", y, 1, to.columns(rank), "this rank's columns of to");
             d::check_outputs(operation, {{"b", y}}, {{"a", x}});
             common.push_back(
                 {"element type", static_cast<std::int64_t>(x.type), d::RankFailure::dtype, false});
             common.push_back({"from", from.fingerprint(), d::RankFailure::shape, false});
             common.push_back({"to", to.fingerprint(), d::RankFailure::shape, false});
             call.emplace(exec, comm, from, x, to, y);
             call->prepare();
           });
  call->run();
}

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
