// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention_call.hpp"

namespace attikos::c {
namespace {

/// An optional tensor of the options.
bool read_optional(char const* operation, char const* name, attikos_tensor const* given,
                   int min_rank, int max_rank, attikos_context const& context, Tensor& tensor) {
  if (given == nullptr) return false;
  tensor = read_tensor(operation, name, given, min_rank, max_rank, context);
  return true;
}

}  // namespace

Determinism read_determinism(char const* operation, std::int32_t given) {
  switch (given) {
    case ATTIKOS_RUN_TO_RUN:
      return Determinism::run_to_run;
    case ATTIKOS_BATCH_INVARIANT:
      return Determinism::batch_invariant;
    case ATTIKOS_UNORDERED:
      return Determinism::unordered;
    default:
      fail(ATTIKOS_INVALID_ARGUMENT, operation, ": determinism is ", given,
           "; expected an attikos_determinism");
  }
}

AttentionSetup read_attention_options(char const* operation,
                                      attikos_attention_options const* options,
                                      attikos_context const& context, bool queries_alone) {
  auto const o = read_options(operation, options);
  auto const& from = o;
  if (o.algorithm < ATTIKOS_FLASH || o.algorithm > ATTIKOS_NAIVE)
    fail(ATTIKOS_INVALID_ARGUMENT, operation, ": algorithm is ", o.algorithm,
         "; expected an attikos_attention_algorithm");
  if (o.compute < ATTIKOS_COMPUTE_IEEE || o.compute > ATTIKOS_COMPUTE_TF32X3)
    fail(ATTIKOS_INVALID_ARGUMENT, operation, ": compute is ", o.compute,
         "; expected an attikos_compute");
  AttentionSetup s;
  auto& to = s.options;
  ATTIKOS_ATTENTION_OPTIONS(ATTIKOS_COPY_OPTION)
  static_assert(ATTIKOS_UNCOPIED(ATTIKOS_ATTENTION_OPTIONS, AttentionOptions) == 2,
                "causal_top_left and check are read by hand");
  to.determinism = read_determinism(operation, o.determinism);
  to.causal_alignment =
      o.causal_top_left != 0 ? CausalAlignment::top_left : CausalAlignment::bottom_right;
  s.check = o.check != 0;

  s.has_cu_q = read_optional(operation, "cu_seqlens of q", o.cu_seqlens_q, 1, 1, context, s.cu_q);
  s.has_cu_kv =
      read_optional(operation, "cu_seqlens of kv", o.cu_seqlens_kv, 1, 1, context, s.cu_kv);
  s.has_pages = read_optional(operation, "page table", o.page_table, 2, 2, context, s.pages);
  if (s.has_cu_kv && s.has_pages)
    fail(ATTIKOS_UNSUPPORTED, operation, ": keys are packed or paged, not both");
  if (s.has_cu_q != s.has_cu_kv && !s.has_pages && !(queries_alone && s.has_cu_q))
    fail(ATTIKOS_NULL_ARGUMENT, operation, ": cu_seqlens of ", s.has_cu_q ? "kv" : "q",
         " are null; expected both, or those of q ", queries_alone ? "alone" : "with a page table");
  if (s.has_cu_q) visit_dtype<std::int32_t>(operation, s.cu_q, [](auto) {});
  if (s.has_cu_kv) visit_dtype<std::int32_t>(operation, s.cu_kv, [](auto) {});
  if (s.has_pages) visit_dtype<std::int32_t>(operation, s.pages, [](auto) {});

  bool const of_q =
      read_optional(operation, "lengths of q", o.lengths_q, 1, 1, context, s.lengths_q);
  bool const of_kv =
      read_optional(operation, "lengths of kv", o.lengths_kv, 1, 1, context, s.lengths_kv);
  s.has_lengths_q = of_q;
  s.has_lengths = of_kv;
  if (s.has_cu_kv ? of_q || of_kv : s.has_cu_q && of_q)
    fail(ATTIKOS_UNSUPPORTED, operation, ": packed tensors have their lengths in cu_seqlens");
  if (of_q && !of_kv)
    fail(ATTIKOS_NULL_ARGUMENT, operation,
         ": lengths of kv are null; expected them beside those of q");
  if (of_q) visit_dtype<std::int32_t>(operation, s.lengths_q, [](auto) {});
  if (of_kv) visit_dtype<std::int32_t>(operation, s.lengths_kv, [](auto) {});

  s.has_bias = read_optional(operation, "bias", o.bias, 2, 4, context, s.bias);
  s.has_mask = read_optional(operation, "mask", o.mask, 2, 4, context, s.mask);
  s.has_alibi = read_optional(operation, "alibi slopes", o.alibi_slopes, 1, 2, context, s.alibi);
  s.has_sinks = read_optional(operation, "sinks", o.sinks, 1, 1, context, s.sinks);
  auto const factors = [&](char const* name, attikos_tensor const* given, bool& has,
                           Tensor& tensor) {
    has = read_optional(operation, name, given, 1, 2, context, tensor);
    if (has) visit_dtype<float>(operation, tensor, [](auto) {});
  };
  factors("descale of q", o.descale_q, s.has_descale_q, s.descale_q);
  factors("descale of k", o.descale_k, s.has_descale_k, s.descale_k);
  factors("descale of v", o.descale_v, s.has_descale_v, s.descale_v);
  if (s.has_mask && s.mask.dtype != ATTIKOS_BOOL) {
    if (s.mask.dtype != ATTIKOS_UINT8) refuse_dtype(operation, s.mask, "bool, uint8");
  }
  if (s.has_alibi) visit_dtype<float>(operation, s.alibi, [](auto) {});
  return s;
}

void expect_attention_ranks(char const* operation, AttentionSetup const& setup, Tensor const& q,
                            std::initializer_list<Tensor const*> like_q, Tensor const& k,
                            Tensor const& v) {
  auto const expect = [&](Tensor const& tensor, int rank, char const* why) {
    if (tensor.rank != rank)
      fail(ATTIKOS_SHAPE_MISMATCH, operation, ": ", tensor.name, " is ", tensor.describe(),
           "; expected ", rank, " dimensions", why);
  };
  if (setup.has_cu_q) expect(q, 3, " with cu_seqlens, [heads_q, total_q, head_dim]");
  if (setup.has_pages && !setup.has_cu_q)
    expect(q, 4, " with a page table, [batch, heads_q, seqlen_q, head_dim]");
  for (Tensor const* tensor : like_q) expect(*tensor, q.rank, " as in q");
  int const rank_kv = setup.has_pages ? 4 : q.rank;
  char const* const why = setup.has_pages
                              ? " with a page table, [num_pages, heads_kv, page_size, head_dim]"
                              : " as in q";
  expect(k, rank_kv, why);
  expect(v, rank_kv, why);
}

attikos::detail::AttentionTensors attention_tensors(AttentionSetup const& setup, Tensor const& q,
                                                    Tensor const& k, Tensor const& v,
                                                    Tensor const& out, Tensor const* lse) {
  auto const any = [](bool has, Tensor const& x) {
    return has ? x.any() : attikos::detail::AnyTensor{};
  };
  attikos::detail::AttentionTensors t;
  t.q = q.any();
  t.k = k.any();
  t.v = v.any();
  t.out = out.any();
  if (lse != nullptr) t.lse = lse->any();
  t.cu_q = any(setup.has_cu_q, setup.cu_q);
  t.cu_kv = any(setup.has_cu_kv, setup.cu_kv);
  t.page_table = any(setup.has_pages, setup.pages);
  if (setup.has_pages) t.page_size = k.extent[2];
  t.lengths_q = any(setup.has_lengths_q, setup.lengths_q);
  t.lengths_kv = any(setup.has_lengths, setup.lengths_kv);
  t.terms.bias = any(setup.has_bias, setup.bias);
  t.terms.mask = any(setup.has_mask, setup.mask);
  t.terms.alibi = any(setup.has_alibi, setup.alibi);
  t.terms.sinks = any(setup.has_sinks, setup.sinks);
  t.terms.descale_q = any(setup.has_descale_q, setup.descale_q);
  t.terms.descale_k = any(setup.has_descale_k, setup.descale_k);
  t.terms.descale_v = any(setup.has_descale_v, setup.descale_v);
  return t;
}

}  // namespace attikos::c
