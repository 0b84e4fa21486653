// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a specialization may know about a CUDA device, and the CUDA services of the companion.
///
/// The functions without a body here live in the compiled companion (`Attikos::cuda`).
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

struct CUstream_st;  // cudaStream_t without the CUDA headers

// One symbol per version, so that headers and companion of different versions fail at link or load
// with one line that says what happened. The name is pasted together by hand, since the version
// comes as three numbers.
#define ATTIKOS_PASTE_COMPANION_TAG(major, minor, patch) \
  attikos_cuda_companion_must_match_headers_##major##_##minor##_##patch
#define ATTIKOS_EXPAND_COMPANION_TAG(major, minor, patch) \
  ATTIKOS_PASTE_COMPANION_TAG(major, minor, patch)
/// Name of the symbol that a companion of this version defines.
#define ATTIKOS_COMPANION_TAG \
  ATTIKOS_EXPAND_COMPANION_TAG(ATTIKOS_VERSION_MAJOR, ATTIKOS_VERSION_MINOR, ATTIKOS_VERSION_PATCH)

extern "C" int ATTIKOS_COMPANION_TAG;

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// GPU generation, or `host` for a processor. `unknown` also stands for a generation newer than
/// this library.
enum class Architecture : std::uint8_t {
  unknown,
  volta,
  turing,
  ampere,
  ada,
  hopper,
  blackwell,
  host
};

/// Generation of a compute capability, e.g. (9, 0) is hopper.
constexpr Architecture architecture_of(int compute_major, int compute_minor) noexcept {
  return compute_major == 7   ? (compute_minor < 5 ? Architecture::volta : Architecture::turing)
         : compute_major == 8 ? (compute_minor == 9 ? Architecture::ada : Architecture::ampere)
         : compute_major == 9 ? Architecture::hopper
         : compute_major >= 10 && compute_major <= 12 ? Architecture::blackwell
                                                      : Architecture::unknown;
}

/// What dispatch and kernels ask about a device. A plain value: a test may write one by hand.
struct Device {
  int ordinal = -1;  ///< CUDA device ordinal, -1 if there is none.
  int compute_major = 0;
  int compute_minor = 0;
  Architecture architecture = Architecture::unknown;
  int sm_count = 0;  ///< Streaming multiprocessors.
  int shared_memory_per_block_optin =
      0;             ///< Bytes one block may have when it asks for more than 48 KiB.
  int l2_bytes = 0;  ///< Bytes of the L2 cache; 0: not known.

  /// Whether the compute capability is at least `major.minor`.
  constexpr bool at_least(int major_wanted, int minor_wanted) const noexcept {
    return compute_major > major_wanted ||
           (compute_major == major_wanted && compute_minor >= minor_wanted);
  }
};

/// Describes a device; all zeros with ordinal -1 if it does not exist. Does not synchronize.
Device query_device(int ordinal) noexcept;

/// Ordinal of the calling thread's current device, -1 if there is none.
int current_device() noexcept;

/// Whether the stream is being captured into a graph, where memory must not be allocated. True as
/// well for the legacy default stream while a capture elsewhere makes its use an error.
bool stream_is_capturing(CUstream_st* stream) noexcept;

/// CUDA's text for the status a `launch` returned, e.g. "invalid argument".
char const* error_string(int status) noexcept;

/// Whether the linked companion is of these headers' version. A program that calls it needs the
/// version's symbol to link, so that the answer is true whenever it links at all.
inline bool companion_matches_headers() noexcept { return ATTIKOS_COMPANION_TAG == 1; }

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
