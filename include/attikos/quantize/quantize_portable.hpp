// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The kernels of quantize() and dequantize(): a thread takes a piece of one row.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/core/rows/rows.hpp>
#include <attikos/quantize/quantize_value.hpp>
#include <attikos/quantize/scale_grid.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// What a pass over the elements does.
enum class QuantizePass : std::uint8_t {
  measure,  ///< raise the factor of each piece to its largest magnitude
  fused,    ///< measure, write the factor, quantize: a factor never spans two pieces
  apply     ///< quantize by the factors that are there
};

/// Rows cut into pieces. A factor covers whole pieces.
struct Pieces {
  std::int64_t rows, cols, length, per_row;

  struct Piece {
    std::int64_t batch, row, col, size;
  };
  KOKKOS_INLINE_FUNCTION Piece operator()(std::int64_t index) const {
    std::int64_t const line = index / per_row, col = index % per_row * length;
    return {line / rows, line % rows, col, cols - col < length ? cols - col : length};
  }
};

inline Pieces make_pieces(std::int64_t rows, std::int64_t cols, abi::ScaleGrid const& grid,
                          bool whole_rows) {
  bool const blocked = grid.col != 0 && grid.col_shift != 0;
  // Where a factor covers more than the piece, its length is free: short enough that one long row
  // keeps many threads busy.
  std::int64_t const length = blocked      ? std::int64_t{1} << scale_block_shift
                              : whole_rows ? (cols > 0 ? cols : 1)
                                           : 4096;
  return {rows, cols, length, (cols + length - 1) / length};
}

/// Factor of elements of this largest magnitude.
template <class Out>
struct ScaleRule {
  bool power_of_two;

  KOKKOS_INLINE_FUNCTION float operator()(float amax) const {
    constexpr float smallest = 0x1p-126f;
    constexpr float limit = quantized_limit<Out>();
    float const exact = amax / limit;
    float const scale = exact < smallest ? smallest : exact;
    if (!power_of_two) return scale;
    std::uint32_t const bits = Kokkos::bit_cast<std::uint32_t>(scale);
    return Kokkos::bit_cast<float>((bits + 0x7fffffu) & 0xff800000u);
  }
};

/// Magnitude as it counts for a factor: infinities and NaN do not, and doubles past float's range
/// count as its end.
template <class X>
KOKKOS_INLINE_FUNCTION float counted_magnitude(X element) {
  constexpr float limit = 0x1.fffffep127f;
  if constexpr (std::is_same_v<X, double>) {
    double const magnitude = element < 0 ? -element : element;
    if (!(magnitude <= 0x1.fffffffffffffp1023)) return 0.0f;
    return magnitude > static_cast<double>(limit) ? limit : static_cast<float>(magnitude);
  } else {
    float const value = static_cast<float>(element);
    float const magnitude = value < 0 ? -value : value;
    return magnitude <= limit ? magnitude : 0.0f;
  }
}

namespace host {

/// |v|, 0 for what is not finite.
inline Vec<float> finite_magnitude(Vec<float> v) {
  using Bits = Vec<std::int32_t, lanes<float>>;
  Bits const magnitude = bit_cast<Bits>(v) & 0x7fffffff;
  return bit_cast<Vec<float>>(Bits(magnitude < 0x7f800000 ? magnitude : Bits{}));
}

/// Lane-wise twin of quantize_value() of v/scale: numbers that the conversion to `Out` rounds.
template <class Out>
inline Vec<float> quantize_vector(Vec<float> v, float scale) {
  using Float = Vec<float>;
  constexpr int W = lanes<float>;
  Vec<std::int32_t, W> const finite = v - v == 0.0f;
  Float const quotient = v / scale;
  constexpr float limit = quantized_limit<Out>();
  if constexpr (std::is_same_v<Out, std::int8_t>) {
    Float const lowest = finite ? broadcast<float, W>(-128.0f) : broadcast<float, W>(-127.0f);
    Float clamped = quotient > limit ? broadcast<float, W>(limit) : quotient;
    clamped = clamped < lowest ? lowest : clamped;
    clamped = clamped == clamped ? clamped : Float{};
    // 1.5·2^23 has the spacing 1: adding it rounds.
    return (clamped + 0x1.8p23f) - 0x1.8p23f;
  } else {
    Float clamped = quotient > limit ? broadcast<float, W>(limit) : quotient;
    clamped = clamped < -limit ? broadcast<float, W>(-limit) : clamped;
    return finite ? clamped : quotient;
  }
}

}  // namespace host

template <class X, class Out>
struct QuantizePiece {
  using Value = std::conditional_t<std::is_same_v<X, double>, double, float>;

  TensorRef<X const, 3> x;
  TensorRef<Out, 3> out;
  abi::ScaleGrid grid;
  float* scales;  ///< grid.data where it may be written, else null
  Pieces pieces;
  ScaleRule<Out> rule;
  QuantizePass pass;

  static KOKKOS_INLINE_FUNCTION Out quantized(X element, float scale) {
    Value const value = static_cast<Value>(element);
    return quantize_value<Out>(static_cast<double>(value / static_cast<Value>(scale)),
                               is_finite(value));
  }

  void host_row(std::int64_t index) const {
    auto const piece = pieces(index);
    X const* const from = x.ptr(piece.batch, piece.row, piece.col);
    std::int64_t const stride = x.stride[2];
    std::int64_t const offset = grid.offset(piece.batch, piece.row, piece.col);
    float scale = 0;
    if (pass == QuantizePass::apply) {
      scale = grid.data[offset];
    } else {
      float const amax = host_amax(from, stride, piece.size);
      if (pass == QuantizePass::measure) {
        Kokkos::atomic_max(scales + offset, amax);  // the order of maxima does not matter
        return;
      }
      scales[offset] = scale = rule(amax);
    }
    host_quantize(from, out.ptr(piece.batch, piece.row, piece.col), piece.size, scale);
  }

  void host_quantize(X const* from, Out* to, std::int64_t size, float scale) const {
    std::int64_t const stride = x.stride[2], out_stride = out.stride[2];
    if constexpr (std::is_same_v<X, double>) {
      for (std::int64_t j = 0; j < size; ++j)
        to[j * out_stride] = quantized(from[j * stride], scale);
    } else {
      host::with_dense(stride == 1 && out_stride == 1, [&](auto dense) {
        host::RowReader<float, dense(), X> const read{from, stride};
        host::write_row<float, dense()>(
            to, out_stride, size, false,
            host::Ahead<>{}, [&](std::int64_t j, int count) __attribute__((always_inline)) {
              return host::quantize_vector<Out>(read(j, count), scale);
            });
      });
    }
  }

  static float host_amax(X const* from, std::int64_t stride, std::int64_t size) {
    if constexpr (std::is_same_v<X, double>) {
      float largest = 0;
      for (std::int64_t j = 0; j < size; ++j) {
        float const magnitude = counted_magnitude(from[j * stride]);
        largest = largest < magnitude ? magnitude : largest;
      }
      return largest;
    } else {
      constexpr int W = host::lanes<float>;
      float largest = 0;
      host::with_dense(stride == 1, [&](auto dense) {
        host::RowReader<float, dense(), X> const read{from, stride};
        auto const found = host::reduce_row<float, 1>(
            size, host::Partials<float, 1>{},
            [&](std::int64_t j, int count, auto& most) __attribute__((always_inline)) {
              host::Vec<float> const v = host::finite_magnitude(read(j, count));
              most[0] = host::max<float, W>(most[0], v);
            },
            [](host::Vec<float> a, host::Vec<float> b) -> host::Vec<float> {
              return a > b ? a : b;
            });
        largest = host::reduce_max<float, W>(found.of[0]);
      });
      return largest;
    }
  }

  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    auto const piece = pieces(index);
    X const* const from = x.ptr(piece.batch, piece.row, piece.col);
    std::int64_t const stride = x.stride[2];
    std::int64_t const offset = grid.offset(piece.batch, piece.row, piece.col);
    float scale = 0;
    if (pass == QuantizePass::apply) {
      scale = grid.data[offset];
    } else {
      float amax = 0;
      Kokkos::parallel_reduce(
          Kokkos::ThreadVectorRange(team, piece.size),
          [&](std::int64_t j, float& part) {
            float const magnitude = counted_magnitude(from[j * stride]);
            part = part < magnitude ? magnitude : part;
          },
          Kokkos::Max<float>(amax));
      // The maximum of nothing is Kokkos's smallest number.
      amax = amax < 0 ? 0.0f : amax;
      bool const measuring = pass == QuantizePass::measure;
      scale = rule(amax);
      Kokkos::single(Kokkos::PerThread(team), [&]() {
        if (measuring) {
          Kokkos::atomic_max(scales + offset, amax);
        } else {
          scales[offset] = scale;
        }
      });
      if (measuring) return;
    }
    Out* const to = out.ptr(piece.batch, piece.row, piece.col);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, piece.size), [&](std::int64_t j) {
      to[j * out.stride[2]] = quantized(from[j * stride], scale);
    });
  }
};

/// Sets all factors to 0, or turns the largest magnitudes they hold into factors.
template <class Out>
struct FinishScales {
  TensorRef<float, 3> scales;
  ScaleRule<Out> rule;
  bool finish;

  KOKKOS_INLINE_FUNCTION void operator()(std::int64_t index) const {
    std::int64_t const cols = scales.extent[2], rows = scales.extent[1];
    float& entry = scales(index / cols / rows, index / cols % rows, index % cols);
    entry = finish ? rule(entry) : 0.0f;
  }
};

template <class X, class Out>
struct DequantizePiece {
  using Value = std::conditional_t<std::is_same_v<Out, double>, double, float>;

  TensorRef<X const, 3> x;
  TensorRef<Out, 3> out;
  abi::ScaleGrid grid;
  Pieces pieces;

  static KOKKOS_INLINE_FUNCTION Out dequantized(X element, float scale) {
    return static_cast<Out>(static_cast<Value>(element) * static_cast<Value>(scale));
  }
  void host_row(std::int64_t index) const {
    auto const piece = pieces(index);
    float const scale = grid.at(piece.batch, piece.row, piece.col);
    X const* const from = x.ptr(piece.batch, piece.row, piece.col);
    Out* const to = out.ptr(piece.batch, piece.row, piece.col);
    if constexpr (std::is_same_v<Value, float>) {
      host::with_dense(x.stride[2] == 1 && out.stride[2] == 1, [&](auto dense) {
        host::RowReader<float, dense(), X> const read{from, x.stride[2]};
        host::write_row<float, dense()>(
            to, out.stride[2], piece.size, false,
            host::Ahead<>{}, [&](std::int64_t j, int count) __attribute__((always_inline)) {
              return host::Vec<float>(read(j, count) * scale);
            });
      });
    } else {
      for (std::int64_t j = 0; j < piece.size; ++j)
        to[j * out.stride[2]] = dequantized(from[j * x.stride[2]], scale);
    }
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    auto const piece = pieces(index);
    float const scale = grid.at(piece.batch, piece.row, piece.col);
    X const* const from = x.ptr(piece.batch, piece.row, piece.col);
    Out* const to = out.ptr(piece.batch, piece.row, piece.col);
    Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, piece.size), [&](std::int64_t j) {
      to[j * out.stride[2]] = dequantized(from[j * x.stride[2]], scale);
    });
  }
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
