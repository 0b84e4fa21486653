// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the handlers share: a call of XLA's as tensors of libattikos, once or once for each position
// that vmap added, and the context of the thread for the stream that XLA hands over.
#pragma once

#include <attikos/attikos.h>
#include <xla/ffi/api/ffi.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace attikos::xla_handlers {

namespace ffi = ::xla::ffi;

/// What XLA gets; thrown here and caught where the handler returns.
struct Refused {
  ffi::ErrorCode code;
  std::string words;
};

/// A dense row-major buffer of XLA's: `added` dimensions of vmap, each of them possibly 1, then its
/// own; and what of it libattikos sees.
class Array {
 public:
  /// Of one of JAX's calls: four dimensions, and as many again for vmap.
  static constexpr int max_rank = 8;

  Array(std::string_view name, ffi::AnyBuffer buffer, int added);

  std::string_view name() const { return name_; }
  int rank() const { return rank_ - added_; }  // its own
  std::int64_t added(int i) const { return shape_[i]; }
  std::int64_t own(int i) const { return shape_[added_ + i]; }
  /// Whether the dimensions of vmap are all 1: one array for all positions.
  bool is_shared() const;
  bool has_added(std::vector<std::int64_t> const& sizes) const;

  /// Sees the part at a position of vmap's dimensions; as_rows: all dimensions before the last as
  /// one.
  void see_part(std::vector<std::int64_t> const& position, bool as_rows);
  /// Sees vmap's dimensions, of which there are `count` positions, as one in front of its own.
  void see_in_front(std::int64_t count);
  /// Sees vmap's dimensions joined with its first own.
  void see_joined(std::int64_t count);
  /// Sees all dimensions before the last as one; those of vmap apart where one array serves all of
  /// `count` positions.
  void see_rows(std::int64_t count, bool apart);
  /// The last view; valid as long as this array stays where it is.
  attikos_tensor const* get();

 private:
  void see(std::int64_t offset, std::vector<std::int64_t> const& shape);

  std::string_view name_;
  char* data_;
  std::int32_t dtype_;
  int rank_;
  int added_;
  std::int64_t shape_[max_rank] = {};
  std::int64_t seen_shape_[max_rank] = {};
  std::int64_t seen_strides_[max_rank] = {};
  attikos_tensor seen_{};
};

/// Arrays of a call by name, results by number, and its settings.
class Call {
 public:
  /// operation: its name in Python. The attribute `arguments` names the arrays in order, `ranks`
  /// says how many dimensions each had before vmap.
  Call(std::string_view operation, bool on_host, ffi::RemainingArgs arguments,
       ffi::RemainingRets results, ffi::Dictionary settings);

  bool is_on_host() const { return on_host_; }

  /// Null for one that was not given.
  attikos_tensor const* operator[](std::string_view name);
  attikos_tensor const* result(std::size_t i);
  std::size_t result_count() const { return results_.size(); }
  double real(std::string_view name) const;
  std::int64_t integer(std::string_view name) const;
  std::int32_t flag(std::string_view name) const { return integer(name) != 0 ? 1 : 0; }

  /// How vmap's dimensions become part of an operation.
  enum class Place { rows, batch, in_front };
  /// Runs f() once if vmap added nothing, or its dimensions have a place: all arrays are among
  /// `batched`, or, of rows, one for all. Else once for each position, in order.
  template <class F>
  void run(Place place, std::vector<std::string_view> const& batched, bool shares, F const& f) {
    if (is_empty()) return;
    if (join(place, batched, shares)) {
      f();
      return;
    }
    for (std::int64_t i = 0; i < count_; ++i) {
      see_parts(i, place);
      f();
    }
  }

  /// Turns a failure of libattikos into one of XLA, in the same words; `about`: what they are about
  /// where they do not say it.
  void expect_success(attikos_status status, std::string_view about = {}) const;

 private:
  bool is_empty() const;
  bool join(Place place, std::vector<std::string_view> const& batched, bool shares);
  void see_parts(std::int64_t i, Place place);

  std::string operation_;
  bool on_host_;
  ffi::Dictionary settings_;
  std::vector<Array> arrays_;
  std::vector<Array> results_;
  std::vector<std::int64_t> added_;  // extents of vmap's dimensions
  std::int64_t count_ = 1;
};

/// Memory for the length of a call, from XLA.
using Scratch = ffi::ScratchAllocator;

/// The calling thread's context of the host.
attikos_context* host_context(Call const& call);
/// The calling thread's context of a device for XLA's stream, with memory from `scratch` for this
/// call.
attikos_context* cuda_context(Call const& call, std::int32_t ordinal, void* stream,
                              Scratch& scratch);

}  // namespace attikos::xla_handlers
