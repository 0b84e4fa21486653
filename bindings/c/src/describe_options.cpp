// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The structs of options as this library has them, for those who have no C compiler at hand.
#include <attikos/attikos.h>

#include <cstddef>
#include <cstdio>
#include <string_view>
#include <type_traits>

#include "text_result.hpp"

namespace attikos::c {
namespace {

/// A default as text: 0 for null.
template <class T>
std::string written(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return value == nullptr ? "0" : "?";
  } else {
    char text[32];
    std::snprintf(text, sizeof text, "%.17g", static_cast<double>(value));
    return text;
  }
}

template <class T>
void add_line(std::string& lines, char const* kind, char const* name, std::size_t offset,
              T const& initial, char const* meaning) {
  // Of a member that is a pointer, too, its own size is meant.
  std::size_t const size = sizeof(T);  // NOLINT(bugprone-sizeof-expression)
  for (std::string const& cell : {std::string(kind), std::string(name), std::to_string(offset),
                                  std::to_string(size), written(initial)})
    lines += cell + "\t";
  lines += std::string(meaning) + "\n";
}

#define ATTIKOS_DESCRIBE(kind, name, initial, meaning) \
  add_line(lines, #kind, #name, offsetof(Struct, name), defaults.name, meaning);
#define ATTIKOS_DESCRIBE_STRUCT(type, table, table_init)                                        \
  [] {                                                                                          \
    using Struct = type;                                                                        \
    Struct const defaults = table_init;                                                         \
    std::string lines = std::to_string(sizeof(Struct)) + "\n";                                  \
    add_line(lines, "size", "struct_size", offsetof(Struct, struct_size), defaults.struct_size, \
             "bytes of this");                                                                  \
    table(ATTIKOS_DESCRIBE) return lines;                                                       \
  }()

std::string description(std::string_view operation) {
  std::string expected;
#define ATTIKOS_DESCRIBE_IF_NAMED(name, type, table, bytes)                          \
  if (operation == #name) return ATTIKOS_DESCRIBE_STRUCT(type, table, table##_INIT); \
  expected += expected.empty() ? "\"" #name "\"" : ", \"" #name "\"";
  ATTIKOS_OPTION_STRUCTS(ATTIKOS_DESCRIBE_IF_NAMED)
  fail(ATTIKOS_INVALID_ARGUMENT, "describe_options: operation is \"", operation,
       "\"; expected one of ", expected);
}

}  // namespace
}  // namespace attikos::c

extern "C" attikos_status attikos_describe_options(char const* operation, char* text, size_t size,
                                                   size_t* length) {
  using namespace attikos::c;
  return guarded([&] {
    if (operation == nullptr)
      fail(ATTIKOS_NULL_ARGUMENT, "describe_options: the operation is null; expected its name");
    TextResult const result{text, size, length};
    result.check("describe_options");
    result.put(description(operation));
  });
}
