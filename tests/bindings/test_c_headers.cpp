// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The C interface from C++17: overloads on raw pointers, and contexts in several host threads.
#include <attikos/compat/cuflash.h>
#include <gtest/gtest.h>

#include <attikos/compat/cuflash.hpp>
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

// The document's functions: types of all arguments in their order, and the values of its
// enumeration.
using Stream = CUstream_st*;
using cuflash::flash_attention_backward;
using cuflash::flash_attention_forward;
template <class T, class L>
using Forward = cuflash::FlashAttentionError (*)(T const* Q, T const* K, T const* V, T* O, L* lse,
                                                 int batch_size, int num_heads, int seq_len,
                                                 int head_dim, float scale, bool causal,
                                                 Stream stream);
template <class T, class L>
using Backward = cuflash::FlashAttentionError (*)(T const* Q, T const* K, T const* V, T const* O,
                                                  L const* lse, T const* dO, T* dQ, T* dK, T* dV,
                                                  int batch_size, int num_heads, int seq_len,
                                                  int head_dim, float scale, bool causal,
                                                  Stream stream);
using CForward = int (*)(float const*, float const*, float const*, float*, float*, int, int, int,
                         int, float, bool, void*);
using CBackward = int (*)(float const*, float const*, float const*, float const*, float const*,
                          float const*, float*, float*, float*, int, int, int, int, float, bool,
                          void*);

TEST(CuFlash, HasTheFunctionsOfItsDocument) {
  Forward<float, float> const forward = flash_attention_forward;
  Forward<__half, float> const forward_half = flash_attention_forward;
  Backward<float, float> const backward = flash_attention_backward;
  Backward<__half, float> const backward_half = flash_attention_backward;
  CForward const c_forward = cuflash_attention_forward_f32;
  CBackward const c_backward = cuflash_attention_backward_f32;
  EXPECT_TRUE(forward && forward_half && backward && backward_half && c_forward && c_backward);
  using Error = cuflash::FlashAttentionError;
  Error const errors[] = {Error::SUCCESS,
                          Error::INVALID_DIMENSION,
                          Error::DIMENSION_MISMATCH,
                          Error::NULL_POINTER,
                          Error::CUDA_ERROR,
                          Error::OUT_OF_MEMORY,
                          Error::UNSUPPORTED_HEAD_DIM,
                          Error::UNSUPPORTED_DTYPE};
  for (int value = 0; value < 8; ++value) EXPECT_EQ(static_cast<int>(errors[value]), value);
}

TEST(CuFlash, ComputesAsInTheDocumentsExample) {
  float const d_Q[4] = {0, 0, 0, 0}, d_V[4] = {2, 4, 6, 8}, dO[4] = {1, 1, 1, 1};
  float d_O[4], d_L[2], dQ[4], dK[4], dV[4];
  int const batch_size = 1, num_heads = 1, seq_len = 2, head_dim = 2;
  float const scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  auto err = cuflash::flash_attention_forward(d_Q, d_V, d_V, d_O, d_L, batch_size, num_heads,
                                              seq_len, head_dim, scale, /*causal=*/true);
  ASSERT_EQ(err, cuflash::FlashAttentionError::SUCCESS) << cuflash::get_error_string(err);
  EXPECT_EQ(std::vector<float>(d_O, d_O + 4), (std::vector<float>{2, 4, 4, 6}));
  EXPECT_FLOAT_EQ(d_L[1], std::log(2.0f));
  err = cuflash::flash_attention_backward(d_Q, d_V, d_V, d_O, d_L, dO, dQ, dK, dV, batch_size,
                                          num_heads, seq_len, head_dim, scale, true, 0);
  ASSERT_EQ(err, cuflash::FlashAttentionError::SUCCESS) << cuflash::get_error_string(err);
  EXPECT_EQ(std::vector<float>(dV, dV + 4), (std::vector<float>{1.5, 1.5, 0.5, 0.5}));
  std::uint16_t const zeros[4] = {0, 0, 0, 0}, values[4] = {0x3c00, 0x4000, 0x4200, 0x4400};
  std::uint16_t out[4];
  auto const half = [](std::uint16_t const* p) { return reinterpret_cast<__half const*>(p); };
  EXPECT_EQ(cuflash::flash_attention_forward(half(zeros), half(values), half(values),
                                             reinterpret_cast<__half*>(out), d_L, 1, 1, 2, 2, 1.0f,
                                             false),
            cuflash::FlashAttentionError::SUCCESS);
  EXPECT_EQ(out[0], 0x4000);
  EXPECT_EQ(cuflash::flash_attention_forward(d_Q, d_V, d_V, d_O, nullptr, 1, 1, 2, 2, 1.0f, true),
            cuflash::FlashAttentionError::NULL_POINTER);
  EXPECT_EQ(cuflash::flash_attention_forward(d_Q, d_V, d_V, d_O, d_L, 1, 1, 2, -2, 1.0f, true),
            cuflash::FlashAttentionError::INVALID_DIMENSION);
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
