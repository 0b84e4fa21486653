// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Room for offsets past 2^31. On a host it is address space of which only touched pages exist; on a
// device it is memory, of which a card with so large an address space has enough.
#pragma once

#include <sys/mman.h>

#include <Kokkos_Core.hpp>
#include <cstddef>
#include <cstdint>

namespace attikos::test {

template <class Exec>
class SparseMemory {
 public:
  explicit SparseMemory(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    if constexpr (on_host) {
      void* const address = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (address != MAP_FAILED) address_ = address;
    } else {
      address_ = Kokkos::kokkos_malloc<typename Exec::memory_space>("far apart", bytes_);
    }
  }
  SparseMemory(SparseMemory const&) = delete;
  SparseMemory& operator=(SparseMemory const&) = delete;
  ~SparseMemory() {
    if (address_ == nullptr) return;
    if constexpr (on_host) {
      munmap(address_, bytes_);
    } else {
      Kokkos::kokkos_free<typename Exec::memory_space>(address_);
    }
  }

  explicit operator bool() const { return address_ != nullptr; }
  void* get() const { return address_; }

 private:
  static constexpr bool on_host = Kokkos::SpaceAccessibility<Exec, Kokkos::HostSpace>::accessible;
  std::size_t bytes_;
  void* address_ = nullptr;
};

}  // namespace attikos::test
