// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What products_float32.cpp and products_bfloat16.cpp instantiate.
#pragma once

#include <attikos/gemm/gemm.hpp>
#include <attikos/gemm/gemm_backward.hpp>
#include <attikos/mlp/gated_mlp.hpp>
#include <attikos/mlp/gated_mlp_backward.hpp>
#include <attikos/reduce/linear_cross_entropy.hpp>

#include "operations.hpp"

namespace llama {

inline constexpr attikos::GemmOptions transposed_weight{.trans_b = true};

template <class T>
void linear(Exec const& exec, Matrix<T> const& x, Matrix<T> const& w, Matrix<T> const& out) {
  attikos::gemm(exec, x, w, out, transposed_weight);
}
template <class T>
void linear(Exec const& exec, Matrix<T> const& x, Matrix<T> const& w, Matrix<T> const& out,
            Matrix<T> const& residual) {
  attikos::gemm(exec, x, w, out, transposed_weight, attikos::residual(residual));
}
template <class T>
void linear_backward(Exec const& exec, Matrix<T> const& x, Matrix<T> const& w,
                     Matrix<T> const& dout, Matrix<T> const& dx, Matrix<T> const& dw) {
  attikos::gemm_backward(exec, x, w, dout, dx, dw, transposed_weight);
}

template <class T>
void gated_mlp(Exec const& exec, Matrix<T> const& x, Matrix<T> const& gate, Matrix<T> const& up,
               KeptMlp<T> const& kept, Matrix<T> const& out) {
  if (kept.empty())
    attikos::gated_mlp(exec, x, gate, up, out);
  else
    attikos::gated_mlp(exec, x, gate, up, out, {}, attikos::projections(kept.gate, kept.up));
}
template <class T>
void gated_mlp_backward(Exec const& exec, Matrix<T> const& x, Matrix<T> const& gate,
                        Matrix<T> const& up, KeptMlp<T> const& kept, Matrix<T> const& dout,
                        Matrix<T> const& dx, Matrix<T> const& dgate, Matrix<T> const& dup,
                        Bytes const& workspace) {
  auto const run = [&](auto const&... extras) {
    attikos::gated_mlp_backward(exec, x, gate, up, dout, dx, dgate, dup, {},
                                attikos::workspace(workspace), extras...);
  };
  if (kept.empty())
    run();
  else
    run(attikos::projections(kept.gate, kept.up));
}
template <class T>
std::size_t gated_mlp_backward_bytes(Matrix<T> const& x, Matrix<T> const& gate,
                                     Matrix<T> const& dout) {
  return attikos::gated_mlp_backward_workspace_size(x, gate, dout);
}

template <class T>
void loss_and_gradients(Exec const& exec, Matrix<T> const& x, Matrix<T> const& head,
                        Tokens const& targets, Vector<StateOf<T>> const& share,
                        Vector<StateOf<T>> const& loss, Matrix<T> const& dx, Matrix<T> const& dhead,
                        std::size_t rows_at_once, Bytes const& workspace) {
  attikos::linear_cross_entropy(exec, x, head, targets, share, loss, dx, dhead,
                                {.rows_at_once = static_cast<std::int64_t>(rows_at_once)},
                                attikos::workspace(workspace));
}
template <class T>
std::size_t loss_bytes(Matrix<T> const& x, Matrix<T> const& head, std::size_t rows_at_once) {
  return attikos::linear_cross_entropy_workspace_size(
      x, head, {.rows_at_once = static_cast<std::int64_t>(rows_at_once)});
}

/// Everything above for one type.
#define LLAMA_PRODUCTS(T)                                                                          \
  template void linear(Exec const&, Matrix<T> const&, Matrix<T> const&, Matrix<T> const&);         \
  template void linear(Exec const&, Matrix<T> const&, Matrix<T> const&, Matrix<T> const&,          \
                       Matrix<T> const&);                                                          \
  template void linear_backward(Exec const&, Matrix<T> const&, Matrix<T> const&, Matrix<T> const&, \
                                Matrix<T> const&, Matrix<T> const&);                               \
  template void gated_mlp(Exec const&, Matrix<T> const&, Matrix<T> const&, Matrix<T> const&,       \
                          KeptMlp<T> const&, Matrix<T> const&);                                    \
  template void gated_mlp_backward(                                                                \
      Exec const&, Matrix<T> const&, Matrix<T> const&, Matrix<T> const&, KeptMlp<T> const&,        \
      Matrix<T> const&, Matrix<T> const&, Matrix<T> const&, Matrix<T> const&, Bytes const&);       \
  template std::size_t gated_mlp_backward_bytes(Matrix<T> const&, Matrix<T> const&,                \
                                                Matrix<T> const&);                                 \
  template void loss_and_gradients(Exec const&, Matrix<T> const&, Matrix<T> const&, Tokens const&, \
                                   Vector<StateOf<T>> const&, Vector<StateOf<T>> const&,           \
                                   Matrix<T> const&, Matrix<T> const&, std::size_t, Bytes const&); \
  template std::size_t loss_bytes(Matrix<T> const&, Matrix<T> const&, std::size_t)

}  // namespace llama
