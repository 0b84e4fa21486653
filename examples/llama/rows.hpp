// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What rows_float32.cpp and rows_bfloat16.cpp instantiate.
#pragma once

#include <attikos/embedding/embedding.hpp>
#include <attikos/embedding/embedding_backward.hpp>
#include <attikos/norm/rms_norm.hpp>
#include <attikos/norm/rms_norm_backward.hpp>
#include <attikos/optimizer/adamw.hpp>

#include "operations.hpp"

namespace llama {

template <class T>
void embed(Exec const& exec, Matrix<T> const& table, Tokens const& tokens, Matrix<T> const& out) {
  attikos::embedding(exec, table, tokens, out);
}
template <class T>
void embed_backward(Exec const& exec, Tokens const& tokens, Matrix<T> const& dout,
                    Matrix<T> const& dtable, Bytes const& workspace) {
  attikos::embedding_backward(exec, tokens, dout, dtable, {}, attikos::workspace(workspace));
}
template <class T>
std::size_t embed_backward_bytes(Tokens const& tokens, Matrix<T> const& dout,
                                 Matrix<T> const& dtable) {
  return attikos::embedding_backward_workspace_size(tokens, dout, dtable);
}

template <class T>
void norm(Exec const& exec, Matrix<T> const& x, Vector<T> const& weight, Matrix<T> const& out,
          double eps) {
  attikos::rms_norm(exec, x, weight, out, {.eps = eps});
}
template <class T>
void norm_backward(Exec const& exec, Matrix<T> const& x, Vector<T> const& weight,
                   Matrix<T> const& dout, Matrix<T> const& dx, Vector<T> const& dweight, double eps,
                   Bytes const& workspace) {
  attikos::rms_norm_backward(exec, x, weight, dout, dx, dweight, {.eps = eps},
                             attikos::workspace(workspace));
}
template <class T>
void add_norm_backward(Exec const& exec, Matrix<T> const& x, Vector<T> const& weight,
                       Matrix<T> const& dout, Matrix<T> const& dx, Vector<T> const& dweight,
                       double eps, Bytes const& workspace) {
  attikos::rms_norm_backward(exec, x, weight, dout, dx, dweight, {.eps = eps},
                             attikos::workspace(workspace), attikos::residual(dx));
}
template <class T>
std::size_t norm_backward_bytes(Matrix<T> const& x, Vector<T> const& weight) {
  return attikos::rms_norm_backward_workspace_size(x, weight, x);
}

template <class T>
void descend(Exec const& exec, Vector<T> const& weights, Vector<T> const& gradients,
             Vector<StateOf<T>> const& moment1, Vector<StateOf<T>> const& moment2,
             Vector<StateOf<T>> const& master, Descent const& d, std::int64_t step) {
  attikos::AdamWOptions const options{.learning_rate = d.learning_rate,
                                      .beta1 = d.beta1,
                                      .beta2 = d.beta2,
                                      .epsilon = d.epsilon,
                                      .weight_decay = d.weight_decay,
                                      .step = step};
  if constexpr (std::is_same_v<T, StateOf<T>>) {
    attikos::adamw_step(exec, weights, gradients, moment1, moment2, options);
  } else {
    attikos::adamw_step(exec, weights, gradients, moment1, moment2, options,
                        attikos::master(master));
  }
}

/// Everything above for one type.
#define LLAMA_ROWS(T)                                                                            \
  template void embed(Exec const&, Matrix<T> const&, Tokens const&, Matrix<T> const&);           \
  template void embed_backward(Exec const&, Tokens const&, Matrix<T> const&, Matrix<T> const&,   \
                               Bytes const&);                                                    \
  template std::size_t embed_backward_bytes(Tokens const&, Matrix<T> const&, Matrix<T> const&);  \
  template void norm(Exec const&, Matrix<T> const&, Vector<T> const&, Matrix<T> const&, double); \
  template void norm_backward(Exec const&, Matrix<T> const&, Vector<T> const&, Matrix<T> const&, \
                              Matrix<T> const&, Vector<T> const&, double, Bytes const&);         \
  template std::size_t norm_backward_bytes(Matrix<T> const&, Vector<T> const&);                  \
  template void add_norm_backward(Exec const&, Matrix<T> const&, Vector<T> const&,               \
                                  Matrix<T> const&, Matrix<T> const&, Vector<T> const&, double,  \
                                  Bytes const&);                                                 \
  template void descend(Exec const&, Vector<T> const&, Vector<T> const&,                         \
                        Vector<StateOf<T>> const&, Vector<StateOf<T>> const&,                    \
                        Vector<StateOf<T>> const&, Descent const&, std::int64_t)

}  // namespace llama
