// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the tests of rotary embeddings share: tables with poison in the rows that no token takes,
// and positions of every kind.
#pragma once

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/finite_differences.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_norms.hpp"

namespace attikos::test {

inline constexpr std::array all_rope_styles{RopeStyle::half_split, RopeStyle::interleaved};

enum class PositionKind { none, sequence, token };

/// Row i of a rank 2 tensor.
template <class Tensor2>
std::vector<double> row_of2(Tensor2 const& x, std::int64_t i) {
  std::vector<double> row;
  for (std::int64_t c = 0; c < x.extent(1); ++c) row.push_back(x.value(i, c));
  return row;
}

/// Which row of the tables each token takes; some positions lead past either end.
template <class Exec>
class RowPositions {
 public:
  RowPositions(Random& random, PositionKind kind, std::int64_t batch, std::int64_t seqlen,
               std::int64_t length, std::int64_t offset)
      : kind_(kind),
        length_(length),
        offset_(offset),
        sequence_({batch}, Layout::strided),
        token_({batch, seqlen}, Layout::strided) {
    auto const fill = [&](auto& tensor) {
      tensor.for_each([&](auto const& i) {
        tensor.at(i) = static_cast<std::int32_t>(random.integer(-offset - 2, length - offset + 1));
      });
      tensor.upload();
    };
    fill(sequence_);
    fill(token_);
  }

  std::int64_t operator()(std::int64_t b, std::int64_t s) {
    std::int64_t p = offset_ + s;
    if (kind_ == PositionKind::sequence) p += sequence_(b);
    if (kind_ == PositionKind::token) p = offset_ + token_(b, s);
    return std::clamp<std::int64_t>(p, 0, length_ - 1);
  }

  /// Calls f with the extra argument, or with none.
  template <class F>
  void with_extras(F const& f) const {
    if (kind_ == PositionKind::none) f();
    if (kind_ == PositionKind::sequence) f(positions(sequence_.const_view()));
    if (kind_ == PositionKind::token) f(positions(token_.const_view()));
  }

  std::int64_t batch() const { return token_.extent(0); }
  std::int64_t seqlen() const { return token_.extent(1); }

 private:
  PositionKind kind_;
  std::int64_t length_, offset_;
  Tensor<std::int32_t, 1, Exec> sequence_;
  Tensor<std::int32_t, 2, Exec> token_;
};

/// Cosines and sines whose halves differ. Those that come in gaps are handed over with rank 4.
template <class T, class Exec>
struct Tables {
  Tensor<T, 2, Exec> cos, sin;
  bool rank4;

  Tables(Random& random, std::int64_t length, std::int64_t dim, Layout layout)
      : cos({length, dim}, layout), sin({length, dim}, layout), rank4(layout == Layout::padded) {
    cos.fill_uniform(random);
    sin.fill_uniform(random);
  }
  std::int64_t length() const { return cos.extent(0); }

  template <class Rows>
  void poison_unused(Rows& rows) {
    std::vector<bool> used(sz(length()), false);
    for (std::int64_t b = 0; b < rows.batch(); ++b)
      for (std::int64_t s = 0; s < rows.seqlen(); ++s) used[sz(rows(b, s))] = true;
    for (auto* table : {&cos, &sin}) {
      table->for_each([&](auto const& i) {
        if (!used[sz(i[0])]) table->at(i) = poison<T>();
      });
      table->upload();
    }
  }

  /// [1, length, 1, dim], with strides in the dimensions of extent 1 that must not matter.
  static auto with_rank4(Tensor<T, 2, Exec> const& table) {
    using View = typename Tensor<T, 4, Exec>::template ViewOf<T const, 4>;
    auto const view = table.const_view();
    return View(view.data(), Kokkos::LayoutStride(1, 7, view.extent(0), view.stride(0), 1, 5,
                                                  view.extent(1), view.stride(1)));
  }

  /// Calls f(cos view, sin view).
  template <class F>
  void with_views(F const& f) const {
    if (rank4) {
      f(with_rank4(cos), with_rank4(sin));
    } else {
      f(cos.const_view(), sin.const_view());
    }
  }
};

}  // namespace attikos::test
