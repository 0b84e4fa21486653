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

/// An element type and its shapes, by head_dim: `Few` rows, or `Many` where there are more.
template <class T>
struct SimtElement;
struct SimtFloatShapes {
  using Few64 = sm80_simt_decode_shapes::D64Rows4;
  using Many64 = sm80_simt_decode_shapes::D64Rows8;
  using Few128 = sm80_simt_decode_shapes::D128Rows4;
  using Many128 = sm80_simt_decode_shapes::D128Rows8;
  using Few256 = sm80_simt_decode_shapes::D256Rows4;
  using Few512 = sm80_simt_decode_shapes::D512Rows4;
};
template <>
struct SimtElement<float> : SimtFloatShapes {
  static constexpr DType dtype = DType::float32;
};
template <>
struct SimtElement<double> {
  static constexpr DType dtype = DType::float64;
  using Few64 = sm80_simt_decode_shapes::D64Double;
  using Many64 = Few64;
  using Few128 = sm80_simt_decode_shapes::D128Double;
  using Many128 = Few128;
  using Few256 = sm80_simt_decode_shapes::D256Double;
  using Few512 = sm80_simt_decode_shapes::D512Double;
};
template <>
struct SimtElement<__half> : SimtFloatShapes {
  static constexpr DType dtype = DType::float16;
  using Few128 = sm80_simt_decode_shapes::D128Rows4Halves;
};
template <>
struct SimtElement<__nv_bfloat16> : SimtFloatShapes {
  static constexpr DType dtype = DType::bfloat16;
  using Few128 = sm80_simt_decode_shapes::D128Rows4Halves;
};

/// How a problem is cut up. Depends on extents, the splits wanted and the device alone.
template <class T>
struct SimtDecodePlan : DecodeParts {
  using Element = SimtElement<T>;
  using Acc = std::conditional_t<std::is_same_v<T, double>, double, float>;
  std::int64_t longest;  ///< row of keys or values

  SimtDecodePlan(abi::DecodeArgs const& args, abi::Device const& device)
      : DecodeParts(args), longest(std::max(args.head_dim, args.head_dim_v)) {
    with_shape([&]<class Shape>(Shape) {
      cut_rows(args, Shape::rows);
      if (splits > 0) return;
      splits = choose(units(args, Shape::rows), Shape::blocks * std::max(device.sm_count, 1),
                      args.seqlen_kv);
      splits = std::min<std::int64_t>(splits, args.seqlen_kv / 256);
    });
    limit_splits(args);
  }

  /// Calls `use` with the kernel's shape.
  template <class Use>
  auto with_shape(Use use) const {
    std::int64_t const rows = group * queries;
    auto const of = [&]<class Few, class Many>(Few few, Many many) {
      return rows <= Few::rows ? use(few) : use(many);
    };
    return longest <= 64    ? of(typename Element::Few64{}, typename Element::Many64{})
           : longest <= 128 ? of(typename Element::Few128{}, typename Element::Many128{})
           : longest <= 256 ? use(typename Element::Few256{})
                            : use(typename Element::Few512{});
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
  if (char const* reason = refuse_decode_tiles(g, SimtDecodePlan<T>(g, device))) return reason;
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

template <class T, class Shape>
cudaError_t launch_simt_decode(SimtDecodeParams const& p, std::int64_t blocks,
                               abi::Device const& device, CUstream_st* stream) {
  using Pieces = SimtDecodeConfig<T, Shape>;
  using Single = SimtDecodeConfig<T, sm80_simt_decode_shapes::ByElement<Shape>>;
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
  using Plan = SimtDecodePlan<T>;
  assert(refuse_simt_decode<T>(g, device) == nullptr);
  if (is_empty(g)) return cudaSuccess;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  Plan const plan(g, device);
  SimtDecodeParams p{};
  if (!tell_decode<typename Plan::Acc>(g, plan, p)) return cudaErrorInvalidValue;
  std::int64_t const blocks = plan.blocks(g);
  cudaError_t const status = plan.with_shape(
      [&]<class Shape>(Shape) { return launch_simt_decode<T, Shape>(p, blocks, device, stream); });
  if (status != cudaSuccess || plan.splits == 1) return status;
  return launch_behind(sm80_simt_join_kernel<T, typename Plan::Acc>, plan.states, 256, 0, device,
                       stream, p);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
