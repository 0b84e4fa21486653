// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The operations that the model is made of: calls of Attikos with the types of tensors.hpp. Each
/// is defined in the header of its group and instantiated in one source for each type, so that a
/// kernel is compiled once; all are asynchronous on `exec` and need `workspace` as the functions
/// that end in _bytes say.
#pragma once

#include "tensors.hpp"

namespace llama {

// products.hpp

/// out = x·wᵀ
template <class T>
void linear(Exec const& exec, Matrix<T> const& x, Matrix<T> const& w, Matrix<T> const& out);
/// out = x·wᵀ + residual, which may be out
template <class T>
void linear(Exec const& exec, Matrix<T> const& x, Matrix<T> const& w, Matrix<T> const& out,
            Matrix<T> const& residual);
template <class T>
void linear_backward(Exec const& exec, Matrix<T> const& x, Matrix<T> const& w,
                     Matrix<T> const& dout, Matrix<T> const& dx, Matrix<T> const& dw);

/// The two projections of a gated MLP, empty where none are kept.
template <class T>
struct KeptMlp {
  Matrix<T> gate, up;
  bool empty() const { return gate.size() == 0; }
};
/// out = silu(x·gateᵀ) ⊙ (x·upᵀ)
template <class T>
void gated_mlp(Exec const& exec, Matrix<T> const& x, Matrix<T> const& gate, Matrix<T> const& up,
               KeptMlp<T> const& kept, Matrix<T> const& out);
template <class T>
void gated_mlp_backward(Exec const& exec, Matrix<T> const& x, Matrix<T> const& gate,
                        Matrix<T> const& up, KeptMlp<T> const& kept, Matrix<T> const& dout,
                        Matrix<T> const& dx, Matrix<T> const& dgate, Matrix<T> const& dup,
                        Bytes const& workspace);
template <class T>
std::size_t gated_mlp_backward_bytes(Matrix<T> const& x, Matrix<T> const& gate,
                                     Matrix<T> const& dout);

/// Cross entropy of each row of x·headᵀ, and the gradients of its sum times the row's share. Logits
/// are in memory of `rows_at_once` rows, 0 for as many as the library likes.
template <class T>
void loss_and_gradients(Exec const& exec, Matrix<T> const& x, Matrix<T> const& head,
                        Tokens const& targets, Vector<StateOf<T>> const& share,
                        Vector<StateOf<T>> const& loss, Matrix<T> const& dx, Matrix<T> const& dhead,
                        std::size_t rows_at_once, Bytes const& workspace);
template <class T>
std::size_t loss_bytes(Matrix<T> const& x, Matrix<T> const& head, std::size_t rows_at_once);

// attention.hpp

/// Queries, keys and values inside the rows of their product.
template <class T>
struct Qkv {
  Heads<T> q, k, v, rotated;  ///< `rotated`: q and k together
};

/// cos and sin, [positions, head_dim].
struct Rotation {
  Matrix<float> cos, sin;
};

/// Rotates queries and keys in place; the context of queries that see keys up to their own.
template <class T>
void attend(Exec const& exec, Qkv<T> const& x, Rotation const& rotation, Heads<T> const& context,
            Lse<StateOf<T>> const& lse, Bytes const& workspace);
template <class T>
std::size_t attend_bytes(Qkv<T> const& x);

/// A cache in pages, and how many positions of each sequence are in use: [batch].
template <class T>
struct PagedCache {
  Pages<T> keys, values;
  Matrix<std::int32_t> table;
  Tokens lengths_before, lengths_after;  ///< without the new tokens, and with them
};

/// Rotates queries and keys by the positions that follow what is in the cache, appends keys and
/// values, and attends to all: decode() where each sequence has one query, attention() elsewhere.
template <class T>
void attend_to_cache(Exec const& exec, Qkv<T> const& x, Rotation const& rotation,
                     PagedCache<T> const& cache, Heads<T> const& context, Bytes const& workspace);
template <class T>
std::size_t attend_to_cache_bytes(Exec const& exec, Qkv<T> const& x, PagedCache<T> const& cache);

// attention_backward.hpp

/// Gradients of attend(), whose `x` holds rotated queries and keys; `dx` is turned back.
template <class T>
void attend_backward(Exec const& exec, Qkv<T> const& x, Rotation const& rotation,
                     Heads<T> const& context, Lse<StateOf<T>> const& lse, Heads<T> const& dcontext,
                     Qkv<T> const& dx, Bytes const& workspace);
template <class T>
std::size_t attend_backward_bytes(Exec const& exec, Qkv<T> const& x);

// rows.hpp

template <class T>
void embed(Exec const& exec, Matrix<T> const& table, Tokens const& tokens, Matrix<T> const& out);
template <class T>
void embed_backward(Exec const& exec, Tokens const& tokens, Matrix<T> const& dout,
                    Matrix<T> const& dtable, Bytes const& workspace);
template <class T>
std::size_t embed_backward_bytes(Tokens const& tokens, Matrix<T> const& dout,
                                 Matrix<T> const& dtable);

template <class T>
void norm(Exec const& exec, Matrix<T> const& x, Vector<T> const& weight, Matrix<T> const& out,
          double eps);
/// `dx` may be `dout`.
template <class T>
void norm_backward(Exec const& exec, Matrix<T> const& x, Vector<T> const& weight,
                   Matrix<T> const& dout, Matrix<T> const& dx, Vector<T> const& dweight, double eps,
                   Bytes const& workspace);
/// The same, added to what `dx` holds.
template <class T>
void add_norm_backward(Exec const& exec, Matrix<T> const& x, Vector<T> const& weight,
                       Matrix<T> const& dout, Matrix<T> const& dx, Vector<T> const& dweight,
                       double eps, Bytes const& workspace);
template <class T>
std::size_t norm_backward_bytes(Matrix<T> const& x, Vector<T> const& weight);

/// Settings of AdamW.
struct Descent {
  double learning_rate = 3e-4, beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weight_decay = 0.1;
};

/// One step of AdamW, the `step`-th, of all weights at once. `master` is empty where the weights
/// are as wide as the moments.
template <class T>
void descend(Exec const& exec, Vector<T> const& weights, Vector<T> const& gradients,
             Vector<StateOf<T>> const& moment1, Vector<StateOf<T>> const& moment2,
             Vector<StateOf<T>> const& master, Descent const& descent, std::int64_t step);

}  // namespace llama
