// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of a few microseconds, a layer's weights with few rows among them, which memory bounds:
// launches back to back in a CUDA graph, beside cuBLASLt's first heuristic in one and a copy of as
// many bytes as the graph moves.
//
// Case names: gemm_bandwidth/<kernel>/<execution space>/<types of A, B, C>/m.._n.._k.._nt/cold.
// `launches` in one graph, `bytes` of A, B and C for each.
#include <memory>
#include <support/gemm_operands.hpp>

namespace attikos::measure {
namespace {

/// What `record()` launches on a stream, to be launched again as a whole.
class Graph {
 public:
  template <class Record>
  Graph(Exec const& exec, Record const& record) : stream_(exec.cuda_stream()) {
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    record();
    check_cuda(cudaStreamEndCapture(stream_, &graph));
    check_cuda(cudaGraphInstantiate(&graph_, graph, 0));
    check_cuda(cudaGraphDestroy(graph));
  }
  Graph(Graph const&) = delete;
  Graph& operator=(Graph const&) = delete;
  ~Graph() { static_cast<void>(cudaGraphExecDestroy(graph_)); }

  void launch() const { check_cuda(cudaGraphLaunch(graph_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
};

/// A stream that can be captured.
class Stream {
 public:
  Stream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(Stream const&) = delete;
  Stream& operator=(Stream const&) = delete;
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

template <class A, class C>
void run_bandwidth(benchmark::State& state, Settings const& settings, Shape const& s) {
  Stream const stream;
  Exec const exec(stream);
  auto const m = static_cast<std::size_t>(s.m), n = static_cast<std::size_t>(s.n),
             k = static_cast<std::size_t>(s.k);
  std::size_t const bytes = (m * k + n * k) * sizeof(A) + m * n * sizeof(C);
  std::vector<Operands<A, A, C>> sets;
  for (std::size_t i = count_sets(bytes, false); i > 0; --i) sets.emplace_back(s);
  std::size_t const launches =
      (std::max<std::size_t>(16, (std::size_t{1} << 30) / bytes) + sets.size() - 1) / sets.size() *
      sets.size();

  std::vector<Side> plain = {{"attikos", [&](std::size_t i) {
                                gemm(exec, sets[i].a, sets[i].b, sets[i].c, options_of(s, ""));
                              }}};
  auto const peer = std::make_shared<CublasLt>(exec, CublasLt::type_of<A>(), CublasLt::type_of<C>(),
                                               s.m, s.n, s.k, s.trans_a, s.trans_b, s.fast);
  if (peer->candidates() > 0 && settings.wants("cublaslt"))
    plain.push_back({"cublaslt", CublasLtCall<Operands<A, A, C>>{peer, &sets, 0}});
  std::vector<Side> sides;
  for (Side const& side : plain) {
    poison(sets[0].c);
    side.run(0);  // also what may not happen inside a capture: modules load, memory grows
    exec.fence();
    check_result(side.name, s, sets[0]);
    auto const graph = std::make_shared<Graph>(exec, [&] {
      for (std::size_t i = 0; i < launches; ++i) side.run(i % sets.size());
    });
    sides.push_back({side.name, [graph](std::size_t) { graph->launch(); }});
  }
  std::size_t const half = launches * bytes / 2;  // read, and as much written
  Kokkos::View<unsigned char*, Memory> const from("from", half), to("to", half);
  Kokkos::fence();
  if (settings.wants("copy"))
    sides.push_back({"copy", [&](std::size_t) {
                       check_cuda(cudaMemcpyAsync(to.data(), from.data(), half,
                                                  cudaMemcpyDeviceToDevice, exec.cuda_stream()));
                     }});
  state.counters["launches"] = static_cast<double>(launches);
  state.counters["bytes"] = static_cast<double>(bytes);
  alternate(state, exec, sides, 1, {static_cast<double>(launches * bytes), "GB/s"});
}

template <class A, class C>
void add_bandwidth(Settings const& settings, Shape const& s) {
  auto const extent = Operands<A, A, C>::extent;
  auto const somewhere = [](int terabyte) { return std::uintptr_t{1} << (40 + terabyte); };
  Matrix<A> const a(reinterpret_cast<A*>(somewhere(0)), extent(s.m), extent(s.k));
  Matrix<A> const b(reinterpret_cast<A*>(somewhere(1)), extent(s.n), extent(s.k));
  Matrix<C> const c(reinterpret_cast<C*>(somewhere(2)), extent(s.m), extent(s.n));
  std::string const name = explain(op::gemm, Exec(), a, b, c, options_of(s, "")).kernel;
  char const* const type = dtype_name(dtype_of<A>);
  add_case(settings,
           text("gemm_bandwidth/", kernel_part(name, "gemm"), "/", Exec::name(), "/", type, "_",
                type, "_", dtype_name(dtype_of<C>), "/", s.name()),
           [&settings, s](benchmark::State& state) { run_bandwidth<A, C>(state, settings, s); });
}

}  // namespace

void register_gemm_bandwidth(Settings const& settings) {
  for (int m : {1, 4, 16, 32, 64}) {
    for (Shape s : weights) {
      s.m = m;
      add_bandwidth<bfloat16, bfloat16>(settings, s);
      add_bandwidth<float16, float16>(settings, s);
      s.fast = true;
      add_bandwidth<float8_e4m3, bfloat16>(settings, s);
    }
  }
  // So short that only a graph keeps up with it.
  add_bandwidth<bfloat16, bfloat16>(settings, square(512, true));
  add_bandwidth<float16, float16>(settings, square(512, true));
}

}  // namespace attikos::measure
