// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Attention of the queries that a rank works on over blocks of keys as they come: the products of
/// a block, and the order in which their results are joined.
#pragma once

#include <attikos/attention/attention.hpp>
#include <attikos/distributed/attention_options.hpp>
#include <attikos/distributed/schedule.hpp>
#include <attikos/distributed/transfers.hpp>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Neighboring query heads and the key heads that serve them, both counted from what the rank has.
struct HeadRun {
  std::int64_t q_first, q_count, kv_first, kv_count;
};

/// What a call asks for, in numbers that a rank's own tensors do not have.
struct ContextProblem {
  distributed::AttentionOptions options;
  std::vector<std::int64_t> lengths_q, lengths_kv;  ///< of entries of the batch; empty: all count
  std::int64_t batch = 0, heads_q = 0, heads_kv = 0, head_dim = 0, head_dim_v = 0;
  DType type = DType::float32;
  AnyTensor sinks;

  bool invariant() const { return options.determinism == distributed::Determinism::rank_invariant; }
  distributed::Visible visible() const {
    distributed::Visible v{options.window_left, options.window_right};
    if (options.causal) v.right = 0;
    return v;
  }
  /// What a product is computed with.
  AttentionOptions product_options(distributed::Visible const& window) const {
    AttentionOptions o;
    o.softmax_scale = options.softmax_scale;
    o.causal_alignment = CausalAlignment::top_left;
    o.kernel = options.kernel;
    o.window_left = window.left;
    o.window_right = window.right;
    if (window.right == 0) {  // what kernels know best
      o.causal = true;
      o.window_right = -1;
    }
    o.softcap = options.softcap;
    o.compute = options.compute;
    return o;
  }
};

/// One run of the batch whose entries have the same lengths.
struct BatchRun {
  std::int64_t first, count, length_q, length_kv;
};

inline std::vector<BatchRun> batch_runs(ContextProblem const& problem, std::int64_t length_q,
                                        std::int64_t length_kv) {
  std::vector<BatchRun> runs;
  for (std::int64_t b = 0; b < problem.batch; ++b) {
    auto const at = [&](std::vector<std::int64_t> const& lengths, std::int64_t whole) {
      return lengths.empty() ? whole : lengths[static_cast<std::size_t>(b)];
    };
    BatchRun const run{b, 1, at(problem.lengths_q, length_q), at(problem.lengths_kv, length_kv)};
    if (!runs.empty() && runs.back().length_q == run.length_q &&
        runs.back().length_kv == run.length_kv)
      ++runs.back().count;
    else
      runs.push_back(run);
  }
  return runs;
}

/// Attention of a rank's queries over blocks of keys.
///
/// Each piece of queries has a state, attention over the keys that it has seen so far. By default
/// partial results join the state one after the other, in the order of the schedule, which does not
/// depend on when messages arrive. Where bits are not to depend on the ranks, queries and keys are
/// cut at fixed positions, so that each product is the same problem wherever it is computed, and
/// the states of blocks join in the order of a tree over the blocks of the sequence. States hold
/// accumulators.
///
/// The same code runs `dry`, before the first transfer: then nothing is launched, kernels are asked
/// whether they take the products, and the slots for states are counted.
template <class T, class Exec>
class ContextParts {
 public:
  using Acc = AttentionAccumulator<T>;
  using Piece = distributed::Piece;

  ContextParts(char const* operation, Exec const& exec, distributed::Communicator& comm,
               ContextProblem const& problem, distributed::Shards const& q_shards,
               distributed::Shards const& kv_shards, int q_rank, std::vector<HeadRun> heads)
      : operation_(operation),
        exec_(exec),
        comm_(comm),
        problem_(problem),
        q_shards_(q_shards),
        kv_shards_(kv_shards),
        heads_(std::move(heads)) {
    for (Piece const& piece : q_shards.pieces(q_rank)) {
      most_rows_ = std::max(most_rows_, piece.rows());
      Unit unit{piece, {piece}, {}, FixedTree(0)};
      std::int64_t const length_kv = kv_shards.length(piece.sequence);
      unit.batches = batch_runs(problem, q_shards.length(piece.sequence), length_kv);
      if (problem.invariant()) {
        unit.parts = distributed::cut_at_multiples({piece}, problem.options.block);
        unit.tree = FixedTree((length_kv + problem.options.block - 1) / problem.options.block);
      }
      units_.push_back(std::move(unit));
    }
  }

  /// Queries, all rows of the rank.
  void set_queries(AnyTensor const& q) { q_ = q; }

  /// Begins a dry run, or the call itself; slots are taken anew.
  void begin(bool dry) {
    dry_ = dry;
    free_.clear();
    for (std::size_t slot = 0; slot < slots_.size(); ++slot) free_.insert(static_cast<int>(slot));
    for (Unit& unit : units_) {
      unit.slot = FixedTree::empty;
      if (problem_.invariant()) {
        std::int64_t const block = problem_.options.block;
        unit.tree = FixedTree((kv_shards_.length(unit.piece.sequence) + block - 1) / block);
      }
    }
  }

  /// Keys and values of one rank, or of all: `pieces` says which positions their rows are.
  /// `between` is called between products, where a message may make progress.
  template <class Between>
  void add_block(std::vector<Piece> const& pieces, AnyTensor const& k, AnyTensor const& v,
                 Between const& between) {
    bool const invariant = problem_.invariant();
    auto const keys =
        invariant ? distributed::cut_at_multiples(pieces, problem_.options.block) : pieces;
    for (Unit& unit : units_) {
      for (Piece const& key_piece : keys) {
        if (key_piece.sequence != unit.piece.sequence) continue;
        if (invariant)
          add_leaf(unit, key_piece, k, v);
        else
          add_in_turn(unit, key_piece, k, v);
        between();
      }
    }
  }

  /// Writes the states as results: `out` and, if given, `lse` of all rows of the rank.
  template <class O = T>
  void finish(AnyTensor const& out, AnyTensor const& lse) {
    for (Unit& unit : units_) {
      int const slot = problem_.invariant() ? unit.tree.root() : unit.slot;
      if (dry_) continue;
      std::int64_t const rows = unit.piece.rows();
      Box const box{{0, 0, unit.piece.local}, {problem_.batch, problem_.heads_q, rows}};
      bool const seen = slot != FixedTree::empty;
      AnyTensor const state = seen ? slot_out(slot, rows) : AnyTensor{};
      AnyTensor const state_lse = seen ? slot_lse(slot, rows) : AnyTensor{};
      SplitStates<Acc, Acc> states{};
      states.out = ref_of<Acc const, 5>(state);
      states.lse = ref_of<Acc const, 4>(state_lse);
      if (!seen) states.out.extent[0] = states.lse.extent[0] = 0;
      TensorRef<Acc, 3> lse_ref{};
      if (lse.given()) lse_ref = ref_of<Acc, 3>(rows_of_lse(lse, box));
      MergedSinks const sinks{problem_.sinks.type, problem_.sinks.data, problem_.sinks.stride[0]};
      launch_rows(exec_, operation_,
                  MergeStatesRow<Acc, SplitStates<Acc, Acc>, O, Acc>{
                      states, ref_of<O, 4>(part_of(out, box)), lse_ref, sinks},
                  problem_.batch * problem_.heads_q * rows, problem_.head_dim_v);
    }
  }

  /// Gets the memory that the dry run found to be needed.
  void allocate() {
    for (std::size_t slot = 0; slot < slots_.size(); ++slot)
      slots_[slot] = comm_.template buffer<typename Exec::memory_space>(
          operation_, first_buffer + static_cast<int>(slot), slot_bytes());
  }
  std::size_t slot_bytes() const {
    return static_cast<std::size_t>(problem_.batch * problem_.heads_q * most_rows_ *
                                    (problem_.head_dim_v + 1)) *
           sizeof(Acc);
  }

 private:
  using FixedTree = distributed::FixedTree;
  static constexpr int first_buffer = 80;  // behind those of messages

  struct Unit {
    Piece piece;
    std::vector<Piece> parts;  ///< of the piece, between fixed positions where bits ask for it
    std::vector<BatchRun> batches;
    FixedTree tree;
    int slot = FixedTree::empty;
  };

  int take_slot() {
    if (free_.empty()) {
      free_.insert(static_cast<int>(slots_.size()));
      slots_.push_back(nullptr);  // counted by the dry run, which allocates none
    }
    int const slot = *free_.begin();
    free_.erase(free_.begin());
    return slot;
  }

  AnyTensor slot_out(int slot, std::int64_t rows) const {
    return dense_rows(slots_[static_cast<std::size_t>(slot)], dtype_of<Acc>, problem_.batch,
                      problem_.heads_q, rows, problem_.head_dim_v, problem_.head_dim_v);
  }
  AnyTensor slot_lse(int slot, std::int64_t rows) const {
    auto* const data = static_cast<Acc*>(slots_[static_cast<std::size_t>(slot)]);
    return {data == nullptr
                ? nullptr
                : data + problem_.batch * problem_.heads_q * most_rows_ * problem_.head_dim_v,
            dtype_of<Acc>,
            3,
            {problem_.batch, problem_.heads_q, rows},
            {problem_.heads_q * rows, rows, 1}};
  }
  static AnyTensor rows_of_lse(AnyTensor lse, Box const& box) {
    std::int64_t offset = 0;
    for (int r = 0; r < 3; ++r) {
      offset += box.first[r] * lse.stride[r];
      lse.extent[r] = box.extent[r];
    }
    if (lse.data != nullptr) lse.data = lse.as<char>() + offset * dtype_size(lse.type);
    return lse;
  }

  void clear(int slot, std::int64_t rows) {
    if (dry_) return;
    AnyTensor const lse = slot_lse(slot, rows);
    Kokkos::View<Acc*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>> const
        all(static_cast<Acc*>(lse.output()),
            static_cast<std::size_t>(problem_.batch * problem_.heads_q * rows));
    Kokkos::deep_copy(exec_, all, -std::numeric_limits<Acc>::infinity());
  }

  /// Calls f(product, run of the batch) for what a piece of queries sees of a piece of keys.
  template <class F>
  void for_each_product(Unit const& unit, Piece const& queries, Piece const& keys, F const& f) {
    for (BatchRun const& run : unit.batches) {
      std::int64_t const offset = problem_.options.causal_alignment == CausalAlignment::top_left
                                      ? 0
                                      : run.length_kv - run.length_q;
      auto const product = distributed::product_of(queries, keys, problem_.visible(), offset,
                                                   run.length_q, run.length_kv);
      if (product) f(*product, run);
    }
  }

  /// A product into rows of a slot.
  void compute(Unit const& unit, distributed::Product const& p, BatchRun const& run,
               AnyTensor const& k, AnyTensor const& v, int slot) {
    if (dry_ && *wanted_kernel(problem_.options.kernel) == '\0') return;
    std::int64_t const rows = unit.piece.rows(), row = p.q_row - unit.piece.local;
    for (HeadRun const& h : heads_) {
      AttentionTensors t;
      t.q = part_of(q_, {{run.first, h.q_first, p.q_row}, {run.count, h.q_count, p.q_rows}});
      Box const keys{{run.first, h.kv_first, p.kv_row}, {run.count, h.kv_count, p.kv_rows}};
      t.k = part_of(k, keys);
      t.v = part_of(v, keys);
      Box const target{{run.first, h.q_first, row}, {run.count, h.q_count, p.q_rows}};
      t.out = part_of(slot_out(slot, rows), target);
      t.lse = rows_of_lse(slot_lse(slot, rows), target);
      Explanation explanation;
      attention_run<T, Acc>(exec_, t, problem_.product_options(p.window), pair_functors(),
                            dry_ ? &explanation : nullptr);
    }
  }

  /// Joins rows of the slots `left` and `right` in `left`.
  void join(std::int64_t rows, Box const& box, int left, int right) {
    if (dry_) return;
    TwoStates<Acc, Acc> states{};
    int const slots[2] = {left, right};
    for (int s = 0; s < 2; ++s) {
      states.out[s] = ref_of<Acc const, 4>(part_of(slot_out(slots[s], rows), box));
      states.lse[s] = ref_of<Acc const, 3>(rows_of_lse(slot_lse(slots[s], rows), box));
    }
    launch_rows(exec_, operation_,
                MergeStatesRow<Acc, TwoStates<Acc, Acc>, Acc, Acc>{
                    states, ref_of<Acc, 4>(part_of(slot_out(left, rows), box)),
                    ref_of<Acc, 3>(rows_of_lse(slot_lse(left, rows), box))},
                box.extent[0] * box.extent[1] * box.extent[2], problem_.head_dim_v);
  }

  void add_in_turn(Unit& unit, Piece const& keys, AnyTensor const& k, AnyTensor const& v) {
    std::int64_t const rows = unit.piece.rows();
    bool const fresh = unit.slot == FixedTree::empty;
    int partial = FixedTree::empty;
    for_each_product(unit, unit.piece, keys, [&](auto const& product, BatchRun const& run) {
      if (fresh) {  // nothing to join with: the state itself
        if (unit.slot == FixedTree::empty) {
          unit.slot = take_slot();
          if (product.q_rows != rows || run.count != problem_.batch) clear(unit.slot, rows);
        }
        compute(unit, product, run, k, v, unit.slot);
        return;
      }
      if (partial == FixedTree::empty) partial = take_slot();
      compute(unit, product, run, k, v, partial);
      join(rows,
           {{run.first, 0, product.q_row - unit.piece.local},
            {run.count, problem_.heads_q, product.q_rows}},
           unit.slot, partial);
    });
    if (partial != FixedTree::empty) free_.insert(partial);
  }

  void add_leaf(Unit& unit, Piece const& keys, AnyTensor const& k, AnyTensor const& v) {
    std::int64_t const rows = unit.piece.rows();
    int slot = FixedTree::empty;
    for (Piece const& queries : unit.parts)
      for_each_product(unit, queries, keys, [&](auto const& product, BatchRun const& run) {
        if (slot == FixedTree::empty) {
          slot = take_slot();
          clear(slot, rows);
        }
        compute(unit, product, run, k, v, slot);
      });
    Box const all{{0, 0, 0}, {problem_.batch, problem_.heads_q, rows}};
    unit.tree.add(keys.begin / problem_.options.block, slot, [&](int left, int right) {
      join(rows, all, left, right);
      free_.insert(right);
    });
  }

  char const* operation_;
  Exec const& exec_;
  distributed::Communicator& comm_;
  ContextProblem const& problem_;
  distributed::Shards const& q_shards_;
  distributed::Shards const& kv_shards_;
  std::vector<HeadRun> heads_;
  std::vector<Unit> units_;
  std::int64_t most_rows_ = 0;
  AnyTensor q_;
  bool dry_ = false;
  std::vector<void*> slots_;
  std::set<int> free_;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
