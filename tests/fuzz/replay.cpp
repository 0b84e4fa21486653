// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A fuzzer without libFuzzer: the seeds, then mutations of them, the same in every run and on every
// machine, then for a second others, by a number that is printed.
//   replay_NAME               what CTest runs
//   replay_NAME -seed NUMBER  the same mutations again
//   replay_NAME FILE...       these inputs, such as those that libFuzzer kept
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "../support/input_limits.hpp"
#include "fuzz.hpp"
#include "mutations.hpp"

namespace sentence_search::fuzz {
namespace {

// As a C++ string.
void print_escaped(std::string const& text) {
  for (char const c : text) {
    bool const plain = c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
    std::fprintf(stderr, plain ? "%c" : "\\%03o", static_cast<unsigned char>(c));
  }
}

// Whether all properties hold; counts the inputs that are read to their end.
bool passes(std::string const& input, int& accepted) {
  attikos::test::limit_seconds();
  try {
    accepted += run(input) ? 1 : 0;
    return true;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\ninput: \"", error.what());
    print_escaped(input);
    std::fprintf(stderr, "\"\n");
    return false;
  }
}

bool files_pass(std::vector<std::string> const& names) {
  int accepted = 0;
  for (auto const& name : names) {
    std::ifstream file(name, std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "%s cannot be read\n", name.c_str());
      return false;
    }
    std::string const input{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (!passes(input, accepted)) return false;
  }
  return true;
}

bool mutations_pass(unsigned seed) {
  constexpr int rounds = 2000;
  constexpr std::size_t most_changes = 3;
  auto const all = seeds();
  int accepted = 0;
  for (auto const& seed : all) {
    if (!passes(seed, accepted)) return false;
    if (accepted == 0) {
      std::fprintf(stderr, "the first seed is refused\n");
      return false;
    }
  }
  auto const change_and_pass = [&](Mutations& mutations, int round) {
    std::string input = round % 2 == 0 ? all.front() : mutations.any_seed();
    for (std::size_t changes = 1 + mutations.below(most_changes); changes > 0; --changes) {
      mutations.mutate(input);
    }
    return passes(input, accepted);
  };
  Mutations known(all, 1);
  for (int round = 0; round < rounds; ++round)
    if (!change_and_pass(known, round)) return false;
  std::printf("seed %u\n", seed);
  std::fflush(stdout);  // before an input may end the program
  Mutations others(all, seed);
  using Clock = std::chrono::steady_clock;
  int round = 0;
  for (auto const end = Clock::now() + std::chrono::seconds(1); Clock::now() < end; ++round)
    if (!change_and_pass(others, round)) return false;
  std::printf("%d of %zu inputs are read to their end\n", accepted, all.size() + rounds + round);
  return true;
}

}  // namespace
}  // namespace sentence_search::fuzz

int main(int argc, char** argv) {
  using namespace sentence_search::fuzz;
  attikos::test::limit_memory();
  if (argc == 3 && std::string(argv[1]) == "-seed")
    return mutations_pass(static_cast<unsigned>(std::stoul(argv[2]))) ? 0 : 1;
  return (argc > 1 ? files_pass({argv + 1, argv + argc}) : mutations_pass(std::random_device{}()))
             ? 0
             : 1;
}
