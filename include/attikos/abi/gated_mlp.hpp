// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What crosses the wall for a gated MLP: one plain struct.
#pragma once

#include <attikos/abi/gemm.hpp>
#include <cstdint>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// out = act(x·Wgᵀ) ⊙ (x·Wuᵀ).
///
/// x is [batch, tokens, hidden], both weights are [intermediate, hidden], out is [batch, tokens,
/// intermediate]. Strides count elements, are 64-bit, and may be 0 or negative in inputs. A
/// dimension of extent 1 may carry any stride. `activation` is silu, gelu or gelu_tanh. Storage of
/// the inputs must not overlap out.
struct GatedMlpArgs {
  void const* x = nullptr;
  void const* gate_weight = nullptr;
  void const* up_weight = nullptr;
  void* out = nullptr;
  DType type_x = DType::float32;
  DType type_weight = DType::float32;
  DType type_out = DType::float32;
  std::int64_t batch = 0, tokens = 0, hidden = 0, intermediate = 0;
  std::int64_t x_batch = 0, x_token = 0, x_hidden = 0;
  std::int64_t gate_intermediate = 0, gate_hidden = 0;
  std::int64_t up_intermediate = 0, up_hidden = 0;
  std::int64_t out_batch = 0, out_token = 0, out_intermediate = 0;
  Activation activation = Activation::silu;
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
