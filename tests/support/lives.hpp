// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lives of instances, threads and processes, in the orders that programs have them: each is a
// process of its own, which a program starts as itself with the life's name. It has to end as
// usual, in time and without a word.
#pragma once

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

extern char** environ;

namespace attikos::test {

struct Life {
  char const* name;
  void (*run)();
};
#define LIFE(name) \
  { #name, name }

[[noreturn]] inline void fail(char const* what, char const* why = "") {
  std::printf("does not hold: %s (%s)\n", what, why);
  std::fflush(stdout);
  _exit(1);
}

inline void in_threads(int count, std::function<void(int)> const& run) {
  std::vector<std::thread> threads;
  for (int t = 0; t < count; ++t) threads.emplace_back([&run, t] { run(t); });
  for (auto& thread : threads) thread.join();
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ATTIKOS_LIVES_KEEP_WHAT_IS_FREED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ATTIKOS_LIVES_KEEP_WHAT_IS_FREED 1
#endif
#endif

/// Kilobytes of memory that the process has; 0 under sanitizers, which keep what is freed for a
/// while and find leaks by themselves.
inline long resident() {
#if defined(ATTIKOS_LIVES_KEEP_WHAT_IS_FREED)
  return 0;
#else
  long pages = 0;
  if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(file, "%*d %ld", &pages) != 1) pages = 0;
    std::fclose(file);
  }
  return pages * 4;
#endif
}

inline bool ends_well(pid_t child, int& status) {
  status = -1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
inline void expect_end(pid_t child) {
  int status = -1;
  if (!ends_well(child, status)) fail("another process ends well");
}

/// Runs in a forked process, which ends by `end`.
template <class F>
void in_child(F const& run, void (*end)(int) = _exit) {
  pid_t const child = fork();
  if (child < 0) fail("a process can be forked");
  if (child == 0) {
    alarm(60);
    run();
    end(0);
  }
  expect_end(child);
}

/// This program once more, for one life; what that says goes into the file, if there is one.
inline pid_t start(char const* life, std::FILE* said = nullptr) {
  char program[] = "/proc/self/exe";
  std::string name = life;
  char* const arguments[] = {program, name.data(), nullptr};
  posix_spawn_file_actions_t actions;
  if (posix_spawn_file_actions_init(&actions) != 0) return -1;
  if (said != nullptr)
    for (int const output : {STDOUT_FILENO, STDERR_FILENO})
      posix_spawn_file_actions_adddup2(&actions, fileno(said), output);
  pid_t child = -1;
  int const error = posix_spawn(&child, program, &actions, nullptr, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  return error == 0 ? child : -1;
}

// What a sanitizer leaves to see of chance: ThreadSanitizer sees races that did not happen, and the
// tool by which OpenMP tells it of its threads (Archer 14) ends a forked child.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ATTIKOS_UNDER_TSAN
#endif
#endif
#if defined(ATTIKOS_UNDER_TSAN)
constexpr bool is_left_to_chance = false;
#else
constexpr bool is_left_to_chance = true;
#endif

/// A life that says so and ends like this is left out where it runs.
constexpr int skipped = 77;
[[noreturn]] inline void skip(char const* why) {
  std::printf("  %s\n", why);
  std::fflush(stdout);
  _exit(skipped);
}

/// For main(). Without a name: all lives, those under load as often as `chances` says. With one:
/// that life.
template <std::size_t Count>
int run_lives(int argc, char** argv, Life const (&lives)[Count], int chances = 5) {
  if (argc > 1) {
    for (auto const& life : lives)
      if (std::strcmp(life.name, argv[1]) == 0) {
        alarm(60);  // instead of hanging
        life.run();
        return 0;
      }
    std::printf("no life is called %s\n", argv[1]);
    return 1;
  }
  // What is left at the end is what lives are about.
  char const* const sanitizer = std::getenv("ASAN_OPTIONS");
  std::string const options =
      (sanitizer == nullptr ? "" : std::string(sanitizer) + ":") + "detect_leaks=0";
  setenv("ASAN_OPTIONS", options.c_str(), 1);
  int failures = 0;
  for (auto const& life : lives) {
    if (!is_left_to_chance && std::strstr(life.name, "fork") != nullptr) continue;
    bool const again = is_left_to_chance && std::strstr(life.name, "load") != nullptr;
    for (int time = 0; time < (again ? chances : 1); ++time) {
      auto const begin = std::chrono::steady_clock::now();
      int status = -1;
      std::FILE* const said = std::tmpfile();
      pid_t const child = said != nullptr ? start(life.name, said) : -1;
      if (child < 0) return 1;
      bool good = ends_well(child, status);
      double const seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      std::string words;
      std::rewind(said);
      for (int c = std::fgetc(said); c != EOF; c = std::fgetc(said)) words += static_cast<char>(c);
      std::fclose(said);
      bool const left_out = WIFEXITED(status) && WEXITSTATUS(status) == skipped;
      good = left_out || (good && words.empty());
      std::printf("%-40s %s %.2f s", life.name,
                  left_out ? "skipped"
                  : good   ? "ok"
                           : "FAILED",
                  seconds);
      if (WIFSIGNALED(status)) std::printf(", signal %d", WTERMSIG(status));
      std::printf("\n%s", words.c_str());
      std::fflush(stdout);
      failures += good ? 0 : 1;
    }
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace attikos::test
