// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How far the attention and decode kernels of 16 and 8 bits are from float64, beside a plain
// computation of the same formula, with as many bits, from the same elements: no further. Called
// directly. Fails without a card of compute capability 8.0; Hopper's kernels are compared where
// there is one.
#include <cstdio>
#include <map>

#include "decode/direct_decode.hpp"

namespace {

/// Errors of all elements of an output.
struct Errors {
  double squares = 0, largest = 0, count = 0;

  void add(double error) {
    squares += error * error, count += 1;
    if (!(std::abs(error) <= largest)) largest = std::isnan(error) ? infinity : std::abs(error);
  }
  double rms() const { return std::sqrt(squares / count); }
};

/// A row of a tensor in float32, which 16-bit elements are in without loss.
template <class In>
std::vector<float> row_of(Tensor4<In> const& x, std::int64_t b, std::int64_t h, std::int64_t s) {
  std::vector<float> row(static_cast<std::size_t>(x.extent[3]));
  for (std::size_t c = 0; c < row.size(); ++c)
    row[c] = static_cast<float>(x.value(b, h, s, static_cast<std::int64_t>(c)));
  return row;
}

template <class T>
float rounded(float x) {
  return static_cast<float>(T(x));
}

/// A case in float64, and how far from that a plain computation in T ends: scores summed in float32
/// and rounded to T, as they are after each term, softmax of those in float32 and rounded to T,
/// products with the values summed in float32 and rounded to T. Beside float8 tensors the weights,
/// 2^8 at the largest score, are rounded to float8 before they are divided by their sum.
///
/// A kernel rounds two of these three, weights and output, so that its error lacks the part of the
/// scores. What its sums in float32 add, whatever their order, is small beside a rounding of T.
template <class T, class In = T>
struct PlainAttention {
  std::vector<double> exact;  ///< [batch, heads, queries, features]
  Errors errors;

  explicit PlainAttention(DecodeProblem<T, In> const& problem) : x(problem) {
    DecodeCase const& t = x.t;
    std::int64_t const group = t.heads / t.heads_kv;
    for (std::int64_t b = 0; b < t.batch; ++b)
      for (std::int64_t h = 0; h < t.heads; ++h) {
        if (h % group == 0) {
          keys.clear(), values.clear();
          for (std::int64_t j = 0; j < t.len_kv; ++j)
            keys.push_back(row_of(x.k, b, h / group, j)),
                values.push_back(row_of(x.v, b, h / group, j));
        }
        for (std::int64_t i = 0; i < t.len_q; ++i) add_row(b, h, i);
      }
  }

 private:
  DecodeProblem<T, In> const& x;
  std::vector<std::vector<float>> keys, values;  ///< of the head that rows are being added for

  /// From a product to a score, `round` after each step.
  template <class Round>
  double score_of(double s, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j,
                  Round const& round) const {
    DecodeCase const& t = x.t;
    auto const head = static_cast<std::size_t>(h);
    s = round(s * (t.scale == 0 ? 1 / std::sqrt(static_cast<double>(t.d)) : t.scale));
    if (t.softcap > 0) s = round(t.softcap * std::tanh(s / t.softcap));
    if (t.bias == 1) s = round(s + x.bias_16.value(0, 0, i, j));
    if (t.bias == 2) s = round(s + x.bias_32.value(b, h, i, j));
    if (t.alibi)
      s = round(s - x.slopes[head] * std::abs(static_cast<double>(i + t.len_kv - t.len_q - j)));
    return s;
  }

  void add_row(std::int64_t b, std::int64_t h, std::int64_t i) {
    constexpr bool float8 = std::is_same_v<In, E4>;
    DecodeCase const& t = x.t;
    std::vector<float> const query = row_of(x.q, b, h, i);
    std::int64_t const at = i + t.len_kv - t.len_q;
    std::size_t const from =
        t.left < 0 ? 0 : static_cast<std::size_t>(std::max<std::int64_t>(0, at - t.left));
    auto const n = static_cast<std::size_t>(t.causal ? at + 1 : t.len_kv) - from;
    std::vector<double> weight(n);
    std::vector<float> plain(n);
    for (std::size_t j = 0; j < n; ++j) {
      double s = 0;
      float p = 0;
      for (std::size_t c = 0; c < query.size(); ++c)
        s += static_cast<double>(query[c]) * keys[from + j][c], p += query[c] * keys[from + j][c];
      auto const key = static_cast<std::int64_t>(from + j);
      weight[j] = score_of(s, b, h, i, key, [](double e) { return e; });
      plain[j] = static_cast<float>(
          score_of(p, b, h, i, key, [](double e) { return rounded<T>(static_cast<float>(e)); }));
    }
    double const top = *std::max_element(weight.begin(), weight.end());
    float const top_plain = *std::max_element(plain.begin(), plain.end());
    double sum = 0;
    float sum_plain = 0;
    for (std::size_t j = 0; j < n; ++j) {
      sum += weight[j] = std::exp(weight[j] - top);
      sum_plain += plain[j] = std::exp(plain[j] - top_plain);
      if (float8) plain[j] = static_cast<float>(wide(E4(plain[j] * 0x1p8f))) * 0x1p-8f;
    }
    std::vector<double> y(values[0].size());
    std::vector<float> y_plain(y.size());
    for (std::size_t j = 0; j < n; ++j) {
      double const p = weight[j] / sum;
      float const p_plain = float8 ? plain[j] / sum_plain : rounded<T>(plain[j] / sum_plain);
      for (std::size_t c = 0; c < y.size(); ++c)
        y[c] += p * values[from + j][c], y_plain[c] += p_plain * values[from + j][c];
    }
    for (std::size_t c = 0; c < y.size(); ++c) errors.add(rounded<T>(y_plain[c]) - y[c]);
    exact.insert(exact.end(), y.begin(), y.end());
  }
};

/// Largest ratios of a kernel's errors to those of plain computations.
struct Ratios {
  double rms = 0, largest = 0;
};
std::map<std::string, Ratios> ratios;

/// The errors of a kernel's output.
template <class T, class Kernel, class In>
Errors measure(DecodeProblem<T, In>& x, PlainAttention<T, In> const& plain, std::int64_t splits) {
  DecodeCase const& t = x.t;
  std::vector<unsigned char> result, sums;
  launch_decode<T, Kernel>(x, splits, abi::query_device(abi::current_device()), result, sums);
  Errors errors;
  std::size_t n = 0;
  for (std::int64_t b = 0; b < t.batch && !testing::Test::HasFailure(); ++b)
    for (std::int64_t h = 0; h < t.heads; ++h)
      for (std::int64_t i = 0; i < t.len_q; ++i)
        for (std::int64_t c = 0; c < t.dv; ++c) {
          T got;
          std::memcpy(&got, &result[x.out.offset(b, h, i, c) * sizeof(T)], sizeof got);
          errors.add(wide(got) - plain.exact[n++]);
        }
  return errors;
}

/// A kernel's errors are at most those of the plain computation.
///
/// Of the root mean square that is what is asked. The largest errors of two computations are one
/// draw each from the tails of their distributions. Of N errors of one normal distribution it
/// spreads by π/√6 / (2 ln 2N) of itself, 6 % for the 16 000 elements of the smallest case here, so
/// 9 % for the ratio of two, of which 1.25 leaves nearly three; bounded errors as these spread
/// less. Whichever it is, it is the same in every run.
///
/// Sums of float8 products drop what lies below 2^-13 of their largest term, and the kernel's
/// weights are 2^7 to 448 at the largest score, so that small ones have fewer bits: for both the
/// root mean square may exceed the plain one's by 1/32.
template <class T, class Kernel, class In>
void compare(DecodeProblem<T, In>& x, PlainAttention<T, In> const& plain) {
  SKIP_IF_LEFT_OUT(Kernel);
  SCOPED_TRACE(std::string(Kernel::name) + ' ' + describe(x.t, std::is_same_v<T, __half>));
  for (std::int64_t splits : x.t.splits) {
    Errors const errors = measure<T, Kernel>(x, plain, splits);
    if (testing::Test::HasFailure()) return;
    double const room = std::is_same_v<In, E4> ? 1 + 0x1p-5 : 1;
    EXPECT_LE(errors.rms(), room * plain.errors.rms()) << "splits " << splits;
    EXPECT_LE(errors.largest, 1.25 * plain.errors.largest) << "splits " << splits;
    auto& worst = ratios[Kernel::name];
    worst.rms = std::max(worst.rms, errors.rms() / plain.errors.rms());
    worst.largest = std::max(worst.largest, errors.largest / plain.errors.largest);
  }
}

template <class T, class ForHalf, class ForBfloat16>
using Of = WithoutWorkspace<std::conditional_t<std::is_same_v<T, __half>, ForHalf, ForBfloat16>>;

template <class T>
void compare_attention(DecodeCase t) {
  t.splits = {0};
  DecodeProblem<T> x(t);
  PlainAttention<T> const plain(x);
  bool const hopper = abi::query_device(abi::current_device()).compute_major == 9;
  if (t.len_kv <= 128) {
    compare<T, Of<T, abi::AttentionSm80ShortF16, abi::AttentionSm80ShortBf16>>(x, plain);
    if (hopper)
      compare<T, Of<T, abi::AttentionSm90ShortF16, abi::AttentionSm90ShortBf16>>(x, plain);
  }
  if (hopper) compare<T, Of<T, abi::AttentionSm90WgmmaF16, abi::AttentionSm90WgmmaBf16>>(x, plain);
  compare<T, Of<T, abi::AttentionSm80MmaF16, abi::AttentionSm80MmaBf16>>(x, plain);
  if constexpr (std::is_same_v<T, __half>)
    compare<T, WithoutWorkspace<abi::AttentionSm75WmmaF16>>(x, plain);
}

/// Head dims, full and causal attention, heads that share keys, scores that are close together and
/// far apart. `run` is given each case.
template <class Run>
void each_long_case(Run const& run) {
  std::int64_t const dims[][2] = {{32, 32},   {64, 64},   {96, 96},  {128, 128},
                                  {192, 192}, {192, 128}, {64, 256}, {256, 256}};
  for (auto const& e : dims)
    for (bool causal : {false, true})
      for (double amplitude : {2.0, 12.0}) {
        run(DecodeCase{.batch = 1,
                       .heads = 4,
                       .heads_kv = causal == (e[0] == 128) ? 4 : 2,
                       .len_q = 200,
                       .len_kv = 333,
                       .d = e[0],
                       .dv = e[1],
                       .causal = causal,
                       .amplitude = amplitude});
        if (testing::Test::HasFailure()) return;
      }
}
template <class T>
void long_sequences() {
  each_long_case(compare_attention<T>);
}
TEST(AttentionErrorRuns, Bfloat16) { long_sequences<__nv_bfloat16>(); }
TEST(AttentionErrorRuns, Float16) { long_sequences<__half>(); }

/// What changes scores, and heads that share tiles.
template <class T>
void with_options() {
  for (std::int64_t d : {64, 128, 256})
    for (int which = 0; which < 6; ++which) {
      DecodeCase t{.batch = 1, .heads = 4, .heads_kv = 1, .len_q = 150, .len_kv = 333, .d = d};
      t.dv = d, t.causal = which % 2 == 0;
      if (which == 0) t.left = 100;
      if (which == 1) t.softcap = 3;
      if (which == 2) t.softcap = 30, t.amplitude = 12;
      if (which == 3) t.alibi = true;
      if (which == 4) t.bias = 1;
      if (which == 5) t.bias = 2, t.amplitude = 12;
      compare_attention<T>(t);
      if (testing::Test::HasFailure()) return;
    }
}
TEST(AttentionErrorRuns, OptionsBfloat16) { with_options<__nv_bfloat16>(); }
TEST(AttentionErrorRuns, OptionsFloat16) { with_options<__half>(); }

template <class T>
void of_float8() {
  each_long_case([](DecodeCase t) {
    t.splits = {0};
    DecodeProblem<T, E4> x(t);
    PlainAttention<T, E4> const plain(x);
    if (abi::query_device(abi::current_device()).compute_major == 9)
      compare<T, WithoutWorkspace<abi::AttentionSm90WgmmaE4m3>>(x, plain);
    compare<T, WithoutWorkspace<abi::AttentionSm80MmaE4m3>>(x, plain);
  });
}
TEST(AttentionErrorRuns, Float8ToBfloat16) { of_float8<__nv_bfloat16>(); }
TEST(AttentionErrorRuns, Float8ToFloat16) { of_float8<__half>(); }

template <class T>
void short_sequences() {
  for (std::int64_t d : {32, 64, 128})
    for (bool causal : {false, true}) {
      compare_attention<T>({.batch = 6,
                            .heads = 4,
                            .heads_kv = causal ? 4 : 2,
                            .len_q = 100,
                            .len_kv = 128,
                            .d = d,
                            .dv = d,
                            .causal = causal});
      if (testing::Test::HasFailure()) return;
    }
}
TEST(AttentionErrorRuns, ShortBfloat16) { short_sequences<__nv_bfloat16>(); }
TEST(AttentionErrorRuns, ShortFloat16) { short_sequences<__half>(); }

template <class T>
void decoding() {
  for (std::int64_t d : {64, 128, 256})
    for (std::int64_t len_q : {1, 3})
      for (double amplitude : {2.0, 12.0}) {
        DecodeCase const t{.batch = 4,
                           .heads = 64,
                           .heads_kv = 8,
                           .len_q = len_q,
                           .len_kv = 500,
                           .d = d,
                           .dv = d,
                           .splits = {0, 1, 5},
                           .causal = len_q > 1,
                           .amplitude = amplitude};
        DecodeProblem<T> x(t);
        PlainAttention<T> const plain(x);
        compare<T, DecodeFor<T>>(x, plain);
        if (testing::Test::HasFailure()) return;
      }
}
TEST(AttentionErrorRuns, DecodeBfloat16) { decoding<__nv_bfloat16>(); }
TEST(AttentionErrorRuns, DecodeFloat16) { decoding<__half>(); }

/// A kernel whose scores are off by 1/16 of themselves.
template <class Kernel>
struct OffScores : Kernel {
  static int launch(DecodeArgs g, Device const& device, CUstream_st* stream) {
    g.softmax_scale *= 1 + 0x1p-4;
    return Kernel::launch(g, device, stream);
  }
};

// The yardstick is short enough to tell.
template <class T>
void tells() {
  SKIP_IF_LEFT_OUT(DecodeFor<T>);
  DecodeCase const t{.heads = 16, .len_q = 8, .splits = {1}, .causal = true, .amplitude = 12};
  DecodeProblem<T> x(t);
  PlainAttention<T> const plain(x);
  Errors const errors = measure<T, OffScores<DecodeFor<T>>>(x, plain, 1);
  EXPECT_GT(errors.rms(), plain.errors.rms());
  EXPECT_GT(errors.largest, 1.25 * plain.errors.largest);
}
TEST(AttentionErrorRuns, TellsAWorseKernelBfloat16) { tells<__nv_bfloat16>(); }
TEST(AttentionErrorRuns, TellsAWorseKernelFloat16) { tells<__half>(); }

struct Report : testing::Environment {
  void TearDown() override {
    for (auto const& [kernel, worst] : ratios)
      std::printf("%-24s error / that of a plain computation: rms %.3f, largest %.3f\n",
                  kernel.c_str(), worst.rms, worst.largest);
  }
};
testing::Environment* const report = testing::AddGlobalTestEnvironment(new Report);

}  // namespace
