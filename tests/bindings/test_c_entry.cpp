// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What libattikos does on a processor that lacks instructions it was compiled for: its entry linked
// to a rest that asks for more than any processor has.
#include <attikos/compat/cuflash.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "../../bindings/c/src/cpu.hpp"
#include "../../bindings/c/src/entry.hpp"
#include "../../bindings/c/src/options.hpp"

namespace attikos::c {

// Instructions of two families.
std::uint64_t const required_cpu_features =
    cpu_bit(Cpu::avx2) | cpu_bit(Cpu::avx512fp16) | cpu_bit(Cpu::arm_sve2) | cpu_bit(Cpu::arm_i8mm);

namespace {
int calls = 0;
}

attikos_status create_context(std::int32_t, std::int32_t, void*, attikos_context**) noexcept {
  ++calls;
  return ATTIKOS_SUCCESS;
}
attikos_status write_device_info(std::int32_t, std::int32_t, attikos_device_info*) noexcept {
  ++calls;
  return ATTIKOS_SUCCESS;
}
attikos_status write_kernels(char const*, char*, size_t, size_t*) noexcept {
  ++calls;
  return ATTIKOS_SUCCESS;
}

// A struct that has got members since it was introduced, and one that has not yet.
struct Grown {
  std::size_t struct_size;
  double factor;
  std::int64_t later;
  std::int32_t last[2];
};
template <>
struct OptionStruct<Grown> {
  static constexpr char const* name = "grown_options";
  static constexpr std::size_t first_size = 16;
  static constexpr Grown defaults = {sizeof(Grown), 1, 0, {0, 0}};
};
struct First {
  std::size_t struct_size;
  double factor;
};
template <>
struct OptionStruct<First> {
  static constexpr char const* name = "grown_options";
  static constexpr std::size_t first_size = 16;
  static constexpr First defaults = {sizeof(First), 1};
};

int raw_forward(std::int32_t, RawForward const&, RawCall const&) noexcept { return ++calls; }
int raw_backward(std::int32_t, RawBackward const&, RawCall const&) noexcept { return ++calls; }

namespace {

std::string names(std::uint64_t features, int size = 512) {
  std::string text(static_cast<std::size_t>(size), '#');
  name_cpu_features(features, text.data(), size);
  text.resize(std::strlen(text.data()));
  return text;
}

TEST(Entry, NamesWhatIsMissing) {
  EXPECT_EQ(attikos_missing_instructions(), names(required_cpu_features & ~cpu_features()));
  EXPECT_STRNE(attikos_missing_instructions(), "");
  EXPECT_EQ(names(0), "");
  EXPECT_EQ(names(cpu_bit(Cpu::sse3)), "sse3");
  EXPECT_EQ(names(cpu_bit(Cpu::fma) | cpu_bit(Cpu::avx2)), "fma, avx2");
  EXPECT_EQ(names(cpu_bit(Cpu::avx512fp16) | cpu_bit(Cpu::arm_i8mm)), "avx512-fp16, i8mm");
  EXPECT_EQ(names(cpu_bit(Cpu::fma) | cpu_bit(Cpu::avx2), 6), "fma, ");
  EXPECT_EQ(names(~std::uint64_t{0}).find('#'), std::string::npos);
}

#if defined(__x86_64__)
TEST(Entry, KnowsWhatTheCompilerKnowsOfTheProcessor) {
  __builtin_cpu_init();
  auto const has = [](Cpu feature) { return (cpu_features() & cpu_bit(feature)) != 0; };
  EXPECT_EQ(has(Cpu::sse3), __builtin_cpu_supports("sse3") != 0);
  EXPECT_EQ(has(Cpu::sse4_2), __builtin_cpu_supports("sse4.2") != 0);
  EXPECT_EQ(has(Cpu::popcnt), __builtin_cpu_supports("popcnt") != 0);
  EXPECT_EQ(has(Cpu::avx), __builtin_cpu_supports("avx") != 0);
  EXPECT_EQ(has(Cpu::avx2), __builtin_cpu_supports("avx2") != 0);
  EXPECT_EQ(has(Cpu::fma), __builtin_cpu_supports("fma") != 0);
  EXPECT_EQ(has(Cpu::bmi), __builtin_cpu_supports("bmi") != 0);
  EXPECT_EQ(has(Cpu::bmi2), __builtin_cpu_supports("bmi2") != 0);
  EXPECT_EQ(has(Cpu::avx512f), __builtin_cpu_supports("avx512f") != 0);
  EXPECT_EQ(has(Cpu::avx512dq), __builtin_cpu_supports("avx512dq") != 0);
  EXPECT_EQ(has(Cpu::avx512bw), __builtin_cpu_supports("avx512bw") != 0);
  EXPECT_EQ(has(Cpu::avx512vl), __builtin_cpu_supports("avx512vl") != 0);
  EXPECT_EQ(has(Cpu::avx512vbmi), __builtin_cpu_supports("avx512vbmi") != 0);
  EXPECT_EQ(has(Cpu::avx512vnni), __builtin_cpu_supports("avx512vnni") != 0);
  EXPECT_EQ(has(Cpu::gfni), __builtin_cpu_supports("gfni") != 0);
}
#endif

TEST(Entry, RefusesInASentence) {
  float x[1] = {};
  attikos_context* context = nullptr;
  attikos_device_info info = ATTIKOS_DEVICE_INFO_INIT;
  auto const said = [](char const* operation) {
    return attikos_last_error() ==
           std::string("attikos::") + operation +
               ": this processor, or its operating system, lacks instructions that the library was "
               "compiled for: " +
               attikos_missing_instructions() +
               ". A build with -DATTIKOS_ARCHITECTURE=<processor> that fits runs here";
  };
  EXPECT_EQ(attikos_context_create(ATTIKOS_HOST, 0, nullptr, &context), ATTIKOS_DEVICE_ERROR);
  EXPECT_EQ(context, nullptr);
  EXPECT_TRUE(said("context")) << attikos_last_error();
  EXPECT_EQ(attikos_get_device_info(ATTIKOS_HOST, 0, &info), ATTIKOS_DEVICE_ERROR);
  EXPECT_TRUE(said("get_device_info")) << attikos_last_error();
  EXPECT_EQ(attikos_list_kernels("gemm", nullptr, 0, nullptr), ATTIKOS_DEVICE_ERROR);
  EXPECT_TRUE(said("list_kernels")) << attikos_last_error();
  EXPECT_EQ(attikos_attention_forward_f32(x, x, x, x, x, 1, 1, 1, 1, 1, false, nullptr),
            ATTIKOS_FA_CUDA_ERROR);
  EXPECT_TRUE(said("attention_forward")) << attikos_last_error();
  EXPECT_EQ(cuflash_attention_forward_f16(x, x, x, x, x, 1, 1, 1, 1, 1, false, nullptr),
            ATTIKOS_FA_CUDA_ERROR);
  EXPECT_EQ(
      attikos_attention_backward_f16(x, x, x, x, x, x, x, x, x, 1, 1, 1, 1, 1, false, nullptr),
      ATTIKOS_FA_CUDA_ERROR);
  EXPECT_EQ(
      cuflash_attention_backward_f32(x, x, x, x, x, x, x, x, x, 1, 1, 1, 1, 1, false, nullptr),
      ATTIKOS_FA_CUDA_ERROR);
  EXPECT_TRUE(said("attention_backward")) << attikos_last_error();
  EXPECT_EQ(calls, 0);
}

TEST(Entry, TakesStructsOfEarlierVersions) {
  EXPECT_EQ(read_options<Grown>("test", nullptr).factor, 1);
  First const old = {sizeof(First), 3};
  Grown const read = read_options("test", reinterpret_cast<Grown const*>(&old));
  EXPECT_EQ(read.struct_size, sizeof(Grown));
  EXPECT_EQ(read.factor, 3);
  EXPECT_EQ(read.later, 0);
  EXPECT_EQ(read.last[0] | read.last[1], 0);
}

TEST(Entry, TakesStructsOfLaterVersionsWhereWhatIsNewIsZero) {
  Grown given = {sizeof(Grown), 3, 0, {0, 0}};
  auto const read = [&] {
    return guarded(
        [&] { EXPECT_EQ(read_options("test", reinterpret_cast<First const*>(&given)).factor, 3); });
  };
  EXPECT_EQ(read(), ATTIKOS_SUCCESS);
  given.last[1] = 1;
  EXPECT_EQ(read(), ATTIKOS_INVALID_STRUCT);
  EXPECT_STREQ(attikos_last_error(),
               "attikos::test: grown_options of 32 bytes has a member in use at byte 28 that this "
               "library does not know; it knows 16 bytes");
}

TEST(Entry, RefusesSizesOfNoVersion) {
  Grown given = {0, 3, 0, {0, 0}};
  for (std::size_t const size : {0u, 8u, 15u, 17u, 31u, 33u, 65544u}) {
    given.struct_size = size;
    EXPECT_EQ(guarded([&] { read_options("test", &given); }), ATTIKOS_INVALID_STRUCT);
    EXPECT_EQ(attikos_last_error(),
              "attikos::test: struct_size of grown_options is " + std::to_string(size) +
                  "; expected 32 as in this version or, of others, a multiple of 8 from 16 on, set "
                  "with the initializer macro");
  }
}

}  // namespace
}  // namespace attikos::c
