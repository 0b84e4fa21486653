// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Facts about devices, and the kernels an operation may name.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/core/device_info.hpp>
#include <attikos/list_kernels.hpp>
#include <sstream>
#include <string>
#include <thread>

#include "support/messages.hpp"
#include "support/tensors.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;

TEST(DeviceInfo, FollowsFromTheComputeCapability) {
  struct Row {
    int major, minor;
    Architecture architecture;
    bool tma, fp8, wgmma;
  };
  for (auto const& row : {Row{7, 0, Architecture::volta, false, false, false},
                          Row{7, 2, Architecture::volta, false, false, false},
                          Row{7, 5, Architecture::turing, false, false, false},
                          Row{8, 0, Architecture::ampere, false, false, false},
                          Row{8, 6, Architecture::ampere, false, false, false},
                          Row{8, 9, Architecture::ada, false, true, false},
                          Row{9, 0, Architecture::hopper, true, true, true},
                          Row{10, 0, Architecture::blackwell, true, true, false},
                          Row{12, 1, Architecture::blackwell, true, true, false},
                          Row{6, 1, Architecture::unknown, false, false, false},
                          Row{99, 0, Architecture::unknown, true, true, false}}) {
    DeviceInfo info;
    detail::set_compute_capability(info, row.major, row.minor);
    EXPECT_EQ(info.architecture, row.architecture) << row.major << "." << row.minor;
    EXPECT_EQ(info.tma, row.tma) << row.major << "." << row.minor;
    EXPECT_EQ(info.fp8, row.fp8) << row.major << "." << row.minor;
    EXPECT_EQ(info.warpgroup_mma, row.wgmma) << row.major << "." << row.minor;
  }
}

TEST(DeviceInfo, NamesAreSpelledAsInTheEnumerations) {
  EXPECT_STREQ(architecture_name(Architecture::volta), "volta");
  EXPECT_STREQ(architecture_name(Architecture::turing), "turing");
  EXPECT_STREQ(architecture_name(Architecture::ampere), "ampere");
  EXPECT_STREQ(architecture_name(Architecture::ada), "ada");
  EXPECT_STREQ(architecture_name(Architecture::hopper), "hopper");
  EXPECT_STREQ(architecture_name(Architecture::blackwell), "blackwell");
  EXPECT_STREQ(architecture_name(Architecture::host), "host");
  EXPECT_STREQ(architecture_name(Architecture::unknown), "unknown");
  EXPECT_STREQ(simd_name(SimdLevel::avx512), "avx512");
  EXPECT_STREQ(simd_name(SimdLevel::neon), "neon");
  EXPECT_STREQ(simd_name(SimdLevel::none), "none");
}

TEST(DeviceInfo, ProcessorNamesInLinuxsForms) {
  auto const name = [](char const* text) {
    std::istringstream stream(text);
    return detail::processor_name_in(stream);
  };
  EXPECT_EQ(name("processor\t: 0\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9654 \nflags\t: fpu\n"),
            "AMD EPYC 9654");
  EXPECT_EQ(name("processor : 0\nHardware\t: BCM2835\nModel\t\t: Raspberry Pi 4\n"),
            "Raspberry Pi 4");
  EXPECT_EQ(name("model name\t:\nmodel name\t: second\n"), "second");
  EXPECT_EQ(name("processor\t: 0\n"), "");
  EXPECT_EQ(name(": odd\n"), "");
  EXPECT_EQ(name(""), "");
}

template <class Space>
void check_host() {
  Space const exec;
  auto const info = device_info(exec);
  EXPECT_FALSE(info.name.empty());
  EXPECT_EQ(info.execution_space, Space::name());
  EXPECT_EQ(info.architecture, Architecture::host);
  EXPECT_EQ(info.ordinal, -1);
  EXPECT_EQ(info.compute_major, 0);
  EXPECT_EQ(info.sm_count, 0);
  EXPECT_EQ(info.shared_memory_per_sm, 0);
  EXPECT_FALSE(info.tma || info.fp8 || info.warpgroup_mma);
  EXPECT_EQ(info.threads, exec.concurrency());
  EXPECT_GE(info.threads, 1);
  EXPECT_NE(info.simd, SimdLevel::none);
  // The level says no more than the vectors that kernels use.
  int const expected = info.simd == SimdLevel::avx512                                ? 64
                       : info.simd == SimdLevel::avx2 || info.simd == SimdLevel::avx ? 32
                                                                                     : 16;
  EXPECT_EQ(info.vector_bytes, expected);
  EXPECT_EQ(info.host_isa, host_isa());
#if defined(__linux__)
  EXPECT_GT(info.memory_bytes, std::int64_t{1} << 24);
#endif
  auto const text = info.to_string();
  EXPECT_NE(text.find(info.name), std::string::npos) << text;
  EXPECT_NE(text.find(simd_name(info.simd)), std::string::npos) << text;
  EXPECT_NE(text.find(host_isa_name(info.host_isa)), std::string::npos) << text;
  EXPECT_NE(text.find("threads: " + std::to_string(info.threads)), std::string::npos) << text;
}

TEST(DeviceInfo, OfHostSpaces) {
#if defined(KOKKOS_ENABLE_SERIAL)
  check_host<Kokkos::Serial>();
#endif
  check_host<Kokkos::DefaultHostExecutionSpace>();
}

TEST(DeviceInfo, OfTheDefaultSpaceLaunchesAndAllocatesNothing) {
  static int events;
  events = 0;
  auto const before = Kokkos::Tools::Experimental::get_callbacks();
  Kokkos::Tools::Experimental::set_begin_fence_callback(
      [](char const*, std::uint32_t, std::uint64_t*) { ++events; });
  Kokkos::Tools::Experimental::set_allocate_data_callback(
      [](Kokkos::Tools::SpaceHandle, char const*, void const*, std::uint64_t) { ++events; });
  auto const info = device_info();
  EXPECT_EQ(events, 0);
  Kokkos::Tools::Experimental::set_callbacks(before);
  EXPECT_EQ(info.execution_space, Exec::name());
  EXPECT_EQ(info.to_string(), device_info(Exec()).to_string());
}

TEST(DeviceInfo, OfAnOrdinal) {
#if defined(KOKKOS_ENABLE_CUDA)
  Kokkos::Cuda const exec;
  auto const info = device_info(exec.cuda_device());
  EXPECT_EQ(info.to_string(), device_info(exec).to_string());
  EXPECT_GT(info.sm_count, 0);
  EXPECT_GT(info.shared_memory_per_sm, 0);
  EXPECT_GT(info.memory_bytes, std::int64_t{1} << 30);
  EXPECT_GE(info.compute_major, 7);
  EXPECT_EQ(info.simd, SimdLevel::none);
  expect_error<DeviceError>([] { device_info(4096); },
                            {"attikos::device_info: there is no CUDA device 4096"});
  EXPECT_EQ(cudaPeekAtLastError(), cudaSuccess);
#else
  expect_error<DeviceError>(
      [] { device_info(0); },
      {"attikos::device_info: there is no CUDA device 0: Kokkos was built without CUDA"});
#endif
}

// --- list_kernels
// ---------------------------------------------------------------------------------

struct Fake {};
struct Fast {
  static constexpr char const* name = "fake/fast";
};
struct Faster {
  static constexpr char const* name = "fake/faster";
};

}  // namespace
}  // namespace attikos::test

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {
template <>
struct Specializations<test::Fake, Kokkos::DefaultHostExecutionSpace, float16, bfloat16, float> {
  using kernels = KernelList<test::Faster, test::Fast>;
};
template <>
struct Specializations<test::Fake, Kokkos::DefaultHostExecutionSpace, std::int8_t, std::int8_t,
                       std::int32_t> {
  using kernels = KernelList<test::Fast>;
};
template <>
struct Specializations<test::Fake, Kokkos::DefaultHostExecutionSpace, bfloat16, float> {
  using kernels = KernelList<test::Faster>;
};
template <>
struct Specializations<test::Fake, Kokkos::DefaultHostExecutionSpace, double> {
  using kernels = KernelList<test::Faster>;
};
}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos

namespace attikos::test {
namespace {

TEST(ListKernels, CollectsEveryCandidateOnceWithItsTypes) {
  detail::KernelCollector triples;
  triples.add_portable("portable", "everywhere");
  triples.add_each_triple<Fake>();
  std::string const space = Kokkos::DefaultHostExecutionSpace::name();
  auto const& list = triples.list();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[0].name, "portable");
  EXPECT_EQ(list[1].name, "fake/faster");
  EXPECT_EQ(list[1].description, space + ": float16, bfloat16, float32");
  EXPECT_EQ(list[2].name, "fake/fast");
  EXPECT_EQ(list[2].description,
            space + ": float16, bfloat16, float32; " + space + ": int8, int8, int32");
  detail::KernelCollector others;
  others.add_each_type<Fake>();
  others.add_each_pair<Fake>();
  ASSERT_EQ(others.list().size(), 1u);
  EXPECT_EQ(others.list()[0].description, space + ": float64; " + space + ": bfloat16, float32");
}

bool lists(std::vector<KernelInfo> const& list, std::string const& name) {
  return std::any_of(list.begin(), list.end(), [&](auto const& k) { return k.name == name; });
}

TEST(ListKernels, WhatExplainNamesIsListed) {
  Tensor<float, 2, Exec> a({8, 9}), b({9, 7}), c({8, 7}), w({7, 9});
  EXPECT_TRUE(lists(list_kernels(op::gemm),
                    explain(op::gemm, Exec(), a.view(), b.view(), c.view()).kernel));
  EXPECT_TRUE(lists(list_kernels(op::gated_mlp),
                    explain(op::gated_mlp, Exec(), a.view(), w.view(), w.view(), c.view()).kernel));
  Tensor<float, 4, Exec> q({1, 2, 3, 8}), k({1, 2, 5, 8}), v({1, 2, 5, 8}), out({1, 2, 3, 8});
  for (auto algorithm :
       {AttentionAlgorithm::flash, AttentionAlgorithm::tiled, AttentionAlgorithm::naive}) {
    EXPECT_TRUE(lists(list_kernels(op::attention),
                      explain(op::attention, Exec(), q.view(), k.view(), v.view(), out.view(),
                              AttentionOptions{.algorithm = algorithm})
                          .kernel));
  }
  EXPECT_TRUE(lists(list_kernels(op::decode),
                    explain(op::decode, q.view(), k.view(), v.view(), out.view()).kernel));
  EXPECT_TRUE(
      lists(list_kernels(op::append_kv),
            explain(op::append_kv, q.const_view(), out.const_view(), k.view(), v.view()).kernel));
  Tensor<float, 3, Exec> lse({1, 2, 3});
  Tensor<float, 4, Exec> dq({1, 2, 3, 8}), dk({1, 2, 5, 8}), dv({1, 2, 5, 8});
  EXPECT_TRUE(lists(
      list_kernels(op::attention_backward),
      explain(op::attention_backward, q.view(), k.const_view(), v.const_view(), out.const_view(),
              lse.const_view(), out.const_view(), dq.view(), dk.view(), dv.view())
          .kernel));
}

TEST(ListKernels, EveryEntryHasANameAndOneLine) {
  for (auto const& list : {list_kernels(op::gemm), list_kernels(op::attention),
                           list_kernels(op::gated_mlp), list_kernels(op::decode),
                           list_kernels(op::append_kv), list_kernels(op::attention_backward)}) {
    ASSERT_FALSE(list.empty());
    EXPECT_EQ(list[0].name.rfind("portable", 0), 0u);
    for (auto const& kernel : list) {
      EXPECT_FALSE(kernel.name.empty());
      EXPECT_FALSE(kernel.description.empty()) << kernel.name;
      EXPECT_EQ(kernel.description.find('\n'), std::string::npos) << kernel.name;
    }
  }
}

#if defined(KOKKOS_ENABLE_CUDA) && defined(ATTIKOS_HAVE_CUDA_COMPANION)
TEST(ListKernels, TheCompanionsKernelsAreListed) {
  EXPECT_TRUE(lists(list_kernels(op::gemm), abi::GemmSm75WmmaF16::name));
  EXPECT_TRUE(lists(list_kernels(op::attention), abi::AttentionSm75WmmaF16::name));
  EXPECT_TRUE(lists(list_kernels(op::append_kv), abi::AppendKvSm80Simt::name));
}
#endif

}  // namespace
}  // namespace attikos::test
