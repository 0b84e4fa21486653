// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "status.hpp"

#include <attikos/config.hpp>
#include <attikos/core/error.hpp>
#include <cstring>
#include <new>

namespace attikos::c {
namespace {

// A plain array: storing a message must not throw, and must work while memory is short.
thread_local char message_of_thread[2048] = "";

}  // namespace

attikos_status remember(attikos_status status, char const* message) noexcept {
  std::strncpy(message_of_thread, message, sizeof message_of_thread - 1);
  return status;
}

attikos_status status_of_current_exception() noexcept {
  try {
    throw;
  } catch (Failure const& error) {
    return remember(error.status(), error.what());
  } catch (ShapeError const& error) {
    return remember(ATTIKOS_SHAPE_MISMATCH, error.what());
  } catch (DtypeError const& error) {
    return remember(ATTIKOS_DTYPE_MISMATCH, error.what());
  } catch (StrideError const& error) {
    return remember(ATTIKOS_INVALID_STRIDES, error.what());
  } catch (DeviceError const& error) {
    return remember(ATTIKOS_DEVICE_ERROR, error.what());
  } catch (UnsupportedError const& error) {
    return remember(ATTIKOS_UNSUPPORTED, error.what());
  } catch (ResourceError const& error) {
    return remember(ATTIKOS_OUT_OF_MEMORY, error.what());
  } catch (Error const& error) {
    return remember(ATTIKOS_INVALID_ARGUMENT, error.what());
  } catch (std::bad_alloc const&) {
    return remember(ATTIKOS_OUT_OF_MEMORY, "attikos: out of memory");
  } catch (std::exception const& error) {
    return remember(ATTIKOS_INTERNAL_ERROR, error.what());
  } catch (...) {
    return remember(ATTIKOS_INTERNAL_ERROR, "attikos: unknown error");
  }
}

}  // namespace attikos::c

extern "C" {

char const* attikos_last_error(void) { return attikos::c::message_of_thread; }

char const* attikos_status_string(attikos_status status) {
  switch (status) {
    case ATTIKOS_SUCCESS:
      return "success";
    case ATTIKOS_NULL_ARGUMENT:
      return "null argument";
    case ATTIKOS_NEGATIVE_EXTENT:
      return "negative extent";
    case ATTIKOS_OVERFLOW:
      return "overflow";
    case ATTIKOS_MISALIGNED:
      return "misaligned pointer";
    case ATTIKOS_SHAPE_MISMATCH:
      return "shape mismatch";
    case ATTIKOS_DTYPE_MISMATCH:
      return "dtype mismatch";
    case ATTIKOS_INVALID_STRIDES:
      return "invalid strides";
    case ATTIKOS_INVALID_ARGUMENT:
      return "invalid argument";
    case ATTIKOS_INVALID_STRUCT:
      return "invalid struct size";
    case ATTIKOS_DEVICE_ERROR:
      return "device error";
    case ATTIKOS_UNSUPPORTED:
      return "unsupported";
    case ATTIKOS_OUT_OF_MEMORY:
      return "out of memory";
    case ATTIKOS_INTERNAL_ERROR:
      return "internal error";
  }
  return "unknown status";
}

int attikos_version(void) {
  return ATTIKOS_VERSION_MAJOR * 10000 + ATTIKOS_VERSION_MINOR * 100 + ATTIKOS_VERSION_PATCH;
}

char const* attikos_version_string(void) { return ATTIKOS_VERSION_STRING; }
}
