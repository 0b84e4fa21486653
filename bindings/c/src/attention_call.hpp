// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What forward and backward attention and decode share: options, storage of the sequences, terms
// of the scores.
#pragma once

#include <attikos/attention/attention_arguments.hpp>
#include <attikos/attention/validate_cu_seqlens.hpp>
#include <attikos/attention/validate_page_table.hpp>
#include <initializer_list>

#include "options.hpp"
#include "tensor.hpp"

namespace attikos::c {

/// Options of one attention call after all checks that need no element type.
struct AttentionSetup {
  AttentionOptions options;
  bool check = false;
  bool has_lengths_q = false, has_lengths = false;  ///< has_lengths: those of the keys
  bool has_cu_q = false, has_cu_kv = false, has_pages = false;
  bool has_bias = false, has_mask = false, has_alibi = false, has_sinks = false;
  bool has_descale_q = false, has_descale_k = false, has_descale_v = false;
  Tensor lengths_q, lengths_kv, cu_q, cu_kv, pages, bias, mask, alibi, sinks;
  Tensor descale_q, descale_k, descale_v;

  bool has_descale() const { return has_descale_q || has_descale_k || has_descale_v; }
};

/// The enumerator behind a number of the C interface, where the default is 0.
Determinism read_determinism(char const* operation, std::int32_t given);

/// `queries_alone`: queries may be packed where keys are padded.
AttentionSetup read_attention_options(char const* operation,
                                      attikos_attention_options const* options,
                                      attikos_context const& context, bool queries_alone = false);

/// Type of sinks beside elements of type T.
template <class T>
using SinkType = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Refuses tensors whose numbers of dimensions do not go with the storage that the options name.
void expect_attention_ranks(char const* operation, AttentionSetup const& setup, Tensor const& q,
                            std::initializer_list<Tensor const*> like_q, Tensor const& k,
                            Tensor const& v);

/// Refuses a bias or sinks of another type than goes with elements of type T, and factors of float8
/// beside other elements.
template <class T, class Out = T>
void expect_term_types(char const* operation, AttentionSetup const& setup) {
  if (setup.has_sinks) visit_dtype<SinkType<T>>(operation, setup.sinks, [](auto) {});
  if (setup.has_bias) visit_dtype<Out>(operation, setup.bias, [](auto) {});
  if (sizeof(T) != 1 && setup.has_descale())
    fail(ATTIKOS_UNSUPPORTED, operation, ": descale factors go with float8 tensors");
}

/// The tensors of a call as the library's checks see them.
attikos::detail::AttentionTensors attention_tensors(AttentionSetup const& setup, Tensor const& q,
                                                    Tensor const& k, Tensor const& v,
                                                    Tensor const& out, Tensor const* lse);

/// Reads lengths, offsets and pages on the device, which waits, and refuses those that do not fit.
template <class Exec>
void validate_sequences(Exec const& exec, attikos::detail::AttentionTensors const& t) {
  auto const extent = [](attikos::detail::AnyTensor const& x) { return x.extent[x.rank - 2]; };
  if (t.packed_q()) attikos::detail::validate_offsets(exec, t.cu_q, extent(t.q));
  if (t.packed_kv()) attikos::detail::validate_offsets(exec, t.cu_kv, extent(t.k));
  if (t.lengths_q.given()) attikos::detail::validate_any_lengths(exec, t.lengths_q, extent(t.q));
  std::int64_t const capacity = t.paged() ? t.page_table.extent[1] * t.page_size : extent(t.k);
  if (t.lengths_kv.given()) attikos::detail::validate_any_lengths(exec, t.lengths_kv, capacity);
  if (!t.paged() || t.page_size < 1 || t.k.extent[0] < 1) return;  // the call says what is wrong
  attikos::detail::LengthsInUse in_use{{}, capacity};
  if (t.lengths_kv.given()) {
    if (t.lengths_kv.extent[0] != t.page_table.extent[0]) return;
    in_use.lengths = {t.lengths_kv.template as<std::int32_t>(),
                      {t.lengths_kv.extent[0]},
                      {t.lengths_kv.stride[0]}};
  }
  attikos::detail::validate_pages(exec, t.page_table, t.page_size, t.k.extent[0], in_use);
}

/// No functors, which only C++ can compile into a kernel.
using attikos::detail::NoFunctors;

}  // namespace attikos::c
