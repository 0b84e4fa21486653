// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What is planned for: a transformer and a sequence.
#pragma once

#include <attikos/abi/dtype.hpp>
#include <attikos/core/error.hpp>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {
namespace plan {

/// A transformer and what it is given.
struct Model {
  std::int64_t layers = 32, heads = 32, kv_heads = 8, head_dim = 128;
  std::int64_t hidden = 4096, intermediate = 14336;
  std::int64_t length = 131072;  ///< positions of a sequence, over all ranks
  std::int64_t batch = 1;
  bool causal = true;
  DType type = DType::bfloat16;

  int element_bytes() const { return dtype_size(type); }
  /// Of partial results.
  int accumulator_bytes() const { return type == DType::float64 ? 8 : 4; }
  /// Floating-point operations that a pair of a query and a key costs, all heads and entries of the
  /// batch together: two products of head_dim.
  double operations_per_pair() const {
    return 4.0 * static_cast<double>(head_dim) * static_cast<double>(batch * heads);
  }
  /// Columns of the projection to queries, keys and values.
  std::int64_t projected() const { return (heads + 2 * kv_heads) * head_dim; }
  /// Floating-point operations of a layer's products with weights: projections and gated MLP.
  double product_operations() const {
    auto const number = [](std::int64_t x) { return static_cast<double>(x); };
    double const rows = number(batch) * number(length);
    return 2 * rows * number(hidden) *
           (number(projected()) + number(heads * head_dim) + 3 * number(intermediate));
  }
};

/// Throws ShapeError for a model that cannot be, DtypeError for a type that attention over ranks
/// does not take.
inline void check_model(Model const& m) {
  using Field = std::pair<char const*, std::int64_t>;
  constexpr std::int64_t most = std::int64_t{1} << 31;  // pairs of positions are counted in 64 bits
  for (Field const& field :
       {Field{"layers", m.layers}, Field{"heads", m.heads}, Field{"kv_heads", m.kv_heads},
        Field{"head_dim", m.head_dim}, Field{"hidden", m.hidden},
        Field{"intermediate", m.intermediate}, Field{"length", m.length}, Field{"batch", m.batch}})
    if (field.second < 1 || field.second > most)
      ::attikos::detail::raise<ShapeError>("plan: ", field.first, " is ", field.second,
                                           "; expected 1 to ", most);
  if (m.heads % m.kv_heads != 0)
    ::attikos::detail::raise<ShapeError>("plan: heads is ", m.heads,
                                         "; expected a multiple of kv_heads, ", m.kv_heads);
  if (m.type != DType::float64 && m.type != DType::float32 && m.type != DType::float16 &&
      m.type != DType::bfloat16)
    ::attikos::detail::raise<DtypeError>("plan: type is ", dtype_name(m.type),
                                         "; expected float64, float32, float16 or bfloat16");
}

/// How a layer is spread over ranks.
enum class Layout : std::uint8_t {
  ring,             ///< attention: blocks of keys and values go round
  all_gather,       ///< attention: every rank gets all keys and values
  all_to_all,       ///< attention: every rank gets all positions of some heads
  two_level,        ///< attention: heads are dealt out inside nodes, blocks go round between them
  tensor_parallel,  ///< products: weights are spread, rows travel
  local             ///< products: every rank has all weights, and its rows
};

constexpr char const* layout_name(Layout layout) noexcept {
  switch (layout) {
    case Layout::ring:
      return "ring";
    case Layout::all_gather:
      return "all_gather";
    case Layout::all_to_all:
      return "all_to_all";
    case Layout::two_level:
      return "two_level";
    case Layout::tensor_parallel:
      return "tensor_parallel";
    case Layout::local:
      break;
  }
  return "local";
}
constexpr bool is_attention(Layout layout) noexcept {
  return layout != Layout::tensor_parallel && layout != Layout::local;
}

}  // namespace plan
}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
