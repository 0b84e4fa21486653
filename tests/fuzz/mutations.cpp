// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mutations.hpp"

#include <iterator>

namespace sentence_search::fuzz {
namespace {

constexpr char const* digits = "0123456789";
// Where readers change their minds.
constexpr char const* numbers[] = {"0",
                                   "1",
                                   "2",
                                   "-1",
                                   "1.5",
                                   "1e999",
                                   "16777217",
                                   "4294967296",
                                   "9223372036854775808",
                                   "99999999999999999999"};

}  // namespace

std::string Mutations::any_piece(std::string const& text) {
  constexpr std::size_t longest = 64;
  // One after the other: compilers order arguments differently.
  std::size_t const begin = below(text.size() + 1);
  return text.substr(begin, 1 + below(longest));
}

void Mutations::mutate(std::string& text) {
  std::size_t const at = below(text.size() + 1);
  switch (below(8)) {
    case 0:
      text.insert(at, 1, static_cast<char>(below(256)));
      break;
    case 1:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
      break;
    case 2:
      text.erase(at, any_piece(text).size());
      break;
    case 3:
      text.insert(at, any_piece(text));
      break;
    case 4:
      text.insert(at, any_piece(any_seed()));
      break;
    case 5:
      text.insert(at, 1, '\0');
      break;
    default:
      if (auto const begin = text.find_first_of(digits, at); begin != std::string::npos) {
        auto const end = text.find_first_not_of(digits, begin);
        text.replace(begin, end - begin, numbers[below(std::size(numbers))]);
      }
  }
}

}  // namespace sentence_search::fuzz
