// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From attikos_tensor to the tensors that operations take: checks, static element types and ranks.
#pragma once

#include <array>
#include <attikos/core/any_tensor.hpp>
#include <attikos/core/dtypes.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "context.hpp"
#include "status.hpp"

namespace attikos::c {

/// A tensor whose element type and rank the compiler knows, with 64-bit strides of any sign. It is
/// an mdspan as far as attikos::Mdspan asks, and much quicker to compile than one.
template <class T, int Rank>
class Span {
 public:
  using element_type = T;
  using data_handle_type = T*;
  using reference = T&;
  using accessor_type = void*;  // plain references: nothing stands between index and element
  using rank_type = std::size_t;
  static constexpr std::size_t rank() { return Rank; }

  Span() = default;
  Span(T* data, std::array<std::int64_t, Rank> const& extents,
       std::array<std::int64_t, Rank> const& strides)
      : data_(data), extents_(extents), strides_(strides) {}

  T* data_handle() const { return data_; }
  std::int64_t extent(std::size_t r) const { return extents_[r]; }
  Span const& mapping() const { return *this; }
  std::int64_t stride(std::size_t r) const { return strides_[r]; }

 private:
  T* data_ = nullptr;
  std::array<std::int64_t, Rank> extents_{};
  std::array<std::int64_t, Rank> strides_{};
};

/// A checked attikos_tensor: extents and strides of at most `max_rank` dimensions.
struct Tensor {
  static constexpr int max_rank = 8;
  char const* name = "";
  void* data = nullptr;
  std::int32_t dtype = ATTIKOS_FLOAT32;
  int rank = 0;
  std::array<std::int64_t, max_rank> extent{};
  std::array<std::int64_t, max_rank> stride{};

  bool has_elements() const;
  /// "[2, 8] float16"
  std::string describe() const;

  /// The tensor as the library's checks see it, which know no dimensions of 0: one number is [1].
  attikos::detail::AnyTensor any() const;

  /// The tensor with its rank raised to `Rank` by leading dimensions of extent 1.
  template <class T, int Rank>
  Span<T, Rank> span() const {
    std::array<std::int64_t, Rank> e{};
    std::array<std::int64_t, Rank> s{};
    for (int r = 0; r < Rank; ++r) {
      int const from = r - (Rank - rank);
      e[static_cast<std::size_t>(r)] = from < 0 ? 1 : extent[static_cast<std::size_t>(from)];
      s[static_cast<std::size_t>(r)] = from < 0 ? 0 : stride[static_cast<std::size_t>(from)];
    }
    return Span<T, Rank>(static_cast<T*>(data), e, s);
  }
};

/// Checks what a tensor says about itself: number of dimensions, extents, offsets. Its data are not
/// looked at.
Tensor read_shape(char const* operation, char const* name, attikos_tensor const* tensor,
                  int min_rank, int max_rank);

/// The same, and that its data are there, aligned and within reach of the context's device.
Tensor read_tensor(char const* operation, char const* name, attikos_tensor const* tensor,
                   int min_rank, int max_rank, attikos_context const& context);

/// A rank-1 tensor of no memory, standing where an optional vector was not given: operations take
/// null data as absent.
template <class T>
Span<T, 1> absent_vector(std::int64_t extent) {
  return Span<T, 1>(nullptr, {extent}, {1});
}

/// The code under which the C interface knows an element type.
template <class T>
inline constexpr std::int32_t code_of = static_cast<std::int32_t>(dtype_of<T>);
static_assert(code_of<double> == ATTIKOS_FLOAT64 && code_of<bfloat16> == ATTIKOS_BFLOAT16 &&
              code_of<float8_e4m3> == ATTIKOS_FLOAT8_E4M3 && code_of<std::int8_t> == ATTIKOS_INT8 &&
              code_of<std::uint8_t> == ATTIKOS_UINT8 && code_of<std::int32_t> == ATTIKOS_INT32 &&
              code_of<std::int64_t> == ATTIKOS_INT64);

/// Refuses an element type, naming those that are taken.
[[noreturn]] void refuse_dtype(char const* operation, Tensor const& tensor, char const* expected);

/// Calls f(std::type_identity<T>) for the one of `Ts` that the tensor holds.
template <class... Ts, class F>
void visit_dtype(char const* operation, Tensor const& tensor, F const& f) {
  if (!(... || (tensor.dtype == code_of<Ts> && (f(std::type_identity<Ts>{}), true)))) {
    std::string expected;
    ((expected += (expected.empty() ? "" : ", ") + std::string(attikos_dtype_name(code_of<Ts>))),
     ...);
    refuse_dtype(operation, tensor, expected.c_str());
  }
}

/// Calls f as visit_dtype does for the four floating types that operations compute in.
template <class F>
void visit_floating(char const* operation, Tensor const& tensor, F const& f) {
  visit_dtype<double, float, float16, bfloat16>(operation, tensor, f);
}

/// Calls f as visit_dtype does for the types that go beside elements of type T: T itself and,
/// beside 16 bits, float.
template <class T, class F>
void visit_beside(char const* operation, Tensor const& tensor, F const& f) {
  if constexpr (sizeof(T) == 2) {
    visit_dtype<T, float>(operation, tensor, f);
  } else {
    visit_dtype<T>(operation, tensor, f);
  }
}

/// Refuses a tensor that has not the element type of `like`.
void expect_same_dtype(char const* operation, Tensor const& tensor, Tensor const& like);

}  // namespace attikos::c
