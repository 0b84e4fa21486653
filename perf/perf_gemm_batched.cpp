// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Batches of many small products beside cuBLAS's strided batches and a copy of as many bytes as the
// products have to move.
//
// Case names: gemm_batched/<kernel>/<execution space>/<types of A, B, C>/m.._n.._k.._b../cold
#include <cublas_v2.h>

#include <memory>
#include <support/gemm_operands.hpp>

namespace attikos::measure {
namespace {

template <class T>
using Batch = Kokkos::View<T***, Kokkos::LayoutRight, Memory>;

class Cublas {
 public:
  explicit Cublas(Exec const& exec) {
    check(cublasCreate(&handle_));
    check(cublasSetStream(handle_, exec.cuda_stream()));
  }
  Cublas(Cublas const&) = delete;
  Cublas& operator=(Cublas const&) = delete;
  ~Cublas() { cublasDestroy(handle_); }

  /// C = A·B for `count` square matrices one after the other; column-major Cᵀ = Bᵀ·Aᵀ.
  void run(int size, int count, float const* a, float const* b, float* c) const {
    float const one = 1, zero = 0;
    long long const step = static_cast<long long>(size) * size;
    check(cublasSgemmStridedBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, size, size, size, &one, b,
                                    size, step, a, size, step, &zero, c, size, step, count));
  }
  void run(int size, int count, double const* a, double const* b, double* c) const {
    double const one = 1, zero = 0;
    long long const step = static_cast<long long>(size) * size;
    check(cublasDgemmStridedBatched(handle_, CUBLAS_OP_N, CUBLAS_OP_N, size, size, size, &one, b,
                                    size, step, a, size, step, &zero, c, size, step, count));
  }

 private:
  static void check(cublasStatus_t status) {
    if (status != CUBLAS_STATUS_SUCCESS)
      throw std::runtime_error(text("cuBLAS: status ", static_cast<int>(status)));
  }
  cublasHandle_t handle_ = nullptr;
};

template <class T>
struct BatchOperands {
  Batch<T> a, b, c;

  BatchOperands(int size, int count)
      : a(make("a", size, count)), b(make("b", size, count)), c(make("c", size, count)) {
    fill_normal(a);
    fill_normal(b);
  }
  static Batch<T> make(std::string const& name, int size, int count) {
    auto const extent = static_cast<std::size_t>(size);
    return Batch<T>(Kokkos::view_alloc(name, Kokkos::WithoutInitializing),
                    static_cast<std::size_t>(count), extent, extent);
  }
};

template <class T>
void check_batch(std::string const& side, int size, int count, BatchOperands<T> const& x) {
  auto const a = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.a);
  auto const b = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.b);
  auto const c = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.c);
  require_written(side, c);
  for (std::int64_t z : sample(count, 64))
    for (std::int64_t i : sample(size, 5))
      for (std::int64_t j : sample(size, 5)) {
        auto const element = reference::gemm_element(
            size, [&](std::int64_t l) { return to_double(a(z, i, l)); },
            [&](std::int64_t l) { return to_double(b(z, l, j)); }, {});
        require_close(side, text("[", z, ", ", i, ", ", j, "]"), to_double(c(z, i, j)),
                      element.value, test::gemm_bound<T, T>(size, element, {}));
      }
}

template <class T>
void run_batch(benchmark::State& state, Settings const& settings, int size, int count) {
  Exec const exec;
  std::size_t const elements = static_cast<std::size_t>(size) * static_cast<std::size_t>(size) *
                               static_cast<std::size_t>(count);
  std::size_t const bytes = 3 * elements * sizeof(T);
  std::vector<BatchOperands<T>> sets;
  for (std::size_t i = count_sets(bytes, false); i > 0; --i) sets.emplace_back(size, count);

  auto const cublas = std::make_shared<Cublas>(exec);
  std::vector<Side> sides = {
      {"attikos", [&](std::size_t i) { gemm(exec, sets[i].a, sets[i].b, sets[i].c); }}};
  if (settings.wants("cublas"))
    sides.push_back({"cublas", [&, cublas](std::size_t i) {
                       BatchOperands<T> const& x = sets[i];
                       cublas->run(size, count, x.a.data(), x.b.data(), x.c.data());
                     }});
  for (Side const& side : sides) {
    poison(sets[0].c);
    side.run(0);
    exec.fence();
    check_batch(side.name, size, count, sets[0]);
  }
  // Half of the bytes read, half written.
  Kokkos::View<unsigned char*, Memory> const from("from", bytes / 2), to("to", bytes / 2);
  if (settings.wants("copy"))
    sides.push_back({"copy", [&](std::size_t) {
                       check_cuda(cudaMemcpyAsync(to.data(), from.data(), bytes / 2,
                                                  cudaMemcpyDeviceToDevice, exec.cuda_stream()));
                     }});
  state.counters["products"] = count;
  alternate(state, exec, sides, sets.size(), {static_cast<double>(bytes), "GB/s"});
}

template <class T>
void add_batch(Settings const& settings, int size, int count) {
  auto const somewhere = [&](int terabyte) {
    auto const extent = static_cast<std::size_t>(size);
    return Batch<T>(reinterpret_cast<T*>(std::uintptr_t{1} << (40 + terabyte)),
                    static_cast<std::size_t>(count), extent, extent);
  };
  std::string const name =
      explain(op::gemm, Exec(), somewhere(0), somewhere(1), somewhere(2)).kernel;
  char const* const type = dtype_name(dtype_of<T>);
  add_case(settings,
           text("gemm_batched/", kernel_part(name, "gemm"), "/", Exec::name(), "/", type, "_", type,
                "_", type, "/m", size, "_n", size, "_k", size, "_b", count, "/cold"),
           [&settings, size, count](benchmark::State& state) {
             run_batch<T>(state, settings, size, count);
           });
}

}  // namespace

void register_gemm_batched(Settings const& settings) {
  for (int size : {8, 16, 24, 32, 48, 64}) {
    // 10 000 of the smallest are over before a launch has spread over the device.
    for (int count : {10000, 100000}) {
      if (size > 16 && count > 10000) continue;
      add_batch<float>(settings, size, count);
      add_batch<double>(settings, size, count);
    }
  }
}

}  // namespace attikos::measure
