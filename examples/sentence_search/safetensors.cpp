// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "safetensors.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <utility>

#include "failure.hpp"
#include "utf8.hpp"

namespace sentence_search {
namespace {

using Json = nlohmann::json;
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

// A list of natural numbers; false for anything else.
bool read_numbers(Json const& json, std::vector<std::uint64_t>& numbers) {
  if (!json.is_array()) return false;
  for (auto const& element : json) {
    if (!element.is_number_unsigned()) return false;
    numbers.push_back(element.get<std::uint64_t>());
  }
  return true;
}

}  // namespace

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
  read_header(bytes.subspan(length_bytes, header));
  check_buffer();
}

void Safetensors::fail(std::string const& reason) const {
  throw DataError(path_.string() + ": " + reason);
}

void Safetensors::read_header(std::span<std::byte const> header) {
  std::string_view const text(reinterpret_cast<char const*>(header.data()), header.size());
  // The parser would keep the last of two equal names; the format forbids them.
  std::set<std::string> names;
  std::string repeated;
  auto const watch_names = [&](int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::key && depth == 1) {
      auto const& name = value.get_ref<std::string const&>();
      if (!names.insert(name).second) repeated = name;
    }
    return true;
  };
  Json json;
  try {
    json = Json::parse(text, watch_names);
  } catch (Json::parse_error const& error) {
    fail("header is no valid JSON at byte " + std::to_string(error.byte));
  }
  if (!json.is_object()) fail("header is no JSON object");
  if (!repeated.empty()) fail("header names " + one_line(repeated, 80) + " twice");
  for (auto const& [name, entry] : json.items()) {
    if (name == "__metadata__") continue;
    std::vector<std::uint64_t> shape, offsets;
    if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
        !entry.contains("shape") || !read_numbers(entry["shape"], shape) ||
        !entry.contains("data_offsets") || !read_numbers(entry["data_offsets"], offsets) ||
        offsets.size() != 2) {
      fail("tensor " + one_line(name, 80) +
           " needs a dtype, a shape and two data_offsets in the header");
    }
    tensors_[name] = read_entry(one_line(name, 80), entry["dtype"].get<std::string>(),
                                std::move(shape), offsets);
  }
}

Safetensors::Tensor Safetensors::read_entry(std::string const& name, std::string const& dtype,
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
  return {dtype, std::move(shape), begin, end};
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

std::span<float const> Safetensors::float32(std::string const& name,
                                            std::vector<std::uint64_t> const& shape) const {
  auto const found = tensors_.find(name);
  if (found == tensors_.end()) fail("the tensor " + name + " is missing");
  Tensor const& tensor = found->second;
  if (tensor.dtype != "F32") fail("tensor " + name + " is " + tensor.dtype + " but must be F32");
  if (tensor.shape != shape) {
    fail("tensor " + name + " is " + to_string(tensor.shape) + " but must be " + to_string(shape));
  }
  auto const bytes = buffer_.subspan(tensor.begin, tensor.end - tensor.begin);
  return {reinterpret_cast<float const*>(bytes.data()), bytes.size() / sizeof(float)};
}

}  // namespace sentence_search
