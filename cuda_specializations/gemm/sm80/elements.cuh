// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Element types of the mma.sync kernels: from 32 bytes of K in registers to products.
///
/// Each type has `Factor`, what the matrix unit is fed for 16 rows of A or 16 columns of B;
/// `prepare`, which makes it of what shared memory holds; and `multiply`, which adds the product
/// with the 8 columns `half` of B, or one of the `instructions` that make it up.
#pragma once

#include <attikos/ptx/mma_sync.hpp>
#include <type_traits>

#include "gemm/shared/epilogue.cuh"
#include "ptx/convert.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// 16 rows of A or columns of B, times 32 bytes of K, as ldmatrix gives them: of row g + 8 h bytes
/// 16 l + 4 q in word h + 2 l of A, 2 h + l of B.
struct Words {
  std::uint32_t w[4];
};
/// The same of float64: numbers q of rows g and g + 8.
struct Doubles {
  double w[2];
};
template <int Size>
using Fragment = std::conditional_t<Size == 8, Doubles, Words>;

/// What most types have in common: factors are taken as they are, sums stay where they are.
struct PlainElement {
  using Acc = float;
  using Factor = Words;
  static constexpr int steps = 1;          ///< times 32 bytes of K that one instruction takes
  static constexpr int instructions = 1;   ///< that a product takes
  static constexpr bool promoted = false;  ///< sums of 128 bytes of K join others by an addition
  __device__ static __forceinline__ Factor prepare(Words const& x, bool) { return x; }
};

struct HalfElement : PlainElement {
  using Element = __half;
  static constexpr DType dtype = DType::float16;
  __device__ static __forceinline__ void multiply(float (&d)[4], Words const (&a)[1],
                                                  Words const (&b)[1], int half, int) {
    mma_f16(d, a[0].w, b[0].w[2 * half], b[0].w[2 * half + 1]);
  }
};

struct BfloatElement : PlainElement {
  using Element = __nv_bfloat16;
  static constexpr DType dtype = DType::bfloat16;
  __device__ static __forceinline__ void multiply(float (&d)[4], Words const (&a)[1],
                                                  Words const (&b)[1], int half, int) {
    mma_bf16(d, a[0].w, b[0].w[2 * half], b[0].w[2 * half + 1]);
  }
};

struct ByteElement : PlainElement {
  using Acc = int;
  using Element = std::int8_t;
  static constexpr DType dtype = DType::int8;
  __device__ static __forceinline__ void multiply(int (&d)[4], Words const (&a)[1],
                                                  Words const (&b)[1], int half, int) {
    mma_s8(d, a[0].w, b[0].w[2 * half], b[0].w[2 * half + 1]);
  }
};

/// `Steps`: times 4 k of one instruction.
template <int Steps>
struct DoubleElement : PlainElement {
  using Acc = double;
  using Element = double;
  static constexpr DType dtype = DType::float64;
  using Factor = Doubles;
  static constexpr int steps = Steps;
  __device__ static __forceinline__ Doubles prepare(Doubles const& x, bool) { return x; }
  __device__ static __forceinline__ void multiply(double (&d)[4], Doubles const (&a)[Steps],
                                                  Doubles const (&b)[Steps], int half, int) {
    double x[2 * Steps], y[Steps];
#pragma unroll
    for (int s = 0; s < Steps; ++s)
      x[2 * s] = a[s].w[0], x[2 * s + 1] = a[s].w[1], y[s] = b[s].w[half];
    mma_f64(d, x, y);
  }
};

/// float32 rounded to 11 significant bits, halves away from zero; what becomes of NaN is said at
/// round_tf32.
struct Tf32Element : PlainElement {
  using Element = float;
  static constexpr DType dtype = DType::float32;
  __device__ static __forceinline__ Words prepare(Words const& x, bool) {
    Words y;
#pragma unroll
    for (int i = 0; i < 4; ++i) y.w[i] = round_tf32(__uint_as_float(x.w[i]));
    return y;
  }
  __device__ static __forceinline__ void multiply(float (&d)[4], Words const (&a)[1],
                                                  Words const (&b)[1], int half, int) {
    mma_tf32(d, a[0].w, b[0].w[2 * half], b[0].w[2 * half + 1]);
  }
};

/// float32 x as big + small: big is x rounded to 11 significant bits, small what is left, of which
/// the matrix unit looks at 11 bits too. The products of small with small are left out. Matrix
/// units truncate what they add, so no more than 32 k are left to them.
///
/// Source: H. Ootomo, R. Yokota, "Recovering single precision accuracy from Tensor Cores while
/// surpassing the FP32 theoretical peak performance", IJHPCA 36(4), 2022.
struct Tf32x3Element : PlainElement {
  struct Factor {
    Words big, small;
  };
  using Element = float;
  static constexpr DType dtype = DType::float32;
  static constexpr int instructions = 3;
  static constexpr bool promoted = true;
  __device__ static __forceinline__ Factor prepare(Words const& x, bool) {
    Factor y;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // A NaN whose bits run over here is still one in `small`.
      y.big.w[i] = (x.w[i] + 0x1000u) & 0xFFFFE000u;
      y.small.w[i] = __float_as_uint(__uint_as_float(x.w[i]) - __uint_as_float(y.big.w[i]));
    }
    return y;
  }
  __device__ static __forceinline__ void multiply(float (&d)[4], Factor const (&a)[1],
                                                  Factor const (&b)[1], int half, int instruction) {
    Words const& x = instruction == 0 ? a[0].small : a[0].big;
    Words const& y = instruction == 1 ? b[0].small : b[0].big;
    mma_tf32(d, x.w, y.w[2 * half], y.w[2 * half + 1]);
  }
};

/// float8 of either format. sm_89 multiplies them as they are; on sm_90 mma.sync would turn them
/// into float16, which holds them all exactly, for every product anew.
struct Float8Element : PlainElement {
  using Element = std::uint8_t;
  static constexpr bool promoted = true;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
  static constexpr int instructions = 2;
  struct Factor {
    Words low, high;  ///< of each word the two lower elements and the two upper
  };
  __device__ static __forceinline__ Factor prepare(Words const& x, bool e5m2) {
    Factor y;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t low, high;
      widen_four(x.w[i], low, high);
      // e5m2 is the upper half of float16.
      y.low.w[i] = e5m2 ? __byte_perm(x.w[i], 0, 0x1404) : low;
      y.high.w[i] = e5m2 ? __byte_perm(x.w[i], 0, 0x3424) : high;
    }
    return y;
  }
  /// Each half of the 32 k gives a product of 16.
  __device__ static __forceinline__ void multiply(float (&d)[4], Factor const (&a)[1],
                                                  Factor const (&b)[1], int half, int instruction) {
    int const l = 2 * instruction;
    std::uint32_t const x[4] = {a[0].low.w[l], a[0].low.w[l + 1], a[0].high.w[l],
                                a[0].high.w[l + 1]};
    mma_f16(d, x, b[0].low.w[2 * half + instruction], b[0].high.w[2 * half + instruction]);
  }
#else
  template <bool A5, bool B5>
  __device__ static __forceinline__ void multiply_as(float (&d)[4], Words const (&a)[1],
                                                     Words const (&b)[1], int half) {
    mma_f8<A5, B5>(d, a[0].w, b[0].w[2 * half], b[0].w[2 * half + 1]);
  }
#endif
};

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
