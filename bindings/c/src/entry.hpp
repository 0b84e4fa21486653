// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What entry.cpp hands on to the rest of the library once the processor is known to fit.
#pragma once

#include <attikos/attikos.h>

#include <cstdint>

namespace attikos::c {

attikos_status create_context(std::int32_t kind, std::int32_t ordinal, void* stream,
                              attikos_context** context) noexcept;
attikos_status write_device_info(std::int32_t kind, std::int32_t ordinal,
                                 attikos_device_info* info) noexcept;
attikos_status write_kernels(char const* operation, char* text, size_t size,
                             size_t* length) noexcept;

/// The numbers of a call on raw pointers.
struct RawCall {
  int batch_size, num_heads, seq_len, head_dim;
  float scale;
  bool causal;
  void* stream;
};
struct RawForward {
  void const *q, *k, *v;
  void* out;
  float* lse;
};
struct RawBackward {
  void const *q, *k, *v, *out;
  float const* lse;
  void const* dout;
  void *dq, *dk, *dv;
};
/// An attikos_flash_attention_error.
int raw_forward(std::int32_t dtype, RawForward const& pointers, RawCall const& call) noexcept;
int raw_backward(std::int32_t dtype, RawBackward const& pointers, RawCall const& call) noexcept;

}  // namespace attikos::c
