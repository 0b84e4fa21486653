// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention beside its own unfused algorithms and, on the host, attention made of OpenBLAS
// products.
//
// Case names: attention/<kernel>/<execution space>/<type>/b.._h.._s.._d..[_causal]/<cold, warm or
// memory> A causal case counts half the operations of a full one.
#include <support/alternate.hpp>
#include <support/check.hpp>
#include <support/data.hpp>

#if !defined(KOKKOS_ENABLE_CUDA)
#include <support/unfused_attention.hpp>
#endif

#include <map>
#include <memory>
#include <tuple>
#include <utility>

namespace attikos::measure {
namespace {

template <class T>
using Tensor = Kokkos::View<T****, Kokkos::LayoutRight, Memory>;

constexpr char const* name_of(AttentionAlgorithm algorithm) {
  switch (algorithm) {
    case AttentionAlgorithm::flash:
      return "flash";
    case AttentionAlgorithm::tiled:
      return "tiled";
    case AttentionAlgorithm::naive:
      return "naive";
  }
  return "";
}

struct Shape {
  int batch, heads, seqlen, head_dim;
  bool causal = false;
  bool warm = false;

  std::string name() const {
    return text("b", batch, "_h", heads, "_s", seqlen, "_d", head_dim, causal ? "_causal" : "");
  }
  double flop() const {
    return (causal ? 2.0 : 4.0) * batch * heads * static_cast<double>(seqlen) * seqlen * head_dim;
  }
};

template <class T>
Tensor<T> tensor(std::string const& label, Shape const& s) {
  auto const extent = [](int value) { return static_cast<std::size_t>(value); };
  return Tensor<T>(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), extent(s.batch),
                   extent(s.heads), extent(s.seqlen), extent(s.head_dim));
}

template <class T>
struct Operands {
  Tensor<T> q, k, v, out;
  std::vector<float> q32, k32, v32, out32;  ///< for a peer that has float32 only; else empty

  Operands() = default;
  explicit Operands(Shape const& s)
      : q(tensor<T>("q", s)), k(tensor<T>("k", s)), v(tensor<T>("v", s)), out(tensor<T>("out", s)) {
    fill_normal(q);
    fill_normal(k);
    fill_normal(v);
  }
};

/// Sampled rows of the output against float64.
template <class T>
void check_result(std::string const& side, Shape const& s, Operands<T> const& x) {
  auto const q = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.q);
  auto const k = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.k);
  auto const v = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.v);
  auto const out = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace{}, x.out);
  require_written(side, out);
  std::int64_t const b = s.batch - 1;
  for (std::int64_t h : sample(s.heads, 2)) {
    for (std::int64_t i : sample(s.seqlen, 4)) {
      auto const value = [&](std::int64_t j, std::int64_t c) { return to_double(v(b, h, j, c)); };
      auto const row = reference::attention_row(
          reference::visible_keys(i, s.seqlen, s.seqlen, s.causal, false), s.head_dim, s.head_dim,
          1 / std::sqrt(static_cast<double>(s.head_dim)),
          [&](std::int64_t c) { return to_double(q(b, h, i, c)); },
          [&](std::int64_t j, std::int64_t c) { return to_double(k(b, h, j, c)); }, value);
      test::AttentionBound<T> const bound(row, s.head_dim);
      for (std::int64_t c = 0; c < s.head_dim; ++c) {
        auto const column = static_cast<std::size_t>(c);
        require_close(side, text("[", b, ", ", h, ", ", i, ", ", c, "]"),
                      to_double(out(b, h, i, c)), row.out[column],
                      bound.out(column, [&](std::int64_t j) { return value(j, c); }));
      }
    }
  }
}

#if !defined(KOKKOS_ENABLE_CUDA)
/// Checks what a peer made of the float32 copies.
void check_copies(std::string const& side, Shape const& s, std::vector<float>& q,
                  std::vector<float>& k, std::vector<float>& v, std::vector<float>& out) {
  auto const view = [&](std::vector<float>& values) {
    auto const extent = [](int value) { return static_cast<std::size_t>(value); };
    return Tensor<float>(values.data(), extent(s.batch), extent(s.heads), extent(s.seqlen),
                         extent(s.head_dim));
  };
  Operands<float> wide;
  wide.q = view(q);
  wide.k = view(k);
  wide.v = view(v);
  wide.out = view(out);
  check_result(side, s, wide);
}

/// OpenBLAS products and a softmax; for 16-bit types on float32 copies of the operands.
template <class T>
void add_unfused(Settings const& settings, Shape const& s, std::vector<Operands<T>>& sets,
                 Exec const& exec, std::vector<Side>& sides) {
  constexpr bool same = std::is_same_v<T, float>;
  char const* const name = same ? "unfused_openblas" : "unfused_openblas_float32";
  if (!settings.wants(name)) return;
  auto const unfused =
      std::make_shared<UnfusedAttention>(s.batch * s.heads, s.seqlen, s.head_dim, s.causal);
  if constexpr (same) {
    sides.push_back({name, [&sets, exec, unfused](std::size_t i) {
                       auto const& x = sets[i];
                       (*unfused)(exec, x.q.data(), x.k.data(), x.v.data(), x.out.data());
                     }});
  } else {
    for (auto& x : sets) {
      x.q32 = float_copy(x.q);
      x.k32 = float_copy(x.k);
      x.v32 = float_copy(x.v);
      x.out32.resize(x.out.span());
    }
    sides.push_back({name, [&sets, exec, unfused](std::size_t i) {
                       auto& x = sets[i];
                       (*unfused)(exec, x.q32.data(), x.k32.data(), x.v32.data(), x.out32.data());
                     }});
  }
}
#endif

template <class T>
void run_attention(benchmark::State& state, Settings const& settings, Shape const& s,
                   bool all_algorithms) {
  Exec const exec;
  std::size_t const bytes = 4 * tensor<T>("size", s).span() * sizeof(T);
  std::vector<Operands<T>> sets;
  for (std::size_t i = count_sets(bytes, s.warm); i > 0; --i) sets.emplace_back(s);

  std::vector<Side> sides;
  auto const add_ours = [&](std::string const& name, AttentionAlgorithm algorithm) {
    AttentionOptions const options{
        .causal = s.causal, .algorithm = algorithm, .kernel = "portable"};
    sides.push_back({name, [&sets, exec, options](std::size_t i) {
                       attention(exec, sets[i].q, sets[i].k, sets[i].v, sets[i].out, options);
                     }});
  };
  add_ours("attikos", AttentionAlgorithm::flash);
  if (all_algorithms) {
    for (auto algorithm : {AttentionAlgorithm::tiled, AttentionAlgorithm::naive})
      if (settings.wants(name_of(algorithm))) add_ours(name_of(algorithm), algorithm);
  }
#if !defined(KOKKOS_ENABLE_CUDA)
  if constexpr (!std::is_same_v<T, double>) add_unfused(settings, s, sets, exec, sides);
#endif

  for (Side const& side : sides) {
    auto& x = sets[0];
    poison(x.out);
    side.run(0);
    exec.fence();
#if !defined(KOKKOS_ENABLE_CUDA)
    if (side.name == "unfused_openblas_float32") {
      check_copies(side.name, s, x.q32, x.k32, x.v32, x.out32);
      continue;
    }
#endif
    check_result(side.name, s, x);
  }
  alternate(state, exec, sides, sets.size(), {s.flop(), "GFLOP/s"});
}

/// What calls allocate while it lives, as Kokkos Tools sees it. Kokkos's team scratch is counted
/// apart: on a host it is the tiles of each thread, is kept by the instance for every kernel, and
/// grows by replacement.
class AllocationCounter {
 public:
  AllocationCounter() : saved_(Kokkos::Tools::Experimental::get_callbacks()) {
    workspace_ = 0;
    Kokkos::Tools::Experimental::set_allocate_data_callback(
        [](Kokkos::Tools::SpaceHandle, char const* label, void const*, std::uint64_t size) {
          std::string const name = label;
          if (name.rfind("Kokkos::", 0) == 0 && name.find("scratch") != std::string::npos) {
            scratch_[name] =
                std::max(scratch_[name],
                         size * static_cast<std::uint64_t>(on_host ? Exec().concurrency() : 1));
          } else {
            workspace_ += size;
          }
        });
  }
  AllocationCounter(AllocationCounter const&) = delete;
  AllocationCounter& operator=(AllocationCounter const&) = delete;
  ~AllocationCounter() { Kokkos::Tools::Experimental::set_callbacks(saved_); }

  static double workspace() { return static_cast<double>(workspace_); }
  static double scratch() {
    std::uint64_t sum = 0;
    for (auto const& [name, bytes] : scratch_) sum += bytes;
    return static_cast<double>(sum);
  }

 private:
  static inline std::uint64_t workspace_ = 0;
  static inline std::map<std::string, std::uint64_t> scratch_;
  Kokkos::Tools::Experimental::EventSet saved_;
};

constexpr int memory_seqlens[] = {1024, 2048, 4096};

struct MemoryUse {
  double workspace, scratch;
  double device;  ///< what is taken from a device's free memory, however
};

/// Free bytes of the device, 0 for a host.
double free_memory() {
#if defined(KOKKOS_ENABLE_CUDA)
  std::size_t free = 0, total = 0;
  if (cudaMemGetInfo(&free, &total) != cudaSuccess)
    throw std::runtime_error("cudaMemGetInfo failed");
  return static_cast<double>(free);
#else
  return 0;
#endif
}

using MemoryTable = std::map<std::tuple<std::string, DType, int>, MemoryUse>;

template <class T>
void measure_memory(AttentionAlgorithm algorithm, MemoryTable& table) {
  Exec const exec;
  auto const run = [&](Operands<T> const& x) {
    attention(exec, x.q, x.k, x.v, x.out, {.algorithm = algorithm});
    exec.fence();
  };
  run(Operands<T>(Shape{1, 1, 64, 64}));  // loads the kernel's code, which takes memory too
  for (int seqlen : memory_seqlens) {
    Operands<T> const x(Shape{1, 1, seqlen, 64});
    double const free_before = free_memory();
    AllocationCounter const counter;
    run(x);
    table[{name_of(algorithm), dtype_of<T>, seqlen}] = {counter.workspace(), counter.scratch(),
                                                        free_before - free_memory()};
  }
}

/// By algorithm, type and seqlen. Measured once and in ascending order, before any other case: the
/// instance's pool keeps its memory, so that a later or smaller call would be seen to allocate
/// nothing.
MemoryTable const& memory_use() {
  static auto const table = [] {
    MemoryTable result;
    measure_memory<float>(AttentionAlgorithm::flash, result);
    measure_memory<bfloat16>(AttentionAlgorithm::flash, result);
    measure_memory<float>(AttentionAlgorithm::naive, result);
    return result;
  }();
  return table;
}

/// The kernel's name comes from explain(), so a case cannot say that one kernel ran while another
/// did.
template <class T>
std::string case_prefix(Shape const& s, AttentionAlgorithm algorithm,
                        char const* wanted = "portable") {
  auto const extent = [](int value) { return static_cast<std::size_t>(value); };
  auto* const somewhere = reinterpret_cast<T*>(std::uintptr_t{1} << 40);  // a kernel asks for one
  Tensor<T> const x(somewhere, extent(s.batch), extent(s.heads), extent(s.seqlen),
                    extent(s.head_dim));
  AttentionOptions const options{.causal = s.causal, .algorithm = algorithm, .kernel = wanted};
  std::string const kernel =
      kernel_part(explain(op::attention, Exec(), x, x, x, x, options).kernel, "attention");
  return text("attention/", kernel, "/", Exec::name(), "/", dtype_name(dtype_of<T>), "/", s.name());
}

template <class T>
void add_memory(Settings const& settings, AttentionAlgorithm algorithm, int seqlen) {
  Shape const s{1, 1, seqlen, 64};
  add_case(settings, text(case_prefix<T>(s, algorithm, ""), "/memory"),
           [algorithm, s](benchmark::State& state) {
             constexpr double mebibyte = 1 << 20;
             double const output = static_cast<double>(s.batch * s.heads * s.head_dim) * s.seqlen *
                                   sizeof(T) / mebibyte;
             MemoryUse const use = memory_use().at({name_of(algorithm), dtype_of<T>, s.seqlen});
             for ([[maybe_unused]] auto _ : state) state.SetIterationTime(1e-9);
             state.counters["output_MiB"] = output;
             state.counters["workspace_MiB"] = use.workspace / mebibyte;
             state.counters["output_and_workspace_MiB"] = output + use.workspace / mebibyte;
             state.counters["team_scratch_MiB"] = use.scratch / mebibyte;
             if (!on_host) state.counters["device_MiB"] = use.device / mebibyte;
           });
}

template <class T>
void add(Settings const& settings, Shape const& s, bool all_algorithms = false) {
  add_case(settings, text(case_prefix<T>(s, AttentionAlgorithm::flash), s.warm ? "/warm" : "/cold"),
           [&settings, s, all_algorithms](benchmark::State& state) {
             run_attention<T>(state, settings, s, all_algorithms);
           });
}

}  // namespace

void register_cases(Settings const& settings) {
#if !defined(KOKKOS_ENABLE_CUDA)
  prepare_openblas(1);
#endif
  for (int seqlen : memory_seqlens) {
    add_memory<float>(settings, AttentionAlgorithm::flash, seqlen);
    add_memory<bfloat16>(settings, AttentionAlgorithm::flash, seqlen);
    add_memory<float>(settings, AttentionAlgorithm::naive, seqlen);
  }
  for (int seqlen : {512, 2048, 8192})
    for (bool causal : {false, true}) add<float>(settings, {1, 8, seqlen, 64, causal});
  for (bool causal : {false, true}) add<float>(settings, {1, 8, 2048, 128, causal});
  add<bfloat16>(settings, {1, 8, 2048, 64});
  add<float16>(settings, {1, 8, 2048, 64});
  add<double>(settings, {1, 8, 512, 64});
  for (int seqlen : {32, 128, 512}) add<float>(settings, {1, 8, seqlen, 64, false, true}, true);
}

}  // namespace attikos::measure
