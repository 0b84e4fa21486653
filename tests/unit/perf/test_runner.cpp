// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// perf::runner: its statistics, its formats with their escape rules, and what it does with a
// callable.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <attikos/perf/runner.hpp>
#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>
#include <thread>

#include "support/messages.hpp"

namespace attikos::runner_test {
namespace {

using namespace attikos::perf;
using Exec = Kokkos::DefaultExecutionSpace;

TEST(Quantile, InterpolatesBetweenOrderStatistics) {
  EXPECT_EQ(quantile({7}, 0), 7);
  EXPECT_EQ(quantile({7}, 0.3), 7);
  EXPECT_EQ(quantile({7}, 1), 7);
  EXPECT_EQ(quantile({3, 1}, 0.5), 2);
  EXPECT_EQ(quantile({3, 1}, 0.25), 1.5);
  EXPECT_EQ(quantile({5, 1, 4, 2, 3}, 0.5), 3);
  EXPECT_EQ(quantile({5, 1, 4, 2, 3, 6}, 0.2), 2);
  EXPECT_EQ(quantile({5, 1, 4, 2, 3, 6}, 0.8), 5);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 4}, 0.2), 1.6);
  EXPECT_DOUBLE_EQ(quantile({1, 2, 3, 4}, 0.8), 3.4);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  // At the ends nothing is read past them.
  EXPECT_EQ(quantile({2, 9, 4}, 0), 2);
  EXPECT_EQ(quantile({2, 9, 4}, 1), 9);
  double const infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(quantile({1, infinity}, 0), 1);
  EXPECT_EQ(quantile({1, 2, infinity}, 0.5), 2);
  EXPECT_EQ(quantile({infinity, infinity}, 0.5), infinity);
}

TEST(Quantile, RefusesWhatHasNoAnswer) {
  test::expect_error<Error>([] { quantile({}, 0.5); },
                            {"attikos::perf::quantile: there are no values"});
  test::expect_error<Error>([] { quantile({1}, 1.5); }, {"share is 1.5; expected 0 to 1"});
  test::expect_error<Error>([] { quantile({1}, -0.1); }, {"share is -0.1; expected 0 to 1"});
  test::expect_error<Error>([] { quantile({1}, std::nan("")); }, {"share is nan"});
  test::expect_error<Error>([] { quantile({1, std::nan("")}, 0.5); }, {"a value is NaN"});
}

/// Six times whose quantiles at 0.2, 0.5 and 0.8 are these very numbers: between two order
/// statistics the last digit would depend on whether the compiler contracts the interpolation.
std::vector<double> six(double low, double middle, double high) {
  return {middle, low, high, low, high, middle};
}

/// Two cases of one problem, one of another, one that failed.
std::vector<Measurement> examples() {
  Measurement first{{"gemm", "portable", 2e9, 0}, six(0.0014, 0.002, 0.0026), 3 << 20, ""};
  Measurement second{{"gemm", "fast, \"new\"", 2e9, 1e6}, {0.0005}, 0, ""};
  Measurement third{{"norm", "portable", 0, 0}, six(0.3, 0.375, 0.45), {}, ""};
  Measurement failed{{"norm", "other", 0, 0}, {}, 12, "no\nmemory"};
  return {first, second, third, failed};
}

TEST(Measurements, RatesAndSpeedups) {
  auto const all = examples();
  EXPECT_EQ(all[0].median_seconds(), 0.002);
  EXPECT_DOUBLE_EQ(*all[0].tflops(), 1);
  EXPECT_FALSE(all[0].gigabytes_per_second());
  EXPECT_DOUBLE_EQ(*all[1].tflops(), 4);
  EXPECT_DOUBLE_EQ(*all[1].gigabytes_per_second(), 2);
  EXPECT_FALSE(all[2].tflops());
  EXPECT_FALSE(all[3].ok());
  EXPECT_FALSE(all[3].tflops());
  EXPECT_EQ(*speedup(all, all[0]), 1);
  EXPECT_EQ(*speedup(all, all[1]), 4);
  EXPECT_EQ(*speedup(all, all[2]), 1);
  EXPECT_FALSE(speedup(all, all[3]));
  EXPECT_FALSE(speedup({}, all[0]));
}

TEST(Reports, Table) {
  EXPECT_EQ(
      to_table(examples()),
      "problem  name         median ms       p20       p80  TFLOP/s  GB/s  peak MiB  speedup\n"
      "gemm     portable        2.0000    1.4000    2.6000    1.000     -      3.00    x1.00\n"
      "gemm     fast, \"new\"     0.5000    0.5000    0.5000    4.000  2.00      0.00    "
      "x4.00\n"
      "norm     portable      375.0000  300.0000  450.0000        -     -         -    "
      "x1.00\n"
      "norm     other        FAILED: no memory\n");
  EXPECT_EQ(to_table({}), "problem  name  median ms  p20  p80  TFLOP/s  GB/s  peak MiB  speedup\n");
  // Columns count characters, not bytes.
  auto const table = to_table({Measurement{{"größe", "x", 0, 0}, {1}, {}, ""}});
  EXPECT_NE(table.find("größe    x "), std::string::npos) << table;
}

TEST(Reports, Csv) {
  EXPECT_EQ(to_csv(examples()),
            "problem,name,repetitions,median_seconds,p20_seconds,p80_seconds,tflops,"
            "gigabytes_per_second,peak_bytes,speedup,error\n"
            "gemm,portable,6,0.002,0.0014,0.0026,1,,3145728,1,\n"
            "gemm,\"fast, \"\"new\"\"\",1,5e-04,5e-04,5e-04,4,2,0,4,\n"
            "norm,portable,6,0.375,0.3,0.45,,,,1,\n"
            "norm,other,0,,,,,,12,,\"no\nmemory\"\n");
}

TEST(Reports, Json) {
  EXPECT_EQ(to_json({}), "{\n  \"context\": {},\n  \"measurements\": []\n}\n");
  auto all = examples();
  all.erase(all.begin() + 2);
  EXPECT_EQ(to_json(all, {{"device", "a \"b\""}, {"threads", "2"}}),
            R"({
  "context": {
    "device": "a \"b\"",
    "threads": "2"
  },
  "measurements": [
    {"problem": "gemm", "name": "portable",
     "median_seconds": 0.002, "p20_seconds": 0.0014, "p80_seconds": 0.0026,
     "tflops": 1, "gigabytes_per_second": null, "peak_bytes": 3145728, "speedup": 1,
     "error": null,
     "seconds": [0.002, 0.0014, 0.0026, 0.0014, 0.0026, 0.002]},
    {"problem": "gemm", "name": "fast, \"new\"",
     "median_seconds": 5e-04, "p20_seconds": 5e-04, "p80_seconds": 5e-04,
     "tflops": 4, "gigabytes_per_second": 2, "peak_bytes": 0, "speedup": 4,
     "error": null,
     "seconds": [5e-04]},
    {"problem": "norm", "name": "other",
     "median_seconds": null, "p20_seconds": null, "p80_seconds": null,
     "tflops": null, "gigabytes_per_second": null, "peak_bytes": 12, "speedup": null,
     "error": "no\nmemory",
     "seconds": []}
  ]
}
)");
}

TEST(Escapes, OfJsonStrings) {
  EXPECT_EQ(json_string(""), "\"\"");
  EXPECT_EQ(json_string("plain/text"), "\"plain/text\"");
  EXPECT_EQ(json_string("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_string("\n\t\r\b\x1f\x7f"), R"("\n\t\r\u0008\u001f\u007f")");
  EXPECT_EQ(json_string(std::string_view("\0x", 2)), R"("\u0000x")");
  // UTF-8 passes: 2, 3 and 4 bytes, and the first and last of each.
  for (char const* text : {"ü", "€", "😀", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
                           "\xEE\x80\x80", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_EQ(json_string(text), '"' + std::string(text) + '"');
  // A stray byte, an overlong form, a surrogate, past the last code point, cut short.
  std::string const bad = "\xEF\xBF\xBD";
  EXPECT_EQ(json_string("a\x80z"), "\"a" + bad + "z\"");
  EXPECT_EQ(json_string("\xC0\xAF"), "\"" + bad + bad + "\"");
  EXPECT_EQ(json_string("\xE0\x9F\xBF"), "\"" + bad + bad + bad + "\"");
  EXPECT_EQ(json_string("\xF0\x8F\xBF\xBF"), "\"" + bad + bad + bad + bad + "\"");
  EXPECT_EQ(json_string("\xED\xA0\x80"), "\"" + bad + bad + bad + "\"");
  EXPECT_EQ(json_string("\xF4\x90\x80\x80"), "\"" + bad + bad + bad + bad + "\"");
  EXPECT_EQ(json_string("\xE2\x82"), "\"" + bad + bad + "\"");
  EXPECT_EQ(json_string("\xC3\""), "\"" + bad + "\\\"\"");
}

TEST(Escapes, OfNumbers) {
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(-3), "-3");
  EXPECT_EQ(json_number(1e300), "1e+300");
  EXPECT_EQ(json_number(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(json_number(std::nan("")), "null");
}

TEST(Escapes, OfCsvFields) {
  EXPECT_EQ(csv_field(""), "");
  EXPECT_EQ(csv_field("plain text"), "plain text");
  EXPECT_EQ(csv_field("a,b"), "\"a,b\"");
  EXPECT_EQ(csv_field("say \"a\""), "\"say \"\"a\"\"\"");
  EXPECT_EQ(csv_field("a\r\nb"), "\"a\r\nb\"");
  EXPECT_EQ(csv_field(" a"), "\" a\"");
  EXPECT_EQ(csv_field("a "), "\"a \"");
}

TEST(Runner, CallsAsOftenAsAsked) {
  int calls = 0;
  auto bench = runner(Exec(), {.warmup = 2, .repetitions = 5, .calls = 3});
  auto const m = bench.run({.problem = "p", .name = "n", .flop = 1}, [&] { ++calls; });
  EXPECT_EQ(calls, 2 + 5 * 3);
  EXPECT_EQ(m.seconds.size(), 5u);
  EXPECT_TRUE(m.ok());
  for (double s : m.seconds) EXPECT_GE(s, 0);
  bench.run({.problem = "p", .name = "with exec"}, [&](Exec const&) { ++calls; });
  EXPECT_EQ(calls, 2 * 17);
  EXPECT_EQ(bench.measurements().size(), 2u);
}

TEST(Runner, TimesOneCall) {
  auto bench = runner({.warmup = 0, .repetitions = 1, .calls = 20});
  auto const pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(5)); };
  auto const m = bench.run({.problem = "pause"}, pause);
  EXPECT_GE(m.median_seconds(), 0.005);
  EXPECT_LT(m.median_seconds(), 0.1);  // of one call, not of all twenty
  EXPECT_FALSE(m.peak_bytes);          // without warm-up memory is not observed
}

TEST(Runner, AFailingCaseIsKeptAndTheNextGoesOn) {
  auto bench = runner();
  int calls = 0;
  auto const failed = bench.run({.problem = "p", .name = "bad"}, [&] {
    if (++calls == 5) throw std::runtime_error("broke");
  });
  EXPECT_FALSE(failed.ok());
  EXPECT_EQ(failed.error, "broke");
  EXPECT_TRUE(failed.seconds.empty());
  bench.run({.problem = "p", .name = "good"}, [] {});
  EXPECT_TRUE(bench.measurements()[1].ok());
  EXPECT_NE(bench.table().find("FAILED: broke"), std::string::npos);
  EXPECT_NE(bench.csv().find("broke"), std::string::npos);
  EXPECT_NE(bench.json().find("\"error\": \"broke\""), std::string::npos);
  EXPECT_NE(bench.json().find(std::string("\"execution_space\": \"") + Exec::name() + "\""),
            std::string::npos);
}

TEST(Runner, PeakOfMemory) {
  using View = Kokkos::View<char*, Exec::memory_space>;
  constexpr std::size_t megabyte = 1 << 20;
  View const outside("outside", 5 * megabyte);  // alive before
  int heard = 0;
  static int* counter;
  counter = &heard;
  auto const before = Kokkos::Tools::Experimental::get_callbacks();
  Kokkos::Tools::Experimental::set_allocate_data_callback(
      [](Kokkos::Tools::SpaceHandle, char const*, void const*, std::uint64_t) { ++*counter; });
  auto bench = runner({.warmup = 2, .repetitions = 1});
  auto const m = bench.run({.problem = "memory"}, [] {
    { View const a("a", 3 * megabyte); }
    View const b("b", megabyte);
    View const c("c", megabyte / 2);
  });
  Kokkos::Tools::Experimental::set_callbacks(before);
  ASSERT_TRUE(m.peak_bytes);
  // Kokkos adds a header of its own to every allocation.
  EXPECT_GE(*m.peak_bytes, static_cast<std::int64_t>(3 * megabyte));
  EXPECT_LT(*m.peak_bytes, static_cast<std::int64_t>(3 * megabyte + 4096));
  EXPECT_GE(heard, 9) << "who listened before must go on hearing";
  auto const none = bench.run({.problem = "none"}, [] {});
  EXPECT_EQ(none.peak_bytes, 0);
}

TEST(Runner, RefusesWrongCounts) {
  test::expect_error<Error>([] { runner({.repetitions = 0}); },
                            {"attikos::perf::runner: repetitions is 0; expected 1 or more"});
  test::expect_error<Error>([] { runner({.warmup = -1}); }, {"warmup is -1; expected 0 or more"});
  test::expect_error<Error>([] { runner({.calls = 0}); }, {"calls is 0; expected 1 or more"});
}

}  // namespace
}  // namespace attikos::runner_test
