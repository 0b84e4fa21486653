// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "failure.hpp"
#include "json_events.hpp"
#include "utf8.hpp"

namespace sentence_search {
namespace {

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t max_header = 100'000'000;  // the format's own limit

// Bytes of an element; 0 for a type that the format does not have.
std::uint64_t element_size(std::string_view dtype) {
  static std::map<std::string_view, std::uint64_t> const sizes{
      {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E4M3", 1}, {"F8_E5M2", 1},
      {"U16", 2},  {"I16", 2}, {"F16", 2}, {"BF16", 2},    {"U32", 4},
      {"I32", 4},  {"F32", 4}, {"U64", 8}, {"I64", 8},     {"F64", 8}};
  auto const found = sizes.find(dtype);
  return found == sizes.end() ? 0 : found->second;
}

std::string to_string(std::vector<std::uint64_t> const& shape) {
  std::string text = "[";
  for (auto const extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

}  // namespace

// Takes the tensors out of the header as it is read.
class Safetensors::Header final : public JsonEvents {
 public:
  explicit Header(Safetensors& file) : JsonEvents(file.path_.string() + ": header"), file_(file) {}

 private:
  using Numbers = std::vector<std::uint64_t>;
  struct Entry {
    std::optional<std::string> dtype;
    std::optional<Numbers> shape, offsets;
  };

  void on_key(std::string const& name) override {
    if (depth() == 1) {
      name_ = name;
      entry_ = {};
    } else if (depth() == 2) {
      field_ = name;
    }
  }
  void on_scalar(Json const& value) override {
    if (depth() == 0) fail("is no JSON object");
    if (is_metadata()) return;
    if (depth() == 1) fail_incomplete();
    if (depth() == 2) {
      if (list_of(field_) != nullptr) fail_incomplete();
      if (field_ != "dtype") return;
      if (!value.is_string()) fail_incomplete();
      if (entry_.dtype) fail_repeated();
      entry_.dtype = value.get<std::string>();
    } else if (list_ != nullptr) {
      constexpr std::size_t max_dimensions = 64;
      if (!value.is_number_unsigned()) fail_incomplete();
      list_->push_back(value.get<std::uint64_t>());
      if (list_->size() > max_dimensions) {
        file_.fail("tensor " + one_line(name_, 80) + " has more than " +
                   std::to_string(max_dimensions) + " numbers in " + field_);
      }
    }
  }
  void on_open(bool object) override {
    if (depth() == 1 && !object) fail("is no JSON object");
    if (depth() == 1 || is_metadata()) return;
    if (depth() == 2 && !object) fail_incomplete();
    if (depth() == 3) {
      if (field_ == "dtype") fail_incomplete();
      auto* const list = list_of(field_);
      if (list == nullptr) return;
      if (object) fail_incomplete();
      if (*list) fail_repeated();
      list_ = &list->emplace();
    } else if (list_ != nullptr) {
      fail_incomplete();
    }
  }
  void on_close() override {
    if (depth() == 2) list_ = nullptr;
    if (depth() != 1 || is_metadata()) return;
    if (!entry_.dtype || !entry_.shape || !entry_.offsets || entry_.offsets->size() != 2) {
      fail_incomplete();
    }
    auto const [at, added] = file_.tensors_.try_emplace(name_);
    if (!added) fail("names " + one_line(name_, 80) + " twice");
    at->second = file_.read_entry(one_line(name_, 80), std::move(*entry_.dtype),
                                  std::move(*entry_.shape), *entry_.offsets);
  }

  bool is_metadata() const { return name_ == "__metadata__"; }
  std::optional<Numbers>* list_of(std::string const& field) {
    return field == "shape" ? &entry_.shape : field == "data_offsets" ? &entry_.offsets : nullptr;
  }
  [[noreturn]] void fail_incomplete() const {
    file_.fail("tensor " + one_line(name_, 80) +
               " needs a dtype, a shape and two data_offsets in the header");
  }
  [[noreturn]] void fail_repeated() const {
    file_.fail("tensor " + one_line(name_, 80) + " has two entries " + field_ + " in the header");
  }

  Safetensors& file_;
  std::string name_, field_;
  Entry entry_;
  Numbers* list_ = nullptr;  // the shape or the offsets, while they are read
};

Safetensors::Safetensors(std::filesystem::path path) : path_(std::move(path)), file_(path_) {
  auto const bytes = file_.bytes();
  if (bytes.size() < length_bytes) {
    fail("is truncated: " + std::to_string(bytes.size()) +
         " bytes are too few for the header length");
  }
  std::uint64_t header = 0;
  for (std::size_t i = length_bytes; i-- > 0;) {
    header = (header << 8) | std::to_integer<std::uint64_t>(bytes[i]);
  }
  if (header > max_header) {
    fail("header length " + std::to_string(header) + " is beyond the format's limit of " +
         std::to_string(max_header));
  }
  if (header > bytes.size() - length_bytes) {
    fail("is truncated: a header of " + std::to_string(header) + " bytes is announced but " +
         std::to_string(bytes.size() - length_bytes) + " follow");
  }
  buffer_ = bytes.subspan(length_bytes + header);
  Header(*this).read({reinterpret_cast<char const*>(bytes.data()) + length_bytes, header});
  check_buffer();
}

void Safetensors::fail(std::string const& reason) const {
  throw DataError(path_.string() + ": " + reason);
}

Safetensors::Tensor Safetensors::read_entry(std::string const& name, std::string dtype,
                                            std::vector<std::uint64_t> shape,
                                            std::vector<std::uint64_t> const& offsets) const {
  std::string const who = "tensor " + name;
  std::uint64_t const element = element_size(dtype);
  if (element == 0) fail(who + " has the unknown dtype " + one_line(dtype, 20));
  std::uint64_t const begin = offsets[0], end = offsets[1];
  if (begin > end || end > buffer_.size()) {
    fail(who + " lies at data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) +
         "] but the data are " + std::to_string(buffer_.size()) + " bytes long (truncated?)");
  }
  std::uint64_t size = element;
  for (auto const extent : shape) {
    if (extent != 0 && size > std::numeric_limits<std::uint64_t>::max() / extent) {
      fail(who + " has the impossible shape " + to_string(shape));
    }
    size *= extent;
  }
  if (size != end - begin) {
    fail(who + " is " + to_string(shape) + " " + dtype + ", " + std::to_string(size) +
         " bytes, but its data_offsets span " + std::to_string(end - begin));
  }
  // The mapping begins at a page, so the address is aligned when the position in the file is.
  auto const position = static_cast<std::uint64_t>(buffer_.data() - file_.bytes().data()) + begin;
  if (position % element != 0) {
    fail(who + " is misaligned: byte " + std::to_string(position) +
         " of the file is no multiple of " + std::to_string(element));
  }
  return {std::move(dtype), std::move(shape), begin, end};
}

void Safetensors::check_buffer() const {
  std::vector<std::pair<std::uint64_t, std::uint64_t>> spans;
  for (auto const& [name, tensor] : tensors_) spans.emplace_back(tensor.begin, tensor.end);
  std::sort(spans.begin(), spans.end());
  std::uint64_t filled = 0;
  for (auto const& [begin, end] : spans) {
    if (begin != filled) {
      fail(std::string("tensors ") + (begin < filled ? "overlap" : "leave a gap") + " at byte " +
           std::to_string(begin) + " of the data");
    }
    filled = end;
  }
  if (filled != buffer_.size()) {
    fail("tensors end at byte " + std::to_string(filled) + " of the data but " +
         std::to_string(buffer_.size()) + " bytes are there");
  }
}

std::span<std::byte const> Safetensors::bytes(std::string const& name, std::string const& dtype,
                                              std::vector<std::uint64_t> const& shape) const {
  auto const found = tensors_.find(name);
  std::string const who = "tensor " + one_line(name, 80);
  if (found == tensors_.end()) fail("the " + who + " is missing");
  Tensor const& tensor = found->second;
  if (tensor.dtype != dtype) fail(who + " is " + tensor.dtype + " but must be " + dtype);
  if (tensor.shape != shape) {
    fail(who + " is " + to_string(tensor.shape) + " but must be " + to_string(shape));
  }
  return buffer_.subspan(tensor.begin, tensor.end - tensor.begin);
}

std::span<float const> Safetensors::float32(std::string const& name,
                                            std::vector<std::uint64_t> const& shape) const {
  auto const tensor = bytes(name, "F32", shape);
  return {reinterpret_cast<float const*>(tensor.data()), tensor.size() / sizeof(float)};
}

}  // namespace sentence_search
