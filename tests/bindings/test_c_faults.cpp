// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory that libattikos cannot have, by count: the n-th allocation of a call fails, for n = 0, 1,
// … until the call wants fewer. Each time the status is ATTIKOS_OUT_OF_MEMORY, nothing is written
// or left behind, and the next call works.
#include <attikos/attikos.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "../support/failing_allocator.hpp"
#include "c_calls.h"

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

/// The tensors of a call of c_calls.h, dense, in memory of their own.
class Tensors {
 public:
  explicit Tensors(c_call const& call) : call_(call) {
    for (int i = 0; i < c_call_count(&call); ++i) {
      argument const& is = call.arguments[i];
      std::size_t count = 1;
      for (int r = 0; r < is.ndim; ++r) count *= static_cast<std::size_t>(is.shape[r]);
      initial_.push_back(values(is, count, i));
      memory_.push_back(initial_.back());
    }
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      argument const& is = call.arguments[i];
      tensors_.push_back({memory_[i].data(), is.dtype, is.ndim, is.shape, nullptr});
    }
    for (auto const& tensor : tensors_) all_.push_back(&tensor);
  }
  Tensors(Tensors const&) = delete;
  Tensors& operator=(Tensors const&) = delete;

  attikos_status call(attikos_context* context) const { return call_.call(context, all_.data()); }
  /// To what it was before the first call, inputs and outputs.
  void reset() {
    for (std::size_t i = 0; i < memory_.size(); ++i)
      std::copy(initial_[i].begin(), initial_[i].end(), memory_[i].begin());
  }
  bool untouched() const { return memory_ == initial_; }
  auto const& written() const { return memory_; }
  attikos_tensor const* operator[](std::size_t i) const { return all_[i]; }

 private:
  using Bytes = std::vector<unsigned char>;

  /// Positive numbers, so that every operation has something to do.
  static Bytes values(argument const& is, std::size_t count, int place) {
    std::size_t const size = attikos_dtype_size(is.dtype);
    Bytes bytes(count * size);
    for (std::size_t i = 0; i < count; ++i) {
      float const real =
          0.25f * static_cast<float>(1 + (5 * i + static_cast<std::size_t>(place)) % 7);
      auto const integer = static_cast<std::int32_t>(count == 1 ? 2 : 2 * i % 5);
      if (is.dtype == ATTIKOS_FLOAT32)
        std::memcpy(&bytes[i * size], &real, size);
      else if (is.dtype == ATTIKOS_INT32)
        std::memcpy(&bytes[i * size], &integer, size);
      else
        bytes[i * size] = static_cast<unsigned char>(is.dtype == ATTIKOS_BOOL ? i % 2 : 1 + i % 5);
    }
    return bytes;
  }

  c_call const& call_;
  std::vector<Bytes> initial_, memory_;
  std::vector<attikos_tensor> tensors_;
  std::vector<attikos_tensor const*> all_;
};

c_call const& first_call_of(std::string_view operation) {
  return *std::find_if(std::begin(c_calls), std::end(c_calls),
                       [&](c_call const& call) { return call.operation == operation; });
}

/// An allocator of a context: its memory is counted, and fails, like any other of this program.
struct Workspace {
  long asked = 0;

  void lend_to(attikos_context* context) {
    EXPECT_EQ(attikos_context_set_allocator(context, give, take_back, this), ATTIKOS_SUCCESS);
  }
  static void* give(void* user, std::size_t bytes) {
    ++static_cast<Workspace*>(user)->asked;
    return operator new (bytes, std::align_val_t{64}, std::nothrow);
  }
  static void take_back(void*, void* memory) { operator delete (memory, std::align_val_t{64}); }
};

/// Every call of c_calls.h, those of attention once for each algorithm. `test(name, call)`.
template <class Test>
void with_every_call(Test const& test) {
  static std::int32_t algorithm = 0;
  static bool of_attention = false;
  c_call_mutate = [](char const* name, void* options) {
    if (std::string_view(name) != "attention") return;
    of_attention = true;
    static_cast<attikos_attention_options*>(options)->algorithm = algorithm;
  };
  for (std::size_t i = 0; i < std::size(c_calls) && !testing::Test::HasFailure(); ++i) {
    of_attention = false;
    for (std::int32_t const way : {ATTIKOS_FLASH, ATTIKOS_TILED, ATTIKOS_NAIVE}) {
      if (way != ATTIKOS_FLASH && !of_attention) continue;
      algorithm = way;
      test(std::string(c_calls[i].operation) + ", call " + std::to_string(i) +
               (of_attention ? ", algorithm " + std::to_string(way) : ""),
           c_calls[i]);
    }
  }
  c_call_mutate = nullptr;
}

TEST(CFaults, OfMemoryInCallsLeaveEverythingAsItWas) {
  Context const context(ATTIKOS_HOST, nullptr);
  Workspace workspace;
  workspace.lend_to(context);
  long want_memory = 0;
  with_every_call([&](std::string const& name, c_call const& what) {
    Tensors tensors(what);
    auto const call = [&] { return tensors.call(context); };
    attikos_status const wanted = call();
    auto const right = tensors.written();
    EXPECT_EQ(tensors.untouched(), wanted != ATTIKOS_SUCCESS) << name;
    workspace.asked = 0;
    tensors.reset();
    EXPECT_EQ(call(), wanted) << name;
    long const asked = workspace.asked;
    want_memory += asked > 0 ? 1 : 0;
    EXPECT_GE(run({name, call, [&] { return tensors.untouched(); },
                   [&] { return tensors.written() == right; }, [&] { tensors.reset(); }, wanted}),
              asked)
        << name << ": faults were not met";
  });
  EXPECT_GT(want_memory, 0);
  // A refusal wants memory for its sentence.
  Tensors const t(first_call_of("gemm"));
  auto const untouched = [&] { return t.untouched(); };
  EXPECT_GT(run({"a refusal", [&] { return attikos_gemm(context, t[0], t[0], t[2], nullptr); },
                 untouched, untouched, [] {}, ATTIKOS_SHAPE_MISMATCH}),
            0);
}

/// What a call adds to the memory of an instance that has none, and whose Kokkos has all that it
/// wants; the first time it may meet a fault, `n` from 0 on, of which it sets `met`.
long growth(std::string const& name, c_call const& what, long n, bool& met) {
  static std::uintptr_t streams = 0;
  Context const context(ATTIKOS_SERIAL, reinterpret_cast<void*>(++streams));
  Tensors tensors(what);
  Workspace workspace;
  workspace.lend_to(context);
  attikos_status const wanted = tensors.call(context);
  auto const right = tensors.written();
  EXPECT_EQ(attikos_context_set_allocator(context, nullptr, nullptr, nullptr), ATTIKOS_SUCCESS);
  tensors.reset();
  long const before = alive;
  until_fault = n;
  attikos_status const status = tensors.call(context);
  met = n != never && until_fault == never;
  until_fault = never;
  if (met) {
    EXPECT_EQ(status, ATTIKOS_OUT_OF_MEMORY) << name;
    EXPECT_TRUE(tensors.untouched()) << name << " has written";
    tensors.reset();
    EXPECT_EQ(tensors.call(context), wanted) << name << ", then: " << attikos_last_error();
  }
  EXPECT_TRUE(tensors.written() == right) << name;
  return alive - before;
}

/// Without an allocator the library's own operator new is asked, which has to be this program's.
TEST(CFaults, OfMemoryOfInstancesLeaveEverythingAsItWas) {
  if (!attikos_has_device(ATTIKOS_SERIAL, 0))
    GTEST_SKIP() << "the host's instance keeps its memory";
  Context const context(ATTIKOS_HOST, nullptr);
  Workspace workspace;
  workspace.lend_to(context);
  with_every_call([&](std::string const& name, c_call const& what) {
    workspace.asked = 0;
    static_cast<void>(Tensors(what).call(context));
    if (workspace.asked == 0) return;
    bool met = false;
    growth(name, what, never, met);  // the first call of a process makes the pool
    long const usual = growth(name, what, never, met);
    EXPECT_GT(usual, 0) << name << ": is this program's operator new in use?";
    long n = 0;
    for (; n < 100 && !testing::Test::HasFailure(); ++n) {
      auto const at = name + ", allocation " + std::to_string(n);
      EXPECT_EQ(growth(at, what, n, met), usual) << at << " left memory behind";
      if (!met) break;
    }
    EXPECT_GT(n, 0) << name << ": faults were not met";
  });
}

TEST(CFaults, OfMemoryInQuestionsLeaveTheirTextAsItWas) {
  Context const context(ATTIKOS_HOST, nullptr);
  std::array<char, 4096> text{};
  auto const asks = [&](std::string const& name, std::function<attikos_status()> const& call) {
    EXPECT_GT(run({name, call, [&] { return text[0] == '#'; }, [&] { return text[0] != '#'; },
                   [&] { text.fill('#'); }}),
              0)
        << name << ": faults were not met";
  };
  Tensors const t(first_call_of("attention"));
  asks("explain_attention", [&] {
    return attikos_explain_attention(context, t[0], t[1], t[2], t[3], nullptr, nullptr, text.data(),
                                     text.size(), nullptr);
  });
  asks("list_kernels",
       [&] { return attikos_list_kernels("gemm", text.data(), text.size(), nullptr); });
  asks("describe_options",
       [&] { return attikos_describe_options("gemm", text.data(), text.size(), nullptr); });
  attikos_device_info info = ATTIKOS_DEVICE_INFO_INIT;
  run({"get_device_info", [&] { return attikos_get_device_info(ATTIKOS_HOST, 0, &info); },
       [&] { return info.name[0] == '\0'; }, [&] { return info.name[0] != '\0'; },
       [&] { info = ATTIKOS_DEVICE_INFO_INIT; }});
}

// Of the one host space. Others come with an instance of Kokkos::Serial, and where memory for that
// cannot be had Kokkos 4.7 ends the process.
TEST(CFaults, OfMemoryInContextsLeaveTheOthersInUse) {
  Tensors product(first_call_of("gemm"));
  Context const kept(ATTIKOS_HOST, nullptr);
  attikos_context* made = nullptr;
  auto const works = [&](attikos_context* context) {
    product.reset();
    return product.call(context) == ATTIKOS_SUCCESS && !product.untouched();
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
