// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one main of all performance programs.
#include <benchmark/benchmark.h>

#include <attikos/config.hpp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <support/report.hpp>
#include <support/settings.hpp>
#include <support/text.hpp>

namespace attikos::measure {
namespace {

constexpr char const* usage =
    "usage: %s [options]\n"
    "  --peers=LIST   peers to time beside ours: all (default), none, or names with commas "
    "between\n"
    "  --rounds=N     how often ours and the peers take turns (default 7)\n"
    "  --benchmark_filter=REGEX, --benchmark_out=FILE and the other options of Google Benchmark\n"
    "  --kokkos-num-threads=N and the other options of Kokkos\n";

/// The value if `argument` is `--name=value` or, with the value behind it, `--name value`.
bool take_option(int argc, char** argv, int& i, char const* name, std::string& value) {
  std::size_t const length = std::strlen(name);
  if (std::strncmp(argv[i], name, length) != 0) return false;
  if (argv[i][length] == '=') {
    value = argv[i] + length + 1;
    return true;
  }
  if (argv[i][length] != '\0' || i + 1 == argc) return false;
  value = argv[++i];
  return true;
}

std::vector<std::string> split(std::string const& list) {
  std::vector<std::string> parts;
  std::istringstream stream(list);
  for (std::string part; std::getline(stream, part, ',');)
    if (!part.empty()) parts.push_back(part);
  return parts;
}

/// Takes our options out of the command line. Returns false where one has a wrong value.
bool parse(int& argc, char** argv, Settings& settings) {
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    std::string value;
    if (take_option(argc, argv, i, "--peers", value)) {
      if (value == "all")
        settings.peers = {"*"};
      else if (value == "none")
        settings.peers.clear();
      else
        settings.peers = split(value);
    } else if (take_option(argc, argv, i, "--rounds", value)) {
      char* end = nullptr;
      long const rounds = std::strtol(value.c_str(), &end, 10);
      if (*end != '\0' || rounds < 1 || rounds > 100000) {
        std::fprintf(stderr, "--rounds is \"%s\"; expected a number from 1 to 100000\n",
                     value.c_str());
        return false;
      }
      settings.rounds = static_cast<int>(rounds);
    } else {
      if (std::strcmp(argv[i], "--help") == 0) std::printf(usage, argv[0]);
      argv[kept++] = argv[i];
    }
  }
  argc = kept;
  argv[argc] = nullptr;
  return true;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    auto const colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos)
      return line.substr(colon + 2);
  }
  return "unknown processor";
}

std::string dotted(int major, int minor, int patch) { return text(major, ".", minor, ".", patch); }

std::string compiler_name() {
#if defined(__clang__)
  return text("Clang ", dotted(__clang_major__, __clang_minor__, __clang_patchlevel__));
#elif defined(__GNUC__)
  return text("GCC ", dotted(__GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__));
#else
  return "unknown";
#endif
}

#if defined(KOKKOS_ENABLE_CUDA)
/// Of the kernel's module; "unknown" where it does not say.
std::string driver_version() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string word;
  while (file >> word)
    if (word.find_first_not_of("0123456789.") == std::string::npos && word.find('.') != word.npos)
      return word;
  return "unknown";
}
#endif

void add_context(Settings const& settings) {
  Exec const exec;
  auto const add = [](char const* key, std::string const& value) {
    benchmark::AddCustomContext(key, value);
  };
  add("attikos", ATTIKOS_VERSION_STRING);
  if (char const* commit = std::getenv("ATTIKOS_COMMIT")) add("attikos_commit", commit);
  add("kokkos", dotted(KOKKOS_VERSION / 10000, KOKKOS_VERSION / 100 % 100, KOKKOS_VERSION % 100));
  add("execution_space", Exec::name());
  add("compiler", compiler_name());
  add("rounds", std::to_string(settings.rounds));
#if defined(KOKKOS_ENABLE_CUDA)
  auto const& device = exec.cuda_device_prop();
  int driver = 0;
  static_cast<void>(cudaDriverGetVersion(&driver));
  auto const attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    static_cast<void>(cudaDeviceGetAttribute(&value, which, exec.cuda_device()));
    return value;
  };
  add("device", text(device.name, ", sm_", device.major * 10 + device.minor));
  add("cuda_driver", driver_version());
  add("cuda_driver_api", std::to_string(driver));
  add("max_sm_clock_mhz", std::to_string(attribute(cudaDevAttrClockRate) / 1000));
  add("max_memory_clock_mhz", std::to_string(attribute(cudaDevAttrMemoryClockRate) / 1000));
  add("cuda_runtime", std::to_string(CUDART_VERSION));
  add("cuda_compiler", dotted(__CUDACC_VER_MAJOR__, __CUDACC_VER_MINOR__, __CUDACC_VER_BUILD__));
  add("host", processor_name());
#else
  add("device", text(processor_name(), ", ", exec.concurrency(), " threads"));
#endif
}

bool writes_file(int argc, char** argv) {
  for (int i = 1; i < argc; ++i)
    if (std::strncmp(argv[i], "--benchmark_out=", 16) == 0) return true;
  return false;
}

}  // namespace
}  // namespace attikos::measure

int main(int argc, char** argv) {
  using namespace attikos::measure;
  Settings settings;
  if (!parse(argc, argv, settings)) return 1;
  bool const file = writes_file(argc, argv);
  // Unbound is the default of OpenMP already; saying so keeps Kokkos from warning. Binding our
  // threads would slow a peer with a thread pool of its own (OpenBLAS by 15 % on two cores).
  setenv("OMP_PROC_BIND", "false", 0);
  Kokkos::ScopeGuard const guard(argc, argv);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  add_context(settings);
  register_cases(settings);
  TableReporter table;
  JsonReporter json;
  benchmark::RunSpecifiedBenchmarks(&table, file ? &json : nullptr);
  benchmark::Shutdown();
  return table.failed() ? 1 : 0;
}
