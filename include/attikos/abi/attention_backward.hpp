// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Arguments of a kernel that computes the gradients of attention.
#pragma once

#include <attikos/abi/attention.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// One attention problem with the gradient of its output. In `forward` out and lse are inputs: what
/// attention() wrote. All tensors have the element type of q; strides are ordered as there.
struct AttentionBackwardArgs {
  AttentionArgs forward;
  void const* dout = nullptr;
  void* dq = nullptr;
  void* dk = nullptr;
  void* dv = nullptr;
  std::int64_t dout_stride[4] = {}, dq_stride[4] = {}, dk_stride[4] = {}, dv_stride[4] = {};

  // Optional from here on.

  void* d_bias = nullptr;  ///< sums over the dimensions in which the bias has extent 1
  DType type_d_bias = DType::float32;
  std::int64_t d_bias_extent[4] = {}, d_bias_stride[4] = {};
  void* d_sinks = nullptr;  ///< one per query head
  DType type_d_sinks = DType::float32;
  std::int64_t d_sinks_stride = 0;

  /// Sums that several blocks add to are added up in a fixed order.
  bool ordered = true;
  void* workspace = nullptr;  ///< as many bytes as the kernel asks for
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
