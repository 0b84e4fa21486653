// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Contexts: which execution space instance a call runs on.
#pragma once

#include <attikos/attikos.h>

#include <Kokkos_Core.hpp>
#include <atomic>
#include <attikos/core/workspace.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <variant>

#include "status.hpp"

namespace attikos::c {

using Host = Kokkos::DefaultHostExecutionSpace;

// The spaces that operations are compiled for. A CUDA build leaves Serial out: its host part is
// there for arrays that happen to lie on the host, and every space is a set of kernels to compile.
#if defined(KOKKOS_ENABLE_CUDA)
using Instance = std::variant<Host, Kokkos::Cuda>;
#elif defined(KOKKOS_ENABLE_SERIAL)
using Instance = std::conditional_t<std::is_same_v<Host, Kokkos::Serial>, std::variant<Host>,
                                    std::variant<Host, Kokkos::Serial> >;
#else
using Instance = std::variant<Host>;
#endif

/// An instance, shared by the contexts of one kind, device and stream.
struct Shared {
  std::optional<Instance> instance;   ///< empty once Kokkos is finalized
  std::uint64_t last_wanted = 0;      ///< when, counted in contexts
  std::atomic<bool> captured{false};  ///< a graph may use what belongs to it
};

/// Makes a CUDA device current for a scope; nothing in a build without CUDA or for ordinal -1.
class CurrentDevice {
 public:
  explicit CurrentDevice(int ordinal);
  ~CurrentDevice();
  CurrentDevice(CurrentDevice const&) = delete;
  CurrentDevice& operator=(CurrentDevice const&) = delete;

 private:
  [[maybe_unused]] int previous_ = -1;
};

/// CUDA device that the memory lies on, -1 for host memory. Managed memory counts as its device's.
int device_of(void const* memory);

}  // namespace attikos::c

struct attikos_context {
  std::int32_t kind;
  std::int32_t ordinal;
  void* stream;
  std::shared_ptr<attikos::c::Shared> shared;
  attikos::detail::MemorySource memory = {};

  bool is_cuda() const { return kind == ATTIKOS_CUDA; }
  /// Refuses memory that the context's device cannot reach.
  void expect_reach(char const* operation, char const* name, void const* memory) const;
};

namespace attikos::c {

/// The context behind a pointer from outside; refuses null, a Kokkos that is gone, a device that
/// has failed and, in a forked process, CUDA.
attikos_context& expect_context(char const* operation, attikos_context* context);

/// A context by value on the cached instance of a kind, device and stream.
attikos_context find_context(std::int32_t kind, std::int32_t ordinal, void* stream);

/// The instance that a context's work goes to: its own, but in a forked process one that is served
/// by the calling thread alone. Refuses a device that has failed before Kokkos meets it, which
/// would end the process.
Instance const& instance_of(attikos_context const& context);

/// Calls f(exec) with the context's execution space instance, its device being current.
template <class F>
void run_on(attikos_context const& context, F const& f) {
  CurrentDevice const device(context.is_cuda() ? context.ordinal : -1);
  attikos::detail::UseMemoryOf const memory(context.memory);
  std::visit(f, instance_of(context));
}

}  // namespace attikos::c
