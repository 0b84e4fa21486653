// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Makes products of a host run in fragments, as a device's do: to be included before anything that
// calls the library. The lanes of a thread, 32 or 64 of them, come one after the other.
#pragma once

#define ATTIKOS_TEST_DEVICE_ON_HOST

#include <attikos/core/fragments/fragments.hpp>
#include <attikos/core/fragments/fragments_mma.hpp>
#include <cstring>

#include "ratchet.hpp"

namespace attikos::test {

inline bool const ratios_have_names_of_their_own = (ratio_prefix() = "in fragments ", true);

/// Fragments whose lanes are all one thread's. F says for one lane where it loads and what it
/// holds.
template <class F>
struct AllLanes {
  using Element = typename F::Element;
  using Sum = typename F::Sum;
  static constexpr char const* name = F::name;
  static constexpr int lanes = 1, rows = F::rows, cols = F::cols, depth = F::depth;
  static constexpr bool reads_k_major = F::reads_k_major,
                        reads_k_major_alone = F::reads_k_major_alone;
  static constexpr int pad_k = F::pad_k, pad_mn = F::pad_mn;
  static constexpr bool loads_ahead = F::loads_ahead;
  struct Left {
    typename F::Left of[F::lanes];
  };
  struct Right {
    typename F::Right of[F::lanes];
  };
  struct Sums {
    typename F::Sums of[F::lanes];
  };
  using Place = detail::FactorPlace;

  static int left_offset(Place, int) { return 0; }
  static int right_offset(Place, int) { return 0; }
  static void load_left(Left& left, Element const* p, Place place) {
    for (int lane = 0; lane < F::lanes; ++lane)
      F::load_left(left.of[lane], p + F::left_offset(place, lane), place);
  }
  static void load_right(Right& right, Element const* p, Place place) {
    for (int lane = 0; lane < F::lanes; ++lane)
      F::load_right(right.of[lane], p + F::right_offset(place, lane), place);
  }
  static void multiply_add(Sums& sums, Left const& left, Right const& right) {
    for (int lane = 0; lane < F::lanes; ++lane)
      F::multiply_add(sums.of[lane], left.of[lane], right.of[lane]);
  }

  static constexpr int held_rows = F::lanes * F::held_rows;
  static int row_of(int, int held) { return F::row_of(held / F::held_rows, held % F::held_rows); }
  static constexpr int held_sums = F::lanes * F::held_sums;
  static detail::SumPosition position_of(int, int n) {
    int const lane = n / F::held_sums;
    detail::SumPosition at = F::position_of(lane, n % F::held_sums);
    at.held += lane * F::held_rows;
    return at;
  }
  template <class SumsOfLanes>
  static auto& at(SumsOfLanes& sums, int n) {
    return F::at(sums.of[n / F::held_sums], n % F::held_sums);
  }
  template <class Join>
  static void join_rows(Sum (&numbers)[held_rows]) {
    Sum joined[rows];
    bool begun[rows] = {};
    for (int held = 0; held < held_rows; ++held) {
      int const row = row_of(0, held);
      joined[row] = begun[row] ? Join::join(joined[row], numbers[held]) : numbers[held];
      begun[row] = true;
    }
    for (int held = 0; held < held_rows; ++held) numbers[held] = joined[row_of(0, held)];
  }
  static void store_left(Sums const& sums, Element* p, Place place, int) {
    for (int lane = 0; lane < F::lanes; ++lane) F::store_left(sums.of[lane], p, place, lane);
  }
  using OfLane = F;
  template <class Each>
  static void each_lane(int, Each const& each) {
    for (int lane = 0; lane < F::lanes; ++lane) each(lane);
  }
  template <class Share>
  static auto& of_lane(Share& share, int lane) {
    return share.of[lane];
  }
  static constexpr bool sums_make_left = F::sums_make_left;
  static void left_of(Left& left, Sums const (&sums)[1]) {
    for (int lane = 0; lane < F::lanes; ++lane) {
      typename F::Sums const of_lane[1] = {sums[0].of[lane]};
      F::left_of(left.of[lane], of_lane);
    }
  }
};

/// CUDA's fragments of 8 and 16 bits, the instructions written out: ldmatrix and mma.sync as PTX
/// defines them.
template <class T>
struct EmulatedMma : AllLanes<detail::MmaFragments<T>> {
  using F = detail::MmaFragments<T>;
  using Base = AllLanes<F>;
  using typename Base::Left;
  using typename Base::Place;
  using typename Base::Right;
  using typename Base::Sums;
  using Sum = typename F::Sum;

  static void load_left(Left& left, T const* p, Place place) {
    load(left, p, place, [](Place where, int lane) { return F::left_offset(where, lane); });
  }
  static void load_right(Right& right, T const* p, Place place) {
    load(right, p, place, [](Place where, int lane) { return F::right_offset(where, lane); });
  }
  static void multiply_add(Sums& sums, Left const& left, Right const& right) {
    constexpr int per_word = 4 / static_cast<int>(sizeof(T)), half = F::depth / 2;
    Sum a[16][F::depth], b[F::depth][16];
    for (int lane = 0; lane < 32; ++lane) {
      int const g = lane / 4, q = lane % 4;
      for (int w = 0; w < 4; ++w) {
        T elements[per_word];
        std::memcpy(elements, &left.of[lane].word[w], 4);
        for (int e = 0; e < per_word; ++e)
          a[g + w % 2 * 8][w / 2 * half + q * per_word + e] = static_cast<Sum>(elements[e]);
        std::memcpy(elements, &right.of[lane].word[w], 4);
        for (int e = 0; e < per_word; ++e)
          b[w % 2 * half + q * per_word + e][w / 2 * 8 + g] = static_cast<Sum>(elements[e]);
      }
    }
    for (int lane = 0; lane < 32; ++lane)
      for (int j = 0; j < 2; ++j)
        for (int h = 0; h < 2; ++h)
          for (int c = 0; c < 2; ++c)
            for (int k = 0; k < F::depth; ++k)
              sums.of[lane].value[j][c + 2 * h] +=
                  a[lane / 4 + 8 * h][k] * b[k][8 * j + lane % 4 * 2 + c];
  }

 private:
  template <class Factor, class Offset>
  static void load(Factor& factor, T const* p, Place place, Offset const& offset) {
    bool const turned = place.k != 1;
    for (int matrix = 0; matrix < 4; ++matrix)
      for (int g = 0; g < 8; ++g)
        for (int q = 0; q < 4; ++q) {
          auto const row = [&](int r) { return p + offset(place, 8 * matrix + r); };
          std::uint32_t& word = factor.of[4 * g + q].word[matrix];
          if (!turned) {
            std::memcpy(&word, row(g) + q * 4 / static_cast<int>(sizeof(T)), 4);
          } else {
            T const pair[4 / sizeof(T)] = {row(2 * q)[g], row(2 * q + 1)[g]};
            std::memcpy(&word, pair, 4);
          }
        }
  }
};

/// Those of float64: A of lane 4 g + q, rows g and g + 8, k = q and q + 4.
struct EmulatedMmaDouble : AllLanes<detail::MmaFragments<double>> {
  static void multiply_add(Sums& sums, Left const& left, Right const& right) {
    for (int lane = 0; lane < 32; ++lane)
      for (int h = 0; h < 2; ++h)
        for (int c = 0; c < 2; ++c)
          for (int k = 0; k < 8; ++k)
            sums.of[lane].value[c + 2 * h] += left.of[lane / 4 * 4 + k % 4].value[k / 4 * 2 + h] *
                                              right.of[(lane % 4 * 2 + c) * 4 + k % 4].value[k / 4];
  }
};

template <class T>
struct EmulatedFragments {
  using type = AllLanes<detail::PlainFragments<T, 64>>;
};
template <class T>
requires(sizeof(T) <= 2) struct EmulatedFragments<T> {
  using type = EmulatedMma<T>;
};
template <>
struct EmulatedFragments<double> {
  using type = EmulatedMmaDouble;
};

}  // namespace attikos::test

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class Exec>
requires is_host_space<Exec>
inline constexpr bool multiplies_in_fragments<Exec> = true;
template <class Exec, class T>
requires is_host_space<Exec>
inline constexpr bool has_matrix_instructions<Exec, T> =
    std::is_same_v<T, float16> || std::is_same_v<T, bfloat16> || std::is_same_v<T, double> ||
    std::is_same_v<T, std::int8_t>;
template <class Exec, class T>
requires is_host_space<Exec>
struct ChooseFragments<Exec, T> {
  using type = typename test::EmulatedFragments<T>::type;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos

#include <attikos/core/fragments/fragments_few_rows.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

template <class Exec, class T, int Rows>
requires is_host_space<Exec>
struct ChooseFewRowFragments<Exec, T, Rows> {
  using type = test::AllLanes<FewRowFragments<T, 32, Rows>>;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos

#include <attikos/attention/fragments/attention_fragments.hpp>
#include <attikos/attention/fragments/gradients.hpp>
#include <attikos/decode/decode_launch.hpp>
#include <attikos/gemm/gemm_fragments.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

// A team of a host has one thread.
template <class F>
requires(F::lanes == 1) struct GemmShapes<F> {
  static constexpr int depth = F::depth > 16 ? F::depth : 16;
  using Large = GemmShape<F, 1, 1, 2, 2, depth>;
  using LargeOfNeighbors = Large;
  using Small = GemmShape<F, 1, 1, 1, 1, depth, 3>;
  static constexpr int across = F::cols >= 16 ? 1 : 2;
  using OfThread32 = GemmShape<F, 1, 1, 2, 2 * across, depth, 3, 1>;
  using OfThread16 = GemmShape<F, 1, 1, 1, across, depth, 2, 1>;
  using T = typename F::Element;
  using OfThread8 =
      std::conditional_t<sizeof(T) >= 4, GemmShape<PlainFragments<T, 1>, 1, 1, 2, 2, 8, 2, 1>,
                         OfThread16>;
};
template <class F>
requires(F::lanes == 1) struct AttentionShapes<F> {
  using Narrow = AttentionShape<F, 1, 2, 32, 64, 1>;
  using Wide = AttentionShape<F, 1, 1, 64, 128, 1>;
};
template <class F>
requires(F::lanes == 1 && sizeof(typename F::Element) != 8) struct ScratchShapes<F> {
  using Narrow = AttentionShape<F, 1, 2, 32, 64, 1>;
  using Wide = AttentionShape<F, 1, 1, 64, 128, 1>;
};
template <class F>
requires(F::lanes == 1 && sizeof(typename F::Element) == 8) struct ScratchShapes<F> {
  using Narrow = AttentionShape<F, 1, 2, 16, 64, 1>;
  using Wide = Narrow;
};

template <class F, GradientOf What>
requires(F::lanes == 1) struct GradientShapes<F, What> {
  using Narrow = AttentionShape<F, 1, 2, What == GradientOf::query ? 32 : 48, 64, 1>;
  using Wide = AttentionShape<F, 1, 1, 48, 128, 1>;
};
template <class F>
requires(F::lanes == 1 && sizeof(typename F::Element) != 8) struct GradientScratchShapes<F> {
  using Narrow = AttentionShape<F, 1, 1, 64, 64, 1>;
  using Wide = AttentionShape<F, 1, 2, 32, 128, 1>;
};
template <class F>
requires(F::lanes == 1 && sizeof(typename F::Element) == 8) struct GradientScratchShapes<F> {
  using Narrow = AttentionShape<F, 1, 2, 16, 64, 1>;
  using Wide = AttentionShape<F, 1, 1, 32, 128, 1>;
};

template <class Exec, class Factor>
requires is_host_space<Exec>
struct DecodeShapes<Exec, Factor> {
  using Few = DecodeShape<FewRowFragmentsFor<Exec, Factor, 4>, 1, 256, 3, 1>;
  using Many = DecodeShape<FewRowFragmentsFor<Exec, Factor, 8>, 1, 128, 2, 1>;
};
template <class Exec>
requires is_host_space<Exec>
struct DecodeShapes<Exec, double> {
  using Few = DecodeShape<FewRowFragmentsFor<Exec, double, 4>, 1, 128, 8, 1>;
  using Many = Few;
};
template <class F>
requires(F::lanes == 1) struct DecodeMatrixShape<F> {
  using type = DecodeShape<F, 1, 128, 2, 1>;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
