// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <cassert>

#include "launch.cuh"
#include "plan.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

bool reads_entries_at_once(abi::AppendKvArgs const& g, int group) {
  // As many entries as a group has elements, in accesses of at most 16 bytes.
  std::int64_t const bytes = dtype_size(g.type_table);
  std::int64_t const access = std::min<std::int64_t>(16, group * bytes);
  for (auto const& [data, stride] :
       {std::pair(g.cos, g.cos_stride), std::pair(g.sin, g.sin_stride)})
    if (reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(access) != 0 ||
        stride[1] != 1 || (g.table_rows > 1 && stride[0] * bytes % access != 0))
      return false;
  return true;
}

AppendKvParams make_params(abi::AppendKvArgs const& g, AppendKvCall const& call,
                           AppendKvPlan const& plan) {
  AppendKvParams p{};
  for (int n = 0; n < 3; ++n) {
    AppendKvPart& part = p.parts[n];
    part = plan.parts[n];
    part.from = static_cast<unsigned char const*>(call.from[n].data);
    part.to = static_cast<unsigned char*>(const_cast<void*>(call.to[n].data));
    for (int r = 0; r < 4; ++r)
      part.from_stride[r] = call.from[n].stride[r], part.to_stride[r] = call.to[n].stride[r];
    // Groups lie one behind the other; of rows of one element strides do not count.
    if (plan.copies) part.from_stride[3] *= plan.group, part.to_stride[3] *= plan.group;
    p.first_block[n] = plan.first_block[n];
  }
  p.tokens[0] = {g.cu_seqlens_new, g.new_lengths, g.new_lengths_stride};
  p.tokens[1] = {g.cu_seqlens_q, nullptr, 0};
  if (g.cos != nullptr) {
    p.tables.cos = g.cos, p.tables.sin = g.sin, p.tables.rows = g.table_rows;
    for (int r = 0; r < 2; ++r)
      p.tables.cos_stride[r] = g.cos_stride[r], p.tables.sin_stride[r] = g.sin_stride[r];
    p.tables.type = g.type_table;
    p.tables.interleaved = g.interleaved, p.tables.half_width = g.half_width;
    p.tables.vectors = reads_entries_at_once(g, plan.group);
  }
  p.batch = static_cast<int>(g.batch);
  p.queries_share_position = g.queries_share_position;
  p.cache_lengths = g.cache_lengths, p.cache_lengths_stride = g.cache_lengths_stride;
  p.page_table = g.page_table;
  p.page_table_stride[0] = g.page_table_stride[0], p.page_table_stride[1] = g.page_table_stride[1];
  p.capacity = g.capacity, p.num_pages = g.num_pages;
  p.page_size = static_cast<unsigned>(g.page_size);
  return p;
}

cudaError_t launch_copies(AppendKvLaunch const& launch, int bytes) {
  auto const copy = [&]<int Bytes>(std::integral_constant<int, Bytes>) {
    return launch.run<
        AppendKvConfig<AppendKvBytes<Bytes>, AppendKvBytes<Bytes>, append_kv_shapes::Copied>>();
  };
  switch (bytes) {
    case 16:
      return copy(std::integral_constant<int, 16>{});
    case 8:
      return copy(std::integral_constant<int, 8>{});
    case 4:
      return copy(std::integral_constant<int, 4>{});
    case 2:
      return copy(std::integral_constant<int, 2>{});
    default:
      return copy(std::integral_constant<int, 1>{});
  }
}

cudaError_t launch_types(AppendKvLaunch const& launch, DType from, DType to) {
  if (from == DType::float64) return launch.pair<double, double>();
  if (to == DType::float8_e4m3) return launch_append_kv_e4m3(launch, from);
  if (to == DType::float8_e5m2) return launch_append_kv_e5m2(launch, from);
  if (from == DType::float16) return launch.pair<__half, __half>();
  if (from == DType::bfloat16) return launch.pair<__nv_bfloat16, __nv_bfloat16>();
  if (to == DType::float16) return launch.pair<float, __half>();
  if (to == DType::bfloat16) return launch.pair<float, __nv_bfloat16>();
  return launch.pair<float, float>();
}

int launch_append_kv(abi::AppendKvArgs const& g, abi::Device const& device,
                     CUstream_st* stream) noexcept {
  assert(refuse_append_kv(g, device) == nullptr);
  AppendKvCall const call(g);
  if (call.empty()) return cudaSuccess;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  AppendKvPlan const plan(g, call, device);
  AppendKvLaunch const launch{make_params(g, call, plan), plan.blocks, plan.group, device, stream};
  return plan.copies ? launch_copies(launch, plan.group * dtype_size(g.type_new))
                     : launch_types(launch, g.type_new, g.type_cache);
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict AppendKvSm80Simt::accepts(AppendKvArgs const& args, Device const& device) noexcept {
  char const* const reason = cuda::refuse_append_kv(args, device);
  return reason == nullptr ? accepted() : refused(reason);
}

int AppendKvSm80Simt::launch(AppendKvArgs const& args, Device const& device,
                             CUstream_st* stream) noexcept {
  return cuda::launch_append_kv(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
