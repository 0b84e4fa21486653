// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A file mapped read-only into memory, so that weights are paged in as they are copied and never
/// held twice.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace sentence_search {

class MappedFile {
 public:
  /// Throws DataError if the file cannot be opened or mapped.
  explicit MappedFile(std::filesystem::path const& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(MappedFile const&) = delete;
  MappedFile& operator=(MappedFile const&) = delete;
  ~MappedFile();

  std::span<std::byte const> bytes() const { return bytes_; }

 private:
  std::span<std::byte const> bytes_;
};

}  // namespace sentence_search
