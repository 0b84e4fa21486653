// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The command line.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <vector>

namespace transformer_block {

/// Something is wrong with the command line: exit status 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  std::size_t steps = 20;
  double learning_rate = 0.5;
  std::size_t generate = 35;
  bool bfloat16 = false;  ///< what generation computes in; else float32
  bool help = false;
  std::vector<char*> kokkos_arguments;
};

extern char const* const help_text;

/// \param arguments     without the program's name
/// \param max_generate  how many tokens the model has positions for
/// Throws UsageError.
Options parse_options(std::vector<char*> const& arguments, std::size_t max_generate);

}  // namespace transformer_block
