// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention and decode: the arguments that both have.
#pragma once

#include <cstdint>
#include <optional>

#include "call.hpp"

namespace attikos::python {

/// Numbers of a call. scale: None for 1/sqrt(head_dim).
template <class Options>
void read_scores(Options& options, AnyView scale, AnyView softcap, AnyView left, AnyView right,
                 AnyView causal) {
  options.softmax_scale = scale.type_index() == ffi::TypeIndex::kTVMFFINone ? 0 : real(scale);
  options.softcap = real(softcap);
  options.window_left = integer(left);
  options.window_right = integer(right);
  options.causal = flag(causal);
  expect(options.window_left >= -1 && options.window_right >= -1);
}

/// Queries, keys and values with heads before positions.
struct Heads {
  Array q, k, v;

  Heads(AnyView given_q, AnyView given_k, AnyView given_v, bool heads_last)
      : q(given_q), k(given_k), v(given_v) {
    expect(q.is_floating() && k.given() && v.given());
    expect(k.dtype() == q.dtype() && v.dtype() == q.dtype());
    expect((q.rank() == 3 || q.rank() == 4) && (k.rank() == 3 || k.rank() == 4) &&
           v.rank() == k.rank());
    if (!heads_last) return;
    q.heads_first();
    k.heads_first();
    v.heads_first();
  }
};

struct Extents {
  std::int64_t extent[Array::max_rank];
};
/// Of queries, keys or values as the caller has them.
Extents extents(Array const& seen, bool heads_last);

/// The output, dense in the caller's order, and the log-sum-exp where it is wanted.
class Outputs {
 public:
  Outputs(AnyView out, AnyView lse, Heads const& heads, bool heads_last, bool with_lse)
      : Outputs(out, lse, heads, heads_last, with_lse, extents_of_out(heads, heads_last)) {}

  attikos_tensor const* out() const { return out_.get(); }
  attikos_tensor const* lse() const { return lse_ ? lse_->get() : nullptr; }
  Any finish() const;

 private:
  Outputs(AnyView out, AnyView lse, Heads const& heads, bool heads_last, bool with_lse,
          Extents shape);
  static Extents extents_of_out(Heads const& heads, bool heads_last);

  Result out_;
  std::optional<Result> lse_;
};

}  // namespace attikos::python
