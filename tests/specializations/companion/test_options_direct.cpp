// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every option of every operation against every kernel: one that is on the kernel's list is taken,
// and the result follows it; any other is refused for itself. Suites that are not called Runs need
// no GPU.
#include <cstring>
#include <memory>
#include <utility>

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
      EXPECT_STREQ(Kernel::accepts(g, hopper).reason, "");
    }
  });
}

/// Memory of the device behind the regions.
class DeviceRegions {
 public:
  DeviceRegions() {
    constexpr std::size_t n = Regions::bytes / sizeof(float);
    constexpr std::size_t count = std::size_t{1} << 20;
    std::vector<float> floats(count);
    std::vector<std::int32_t> ascending(count), few(count);
    std::vector<std::uint8_t> flags(4 * count);
    for (std::size_t i = 0; i < count; ++i) {
      floats[i] = 0.25f + static_cast<float>(mix(static_cast<std::uint32_t>(i)) >> 8) * 0x1p-24f;
      ascending[i] = static_cast<std::int32_t>(std::min<std::size_t>(7 * (i + 1), 1u << 30));
      few[i] = 1 + static_cast<std::int32_t>((5 * i) % 15);
    }
    for (std::size_t i = 0; i < flags.size(); ++i)
      flags[i] = static_cast<std::uint8_t>(mix(static_cast<std::uint32_t>(i)) >> 31);
    at.floats = filled(floats), at.ascending = filled(ascending), at.few = filled(few);
    at.flags = filled(flags);
    for (DType type : test::element_types) {
      auto const index = static_cast<std::size_t>(static_cast<int>(type));
      at.matrices[index] = filled(elements(type));
      at.pointers[index] = filled(addresses(at.matrices[index]));
    }
    at.results = allocated(), at.more_results = allocated(), at.workspace = allocated();
    at.result_pointers = filled(addresses(at.results));
    static_assert(n >= count);
  }

  Regions at;
  bool good() const { return good_; }

 private:
  struct Free {
    void operator()(void* memory) const { cudaFree(memory); }
  };

  std::uintptr_t allocated() {
    void* memory = nullptr;
    good_ = good_ && cudaMalloc(&memory, Regions::bytes) == cudaSuccess;
    memory_.emplace_back(memory);
    return reinterpret_cast<std::uintptr_t>(memory);
  }
  /// A region full of copies of these numbers.
  template <class T>
  std::uintptr_t filled(std::vector<T> const& numbers) {
    std::uintptr_t const address = allocated();
    std::size_t const part = numbers.size() * sizeof(T);
    if (!good_) return address;
    for (std::size_t done = 0; done < Regions::bytes; done += part)
      good_ = good_ && cudaMemcpy(reinterpret_cast<char*>(address) + done, numbers.data(),
                                  std::min(part, Regions::bytes - done),
                                  cudaMemcpyHostToDevice) == cudaSuccess;
    return address;
  }
  /// Elements in about [-1, 1], and small integers, as bytes.
  static std::vector<std::uint8_t> elements(DType type) {
    std::size_t const size = static_cast<std::size_t>(dtype_size(type));
    std::vector<std::uint8_t> bytes(std::size_t{1} << 21);
    for (std::size_t i = 0; i < bytes.size() / size; ++i) {
      std::uint32_t const random = mix(static_cast<std::uint32_t>(i) + 77);
      std::uint64_t bits = 0;
      float const x = static_cast<float>(random >> 8) * 0x1p-23f - 1;
      double const y = static_cast<double>(x);
      std::uint32_t const single = [&] {
        std::uint32_t word;
        std::memcpy(&word, &x, sizeof word);
        return word;
      }();
      switch (type) {  // narrower floats by what is left of the bits of wider ones
        case DType::float64:
          std::memcpy(&bits, &y, sizeof bits);
          break;
        case DType::float32:
          bits = single;
          break;
        case DType::bfloat16:
          bits = single >> 16;
          break;
        case DType::float16:  // exponents 0x0c00 to 0x3800: up to 1
          bits = (random & 0x83ffu) | (0x2c00u + ((random >> 10) % 4 << 10));
          break;
        case DType::float8_e4m3:
          bits = (random & 0x87u) | ((4 + (random >> 8) % 4) << 3);
          break;
        case DType::float8_e5m2:
          bits = (random & 0x83u) | ((12 + (random >> 8) % 4) << 2);
          break;
        default:
          bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(random % 15) - 7);
      }
      std::memcpy(bytes.data() + i * size, &bits, size);
    }
    return bytes;
  }
  /// Addresses 64 bytes apart in the first half of a region.
  static std::vector<std::uintptr_t> addresses(std::uintptr_t first) {
    std::vector<std::uintptr_t> list(std::size_t{1} << 20);
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = first + 64 * i;
    return list;
  }

  std::vector<std::unique_ptr<void, Free>> memory_;
  bool good_ = true;
};

/// Bytes that a call can write in each of the regions of results.
std::size_t written_bytes(abi::AttentionArgs const& g) {
  return static_cast<std::size_t>(g.batch * g.heads_q * g.seqlen_q * g.head_dim_v * 8);
}
std::size_t written_bytes(abi::AttentionBackwardArgs const&) {
  return test::more_gradients + (std::size_t{4} << 20);
}
std::size_t written_bytes(abi::AppendKvArgs const&) { return Regions::bytes / 2 + (1u << 20); }
std::size_t written_bytes(abi::GemmArgs const& g) {
  return std::min(Regions::bytes, static_cast<std::size_t>(g.m * g.n * g.batch * 8));
}
std::size_t written_bytes(abi::GatedMlpArgs const& g) {
  return static_cast<std::size_t>(g.batch * g.tokens * g.intermediate * 4);
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
    bool asked = false, follows = false;
    for (Args const& plain : calls) {
      if (follows || testing::Test::HasFailure()) break;
      Args g = plain;
      if (abi::options_of(test::with_options(plain)).has(option)) continue;
      ask(g, at);
      if (!Kernel::accepts(g, device).ok) continue;
      asked = true;
      std::size_t const bytes = written_bytes(plain);
      auto const without = results<Kernel>(plain, bytes, at, device);
      auto const with = results<Kernel>(g, bytes, at, device);
      follows = without != with;
      // And again: what was in memory before makes no difference.
      EXPECT_EQ(with, results<Kernel>(g, bytes, at, device));
    }
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
