// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Probes of conversions to and from tf32 and float8, and of the approximate 2^x. What numbers mean
// is worked out anew from their bits, in float64.
#include <algorithm>
#include <attikos/ptx/math.hpp>
#include <cmath>
#include <limits>

#include "probe.hpp"
#include "ptx/convert.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using ProbeConvert = Probe;
using ProbeMath = Probe;

using Word = std::uint32_t;

float float_of(Word bits) {
  float x;
  std::memcpy(&x, &bits, 4);
  return x;
}
Word bits_of(float x) {
  Word bits;
  std::memcpy(&bits, &x, 4);
  return bits;
}

/// Floats of both signs: zeros, subnormal numbers, the largest, infinity, NaN, what lies at and
/// beside the middle between numbers of `bits` bits behind the point, and any bits at all.
std::vector<float> all_kinds(int bits) {
  std::vector<Word> magnitudes = {0,          1,          0x007FFFFF, 0x00800000,
                                  0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000};
  Word const half = 1u << (22 - bits);
  for (Word exponent = 1; exponent < 255; ++exponent)
    for (Word step = 0; step < 8; ++step)
      for (Word beside = 0; beside < 3; ++beside)
        magnitudes.push_back((exponent << 23) + (2 * step + 1) * half + beside - 1);
  for (Word i = 0; i < 4096; ++i) magnitudes.push_back(mix(i) & 0x7FFFFFFF);
  std::vector<float> values;
  for (Word magnitude : magnitudes)
    for (Word sign : {0u, 1u}) values.push_back(float_of(magnitude | sign << 31));
  while (values.size() % 4 != 0) values.push_back(0);
  return values;
}

__global__ void tf32_kernel(float const* from, Word* out, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 256) out[i] = round_tf32(from[i]);
}

TEST_F(ProbeConvert, TFloat32HalvesAwayFromZero) {
  auto const values = all_kinds(10);
  DeviceArray<float> const from(values);
  DeviceArray<Word> const out(values.size());
  tf32_kernel<<<1, 256>>>(from.data(), out.data(), static_cast<int>(values.size()));
  auto const got = out.host();
  for (std::size_t i = 0; i < values.size(); ++i) {
    Word const bits = got[i] & ~0x1FFFu;  // what tensor cores look at
    Word const original = bits_of(values[i]);
    if (std::isfinite(values[i]))
      EXPECT_EQ(bits, (original + 0x1000u) & ~0x1FFFu) << std::hex << original;
    else if (std::isinf(values[i]))
      EXPECT_EQ(bits, original);
    else if ((original & 0x007FE000u) != 0)
      EXPECT_TRUE(std::isnan(float_of(bits))) << std::hex << original;
  }
}

/// float8 with so many bits behind the point, 3 or 2, and the largest code of a number.
struct Format {
  int fraction;
  unsigned largest;
};
constexpr Format e4m3 = {3, 0x7E}, e5m2 = {2, 0x7B};

/// What a code stands for.
double meaning(Format format, unsigned code) {
  unsigned const magnitude = code & 0x7F;
  if (magnitude > format.largest) return std::numeric_limits<double>::quiet_NaN();
  int const ones = 1 << format.fraction, bias = format.fraction == 3 ? 7 : 15;
  int const exponent = static_cast<int>(magnitude) / ones;
  int const fraction = static_cast<int>(magnitude) % ones + (exponent == 0 ? 0 : ones);
  double const x = std::ldexp(fraction, std::max(exponent, 1) - bias - format.fraction);
  return code >= 128 ? -x : x;
}

/// The code nearest to x, of two the even one; no further than the largest.
unsigned nearest(Format format, float x) {
  if (std::isnan(x)) return 0x7F;
  unsigned const sign = std::signbit(x) ? 128 : 0;
  double const magnitude = std::fabs(static_cast<double>(x));
  if (magnitude >= meaning(format, format.largest)) return sign | format.largest;
  unsigned best = 0;
  for (unsigned code = 1; code <= format.largest; ++code) {
    double const now = std::fabs(meaning(format, code) - magnitude);
    double const before = std::fabs(meaning(format, best) - magnitude);
    if (now < before || (now == before && code % 2 == 0)) best = code;
  }
  return sign | best;
}

template <__nv_fp8_interpretation_t Interpretation>
__global__ void float8_kernel(float4 const* from, Word* out, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 256)
    out[i] = round_to_float8<Interpretation>(from[i]);
}

template <__nv_fp8_interpretation_t Interpretation>
void check_float8(Format format) {
  auto const values = all_kinds(format.fraction);
  DeviceArray<float> const from(values);
  DeviceArray<Word> const out(values.size() / 4);
  float8_kernel<Interpretation><<<1, 256>>>(reinterpret_cast<float4 const*>(from.data()),
                                            out.data(), static_cast<int>(values.size() / 4));
  auto const got = out.host();
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_EQ(got[i / 4] >> i % 4 * 8 & 255, nearest(format, values[i]))
        << values[i] << ", bits " << std::hex << bits_of(values[i]);
}

TEST_F(ProbeConvert, RoundsToFloat8) {
  check_float8<__NV_E4M3>(e4m3);
  check_float8<__NV_E5M2>(e5m2);
}

__global__ void widen_kernel(Word const* from, Word* out) {
  widen_four(from[threadIdx.x], out[2 * threadIdx.x], out[2 * threadIdx.x + 1]);
}

// Every code in every one of the four places.
TEST_F(ProbeConvert, WidensFloat8) {
  std::vector<Word> words;
  for (Word code = 0; code < 256; ++code)
    words.push_back(code | (code ^ 0x5A) << 8 | (255 - code) << 16 | (code * 7 & 255) << 24);
  DeviceArray<Word> const from(words), out(2 * words.size());
  widen_kernel<<<1, 256>>>(from.data(), out.data());
  auto const halves = out.host();
  for (std::size_t i = 0; i < 4 * words.size(); ++i) {
    unsigned const code = words[i / 4] >> i % 4 * 8 & 255;
    __half_raw raw;
    raw.x = static_cast<unsigned short>(halves[i / 2] >> i % 2 * 16);
    double const got = static_cast<double>(__half2float(__half(raw))), wanted = meaning(e4m3, code);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(got)) << "code " << code << " in place " << i % 4;
    } else {
      EXPECT_EQ(got, wanted) << "code " << code << " in place " << i % 4;
      EXPECT_EQ(std::signbit(got), code >= 128) << "code " << code << " in place " << i % 4;
    }
  }
}

__global__ void power_kernel(float const* from, float* out, int count) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += 256) out[i] = power_of_2(from[i]);
}

TEST_F(ProbeMath, PowerOf2) {
  float const infinity = std::numeric_limits<float>::infinity();
  std::vector<float> values = {0.0f, -0.0f, 1e-40f, -1e-40f, -infinity, infinity, 200, -200, -127};
  for (int i = -126 * 64; i < 128 * 64; ++i)
    values.push_back(static_cast<float>(i) / 64 +
                     static_cast<float>(mix(static_cast<Word>(i)) % 1024) / 65536);
  values.push_back(std::numeric_limits<float>::quiet_NaN());
  DeviceArray<float> const from(values), out(values.size());
  power_kernel<<<1, 256>>>(from.data(), out.data(), static_cast<int>(values.size()));
  auto const got = out.host();
  std::vector<float> const exact = {1, 1, 1, 1, 0, infinity, infinity, 0, 0};
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_EQ(got[i], exact[i]) << values[i];
  for (std::size_t i = exact.size(); i + 1 < values.size(); ++i) {
    double const wanted = std::exp2(static_cast<double>(values[i]));
    EXPECT_NEAR(static_cast<double>(got[i]), wanted, wanted * 0x1p-22) << values[i];
  }
  EXPECT_TRUE(std::isnan(got.back()));
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
