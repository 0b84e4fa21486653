// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What make_fixture.py wrote, and where the model lies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace sentence_search::test {

struct Sentence {
  std::string text;
  std::vector<std::int32_t> tokens;
};

struct Fixture {
  std::vector<Sentence> sentences;
  std::vector<std::string> token_hashes;  // one a Unicode plane, hexadecimal
  std::vector<float> embeddings;          // [sentences, hidden]
  std::size_t hidden = 0;
};

Fixture read_fixture();
std::filesystem::path model_folder();

}  // namespace sentence_search::test
