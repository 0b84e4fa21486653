// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Errors that a call reports, all but failures of the device before anything is launched or
/// written.
#pragma once

#include <attikos/config.hpp>
#include <sstream>
#include <stdexcept>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Base of every error this library throws. `what()` names operation, argument, what was expected
/// and what came. By itself: a number out of its range, or an output that shares memory with
/// another tensor of the call, as far as addresses, extents and strides tell.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
/// Extents that do not fit together.
class ShapeError : public Error {
 public:
  using Error::Error;
};
/// An element type that the operation does not take.
class DtypeError : public Error {
 public:
  using Error::Error;
};
/// Strides that the operation cannot honor, such as those by which elements of an output share
/// memory.
class StrideError : public Error {
 public:
  using Error::Error;
};
/// Memory that the execution space cannot reach, a device that lacks what was asked for, a Kokkos
/// that is not initialized or was finalized, or a kernel that could not be launched: kernels of the
/// call before it may have written.
class DeviceError : public Error {
 public:
  using Error::Error;
};
/// A combination of options that nothing here computes, or a demanded kernel that cannot take the
/// call.
class UnsupportedError : public Error {
 public:
  using Error::Error;
};
/// Memory that could not be had, or a workspace that is too small.
class ResourceError : public Error {
 public:
  using Error::Error;
};

namespace detail {

/// Throws `E` with a message made of all parts. Kept out of line of the checks so that they stay
/// cheap to read.
template <class E, class... Parts>
[[noreturn]] void raise(Parts const&... parts) {
  std::ostringstream message;
  message << "attikos::";
  (message << ... << parts);
  throw E(message.str());
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
