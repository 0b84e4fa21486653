// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// pack_b(): the right factor of many products, packed once.
#pragma once

#include <attikos/core/dispatch/to_abi.hpp>
#include <attikos/core/launch.hpp>
#include <attikos/gemm/packed_b.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {

/// Options of pack_b().
struct PackBOptions {
  bool trans_b = false;  ///< op(B) = Bᵀ, as in the calls of gemm() that will take it
};

namespace detail {

/// Copies B into packed memory: a panel of columns, or of a plain copy a row, for each index.
template <class T>
struct PackBPortable {
  using Kind = PackedKind<T>;
  using Acc = typename Kind::Acc;

  void* to;
  PackedLayout layout;
  Block<T const> b;  ///< op(B), or of a plain copy B as it is
  std::int64_t rows, cols;

  std::int64_t count() const {
    return layout.form == PackedForm::plain ? rows : (cols + layout.columns - 1) / layout.columns;
  }

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    KOKKOS_IF_ON_HOST((pack(index);))
    (void)index;
  }

  void pack(std::int64_t index) const {
    if (layout.form == PackedForm::plain) {
      T* const row = static_cast<T*>(to) + index * cols;
      for (std::int64_t j = 0; j < cols; ++j) row[j] = *b.at(index, j);
      return;
    }
    int const k = static_cast<int>(rows);
    std::int64_t const col = index * layout.columns;
    int const count = static_cast<int>(std::min<std::int64_t>(cols - col, layout.columns));
    if constexpr (Kind::Dot::exists) {
      if (Kind::dots(layout.isa))
        return Kind::Dot::pack_panel(layout.isa, static_cast<typename Kind::Dot::Packed*>(to), b, k,
                                     col, count);
    }
    host::pack_panels<Kind::Traits::cols, Acc, T>(
        static_cast<Acc*>(to) + col * k, k, {b.at(0, col), b.row_stride, b.col_stride}, k, count);
  }
};

/// Checks B's static type.
template <class B>
constexpr void check_pack_types() {
  static_assert(rank_of<B> == 2, "attikos::pack_b: B has rank 2");
  static_assert(is_wide_real<element_t<B>> || std::is_same_v<element_t<B>, std::int8_t>,
                "attikos::pack_b: B must be double, float, float16, bfloat16 or int8_t");
}

template <TensorLike B>
PackedLayout pack_b_layout(B const& b, PackBOptions const& options) {
  check_pack_types<B>();
  AnyTensor const x = any_tensor(b);
  check_extents("pack_b", "B", x);
  bool const t = options.trans_b;
  return packed_b_layout<element_t<B>>(host_isa(), x.extent[t ? 1 : 0], x.extent[t ? 0 : 1], t);
}

/// Packs into checked memory.
template <ExecutionSpace Exec, TensorLike B>
void pack_b_run(Exec const& exec, B const& b, void* to, PackedLayout const& layout) {
  static_assert(is_host_space<Exec>,
                "attikos::pack_b: packed factors are for execution spaces of hosts; kernels of "
                "devices read B as it is");
  static_assert(is_accessible<Exec, B>(),
                "attikos::pack_b: B cannot be reached from the execution space");
  AnyTensor const x = any_tensor(b);
  using T = element_t<B>;
  bool const turned = layout.trans_b && layout.form != PackedForm::plain;
  PackBPortable<T> const kernel{to,
                                layout,
                                {x.as<T>(), x.stride[turned ? 1 : 0], x.stride[turned ? 0 : 1]},
                                x.extent[turned ? 1 : 0],
                                x.extent[turned ? 0 : 1]};
  if (layout.bytes == 0) return;
  launch("pack_b", "portable", range_policy(exec, kernel.count()), kernel);
}

}  // namespace detail

/// Bytes of memory that pack_b() wants for B, whose elements are not read.
///
/// As much as B, rounded up to panels of 16 or 32 columns and squares of 64 bytes along k, where
/// instructions take its type: bfloat16 and int8 where host_isa() has theirs, float and double.
/// float16, and bfloat16 without such instructions, are packed in float and take twice as much.
template <TensorLike B>
std::size_t pack_b_size(B const& b, PackBOptions const& options = {}) {
  return detail::pack_b_layout(b, options).bytes;
}

/// Packs a right factor for gemm(), so that calls with the same weights do not pack them each time:
/// what comes back stands for B in any number of calls, which give the same bits as with B.
///
/// \param exec     execution space instance of a host; the call is asynchronous on it and never
///                 fences
/// \param b        [k, n] ([n, k] with `trans_b`) of double, float, float16, bfloat16 or int8, any
///                 strides; not referred to afterwards
/// \param memory   rank-1 tensor of any elements, at least pack_b_size() bytes, contiguous, at an
///                 address divisible by packed_b_alignment; written, and read by the calls that
///                 take the result, so it outlives these. Overlaps nothing of B
/// \param options  transposition, the same as in the calls of gemm()
///
/// The elements lie as the instructions of host_isa() want them, which PackedLayout describes: in
/// panels of columns, pairs of bfloat16 or quads of int8 together. A plain copy is kept where
/// nothing better is known: of int8 without such instructions, and of matrices without an extent
/// above 32, whose products may go to code that reads B as it is. gemm() takes that all the same,
/// and explain() says which it is.
///
/// Extents may be 0.
///
/// Throws ShapeError, StrideError, Error, and ResourceError for memory that is too small or not
/// aligned, before anything is launched or written.
///
/// Determinism: the same bytes for any number of threads.
template <ExecutionSpace Exec, TensorLike B, TensorLike Memory>
PackedB<element_t<B>> pack_b(Exec const& exec, B const& b, Memory const& memory,
                             PackBOptions const& options = {}) {
  static_assert(rank_of<Memory> == 1, "attikos::pack_b: memory has rank 1");
  static_assert(is_accessible<Kokkos::DefaultHostExecutionSpace, Memory>(),
                "attikos::pack_b: memory cannot be reached from hosts");
  PackedLayout const layout = detail::pack_b_layout(b, options);
  auto* const data = detail::data_of(memory);
  using Storage = std::remove_pointer_t<decltype(data)>;
  static_assert(!std::is_const_v<Storage>, "attikos::pack_b: memory must not be const");
  std::int64_t const elements = detail::extent_of(memory, 0);
  std::size_t const size =
      static_cast<std::size_t>(std::max<std::int64_t>(elements, 0)) * sizeof(Storage);
  if (size < layout.bytes)
    detail::raise<ResourceError>("pack_b: memory has ", size, " bytes; expected at least ",
                                 layout.bytes, " for B of ",
                                 detail::describe(detail::any_tensor(b)));
  if (elements > 1 && detail::stride_of(memory, 0) != 1)
    detail::raise<StrideError>("pack_b: memory has stride ", detail::stride_of(memory, 0),
                               "; expected contiguous memory");
  detail::check_packed_alignment("pack_b", "memory", data);
  detail::AnyTensor const bytes{
      data, DType::uint8, 1, {static_cast<std::int64_t>(layout.bytes)}, {1}};
  detail::check_outputs("pack_b", {{"memory", bytes}}, {{"B", detail::any_tensor(b)}});
  detail::pack_b_run(exec, b, data, layout);
  using Packed = PackedB<element_t<B>>;
  return {typename Packed::Memory(reinterpret_cast<std::uint8_t const*>(data), layout.bytes),
          layout};
}

/// The same into memory that is allocated here, of which what comes back, and its copies, are the
/// owners. Throws std::bad_alloc, or what Kokkos throws in its place, as well.
template <ExecutionSpace Exec, TensorLike B>
PackedB<element_t<B>> pack_b(Exec const& exec, B const& b, PackBOptions const& options = {}) {
  PackedLayout const layout = detail::pack_b_layout(b, options);
  Kokkos::View<std::uint8_t*, Kokkos::HostSpace> const memory(
      Kokkos::view_alloc("attikos::pack_b", Kokkos::WithoutInitializing), layout.bytes);
  detail::check_packed_alignment("pack_b", "memory", memory.data());
  detail::pack_b_run(exec, b, memory.data(), layout);
  return {memory, layout};
}

/// The same on an instance of the default host execution space.
template <TensorLike B>
PackedB<element_t<B>> pack_b(B const& b, PackBOptions const& options = {}) {
  return pack_b(Kokkos::DefaultHostExecutionSpace{}, b, options);
}

}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
