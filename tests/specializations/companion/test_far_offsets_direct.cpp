// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operands of which some elements lie more than 2^31 elements after others: the same bits as from
// memory without gaps, which other suites compare with float64. The suite fails
// without a Hopper card that has 18 GB to spare.
#include <attikos/abi/attention_backward_cuda.hpp>

#include "decode/direct_decode.hpp"

namespace {

constexpr std::int64_t lines = 5;  ///< rows, heads, pages or groups that lie so far apart
constexpr std::int64_t far = (std::int64_t{1} << 29) + 64;
constexpr std::size_t arena_bytes = std::size_t{18} << 30;

/// Memory of 0xFF in which operands lie line by line, every line `far` elements after the last.
class FarRuns : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(device.compute_major, 9) << "this suite needs a Hopper card";
    ASSERT_CUDA(cudaMalloc(&arena_, arena_bytes));
    ASSERT_CUDA(cudaMemset(arena_, 0xFF, arena_bytes));
    device.sm_count = 1;  // no kernel finds its tiles too few
  }
  void TearDown() override { cudaFree(arena_); }

  /// Room for lines of `width` elements.
  template <class T>
  T* room(std::int64_t width) {
    auto* const begin = reinterpret_cast<T*>(arena_ + next_);
    next_ += (static_cast<std::size_t>(width) * sizeof(T) + 1023) / 1024 * 1024;
    EXPECT_LE(next_ + static_cast<std::size_t>((lines - 1) * far) * sizeof(T), arena_bytes);
    return begin;
  }
  template <class T>
  T* spread(T const* compact, std::int64_t width) {
    T* const begin = room<T>(width);
    for (std::int64_t i = 0; i < lines; ++i)
      EXPECT_EQ(cudaMemcpy(begin + i * far, compact + i * width,
                           static_cast<std::size_t>(width) * sizeof(T), cudaMemcpyDeviceToDevice),
                cudaSuccess);
    return begin;
  }
  /// What a call wrote without gaps and with them: the same, and not all of it 0xFF.
  template <class T>
  void expect_same(T const* compact, T const* spread, std::int64_t width) {
    std::vector<unsigned char> expected(static_cast<std::size_t>(width) * sizeof(T)), got(expected);
    for (std::int64_t i = 0; i < lines; ++i) {
      ASSERT_CUDA(cudaMemcpy(expected.data(), compact + i * width, got.size(), cudaMemcpyDefault));
      ASSERT_CUDA(cudaMemcpy(got.data(), spread + i * far, got.size(), cudaMemcpyDefault));
      EXPECT_EQ(expected == got, true) << "line " << i;
      EXPECT_NE(static_cast<std::size_t>(std::count(got.begin(), got.end(), 0xFF)), got.size());
    }
  }

  /// What lies apart: A's rows, B's columns and C's rows; C's columns instead; batches.
  enum class Apart { rows, columns_of_c, batches };

  template <class Kernel, class T, class C = T>
  void product(Apart apart, Compute compute = Compute::ieee) {
    SKIP_IF_LEFT_OUT(Kernel);
    SCOPED_TRACE(testing::Message() << Kernel::name << ' ' << static_cast<int>(apart));
    bool const batches = apart == Apart::batches, turned = apart == Apart::columns_of_c;
    std::int64_t const side = 144, width = side * side;
    Matrix<T> a(1, lines, width, false, 0, false, 1), b(1, lines, width, false, 0, false, 2);
    Matrix<C> c(1, lines, width, false, 0, false, 3);
    c.forget();
    a.upload(), b.upload(), c.upload();
    GemmArgs g;
    g.type_a = g.type_b = dtype_of<T>(), g.type_c = dtype_of<C>(), g.compute = compute;
    g.m = g.n = batches ? side : lines, g.k = side, g.batch = batches ? lines : 1;
    g.a_k = g.b_k = 1;
    auto const run = [&](T const* at_a, T const* at_b, C* at_c, std::int64_t stride) {
      g.a = at_a, g.b = at_b, g.c = at_c;
      g.a_batch = g.b_batch = g.c_batch = stride;
      g.a_m = g.b_n = batches ? side : stride;
      g.c_m = turned ? 1 : g.a_m, g.c_n = turned ? stride : 1;
      ASSERT_STREQ(Kernel::accepts(g, device).reason, "");
      ASSERT_EQ(Kernel::launch(g, device, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaDeviceSynchronize());
    };
    run(a.begin(), b.begin(), c.begin(), width);
    C* const far_c = room<C>(width);
    run(spread(a.begin(), width), spread(b.begin(), width), far_c, far);
    expect_same(c.begin(), far_c, width);
  }
  template <class Kernel, class T, class C = T>
  void products(Compute compute = Compute::ieee) {
    for (Apart apart : {Apart::rows, Apart::columns_of_c, Apart::batches})
      product<Kernel, T, C>(apart, compute);
  }

  /// Matrices of B lie apart.
  template <class Kernel, class T, class C = __nv_bfloat16>
  void groups() {
    SKIP_IF_LEFT_OUT(Kernel);
    SCOPED_TRACE(Kernel::name);
    std::int64_t const n = 72, k = 208, width = n * k;
    Matrix<T> a(1, 200, k, false, 0, false, 1), b(1, lines, width, false, 0, false, 2);
    Matrix<C> c(1, 200, n, false, 0, false, 3);
    a.upload(), b.upload();
    DeviceArray<int> const offsets({0, 7, 60, 60, 190, 200});
    GemmArgs g;
    g.a = a.begin(), g.offsets = offsets.data, g.offsets_stride = 1, g.groups = lines;
    g.type_a = g.type_b = dtype_of<T>(), g.type_c = dtype_of<C>();
    g.m = 200, g.n = n, g.k = k, g.a_k = g.b_k = g.c_n = g.batch = 1;
    g.a_m = a.stride_row, g.b_n = k, g.c_m = c.stride_row;
    c.forget();
    std::vector<unsigned char> results[2];
    for (int turn : {0, 1}) {
      c.upload();
      g.b = turn == 0 ? b.begin() : spread(b.begin(), width), g.b_batch = turn == 0 ? width : far;
      g.c = c.begin();
      ASSERT_STREQ(Kernel::accepts(g, device).reason, "");
      ASSERT_EQ(Kernel::launch(g, device, nullptr), cudaSuccess);
      results[turn].resize(c.host.size());
      ASSERT_CUDA(
          cudaMemcpy(results[turn].data(), c.device, c.host.size(), cudaMemcpyDeviceToHost));
    }
    EXPECT_EQ(results[0] == results[1], true);
    EXPECT_EQ(results[0] == c.host, false);
  }

  /// Which dimension's steps are far: 0 pages, of `page_size` positions, 1 heads, 2 positions.
  template <class Kernel, class T, class Out = T>
  void attention(int dimension, Compute compute = Compute::ieee, std::int64_t page_size = 64) {
    SKIP_IF_LEFT_OUT(Kernel);
    SCOPED_TRACE(testing::Message() << Kernel::name << ", dimension " << dimension);
    bool const by_pages = dimension == 0;
    std::int64_t const heads = dimension == 1 ? lines : 2;
    std::int64_t const rows = dimension == 2 ? lines : page_size;
    std::int64_t const d = 64, width = dimension == 2   ? d
                                       : dimension == 1 ? rows * d
                                                        : heads * rows * d;
    auto const order = dimension == 2 ? Order::positions_first : Order::heads_first;
    std::int64_t const all_heads = dimension == 2 ? 1 : heads, pages = by_pages ? lines : 1;
    Tensor4<T> q(1, all_heads, rows, d, order, 1, 2), k(pages, all_heads, rows, d, order, 2, 1),
        v(pages, all_heads, rows, d, order, 3, 1);
    Tensor4<Out> out(1, all_heads, rows, d, order, 4, 1);
    out.forget();
    q.upload(), k.upload(), v.upload(), out.upload();
    DeviceArray<int> const table({4, 0, 3, 1, 2});
    DecodeArgs g;
    g.type = dtype_of<T>(), g.type_out = dtype_of<Out>(), g.compute = compute, g.splits = 1;
    g.batch = 1, g.heads_q = g.heads_kv = all_heads, g.seqlen_q = rows;
    g.seqlen_kv = pages * rows, g.head_dim = g.head_dim_v = d, g.softmax_scale = 0.125;
    if (by_pages) {
      g.page_table = table.data, g.page_table_stride[0] = lines, g.page_table_stride[1] = 1;
      g.page_size = rows, g.num_pages = lines;
    }
    auto const run = [&](T const* at_q, T const* at_k, T const* at_v, Out* at_out, bool apart) {
      g.q = at_q, g.k = at_k, g.v = at_v, g.out = at_out;
      for (int r = 0; r < 4; ++r) {
        bool const this_one = apart && r == dimension;
        g.q_stride[r] = this_one && !by_pages ? far : q.stride[r];
        g.out_stride[r] = this_one && !by_pages ? far : out.stride[r];
        g.k_stride[r] = this_one ? far : k.stride[r];
        g.v_stride[r] = this_one ? far : v.stride[r];
      }
      ASSERT_STREQ(Kernel::accepts(g, device).reason, "");
      ASSERT_EQ(Kernel::launch(g, device, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaDeviceSynchronize());
    };
    run(q.begin(), k.begin(), v.begin(), out.begin(), false);
    T* const far_k = spread(k.begin(), width);
    T* const far_v = spread(v.begin(), width);
    if (!by_pages) {
      Out* const far_out = room<Out>(width);
      run(spread(q.begin(), width), far_k, far_v, far_out, true);
      expect_same(out.begin(), far_out, width);
      return;
    }
    std::vector<unsigned char> results[2];
    for (auto& result : results) {
      result.resize(out.host.size());
      ASSERT_CUDA(cudaMemcpy(result.data(), out.device, result.size(), cudaMemcpyDeviceToHost));
      out.upload();
      run(q.begin(), far_k, far_v, out.begin(), true);
    }
    EXPECT_EQ(results[0] == results[1], true);
    EXPECT_EQ(results[0] == out.host, false);
  }

  /// Of all tensors the step of a dimension is far: 1 heads, 2 positions. What lies apart is read
  /// and written as what lies together; out and lse need not come from a forward pass for that.
  template <class Kernel, class T>
  void gradients(int dimension, Compute compute = Compute::ieee) {
    SKIP_IF_LEFT_OUT(Kernel);
    SCOPED_TRACE(testing::Message() << Kernel::name << ", dimension " << dimension);
    std::int64_t const heads = dimension == 1 ? lines : 1, rows = dimension == 2 ? lines : 64;
    std::int64_t const d = 64, width = dimension == 2 ? d : rows * d;
    Tensor4<T> read(1, heads, rows, d, Order::heads_first, 1, 1);
    Tensor4<T> dq(1, heads, rows, d, Order::heads_first, 2, 1),
        dk(1, heads, rows, d, Order::heads_first, 3, 1),
        dv(1, heads, rows, d, Order::heads_first, 4, 1);
    using Lse = std::conditional_t<std::is_same_v<T, double>, double, float>;
    DeviceArray<Lse> const lse(std::vector<Lse>(static_cast<std::size_t>(heads * rows), 4.0f));
    read.upload();
    abi::AttentionBackwardArgs a;
    auto& g = a.forward;
    g.type = g.type_out = dtype_of<T>();
    g.batch = 1, g.heads_q = g.heads_kv = heads, g.seqlen_q = g.seqlen_kv = rows;
    g.head_dim = g.head_dim_v = d, g.softmax_scale = 0.125, g.compute = compute;
    g.lse = lse.data, g.lse_stride[1] = rows, g.lse_stride[2] = 1;
    DeviceArray<char> const memory(std::vector<char>(Kernel::workspace_bytes(a, device)));
    a.workspace = memory.data;
    auto const run = [&](T const* from, T* to_q, T* to_k, T* to_v, bool apart) {
      g.q = g.k = g.v = a.dout = from, g.out = const_cast<T*>(from);
      a.dq = to_q, a.dk = to_k, a.dv = to_v;
      for (auto* stride : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride, &a.dout_stride,
                           &a.dq_stride, &a.dk_stride, &a.dv_stride})
        for (int r = 0; r < 4; ++r) (*stride)[r] = apart && r == dimension ? far : read.stride[r];
      ASSERT_STREQ(Kernel::accepts(a, device).reason, "");
      ASSERT_EQ(Kernel::launch(a, device, nullptr), cudaSuccess);
      ASSERT_CUDA(cudaDeviceSynchronize());
    };
    dq.forget(), dk.forget(), dv.forget();
    dq.upload(), dk.upload(), dv.upload();
    run(read.begin(), dq.begin(), dk.begin(), dv.begin(), false);
    T* const far_q = room<T>(width);
    T* const far_k = room<T>(width);
    T* const far_v = room<T>(width);
    run(spread(read.begin(), width), far_q, far_k, far_v, true);
    expect_same(dq.begin(), far_q, width);
    expect_same(dk.begin(), far_k, width);
    expect_same(dv.begin(), far_v, width);
  }

  Device device = abi::query_device(abi::current_device());

 private:
  unsigned char* arena_ = nullptr;
  std::size_t next_ = 0;
};

TEST_F(FarRuns, Products) {
  products<abi::GemmSm90WgmmaF16, __half>();
  products<abi::GemmSm90WgmmaBf16, __nv_bfloat16, float>();
  products<abi::GemmSm90WgmmaF8, E4, __nv_bfloat16>();
  products<abi::GemmSm90WgmmaS8, std::int8_t, int>();
  products<abi::GemmSm90SimtF32, float>();
  products<abi::GemmSm90WgmmaTf32x3, float>(Compute::tf32x3);
  product<abi::GemmSm90MmaF64, double>(Apart::batches);  // rows are too few for it
}

TEST_F(FarRuns, ProductsOfOlderCards) {
  products<abi::GemmSm75WmmaF16, __half, float>();
  products<abi::GemmSm80MmaF16, __half>();
  products<abi::GemmSm80MmaBf16, __nv_bfloat16, float>();
  products<abi::GemmSm80MmaTf32, float>(Compute::tf32);
  products<abi::GemmSm80MmaS8, std::int8_t, int>();
  products<abi::GemmSm80MmaF64, double>();
  products<abi::GemmSm80MmaTf32x3, float>(Compute::tf32x3);
  products<abi::GemmSm80SimtF32, float>();
  products<abi::GemmSm89MmaF8, E4, __nv_bfloat16>();
}

TEST_F(FarRuns, Groups) {
  groups<abi::GemmSm90GroupedF16, __half, __half>();
  groups<abi::GemmSm90GroupedBf16, __nv_bfloat16>();
  groups<abi::GemmSm90GroupedF8, E4>();
  groups<abi::GemmSm90GroupedS8, std::int8_t, int>();
}

TEST_F(FarRuns, Attention) {
  for (int dimension : {1, 2}) {
    attention<abi::AttentionSm90WgmmaF16, __half>(dimension);
    attention<abi::AttentionSm90WgmmaE4m3, E4, __half>(dimension);
    attention<abi::AttentionSm80MmaBf16, __nv_bfloat16>(dimension);
    attention<abi::AttentionSm80MmaF64, double>(dimension);
    attention<abi::AttentionSm80SimtF32, float>(dimension);
    attention<abi::AttentionSm80MmaTf32x3, float>(dimension, Compute::tf32x3);
    attention<abi::AttentionSm75WmmaF16, __half>(dimension);
    attention<abi::DecodeSm80MmaBf16, __nv_bfloat16>(dimension);
    attention<abi::DecodeSm80MmaE4m3, E4, __half>(dimension);
    attention<abi::DecodeSm80SimtF16, __half>(dimension);
  }
  attention<abi::AttentionSm80ShortF16, __half>(1);  // takes no positions that far apart
  attention<abi::AttentionSm90ShortF16, __half>(1);
}

TEST_F(FarRuns, Gradients) {
  for (int dimension : {1, 2}) {
    gradients<abi::AttentionBackwardSm90WgmmaF16, __half>(dimension);
    gradients<abi::AttentionBackwardSm90WgmmaBf16, __nv_bfloat16>(dimension);
    gradients<abi::AttentionBackwardSm80MmaF16, __half>(dimension);
    gradients<abi::AttentionBackwardSm80MmaBf16, __nv_bfloat16>(dimension);
    gradients<abi::AttentionBackwardSm80MmaF64, double>(dimension);
    gradients<abi::AttentionBackwardSm80ShortF16, __half>(dimension);
    gradients<abi::AttentionBackwardSm80SimtF32, float>(dimension);
    gradients<abi::AttentionBackwardSm80MmaTf32x3, float>(dimension, Compute::tf32x3);
  }
}

TEST_F(FarRuns, Pages) {
  attention<abi::DecodeSm80MmaBf16, __nv_bfloat16>(0);
  attention<abi::DecodeSm80MmaE4m3, E4, __half>(0);
  attention<abi::DecodeSm80SimtF16, __half>(0);
  attention<abi::AttentionSm90WgmmaF16, __half>(0);
  attention<abi::AttentionSm90WgmmaBf16, __nv_bfloat16>(0, Compute::ieee, 61);
  attention<abi::AttentionSm80MmaBf16, __nv_bfloat16>(0);
  attention<abi::AttentionSm80MmaF64, double>(0);
  attention<abi::AttentionSm80SimtF32, float>(0);
}

}  // namespace
