// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One call of decode in each of its forms, compared with float64.
#pragma once

#include <attikos/decode/decode.hpp>
#include <optional>
#include <sstream>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/shapes.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_decode.hpp"

namespace attikos::test {

/// The forms of the call: few, so that few are compiled.
enum class Form {
  bare,     ///< no extras, no lse
  lengths,  ///< lengths(none, kv)
  paged,    ///< lengths(q, kv), paged
  terms     ///< lengths(q, kv), paged, bias, mask, alibi, sinks, workspace
};

struct DecodeCase {
  AttentionShape shape;
  DecodeOptions options = {};
  Form form = Form::bare;
  Layout layout = Layout::right;
  std::int64_t page_size = 0;           ///< of the paged forms
  double largest = 1;                   ///< q and k are uniform in [-largest, largest]
  std::optional<Layout> layout_v = {};  ///< another one of v
};

inline std::string describe(DecodeCase const& p) {
  auto const& s = p.shape;
  auto const& o = p.options;
  std::ostringstream text;
  text << "batch " << s.batch << " heads " << s.heads_q << "/" << s.heads_kv << " seqlen "
       << s.seqlen_q << "/" << s.seqlen_kv << " d " << s.d << " dv " << s.dv << " form "
       << static_cast<int>(p.form) << " layout " << layout_name(p.layout) << "/"
       << layout_name(p.layout_v.value_or(p.layout)) << " page size " << p.page_size << " splits "
       << o.splits << " causal " << o.causal << " top_left "
       << (o.causal_alignment == CausalAlignment::top_left) << " window " << o.window_left << "/"
       << o.window_right << " chunk " << o.attention_chunk << " softcap " << o.softcap;
  return text.str();
}

/// T of q, k and v; O of out.
template <class Exec, class T, class O = T>
struct DecodeRun {
  using Lse = Accumulator<O>;
  DecodeCase p;
  bool is_paged;
  std::int64_t max_pages, num_pages;
  Tensor<T, 4, Exec> q, k, v;
  Tensor<O, 4, Exec> out;
  Tensor<Lse, 3, Exec> lse;
  Tensor<std::int32_t, 1, Exec> lengths_q, lengths_kv;
  Tensor<std::int32_t, 2, Exec> table;
  Tensor<float, 4, Exec> bias_values;
  Tensor<std::uint8_t, 3, Exec> mask_values;
  Tensor<float, 1, Exec> slopes, sink_values;

  explicit DecodeRun(DecodeCase const& c)
      : p(c),
        is_paged(p.form == Form::paged || p.form == Form::terms),
        max_pages(is_paged ? (p.shape.seqlen_kv + p.page_size - 1) / p.page_size : 0),
        num_pages(p.shape.batch * max_pages + 2),
        q({p.shape.batch, p.shape.heads_q, p.shape.seqlen_q, p.shape.d}, p.layout),
        k(cache_extents(p.shape.d), p.layout),
        v(cache_extents(p.shape.dv), p.layout_v.value_or(p.layout)),
        out({p.shape.batch, p.shape.heads_q, p.shape.seqlen_q, p.shape.dv}, p.layout),
        lse({p.shape.batch, p.shape.heads_q, p.shape.seqlen_q}, p.layout),
        lengths_q({p.shape.batch}, Layout::strided),
        lengths_kv({p.shape.batch}, Layout::strided),
        table({p.shape.batch, max_pages}, Layout::strided),
        bias_values({p.shape.batch, p.shape.heads_q, p.shape.seqlen_q, capacity()}),
        mask_values({p.shape.heads_q, p.shape.seqlen_q, capacity()}, Layout::padded),
        slopes({p.shape.heads_q}, Layout::strided),
        sink_values({p.shape.heads_q}, Layout::strided) {
    Random random(static_cast<std::uint64_t>(p.shape.seqlen_kv * 31 + p.shape.d));
    auto const& s = p.shape;
    for (std::int64_t b = 0; b < s.batch; ++b) {
      lengths_q(b) = static_cast<std::int32_t>(b == 2 ? 0 : b == 0 ? s.seqlen_q : s.seqlen_q / 2);
      lengths_kv(b) =
          static_cast<std::int32_t>(b == 1 ? s.seqlen_kv * 2 / 3 : (b == 3 ? 0 : s.seqlen_kv));
      for (std::int64_t i = 0; i < max_pages; ++i)
        table(b, i) = static_cast<std::int32_t>(1 + b + (max_pages - 1 - i) * s.batch);
    }
    lengths_q.upload(), lengths_kv.upload(), table.upload();
    // What no length reaches stays NaN: rows of q, positions of the cache, unused pages.
    q.for_each([&](auto const& i) {
      if (i[2] < len_q(i[0])) q.at(i) = from_double<T>(random.uniform(-p.largest, p.largest));
    });
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.heads_kv; ++h)
        for (std::int64_t j = 0; j < len_kv(b); ++j) {
          for (std::int64_t c = 0; c < s.d; ++c)
            at(k, b, h, j, c) = from_double<T>(random.uniform(-p.largest, p.largest));
          for (std::int64_t c = 0; c < s.dv; ++c)
            at(v, b, h, j, c) = from_double<T>(random.uniform(-1, 1) + mean_of_feature(c));
        }
    q.upload(), k.upload(), v.upload();
    if (p.form != Form::terms) return;
    bias_values.fill_uniform(random, -2, 2);
    mask_values.for_each([&](auto const& i) {
      mask_values.at(i) = static_cast<std::uint8_t>(random.integer(0, 3) != 0);
    });
    mask_values.upload();
    slopes.fill_uniform(random, 0, 0.1);
    sink_values.fill_uniform(random, -3, 3);
  }

  std::int64_t capacity() const { return is_paged ? max_pages * p.page_size : p.shape.seqlen_kv; }
  std::array<std::int64_t, 4> cache_extents(std::int64_t d) const {
    if (is_paged) return {num_pages, p.shape.heads_kv, p.page_size, d};
    return {p.shape.batch, p.shape.heads_kv, p.shape.seqlen_kv, d};
  }
  std::int64_t len_q(std::int64_t b) { return is_paged ? lengths_q(b) : p.shape.seqlen_q; }
  std::int64_t len_kv(std::int64_t b) {
    return p.form == Form::bare ? p.shape.seqlen_kv : lengths_kv(b);
  }
  T& at(Tensor<T, 4, Exec>& cache, std::int64_t b, std::int64_t h, std::int64_t j, std::int64_t c) {
    if (is_paged) return cache(table(b, j / p.page_size), h, j % p.page_size, c);
    return cache(b, h, j, c);
  }

  void call() {
    auto const run = [&](auto const&... extras) {
      decode(Exec(), q.const_view(), k.const_view(), v.const_view(), out.view(), lse.view(),
             p.options, extras...);
    };
    auto const both = attikos::lengths(lengths_q.const_view(), lengths_kv.const_view());
    switch (p.form) {
      case Form::bare:
        decode(Exec(), q.const_view(), k.const_view(), v.const_view(), out.view(), p.options);
        break;
      case Form::lengths:
        run(attikos::lengths(none, lengths_kv.const_view()));
        break;
      case Form::paged:
        run(both, attikos::paged(table.const_view(), p.page_size));
        break;
      case Form::terms: {
        auto const pages = attikos::paged(table.const_view(), p.page_size);
        std::size_t const bytes = decode_workspace_size(Exec(), q.const_view(), k.const_view(),
                                                        v.const_view(), p.options, pages);
        Tensor<double, 1, Exec> memory({static_cast<std::int64_t>((bytes + 7) / 8)});
        run(bias(bias_values.const_view()), pages, sinks(sink_values.const_view()), both,
            mask(mask_values.const_view()), alibi(slopes.const_view()), workspace(memory.view()));
        memory.download();
        EXPECT_EQ(memory.writes_outside(), 0u) << describe(p);
      }
    }
    out.download();
    lse.download();
  }

  reference::AttentionTerms terms(std::int64_t b, std::int64_t h, std::int64_t i) {
    auto const& o = p.options;
    reference::AttentionTerms t;
    t.scale = o.softmax_scale != 0
                  ? o.softmax_scale
                  : 1 / std::sqrt(static_cast<double>(std::max<std::int64_t>(p.shape.d, 1)));
    t.softcap = o.softcap;
    std::int64_t const offset =
        o.causal_alignment == CausalAlignment::top_left ? 0 : len_kv(b) - len_q(b);
    t.sees = [=, this](std::int64_t j) {
      std::int64_t const distance = j - i - offset;
      return i < len_q(b) && (!o.causal || distance <= 0) &&
             (o.window_left < 0 || distance >= -o.window_left) &&
             (o.window_right < 0 || distance <= o.window_right) &&
             reference::in_one_chunk(i + offset, j, o.attention_chunk) &&
             (p.form != Form::terms || mask_values(h, i, j) != 0);
    };
    if (p.form != Form::terms) return t;
    t.bias = [=, this](std::int64_t j) {
      return bias_values.value(b, h, i, j) -
             slopes.value(h) * std::abs(static_cast<double>(i + offset - j));
    };
    t.sink = sink_values.value(h);
    return t;
  }

  void compare(double scale_factor = 1, double value_factor = 1) {
    EXPECT_EQ(out.writes_outside(), 0u) << describe(p);
    EXPECT_EQ(lse.writes_outside(), 0u) << describe(p);
    std::string const name =
        std::string("decode/") + type_name<T>() + "/" + type_name<O>() + "/" + Exec::name();
    Comparison values(name, describe(p), stored_as<O>()), sums(name + "/lse", describe(p));
    auto const& s = p.shape;
    for (std::int64_t b = 0; b < s.batch; ++b) {
      for (std::int64_t h = 0; h < s.heads_q; ++h) {
        std::int64_t const hk = h / (s.heads_q / s.heads_kv);
        for (std::int64_t i = 0; i < s.seqlen_q; ++i) {
          if (!is_compared(i + h)) continue;
          auto t = terms(b, h, i);
          t.scale *= scale_factor;
          auto const value = [&](std::int64_t j, std::int64_t c) {
            return value_factor * to_double(at(v, b, hk, j, c));
          };
          auto const row = reference::attention_row(
              len_kv(b), s.d, s.dv, t, [&](std::int64_t c) { return q.value(b, h, i, c); },
              [&](std::int64_t j, std::int64_t c) { return to_double(at(k, b, hk, j, c)); }, value);
          DecodeBound<O, T> const bound(row, s.d, 128, detail::multiplies_in_fragments<Exec>);
          for (std::int64_t c = 0; c < s.dv; ++c) {
            values.add(out.value(b, h, i, c), row.out[sz(c)],
                       bound.out(sz(c), [&](std::int64_t j) { return value(j, c); }), {b, h, i, c});
          }
          if (p.form != Form::bare) sums.add(lse.value(b, h, i), row.lse, bound.lse(), {b, h, i});
        }
      }
    }
  }
};

template <class Exec, class T>
void check_decode(DecodeCase const& p) {
  DecodeRun<Exec, T> run(p);
  run.call();
  run.compare();
}

}  // namespace attikos::test
