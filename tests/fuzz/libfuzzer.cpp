// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The fuzzers under libFuzzer (llvm.org/docs/LibFuzzer.html), which calls the three at the end.
#include <algorithm>
#include <cstdint>
#include <deque>

#include "fuzz.hpp"
#include "mutations.hpp"

using namespace sentence_search::fuzz;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
  run({reinterpret_cast<char const*>(data), size});
  return 0;
}

// Every second time a change of ours, since few of its own leave a file one that is read to its
// end.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  static std::vector<std::string> const all = seeds();
  Mutations mutations(all, seed);
  if (mutations.below(2) == 0) return LLVMFuzzerMutate(data, size, max_size);
  std::string text(reinterpret_cast<char const*>(data), size);
  mutations.mutate(text);
  text.resize(std::min(text.size(), max_size));
  std::copy(text.begin(), text.end(), data);
  return text.size();
}

// Options in front of the user's: a run without a corpus begins with the seeds, and what it finds
// lies beside the program.
extern "C" int LLVMFuzzerInitialize(int* count, char*** arguments) {
  static std::deque<InputFile> files;
  static std::string inputs = "-seed_inputs=";
  for (auto const& seed : seeds()) {
    inputs += (files.empty() ? "" : ",") + files.emplace_back(seed).path().string();
  }
  static std::string folder =
      "-artifact_prefix=" + (std::filesystem::path(**arguments).parent_path() / "").string();
  static std::vector<char*> all(*arguments, *arguments + *count);
  all.insert(all.begin() + 1, {inputs.data(), folder.data()});
  *count = static_cast<int>(all.size());
  all.push_back(nullptr);
  *arguments = all.data();
  return 0;
}
