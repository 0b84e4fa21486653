// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// NumPy's file format, version 1.0 (numpy.lib.format).
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <span>

namespace sentence_search {

/// A float32 matrix on its way into a .npy file. The file is opened at once, so that a path that
/// cannot be written is found before the work is done. It is written beside its name and renamed
/// when it is complete.
class NpyWriter {
 public:
  /// Throws DataError.
  explicit NpyWriter(std::filesystem::path path);
  NpyWriter(NpyWriter const&) = delete;
  NpyWriter& operator=(NpyWriter const&) = delete;
  ~NpyWriter();

  /// Writes [rows, columns] row after row and closes the file. Throws DataError.
  void write(std::span<float const> values, std::size_t rows, std::size_t columns);

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;  // path_ itself where that is a device or a pipe
  std::ofstream file_;
  bool written_ = false;
};

}  // namespace sentence_search
