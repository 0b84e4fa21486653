// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Probes of the products of a warpgroup: descriptors of both majors, every k-step, every width and
// every pair of types, operands in shared memory or A in registers.
#include "probe_wgmma.hpp"
#include "ptx/wgmma_a_registers.cuh"
#include "ptx/wgmma_rs.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using ProbeWgmma = Probe;
using ProbeWgmmaRegisters = Probe;

template <class T>
using AccumulatorOf = std::conditional_t<std::is_same_v<T, std::int8_t>, int, float>;

/// Both operands in shared memory.
template <class TA, class TB, int N, int TransA, int TransB>
struct FromShared {
  using A = TA;
  using B = TB;
  using Acc = AccumulatorOf<A>;
  static constexpr int n = N;
  static constexpr bool from_registers = false;
  ProductParams const& p;
  std::uint64_t a, b;

  __device__ FromShared(ProductParams const& params, uint4 const* memory) : p(params) {
    std::uint32_t const block = p.wave * (TransA ? p.leading_a : 64u * 128u);
    a = operand_descriptor(memory + block / 16, p.leading_a);
    b = operand_descriptor(memory + p.begin_b / 16, p.leading_b);
  }
  __device__ void load(int) {}
  __device__ __forceinline__ void multiply(Acc (&d)[N / 2], int step, int accumulate) {
    Wgmma<A, B, N, TransA, TransB>::multiply(d, advance(a, p.step_a[step]),
                                             advance(b, p.step_b[step]), accumulate);
  }
};

/// A in registers, loaded word by word as the wrappers document.
template <class TA, class TB, int N>
struct FromRegisters {
  using A = TA;
  using B = TB;
  using Acc = AccumulatorOf<A>;
  static constexpr int n = N;
  static constexpr bool from_registers = true;
  ProductParams const& p;
  std::uint64_t b;
  std::uint32_t a[4];

  __device__ FromRegisters(ProductParams const& params, uint4 const* memory) : p(params) {
    b = operand_descriptor(memory + p.begin_b / 16, p.leading_b);
  }
  __device__ void load(int step) {
    int const t = static_cast<int>(threadIdx.x);
    int const row = 64 * p.wave + t / 32 * 16 + t % 32 / 4, q = t % 4;
    for (int i = 0; i < 2; ++i)
      for (int half = 0; half < 2; ++half)
        a[i + 2 * half] = *reinterpret_cast<std::uint32_t const*>(
            p.rows_a + (row + 8 * i) * p.pitch_a + 32 * step + 16 * half + 4 * q);
    pin(a);
  }
  __device__ __forceinline__ void multiply(Acc (&d)[N / 2], int step, int accumulate) {
    if constexpr (sizeof(A) == 4)
      multiply_tf32(d, a, advance(b, p.step_b[step]), accumulate);
    else if constexpr (sizeof(A) == 2)
      WgmmaRs<A, N>::multiply(d, a, advance(b, p.step_b[step]), accumulate);
    else
      WgmmaRegisters<A, B, N>::multiply(d, a, advance(b, p.step_b[step]), accumulate);
  }
};

/// 8-bit A whose rows lie along lines in shared memory, transposed on its way to registers.
template <class TA, class TB, int N>
struct FromTransposed : FromRegisters<TA, TB, N> {
  std::uint32_t tile;
  TransposedBytes bytes;

  __device__ FromTransposed(ProductParams const& params, uint4 const* memory)
      : FromRegisters<TA, TB, N>(params, memory), tile(shared_address(memory)) {}
  __device__ void load(int step) {
    bytes.load(this->a, tile, step, this->p.wave);
    pin(this->a);
  }
};

int same_row(int row) { return row; }
/// Row 16 w + g + 8 i of the product is line 16 w + 2 g + i of the tile.
int paired_row(int row) { return row / 16 * 16 + row % 8 * 2 + row / 8 % 2; }

template <class A, class B>
void check(WarpgroupKernel kernel, int n, bool mn_a, bool mn_b, char const* name,
           int (*row_of)(int) = same_row) {
  int const depth = 256 / static_cast<int>(sizeof(A));  // two lines of k
  Integers const a(probe_rows, depth, limit_of<A>(), 1), b(n, depth, limit_of<B>(), 2);
  ProductParams p{};
  Bytes const image = joined(mn_a ? mn_major_image<A>(a) : k_major_image<A>(a),
                             mn_b ? mn_major_image<B>(b) : k_major_image<B>(b), p.begin_b);
  // K-major descriptors do not look at the distance: anything will do.
  p.leading_a = mn_a ? static_cast<std::uint32_t>(depth) * 128 : 48;
  p.leading_b = mn_b ? static_cast<std::uint32_t>(depth) * 128 : 16;
  p.steps = max_steps;
  for (int step = 0; step < max_steps; ++step) {
    p.step_a[step] = step_begin(mn_a, probe_rows, step);
    p.step_b[step] = step_begin(mn_b, n, step);
  }
  check_warpgroup(kernel, a, b, rows_of<A>(a), image, p, row_of, name);
}

template <class A, class B, int TransA, int TransB, int... N>
void shared(char const* name) {
  (check<A, B>(warpgroup_kernel<FromShared<A, B, N, TransA, TransB>>, N, TransA, TransB, name),
   ...);
}
template <class A, class B, int... N>
void registers(char const* name) {
  (check<A, B>(warpgroup_kernel<FromRegisters<A, B, N>>, N, false, sizeof(A) == 2, name), ...);
}
template <class A, class B, int... N>
void transposed(char const* name) {
  (check<A, B>(warpgroup_kernel<FromTransposed<A, B, N>>, N, true, false, name, paired_row), ...);
}

TEST_F(ProbeWgmma, Float16EveryWidth) {
  shared<__half, __half, 0, 0, 16, 32, 48, 64, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240,
         256>("float16 k-major");
}
TEST_F(ProbeWgmma, BFloat16EveryMajor) {
  using T = __nv_bfloat16;
  shared<T, T, 0, 0, 64>("bfloat16 k-major");
  shared<T, T, 0, 1, 16, 32, 48, 64, 96, 112, 128, 144, 160, 192, 224, 256>("bfloat16, B along N");
  shared<T, T, 1, 0, 64, 128>("bfloat16, A along M");
  shared<T, T, 1, 1, 96, 128>("bfloat16, both along lines");
}
TEST_F(ProbeWgmma, Float8EveryWidth) {
  shared<E4, E4, 0, 0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256>(
      "e4m3 e4m3");
}
TEST_F(ProbeWgmma, Float8EveryPair) {
  shared<E4, E5, 0, 0, 64>("e4m3 e5m2");
  shared<E5, E4, 0, 0, 64>("e5m2 e4m3");
  shared<E5, E5, 0, 0, 64>("e5m2 e5m2");
}
TEST_F(ProbeWgmma, Int8EveryWidth) {
  shared<std::int8_t, std::int8_t, 0, 0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208,
         224, 240, 256>("int8");
}

TEST_F(ProbeWgmmaRegisters, SixteenBits) {
  registers<__half, __half, 32, 64, 96, 128, 192, 256>("float16");
  registers<__nv_bfloat16, __nv_bfloat16, 64>("bfloat16");
}
TEST_F(ProbeWgmmaRegisters, Tf32) { registers<float, float, 128>("tf32"); }
TEST_F(ProbeWgmmaRegisters, EightBits) {
  registers<E4, E4, 32, 64, 96, 128, 192, 256>("e4m3 e4m3");
  registers<E4, E5, 64>("e4m3 e5m2");
  registers<E5, E4, 64>("e5m2 e4m3");
  registers<E5, E5, 64>("e5m2 e5m2");
  registers<std::int8_t, std::int8_t, 32, 64, 96, 128, 192, 256>("int8");
}
TEST_F(ProbeWgmmaRegisters, TransposedBytes) {
  transposed<E4, E4, 64>("e4m3 along M");
  transposed<std::int8_t, std::int8_t, 64>("int8 along M");
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
