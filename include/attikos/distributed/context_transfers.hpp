// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// How rows of queries, keys and values get to other ranks and back: what context-parallel
/// attention and its gradients have in common.
#pragma once

#include <algorithm>
#include <attikos/distributed/agreement.hpp>
#include <attikos/distributed/context_parts.hpp>
#include <exception>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Query heads [first, first + count) that a rank works on where heads are dealt out, and the key
/// heads they need.
struct HeadShare {
  std::int64_t q_first, q_count, kv_first, kv_count;
};

inline HeadShare head_share(std::int64_t heads_q, std::int64_t heads_kv, int rank, int ranks) {
  std::int64_t const first = heads_q * rank / ranks, last = heads_q * (rank + 1) / ranks;
  if (first == last) return {first, 0, 0, 0};
  std::int64_t const group = heads_q / heads_kv;
  return {first, last - first, first / group, (last - 1) / group + 1 - first / group};
}

/// Runs of heads that attention() takes at once: all where each key head serves as many query heads
/// as the others, else key head by key head.
inline std::vector<HeadRun> head_runs(HeadShare const& share, std::int64_t group) {
  if (share.q_count == 0) return {};
  bool const whole = share.kv_count == 1 ||
                     (share.q_first % group == 0 && share.q_count == share.kv_count * group);
  if (whole) return {{0, share.q_count, 0, share.kv_count}};
  std::vector<HeadRun> runs;
  for (std::int64_t h = 0; h < share.kv_count; ++h) {
    std::int64_t const first = std::max((share.kv_first + h) * group, share.q_first);
    std::int64_t const last =
        std::min((share.kv_first + h + 1) * group, share.q_first + share.q_count);
    runs.push_back({first - share.q_first, last - first, h, 1});
  }
  return runs;
}

/// A tensor on its way between ranks that hold rows of all heads and ranks of the same group that
/// hold all of the group's rows of some heads.
template <class Exec>
struct HeadExchange {
  distributed::Shards const* shards = nullptr;
  bool kv = false;  ///< of key heads, which several ranks may have
  std::int64_t features = 0, element_bytes = 0;
  MessageBuffer<Exec> by_rows, by_heads;  ///< messages that hold, or go to, either
  AnyTensor ordered;                      ///< this rank's heads, rows in the order of the group
};

/// What a call of either operation has and does.
template <class T, class Exec>
class ContextTransfers {
 public:
  using Acc = AttentionAccumulator<T>;
  using Piece = distributed::Piece;
  using Shards = distributed::Shards;
  using Space = typename Exec::memory_space;

  ContextTransfers(char const* operation, Exec const& exec, distributed::Communicator& comm,
                   distributed::ContextShards const& shards, ContextProblem const& problem)
      : operation_(operation), exec_(exec), comm_(comm), shards_(shards), problem_(problem) {
    width_ = problem.head_dim + problem.head_dim_v;
    heads_kv_ = problem.heads_kv;
  }

 protected:
  static constexpr auto element = static_cast<std::int64_t>(sizeof(T));
  static constexpr int block_slot = 0, sum_slot = 1;  ///< of exchanges; sums have two
  static constexpr int first_plain = 48;              ///< numbers of buffers that no message uses
  static constexpr int own_block_number = 28, own_sums_number = 29;  ///< plain ones of a ring

  // Neighboring ranks form groups. The ranks of a group bring together the rows that they have,
  // and blocks of a group go round between groups: groups of one rank are a ring, one group of all
  // ranks has everything.
  void form_groups(distributed::Strategy strategy) {
    using distributed::Strategy;
    group_ = strategy == Strategy::ring        ? 1
             : strategy == Strategy::two_level ? comm_.machine().ranks_per_node
                                               : comm_.size();
    if (strategy == Strategy::two_level &&
        (group_ <= 1 || group_ >= comm_.size() || comm_.size() % group_ != 0))
      raise<UnsupportedError>(operation_,
                              ": two_level wants several full nodes of several ranks; "
                              "the communicator has ",
                              comm_.size(), " ranks, and its machine ", group_, " per node");
    groups_.q = group_ == 1 ? shards_.q : shards_.q.joined(group_);
    groups_.kv = group_ == 1 ? shards_.kv : shards_.kv.joined(group_);
    shared_ = strategy == Strategy::ring ? shards_.kv.shared_with(shards_.q) : groups_.kv;
    shares_all_ = shared_ == groups_.kv;
  }
  /// Calls f(part, place) for the rows of this rank's keys that others need: where they lie among
  /// all of the rank's, and in what is sent.
  template <class F>
  void for_each_shared(AnyTensor const& all, AnyTensor const& sent, F const& f) const {
    auto whole = shards_.kv.pieces(comm_.rank()).begin();
    for (Piece const& piece : shared_.pieces(comm_.rank())) {
      while (!holds(*whole, piece)) ++whole;
      std::int64_t const b = all.extent[0], h = all.extent[1];
      f(part_of(all, {{0, 0, whole->local}, {b, h, piece.rows()}}),
        part_of(sent, {{0, 0, piece.local}, {b, h, piece.rows()}}));
    }
  }
  int group() const { return comm_.rank() / group_; }
  int groups() const { return comm_.size() / group_; }
  int first_of_group() const { return group() * group_; }
  /// The rank that stands in another group where this one stands in its own.
  int same_in(int other) const { return other * group_ + comm_.rank() % group_; }
  bool deals_heads() const {
    return strategy_ == distributed::Strategy::all_to_all ||
           strategy_ == distributed::Strategy::two_level;
  }

  MessageBuffer<Exec> message(int number, std::int64_t bytes) {
    return MessageBuffer<Exec>(operation_, comm_, number, bytes);
  }
  void* plain(int number, std::int64_t bytes) {
    return comm_.template buffer<Space>(operation_, first_plain + number,
                                        static_cast<std::size_t>(bytes));
  }

  // Keys and values in one message: each row of keys is followed by that of values.
  AnyTensor pairs_at(void* data, std::int64_t rows) const {
    return dense_rows(data, problem_.type, problem_.batch, heads_kv_, rows, width_, width_);
  }
  AnyTensor keys_of(AnyTensor pairs) const {
    pairs.extent[3] = problem_.head_dim;
    return pairs;
  }
  AnyTensor values_of(AnyTensor pairs) const {
    if (pairs.data != nullptr)
      pairs.data = pairs.as<char>() + problem_.head_dim * dtype_size(pairs.type);
    pairs.extent[3] = problem_.head_dim_v;
    return pairs;
  }
  std::int64_t pair_count(std::int64_t rows) const { return rows * problem_.batch * heads_kv_; }
  std::int64_t pair_bytes(std::int64_t rows, std::int64_t size = element) const {
    return pair_count(rows) * width_ * size;
  }
  void pack_pairs(AnyTensor const& k, AnyTensor const& v, void* data) {
    AnyTensor const pairs = pairs_at(data, shards_.kv.rows(comm_.rank()));
    copy_rows<T, T>(exec_, operation_, k, keys_of(pairs));
    copy_rows<T, T>(exec_, operation_, v, values_of(pairs));
  }
  /// Memory for this rank's block of a ring: where messages begin if all of it is sent.
  void* own_block(MessageBuffer<Exec> const& first) {
    if (shares_all_) return first.data;
    return plain(own_block_number, pair_bytes(shards_.kv.rows(comm_.rank())));
  }
  void pack_shared(void* own, void* message) {
    if (shares_all_) return;
    for_each_shared(pairs_at(own, shards_.kv.rows(comm_.rank())),
                    pairs_at(message, shared_.rows(comm_.rank())),
                    [&](AnyTensor const& from, AnyTensor const& to) {
                      copy_rows<T, T>(exec_, operation_, from, to);
                    });
  }

  /// All keys and values, in the order of positions, in ordered_pairs_.
  void prepare_gather() {
    std::int64_t const total = shards_.kv.total();
    message_rows(operation_, total * problem_.batch * problem_.heads_kv);
    own_ = message(0, pair_bytes(shards_.kv.rows(comm_.rank())));
    gathered_ = message(1, pair_bytes(total));
    ordered_pairs_ = pairs_at(plain(0, pair_bytes(total)), total);
  }
  void gather_pairs(AnyTensor const& k, AnyTensor const& v) {
    int const n = comm_.size();
    std::int64_t const own = shards_.kv.rows(comm_.rank());
    pack_pairs(k, v, own_.data);
    own_.to_wire(exec_, pair_bytes(own));
    RowParts parts;
    for (int r = 0; r < n; ++r) parts.add(pair_count(shards_.kv.rows(r)));
    comm_.transport().gather_rows(QueueRef(exec_),
                                  "attikos::distributed: keys and values are packed",
                                  width_ * element, own_.wire, gathered_.wire, parts);
    gathered_.from_wire(exec_, pair_bytes(shards_.kv.total()));
    std::int64_t before = 0;
    for (int r = 0; r < n; ++r) {
      std::int64_t const rows = shards_.kv.rows(r);
      put_in_order<T>(shards_.kv, r,
                      pairs_at(static_cast<char*>(gathered_.data) + pair_bytes(before), rows),
                      ordered_pairs_);
      before += rows;
    }
  }

  /// Calls f(rows of the rank, the same rows in the order of its group) for each piece of a rank.
  template <class F>
  void for_each_piece(Shards const& shards, int rank, AnyTensor const& rows, AnyTensor const& all,
                      F const& f) {
    auto const& together = (&shards == &shards_.q ? groups_.q : groups_.kv).pieces(rank / group_);
    auto of_group = together.begin();
    for (Piece const& piece : shards.pieces(rank)) {
      // Both are ascending as a rule.
      if (of_group == together.end() || !holds(*of_group, piece))
        of_group = std::find_if(together.begin(), together.end(),
                                [&](Piece const& whole) { return holds(whole, piece); });
      std::int64_t const at = of_group->local + piece.begin - of_group->begin;
      std::int64_t const b = all.extent[0], h = all.extent[1];
      f(part_of(rows, {{0, 0, piece.local}, {b, h, piece.rows()}}),
        part_of(all, {{0, 0, at}, {b, h, piece.rows()}}));
    }
  }
  static bool holds(Piece const& whole, Piece const& part) {
    return whole.sequence == part.sequence && whole.begin <= part.begin && part.end <= whole.end;
  }
  template <class E>
  void put_in_order(Shards const& shards, int rank, AnyTensor const& rows, AnyTensor const& all) {
    for_each_piece(shards, rank, rows, all, [&](AnyTensor const& from, AnyTensor const& to) {
      copy_rows<E, E>(exec_, operation_, from, to);
    });
  }
  template <class E>
  void take_from_order(Shards const& shards, int rank, AnyTensor const& all,
                       AnyTensor const& rows) {
    for_each_piece(shards, rank, rows, all, [&](AnyTensor const& to, AnyTensor const& from) {
      copy_rows<E, E>(exec_, operation_, from, to);
    });
  }

  HeadShare share_of(int rank) const {
    return head_share(problem_.heads_q, problem_.heads_kv, rank % group_, group_);
  }
  static std::int64_t heads_of(HeadShare const& share, bool kv) {
    return kv ? share.kv_count : share.q_count;
  }

  /// Memory of an exchange. \param number of its first message and its plain buffer
  /// \param ordered where rows are to lie in the order of the group, if not in memory of its own
  HeadExchange<Exec> exchange_of(int number, bool kv, std::int64_t features, DType type,
                                 AnyTensor const* ordered = nullptr) {
    HeadExchange<Exec> x;
    x.shards = kv ? &shards_.kv : &shards_.q;
    x.kv = kv;
    x.features = features;
    x.element_bytes = dtype_size(type);
    std::int64_t copies = 0;
    for_each_of_group([&](int r) { copies += heads_of(share_of(r), kv); });
    std::int64_t const total = (kv ? groups_.kv : groups_.q).rows(group());
    std::int64_t const heads = heads_of(share_of(comm_.rank()), kv), batch = problem_.batch;
    std::int64_t const row = features * x.element_bytes;
    std::int64_t const rows_out = batch * copies * x.shards->rows(comm_.rank());
    std::int64_t const rows_in = batch * heads * total;
    message_rows(operation_, std::max(rows_out, rows_in));
    x.by_rows = message(2 * number, rows_out * row);
    x.by_heads = message(2 * number + 1, rows_in * row);
    x.ordered = ordered != nullptr ? *ordered
                                   : dense_rows(plain(number, rows_in * row), type, batch, heads,
                                                total, features, features);
    return x;
  }
  template <class F>
  void for_each_of_group(F const& f) const {
    for (int r = first_of_group(); r < first_of_group() + group_; ++r) f(r);
  }

  /// The parts of the two messages that this rank has with rank r, as tensors.
  AnyTensor part_by_rows(HeadExchange<Exec> const& x, int rank, DType type) const {
    std::int64_t const rows = x.shards->rows(comm_.rank());
    std::int64_t before = 0;
    for (int r = first_of_group(); r < rank; ++r) before += heads_of(share_of(r), x.kv);
    return dense_rows(static_cast<char*>(x.by_rows.data) +
                          before * problem_.batch * rows * x.features * x.element_bytes,
                      type, problem_.batch, heads_of(share_of(rank), x.kv), rows, x.features,
                      x.features);
  }
  AnyTensor part_by_heads(HeadExchange<Exec> const& x, int rank, DType type) const {
    std::int64_t const heads = heads_of(share_of(comm_.rank()), x.kv);
    std::int64_t before = 0;
    for (int r = first_of_group(); r < rank; ++r) before += x.shards->rows(r);
    return dense_rows(static_cast<char*>(x.by_heads.data) +
                          before * problem_.batch * heads * x.features * x.element_bytes,
                      type, problem_.batch, heads, x.shards->rows(rank), x.features, x.features);
  }
  Box head_box(HeadExchange<Exec> const& x, int rank) const {
    HeadShare const share = share_of(rank);
    return {{0, x.kv ? share.kv_first : share.q_first, 0},
            {problem_.batch, heads_of(share, x.kv), x.shards->rows(comm_.rank())}};
  }

  /// To heads or back to rows.
  void exchange(HeadExchange<Exec> const& x, bool to_heads) {
    std::int64_t const row_bytes = x.features * x.element_bytes;
    RowParts rows, heads;
    HeadShare const mine = share_of(comm_.rank());
    for (int r = 0; r < comm_.size(); ++r) {
      bool const here = r / group_ == group();
      std::int64_t const own = x.shards->rows(comm_.rank());
      rows.add(here ? problem_.batch * heads_of(share_of(r), x.kv) * own : 0);
      heads.add(here ? problem_.batch * heads_of(mine, x.kv) * x.shards->rows(r) : 0);
    }
    auto const &from = to_heads ? x.by_rows : x.by_heads, &to = to_heads ? x.by_heads : x.by_rows;
    auto const &sent = to_heads ? rows : heads, &got = to_heads ? heads : rows;
    from.to_wire(exec_, sent.total * row_bytes);
    comm_.transport().exchange_rows(QueueRef(exec_), "attikos::distributed: rows are packed",
                                    row_bytes, from.wire, sent, to.wire, got);
    to.from_wire(exec_, got.total * row_bytes);
  }

  /// This rank's rows of all heads become the group's rows of its heads, in x.ordered.
  template <class E>
  void to_heads(HeadExchange<Exec> const& x, AnyTensor const& mine) {
    for_each_of_group([&](int r) {
      copy_rows<E, E>(exec_, operation_, part_of(mine, head_box(x, r)),
                      part_by_rows(x, r, mine.type));
    });
    exchange(x, true);
    for_each_of_group(
        [&](int r) { put_in_order<E>(*x.shards, r, part_by_heads(x, r, mine.type), x.ordered); });
  }

  /// The way back. `put(part, place)`: what rank r's heads have for this rank's rows, in the order
  /// of ranks; key heads come from each rank that has them.
  template <class E, class Put>
  void to_rows(HeadExchange<Exec> const& x, AnyTensor const& mine, Put const& put) {
    for_each_of_group([&](int r) {
      take_from_order<E>(*x.shards, r, x.ordered, part_by_heads(x, r, x.ordered.type));
    });
    exchange(x, false);
    for_each_of_group(
        [&](int r) { put(part_by_rows(x, r, x.ordered.type), part_of(mine, head_box(x, r))); });
  }

  /// The problem that a rank has of its heads.
  ContextProblem problem_of_heads() const {
    if (problem_.heads_q == 0 || problem_.heads_kv == 0)
      raise<UnsupportedError>(operation_, ": ", strategy_name(strategy_),
                              " deals out heads, and there are none");
    HeadShare const mine = share_of(comm_.rank());
    ContextProblem own = problem_;
    own.heads_q = mine.q_count;
    own.heads_kv = mine.kv_count;
    if (own.sinks.data != nullptr)
      own.sinks.data = own.sinks.template as<char>() +
                       mine.q_first * own.sinks.stride[0] * dtype_size(own.sinks.type);
    return own;
  }
  std::vector<HeadRun> own_head_runs() const {
    return head_runs(share_of(comm_.rank()), problem_.heads_q / problem_.heads_kv);
  }

  char const* operation_;
  Exec const& exec_;
  distributed::Communicator& comm_;
  distributed::ContextShards const& shards_;
  ContextProblem problem_;
  distributed::Strategy strategy_ = distributed::Strategy::ring;
  int group_ = 1;                                          ///< ranks of a group
  distributed::ContextShards groups_{Shards{}, Shards{}};  ///< what groups hold
  Shards shared_;           ///< keys that go round: those whose sequences have queries elsewhere
  bool shares_all_ = true;  ///< these are all of them
  std::int64_t width_ = 0;
  std::int64_t heads_kv_ = 0;  ///< of a block of keys and values
  MessageBuffer<Exec> own_, gathered_;
  AnyTensor ordered_pairs_;
  CallFailure failure_;
};

/// An lse as rows of one number.
inline AnyTensor as_rows_of_one(AnyTensor lse) {
  lse.rank = 4;
  lse.extent[3] = lse.stride[3] = 1;
  return lse;
}
inline AnyTensor as_lse(AnyTensor rows) {
  rows.rank = 3;
  return rows;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
