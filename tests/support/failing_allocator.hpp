// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// An operator new for a whole program, Kokkos, the standard library and libattikos included, that
// fails when it is told to. Included by one file of the program.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace attikos::test {

constexpr long never = -1;
inline std::atomic<long> until_fault{never};  ///< allocations that still succeed
inline std::atomic<long> alive{0};            ///< allocations that were not freed

inline void* allocate(std::size_t size, std::size_t alignment) noexcept {
  if (until_fault.load(std::memory_order_relaxed) != never &&
      until_fault.fetch_sub(1, std::memory_order_relaxed) == 0) {
    until_fault = never;
    return nullptr;
  }
  std::size_t const bytes = size == 0 ? 1 : size;
  void* const memory =
      alignment <= alignof(std::max_align_t)
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory != nullptr) alive.fetch_add(1, std::memory_order_relaxed);
  return memory;
}
inline void release(void* memory) noexcept {
  if (memory != nullptr) alive.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}
inline void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

/// Calls with the n-th allocation failing, n from 0 on. Whether it failed and the call returned all
/// the same; what it throws passes.
template <class F>
bool fails(long nth, F const& call) {
  struct Scope {
    explicit Scope(long n) { until_fault = n; }
    ~Scope() { until_fault = never; }
  } const scope(nth);
  call();
  return until_fault == never;
}

}  // namespace attikos::test

// All of them: those for arrays that a sanitizer has do not call the others.
void* operator new(std::size_t size) { return attikos::test::allocate_or_throw(size, 1); }
void* operator new(std::size_t size, std::nothrow_t const&) noexcept {
  return attikos::test::allocate(size, 1);
}
void* operator new(std::size_t size, std::align_val_t alignment) {
  return attikos::test::allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, std::align_val_t alignment, std::nothrow_t const&) noexcept {
  return attikos::test::allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { attikos::test::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { attikos::test::release(memory); }
void operator delete(void* memory, std::nothrow_t const&) noexcept {
  attikos::test::release(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept { attikos::test::release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  attikos::test::release(memory);
}
void operator delete(void* memory, std::align_val_t, std::nothrow_t const&) noexcept {
  attikos::test::release(memory);
}
void* operator new[](std::size_t size) { return attikos::test::allocate_or_throw(size, 1); }
void* operator new[](std::size_t size, std::nothrow_t const&) noexcept {
  return attikos::test::allocate(size, 1);
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return attikos::test::allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, std::nothrow_t const&) noexcept {
  return attikos::test::allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete[](void* memory) noexcept { attikos::test::release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { attikos::test::release(memory); }
void operator delete[](void* memory, std::nothrow_t const&) noexcept {
  attikos::test::release(memory);
}
void operator delete[](void* memory, std::align_val_t) noexcept { attikos::test::release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  attikos::test::release(memory);
}
void operator delete[](void* memory, std::align_val_t, std::nothrow_t const&) noexcept {
  attikos::test::release(memory);
}
