// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Context-parallel attention: one function for each strategy.
#pragma once

#include <attikos/distributed/context_cost.hpp>
#include <attikos/distributed/context_transfers.hpp>
#include <optional>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A call of distributed::attention().
template <class T, class Exec>
class ContextCall : private ContextTransfers<T, Exec> {
  using Base = ContextTransfers<T, Exec>;
  using Base::comm_;
  using Base::exec_;
  using Base::failure_;
  using Base::operation_;
  using Base::problem_;
  using Base::shards_;
  using Base::strategy_;
  using Base::width_;

 public:
  using typename Base::Acc;
  using typename Base::Shards;
  static constexpr char const* operation = "distributed::attention";

  ContextCall(Exec const& exec, distributed::Communicator& comm,
              distributed::ContextShards const& shards, ContextProblem const& problem,
              AttentionTensors const& tensors)
      : Base(operation, exec, comm, shards, problem),
        q_(tensors.q.with_rank(4)),
        k_(tensors.k.with_rank(4)),
        v_(tensors.v.with_rank(4)),
        out_(tensors.out.with_rank(4)),
        lse_(tensors.lse.given() ? tensors.lse.with_rank(3) : AnyTensor{}) {}

  /// Everything that can fail on one rank alone: memory, kernels that do not take a product.
  void prepare(distributed::Strategy strategy) {
    strategy_ = strategy;
    this->form_groups(strategy);
    if (this->deals_heads()) {
      prepare_heads();
    } else {
      message_rows(operation_, shards_.kv.max_rows() * problem_.batch * problem_.heads_kv);
      parts_.emplace(operation_, exec_, comm_, problem_, shards_.q, shards_.kv, comm_.rank(),
                     std::vector<HeadRun>{{0, problem_.heads_q, 0, problem_.heads_kv}});
      parts_->set_queries(q_);
    }
    parts_->begin(true);
    if (strategy == distributed::Strategy::all_gather) {
      this->prepare_gather();
      add_all(this->keys_of(this->ordered_pairs_), this->values_of(this->ordered_pairs_));
    } else if (strategy == distributed::Strategy::all_to_all) {
      add_all(k_by_heads_.ordered, v_by_heads_.ordered);
    } else {
      prepare_ring();
    }
    parts_->finish(out_, lse_);
    parts_->allocate();
    parts_->begin(false);
  }

  void run() {
    switch (strategy_) {
      case distributed::Strategy::all_gather:
        this->gather_pairs(k_, v_);
        add_all(this->keys_of(this->ordered_pairs_), this->values_of(this->ordered_pairs_));
        parts_->finish(out_, lse_);
        return;
      case distributed::Strategy::all_to_all:
      case distributed::Strategy::two_level:
        return run_heads();
      default:
        this->pack_pairs(k_, v_, own_);
        this->pack_shared(own_, blocks_[0].data);
        run_ring();
        failure_.rethrow();
        parts_->finish(out_, lse_);
    }
  }

 private:
  void add_all(AnyTensor const& k, AnyTensor const& v) {
    parts_->add_block(this->groups_.kv.pieces(0), k, v, [] {});
  }

  void get_blocks(int number) {
    for (int b = 0; b < 2; ++b)
      blocks_[b] = this->message(number + b, this->pair_bytes(this->shared_.max_rows()));
    own_ = this->own_block(blocks_[0]);
  }
  void prepare_ring() {
    if (!this->deals_heads()) get_blocks(0);
    for (int step = 0; step < this->groups(); ++step)
      add_block(distributed::ring_step(this->group(), this->groups(), step).block, nullptr, [] {});
  }

  template <class Between>
  void add_block(int owner, void* data, Between const& between) {
    bool const own = owner == this->group();
    auto const& kv = own ? this->groups_.kv : this->shared_;
    AnyTensor const pairs = this->pairs_at(own ? own_ : data, kv.rows(owner));
    parts_->add_block(kv.pieces(owner), this->keys_of(pairs), this->values_of(pairs), between);
  }

  /// Blocks of groups go round, of which what this group sends lies in the first buffer.
  void run_ring() {
    int const n = this->groups();
    auto const& kv = this->shared_;
    QueueRef const queue(exec_);
    auto& transport = comm_.transport();
    blocks_[0].to_wire(exec_, this->pair_bytes(kv.rows(this->group())));
    for (int step = 0; step < n; ++step) {
      auto const s = distributed::ring_step(this->group(), n, step);
      MessageBuffer<Exec> const &here = blocks_[step % 2], &next = blocks_[(step + 1) % 2];
      std::int64_t const rows_next = kv.rows((s.block - 1 + n) % n);
      if (s.transfers)
        transport.start(queue, Base::block_slot, "attikos::distributed::attention: a block is free",
                        width_ * Base::element,
                        {this->same_in(s.from), next.wire, this->pair_count(rows_next)},
                        {this->same_in(s.to), here.wire, this->pair_count(kv.rows(s.block))});
      failure_.unless_failed(
          [&] { add_block(s.block, here.data, [&] { transport.progress(Base::block_slot); }); });
      if (s.transfers) {
        transport.finish(queue, Base::block_slot);
        next.from_wire(exec_, this->pair_bytes(rows_next));
      }
    }
  }

  void prepare_heads() {
    own_heads_ = this->problem_of_heads();
    parts_.emplace(operation_, exec_, comm_, own_heads_, this->groups_.q, this->groups_.kv,
                   this->group(), this->own_head_runs());
    q_by_heads_ = this->exchange_of(0, false, problem_.head_dim, problem_.type);
    AnyTensor keys, values;
    bool const blocks = this->groups() > 1;  // that go on from here
    if (blocks) {
      this->heads_kv_ = own_heads_.heads_kv;
      get_blocks(10);
      AnyTensor const pairs = this->pairs_at(blocks_[0].data, this->groups_.kv.rows(this->group()));
      keys = this->keys_of(pairs), values = this->values_of(pairs);
    }
    k_by_heads_ =
        this->exchange_of(1, true, problem_.head_dim, problem_.type, blocks ? &keys : nullptr);
    v_by_heads_ =
        this->exchange_of(2, true, problem_.head_dim_v, problem_.type, blocks ? &values : nullptr);
    out_by_heads_ = this->exchange_of(3, false, problem_.head_dim_v, problem_.type);
    lse_by_heads_ = this->exchange_of(4, false, 1, dtype_of<Acc>);
    parts_->set_queries(q_by_heads_.ordered);
  }

  void run_heads() {
    this->template to_heads<T>(q_by_heads_, q_);
    this->template to_heads<T>(k_by_heads_, k_);
    this->template to_heads<T>(v_by_heads_, v_);
    if (this->groups() > 1)
      run_ring();
    else
      failure_.unless_failed([&] { add_all(k_by_heads_.ordered, v_by_heads_.ordered); });
    failure_.unless_failed(
        [&] { parts_->finish(out_by_heads_.ordered, as_lse(lse_by_heads_.ordered)); });
    this->template to_rows<T>(out_by_heads_, out_, [&](AnyTensor const& part, AnyTensor const& to) {
      copy_rows<T, T>(exec_, operation_, part, to);
    });
    AnyTensor const lse = as_rows_of_one(lse_);
    this->template to_rows<Acc>(lse_by_heads_, lse,
                                [&](AnyTensor const& part, AnyTensor const& to) {
                                  if (lse_.given())
                                    copy_rows<Acc, Acc>(exec_, operation_, part, to);
                                });
    failure_.throw_if_one_failed(operation_, comm_);
  }

  AnyTensor q_, k_, v_, out_, lse_;
  ContextProblem own_heads_;
  std::optional<ContextParts<T, Exec>> parts_;
  MessageBuffer<Exec> blocks_[2];
  void* own_ = nullptr;  ///< this group's block
  HeadExchange<Exec> q_by_heads_, k_by_heads_, v_by_heads_, out_by_heads_, lse_by_heads_;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
