// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Host results do not depend on the number of threads: this program runs itself with 1, 2, 3 and 5
// threads and compares checksums of what every operation wrote.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <string>
#include <type_traits>
#include <vector>

#include "operations.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultHostExecutionSpace;

std::uint64_t hash_of(std::vector<std::byte> const& bytes) {
  std::uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (std::byte byte : bytes) hash = (hash ^ static_cast<std::uint64_t>(byte)) * 1099511628211u;
  return hash;
}

template <class T>
void print_checksums(char const* type) {
  Exec const exec;
  for (auto const& operation : operations<Exec, T>()) {
    operation.output.clear();
    std::uint64_t const empty = hash_of(operation.output.bytes());
    operation.call(exec);
    std::uint64_t const hash = hash_of(operation.output.bytes());
    EXPECT_NE(hash, empty) << operation.name;
    std::printf("checksum %s %s %016llx\n", operation.name.c_str(), type,
                static_cast<unsigned long long>(hash));
  }
}

// Also what the child processes of the test below run.
TEST(Determinism, EveryOperationWrites) {
  std::printf("concurrency %d\n", Exec().concurrency());
  print_checksums<float>("float32");
  print_checksums<bfloat16>("bfloat16");
}

struct ChildRun {
  std::string concurrency;
  std::string checksums;
};

ChildRun run_with_threads(int threads) {
  std::string const self = std::filesystem::read_symlink("/proc/self/exe").string();
  std::string const command = "'" + self +
                              "' --gtest_filter=Determinism.EveryOperationWrites"
                              " --gtest_output= --kokkos-num-threads=" +
                              std::to_string(threads) + " 2>/dev/null";
  ChildRun run;
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return run;
  char line[256];
  while (std::fgets(line, sizeof line, pipe) != nullptr) {
    std::string const text = line;
    if (text.rfind("checksum", 0) == 0) run.checksums += text;
    if (text.rfind("concurrency", 0) == 0) run.concurrency = text;
  }
  EXPECT_EQ(pclose(pipe), 0) << command;
  return run;
}

TEST(Determinism, HostResultsDoNotDependOnTheNumberOfThreads) {
  bool const parallel = !std::is_same_v<Exec, Kokkos::Serial>;
  ChildRun const one = run_with_threads(1);
  ASSERT_FALSE(one.checksums.empty());
  EXPECT_EQ(one.concurrency, "concurrency 1\n");
  for (int threads : {2, 3, 5}) {
    ChildRun const more = run_with_threads(threads);
    EXPECT_EQ(more.concurrency, "concurrency " + std::to_string(parallel ? threads : 1) + "\n");
    EXPECT_EQ(more.checksums, one.checksums) << threads << " threads";
  }
}

}  // namespace
}  // namespace attikos::test
