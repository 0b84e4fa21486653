// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The command line.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace sentence_search {

enum class ElementType { float32, bfloat16, float16 };

struct Options {
  std::optional<std::filesystem::path> corpus;  ///< one passage a line; without it: `docs`
  std::filesystem::path docs;                   ///< a project whose documentation is searched
  std::string query = "How do I multiply two matrices that are Kokkos Views?";
  std::size_t top = 5;
  ElementType dtype = ElementType::float32;
  std::optional<std::filesystem::path> embeddings;  ///< .npy file to write
  std::filesystem::path model;
  bool help = false;
  std::vector<char*> kokkos_arguments;  ///< what begins with --kokkos, for Kokkos::initialize
};

/// `options` with what the arguments say. Throws UsageError.
Options parse_options(std::vector<char*> const& arguments, Options options);

char const* name_of(ElementType type);

extern char const* const help_text;

}  // namespace sentence_search
