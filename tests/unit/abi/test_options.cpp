// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every option of a call that a kernel does not name is a reason to refuse it.
#include <gtest/gtest.h>

#include <attikos/abi/append_kv.hpp>
#include <attikos/abi/attention.hpp>
#include <attikos/abi/decode.hpp>
#include <attikos/abi/gated_mlp.hpp>
#include <attikos/abi/gemm.hpp>
#include <attikos/abi/options.hpp>
#include <type_traits>

namespace attikos::test {
namespace {

float somewhere[4];

// Sets an option to something else than its default.
template <class T>
void ask(T*& pointer) {
  pointer = reinterpret_cast<T*>(somewhere);
}
void ask(bool& x) { x = !x; }
void ask(double& x) { x += 1; }
void ask(std::int64_t& x) { ++x; }
template <class Enumeration>
requires std::is_enum_v<Enumeration>
void ask(Enumeration& x) { x = static_cast<Enumeration>(x == Enumeration{0} ? 1 : 0); }
void ask(abi::Offsets& x) { x.data = somewhere; }
void ask(abi::ScaleGrid& x) { x.data = somewhere; }
void ask(abi::GemmTile& x) { x.m = 1; }

/// A call that asks for one option: a kernel that knows all others refuses it with a reason of its
/// own, and one that knows it alone takes it.
template <class Args, class Option, class Ask>
void expect_refused(Option option, char const* reason, Ask const& set) {
  SCOPED_TRACE(reason);
  Args args;
  set(args);
  EXPECT_TRUE(abi::options_of(args).has(option));
  EXPECT_TRUE(abi::options_of(args).without(option).empty());
  abi::OptionSet<Option> others;
  for (int i = 0; i < 32; ++i)
    others = others.with(static_cast<Option>(i), static_cast<Option>(i) != option);
  EXPECT_STREQ(abi::beyond(args, others), reason);
  EXPECT_EQ(abi::beyond(args, abi::OptionSet<Option>(option)), nullptr);
  EXPECT_EQ(abi::beyond(Args{}, abi::OptionSet<Option>()), nullptr);
}
#define EXPECT_REFUSED(member, reason) \
  expect_refused<Args>(Option::member, reason, [](Args& args) { ask(args.member); });
#define EXPECT_LATER_REFUSED(kind, name, initial, meaning) EXPECT_REFUSED(name, "it has no " #name)

TEST(Options, OfAttention) {
  using Args = abi::AttentionArgs;
  using Option = abi::AttentionOption;
  ATTIKOS_ATTENTION_ARGUMENTS(EXPECT_REFUSED)
  ATTIKOS_LATER_SCORE_OPTIONS(EXPECT_LATER_REFUSED)
}
TEST(Options, OfDecodeAreThoseOfAttention) {
  using Args = abi::DecodeArgs;
  using Option = abi::AttentionOption;
  ATTIKOS_ATTENTION_ARGUMENTS(EXPECT_REFUSED)
  ATTIKOS_LATER_SCORE_OPTIONS(EXPECT_LATER_REFUSED)
}
TEST(Options, OfAppendKv) {
  using Args = abi::AppendKvArgs;
  using Option = abi::AppendKvOption;
  ATTIKOS_APPEND_KV_ARGUMENTS(EXPECT_REFUSED)
}
TEST(Options, OfGemm) {
  using Args = abi::GemmArgs;
  using Option = abi::GemmOption;
  ATTIKOS_GEMM_ARGUMENTS(EXPECT_REFUSED)
}
TEST(Options, OfGatedMlp) {
  using Args = abi::GatedMlpArgs;
  using Option = abi::GatedMlpOption;
  ATTIKOS_GATED_MLP_ARGUMENTS(EXPECT_REFUSED)
}

/// What comes to be asked for and has no reason yet is refused all the same.
TEST(Options, WithoutAReasonAreRefused) {
  enum class Option : std::uint8_t { known, forgotten };
  constexpr abi::OptionReason<Option> reasons[] = {{Option::known, "it has a reason"}};
  abi::OptionSet<Option> const asked(Option::forgotten);
  EXPECT_STREQ(abi::first_unknown(reasons, asked, {Option::known}),
               "it does not know an option of the call");
  EXPECT_EQ(abi::first_unknown(reasons, asked, asked), nullptr);
}

}  // namespace
}  // namespace attikos::test
