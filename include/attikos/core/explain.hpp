// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Operation tags: the first argument of explain() and the key under which specializations are
/// found.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
/// `explain(op::gemm, exec, A, B, C, options)` tells which kernel a call takes and why.
namespace op {

struct Gemm {};
struct Attention {};
struct Decode {};
struct AppendKv {};
struct AttentionBackward {};
struct GatedMlp {};

inline constexpr Gemm gemm{};
inline constexpr Attention attention{};
inline constexpr Decode decode{};
inline constexpr AppendKv append_kv{};
inline constexpr AttentionBackward attention_backward{};
inline constexpr GatedMlp gated_mlp{};

}  // namespace op
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
