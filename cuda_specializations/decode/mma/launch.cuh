// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// decode/sm80_mma_*: what they accept, into how many parts they cut a cache, and their launches.
/// Each element type has a translation unit of its own, which includes this.
#pragma once

#include <attikos/abi/decode_cuda.hpp>
#include <cassert>

#include "decode/plan.cuh"
#include "kernel.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The kernel of a shape for an element type.
template <class T, class Shape>
using DecodeConfig =
    std::conditional_t<sizeof(T) == 1, Sm80DecodeBytesConfig<Shape>, Sm80DecodeConfig<T, Shape>>;

/// How a problem is cut up. Depends on extents, the splits wanted and the device alone.
///
/// From <H200 700 W, CUDA 13.0, bfloat16, 32 heads over 8, head_dim 128>, share of what a copy
/// moves with these splits: one sequence of 32768 keys 0.83, 16 of 8192 0.98, 128 of 4096 1.04.
struct DecodePlan : DecodeParts {
  int warps_m, d;  ///< of the kernel's shape
  bool less;       ///< the shape with less shared memory

  DecodePlan(abi::DecodeArgs const& args, abi::Device const& device) : DecodeParts(args) {
    warps_m = group * queries > 16 ? 4 : 1;
    std::int64_t const longest = std::max(args.head_dim, args.head_dim_v);
    d = longest <= 64 ? 64 : longest <= 128 ? 128 : 256;
    less = false;
    less = d == 256 && shared_bytes<__half>() > device.shared_memory_per_block_optin;
    std::int64_t const tile = 16 * warps_m;
    cut_rows(args, tile);
    if (splits <= 0) {
      // One round of two blocks for each multiprocessor, whose bandwidth they fill; parts of more
      // than 4096 keys would let sequences of different length end far apart.
      splits = std::max<std::int64_t>(2 * device.sm_count / units(args, tile),
                                      (args.seqlen_kv + 4095) / 4096);
      splits = std::clamp<std::int64_t>(splits, 1, std::max<std::int64_t>(args.seqlen_kv / 256, 1));
      // None of which has no keys.
      std::int64_t const part = part_length(args.seqlen_kv, splits);
      splits = (args.seqlen_kv + part - 1) / part;
    }
    limit_splits(args);
  }

  /// Calls `use` with the kernel's configuration.
  template <class T, class Use>
  auto with_config(Use use) const {
    using namespace sm80_decode_shapes;
    constexpr bool bytes = sizeof(T) == 1;  // which take as little memory as it is
    using Less16 = std::conditional_t<bytes, D256Rows16, D256Rows16Less>;
    using Less64 = std::conditional_t<bytes, D256Rows64, D256Rows64Less>;
    auto const of = [&](auto narrow, auto middle, auto wide, auto wide_less) {
      return d == 64    ? use(DecodeConfig<T, decltype(narrow)>{})
             : d == 128 ? use(DecodeConfig<T, decltype(middle)>{})
             : less     ? use(DecodeConfig<T, decltype(wide_less)>{})
                        : use(DecodeConfig<T, decltype(wide)>{});
    };
    return warps_m == 1 ? of(D64Rows16{}, D128Rows16{}, D256Rows16{}, Less16{})
                        : of(D64Rows64{}, D128Rows64{}, D256Rows64{}, Less64{});
  }
  template <class T>
  int shared_bytes() const {
    return with_config<T>([](auto config) { return decltype(config)::shared_bytes; });
  }
};

/// First reason not to take a call; null if there is none.
template <class T>
char const* refuse_decode(abi::DecodeArgs const& g, abi::Device const& device) {
  constexpr bool float8 = sizeof(T) == 1;
  if (g.type != TensorMapElement<T>::dtype || (!float8 && g.type_out != g.type))
    return "it takes other element types";
  if (float8 && g.type_out != DType::float16 && g.type_out != DType::bfloat16 &&
      g.type_out != DType::float32)
    return "its out is float16, bfloat16 or float32";
  if (char const* reason =
          refuse_decode_extents(g, device,
                                {256, "head_dim is above 256",
                                 float8 ? abi::float8_decode_options : abi::decode_options, false}))
    return reason;
  if (is_empty(g)) return nullptr;
  if (g.head_dim % 8 != 0 || g.head_dim_v % 8 != 0) return "head_dim is not a multiple of 8";
  DecodePlan const plan(g, device);
  if (char const* reason = refuse_decode_tiles(g, plan)) return reason;
  if (plan.shared_bytes<T>() > device.shared_memory_per_block_optin)
    return "a block needs more shared memory than the device has";
  if (g.out == nullptr) return "q, k, v or out is a null pointer";
  StoredExtents const extents(g);
  if (char const* reason = refuse_queries(g, extents, refuse_rows<T>)) return reason;
  return g.seqlen_kv == 0 ? nullptr : refuse_keys_and_values(g, extents, refuse_rows<T>);
}

template <class T>
abi::Verdict accepts_decode(abi::DecodeArgs const& g, abi::Device const& device) noexcept {
  char const* const reason = refuse_decode<T>(g, device);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

inline std::size_t decode_workspace_bytes(abi::DecodeArgs const& g,
                                          abi::Device const& device) noexcept {
  return is_empty(g) ? 0 : DecodePlan(g, device).bytes<float>();
}

template <class T>
int run_decode(abi::DecodeArgs const& g, abi::Device const& device, CUstream_st* stream) noexcept {
  assert(refuse_decode<T>(g, device) == nullptr);
  if (is_empty(g)) return cudaSuccess;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  DecodePlan const plan(g, device);
  DecodeParams p{};
  if (!tell_decode<float>(g, plan, p)) return cudaErrorInvalidValue;
  if (g.page_table != nullptr && !plan.packed) {
    std::int64_t const entries = (g.seqlen_kv + g.page_size - 1) / g.page_size;
    p.table_share = static_cast<int>((entries + plan.splits - 1) / plan.splits);
  }
  bool const padded = !plan.packed && g.cu_seqlens_kv.data == nullptr;
  std::int64_t const blocks = plan.blocks(g), at_once = std::int64_t{2} * device.sm_count;
  if (device.compute_major == 9 && padded) {
    // 17 MB on an H200, which wait in L2 for their blocks.
    constexpr std::int64_t bytes_ahead = 64 * 1024, most = 256;
    std::int64_t const features = g.head_dim + g.head_dim_v, size = sizeof(T);
    p.keys_ahead = static_cast<int>(std::min(bytes_ahead / (features * size), most));
    p.blocks_ahead = static_cast<int>(std::min(blocks, at_once));
  }
  p.early = plan.splits > 1 && blocks <= at_once;
  p.scale = static_cast<float>(g.softmax_scale);
  p.vectors = stores_groups(g, 4) &&
              (g.type_out != DType::float32 || reinterpret_cast<std::uintptr_t>(g.out) % 16 == 0);
  cudaError_t const status = plan.with_config<T>([&](auto config) {
    using Config = decltype(config);
    return launch_behind(sm80_decode_kernel<Config>, blocks, Config::threads, Config::shared_bytes,
                         device, stream, p);
  });
  if (status != cudaSuccess || plan.splits == 1) return status;
  return launch_behind(
      decode_join_kernel<typename DecodeConfig<T, sm80_decode_shapes::D64Rows16>::Out>, plan.states,
      128, 0, device, stream, p);
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
