// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One matrix product after all checks that need no element type.
#pragma once

#include <attikos/gemm/gemm.hpp>

#include "options.hpp"
#include "packed_b.hpp"
#include "quantize_scale.hpp"

namespace attikos::c {

static_assert(static_cast<int>(Activation::silu) == ATTIKOS_ACTIVATION_SILU);
static_assert(static_cast<int>(Compute::tf32x3) == ATTIKOS_COMPUTE_TF32X3);
static_assert(static_cast<int>(Accumulate::fast) == ATTIKOS_ACCUMULATE_FAST);

/// The caller's options over the defaults, with the enumerators checked.
attikos_gemm_options read_gemm_options(char const* operation, attikos_gemm_options const* options);

/// What of them the library calls options too.
GemmOptions gemm_options(attikos_gemm_options const& from);

/// A tensor that may be absent.
struct OptionalTensor {
  bool given = false;
  Tensor tensor;

  attikos::detail::AnyTensor any() const {
    return given ? tensor.any() : attikos::detail::AnyTensor{};
  }
};

OptionalTensor read_optional_tensor(char const* operation, char const* name,
                                    attikos_tensor const* given, int min_rank, int max_rank,
                                    attikos_context const& context);

/// The groups or counts of rows of a product, and that the matrices have the dimensions that go
/// with them.
void read_rows(char const* operation, attikos_gemm_options const& o, Tensor const& a,
               Tensor const& b, Tensor const& c, OptionalTensor& offsets, OptionalTensor& counts,
               attikos_context const& context);

struct GemmCall {
  static constexpr char const* operation = "gemm";

  attikos_context const& context;
  Explanation* log;  ///< null: run; else find out what would run
  GemmOptions options;
  Tensor a, b, c;
  OptionalTensor bias, residual, pre_activation, scale_a, scale_b, zero_point_a, zero_point_b,
      device_scale, scale_out, offsets, counts, packed_b;
  PackedLayout layout;  ///< of packed_b, in whose place B has no data

  /// The product's types are settled.
  template <class A, class B, class C>
  void run() const {
    auto const arguments = check(operand_of_b<A, B, C>());
    if (log != nullptr && packed_b.given) log->packed_b = layout.to_string();
    run_on(context, [&](auto const& exec) {
      attikos::detail::gemm_run<A, B, C>(operation, exec, arguments, options.kernel, log);
    });
  }

 private:
  template <class A, class B, class C>
  attikos::detail::GemmOperand operand_of_b() const {
    using namespace attikos::detail;
    if (!packed_b.given) return operand_of(b.any());
    if constexpr (std::is_same_v<A, B> && (is_wide_real<B> || std::is_same_v<B, std::int8_t>)) {
      GemmOperand operand =
          checked_operand<Host>(operation, "B", packed_factor<B>(packed_b.tensor, layout));
      operand.packed = &layout;
      return operand;
    } else {
      fail(ATTIKOS_UNSUPPORTED, operation, ": packed_b goes with an A of B's type; A is ",
           a.describe(), ", B is ", b.describe());
    }
  }
  abi::GemmArgs check(attikos::detail::GemmOperand const& operand_b) const;
};

/// Products of int8, and those with a float8 side. See gemm_int8.cpp, gemm_float8.cpp.
void run_int8_gemm(GemmCall const& call);
void run_float8_gemm(GemmCall const& call);

}  // namespace attikos::c
