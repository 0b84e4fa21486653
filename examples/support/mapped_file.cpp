// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mapped_file.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "failure.hpp"
#include "text_file.hpp"

namespace sentence_search {
namespace {

struct Descriptor {
  int value;
  ~Descriptor() {
    if (value >= 0) ::close(value);
  }
};

[[noreturn]] void fail(std::filesystem::path const& path) {
  throw DataError(path.string() + ": " + std::strerror(errno));
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path const& path) {
  require_readable_file(path);
  Descriptor const file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.value < 0) fail(path);
  struct stat status {};
  if (::fstat(file.value, &status) != 0) fail(path);
  if (!S_ISREG(status.st_mode)) throw DataError(path.string() + ": is not a regular file");
  auto const size = static_cast<std::size_t>(status.st_size);
  if (size == 0) return;  // mmap refuses an empty range
  void* const address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.value, 0);
  if (address == MAP_FAILED) fail(path);
  bytes_ = {static_cast<std::byte const*>(address), size};
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace sentence_search
