// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Which tensors of a call share memory, decided from addresses, extents and strides; outputs that
/// do are refused.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/core/any_tensor.hpp>
#include <attikos/core/error.hpp>
#include <initializer_list>
#include <numeric>
#include <span>
#include <utility>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// The bytes from the first to the last that a tensor's elements occupy. Empty where there are no
/// elements, or no data, which means that there is no such tensor.
struct MemoryRange {
  std::uintptr_t begin, end;

  MemoryRange() = default;
  explicit MemoryRange(AnyTensor const& x) : begin(0), end(0) {
    if (x.data == nullptr) return;
    auto const size = static_cast<std::uintptr_t>(dtype_size(x.type));
    std::uintptr_t down = 0, up = size;
    for (int r = 0; r < x.rank; ++r) {
      if (x.extent[r] == 0) return;
      (x.stride[r] < 0 ? down : up) += static_cast<std::uintptr_t>(x.extent[r] - 1) *
                                       static_cast<std::uintptr_t>(x.stride[r]) * size;
    }
    begin = reinterpret_cast<std::uintptr_t>(x.data) + down;
    end = reinterpret_cast<std::uintptr_t>(x.data) + up;
  }
  bool is_empty() const { return begin == end; }
  bool meets(MemoryRange const& other) const { return begin < other.end && other.begin < end; }
};

/// Whether every index leads to one address in both, so that element by element one may become the
/// other. Dimensions of extent 1 do not count.
inline bool is_same_memory(AnyTensor const& a, AnyTensor const& b) {
  if (a.data != b.data || dtype_size(a.type) != dtype_size(b.type)) return false;
  for (int i = 0, j = 0;; ++i, ++j) {
    while (i < a.rank && a.extent[i] == 1) ++i;
    while (j < b.rank && b.extent[j] == 1) ++j;
    if (i == a.rank || j == b.rank) return i == a.rank && j == b.rank;
    if (a.extent[i] != b.extent[j] || a.stride[i] != b.stride[j]) return false;
  }
}

/// Whether Σ step·x = target has a solution in whole numbers, each within its bounds. Exact, but
/// for sums that a search of `budget` trials does not exhaust, which takes three steps of like size
/// and thousands of values for each, and for numbers past 2^61: these are taken to have none.
class StrideSum {
 public:
  /// Adds a term with low ≤ x ≤ high. They are kept in descending order of their steps, of which
  /// there is one each.
  void add(std::int64_t step, std::int64_t low, std::int64_t high) {
    int at = count_;
    while (at > 0 && terms_[at - 1].step < step) --at;
    if (at > 0 && terms_[at - 1].step == step) {
      terms_[at - 1].low += low;
      terms_[at - 1].high += high;
      return;
    }
    for (int i = count_++; i > at; --i) terms_[i] = terms_[i - 1];
    terms_[at] = {step, low, high};
  }

  bool reaches(std::int64_t target) {
    low_[count_] = high_[count_] = divisor_[count_] = 0;
    for (int i = count_ - 1; i >= 0; --i) {
      Term const& t = terms_[i];
      constexpr std::int64_t most = std::int64_t{1} << 61;
      std::int64_t const width = std::max(-t.low, t.high);
      if (width > most / t.step || std::max(-low_[i + 1], high_[i + 1]) > most - width * t.step)
        return false;
      low_[i] = low_[i + 1] + t.low * t.step;
      high_[i] = high_[i + 1] + t.high * t.step;
      divisor_[i] = std::gcd(divisor_[i + 1], t.step);
    }
    budget_ = 1 << 14;
    return search(0, target);
  }

 private:
  struct Term {
    std::int64_t step, low, high;
  };

  static std::int64_t floor_ratio(std::int64_t a, std::int64_t b) {
    return a / b - (a % b != 0 && a < 0 ? 1 : 0);
  }
  static std::int64_t ceil_ratio(std::int64_t a, std::int64_t b) { return -floor_ratio(-a, b); }
  static std::int64_t remainder(std::int64_t a, std::int64_t modulus) {
    std::int64_t const r = a % modulus;
    return r < 0 ? r + modulus : r;
  }
  /// a·b mod m for numbers below 2^62, whose product 64 bits do not hold.
  static std::int64_t product(std::int64_t a, std::int64_t b, std::int64_t m) {
    if (m < std::int64_t{1} << 31) return a * b % m;
    std::int64_t result = 0;
    for (; b > 0; b >>= 1, a = (a + a) % m)
      if ((b & 1) != 0) result = (result + a) % m;
    return result;
  }
  /// 1/a mod m, by Euclid's algorithm; a and m have no common divisor.
  static std::int64_t inverse(std::int64_t a, std::int64_t m) {
    std::int64_t r0 = m, r1 = remainder(a, m), t0 = 0, t1 = 1;
    while (r1 != 0) {
      std::int64_t const q = r0 / r1;
      r0 = std::exchange(r1, r0 - q * r1);
      t0 = std::exchange(t1, t0 - q * t1);
    }
    return remainder(t0, m);
  }

  /// The last two terms: solutions of one congruence, cut by four bounds.
  static bool search_two(Term const& x, Term const& y, std::int64_t target, std::int64_t divisor) {
    std::int64_t const a = x.step / divisor, b = y.step / divisor, t = target / divisor;
    std::int64_t const low = std::max(x.low, ceil_ratio(t - b * y.high, a));
    std::int64_t const high = std::min(x.high, floor_ratio(t - b * y.low, a));
    if (low > high) return false;
    std::int64_t const solution = product(remainder(t, b), inverse(a, b), b);
    return low + remainder(solution - remainder(low, b), b) <= high;
  }

  bool search(int i, std::int64_t target) {
    if (i == count_) return target == 0;
    if (target < low_[i] || target > high_[i] || target % divisor_[i] != 0) return false;
    Term const& t = terms_[i];
    if (i == count_ - 1) return true;  // a multiple of its step, within its bounds
    if (i == count_ - 2) return search_two(t, terms_[i + 1], target, divisor_[i]);
    std::int64_t const low = std::max(t.low, ceil_ratio(target - high_[i + 1], t.step));
    std::int64_t const high = std::min(t.high, floor_ratio(target - low_[i + 1], t.step));
    for (std::int64_t x = low; x <= high; ++x) {
      if (--budget_ < 0) return false;
      if (search(i + 1, target - x * t.step)) return true;
    }
    return false;
  }

  static constexpr int capacity = 2 * AnyTensor::max_rank + 1;
  Term terms_[capacity];
  // Of term i and those behind it: their bounds, and what divides all their steps.
  std::int64_t low_[capacity + 1], high_[capacity + 1], divisor_[capacity + 1];
  int count_ = 0, budget_ = 0;
};

/// Where a tensor leads from its lowest address, in bytes: steps in ascending order, dimensions
/// that lead nowhere left out.
struct AscendingSteps {
  int rank = 0;
  std::int64_t step[AnyTensor::max_rank], last[AnyTensor::max_rank];  ///< last: extent − 1

  explicit AscendingSteps(AnyTensor const& x) {
    for (int r = 0; r < x.rank; ++r) {
      // The stride of a dimension that leads nowhere may be any number.
      if (x.extent[r] < 2 || x.stride[r] == 0) continue;
      std::int64_t const bytes =
          (x.stride[r] < 0 ? -x.stride[r] : x.stride[r]) * dtype_size(x.type);
      int at = rank++;
      for (; at > 0 && step[at - 1] > bytes; --at) {
        step[at] = step[at - 1];
        last[at] = last[at - 1];
      }
      step[at] = bytes;
      last[at] = x.extent[r] - 1;
    }
  }
};

/// Whether two elements of a tensor lie at one address. Its data are not looked at.
inline bool overlaps_itself(AnyTensor const& x) {
  // As a rule every step leads past all that those of later dimensions reach.
  bool nested = true;
  std::int64_t const size = dtype_size(x.type);
  std::int64_t reach = size;
  for (int r = x.rank - 1; r >= 0; --r) {
    if (x.extent[r] == 0) return false;
    if (x.extent[r] == 1) continue;
    std::int64_t const step = (x.stride[r] < 0 ? -x.stride[r] : x.stride[r]) * size;
    nested = nested && step >= reach;
    reach += (x.extent[r] - 1) * step;
  }
  if (nested) return false;
  for (int r = 0; r < x.rank; ++r)
    if (x.extent[r] > 1 && x.stride[r] == 0) return true;
  // Else two elements meet where the differences of their indices, not all 0, cancel: let the one
  // of the largest step that is not 0 be positive.
  AscendingSteps const a(x);
  reach = size;
  for (int first = 0; first < a.rank; ++first) {
    if (a.step[first] < reach) {
      StrideSum sum;
      sum.add(a.step[first], 0, a.last[first] - 1);
      for (int i = 0; i < first; ++i) sum.add(a.step[i], -a.last[i], a.last[i]);
      if (sum.reaches(-a.step[first])) return true;
    }
    reach += a.step[first] * a.last[first];
  }
  return false;
}

/// Whether an element of one tensor and one of another have a byte in common.
inline bool overlaps(AnyTensor const& x, AnyTensor const& y) {
  MemoryRange const of_x(x), of_y(y);
  if (!of_x.meets(of_y)) return false;
  AscendingSteps const a(x), b(y);
  StrideSum sum;
  for (int r = 0; r < a.rank; ++r) sum.add(a.step[r], 0, a.last[r]);
  for (int r = 0; r < b.rank; ++r) sum.add(b.step[r], -b.last[r], 0);
  auto const apart = static_cast<std::int64_t>(of_y.begin - of_x.begin);
  int const size_x = dtype_size(x.type), size_y = dtype_size(y.type);
  // Elements of one size that lie on one grid meet whole or not at all.
  if (size_x != size_y || apart % size_x != 0) sum.add(1, 1 - size_y, size_x - 1);
  return sum.reaches(apart);
}

/// Throws StrideError where two elements of an output lie at one address.
inline void check_distinct(char const* operation, char const* name, AnyTensor const& x) {
  if (!overlaps_itself(x)) return;
  for (int r = 0; r < x.rank; ++r)
    if (x.extent[r] > 1 && x.stride[r] == 0)
      raise<StrideError>(operation, ": output ", name, " has stride 0 in dimension ", r,
                         " of extent ", x.extent[r],
                         ", so its elements share memory; expected distinct elements");
  AnyTensor strides = x;
  std::copy(x.stride, x.stride + x.rank, strides.extent);
  raise<StrideError>(operation, ": output ", name, " has extents ", describe_extents(x),
                     " and strides ", describe_extents(strides),
                     ", so its elements share memory; expected distinct elements");
}

/// A tensor of a call, as messages call it. Lives no longer than the tensor.
struct Argument {
  char const* name;
  AnyTensor const& tensor;
  int may_be = -1;  ///< of an input: the number of the output that it may be itself
};

/// Refuses a call while Kokkos does not run: instances that are left of it have lost their memory.
inline void expect_kokkos(char const* operation) {
  if (!Kokkos::is_initialized())
    raise<DeviceError>(operation, ": Kokkos ",
                       Kokkos::is_finalized() ? "was finalized and cannot be used any more"
                                              : "is not initialized");
}

/// Refuses outputs that share memory: StrideError where elements of one do, Error where an output
/// does with another output or an input, as far as addresses, extents and strides tell. Costs some
/// nanoseconds a tensor unless ranges of addresses meet. Every operation that writes tensors calls
/// this once, before it writes, with all that it was given; what is absent does not count.
inline void check_outputs(char const* operation, std::initializer_list<Argument> outputs,
                          std::initializer_list<Argument> inputs,
                          std::span<Argument const> more_inputs = {}) {
  expect_kokkos(operation);
  MemoryRange written[8];  // no operation has more outputs
  int count = 0;
  for (Argument const& output : outputs) {
    written[count] = MemoryRange(output.tensor);
    if (!written[count].is_empty()) check_distinct(operation, output.name, output.tensor);
    for (int o = 0; o < count; ++o) {
      Argument const& earlier = outputs.begin()[o];
      if (written[o].meets(written[count]) && overlaps(earlier.tensor, output.tensor))
        raise<Error>(operation, ": output ", earlier.name, " shares memory with output ",
                     output.name, "; expected memory of its own");
    }
    ++count;
  }
  auto const check_input = [&](Argument const& input) {
    if (input.tensor.data == nullptr) return;
    MemoryRange const read(input.tensor);
    for (int o = 0; o < count; ++o) {
      if (!written[o].meets(read)) continue;
      Argument const& output = outputs.begin()[o];
      bool const may_be = input.may_be == o;
      if (may_be && is_same_memory(output.tensor, input.tensor)) continue;
      if (overlaps(output.tensor, input.tensor))
        raise<Error>(operation, ": output ", output.name, " shares memory with ", input.name,
                     "; expected memory of its own", may_be ? ", or exactly that of " : "",
                     may_be ? input.name : "");
    }
  };
  for (Argument const& input : inputs) check_input(input);
  for (Argument const& input : more_inputs) check_input(input);
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
