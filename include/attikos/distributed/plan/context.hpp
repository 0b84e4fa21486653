// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Schedules of context-parallel attention: which rank computes and sends what in which step, and
/// the memory for it.
#pragma once

#include <array>
#include <attikos/distributed/plan/block_work.hpp>
#include <attikos/distributed/plan/step.hpp>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {
namespace plan {

/// How ranks are dealt out to a layout: blocks go round between groups of `heads` ranks that share
/// the heads of a block's rows.
struct Grid {
  int heads = 1;  ///< neighboring ranks that deal out heads among themselves
  int ring = 1;   ///< groups between which blocks go round
};

/// Attention over ranks as distributed::attention() does it: shards are dealt out by
/// Shards::zigzag() where the mask is causal, else by Shards::contiguous(); blocks go round by
/// ring_step(), their products are those of product_of(). all_gather is a ring of messages, as MPIs
/// send large ones; all_to_all exchanges with one rank after the other. two_level is all_to_all
/// among the ranks of a node and a ring between nodes.
class ContextSchedule : public Schedule {
 public:
  ContextSchedule(Layout layout, Model const& model, Machine const& machine, int ranks)
      : layout_(layout), model_(model), machine_(machine), ranks_(ranks) {
    std::string const why = why_not(layout, model, machine, ranks);
    if (!why.empty())
      ::attikos::detail::raise<UnsupportedError>("plan: ", layout_name(layout), " on ", ranks,
                                                 " ranks: ", why);
    grid_ = grid(layout, machine, ranks);
    rows_ = shards(ranks);
    // Where heads are dealt out each rank has all rows of its group, in the order of positions.
    blocks_ = layout == Layout::all_gather ? rows_ : shards(grid_.ring);
    whole_ = rows_.whole();
    for (int p = 0; p < grid_.heads; ++p) kv_counts_.push_back(kv_count(p));
    for (int r = 0; r < ranks; ++r) rank_rows_.push_back(rows_.rows(r));
    for (int g = 0; g < blocks_.ranks(); ++g) block_rows_.push_back(blocks_.rows(g));
    even_ = layout != Layout::all_gather && model.length % (2 * std::int64_t{grid_.ring}) == 0;
    if (even_) classify();
    plan_phases();
  }

  /// Why a layout cannot be; empty if it can.
  static std::string why_not(Layout layout, Model const& model, Machine const& machine, int ranks) {
    int const heads = grid(layout, machine, ranks).heads;
    if (!is_attention(layout)) return "it is no layout of attention";
    if (ranks < 1) return "there are none";
    if (layout == Layout::two_level && machine.ranks_per_node == 1)
      return "a node has one rank, between whose heads there is nothing to deal out";
    if (layout == Layout::two_level && ranks <= machine.ranks_per_node)
      return "they are on one node, where it is all_to_all";
    if (layout == Layout::two_level && ranks % machine.ranks_per_node != 0)
      return "the last node is not full";
    if (model.heads < heads)
      return "there are fewer query heads (" + std::to_string(model.heads) + ") than ranks (" +
             std::to_string(heads) + ") to deal them out to";
    return "";
  }
  static Grid grid(Layout layout, Machine const& machine, int ranks) {
    if (layout == Layout::all_to_all) return {ranks, 1};
    if (layout == Layout::two_level)
      return {machine.ranks_per_node, ranks / machine.ranks_per_node};
    return {1, ranks};
  }

  int ranks() const override { return ranks_; }
  std::int64_t steps() const override { return ends_.empty() ? 0 : ends_.back(); }

  void fill(std::int64_t step, Step& s) const override {
    auto const n = static_cast<std::size_t>(ranks_);
    s.work.assign(n, 0);
    s.after.clear();
    s.collects = false;
    std::size_t phase = 0;
    while (step >= ends_[phase]) ++phase;
    std::int64_t const at = step - (phase == 0 ? 0 : ends_[phase - 1]);
    bool const sends = phases_[phase] == Phase::gather || phases_[phase] == Phase::ring ||
                       phases_[phase] == Phase::to_heads || phases_[phase] == Phase::to_rows;
    if (!sends) s.transfers.clear();
    switch (phases_[phase]) {
      case Phase::pack:
        return for_each([&](int r) { s.work[index(r)] = pack_seconds(r); });
      case Phase::gather:
        return gather(static_cast<int>(at), s);
      case Phase::unpack:
        return for_each([&](int r) {
          s.work[index(r)] = machine_.copy_seconds(pair_bytes(whole_.rows(0), model_.kv_heads)) +
                             2 * ranks_ * machine_.launch +
                             machine_.stage_seconds(pair_bytes(whole_.rows(0), model_.kv_heads));
        });
      case Phase::products:
        return for_each([&](int r) {
          s.work[index(r)] =
              seconds_of(block_work(rows_.pieces(r), whole_.pieces(0), model_, false), model_,
                         machine_, model_.heads);
        });
      case Phase::ring:
        return ring(static_cast<int>(at), s);
      case Phase::to_heads:
        return exchange(static_cast<int>(at % (grid_.heads + 1)),
                        static_cast<int>(at) / (grid_.heads + 1), true, s);
      case Phase::to_rows:
        return exchange(static_cast<int>(at % (grid_.heads + 1)),
                        3 + static_cast<int>(at) / (grid_.heads + 1), false, s);
      case Phase::finish:
        return for_each([&](int r) { s.work[index(r)] = finish_seconds(r); });
    }
  }

  /// As the call allocates it, on the rank that has most.
  MemoryUse memory() const {
    MemoryUse use;
    double const e = model_.element_bytes(), acc = model_.accumulator_bytes();
    double const rows = number(rows_.max_rows()), b = number(model_.batch),
                 d = number(model_.head_dim);
    use.tensors = rows * b *
                  (2 * d * e * number(model_.heads + model_.kv_heads) + acc * number(model_.heads));
    double const pairs = pair_bytes(1, kv_share());
    double wires = 0;
    bool const by_group = deals_heads();
    Shards const& queries = layout_ == Layout::all_gather ? rows_ : blocks_;
    if (layout_ == Layout::all_gather) {
      double const all = pairs * number(whole_.rows(0));
      wires = pairs * rows + all;
      use.messages = wires + all;
    } else if (layout_ != Layout::all_to_all) {
      double const block = pairs * number(blocks_.max_rows());
      wires = grid_.ring > 1 ? 2 * block : 0;  // a rank alone sends nothing of the one that it has
      use.messages = std::max(wires, block);
    }
    std::int64_t most_heads = 0;
    for (int p = 0; p < grid_.heads; ++p) most_heads = std::max(most_heads, head_count(p));
    if (by_group) {
      for (int tensor = 0; tensor < 5; ++tensor) {
        double const heads = number(of_keys(tensor) ? kv_share() : most_heads);
        double const in = b * heads * number(blocks_.max_rows()) * feature_bytes(tensor);
        double const out = b * number(head_copies(tensor)) * rows * feature_bytes(tensor);
        wires += in + out;
        use.messages += 2 * in + out;
      }
    }
    // A state for each piece of queries, and where states are joined a partial result: all as long
    // as the longest piece.
    std::int64_t const partials = layout_ != Layout::all_gather && grid_.ring > 1 ? 1 : 0;
    std::int64_t state_rows = 0;
    for (int r = 0; r < queries.ranks(); ++r) {
      std::int64_t longest = 0;
      for (Piece const& piece : queries.pieces(r)) longest = std::max(longest, piece.rows());
      auto const slots = static_cast<std::int64_t>(queries.pieces(r).size()) + partials;
      state_rows = std::max(state_rows, slots * longest);
    }
    use.states = number(state_rows) * b * number(most_heads) * (d + 1) * acc;
    if (machine_.staging_bandwidth > 0) use.staging = wires;
    return use;
  }

  /// The sum over ranks and steps of pairs, a head and an entry of the batch: what has to be the
  /// mask's own count. For tests; of the layouts that do not deal out heads, and of `two_level` and
  /// `all_to_all` for the heads of one rank.
  std::int64_t pairs() const {
    std::int64_t sum = 0;
    if (layout_ == Layout::all_gather) {
      for (int r = 0; r < ranks_; ++r)
        sum += block_work(rows_.pieces(r), whole_.pieces(0), model_, false).pairs;
      return sum;
    }
    for (int step = 0; step < grid_.ring; ++step)
      for (int g = 0; g < grid_.ring; ++g) sum += work_of(g, step).pairs;
    return sum;
  }

 private:
  enum class Phase : std::uint8_t {
    pack,
    gather,
    unpack,
    products,
    ring,
    to_heads,
    to_rows,
    finish
  };

  static double number(std::int64_t x) { return static_cast<double>(x); }
  static std::size_t index(int r) { return static_cast<std::size_t>(r); }
  template <class F>
  void for_each(F const& f) const {
    for (int r = 0; r < ranks_; ++r) f(r);
  }

  bool deals_heads() const { return layout_ == Layout::all_to_all || layout_ == Layout::two_level; }
  static Transfers& only_transfers(Step& s) {
    s.transfers.resize(1);
    s.transfers[0].posted = false;
    s.transfers[0].to.resize(s.work.size());
    s.transfers[0].bytes.resize(s.work.size());
    return s.transfers[0];
  }

  Shards shards(int ranks) const {
    return model_.causal ? Shards::zigzag(model_.length, ranks)
                         : Shards::contiguous(model_.length, ranks);
  }

  void add(Phase phase, std::int64_t steps) {
    if (steps == 0) return;
    phases_.push_back(phase);
    ends_.push_back(this->steps() + steps);
  }
  void plan_phases() {
    bool const deals = deals_heads();
    if (deals) add(Phase::to_heads, 3 * (grid_.heads + 1));
    if (layout_ == Layout::all_gather) {
      add(Phase::pack, 1);
      add(Phase::gather, ranks_ - 1);
      add(Phase::unpack, 1);
      add(Phase::products, 1);
    } else {
      if (layout_ != Layout::all_to_all) add(Phase::pack, 1);
      add(Phase::ring, grid_.ring);
    }
    add(Phase::finish, 1);
    if (deals) add(Phase::to_rows, 2 * (grid_.heads + 1));
  }

  // --- what ranks have
  // ----------------------------------------------------------------------------
  int group_of(int rank) const { return rank / grid_.heads; }
  int place_of(int rank) const { return rank % grid_.heads; }
  /// Query heads of the rank at `place` of its group.
  std::int64_t head_count(int place) const {
    return model_.heads * (place + 1) / grid_.heads - model_.heads * place / grid_.heads;
  }
  /// Key heads that they need.
  std::int64_t kv_count(int place) const {
    std::int64_t const group = model_.heads / model_.kv_heads;
    std::int64_t const first = model_.heads * place / grid_.heads;
    std::int64_t const last = model_.heads * (place + 1) / grid_.heads;
    return (last - 1) / group + 1 - first / group;
  }
  std::int64_t kv_share() const {
    std::int64_t most = 0;
    for (int p = 0; p < grid_.heads; ++p) most = std::max(most, kv_count(p));
    return most;
  }
  /// Of what is exchanged: queries, keys, values, results, log-sum-exps.
  static bool of_keys(int tensor) { return tensor == 1 || tensor == 2; }
  std::int64_t heads_of(int tensor, int place) const {
    return of_keys(tensor) ? kv_count(place) : head_count(place);
  }
  std::int64_t head_copies(int tensor) const {
    std::int64_t sum = 0;
    for (int p = 0; p < grid_.heads; ++p) sum += heads_of(tensor, p);
    return sum;
  }
  double feature_bytes(int tensor) const {
    return tensor == 4 ? model_.accumulator_bytes()
                       : number(model_.head_dim) * model_.element_bytes();
  }
  /// Keys and values of some rows.
  double pair_bytes(std::int64_t rows, std::int64_t kv_heads) const {
    return number(rows) * number(model_.batch * kv_heads) * 2 * number(model_.head_dim) *
           model_.element_bytes();
  }

  // --- what it takes
  // ------------------------------------------------------------------------------
  double pack_seconds(int rank) const {
    double const bytes = layout_ == Layout::two_level
                             ? pair_bytes(blocks_.rows(group_of(rank)), kv_count(place_of(rank)))
                             : pair_bytes(rows_.rows(rank), model_.kv_heads);
    return machine_.copy_seconds(bytes) + 2 * machine_.launch + machine_.stage_seconds(bytes);
  }
  double finish_seconds(int rank) const {
    bool const by_group = deals_heads();
    auto const& shards = by_group ? blocks_ : rows_;
    int const holder = by_group ? group_of(rank) : rank;
    double const row =
        number(model_.head_dim) * (model_.element_bytes() + model_.accumulator_bytes()) +
        2 * model_.accumulator_bytes();
    return number(shards.rows(holder)) * number(model_.batch * head_count(place_of(rank))) * row /
               machine_.memory_bandwidth +
           number(static_cast<std::int64_t>(shards.pieces(holder).size())) * machine_.launch;
  }

  BlockWork work_of(int group, int step) const {
    int const owner = ring_step(group, grid_.ring, step).block;
    return block_work(blocks_.pieces(group), blocks_.pieces(owner), model_, step > 0);
  }
  /// Where all pieces have the same rows, what a group makes of a block depends on which of the two
  /// comes first, and on whether one of them is the last, whose two pieces meet and are one.
  int class_of(int group, int step) const {
    int const owner = ring_step(group, grid_.ring, step).block, last = grid_.ring - 1;
    int const order = owner == group ? 0 : owner < group ? 1 : 2;
    return 3 * order + (group == last ? 1 : owner == last ? 2 : 0);
  }
  void classify() {
    int const n = grid_.ring;
    std::array<bool, classes> known{};
    for (int const group : {0, n / 2, n - 2, n - 1})
      for (int const step : {0, 1, n / 2, n - 1}) {
        if (group < 0 || step >= n) continue;
        auto const c = static_cast<std::size_t>(class_of(group, step));
        if (known[c]) continue;
        known[c] = true;
        classes_[c] = work_of(group, step);
      }
  }

  void ring(int step, Step& s) const {
    bool const transfers = ring_step(0, grid_.ring, step).transfers;
    if (!transfers)
      s.transfers.clear();
    else if (machine_.staging_bandwidth > 0)
      s.after.resize(s.work.size());
    Transfers* const t = transfers ? &only_transfers(s) : nullptr;
    BlockWork known;
    int known_class = -1;
    std::vector<double> seconds(index(grid_.heads));  // of the known work, of each place in a group
    for (int g = 0; g < grid_.ring; ++g) {
      RingStep const at = ring_step(g, grid_.ring, step);
      int const kind = even_ ? class_of(g, step) : 0;
      if (!even_ || kind != known_class) {
        BlockWork const work = even_ ? classes_[index(kind)] : work_of(g, step);
        if (known_class < 0 || !(work == known))
          for (int p = 0; p < grid_.heads; ++p)
            seconds[index(p)] = seconds_of(work, model_, machine_, head_count(p));
        known = work;
        known_class = kind;
      }
      std::int64_t const rows = block_rows_[index(at.block)];
      std::int64_t const next = block_rows_[index(at.block == 0 ? grid_.ring - 1 : at.block - 1)];
      for (int p = 0; p < grid_.heads; ++p) {
        std::size_t const r = index(g * grid_.heads + p);
        s.work[r] = seconds[index(p)];
        if (t == nullptr) continue;
        t->to[r] = at.to * grid_.heads + p;
        t->bytes[r] = pair_bytes(rows, kv_counts_[index(p)]);
        if (!s.after.empty())
          s.after[r] = machine_.stage_seconds(pair_bytes(next, kv_counts_[index(p)]));
      }
    }
  }

  void gather(int step, Step& s) const {
    Transfers& t = only_transfers(s);
    for (int r = 0; r < ranks_; ++r) {
      RingStep const at = ring_step(r, ranks_, step);
      t.to[index(r)] = at.to;
      t.bytes[index(r)] = pair_bytes(rank_rows_[index(at.block)], model_.kv_heads);
    }
  }

  /// Step 0 packs, steps 1 … heads − 1 exchange, the last one puts in order.
  void exchange(int step, int tensor, bool to_heads, Step& s) const {
    double const feature = feature_bytes(tensor) * number(model_.batch);
    int const h = grid_.heads;
    if (step == 0 || step == h) {
      s.transfers.clear();
      for_each([&](int r) {
        int const g = group_of(r), p = place_of(r);
        double const by_rows = number(head_copies(tensor) * rows_.rows(r)) * feature;
        double const by_heads = number(heads_of(tensor, p) * blocks_.rows(g)) * feature;
        double const bytes = (step == 0) == to_heads ? by_rows : by_heads;
        s.work[index(r)] =
            machine_.copy_seconds(bytes) + h * machine_.launch + machine_.stage_seconds(bytes);
      });
      return;
    }
    Transfers& t = only_transfers(s);
    for_each([&](int r) {
      int const g = group_of(r), p = place_of(r), other = (p + step) % h;
      int const peer = g * h + other;
      t.to[index(r)] = peer;
      t.bytes[index(r)] = feature * (to_heads ? number(heads_of(tensor, other) * rows_.rows(r))
                                              : number(heads_of(tensor, p) * rows_.rows(peer)));
    });
  }

  Layout layout_;
  Model model_;
  Machine machine_;
  int ranks_;
  Grid grid_;
  Shards rows_;    ///< of ranks
  Shards blocks_;  ///< of groups: what goes round
  Shards whole_;
  std::vector<std::int64_t> rank_rows_, block_rows_, kv_counts_;
  static constexpr std::size_t classes = 9;
  bool even_ = false;  ///< all pieces have the same rows
  std::array<BlockWork, classes> classes_{};
  std::vector<Phase> phases_;
  std::vector<std::int64_t> ends_;
};

}  // namespace plan
}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
