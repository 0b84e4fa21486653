// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// decode/sm80_simt_*: what they accept, into how many parts they cut a cache, and their launches.
/// Each element type has a translation unit of its own, which includes this.
#pragma once

#include <attikos/abi/decode_cuda.hpp>
#include <cassert>
#include <limits>

#include "decode/plan.cuh"
#include "epilogue.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// What an element type's kernels are instantiated for: rows of a tile, few or many, by head_dim.
template <class T>
struct SimtElement;
template <>
struct SimtElement<float> {
  static constexpr DType dtype = DType::float32;
  static constexpr int few = 4, few_of_512 = 4, many = 8;
};
template <>
struct SimtElement<double> {
  static constexpr DType dtype = DType::float64;
  static constexpr int few = 4, few_of_512 = 2, many = 4;
};
template <>
struct SimtElement<__half> : SimtElement<float> {
  static constexpr DType dtype = DType::float16;
};
template <>
struct SimtElement<__nv_bfloat16> : SimtElement<float> {
  static constexpr DType dtype = DType::bfloat16;
};
/// Blocks of a kernel that a multiprocessor holds: as many as leave it the registers it needs.
template <class T>
constexpr int simt_blocks(int d, int rows) {
  if (sizeof(T) == 8 || d == 512) return 2;
  return d == 64 && rows == 4 ? 4 : 3;
}
/// Elements of keys, and of values, that a lane has on their way. From <H200 700 W, CUDA 13.0, 16
/// sequences of 8192 keys, 32 heads over 8, head_dim 128>, share of a copy: float32 with 32 and 3
/// blocks 1.01, with 16 and 3, 4, 5 blocks 0.93, 0.99, 0.96, with 8 and 6 blocks 0.95; float64 with
/// 16 and 2 blocks 0.99, with 8 and 3 blocks 0.97, with 32 and 2 blocks 0.97.
template <class T>
constexpr int simt_elements(int d, int rows, bool whole) {
  bool const apart = sizeof(T) == 2 && !whole;  // each takes a register
  return sizeof(T) == 8 || d == 256 || rows == 8 || (d == 128 && apart) ? 16 : 32;
}

/// How a problem is cut up. Depends on extents, the splits wanted and the device alone.
template <class T>
struct SimtDecodePlan : DecodeParts {
  using Element = SimtElement<T>;
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
  int d, rows;

  SimtDecodePlan(abi::DecodeArgs const& args, abi::Device const& device) : DecodeParts(args) {
    std::int64_t const widest = std::max(args.head_dim, args.head_dim_v);
    d = widest <= 64 ? 64 : widest <= 128 ? 128 : widest <= 256 ? 256 : 512;
    rows = d == 512                                     ? Element::few_of_512
           : d <= 128 && group * queries > Element::few ? Element::many
                                                        : Element::few;
    cut_rows(args, rows);
    if (splits <= 0) {
      splits = choose(units(args, rows), simt_blocks<T>(d, rows) * std::max(device.sm_count, 1),
                      args.seqlen_kv);
      splits = std::min<std::int64_t>(splits, args.seqlen_kv / 256);
    }
    limit_splits(args);
  }

  /// Parts for each of `units`, of whose blocks the device holds `resident`: as many as fill it, or
  /// some more where blocks would otherwise come in rounds that are far from full. A part costs
  /// what 64 keys do on top of its own. Parts of more than 4096 keys would let sequences of
  /// different length end far apart.
  static std::int64_t choose(std::int64_t units, std::int64_t resident, std::int64_t keys) {
    std::int64_t const least = std::max<std::int64_t>(resident / units, (keys + 4095) / 4096);
    std::int64_t best = 1, lowest_cost = std::numeric_limits<std::int64_t>::max();
    for (std::int64_t parts = std::max<std::int64_t>(least, 1); parts < least + 8; ++parts) {
      std::int64_t const rounds = (units * parts + resident - 1) / resident;
      std::int64_t const cost = rounds * ((keys + parts - 1) / parts + 64);
      if (cost < lowest_cost) best = parts, lowest_cost = cost;
    }
    return best;
  }
};

/// First reason not to take a call; null if there is none.
template <class T>
char const* refuse_simt_decode(abi::DecodeArgs const& g, abi::Device const& device) {
  if (g.type != SimtElement<T>::dtype || g.type_out != g.type)
    return "it takes other element types";
  if (char const* reason = refuse_decode_extents(
          g, device, {512, "head_dim is above 512", abi::decode_options, true}))
    return reason;
  if (is_empty(g)) return nullptr;
  if (has_too_many_tiles(g, SimtDecodePlan<T>(g, device)))
    return "there are too many tiles for one launch";
  if (g.q == nullptr || g.out == nullptr) return "q, k, v or out is a null pointer";
  if (g.seqlen_kv != 0 && (g.k == nullptr || g.v == nullptr))
    return "q, k, v or out is a null pointer";
  return nullptr;
}

template <class T>
abi::Verdict accepts_simt_decode(abi::DecodeArgs const& g, abi::Device const& device) noexcept {
  char const* const reason = refuse_simt_decode<T>(g, device);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

template <class T>
std::size_t simt_decode_workspace_bytes(abi::DecodeArgs const& g,
                                        abi::Device const& device) noexcept {
  using Plan = SimtDecodePlan<T>;
  return is_empty(g) ? 0 : Plan(g, device).template bytes<typename Plan::Acc>();
}

template <class T, int D, int Rows>
cudaError_t launch_simt_decode(SimtDecodeParams const& p, std::int64_t blocks,
                               abi::Device const& device, CUstream_st* stream) {
  constexpr int resident = simt_blocks<T>(D, Rows);
  using Pieces = SimtDecodeConfig<T, D, Rows, true, resident, simt_elements<T>(D, Rows, true)>;
  using Single = SimtDecodeConfig<T, D, Rows, false, resident, simt_elements<T>(D, Rows, false)>;
  abi::AttentionArgs const& g = p.args;
  StoredExtents const extents(g);
  bool const whole = (g.head_dim | g.head_dim_v) % Pieces::vector == 0 &&
                     rows_in_groups<T>(g.k, extents.k, g.k_stride, Pieces::vector) &&
                     rows_in_groups<T>(g.v, extents.v, g.v_stride, Pieces::vector);
  return launch_behind(whole ? sm80_simt_decode_kernel<Pieces> : sm80_simt_decode_kernel<Single>,
                       blocks, Pieces::threads, 0, device, stream, p);
}

template <class T>
int run_simt_decode(abi::DecodeArgs const& g, abi::Device const& device,
                    CUstream_st* stream) noexcept {
  using Element = SimtElement<T>;
  using Plan = SimtDecodePlan<T>;
  assert(refuse_simt_decode<T>(g, device) == nullptr);
  if (is_empty(g)) return cudaSuccess;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  Plan const plan(g, device);
  SimtDecodeParams p{};
  if (!tell_decode<typename Plan::Acc>(g, plan, p)) return cudaErrorInvalidValue;
  std::int64_t const blocks = plan.blocks(g);
  auto const launch = [&]<int D>() {
    if constexpr (D <= 128 && Element::many != Element::few)
      if (plan.rows == Element::many)
        return launch_simt_decode<T, D, Element::many>(p, blocks, device, stream);
    return launch_simt_decode < T, D,
           D == 512 ? Element::few_of_512 : Element::few > (p, blocks, device, stream);
  };
  cudaError_t const status = plan.d == 64    ? launch.template operator()<64>()
                             : plan.d == 128 ? launch.template operator()<128>()
                             : plan.d == 256 ? launch.template operator()<256>()
                                             : launch.template operator()<512>();
  if (status != cudaSuccess || plan.splits == 1) return status;
  return launch_behind(sm80_simt_join_kernel<T, typename Plan::Acc>, plan.states, 256, 0, device,
                       stream, p);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
