// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Copies of a block of a matrix into scratch, in the order that fragments read, asynchronous where
/// the hardware has such copies.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/fragments/fragments.hpp>
#include <attikos/core/fragments/unroll.hpp>
#include <attikos/ptx/cp_async.hpp>
#include <cstdint>
#include <type_traits>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Copies the first `bytes` of `Size` bytes to scratch, and zeros for the rest. `from` is not
/// followed where `bytes` is 0. Lands with wait_for_copies().
template <int Size>
KOKKOS_INLINE_FUNCTION void copy_to_scratch(void* to, void const* from, int bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  cuda::copy_async<Size>(static_cast<std::uint32_t>(__cvta_generic_to_shared(to)), from, bytes);
#else
  struct alignas(Size) Bytes {
    unsigned char value[Size];
  };
  if (bytes == Size) {
    *static_cast<Bytes*>(to) = *static_cast<Bytes const*>(from);
  } else {
    for (int i = 0; i < Size; ++i)
      static_cast<unsigned char*>(to)[i] =
          i < bytes ? static_cast<unsigned char const*>(from)[i] : static_cast<unsigned char>(0);
  }
#endif
}

/// An operand in memory, in elements: what its address moves by, along mn and k and otherwise.
struct StageSource {
  void const* data;        ///< where all of it begins; null where it lies behind pointers
  std::int64_t mn, k;      ///< strides
  std::int64_t others[2];  ///< what else its address may move by; 0: nothing
  bool begins_at_any_mn;   ///< blocks may begin at any mn
};

/// How blocks of `MN` × `K` elements of an operand come into scratch: decided once for a launch.
/// `Fragments` read them there; they are stored as `Stored`. Where blocks lie side by side in
/// scratch, `WholeMN` is the extent of all.
template <class Fragments, class Stored, int MN, int K, int WholeMN = MN>
struct Stage {
  using T = typename Fragments::Element;
  static_assert((MN & (MN - 1)) == 0 && (K & (K - 1)) == 0, "indices are shifted and masked");

  std::int64_t from_mn, from_k;  ///< strides in memory
  bool k_major;                  ///< in scratch
  int width;                     ///< neighbors that are copied at once; 1: element by element
  bool along_k;                  ///< neighboring threads copy what follows one another along k

  /// Elements of scratch that a block may take, or all that lie side by side.
  static constexpr int size = [] {
    int const by_k = Fragments::reads_k_major ? WholeMN * (K + Fragments::pad_k) : 0;
    int const by_mn = Fragments::reads_k_major_alone ? 0 : K * (WholeMN + Fragments::pad_mn);
    return by_k > by_mn ? by_k : by_mn;
  }();
  static_assert(size * sizeof(T) % 16 == 0);

  /// Strides in scratch.
  static constexpr KOKKOS_INLINE_FUNCTION FactorPlace place(bool by_k) {
    return by_k ? FactorPlace{K + Fragments::pad_k, 1}
                : FactorPlace{1, WholeMN + Fragments::pad_mn};
  }

  /// Lies in scratch as a neighbor does.
  void lie_beside(bool by_k) {
    if (k_major != by_k) width = 1;
    k_major = by_k;
  }

  /// The widest copies that address and strides allow.
  explicit Stage(StageSource const& s) : from_mn(s.mn), from_k(s.k), width(1) {
    auto const size_of = [](std::int64_t stride) { return stride < 0 ? -stride : stride; };
    along_k = size_of(s.k) == 1 || (size_of(s.mn) != 1 && size_of(s.k) < size_of(s.mn));
    k_major = Fragments::reads_k_major && (Fragments::reads_k_major_alone || along_k);
    if constexpr (std::is_same_v<T, Stored>) {
      // A block may begin anywhere along mn; what lies behind a pointer is aligned as its elements.
      bool const dense = k_major == along_k && (along_k ? s.k : s.mn) == 1;
      if (!dense || s.data == nullptr || (s.begins_at_any_mn && !along_k)) return;
      for (int bytes : {16, 8, 4}) {
        auto const apart = [&](std::int64_t stride) {
          return stride * static_cast<std::int64_t>(sizeof(T)) % bytes == 0;
        };
        if (bytes > static_cast<int>(sizeof(T)) && apart(along_k ? s.mn : s.k) &&
            apart(s.others[0]) && apart(s.others[1]) &&
            reinterpret_cast<std::uintptr_t>(s.data) % static_cast<unsigned>(bytes) == 0) {
          width = bytes / static_cast<int>(sizeof(T));
          return;
        }
      }
    }
  }

  /// Copies a block by `Threads` threads, of which this is number `thread`. Elements from `mn_end`
  /// and `k_end` on become 0, and nothing is read there. `ByK` is k_major.
  template <int Threads, bool ByK>
  KOKKOS_INLINE_FUNCTION void copy(T* to, Stored const* from, int mn_end, int k_end,
                                   int thread) const {
    if constexpr (std::is_same_v<T, Stored>) {
      constexpr int most = 16 / static_cast<int>(sizeof(T));
      // All copies of a thread lie at the same place of their rows.
      if constexpr (Threads % (MN / most) == 0 && Threads % (K / most) == 0) {
        if (width == most) return copy_widest<Threads, ByK>(to, from, mn_end, k_end, thread);
      }
      if (width > 1) {
        for (int i = thread; i < MN * K / width; i += Threads)
          copy_neighbors<ByK>(to, from, mn_end, k_end, i);
        return;
      }
    }
    if constexpr (Threads % MN == 0 && Threads % K == 0)
      copy_by_steps<Threads, ByK>(to, from, mn_end, k_end, thread);
    else
      copy_elements<Threads, ByK>(to, from, mn_end, k_end, thread);
  }

 private:
  template <int Threads, bool ByK>
  KOKKOS_INLINE_FUNCTION void copy_widest(T* to, T const* from, int mn_end, int k_end,
                                          int thread) const {
    constexpr int most = 16 / static_cast<int>(sizeof(T));
    constexpr int count = MN * K / most, turns = (count + Threads - 1) / Threads;
    constexpr int chunks = (ByK ? K : MN) / most;
    int const fast_end = ByK ? k_end : mn_end, slow_end = ByK ? mn_end : k_end;
    std::int64_t const pitch = ByK ? from_mn : from_k;
    constexpr int to_pitch =
        ByK ? place(true).mn : place(false).k;  // dense here means along_k == ByK
    int const fast = thread % chunks * most, slow = thread / chunks, step = Threads / chunks;
    int const left = fast_end - fast;
    int const whole = left <= 0 ? 0 : left >= most ? 16 : left * static_cast<int>(sizeof(T));
    from += slow * pitch + (whole > 0 ? fast : 0);
    to += slow * to_pitch + fast;
    if (count % Threads == 0 && slow_end >= (ByK ? MN : K)) {
      ATTIKOS_UNROLL_DEVICE
      for (int i = 0; i < turns; ++i)
        copy_to_scratch<16>(to + i * step * to_pitch, from + i * step * pitch, whole);
      return;
    }
    ATTIKOS_UNROLL_DEVICE
    for (int i = 0; i < turns; ++i) {
      if (count % Threads != 0 && thread + i * Threads >= count) return;
      bool const inside = slow + i * step < slow_end;
      copy_to_scratch<16>(to + i * step * to_pitch,
                          inside ? from + i * step * pitch : from - slow * pitch,
                          inside ? whole : 0);
    }
  }

  template <bool ByK>
  KOKKOS_INLINE_FUNCTION void copy_neighbors(T* to, T const* from, int mn_end, int k_end,
                                             int index) const {
    int const chunks = (ByK ? K : MN) / width;
    int const fast = index % chunks * width, slow = index / chunks;
    int const left = slow < (ByK ? mn_end : k_end) ? (ByK ? k_end : mn_end) - fast : 0;
    int const count = left < 0 ? 0 : left < width ? left : width;
    int const bytes = count * static_cast<int>(sizeof(T));
    T const* const source = count > 0 ? from + slow * (ByK ? from_mn : from_k) + fast : from;
    T* const where = to + slow * (ByK ? place(true).mn : place(false).k) + fast;
    int const size_of_copy = width * static_cast<int>(sizeof(T));
    if (size_of_copy == 16)
      copy_to_scratch<16>(where, source, bytes);
    else if (size_of_copy == 8)
      copy_to_scratch<8>(where, source, bytes);
    else
      copy_to_scratch<4>(where, source, bytes);
  }

  /// Converted where the types differ.
  template <int Threads, bool ByK>
  KOKKOS_INLINE_FUNCTION void copy_elements(T* to, Stored const* from, int mn_end, int k_end,
                                            int thread) const {
    constexpr int at_once = 8;
    for (int first = thread; first < MN * K; first += at_once * Threads) {
      if constexpr (std::is_same_v<T, Stored> && (sizeof(T) == 4 || sizeof(T) == 8)) {
        ATTIKOS_UNROLL_DEVICE
        for (int i = 0; i < at_once; ++i) {
          Element<ByK> const e(*this, first + i * Threads, mn_end, k_end);
          if (MN * K % (at_once * Threads) != 0 && !e.exists) continue;
          copy_to_scratch<sizeof(T)>(to + e.to, from + e.from, e.inside ? sizeof(T) : 0);
        }
      } else {
        // All loads first: none of them waits for another.
        T value[at_once];
        ATTIKOS_UNROLL_DEVICE
        for (int i = 0; i < at_once; ++i) {
          Element<ByK> const e(*this, first + i * Threads, mn_end, k_end);
          value[i] = e.inside ? converted(from[e.from]) : T{};
        }
        ATTIKOS_UNROLL_DEVICE
        for (int i = 0; i < at_once; ++i) {
          Element<ByK> const e(*this, first + i * Threads, mn_end, k_end);
          if (e.exists) to[e.to] = value[i];
        }
      }
    }
  }
  /// The same where all elements of a thread lie at the same place of their rows.
  template <int Threads, bool ByK>
  KOKKOS_INLINE_FUNCTION void copy_by_steps(T* to, Stored const* from, int mn_end, int k_end,
                                            int thread) const {
    constexpr int turns = MN * K / Threads;
    constexpr int at_once = turns < 8 ? turns : 8;
    static_assert(turns % at_once == 0);
    int const fast_size = along_k ? K : MN;
    int const fast = thread % fast_size, step = Threads / fast_size;
    int slow = thread / fast_size;
    bool const inside = fast < (along_k ? k_end : mn_end);
    int const slow_end = inside ? (along_k ? mn_end : k_end) : 0;
    std::int64_t const pitch = along_k ? from_mn : from_k, apart = step * pitch;
    int const to_apart = step * (along_k ? place(ByK).mn : place(ByK).k);
    from += inside ? slow * pitch + fast * (along_k ? from_k : from_mn) : 0;
    to += slow * (along_k ? place(ByK).mn : place(ByK).k) +
          fast * (along_k ? place(ByK).k : place(ByK).mn);
    for (int t = 0; t < turns; t += at_once) {
      T value[at_once];
      ATTIKOS_UNROLL_DEVICE
      for (int i = 0; i < at_once; ++i, slow += step, from += apart) {
        bool const there = slow < slow_end;
        if constexpr (std::is_same_v<T, Stored> && (sizeof(T) == 4 || sizeof(T) == 8))
          copy_to_scratch<sizeof(T)>(to + i * to_apart, from, there ? sizeof(T) : 0);
        else
          value[i] = there ? converted(*from) : T{};
      }
      if constexpr (!(std::is_same_v<T, Stored> && (sizeof(T) == 4 || sizeof(T) == 8))) {
        ATTIKOS_UNROLL_DEVICE
        for (int i = 0; i < at_once; ++i) to[i * to_apart] = value[i];
      }
      to += at_once * to_apart;
      (void)value;
    }
  }
  /// Where one element lies.
  template <bool ByK>
  struct Element {
    bool exists, inside;
    std::int64_t from;
    int to;
    KOKKOS_INLINE_FUNCTION Element(Stage const& s, int index, int mn_end, int k_end) {
      int const mn = s.along_k ? index / K : index % MN, k = s.along_k ? index % K : index / MN;
      exists = index < MN * K;
      inside = exists && mn < mn_end && k < k_end;
      from = inside ? mn * s.from_mn + k * s.from_k : 0;
      to = mn * place(ByK).mn + k * place(ByK).k;
    }
  };
  KOKKOS_INLINE_FUNCTION static T converted(Stored const& x) {
    if constexpr (std::is_same_v<T, Stored>)
      return x;
    else if constexpr (std::is_integral_v<Stored> || std::is_same_v<T, double>)
      return static_cast<T>(x);
    else
      return static_cast<T>(static_cast<float>(x));
  }
};

/// Closes the group of this thread's copies since the last one.
KOKKOS_INLINE_FUNCTION void commit_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  cuda::copy_async_commit();
#endif
}

/// Waits until at most `Pending` groups of this thread are under way. Others see what has landed
/// behind a barrier.
template <int Pending>
KOKKOS_INLINE_FUNCTION void wait_for_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  cuda::copy_async_wait<Pending>();
#endif
}

/// A barrier of the lanes of one thread: each sees what others have put into scratch before.
KOKKOS_INLINE_FUNCTION void lane_barrier() {
#if defined(__CUDA_ARCH__)
  __syncwarp();
#endif
}

/// Waits for all threads of the team or, where threads of it share nothing, for the lanes of this
/// one: `Alone`. Threads that wait alone do so as often as each other.
template <bool Alone, class Team>
KOKKOS_INLINE_FUNCTION void meet([[maybe_unused]] Team const& team) {
  if constexpr (Alone)
    lane_barrier();
  else
    team.team_barrier();
}

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
