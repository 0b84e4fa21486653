// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// linear_cross_entropy(): the loss of a classification from what its last layer takes, and the
/// gradients, without the logits as a whole.
#pragma once

#include <Kokkos_Profiling_ScopedRegion.hpp>
#include <algorithm>
#include <attikos/core/tensor_view.hpp>
#include <attikos/core/workspace.hpp>
#include <attikos/gemm/gemm.hpp>
#include <attikos/reduce/cross_entropy.hpp>
#include <attikos/reduce/cross_entropy_backward.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of linear_cross_entropy().
struct LinearCrossEntropyOptions {
  double label_smoothing = 0;        ///< ε in [0, 1]: the share of the target that all classes get
  std::int64_t ignore_index = -100;  ///< label of rows that do not count
  std::int64_t rows_at_once = 0;     ///< rows whose logits are in memory; 0: see there
};

namespace detail {

/// Rows of a chunk: as many as a tenth of all logits hold, in whole tiles of a product; of few rows
/// those that keep it busy.
inline std::int64_t linear_cross_entropy_chunk(std::int64_t rows, std::int64_t wanted) {
  std::int64_t const chunk = wanted > 0 ? wanted : std::max<std::int64_t>(256, rows / 1280 * 128);
  return std::max<std::int64_t>(1, std::min(rows, chunk));
}

/// How the workspace is cut, in bytes: logits of a chunk, then its log-sum-exp.
struct LinearCrossEntropyWorkspace {
  std::size_t logits, lse;
  std::size_t total() const { return logits + lse; }
};

template <class T, class Acc>
LinearCrossEntropyWorkspace linear_cross_entropy_workspace(std::int64_t chunk,
                                                           std::int64_t classes) {
  std::size_t const logits = static_cast<std::size_t>(chunk * classes) * sizeof(T);
  return {(logits + 15) / 16 * 16, static_cast<std::size_t>(chunk) * sizeof(Acc)};
}

/// Entries [first, first + count) of the first dimension, as a View.
template <class Exec, class T, int Rank>
auto some_entries(TensorRef<T, Rank> x, std::int64_t first, std::int64_t count) {
  x.data += first * x.stride[0];
  x.extent[0] = count;
  return view_of<Exec>(x);
}

/// One number for each row of hidden; throws ShapeError otherwise.
template <ExecutionSpace Exec, TensorLike Hidden, TensorLike T>
void check_values_of_hidden(char const* operation, char const* name, Hidden const& hidden,
                            T const& values) {
  check_tensor<Exec, T>();
  static_assert(rank_of<T> == 1, "attikos::linear_cross_entropy: numbers of rows have rank 1");
  check_extents(operation, name, values);
  auto const v = to_const_ref(values);
  auto const h = to_const_ref(hidden);
  if (v.extent[0] != h.extent[0])
    raise<ShapeError>(operation, ": ", name, " is ", describe(v), "; expected [", h.extent[0],
                      "], the rows of hidden, which is ", describe(h));
}

/// A gradient, or none of it; throws unless it has the extents of `like`.
template <ExecutionSpace Exec, class T, class Acc, TensorOrNone D, TensorLike Like>
void check_linear_gradient(char const* operation, char const* name, D const& d,
                           char const* like_name, Like const& like) {
  if constexpr (is_present<D>) {
    static_assert(
        rank_of<D> == 2 && (std::is_same_v<element_t<D>, T> || std::is_same_v<element_t<D>, Acc>),
        "attikos::linear_cross_entropy: gradients have rank 2 and the type of hidden, or "
        "float");
    check_output<Exec>(d);
    check_extents(operation, name, d);
    check_extents_like(operation, name, to_const_ref(d), like_name, to_const_ref(like));
  }
}

template <ExecutionSpace Exec, TensorLike Hidden, TensorLike Weight>
void check_linear_rows(char const* operation, Hidden const& hidden, Weight const& weight,
                       LinearCrossEntropyOptions const& options) {
  check_tensor<Exec, Hidden>();
  check_tensor<Exec, Weight>();
  static_assert(rank_of<Hidden> == 2 && rank_of<Weight> == 2,
                "attikos::linear_cross_entropy: hidden is [rows, width], weight [classes, width]");
  static_assert(is_floating_element<element_t<Hidden>> && sizeof(element_t<Hidden>) >= 2 &&
                    std::is_same_v<element_t<Hidden>, element_t<Weight>>,
                "attikos::linear_cross_entropy: hidden and weight have one type, double, float, "
                "float16 or bfloat16");
  check_extents(operation, "hidden", hidden);
  check_extents(operation, "weight", weight);
  auto const h = to_const_ref(hidden);
  auto const w = to_const_ref(weight);
  if (w.extent[1] != h.extent[1])
    raise<ShapeError>(operation, ": weight is ", describe(w), "; expected [classes, ", h.extent[1],
                      "] for hidden, which is ", describe(h));
  if (w.extent[0] == 0)
    raise<ShapeError>(operation, ": weight is ", describe(w), "; expected at least one class");
  check_label_smoothing(operation, {options.label_smoothing, options.ignore_index});
  if (options.rows_at_once < 0)
    raise<Error>(operation, ": rows_at_once is ", options.rows_at_once, "; expected 0 or more");
}

template <class T>
concept LinearCrossEntropyExtra = is_any_wrapper<T, Workspace>;

}  // namespace detail

/// Bytes of workspace that linear_cross_entropy() wants for these tensors: the logits of
/// `rows_at_once` rows in the type of hidden, and the log-sum-exp of each.
template <TensorLike Hidden, TensorLike Weight>
std::size_t linear_cross_entropy_workspace_size(Hidden const& hidden, Weight const& weight,
                                                LinearCrossEntropyOptions const& options = {}) {
  using T = element_t<Hidden>;
  return detail::linear_cross_entropy_workspace<T, detail::RowAccumulator<T, T>>(
             detail::linear_cross_entropy_chunk(detail::to_const_ref(hidden).extent[0],
                                                options.rows_at_once),
             detail::to_const_ref(weight).extent[0])
      .total();
}

/// cross_entropy() of the logits x = hidden·weightᵀ, and its gradients in one go:
/// d = g ⊙ (softmax(x) − t), dhidden = d·weight, dweight = dᵀ·hidden, t as for cross_entropy().
/// Logits exist for some rows at a time (chunks of rows as in Hsu et al., arXiv:2410.10989).
///
/// \param exec     execution space instance; the call is asynchronous on it and never fences
/// \param hidden   [rows, width]
/// \param weight   [classes, width], classes ≥ 1
/// \param labels   [rows]; int32 or int64
/// \param dloss    [rows], g: the factor of each row's loss in what is differentiated, 1/count for
///                 a mean; a stride of 0 serves where all rows have one. `none` without gradients
/// \param loss     [rows]
/// \param dhidden  the extents of hidden, or `none`
/// \param dweight  the extents of weight, or `none`
/// \param options  smoothing, the label of rows that do not count, rows_at_once: rows whose logits
///                 are in memory, 0 for a tenth of all, but at least 256
/// \param extras   workspace(view): linear_cross_entropy_workspace_size() bytes
///
/// Outputs are overwritten, and overlap neither inputs nor one another. Any strides; rows and width
/// may be 0. A row with the label ignore_index has loss 0 and adds 0 to the gradients; one whose
/// label is no class has loss NaN, and makes NaN of its row of dhidden and of all of dweight;
/// nothing outside the tensors is read.
///
/// Types: hidden and weight are both double, float, float16 or bfloat16; loss and dloss are float,
/// double with double; each gradient has the type of hidden, or float. Logits and d are rounded to
/// the type of hidden, as those of a layer and a loss one after the other are: in 16 bits the loss
/// has an error of about an ulp of the largest logits, and float16 loses d below 6e-8, so that a g
/// of 1 and a factor afterwards are better there. dweight is the sum over chunks: in 16 bits it is
/// rounded with each of them, as float once.
///
/// Determinism: as for gemm(), which forms the products; sums of dweight depend on rows_at_once.
///
/// Throws ShapeError, StrideError, Error, ResourceError before anything is launched or written.
template <ExecutionSpace Exec, TensorLike Hidden, TensorLike Weight, TensorLike Labels,
          detail::TensorOrNone DLoss, TensorLike Loss, detail::TensorOrNone DHidden,
          detail::TensorOrNone DWeight, detail::LinearCrossEntropyExtra... Extras>
void linear_cross_entropy(Exec const& exec, Hidden const& hidden, Weight const& weight,
                          Labels const& labels, DLoss const& dloss, Loss const& loss,
                          DHidden const& dhidden, DWeight const& dweight,
                          LinearCrossEntropyOptions const& options = {}, Extras const&... extras) {
  using namespace detail;
  constexpr char const* name = "linear_cross_entropy";
  constexpr bool has_dhidden = is_present<DHidden>, has_dweight = is_present<DWeight>;
  using T = element_t<Hidden>;
  using Acc = RowAccumulator<T, T>;
  static_assert(std::is_same_v<element_t<Labels>, std::int32_t> ||
                    std::is_same_v<element_t<Labels>, std::int64_t>,
                "attikos::linear_cross_entropy: labels are int32_t or int64_t");
  static_assert(std::is_same_v<element_t<Loss>, Acc>,
                "attikos::linear_cross_entropy: loss is float, double if hidden is");
  check_linear_rows<Exec>(name, hidden, weight, options);
  check_values_of_hidden<Exec>(name, "labels", hidden, labels);
  check_values_of_hidden<Exec>(name, "loss", hidden, loss);
  check_output<Exec>(loss);
  static_assert(is_present<DLoss> || !(has_dhidden || has_dweight),
                "attikos::linear_cross_entropy: gradients need dloss");
  if constexpr (is_present<DLoss>) {
    static_assert(std::is_same_v<element_t<DLoss>, Acc>,
                  "attikos::linear_cross_entropy: dloss is float, double if hidden is");
    check_values_of_hidden<Exec>(name, "dloss", hidden, dloss);
  }
  check_linear_gradient<Exec, T, Acc>(name, "dhidden", dhidden, "hidden", hidden);
  check_linear_gradient<Exec, T, Acc>(name, "dweight", dweight, "weight", weight);
  check_outputs(name,
                {{"loss", any_tensor(loss)},
                 {"dhidden", any_tensor(dhidden)},
                 {"dweight", any_tensor(dweight)},
                 {"workspace", any_workspace(extras...)}},
                {{"hidden", any_tensor(hidden)},
                 {"weight", any_tensor(weight)},
                 {"labels", any_tensor(labels)},
                 {"dloss", any_tensor(dloss)}});

  auto const h = to_const_ref(hidden);
  auto const w = to_const_ref(weight);
  std::int64_t const rows = h.extent[0], classes = w.extent[0];
  std::int64_t const chunk = linear_cross_entropy_chunk(rows, options.rows_at_once);
  auto const cut = linear_cross_entropy_workspace<T, Acc>(chunk, classes);
  WorkspaceLease const lease = get_workspace(name, exec, cut.total(), extras...);
  Kokkos::Profiling::ScopedRegion const region(label_if_heard(name, "portable"));
  auto* const memory = static_cast<std::byte*>(lease.data);
  TensorRef<T, 2> const logits{reinterpret_cast<T*>(memory), {chunk, classes}, {classes, 1}};
  TensorRef<Acc, 1> const lse{reinterpret_cast<Acc*>(memory + cut.logits), {chunk}, {1}};
  auto const all_of_weight = some_entries<Exec>(w, 0, classes);
  CrossEntropyOptions const loss_options{options.label_smoothing, options.ignore_index};
  GemmOptions products, sums;
  products.trans_b = sums.trans_a = true;

  std::int64_t first = 0;
  do {  // once without rows, too: dweight is 0 then
    std::int64_t const count = std::min(chunk, rows - first);
    auto const some = some_entries<Exec>(h, first, count);
    auto const x = some_entries<Exec>(logits, 0, count);
    gemm(exec, some, all_of_weight, x, products);
    auto const of_labels = some_entries<Exec>(to_const_ref(labels), first, count);
    auto const of_lse = some_entries<Exec>(lse, 0, count);
    cross_entropy(exec, x, of_labels, some_entries<Exec>(to_ref(loss), first, count), of_lse,
                  loss_options);
    if constexpr (has_dhidden || has_dweight)
      cross_entropy_backward(exec, x, of_labels, of_lse,
                             some_entries<Exec>(to_const_ref(dloss), first, count), x,
                             loss_options);
    if constexpr (has_dhidden)
      gemm(exec, x, all_of_weight, some_entries<Exec>(to_ref(dhidden), first, count));
    if constexpr (has_dweight) {
      sums.beta = first > 0 ? 1 : 0;
      gemm(exec, x, some, some_entries<Exec>(to_ref(dweight), 0, classes), sums);
    }
    first += count;
  } while (first < rows);
}

/// The same on an instance of the default execution space.
template <TensorLike Hidden, TensorLike Weight, TensorLike Labels, detail::TensorOrNone DLoss,
          TensorLike Loss, detail::TensorOrNone DHidden, detail::TensorOrNone DWeight,
          detail::LinearCrossEntropyExtra... Extras>
void linear_cross_entropy(Hidden const& hidden, Weight const& weight, Labels const& labels,
                          DLoss const& dloss, Loss const& loss, DHidden const& dhidden,
                          DWeight const& dweight, LinearCrossEntropyOptions const& options = {},
                          Extras const&... extras) {
  linear_cross_entropy(Kokkos::DefaultExecutionSpace{}, hidden, weight, labels, dloss, loss,
                       dhidden, dweight, options, extras...);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
