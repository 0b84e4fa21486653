// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sized structs of callers that were compiled with another version of the header.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include "status.hpp"

namespace attikos::c {

/// What is known of a struct of options: its name, its size in the version that introduced it, and
/// its members' defaults.
template <class Options>
struct OptionStruct;
static_assert(sizeof(void*) == 8, "the sizes of first versions are those with pointers of 8 bytes");
#define ATTIKOS_OPTION_STRUCT(operation, type, table, bytes)                                      \
  template <>                                                                                     \
  struct OptionStruct<type> {                                                                     \
    static constexpr char const* name = #type;                                                    \
    static constexpr std::size_t first_size = bytes;                                              \
    static constexpr type defaults = table##_INIT;                                                \
    static_assert(bytes <= sizeof(type) && bytes % alignof(type) == 0 && bytes > sizeof(size_t)); \
  };
ATTIKOS_OPTION_STRUCTS(ATTIKOS_OPTION_STRUCT)

/// The caller's options: members that the caller's version does not have keep their defaults. A
/// longer struct is taken if what this version does not know holds zeros only.
template <class Options>
Options read_options(char const* operation, Options const* given) {
  using Known = OptionStruct<Options>;
  Options result = Known::defaults;
  if (given == nullptr) return result;
  std::size_t const size = given->struct_size;
  if (size < Known::first_size || size % alignof(Options) != 0 || size > 65536)
    fail(ATTIKOS_INVALID_STRUCT, operation, ": struct_size of ", Known::name, " is ", size,
         "; expected ", sizeof(Options), " as in this version or, of others, a multiple of ",
         alignof(Options), " from ", Known::first_size, " on, set with the initializer macro");
  auto const* const bytes = reinterpret_cast<unsigned char const*>(given);
  for (std::size_t at = sizeof(Options); at < size; ++at)
    if (bytes[at] != 0)
      fail(ATTIKOS_INVALID_STRUCT, operation, ": ", Known::name, " of ", size,
           " bytes has a member in use at byte ", at, " that this library does not know; it knows ",
           sizeof(Options), " bytes");
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
