// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions that a program may call before it has a context. They are compiled for every
// processor of the family (see CMakeLists.txt) and look whether this one has the instructions that
// the rest was compiled for: a lesser one gets a sentence instead of a signal.
#include "entry.hpp"

#include <attikos/compat/cuflash.h>

#include <cstdio>

#include "cpu.hpp"
#include "status.hpp"

namespace attikos::c {
namespace {

std::uint64_t missing_features() noexcept { return required_cpu_features & ~cpu_features(); }

attikos_status refuse(char const* operation) noexcept {
  char message[1024];
  std::snprintf(message, sizeof message,
                "attikos::%s: this processor, or its operating system, lacks instructions that the "
                "library was compiled for: %s. A build with -DATTIKOS_ARCHITECTURE=<processor> "
                "that fits runs here",
                operation, attikos_missing_instructions());
  return remember(ATTIKOS_DEVICE_ERROR, message);
}

int forward(std::int32_t dtype, RawForward const& pointers, RawCall const& call) noexcept {
  if (missing_features() == 0) return raw_forward(dtype, pointers, call);
  refuse("attention_forward");
  return ATTIKOS_FA_CUDA_ERROR;
}

int backward(std::int32_t dtype, RawBackward const& pointers, RawCall const& call) noexcept {
  if (missing_features() == 0) return raw_backward(dtype, pointers, call);
  refuse("attention_backward");
  return ATTIKOS_FA_CUDA_ERROR;
}

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

char const* attikos_missing_instructions(void) {
  static char text[512];
  static bool const named = (name_cpu_features(missing_features(), text, sizeof text), true);
  static_cast<void>(named);
  return text;
}

attikos_status attikos_context_create(int32_t kind, int32_t ordinal, void* stream,
                                      attikos_context** context) {
  return missing_features() == 0 ? create_context(kind, ordinal, stream, context)
                                 : refuse("context");
}

attikos_status attikos_get_device_info(int32_t kind, int32_t ordinal, attikos_device_info* info) {
  return missing_features() == 0 ? write_device_info(kind, ordinal, info)
                                 : refuse("get_device_info");
}

attikos_status attikos_list_kernels(char const* operation, char* text, size_t size,
                                    size_t* length) {
  return missing_features() == 0 ? write_kernels(operation, text, size, length)
                                 : refuse("list_kernels");
}

int attikos_attention_forward_f32(float const* Q, float const* K, float const* V, float* O,
                                  float* L, int batch_size, int num_heads, int seq_len,
                                  int head_dim, float scale, bool causal, void* stream) {
  return forward(ATTIKOS_FLOAT32, {Q, K, V, O, L},
                 {batch_size, num_heads, seq_len, head_dim, scale, causal, stream});
}

int attikos_attention_forward_f16(void const* Q, void const* K, void const* V, void* O, float* L,
                                  int batch_size, int num_heads, int seq_len, int head_dim,
                                  float scale, bool causal, void* stream) {
  return forward(ATTIKOS_FLOAT16, {Q, K, V, O, L},
                 {batch_size, num_heads, seq_len, head_dim, scale, causal, stream});
}

int attikos_attention_backward_f32(float const* Q, float const* K, float const* V, float const* O,
                                   float const* L, float const* dO, float* dQ, float* dK, float* dV,
                                   int batch_size, int num_heads, int seq_len, int head_dim,
                                   float scale, bool causal, void* stream) {
  return backward(ATTIKOS_FLOAT32, {Q, K, V, O, L, dO, dQ, dK, dV},
                  {batch_size, num_heads, seq_len, head_dim, scale, causal, stream});
}

int attikos_attention_backward_f16(void const* Q, void const* K, void const* V, void const* O,
                                   float const* L, void const* dO, void* dQ, void* dK, void* dV,
                                   int batch_size, int num_heads, int seq_len, int head_dim,
                                   float scale, bool causal, void* stream) {
  return backward(ATTIKOS_FLOAT16, {Q, K, V, O, L, dO, dQ, dK, dV},
                  {batch_size, num_heads, seq_len, head_dim, scale, causal, stream});
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
