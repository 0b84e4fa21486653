// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which compiled kernel takes which call on a Hopper card, and which next one where it cannot: a
// trait entry that is missing or refuses too much loses nothing but speed, and shows here. Nothing
// is launched. Skipped on other cards; empty without CUDA and its companion.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <attikos/attikos.hpp>
#include <attikos/core/device_info.hpp>
#include <cstdint>
#include <string>

#if defined(KOKKOS_ENABLE_CUDA) && defined(ATTIKOS_HAVE_CUDA_COMPANION)

namespace attikos::test {
namespace {

using Exec = Kokkos::Cuda;
using Layout = Kokkos::LayoutStride;

/// Nothing here is read: an address that is aligned and apart from the others.
std::uintptr_t next_address() {
  static std::uintptr_t address = std::uintptr_t{1} << 40;
  return address += std::uintptr_t{1} << 34;
}
template <class T, int Rank>
auto tensor(std::int64_t const (&extents)[Rank], std::int64_t leading = 0) {
  using Data = std::conditional_t<
      Rank == 1, T*,
      std::conditional_t<Rank == 2, T**, std::conditional_t<Rank == 3, T***, T****>>>;
  Layout layout;
  std::int64_t stride = 1;
  for (int r = Rank - 1; r >= 0; --r) {
    layout.dimension[r] = static_cast<std::size_t>(extents[r]);
    layout.stride[r] = static_cast<std::size_t>(stride);
    stride *= r == Rank - 1 && leading != 0 ? leading : extents[r];
  }
  return Kokkos::View<Data, Layout, Exec, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
      reinterpret_cast<T*>(next_address()), layout);
}
template <class T>
auto matrix(std::int64_t rows, std::int64_t cols, std::int64_t leading = 0) {
  return tensor<T, 2>({rows, cols}, leading);
}

class DispatchCuda : public testing::Test {
 protected:
  void SetUp() override {
    auto const device = device_info(Exec());
    if (device.compute_major != 9) GTEST_SKIP() << "the choices are those of Hopper";
  }
};

void expect(std::string const& kernel, Explanation const& plan) {
  EXPECT_EQ(plan.kernel, kernel) << plan.to_string();
  for (auto const& entry : plan.rejected) EXPECT_NE(entry.reason, "") << entry.kernel;
}

template <class A, class B, class C>
void expect_product(std::string const& kernel, GemmOptions const& options = {},
                    std::int64_t leading = 0) {
  expect(kernel, explain(op::gemm, Exec(), matrix<A>(4096, 256, leading), matrix<B>(256, 4096),
                         matrix<C>(4096, 4096), options));
}

TEST_F(DispatchCuda, Products) {
  expect_product<float16, float16, float16>("gemm/sm90_wgmma_f16");
  expect_product<float16, float16, float>("gemm/sm90_wgmma_f16");
  expect_product<float16, float16, bfloat16>("gemm/sm90_wgmma_f16");
  expect_product<bfloat16, bfloat16, bfloat16>("gemm/sm90_wgmma_bf16");
  expect_product<bfloat16, bfloat16, float>("gemm/sm90_wgmma_bf16");
  expect_product<bfloat16, bfloat16, float8_e4m3>("gemm/sm90_wgmma_bf16");
  expect_product<float8_e4m3, float8_e5m2, bfloat16>("gemm/sm90_wgmma_f8");
  expect_product<std::int8_t, std::int8_t, std::int32_t>("gemm/sm90_wgmma_s8");
  expect_product<std::int8_t, std::int8_t, std::int8_t>("gemm/sm90_wgmma_s8");
  expect_product<double, double, double>("gemm/sm90_mma_f64");
  expect_product<float, float, float>("gemm/sm90_simt_f32");
  expect_product<float, float, float>("gemm/sm80_mma_tf32", {.compute = Compute::tf32});
  expect_product<float, float, float>("gemm/sm90_wgmma_tf32x3", {.compute = Compute::tf32x3});
}

TEST_F(DispatchCuda, ProductsThatTheCopyEngineCannotLoad) {
  expect_product<float16, float16, float16>("gemm/sm80_mma_f16", {}, 257);
  expect_product<bfloat16, bfloat16, float>("gemm/sm80_mma_bf16", {}, 257);
  expect_product<float8_e4m3, float8_e4m3, float16>("gemm/sm89_mma_f8", {}, 257);
  expect_product<std::int8_t, std::int8_t, std::int32_t>("gemm/sm80_mma_s8", {}, 257);
  expect_product<double, double, double>("gemm/sm80_mma_f64", {}, 257);
  expect_product<float, float, float>("gemm/sm80_simt_f32", {}, 257);
  expect_product<float, float, float>("gemm/sm80_mma_tf32x3", {.compute = Compute::tf32x3}, 257);
}

TEST_F(DispatchCuda, GroupsAndBatches) {
  auto const starts = tensor<std::int32_t, 1>({9});
  auto const groups = [&]<class T, class C>(std::string const& kernel, T, C, std::int64_t leading) {
    expect(kernel,
           explain(op::gemm, Exec(), matrix<T>(512, 256, leading), tensor<T, 3>({8, 384, 256}),
                   matrix<C>(512, 384), {.trans_b = true}, grouped(starts)));
  };
  groups("gemm/sm90_grouped_f16", float16(), float16(), 0);
  groups("gemm/sm90_grouped_bf16", bfloat16(), bfloat16(), 0);
  groups("gemm/sm90_grouped_f8", float8_e4m3(), bfloat16(), 0);
  groups("gemm/sm90_grouped_s8", std::int8_t(), std::int32_t(), 0);
  groups("gemm/sm80_mma_bf16", bfloat16(), bfloat16(), 257);
  groups("gemm/sm80_mma_f64", double(), double(), 0);
  groups("gemm/sm80_simt_f32", float(), float(), 0);
  auto const small = [&]<class T>(std::string const& kernel, T) {
    expect(kernel, explain(op::gemm, Exec(), tensor<T, 3>({20000, 16, 16}),
                           tensor<T, 3>({20000, 16, 16}), tensor<T, 3>({20000, 16, 16})));
  };
  small("gemm/sm80_small_f32", float());
  small("gemm/sm80_small_f64", double());
}

template <class T, class Out>
void expect_attention(std::string const& kernel, std::int64_t length, std::int64_t head_dim,
                      AttentionOptions const& options = {}, std::int64_t leading = 0) {
  auto const q = tensor<T, 4>({2, 8, length, head_dim}, leading),
             k = tensor<T, 4>({2, 4, length, head_dim}), v = tensor<T, 4>({2, 4, length, head_dim});
  expect(kernel, explain(op::attention, Exec(), q, k, v, tensor<Out, 4>({2, 8, length, head_dim}),
                         options));
}

TEST_F(DispatchCuda, Attention) {
  expect_attention<bfloat16, bfloat16>("attention/sm90_wgmma_bf16", 2048, 128);
  expect_attention<float16, float16>("attention/sm90_wgmma_f16", 2048, 64, {.causal = true});
  expect_attention<bfloat16, bfloat16>("attention/sm80_mma_bf16", 2048, 128, {}, 132);
  expect_attention<bfloat16, bfloat16>("attention/sm90_short_bf16", 64, 64);
  expect_attention<float16, float16>("attention/sm90_short_f16", 128, 64);
  expect_attention<float8_e4m3, bfloat16>("attention/sm90_wgmma_e4m3", 2048, 128);
  expect_attention<float8_e4m3, float16>("attention/sm80_mma_e4m3", 2048, 128, {}, 136);
  expect_attention<float, float>("attention/sm80_simt_f32", 2048, 128);
  expect_attention<float, float>("attention/sm80_mma_tf32x3", 2048, 128,
                                 {.compute = Compute::tf32x3});
  expect_attention<double, double>("attention/sm80_mma_f64", 2048, 64);
  // Few queries over many keys, until there are enough of them.
  auto const few = [](std::string const& kernel, std::int64_t batch, std::int64_t queries) {
    auto const q = tensor<bfloat16, 4>({batch, 8, queries, 128});
    auto const cache = tensor<bfloat16, 4>({batch, 8, 4096, 128});
    expect(kernel, explain(op::attention, Exec(), q, cache, cache,
                           tensor<bfloat16, 4>({batch, 8, queries, 128})));
  };
  few("decode/sm80_mma_bf16", 4, 1);
  few("decode/sm80_mma_bf16", 4, 16);
  few("attention/sm90_wgmma_bf16", 4, 17);
  few("attention/sm90_wgmma_bf16", 128, 1);
}

template <class T>
void expect_gradients(std::string const& kernel, std::int64_t head_dim,
                      AttentionOptions const& options = {}, std::int64_t leading = 0,
                      std::int64_t length = 300) {
  using Lse = std::conditional_t<std::is_same_v<T, double>, double, float>;
  auto const of_q = [&] { return tensor<T, 4>({2, 8, length, head_dim}); };
  auto const of_k = [&] { return tensor<T, 4>({2, 4, length, head_dim}); };
  auto const q = tensor<T, 4>({2, 8, length, head_dim}, leading), out = of_q(), dout = of_q(),
             dq = of_q(), k = of_k(), v = of_k(), dk = of_k(), dv = of_k();
  auto const lse = tensor<Lse, 3>({2, 8, length});
  expect(kernel,
         explain(op::attention_backward, Exec(), q, k, v, out, lse, dout, dq, dk, dv, options));
}

TEST_F(DispatchCuda, AttentionBackward) {
  expect_gradients<bfloat16>("attention_backward/sm90_wgmma_bf16", 128, {.causal = true});
  expect_gradients<float16>("attention_backward/sm90_wgmma_f16", 64);
  expect_gradients<float16>("attention_backward/sm90_wgmma_f16", 80,
                            {.window_left = 9, .determinism = Determinism::unordered});
  expect_gradients<bfloat16>("attention_backward/sm90_wgmma_bf16", 128, {.softcap = 30});
  expect_gradients<float16>("attention_backward/sm90_wgmma_f16", 256);
  expect_gradients<bfloat16>("attention_backward/sm90_wgmma_bf16", 192, {.softcap = 30});
  expect_gradients<float16>("attention_backward/sm80_mma_f16", 256, {}, 260);
  expect_gradients<bfloat16>("attention_backward/sm80_mma_bf16", 128, {}, 132);
  expect_gradients<bfloat16>("attention_backward/sm80_mma_bf16", 64, {.softmax_scale = -0.5});
  expect_gradients<bfloat16>("attention_backward/sm80_short_bf16", 64, {}, 0, 64);
  expect_gradients<float16>("attention_backward/sm80_short_f16", 40, {.causal = true}, 44, 192);
  expect_gradients<float16>("attention_backward/sm80_short_f16", 128, {}, 0, 128);
  expect_gradients<bfloat16>("attention_backward/sm90_wgmma_bf16", 64, {}, 0, 193);
  expect_gradients<float16>("attention_backward/sm90_wgmma_f16", 64, {.softcap = 30}, 0, 97);
  expect_gradients<float>("attention_backward/sm80_simt_f32", 128);
  expect_gradients<float>("attention_backward/sm80_simt_f32", 256, {.compute = Compute::tf32x3});
  expect_gradients<float>("attention_backward/sm80_mma_tf32x3", 128, {.compute = Compute::tf32x3});
  expect_gradients<double>("attention_backward/sm80_mma_f64", 64);
  expect_gradients<double>("portable", 136);
  expect_gradients<bfloat16>("portable", 264);
  expect_gradients<bfloat16>("portable", 64, {.attention_chunk = 32});
  expect_gradients<float>("portable", 264);
}

TEST_F(DispatchCuda, AppendKv) {
  auto const fresh = tensor<bfloat16, 4>({2, 4, 3, 128});
  auto const into = [&]<class T>(T) {
    expect("append_kv/sm80_simt",
           explain(op::append_kv, Exec(), fresh, fresh, tensor<T, 4>({2, 4, 4096, 128}),
                   tensor<T, 4>({2, 4, 4096, 128})));
  };
  into(bfloat16());
  into(float8_e4m3());
}

TEST_F(DispatchCuda, DecodeAndGatedMlp) {
  auto const decode = [&]<class T, class Out>(std::string const& kernel, T, Out,
                                              std::int64_t leading) {
    auto const cache = tensor<T, 4>({2, 4, 4096, 128}, leading);
    expect(kernel, explain(op::decode, Exec(), tensor<T, 4>({2, 8, 1, 128}), cache, cache,
                           tensor<Out, 4>({2, 8, 1, 128})));
  };
  decode("decode/sm80_mma_f16", float16(), float16(), 0);
  decode("decode/sm80_mma_bf16", bfloat16(), bfloat16(), 0);
  decode("decode/sm80_mma_e4m3", float8_e4m3(), bfloat16(), 0);
  decode("decode/sm80_simt_f16", float16(), float16(), 129);
  decode("decode/sm80_simt_bf16", bfloat16(), bfloat16(), 129);
  decode("decode/sm80_simt_f32", float(), float(), 0);
  decode("decode/sm80_simt_f64", double(), double(), 129);
  auto const mlp = [&]<class T>(std::string const& kernel, T) {
    expect(kernel, explain(op::gated_mlp, Exec(), matrix<T>(64, 512), matrix<T>(1024, 512),
                           matrix<T>(1024, 512), matrix<T>(64, 1024)));
  };
  mlp("gated_mlp/sm90_wgmma_f16", float16());
  mlp("gated_mlp/sm90_wgmma_bf16", bfloat16());
}

}  // namespace
}  // namespace attikos::test

#endif
