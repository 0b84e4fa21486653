// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// gemm/sm90_wgmma_*: what they accept, and operands as the copy engine sees them. No kernels.
#pragma once

#include "common/tensor_map.cuh"
#include "gemm/shared/product.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

constexpr TensorMapSource operand_source(void const* data, CUtensorMapDataType type, int bytes,
                                         Major major, std::int64_t mn, std::int64_t stride_mn,
                                         std::int64_t k, std::int64_t stride_k, std::int64_t batch,
                                         std::int64_t stride_batch) {
  bool const along_k = major == Major::k;
  bool const shared = stride_batch == 0;  // one matrix for the whole batch
  return {data,
          type,
          bytes,
          along_k ? k : mn,
          along_k ? mn : k,
          shared ? 1 : batch,
          (along_k ? stride_mn : stride_k) * bytes,
          stride_batch * bytes};
}

template <class A>
TensorMapSource source_a(abi::GemmArgs const& g) {
  return operand_source(g.a, TensorMapElement<A>::map, sizeof(A), major_a(g), g.m, g.a_m, g.k,
                        g.a_k, g.batch, g.a_batch);
}
template <class B>
TensorMapSource source_b(abi::GemmArgs const& g) {
  return operand_source(g.b, TensorMapElement<B>::map, sizeof(B), major_b(g), g.n, g.b_n, g.k,
                        g.b_k, g.batch, g.b_batch);
}
inline TensorMapSource source_c(abi::GemmArgs const& g) {
  int const bytes = dtype_size(g.type_c);
  CUtensorMapDataType const type = g.type_c == DType::float16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                   : g.type_c == DType::bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                   : g.type_c == DType::int32    ? CU_TENSOR_MAP_DATA_TYPE_INT32
                                   : bytes == 1                  ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                                                 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  return {g.c, type, bytes, g.n, g.m, g.batch, g.c_m * bytes, g.c_batch * bytes};
}

/// Why the copy engine cannot load A or B; null if it can.
inline char const* refuse_maps(TensorMapSource const& a, TensorMapSource const& b) {
  if (char const* reason =
          refuse_tensor_map(a, "A's address is not a multiple of 16 bytes",
                            "a stride of A is not a multiple of 16 bytes", "A is too large"))
    return reason;
  return refuse_tensor_map(b, "B's address is not a multiple of 16 bytes",
                           "a stride of B is not a multiple of 16 bytes", "B is too large");
}

/// Calls `f` with the two element types of a product of float8.
template <class F>
auto with_float8(abi::GemmArgs const& g, F f) {
  using E4 = __nv_fp8_e4m3;
  using E5 = __nv_fp8_e5m2;
  bool const a5 = g.type_a == DType::float8_e5m2, b5 = g.type_b == DType::float8_e5m2;
  if (a5) return b5 ? f(E5{}, E5{}) : f(E5{}, E4{});
  return b5 ? f(E4{}, E5{}) : f(E4{}, E4{});
}

/// First reason not to take a call, whatever its element types; null if there is none.
template <class A, class B>
char const* refuse_sm90(abi::GemmArgs const& g, abi::Device const& device) {
  constexpr bool integer = std::is_same_v<A, std::int8_t>;
  if (g.type_a != TensorMapElement<A>::dtype || g.type_b != TensorMapElement<B>::dtype)
    return "it multiplies other element types";
  bool const exact = integer && g.type_c == DType::int32;
  if (!exact && !writable(g.type_c)) return "it does not write C's element type";
  if (exact && !exact_in_int32(g)) return not_exact_in_int32;
  if (char const* reason = refuse_quantized(g)) return reason;
  if (char const* reason = refuse_other_than_sm90(device)) return reason;
  using Option = abi::GemmOption;
  if (char const* reason =
          abi::beyond(g, abi::epilogue_gemm_options.with(Option::tile, sizeof(A) < 4)
                             .with(Option::scale_out, has_8_bits(g.type_c))
                             .with(Option::scale_a, sizeof(A) == 1)
                             .with(Option::scale_b, sizeof(A) == 1)))
    return reason;
  auto const fits = [](abi::ScaleGrid const& s, bool of_a) {
    return factors_fit(s, of_a) || (!integer && along_blocks(s, of_a));
  };
  if (!fits(g.scale_a, true) || !fits(g.scale_b, false))
    return integer ? "its scales are one for a matrix, or one for a row of A or a column of B"
                   : "its scales are constant along K, or over 128 of it";
  if (g.bias != nullptr && !readable(g.type_bias))
    return "it does not read the bias's element type";
  if (g.residual != nullptr && !readable(g.type_residual))
    return "it does not read the residual's element type";
  if (char const* reason = refuse_pre_activation(g)) return reason;
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0) return "an extent is negative";
  if (g.m == 0 || g.n == 0 || g.batch == 0) return nullptr;  // nothing is read or written
  if (char const* reason = refuse_operands(g)) return reason;
  Major const a = major_a(g), b = major_b(g);
  if (a == Major::neither) return "A has no unit stride";
  if (b == Major::neither) return "B has no unit stride";
  if (sizeof(A) == 1 && a != Major::k && b != Major::k)
    return "one of two 8-bit operands needs its unit stride along K";
  if (char const* reason = refuse_maps(source_a<A>(g), source_b<B>(g))) return reason;
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (g.m > most || g.n > most || g.k > most || g.batch > most ||
      (g.m / 32 + 1) * (g.n / 16 + 1) > most / g.batch)
    return "C is too large for one launch";
  return nullptr;
}

/// Element types of products whose tiles come in parts of K and in all widths.
template <class A, class B>
constexpr bool many_shapes = sizeof(A) == 2 ||
                             (std::is_same_v<A, __nv_fp8_e4m3> && std::is_same_v<B, __nv_fp8_e4m3>);

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
