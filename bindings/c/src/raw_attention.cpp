// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention on raw pointers to dense arrays, for callers of functions with these signatures
// elsewhere.
#include <attikos/compat/cuflash.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "context.hpp"

namespace attikos::c {
namespace {

/// One set of dimensions, and the place that the first pointer names.
struct RawCall {
  std::int64_t shape[4];
  float scale;
  bool causal;

  int check(std::initializer_list<void const*> pointers) const {
    for (std::int64_t extent : shape) {
      if (extent > 0) continue;
      remember(ATTIKOS_SHAPE_MISMATCH, "attikos: a dimension is not positive");
      return ATTIKOS_FA_INVALID_DIMENSION;
    }
    if (std::any_of(pointers.begin(), pointers.end(), [](void const* p) { return p == nullptr; })) {
      remember(ATTIKOS_NULL_ARGUMENT, "attikos: a pointer is null");
      return ATTIKOS_FA_NULL_POINTER;
    }
    if (!std::isfinite(scale)) {
      remember(ATTIKOS_INVALID_ARGUMENT, "attikos: the scale is not finite");
      return ATTIKOS_FA_INVALID_ARGUMENT;
    }
    return ATTIKOS_FA_SUCCESS;
  }

  attikos_tensor tensor(void const* data, std::int32_t dtype) const {
    return {const_cast<void*>(data), dtype, 4, shape, nullptr};
  }
  attikos_tensor rows(void const* data) const {
    return {const_cast<void*>(data), ATTIKOS_FLOAT32, 3, shape, nullptr};
  }
  attikos_attention_options options() const {
    attikos_attention_options o = ATTIKOS_ATTENTION_OPTIONS_INIT;
    o.softmax_scale = static_cast<double>(scale);
    o.causal = causal ? 1 : 0;
    return o;
  }
};

attikos_context place_of(void const* memory, void* stream) {
  int const device = device_of(memory);
  return device < 0 ? find_context(ATTIKOS_HOST, 0, nullptr)
                    : find_context(ATTIKOS_CUDA, device, stream);
}

int to_flash_attention_error(attikos_status status) noexcept {
  switch (status) {
    case ATTIKOS_SUCCESS:
      return ATTIKOS_FA_SUCCESS;
    case ATTIKOS_NULL_ARGUMENT:
      return ATTIKOS_FA_NULL_POINTER;
    case ATTIKOS_NEGATIVE_EXTENT:
    case ATTIKOS_OVERFLOW:
    case ATTIKOS_UNSUPPORTED:  // more tiles than one launch holds
      return ATTIKOS_FA_INVALID_DIMENSION;
    case ATTIKOS_SHAPE_MISMATCH:
      return ATTIKOS_FA_DIMENSION_MISMATCH;
    case ATTIKOS_DTYPE_MISMATCH:
      return ATTIKOS_FA_UNSUPPORTED_DTYPE;
    case ATTIKOS_OUT_OF_MEMORY:
      return ATTIKOS_FA_OUT_OF_MEMORY;
    case ATTIKOS_MISALIGNED:
    case ATTIKOS_INVALID_STRIDES:
    case ATTIKOS_INVALID_ARGUMENT:
    case ATTIKOS_INVALID_STRUCT:
      return ATTIKOS_FA_INVALID_ARGUMENT;
    case ATTIKOS_DEVICE_ERROR:
    case ATTIKOS_INTERNAL_ERROR:
      break;
  }
  return ATTIKOS_FA_CUDA_ERROR;
}

int forward(std::int32_t dtype, void const* q, void const* k, void const* v, void* out, float* lse,
            RawCall const& call, void* stream) noexcept {
  if (int const error = call.check({q, k, v, out, lse}); error != ATTIKOS_FA_SUCCESS) return error;
  attikos_status status = ATTIKOS_SUCCESS;
  attikos_status const found = guarded([&] {
    attikos_context context = place_of(q, stream);
    attikos_tensor const tq = call.tensor(q, dtype);
    attikos_tensor const tk = call.tensor(k, dtype);
    attikos_tensor const tv = call.tensor(v, dtype);
    attikos_tensor const to = call.tensor(out, dtype);
    attikos_tensor const tl = call.rows(lse);
    attikos_attention_options const options = call.options();
    status = attikos_attention(&context, &tq, &tk, &tv, &to, &tl, &options);
  });
  return to_flash_attention_error(found != ATTIKOS_SUCCESS ? found : status);
}

/// The same pointers as the functions below take.
struct BackwardPointers {
  void const *q, *k, *v, *out;
  float const* lse;
  void const* dout;
  void *dq, *dk, *dv;
};

int backward(std::int32_t dtype, BackwardPointers const& p, RawCall const& call,
             void* stream) noexcept {
  if (int const error = call.check({p.q, p.k, p.v, p.out, p.lse, p.dout, p.dq, p.dk, p.dv});
      error != ATTIKOS_FA_SUCCESS)
    return error;
  attikos_status status = ATTIKOS_SUCCESS;
  attikos_status const found = guarded([&] {
    attikos_context context = place_of(p.q, stream);
    attikos_tensor const q = call.tensor(p.q, dtype);
    attikos_tensor const k = call.tensor(p.k, dtype);
    attikos_tensor const v = call.tensor(p.v, dtype);
    attikos_tensor const out = call.tensor(p.out, dtype);
    attikos_tensor const lse = call.rows(p.lse);
    attikos_tensor const dout = call.tensor(p.dout, dtype);
    attikos_tensor const dq = call.tensor(p.dq, dtype);
    attikos_tensor const dk = call.tensor(p.dk, dtype);
    attikos_tensor const dv = call.tensor(p.dv, dtype);
    attikos_attention_gradients gradients = ATTIKOS_ATTENTION_GRADIENTS_INIT;
    gradients.dq = &dq;
    gradients.dk = &dk;
    gradients.dv = &dv;
    attikos_attention_options const options = call.options();
    status =
        attikos_attention_backward(&context, &q, &k, &v, &out, &lse, &dout, &gradients, &options);
  });
  return to_flash_attention_error(found != ATTIKOS_SUCCESS ? found : status);
}

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

int attikos_attention_forward_f32(float const* Q, float const* K, float const* V, float* O,
                                  float* L, int batch_size, int num_heads, int seq_len,
                                  int head_dim, float scale, bool causal, void* stream) {
  return forward(ATTIKOS_FLOAT32, Q, K, V, O, L,
                 {{batch_size, num_heads, seq_len, head_dim}, scale, causal}, stream);
}

int attikos_attention_forward_f16(void const* Q, void const* K, void const* V, void* O, float* L,
                                  int batch_size, int num_heads, int seq_len, int head_dim,
                                  float scale, bool causal, void* stream) {
  return forward(ATTIKOS_FLOAT16, Q, K, V, O, L,
                 {{batch_size, num_heads, seq_len, head_dim}, scale, causal}, stream);
}

int attikos_attention_backward_f32(float const* Q, float const* K, float const* V, float const* O,
                                   float const* L, float const* dO, float* dQ, float* dK, float* dV,
                                   int batch_size, int num_heads, int seq_len, int head_dim,
                                   float scale, bool causal, void* stream) {
  return backward(ATTIKOS_FLOAT32, {Q, K, V, O, L, dO, dQ, dK, dV},
                  {{batch_size, num_heads, seq_len, head_dim}, scale, causal}, stream);
}

int attikos_attention_backward_f16(void const* Q, void const* K, void const* V, void const* O,
                                   float const* L, void const* dO, void* dQ, void* dK, void* dV,
                                   int batch_size, int num_heads, int seq_len, int head_dim,
                                   float scale, bool causal, void* stream) {
  return backward(ATTIKOS_FLOAT16, {Q, K, V, O, L, dO, dQ, dK, dV},
                  {{batch_size, num_heads, seq_len, head_dim}, scale, causal}, stream);
}

char const* attikos_flash_attention_error_string(int error) {
  switch (error) {
    case ATTIKOS_FA_SUCCESS:
      return "success";
    case ATTIKOS_FA_INVALID_DIMENSION:
      return "invalid dimension: every dimension is at least 1";
    case ATTIKOS_FA_DIMENSION_MISMATCH:
      return "dimension mismatch";
    case ATTIKOS_FA_NULL_POINTER:
      return "null pointer";
    case ATTIKOS_FA_CUDA_ERROR:
      return "CUDA error";
    case ATTIKOS_FA_OUT_OF_MEMORY:
      return "out of memory";
    case ATTIKOS_FA_UNSUPPORTED_HEAD_DIM:
      return "unsupported head_dim";
    case ATTIKOS_FA_UNSUPPORTED_DTYPE:
      return "unsupported dtype";
    case ATTIKOS_FA_INVALID_ARGUMENT:
      return "invalid argument: a misaligned pointer or a scale that is not finite";
    default:
      return "unknown error";
  }
}

// The same by the names of compat/cuflash.h.

int cuflash_attention_forward_f32(float const* Q, float const* K, float const* V, float* O,
                                  float* L, int batch_size, int num_heads, int seq_len,
                                  int head_dim, float scale, bool causal, void* stream) {
  return attikos_attention_forward_f32(Q, K, V, O, L, batch_size, num_heads, seq_len, head_dim,
                                       scale, causal, stream);
}

int cuflash_attention_forward_f16(void const* Q, void const* K, void const* V, void* O, float* L,
                                  int batch_size, int num_heads, int seq_len, int head_dim,
                                  float scale, bool causal, void* stream) {
  return attikos_attention_forward_f16(Q, K, V, O, L, batch_size, num_heads, seq_len, head_dim,
                                       scale, causal, stream);
}

int cuflash_attention_backward_f32(float const* Q, float const* K, float const* V, float const* O,
                                   float const* L, float const* dO, float* dQ, float* dK, float* dV,
                                   int batch_size, int num_heads, int seq_len, int head_dim,
                                   float scale, bool causal, void* stream) {
  return attikos_attention_backward_f32(Q, K, V, O, L, dO, dQ, dK, dV, batch_size, num_heads,
                                        seq_len, head_dim, scale, causal, stream);
}

int cuflash_attention_backward_f16(void const* Q, void const* K, void const* V, void const* O,
                                   float const* L, void const* dO, void* dQ, void* dK, void* dV,
                                   int batch_size, int num_heads, int seq_len, int head_dim,
                                   float scale, bool causal, void* stream) {
  return attikos_attention_backward_f16(Q, K, V, O, L, dO, dQ, dK, dV, batch_size, num_heads,
                                        seq_len, head_dim, scale, causal, stream);
}
}
