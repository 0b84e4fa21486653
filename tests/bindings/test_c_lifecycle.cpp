// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lives of contexts, threads and processes, in the orders that programs have them: each is a
// process of its own, which this program starts as itself with the life's name. It has to end as
// usual, in time and without a word.
#include <attikos/attikos.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "../support/lives.hpp"

namespace {

using namespace attikos::test;

/// An operand of ones and its product with itself.
template <int N>
struct Product {
  std::vector<float> a = std::vector<float>(N * N, 1.0f), c = std::vector<float>(N * N);

  attikos_status run(attikos_context* context) {
    std::int64_t const shape[2] = {N, N};
    attikos_tensor const in = {a.data(), ATTIKOS_FLOAT32, 2, shape, nullptr},
                         out = {c.data(), ATTIKOS_FLOAT32, 2, shape, nullptr};
    c.assign(c.size(), -1.0f);
    attikos_status const status = attikos_gemm(context, &in, &in, &out, nullptr);
    return status == ATTIKOS_SUCCESS ? attikos_synchronize(context) : status;
  }
  bool is(float value) const {
    for (float const x : c)
      if (x != value) return false;
    return true;
  }
  bool works(attikos_context* context) { return run(context) == ATTIKOS_SUCCESS && is(N); }
};
using Small = Product<16>;
using Large = Product<160>;

#define REQUIRE(condition) \
  if (!(condition)) fail(#condition, attikos_last_error())

std::int32_t const kinds[] = {ATTIKOS_HOST, ATTIKOS_SERIAL};
char streams[10000];  // addresses

attikos_context* make(std::int32_t kind = ATTIKOS_HOST, void* stream = nullptr) {
  if (!attikos_has_device(kind, 0)) kind = ATTIKOS_HOST;
  attikos_context* context = nullptr;
  REQUIRE(attikos_context_create(kind, 0, stream, &context) == ATTIKOS_SUCCESS);
  return context;
}

// --- contexts and threads
// -------------------------------------------------------------------------

void thousands_of_streams() {
  auto const some = [](int from, int to) {
    in_threads(4, [=](int t) {
      Small product;
      for (int i = from + t; i < to; i += 4) {
        attikos_context* const context = make(ATTIKOS_SERIAL, streams + i);
        if (i % 64 == t) REQUIRE(product.works(context));
        attikos_context_destroy(context);
      }
    });
  };
  some(0, 1000);
  long const before = resident();
  some(1000, 9000);
  REQUIRE(resident() - before < 20000);  // 2.5 kB a stream would be that much
}

void contexts_of_threads_that_end() {
  for (auto const kind : kinds) {
    attikos_context* made[8] = {};
    in_threads(8, [&](int t) {
      made[t] = make(kind, streams + t);
      REQUIRE(Small().works(made[t]));
    });
    for (auto* const context : made) REQUIRE(Small().works(context));
    for (int round = 0; round < 30; ++round)
      in_threads(1, [&](int) { REQUIRE(Large().works(made[round % 8])); });
    for (auto* const context : made) in_threads(1, [&](int) { attikos_context_destroy(context); });
  }
}

void messages_of_threads() {
  REQUIRE(attikos_synchronize(nullptr) == ATTIKOS_NULL_ARGUMENT);
  std::string const mine = attikos_last_error();
  in_threads(4, [&](int) {
    REQUIRE(std::string(attikos_last_error()).empty());
    REQUIRE(attikos_context_create(77, 0, nullptr, nullptr) == ATTIKOS_NULL_ARGUMENT);
    REQUIRE(attikos_last_error() != mine);
  });
  REQUIRE(attikos_last_error() == mine);
}

/// Threads that call on contexts of their own until the process ends; calls may be refused then.
void work_forever(int count) {
  static std::atomic<int> busy{0};
  for (int t = 0; t < count; ++t)
    std::thread([t] {
      attikos_context* const context = make(ATTIKOS_SERIAL, streams + t);
      Large product;
      bool counted = false;
      for (;;) {
        attikos_status const status = product.run(context);
        if (status == ATTIKOS_SUCCESS && !product.is(160)) fail("a result is right");
        if (status != ATTIKOS_SUCCESS && status != ATTIKOS_DEVICE_ERROR)
          fail("a refusal at the end");
        if (!counted) ++busy, counted = true;
      }
    }).detach();
  while (busy < count) std::this_thread::yield();
}

// --- ends
// -----------------------------------------------------------------------------------------

void exit_with_contexts() {
  for (auto const kind : kinds) REQUIRE(Small().works(make(kind)));
}
void exit_under_load() {
  make();
  work_forever(4);
}
void exit_of_a_thread_under_load() {
  make();
  work_forever(3);
  std::thread([] { std::exit(0); }).join();
}
void exit_at_once_under_load() {
  make();
  work_forever(3);
  _exit(0);
}

attikos_context* global = nullptr;
void expect_refusal() {
  REQUIRE(Small().run(global) == ATTIKOS_DEVICE_ERROR);
  attikos_context* other = nullptr;
  REQUIRE(attikos_context_create(ATTIKOS_HOST, 0, nullptr, &other) == ATTIKOS_DEVICE_ERROR);
  REQUIRE(other == nullptr);
  attikos_context_destroy(global);
}
void handler_before_the_library() {
  REQUIRE(std::atexit(expect_refusal) == 0);  // runs last
  global = make();
  REQUIRE(Small().works(global));
}
void handler_behind_the_library() {
  global = make();
  REQUIRE(Small().works(global));
  REQUIRE(std::atexit([] {
            REQUIRE(Small().works(global));
            attikos_context_destroy(global);
          }) == 0);
}
void context_made_by_a_handler() {
  REQUIRE(std::atexit([] {
            attikos_context* const context = make();
            REQUIRE(Small().works(context));
            attikos_context_destroy(context);
          }) == 0);
}
struct Owner {
  attikos_context* context = nullptr;
  ~Owner() { attikos_context_destroy(context); }
};
void context_of_a_static_object() {
  static Owner owner;
  owner.context = make();
  REQUIRE(Small().works(owner.context));
}
void context_of_a_thread_local_object() {
  in_threads(4, [](int t) {
    thread_local Owner owner;
    owner.context = make(ATTIKOS_SERIAL, streams + t);
    REQUIRE(Small().works(owner.context));
  });
}

// --- processes
// ------------------------------------------------------------------------------------

void forks_under_load() {
  attikos_context* const context = make();
  work_forever(3);
  for (int i = 0; i < 8; ++i) {
    auto const compute = [&] {
      REQUIRE(Small().works(context));
      attikos_context* const own = make(ATTIKOS_SERIAL, streams + 100 + i);
      REQUIRE(Small().works(own));
      attikos_context_destroy(own);
    };
    in_child(compute, i % 2 == 0 ? std::exit : _exit);
  }
}
void spawns_under_load() {
  make();
  work_forever(3);
  for (int i = 0; i < 3; ++i) expect_end(start("exit_with_contexts"));
}

/// The library by name, opened and closed again; what is left of it must not be called at the end.
void library_that_is_closed() {
  Dl_info info{};
  REQUIRE(dladdr(reinterpret_cast<void*>(&attikos_version), &info) != 0);
  for (int i = 0; i < 3; ++i) {
    void* const library = dlopen(info.dli_fname, RTLD_NOW | RTLD_LOCAL);
    REQUIRE(library != nullptr);
    REQUIRE(Small().works(make()));
    REQUIRE(dlclose(library) == 0);
  }
}

/// Another OpenMP run time beside the library's, where there is one.
void second_openmp() {
  make();
  for (char const* const name : {"libomp.so.5", "libgomp.so.1"}) {
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    auto const threads = reinterpret_cast<int (*)()>(dlsym(library, "omp_get_max_threads"));
    auto const set = reinterpret_cast<void (*)(int)>(dlsym(library, "omp_set_num_threads"));
    REQUIRE(threads != nullptr && set != nullptr);
    set(3);
    REQUIRE(threads() == 3);
    REQUIRE(Large().works(make()));
  }
}

Life const lives[] = {LIFE(thousands_of_streams),
                      LIFE(contexts_of_threads_that_end),
                      LIFE(messages_of_threads),
                      LIFE(exit_with_contexts),
                      LIFE(exit_under_load),
                      LIFE(exit_of_a_thread_under_load),
                      LIFE(exit_at_once_under_load),
                      LIFE(handler_before_the_library),
                      LIFE(handler_behind_the_library),
                      LIFE(context_made_by_a_handler),
                      LIFE(context_of_a_static_object),
                      LIFE(context_of_a_thread_local_object),
                      LIFE(forks_under_load),
                      LIFE(spawns_under_load),
                      LIFE(library_that_is_closed),
                      LIFE(second_openmp)};

}  // namespace

int main(int argc, char** argv) { return run_lives(argc, argv, lives); }
