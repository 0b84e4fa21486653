// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// quantize, quantize_with_scale, dequantize against the float64 oracle: execution spaces x element
// types, every shape of a scale.
#include <attikos/quantize/quantize.hpp>
#include <attikos/reference/quantize_reference.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_quantize.hpp"

namespace attikos::test {
namespace {

template <class C>
class Quantize : public testing::Test {};
TYPED_TEST_SUITE(Quantize, FloatingCases, CaseName);

/// How many neighbors in rows and columns share a factor; 0 stands for all of them.
struct Blocks {
  std::int64_t batch, rows, cols;
};
constexpr Blocks granularities[] = {{1, 0, 0},   {1, 1, 0},   {1, 0, 1},    {1, 1, 128},
                                    {1, 128, 1}, {1, 0, 128}, {1, 128, 0},  {1, 128, 128},
                                    {0, 0, 0},   {0, 1, 0},   {0, 128, 128}};

std::int64_t groups(std::int64_t extent, std::int64_t block) {
  return block == 0 ? 1 : (extent + block - 1) / block;
}
std::int64_t group(std::int64_t index, std::int64_t block) {
  return block == 0 ? 0 : index / block;
}

constexpr double smallest_scale = 0x1p-126;

template <class Q>
double code_value(Q q) {
  if constexpr (std::is_same_v<Q, std::int8_t>) {
    return q;
  } else {
    return reference::float8_value(q.bits, QuantizedFormat<Q>::mantissa_bits);
  }
}

/// Quantizes and scales back; every factor and every element against the oracle.
template <class Exec, class T, class Q>
void check(std::int64_t batch, std::int64_t rows, std::int64_t cols, Blocks blocks, Layout layout,
           double largest, QuantizeOptions options = {}) {
  std::string const what = std::to_string(batch) + " x " + std::to_string(rows) + " x " +
                           std::to_string(cols) + " blocks " + std::to_string(blocks.batch) + ", " +
                           std::to_string(blocks.rows) + ", " + std::to_string(blocks.cols) + " " +
                           layout_name(layout) + " up to " + std::to_string(largest);
  Tensor<T, 3, Exec> x({batch, rows, cols}, layout);
  bool const neighbors = layout == Layout::right || layout == Layout::padded;
  Tensor<Q, 3, Exec> out({batch, rows, cols}, layout == Layout::left ? Layout::strided
                                              : cols % 128 == 0      ? Layout::right
                                              : neighbors            ? layout
                                                                     : Layout::left);
  Tensor<T, 3, Exec> back({batch, rows, cols}, layout), given_back({batch, rows, cols});
  Tensor<Q, 3, Exec> again({batch, rows, cols});
  Tensor<float, 3, Exec> scale(
      {groups(batch, blocks.batch), groups(rows, blocks.rows), groups(cols, blocks.cols)},
      Layout::padded);
  Random random(static_cast<std::uint64_t>(rows * 31 + cols + batch));
  // Rows of different size, so that a factor of another block would show.
  x.for_each([&](auto const& i) {
    double const size = largest * std::exp2(-static_cast<double>((i[1] / 3 + i[2] / 50) % 7));
    x.at(i) = from_double<T>(random.uniform(-size, size));
  });
  x.upload();
  Exec const exec;
  quantize(exec, x.const_view(), out.view(), scale.view(), options);
  dequantize(exec, out.const_view(), scale.const_view(), back.view());
  quantize_with_scale(exec, x.const_view(), scale.const_view(), again.view());
  out.download();
  scale.download();
  back.download();
  again.download();
  EXPECT_EQ(out.writes_outside(), 0u) << what;
  EXPECT_EQ(scale.writes_outside(), 0u) << what;
  EXPECT_EQ(back.writes_outside(), 0u) << what;
  EXPECT_TRUE(same_bits(out.elements(), again.elements())) << what << ": given scales differ";

  std::string const name =
      std::string(QuantizedFormat<Q>::name) + "/" + type_name<T>() + "/" + Exec::name();
  Comparison factors("quantize/scale/" + name, what), values("quantize/" + name, what),
      scaled_back("dequantize/" + name, what);
  std::map<std::array<std::int64_t, 3>, double> largest_of_group;
  x.for_each([&](auto const& i) {
    double& amax = largest_of_group[{group(i[0], blocks.batch), group(i[1], blocks.rows),
                                     group(i[2], blocks.cols)}];
    amax = std::max(amax, std::abs(to_double(x.at(i))));
  });
  scale.for_each([&](auto const& s) {
    double want = std::max(largest_of_group[s] / QuantizedFormat<Q>::limit, smallest_scale);
    if (options.power_of_two_scale) want = std::exp2(std::ceil(std::log2(want)));
    factors.add(to_double(scale.at(s)), want, options.power_of_two_scale ? 0.0 : scale_bound(want),
                {s[0], s[1], s[2]});
  });
  out.for_each([&](auto const& i) {
    double const factor =
        scale.value(group(i[0], blocks.batch), group(i[1], blocks.rows), group(i[2], blocks.cols));
    double const code = code_value(out.at(i)), element = to_double(x.at(i));
    // In units of the format: scales differ from group to group. Quotients of 16-bit elements have
    // few different fractions of a spacing.
    double const bound = quantized_bound<Q>(element, factor) / factor;
    if constexpr (sizeof(T) > 2)
      values.add(code, element / factor, bound, quantized_parts<Q>(element / factor, bound),
                 {i[0], i[1], i[2]});
    else
      values.add(code, element / factor, bound, {i[0], i[1], i[2]});
    scaled_back.add(to_double(back.at(i)), code * factor, dequantized_bound<T>(code * factor),
                    {i[0], i[1], i[2]});
  });
}

TYPED_TEST(Quantize, EveryGranularity) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  int turn = 0;
  for (auto blocks : granularities) {
    for (auto [rows, cols] : {std::pair{1, 1}, {5, 3}, {3, 130}, {131, 7}, {129, 257}, {1, 300}}) {
      Layout const layout = all_layouts[static_cast<std::size_t>(turn++) % 5];
      check<Exec, T, float8_e4m3>(2, rows, cols, blocks, layout, 3);
    }
    Layout const layout = all_layouts[static_cast<std::size_t>(turn++) % 5];
    check<Exec, T, float8_e5m2>(2, 130, 140, blocks, layout, 1000);
    check<Exec, T, std::int8_t>(1, 130, 140, blocks, layout, 0.01);
    check<Exec, T, float8_e4m3>(1, 20, 140, blocks, layout, 1, {.power_of_two_scale = true});
  }
  // A long row is cut into pieces.
  check<Exec, T, std::int8_t>(1, 2, 9001, {1, 0, 0}, Layout::right, 1);
}

// What a device moves several elements at a time, in short rows, long ones and many.
TYPED_TEST(Quantize, RowsOfNeighbors) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (auto blocks : granularities) {
    check<Exec, T, float8_e4m3>(2, 6, 256, blocks, Layout::right, 3);
    check<Exec, T, float8_e5m2>(1, 3, 1024, blocks, Layout::padded, 1000);
    check<Exec, T, std::int8_t>(1, 2, 8192, blocks, Layout::right, 0.01);
  }
  std::int64_t const many = is_host_space<Exec> ? 3 : 600;
  for (Blocks blocks : {Blocks{1, 1, 0}, Blocks{1, 1, 128}, Blocks{0, 0, 0}})
    check<Exec, T, float8_e4m3>(1, many, 4096, blocks, Layout::right, 3);
}

// And rows that begin and end between the places where neighbors are moved.
TYPED_TEST(Quantize, RowsOfOddLength) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (Blocks blocks : {Blocks{1, 1, 0}, Blocks{1, 0, 0}, Blocks{0, 0, 0}}) {
    for (std::int64_t cols : {1003, 4099, 17001}) {
      check<Exec, T, float8_e4m3>(2, 3, cols, blocks, Layout::right, 3);
      check<Exec, T, std::int8_t>(1, 5, cols, blocks, Layout::padded, 0.01);
    }
  }
  std::int64_t const many = is_host_space<Exec> ? 3 : 600;
  check<Exec, T, float8_e5m2>(1, many, 4093, {1, 1, 0}, Layout::right, 3);
}

TYPED_TEST(Quantize, EmptyExtents) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (auto blocks : granularities) {
    check<Exec, T, float8_e4m3>(0, 3, 4, blocks, Layout::right, 1);
    check<Exec, T, float8_e4m3>(2, 0, 4, blocks, Layout::right, 1);
    check<Exec, T, float8_e4m3>(2, 3, 0, blocks, Layout::right, 1);
  }
}

/// The kinds of scale of lower rank.
TYPED_TEST(Quantize, RanksOfScales) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  Tensor<T, 3, Exec> x({2, 5, 9});
  Random random(3);
  x.fill_uniform(random);
  Tensor<float8_e4m3, 3, Exec> out({2, 5, 9});
  Tensor<float, 1, Exec> tensor({1}), rows({5}, Layout::strided);
  Tensor<float, 2, Exec> all_rows({2, 5}, Layout::padded);
  Exec const exec;
  double largest = 0, first = 0;
  x.for_each([&](auto const& i) { largest = std::max(largest, std::abs(to_double(x.at(i)))); });
  quantize(exec, x.const_view(), out.view(), tensor.view());
  tensor.download();
  EXPECT_NEAR(tensor.value(0), largest / 448, scale_bound(largest / 448));
  quantize(exec, x.const_view(), out.view(), all_rows.view());
  all_rows.download();
  quantize(exec, x.const_front(), out.front(), rows.view());
  rows.download();
  for (std::int64_t b = 0; b < 2; ++b) {
    for (std::int64_t i = 0; i < 5; ++i) {
      first = 0;
      for (std::int64_t j = 0; j < 9; ++j) first = std::max(first, std::abs(x.value(b, i, j)));
      EXPECT_NEAR(all_rows.value(b, i), first / 448, scale_bound(first / 448));
      if (b == 0) {
        EXPECT_EQ(rows.value(i), all_rows.value(0, i));
      }
    }
  }
}

template <class Q>
void expect_code(Q code, double want, std::string const& what) {
  double const got = code_value(code);
  EXPECT_TRUE(got == want || (std::isnan(got) && std::isnan(want)))
      << what << ": " << got << ", expected " << want;
}

/// Infinities and NaN among finite numbers, whatever shares their scale.
template <class Exec, class T, class Q>
void check_special(Blocks blocks) {
  std::string const what = std::string(QuantizedFormat<Q>::name) + " blocks " +
                           std::to_string(blocks.rows) + ", " + std::to_string(blocks.cols);
  double const infinity = std::numeric_limits<double>::infinity();
  double const limit = QuantizedFormat<Q>::limit;
  std::int64_t const n = 140;
  Tensor<T, 3, Exec> x({1, n, n}), back({1, n, n});
  Tensor<Q, 3, Exec> out({1, n, n}), given({1, n, n});
  Tensor<float, 3, Exec> scale({1, groups(n, blocks.rows), groups(n, blocks.cols)});
  x.fill(0);
  for (std::int64_t i : {1, 130}) {
    x.set(infinity, 0, i, 3);
    x.set(-infinity, 0, i, 4);
    x.set(limit / 64, 0, i, 5);
    x.set(-limit / 64, 0, i, 6);
    x.at({0, i, 7}) = poison<T>();
  }
  x.set(infinity, 0, 2, 133);  // in a block of its own, among zeros
  x.at({0, 133, 139}) = poison<T>();
  x.upload();
  Exec const exec;
  quantize(exec, x.const_view(), out.view(), scale.view());
  quantize_with_scale(exec, x.const_view(), scale.const_view(), given.view());
  dequantize(exec, out.const_view(), scale.const_view(), back.view());
  out.download();
  given.download();
  scale.download();
  back.download();
  EXPECT_TRUE(same_bits(out.elements(), given.elements())) << what << ": given scales differ";
  std::map<std::pair<std::int64_t, std::int64_t>, double> largest;
  x.for_each([&](auto const& i) {
    double const magnitude = std::abs(to_double(x.at(i)));
    double& found = largest[{group(i[1], blocks.rows), group(i[2], blocks.cols)}];
    if (std::isfinite(magnitude)) found = std::max(found, magnitude);
  });
  for (auto const& [at, magnitude] : largest)
    EXPECT_EQ(scale.value(0, at.first, at.second), std::max(magnitude / limit, smallest_scale))
        << what;
  out.for_each([&](auto const& i) {
    double const element = to_double(x.at(i));
    double const factor = scale.value(0, group(i[1], blocks.rows), group(i[2], blocks.cols));
    // Nearly all are zeros, and the oracle goes through all codes.
    expect_code(out.at(i), element == 0 ? 0 : nearest<Q>(element / factor), what);
    double const again = to_double(back.at(i)), code = code_value(out.at(i));
    EXPECT_EQ(std::isfinite(code), std::isfinite(again)) << what;
  });
}

TYPED_TEST(Quantize, ZerosInfinitiesAndNan) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  for (auto blocks : granularities) {
    check_special<Exec, T, float8_e4m3>(blocks);
    check_special<Exec, T, float8_e5m2>(blocks);
    check_special<Exec, T, std::int8_t>(blocks);
  }
}

/// A given scale that is too small saturates what is finite, even where the quotient overflows, and
/// nothing else.
template <class Exec, class T, class Q>
void check_small_scale() {
  double const infinity = std::numeric_limits<double>::infinity();
  double const limit = QuantizedFormat<Q>::limit;
  double const lowest = std::is_same_v<Q, std::int8_t> ? -128 : -limit;
  double const large =
      std::is_same_v<T, float16> ? 6e4 : (std::is_same_v<T, double> ? 1e300 : 3e38);
  for (double small : {1e-3, smallest_scale}) {
    Tensor<T, 2, Exec> x({2, 5});
    Tensor<Q, 2, Exec> out({2, 5});
    Tensor<float, 1, Exec> scale({1});
    scale.fill(small);
    double const sent[] = {limit, large, infinity};
    for (std::int64_t j = 0; j < 3; ++j) {
      x.set(sent[j], 0, j);
      x.set(-sent[j], 1, j);
    }
    for (std::int64_t i = 0; i < 2; ++i) {
      x.set(0, i, 3);
      x.at({i, 4}) = poison<T>();
    }
    x.upload();
    quantize_with_scale(Exec(), x.const_view(), scale.const_view(), out.view());
    out.download();
    std::string const what = std::string(QuantizedFormat<Q>::name) + " by " + std::to_string(small);
    for (std::int64_t j = 0; j < 2; ++j) {
      expect_code(out(0, j), limit, what);
      expect_code(out(1, j), lowest, what);
    }
    expect_code(out(0, 2), nearest<Q>(infinity), what);
    expect_code(out(1, 2), nearest<Q>(-infinity), what);
    for (std::int64_t i = 0; i < 2; ++i) {
      expect_code(out(i, 3), 0, what);
      expect_code(out(i, 4), nearest<Q>(std::numeric_limits<double>::quiet_NaN()), what);
    }
  }
}

TYPED_TEST(Quantize, ScalesThatAreTooSmall) {
  using Exec = typename TypeParam::Exec;
  using T = typename TypeParam::T;
  check_small_scale<Exec, T, float8_e4m3>();
  check_small_scale<Exec, T, float8_e5m2>();
  check_small_scale<Exec, T, std::int8_t>();
}

template <class Exec>
class QuantizeSpaces : public testing::Test {};
TYPED_TEST_SUITE(QuantizeSpaces, SpaceCases, CaseName);

/// All codes through a scale of 1 come back bit by bit, and numbers halfway between two codes go to
/// the even one.
template <class Exec, class Q>
void check_codes() {
  Tensor<Q, 2, Exec> codes({2, 256}), again({2, 256});
  Tensor<float, 2, Exec> x({2, 256});
  Tensor<float, 1, Exec> one({1});
  one.fill(1);
  for (int code = 0; code < 256; ++code) {
    if constexpr (std::is_same_v<Q, std::int8_t>) {
      codes(0, code) = static_cast<std::int8_t>(code - 128);
    } else {
      codes(0, code) = Q::from_bits(static_cast<std::uint8_t>(code));
    }
    codes(1, code) = codes(0, code);
  }
  codes.upload();
  Exec const exec;
  dequantize(exec, codes.const_view(), one.const_view(), x.view());
  quantize_with_scale(exec, x.const_view(), one.const_view(), again.view());
  x.download();
  again.download();
  for (int code = 0; code < 256; ++code) {
    double const value = code_value(codes(0, code));
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(x.value(0, code)));
      EXPECT_TRUE(std::isnan(code_value(again(0, code))));
    } else {
      EXPECT_EQ(x.value(0, code), value);
      EXPECT_EQ(code_value(again(0, code)), value);
    }
  }
  // Row 0: halfway to the next code. Row 1: a little more than halfway.
  for (int code = 0; code < 255; ++code) {
    double const here = code_value(codes(0, code)), next = code_value(codes(0, code + 1));
    double const middle = std::isfinite(here + next) ? (here + next) / 2 : 0.0;
    x.set(middle, 0, code);
    x.set(middle * (1 + 0x1p-20), 1, code);
  }
  x.upload();
  quantize_with_scale(exec, x.const_view(), one.const_view(), again.view());
  again.download();
  for (std::int64_t row = 0; row < 2; ++row) {
    for (int code = 0; code < 255; ++code) {
      EXPECT_EQ(code_value(again(row, code)), nearest<Q>(x.value(row, code)))
          << row << ", " << code;
    }
  }
}

TYPED_TEST(QuantizeSpaces, AllCodesAndTies) {
  check_codes<TypeParam, float8_e4m3>();
  check_codes<TypeParam, float8_e5m2>();
  check_codes<TypeParam, std::int8_t>();
}

TYPED_TEST(QuantizeSpaces, EndsOfTheRange) {
  // Numbers so small that amax/limit is subnormal, and doubles past float's range.
  Tensor<double, 2, TypeParam> x({2, 3});
  Tensor<float8_e5m2, 2, TypeParam> out({2, 3});
  Tensor<float, 2, TypeParam> scale({2, 1});
  x.fill(0);
  x.set(1e-300, 0, 0);
  x.set(0x1p-140, 0, 1);
  x.set(1e300, 1, 0);
  x.set(-1.0, 1, 1);
  x.upload();
  quantize(TypeParam(), x.const_view(), out.view(), scale.view());
  out.download();
  scale.download();
  EXPECT_EQ(scale.value(0, 0), smallest_scale);
  EXPECT_EQ(code_value(out(0, 0)), 0);
  EXPECT_EQ(code_value(out(0, 1)), 0x1p-14);
  double const largest = static_cast<double>(std::numeric_limits<float>::max());
  EXPECT_NEAR(scale.value(1, 0), largest / 57344, scale_bound(largest / 57344));
  EXPECT_EQ(code_value(out(1, 0)), 57344);
  EXPECT_EQ(code_value(out(1, 1)), 0);
}

/// The largest double counts, as what is past float's range; infinities, the next, do not. Each
/// neighbor is looked at, and no other, however far they lie apart.
TYPED_TEST(QuantizeSpaces, TheLargestDouble) {
  double const most = std::numeric_limits<double>::max();
  double const infinity = std::numeric_limits<double>::infinity();
  for (Layout layout : all_layouts)
    for (std::int64_t place : {0, 1, 4}) {
      Tensor<double, 2, TypeParam> x({3, 5}, layout);
      Tensor<float8_e5m2, 2, TypeParam> out({3, 5});
      Tensor<float, 2, TypeParam> scale({3, 1});
      x.fill(0.5);
      x.set(place == 1 ? -most : most, 0, place);
      x.set(place == 1 ? -infinity : infinity, 1, place);
      x.set(8, 2, place);
      x.upload();
      quantize(TypeParam(), x.const_view(), out.view(), scale.view());
      out.download();
      scale.download();
      double const wants[] = {static_cast<double>(std::numeric_limits<float>::max()), 0.5, 8};
      for (std::int64_t row = 0; row < 3; ++row)
        EXPECT_NEAR(scale.value(row, 0), wants[row] / 57344, scale_bound(wants[row] / 57344))
            << layout_name(layout) << ", " << place;
      double const sign = place == 1 ? -1 : 1;
      EXPECT_EQ(code_value(out(0, place)), sign * 57344);
      EXPECT_EQ(code_value(out(1, place)), sign * infinity);
      EXPECT_EQ(code_value(out(2, place)), 57344);
    }
}

}  // namespace
}  // namespace attikos::test
