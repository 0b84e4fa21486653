// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C interface from C++17: overloads on raw pointers, and contexts in several host threads.
#include <gtest/gtest.h>

#include <attikos/flash_attention.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using attikos::FlashAttentionError;

TEST(RawAttention, Float) {
  float const q[4] = {0, 0, 0, 0};
  float const v[4] = {2, 4, 6, 8};
  float out[4];
  float lse[2];
  EXPECT_EQ(attikos::flash_attention_forward(q, v, v, out, lse, 1, 1, 2, 2, 1.0f, true),
            FlashAttentionError::SUCCESS);
  EXPECT_EQ(std::vector<float>(out, out + 4), (std::vector<float>{2, 4, 4, 6}));
  EXPECT_FLOAT_EQ(lse[1], std::log(2.0f));
}

TEST(RawAttention, HalfWithAStreamOfAnotherType) {
  struct Stream_;
  std::uint16_t const zeros[4] = {0, 0, 0, 0};
  std::uint16_t const values[4] = {0x3c00, 0x4000, 0x4200, 0x4400};
  std::uint16_t out[4];
  float lse[2];
  auto const half = [](std::uint16_t const* p) { return reinterpret_cast<__half const*>(p); };
  EXPECT_EQ(attikos::flash_attention_forward(half(zeros), half(values), half(values),
                                             reinterpret_cast<__half*>(out), lse, 1, 1, 2, 2, 1.0f,
                                             false, static_cast<Stream_*>(nullptr)),
            FlashAttentionError::SUCCESS);
  EXPECT_EQ(out[0], 0x4000);
}

TEST(RawAttention, ErrorsHaveNamesAndTexts) {
  float x[1] = {0};
  EXPECT_EQ(attikos::flash_attention_forward(x, x, x, x, x, 0, 1, 1, 1, 1.0f, false),
            FlashAttentionError::INVALID_DIMENSION);
  EXPECT_EQ(attikos::flash_attention_forward(x, x, static_cast<float*>(nullptr), x, x, 1, 1, 1, 1,
                                             1.0f, false),
            FlashAttentionError::NULL_POINTER);
  for (int error = 0; error <= static_cast<int>(FlashAttentionError::INVALID_ARGUMENT); ++error)
    EXPECT_GT(std::strlen(attikos::get_error_string(static_cast<FlashAttentionError>(error))), 0u);
}

// Distinct contexts in distinct threads, each with its own message and right results throughout.
TEST(Contexts, SeveralHostThreads) {
  constexpr int threads = 4;
  constexpr int rounds = 50;
  std::vector<int> bad(threads, 0);
  auto const work = [&](int number) {
    std::int32_t const kind = attikos_has_device(ATTIKOS_SERIAL, 0) ? ATTIKOS_SERIAL : ATTIKOS_HOST;
    int& errors = bad[static_cast<std::size_t>(number)];
    for (int round = 0; round < rounds; ++round) {
      attikos_context* context = nullptr;
      auto const stream = static_cast<std::uintptr_t>(number);
      // Odd threads share the parallel space, even ones have a serial instance each.
      errors +=
          attikos_context_create(number % 2 ? std::int32_t{ATTIKOS_HOST} : kind, 0,
                                 reinterpret_cast<void*>(stream), &context) != ATTIKOS_SUCCESS;
      std::int64_t const n = 8 + number;
      std::vector<float> a(static_cast<std::size_t>(n * n), static_cast<float>(number));
      std::vector<float> c(a.size());
      std::int64_t const shape[2] = {n, n};
      attikos_tensor const ta{a.data(), ATTIKOS_FLOAT32, 2, shape, nullptr};
      attikos_tensor const tc{c.data(), ATTIKOS_FLOAT32, 2, shape, nullptr};
      errors += attikos_gemm(context, &ta, &ta, &tc, nullptr) != ATTIKOS_SUCCESS;
      errors += attikos_synchronize(context) != ATTIKOS_SUCCESS;
      for (float x : c) errors += x != static_cast<float>(n * number * number);
      std::int64_t const wrong[2] = {n + 1, n};
      attikos_tensor const tw{a.data(), ATTIKOS_FLOAT32, 2, wrong, nullptr};
      errors += attikos_gemm(context, &ta, &tw, &tc, nullptr) != ATTIKOS_SHAPE_MISMATCH;
      errors += std::string(attikos_last_error()).find(std::to_string(n + 1) + " rows") ==
                std::string::npos;
      attikos_context_destroy(context);
    }
  };
  std::vector<std::thread> pool;
  for (int t = 0; t < threads; ++t) pool.emplace_back(work, t);
  for (auto& thread : pool) thread.join();
  for (int t = 0; t < threads; ++t)
    EXPECT_EQ(bad[static_cast<std::size_t>(t)], 0) << "thread " << t;
}

}  // namespace
