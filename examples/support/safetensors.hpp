// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Reader of the safetensors format (github.com/huggingface/safetensors): 8 bytes of header length,
/// a JSON header, one buffer that the tensors fill without gap or overlap. Nothing in the file is
/// trusted. Limits: 100 MB of header, as the format has it, 64 dimensions, 32 levels of JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "mapped_file.hpp"

namespace sentence_search {

class Safetensors {
 public:
  /// Maps the file and checks all of its header. Throws DataError that names the file and what is
  /// wrong.
  explicit Safetensors(std::filesystem::path path);

  /// The elements of a float32 tensor, row after row, in place. Throws DataError if there is no
  /// such tensor or it has another type or shape.
  std::span<float const> float32(std::string const& name,
                                 std::vector<std::uint64_t> const& shape) const;

  /// The same of any type, named as the format does: "F32", "BF16", "I64", as bytes.
  std::span<std::byte const> bytes(std::string const& name, std::string const& dtype,
                                   std::vector<std::uint64_t> const& shape) const;

  std::size_t size() const { return tensors_.size(); }

 private:
  struct Tensor {
    std::string dtype;
    std::vector<std::uint64_t> shape;
    std::uint64_t begin = 0, end = 0;  // bytes in the buffer behind the header
  };

  class Header;

  [[noreturn]] void fail(std::string const& reason) const;
  Tensor read_entry(std::string const& name, std::string dtype, std::vector<std::uint64_t> shape,
                    std::vector<std::uint64_t> const& offsets) const;
  void check_buffer() const;

  std::filesystem::path path_;
  MappedFile file_;
  std::span<std::byte const> buffer_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace sentence_search
