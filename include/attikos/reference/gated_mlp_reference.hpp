// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracle of `gated_mlp` and of its gradients: plain loops, nothing shared with the
/// kernels.
#pragma once

#include <attikos/reference/gemm_reference.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

inline double silu_slope(double x) {
  double const s = 1 / (1 + std::exp(-x));
  return s * (1 + x * (1 - s));
}
inline double gelu_slope(double x) {
  double const pi = std::acos(-1.0);
  return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * pi);
}
inline double gelu_tanh_slope(double x) {
  double const pi = std::acos(-1.0);
  double const t = std::tanh(std::sqrt(2 / pi) * (x + 0.044715 * x * x * x));
  double const dt = std::sqrt(2 / pi) * (1 + 3 * 0.044715 * x * x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * dt;
}

/// One element of act(x Wg^T) * (x Wu^T) with what an error bound needs to know about it.
struct GatedMlpElement {
  double gate = 0;
  double up = 0;
  double gate_magnitude = 0;  ///< sum of |x| |Wg|
  double up_magnitude = 0;    ///< sum of |x| |Wu|
  double value = 0;
};

/// \param x row of x: `x(l)` for l in [0, hidden)
/// \param gate_weight `gate_weight(l)`, a row of Wg
/// \param up_weight `up_weight(l)`, a row of Wu
template <class X, class Gate, class Up>
GatedMlpElement gated_mlp_element(std::int64_t hidden, X const& x, Gate const& gate_weight,
                                  Up const& up_weight, double (*activation)(double)) {
  GatedMlpElement e;
  for (std::int64_t l = 0; l < hidden; ++l) {
    e.gate += x(l) * gate_weight(l);
    e.up += x(l) * up_weight(l);
    e.gate_magnitude += std::abs(x(l) * gate_weight(l));
    e.up_magnitude += std::abs(x(l) * up_weight(l));
  }
  e.value = activation(e.gate) * e.up;
  return e;
}

/// Gradients at one element of the intermediate tensors.
struct GatedMlpSlopes {
  double dgate, dup;
};

inline GatedMlpSlopes gated_mlp_slopes(GatedMlpElement const& e, double dout,
                                       double (*activation)(double), double (*slope)(double)) {
  return {dout * e.up * slope(e.gate), dout * activation(e.gate)};
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
