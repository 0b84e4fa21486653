// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lives of contexts, threads and processes, in the orders that programs have them: each is a
// process of its own, which this program starts as itself with the life's name. It has to end as
// usual, in time and without a word.
#include <attikos/attikos.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "../support/lives.hpp"
#if defined(ATTIKOS_TEST_CUDA)
#include <cuda_runtime_api.h>
#endif

namespace {

using namespace attikos::test;

/// What a product takes of the library, or of another copy.
struct Library {
  decltype(&attikos_context_create) create = attikos_context_create;
  decltype(&attikos_gemm) gemm = attikos_gemm;
  decltype(&attikos_synchronize) synchronize = attikos_synchronize;
};

/// Memory of a context's device.
struct Memory {
  attikos_context* context;
  void* data = nullptr;
  attikos_status status;
  Memory(attikos_context* owner, std::vector<float> const& from)
      : context(owner), status(attikos_allocate(owner, size(from), &data)) {
    if (status == ATTIKOS_SUCCESS) status = attikos_copy(owner, data, from.data(), size(from));
  }
  ~Memory() { attikos_free(context, data); }
  Memory(Memory const&) = delete;
  Memory& operator=(Memory const&) = delete;
  static std::size_t size(std::vector<float> const& x) { return x.size() * sizeof(float); }
};

/// An operand of ones and its product with itself.
template <int N>
struct Product {
  std::vector<float> a = std::vector<float>(N * N, 1.0f), c = std::vector<float>(N * N);

  attikos_status run(attikos_context* context, std::int32_t kind = ATTIKOS_HOST,
                     Library const& library = {}) {
    c.assign(c.size(), -1.0f);
    if (kind != ATTIKOS_CUDA || !attikos_has_device(kind, 0))
      return multiply(context, a.data(), c.data(), library);
    Memory const x(context, a), y(context, c);
    for (attikos_status const status : {x.status, y.status})
      if (status != ATTIKOS_SUCCESS) return status;
    attikos_status const status = multiply(context, x.data, y.data, library);
    return status == ATTIKOS_SUCCESS ? attikos_copy(context, c.data(), y.data, Memory::size(c))
                                     : status;
  }
  bool is(float value) const {
    for (float const x : c)
      if (x != value) return false;
    return true;
  }
  bool works(attikos_context* context, std::int32_t kind = ATTIKOS_HOST,
             Library const& library = {}) {
    return run(context, kind, library) == ATTIKOS_SUCCESS && is(N);
  }

 private:
  attikos_status multiply(attikos_context* context, void* from, void* to,
                          Library const& library) const {
    std::int64_t const shape[2] = {N, N};
    attikos_tensor const in = {from, ATTIKOS_FLOAT32, 2, shape, nullptr},
                         out = {to, ATTIKOS_FLOAT32, 2, shape, nullptr};
    attikos_status const status = library.gemm(context, &in, &in, &out, nullptr);
    return status == ATTIKOS_SUCCESS ? library.synchronize(context) : status;
  }
};
using Small = Product<16>;
using Large = Product<160>;

#define REQUIRE(condition) \
  if (!(condition)) fail(#condition, attikos_last_error())

std::int32_t const kinds[] = {ATTIKOS_HOST, ATTIKOS_SERIAL, ATTIKOS_CUDA};
char streams[10000];  // addresses

attikos_context* make(std::int32_t kind = ATTIKOS_HOST, void* stream = nullptr, int ordinal = 0) {
  if (!attikos_has_device(kind, 0)) kind = ATTIKOS_HOST;
  attikos_context* context = nullptr;
  REQUIRE(attikos_context_create(kind, ordinal, stream, &context) == ATTIKOS_SUCCESS);
  return context;
}

/// A queue for a context of its own: on a host the n-th address, which need not be ended.
void* new_stream(std::int32_t kind, int n) {
#if defined(ATTIKOS_TEST_CUDA)
  if (kind == ATTIKOS_CUDA && attikos_has_device(kind, 0)) {
    cudaStream_t stream = nullptr;
    REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    return stream;
  }
#endif
  static_cast<void>(kind);
  return streams + n;
}
void end_stream([[maybe_unused]] std::int32_t kind, [[maybe_unused]] void* stream) {
#if defined(ATTIKOS_TEST_CUDA)
  if (kind == ATTIKOS_CUDA && attikos_has_device(kind, 0))
    REQUIRE(cudaStreamDestroy(static_cast<cudaStream_t>(stream)) == cudaSuccess);
#endif
}

// --- contexts and threads
// -------------------------------------------------------------------------

void thousands_of_streams(std::int32_t kind, int count) {
  auto const some = [=](int from, int to) {
    in_threads(4, [=](int t) {
      Small product;
      for (int i = from + t; i < to; i += 4) {
        void* const stream = new_stream(kind, i);
        attikos_context* const context = make(kind, stream);
        if (i % 64 == t) REQUIRE(product.works(context, kind));
        attikos_context_destroy(context);
        end_stream(kind, stream);
      }
    });
  };
  some(0, count / 9);
  long const before = resident();
  some(count / 9, count);
  REQUIRE(resident() - before < 20000);  // of 8000 streams 2.5 kB each
}
void thousands_of_streams_of_a_device() {
  if (!attikos_has_device(ATTIKOS_CUDA, 0)) skip("there is no device");
  thousands_of_streams(ATTIKOS_CUDA, 4500);
}

void contexts_of_threads_that_end() {
  for (auto const kind : kinds) {
    attikos_context* made[8] = {};
    void* queues[8] = {};
    in_threads(8, [&](int t) {
      queues[t] = new_stream(kind, t);
      made[t] = make(kind, queues[t]);
      REQUIRE(Small().works(made[t], kind));
    });
    for (auto* const context : made) REQUIRE(Small().works(context, kind));
    for (int round = 0; round < 30; ++round)
      in_threads(1, [&](int) { REQUIRE(Large().works(made[round % 8], kind)); });
    for (auto* const context : made) in_threads(1, [&](int) { attikos_context_destroy(context); });
    for (auto* const queue : queues) end_stream(kind, queue);
  }
}

void two_devices() {
  if (attikos_cuda_device_count() < 2) skip("there are not two devices");
  attikos_context* const contexts[] = {make(ATTIKOS_CUDA), make(ATTIKOS_CUDA, nullptr, 1)};
  in_threads(4, [&](int t) {
    if (t >= 2) return;  // a context each
    for (int i = 0; i < 100; ++i) REQUIRE(Large().works(contexts[t], ATTIKOS_CUDA));
  });
  for (int i = 0; i < 20; ++i) REQUIRE(Small().works(contexts[i % 2], ATTIKOS_CUDA));
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
void work_forever(int count, std::int32_t kind = ATTIKOS_SERIAL) {
  static std::atomic<int> busy{0};
  for (int t = 0; t < count; ++t)
    std::thread([t, kind] {
      attikos_context* const context = make(kind, new_stream(kind, t));
      Large product;
      bool counted = false;
      for (;;) {
        attikos_status const status = product.run(context, kind);
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
  for (auto const kind : kinds) REQUIRE(Small().works(make(kind), kind));
}
void exit_under_load() {
  make();
  work_forever(4);
}
void exit_under_load_of_a_device() {
  if (!attikos_has_device(ATTIKOS_CUDA, 0)) skip("there is no device");
  make();
  work_forever(4, ATTIKOS_CUDA);
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
  auto const come_and_go = [](int from) {  // more than are kept, which have got memory
    for (int n = from; n < from + 20; ++n) {
      attikos_context* const own = make(ATTIKOS_SERIAL, streams + n);
      REQUIRE(Large().works(own));
      attikos_context_destroy(own);
    }
  };
  come_and_go(200);
  for (int i = 0; i < 8; ++i) {
    auto const compute = [&] {
      REQUIRE(Small().works(context));
      come_and_go(300);
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

/// Another copy of the library, with a Kokkos of its own: both compute, by turns.
void second_kokkos() {
  namespace fs = std::filesystem;
  Dl_info info{};
  REQUIRE(dladdr(reinterpret_cast<void*>(&attikos_version), &info) != 0);
  fs::path const copy = fs::temp_directory_path() / ("libother" + std::to_string(getpid()) + ".so");
  REQUIRE(fs::copy_file(info.dli_fname, copy));
  void* const other = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  fs::remove(copy);
  REQUIRE(other != nullptr);
  Library second;
  auto const find = [&](auto& function, char const* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(other, name));
    REQUIRE(function != nullptr);
  };
  find(second.create, "attikos_context_create");
  find(second.gemm, "attikos_gemm");
  find(second.synchronize, "attikos_synchronize");
  REQUIRE(second.gemm != attikos_gemm);
  attikos_context *const mine = make(), *its = nullptr;
  REQUIRE(second.create(ATTIKOS_HOST, 0, nullptr, &its) == ATTIKOS_SUCCESS);
  for (int i = 0; i < 10; ++i) {
    REQUIRE(Large().works(mine));
    REQUIRE(Large().works(its, ATTIKOS_HOST, second));
  }
  in_threads(2, [&](int t) {
    for (int i = 0; i < 10; ++i)
      REQUIRE(t == 0 ? Large().works(mine) : Large().works(its, ATTIKOS_HOST, second));
  });
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

Life const lives[] = {{"thousands_of_streams", [] { thousands_of_streams(ATTIKOS_SERIAL, 9000); }},
                      LIFE(thousands_of_streams_of_a_device),
                      LIFE(two_devices),
                      LIFE(contexts_of_threads_that_end),
                      LIFE(messages_of_threads),
                      LIFE(exit_with_contexts),
                      LIFE(exit_under_load),
                      LIFE(exit_under_load_of_a_device),
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
                      LIFE(second_kokkos),
                      LIFE(second_openmp)};

}  // namespace

int main(int argc, char** argv) { return run_lives(argc, argv, lives); }
