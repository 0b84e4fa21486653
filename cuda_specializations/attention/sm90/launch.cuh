// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// attention/sm90_wgmma_*: what they accept. Each element type has a translation unit of its own,
/// which includes this, and one for some head dimensions each, so that one kernel compiles alone.
#pragma once

#include <attikos/abi/attention_cuda.hpp>
#include <cassert>

#include "attention/shared/plan.cuh"
#include "sequences/operand_maps.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {

using Sm90Launch = cudaError_t(abi::AttentionArgs const&, abi::Device const&, CUstream_st*);

/// Launches of a call by the larger of its head dimensions, each with its kernels in a translation
/// unit of its own. Ordinary functions: nvcc names kernels after one, else after the process.
struct Sm90LaunchesBf16 {
  static Sm90Launch to_64, to_128, to_256, to_256_with_terms;
};
struct Sm90LaunchesF16 {
  static Sm90Launch to_64, to_128, to_256, to_256_with_terms;
};
struct Sm90LaunchesE4m3 {
  static Sm90Launch to_64, to_128, to_256, to_256_with_terms;
};

namespace {

/// Whether biases can be added to products before they are scaled. A bias times 1/scale must fit
/// into a float32: one below -2^127·scale counts as -inf.
inline bool adds_to_products(abi::AttentionArgs const& g) {
  return !(g.softcap > 0) && g.softmax_scale >= 0x1p-24 && g.softmax_scale <= 0x1p24;
}

/// Whether scores are scale·q·k with a positive scale plus ALiBi, a bias that all queries of a head
/// share, or both.
inline bool has_columns(abi::AttentionArgs const& g) {
  bool const shared = g.bias != nullptr && (g.seqlen_q <= 1 || g.bias_stride[2] == 0);
  return adds_to_products(g) && (shared || (g.bias == nullptr && g.alibi != nullptr));
}

/// Whether scores are scale·q·k with a positive scale plus a bias that the copy engine can go
/// through.
inline bool copies_bias(abi::AttentionArgs const& g) {
  if (g.bias == nullptr || g.seqlen_kv == 0 || g.alibi != nullptr || !adds_to_products(g))
    return false;
  std::int64_t const extent[4] = {g.batch, g.heads_q, g.seqlen_q, g.seqlen_kv};
  return (g.type_bias == DType::float32
              ? refuse_operand<float>(g.bias, extent, g.bias_stride, "", "", "")
              : refuse_operand<__half>(g.bias, extent, g.bias_stride, "", "", "")) == nullptr;
}

/// A stride in units of 16 bytes; 0 for a dimension of extent 1.
template <class T>
std::int64_t units_of(std::int64_t const (&extent)[4], std::int64_t const (&stride)[4], int r) {
  return extent[r] > 1 ? stride[r] * static_cast<std::int64_t>(sizeof(T)) / 16 : 0;
}

/// Whether 32 bits count the units of 16 bytes from a tensor's first row to its last.
template <class T>
bool counts_units(std::int64_t const (&extent)[4], std::int64_t const (&stride)[4]) {
  double last = 0;
  for (int r = 0; r < 3; ++r)
    last +=
        static_cast<double>(units_of<T>(extent, stride, r)) * static_cast<double>(extent[r] - 1);
  return last < 0xffffffff;
}

/// First reason not to take a call; null if there is none.
template <class T>
char const* refuse_attention(abi::AttentionArgs const& g, abi::Device const& device) {
  constexpr bool float8 = sizeof(T) == 1;
  if (g.type != TensorMapElement<T>::dtype) return "it takes other element types";
  if (float8 ? g.type_out != DType::float16 && g.type_out != DType::bfloat16 : g.type_out != g.type)
    return float8 ? "its out is float16 or bfloat16" : "it takes other element types";
  if (char const* reason = refuse_other_than_sm90(device)) return reason;
  if (char const* reason =
          abi::beyond(g, float8 ? abi::AttentionSm90WgmmaE4m3::takes : abi::sm90_attention_options))
    return reason;
  if (g.page_table != nullptr && g.page_size == 0) return "page_size is 0";
  if (g.page_table != nullptr && g.page_size % 8 != 0) {
    if (float8) return "pages of float8 tensors are multiples of 8 positions";
    if (copies_bias(g) || has_columns(g))
      return "pages of a call with ALiBi or a bias are multiples of 8 positions";
    if ((g.head_dim | g.head_dim_v) % 8 != 0)
      return "pages that are no multiple of 8 positions want head_dims that are multiples of 8";
  }
  if (char const* reason = refuse_bias_type(g, false)) return reason;
  if (has_negative_extent(g)) return "an extent is negative";
  if (is_empty(g)) return nullptr;
  if (char const* reason = refuse_head_dims(g, float8 ? 1 : 2)) return reason;
  if (char const* reason = refuse_tile_extents(g, 128)) return reason;
  StoredExtents const extents(g);
  if (char const* reason = refuse_queries(g, extents, refuse_operand<T>)) return reason;
  if (g.heads_kv == 0 || g.seqlen_kv == 0) return nullptr;
  if (g.num_pages >= most_positions) return "there are too many pages";
  if (g.k == nullptr || g.v == nullptr) return "k or v is a null pointer";
  if (char const* reason = refuse_keys_and_values(g, extents, refuse_operand<T>)) return reason;
  if (g.page_table != nullptr && g.page_size % 8 != 0 &&
      !(counts_units<T>(extents.k, g.k_stride) && counts_units<T>(extents.v, g.v_stride)))
    return "pages that are no multiple of 8 positions lie within 64 GiB";
  return nullptr;
}

template <class T>
abi::Verdict accepts_attention(abi::AttentionArgs const& g, abi::Device const& device) noexcept {
  char const* const reason = refuse_attention<T>(g, device);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

template <class T, class Launches>
int run_attention(abi::AttentionArgs const& g, abi::Device const& device,
                  CUstream_st* stream) noexcept {
  assert(refuse_attention<T>(g, device) == nullptr);
  if (is_empty(g)) return cudaSuccess;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  auto const launch = [&](abi::AttentionArgs const& part) {
    std::int64_t const d = std::max(part.head_dim, part.head_dim_v);
    if (d <= 64) return Launches::to_64(part, device, stream);
    if (d <= 128) return Launches::to_128(part, device, stream);
    return has_score_terms(part) ? Launches::to_256_with_terms(part, device, stream)
                                 : Launches::to_256(part, device, stream);
  };
  if constexpr (sizeof(T) == 1)
    return launch(g);
  else
    return launch_by_features<T>(g, 256, launch);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
