// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Context-parallel attention: checks, and one function for each strategy.
#pragma once

#include <attikos/distributed/agreement.hpp>
#include <attikos/distributed/context_cost.hpp>
#include <attikos/distributed/context_parts.hpp>
#include <exception>
#include <optional>

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

/// A call of distributed::attention().
template <class T, class Exec>
class ContextCall {
 public:
  using Acc = AttentionAccumulator<T>;
  using Piece = distributed::Piece;
  using Shards = distributed::Shards;
  static constexpr char const* operation = "distributed::attention";

  ContextCall(Exec const& exec, distributed::Communicator& comm,
              distributed::ContextShards const& shards, ContextProblem const& problem,
              AttentionTensors const& tensors)
      : exec_(exec),
        comm_(comm),
        shards_(shards),
        problem_(problem),
        q_(tensors.q.with_rank(4)),
        k_(tensors.k.with_rank(4)),
        v_(tensors.v.with_rank(4)),
        out_(tensors.out.with_rank(4)),
        lse_(tensors.lse.given() ? tensors.lse.with_rank(3) : AnyTensor{}) {}

  /// Everything that can fail on one rank alone: memory, kernels that do not take a product.
  void prepare(distributed::Strategy strategy) {
    strategy_ = strategy;
    width_ = problem_.head_dim + problem_.head_dim_v;
    if (strategy == distributed::Strategy::all_to_all) {
      prepare_heads();
    } else {
      message_rows(operation, shards_.kv.max_rows() * problem_.batch * problem_.heads_kv);
      parts_.emplace(operation, exec_, comm_, problem_, shards_.q, shards_.kv, comm_.rank(),
                     std::vector<HeadRun>{{0, problem_.heads_q, 0, problem_.heads_kv}});
      parts_->set_queries(q_);
    }
    parts_->begin(true);
    if (strategy == distributed::Strategy::ring)
      prepare_ring();
    else if (strategy == distributed::Strategy::all_gather)
      prepare_gather();
    if (strategy != distributed::Strategy::ring)
      parts_->add_block(whole_kv_.pieces(0), keys_of(nullptr, whole_kv_.total()),
                        values_of(nullptr, whole_kv_.total()), [] {});
    parts_->finish(out_, lse_);
    parts_->allocate();
    parts_->begin(false);
  }

  void run() {
    switch (strategy_) {
      case distributed::Strategy::all_gather:
        return run_gather();
      case distributed::Strategy::all_to_all:
        return run_heads();
      default:
        return run_ring();
    }
  }

 private:
  /// What a failure of one rank in the middle of a call comes to: it goes on sending what others
  /// wait for, and throws at the end. Keys and values are inputs: others get what is right.
  template <class F>
  void unless_failed(F const& f) {
    if (failure_) return;
    try {
      f();
    } catch (CommunicationError const&) {
      throw;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  /// The same where others got results of this rank.
  void throw_if_one_failed() {
    int const mine = failure_ ? comm_.rank() : comm_.size();
    int first = 0;
    comm_.check("MPI_Allreduce", MPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, comm_.handle()));
    rethrow();
    if (first != comm_.size())
      raise<Error>(operation, ": rank ", first, " of ", comm_.size(),
                   " failed in the middle of the call; outputs hold nothing of use");
  }

  /// Keys, and values, in rows of a message: each row of keys is followed by that of values.
  AnyTensor rows_at(void* data, std::int64_t rows, std::int64_t features) const {
    return dense_rows(data, problem_.type, problem_.batch, kv_heads_, rows, features, width_);
  }
  AnyTensor keys_of(void* data, std::int64_t rows) const {
    return rows_at(data, rows, problem_.head_dim);
  }
  AnyTensor values_of(void* data, std::int64_t rows) const {
    void* const first = data == nullptr ? nullptr : static_cast<T*>(data) + problem_.head_dim;
    return rows_at(first, rows, problem_.head_dim_v);
  }
  std::int64_t kv_bytes(std::int64_t rows) const {
    return rows * problem_.batch * kv_heads_ * width_ * static_cast<std::int64_t>(sizeof(T));
  }
  int kv_count(std::int64_t rows) const {
    return static_cast<int>(rows * problem_.batch * kv_heads_);
  }
  void pack_own(void* data) {
    std::int64_t const rows = shards_.kv.rows(comm_.rank());
    copy_rows<T>(exec_, operation, k_, keys_of(data, rows));
    copy_rows<T>(exec_, operation, v_, values_of(data, rows));
  }

  void prepare_ring() {
    kv_heads_ = problem_.heads_kv;
    for (int b = 0; b < 2; ++b)
      blocks_[b] = MessageBuffer<Exec>(operation, comm_, b, kv_bytes(shards_.kv.max_rows()));
    for (int step = 0; step < comm_.size(); ++step) {
      int const owner = distributed::ring_step(comm_.rank(), comm_.size(), step).block;
      std::int64_t const rows = shards_.kv.rows(owner);
      parts_->add_block(shards_.kv.pieces(owner), keys_of(nullptr, rows), values_of(nullptr, rows),
                        [] {});
    }
  }

  void run_ring() {
    RowType const row(comm_, width_ * static_cast<std::int64_t>(sizeof(T)));
    pack_own(blocks_[0].data);
    blocks_[0].to_wire(exec_, kv_bytes(shards_.kv.rows(comm_.rank())));
    for (int step = 0; step < comm_.size(); ++step) {
      auto const s = distributed::ring_step(comm_.rank(), comm_.size(), step);
      MessageBuffer<Exec> const &here = blocks_[step % 2], &next = blocks_[(step + 1) % 2];
      std::int64_t const rows = shards_.kv.rows(s.block);
      std::int64_t const rows_next = shards_.kv.rows((s.block - 1 + comm_.size()) % comm_.size());
      MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
      if (s.transfers) {
        // MPI sees neither that kernels have read what it is to overwrite nor that the block which
        // it is to send has been written.
        exec_.fence("attikos::distributed::attention: a block is free");
        comm_.check("MPI_Irecv", MPI_Irecv(next.wire, kv_count(rows_next), row.get(), s.from, 0,
                                           comm_.handle(), &requests[0]));
        comm_.check("MPI_Isend", MPI_Isend(here.wire, kv_count(rows), row.get(), s.to, 0,
                                           comm_.handle(), &requests[1]));
      }
      unless_failed([&] {
        parts_->add_block(shards_.kv.pieces(s.block), keys_of(here.data, rows),
                          values_of(here.data, rows), [&] { progress(2, requests); });
      });
      if (s.transfers) {
        comm_.check("MPI_Waitall", MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        next.from_wire(exec_, kv_bytes(rows_next));
      }
    }
    rethrow();
    parts_->finish(out_, lse_);
  }

  /// Most MPIs move large messages only while they are called.
  void progress(int count, MPI_Request* requests) {
    int done = 0;
    comm_.check("MPI_Testall", MPI_Testall(count, requests, &done, MPI_STATUSES_IGNORE));
  }

  void prepare_gather() {
    kv_heads_ = problem_.heads_kv;
    whole_kv_ = shards_.kv.whole();
    std::int64_t const total = shards_.kv.total();
    message_rows(operation, total * problem_.batch * kv_heads_);
    own_ = MessageBuffer<Exec>(operation, comm_, 0, kv_bytes(shards_.kv.rows(comm_.rank())));
    gathered_ = MessageBuffer<Exec>(operation, comm_, 1, kv_bytes(total));
    ordered_ = comm_.template buffer<typename Exec::memory_space>(
        operation, 60, static_cast<std::size_t>(kv_bytes(total)));
  }

  void run_gather() {
    int const n = comm_.size();
    std::int64_t const total = shards_.kv.total(), own = shards_.kv.rows(comm_.rank());
    RowType const row(comm_, width_ * static_cast<std::int64_t>(sizeof(T)));
    pack_own(own_.data);
    own_.to_wire(exec_, kv_bytes(own));
    exec_.fence("attikos::distributed::attention: keys and values are packed");
    std::vector<int> counts, places;
    int place = 0;
    for (int r = 0; r < n; ++r) {
      counts.push_back(kv_count(shards_.kv.rows(r)));
      places.push_back(place);
      place += counts.back();
    }
    comm_.check("MPI_Allgatherv",
                MPI_Allgatherv(own_.wire, kv_count(own), row.get(), gathered_.wire, counts.data(),
                               places.data(), row.get(), comm_.handle()));
    gathered_.from_wire(exec_, kv_bytes(total));
    std::int64_t before = 0;
    for (int r = 0; r < n; ++r) {
      std::int64_t const rows = shards_.kv.rows(r);
      auto* const data = static_cast<char*>(gathered_.data) + kv_bytes(before);
      put_in_order(shards_.kv, r, rows_at(data, rows, width_), rows_at(ordered_, total, width_));
      before += rows;
    }
    parts_->add_block(whole_kv_.pieces(0), keys_of(ordered_, total), values_of(ordered_, total),
                      [] {});
    parts_->finish(out_, lse_);
  }

  /// A rank's rows to where they are in the order of positions.
  void put_in_order(Shards const& shards, int rank, AnyTensor const& rows, AnyTensor const& all) {
    for (Piece const& piece : shards.pieces(rank)) {
      std::int64_t const at = shards.offset(piece.sequence) + piece.begin;
      std::int64_t const b = all.extent[0], h = all.extent[1];
      copy_rows<T>(exec_, operation, part_of(rows, {{0, 0, piece.local}, {b, h, piece.rows()}}),
                   part_of(all, {{0, 0, at}, {b, h, piece.rows()}}));
    }
  }

  HeadShare share_of(int rank) const {
    return head_share(problem_.heads_q, problem_.heads_kv, rank, comm_.size());
  }

  void prepare_heads() {
    if (problem_.heads_q == 0 || problem_.heads_kv == 0)
      raise<UnsupportedError>(operation, ": all_to_all deals out heads, and there are none");
    int const n = comm_.size(), me = comm_.rank();
    HeadShare const mine = share_of(me);
    kv_heads_ = mine.kv_count;
    whole_q_ = shards_.q.whole();
    whole_kv_ = shards_.kv.whole();
    own_heads_ = problem_;
    own_heads_.heads_q = mine.q_count;
    own_heads_.heads_kv = mine.kv_count;
    if (own_heads_.sinks.data != nullptr)
      own_heads_.sinks.data =
          own_heads_.sinks.template as<char>() +
          mine.q_first * own_heads_.sinks.stride[0] * dtype_size(own_heads_.sinks.type);
    parts_.emplace(operation, exec_, comm_, own_heads_, whole_q_, whole_kv_, 0,
                   head_runs(mine, problem_.heads_q / problem_.heads_kv));
    // Rows that go to and come from each rank, of queries, of keys and values, and of results.
    std::int64_t const total_q = shards_.q.total(), total_kv = shards_.kv.total();
    std::int64_t kv_copies = 0;
    for (int r = 0; r < n; ++r) kv_copies += share_of(r).kv_count;
    std::int64_t const d = problem_.head_dim, dv = problem_.head_dim_v, batch = problem_.batch;
    auto const rows_out = [&](Shards const& s, std::int64_t heads) {
      return s.rows(me) * batch * heads;
    };
    constexpr auto size = static_cast<std::int64_t>(sizeof(T));
    constexpr auto acc = static_cast<std::int64_t>(sizeof(Acc));
    message_rows(operation, std::max(total_q * batch * std::max(mine.q_count, std::int64_t{1}),
                                     std::max(rows_out(shards_.kv, kv_copies),
                                              total_kv * batch * mine.kv_count)));
    send_q_ =
        MessageBuffer<Exec>(operation, comm_, 0, rows_out(shards_.q, problem_.heads_q) * d * size);
    got_q_ = MessageBuffer<Exec>(operation, comm_, 1, total_q * batch * mine.q_count * d * size);
    send_kv_ =
        MessageBuffer<Exec>(operation, comm_, 2, rows_out(shards_.kv, kv_copies) * width_ * size);
    got_kv_ = MessageBuffer<Exec>(operation, comm_, 3, kv_bytes(total_kv));
    send_out_ =
        MessageBuffer<Exec>(operation, comm_, 4, total_q * batch * mine.q_count * dv * size);
    got_out_ =
        MessageBuffer<Exec>(operation, comm_, 5, rows_out(shards_.q, problem_.heads_q) * dv * size);
    send_lse_ = MessageBuffer<Exec>(operation, comm_, 6, total_q * batch * mine.q_count * acc);
    got_lse_ =
        MessageBuffer<Exec>(operation, comm_, 7, rows_out(shards_.q, problem_.heads_q) * acc);
    auto const plain = [&](int number, std::int64_t bytes) {
      return comm_.template buffer<typename Exec::memory_space>(operation, 60 + number,
                                                                static_cast<std::size_t>(bytes));
    };
    ordered_ = plain(0, kv_bytes(total_kv));
    ordered_q_ = plain(1, total_q * batch * mine.q_count * d * size);
    ordered_out_ = plain(2, total_q * batch * mine.q_count * dv * size);
    ordered_lse_ = plain(3, total_q * batch * mine.q_count * acc);
    parts_->set_queries(dense_rows(ordered_q_, problem_.type, batch, mine.q_count, total_q, d, d));
  }

  /// One exchange of rows: `sent(r)` and `got(r)` are rows for and from rank r, in messages that
  /// lie one after the other.
  template <class Sent, class Got>
  void exchange(MessageBuffer<Exec> const& from, MessageBuffer<Exec> const& to,
                std::int64_t row_bytes, Sent const& sent, Got const& got) {
    RowType const row(comm_, row_bytes);
    std::vector<int> send_counts, send_places, counts, places;
    std::int64_t all_sent = 0, all_got = 0;
    for (int r = 0; r < comm_.size(); ++r) {
      send_places.push_back(static_cast<int>(all_sent));
      places.push_back(static_cast<int>(all_got));
      send_counts.push_back(static_cast<int>(sent(r)));
      counts.push_back(static_cast<int>(got(r)));
      all_sent += sent(r);
      all_got += got(r);
    }
    from.to_wire(exec_, all_sent * row_bytes);
    exec_.fence("attikos::distributed::attention: rows are packed");
    comm_.check("MPI_Alltoallv",
                MPI_Alltoallv(from.wire, send_counts.data(), send_places.data(), row.get(), to.wire,
                              counts.data(), places.data(), row.get(), comm_.handle()));
    to.from_wire(exec_, all_got * row_bytes);
  }

  void run_heads() {
    int const n = comm_.size(), me = comm_.rank();
    HeadShare const mine = share_of(me);
    constexpr auto size = static_cast<std::int64_t>(sizeof(T));
    constexpr auto acc = static_cast<std::int64_t>(sizeof(Acc));
    std::int64_t const d = problem_.head_dim, dv = problem_.head_dim_v, batch = problem_.batch;
    std::int64_t const own_q = shards_.q.rows(me), own_kv = shards_.kv.rows(me);
    std::int64_t const total_q = shards_.q.total(), total_kv = shards_.kv.total();
    auto const at = [](void* data, std::int64_t bytes) { return static_cast<char*>(data) + bytes; };
    // This rank's rows of the heads of each rank.
    for (std::int64_t r = 0, before_kv = 0; r < n; ++r) {
      HeadShare const share = share_of(static_cast<int>(r));
      Box const q_box{{0, share.q_first, 0}, {batch, share.q_count, own_q}};
      Box const kv_box{{0, share.kv_first, 0}, {batch, share.kv_count, own_kv}};
      copy_rows<T>(exec_, operation, part_of(q_, q_box),
                   dense_rows(at(send_q_.data, share.q_first * batch * own_q * d * size),
                              problem_.type, batch, share.q_count, own_q, d, d));
      char* const block = at(send_kv_.data, before_kv * batch * own_kv * width_ * size);
      copy_rows<T>(exec_, operation, part_of(k_, kv_box),
                   dense_rows(block, problem_.type, batch, share.kv_count, own_kv, d, width_));
      copy_rows<T>(
          exec_, operation, part_of(v_, kv_box),
          dense_rows(block + d * size, problem_.type, batch, share.kv_count, own_kv, dv, width_));
      before_kv += share.kv_count;
    }
    auto const heads_of = [&](int r) { return share_of(r).q_count * batch * own_q; };
    auto const rows_of = [&](int r) { return mine.q_count * batch * shards_.q.rows(r); };
    exchange(send_q_, got_q_, d * size, heads_of, rows_of);
    exchange(
        send_kv_, got_kv_, width_ * size,
        [&](int r) { return share_of(r).kv_count * batch * own_kv; },
        [&](int r) { return mine.kv_count * batch * shards_.kv.rows(r); });
    AnyTensor const q = dense_rows(ordered_q_, problem_.type, batch, mine.q_count, total_q, d, d);
    AnyTensor const out =
        dense_rows(ordered_out_, problem_.type, batch, mine.q_count, total_q, dv, dv);
    AnyTensor const lse =
        dense_rows(ordered_lse_, dtype_of<Acc>, batch, mine.q_count, total_q, 1, 1);
    std::int64_t before_q = 0, before_kv = 0;
    for (int r = 0; r < n; ++r) {
      std::int64_t const rows_q = shards_.q.rows(r), rows_kv = shards_.kv.rows(r);
      put_in_order(shards_.q, r,
                   dense_rows(at(got_q_.data, before_q * batch * mine.q_count * d * size),
                              problem_.type, batch, mine.q_count, rows_q, d, d),
                   q);
      put_in_order(shards_.kv, r, rows_at(at(got_kv_.data, kv_bytes(before_kv)), rows_kv, width_),
                   rows_at(ordered_, total_kv, width_));
      before_q += rows_q;
      before_kv += rows_kv;
    }
    unless_failed([&] {
      parts_->add_block(whole_kv_.pieces(0), keys_of(ordered_, total_kv),
                        values_of(ordered_, total_kv), [] {});
      AnyTensor lse3 = lse;
      lse3.rank = 3;
      parts_->finish(out, lse3);
    });
    // Results go back the way that queries came.
    before_q = 0;
    for (int r = 0; r < n; ++r) {
      std::int64_t const rows = shards_.q.rows(r), first = before_q * batch * mine.q_count;
      take_out_of_order<T>(shards_.q, r, out,
                           dense_rows(at(send_out_.data, first * dv * size), problem_.type, batch,
                                      mine.q_count, rows, dv, dv));
      take_out_of_order<Acc>(shards_.q, r, lse,
                             dense_rows(at(send_lse_.data, first * acc), dtype_of<Acc>, batch,
                                        mine.q_count, rows, 1, 1));
      before_q += rows;
    }
    exchange(send_out_, got_out_, dv * size, rows_of, heads_of);
    exchange(send_lse_, got_lse_, acc, rows_of, heads_of);
    throw_if_one_failed();
    AnyTensor lse4 = lse_;  // a row of one number
    lse4.rank = 4;
    lse4.extent[3] = lse4.stride[3] = 1;
    for (int r = 0; r < n; ++r) {
      HeadShare const share = share_of(r);
      Box const box{{0, share.q_first, 0}, {batch, share.q_count, own_q}};
      std::int64_t const first = share.q_first * batch * own_q;
      copy_rows<T>(exec_, operation,
                   dense_rows(at(got_out_.data, first * dv * size), problem_.type, batch,
                              share.q_count, own_q, dv, dv),
                   part_of(out_, box));
      if (lse_.given())
        copy_rows<Acc>(exec_, operation,
                       dense_rows(at(got_lse_.data, first * acc), dtype_of<Acc>, batch,
                                  share.q_count, own_q, 1, 1),
                       part_of(lse4, box));
    }
  }

  template <class Element>
  void take_out_of_order(Shards const& shards, int rank, AnyTensor const& all,
                         AnyTensor const& rows) {
    for (Piece const& piece : shards.pieces(rank)) {
      std::int64_t const from = shards.offset(piece.sequence) + piece.begin;
      std::int64_t const b = all.extent[0], h = all.extent[1];
      copy_rows<Element>(exec_, operation, part_of(all, {{0, 0, from}, {b, h, piece.rows()}}),
                         part_of(rows, {{0, 0, piece.local}, {b, h, piece.rows()}}));
    }
  }

  Exec const& exec_;
  distributed::Communicator& comm_;
  distributed::ContextShards const& shards_;
  ContextProblem problem_, own_heads_;
  AnyTensor q_, k_, v_, out_, lse_;
  distributed::Strategy strategy_ = distributed::Strategy::ring;
  std::int64_t width_ = 0, kv_heads_ = 0;
  Shards whole_q_, whole_kv_;
  std::optional<ContextParts<T, Exec>> parts_;
  MessageBuffer<Exec> blocks_[2], own_, gathered_, send_q_, got_q_, send_kv_, got_kv_, send_out_,
      got_out_, send_lse_, got_lse_;
  void *ordered_ = nullptr, *ordered_q_ = nullptr, *ordered_out_ = nullptr, *ordered_lse_ = nullptr;
  std::exception_ptr failure_;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
