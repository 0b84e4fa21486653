// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Temporary memory of an operation: handed in by the caller, or from a pool that belongs to the instance.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/extras.hpp>
#include <attikos/core/label.hpp>
#include <attikos/core/to_abi.hpp>
#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Memory for one call: `workspace(view)` with a contiguous rank-1 View of any element type, at least
/// `*_workspace_size(…)` bytes. Its content before and after the call means nothing.
template <TensorLike T>
struct Workspace {
  T view;
};
template <TensorLike T>
Workspace<T> workspace(T const& view) {
  return {view};
}

namespace detail {

/// Identity of an execution space instance: its implementation's address where there is one.
template <ExecutionSpace Exec>
void const* instance_key(Exec const& exec) {
  if constexpr (requires { exec.impl_internal_space_instance(); }) {
    return exec.impl_internal_space_instance();
  } else {
    return nullptr;
  }
}

/// Whether the instance is being recorded into a graph, when allocation is forbidden.
template <ExecutionSpace Exec>
bool is_capturing([[maybe_unused]] Exec const& exec) {
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    return cudaStreamIsCapturing(exec.cuda_stream(), &status) != cudaSuccess ||
           status != cudaStreamCaptureStatusNone;
  }
#endif
  return false;
}

/// Workspace that the library keeps per instance of `Exec`.
///
/// Blocks only ever grow, by doubling at least, and an outgrown block stays until Kokkos is finalized: kernels that
/// were launched with it may still run, and waiting for them would be a hidden fence. So the total is at most twice
/// the largest request.
template <ExecutionSpace Exec>
class InstancePool {
 public:
  static void* get(char const* operation, Exec const& exec, std::size_t bytes) {
    static InstancePool pool;
    std::lock_guard<std::mutex> const lock(pool.mutex_);
    Entry& entry = pool.entries_[instance_key(exec)];
    if (bytes > entry.bytes) {
      if (is_capturing(exec))
        raise<ResourceError>(operation, ": needs ", bytes, " bytes of workspace but the instance's pool holds ",
                             entry.bytes, " and cannot grow while a graph is captured; pass workspace(view) or run "
                             "the call once before capture");
      pool.grow(operation, entry, bytes > 2 * entry.bytes ? bytes : 2 * entry.bytes);
    }
    return entry.block.data();
  }

 private:
  using Block = Kokkos::View<std::byte*, typename Exec::memory_space>;
  struct Entry {
    Block block;
    std::size_t bytes = 0;
  };

  InstancePool() {
    Kokkos::push_finalize_hook([this] {
      entries_.clear();
      retired_.clear();
    });
  }

  void grow(char const* operation, Entry& entry, std::size_t bytes) {
    Block block;
    try {
      block = Block(Kokkos::view_alloc(label("workspace", operation), Kokkos::WithoutInitializing), bytes);
    } catch (std::exception const& error) {
      raise<ResourceError>(operation, ": needs ", bytes, " bytes of workspace, which could not be allocated: ",
                           error.what());
    }
    if (entry.bytes > 0) retired_.push_back(entry.block);
    entry = {block, bytes};
  }

  std::mutex mutex_;
  std::map<void const*, Entry> entries_;
  std::vector<Block> retired_;
};

/// The caller's workspace if one was given and is large enough, else the pool's. 64-byte aligned.
template <ExecutionSpace Exec, class... Extras>
void* get_workspace(char const* operation, Exec const& exec, std::size_t bytes, Extras const&... extras) {
  auto const given = find_extra<Workspace>(extras...);
  if constexpr (is_present<decltype(given)>) {
    using View = decltype(given.view);
    static_assert(rank_of<View> == 1, "attikos: a workspace has rank 1");
    static_assert(is_accessible<Exec, View>(), "attikos: the workspace cannot be reached from the execution space");
    using Storage = std::remove_pointer_t<decltype(data_of(given.view))>;
    std::size_t const size = static_cast<std::size_t>(extent_of(given.view, 0)) * sizeof(Storage);
    if (size < bytes)
      raise<ResourceError>(operation, ": workspace has ", size, " bytes; expected at least ", bytes);
    if (extent_of(given.view, 0) > 1 && stride_of(given.view, 0) != 1)
      raise<StrideError>(operation, ": workspace has stride ", stride_of(given.view, 0), "; expected contiguous memory");
    return data_of(given.view);
  } else {
    return bytes == 0 ? nullptr : InstancePool<Exec>::get(operation, exec, bytes);
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
