// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rows of tensors on their way into messages and out of them.
#pragma once

#include <attikos/core/rows/rows.hpp>
#include <attikos/distributed/communicator.hpp>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Part of a tensor of rank 4: batch entries, heads and rows from `first` on, `extent` of them.
struct Box {
  std::int64_t first[3], extent[3];
};

/// A tensor whose last two numbers of a row lie `stride` apart from those of the next one.
inline AnyTensor dense_rows(void* data, DType type, std::int64_t batch, std::int64_t heads,
                            std::int64_t rows, std::int64_t features, std::int64_t row_stride) {
  return {data,
          type,
          4,
          {batch, heads, rows, features},
          {heads * rows * row_stride, rows * row_stride, row_stride, 1}};
}

inline AnyTensor part_of(AnyTensor x, Box const& box) {
  std::int64_t offset = 0;
  for (int r = 0; r < 3; ++r) {
    offset += box.first[r] * x.stride[r];
    x.extent[r] = box.extent[r];
  }
  if (x.data != nullptr) x.data = x.as<char>() + offset * dtype_size(x.type);
  return x;
}

/// Copies rows of the same extents, or adds them to what is there.
template <class From, class To, bool Add>
struct CopyRow {
  TensorRef<From const, 4> from;
  TensorRef<To, 4> to;

  KOKKOS_INLINE_FUNCTION std::int64_t row_of(std::int64_t index, std::int64_t& b,
                                             std::int64_t& h) const {
    std::int64_t const bh = index / to.extent[2];
    b = bh / to.extent[1];
    h = bh % to.extent[1];
    return index % to.extent[2];
  }
  KOKKOS_INLINE_FUNCTION static void put(To& target, From const& source) {
    if constexpr (Add)
      target += static_cast<To>(source);
    else
      target = static_cast<To>(source);
  }
  void host_row(std::int64_t index) const {
    std::int64_t b = 0, h = 0;
    std::int64_t const i = row_of(index, b, h);
    From const* const source = from.ptr(b, h, i, 0);
    To* const target = to.ptr(b, h, i, 0);
    if (from.stride[3] == 1 && to.stride[3] == 1) {
      if constexpr (std::is_same_v<From, To> && !Add)
        std::memcpy(target, source, static_cast<std::size_t>(to.extent[3]) * sizeof(To));
      else
        for (std::int64_t c = 0; c < to.extent[3]; ++c) put(target[c], source[c]);
      return;
    }
    for (std::int64_t c = 0; c < to.extent[3]; ++c)
      put(target[c * to.stride[3]], source[c * from.stride[3]]);
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    std::int64_t b = 0, h = 0;
    std::int64_t const i = row_of(index, b, h);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, to.extent[3]),
                         [&](std::int64_t c) { put(to(b, h, i, c), from(b, h, i, c)); });
  }
};

template <class From, class To, bool Add = false, class Exec>
void copy_rows(Exec const& exec, char const* operation, AnyTensor const& from,
               AnyTensor const& to) {
  if (to.extent[3] == 0) return;
  launch_rows(exec, operation,
              CopyRow<From, To, Add>{ref_of<From const, 4>(from), ref_of<To, 4>(to)},
              to.extent[0] * to.extent[1] * to.extent[2], to.extent[3]);
}

/// Rows in a message, which MPI counts in an int.
inline int message_rows(char const* operation, std::int64_t rows) {
  if (rows > std::numeric_limits<int>::max())
    raise<UnsupportedError>(operation, ": a message of ", rows, " rows; expected at most ",
                            std::numeric_limits<int>::max(),
                            ", the product of batch, heads and rows");
  return static_cast<int>(rows);
}

/// Memory of messages. They are sent from `wire` and received there, kernels use `data`; both are
/// one where messages may lie in the memory of the space, else `wire` is pinned memory of the host.
template <class Exec>
class MessageBuffer {
 public:
  using Space = typename Exec::memory_space;
  static constexpr bool host = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Space>::accessible;

  MessageBuffer() = default;
  /// \param number of the buffer among those of a call
  MessageBuffer(char const* operation, distributed::Communicator& comm, int number,
                std::int64_t bytes) {
    auto const size = static_cast<std::size_t>(bytes);
    data = comm.buffer<Space>(operation, 2 * number, size);
    wire = data;
    if constexpr (!host)
      if (!comm.gpu_aware())
        wire = comm.buffer<typename Pinned<Exec>::type>(operation, 2 * number + 1, size);
  }

  /// Before it is sent: what kernels wrote goes to where it is sent from. Asynchronous.
  void to_wire(Exec const& exec, std::int64_t bytes) const { copy<true>(exec, 0, bytes); }
  /// After it has come, for kernels. Asynchronous.
  void from_wire(Exec const& exec, std::int64_t bytes) const { copy<false>(exec, 0, bytes); }
  /// The same of a part of it.
  void from_wire_at(Exec const& exec, std::int64_t first, std::int64_t bytes) const {
    copy<false>(exec, first, bytes);
  }

  void* data = nullptr;
  void* wire = nullptr;

 private:
  template <class E>
  struct Pinned {
    using type = Kokkos::SharedHostPinnedSpace;
  };

  template <bool ToWire>
  void copy([[maybe_unused]] Exec const& exec, [[maybe_unused]] std::int64_t first,
            [[maybe_unused]] std::int64_t bytes) const {
    if constexpr (!host) {
      if (data == wire) return;
      using Traits = Kokkos::MemoryTraits<Kokkos::Unmanaged>;
      auto const size = static_cast<std::size_t>(bytes);
      Kokkos::View<char*, Space, Traits> const here(static_cast<char*>(data) + first, size);
      Kokkos::View<char*, typename Pinned<Exec>::type, Traits> const there(
          static_cast<char*>(wire) + first, size);
      if constexpr (ToWire)
        Kokkos::deep_copy(exec, there, here);
      else
        Kokkos::deep_copy(exec, here, there);
    }
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
