// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A gated MLP whose two projections lie in memory: the products, what joins them, and its
/// gradients.
#pragma once

#include <algorithm>
#include <attikos/core/rows/gradient.hpp>
#include <attikos/core/rows/pointwise.hpp>
#include <attikos/core/tensor_view.hpp>
#include <attikos/gemm/gemm.hpp>
#include <attikos/mlp/gated_mlp_arguments.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// A weight as gemm() takes it.
template <ExecutionSpace Exec, MlpWeight W>
decltype(auto) weight_operand(W const& w) {
  if constexpr (is_packed_b<W>)
    return w;
  else
    return view_of<Exec>(to_const_ref(w));
}

/// gate = x·Wgᵀ and up = x·Wuᵀ; with `log`, only finds out which kernel would do it.
template <ExecutionSpace Exec, class X, MlpWeight W, MlpWeight U, class P>
void gated_mlp_projections(Exec const& exec, TensorRef<X, 3> const& x, W const& gate_weight,
                           U const& up_weight, TensorRef<P, 3> const& gate,
                           TensorRef<P, 3> const& up, GatedMlpOptions const& options,
                           Explanation* log = nullptr) {
  GemmOptions const product{.trans_b = true, .kernel = options.kernel};
  auto const in = view_of<Exec>(x);
  gemm_dispatch(exec, in, weight_operand<Exec>(gate_weight), view_of<Exec>(gate), product, log);
  if (log == nullptr) gemm(exec, in, weight_operand<Exec>(up_weight), view_of<Exec>(up), product);
}

/// out = act(gate)·up.
template <class Acc, class P, class Out>
struct GatedProduct {
  static constexpr int reads = 2, neighbors = detail::neighbors<P, Out>;

  Rows<P const> gate, up;
  Rows<Out> out;
  Activation activation;

  bool moves_at_once() const {
    return rows_move_at_once<neighbors>(gate) && rows_move_at_once<neighbors>(up) &&
           rows_move_at_once<neighbors>(out);
  }

  template <int Width>
  struct Read {
    Loaded<P, Width> gate, up;
  };
  template <int Width>
  KOKKOS_INLINE_FUNCTION Read<Width> load(std::int64_t row, std::int64_t j) const {
    return {load_of_row<Width>(gate, row, j), load_of_row<Width>(up, row, j)};
  }
  template <int Width, class How>
  KOKKOS_INLINE_FUNCTION void store(std::int64_t row, std::int64_t j, Read<Width> const& read,
                                    How) const {
    Acc result[Width];
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Width; ++i)
      result[i] = activation_and_gradient<How::value>(read.gate.template value<Acc>(i)).value *
                  read.up.template value<Acc>(i);
    store_to_row<Width>(out, row, j, result);
  }

  void host_row(std::int64_t row) const {
    constexpr int W = host::lanes<Acc>;
    Row<P const> const g = gate(row), u = up(row);
    Row<Out> const to = out(row);
    for (std::int64_t j = 0; j < to.size; j += W) {
      int const count = static_cast<int>(to.size - j < W ? to.size - j : W);
      host::Vec<Acc> const a = host::activate<Acc>(
          activation, host::load_row<Acc>(g.data + j * g.stride, g.stride, count));
      host::put<Acc>(
          to.data + j * to.stride, to.stride, count,
          host::Vec<Acc>(a * host::load_row<Acc>(u.data + j * u.stride, u.stride, count)));
    }
  }
};

/// dgate = dout·up·act'(gate) and dup = dout·act(gate), which may lie where gate and up do.
template <class Acc, class P, class DOut, class T>
struct GatedGradients {
  static constexpr int reads = 3;
  static constexpr int neighbors = std::min(detail::neighbors<P, T>, detail::neighbors<DOut, T>);

  Rows<P const> gate, up;
  Rows<DOut const> dout;
  Rows<T> dgate, dup;
  Activation activation;

  bool moves_at_once() const {
    return rows_move_at_once<neighbors>(gate) && rows_move_at_once<neighbors>(up) &&
           rows_move_at_once<neighbors>(dout) && rows_move_at_once<neighbors>(dgate) &&
           rows_move_at_once<neighbors>(dup);
  }

  template <int Width>
  struct Read {
    Loaded<P, Width> gate, up;
    Loaded<DOut, Width> dout;
  };
  template <int Width>
  KOKKOS_INLINE_FUNCTION Read<Width> load(std::int64_t row, std::int64_t j) const {
    return {load_of_row<Width>(gate, row, j), load_of_row<Width>(up, row, j),
            load_of_row<Width>(dout, row, j)};
  }
  template <int Width, class How>
  KOKKOS_INLINE_FUNCTION void store(std::int64_t row, std::int64_t j, Read<Width> const& read,
                                    How) const {
    Acc of_gate[Width], of_up[Width];
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < Width; ++i) {
      Acc const d = read.dout.template value<Acc>(i);
      auto const act = activation_and_gradient<How::value>(read.gate.template value<Acc>(i));
      of_gate[i] = d * read.up.template value<Acc>(i) * act.gradient;
      of_up[i] = d * act.value;
    }
    store_to_row<Width>(dgate, row, j, of_gate);
    store_to_row<Width>(dup, row, j, of_up);
  }

  void host_row(std::int64_t row) const {
    constexpr int W = host::lanes<Acc>;
    Row<P const> const gates = gate(row), ups = up(row);
    Row<DOut const> const from = dout(row);
    Row<T> const to_gate = dgate(row), to_up = dup(row);
    for (std::int64_t j = 0; j < from.size; j += W) {
      int const count = static_cast<int>(from.size - j < W ? from.size - j : W);
      auto const load = [&](auto const& x) {
        return host::load_row<Acc>(x.data + j * x.stride, x.stride, count);
      };
      host::Vec<Acc> const d = load(from), g = load(gates), u = load(ups);
      host::put<Acc>(to_gate.data + j * to_gate.stride, to_gate.stride, count,
                     host::Vec<Acc>(d * u * host::activation_gradient<Acc>(activation, g)));
      host::put<Acc>(to_up.data + j * to_up.stride, to_up.stride, count,
                     host::Vec<Acc>(d * host::activate<Acc>(activation, g)));
    }
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
