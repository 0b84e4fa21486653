// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sized structs of callers that were compiled with another version of the header.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "status.hpp"

namespace attikos::c {

/// The caller's options over `defaults`: members that the caller's version does not have keep their
/// defaults. A longer struct is taken if what this version does not know holds zeros only.
/// `first_version` is the size of the struct when it was introduced.
template <class Options>
Options read_options(char const* operation, Options const* given, Options const& defaults,
                     std::size_t first_version) {
  if (given == nullptr) return defaults;
  Options result = defaults;
  std::size_t const size = given->struct_size;
  if (size < first_version)
    fail(ATTIKOS_INVALID_STRUCT, operation, ": struct_size of the options is ", size,
         "; expected at least ", first_version, ", set it with the initializer macro");
  auto const* const bytes = reinterpret_cast<unsigned char const*>(given);
  if (size > sizeof(Options)) {
    if (size > 65536 ||
        std::any_of(bytes + sizeof(Options), bytes + size, [](unsigned char b) { return b != 0; }))
      fail(ATTIKOS_INVALID_STRUCT, operation, ": struct_size of the options is ", size,
           " with members in use that this library does not know; it knows ", sizeof(Options),
           " bytes");
  }
  std::memcpy(static_cast<void*>(&result), given, std::min(size, sizeof(Options)));
  result.struct_size = sizeof(Options);
  return result;
}

/// An option of C as the same in C++, or in another struct of C.
template <class From, class To>
void copy_option(From from, To& to) {
  if constexpr (std::is_same_v<To, bool>) {
    to = from != 0;
  } else if constexpr (std::is_enum_v<To>) {
    to = static_cast<To>(from);
  } else {
    to = from;
  }
}

/// A row of a table: `to` gets what `from` has, if it has a member of that name.
#define ATTIKOS_COPY_OPTION(kind, name, initial, meaning)            \
  [](auto const& a, auto& b) {                                       \
    if constexpr (requires { b.name; }) copy_option(a.name, b.name); \
  }(from, to);

/// How many options of a table that are no tensors another struct has under no such name: whoever
/// copies asserts the number of those that are read by hand.
#define ATTIKOS_COUNT_UNCOPIED(kind, name, initial, meaning)             \
  +(std::is_same_v<ATTIKOS_OPTION_TYPE_##kind, attikos_tensor const*> || \
            requires(To & to) { to.name; }                               \
        ? 0                                                              \
        : 1)
#define ATTIKOS_UNCOPIED(table, type)       \
  []<class To>(std::type_identity<To>) {    \
    return 0 table(ATTIKOS_COUNT_UNCOPIED); \
  }(std::type_identity<type>{})

}  // namespace attikos::c
