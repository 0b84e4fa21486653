// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Packed memory among poison, and calls of gemm with it beside the same with the plain B.
#pragma once

#include <algorithm>
#include <attikos/gemm/pack_b.hpp>
#include <vector>

#include "gemm_checks.hpp"

namespace attikos::test {

/// Memory for a packed factor, aligned, in the middle of bytes that are NaN in every type and must
/// stay what they are.
class PackedMemory {
 public:
  static constexpr std::size_t guard = 4096;
  explicit PackedMemory(std::size_t bytes)
      : bytes_(bytes), storage_(bytes + 2 * guard + packed_b_alignment, 0xff) {
    auto const at = reinterpret_cast<std::uintptr_t>(storage_.data());
    first_ = (packed_b_alignment - at % packed_b_alignment) % packed_b_alignment + guard;
  }
  auto view() {
    return Kokkos::View<std::uint8_t*, Kokkos::HostSpace>(storage_.data() + first_, bytes_);
  }
  std::vector<std::uint8_t> bytes() const {
    auto const begin = storage_.begin() + static_cast<std::ptrdiff_t>(first_);
    return {begin, begin + static_cast<std::ptrdiff_t>(bytes_)};
  }
  std::size_t writes_outside() const {
    std::size_t count = 0;
    for (std::size_t i = 0; i < storage_.size(); ++i)
      count += (i < first_ || i >= first_ + bytes_) && storage_[i] != 0xff ? 1u : 0u;
    return count;
  }

 private:
  std::size_t bytes_, first_;
  std::vector<std::uint8_t> storage_;
};

/// call(B), then call(what pack_b() makes of B) from the same C: the same bits.
template <class Exec, class B, class C, class Call>
void expect_same_bits(Exec const& exec, B const& b, bool trans_b, C& c, Call const& call) {
  auto const before = c;
  call(b);
  exec.fence();
  c.download();
  auto const want = c.elements();
  c = before;
  c.upload();
  PackBOptions const options{.trans_b = trans_b};
  PackedMemory memory(pack_b_size(b, options));
  auto const packed = pack_b(exec, b, memory.view(), options);
  exec.fence();
  auto const bytes = memory.bytes();
  call(packed);
  exec.fence();
  c.download();
  EXPECT_TRUE(same_bits(c.elements(), want)) << packed.layout.to_string();
  EXPECT_EQ(c.writes_outside(), 0u);
  EXPECT_EQ(memory.writes_outside(), 0u);
  EXPECT_TRUE(memory.bytes() == bytes) << "a call wrote into packed memory";
}

/// The call of a case with a packed B: as with the plain one, and within the bound. B is shared.
template <class Exec, class TA, class TC = TA>
void check_packed(GemmCase p) {
  SCOPED_TRACE(describe(p));
  p.options.kernel = "portable";  // of a build with a BLAS the one that takes both
  if (p.batch >= 0) p.batch_b = Batch::extent_1;
  check_gemm_by<Exec, TA, TA, TC>(p, [](Exec const& exec, GemmCase const& q, auto& o) {
    expect_same_bits(exec, o.b.const_front(), q.options.trans_b, o.c, [&](auto const& b) {
      auto const with = [&](auto const& a, auto const& c, auto const&... extras) {
        gemm(exec, a, b, c, q.options, extras...);
      };
      if (q.batch >= 0 && q.residual)
        with(o.a.const_view(), o.c.view(), residual(o.residual.const_view()),
             bias(o.bias.const_view()));
      else if (q.batch >= 0)
        with(o.a.const_view(), o.c.view());
      else if (q.bias != BiasKind::none)
        with(o.a.const_front(), o.c.front(), bias(o.bias.const_view()));
      else
        with(o.a.const_front(), o.c.front());
    });
  });
}

}  // namespace attikos::test
