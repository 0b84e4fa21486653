// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every option of a call that a kernel does not name is a reason to refuse it.
#include <gtest/gtest.h>

#include <attikos/abi/append_kv.hpp>
#include <attikos/abi/attention.hpp>
#include <attikos/abi/decode.hpp>
#include <attikos/abi/options.hpp>
#include <attikos/attention/attention_small.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace attikos::test {
namespace {

/// Calls that ask for one option each.
template <class Args>
struct Asking {
  std::vector<std::pair<Args, int>> calls;

  template <class Option, class Change>
  void with(Option option, Change const& change) {
    Args args;
    change(args);
    calls.emplace_back(args, static_cast<int>(option));
  }

  /// Each is refused by a kernel that knows all others, with words of its own, and taken by one
  /// that knows it alone; and `last`, with all before it, has a call.
  template <class Option>
  void expect_refused(Option last) {
    ASSERT_EQ(calls.size(), static_cast<std::size_t>(last) + 1);
    std::set<int> seen;
    for (auto const& [args, index] : calls) {
      SCOPED_TRACE(index);
      seen.insert(index);
      abi::OptionSet<Option> others;
      for (int i = 0; i <= static_cast<int>(last); ++i)
        others = others.with(static_cast<Option>(i), i != index);
      char const* const reason = abi::beyond(args, others);
      ASSERT_NE(reason, nullptr);
      EXPECT_STRNE(reason, "it does not know an option of the call");
      EXPECT_EQ(abi::beyond(args, abi::OptionSet<Option>(static_cast<Option>(index))), nullptr);
    }
    EXPECT_EQ(seen.size(), calls.size());
    EXPECT_EQ(abi::beyond(Args{}, abi::OptionSet<Option>()), nullptr);
  }
};

float somewhere[4];
std::int32_t numbers[4];

Asking<abi::AttentionArgs> attention_calls() {
  using Option = abi::AttentionOption;
  using Args = abi::AttentionArgs;
  Asking<Args> asking;
  asking.with(Option::lse, [](Args& g) { g.lse = somewhere; });
  asking.with(Option::softcap, [](Args& g) { g.softcap = 30; });
  asking.with(Option::causal, [](Args& g) { g.causal = true; });
  asking.with(Option::top_left, [](Args& g) { g.causal_alignment = CausalAlignment::top_left; });
  asking.with(Option::window, [](Args& g) { g.window_right = 0; });
  asking.with(Option::lengths_q, [](Args& g) { g.lengths_q = numbers; });
  asking.with(Option::lengths_kv, [](Args& g) { g.lengths_kv = numbers; });
  asking.with(Option::packed_q, [](Args& g) { g.cu_seqlens_q.data = numbers; });
  asking.with(Option::packed_kv, [](Args& g) { g.cu_seqlens_kv.data = numbers; });
  asking.with(Option::pages, [](Args& g) { g.page_table = numbers; });
  asking.with(Option::bias, [](Args& g) { g.bias = somewhere; });
  asking.with(Option::mask,
              [](Args& g) { g.mask = reinterpret_cast<std::uint8_t const*>(somewhere); });
  asking.with(Option::alibi, [](Args& g) { g.alibi = somewhere; });
  asking.with(Option::sinks, [](Args& g) { g.sinks = somewhere; });
  asking.with(Option::factors, [](Args& g) { g.descale_v = somewhere; });
  return asking;
}

TEST(Options, OfAttention) { attention_calls().expect_refused(abi::AttentionOption::factors); }

TEST(Options, OfDecodeAreThoseOfAttention) {
  for (auto const& [attention, index] : attention_calls().calls) {
    abi::DecodeArgs args;
    static_cast<abi::AttentionArgs&>(args) = attention;
    EXPECT_NE(abi::beyond(args, {}), nullptr) << index;
  }
}

TEST(Options, OfAppendKv) {
  using Option = abi::AppendKvOption;
  using Args = abi::AppendKvArgs;
  Asking<Args> asking;
  asking.with(Option::packed_new, [](Args& g) { g.cu_seqlens_new.data = numbers; });
  asking.with(Option::new_lengths, [](Args& g) { g.new_lengths = numbers; });
  asking.with(Option::cache_lengths, [](Args& g) { g.cache_lengths = numbers; });
  asking.with(Option::pages, [](Args& g) { g.page_table = numbers; });
  asking.with(Option::rotation, [](Args& g) { g.sin = somewhere; });
  asking.with(Option::interleaved, [](Args& g) { g.interleaved = true; });
  asking.with(Option::half_width, [](Args& g) { g.half_width = true; });
  asking.with(Option::queries, [](Args& g) { g.q = somewhere; });
  asking.with(Option::packed_q, [](Args& g) { g.cu_seqlens_q.data = numbers; });
  asking.with(Option::queries_share_position, [](Args& g) { g.queries_share_position = true; });
  asking.expect_refused(Option::queries_share_position);
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
