// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What stands for kernels that a build leaves out: each refuses every call, says why, and launches
// nothing. This program has nothing but these. Needs no GPU.
#include <attikos/abi/append_kv_cuda.hpp>
#include <attikos/abi/attention_cuda.hpp>
#include <attikos/abi/decode_cuda.hpp>
#include <attikos/abi/gated_mlp.hpp>
#include <string>

#include "direct_common.hpp"

namespace {

using namespace attikos;
namespace abi = attikos::abi;  // the standard library has a global ::abi

abi::Device const hopper{0, 9, 0, abi::Architecture::hopper, 132, 232448};

template <class Args, class Kernel>
void refuses() {
  SCOPED_TRACE(Kernel::name);
  Args const args;
  abi::Verdict const verdict = Kernel::accepts(args, hopper);
  EXPECT_FALSE(verdict.ok);
  EXPECT_STREQ(verdict.reason, "it was left out of this build (ATTIKOS_CUDA_LEAVE_OUT)");
  EXPECT_EQ(Kernel::launch(args, hopper, nullptr), cudaErrorNotSupported);
  if constexpr (requires { Kernel::tiles(args, hopper); }) {
    EXPECT_EQ(Kernel::tiles(args, hopper).count, 0);
  }
  if constexpr (requires { Kernel::workspace_bytes(args, hopper); }) {
    EXPECT_EQ(Kernel::workspace_bytes(args, hopper), 0u);
  }
  EXPECT_STREQ(first_left_out<Kernel>(nullptr), Kernel::name);
}
template <class Args, class... Kernels>
void each_refuses() {
  (refuses<Args, Kernels>(), ...);
}

TEST(LeftOut, Attention) {
  each_refuses<abi::AttentionArgs, abi::AttentionSm75WmmaF16, abi::AttentionSm80MmaBf16,
               abi::AttentionSm80MmaE4m3, abi::AttentionSm80MmaF16, abi::AttentionSm80MmaF64,
               abi::AttentionSm80MmaTf32x3, abi::AttentionSm80ShortBf16, abi::AttentionSm80ShortF16,
               abi::AttentionSm80SimtF32, abi::AttentionSm90ShortBf16, abi::AttentionSm90ShortF16,
               abi::AttentionSm90WgmmaBf16, abi::AttentionSm90WgmmaE4m3,
               abi::AttentionSm90WgmmaF16>();
}
TEST(LeftOut, Decode) {
  each_refuses<abi::DecodeArgs, abi::DecodeSm80MmaBf16, abi::DecodeSm80MmaE4m3,
               abi::DecodeSm80MmaF16, abi::DecodeSm80SimtBf16, abi::DecodeSm80SimtF16,
               abi::DecodeSm80SimtF32, abi::DecodeSm80SimtF64>();
}
TEST(LeftOut, AppendKv) { each_refuses<abi::AppendKvArgs, abi::AppendKvSm80Simt>(); }
TEST(LeftOut, Products) {
  each_refuses<abi::GemmArgs, abi::GemmSm75WmmaF16, abi::GemmSm80MmaBf16, abi::GemmSm80MmaF16,
               abi::GemmSm80MmaF64, abi::GemmSm80MmaS8, abi::GemmSm80MmaTf32,
               abi::GemmSm80MmaTf32x3, abi::GemmSm80SimtF32, abi::GemmSm80SmallF32,
               abi::GemmSm80SmallF64, abi::GemmSm89MmaF8, abi::GemmSm90GroupedBf16,
               abi::GemmSm90GroupedF16, abi::GemmSm90GroupedF8, abi::GemmSm90GroupedS8,
               abi::GemmSm90MmaF64, abi::GemmSm90SimtF32, abi::GemmSm90WgmmaBf16,
               abi::GemmSm90WgmmaF16, abi::GemmSm90WgmmaF8, abi::GemmSm90WgmmaS8,
               abi::GemmSm90WgmmaTf32x3>();
}
TEST(LeftOut, GatedMlp) {
  each_refuses<abi::GatedMlpArgs, abi::GatedMlpSm90WgmmaBf16, abi::GatedMlpSm90WgmmaF16>();
}

}  // namespace
