// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Which kernel takes a call: candidates by trait at compile time, by verdict at run time.
#pragma once

#include <attikos/abi/device.hpp>
#include <attikos/abi/verdict.hpp>
#include <attikos/core/concepts.hpp>
#include <attikos/core/error.hpp>
#include <attikos/core/label.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// What explain() answers: the kernel that a call would run, and why the others would not.
struct Explanation {
  struct Rejection {
    std::string kernel;
    std::string reason;
  };
  std::string kernel;               ///< the name that would run, e.g. "portable"
  std::vector<Rejection> rejected;  ///< candidates tried before it, in order
  /// What it uses of a host's instructions that are chosen at run time, e.g. "avx512_bf16", or of a
  /// device's for matrices, "mma.sync"; empty: nothing.
  std::string instructions;
  /// What a packed B of gemm() is, e.g. "[512, 768] bfloat16 in pairs, panels of 32 columns", or
  /// "… as a plain copy"; empty: B was not packed.
  std::string packed_b;

  /// One line per candidate, for a person.
  std::string to_string() const {
    std::string text = "runs " + kernel;
    if (!instructions.empty()) text += " (" + instructions + ")";
    if (!packed_b.empty()) text += "\n  packed B: " + packed_b;
    for (auto const& entry : rejected) text += "\n  not " + entry.kernel + ": " + entry.reason;
    return text;
  }
};

namespace detail {

/// A compile-time list of candidate kernels, best first. A candidate has `name`,
/// `static abi::Verdict accepts(Args const&, Exec const&)` and `static void run(Args const&, Exec
/// const&)`.
template <class... Kernels>
struct KernelList {};

/// Where compiled kernels are attached. The primary template says "no specialization": the portable
/// kernel runs. Full specializations by operation, execution space and element types list
/// candidates (see gemm/gemm_cuda.hpp).
template <class Operation, class Exec, class... Elements>
struct Specializations {
  using kernels = KernelList<>;
};

/// `kernel` of an options struct; null counts as "".
inline char const* wanted_kernel(char const* kernel) { return kernel == nullptr ? "" : kernel; }

inline bool demands(char const* wanted, char const* name) {
  return std::string_view(wanted) == name;
}

/// Goes through the candidates in order. `kernel` is "" (or null) for automatic choice, "portable",
/// or one kernel's name.
///
/// `visit(kernel)` is called once for the first specialization that accepts, and not at all when
/// the portable kernel is to run. Throws UnsupportedError with the reason if a demanded kernel
/// cannot run. `log` may be null: an ordinary call keeps no record. Returns whether a
/// specialization was visited.
template <class Args, class Exec, class Visit, class... Kernels>
bool choose_kernel(char const* operation, KernelList<Kernels...>, char const* kernel,
                   Args const& args, Exec const& exec, Explanation* log, Visit&& visit) {
  char const* const wanted = wanted_kernel(kernel);
  [[maybe_unused]] auto const attempt = [&]<class Kernel>(std::type_identity<Kernel>) {
    bool const demanded = demands(wanted, Kernel::name);
    if (*wanted != '\0' && !demanded) return false;
    abi::Verdict const verdict = Kernel::accepts(args, exec);
    if (verdict.ok) {
      if (log != nullptr) log->kernel = Kernel::name;
      visit(std::type_identity<Kernel>{});
      return true;
    }
    if (demanded)
      raise<UnsupportedError>(operation, ": kernel \"", wanted,
                              "\" was demanded but cannot run: ", verdict.reason);
    if (log != nullptr) log->rejected.push_back({Kernel::name, verdict.reason});
    return false;
  };
  if ((... || attempt(std::type_identity<Kernels>{}))) return true;
  if (*wanted != '\0' && !demands(wanted, "portable")) {
    std::string available = "portable";
    ((available += std::string(", ") + Kernels::name), ...);
    raise<UnsupportedError>(operation, ": kernel \"", wanted,
                            "\" was demanded but is not available for execution space ",
                            Exec::name(), " and these element types; available: ", available);
  }
  if (log != nullptr) log->kernel = "portable";
  return false;
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
