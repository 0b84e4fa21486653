// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Temporary memory: the promised number of bytes is enough, one byte less is refused before
// anything is written, what lies in it says nothing, and flash attention needs none that grows with
// the square of the length.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <functional>
#include <string>
#include <vector>

#include "../support/backends.hpp"
#include "../support/messages.hpp"
#include "operations.hpp"

namespace attikos::test {
namespace {

template <class Exec>
using Bytes =
    Kokkos::View<std::byte*, typename Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// A call that takes its workspace, and what it writes.
template <class Exec>
struct Call {
  std::string name;
  std::size_t bytes;
  std::function<void(Bytes<Exec> const&)> run;
  std::vector<Output> outputs;
};

/// `bytes` bytes of one value, and a fence behind them.
template <class Exec>
class Memory {
 public:
  Memory(std::size_t bytes, int value)
      : bytes_(bytes),
        all_("attikos_test", bytes + guard),
        host_(bytes, static_cast<std::byte>(value)) {
    host_.resize(bytes + guard, std::byte{0xA5});
    Kokkos::deep_copy(all_, HostBytes(host_.data(), host_.size()));
  }
  Bytes<Exec> view(std::size_t bytes) const { return Bytes<Exec>(all_.data(), bytes); }
  Bytes<Exec> view() const { return view(bytes_); }

  std::size_t writes_behind() {
    std::vector<std::byte> now(host_.size());
    Kokkos::fence("attikos_test");
    Kokkos::deep_copy(HostBytes(now.data(), now.size()), all_);
    std::size_t count = 0;
    for (std::size_t i = bytes_; i < now.size(); ++i) count += now[i] != host_[i];
    return count;
  }

 private:
  using HostBytes =
      Kokkos::View<std::byte*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;
  static constexpr std::size_t guard = 256;
  std::size_t bytes_;
  Kokkos::View<std::byte*, typename Exec::memory_space> all_;
  std::vector<std::byte> host_;
};

/// Every operation that has a *_workspace_size(), called such that it needs all of it.
template <class Exec, class T>
std::vector<Call<Exec>> calls() {
  using Lse = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::vector<Call<Exec>> list;
  Exec const exec;
  auto q = filled<T, 4, Exec>({2, 4, 39, 40}, 1), k = filled<T, 4, Exec>({2, 2, 300, 40}, 2);
  auto v = filled<T, 4, Exec>({2, 2, 300, 24}, 3), out = filled<T, 4, Exec>({2, 4, 39, 24}, 4);
  auto lse = filled<Lse, 3, Exec>({2, 4, 39}, 5);
  for (auto algorithm :
       {AttentionAlgorithm::flash, AttentionAlgorithm::tiled, AttentionAlgorithm::naive}) {
    AttentionOptions const options{.causal = true, .algorithm = algorithm};
    list.push_back({algorithm == AttentionAlgorithm::flash   ? "attention flash"
                    : algorithm == AttentionAlgorithm::tiled ? "attention tiled"
                                                             : "attention naive",
                    attention_workspace_size(q->view(), k->view(), v->view(), options),
                    [=](Bytes<Exec> const& memory) {
                      attention(exec, q->view(), k->view(), v->view(), out->view(), lse->view(),
                                options, workspace(memory));
                    },
                    {output_of(out), output_of(lse)}});
  }
  {
    // Few queries, whose keys are split where that pays off.
    auto one = filled<T, 4, Exec>({2, 4, 1, 40}, 60), few = filled<T, 4, Exec>({2, 4, 1, 24}, 61);
    auto keys = filled<T, 4, Exec>({2, 2, 1500, 40}, 62),
         values = filled<T, 4, Exec>({2, 2, 1500, 24}, 63);
    std::size_t const bytes = attention_workspace_size(one->view(), keys->view(), values->view());
    auto const explanation =
        explain(op::attention, exec, one->view(), keys->view(), values->view(), few->view());
    if (explanation.kernel == "portable/split") {
      list.push_back({"attention of few queries",
                      bytes,
                      [=](Bytes<Exec> const& memory) {
                        attention(exec, one->view(), keys->view(), values->view(), few->view(),
                                  AttentionOptions{}, workspace(memory));
                      },
                      {output_of(few)}});
    }
  }
  auto dout = filled<T, 4, Exec>({2, 4, 39, 24}, 6), dq = filled<T, 4, Exec>({2, 4, 39, 40}, 7);
  auto dk = filled<T, 4, Exec>({2, 2, 300, 40}, 8), dv = filled<T, 4, Exec>({2, 2, 300, 24}, 9);
  auto given = filled<T, 4, Exec>({2, 4, 39, 24}, 10);
  auto given_lse = filled<Lse, 3, Exec>({2, 4, 39}, 11);
  list.push_back({"attention_backward",
                  attention_backward_workspace_size(exec, q->view(), k->view(), v->view(),
                                                    AttentionOptions{.causal = true}),
                  [=](Bytes<Exec> const& memory) {
                    attention_backward(exec, q->view(), k->view(), v->view(), given->view(),
                                       given_lse->view(), dout->view(), dq->view(), dk->view(),
                                       dv->view(), {.causal = true}, workspace(memory));
                  },
                  {output_of(dq), output_of(dk), output_of(dv)}});
  {
    // Many short sequences, each of which begins tiles of its own.
    auto starts = std::make_shared<Tensor<std::int32_t, 1, Exec>>(std::array<std::int64_t, 1>{31});
    for (int b = 0; b <= 30; ++b) (*starts)(b) = 7 * b;
    starts->upload();
    auto of_q = [](std::int64_t width, std::uint64_t seed) {
      return filled<T, 3, Exec>({4, 215, width}, seed);
    };
    auto of_k = [](std::int64_t width, std::uint64_t seed) {
      return filled<T, 3, Exec>({2, 215, width}, seed);
    };
    auto pq = of_q(40, 50), pk = of_k(40, 51), pv = of_k(24, 52), pout = of_q(24, 53),
         pdout = of_q(24, 54), pdq = of_q(40, 55), pdk = of_k(40, 56), pdv = of_k(24, 57);
    auto plse = filled<Lse, 2, Exec>({4, 215}, 58);
    list.push_back({"attention_backward packed",
                    attention_backward_workspace_size(exec, pq->view(), pk->view(), pv->view(), {},
                                                      cu_seqlens(starts->const_view())),
                    [=](Bytes<Exec> const& memory) {
                      attention_backward(exec, pq->view(), pk->view(), pv->view(), pout->view(),
                                         plse->view(), pdout->view(), pdq->view(), pdk->view(),
                                         pdv->view(), {}, cu_seqlens(starts->const_view()),
                                         workspace(memory));
                    },
                    {output_of(pdq), output_of(pdk), output_of(pdv)}});
  }
  for (std::int64_t splits : {0, 3}) {
    auto one = filled<T, 4, Exec>({2, 4, 2, 40}, 12),
         keys = filled<T, 4, Exec>({2, 2, 1500, 40}, 13);
    auto values = filled<T, 4, Exec>({2, 2, 1500, 24}, 14);
    auto result = filled<T, 4, Exec>({2, 4, 2, 24}, 15);
    DecodeOptions const options{.causal = true, .splits = splits};
    list.push_back({"decode",
                    decode_workspace_size(exec, one->view(), keys->view(), values->view(), options),
                    [=](Bytes<Exec> const& memory) {
                      decode(exec, one->view(), keys->view(), values->view(), result->view(),
                             options, workspace(memory));
                    },
                    {output_of(result)}});
  }
  {
    auto a = filled<T, 2, Exec>({70, 90}, 20), b = filled<T, 2, Exec>({90, 50}, 21);
    auto dc = filled<T, 2, Exec>({70, 50}, 22), x = filled<T, 2, Exec>({70, 50}, 23);
    auto da = filled<T, 2, Exec>({70, 90}, 24), db = filled<T, 2, Exec>({90, 50}, 25);
    auto dbias = filled<T, 1, Exec>({50}, 26);
    GemmOptions const options{.activation = Activation::silu};
    list.push_back({"gemm_backward",
                    gemm_backward_workspace_size(dc->view(), options),
                    [=](Bytes<Exec> const& memory) {
                      gemm_backward(exec, a->view(), b->view(), dc->view(), da->view(), db->view(),
                                    options, pre_activation(x->view()),
                                    bias_gradient(dbias->view()), workspace(memory));
                    },
                    {output_of(da), output_of(db), output_of(dbias)}});
  }
  {
    // float16 is no accumulator: sums need room before they are rounded.
    auto x = filled<T, 3, Exec>({2, 35, 90}, 30);
    auto gate = filled<T, 2, Exec>({45, 90}, 31), up = filled<T, 2, Exec>({45, 90}, 32);
    auto g = filled<T, 3, Exec>({2, 35, 45}, 33);
    auto dx = filled<float16, 3, Exec>({2, 35, 90}, 34);
    auto dgate = filled<float16, 2, Exec>({45, 90}, 35),
         dup = filled<float16, 2, Exec>({45, 90}, 36);
    list.push_back({"gated_mlp_backward",
                    gated_mlp_backward_workspace_size(x->view(), gate->view(), g->view()),
                    [=](Bytes<Exec> const& memory) {
                      gated_mlp_backward(exec, x->view(), gate->view(), up->view(), g->view(),
                                         dx->view(), dgate->view(), dup->view(), {},
                                         workspace(memory));
                    },
                    {output_of(dx), output_of(dgate), output_of(dup)}});
  }
  auto x = filled<T, 3, Exec>({2, 70, 160}, 40), g = filled<T, 3, Exec>({2, 70, 160}, 41);
  auto weight = filled<T, 1, Exec>({160}, 42), dweight = filled<T, 1, Exec>({160}, 43),
       dbias = filled<T, 1, Exec>({160}, 44);
  auto dx = filled<T, 3, Exec>({2, 70, 160}, 45);
  list.push_back({"rms_norm_backward",
                  rms_norm_backward_workspace_size(x->view(), weight->view(), g->view()),
                  [=](Bytes<Exec> const& memory) {
                    rms_norm_backward(exec, x->view(), weight->view(), g->view(), dx->view(),
                                      dweight->view(), {}, workspace(memory));
                  },
                  {output_of(dx), output_of(dweight)}});
  list.push_back({"layer_norm_backward",
                  layer_norm_backward_workspace_size(x->view(), weight->view(), g->view()),
                  [=](Bytes<Exec> const& memory) {
                    layer_norm_backward(exec, x->view(), weight->view(), g->view(), dx->view(),
                                        dweight->view(), dbias->view(), {}, workspace(memory));
                  },
                  {output_of(dx), output_of(dweight), output_of(dbias)}});
  auto cos = filled<T, 2, Exec>({70, 40}, 46), sin = filled<T, 2, Exec>({70, 40}, 47);
  list.push_back({"rms_norm_rope_backward",
                  rms_norm_rope_backward_workspace_size(x->view(), weight->view(), g->view()),
                  [=](Bytes<Exec> const& memory) {
                    rms_norm_rope_backward(exec, x->view(), weight->view(), cos->view(),
                                           sin->view(), g->view(), dx->view(), dweight->view(), {},
                                           workspace(memory));
                  },
                  {output_of(dx), output_of(dweight)}});
  return list;
}

template <class C>
class WorkspaceContract : public testing::Test {};
using WorkspaceTypes = List<float, bfloat16>;
TYPED_TEST_SUITE(WorkspaceContract, Cases<WorkspaceTypes>, CaseName);

TYPED_TEST(WorkspaceContract, ThePromisedBytesAreEnoughAndTheirContentSaysNothing) {
  using Exec = typename TypeParam::Exec;
  for (auto const& call : calls<Exec, typename TypeParam::T>()) {
    std::vector<std::vector<std::byte>> first;
    for (int value : {0, 0xFF}) {  // zeros, and NaN in every type
      Memory<Exec> memory(call.bytes, value);
      for (auto const& output : call.outputs) output.clear();
      ASSERT_NO_THROW(call.run(memory.view())) << call.name;
      std::vector<std::vector<std::byte>> now;
      for (auto const& output : call.outputs) now.push_back(output.bytes());
      EXPECT_EQ(memory.writes_behind(), 0u) << call.name;
      if (value == 0) first = now;
      EXPECT_EQ(now, first) << call.name << ": what lay in the workspace changes the result";
    }
  }
}

TYPED_TEST(WorkspaceContract, OneByteLessIsRefusedBeforeAnythingIsWritten) {
  using Exec = typename TypeParam::Exec;
  for (auto const& call : calls<Exec, typename TypeParam::T>()) {
    if (call.name == "attention flash") {
      EXPECT_EQ(call.bytes, 0u);
      continue;
    }
    ASSERT_GT(call.bytes, 0u) << call.name;
    Memory<Exec> memory(call.bytes, 0);
    std::vector<std::vector<std::byte>> before;
    for (auto const& output : call.outputs) {
      output.clear();
      before.push_back(output.bytes());
    }
    std::string const operation = call.name.substr(0, call.name.find(' '));
    expect_error<ResourceError>(
        [&] { call.run(memory.view(call.bytes - 1)); },
        {"attikos::" + operation + ": workspace has " + std::to_string(call.bytes - 1) + " bytes",
         "expected at least " + std::to_string(call.bytes)});
    for (std::size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(call.outputs[i].bytes(), before[i]) << call.name << ", output " << i;
  }
}

std::uint64_t allocated = 0;
void count_bytes(Kokkos::Tools::SpaceHandle, char const*, void const*, std::uint64_t bytes) {
  allocated += bytes;
}

/// Bytes that Kokkos hands out during a call.
template <class F>
std::uint64_t allocated_by(F const& call) {
  auto const before = Kokkos::Tools::Experimental::get_callbacks();
  allocated = 0;
  Kokkos::Tools::Experimental::set_allocate_data_callback(count_bytes);
  call();
  Kokkos::Tools::Experimental::set_callbacks(before);
  Kokkos::fence("attikos_test");
  return allocated;
}

// B1 H1 D64 float32: stored scores take 4, 16 and 64 MiB; outputs 0.25, 0.5 and 1 MiB.
TEST(WorkspaceOfFlash, GrowsWithTheLengthNotItsSquare) {
  using Exec = Kokkos::DefaultExecutionSpace;
  constexpr bool is_device = !is_host_space<Exec>;
  auto const control = allocated_by([] { Kokkos::View<char*, Exec>("attikos_test", 1); });
  ASSERT_GT(control, 0u) << "allocations are not heard of";
  // The pool of an instance at the address of an earlier one need not be empty.
  auto const exec = Kokkos::Experimental::partition_space(Exec(), 1)[0];
  std::uint64_t first = 0;
  for (std::int64_t s : {1024, 2048, 4096}) {
    auto const tensor = [&](std::uint64_t seed) {
      return filled<float, 4, Exec>({1, 1, s, 64}, seed);
    };
    auto q = tensor(1), k = tensor(2), v = tensor(3), out = tensor(4), dout = tensor(5),
         dq = tensor(6), dk = tensor(7), dv = tensor(8);
    auto lse = filled<float, 3, Exec>({1, 1, s}, 9);
    std::size_t const forward = attention_workspace_size(q->view(), k->view(), v->view());
    std::size_t const backward = attention_backward_workspace_size(q->view(), k->view(), v->view());
    std::size_t const output = static_cast<std::size_t>(s) * 64 * sizeof(float);
    EXPECT_LE(output + forward, static_cast<std::size_t>(s) * 256 + 4096) << s;
    // Of the compiled kernels for a device also a number for each of dq, which lies in whole tiles.
    EXPECT_LE(backward,
              static_cast<std::size_t>(s) * (is_device ? 2 * 64 * 4 : 4) + (is_device ? 65536 : 0))
        << s;
    std::uint64_t const used = allocated_by([&] {
      attention(exec, q->view(), k->view(), v->view(), out->view(), lse->view());
      attention_backward(exec, q->view(), k->view(), v->view(), out->view(), lse->view(),
                         dout->view(), dq->view(), dk->view(), dv->view());
    });
    // What the first call gets beyond workspace is scratch of the teams; the pool doubles.
    if (s == 1024) first = used;
    EXPECT_LE(used, first + forward + 2 * backward) << s;
  }
}

}  // namespace
}  // namespace attikos::test
