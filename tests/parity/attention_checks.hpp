// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One attention problem: build it, run it, compare every element with the oracle.
#pragma once

#include <attikos/attikos.hpp>
#include <attikos/reference/attention_reference.hpp>
#include <cmath>
#include <sstream>
#include <string>
#include <vector>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/shapes.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_attention.hpp"

namespace attikos::test {

inline constexpr std::array all_algorithms{AttentionAlgorithm::flash, AttentionAlgorithm::tiled,
                                           AttentionAlgorithm::naive};

struct AttentionCase {
  AttentionShape shape;
  AttentionOptions options = {};
  Layout layout = Layout::right;
  bool joined = false;  ///< rank 3: batch and heads in one dimension (shape.batch must be 1)
  bool lse = true;
  std::vector<int> lengths_q = {};  ///< by batch; empty: no lengths
  std::vector<int> lengths_kv = {};
  double largest = 1;  ///< q and k are uniform in [-largest, largest]
};

inline std::string describe(AttentionCase const& p) {
  auto const& s = p.shape;
  std::ostringstream text;
  text << "batch " << s.batch << " heads " << s.heads_q << "/" << s.heads_kv << " seqlen "
       << s.seqlen_q << "/" << s.seqlen_kv << " d " << s.d << " dv " << s.dv << " scale "
       << p.options.softmax_scale << " causal " << p.options.causal << " top_left "
       << (p.options.causal_alignment == CausalAlignment::top_left) << " algorithm "
       << static_cast<int>(p.options.algorithm) << " kernel '" << p.options.kernel << "' layout "
       << layout_name(p.layout) << " joined " << p.joined << " lengths";
  for (std::size_t i = 0; i < p.lengths_q.size(); ++i) {
    text << ' ' << p.lengths_q[i] << '/' << p.lengths_kv[i];
  }
  return text.str();
}

template <class Exec, class T_>
struct AttentionOperands {
  using T = T_;
  using Lse = Accumulator<T>;
  Tensor<T, 4, Exec> q, k, v, out;
  Tensor<Lse, 3, Exec> lse;
  Tensor<std::int32_t, 1, Exec> lengths_q, lengths_kv;

  explicit AttentionOperands(AttentionCase const& p)
      : q({p.shape.batch, p.shape.heads_q, p.shape.seqlen_q, p.shape.d}, p.layout),
        k({p.shape.batch, p.shape.heads_kv, p.shape.seqlen_kv, p.shape.d}, p.layout),
        v({p.shape.batch, p.shape.heads_kv, p.shape.seqlen_kv, p.shape.dv}, p.layout),
        out({p.shape.batch, p.shape.heads_q, p.shape.seqlen_q, p.shape.dv}, p.layout),
        lse({p.shape.batch, p.shape.heads_q, p.shape.seqlen_q}, p.layout),
        lengths_q({p.joined ? p.shape.heads_q : p.shape.batch}, Layout::strided),
        lengths_kv({p.joined ? p.shape.heads_q : p.shape.batch}, Layout::strided) {}

  /// Random values; rows that the lengths cut off become NaN.
  void fill(AttentionCase const& p, Random& random) {
    q.fill_uniform(random, -p.largest, p.largest);
    k.fill_uniform(random, -p.largest, p.largest);
    fill_values(v, random);
    if (p.lengths_q.empty()) return;
    auto const cut = [&](auto& tensor, std::vector<int> const& lengths) {
      tensor.for_each([&](auto const& i) {
        if (i[2] >= lengths[sz(p.joined ? i[1] : i[0])]) tensor.at(i) = poison<T>();
      });
      tensor.upload();
    };
    cut(q, p.lengths_q);
    cut(k, p.lengths_kv);
    cut(v, p.lengths_kv);
    for (std::int64_t i = 0; i < lengths_q.extent(0); ++i) {
      lengths_q(i) = p.lengths_q[sz(i)];
      lengths_kv(i) = p.lengths_kv[sz(i)];
    }
    lengths_q.upload();
    lengths_kv.upload();
  }

  void download() {
    out.download();
    lse.download();
  }
};

/// `run` of the arguments of the call.
template <class O, class Run>
auto with_attention_arguments(AttentionCase const& p, O const& o, Run const& run) {
  bool const padded = !p.lengths_q.empty();
  auto const given = [&](auto const& q, auto const& k, auto const& v, auto const& out,
                         auto const& lse) {
    auto const extra = lengths(o.lengths_q.const_view(), o.lengths_kv.const_view());
    if (p.lse && padded) return run(q, k, v, out, lse, p.options, extra);
    if (p.lse) return run(q, k, v, out, lse, p.options);
    if (padded) return run(q, k, v, out, p.options, extra);
    return run(q, k, v, out, p.options);
  };
  if (p.joined)
    return given(o.q.const_front(), o.k.const_front(), o.v.const_front(), o.out.front(),
                 o.lse.front());
  return given(o.q.const_view(), o.k.const_view(), o.v.const_view(), o.out.view(), o.lse.view());
}

template <class Exec, class O>
void call_attention(Exec const& exec, AttentionCase const& p, O& o) {
  with_attention_arguments(p, o, [&](auto const&... given) { attention(exec, given...); });
}

template <class Exec, class O>
Explanation explain_attention(Exec const& exec, AttentionCase const& p, O const& o) {
  return with_attention_arguments(
      p, o, [&](auto const&... given) { return explain(op::attention, exec, given...); });
}

/// Compares what is in o.out and o.lse with the oracle.
template <class Exec, class T>
void compare_attention(AttentionCase const& p, AttentionOperands<Exec, T> const& o) {
  bool const rounded_weights = rounds_weights<Exec>(explain_attention(Exec(), p, o));
  constexpr char const* names[] = {"flash", "tiled", "naive"};
  std::string const name = std::string("attention/") +
                           names[static_cast<int>(p.options.algorithm)] + "/" + type_name<T>() +
                           "/" + Exec::name();
  Comparison out(name, describe(p), stored_as<T>());
  Comparison lse(name + "/lse", describe(p));
  auto const& s = p.shape;
  double const scale = p.options.softmax_scale != 0
                           ? p.options.softmax_scale
                           : 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(s.d, 1)));
  for (std::int64_t b = 0; b < s.batch; ++b) {
    for (std::int64_t h = 0; h < s.heads_q; ++h) {
      std::int64_t const g = h / (s.heads_q / s.heads_kv);
      auto const which = sz(p.joined ? h : b);
      std::int64_t const len_q = p.lengths_q.empty() ? s.seqlen_q : p.lengths_q[which];
      std::int64_t const len_kv = p.lengths_kv.empty() ? s.seqlen_kv : p.lengths_kv[which];
      for (std::int64_t i = 0; i < s.seqlen_q; ++i) {
        if (!is_compared(i)) continue;
        auto const row = reference::attention_row(
            reference::visible_keys(i, len_q, len_kv, p.options.causal,
                                    p.options.causal_alignment == CausalAlignment::top_left),
            s.d, s.dv, scale, [&](std::int64_t c) { return o.q.value(b, h, i, c); },
            [&](std::int64_t j, std::int64_t c) { return o.k.value(b, g, j, c); },
            [&](std::int64_t j, std::int64_t c) { return o.v.value(b, g, j, c); });
        using Bound =
            std::conditional_t<is_host_space<Exec>, HostAttentionBound<T>, AttentionBound<T>>;
        Bound const bound(row, s.d, rounded_weights);
        for (std::int64_t c = 0; c < s.dv; ++c) {
          out.add(o.out.value(b, h, i, c), row.out[sz(c)],
                  bound.out(sz(c), [&](std::int64_t j) { return o.v.value(b, g, j, c); }),
                  {b, h, i, c});
        }
        if (p.lse) lse.add(o.lse.value(b, h, i), row.lse, bound.lse(), {b, h, i});
      }
    }
  }
}

template <class Exec, class T>
void check_attention(AttentionCase const& p) {
  AttentionOperands<Exec, T> o(p);
  Random random(
      static_cast<std::uint64_t>(p.shape.seqlen_q * 1009 + p.shape.seqlen_kv * 31 + p.shape.d));
  o.fill(p, random);
  call_attention(Exec(), p, o);
  o.download();
  EXPECT_EQ(o.out.writes_outside(), 0u) << describe(p);
  EXPECT_EQ(o.lse.writes_outside(), 0u) << describe(p);
  EXPECT_TRUE(p.lse || o.lse.unchanged()) << describe(p);
  compare_attention(p, o);
  if constexpr (is_host_space<Exec>) {
    // Short sequences do not go to the flash kernel by themselves.
    bool const automatic =
        *p.options.kernel == '\0' && p.options.algorithm == AttentionAlgorithm::flash;
    if (!automatic || p.shape.seqlen_q > 32 || p.shape.seqlen_kv > 32) return;
    AttentionCase again = p;
    again.options.kernel = "portable/flash";
    check_attention<Exec, T>(again);
  }
}

}  // namespace attikos::test
