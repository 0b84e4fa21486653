// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Gradients of context-parallel attention: one function for each strategy.
#pragma once

#include <attikos/attention/attention_backward.hpp>
#include <attikos/distributed/context_cost.hpp>
#include <attikos/distributed/context_sinks.hpp>
#include <attikos/distributed/context_transfers.hpp>
#include <optional>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// What a rank's queries add to the gradients of blocks of keys and values, and the other way
/// round. The log-sum-exp and the output of the whole make the gradients of a part those of the
/// whole. \tparam W element type of tensors that products take and give
template <class W, class Exec>
class GradientParts {
 public:
  using Acc = AttentionAccumulator<W>;
  using Piece = distributed::Piece;

  GradientParts(char const* operation, Exec const& exec, ContextProblem const& problem,
                distributed::Shards const& q_shards, distributed::Shards const& kv_shards,
                int q_rank, std::vector<HeadRun> heads)
      : operation_(operation),
        exec_(exec),
        problem_(problem),
        q_pieces_(q_shards.pieces(q_rank)),
        heads_(std::move(heads)) {
    for (Piece const& piece : q_pieces_)
      batches_.push_back(
          batch_runs(problem, q_shards.length(piece.sequence), kv_shards.length(piece.sequence)));
  }

  /// Bytes that a product of so many rows writes before they are added.
  static std::int64_t partial_bytes(ContextProblem const& p, std::int64_t q_rows,
                                    std::int64_t kv_rows) {
    return p.batch * static_cast<std::int64_t>(sizeof(W)) *
           (p.heads_q * q_rows * p.head_dim + p.heads_kv * kv_rows * (p.head_dim + p.head_dim_v));
  }

  void set_queries(AnyTensor const& q, AnyTensor const& out, AnyTensor const& lse,
                   AnyTensor const& dout, AnyTensor const& dq) {
    q_ = q, out_ = out, lse_ = lse, dout_ = dout, dq_ = dq;
  }
  /// Where a product's results lie before they are added.
  void set_partial(void* data) { partial_ = data; }

  /// Adds to `dq` and to `dk`, `dv`, accumulators. Dry: kernels are asked whether they take the
  /// products.
  template <class Between>
  void add_block(std::vector<Piece> const& pieces, AnyTensor const& k, AnyTensor const& v,
                 AnyTensor const& dk, AnyTensor const& dv, bool dry, Between const& between) {
    if (dry && *wanted_kernel(problem_.options.kernel) == '\0') return;
    for (std::size_t i = 0; i < q_pieces_.size(); ++i) {
      for (Piece const& keys : pieces) {
        for (BatchRun const& run : batches_[i]) {
          std::int64_t const offset = problem_.options.causal_alignment == CausalAlignment::top_left
                                          ? 0
                                          : run.length_kv - run.length_q;
          auto const product = distributed::product_of(q_pieces_[i], keys, problem_.visible(),
                                                       offset, run.length_q, run.length_kv);
          if (!product) continue;
          for (HeadRun const& heads : heads_) add(*product, run, heads, k, v, dk, dv, dry);
        }
        between();
      }
    }
  }

 private:
  void add(distributed::Product const& p, BatchRun const& run, HeadRun const& h, AnyTensor const& k,
           AnyTensor const& v, AnyTensor const& dk, AnyTensor const& dv, bool dry) {
    Box const queries{{run.first, h.q_first, p.q_row}, {run.count, h.q_count, p.q_rows}};
    Box const keys{{run.first, h.kv_first, p.kv_row}, {run.count, h.kv_count, p.kv_rows}};
    AttentionBackwardTensors t;
    t.forward.q = part_of(q_, queries);
    t.forward.k = part_of(k, keys);
    t.forward.v = part_of(v, keys);
    t.forward.out = part_of(out_, queries);
    t.forward.lse = as_lse(part_of(as_rows_of_one(lse_), queries));
    t.dout = part_of(dout_, queries);
    auto* next = static_cast<W*>(partial_);
    auto const partial = [&](AnyTensor const& like) {
      AnyTensor const x = dense_rows(next, dtype_of<W>, like.extent[0], like.extent[1],
                                     like.extent[2], like.extent[3], like.extent[3]);
      if (next != nullptr) next += x.extent[0] * x.stride[0];
      return x;
    };
    t.dq = partial(t.forward.q);
    t.dk = partial(t.forward.k);
    t.dv = partial(t.forward.v);
    Explanation explanation;
    attention_backward_run<W>(exec_, t, problem_.product_options(p.window), pair_functors(),
                              dry ? &explanation : nullptr);
    if (dry) return;
    copy_rows<W, Acc, true>(exec_, operation_, t.dq, part_of(dq_, queries));
    copy_rows<W, Acc, true>(exec_, operation_, t.dk, part_of(dk, keys));
    copy_rows<W, Acc, true>(exec_, operation_, t.dv, part_of(dv, keys));
  }

  char const* operation_;
  Exec const& exec_;
  ContextProblem const& problem_;
  std::vector<Piece> q_pieces_;
  std::vector<std::vector<BatchRun>> batches_;
  std::vector<HeadRun> heads_;
  AnyTensor q_, out_, lse_, dout_, dq_;
  void* partial_ = nullptr;
};

/// A call of distributed::attention_backward().
template <class T, class Exec>
class GradientCall : private ContextTransfers<T, Exec> {
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
  using typename Base::Space;
  static constexpr char const* operation = "distributed::attention_backward";
  /// Hosts, whose kernels compute 16-bit tensors in float anyway, are given float, so that what
  /// products add to a gradient is not rounded each time; kernels of devices want their types.
  using W = std::conditional_t<is_host_space<Exec>, Acc, T>;

  GradientCall(Exec const& exec, distributed::Communicator& comm,
               distributed::ContextShards const& shards, ContextProblem const& problem,
               AttentionBackwardTensors const& t)
      : Base(operation, exec, comm, shards, problem),
        q_(t.forward.q.with_rank(4)),
        k_(t.forward.k.with_rank(4)),
        v_(t.forward.v.with_rank(4)),
        out_(t.forward.out.with_rank(4)),
        lse_(t.forward.lse.with_rank(3)),
        dout_(t.dout.with_rank(4)),
        dq_(t.dq.with_rank(4)),
        dk_(t.dk.with_rank(4)),
        dv_(t.dv.with_rank(4)),
        d_sinks_(t.d_sinks) {}

  void prepare(distributed::Strategy strategy) {
    strategy_ = strategy;
    this->form_groups(strategy);
    if (d_sinks_.given()) {
      sink_gradients_.emplace(operation_, exec_, comm_, shards_, problem_);
      sink_gradients_->prepare(22, Base::first_plain + 17);
    }
    if (this->deals_heads()) {
      prepare_heads();
      return;
    }
    ContextProblem const& p = problem_;
    std::int64_t const q_rows = shards_.q.rows(comm_.rank());
    message_rows(operation_, shards_.kv.total() * p.batch * p.heads_kv);
    parts_.emplace(operation_, exec_, p, shards_.q, shards_.kv, comm_.rank(),
                   std::vector<HeadRun>{{0, p.heads_q, 0, p.heads_kv}});
    sum_q_ = dense_rows(this->plain(9, q_rows * p.batch * p.heads_q * p.head_dim * acc),
                        dtype_of<Acc>, p.batch, p.heads_q, q_rows, p.head_dim, p.head_dim);
    work_q_ = work(10, q_);
    work_out_ = work(11, out_);
    work_dout_ = work(12, dout_);
    parts_->set_queries(work_q_, work_out_, lse_, work_dout_, sum_q_);
    std::int64_t const rows = this->groups_.kv.max_rows();
    parts_->set_partial(this->plain(13, GradientParts<W, Exec>::partial_bytes(p, q_rows, rows)));
    if (strategy == distributed::Strategy::ring) {
      get_blocks(0);
      prepare_ring();
    } else {
      this->prepare_gather();
      get_sums();
      sums_[0] = this->message(2, this->pair_bytes(rows, acc));
      sums_[1] =
          this->message(3, this->pair_bytes(shards_.kv.rows(comm_.rank()) * comm_.size(), acc));
      add_all_pairs(true);
    }
  }

  void run() {
    if (sink_gradients_) sink_gradients_->run(out_, dout_, lse_, d_sinks_);
    switch (strategy_) {
      case distributed::Strategy::all_gather:
        return run_gather();
      case distributed::Strategy::all_to_all:
      case distributed::Strategy::two_level:
        return run_heads();
      default:
        this->pack_pairs(k_, v_, own_);
        this->pack_shared(own_, blocks_[0].data);
        convert_queries(q_, out_, dout_);
        run_ring();
        failure_.throw_if_one_failed(operation_, comm_);
        write(home_);
    }
  }

 private:
  static constexpr auto acc = static_cast<std::int64_t>(sizeof(Acc));

  /// A tensor as products take it: itself, or memory for a copy in W.
  AnyTensor work(int number, AnyTensor const& x) {
    if constexpr (std::is_same_v<T, W>) return x;
    std::int64_t const numbers = x.extent[0] * x.extent[1] * x.extent[2] * x.extent[3];
    return dense_rows(this->plain(number, numbers * static_cast<std::int64_t>(sizeof(W))),
                      dtype_of<W>, x.extent[0], x.extent[1], x.extent[2], x.extent[3], x.extent[3]);
  }
  void convert([[maybe_unused]] AnyTensor const& from, [[maybe_unused]] AnyTensor const& to) {
    if constexpr (!std::is_same_v<T, W>) copy_rows<T, W>(exec_, operation_, from, to);
  }
  void clear(AnyTensor const& x) {
    Kokkos::View<Acc*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> const all(
        static_cast<Acc*>(x.output()),
        static_cast<std::size_t>(x.extent[0] * x.extent[1] * x.extent[2] * x.extent[3]));
    Kokkos::deep_copy(exec_, all, Acc(0));
  }
  AnyTensor gradients_at(void* data, std::int64_t rows) const {
    AnyTensor x = this->pairs_at(data, rows);
    x.type = dtype_of<Acc>;
    return x;
  }
  AnyTensor work_pairs(AnyTensor const& pairs) {
    AnyTensor x = pairs;
    if constexpr (!std::is_same_v<T, W>) {
      x.data = work_pairs_;
      x.type = dtype_of<W>;
    }
    return x;
  }

  void convert_queries(AnyTensor const& q, AnyTensor const& out, AnyTensor const& dout) {
    clear(sum_q_);
    convert(q, work_q_);
    convert(out, work_out_);
    convert(dout, work_dout_);
  }

  /// Memory of blocks that go round, and of their sums. \param number of the first message
  void get_blocks(int number) {
    std::int64_t const rows = this->shared_.max_rows();
    for (int b = 0; b < 2; ++b) {
      blocks_[b] = this->message(number + b, this->pair_bytes(rows));
      sums_[b] = this->message(number + 2 + b, this->pair_bytes(rows, acc));
    }
    own_ = this->own_block(blocks_[0]);
    own_gradients_ = this->shares_all_
                         ? sums_[0].data
                         : this->plain(Base::own_sums_number, this->pair_bytes(own_rows(), acc));
    get_sums();
  }
  /// Memory of what one block of keys comes to here, and of the block as products take it.
  void get_sums() {
    std::int64_t const rows = this->groups_.kv.max_rows();
    mine_ = this->plain(15, this->pair_bytes(rows, acc));
    if constexpr (!std::is_same_v<T, W>)
      work_pairs_ = this->plain(14, this->pair_bytes(rows, static_cast<std::int64_t>(sizeof(W))));
  }
  std::int64_t own_rows() const { return this->groups_.kv.rows(this->group()); }
  void prepare_ring() {
    for (int block = 0; block < this->groups(); ++block)
      add_block(block, nullptr, nullptr, true, [] {});
  }

  template <class Between>
  void add_block(int owner, void* data, void* gradients, bool dry, Between const& between) {
    bool const own = owner == this->group();
    auto const& kv = own ? this->groups_.kv : this->shared_;
    std::int64_t const rows = kv.rows(owner);
    AnyTensor const pairs = this->pairs_at(own ? own_ : data, rows), x = work_pairs(pairs);
    AnyTensor const g = gradients_at(gradients, rows);
    if (!dry) {
      clear(g);
      convert(pairs, x);
    }
    parts_->add_block(kv.pieces(owner), this->keys_of(x), this->values_of(x), this->keys_of(g),
                      this->values_of(g), dry, between);
  }

  /// Blocks of groups go round, the one sent first from the first buffer. Sums of a block travel
  /// one step behind it: a rank adds what its queries give, and the last has gone all the way
  /// round, to home_. Where not all of a block is sent, what the rank itself found stays and waits.
  void run_ring() {
    int const n = this->groups(), me = this->group();
    auto const& kv = this->shared_;
    QueueRef const queue(exec_);
    auto& transport = comm_.transport();
    blocks_[0].to_wire(exec_, this->pair_bytes(kv.rows(me)));
    for (int step = 0; step < n; ++step) {
      auto const s = distributed::ring_step(me, n, step);
      int const here = step % 2, next = 1 - here;
      int const from = this->same_in(s.from), to = this->same_in(s.to);
      std::int64_t const rows = kv.rows(s.block);
      std::int64_t const rows_next = kv.rows((s.block - 1 + n) % n);
      if (s.transfers)
        transport.start(
            queue, Base::block_slot, "attikos::distributed::attention_backward: a block is free",
            width_ * Base::element, {from, blocks_[next].wire, this->pair_count(rows_next)},
            {to, blocks_[here].wire, this->pair_count(rows)});
      void* const sums = sums_[here].data;
      failure_.unless_failed([&] {
        add_block(s.block, blocks_[here].data, step == 0 ? own_gradients_ : mine_, false,
                  [&] { transport.progress(Base::block_slot); });
      });
      if (step == 0 && !this->shares_all_) clear(gradients_at(sums, rows));
      if (step > 0) {
        transport.finish(queue, Base::sum_slot + next);
        sums_[here].from_wire(exec_, this->pair_bytes(rows, acc));
        copy_rows<Acc, Acc, true>(exec_, operation_, gradients_at(mine_, rows),
                                  gradients_at(sums, rows));
      }
      if (n > 1) {
        sums_[here].to_wire(exec_, this->pair_bytes(rows, acc));
        transport.start(queue, Base::sum_slot + here,
                        "attikos::distributed::attention_backward: sums of a block are there",
                        width_ * acc, {from, sums_[next].wire, this->pair_count(rows_next)},
                        {to, sums_[here].wire, this->pair_count(rows)});
      }
      if (s.transfers) {
        transport.finish(queue, Base::block_slot);
        blocks_[next].from_wire(exec_, this->pair_bytes(rows_next));
      }
    }
    MessageBuffer<Exec> const& home = sums_[n > 1 ? n % 2 : 0];
    if (n > 1) {
      transport.finish(queue, Base::sum_slot + (n - 1) % 2);
      home.from_wire(exec_, this->pair_bytes(kv.rows(me), acc));
    }
    home_ = gradients_at(home.data, kv.rows(me));
    if (this->shares_all_) return;
    AnyTensor const all = gradients_at(own_gradients_, own_rows());
    this->for_each_shared(all, home_, [&](AnyTensor const& sum, AnyTensor const& more) {
      copy_rows<Acc, Acc, true>(exec_, operation_, more, sum);
    });
    home_ = all;
  }

  void write(AnyTensor const& sums) {
    copy_rows<Acc, T>(exec_, operation_, this->keys_of(sums), dk_);
    copy_rows<Acc, T>(exec_, operation_, this->values_of(sums), dv_);
    copy_rows<Acc, T>(exec_, operation_, sum_q_, dq_);
  }

  void add_all_pairs(bool dry) {
    std::int64_t const total = shards_.kv.total();
    AnyTensor const x = work_pairs(this->ordered_pairs_), g = gradients_at(mine_, total);
    if (!dry) {
      clear(g);
      convert(this->ordered_pairs_, x);
    }
    parts_->add_block(this->groups_.kv.pieces(0), this->keys_of(x), this->values_of(x),
                      this->keys_of(g), this->values_of(g), dry, [] {});
  }

  void run_gather() {
    int const n = comm_.size();
    this->gather_pairs(k_, v_);
    convert_queries(q_, out_, dout_);
    failure_.unless_failed([&] { add_all_pairs(false); });
    // Each rank gets what all have for its rows, and adds it in the order of ranks.
    std::int64_t const total = shards_.kv.total(), own = shards_.kv.rows(comm_.rank());
    auto const at = [&](MessageBuffer<Exec> const& x, std::int64_t rows) {
      return static_cast<char*>(x.data) + this->pair_bytes(rows, acc);
    };
    RowParts parts, own_parts;
    std::int64_t before = 0;
    for (int r = 0; r < n; ++r) {
      std::int64_t const rows = shards_.kv.rows(r);
      this->template take_from_order<Acc>(shards_.kv, r, gradients_at(mine_, total),
                                          gradients_at(at(sums_[0], before), rows));
      parts.add(this->pair_count(rows));
      own_parts.add(this->pair_count(own));
      before += rows;
    }
    sums_[0].to_wire(exec_, this->pair_bytes(total, acc));
    comm_.transport().exchange_rows(QueueRef(exec_),
                                    "attikos::distributed::attention_backward: sums are packed",
                                    width_ * acc, sums_[0].wire, parts, sums_[1].wire, own_parts);
    sums_[1].from_wire(exec_, this->pair_bytes(own * n, acc));
    AnyTensor const sum = gradients_at(sums_[1].data, own);
    for (int r = 1; r < n; ++r)
      copy_rows<Acc, Acc, true>(exec_, operation_, gradients_at(at(sums_[1], own * r), own), sum);
    failure_.throw_if_one_failed(operation_, comm_);
    write(sum);
  }

  void prepare_heads() {
    own_heads_ = this->problem_of_heads();
    ContextProblem const& p = problem_;
    auto const &q = this->groups_.q, &kv = this->groups_.kv;
    int const group = this->group();
    bool const blocks = this->groups() > 1;  // that go on from here
    parts_.emplace(operation_, exec_, own_heads_, q, kv, group, this->own_head_runs());
    AnyTensor keys, values, key_sums, value_sums;
    if (blocks) {
      this->heads_kv_ = own_heads_.heads_kv;
      get_blocks(18);
      AnyTensor const pairs = this->pairs_at(blocks_[0].data, kv.rows(group));
      keys = this->keys_of(pairs), values = this->values_of(pairs);
      // Where the ring will leave them is known then.
      home_ = gradients_at(nullptr, kv.rows(group));
      key_sums = this->keys_of(home_), value_sums = this->values_of(home_);
    }
    auto const in = [&](AnyTensor const& x) { return blocks ? &x : nullptr; };
    x_q_ = this->exchange_of(0, false, p.head_dim, p.type);
    x_k_ = this->exchange_of(1, true, p.head_dim, p.type, in(keys));
    x_v_ = this->exchange_of(2, true, p.head_dim_v, p.type, in(values));
    x_out_ = this->exchange_of(3, false, p.head_dim_v, p.type);
    x_lse_ = this->exchange_of(4, false, 1, dtype_of<Acc>);
    x_dout_ = this->exchange_of(5, false, p.head_dim_v, p.type);
    x_dq_ = this->exchange_of(6, false, p.head_dim, dtype_of<Acc>);
    x_dk_ = this->exchange_of(7, true, p.head_dim, dtype_of<Acc>, in(key_sums));
    x_dv_ = this->exchange_of(8, true, p.head_dim_v, dtype_of<Acc>, in(value_sums));
    work_q_ = work(10, x_q_.ordered);
    work_out_ = work(11, x_out_.ordered);
    work_dout_ = work(12, x_dout_.ordered);
    sum_q_ = x_dq_.ordered;
    parts_->set_queries(work_q_, work_out_, as_lse(x_lse_.ordered), work_dout_, sum_q_);
    parts_->set_partial(this->plain(
        13, GradientParts<W, Exec>::partial_bytes(own_heads_, q.rows(group), kv.max_rows())));
    // Of all heads, which this rank gets for its rows.
    this->heads_kv_ = p.heads_kv;
    own_sums_ = gradients_at(this->plain(9, this->pair_bytes(shards_.kv.rows(comm_.rank()), acc)),
                             shards_.kv.rows(comm_.rank()));
    this->heads_kv_ = own_heads_.heads_kv;
    if (blocks) {
      prepare_ring();
    } else {
      work_k_ = work(14, x_k_.ordered);
      work_v_ = work(16, x_v_.ordered);
      add_heads(true);
    }
  }

  void add_heads(bool dry) {
    parts_->add_block(this->groups_.kv.pieces(0), work_k_, work_v_, x_dk_.ordered, x_dv_.ordered,
                      dry, [] {});
  }

  void run_heads() {
    this->template to_heads<T>(x_q_, q_);
    this->template to_heads<T>(x_k_, k_);
    this->template to_heads<T>(x_v_, v_);
    this->template to_heads<T>(x_out_, out_);
    this->template to_heads<Acc>(x_lse_, as_rows_of_one(lse_));
    this->template to_heads<T>(x_dout_, dout_);
    if (this->groups() > 1) {
      convert_queries(x_q_.ordered, x_out_.ordered, x_dout_.ordered);
      run_ring();
      x_dk_.ordered = this->keys_of(home_);
      x_dv_.ordered = this->values_of(home_);
    } else {
      failure_.unless_failed([&] {
        convert_queries(x_q_.ordered, x_out_.ordered, x_dout_.ordered);
        convert(x_k_.ordered, work_k_);
        convert(x_v_.ordered, work_v_);
        clear(x_dk_.ordered);
        clear(x_dv_.ordered);
        add_heads(false);
      });
    }
    clear(own_sums_);
    auto const add = [&](AnyTensor const& part, AnyTensor const& to) {
      copy_rows<Acc, Acc, true>(exec_, operation_, part, to);
    };
    this->template to_rows<Acc>(x_dk_, this->keys_of(own_sums_), add);
    this->template to_rows<Acc>(x_dv_, this->values_of(own_sums_), add);
    this->template to_rows<Acc>(x_dq_, dq_, [](AnyTensor const&, AnyTensor const&) {});
    failure_.throw_if_one_failed(operation_, comm_);
    this->for_each_of_group([&](int r) {
      copy_rows<Acc, T>(exec_, operation_, this->part_by_rows(x_dq_, r, dtype_of<Acc>),
                        part_of(dq_, this->head_box(x_dq_, r)));
    });
    copy_rows<Acc, T>(exec_, operation_, this->keys_of(own_sums_), dk_);
    copy_rows<Acc, T>(exec_, operation_, this->values_of(own_sums_), dv_);
  }

  AnyTensor q_, k_, v_, out_, lse_, dout_, dq_, dk_, dv_, d_sinks_;
  std::optional<SinkGradients<T, Exec>> sink_gradients_;
  ContextProblem own_heads_;
  std::optional<GradientParts<W, Exec>> parts_;
  AnyTensor home_;      ///< sums of a block that has gone round
  AnyTensor own_sums_;  ///< of all heads, where heads were dealt out
  AnyTensor sum_q_, work_q_, work_out_, work_dout_, work_k_, work_v_;
  void *work_pairs_ = nullptr, *mine_ = nullptr;
  void *own_ = nullptr, *own_gradients_ = nullptr;  ///< this group's block and what it comes to
  MessageBuffer<Exec> blocks_[2], sums_[2];
  HeadExchange<Exec> x_q_, x_k_, x_v_, x_out_, x_lse_, x_dout_, x_dq_, x_dk_, x_dv_;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
