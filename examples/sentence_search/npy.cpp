// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "npy.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "failure.hpp"

namespace sentence_search {

namespace fs = std::filesystem;

NpyWriter::NpyWriter(fs::path path) : path_(std::move(path)), partial_(path_) {
  std::error_code ignored;
  auto const status = fs::status(path_, ignored);
  if (fs::is_directory(status)) throw DataError(path_.string() + ": is a directory");
  if (!fs::exists(status) || fs::is_regular_file(status)) partial_ += ".part";
  errno = 0;
  file_.open(partial_, std::ios::binary | std::ios::trunc);
  if (!file_) {
    throw DataError(path_.string() + ": cannot be written: " + std::strerror(errno));
  }
}

NpyWriter::~NpyWriter() {
  if (written_ || partial_ == path_) return;
  file_.close();
  std::error_code ignored;
  fs::remove(partial_, ignored);
}

void NpyWriter::write(std::span<float const> values, std::size_t rows, std::size_t columns) {
  char const order = std::endian::native == std::endian::little ? '<' : '>';
  std::string header = std::string("{'descr': '") + order +
                       "f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) + ", " +
                       std::to_string(columns) + "), }";
  // The data begin at a multiple of 64: magic, version and length take 10 bytes, the line end 1.
  header.append((64 - (header.size() + 11) % 64) % 64, ' ');
  header += '\n';
  std::array<char, 10> const start{'\x93',
                                   'N',
                                   'U',
                                   'M',
                                   'P',
                                   'Y',
                                   1,
                                   0,
                                   static_cast<char>(header.size() & 0xffu),
                                   static_cast<char>(header.size() >> 8)};
  file_.write(start.data(), start.size());
  file_.write(header.data(), static_cast<std::streamsize>(header.size()));
  file_.write(reinterpret_cast<char const*>(values.data()),
              static_cast<std::streamsize>(values.size_bytes()));
  errno = 0;
  file_.close();
  if (!file_) throw DataError(path_.string() + ": cannot be written: " + std::strerror(errno));
  if (partial_ != path_) {
    std::error_code error;
    fs::rename(partial_, path_, error);
    if (error) throw DataError(path_.string() + ": cannot be written: " + error.message());
  }
  written_ = true;
}

}  // namespace sentence_search
