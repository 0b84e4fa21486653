// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// exp, tanh, erfc and log in float32 as host kernels compute them, the library's own vectors and
// the C library's functions, against long double: errors in units in the last place (ulp) of the
// exact result. Every ATTIKOS_TEST_STRIDE-th float32, each where that is 1; every 4999th by
// default, 1600 of each binade.
#include <gtest/gtest.h>

#include <attikos/attention/attention_scores.hpp>
#include <attikos/core/rows/row.hpp>
#include <attikos/epilogue/activation.hpp>
#include <attikos/testing/bounds.hpp>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <thread>
#include <vector>

namespace attikos::test {
namespace {

namespace host = attikos::detail::host;
using Vector = host::Vec<float>;
constexpr int lanes = host::lanes<float>;

struct Worst {
  double ulps = 0;
  float at = 0;
  std::int64_t count = 0;
};

/// The distance of a float from a number, in those of neighbours there.
double ulps_between(float got, long double want) {
  if (std::isnan(want)) return std::isnan(got) ? 0 : INFINITY;
  // What rounds to infinity is half a spacing past the largest number.
  if (std::isinf(got))
    return std::abs(want) >= 0x1.ffffffp127L && std::signbit(got) == std::signbit(want) ? 0
                                                                                        : INFINITY;
  int const exponent = want == 0 ? -126 : std::max(std::ilogb(want), -126);
  return static_cast<double>(std::abs(got - want) *
                             std::exp2(static_cast<long double>(23 - exponent)));
}

std::uint32_t stride() {
  char const* const given = std::getenv("ATTIKOS_TEST_STRIDE");
  return given == nullptr ? 4999 : static_cast<std::uint32_t>(std::strtoul(given, nullptr, 10));
}

/// Arguments from `low` to `high`, both of one sign, low the nearer to 0.
template <class Got, class Want>
Worst measure(float low, float high, Got const& got, Want const& want,
              unsigned most_threads = std::thread::hardware_concurrency()) {
  std::uint64_t const first = std::bit_cast<std::uint32_t>(low),
                      last = std::bit_cast<std::uint32_t>(high), step = stride();
  std::uint64_t const blocks = ((last - first) / step) / lanes + 1;
  unsigned const parts = step < 100 ? std::max(1u, most_threads) : 1;
  std::vector<Worst> worst(parts);
  std::vector<std::thread> threads;
  for (unsigned part = 0; part < parts; ++part)
    threads.emplace_back([&, part] {
      Worst seen;
      for (std::uint64_t block = part; block < blocks; block += parts) {
        Vector x;
        for (int l = 0; l < lanes; ++l) {
          auto const bits = first + (block * lanes + static_cast<std::uint64_t>(l)) * step;
          x[l] = std::bit_cast<float>(static_cast<std::uint32_t>(std::min(bits, last)));
        }
        Vector const y = got(x);
        for (int l = 0; l < lanes; ++l) {
          double const ulps = ulps_between(y[l], want(static_cast<long double>(x[l])));
          if (!(ulps <= seen.ulps)) seen.ulps = ulps, seen.at = x[l];
        }
        seen.count += lanes;
      }
      worst[part] = seen;
    });
  Worst all;
  for (unsigned part = 0; part < parts; ++part) {
    threads[part].join();
    all.count += worst[part].count;
    if (!(worst[part].ulps <= all.ulps)) all.ulps = worst[part].ulps, all.at = worst[part].at;
  }
  return all;
}

/// Both signs, and a bound in ulp.
template <class Got, class Want>
void expect_ulps(char const* name, double most, float low, float high_negative, float high,
                 Got const& got, Want const& want) {
  Worst const above = measure(low, high, got, want);
  Worst const below = measure(-low, -high_negative, got, want);
  Worst const& worst = below.ulps > above.ulps ? below : above;
  std::printf("%-18s %.4f ulp at %a of %lld arguments\n", name, worst.ulps,
              static_cast<double>(worst.at),
              static_cast<long long>(above.count) + static_cast<long long>(below.count));
  EXPECT_LE(worst.ulps, most) << name << " of " << worst.at;
}

/// What the bounds of suites give a function: math_ulps roundoffs, two of which are an ulp.
constexpr double allowed = attikos::testing::math_ulps / 2;
constexpr float tiny = std::numeric_limits<float>::denorm_min();

template <class Function>
auto each_lane(Function const& f) {
  return [f](Vector x) {
    for (int l = 0; l < lanes; ++l) x[l] = f(x[l]);
    return x;
  };
}

TEST(Elementary, ExpOfVectors) {
  // Results are normal down to -87.33; below they are 0, above 88.72 infinite.
  auto const exp = [](Vector x) { return host::exp<float, lanes>(x); };
  auto const exact = [](long double x) { return std::exp(x); };
  expect_ulps("exp, vectors", 2, tiny, 87.33654f, 88.72283f, exp, exact);
  for (float x : {-87.34f, -100.f, -1e30f, -INFINITY})
    EXPECT_EQ(exp(host::broadcast<float, lanes>(x))[0], 0) << x;
  for (float x : {88.73f, 1e30f, INFINITY})
    EXPECT_EQ(exp(host::broadcast<float, lanes>(x))[0], INFINITY) << x;
  EXPECT_TRUE(std::isnan(exp(host::broadcast<float, lanes>(NAN))[0]));
}

TEST(Elementary, TanhOfVectors) {
  auto const tanh = [](Vector x) { return host::tanh_vector(x); };
  auto const exact = [](long double x) { return std::tanh(x); };
  expect_ulps("tanh, vectors", allowed, 0x1p-126f, 3e38f, 3e38f, tanh, exact);
}

// Of gelu: e^(z²) erfc(z), of which the exponential is taken apart, from 0 to where erfc is 0.
TEST(Elementary, ScaledErfc) {
  auto const scaled = [](Vector z) { return detail::host::scaled_erfc(1.0f / (1.0f + 0.3f * z)); };
  auto const exact = [](long double z) { return std::exp(z * z) * std::erfc(z); };
  Worst const worst = measure(0, 9.5f, scaled, exact);
  std::printf("%-18s %.4f ulp at %a of %lld arguments\n", "scaled erfc", worst.ulps,
              static_cast<double>(worst.at), static_cast<long long>(worst.count));
  // t is off by 1.5 roundoffs, which the slope at 0, |t f'(t)| = 3.8 f, makes 5.7, and terms that
  // add up to 2.3 f by up to 6 in their sums: 12 roundoffs, an ulp each where f < 1.
  EXPECT_LE(worst.ulps, 12);
}

TEST(Elementary, GeluOfVectors) {
  // In roundoffs of |x|, of which bounds.hpp allows 2 math_ulps + 8: it is small beside x below 0.
  auto const gelu = [](Vector x) {
    Vector const y = host::gelu_vector<float>(x);
    return y / x;
  };
  auto const exact = [](long double x) { return std::erfc(-x * std::sqrt(0.5L)) / 2; };
  double worst = 0;
  for (float sign : {1.0f, -1.0f}) {
    auto const quotient = [&](Vector x) {
      // An error of |x| u of gelu is one of u of the quotient, whose ulp is 2 u or less.
      Vector const q = gelu(x);
      for (int l = 0; l < lanes; ++l)
        worst = std::max(worst, static_cast<double>(std::abs(q[l] - exact(x[l]))));
      return q;
    };
    measure(sign * 0x1p-30f, sign * 40.0f, quotient, exact, 1);
  }
  std::printf("%-18s %.4f roundoffs of |x|\n", "gelu, vectors", worst * 0x1p24);
  EXPECT_LE(worst * 0x1p24, 2 * attikos::testing::math_ulps + 8 + 1) << "and 1 of the quotient";
}

TEST(Elementary, FunctionsOfTheLibrary) {
  expect_ulps("expf", allowed, tiny, 87.33654f, 88.72283f,
              each_lane([](float x) { return std::exp(x); }),
              [](long double x) { return std::exp(x); });
  expect_ulps("tanhf", allowed, tiny, 3e38f, 3e38f, each_lane([](float x) { return std::tanh(x); }),
              [](long double x) { return std::tanh(x); });
  expect_ulps("erfcf", allowed, tiny, 3e38f, 9.19f, each_lane([](float x) { return std::erfc(x); }),
              [](long double x) { return std::erfc(x); });
  Worst const log = measure(tiny, std::numeric_limits<float>::max(),
                            each_lane([](float x) { return std::log(x); }),
                            [](long double x) { return std::log(x); });
  std::printf("%-18s %.4f ulp at %a of %lld arguments\n", "logf", log.ulps,
              static_cast<double>(log.at), static_cast<long long>(log.count));
  EXPECT_LE(log.ulps, allowed);
}

// The measure itself: a last place too much is one ulp, or a little less.
TEST(Elementary, CountsUlps) {
  EXPECT_EQ(ulps_between(1, 1), 0);
  EXPECT_EQ(ulps_between(std::nextafter(1.0f, 2.0f), 1), 1);
  EXPECT_EQ(ulps_between(std::nextafter(1.0f, 0.0f), 1), 0.5);
  EXPECT_EQ(ulps_between(tiny, 0), 1);
  auto const off = [](Vector x) {
    for (int l = 0; l < lanes; ++l) x[l] = std::nextafter(std::exp(x[l]), INFINITY);
    return x;
  };
  EXPECT_GT(measure(0.5f, 2.0f, off, [](long double x) { return std::exp(x); }).ulps, 1);
}

}  // namespace
}  // namespace attikos::test
