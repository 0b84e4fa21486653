// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// safetensors: the input is the file, and once more a header, without its length, and the data
// behind a zero byte, so that mutations keep the length right.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>

#include "fuzz.hpp"
#include "safetensors.hpp"

namespace sentence_search::fuzz {
namespace {

constexpr std::size_t length_bytes = 8;

std::string with_length(std::string header, std::string_view data) {
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string file;
  for (std::size_t i = 0; i < length_bytes; ++i)
    file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  return file.append(header).append(data);
}

bool check(std::string_view content) {
  InputFile const file(content);
  std::optional<Safetensors> read;
  if (!accepts(file.path(), [&] { read.emplace(file.path()); })) return false;
  std::size_t length = 0, tensors = 0, bytes = 0;
  for (std::size_t i = length_bytes; i-- > 0;)
    length = length << 8 | static_cast<unsigned char>(content.at(i));
  auto const header = content.substr(length_bytes, length),
             data = content.substr(length_bytes + length);
  require(header.size() == length && header.find('\0') == std::string_view::npos,
          "the JSON is all of the header");
  auto const json = nlohmann::json::parse(header);
  for (auto const& item : json.items()) {
    std::string const& name = item.key();
    auto const& entry = item.value();
    if (name == "__metadata__") continue;
    auto shape = entry.at("shape").get<std::vector<std::uint64_t>>();
    auto const begin = entry.at("data_offsets").at(0).get<std::size_t>();
    auto const size = entry.at("data_offsets").at(1).get<std::size_t>() - begin;
    require(begin <= data.size() && size <= data.size() - begin, "a tensor lies within the file");
    if (entry.at("dtype") == "F32") {
      auto const values = read->float32(name, shape);
      std::string_view const got(reinterpret_cast<char const*>(values.data()), values.size_bytes());
      require(got == data.substr(begin, size), "a tensor is what lies at its offsets");
    }
    shape.push_back(2);
    require(!accepts(file.path(), [&] { read->float32(name, shape); }), "another shape is refused");
    ++tensors;
    bytes += size;
  }
  require(tensors == read->size() && bytes == data.size(), "the tensors are all that there is");
  return true;
}

}  // namespace

bool run(std::string_view input) {
  auto const end = std::min(input.find('\0'), input.size());
  auto const file =
      with_length(std::string(input.substr(0, end)), input.substr(std::min(end + 1, input.size())));
  bool const read = check(input);
  return check(file) || read;
}

std::vector<std::string> seeds() {
  std::string const two =
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F16","shape":[2,2],"data_offsets":[0,8]},)"
      R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})";
  std::string const small =
      R"({"a":{"more":{"shape":[[null]]},"dtype":"I8","shape":[],"data_offsets":[0,1]},)"
      R"("n":{"dtype":"F32","shape":[0,3],"data_offsets":[0,0]}})";
  std::string const names =
      R"({"two\nlines \u202e":{"dtype":"BF16","shape":[0],"data_offsets":[0,0]}})";
  std::string const zero(1, '\0');
  return {with_length(two, "0123456789ab"),
          two + zero + "0123456789ab",
          with_length(small, "x"),
          with_length(small + zero + "x", "x"),
          small + zero + "x",
          names,
          "{}",
          R"({"a":{"dtype":"F64","shape":[4611686018427387904,4],"data_offsets":[0,0]}})"};
}

}  // namespace sentence_search::fuzz
