// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Temporary memory of an operation: handed in by the caller, or from a pool that belongs to the
/// instance.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/extras.hpp>
#include <attikos/core/label.hpp>
#include <attikos/core/to_abi.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Memory for one call: `workspace(view)` with a contiguous rank-1 View of any element type, at
/// least
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
    cudaError_t const before = cudaPeekAtLastError();
    if (cudaStreamIsCapturing(exec.cuda_stream(), &status) != cudaSuccess) {
      if (before == cudaSuccess) cudaGetLastError();  // ours alone: the caller must not meet it
      return true;
    }
    return status != cudaStreamCaptureStatusNone;
  }
#endif
  return false;
}

/// Memory of one call, and the lock that keeps other host threads from launching with it until all
/// launches of this call are in the instance's queue.
struct WorkspaceLease {
  void* data = nullptr;
  std::unique_lock<std::mutex> lock;
};

/// Workspace that the library keeps per instance of `Exec`, known by its implementation's address.
///
/// Blocks only ever grow, by doubling at least, and an outgrown block stays until Kokkos is
/// finalized: kernels that were launched with it may still run, and waiting for them would be a
/// hidden fence. What is kept for an instance is less than four times its largest request. A
/// program that makes instances without end hands in workspace(view) instead.
template <ExecutionSpace Exec>
class InstancePool {
 public:
  static WorkspaceLease get(char const* operation, Exec const& exec, std::size_t bytes) {
    // Never destroyed: Kokkos may be finalized, and with it the hook run, after static destructors.
    static InstancePool& pool = *new InstancePool;
    std::unique_lock<std::mutex> pool_lock(pool.mutex_);
    Entry& entry = pool.entries_[instance_key(exec)];
    pool_lock.unlock();  // entries of a map stay where they are
    WorkspaceLease lease{nullptr, std::unique_lock<std::mutex>(entry.mutex)};
    if (bytes > entry.bytes) {
      if (is_capturing(exec))
        raise<ResourceError>(
            operation, ": needs ", bytes, " bytes of workspace but the instance's pool holds ",
            entry.bytes,
            " and cannot grow while a graph is captured; pass workspace(view) or run "
            "the call once before capture");
      grow(operation, entry, bytes > 2 * entry.bytes ? bytes : 2 * entry.bytes);
    }
    lease.data = entry.block.data();
    return lease;
  }

 private:
  using Block = Kokkos::View<std::byte*, typename Exec::memory_space>;
  struct Entry {
    std::mutex mutex;
    Block block;
    std::vector<Block> retired;
    std::size_t bytes = 0;
  };

  InstancePool() {
    Kokkos::push_finalize_hook([this] { entries_.clear(); });
  }

  static void grow(char const* operation, Entry& entry, std::size_t bytes) {
    Block block;
    try {
      block = Block(Kokkos::view_alloc(label("workspace", operation), Kokkos::WithoutInitializing),
                    bytes);
    } catch (std::exception const& error) {
      raise<ResourceError>(operation, ": needs ", bytes,
                           " bytes of workspace, which could not be allocated: ", error.what());
    }
    if (entry.bytes > 0) entry.retired.push_back(entry.block);
    entry.block = block;
    entry.bytes = bytes;
  }

  std::mutex mutex_;
  std::map<void const*, Entry> entries_;
};

/// f(workspace(view)) where the caller gave one among the extras, else f().
template <class F, class... Extras>
void with_workspace(F const& f, Extras const&... extras) {
  auto const given = find_extra<Workspace>(extras...);
  if constexpr (is_present<decltype(given)>) {
    f(given);
  } else {
    f();
  }
}

/// The bytes of workspace(view) among the extras, absent where there is none.
template <class... Extras>
AnyTensor any_workspace(Extras const&... extras) {
  auto const given = find_extra<Workspace>(extras...);
  if constexpr (is_present<decltype(given)>) {
    using Storage = std::remove_pointer_t<decltype(data_of(given.view))>;
    std::int64_t const elements = extent_of(given.view, 0);
    return {data_of(given.view), DType::uint8, 1, {elements * std::int64_t{sizeof(Storage)}}, {1}};
  } else {
    return {};
  }
}

/// The caller's workspace if one was given and fits, else the pool's.
template <ExecutionSpace Exec, class... Extras>
WorkspaceLease get_workspace(char const* operation, Exec const& exec, std::size_t bytes,
                             Extras const&... extras) {
  auto const given = find_extra<Workspace>(extras...);
  if constexpr (is_present<decltype(given)>) {
    using View = decltype(given.view);
    static_assert(rank_of<View> == 1, "attikos: a workspace has rank 1");
    static_assert(is_accessible<Exec, View>(),
                  "attikos: the workspace cannot be reached from the execution space");
    using Storage = std::remove_pointer_t<decltype(data_of(given.view))>;
    std::size_t const size = static_cast<std::size_t>(extent_of(given.view, 0)) * sizeof(Storage);
    if (size < bytes)
      raise<ResourceError>(operation, ": workspace has ", size, " bytes; expected at least ",
                           bytes);
    if (extent_of(given.view, 0) > 1 && stride_of(given.view, 0) != 1)
      raise<StrideError>(operation, ": workspace has stride ", stride_of(given.view, 0),
                         "; expected contiguous memory");
    void* const data = data_of(given.view);
    if (reinterpret_cast<std::uintptr_t>(data) % alignof(double) != 0)
      raise<ResourceError>(operation, ": workspace begins at ", data,
                           "; expected an address divisible by ", alignof(double));
    return {data, {}};
  } else {
    if (bytes == 0) return {};
    return InstancePool<Exec>::get(operation, exec, bytes);
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
