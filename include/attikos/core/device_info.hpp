// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// device_info(): what the machine behind an execution space can do.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/abi/device.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/dispatch/cuda_capture.hpp>
#include <attikos/core/error.hpp>
#include <attikos/core/host_isa.hpp>
#include <attikos/core/simd.hpp>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#if __has_include(<unistd.h>)
#include <unistd.h>
#endif

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

using abi::Architecture;

/// Name of a GPU generation, "host" or "unknown".
constexpr char const* architecture_name(Architecture architecture) noexcept {
  switch (architecture) {
    case Architecture::volta:
      return "volta";
    case Architecture::turing:
      return "turing";
    case Architecture::ampere:
      return "ampere";
    case Architecture::ada:
      return "ada";
    case Architecture::hopper:
      return "hopper";
    case Architecture::blackwell:
      return "blackwell";
    case Architecture::host:
      return "host";
    case Architecture::unknown:
      break;
  }
  return "unknown";
}

/// Vector instructions that host kernels were compiled for, whatever the processor has besides.
/// `none` stands with a device.
enum class SimdLevel : std::uint8_t { none, generic, sse2, avx, avx2, avx512, neon };

/// Name of a vector instruction set, e.g. "avx512".
constexpr char const* simd_name(SimdLevel level) noexcept {
  constexpr char const* names[] = {"none", "generic", "sse2", "avx", "avx2", "avx512", "neon"};
  return names[static_cast<int>(level)];
}

/// The level of this translation unit, from the macros that choose the width of host vectors.
inline constexpr SimdLevel compiled_simd =
#if defined(__AVX512F__)
    SimdLevel::avx512;
#elif defined(__AVX2__)
    SimdLevel::avx2;
#elif defined(__AVX__)
    SimdLevel::avx;
#elif defined(__SSE2__)
    SimdLevel::sse2;
#elif defined(__ARM_NEON)
    SimdLevel::neon;
#else
    SimdLevel::generic;
#endif

/// What device_info() answers. A number that does not apply, or that the system does not tell, is
/// 0.
struct DeviceInfo {
  std::string name;             ///< e.g. "NVIDIA H200", or the processor's name
  std::string execution_space;  ///< e.g. "Cuda", "OpenMP"
  Architecture architecture = Architecture::unknown;
  int ordinal = -1;  ///< CUDA device ordinal; -1 for a processor
  int compute_major = 0;
  int compute_minor = 0;
  bool tma = false;            ///< the tensor memory accelerator: compute capability 9.0 and above
  bool fp8 = false;            ///< matrix instructions on float8: 8.9 and above
  bool warpgroup_mma = false;  ///< wgmma, which 9.x alone has
  SimdLevel simd = SimdLevel::none;      ///< vector instructions of the host kernels
  int vector_bytes = 0;                  ///< width of their registers
  HostIsa host_isa = HostIsa::compiled;  ///< instructions chosen at run time beside them
  int sm_count = 0;                      ///< streaming multiprocessors
  std::int64_t shared_memory_per_sm = 0;
  int threads = 0;                ///< how many the space runs at once: its concurrency
  std::int64_t memory_bytes = 0;  ///< of the device, or of the machine

  /// One line for each fact, for a person.
  std::string to_string() const {
    std::ostringstream text;
    text << name << " (" << execution_space << ", " << architecture_name(architecture) << ")";
    if (architecture == Architecture::host) {
      text << "\n  vectors: " << simd_name(simd) << ", " << vector_bytes << " bytes"
           << "\n  instructions: " << host_isa_name(host_isa);
    } else if (compute_major > 0) {
      text << "\n  compute capability: " << compute_major << "." << compute_minor
           << "\n  TMA: " << (tma ? "yes" : "no") << "\n  float8 MMA: " << (fp8 ? "yes" : "no")
           << "\n  warpgroup MMA: " << (warpgroup_mma ? "yes" : "no")
           << "\n  multiprocessors: " << sm_count << ", " << shared_memory_per_sm
           << " bytes of shared memory each";
    }
    text << "\n  threads: " << threads << "\n  memory: " << memory_bytes << " bytes";
    return text.str();
  }
};

namespace detail {

/// The name after "model name" (or "Model", "cpu model") in a text like Linux's /proc/cpuinfo;
/// empty if there is none.
inline std::string processor_name_in(std::istream& cpuinfo) {
  for (std::string line; std::getline(cpuinfo, line);) {
    auto const colon = line.find(':');
    if (colon == std::string::npos) continue;
    auto const key = line.substr(0, line.find_last_not_of(" \t", colon - 1) + 1);
    if (key != "model name" && key != "Model" && key != "cpu model") continue;
    auto const first = line.find_first_not_of(" \t", colon + 1);
    if (first == std::string::npos) continue;
    return line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
  }
  return {};
}

inline std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  file.exceptions(std::ios::badbit);  // else it hides that memory for a line could not be had
  std::string name = processor_name_in(file);
  return name.empty() ? "unknown processor" : name;
}

inline std::int64_t physical_memory() {
#if defined(_SC_PHYS_PAGES) && defined(_SC_PAGESIZE)
  std::int64_t const pages = sysconf(_SC_PHYS_PAGES);
  std::int64_t const size = sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? pages * size : 0;
#else
  return 0;
#endif
}

/// What follows from a compute capability.
inline void set_compute_capability(DeviceInfo& info, int major, int minor) {
  info.compute_major = major;
  info.compute_minor = minor;
  info.architecture = abi::architecture_of(major, minor);
  info.tma = major >= 9;
  info.fp8 = major >= 9 || (major == 8 && minor >= 9);
  info.warpgroup_mma = major == 9;
}

#if defined(KOKKOS_ENABLE_CUDA)
inline DeviceInfo cuda_device_info(cudaDeviceProp const& properties, int ordinal) {
  DeviceInfo info;
  info.name = properties.name;
  info.execution_space = Kokkos::Cuda::name();
  info.ordinal = ordinal;
  set_compute_capability(info, properties.major, properties.minor);
  info.sm_count = properties.multiProcessorCount;
  info.shared_memory_per_sm = static_cast<std::int64_t>(properties.sharedMemPerMultiprocessor);
  info.threads = properties.multiProcessorCount * properties.maxThreadsPerMultiProcessor;
  info.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
  return info;
}
#endif

template <ExecutionSpace Exec>
DeviceInfo describe_device(Exec const& exec) {
  DeviceInfo info;
  info.execution_space = Exec::name();
  info.threads = concurrency_of(exec);
  if constexpr (is_host_space<Exec>) {
    info.name = processor_name();
    info.architecture = Architecture::host;
    info.simd = compiled_simd;
    info.vector_bytes = host::register_bytes;
    info.host_isa = host_isa();
    info.memory_bytes = physical_memory();
  } else {
    info.name = Exec::name();
  }
  return info;
}

#if defined(KOKKOS_ENABLE_CUDA)
inline DeviceInfo describe_device(Kokkos::Cuda const& exec) {
  return cuda_device_info(exec.cuda_device_prop(), exec.cuda_device());
}
#endif

}  // namespace detail

/// Facts of the machine that an instance runs on. Does not launch, fence or allocate on it, and
/// needs no CUDA companion.
///
/// For a space that is neither a host's nor Cuda, architecture is `unknown` and only its name and
/// concurrency are told.
///
/// Throws UnsupportedError where ATTIKOS_HOST_ISA names what a host does not have.
template <ExecutionSpace Exec>
DeviceInfo device_info(Exec const& exec) {
  return detail::describe_device(exec);
}

/// The same for the default execution space.
inline DeviceInfo device_info() { return device_info(Kokkos::DefaultExecutionSpace{}); }

/// Facts of a CUDA device by its ordinal, which need not be one that Kokkos uses. Throws
/// DeviceError if it does not exist, as in a build without CUDA.
inline DeviceInfo device_info(int ordinal) {
#if defined(KOKKOS_ENABLE_CUDA)
  cudaDeviceProp properties{};
  cudaError_t const status =
      detail::without_last_error([&] { return cudaGetDeviceProperties(&properties, ordinal); });
  if (status != cudaSuccess)
    detail::raise<DeviceError>("device_info: there is no CUDA device ", ordinal, ": ",
                               cudaGetErrorString(status));
  return detail::cuda_device_info(properties, ordinal);
#else
  detail::raise<DeviceError>("device_info: there is no CUDA device ", ordinal,
                             ": Kokkos was built without CUDA");
#endif
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
