// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What stands for kernels that a build leaves out: each refuses every call, says why, and launches
// nothing. This program has nothing but these. Needs no GPU.
#include "all_kernels.hpp"
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
TEST(LeftOut, Attention) {
  test::AttentionKernels::each([]<class Kernel>() { refuses<abi::AttentionArgs, Kernel>(); });
}
TEST(LeftOut, AttentionBackward) {
  test::AttentionBackwardKernels::each(
      []<class Kernel>() { refuses<abi::AttentionBackwardArgs, Kernel>(); });
}
TEST(LeftOut, Decode) {
  test::DecodeKernels::each([]<class Kernel>() { refuses<abi::DecodeArgs, Kernel>(); });
}
TEST(LeftOut, AppendKv) {
  test::AppendKvKernels::each([]<class Kernel>() { refuses<abi::AppendKvArgs, Kernel>(); });
}
TEST(LeftOut, Products) {
  test::GemmKernels::each([]<class Kernel>() { refuses<abi::GemmArgs, Kernel>(); });
}
TEST(LeftOut, GatedMlp) {
  test::GatedMlpKernels::each([]<class Kernel>() { refuses<abi::GatedMlpArgs, Kernel>(); });
}

}  // namespace
