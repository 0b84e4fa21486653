// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One problem of attention_backward: build it with what the forward pass would have written, run
// it, compare every element of every gradient with the oracle.
#pragma once

#include <attikos/attention/attention.hpp>
#include <attikos/attention/attention_backward.hpp>
#include <sstream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/shapes.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_attention_backward.hpp"

namespace attikos::test {

/// How a call is made. Each is one instantiation, in which a term that a case does not want has a
/// value that says nothing (bias 0, mask 1, slope 0, sink −∞, functor f(s) = s).
enum class BackwardCall {
  plain,     ///< rank 4, options alone
  joined,    ///< rank 3, lengths
  terms,     ///< rank 4, every extra but functors
  functors,  ///< rank 4, every extra
  packed     ///< rank 3 with cu_seqlens, every extra but lengths
};

struct BackwardCase {
  AttentionShape shape = {};  ///< packed: batch sequences, seqlen counts all positions
  AttentionOptions options = {};
  BackwardCall call = BackwardCall::plain;
  Layout layout = Layout::right;
  bool bias = false, mask = false, alibi = false, sinks = false, score = false, weight = false;
  unsigned bias_broadcast = 0, mask_broadcast = 0;   ///< bit r: extent 1 in dimension r
  std::vector<int> lengths_q = {}, lengths_kv = {};  ///< empty: all
  std::vector<int> cu_q = {}, cu_kv = {};
  double largest = 1, largest_dout = 1;  ///< q and k, and dout, are uniform in [-this, this]
};

inline std::string describe(BackwardCase const& p) {
  auto const& s = p.shape;
  std::ostringstream text;
  text << "batch " << s.batch << " heads " << s.heads_q << "/" << s.heads_kv << " seqlen "
       << s.seqlen_q << "/" << s.seqlen_kv << " d " << s.d << " dv " << s.dv << " scale "
       << p.options.softmax_scale << " causal " << p.options.causal << " top_left "
       << (p.options.causal_alignment == CausalAlignment::top_left) << " window "
       << p.options.window_left << "/" << p.options.window_right << " softcap " << p.options.softcap
       << " call " << static_cast<int>(p.call) << " layout " << layout_name(p.layout)
       << " bias mask alibi sinks score weight " << p.bias << p.mask << p.alibi << p.sinks
       << p.score << p.weight << " broadcast " << p.bias_broadcast << "/" << p.mask_broadcast;
  return text.str();
}

/// Nonlinear in s, different for every pair, and −∞ for some, where its derivative is NaN.
struct BendScore {
  bool on;
  static constexpr double curvature = 0.125;
  template <class Number>
  KOKKOS_INLINE_FUNCTION Number operator()(Number s, std::int64_t b, std::int64_t h, std::int64_t i,
                                           std::int64_t j) const {
    if (!on) return s;
    if ((i + 2 * j + h) % 7 == 3) return Number(-Kokkos::Experimental::infinity_v<double>);
    return s * factor<Number>(b, h, i, j) + Number(0.0625) * s * s;
  }
  template <class Number>
  KOKKOS_INLINE_FUNCTION Number derivative(Number s, std::int64_t b, std::int64_t h, std::int64_t i,
                                           std::int64_t j) const {
    if (!on) return Number(1);
    if ((i + 2 * j + h) % 7 == 3) return Kokkos::Experimental::quiet_NaN_v<Number>;
    return factor<Number>(b, h, i, j) + Number(0.125) * s;
  }
  template <class Number>
  KOKKOS_INLINE_FUNCTION static Number factor(std::int64_t b, std::int64_t h, std::int64_t i,
                                              std::int64_t j) {
    return Number(0.5 + 0.125 * static_cast<double>((b + 3 * h + 5 * i + 7 * j) % 8));
  }
};

/// A cutoff: exactly 0 for some pairs.
struct CutoffWeight {
  bool on;
  KOKKOS_INLINE_FUNCTION double operator()(std::int64_t b, std::int64_t h, std::int64_t i,
                                           std::int64_t j) const {
    std::int64_t const distance = on ? (i + j + b + h) % 9 : 0;
    return distance >= 6 ? 0 : 1 - static_cast<double>(distance) / 8;
  }
};

/// Rows [begin, begin + len) of dimension 2 at index `slot` of dimension 0.
struct BackwardSequence {
  std::int64_t slot_q, slot_kv, begin_q, len_q, begin_kv, len_kv;
};

/// The space whose Views a test of `Exec` uses: one for all host spaces, so that all but the calls
/// is compiled once.
template <class Exec>
using TensorSpace =
    std::conditional_t<is_host_space<Exec>, Kokkos::DefaultHostExecutionSpace, Exec>;

template <class Exec, class T_>
struct BackwardOperandsIn {
  using T = T_;
  using Acc = Accumulator<T>;
  using Index = std::array<std::int64_t, 4>;
  BackwardCase p;
  bool packed_q, packed_kv;
  Tensor<T, 4, Exec> q, k, v, out, dout, dq, dk, dv, bias;
  Tensor<Acc, 3, Exec> lse;
  Tensor<Acc, 4, Exec> d_bias;
  Tensor<std::uint8_t, 4, Exec> mask;
  Tensor<float, 2, Exec> slopes;
  Tensor<T, 1, Exec> sinks;
  Tensor<Acc, 1, Exec> d_sinks;
  Tensor<std::int32_t, 1, Exec> lengths_q, lengths_kv, cu_kv;
  Tensor<std::int64_t, 1, Exec> cu_q;
  PairRounding rounded = {};  ///< by the kernel that took the call

  static Index score_extents(BackwardCase const& p, unsigned broadcast) {
    Index e{p.shape.batch, p.shape.heads_q, p.shape.seqlen_q, p.shape.seqlen_kv};
    for (unsigned r = 0; r < 4; ++r)
      if (broadcast >> r & 1u) e[r] = 1;
    return e;
  }
  Index query(std::int64_t width) const {
    return {packed_q ? 1 : p.shape.batch, p.shape.heads_q, p.shape.seqlen_q, width};
  }
  Index key(std::int64_t width) const {
    return {packed_kv ? 1 : p.shape.batch, p.shape.heads_kv, p.shape.seqlen_kv, width};
  }

  explicit BackwardOperandsIn(BackwardCase const& problem)
      : p(problem),
        packed_q(!p.cu_q.empty()),
        packed_kv(!p.cu_kv.empty()),
        q(query(p.shape.d), p.layout),
        k(key(p.shape.d), p.layout),
        v(key(p.shape.dv), p.layout),
        out(query(p.shape.dv), p.layout),
        dout(query(p.shape.dv), p.layout),
        dq(query(p.shape.d), p.layout),
        dk(key(p.shape.d), p.layout),
        dv(key(p.shape.dv), p.layout),
        bias(score_extents(p, p.bias_broadcast), p.layout),
        lse({packed_q ? 1 : p.shape.batch, p.shape.heads_q, p.shape.seqlen_q}, p.layout),
        d_bias(score_extents(p, p.bias_broadcast), p.layout),
        mask(score_extents(p, p.mask_broadcast), Layout::padded),
        slopes({p.shape.batch, p.shape.heads_q}, Layout::padded),
        sinks({p.shape.heads_q}, Layout::strided),
        d_sinks({p.shape.heads_q}, Layout::strided),
        lengths_q({joined() ? p.shape.heads_q : p.shape.batch}, Layout::strided),
        lengths_kv({joined() ? p.shape.heads_q : p.shape.batch}, Layout::strided),
        cu_kv({p.shape.batch + 1}),
        cu_q({p.shape.batch + 1}, Layout::strided) {}

  bool joined() const { return p.call == BackwardCall::joined; }
  double scale() const {
    return p.options.softmax_scale != 0
               ? p.options.softmax_scale
               : 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(p.shape.d, 1)));
  }
  double sink(std::int64_t h) const { return sinks.value(h); }

  BackwardSequence sequence(std::int64_t b, std::int64_t h) const {
    BackwardSequence s{packed_q ? 0 : b, packed_kv ? 0 : b, 0, p.shape.seqlen_q, 0,
                       p.shape.seqlen_kv};
    auto const which = sz(joined() ? h : b);
    if (!p.lengths_q.empty()) s.len_q = p.lengths_q[which];
    if (!p.lengths_kv.empty()) s.len_kv = p.lengths_kv[which];
    if (packed_q) {
      s.begin_q = p.cu_q[sz(b)];
      s.len_q = p.cu_q[sz(b + 1)] - s.begin_q;
    }
    if (packed_kv) {
      s.begin_kv = p.cu_kv[sz(b)];
      s.len_kv = p.cu_kv[sz(b + 1)] - s.begin_kv;
    }
    return s;
  }
  /// Position in a tensor that broadcasts to the scores.
  template <class Tensor4>
  static Index broadcast(Tensor4 const& x, Index i) {
    for (std::size_t r = 0; r < 4; ++r)
      if (x.extents()[r] == 1) i[r] = 0;
    return i;
  }
  template <class Tensor4>
  static double pick(Tensor4 const& x, Index const& index) {
    Index const i = broadcast(x, index);
    return x.value(i[0], i[1], i[2], i[3]);
  }

  reference::AttentionModel model(std::int64_t b, std::int64_t h) const {
    BackwardSequence const s = sequence(b, h);
    auto const& o = p.options;
    std::int64_t const off =
        o.causal_alignment == CausalAlignment::top_left ? 0 : s.len_kv - s.len_q;
    reference::AttentionModel m;
    m.scale = scale();
    m.softcap = o.softcap;
    m.sees = [=, this](std::int64_t i, std::int64_t j) {
      std::int64_t const ahead = j - i - off;
      return !(o.causal && ahead > 0) && !(o.window_left >= 0 && ahead < -o.window_left) &&
             !(o.window_right >= 0 && ahead > o.window_right) &&
             reference::in_one_chunk(i + off, j, o.attention_chunk) &&
             !(p.mask && pick(mask, {b, h, i, j}) == 0);
    };
    if (p.alibi)
      m.alibi = [=, this](std::int64_t i, std::int64_t j) {
        return -slopes.value(b, h) * static_cast<double>(std::abs(i + off - j));
      };
    if (p.weight)
      m.weight = [=](std::int64_t i, std::int64_t j) { return CutoffWeight{true}(b, h, i, j); };
    if (p.score) {
      m.score = [=](double x, auto i, auto j) { return BendScore{true}(x, b, h, i, j); };
      m.score_slope = [=](double x, auto i, auto j) {
        return BendScore{true}.derivative(x, b, h, i, j);
      };
    }
    return m;
  }

  template <class Tensor4>
  static reference::Matrix rows(Tensor4 const& x, std::int64_t slot, std::int64_t h,
                                std::int64_t begin, std::int64_t len) {
    reference::Matrix m(len, x.extent(3));
    for (std::int64_t i = 0; i < len; ++i)
      for (std::int64_t c = 0; c < m.cols; ++c) m(i, c) = x.value(slot, h, begin + i, c);
    return m;
  }
  /// The matrices of one head.
  struct Head {
    BackwardSequence s;
    reference::Matrix q, k, v, dout, bias;
  };
  Head head(std::int64_t b, std::int64_t h) const {
    BackwardSequence const s = sequence(b, h);
    std::int64_t const g = h / (p.shape.heads_q / p.shape.heads_kv);
    Head result{s,
                rows(q, s.slot_q, h, s.begin_q, s.len_q),
                rows(k, s.slot_kv, g, s.begin_kv, s.len_kv),
                rows(v, s.slot_kv, g, s.begin_kv, s.len_kv),
                rows(dout, s.slot_q, h, s.begin_q, s.len_q),
                {s.len_q, s.len_kv}};
    for (std::int64_t i = 0; i < s.len_q && p.bias; ++i)
      for (std::int64_t j = 0; j < s.len_kv; ++j) result.bias(i, j) = pick(bias, {b, h, i, j});
    return result;
  }

  /// Random values; NaN at positions of no sequence, also in the bias and in what the forward pass
  /// wrote.
  void fill(Random& random) {
    q.fill_uniform(random, -p.largest, p.largest);
    k.fill_uniform(random, -p.largest, p.largest);
    v.fill_uniform(random);
    dout.fill_uniform(random, -p.largest_dout, p.largest_dout);
    bias.fill(0);
    mask.fill_integers(random, p.mask ? 0 : 1, p.mask ? 2 : 1);
    slopes.fill(0);
    sinks.fill(-std::numeric_limits<double>::infinity());
    if (p.bias) bias.fill_uniform(random, -2, 2);
    if (p.alibi) slopes.fill_uniform(random, 0, 1);
    if (p.sinks) sinks.fill_uniform(random, -1, 3);
    for (std::int64_t i = 0; i < lengths_q.extent(0); ++i) {
      lengths_q(i) = p.lengths_q.empty() ? static_cast<int>(p.shape.seqlen_q) : p.lengths_q[sz(i)];
      lengths_kv(i) =
          p.lengths_kv.empty() ? static_cast<int>(p.shape.seqlen_kv) : p.lengths_kv[sz(i)];
    }
    for (std::int64_t i = 0; i <= p.shape.batch; ++i) {
      if (packed_q) cu_q(i) = p.cu_q[sz(i)];
      if (packed_kv) cu_kv(i) = p.cu_kv[sz(i)];
    }
    poison_padding();
    upload();
  }

  void poison_padding() {
    std::vector<bool> used_q(sz(q.extent(0) * q.extent(1) * q.extent(2)), false);
    std::vector<bool> used_k(sz(k.extent(0) * k.extent(1) * k.extent(2)), false);
    for_heads([&](std::int64_t b, std::int64_t h) {
      BackwardSequence const s = sequence(b, h);
      std::int64_t const g = h / (p.shape.heads_q / p.shape.heads_kv);
      for (std::int64_t i = 0; i < s.len_q; ++i)
        used_q[sz((s.slot_q * q.extent(1) + h) * q.extent(2) + s.begin_q + i)] = true;
      for (std::int64_t j = 0; j < s.len_kv; ++j)
        used_k[sz((s.slot_kv * k.extent(1) + g) * k.extent(2) + s.begin_kv + j)] = true;
    });
    auto const cut = [](auto& x, std::vector<bool> const& used) {
      x.for_each([&](auto const& i) {
        if (!used[sz((i[0] * x.extent(1) + i[1]) * x.extent(2) + i[2])])
          x.at(i) = poison<typename std::remove_reference_t<decltype(x)>::T>();
      });
    };
    cut(q, used_q);
    cut(dout, used_q);
    cut(k, used_k);
    cut(v, used_k);
    if (p.bias && p.bias_broadcast == 0)
      bias.for_each([&](Index const& i) {
        BackwardSequence const s = sequence(i[0], i[1]);
        if (i[2] >= s.len_q || i[3] >= s.len_kv) bias.at(i) = poison<T>();
      });
  }

  template <class F>
  void for_heads(F const& f) const {
    for (std::int64_t b = 0; b < p.shape.batch; ++b)
      for (std::int64_t h = 0; h < p.shape.heads_q; ++h) f(b, h);
  }

  /// out and lse as a forward pass stores them; stays NaN elsewhere.
  void forward() {
    for_heads([&](std::int64_t b, std::int64_t h) {
      Head const x = head(b, h);
      reference::Matrix result(x.s.len_q, p.shape.dv);
      std::vector<double> sums(sz(x.s.len_q));
      reference::AttentionModel const m = model(b, h);
      reference::attention_forward(
          m, x.q, x.k, x.v, x.bias, sink(h),
          [&](double s, std::int64_t i, std::int64_t j) { return m.score ? m.score(s, i, j) : s; },
          result, sums);
      for (std::int64_t i = 0; i < x.s.len_q; ++i) {
        lse.set(sums[sz(i)], x.s.slot_q, h, x.s.begin_q + i);
        for (std::int64_t c = 0; c < p.shape.dv; ++c)
          out.set(result(i, c), x.s.slot_q, h, x.s.begin_q + i, c);
      }
    });
    out.upload();
    lse.upload();
  }

  template <class F>
  void for_tensors(F const& f) {
    f(q), f(k), f(v), f(out), f(dout), f(bias), f(mask), f(slopes), f(sinks), f(lse);
    f(lengths_q), f(lengths_kv), f(cu_q), f(cu_kv);
  }
  template <class F>
  void for_gradients(F const& f) {
    f(dq), f(dk), f(dv), f(d_bias), f(d_sinks);
  }
  void upload() {
    for_tensors([](auto& x) { x.upload(); });
  }
  void download() {
    for_gradients([](auto& x) { x.download(); });
  }
};

template <class Exec, class T>
using BackwardOperands = BackwardOperandsIn<TensorSpace<Exec>, T>;

/// Calls attention_backward() and notes what the kernel that takes the call rounds.
template <class Space, class T, class... Arguments>
void run_attention_backward(BackwardOperandsIn<Space, T>& o, Arguments const&... arguments) {
  auto const call = explain(op::attention_backward, arguments...);
  bool const rounds = call.kernel != "portable" || !call.instructions.empty();
  o.rounded = rounds ? PairRounding::to<T>() : PairRounding{};
  attention_backward(arguments...);
}

/// The same as the case says, with a workspace of exactly the promised size that is full of NaN.
template <class Exec, class Space, class T>
void call_attention_backward(Exec const& exec, BackwardOperandsIn<Space, T>& o) {
  auto const& p = o.p;
  std::size_t const bytes =
      attention_backward_workspace_size(exec, o.q.view(), o.k.view(), o.v.view(), p.options);
  using Acc = Accumulator<T>;
  ASSERT_EQ(bytes % sizeof(Acc), 0u);
  Tensor<Acc, 1, Space> memory({static_cast<std::int64_t>(bytes / sizeof(Acc))});
  auto const space = workspace(
      Kokkos::View<Acc*, typename Space::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
          memory.view().data(), bytes / sizeof(Acc)));
  auto const run = [&](auto const&... arguments) { run_attention_backward(o, exec, arguments...); };
  auto const rank4 = [&](auto const&... extras) {
    run(o.q.const_view(), o.k.const_view(), o.v.const_view(), o.out.const_view(),
        o.lse.const_view(), o.dout.const_view(), o.dq.view(), o.dk.view(), o.dv.view(), p.options,
        extras...);
  };
  auto const rank3 = [&](auto const&... extras) {
    run(o.q.const_front(), o.k.const_front(), o.v.const_front(), o.out.const_front(),
        o.lse.const_front(), o.dout.const_front(), o.dq.front(), o.dk.front(), o.dv.front(),
        p.options, extras...);
  };
  auto const terms = [&](auto const& call, auto const&... extras) {
    call(extras..., bias(o.bias.const_view()), d_bias(o.d_bias.view()), mask(o.mask.const_view()),
         alibi(o.slopes.const_view()), sinks(o.sinks.const_view()), d_sinks(o.d_sinks.view()),
         space);
  };
  auto const padding = lengths(o.lengths_q.const_view(), o.lengths_kv.const_view());
  switch (p.call) {
    case BackwardCall::plain:
      return rank4();
    case BackwardCall::joined:
      return rank3(padding, space);
    case BackwardCall::terms:
      terms(rank4, padding);
      break;
    case BackwardCall::functors:
      terms(rank4, padding, score(BendScore{p.score}), weight(CutoffWeight{p.weight}));
      break;
    case BackwardCall::packed:
      terms(rank3, cu_seqlens(o.cu_q.const_view(), o.cu_kv.const_view()), score(BendScore{p.score}),
            weight(CutoffWeight{p.weight}));
      break;
  }
  memory.download();
  EXPECT_EQ(memory.writes_outside(), 0u) << "past the workspace: " << describe(p);
}

/// Compares the gradients in `o` with the oracle.
template <class Space, class T>
void compare_attention_backward(BackwardOperandsIn<Space, T> const& o,
                                std::string const& space = Space::name()) {
  using Acc = Accumulator<T>;
  using Sum = InexactSum<Acc>;
  auto const& p = o.p;
  auto const at = [](auto const& x, std::array<std::int64_t, 4> const& i) {
    return sz(((i[0] * x.extent(1) + i[1]) * x.extent(2) + i[2]) * x.extent(3) + i[3]);
  };
  auto const sums_of = [](auto const& x) {
    std::int64_t n = 1;
    for (auto e : x.extents()) n *= e;
    return std::vector<Sum>(sz(n));
  };
  auto dq = sums_of(o.dq), dk = sums_of(o.dk), dv = sums_of(o.dv), d_bias = sums_of(o.d_bias),
       d_sinks = sums_of(o.d_sinks);
  o.for_heads([&](std::int64_t b, std::int64_t h) {
    auto const x = o.head(b, h);
    auto const& s = x.s;
    std::int64_t const g = h / (p.shape.heads_q / p.shape.heads_kv);
    reference::AttentionModel const model = o.model(b, h);
    std::vector<double> lse;
    for (std::int64_t i = 0; i < s.len_q; ++i)
      lse.push_back(o.lse.value(s.slot_q, h, s.begin_q + i));
    auto const r =
        reference::attention_gradients(model, x.q, x.k, x.v, x.bias, o.sink(h),
                                       o.rows(o.out, s.slot_q, h, s.begin_q, s.len_q), lse, x.dout);
    for (std::int64_t i = 0; i < s.len_q; ++i) {
      if (std::isinf(lse[sz(i)])) continue;
      auto const delta = delta_bound<Acc>(r.delta[sz(i)], r.delta_magnitude[sz(i)], p.shape.dv);
      d_sinks[sz(h)].add(Approximate<Acc>{-1, 0} * sink_bound<Acc>(o.sink(h), lse[sz(i)]) * delta);
      for (std::int64_t j = 0; j < s.len_kv; ++j) {
        auto const& e = r.pairs(i, j);
        if (!e.seen) continue;
        PairBound<Acc> const bound(model, e, x.bias(i, j), model.alibi(i, j), lse[sz(i)], delta,
                                   p.shape.d, p.shape.dv, BendScore::curvature, o.rounded);
        for (std::int64_t c = 0; c < p.shape.d; ++c) {
          dq[at(o.dq, {s.slot_q, h, s.begin_q + i, c})].add(bound.d_dot, x.k(j, c));
          dk[at(o.dk, {s.slot_kv, g, s.begin_kv + j, c})].add(bound.d_dot, x.q(i, c));
        }
        for (std::int64_t c = 0; c < p.shape.dv; ++c)
          dv[at(o.dv, {s.slot_kv, g, s.begin_kv + j, c})].add(bound.p, x.dout(i, c));
        d_bias[at(o.d_bias, o.broadcast(o.d_bias, {b, h, i, j}))].add(bound.d_bias);
      }
    }
  });
  std::string const name = "attention_backward/" + std::string(type_name<T>()) + "/" + space;
  auto const compare = [&]<class Out>(char const* what, auto const& got,
                                      std::vector<Sum> const& want, Out) {
    Stored const stored = stored_as<Out>();
    Comparison comparison(name + "/" + what, describe(p), stored);
    EXPECT_EQ(got.writes_outside(), 0u) << what << ": " << describe(p);
    std::size_t n = 0;
    got.for_each([&](auto const& i) {
      Sum const& sum = want[n++];
      double const bound = sum.template bound<Out>(o.rounded);
      auto const add = [&](auto... index) {
        // Numbers of few bits times one number may all be rounded the same way (error_norms.hpp).
        if (stored.roundoff != 0 && sum.terms < 2)
          comparison.add(got.value(index...), sum.value, bound, ErrorParts{bound}, {index...});
        else
          comparison.add(got.value(index...), sum.value, bound, {index...});
      };
      std::apply(add, i);
    });
  };
  compare("dq", o.dq, dq, T{});
  compare("dk", o.dk, dk, T{});
  compare("dv", o.dv, dv, T{});
  if (p.call == BackwardCall::plain || p.call == BackwardCall::joined) return;
  compare("dbias", o.d_bias, d_bias, Acc{});  // of Acc, and so without norms
  compare("dsinks", o.d_sinks, d_sinks, Acc{});
}

template <class Exec, class T>
void check_attention_backward(BackwardCase const& p) {
  BackwardOperands<Exec, T> o(p);
  Random random(
      static_cast<std::uint64_t>(p.shape.seqlen_q * 1009 + p.shape.seqlen_kv * 31 + p.shape.d));
  o.fill(random);
  o.forward();
  call_attention_backward(Exec(), o);
  o.download();
  compare_attention_backward(o, Exec::name());
}

}  // namespace attikos::test
