// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "fixture.hpp"

#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace sentence_search::test {
namespace {

std::filesystem::path const folder = SENTENCE_SEARCH_FIXTURE_FOLDER;

std::string read(std::filesystem::path const& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

std::filesystem::path model_folder() { return SENTENCE_SEARCH_MODEL_FOLDER; }

Fixture read_fixture() {
  Fixture fixture;
  auto const json = nlohmann::json::parse(read(folder / "fixture.json"));
  json.at("token_hashes").get_to(fixture.token_hashes);
  for (auto const& entry : json.at("sentences")) {
    fixture.sentences.push_back(
        {entry.at("text").get<std::string>(), entry.at("tokens").get<std::vector<std::int32_t>>()});
  }
  // NumPy writes version 1.0 with a header length of two bytes; the rest are little-endian floats.
  std::string const npy = read(folder / "fixture.npy");
  std::size_t const header =
      10 + static_cast<unsigned char>(npy.at(8)) + 256u * static_cast<unsigned char>(npy.at(9));
  fixture.embeddings.resize((npy.size() - header) / sizeof(float));
  std::memcpy(fixture.embeddings.data(), npy.data() + header,
              fixture.embeddings.size() * sizeof(float));
  fixture.hidden = fixture.embeddings.size() / fixture.sentences.size();
  return fixture;
}

}  // namespace sentence_search::test
