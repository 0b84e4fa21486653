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
  /// The weights in the panels that a host's instructions read, see gemm/packed_b.hpp; what they
  /// stand for is then not read.
  void const* packed_gate = nullptr;
  void const* packed_up = nullptr;
};

/// What a call may ask for beyond the products themselves. See options.hpp.
#define ATTIKOS_GATED_MLP_ARGUMENTS(X)             \
  X(activation, "it has no activation but silu")   \
  X(packed_gate, "it reads no packed gate_weight") \
  X(packed_up, "it reads no packed up_weight")

enum class GatedMlpOption : std::uint8_t {
  ATTIKOS_GATED_MLP_ARGUMENTS(ATTIKOS_ARGUMENT_ENUMERATOR)
};
using GatedMlpOptionSet = OptionSet<GatedMlpOption>;

/// The options that a call uses. Types, extents and strides are not options: every kernel checks
/// those itself.
constexpr GatedMlpOptionSet options_of(GatedMlpArgs const& args) noexcept {
  // Every member is named here. A new one is an option and gets a row above, unless all kernels
  // work without looking at it.
  [[maybe_unused]] auto const& [x, gate_weight, up_weight, out, type_x, type_weight, type_out,
                                batch, tokens, hidden, intermediate, x_batch, x_token, x_hidden,
                                gate_intermediate, gate_hidden, up_intermediate, up_hidden,
                                out_batch, out_token, out_intermediate, activation, packed_gate,
                                packed_up] = args;
  using Option = GatedMlpOption;
  constexpr GatedMlpArgs unasked{};
  return GatedMlpOptionSet() ATTIKOS_GATED_MLP_ARGUMENTS(ATTIKOS_ARGUMENT_ASKED);
}

/// Why a kernel that takes these options alone refuses a call: the reason of the first option that
/// the call uses and the kernel does not take; null if there is none.
constexpr char const* beyond(GatedMlpArgs const& args, GatedMlpOptionSet takes) noexcept {
  using Option = GatedMlpOption;
  constexpr OptionReason<Option> reasons[] = {ATTIKOS_GATED_MLP_ARGUMENTS(ATTIKOS_ARGUMENT_REASON)};
  return first_unknown(reasons, options_of(args), takes);
}

/// Both products by wgmma as GemmSm90WgmmaF16 computes them, in one kernel whose epilogue joins
/// them; sm_90 alone.
///
/// x and the weights are float16 (bfloat16 in the other), out is that or float32. x and the weights
/// have a unit stride along hidden; their addresses, other strides and batch strides are multiples
/// of 16 bytes; hidden ≥ 1. out may have any strides. Sums are float32 and reach the activation
/// unrounded. silu uses the device's fast exponential and division, a few float32 roundings off.
struct GatedMlpSm90WgmmaF16 {
  static constexpr char const* name = "gated_mlp/sm90_wgmma_f16";
  static constexpr GatedMlpOptionSet takes{GatedMlpOption::activation};
  static Verdict accepts(GatedMlpArgs const& args, Device const& device) noexcept;
  static int launch(GatedMlpArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};
/// See GatedMlpSm90WgmmaF16.
struct GatedMlpSm90WgmmaBf16 {
  static constexpr char const* name = "gated_mlp/sm90_wgmma_bf16";
  static constexpr GatedMlpOptionSet takes{GatedMlpOption::activation};
  static Verdict accepts(GatedMlpArgs const& args, Device const& device) noexcept;
  static int launch(GatedMlpArgs const& args, Device const& device, CUstream_st* stream) noexcept;
};

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
