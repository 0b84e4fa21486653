// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "failing_allocator.hpp"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace attikos::test {
namespace {

void* allocate(std::size_t size, std::size_t alignment) noexcept {
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
void release(void* memory) noexcept {
  if (memory != nullptr) alive.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}
void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace
}  // namespace attikos::test

using namespace attikos::test;

// All of them: those for arrays that a sanitizer has do not call the others.
void* operator new(std::size_t size) { return allocate_or_throw(size, 1); }
void* operator new(std::size_t size, std::nothrow_t const&) noexcept { return allocate(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, std::align_val_t alignment, std::nothrow_t const&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::nothrow_t const&) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t, std::nothrow_t const&) noexcept {
  release(memory);
}
void* operator new[](std::size_t size) { return allocate_or_throw(size, 1); }
void* operator new[](std::size_t size, std::nothrow_t const&) noexcept { return allocate(size, 1); }
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new[](std::size_t size, std::align_val_t alignment, std::nothrow_t const&) noexcept {
  return allocate(size, static_cast<std::size_t>(alignment));
}
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::nothrow_t const&) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t, std::nothrow_t const&) noexcept {
  release(memory);
}
