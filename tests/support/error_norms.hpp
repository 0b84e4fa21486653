// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What a bound of each element cannot see: an output that is wrong by less than that everywhere.
/// Sums of errors over a row and over all rows, each with a bound of its own.
///
/// An error is e = s + ρ. `s`, of sums and functions, may have one sign everywhere: |s| <=
/// `steady`. ρ is made of roundings to a type of few bits, which fall on either side of what is
/// rounded independently of each other, uniformly up to half a spacing h: variance h²/3, and the
/// tail of a sum of them is no heavier than that of a normal distribution of this variance (a
/// uniform distribution is strictly sub-Gaussian; Arbel, Marchal, Nguyen, ESAIM: P&S 24, 2020).
/// Roundings of an element's `own` (its storing) are independent of all others; those that it
/// shares with its row (weights, of which each goes into all of a row) only of those of other rows.
///
/// Errors are counted in units of what is expected of each, w = steady + √(own + shared), so that
/// large elements do not hide small ones: below s, o², r² are steady/w, own/w², shared/w². With O²
/// the largest o² and R² the largest sum of r² over a row
///
///   norm  √Σ(e/w)² <= √Σs² + √Σ(o² + r²) + λ √(O² + R²): ρ = A x with unit roundings x, where
///         ‖A‖_F² = Σ(o² + r²), ‖A‖₂² <= O² + R² (Hsu, Kakade, Zhang, Electron. Commun. Probab. 17,
///         2012, theorem 2.1, completed to a square). It grows as √n, and so does all of the bound
///         but the last part.
///   mean  |Σ e/w| <= Σ s + λ √(Σ o² + Σ_rows (Σ r)²): a shift
///   gain  |Σ e y/w²| the same, each term times its |y|/w, and Σ(o² + r²) more, since what is
///         stored and not y lies in the middle of where ρ is uniform, so that E ρ y is minus the
///         variance: a wrong scale of y, the expected value
///
/// Results that are rounded alike have no norms: few different values (codes times one scale), or
/// numbers of few bits times or less one number.
///
/// λ = 6 as in attikos/testing/bounds.hpp: each holds with a probability of 1 - 3e-8, and data are
/// seeded.
#pragma once

#include <algorithm>
#include <cmath>

namespace attikos::test {

/// What is known of one element's error beside its bound.
struct ErrorParts {
  double steady = 0;           ///< bound of what roundings to few bits do not explain
  double own = 0, shared = 0;  ///< variances of roundings
};

/// Half the distance of neighbours of a type with this roundoff, at a magnitude; squared and by 3.
inline double rounding_variance(double magnitude, double roundoff, double smallest) {
  double const spacing = magnitude > 0
                             ? std::max(std::exp2(std::ilogb(magnitude)) * roundoff, smallest / 2)
                             : smallest / 2;
  return spacing * spacing / 3;
}

/// A result that is stored with one rounding. `bound` = a + roundoff (|want| + a) + smallest, as
/// bounds of this repository end, with a the error before.
inline ErrorParts stored_parts(double want, double bound, double roundoff, double smallest) {
  double const before =
      std::max(0.0, (bound - smallest - roundoff * std::abs(want)) / (1 + roundoff));
  double const variance = rounding_variance(std::abs(want) + before, roundoff, smallest);
  return {before, std::min(variance, bound * bound / 3), 0};
}

class ErrorNorms {
 public:
  /// Elements come row by row.
  void add(double error, double want, ErrorParts const& parts) {
    if (!std::isfinite(error) || !std::isfinite(want) || !std::isfinite(parts.steady)) return;
    row_.add(error, want, parts);
  }

  void end_row() {
    if (row_.count == 0) return;
    worst_row_ = std::max(worst_row_, ratio(Total(row_)));
    all_.add(row_);
    row_ = {};
  }

  /// The largest ratio to its bound of norm, mean and gain, of all and of each row.
  double worst() {
    end_row();
    return std::max(worst_row_, ratio(all_));
  }
  double norm_ratio() {
    end_row();
    return over(std::sqrt(all_.squares), all_.norm_bound());
  }
  double mean_ratio() {
    end_row();
    return over(std::abs(all_.mean.error), all_.mean.bound());
  }
  double gain_ratio() {
    end_row();
    return over(std::abs(all_.gain.error), all_.gain.bound());
  }
  double worst_row() {
    end_row();
    return worst_row_;
  }

 private:
  static constexpr double lambda = 6;

  struct Direction {
    double error = 0, steady = 0, own = 0, shared = 0;
    double bound() const { return steady + lambda * std::sqrt(own + shared); }
  };
  struct Row {
    double count = 0, squares = 0, steady = 0, own = 0, shared = 0, largest_own = 0;
    Direction mean, gain;  ///< `shared` not squared yet
    void add(double e, double y, ErrorParts const& p) {
      double const w = p.steady + std::sqrt(p.own + p.shared);
      if (w == 0 && e == 0) return;
      double const s = p.steady / w, o = p.own / (w * w), r = p.shared / (w * w);
      double const deviation = std::sqrt(r), size = std::abs(y) / w;
      e /= w, y /= w;
      count += 1, squares += e * e, steady += s * s;
      own += o, shared += r, largest_own = std::max(largest_own, o);
      mean.error += e, mean.steady += s, mean.own += o, mean.shared += deviation;
      gain.error += e * y, gain.steady += s * size + o + r, gain.own += o * y * y;
      gain.shared += deviation * size;
    }
  };
  struct Total {
    double squares = 0, steady = 0, variance = 0, largest_own = 0, largest_shared = 0;
    Direction mean, gain;
    Total() = default;
    explicit Total(Row const& row) { add(row); }
    void add(Row const& row) {
      squares += row.squares, steady += row.steady, variance += row.own + row.shared;
      largest_own = std::max(largest_own, row.largest_own);
      largest_shared = std::max(largest_shared, row.shared);
      add(mean, row.mean), add(gain, row.gain);
    }
    static void add(Direction& to, Direction const& row) {
      to.error += row.error, to.steady += row.steady, to.own += row.own;
      to.shared += row.shared * row.shared;
    }
    double norm_bound() const {
      return std::sqrt(steady) + std::sqrt(variance) +
             lambda * std::sqrt(largest_own + largest_shared);
    }
  };

  static double over(double error, double bound) { return error == 0 ? 0 : error / bound; }
  static double ratio(Total const& t) {
    return std::max({over(std::sqrt(t.squares), t.norm_bound()),
                     over(std::abs(t.mean.error), t.mean.bound()),
                     over(std::abs(t.gain.error), t.gain.bound())});
  }

  Row row_;
  Total all_;
  double worst_row_ = 0;
};

}  // namespace attikos::test
