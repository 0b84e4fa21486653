// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The fuzzer of the C interface without libFuzzer: inputs drawn anew in each run, for some seconds.
//   test_c_fuzz                   what CTest runs
//   test_c_fuzz SECONDS [SEED]    for longer, or a run again
//   test_c_fuzz -x HEX            one input, as a failure prints it
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "../support/input_limits.hpp"
#include "fuzz_c_calls.hpp"

namespace {

using attikos::test::fuzz_c_calls;
using attikos::test::fuzz_counts;

bool holds(std::vector<unsigned char> const& input) {
  attikos::test::limit_seconds();
  std::string const wrong = fuzz_c_calls(input.data(), input.size());
  if (wrong.empty()) return true;
  std::printf("%s\nagain: test_c_fuzz -x ", wrong.c_str());
  for (auto const byte : input) std::printf("%02x", byte);
  std::printf("\n");
  return false;
}

std::vector<unsigned char> from_hex(std::string const& hex) {
  std::vector<unsigned char> bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes.push_back(static_cast<unsigned char>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  attikos::test::limit_memory();
  if (argc > 2 && std::string(argv[1]) == "-x") return holds(from_hex(argv[2])) ? 0 : 1;
  double const seconds = argc > 1 ? std::atof(argv[1]) : 3;
  unsigned const seed =
      argc > 2 ? static_cast<unsigned>(std::stoul(argv[2])) : std::random_device{}();
  std::printf("seed %u\n", seed);
  std::fflush(stdout);  // before an input may end the program
  std::mt19937 random(seed);
  auto const end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  int failures = 0;
  while (failures < 10 && std::chrono::steady_clock::now() < end) {
    std::vector<unsigned char> input(8 + random() % 120);
    for (auto& byte : input) byte = static_cast<unsigned char>(random());
    failures += holds(input) ? 0 : 1;
  }
  auto const& counts = fuzz_counts();
  std::printf("%ld calls accepted, %ld refused\n", counts.accepted, counts.refused);
  if (counts.accepted < 10 || counts.refused < 10) {
    std::printf("expected some of both\n");
    return 1;
  }
  return failures == 0 ? 0 : 1;
}
