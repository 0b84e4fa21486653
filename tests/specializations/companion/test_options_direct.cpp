// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every option of every operation against every kernel: one that is on the kernel's list is taken,
// and the result follows it; any other is refused for itself. Suites that are not called Runs need
// no GPU.
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "device_regions.hpp"
#include "direct_common.hpp"
#include "option_calls.hpp"

namespace {

using namespace attikos;
namespace abi = attikos::abi;  // the standard library has a global ::abi
using test::Regions;

/// A Hopper card, which all kernels run on.
abi::Device const hopper{0, 9, 0, abi::Architecture::hopper, 132, 232448};

/// Addresses that nothing reads, as far apart as the regions are.
Regions nowhere() {
  Regions at;
  std::uintptr_t next = std::uintptr_t{1} << 40;
  for (auto* address : {&at.floats, &at.ascending, &at.few, &at.flags, &at.results,
                        &at.more_results, &at.workspace, &at.result_pointers})
    *address = next += Regions::bytes;
  for (auto& address : at.matrices) address = next += Regions::bytes;
  for (auto& address : at.pointers) address = next += Regions::bytes;
  return at;
}

/// A tile that the caller chooses is one of those that a kernel has for the call.
template <class Kernel, class Args>
void choose_tile(Args& g) {
  if constexpr (requires { Kernel::tiles(g, hopper); }) {
    if (g.tile == abi::GemmTile{}) return;
    g.tile = {};
    abi::GemmTiles const tiles = Kernel::tiles(g, hopper);
    g.tile = tiles.count > 0 ? tiles.tile[tiles.count - 1] : abi::GemmTile{1, 1, 1};
  }
}

/// Whether a kernel that lists an option takes one of the calls with it, and one that does not
/// refuses all of them with the option's own reason.
template <class Kernel, class Args>
void expect_listed(std::vector<Args> const& all, Regions const& at) {
  SCOPED_TRACE(Kernel::name);
  if (first_left_out<Kernel>(nullptr) != nullptr) return;
  auto const calls = test::taken_calls<Kernel>(all, hopper);
  EXPECT_FALSE(calls.empty());
  for (auto const& [name, option, ask] : test::questions<Args>()) {
    SCOPED_TRACE(name);
    auto const listed = Kernel::takes.has(option);
    bool taken = false;
    for (Args g : calls) {
      if (abi::options_of(test::with_options(g)).has(option)) {
        taken = true;  // a call that was taken has it
        continue;
      }
      ask(g, at);
      auto const& asking = test::with_options(g);
      ASSERT_TRUE(abi::options_of(asking).has(option));
      choose_tile<Kernel>(g);
      abi::Verdict const verdict = Kernel::accepts(g, hopper);
      taken = taken || verdict.ok;
      if (listed) continue;
      ASSERT_FALSE(verdict.ok);
      char const* const reason = abi::beyond(asking, abi::options_of(asking).without(option));
      ASSERT_STREQ(verdict.reason, reason);
    }
    EXPECT_EQ(taken, listed);
  }
}

template <class Kernels, class Args>
void expect_all_listed() {
  Regions const at = nowhere();
  auto const calls = test::plain_calls(std::type_identity<Args>{}, at);
  Kernels::each([&]<class Kernel>() { expect_listed<Kernel>(calls, at); });
}

TEST(OptionsRefuse, Attention) { expect_all_listed<test::AttentionKernels, abi::AttentionArgs>(); }
TEST(OptionsRefuse, AttentionBackward) {
  expect_all_listed<test::AttentionBackwardKernels, abi::AttentionBackwardArgs>();
}
TEST(OptionsRefuse, Decode) { expect_all_listed<test::DecodeKernels, abi::DecodeArgs>(); }
TEST(OptionsRefuse, AppendKv) { expect_all_listed<test::AppendKvKernels, abi::AppendKvArgs>(); }
TEST(OptionsRefuse, Gemm) { expect_all_listed<test::GemmKernels, abi::GemmArgs>(); }
TEST(OptionsRefuse, GatedMlp) { expect_all_listed<test::GatedMlpKernels, abi::GatedMlpArgs>(); }

/// A second card of the process, of another kind: what is said of one says nothing of the other.
abi::Device const second{1, 8, 0, abi::Architecture::ampere, 108, 166912};

template <class Kernel, class Args>
void expect_own_answers(std::vector<Args> const& calls) {
  SCOPED_TRACE(Kernel::name);
  auto const answer = [](Args const& g, abi::Device const& device) {
    abi::Verdict const verdict = Kernel::accepts(g, device);
    std::string text = verdict.reason;
    if constexpr (requires { Kernel::workspace_bytes(g, device); })
      if (verdict.ok) text += std::to_string(Kernel::workspace_bytes(g, device));
    return text;
  };
  std::vector<std::string> of_hopper, of_second;
  for (Args const& g : calls) of_hopper.push_back(answer(g, hopper));
  for (Args const& g : calls) of_second.push_back(answer(g, second));
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(answer(calls[i], second), of_second[i]);
    EXPECT_EQ(answer(calls[i], hopper), of_hopper[i]);
  }
  if (std::string_view(Kernel::name).find("sm90") != std::string_view::npos) {
    for (Args const& g : calls) EXPECT_FALSE(Kernel::accepts(g, second).ok);
  }
}

template <class Kernels, class Args>
void expect_all_own_answers() {
  auto const calls = test::plain_calls(std::type_identity<Args>{}, nowhere());
  Kernels::each([&]<class Kernel>() { expect_own_answers<Kernel>(calls); });
}

TEST(SecondCard, HasAnswersOfItsOwn) {
  expect_all_own_answers<test::AttentionKernels, abi::AttentionArgs>();
  expect_all_own_answers<test::AttentionBackwardKernels, abi::AttentionBackwardArgs>();
  expect_all_own_answers<test::DecodeKernels, abi::DecodeArgs>();
  expect_all_own_answers<test::AppendKvKernels, abi::AppendKvArgs>();
  expect_all_own_answers<test::GemmKernels, abi::GemmArgs>();
  expect_all_own_answers<test::GatedMlpKernels, abi::GatedMlpArgs>();
}

/// Asks for the gradient of a bias that has all extents of the scores.
void ask_d_bias(abi::AttentionBackwardArgs& a, Regions const& at) {
  abi::AttentionArgs& g = a.forward;
  std::int64_t const extent[] = {g.batch, g.heads_q, g.seqlen_q, g.seqlen_kv};
  g.bias = reinterpret_cast<void const*>(at.floats);
  test::lay_out(g.bias_stride, g.heads_q, g.seqlen_q, g.seqlen_kv);
  test::lay_out(a.d_bias_stride, g.heads_q, g.seqlen_q, g.seqlen_kv);
  std::copy_n(extent, 4, a.d_bias_extent);
  a.d_bias = reinterpret_cast<void*>(at.more_results + test::more_gradients);
}

// What gradients have beside the options of attention().
TEST(OptionsRefuse, GradientsOfTerms) {
  using Args = abi::AttentionBackwardArgs;
  Regions const at = nowhere();
  auto const all = test::plain_calls(std::type_identity<Args>{}, at);
  test::AttentionBackwardKernels::each([&]<class Kernel>() {
    SCOPED_TRACE(Kernel::name);
    if (first_left_out<Kernel>(nullptr) != nullptr) return;
    bool const has_bias = Kernel::takes.has(abi::AttentionOption::bias);
    for (Args const& plain : test::taken_calls<Kernel>(all, hopper)) {
      Args g = plain;
      ask_d_bias(g, at);
      EXPECT_STREQ(Kernel::accepts(g, hopper).reason, has_bias ? "" : "it has no bias");
      g.forward.bias_stride[0] = 0, g.d_bias_extent[0] = 1;
      EXPECT_STREQ(
          Kernel::accepts(g, hopper).reason,
          has_bias ? "the bias is broadcast, and its gradient a sum of many" : "it has no bias");
      g.forward.bias = nullptr;
      EXPECT_FALSE(Kernel::accepts(g, hopper).ok);
      g = plain;
      g.forward.sinks = reinterpret_cast<void const*>(at.floats);
      test::complete(g, "sinks", at);
      bool const has_sinks = Kernel::takes.has(abi::AttentionOption::sinks);
      EXPECT_STREQ(Kernel::accepts(g, hopper).reason, has_sinks ? "" : "it has no sinks");
      g.forward.sinks = nullptr;
      if (g.d_sinks != nullptr) {
        EXPECT_STREQ(Kernel::accepts(g, hopper).reason, "the gradient of sinks has no sinks");
      }
    }
  });
}

/// What a kernel writes for a call.
template <class Kernel, class Args>
std::vector<std::uint8_t> results(Args const& g, std::size_t bytes, Regions const& at,
                                  abi::Device const& device) {
  std::vector<std::uint8_t> written(2 * bytes);
  std::uintptr_t const regions[] = {at.results, at.more_results};
  for (std::uintptr_t region : regions)  // about 1 in most types, for beta
    EXPECT_EQ(cudaMemset(reinterpret_cast<void*>(region), 0x3f, bytes), cudaSuccess);
  EXPECT_EQ(Kernel::launch(g, device, nullptr), cudaSuccess);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(cudaMemcpy(written.data() + static_cast<std::size_t>(i) * bytes,
                         reinterpret_cast<void const*>(regions[i]), bytes, cudaMemcpyDeviceToHost),
              cudaSuccess);
  return written;
}

/// Whether what a kernel writes differs with an option that it takes, for one call at least.
/// Which call that is depends on the option: an alignment shows in causal calls alone.
template <class Kernel, class Args>
void expect_followed(std::vector<Args> const& all, Regions const& at, abi::Device const& device) {
  SCOPED_TRACE(Kernel::name);
  if (first_left_out<Kernel>(nullptr) != nullptr) return;
  auto const calls = test::taken_calls<Kernel>(all, device);
  for (auto const& [name, option, ask] : test::questions<Args>()) {
    SCOPED_TRACE(name);
    // Who works on what, not what comes out of it; and a call of its own in GemmDirect's tests.
    if (!Kernel::takes.has(option) || name == "tile" || name == "outer") continue;
    // Gradients always have it.
    if (std::is_same_v<Args, abi::AttentionBackwardArgs> && name == "lse") continue;
    bool asked = false, follows = false, repeats = true;
    for (Args const& plain : calls) {
      if (follows || !repeats) break;
      Args g = plain;
      if (abi::options_of(test::with_options(plain)).has(option)) continue;
      ask(g, at);
      if (!test::means_something(g) || !Kernel::accepts(g, device).ok) continue;
      asked = true;
      std::size_t const bytes = written_bytes(plain);
      auto const without = results<Kernel>(plain, bytes, at, device);
      auto const with = results<Kernel>(g, bytes, at, device);
      follows = without != with;
      // And again: what was in memory before makes no difference.
      repeats = with == results<Kernel>(g, bytes, at, device);
    }
    EXPECT_TRUE(repeats);
    // Of groups a grouped product has always one kind.
    EXPECT_TRUE(follows || !asked);
    EXPECT_TRUE(asked || name == "offsets" || name == "counts");
  }
}

template <class Kernels, class Args>
void expect_all_followed() {
  abi::Device const device = abi::query_device(0);
  if (device.compute_major == 0) GTEST_SKIP() << "no CUDA device";
  DeviceRegions const memory;
  ASSERT_TRUE(memory.good());
  auto const calls = test::plain_calls(std::type_identity<Args>{}, memory.at);
  Kernels::each([&]<class Kernel>() { expect_followed<Kernel>(calls, memory.at, device); });
}

TEST(OptionsRuns, Attention) { expect_all_followed<test::AttentionKernels, abi::AttentionArgs>(); }
TEST(OptionsRuns, AttentionBackward) {
  expect_all_followed<test::AttentionBackwardKernels, abi::AttentionBackwardArgs>();
}
TEST(OptionsRuns, Decode) { expect_all_followed<test::DecodeKernels, abi::DecodeArgs>(); }
TEST(OptionsRuns, AppendKv) { expect_all_followed<test::AppendKvKernels, abi::AppendKvArgs>(); }
TEST(OptionsRuns, Gemm) { expect_all_followed<test::GemmKernels, abi::GemmArgs>(); }
TEST(OptionsRuns, GatedMlp) { expect_all_followed<test::GatedMlpKernels, abi::GatedMlpArgs>(); }

}  // namespace
