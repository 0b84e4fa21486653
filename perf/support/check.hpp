// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// No timing of a wrong result: sampled entries against float64 before a case is measured.
#pragma once

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <support/data.hpp>
#include <support/text.hpp>
#include <tolerance.hpp>  // tests/support: the same computed bounds as the parity suite's

namespace attikos::measure {

/// Throws unless |computed − expected| ≤ bound; NaN never passes.
inline void require_close(std::string const& side, std::string const& where, double computed,
                          double expected, double bound) {
  if (std::abs(computed - expected) <= bound) return;
  throw std::runtime_error(text("wrong result of ", side, " at ", where, ": ", computed,
                                ", expected ", expected, " within ", bound));
}

/// Throws if an element was left as poison() made it or became NaN.
template <class HostView>
void require_written(std::string const& side, HostView const& view) {
  using T = typename HostView::non_const_value_type;
  if constexpr (!std::is_integral_v<T>) {
    for (std::size_t i = 0; i < view.span(); ++i) {
      if (std::isnan(to_double(view.data()[i])))
        throw std::runtime_error(text("NaN in the result of ", side, ", element ", i));
    }
  }
}

/// `count` numbers in [0, extent), the two ends among them.
inline std::vector<std::int64_t> sample(std::int64_t extent, std::int64_t count) {
  std::vector<std::int64_t> result;
  for (std::int64_t i = 0; i < count; ++i)
    result.push_back(i * (extent - 1) / std::max<std::int64_t>(count - 1, 1));
  return result;
}

}  // namespace attikos::measure
