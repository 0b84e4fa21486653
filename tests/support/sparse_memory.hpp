// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Address space without memory behind it: only touched pages exist. For offsets past 2^31.
#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <cstdint>

namespace attikos::test {

class SparseMemory {
 public:
  explicit SparseMemory(std::int64_t bytes)
      : bytes_(static_cast<std::size_t>(bytes)),
        address_(mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  SparseMemory(SparseMemory const&) = delete;
  SparseMemory& operator=(SparseMemory const&) = delete;
  ~SparseMemory() {
    if (*this) munmap(address_, bytes_);
  }

  explicit operator bool() const { return address_ != MAP_FAILED; }
  void* get() const { return address_; }

 private:
  std::size_t bytes_;
  void* address_;
};

}  // namespace attikos::test
