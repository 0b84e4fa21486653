// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "explanation.hpp"
#include "gemm_call.hpp"

namespace attikos::c {

attikos_gemm_options read_gemm_options(char const* operation, attikos_gemm_options const* options) {
  auto const o = read_options(operation, options);
  auto const expect = [&](char const* name, std::int32_t value, std::int32_t last) {
    if (value < 0 || value > last)
      fail(ATTIKOS_INVALID_ARGUMENT, operation, ": ", name, " is ", value, "; expected an attikos_",
           name);
  };
  expect("activation", o.activation, ATTIKOS_ACTIVATION_SILU);
  expect("compute", o.compute, ATTIKOS_COMPUTE_TF32X3);
  expect("accumulate", o.accumulate, ATTIKOS_ACCUMULATE_FAST);
  return o;
}

GemmOptions gemm_options(attikos_gemm_options const& from) {
  GemmOptions to;
  ATTIKOS_GEMM_OPTIONS(ATTIKOS_COPY_OPTION)
  static_assert(ATTIKOS_UNCOPIED(ATTIKOS_GEMM_OPTIONS, GemmOptions) == 1,
                "bias_along_rows is read by hand");
  static_assert(
      ATTIKOS_ACTIVATION_NONE == 0 && ATTIKOS_COMPUTE_IEEE == 0 && ATTIKOS_ACCUMULATE_PROMOTED == 0,
      "members of C++ that are choices begin as their enumerator 0");
  to.bias_along = from.bias_along_rows != 0 ? BiasAlong::m : BiasAlong::n;
  return to;
}

OptionalTensor read_optional_tensor(char const* operation, char const* name,
                                    attikos_tensor const* given, int min_rank, int max_rank,
                                    attikos_context const& context) {
  if (given == nullptr) return {};
  return {true, read_tensor(operation, name, given, min_rank, max_rank, context)};
}

void read_rows(char const* operation, attikos_gemm_options const& o, Tensor const& a,
               Tensor const& b, Tensor const& c, OptionalTensor& offsets, OptionalTensor& counts,
               attikos_context const& context) {
  offsets = read_optional_tensor(operation, "group_offsets", o.group_offsets, 1, 1, context);
  counts = read_optional_tensor(operation, "row_counts", o.row_counts, 1, 1, context);
  if (offsets.given) {
    if (counts.given) fail(ATTIKOS_UNSUPPORTED, operation, ": group_offsets exclude row_counts");
    if (a.rank != 2 || b.rank != 3 || c.rank != 2)
      fail(ATTIKOS_SHAPE_MISMATCH, operation, ": A is ", a.describe(), ", B is ", b.describe(),
           ", ", c.name, " is ", c.describe(),
           "; expected [total, k], [groups, k, n] and [total, n] with group_offsets");
    return;
  }
  for (Tensor const* x : {&a, &b})
    if (c.rank == 2 && x->rank == 3)
      fail(ATTIKOS_SHAPE_MISMATCH, operation, ": ", x->name, " is ", x->describe(), " but ", c.name,
           " is ", c.describe(), "; a batch needs one in ", c.name);
  if (!counts.given) return;
  if (c.rank != 3)
    fail(ATTIKOS_SHAPE_MISMATCH, operation, ": ", c.name, " is ", c.describe(),
         "; expected [batch, m, n] with row_counts");
  visit_dtype<std::int32_t>(operation, counts.tensor, [](auto) {});
}

abi::GemmArgs GemmCall::check(attikos::detail::GemmOperand const& operand_b) const {
  bool const exact = c.dtype == ATTIKOS_INT32;
  if (exact && (bias.given || residual.given || pre_activation.given))
    fail(ATTIKOS_UNSUPPORTED, operation,
         ": int8 x int8 -> int32 takes no bias, no residual and no pre_activation");
  if (attikos_dtype_size(c.dtype) != 1 && scale_out.given)
    fail(ATTIKOS_UNSUPPORTED, operation, ": scale_out goes with a C of 8 bits; C is ",
         c.describe());
  for (OptionalTensor const* x : {&bias, &residual, &pre_activation})
    if (x->given) visit_floating(operation, x->tensor, [](auto) {});
  if (offsets.given)
    visit_dtype<std::int32_t, std::int64_t>(operation, offsets.tensor, [](auto) {});
  using attikos::detail::operand_of;
  attikos::detail::GemmTensors t{{operand_of(a.any()), operand_b, operand_of(c.any())},
                                 offsets.any(),
                                 counts.any(),
                                 bias.any(),
                                 residual.any(),
                                 pre_activation.any(),
                                 scale_a.any(),
                                 scale_b.any(),
                                 zero_point_a.any(),
                                 zero_point_b.any(),
                                 device_scale.any(),
                                 scale_out.any()};
  return attikos::detail::gemm_arguments(t, options);
}

namespace {

bool is_float8(Tensor const& x) {
  return x.dtype == ATTIKOS_FLOAT8_E4M3 || x.dtype == ATTIKOS_FLOAT8_E5M2;
}

/// Reads all tensors of the call and checks what goes together whatever their types.
void read_gemm(GemmCall& call, attikos_tensor const* a, attikos_tensor const* b,
               attikos_tensor const* c, attikos_gemm_options const& o) {
  constexpr char const* operation = GemmCall::operation;
  auto const& where = call.context;
  call.a = read_tensor(operation, "A", a, 2, 3, where);
  if (o.packed_b == nullptr) {
    call.b = read_tensor(operation, "B", b, 2, 3, where);
  } else {
    call.b = read_unpacked(operation, b, false, where);
    call.packed_b = read_optional_tensor(operation, "packed_b", o.packed_b, 1, 1, where);
    expect_packed(operation, call.packed_b.tensor);
    call.layout = read_packed_layout(operation, call.packed_b.tensor, call.b);
  }
  call.c = read_tensor(operation, "C", c, 2, 3, where);
  read_rows(operation, o, call.a, call.b, call.c, call.offsets, call.counts, where);
  int const rank = call.c.rank;
  call.bias = read_optional_tensor(operation, "bias", o.bias, 1, 1, where);
  call.residual = read_optional_tensor(operation, "residual", o.residual, rank, rank, where);
  call.pre_activation =
      read_optional_tensor(operation, "pre_activation", o.pre_activation, rank, rank, where);
  auto const scale = [&](char const* name, attikos_tensor const* given, Tensor const& of) {
    return given == nullptr ? OptionalTensor{}
                            : OptionalTensor{true, read_scale(operation, name, given, of, where)};
  };
  call.scale_a = scale("scale_a", o.scale_a, call.a);
  call.scale_b = scale("scale_b", o.scale_b, call.b);
  bool const narrow = call.a.dtype == ATTIKOS_INT8 || is_float8(call.a) || is_float8(call.b);
  if ((call.scale_a.given || call.scale_b.given) && !narrow)
    fail(ATTIKOS_UNSUPPORTED, operation, ": scale_a and scale_b go with float8 and int8; A is ",
         call.a.describe());
  auto const vector = [&](char const* name, attikos_tensor const* given, auto type) {
    auto const x = read_optional_tensor(operation, name, given, 1, 1, where);
    if (x.given) visit_dtype<typename decltype(type)::type>(operation, x.tensor, [](auto) {});
    return x;
  };
  call.zero_point_a = vector("zero_point_a", o.zero_point_a, std::type_identity<std::int32_t>{});
  call.zero_point_b = vector("zero_point_b", o.zero_point_b, std::type_identity<std::int32_t>{});
  if ((call.zero_point_a.given || call.zero_point_b.given) && call.a.dtype != ATTIKOS_INT8)
    fail(ATTIKOS_UNSUPPORTED, operation, ": zero points go with int8; A is ", call.a.describe());
  call.device_scale = vector("device_scale", o.device_scale, std::type_identity<float>{});
  call.scale_out = vector("scale_out", o.scale_out, std::type_identity<float>{});
}

void run_gemm(attikos_context* context, attikos_tensor const* a, attikos_tensor const* b,
              attikos_tensor const* c, attikos_gemm_options const* options, Explanation* log) {
  constexpr char const* operation = GemmCall::operation;
  auto const& where = expect_context(operation, context);
  auto const o = read_gemm_options(operation, options);
  GemmCall call{where, log, gemm_options(o), {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
                {},    {}};
  read_gemm(call, a, b, c, o);
  if (is_float8(call.a) || is_float8(call.b)) {
    run_float8_gemm(call);
    return;
  }
  if (call.a.dtype == ATTIKOS_INT8) {
    run_int8_gemm(call);
    return;
  }
  expect_same_dtype(operation, call.b, call.a);
  visit_dtype<double, float, float16, bfloat16, std::int8_t, float8_e4m3, float8_e5m2>(
      operation, call.a, [&]<class T>(std::type_identity<T>) {
        if constexpr (sizeof(T) == 2) {
          visit_dtype<T, float>(operation, call.c,
                                [&]<class C>(std::type_identity<C>) { call.run<T, T, C>(); });
        } else if constexpr (sizeof(T) >= 4) {
          visit_dtype<T>(operation, call.c, [&](auto) { call.run<T, T, T>(); });
        }
      });
}

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_gemm(attikos_context* context, attikos_tensor const* a,
                            attikos_tensor const* b, attikos_tensor const* c,
                            attikos_gemm_options const* options) {
  return guarded([&] { run_gemm(context, a, b, c, options, nullptr); });
}

attikos_status attikos_explain_gemm(attikos_context* context, attikos_tensor const* a,
                                    attikos_tensor const* b, attikos_tensor const* c,
                                    attikos_gemm_options const* options, char* text, size_t size,
                                    size_t* length) {
  return guarded([&] {
    explain_into({text, size, length}, "explain_gemm",
                 [&](attikos::Explanation* log) { run_gemm(context, a, b, c, options, log); });
  });
}
}
