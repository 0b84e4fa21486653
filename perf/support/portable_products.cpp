// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of a device as C functions, for portable_torch.py.
#include "portable_call.hpp"

namespace {

using namespace attikos;
using namespace attikos_perf;

/// What a team of team_gemm() multiplies.
template <class T>
struct OfTeam {
  Strided<T const***> a, b;
  Strided<T***> c;
  KOKKOS_INLINE_FUNCTION void operator()(Kokkos::TeamPolicy<Exec>::member_type const& team) const {
    auto const of = [&](auto const& all) {
      return Kokkos::subview(all, team.league_rank(), Kokkos::ALL, Kokkos::ALL);
    };
    team_gemm(team, of(a), of(b), of(c));
  }
};

}  // namespace

/// c [batch, m, n] = a [batch, m, k] · b [batch, k, n] with three strides each; of int8 into int32.
/// `extents`: batch, m, n, k; `kernel`: as GemmOptions has it.
extern "C" int attikos_perf_portable_gemm(char const* type, char const* kernel, void const* a,
                                          void const* b, void* c, std::int64_t const* extents,
                                          std::int64_t const* strides, void* stream,
                                          char const** reason) {
  auto const [batch, m, n, k] = reinterpret_cast<std::int64_t const(&)[4]>(*extents);
  std::int64_t const of_a[] = {batch, m, k}, of_b[] = {batch, k, n}, of_c[] = {batch, m, n};
  return on_stream(stream, reason, [&](Exec const& exec) {
    auto const multiply = [&]<class T, class C>(T, C) {
      gemm(exec, matrices<T const>(a, of_a, strides), matrices<T const>(b, of_b, strides + 3),
           matrices<C>(c, of_c, strides + 6), GemmOptions{.kernel = kernel});
    };
    if (std::strcmp(type, "int8") == 0) return multiply(std::int8_t{}, std::int32_t{});
    with_type(type, [&](auto one) { multiply(one, one); });
  });
}

/// The same by team_gemm(), a team of `threads` threads for each product.
extern "C" int attikos_perf_portable_team_gemm(char const* type, int threads, void const* a,
                                               void const* b, void* c, std::int64_t const* extents,
                                               std::int64_t const* strides, void* stream,
                                               char const** reason) {
  auto const [batch, m, n, k] = reinterpret_cast<std::int64_t const(&)[4]>(*extents);
  std::int64_t const of_a[] = {batch, m, k}, of_b[] = {batch, k, n}, of_c[] = {batch, m, n};
  return on_stream(stream, reason, [&](Exec const& exec) {
    with_type(type, [&]<class T>(T) {
      OfTeam<T> const product{matrices<T const>(a, of_a, strides),
                              matrices<T const>(b, of_b, strides + 3),
                              matrices<T>(c, of_c, strides + 6)};
      Kokkos::parallel_for(Kokkos::TeamPolicy<Exec>(exec, static_cast<int>(batch), threads, 32),
                           product);
    });
  });
}

/// out [tokens, intermediate] = silu(x · gateᵀ) · (x · upᵀ) of x [tokens, hidden] and weights
/// [intermediate, hidden]. `extents`: tokens, hidden, intermediate; strides of x, gate, up, out.
extern "C" int attikos_perf_portable_gated_mlp(char const* type, void const* x, void const* gate,
                                               void const* up, void* out,
                                               std::int64_t const* extents,
                                               std::int64_t const* strides, void* stream,
                                               char const** reason) {
  auto const [tokens, hidden, intermediate] = reinterpret_cast<std::int64_t const(&)[3]>(*extents);
  std::int64_t const of_x[] = {tokens, hidden}, of_weight[] = {intermediate, hidden},
                     of_out[] = {tokens, intermediate};
  return on_stream(stream, reason, [&](Exec const& exec) {
    with_type(type, [&]<class T>(T) {
      gated_mlp(exec, matrix<T const>(x, of_x, strides),
                matrix<T const>(gate, of_weight, strides + 2),
                matrix<T const>(up, of_weight, strides + 4), matrix<T>(out, of_out, strides + 6),
                GatedMlpOptions{.kernel = "portable"});
    });
  });
}
