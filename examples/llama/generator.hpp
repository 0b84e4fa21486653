// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Generation: keys and values of past tokens stay in a paged cache. A step takes the tokens of the
/// step before from where that left them, so that nothing has to come to the host in between.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "graph.hpp"
#include "model.hpp"
#include "trainer.hpp"

namespace llama {

/// before(b) = after(b); after(b) += by
struct Advance {
  Tokens before, after;
  std::int32_t by;
  KOKKOS_FUNCTION void operator()(std::int64_t b) const {
    before(b) = after(b);
    after(b) += by;
  }
};

/// The likeliest token of each row, the first of several, becomes the sequence's next.
template <class T>
struct TakeLikeliest {
  using Place = Kokkos::MaxFirstLoc<float, std::int32_t>;
  Matrix<T> logits;
  Tokens next, lengths;
  Matrix<std::int32_t> history;  // [batch, capacity]

  template <class Team>
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    int const row = team.league_rank();
    typename Place::value_type best;
    Kokkos::parallel_reduce(
        Kokkos::TeamThreadRange(team, static_cast<std::int32_t>(logits.extent(1))),
        [&](std::int32_t word, typename Place::value_type& partial) {
          auto const value = static_cast<float>(logits(row, word));
          if (value > partial.val || (value == partial.val && word < partial.loc)) {
            partial.val = value;
            partial.loc = word;
          }
        },
        Place(best));
    Kokkos::single(Kokkos::PerTeam(team), [&] {
      next(row) = best.loc;
      if (lengths(row) < static_cast<std::int32_t>(history.extent(1)))
        history(row, lengths(row)) = best.loc;
    });
  }
};

/// Extends `batch` sequences of like length by their likeliest tokens.
template <class T>
class Generator {
 public:
  /// Prompts of `prompt_length` tokens, sequences of at most `capacity`; weights are shared.
  Generator(Config const& config, Weights<T> const& weights, std::size_t batch,
            std::size_t prompt_length, std::size_t capacity, std::size_t page_size);

  /// Begins anew: runs prompts [batch, prompt_length] and finds the first new token of each.
  void start(std::vector<std::int32_t> const& prompts);
  /// Runs the new token of each sequence and finds the next one. May be recorded.
  void step();

  Exec const& exec() const { return instance_.exec(); }
  /// Logits of the last step, [batch, vocabulary].
  Matrix<T> const& logits() const { return logits_; }
  /// All tokens, [batch, capacity], of which the lengths so far and one more are there.
  std::vector<std::int32_t> tokens() const;

 private:
  void plan(Cutter<T>& cut);
  void run(std::size_t count);

  OwnInstance instance_;
  Config config_;
  Weights<T> weights_;
  std::size_t batch_, prompt_length_, capacity_, page_size_, pages_;
  RotationTables tables_;
  Array<T> memory_;
  LayerResults<T> layer_;
  Matrix<T> last_, head_in_, logits_;
  std::vector<PagedCache<T>> caches_;
  Array<std::int32_t> numbers_;
  Tokens prompt_, next_, before_, after_, last_rows_;
  Matrix<std::int32_t> history_, table_;
  Array<unsigned char> workspace_memory_;
  Bytes workspace_;
};

template <class T>
Generator<T>::Generator(Config const& config, Weights<T> const& weights, std::size_t batch,
                        std::size_t prompt_length, std::size_t capacity, std::size_t page_size)
    : config_(config),
      weights_(weights),
      batch_(batch),
      prompt_length_(prompt_length),
      capacity_(capacity),
      page_size_(page_size),
      pages_((capacity + page_size - 1) / page_size),
      tables_(config, capacity) {
  Cutter<T> measure;
  plan(measure);
  memory_ = allocate<T>("activations and cache", measure.used());
  Cutter<T> cut(memory_.data());
  plan(cut);

  Cutter<std::int32_t> number_measure;
  auto const plan_numbers = [&](Cutter<std::int32_t>& cutter) {
    prompt_ = cutter.template take<Tokens>(batch_ * prompt_length_);
    next_ = cutter.template take<Tokens>(batch_);
    before_ = cutter.template take<Tokens>(batch_);
    after_ = cutter.template take<Tokens>(batch_);
    last_rows_ = cutter.template take<Tokens>(batch_);
    history_ = cutter.matrix(batch_, capacity_);
    table_ = cutter.matrix(batch_, pages_);
  };
  plan_numbers(number_measure);
  numbers_ = Array<std::int32_t>("tokens and lengths", number_measure.used());
  Cutter<std::int32_t> number_cut(numbers_.data());
  plan_numbers(number_cut);

  // Pages are dealt out in turn and from the last to the first: no sequence lies in order.
  std::vector<std::int32_t> table, last;
  for (std::size_t b = 0; b < batch_; ++b) {
    last.push_back(static_cast<std::int32_t>((b + 1) * prompt_length_ - 1));
    for (std::size_t p = 0; p < pages_; ++p)
      table.push_back(static_cast<std::int32_t>((pages_ - 1 - p) * batch_ + b));
  }
  copy_to(Tokens(table_.data(), table_.size()), table);
  copy_to(last_rows_, last);
  for (PagedCache<T>& cache : caches_) {
    cache.table = table_;
    cache.lengths_before = before_;
    cache.lengths_after = after_;
  }
  auto const bytes_for = [&](std::size_t count) {
    auto const qkv = qkv_of(config_, first_rows(layer_.qkv, batch_ * count), batch_);
    return caches_.empty() ? 0 : attend_to_cache_bytes(exec(), qkv, caches_.front());
  };
  workspace_memory_ = allocate<unsigned char>(
      "workspace", std::max({std::size_t{64}, bytes_for(1), bytes_for(prompt_length_)}));
  workspace_ = Bytes(workspace_memory_.data(), workspace_memory_.size());
}

template <class T>
void Generator<T>::plan(Cutter<T>& cut) {
  Config const& c = config_;
  std::size_t const rows = batch_ * prompt_length_;
  layer_.in = layer_.attended = layer_.out = cut.matrix(rows, c.hidden);
  layer_.attention_in = layer_.mlp_in = cut.matrix(rows, c.hidden);
  layer_.qkv = cut.matrix(rows, c.qkv_width());
  layer_.context = cut.matrix(rows, c.context_width());
  layer_.gated = cut.matrix(rows, c.intermediate);
  last_ = cut.matrix(batch_, c.hidden);
  head_in_ = cut.matrix(batch_, c.hidden);
  logits_ = cut.matrix(batch_, c.vocabulary);
  caches_.resize(c.layers);
  for (PagedCache<T>& cache : caches_) {
    auto const pages = [&] {
      return cut.template take<Pages<T>>(batch_ * pages_, c.kv_heads, page_size_, c.head_dim);
    };
    cache.keys = pages();
    cache.values = pages();
  }
}

// Appends `count` tokens to each sequence.
template <class T>
void Generator<T>::run(std::size_t count) {
  Exec const& exec = instance_.exec();
  WeightMap const& map = weights_.map;
  std::size_t const rows = batch_ * count;
  LayerResults<T> a = layer_;
  for (Matrix<T>* const x :
       {&a.in, &a.attention_in, &a.qkv, &a.context, &a.attended, &a.mlp_in, &a.gated, &a.out})
    *x = first_rows(*x, rows);
  Kokkos::parallel_for("llama: advance", Kokkos::RangePolicy<Exec>(exec, 0, batch_),
                       Advance{before_, after_, static_cast<std::int32_t>(count)});
  embed(exec, weights_.matrix(map.embedding), count == 1 ? next_ : prompt_, a.in);
  for (std::size_t i = 0; i < caches_.size(); ++i) {
    run_layer(exec, config_, weights_, map.layers[i], a, [&] {
      attend_to_cache(exec, qkv_of(config_, a.qkv, batch_), tables_.rotation(), caches_[i],
                      context_of(config_, a.context, batch_), workspace_);
    });
  }
  // The last row of each sequence is looked up as a table's rows are.
  if (count > 1) embed(exec, a.out, last_rows_, last_);
  norm(exec, count > 1 ? last_ : a.out, weights_.vector(map.final_norm), head_in_, config_.eps);
  linear(exec, head_in_, weights_.matrix(map.head), logits_);
  int const team = std::is_same_v<typename Exec::memory_space, Kokkos::HostSpace> ? 1 : 512;
  Kokkos::parallel_for("llama: likeliest",
                       Kokkos::TeamPolicy<Exec>(exec, static_cast<int>(batch_), team),
                       TakeLikeliest<T>{logits_, next_, after_, history_});
}

template <class T>
void Generator<T>::start(std::vector<std::int32_t> const& prompts) {
  instance_.exec().fence("llama: prompts replace what the last run had");
  std::vector<std::int32_t> history(history_.size(), 0);
  for (std::size_t b = 0; b < batch_; ++b)
    std::copy_n(prompts.begin() + static_cast<std::ptrdiff_t>(b * prompt_length_), prompt_length_,
                history.begin() + static_cast<std::ptrdiff_t>(b * capacity_));
  copy_to(Tokens(history_.data(), history_.size()), history);
  copy_to(prompt_, prompts);
  copy_to(next_, std::vector<std::int32_t>(prompts.begin(),
                                           prompts.begin() + static_cast<std::ptrdiff_t>(batch_)));
  Kokkos::deep_copy(after_, 0);
  run(prompt_length_);
}

template <class T>
void Generator<T>::step() {
  run(1);
}

template <class T>
std::vector<std::int32_t> Generator<T>::tokens() const {
  instance_.exec().fence("llama: tokens go to the host");
  std::vector<std::int32_t> result(history_.size());
  Kokkos::deep_copy(Kokkos::View<std::int32_t*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
                        result.data(), result.size()),
                    Tokens(history_.data(), history_.size()));
  return result;
}

}  // namespace llama
