// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory that libattikos cannot have, by count: the n-th allocation of a call fails, for n = 0, 1,
// … until the call wants fewer. Each time the status is ATTIKOS_OUT_OF_MEMORY, nothing is written
// or left behind, and the next call works.
#include <attikos/attikos.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "../support/failing_allocator.hpp"

namespace attikos::test {
namespace {

/// The n-th allocation for n = 0, 1, …: `reset`, then the call, which gives `wanted` where memory
/// is had; `untouched` holds after a fault, `right` after the call behind it.
struct Case {
  std::string name;
  std::function<attikos_status()> call;
  std::function<bool()> untouched = [] { return true; };
  std::function<bool()> right = [] { return true; };
  std::function<void()> reset = [] {};
  attikos_status wanted = ATTIKOS_SUCCESS;
};

long run(Case const& test) {
  for (long n = 0; n < 1000; ++n) {
    auto const what = test.name + ", allocation " + std::to_string(n);
    test.reset();
    EXPECT_EQ(test.call(), test.wanted) << test.name << ": " << attikos_last_error();
    EXPECT_TRUE(test.right()) << test.name;
    test.reset();
    long const before = alive;
    until_fault = n;
    attikos_status const status = test.call();
    bool const met = until_fault == never;
    until_fault = never;
    if (!met) {
      EXPECT_EQ(status, test.wanted) << test.name;
      test.reset();
      return n;
    }
    bool const untouched = test.untouched(), said = *attikos_last_error() != '\0';
    test.reset();
    attikos_status const next = test.call();
    bool const right = test.right();
    test.reset();
    long const after = alive;
    // A stream keeps what it meets to itself, so that a refusal may get by with part of its
    // sentence.
    if (status != test.wanted || test.wanted == ATTIKOS_SUCCESS) {
      EXPECT_EQ(status, ATTIKOS_OUT_OF_MEMORY) << what;
    }
    EXPECT_TRUE(untouched) << what << " has written";
    EXPECT_TRUE(said) << what;
    EXPECT_EQ(next, test.wanted) << what << ", then: " << attikos_last_error();
    EXPECT_TRUE(right) << what << ": the call after it is wrong";
    EXPECT_EQ(after, before) << what << " left memory behind";
    if (testing::Test::HasFailure()) return n;
  }
  ADD_FAILURE() << test.name << " goes on wanting memory";
  return 0;
}

class Context {
 public:
  Context(std::int32_t kind, void* stream) {
    EXPECT_EQ(attikos_context_create(kind, 0, stream, &context_), ATTIKOS_SUCCESS)
        << attikos_last_error();
  }
  Context(Context const&) = delete;
  Context& operator=(Context const&) = delete;
  ~Context() { attikos_context_destroy(context_); }
  operator attikos_context*() const { return context_; }

 private:
  attikos_context* context_ = nullptr;
};

/// A dense float32 tensor.
struct Floats {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
  attikos_tensor tensor{};

  explicit Floats(std::vector<std::int64_t> extents, float value = 1) : shape(std::move(extents)) {
    std::size_t count = 1;
    for (auto const extent : shape) count *= static_cast<std::size_t>(extent);
    values.assign(count, value);
    tensor = {values.data(), ATTIKOS_FLOAT32, static_cast<std::int32_t>(shape.size()), shape.data(),
              nullptr};
  }
  Floats(Floats const&) = delete;
  Floats& operator=(Floats const&) = delete;
  void fill(float value) {
    for (auto& x : values) x = value;
  }
  bool all(float value) const {
    for (auto const x : values)
      if (std::fabs(x - value) > 1e-5f * std::fabs(value)) return false;
    return true;
  }
};

TEST(CFaults, OfMemoryInCallsLeaveEverythingAsItWas) {
  Context const context(ATTIKOS_HOST, nullptr);
  Floats a({3, 5}), b({5, 4}), c({3, 4}), q({1, 2, 3, 8}), k({1, 2, 7, 8}), lse({1, 2, 3}),
      out({1, 2, 3, 8}), dq({1, 2, 3, 8}), dk({1, 2, 7, 8}), dv({1, 2, 7, 8});
  long faults = 0;
  auto const calls = [&](std::string const& name, Floats& to, float right,
                         std::function<attikos_status()> const& call) {
    faults += run({name, call, [&] { return to.all(-1); }, [&, right] { return to.all(right); },
                   [&] { to.fill(-1); }});
  };
  calls("gemm", c, 5,
        [&] { return attikos_gemm(context, &a.tensor, &b.tensor, &c.tensor, nullptr); });
  for (auto const algorithm : {ATTIKOS_FLASH, ATTIKOS_TILED, ATTIKOS_NAIVE}) {
    calls("attention", out, 1, [&] {
      attikos_attention_options options = ATTIKOS_ATTENTION_OPTIONS_INIT;
      options.algorithm = algorithm;
      return attikos_attention(context, &q.tensor, &k.tensor, &k.tensor, &out.tensor, nullptr,
                               &options);
    });
  }
  calls("decode", out, 1, [&] {
    return attikos_decode(context, &q.tensor, &k.tensor, &k.tensor, &out.tensor, nullptr, nullptr);
  });
  attikos_attention_gradients gradients = ATTIKOS_ATTENTION_GRADIENTS_INIT;
  gradients.dq = &dq.tensor, gradients.dk = &dk.tensor, gradients.dv = &dv.tensor;
  Floats const forward({1, 2, 3, 8});
  lse.fill(std::log(7.0f) + 8 / std::sqrt(8.0f));
  calls("attention_backward", dv, 3.0f / 7, [&] {
    return attikos_attention_backward(context, &q.tensor, &k.tensor, &k.tensor, &forward.tensor,
                                      &lse.tensor, &forward.tensor, &gradients, nullptr);
  });
  Floats rows({4, 8}), weight({8}), dx({4, 8}), dweight({8});
  calls("rms_norm_backward", dweight, 4, [&] {
    return attikos_rms_norm_backward(context, &rows.tensor, &weight.tensor, &rows.tensor,
                                     &dx.tensor, &dweight.tensor, 0);
  });
  // A refusal wants memory for its sentence.
  faults += run({"a refusal",
                 [&] { return attikos_gemm(context, &a.tensor, &a.tensor, &c.tensor, nullptr); },
                 [&] { return c.all(-1); }, [&] { return c.all(-1); }, [&] { c.fill(-1); },
                 ATTIKOS_SHAPE_MISMATCH});
  EXPECT_GT(faults, 0) << "nothing wanted memory; is this program's operator new in use?";
}

TEST(CFaults, OfMemoryInQuestionsLeaveTheirTextAsItWas) {
  Context const context(ATTIKOS_HOST, nullptr);
  Floats a({3, 5}), b({5, 4}), c({3, 4});
  std::array<char, 4096> text{};
  auto const asks = [&](std::string const& name, std::function<attikos_status()> const& call) {
    return run({name, call, [&] { return text[0] == '#'; }, [&] { return text[0] != '#'; },
                [&] { text.fill('#'); }});
  };
  asks("explain_gemm", [&] {
    return attikos_explain_gemm(context, &a.tensor, &b.tensor, &c.tensor, nullptr, text.data(),
                                text.size(), nullptr);
  });
  EXPECT_GT(asks("list_kernels",
                 [&] { return attikos_list_kernels("gemm", text.data(), text.size(), nullptr); }),
            0);
  EXPECT_GT(
      asks("describe_options",
           [&] { return attikos_describe_options("gemm", text.data(), text.size(), nullptr); }),
      0);
  attikos_device_info info = ATTIKOS_DEVICE_INFO_INIT;
  run({"get_device_info", [&] { return attikos_get_device_info(ATTIKOS_HOST, 0, &info); },
       [&] { return info.name[0] == '\0'; }, [&] { return info.name[0] != '\0'; },
       [&] { info = ATTIKOS_DEVICE_INFO_INIT; }});
}

// Of the one host space. Others come with an instance of Kokkos::Serial, and where memory for that
// cannot be had Kokkos 4.7 ends the process.
TEST(CFaults, OfMemoryInContextsLeaveTheOthersInUse) {
  Floats a({3, 5}), b({5, 4}), c({3, 4});
  Context const kept(ATTIKOS_HOST, nullptr);
  attikos_context* made = nullptr;
  auto const works = [&](attikos_context* context) {
    c.fill(-1);
    return attikos_gemm(context, &a.tensor, &b.tensor, &c.tensor, nullptr) == ATTIKOS_SUCCESS &&
           c.all(5);
  };
  ASSERT_TRUE(works(kept));
  EXPECT_GT(run({"context_create",
                 [&] { return attikos_context_create(ATTIKOS_HOST, 0, nullptr, &made); },
                 [&] { return made == nullptr && works(kept); }, [&] { return works(made); },
                 [&] {
                   attikos_context_destroy(made);
                   made = nullptr;
                 }}),
            0);
}

}  // namespace
}  // namespace attikos::test
