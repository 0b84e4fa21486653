// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The portable decode on a device as a C function, see portable_calls.cpp.
#include <attikos/attikos.hpp>
#include <cstdint>

#include "portable_call.hpp"

using namespace attikos;
using namespace attikos_perf;

/// Decoding of q [batch, heads, queries, features] over caches k and v [batch, heads of k,
/// positions, features], or, where `page_size` is not 0, [pages, heads of k, page_size, features]
/// with `table` [batch, pages of each]. `tensors`: q, k, v, out; `strides` four of each; `extents`:
/// batch, heads, heads of k, queries, positions, head_dim, pages. `lengths` [batch] are positions
/// in use. Tables are dense, of int32.
extern "C" int attikos_perf_portable_decode(char const* type, void* const* tensors,
                                            void const* lengths, void const* table,
                                            std::int64_t page_size, std::int64_t const* extents,
                                            std::int64_t const* strides, int causal, void* stream,
                                            char const** reason) {
  auto const [batch, heads, heads_kv, queries, positions, head_dim, pages] =
      *reinterpret_cast<std::int64_t const(*)[7]>(extents);
  std::int64_t const of_q[] = {batch, heads, queries, head_dim};
  std::int64_t const of_k[] = {page_size == 0 ? batch : pages, heads_kv,
                               page_size == 0 ? positions : page_size, head_dim};
  using Numbers = Kokkos::View<std::int32_t const*, Exec::memory_space, Kokkos::MemoryUnmanaged>;
  using Table = Kokkos::View<std::int32_t const**, Kokkos::LayoutRight, Exec::memory_space,
                             Kokkos::MemoryUnmanaged>;
  Numbers const in_use(static_cast<std::int32_t const*>(lengths), batch);
  Table const of_pages(static_cast<std::int32_t const*>(table), batch,
                       page_size == 0 ? 0 : positions / page_size);
  DecodeOptions const options{.causal = causal != 0, .kernel = "portable"};
  return on_stream(stream, reason, [&](Exec const& exec) {
    with_type(type, [&]<class T>(T) {
      auto const run = [&](auto const&... extras) {
        decode(exec, tensor<T const>(tensors[0], of_q, strides),
               tensor<T const>(tensors[1], of_k, strides + 4),
               tensor<T const>(tensors[2], of_k, strides + 8),
               tensor<T>(tensors[3], of_q, strides + 12), options, attikos::lengths(none, in_use),
               extras...);
      };
      if (page_size == 0)
        run();
      else
        run(paged(of_pages, page_size));
    });
  });
}
