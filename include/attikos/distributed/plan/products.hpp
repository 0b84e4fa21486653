// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Schedules of a layer's products with weights: projections and the gated MLP, whose weights are
/// spread over ranks or whole on each.
#pragma once

#include <attikos/distributed/plan/machine.hpp>
#include <attikos/distributed/plan/model.hpp>
#include <attikos/distributed/plan/step.hpp>
#include <attikos/distributed/schedule.hpp>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {
namespace plan {

/// A layer's products: `tensor_parallel` as column_parallel_gemm() of the projection to queries,
/// keys and values, row_parallel_gemm() of that of the output, and gated_mlp(), one after the
/// other; `local` as the same products of a rank's rows with whole weights. Rows, batch times
/// length, are dealt out by Shards::contiguous().
class ProductSchedule : public Schedule {
 public:
  ProductSchedule(Layout layout, Model const& model, Machine const& machine, int ranks)
      : layout_(layout), model_(model), machine_(machine), ranks_(ranks) {
    std::string const why = why_not(layout, model, ranks);
    if (!why.empty())
      ::attikos::detail::raise<UnsupportedError>("plan: ", layout_name(layout), " on ", ranks,
                                                 " ranks: ", why);
    rows_ = Shards::contiguous(model.batch * model.length, ranks);
  }

  /// Why a layout cannot be; empty if it can.
  static std::string why_not(Layout layout, Model const& model, int ranks) {
    if (is_attention(layout)) return "it is no layout of products";
    if (ranks < 1) return "there are none";
    std::int64_t const columns = std::min(model.heads * model.head_dim, model.intermediate);
    if (layout == Layout::tensor_parallel && ranks > columns)
      return "there are fewer columns (" + std::to_string(columns) + ") than ranks";
    return "";
  }

  int ranks() const override { return ranks_; }
  std::int64_t steps() const override {
    if (layout_ == Layout::local) return 1;
    return column_steps() + row_steps() + mlp_steps();
  }

  void fill(std::int64_t step, Step& s) const override {
    s.work.assign(static_cast<std::size_t>(ranks_), 0);
    s.after.clear();
    s.transfers.clear();
    s.collects = false;
    if (layout_ == Layout::local) {
      for (int r = 0; r < ranks_; ++r)
        s.work[index(r)] = model_.product_operations() * number(rows_.rows(r)) /
                               number(rows_.total()) / machine_.gemm +
                           4 * machine_.launch;
      return;
    }
    if (step < column_steps()) return column(static_cast<int>(step), s);
    step -= column_steps();
    if (step < row_steps()) return row(static_cast<int>(step), s);
    mlp(static_cast<int>(step - row_steps()), s);
  }

  /// Weights of all layers, a layer's rows, and buffers as the calls allocate them, which share
  /// those of one communicator.
  MemoryUse memory() const {
    MemoryUse use;
    double const e = model_.element_bytes(), acc = model_.accumulator_bytes();
    double const rows = number(rows_.max_rows()), all = number(rows_.total());
    double const h = number(model_.hidden), attention = number(model_.heads * model_.head_dim);
    double const projected = number(model_.projected()), inner = number(model_.intermediate);
    double const weights = number(model_.layers) * e * h * (projected + attention + 3 * inner);
    if (layout_ == Layout::local) {
      use.tensors = weights + rows * e * (2 * h + projected + inner);
      return use;
    }
    double const n = ranks_;
    use.tensors = weights / n + rows * e * 2 * h + all * e * (projected + attention) / n;
    double const ring = 2 * rows * h * e, sums = 2 * rows * h * acc + rows * n * h * acc;
    use.messages = ring + sums + rows * std::ceil(inner / n) * e;
    if (machine_.staging_bandwidth > 0) use.staging = ring + sums;
    return use;
  }

 private:
  static double number(std::int64_t x) { return static_cast<double>(x); }
  static std::size_t index(int r) { return static_cast<std::size_t>(r); }
  std::int64_t column_steps() const { return 1 + ranks_; }
  std::int64_t row_steps() const { return ranks_ + 1; }
  std::int64_t mlp_steps() const { return 1 + ranks_ + 2; }

  double block_bytes(int owner) const {
    return number(rows_.rows(owner)) * number(model_.hidden) * model_.element_bytes();
  }
  double partial_bytes(int owner) const {
    return number(rows_.rows(owner)) * number(model_.hidden) * model_.accumulator_bytes();
  }
  /// A product of the rows of `owner` with `columns` of a weight, on the rank that has most of
  /// them.
  double product_seconds(int owner, std::int64_t columns) const {
    std::int64_t const most = (columns + ranks_ - 1) / ranks_;
    return 2 * number(rows_.rows(owner)) * number(model_.hidden) * number(most) / machine_.gemm +
           machine_.launch;
  }
  int wrapped(int r) const { return (r % ranks_ + ranks_) % ranks_; }

  void pack(Step& s) const {
    for (int r = 0; r < ranks_; ++r)
      s.work[index(r)] = machine_.copy_seconds(block_bytes(r)) + machine_.launch +
                         machine_.stage_seconds(block_bytes(r));
  }
  void ring(int step, Step& s) const {
    if (!ring_step(0, ranks_, step).transfers) return;
    Transfers t;
    for (int r = 0; r < ranks_; ++r) {
      RingStep const at = ring_step(r, ranks_, step);
      t.to.push_back(at.to);
      t.bytes.push_back(block_bytes(at.block));
      if (machine_.staging_bandwidth > 0)
        s.after.push_back(machine_.stage_seconds(block_bytes(wrapped(at.block - 1))));
    }
    s.transfers.push_back(std::move(t));
  }
  /// Partial results on their way to rank r + shift.
  void send_partials(int shift, Step& s) const {
    if (wrapped(shift) == 0) return;
    Transfers t;
    t.posted = true;
    for (int r = 0; r < ranks_; ++r) {
      t.to.push_back(wrapped(r + shift));
      t.bytes.push_back(partial_bytes(t.to.back()));
    }
    s.transfers.push_back(std::move(t));
  }
  void sum(Step& s) const {
    s.collects = true;
    for (int r = 0; r < ranks_; ++r) {
      double const partial = partial_bytes(r);
      s.work[index(r)] =
          (3 * partial * (ranks_ - 1) + partial + block_bytes(r)) / machine_.memory_bandwidth +
          ranks_ * machine_.launch + machine_.stage_seconds(partial * (ranks_ - 1));
    }
  }

  void column(int step, Step& s) const {
    if (step == 0) return pack(s);
    ring(step - 1, s);
    for (int r = 0; r < ranks_; ++r)
      s.work[index(r)] = product_seconds(ring_step(r, ranks_, step - 1).block, model_.projected());
  }
  void row(int step, Step& s) const {
    if (step == ranks_) return sum(s);
    if (step > 0) send_partials(step, s);  // what the step before computed
    for (int r = 0; r < ranks_; ++r) {
      int const target = wrapped(r + step + 1);
      s.work[index(r)] = product_seconds(target, model_.heads * model_.head_dim);
      if (target != r) s.work[index(r)] += machine_.stage_seconds(partial_bytes(target));
    }
  }
  void mlp(int step, Step& s) const {
    if (step == 0) return pack(s);
    if (step == ranks_ + 2) return sum(s);
    int const at = step - 1;
    if (at >= 1) send_partials(1 - at, s);
    if (at == ranks_) return;
    ring(at, s);
    for (int r = 0; r < ranks_; ++r) {
      int const owner = ring_step(r, ranks_, at).block;
      s.work[index(r)] = product_seconds(owner, 2 * model_.intermediate) +
                         product_seconds(owner, model_.intermediate);
      if (owner != r) s.work[index(r)] += machine_.stage_seconds(partial_bytes(owner));
    }
  }

  Layout layout_;
  Model model_;
  Machine machine_;
  int ranks_;
  Shards rows_;
};

}  // namespace plan
}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
