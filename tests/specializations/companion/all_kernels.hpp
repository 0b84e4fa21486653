// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// All kernels of the companion by operation. That none is missing is checked at compile time:
/// CMake counts them in abi/.
#pragma once

#include <attikos/abi/append_kv_cuda.hpp>
#include <attikos/abi/attention_backward_cuda.hpp>
#include <attikos/abi/attention_cuda.hpp>
#include <attikos/abi/decode_cuda.hpp>
#include <attikos/abi/gated_mlp.hpp>
#include <attikos/abi/gemm.hpp>

namespace attikos::test {

template <class... Kernels>
struct KernelsOf {
  static constexpr int count = sizeof...(Kernels);
  /// Calls f.operator()<Kernel>() with each.
  template <class F>
  static void each(F const& f) {
    (f.template operator()<Kernels>(), ...);
  }
};

using AttentionKernels =
    KernelsOf<abi::AttentionSm75WmmaF16, abi::AttentionSm80MmaBf16, abi::AttentionSm80MmaE4m3,
              abi::AttentionSm80MmaF16, abi::AttentionSm80MmaF64, abi::AttentionSm80MmaTf32x3,
              abi::AttentionSm80ShortBf16, abi::AttentionSm80ShortF16, abi::AttentionSm80SimtF32,
              abi::AttentionSm90ShortBf16, abi::AttentionSm90ShortF16, abi::AttentionSm90WgmmaBf16,
              abi::AttentionSm90WgmmaE4m3, abi::AttentionSm90WgmmaF16>;
using AttentionBackwardKernels =
    KernelsOf<abi::AttentionBackwardSm80MmaBf16, abi::AttentionBackwardSm80MmaF16,
              abi::AttentionBackwardSm80MmaF64, abi::AttentionBackwardSm80MmaTf32x3,
              abi::AttentionBackwardSm80ShortBf16, abi::AttentionBackwardSm80ShortF16,
              abi::AttentionBackwardSm80SimtF32, abi::AttentionBackwardSm90WgmmaBf16,
              abi::AttentionBackwardSm90WgmmaF16>;
using DecodeKernels =
    KernelsOf<abi::DecodeSm80MmaBf16, abi::DecodeSm80MmaE4m3, abi::DecodeSm80MmaF16,
              abi::DecodeSm80SimtBf16, abi::DecodeSm80SimtF16, abi::DecodeSm80SimtF32,
              abi::DecodeSm80SimtF64>;
using AppendKvKernels = KernelsOf<abi::AppendKvSm80Simt>;
using GemmKernels =
    KernelsOf<abi::GemmSm75WmmaF16, abi::GemmSm80MmaBf16, abi::GemmSm80MmaF16, abi::GemmSm80MmaF64,
              abi::GemmSm80MmaS8, abi::GemmSm80MmaTf32, abi::GemmSm80MmaTf32x3,
              abi::GemmSm80SimtF32, abi::GemmSm80SmallF32, abi::GemmSm80SmallF64,
              abi::GemmSm89MmaF8, abi::GemmSm90GroupedBf16, abi::GemmSm90GroupedF16,
              abi::GemmSm90GroupedF8, abi::GemmSm90GroupedS8, abi::GemmSm90MmaF64,
              abi::GemmSm90SimtF32, abi::GemmSm90WgmmaBf16, abi::GemmSm90WgmmaF16,
              abi::GemmSm90WgmmaF8, abi::GemmSm90WgmmaS8, abi::GemmSm90WgmmaTf32x3>;
using GatedMlpKernels = KernelsOf<abi::GatedMlpSm90WgmmaBf16, abi::GatedMlpSm90WgmmaF16>;

static_assert(AttentionKernels::count + AttentionBackwardKernels::count + DecodeKernels::count +
                      AppendKvKernels::count + GemmKernels::count + GatedMlpKernels::count ==
                  ATTIKOS_TEST_KERNELS,
              "a kernel of abi/ is in none of these lists");

}  // namespace attikos::test
