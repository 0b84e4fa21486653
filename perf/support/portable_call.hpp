// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the C functions of portable kernels share: matrices and tensors, types by name, instances of
// streams.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/attikos.hpp>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <map>
#include <string>

namespace attikos_perf {

using namespace attikos;
using Exec = Kokkos::Cuda;

template <class Data>
using Strided =
    Kokkos::View<Data, Kokkos::LayoutStride, Exec::memory_space, Kokkos::MemoryUnmanaged>;

template <class T>
Strided<T**> matrix(void const* data, std::int64_t const* extents, std::int64_t const* strides) {
  auto const n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  return Strided<T**>(
      static_cast<T*>(const_cast<void*>(data)),
      Kokkos::LayoutStride(n(extents[0]), n(strides[0]), n(extents[1]), n(strides[1])));
}

template <class T>
Strided<T****> tensor(void const* data, std::int64_t const* extents, std::int64_t const* strides) {
  auto const n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  return Strided<T****>(
      static_cast<T*>(const_cast<void*>(data)),
      Kokkos::LayoutStride(n(extents[0]), n(strides[0]), n(extents[1]), n(strides[1]),
                           n(extents[2]), n(strides[2]), n(extents[3]), n(strides[3])));
}

/// A tensor of three axes.
template <class T>
Strided<T***> matrices(void const* data, std::int64_t const* extents, std::int64_t const* strides) {
  auto const n = [](std::int64_t x) { return static_cast<std::size_t>(x); };
  return Strided<T***>(static_cast<T*>(const_cast<void*>(data)),
                       Kokkos::LayoutStride(n(extents[0]), n(strides[0]), n(extents[1]),
                                            n(strides[1]), n(extents[2]), n(strides[2])));
}

/// The instance of a stream: to make one takes longer than most calls.
inline Exec const& instance_of(void* stream) {
  static std::map<void*, Exec> instances;
  if (!Kokkos::is_initialized()) {
    Kokkos::initialize();
    std::atexit([] { Kokkos::finalize(); });
    Kokkos::push_finalize_hook([] { instances.clear(); });
  }
  auto const found = instances.find(stream);
  if (found != instances.end()) return found->second;
  return instances.emplace(stream, Exec(static_cast<cudaStream_t>(stream))).first->second;
}

/// Runs `call` on the stream; 0, or -1 and why.
template <class Call>
int on_stream(void* stream, char const** reason, Call const& call) {
  static std::string why;
  try {
    call(instance_of(stream));
    return 0;
  } catch (std::exception const& error) {
    why = error.what();
    *reason = why.c_str();
    return -1;
  }
}

template <class Call>
void with_type(char const* type, Call const& call) {
  if (std::strcmp(type, "float64") == 0) return call(double{});
  if (std::strcmp(type, "float32") == 0) return call(float{});
  if (std::strcmp(type, "float16") == 0) return call(float16{});
  call(bfloat16{});
}

}  // namespace attikos_perf
