// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-testing.md shows of bounds and of
// timing, part by part; a test runs it.
#include <attikos/attikos.hpp>
#include <attikos/perf/runner.hpp>
#include <attikos/testing/testing.hpp>
#include <string>
#include <vector>

#include "common.hpp"

using Matrix = Kokkos::View<float**>;
using Vector = Kokkos::View<float*>;

void validate(Space const& exec) {
  // [testing]
  // A kernel of one's own, here a call of the library,
  // against the float64 oracle and within the derived
  // bound, on random data: C = 2·A·Bᵀ + C/2.
  attikos::testing::GemmValidation const wanted{
      .alpha = 2, .beta = 0.5, .trans_b = true};
  auto const product = [](auto const& on, auto const& a,
                          auto const& b, auto const& c) {
    attikos::gemm(
        on, a, b, c,
        {.alpha = 2, .beta = 0.5, .trans_b = true});
  };
  attikos::testing::ValidationResult const found =
      attikos::testing::validate_gemm<float>(
          exec, product, 33, 17, 65, wanted);
  std::printf("%s\n", found.message.c_str());
  // [testing]
  expect(found.ok, "the product is within its bound");
  auto const wrong =
      attikos::testing::validate_gemm<float>(
          exec, product, 33, 17, 65,
          {.alpha = 2.0001,
           .beta = 0.5,
           .trans_b = true});
  expect(!wrong.ok, "a wrong factor is found");

  // [validate-attention]
  // Attention likewise: a kernel that masks by the lower
  // right corner, with fewer queries than keys, by heads
  // that share keys. max_difference is in units of out.
  auto const attention = [](auto const& on, auto const& q,
                            auto const& k, auto const& v,
                            auto const& out,
                            auto const& lse) {
    attikos::attention(on, q, k, v, out, lse,
                       {.causal = true});
  };
  attikos::testing::AttentionProblem const problem{
      .heads_q = 4,
      .heads_kv = 2,
      .seqlen_q = 20,
      .seqlen_kv = 33,
      .head_dim = 16};
  attikos::testing::AttentionValidation options;
  options.causal = true;
  auto const result =
      attikos::testing::validate_attention<float>(
          exec, attention, problem, options);
  std::printf("%g of its bound\n", result.worst_ratio);
  // [validate-attention]
  expect(result.ok, "attention is within its bound");
  options.top_left = true;
  expect(!attikos::testing::validate_attention<float>(
              exec, attention, problem, options)
              .ok,
         "a mask by another corner is found");
}

void bounds(Space const& exec) {
  constexpr int n = 1000;
  auto const x = random<Matrix>(20, n);
  Kokkos::View<attikos::bfloat16*> sums("sums", 20);
  Kokkos::parallel_for(
      Kokkos::TeamPolicy<Space>(exec, 20, Kokkos::AUTO),
      KOKKOS_LAMBDA(
          Kokkos::TeamPolicy<Space>::member_type const&
              t) {
        int const i = t.league_rank();
        float sum = 0;
        Kokkos::parallel_reduce(
            Kokkos::TeamThreadRange(t, n),
            [&](int j, float& part) { part += x(i, j); },
            sum);
        Kokkos::single(Kokkos::PerTeam(t), [&] {
          sums(i) = static_cast<attikos::bfloat16>(sum);
        });
      });
  auto const found = on_host(sums);
  auto const host = on_host(x);
  // [own-bound]
  // A bound for an operation that has none: sums of n
  // numbers in float, in any order, rounded to bfloat16.
  using namespace attikos::testing;
  Precision const in_float = precision<float>();
  for (int i = 0; i < 20; ++i) {
    double sum = 0, size = 0;
    for (int j = 0; j < n; ++j) {
      sum += host(i, j);
      size += std::abs(host(i, j));
    }
    double const error = oracle_factor<float>() *
                         growth(n) * in_float.roundoff *
                         size;
    double const bound =
        error + rounding<attikos::bfloat16>(
                    std::abs(sum) + error);
    expect(std::abs(float(found(i)) - sum) <= bound,
           "a sum is within its bound");
  }
  // [own-bound]
}

void timing(Space const& exec) {
  auto const a = random<Matrix>(64, 64),
             b = random<Matrix>(64, 64);
  Matrix c("c", 64, 64);
  // [timing]
  // Cases of one problem are compared with its first one.
  // A repetition fences before and after its calls: take
  // several calls where one is shorter than a fence.
  attikos::perf::RunnerOptions const options{
      .warmup = 1, .repetitions = 5, .calls = 10};
  auto bench = attikos::perf::runner(exec, options);
  attikos::perf::Case what{
      .problem = "gemm m64 n64 k64",
      .name = "float",
      .flop = 2.0 * 64 * 64 * 64,
      .bytes = 3.0 * 64 * 64 * sizeof(float)};
  bench.run(what, [&] { attikos::gemm(exec, a, b, c); });
  what.name = "transposed";
  attikos::perf::Measurement const second =
      bench.run(what, [&] {
        attikos::gemm(exec, a, b, c, {.trans_b = true});
      });
  std::printf("%s", bench.table().c_str());
  // [timing]
  expect(second.ok(), "the second case was measured");
  expect(second.seconds.size() == 5, "five repetitions");

  // [measurement]
  // What a measurement holds: a time for each repetition,
  // rates where the case told what a call does, the
  // memory that was allocated on the way.
  using namespace attikos::perf;
  double const slow = second.quantile_seconds(0.9);
  double const rate = *second.tflops();
  double const ratio =
      *speedup(bench.measurements(), second);
  std::printf("%.3g s, %.3g Tflop/s, %.2f, %lld bytes\n",
              slow, rate, ratio,
              (long long)second.peak_bytes.value_or(0));
  // [measurement]
  expect(slow >= second.median_seconds(), "a quantile");
  expect_near(
      rate,
      2e-12 * 64 * 64 * 64 / second.median_seconds(),
      1e-9, "a rate");
  double const first =
      bench.measurements().front().median_seconds();
  expect_near(ratio, first / second.median_seconds(),
              1e-9, "a speedup");
  expect(median({4, 1, 3}) == 3, "a median");
  // [quantile]
  // Of times that come from elsewhere.
  std::vector<double> const times{4e-3, 1e-3, 3e-3, 2e-3};
  double const half = median(times);
  double const most = quantile(times, 0.75);
  // [quantile]
  expect_near(half, 2.5e-3, 1e-12, "half of the times");
  expect_near(most, 3.25e-3, 1e-12, "three quarters");

  // [reports]
  // All measurements, or some, for people and programs. A
  // context says of what machine and of what day they
  // are.
  Context context = bench.context();
  context.emplace_back("purpose", "an example");
  std::vector<Measurement> const some{second};
  std::string const json = to_json(some, context);
  std::string const csv = to_csv(bench.measurements());
  std::string const table = to_table(some);
  // [reports]
  expect(json.find("\"purpose\": \"an example\"") !=
             std::string::npos,
         "the context");
  expect(std::count(csv.begin(), csv.end(), '\n') == 3,
         "a header and two lines");
  expect(table.find("transposed") != std::string::npos,
         "a line of the table");

  // [fields]
  // Single fields, for formats of one's own: quoted where
  // that is wanted, numbers so that they read back as
  // they were, null for what is none.
  std::string const line = json_string(second.what.name) +
                           ": " +
                           json_number(second.what.flop);
  std::string const fields =
      csv_field("gemm, float") + ',' + json_number(0.1);
  // [fields]
  expect(line == "\"transposed\": 524288", line.c_str());
  expect(fields == "\"gemm, float\",0.1", fields.c_str());
}

void memory() {
  // [memory]
  // The most memory that Kokkos had at once in a space
  // while some code ran, beside what was there before.
  using Memory = Space::memory_space;
  attikos::perf::MemoryPeak<Memory> const peak;
  {
    Vector const first("first", 1000);
    Vector const second("second", 500);
  }
  Vector const third("third", 100);
  std::int64_t const bytes = peak.bytes();
  // [memory]
  expect(bytes >= 6000 && bytes < 7000,
         "the bytes of two Views at once");
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  validate(exec);
  bounds(exec);
  timing(exec);
  memory();
  std::printf("all parts ran\n");
}
