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
inline constexpr attikos::GemmOptions with_silu{.trans_b = true,
                                                .activation = attikos::Activation::silu};

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
               Matrix<T> const& out) {
  attikos::gated_mlp(exec, x, gate, up, out);
}
template <class T>
void gated_mlp_backward(Exec const& exec, Matrix<T> const& x, Matrix<T> const& gate,
                        Matrix<T> const& up, Matrix<T> const& dout, Matrix<T> const& dx,
                        Matrix<T> const& dgate, Matrix<T> const& dup, Bytes const& workspace) {
  attikos::gated_mlp_backward(exec, x, gate, up, dout, dx, dgate, dup, {},
                              attikos::workspace(workspace));
}
template <class T>
std::size_t gated_mlp_backward_bytes(Matrix<T> const& x, Matrix<T> const& gate,
                                     Matrix<T> const& dout) {
  return attikos::gated_mlp_backward_workspace_size(x, gate, dout);
}

/// out = a ⊙ u
template <class T>
struct Multiply {
  T const *a, *u;
  T* out;
  std::int64_t count;
  KOKKOS_FUNCTION void operator()(std::int64_t chunk) const {
    std::int64_t const first = 8 * chunk;
    Eight<T> x = load_eight(a, first, count);
    Eight<T> const y = load_eight(u, first, count);
    for (int i = 0; i < 8; ++i)
      x.at[i] = T(static_cast<StateOf<T>>(x.at[i]) * static_cast<StateOf<T>>(y.at[i]));
    store_eight(out, first, count, x);
  }
};

/// a, u ← d ⊙ u, d ⊙ a
template <class T>
struct MultiplyBackward {
  T *a, *u;
  T const* d;
  std::int64_t count;
  KOKKOS_FUNCTION void operator()(std::int64_t chunk) const {
    using State = StateOf<T>;
    std::int64_t const first = 8 * chunk;
    Eight<T> x = load_eight(a, first, count), y = load_eight(u, first, count);
    Eight<T> const z = load_eight(d, first, count);
    for (int i = 0; i < 8; ++i) {
      auto const value = static_cast<State>(z.at[i]), of_a = static_cast<State>(x.at[i]);
      x.at[i] = T(value * static_cast<State>(y.at[i]));
      y.at[i] = T(value * of_a);
    }
    store_eight(a, first, count, x);
    store_eight(u, first, count, y);
  }
};

template <class T>
void kept_mlp(Exec const& exec, Matrix<T> const& x, Matrix<T> const& gate, Matrix<T> const& up,
              KeptMlp<T> const& kept, Matrix<T> const& out) {
  attikos::gemm(exec, x, gate, kept.a, with_silu, attikos::pre_activation(kept.g));
  attikos::gemm(exec, x, up, kept.u, transposed_weight);
  auto const count = static_cast<std::int64_t>(out.size());
  Kokkos::parallel_for("llama: multiply", Kokkos::RangePolicy<Exec>(exec, 0, (count + 7) / 8),
                       Multiply<T>{kept.a.data(), kept.u.data(), out.data(), count});
}
template <class T>
void kept_mlp_backward(Exec const& exec, Matrix<T> const& x, Matrix<T> const& gate,
                       Matrix<T> const& up, KeptMlp<T> const& kept, Matrix<T> const& dout,
                       Matrix<T> const& dx, Matrix<T> const& branch, Matrix<T> const& dgate,
                       Matrix<T> const& dup, Bytes const& workspace) {
  auto const count = static_cast<std::int64_t>(dout.size());
  Kokkos::parallel_for("llama: multiply backward",
                       Kokkos::RangePolicy<Exec>(exec, 0, (count + 7) / 8),
                       MultiplyBackward<T>{kept.a.data(), kept.u.data(), dout.data(), count});
  attikos::gemm_backward(exec, x, gate, kept.a, branch, dgate, with_silu,
                         attikos::pre_activation(kept.g), attikos::workspace(workspace));
  attikos::gemm_backward(exec, x, up, kept.u, attikos::none, dup, transposed_weight);
  // What gemm_backward() has no residual for: the other branch's part of dx.
  attikos::gemm(exec, kept.u, up, dx, {}, attikos::residual(branch));
}
template <class T>
std::size_t kept_mlp_backward_bytes(Matrix<T> const& dout) {
  return attikos::gemm_backward_workspace_size(dout, with_silu);
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
                          Matrix<T> const&);                                                       \
  template void gated_mlp_backward(Exec const&, Matrix<T> const&, Matrix<T> const&,                \
                                   Matrix<T> const&, Matrix<T> const&, Matrix<T> const&,           \
                                   Matrix<T> const&, Matrix<T> const&, Bytes const&);              \
  template std::size_t gated_mlp_backward_bytes(Matrix<T> const&, Matrix<T> const&,                \
                                                Matrix<T> const&);                                 \
  template void kept_mlp(Exec const&, Matrix<T> const&, Matrix<T> const&, Matrix<T> const&,        \
                         KeptMlp<T> const&, Matrix<T> const&);                                     \
  template void kept_mlp_backward(Exec const&, Matrix<T> const&, Matrix<T> const&,                 \
                                  Matrix<T> const&, KeptMlp<T> const&, Matrix<T> const&,           \
                                  Matrix<T> const&, Matrix<T> const&, Matrix<T> const&,            \
                                  Matrix<T> const&, Bytes const&);                                 \
  template std::size_t kept_mlp_backward_bytes(Matrix<T> const&);                                  \
  template void loss_and_gradients(Exec const&, Matrix<T> const&, Matrix<T> const&, Tokens const&, \
                                   Vector<StateOf<T>> const&, Vector<StateOf<T>> const&,           \
                                   Matrix<T> const&, Matrix<T> const&, std::size_t, Bytes const&); \
  template std::size_t loss_bytes(Matrix<T> const&, Matrix<T> const&, std::size_t)

}  // namespace llama
