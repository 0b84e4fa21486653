// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cassert>

#include "gemm/sm90/launch.cuh"
#include "kernel.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// B of all groups as the copy engine sees it, and the rows of A.
template <class T>
TensorMapSource grouped_weights(abi::GemmArgs const& g) {
  return operand_source(g.b, TensorMapElement<T>::map, sizeof(T), major_b(g), g.n, g.b_n, g.k,
                        g.b_k, g.offsets != nullptr ? g.groups : g.batch, g.b_batch);
}
template <class T>
TensorMapSource grouped_rows(abi::GemmArgs const& g) {
  return operand_source(g.a, TensorMapElement<T>::map, sizeof(T), Major::k, g.m, g.a_m, g.k, g.a_k,
                        g.offsets != nullptr ? 1 : g.batch, g.offsets != nullptr ? 0 : g.a_batch);
}

template <class A, class B>
char const* refuse_grouped(abi::GemmArgs const& g, abi::Device const& device) {
  constexpr bool bytes = sizeof(A) == 1;
  if (g.type_a != TensorMapElement<A>::dtype || g.type_b != TensorMapElement<B>::dtype)
    return "it multiplies other element types";
  constexpr bool integer = std::is_same_v<A, std::int8_t>;
  bool const exact = integer && g.type_c == DType::int32;
  if (!exact && !writable(g.type_c)) return "it does not write C's element type";
  if (exact && !exact_in_int32(g)) return not_exact_in_int32;
  if (char const* reason = refuse_quantized(g)) return reason;
  if (char const* reason = refuse_other_than_sm90(device)) return reason;
  if (g.offsets == nullptr && g.counts == nullptr) return "it is for groups and counts of rows";
  using Option = abi::GemmOption;
  if (char const* reason = abi::beyond(g, (abi::epilogue_gemm_options | abi::gemm_groups)
                                              .with(Option::scale_out, has_8_bits(g.type_c))
                                              .with(Option::scale_a, bytes)
                                              .with(Option::scale_b, bytes)))
    return reason;
  auto const fits = [](abi::ScaleGrid const& s, bool of_a) {
    bool const columns = of_a || s.col == 0 || s.col_shift >= 7;
    return factors_fit(s, of_a) || (!integer && along_blocks(s, of_a) && columns);
  };
  if (!fits(g.scale_a, true) || !fits(g.scale_b, false))
    return integer ? "its scales are one for a matrix, or one for a row of A or a column of B"
                   : "its scales are constant along K, or over 128 of it and of B's columns";
  if (g.bias != nullptr && !readable(g.type_bias))
    return "it does not read the bias's element type";
  if (g.residual != nullptr && !readable(g.type_residual))
    return "it does not read the residual's element type";
  if (char const* reason = refuse_pre_activation(g)) return reason;
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0 || g.groups < 0) return "an extent is negative";
  std::int64_t const groups = g.offsets != nullptr ? g.groups : g.batch;
  if (g.m == 0 || g.n == 0 || groups == 0) return nullptr;  // nothing is read or written
  if (char const* reason = refuse_operands(g)) return reason;
  if (g.k > 1 && g.a_k != 1) return "A's unit stride is not along K";
  if (bytes && major_b(g) != Major::k) return "B's unit stride is not along K";
  if (major_b(g) == Major::neither) return "B has no unit stride";
  if (char const* reason = refuse_maps(grouped_rows<A>(g), grouped_weights<B>(g))) return reason;
  constexpr std::int64_t most = std::int64_t{1} << 30;
  if (g.m > most || g.n > most || g.k > most || groups > most ||
      (g.m / 128 + 1 + (g.offsets != nullptr ? groups : 0)) * (g.n / 128 + 1) >
          most / (g.offsets != nullptr ? 1 : groups))
    return "C is too large for one launch";
  return nullptr;
}

template <class Config>
cudaError_t launch_grouped(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream) {
  using Weights = typename Config::Weights;
  GroupedParams p{};
  cudaError_t status =
      make_tensor_map(&p.weights, grouped_weights<Weights>(g), 128 / sizeof(Weights),
                      Config::mn ? Config::tile_k : Config::tile_n);
  if (status == cudaSuccess)
    status = make_tensor_map(&p.rows, grouped_rows<typename Config::Rows>(g), Config::tile_k,
                             Config::box_rows);
  if (status != cudaSuccess) return status;
  bool const offsets = g.offsets != nullptr;
  p.offsets = g.offsets, p.wide = g.type_offsets == DType::int64;
  p.offsets_stride = g.offsets_stride;
  p.counts = g.counts, p.counts_stride = g.counts_stride;
  p.groups = static_cast<int>(offsets ? g.groups : g.batch);
  p.m = static_cast<int>(g.m), p.n = static_cast<int>(g.n);
  p.tiles_n = static_cast<int>(blocks_of(g.n, Config::cluster * Config::tile_n));
  p.k_blocks = static_cast<int>(blocks_of(g.k, Config::tile_k));
  p.weights_step = g.b_batch != 0, p.rows_step = !offsets;
  // Factors are multiplied into the sums: the groups' are not those of C's matrices.
  abi::GemmArgs rest = g;
  rest.scale_a.data = rest.scale_b.data = nullptr;
  if (along_blocks(g.scale_a, true))
    p.block_rows = g.scale_a;
  else
    p.row_factors = {g.scale_a.data, g.scale_a.batch, g.scale_a.row};
  if (along_blocks(g.scale_b, false))
    p.block_columns = g.scale_b;
  else
    p.column_factors = {g.scale_b.data, g.scale_b.batch, g.scale_b.col};
  p.epilogue = make_epilogue(rest);
  p.whole = only_alpha(rest) && dtype_size(g.type_c) == 2 && g.c_n == 1 && g.n % 8 == 0 &&
            reinterpret_cast<std::uintptr_t>(g.c) % 16 == 0 && (g.m == 1 || g.c_m % 8 == 0) &&
            (g.batch <= 1 || g.c_batch % 8 == 0);
  // How many tiles there are the host does not know, only how many there may be.
  std::int64_t const bands =
      offsets ? g.m / Config::most_rows + g.groups : blocks_of(g.m, Config::most_rows) * g.batch;
  int const clusters = static_cast<int>(
      std::min<std::int64_t>(bands * p.tiles_n, std::max(1, device.sm_count / Config::cluster)));
  return launch_clusters(sm90_grouped_kernel<Config>, clusters * Config::cluster, Config::cluster,
                         Config::threads, Config::shared_bytes, stream, p);
}

template <class A, class B>
abi::Verdict accepts_grouped(abi::GemmArgs const& g, abi::Device const& device) {
  char const* const reason = refuse_grouped<A, B>(g, device);
  return reason == nullptr ? abi::accepted() : abi::refused(reason);
}

template <class A, class B>
int run_grouped(abi::GemmArgs const& g, abi::Device const& device, CUstream_st* stream) {
  assert((refuse_grouped<A, B>(g, device) == nullptr));
  if (g.m == 0 || g.n == 0 || (g.offsets != nullptr ? g.groups : g.batch) == 0) return cudaSuccess;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  using namespace sm90_grouped_shapes;
  using layouts::TN, layouts::TT;
  if constexpr (sizeof(A) == 2) {
    if (major_b(g) == Major::mn)
      return launch_grouped<GroupedConfig<B, A, TT, Rows256>>(g, device, stream);
    return launch_grouped<GroupedConfig<B, A, TN, Rows256>>(g, device, stream);
  } else if constexpr (std::is_same_v<A, std::int8_t>) {
    return launch_grouped<GroupedConfig<B, A, TN, Rows256>>(g, device, stream);
  } else {
    if (along_blocks(g.scale_a, true) || along_blocks(g.scale_b, false))
      return launch_grouped<GroupedConfig<B, A, TN, Rows128Scaled>>(g, device, stream);
    if constexpr (many_shapes<A, B>) {
      if (g.accumulate == abi::Accumulate::fast)
        return launch_grouped<GroupedConfig<B, A, TN, Rows256>>(g, device, stream);
    }
    return launch_grouped<GroupedConfig<B, A, TN, Rows256Promoted>>(g, device, stream);
  }
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm90GroupedF16::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::accepts_grouped<__half, __half>(args, device);
}

int GemmSm90GroupedF16::launch(GemmArgs const& args, Device const& device,
                               CUstream_st* stream) noexcept {
  return cuda::run_grouped<__half, __half>(args, device, stream);
}

Verdict GemmSm90GroupedBf16::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::accepts_grouped<__nv_bfloat16, __nv_bfloat16>(args, device);
}

int GemmSm90GroupedBf16::launch(GemmArgs const& args, Device const& device,
                                CUstream_st* stream) noexcept {
  return cuda::run_grouped<__nv_bfloat16, __nv_bfloat16>(args, device, stream);
}

Verdict GemmSm90GroupedF8::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::with_float8(args, [&](auto a, auto b) {
    return cuda::accepts_grouped<decltype(a), decltype(b)>(args, device);
  });
}

int GemmSm90GroupedF8::launch(GemmArgs const& args, Device const& device,
                              CUstream_st* stream) noexcept {
  return cuda::with_float8(args, [&](auto a, auto b) {
    return cuda::run_grouped<decltype(a), decltype(b)>(args, device, stream);
  });
}

Verdict GemmSm90GroupedS8::accepts(GemmArgs const& args, Device const& device) noexcept {
  return cuda::accepts_grouped<std::int8_t, std::int8_t>(args, device);
}

int GemmSm90GroupedS8::launch(GemmArgs const& args, Device const& device,
                              CUstream_st* stream) noexcept {
  return cuda::run_grouped<std::int8_t, std::int8_t>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
