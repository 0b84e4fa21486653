// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention.hpp"

#include <tvm/ffi/function.h>

#include <utility>

namespace attikos::python {

Extents extents(Array const& seen, bool heads_last) {
  Extents shape{};
  int const rank = seen.rank();
  for (int r = 0; r < rank; ++r) shape.extent[r] = seen.extent(r);
  if (heads_last) std::swap(shape.extent[rank - 3], shape.extent[rank - 2]);
  return shape;
}

Extents Outputs::extents_of_out(Heads const& heads, bool heads_last) {
  Extents shape = extents(heads.q, heads_last);
  shape.extent[heads.q.rank() - 1] = heads.v.extent(-1);
  return shape;
}

Outputs::Outputs(AnyView out, AnyView lse, Heads const& heads, bool heads_last, bool with_lse,
                 Extents shape)
    : out_(out, heads.q.device(), heads.q.type(), shape.extent, heads.q.rank()) {
  if (heads_last) out_.seen().heads_first();
  if (!with_lse) return;
  std::uint8_t const bits = heads.q.dtype() == ATTIKOS_FLOAT64 ? 64 : 32;
  lse_.emplace(lse, heads.q.device(), DLDataType{kDLFloat, bits, 1}, heads.q.shape(),
               heads.q.rank() - 1);
}

Any Outputs::finish() const { return lse_ ? out_.finish({&*lse_}) : out_.finish(); }

namespace {

/// Lengths, offsets and indices, as many as a call may have.
struct Indices {
  Array lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv, page_table;

  template <class Options>
  void into(Options& options, Array const& first, attikos_context* context, bool check) {
    expect_together(first, lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv, page_table);
    for (Array const* x : {&lengths_q, &lengths_kv, &cu_seqlens_q, &cu_seqlens_kv, &page_table})
      expect(!x->given() || x->dtype() == ATTIKOS_INT32);
    options.lengths_q = lengths_q.get();
    options.lengths_kv = lengths_kv.get();
    options.cu_seqlens_q = cu_seqlens_q.get();
    options.cu_seqlens_kv = cu_seqlens_kv.get();
    options.page_table = page_table.get();
    bool const given =
        lengths_q.given() || lengths_kv.given() || cu_seqlens_q.given() || page_table.given();
    options.check = check && given && !attikos_is_capturing(context) ? 1 : 0;
  }
};

/// A new array of the extents of another, dense in the caller's order.
class Dense {
 public:
  Dense(Array const& like, bool heads_last)
      : made_(Any(), like.device(), like.type(), extents(like, heads_last).extent, like.rank()) {
    if (heads_last) made_.seen().heads_first();
  }

  attikos_tensor const* get() const { return made_.get(); }
  Result const& made() const { return made_; }

 private:
  Result made_;
};

Any attention(AnyView q, AnyView k, AnyView v, AnyView out, AnyView lse, AnyView heads_last,
              AnyView with_lse, AnyView scale, AnyView softcap, AnyView left, AnyView right,
              AnyView causal, AnyView top_left, AnyView compute, AnyView attention_chunk,
              AnyView check, AnyView lengths_q, AnyView lengths_kv, AnyView cu_seqlens_q,
              AnyView cu_seqlens_kv, AnyView page_table, AnyView sm_margin) {
  return unless_declined([&] {
    bool const last = flag(heads_last) != 0;
    Heads const heads(q, k, v, last);
    expect_together(heads.q, heads.k, heads.v);
    Indices indices{Array(lengths_q), Array(lengths_kv), Array(cu_seqlens_q), Array(cu_seqlens_kv),
                    Array(page_table)};
    expect(heads.k.rank() == heads.q.rank() || indices.page_table.given());
    expect(!last || heads.q.rank() == (indices.cu_seqlens_q.given() ? 3 : 4));
    attikos_context* const context = context_of(heads.q.device());
    attikos_attention_options options = ATTIKOS_ATTENTION_OPTIONS_INIT;
    read_scores(options, scale, softcap, left, right, causal);
    options.causal_top_left = flag(top_left);
    options.compute = static_cast<std::int32_t>(integer(compute));
    options.attention_chunk = integer(attention_chunk);
    std::int64_t const margin = integer(sm_margin);
    options.sm_margin = static_cast<std::int32_t>(margin);
    expect(options.sm_margin == margin);
    indices.into(options, heads.q, context, flag(check) != 0);
    Outputs const outputs(out, lse, heads, last, flag(with_lse) != 0);
    expect_success(attikos_attention(context, heads.q.get(), heads.k.get(), heads.v.get(),
                                     outputs.out(), outputs.lse(), &options));
    return outputs.finish();
  });
}

/// dq, dk and dv
Any attention_backward(AnyView q, AnyView k, AnyView v, AnyView out, AnyView lse, AnyView dout,
                       AnyView heads_last, AnyView scale, AnyView softcap, AnyView left,
                       AnyView right, AnyView causal, AnyView top_left, AnyView compute,
                       AnyView attention_chunk, AnyView check, AnyView lengths_q,
                       AnyView lengths_kv, AnyView cu_seqlens_q, AnyView cu_seqlens_kv) {
  return unless_declined([&] {
    bool const last = flag(heads_last) != 0;
    Heads const heads(q, k, v, last);
    Array output(out);
    Array const sums(lse);
    Array given(dout);
    Indices indices{
        Array(lengths_q), Array(lengths_kv), Array(cu_seqlens_q), Array(cu_seqlens_kv), {}};
    expect_together(heads.q, heads.k, heads.v, output, sums, given);
    expect(heads.k.rank() == heads.q.rank());
    expect(output.given() && given.given() && sums.given());
    expect(output.dtype() == heads.q.dtype() && given.dtype() == heads.q.dtype());
    if (last) {
      output.heads_first();
      given.heads_first();
    }
    attikos_context* const context = context_of(heads.q.device());
    attikos_attention_options options = ATTIKOS_ATTENTION_OPTIONS_INIT;
    read_scores(options, scale, softcap, left, right, causal);
    options.causal_top_left = flag(top_left);
    options.compute = static_cast<std::int32_t>(integer(compute));
    options.attention_chunk = integer(attention_chunk);
    indices.into(options, heads.q, context, flag(check) != 0);
    Dense dq(heads.q, last);
    Dense dk(heads.k, last);
    Dense dv(heads.v, last);
    attikos_attention_gradients gradients = ATTIKOS_ATTENTION_GRADIENTS_INIT;
    gradients.dq = dq.get();
    gradients.dk = dk.get();
    gradients.dv = dv.get();
    expect_success(attikos_attention_backward(context, heads.q.get(), heads.k.get(), heads.v.get(),
                                              output.get(), sums.get(), given.get(), &gradients,
                                              &options));
    return dq.made().finish({&dk.made(), &dv.made()});
  });
}

Any decode(AnyView q, AnyView k, AnyView v, AnyView out, AnyView lse, AnyView heads_last,
           AnyView with_lse, AnyView scale, AnyView softcap, AnyView left, AnyView right,
           AnyView causal, AnyView top_left, AnyView splits, AnyView determinism,
           AnyView attention_chunk, AnyView check, AnyView lengths_q, AnyView lengths_kv,
           AnyView cu_seqlens_q, AnyView cu_seqlens_kv, AnyView page_table) {
  return unless_declined([&] {
    bool const last = flag(heads_last) != 0;
    Heads const heads(q, k, v, last);
    expect_together(heads.q, heads.k, heads.v);
    Indices indices{Array(lengths_q), Array(lengths_kv), Array(cu_seqlens_q), Array(cu_seqlens_kv),
                    Array(page_table)};
    attikos_context* const context = context_of(heads.q.device());
    attikos_decode_options options = ATTIKOS_DECODE_OPTIONS_INIT;
    read_scores(options, scale, softcap, left, right, causal);
    options.causal_top_left = flag(top_left);
    options.splits = integer(splits);
    options.determinism = static_cast<std::int32_t>(integer(determinism));
    options.attention_chunk = integer(attention_chunk);
    indices.into(options, heads.q, context, flag(check) != 0);
    Outputs const outputs(out, lse, heads, last, flag(with_lse) != 0);
    expect_success(attikos_decode(context, heads.q.get(), heads.k.get(), heads.v.get(),
                                  outputs.out(), outputs.lse(), &options));
    return outputs.finish();
  });
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(attention, attention);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(attention_backward, attention_backward);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(decode, decode);

}  // namespace attikos::python
