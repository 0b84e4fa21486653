// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The command line.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "config.hpp"

namespace llama {

struct Options {
  Config config;
  std::size_t batch = 8, length = 2048, steps = 200, warmup = 20, logits_rows = 0;
  std::uint64_t seed = 1;
  double learning_rate = 3e-4, weight_decay = 0.1;
  bool bfloat16 = false, keep_mlp = true;
  std::size_t report = 10;
  std::filesystem::path checkpoint, resume, losses, batches;
  std::size_t checkpoint_every = 0;  ///< 0: at the end alone
  std::size_t generate = 0, generate_batch = 1, page_size = 64;
  std::string prompt = "Attikos is";
  std::filesystem::path documentation, vocabulary;
  bool help = false;
  std::vector<char*> kokkos_arguments;  ///< what begins with --kokkos, for Kokkos::initialize
};

/// `options` with what the arguments say. Throws UsageError.
Options parse_options(std::vector<char*> const& arguments, Options options);

extern char const* const help_text;

}  // namespace llama
