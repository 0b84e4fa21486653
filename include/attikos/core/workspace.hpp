// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Temporary memory of an operation: handed in by the caller, or from a pool that belongs to the
/// instance.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/dispatch/cuda_capture.hpp>
#include <attikos/core/dispatch/to_abi.hpp>
#include <attikos/core/error.hpp>
#include <attikos/core/extras.hpp>
#include <attikos/core/label.hpp>
#include <attikos/core/run_here.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Memory for one call: `workspace(view)` with a contiguous rank-1 View of any element type, at
/// least `*_workspace_size(…)` bytes. Its content means nothing before or after the call.
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

/// Whether the instance is being recorded into a graph.
template <ExecutionSpace Exec>
bool is_capturing([[maybe_unused]] Exec const& exec) {
#if defined(KOKKOS_ENABLE_CUDA)
  if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) return capture_of(exec.cuda_stream()).active;
#endif
  return false;
}

/// What is to be done before Kokkos is finalized. Kokkos's own list of such hooks is not guarded by
/// a lock; going through here keeps at least this library's threads apart.
inline void at_finalize(std::function<void()> todo) {
  static std::mutex& mutex = *new std::mutex;
  std::lock_guard<std::mutex> const lock(mutex);
  Kokkos::push_finalize_hook(std::move(todo));
}

/// Where calls get workspace instead of from the pool: memory of the instance's device that may be
/// used in the order of its queue, aligned to 64 bytes, or null where there is none.
struct MemorySource {
  void* (*allocate)(void* user, std::size_t bytes) = nullptr;
  void (*release)(void* user, void* memory) = nullptr;
  void* user = nullptr;
};

/// The source of the calling thread's calls for a scope, the pool if it has no functions.
class UseMemoryOf {
 public:
  explicit UseMemoryOf(MemorySource const& source) : outer_(current()) {
    current() = source.allocate != nullptr ? &source : nullptr;
  }
  ~UseMemoryOf() { current() = outer_; }
  UseMemoryOf(UseMemoryOf const&) = delete;
  UseMemoryOf& operator=(UseMemoryOf const&) = delete;

  static MemorySource const*& current() {
    thread_local MemorySource const* source = nullptr;
    return source;
  }

 private:
  MemorySource const* outer_;
};

/// Memory that goes back to its source.
struct ToSource {
  MemorySource source;
  void operator()(void* memory) const { source.release(source.user, memory); }
};
using SourceMemory = std::unique_ptr<void, ToSource>;

/// Memory of one call, and what keeps it the call's until all launches are in the instance's queue:
/// a lock against other host threads, or the source that it goes back to.
struct WorkspaceLease {
  void* data = nullptr;
  std::unique_lock<std::mutex> lock;
  SourceMemory lent{nullptr, ToSource{}};
};

inline WorkspaceLease lease_from(MemorySource const& source, char const* operation,
                                 std::size_t bytes) {
  SourceMemory memory(source.allocate(source.user, bytes), ToSource{source});
  if (memory == nullptr)
    raise<ResourceError>(operation, ": needs ", bytes,
                         " bytes of workspace, which the caller's allocator did not give");
  if (reinterpret_cast<std::uintptr_t>(memory.get()) % 64 != 0)
    raise<ResourceError>(operation, ": the caller's allocator gave memory at ", memory.get(),
                         "; expected an address divisible by 64");
  void* const data = memory.get();
  return {data, {}, std::move(memory)};
}

/// Memory of the space that an instance runs on. Not a View, which would leak its memory if the
/// bookkeeping that it allocates beside it failed.
template <ExecutionSpace Exec>
class PoolMemory {
 public:
  PoolMemory(char const* operation, Exec const&, std::size_t size)
      : bytes(size), label_(label("workspace", operation)) {
    try {
      if constexpr (waits_for_nothing) {
        data = ::operator new(bytes, alignment);
        if (Kokkos::Tools::profileLibraryLoaded())
          Kokkos::Tools::allocateData(Kokkos::Tools::make_space_handle(Space::name()), label_, data,
                                      bytes);
      } else {
        data = Space().allocate(label_.c_str(), bytes);
      }
    } catch (std::exception const& error) {
      raise<ResourceError>(operation, ": needs ", bytes,
                           " bytes of workspace, which could not be allocated: ", error.what());
    }
  }
  ~PoolMemory() {
    if constexpr (waits_for_nothing) {
      if (Kokkos::Tools::profileLibraryLoaded())
        Kokkos::Tools::deallocateData(Kokkos::Tools::make_space_handle(Space::name()), label_, data,
                                      bytes);
      ::operator delete(data, alignment);
    } else {
      Space().deallocate(label_.c_str(), data, bytes);
    }
  }
  PoolMemory(PoolMemory const&) = delete;
  PoolMemory& operator=(PoolMemory const&) = delete;

  void* data = nullptr;
  std::size_t bytes;

 private:
  using Space = typename Exec::memory_space;
  // Kokkos waits for all instances before it frees. Where kernels are done when a call returns
  // there is nothing to wait for, and in a forked process threads that will never end their call.
  static constexpr bool waits_for_nothing = runs_at_once<Exec>;
  static constexpr std::align_val_t alignment{64};
  std::string label_;
};
#if defined(KOKKOS_ENABLE_CUDA)
template <>
class PoolMemory<Kokkos::Cuda> : public CudaMemory {
 public:
  PoolMemory(char const* operation, Kokkos::Cuda const& exec, std::size_t size)
      : CudaMemory(operation, exec.cuda_device(), size) {}
};
#endif

/// Workspace that the library keeps per instance of `Exec`, known by its implementation's address
/// and its device.
///
/// Blocks only ever grow, by doubling at least, and an outgrown block stays until Kokkos is
/// finalized: kernels that were launched with it may still run, and waiting for them would be a
/// hidden fence. What is kept for an instance is less than four times its largest request. A
/// program that makes instances without end hands in workspace(view) instead.
///
/// Memory of a `Use` is apart from that of others: an operation may have its own while it calls one
/// of another use.
///
/// While an instance is captured its calls get memory that is the graph's: it stays untouched until
/// the graph and what was instantiated from it are destroyed, and then serves other captures. So a
/// graph may be replayed on any stream beside calls on the instance, and a capture needs no call
/// before it.
template <ExecutionSpace Exec, class Use = void>
class InstancePool {
 public:
  static WorkspaceLease get(char const* operation, Exec const& exec, std::size_t bytes) {
    InstancePool& pool = instance();
    std::unique_lock<std::mutex> pool_lock(pool.mutex_);
    Entry& entry = pool.entries_[key_of(exec)];
    pool_lock.unlock();  // entries of a map stay where they are
    WorkspaceLease lease{nullptr, std::unique_lock<std::mutex>(entry.mutex)};
#if defined(KOKKOS_ENABLE_CUDA)
    if constexpr (std::is_same_v<Exec, Kokkos::Cuda>) {
      Capture const capture = capture_of(exec.cuda_stream());
      if (capture.active) {
        lease.data = pool.captured(operation, exec, entry, capture, bytes);
        return lease;
      }
    }
#endif
    std::size_t const held = entry.blocks.empty() ? 0 : entry.blocks.back()->bytes;
    if (bytes > held)
      entry.blocks.push_back(
          std::make_unique<Memory>(operation, exec, bytes > 2 * held ? bytes : 2 * held));
    lease.data = entry.blocks.back()->data;
    return lease;
  }

  /// See forget_workspaces().
  static void forget(Exec const& exec) {
    InstancePool& pool = instance();
    std::lock_guard<std::mutex> const lock(pool.mutex_);
    pool.entries_.erase(key_of(exec));
  }

  /// See the functions of these names below.
  static void before_fork() { instance().mutex_.lock(); }
  static void after_fork() { instance().mutex_.unlock(); }

 private:
  using Memory = PoolMemory<Exec>;
  using Key = std::pair<void const*, int>;
  struct Entry {
    std::mutex mutex;
    std::vector<std::unique_ptr<Memory>> blocks;  // the last one serves
    unsigned long long capture = 0;
    Memory* captured = nullptr;  // of that capture
  };

  InstancePool() {
    at_finalize([this] {
      entries_.clear();
      graphs_.clear();
    });
  }

  static InstancePool& instance() {
    // Never destroyed: Kokkos may be finalized, and with it the hook run, after static destructors.
    static InstancePool& pool = *new InstancePool;
    return pool;
  }

  static Key key_of(Exec const& exec) {
#if defined(KOKKOS_ENABLE_CUDA)
    if constexpr (std::is_same_v<Exec, Kokkos::Cuda>)
      return {instance_key(exec), exec.cuda_device()};
#endif
    return {instance_key(exec), 0};
  }

#if defined(KOKKOS_ENABLE_CUDA)
  /// Memory of a capture: the last one of this instance if it is large enough, else the smallest
  /// that no graph has and that is not far too large, else new.
  void* captured(char const* operation, Exec const& exec, Entry& entry, Capture const& capture,
                 std::size_t bytes) {
    if (capture.graph == nullptr)
      raise<DeviceError>(operation,
                         ": the stream cannot be used while another one is captured; expected a "
                         "stream made with cudaStreamNonBlocking");
    if (entry.captured != nullptr && entry.capture == capture.id && entry.captured->bytes >= bytes)
      return entry.captured->data;
    std::lock_guard<std::mutex> const lock(mutex_);
    Memory* found = nullptr;
    for (auto const& block : graphs_)
      if (!block->in_graph() && block->device() == exec.cuda_device() && block->bytes >= bytes &&
          block->bytes / 4 <= bytes && (found == nullptr || block->bytes < found->bytes))
        found = block.get();
    if (found == nullptr) {
      graphs_.push_back(std::make_unique<Memory>(operation, exec, bytes));
      found = graphs_.back().get();
    }
    found->keep_for(operation, capture.graph);
    entry.captured = found;
    entry.capture = capture.id;
    return found->data;
  }
#endif

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
  std::vector<std::unique_ptr<Memory>> graphs_;  // memory that captures use or have used
};

/// Memory of products, which operations with memory of their own make.
struct OfProducts {};

/// Frees all that is kept for an instance that is about to be destroyed.
template <ExecutionSpace Exec>
void forget_workspaces(Exec const& exec) {
  InstancePool<Exec>::forget(exec);
  InstancePool<Exec, OfProducts>::forget(exec);
}

/// Holds the locks of all that is kept for a space from before a fork until after it, so that the
/// child finds them free.
template <ExecutionSpace Exec>
void before_fork() {
  InstancePool<Exec>::before_fork();
  InstancePool<Exec, OfProducts>::before_fork();
}
template <ExecutionSpace Exec>
void after_fork() {
  InstancePool<Exec, OfProducts>::after_fork();
  InstancePool<Exec>::after_fork();
}

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

/// The caller's workspace if one was given and fits, else that of the scope's source or the pool's.
template <class Use = void, ExecutionSpace Exec, class... Extras>
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
    if (MemorySource const* const source = UseMemoryOf::current(); source != nullptr)
      return lease_from(*source, operation, bytes);
    return InstancePool<Exec, Use>::get(operation, exec, bytes);
  }
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
