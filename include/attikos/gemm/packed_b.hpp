// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A right factor of products in the panels that a host's instructions read: what they look like,
/// and whether memory holds those of this process.
#pragma once

#include <algorithm>
#include <attikos/core/any_tensor.hpp>
#include <attikos/gemm/gemm_dot.hpp>
#include <attikos/gemm/gemm_small.hpp>
#include <string>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// How packed memory holds the elements of B.
enum class PackedForm : std::uint8_t {
  plain,   ///< as B does, dense: no instruction wants them otherwise
  panels,  ///< panels of columns, in the type of the sums
  pairs,   ///< panels of columns, of each two neighbors along k at a time
  quads,   ///< the same with four
};

/// Number of the layouts below; memory that was packed by another is refused.
inline constexpr int packed_b_version = 1;
/// Bytes that the address of packed memory is a multiple of.
inline constexpr std::size_t packed_b_alignment = 64;

/// What packed memory holds. Plain numbers, which a program may store beside it: memory packed by
/// one process serves another whose packed_b_layout() is the same.
struct PackedLayout {
  DType type = DType::float32;          ///< of B's elements
  PackedForm form = PackedForm::plain;  ///< how they lie
  HostIsa isa = HostIsa::compiled;      ///< host_isa() where they were packed
  int version = packed_b_version;       ///< of the layouts
  int columns = 0;                      ///< of a panel; 0 without panels
  bool trans_b = false;                 ///< B was given as Bᵀ, [n, k]
  std::int64_t k = 0, n = 0;            ///< extents of op(B)
  std::size_t bytes = 0;                ///< of the memory

  friend bool operator==(PackedLayout const&, PackedLayout const&) = default;

  /// "[256, 512] bfloat16 in pairs, panels of 32 columns", the extents those of op(B).
  std::string to_string() const {
    std::string text = "[" + std::to_string(k) + ", " + std::to_string(n) + "] " + dtype_name(type);
    if (form == PackedForm::plain) return text + " as a plain copy";
    char const* const what = form == PackedForm::panels  ? " in panels of "
                             : form == PackedForm::pairs ? " in pairs, panels of "
                                                         : " in quads, panels of ";
    return text + what + std::to_string(columns) + " columns";
  }
};

/// A right factor that pack_b() made of B, for gemm() in B's place, which only reads it: any number
/// of calls and threads may share one.
template <class T>
struct PackedB {
  /// Bytes of a host.
  using Memory = Kokkos::View<std::uint8_t const*, Kokkos::HostSpace>;
  /// `layout.bytes` of them, at an address divisible by packed_b_alignment: the caller's memory, or
  /// the View's own where pack_b() allocated it.
  Memory memory;
  PackedLayout layout;  ///< what they are
};

namespace detail {

template <class T>
inline constexpr bool is_packed_b = false;
template <class T>
inline constexpr bool is_packed_b<PackedB<T>> = true;

/// How elements `T` are packed: sums and instructions are those of a product of A and B of that
/// type.
template <class T>
struct PackedKind {
  using Acc = GemmAccumulator<T, T, T>;
  using Traits = TileTraits<Kokkos::DefaultHostExecutionSpace, Acc>;
  using Dot = GemmDot<Acc, T, T>;

  /// Whether those instructions are there; else the compiled vector code multiplies.
  static bool dots(HostIsa isa) { return Dot::exists && isa >= Dot::isa; }

  static PackedForm form(HostIsa isa, std::int64_t k, std::int64_t n) {
    // Products without an extent above small_gemm_extent sum in another order, by code that reads
    // B as it is: what A will bring is not known here. Panels are counted in int.
    bool const fits = k > 0 && n > 0 && k <= INT32_MAX - 1024;
    if (!fits || (k <= small_gemm_extent && n <= small_gemm_extent)) return PackedForm::plain;
    if (!dots(isa)) return std::is_floating_point_v<Acc> ? PackedForm::panels : PackedForm::plain;
    return Dot::values == 4   ? PackedForm::quads
           : Dot::values == 2 ? PackedForm::pairs
                              : PackedForm::panels;
  }
};

}  // namespace detail

/// What pack_b() would make of B with these extents of op(B) on a process of that instruction set.
template <class T>
PackedLayout packed_b_layout(HostIsa isa, std::int64_t k, std::int64_t n, bool trans_b = false) {
  using Kind = detail::PackedKind<T>;
  PackedLayout x{dtype_of<T>, Kind::form(isa, k, n), isa, packed_b_version, 0, trans_b, k, n, 0};
  if (x.form == PackedForm::plain) {
    x.bytes = static_cast<std::size_t>(k * n) * sizeof(T);
    return x;
  }
  x.columns = Kind::Traits::cols;
  if constexpr (Kind::Dot::exists) {
    if (Kind::dots(isa)) {
      using Dot = typename Kind::Dot;
      x.columns = Dot::cols;
      x.bytes = static_cast<std::size_t>(Dot::packed_words(k, n)) * sizeof(typename Dot::Packed);
      return x;
    }
  }
  x.bytes = static_cast<std::size_t>(k * detail::round_up<std::int64_t>(n, x.columns)) *
            sizeof(typename Kind::Acc);
  return x;
}

namespace detail {

inline void check_packed_alignment(char const* operation, char const* name, void const* data) {
  if (reinterpret_cast<std::uintptr_t>(data) % packed_b_alignment != 0)
    raise<ResourceError>(operation, ": ", name, " begins at ", data,
                         "; expected an address divisible by ", packed_b_alignment);
}

/// The memory that a packed factor is.
template <class T>
AnyTensor packed_memory(PackedB<T> const& b) {
  return {b.memory.data(), DType::uint8, 1, {static_cast<std::int64_t>(b.layout.bytes)}, {1}};
}

/// Throws unless the memory holds what this process would pack.
template <class T>
void check_packed_b(char const* operation, PackedB<T> const& b, char const* name = "B") {
  PackedLayout const& x = b.layout;
  if (x.version != packed_b_version)
    raise<UnsupportedError>(operation, ": ", name, " was packed in layout version ", x.version,
                            "; expected ", packed_b_version, ", which this library packs in");
  if (x.type != dtype_of<T>)
    raise<DtypeError>(operation, ": ", name, " holds packed ", dtype_name(x.type), "; expected ",
                      dtype_name(dtype_of<T>));
  if (x.k < 0 || x.n < 0)
    raise<ShapeError>(operation, ": packed ", name, " has extents [", x.k, ", ", x.n,
                      "]; expected 0 or more");
  if (HostIsa const isa = host_isa(); x.isa != isa)
    raise<UnsupportedError>(operation, ": ", name, " was packed for ", host_isa_name(x.isa),
                            ", but this process uses ", host_isa_name(isa),
                            " (ATTIKOS_HOST_ISA); expected one packed for it by pack_b()");
  PackedLayout const own = packed_b_layout<T>(x.isa, x.k, x.n, x.trans_b);
  if (!(x == own))
    raise<UnsupportedError>(operation, ": ", name, " is ", x.to_string(), ", ", x.bytes,
                            " bytes; expected ", own.to_string(), ", ", own.bytes,
                            " bytes, as code compiled with these flags reads it");
  if (b.memory.extent(0) < x.bytes)
    raise<ResourceError>(operation, ": packed ", name, " has ", b.memory.extent(0),
                         " bytes; expected at least ", x.bytes);
  check_packed_alignment(operation, name, b.memory.data());
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
