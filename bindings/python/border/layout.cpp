// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The structs as these functions were compiled with them: a test compares them with what the
// library describes and with those of ctypes.
#include <tvm/ffi/function.h>
#include <tvm/ffi/string.h>

#include <cstddef>
#include <cstdio>
#include <string>
#include <type_traits>

#include "call.hpp"

namespace attikos::python {
namespace {

/// One line: name, offset, size and default, tabulators between them; 0 for a default that is no
/// number.
template <class T>
void add_member(std::string& lines, char const* name, std::size_t offset, T const& initial) {
  double value = 0;
  if constexpr (std::is_arithmetic_v<T>) value = static_cast<double>(initial);
  char text[192];
  std::snprintf(text, sizeof text, "%s\t%zu\t%zu\t%.17g\n", name, offset, sizeof(T), value);
  lines += text;
}

#define ATTIKOS_MEMBER(name) add_member(lines, #name, offsetof(Struct, name), made.name);
#define ATTIKOS_OPTION(kind, name, initial, meaning) ATTIKOS_MEMBER(name)
#define ATTIKOS_OPTIONS(operation, type, table, bytes) \
  if (of == #operation) {                              \
    using Struct = type;                               \
    Struct const made = table##_INIT;                  \
    lines = std::to_string(sizeof(Struct)) + "\n";     \
    ATTIKOS_MEMBER(struct_size) table(ATTIKOS_OPTION)  \
  }

/// The bytes of a struct, then its members: of one that attikos_describe_options() knows by that
/// name, of "tensor" or "device_info".
Any layout(ffi::String const& of) {
  std::string lines;
  ATTIKOS_OPTION_STRUCTS(ATTIKOS_OPTIONS)
  if (of == "tensor") {
    using Struct = attikos_tensor;
    Struct const made = {};
    lines = std::to_string(sizeof(Struct)) + "\n";
    ATTIKOS_MEMBER(data)
    ATTIKOS_MEMBER(dtype)
    ATTIKOS_MEMBER(ndim)
    ATTIKOS_MEMBER(shape)
    ATTIKOS_MEMBER(strides)
  } else if (of == "device_info") {
    using Struct = attikos_device_info;
    Struct const made = ATTIKOS_DEVICE_INFO_INIT;
    lines = std::to_string(sizeof(Struct)) + "\n";
    ATTIKOS_MEMBER(struct_size)
    ATTIKOS_MEMBER(name)
    ATTIKOS_MEMBER(simd)
    ATTIKOS_MEMBER(kind)
    ATTIKOS_MEMBER(architecture)
    ATTIKOS_MEMBER(compute_major)
    ATTIKOS_MEMBER(compute_minor)
    ATTIKOS_MEMBER(has_tma)
    ATTIKOS_MEMBER(has_fp8)
    ATTIKOS_MEMBER(has_warpgroup_mma)
    ATTIKOS_MEMBER(multiprocessors)
    ATTIKOS_MEMBER(shared_memory_per_multiprocessor)
    ATTIKOS_MEMBER(total_memory)
    ATTIKOS_MEMBER(host_isa)
  }
  return ffi::String(lines);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(layout, layout);

}  // namespace attikos::python
