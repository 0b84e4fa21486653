// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// attention and its gradients with a document mask: as a block mask, beside the same mask given
// densely and no mask at all.
//
// Case names: attention/<kernel>/<execution space>/<type>/b.._h.._s.._d.._documents.. and
// attention_backward/..; operations are those of the pairs that a query sees, so that peers who
// look at all pairs show what the others cost. `tiles_left` is the share of tiles that are not
// empty.
#include <cstdint>
#include <support/alternate.hpp>
#include <support/data.hpp>

namespace attikos::measure {
namespace {

template <class T>
using Tensor = Kokkos::View<T****, Kokkos::LayoutRight, Memory>;

struct Shape {
  int batch, heads, seqlen, head_dim, documents;
  std::string name() const {
    return text("b", batch, "_h", heads, "_s", seqlen, "_d", head_dim, "_documents", documents);
  }
  std::int64_t length() const { return (seqlen + documents - 1) / documents; }
  double pairs() const {
    return static_cast<double>(batch) * heads * static_cast<double>(seqlen) *
           static_cast<double>(length());
  }
};

/// Keys of the query's own document.
struct SameDocument {
  std::int64_t length;
  KOKKOS_FUNCTION bool operator()(std::int64_t, std::int64_t, std::int64_t i,
                                  std::int64_t j) const {
    return i / length == j / length;
  }
};

std::size_t extent(int value) { return static_cast<std::size_t>(value); }

template <class T>
Tensor<T> tensor(std::string const& label, Shape const& s) {
  return Tensor<T>(Kokkos::view_alloc(label, Kokkos::WithoutInitializing), extent(s.batch),
                   extent(s.heads), extent(s.seqlen), extent(s.head_dim));
}

template <class T>
struct Operands {
  Tensor<T> q, k, v, out, dout, dq, dk, dv;
  Kokkos::View<float***, Kokkos::LayoutRight, Memory> lse;
  Kokkos::View<std::int8_t**, Kokkos::LayoutRight, Memory> tiles;
  Kokkos::View<std::uint8_t**, Kokkos::LayoutRight, Memory> dense;
  BlockMaskShape shape;
  SameDocument same;
  double tiles_left = 0;

  Operands(Exec const& exec, Shape const& s)
      : q(tensor<T>("q", s)),
        k(tensor<T>("k", s)),
        v(tensor<T>("v", s)),
        out(tensor<T>("out", s)),
        dout(tensor<T>("dout", s)),
        dq(tensor<T>("dq", s)),
        dk(tensor<T>("dk", s)),
        dv(tensor<T>("dv", s)),
        lse("lse", extent(s.batch), extent(s.heads), extent(s.seqlen)),
        dense("dense", extent(s.seqlen), extent(s.seqlen)),
        shape{s.seqlen, s.seqlen},
        same{s.length()} {
    for (auto const& x : {q, k, v, dout}) fill_normal(x);
    tiles = decltype(tiles)("tiles", static_cast<std::size_t>(shape.tiles_q()),
                            static_cast<std::size_t>(shape.tiles_kv()));
    make_block_mask(exec, same, tiles, shape);
    auto const host = Kokkos::create_mirror_view(dense);
    for (std::size_t i = 0; i < host.extent(0); ++i)
      for (std::size_t j = 0; j < host.extent(1); ++j)
        host(i, j) = same(0, 0, static_cast<std::int64_t>(i), static_cast<std::int64_t>(j));
    Kokkos::deep_copy(dense, host);
    exec.fence();
    auto const kinds = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), tiles);
    for (std::size_t i = 0; i < kinds.size(); ++i)
      tiles_left += kinds.data()[i] != static_cast<std::int8_t>(BlockKind::empty) ? 1 : 0;
    tiles_left /= static_cast<double>(kinds.size());
  }
};

/// What a call wrote with the block mask against what it wrote with the dense one.
template <class T>
void require_alike(Tensor<T> const& x, std::vector<double> const& dense, char const* what) {
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), x);
  for (std::size_t i = 0; i < host.size(); ++i) {
    double const got = to_double(host.data()[i]);
    double const bound = on_host ? 0 : 1e-2 * (1 + std::abs(dense[i]));
    if (!(std::abs(got - dense[i]) <= bound))
      throw std::runtime_error(
          text(what, " with a block mask is ", got, " at ", i, ", with the dense mask ", dense[i]));
  }
}
template <class T>
std::vector<double> numbers(Tensor<T> const& x) {
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), x);
  std::vector<double> result(host.size());
  for (std::size_t i = 0; i < host.size(); ++i) result[i] = to_double(host.data()[i]);
  return result;
}

template <class T>
void run(benchmark::State& state, Settings const& settings, Shape const& s, bool backward) {
  Exec const exec;
  Operands<T> const x(exec, s);
  AttentionOptions const options{.kernel = "portable"};
  auto const call = [&x, exec, options, backward](auto const&... extras) {
    if (backward)
      attention_backward(exec, x.q, x.k, x.v, x.out, x.lse, x.dout, x.dq, x.dk, x.dv, options,
                         extras...);
    else
      attention(exec, x.q, x.k, x.v, x.out, x.lse, options, extras...);
  };
  std::vector<Side> sides{
      {"attikos", [&x, call](std::size_t) { call(block_mask(x.tiles, x.same, x.shape)); }}};
  if (settings.wants("dense_mask"))
    sides.push_back({"dense_mask", [&x, call](std::size_t) { call(mask(x.dense)); }});
  if (settings.wants("no_mask")) sides.push_back({"no_mask", [call](std::size_t) { call(); }});

  attention(exec, x.q, x.k, x.v, x.out, x.lse, options, mask(x.dense));  // what gradients are of
  call(mask(x.dense));
  exec.fence();
  auto const first = numbers(backward ? x.dq : x.out), second = numbers(backward ? x.dk : x.out);
  call(block_mask(x.tiles, x.same, x.shape));
  exec.fence();
  require_alike(backward ? x.dq : x.out, first, backward ? "dq" : "out");
  require_alike(backward ? x.dk : x.out, second, backward ? "dk" : "out");
  alternate(state, exec, sides, 1, {(backward ? 10.0 : 4.0) * s.pairs() * s.head_dim, "GFLOP/s"});
  state.counters["tiles_left"] = x.tiles_left;
}

template <class T>
void add(Settings const& settings, Shape const& s) {
  for (bool backward : {false, true})
    add_case(settings,
             text(backward ? "attention_backward/portable/" : "attention/portable_flash/",
                  Exec::name(), "/", dtype_name(dtype_of<T>), "/", s.name()),
             [&settings, s, backward](benchmark::State& state) {
               run<T>(state, settings, s, backward);
             });
}

}  // namespace

void register_cases(Settings const& settings) {
  for (int documents : {1, 4, 16}) add<float>(settings, {1, 8, 4096, 64, documents});
  add<bfloat16>(settings, {1, 8, 4096, 64, 16});
}

}  // namespace attikos::measure
