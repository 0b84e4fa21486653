// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Strided tensors inside poisoned buffers: host copy, device copy, and proof that nothing between
// or around the elements was written.
#pragma once

#include <Kokkos_Core.hpp>
#include <array>
#include <attikos/attikos.hpp>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <vector>

#include "random.hpp"

namespace attikos::test {

/// How a tensor lies in memory. All of them are run-time strides, so that a call is compiled once.
enum class Layout {
  right,     ///< dense, last index fastest
  left,      ///< dense, first index fastest
  padded,    ///< as right, gaps after every dimension, odd offset
  strided,   ///< as padded, and gaps between neighbors in the last dimension
  permuted,  ///< the last index fastest, the two before it exchanged: [b, s, h, d] seen as [b, h,
             ///< s, d]
};
inline constexpr std::array all_layouts{Layout::right, Layout::left, Layout::padded,
                                        Layout::strided, Layout::permuted};

constexpr char const* layout_name(Layout layout) {
  constexpr char const* names[] = {"right", "left", "padded", "strided", "permuted"};
  return names[static_cast<int>(layout)];
}

template <class T>
double to_double(T value) {
  if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<double>(value);
  } else {
    return static_cast<double>(static_cast<float>(value));
  }
}

template <class T>
T from_double(double value) {
  return static_cast<T>(value);
}

/// NaN, or a conspicuous number where the type has no NaN.
template <class T>
T poison() {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(0x5A);
  } else {
    return from_double<T>(std::numeric_limits<double>::quiet_NaN());
  }
}

template <class T, int Rank>
struct DataType {
  using type = typename DataType<T, Rank - 1>::type*;
};
template <class T>
struct DataType<T, 0> {
  using type = T;
};

constexpr std::size_t sz(std::int64_t i) { return static_cast<std::size_t>(i); }

/// Rank 1 to 4. Everything is poison until filled; changes on the host need upload().
template <class Element, int Rank_, class Exec>
class Tensor {
 public:
  static constexpr int Rank = Rank_;
  using T = Element;
  using Extents = std::array<std::int64_t, sz(Rank)>;
  template <class U, int R>
  using ViewOf = Kokkos::View<typename DataType<U, R>::type, Kokkos::LayoutStride,
                              Kokkos::Device<Exec, typename Exec::memory_space>,
                              Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  explicit Tensor(Extents extents, Layout layout = Layout::right)
      : extents_(extents), host_(allocate(layout), poison<T>()) {
    device_ = Buffer(Kokkos::view_alloc("attikos_test", Kokkos::WithoutInitializing), host_.size());
    upload();
  }

  std::int64_t extent(int r) const { return extents_[sz(r)]; }
  Extents const& extents() const { return extents_; }
  Extents const& strides() const { return strides_; }

  template <class... Index>
  T& operator()(Index... index) {
    return host_[position({static_cast<std::int64_t>(index)...})];
  }
  template <class... Index>
  double value(Index... index) const {
    return to_double(host_[position({static_cast<std::int64_t>(index)...})]);
  }
  template <class... Index>
  void set(double value, Index... index) {
    host_[position({static_cast<std::int64_t>(index)...})] = from_double<T>(value);
  }

  /// Calls f(index array) for every element.
  template <class F>
  void for_each(F const& f) const {
    Extents index{};
    for (auto e : extents_) {
      if (e == 0) return;
    }
    while (true) {
      f(std::as_const(index));
      int r = Rank - 1;
      while (r >= 0 && ++index[sz(r)] == extents_[sz(r)]) index[sz(r--)] = 0;
      if (r < 0) return;
    }
  }
  T& at(Extents const& index) { return host_[position(index)]; }

  void fill_uniform(Random& random, double low = -1, double high = 1) {
    for_each([&](Extents const& i) { at(i) = from_double<T>(random.uniform(low, high)); });
    upload();
  }
  void fill_integers(Random& random, std::int64_t low, std::int64_t high) {
    for_each([&](Extents const& i) {
      at(i) = from_double<T>(static_cast<double>(random.integer(low, high)));
    });
    upload();
  }
  void fill(double value) {
    for_each([&](Extents const& i) { at(i) = from_double<T>(value); });
    upload();
  }

  void upload() {
    Kokkos::deep_copy(device_, HostBuffer(host_.data(), host_.size()));
    uploaded_ = host_;
  }
  /// Waits for the device and copies back.
  void download() {
    Kokkos::fence("attikos_test::download");
    Kokkos::deep_copy(HostBuffer(host_.data(), host_.size()), device_);
  }

  auto view() const { return make_view<T, Rank>(0); }
  auto const_view() const { return make_view<T const, Rank>(0); }
  /// The last Rank - 1 dimensions at first index 0.
  auto front() const { return make_view<T, Rank - 1>(1); }
  auto const_front() const { return make_view<T const, Rank - 1>(1); }

  /// Bytes that differ from the last upload although they belong to no element. After download().
  std::size_t writes_outside() const {
    std::vector<bool> inside(host_.size(), false);
    for_each([&](Extents const& i) { inside[position(i)] = true; });
    std::size_t count = 0;
    for (std::size_t i = 0; i < host_.size(); ++i) {
      if (!inside[i] && std::memcmp(&host_[i], &uploaded_[i], sizeof(T)) != 0) ++count;
    }
    return count;
  }
  /// Bitwise the same as at the last upload. After download().
  bool unchanged() const {
    return std::memcmp(host_.data(), uploaded_.data(), host_.size() * sizeof(T)) == 0;
  }
  /// The elements in order, for bitwise comparisons. After download().
  std::vector<T> elements() {
    std::vector<T> result;
    for_each([&](Extents const& i) { result.push_back(at(i)); });
    return result;
  }

 private:
  using Buffer = Kokkos::View<T*, typename Exec::memory_space>;
  using HostBuffer = Kokkos::View<T*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

  std::size_t allocate(Layout layout) {
    std::array<int, sz(Rank)> order{};  // fastest first
    for (int r = 0; r < Rank; ++r) order[sz(r)] = layout == Layout::left ? r : Rank - 1 - r;
    if constexpr (Rank >= 3) {
      if (layout == Layout::permuted) std::swap(order[1], order[2]);
    }
    bool const gaps = layout == Layout::padded || layout == Layout::strided;
    std::int64_t stride = layout == Layout::strided ? 2 : 1;
    std::int64_t last = 0;
    bool empty = false;
    for (int r : order) {
      strides_[sz(r)] = stride;
      last += stride * (extents_[sz(r)] - 1);
      empty = empty || extents_[sz(r)] == 0;
      stride = stride * extents_[sz(r)] + (gaps ? 3 : 0);
    }
    offset_ = layout == Layout::right ? 0 : 3;
    return sz(offset_ + (empty ? 0 : last + 1) + 5);
  }

  std::size_t position(Extents const& index) const {
    std::int64_t p = offset_;
    for (std::size_t r = 0; r < sz(Rank); ++r) p += index[r] * strides_[r];
    return sz(p);
  }

  template <class U, int R>
  ViewOf<U, R> make_view(std::size_t first) const {
    Kokkos::LayoutStride layout;
    for (std::size_t r = 0; r < sz(R); ++r) {
      layout.dimension[r] = sz(extents_[first + r]);
      layout.stride[r] = sz(strides_[first + r]);
    }
    return ViewOf<U, R>(device_.data() + offset_, layout);
  }

  Extents extents_;
  Extents strides_{};
  std::int64_t offset_ = 0;
  std::vector<T> host_;
  std::vector<T> uploaded_;
  Buffer device_;
};

/// Values of attention: every other feature has a mean, which a wrong scale shows in, and the
/// others have none, so that a key that is left out is large beside what is left of the sum.
constexpr double mean_of_feature(std::int64_t c) { return c % 2 == 0 ? 0 : 1; }
template <class T, class Exec>
void fill_values(Tensor<T, 4, Exec>& v, Random& random) {
  v.for_each([&](auto const& i) {
    v.at(i) = from_double<T>(random.uniform(-1, 1) + mean_of_feature(i[3]));
  });
  v.upload();
}

template <class T>
bool same_bits(std::vector<T> const& a, std::vector<T> const& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

}  // namespace attikos::test
