// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The float64 oracles of `rope` and `rms_norm_rope`: one head, plain loops, nothing shared with
/// the kernels. The rotation is written as the matrix that it is, so that its transpose needs no
/// second formula.
#pragma once

#include <attikos/config.hpp>
#include <attikos/reference/norm_reference.hpp>
#include <cmath>
#include <cstddef>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace reference {

/// Where feature i of a head takes its second term from, and with which sign.
struct RopePartner {
  std::size_t index;
  double sign;
};

inline RopePartner rope_partner(std::size_t i, std::size_t rotary_dim, bool interleaved) {
  if (interleaved) return i % 2 == 0 ? RopePartner{i + 1, -1} : RopePartner{i - 1, 1};
  std::size_t const half = rotary_dim / 2;
  return i < half ? RopePartner{i + half, -1} : RopePartner{i - half, 1};
}

struct RopeHead {
  std::vector<double> out;
  std::vector<double> magnitude;  ///< sums of the absolute values of the terms of `out`
};

/// R x or Rᵀ x, R_ii = cos_i, R_i,partner(i) = ±sin_i; features past the tables stay as they are.
inline RopeHead rope_head(std::vector<double> const& x, std::vector<double> const& cos,
                          std::vector<double> const& sin, bool interleaved, bool transposed) {
  RopeHead head{x, x};
  for (double& value : head.magnitude) value = std::abs(value);
  for (std::size_t i = 0; i < cos.size(); ++i) {
    head.out[i] = x[i] * cos[i];
    head.magnitude[i] = std::abs(x[i] * cos[i]);
  }
  for (std::size_t i = 0; i < cos.size(); ++i) {
    RopePartner const partner = rope_partner(i, cos.size(), interleaved);
    std::size_t const to = transposed ? partner.index : i;
    std::size_t const from = transposed ? i : partner.index;
    head.out[to] += partner.sign * sin[i] * x[from];
    head.magnitude[to] += std::abs(sin[i] * x[from]);
  }
  return head;
}

/// A row of a table with one entry per pair, as one with an entry for every feature.
inline std::vector<double> rope_full_width(std::vector<double> const& half, bool interleaved) {
  std::vector<double> full(2 * half.size());
  for (std::size_t i = 0; i < full.size(); ++i)
    full[i] = half[interleaved ? i / 2 : i % half.size()];
  return full;
}

/// rope_head for each stretch of head_dim features, 0: of cos.size().
inline RopeHead rope_heads(std::vector<double> const& x, std::vector<double> const& cos,
                           std::vector<double> const& sin, bool interleaved, bool transposed,
                           std::size_t head_dim = 0) {
  RopeHead row;
  if (head_dim == 0) head_dim = cos.size();
  for (std::size_t first = 0; first < x.size(); first += head_dim) {
    std::vector<double> const head(x.begin() + static_cast<std::ptrdiff_t>(first),
                                   x.begin() + static_cast<std::ptrdiff_t>(first + head_dim));
    RopeHead const part = rope_head(head, cos, sin, interleaved, transposed);
    row.out.insert(row.out.end(), part.out.begin(), part.out.end());
    row.magnitude.insert(row.magnitude.end(), part.magnitude.begin(), part.magnitude.end());
  }
  return row;
}

/// RMSNorm over all of x, then the rotation of each of its heads.
inline RopeHead rms_norm_rope_row(std::vector<double> const& x, std::vector<double> const& weight,
                                  double eps, std::vector<double> const& cos,
                                  std::vector<double> const& sin, bool interleaved,
                                  std::size_t head_dim = 0) {
  return rope_heads(rms_norm_row(x, weight, eps), cos, sin, interleaved, false, head_dim);
}

}  // namespace reference
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
