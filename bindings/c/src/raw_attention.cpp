// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention on raw pointers to dense arrays, for callers of functions with these signatures
// elsewhere.
#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "context.hpp"
#include "entry.hpp"

namespace attikos::c {
namespace {

/// The dimensions of all tensors, and the options.
class Problem {
 public:
  explicit Problem(RawCall const& call)
      : shape_{call.batch_size, call.num_heads, call.seq_len, call.head_dim}, call_(call) {}

  int check(std::initializer_list<void const*> pointers) const {
    for (std::int64_t extent : shape_) {
      if (extent > 0) continue;
      remember(ATTIKOS_SHAPE_MISMATCH, "attikos: a dimension is not positive");
      return ATTIKOS_FA_INVALID_DIMENSION;
    }
    if (std::any_of(pointers.begin(), pointers.end(), [](void const* p) { return p == nullptr; })) {
      remember(ATTIKOS_NULL_ARGUMENT, "attikos: a pointer is null");
      return ATTIKOS_FA_NULL_POINTER;
    }
    if (!std::isfinite(call_.scale)) {
      remember(ATTIKOS_INVALID_ARGUMENT, "attikos: the scale is not finite");
      return ATTIKOS_FA_INVALID_ARGUMENT;
    }
    return ATTIKOS_FA_SUCCESS;
  }

  attikos_tensor tensor(void const* data, std::int32_t dtype) const {
    return {const_cast<void*>(data), dtype, 4, shape_, nullptr};
  }
  attikos_tensor rows(void const* data) const {
    return {const_cast<void*>(data), ATTIKOS_FLOAT32, 3, shape_, nullptr};
  }
  attikos_attention_options options() const {
    attikos_attention_options o = ATTIKOS_ATTENTION_OPTIONS_INIT;
    o.softmax_scale = static_cast<double>(call_.scale);
    o.causal = call_.causal ? 1 : 0;
    return o;
  }

 private:
  std::int64_t shape_[4];
  RawCall call_;
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

}  // namespace

int raw_forward(std::int32_t dtype, RawForward const& p, RawCall const& call) noexcept {
  Problem const problem(call);
  if (int const error = problem.check({p.q, p.k, p.v, p.out, p.lse}); error != ATTIKOS_FA_SUCCESS)
    return error;
  attikos_status status = ATTIKOS_SUCCESS;
  attikos_status const found = guarded([&] {
    attikos_context context = place_of(p.q, call.stream);
    attikos_tensor const q = problem.tensor(p.q, dtype);
    attikos_tensor const k = problem.tensor(p.k, dtype);
    attikos_tensor const v = problem.tensor(p.v, dtype);
    attikos_tensor const out = problem.tensor(p.out, dtype);
    attikos_tensor const lse = problem.rows(p.lse);
    attikos_attention_options const options = problem.options();
    status = attikos_attention(&context, &q, &k, &v, &out, &lse, &options);
  });
  return to_flash_attention_error(found != ATTIKOS_SUCCESS ? found : status);
}

int raw_backward(std::int32_t dtype, RawBackward const& p, RawCall const& call) noexcept {
  Problem const problem(call);
  if (int const error = problem.check({p.q, p.k, p.v, p.out, p.lse, p.dout, p.dq, p.dk, p.dv});
      error != ATTIKOS_FA_SUCCESS)
    return error;
  attikos_status status = ATTIKOS_SUCCESS;
  attikos_status const found = guarded([&] {
    attikos_context context = place_of(p.q, call.stream);
    attikos_tensor const q = problem.tensor(p.q, dtype);
    attikos_tensor const k = problem.tensor(p.k, dtype);
    attikos_tensor const v = problem.tensor(p.v, dtype);
    attikos_tensor const out = problem.tensor(p.out, dtype);
    attikos_tensor const lse = problem.rows(p.lse);
    attikos_tensor const dout = problem.tensor(p.dout, dtype);
    attikos_tensor const dq = problem.tensor(p.dq, dtype);
    attikos_tensor const dk = problem.tensor(p.dk, dtype);
    attikos_tensor const dv = problem.tensor(p.dv, dtype);
    attikos_attention_gradients gradients = ATTIKOS_ATTENTION_GRADIENTS_INIT;
    gradients.dq = &dq;
    gradients.dk = &dk;
    gradients.dv = &dv;
    attikos_attention_options const options = problem.options();
    status =
        attikos_attention_backward(&context, &q, &k, &v, &out, &lse, &dout, &gradients, &options);
  });
  return to_flash_attention_error(found != ATTIKOS_SUCCESS ? found : status);
}

}  // namespace attikos::c

extern "C" char const* attikos_flash_attention_error_string(int error) {
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
      return "invalid argument: a misaligned pointer, a scale that is not finite, or outputs that "
             "overlap";
    default:
      return "unknown error";
  }
}
