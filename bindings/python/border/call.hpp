// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the functions of the border share: arrays that came through DLPack as tensors of libattikos,
// the caller's context, and new arrays from the caller's allocator.
#pragma once

#include <attikos/attikos.h>
#include <tvm/ffi/any.h>
#include <tvm/ffi/container/tensor.h>

#include <cstdint>
#include <initializer_list>

namespace attikos::python {

namespace ffi = tvm::ffi;
using ffi::Any;
using ffi::AnyView;

/// Thrown where a call is not one of those that the border takes, or where libattikos refuses it.
/// It never reaches Python, which goes the long way then: that takes the call or says what is
/// wrong.
struct Declined {};

inline void expect(bool condition) {
  if (!condition) throw Declined();
}
inline void expect_success(attikos_status status) { expect(status == ATTIKOS_SUCCESS); }

/// What f() returns; None if that declines, or if memory cannot be had.
template <class F>
Any unless_declined(F const& f) noexcept {
  try {
    return f();
  } catch (...) {
    return {};
  }
}

// Arguments that are no arrays; only what Python's checks let through as it is.
double real(AnyView value);
std::int64_t integer(AnyView value);
std::int32_t flag(AnyView value);

/// An array of the caller's or a new one, maybe absent.
class Array {
 public:
  static constexpr int max_rank = 6;

  Array() = default;
  Array(Array const&) = delete;
  Array& operator=(Array const&) = delete;
  /// The caller's; None is an array that is absent, everything else that is no array is declined.
  explicit Array(AnyView given);

  bool given() const { return given_; }
  int rank() const { return tensor_.ndim; }
  std::int64_t extent(int r) const { return shape_[r < 0 ? r + rank() : r]; }
  std::int64_t const* shape() const { return shape_; }
  std::int32_t dtype() const { return tensor_.dtype; }
  DLDataType type() const { return type_; }
  DLDevice device() const { return device_; }
  bool is_floating() const { return given_ && tensor_.dtype <= ATTIKOS_BFLOAT16; }

  /// Null for an array that is absent.
  attikos_tensor const* get() const { return given_ ? &tensor_ : nullptr; }

  /// Sees [.., seqlen, heads, features] as [.., heads, seqlen, features].
  void heads_first();
  /// Sees leading dimensions as one until there are three of them.
  void join_leading();
  void see(DLTensor const& memory);

 private:
  bool given_ = false;
  DLDataType type_{};
  DLDevice device_{};
  std::int64_t shape_[max_rank] = {};
  std::int64_t strides_[max_rank] = {};
  attikos_tensor tensor_{};
};

/// A new array: the caller's own where Python made one, else memory of the caller's allocator.
class Result {
 public:
  Result(AnyView made, DLDevice device, DLDataType type, std::int64_t const* shape, int rank);

  Array& seen() { return array_; }
  attikos_tensor const* get() const { return array_.get(); }
  bool is_callers() const { return by_caller_; }
  /// Declines one that is of other extents or another type than `x`.
  void expect_like(Array const& x) const;
  /// What Python gets: the new array, or true where it has it.
  Any finish() const;
  /// Finishes a call of several results: Python gets the first, and the others by more(), which
  /// costs a third of a container of FFI's.
  Any finish(std::initializer_list<Result const*> others) const;

 private:
  ffi::Tensor made_{ffi::UnsafeInit{}};
  bool by_caller_;
  Array array_;
};

/// Declines arrays that do not lie together.
template <class... More>
void expect_together(Array const& first, More const&... more) {
  [[maybe_unused]] auto const here = [&](Array const& x) {
    return !x.given() || (x.device().device_type == first.device().device_type &&
                          x.device().device_id == first.device().device_id);
  };
  expect(first.given() && (... && here(more)));
}

/// The calling thread's context for a device and the stream that is current there.
attikos_context* context_of(DLDevice device);

}  // namespace attikos::python
