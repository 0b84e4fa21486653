// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From tensors and options to checked kernel arguments of a gated MLP.
#pragma once

#include <attikos/abi/gated_mlp.hpp>
#include <attikos/core/dispatch/to_abi.hpp>
#include <attikos/epilogue/activation.hpp>
#include <attikos/gemm/packed_b.hpp>
#include <attikos/mlp/gated_mlp_options.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Type of the sums and of everything between the products: double if an operand is.
template <class... Elements>
using GatedMlpAccumulator =
    std::conditional_t<(std::is_same_v<Elements, double> || ...), double, float>;

template <class T>
inline constexpr bool is_mlp_element = std::is_same_v<T, double> || std::is_same_v<T, float> ||
                                       std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

/// What gated_mlp() takes as a weight: a tensor, or what pack_b() made of one.
template <class T>
concept MlpWeight = TensorLike<T> || is_packed_b<std::remove_cvref_t<T>>;

template <class T>
struct MlpWeightOf {
  using type = element_t<T>;
  static constexpr int rank = rank_of<T>;
};
template <class T>
struct MlpWeightOf<PackedB<T>> {
  using type = T;
  static constexpr int rank = 2;
};
template <MlpWeight W>
using weight_element_t = typename MlpWeightOf<std::remove_cvref_t<W>>::type;

/// A weight as kernels see it, and what of it is packed in panels, or null.
template <class T>
struct MlpWeightRef {
  TensorRef<T const, 2> weight;
  void const* packed;
};

/// Checks a weight. One that is packed has the extents that it was given with, and strides where it
/// is a plain copy.
template <ExecutionSpace Exec, MlpWeight W>
auto weight_ref(char const* operation, char const* name, W const& w) {
  using T = weight_element_t<W>;
  static_assert(MlpWeightOf<std::remove_cvref_t<W>>::rank == 2,
                "attikos::gated_mlp: weights have rank 2");
  if constexpr (is_packed_b<W>) {
    static_assert(
        is_host_space<Exec>,
        "attikos::gated_mlp: packed weights are for execution spaces of hosts; kernels of "
        "devices read weights as they are");
    check_packed_b(operation, w, name);
    if (!w.layout.trans_b)
      raise<UnsupportedError>(operation, ": ", name, " was packed with trans_b = false; expected ",
                              "true, since weights are [intermediate, hidden]");
    bool const plain = w.layout.form == PackedForm::plain;
    auto const* const data = static_cast<T const*>(static_cast<void const*>(w.memory.data()));
    return MlpWeightRef<T>{
        {data, {w.layout.n, w.layout.k}, {plain ? w.layout.k : 0, plain ? 1 : 0}},
        plain ? nullptr : w.memory.data()};
  } else {
    check_tensor<Exec, W>();
    check_extents(operation, name, w);
    return MlpWeightRef<T>{to_const_ref(w), nullptr};
  }
}

/// The memory of a weight.
template <MlpWeight W>
AnyTensor weight_memory(W const& w) {
  if constexpr (is_packed_b<W>)
    return packed_memory(w);
  else
    return any_tensor(w);
}

/// [tokens, width] or [batch, tokens, width] as [batch, tokens, width].
template <class T, int Rank>
TensorRef<T, 3> as_batches(TensorRef<T, Rank> const& x) {
  if constexpr (Rank == 3) {
    return x;
  } else {
    return {x.data, {1, x.extent[0], x.extent[1]}, {0, x.stride[0], x.stride[1]}};
  }
}

/// Whether one stride leads from token to token through all of the batch.
template <class T>
bool joins(TensorRef<T, 3> const& x) {
  return x.extent[0] <= 1 || x.extent[1] <= 1 || x.stride[0] == x.extent[1] * x.stride[1];
}

/// The same elements as a batch of one, for a tensor that joins.
template <class T>
TensorRef<T, 3> joined(TensorRef<T, 3> const& x) {
  return {x.data,
          {1, x.extent[0] * x.extent[1], x.extent[2]},
          {0, x.extent[1] == 1 ? x.stride[0] : x.stride[1], x.stride[2]}};
}

/// Extents that an argument must have, as it is and as it should be.
template <class T, class Like, int Rank>
void check_extents_of(char const* operation, char const* name, TensorRef<T, Rank> const& x,
                      char const* like_name, TensorRef<Like, Rank> const& like) {
  for (int r = 0; r < Rank; ++r)
    if (x.extent[r] != like.extent[r])
      raise<ShapeError>(operation, ": ", name, " is ", describe(x), "; expected the extents of ",
                        like_name, ", which is ", describe(like));
}

/// Memory of projections(gate, up), none where they were not given.
struct ProjectionMemory {
  AnyTensor gate, up;
};

/// Checks them against `like`, whose extents they have.
template <ExecutionSpace Exec, class Given, TensorLike Like>
ProjectionMemory projection_memory(char const* operation, Given const& given, char const* like_name,
                                   Like const& like) {
  if constexpr (!is_present<Given>) {
    return {};
  } else {
    using P = element_t<decltype(given.gate)>;
    static_assert(std::is_same_v<P, element_t<decltype(given.up)>> && is_mlp_element<P>,
                  "attikos::projections: both have one element type, which is double, float, "
                  "float16 or bfloat16");
    static_assert(rank_of<decltype(given.gate)> == rank_of<Like> &&
                      rank_of<decltype(given.up)> == rank_of<Like>,
                  "attikos::projections: both have the rank of out");
    auto const check = [&](char const* name, auto const& x) {
      check_tensor<Exec, std::remove_cvref_t<decltype(x)>>();
      check_extents(operation, name, x);
      check_extents_of(operation, name, to_const_ref(x), like_name, to_const_ref(like));
      return any_tensor(x);
    };
    return {check("gate of projections(gate, up)", given.gate),
            check("up of projections(gate, up)", given.up)};
  }
}

/// Checks everything that forward and backward share and fills the arguments. `out` is the result,
/// or in a backward call its gradient, which is only read.
template <ExecutionSpace Exec, TensorLike X, MlpWeight W, MlpWeight U, TensorLike Out>
abi::GatedMlpArgs gated_mlp_arguments(char const* operation, char const* out_name, X const& x,
                                      W const& gate_weight, U const& up_weight, Out const& out,
                                      GatedMlpOptions const& options) {
  check_tensor<Exec, X>();
  check_tensor<Exec, Out>();
  static_assert(rank_of<X> == 2 || rank_of<X> == 3, "attikos::gated_mlp: x has rank 2 or 3");
  static_assert(rank_of<Out> == rank_of<X>, "attikos::gated_mlp: x and out have one rank");
  using TW = weight_element_t<W>;
  static_assert(std::is_same_v<TW, weight_element_t<U>>,
                "attikos::gated_mlp: both weights have one element type");
  static_assert(
      is_mlp_element<element_t<X>> && is_mlp_element<TW> && is_mlp_element<element_t<Out>>,
      "attikos::gated_mlp: element types must be double, float, float16 or bfloat16");
  if constexpr (is_packed_b<W> || is_packed_b<U>)
    static_assert(std::is_same_v<element_t<X>, TW> &&
                      std::is_same_v<GatedMlpAccumulator<element_t<X>, TW, element_t<Out>>,
                                     typename PackedKind<TW>::Acc>,
                  "attikos::gated_mlp: packed weights are for an x of their own element type, and "
                  "for an out that is not double unless they are");
  check_extents(operation, "x", x);
  auto const [gate, packed_gate] = weight_ref<Exec>(operation, "gate_weight", gate_weight);
  auto const [up, packed_up] = weight_ref<Exec>(operation, "up_weight", up_weight);
  check_extents(operation, out_name, out);

  auto const ref_x = to_const_ref(x);
  auto const ref_out = to_ref(out);
  auto const x3 = as_batches(ref_x);
  auto const out3 = as_batches(ref_out);
  if (gate.extent[1] != x3.extent[2])
    raise<ShapeError>(operation, ": gate_weight is ", describe(gate),
                      "; expected [intermediate, hidden] with hidden = ", x3.extent[2],
                      ", the last extent of x, which is ", describe(ref_x));
  check_extents_of(operation, "up_weight", up, "gate_weight", gate);
  if (out3.extent[0] != x3.extent[0] || out3.extent[1] != x3.extent[1] ||
      out3.extent[2] != gate.extent[0]) {
    auto expected = ref_out;
    expected.extent[rank_of<Out> - 1] = gate.extent[0];
    for (int r = 0; r < rank_of<Out> - 1; ++r) expected.extent[r] = ref_x.extent[r];
    raise<ShapeError>(operation, ": ", out_name, " is ", describe(ref_out), "; expected ",
                      describe(expected), ", since x is ", describe(ref_x), " and gate_weight is ",
                      describe(gate));
  }
  if (options.activation != Activation::silu && options.activation != Activation::gelu &&
      options.activation != Activation::gelu_tanh)
    raise<UnsupportedError>(operation, ": activation is ", activation_name(options.activation),
                            "; expected silu, gelu or gelu_tanh");

  bool const one = joins(x3) && joins(out3);
  auto const from = one ? joined(x3) : x3;
  auto const to = one ? joined(out3) : out3;
  abi::GatedMlpArgs g{};
  g.x = from.data;
  g.gate_weight = gate.data;
  g.up_weight = up.data;
  g.out = const_cast<element_t<Out>*>(to.data);  // a backward call's is not written through this
  g.type_x = dtype_of<element_t<X>>;
  g.type_weight = dtype_of<TW>;
  g.type_out = dtype_of<element_t<Out>>;
  g.batch = from.extent[0];
  g.tokens = from.extent[1];
  g.hidden = from.extent[2];
  g.intermediate = gate.extent[0];
  g.x_batch = from.stride[0];
  g.x_token = from.stride[1];
  g.x_hidden = from.stride[2];
  g.gate_intermediate = gate.stride[0];
  g.gate_hidden = gate.stride[1];
  g.up_intermediate = up.stride[0];
  g.up_hidden = up.stride[1];
  g.out_batch = to.stride[0];
  g.out_token = to.stride[1];
  g.out_intermediate = to.stride[2];
  g.activation = options.activation;
  g.packed_gate = packed_gate;
  g.packed_up = packed_up;
  return g;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
