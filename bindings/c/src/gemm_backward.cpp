// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/gemm/gemm_backward.hpp>

#include "gemm_call.hpp"

namespace attikos::c {
namespace {

struct GemmBackwardCall {
  static constexpr char const* operation = "gemm_backward";

  attikos_context const& context;
  GemmOptions options;
  Tensor a, b, dout;
  OptionalTensor da, db, d_bias, d_c, pre_activation, device_scale, offsets, counts;

  /// A and B of type T, the gradient of the result of type G.
  template <class T, class G>
  void run() const {
    auto const given = tensors();
    run_on(context, [&](auto const& exec) {
      using Types = attikos::detail::GemmBackwardTypes<T, T, G, T, T, G, G>;
      attikos::detail::gemm_backward_run(Types{}, exec, given, options);
    });
  }

 private:
  attikos::detail::GemmBackwardTensors tensors() const {
    if (offsets.given)
      visit_dtype<std::int32_t, std::int64_t>(operation, offsets.tensor, [](auto) {});
    using attikos::detail::operand_of;
    return {{operand_of(a.any()), operand_of(b.any()), operand_of(dout.any()), "dout"},
            da.any(),
            db.any(),
            offsets.any(),
            counts.any(),
            pre_activation.any(),
            device_scale.any(),
            d_bias.any(),
            d_c.any(),
            {},
            {}};
  }
};

void refuse_forward_only(attikos_gemm_options const& o) {
  auto const refuse = [](attikos_tensor const* tensor, char const* name) {
    if (tensor != nullptr)
      fail(ATTIKOS_UNSUPPORTED, GemmBackwardCall::operation, ": there is no gradient with ", name);
  };
  refuse(o.scale_a, "scale_a");
  refuse(o.scale_b, "scale_b");
  refuse(o.zero_point_a, "zero_point_a");
  refuse(o.zero_point_b, "zero_point_b");
  refuse(o.scale_out, "scale_out");
  refuse(o.packed_b, "packed_b");
}

}  // namespace
}  // namespace attikos::c

extern "C" attikos_status attikos_gemm_backward(attikos_context* context, attikos_tensor const* a,
                                                attikos_tensor const* b, attikos_tensor const* dout,
                                                attikos_gemm_gradients const* gradients,
                                                attikos_gemm_options const* options) {
  using namespace attikos::c;
  return guarded([&] {
    constexpr char const* operation = GemmBackwardCall::operation;
    auto const& where = expect_context(operation, context);
    auto const o = read_gemm_options(operation, options);
    auto const g = read_options(operation, gradients);
    if (g.da == nullptr && g.db == nullptr && g.d_bias == nullptr && g.d_c == nullptr)
      fail(ATTIKOS_NULL_ARGUMENT, operation, ": all gradients are null; expected one at least");
    refuse_forward_only(o);
    GemmBackwardCall call{where, gemm_options(o), {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
    call.a = read_tensor(operation, "A", a, 2, 3, where);
    call.b = read_tensor(operation, "B", b, 2, 3, where);
    call.dout = read_tensor(operation, "dout", dout, 2, 3, where);
    expect_same_dtype(operation, call.b, call.a);
    read_rows(operation, o, call.a, call.b, call.dout, call.offsets, call.counts, where);
    auto const gradient = [&](char const* name, attikos_tensor const* given, int rank,
                              Tensor const& like) {
      auto const x = read_optional_tensor(operation, name, given, rank, rank, where);
      if (x.given) expect_same_dtype(operation, x.tensor, like);
      return x;
    };
    call.da = gradient("da", g.da, call.a.rank, call.a);
    call.db = gradient("db", g.db, call.b.rank, call.b);
    call.d_bias = gradient("d_bias", g.d_bias, 1, call.dout);
    call.d_c = gradient("d_c", g.d_c, call.dout.rank, call.dout);
    call.pre_activation = gradient("pre_activation", o.pre_activation, call.dout.rank, call.dout);
    call.device_scale =
        read_optional_tensor(operation, "device_scale", o.device_scale, 1, 1, where);
    if (call.device_scale.given)
      visit_dtype<float>(operation, call.device_scale.tensor, [](auto) {});
    visit_floating(operation, call.a, [&]<class T>(std::type_identity<T>) {
      if constexpr (sizeof(T) == 2) {
        visit_dtype<T, float>(operation, call.dout,
                              [&]<class G>(std::type_identity<G>) { call.run<T, G>(); });
      } else {
        visit_dtype<T>(operation, call.dout, [&](auto) { call.run<T, T>(); });
      }
    });
  });
}
