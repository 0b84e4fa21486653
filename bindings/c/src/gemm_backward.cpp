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
  OptionalTensor da, db, d_bias, pre_activation, device_scale;

  /// A and B of type T, the gradient of the result of type G.
  template <class T, class G>
  void run() const {
    auto const saved =
        pre_activation.span<G const, 3>({dout.rank == 3 ? dout.extent[0] : 1,
                                         dout.extent[at(dout, -2)], dout.extent[at(dout, -1)]});
    auto const factor = attikos::device_scale(device_scale.span<float const, 1>({1}));
    auto const call = [&](auto const& to_a, auto const& to_b, auto const&... more) {
      run_on(context, [&](auto const& exec) {
        auto const backward = [&](auto const&... extras) {
          gemm_backward(exec, a.span<T const, 3>(), b.span<T const, 3>(), dout.span<G const, 3>(),
                        to_a, to_b, options, extras...);
        };
        // The library takes the saved values for present where the wrapper is.
        if (pre_activation.given) {
          backward(factor, attikos::pre_activation(saved), more...);
        } else {
          backward(factor, more...);
        }
      });
    };
    auto const with_bias = [&](auto const& to_a, auto const& to_b) {
      if (d_bias.given) {
        call(to_a, to_b, bias_gradient(d_bias.tensor.span<G, 1>()));
      } else {
        call(to_a, to_b);
      }
    };
    if (da.given && db.given) {
      with_bias(da.tensor.span<T, 3>(), db.tensor.span<T, 3>());
    } else if (da.given) {
      with_bias(da.tensor.span<T, 3>(), none);
    } else if (db.given) {
      with_bias(none, db.tensor.span<T, 3>());
    } else {
      call(none, none, bias_gradient(d_bias.tensor.span<G, 1>()));
    }
  }

  static std::size_t at(Tensor const& x, int from_end) {
    return static_cast<std::size_t>(x.rank + from_end);
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
  refuse(o.group_offsets, "group_offsets");
  refuse(o.row_counts, "row_counts");
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
    attikos_gemm_gradients const nothing = ATTIKOS_GEMM_GRADIENTS_INIT;
    auto const g = read_options(operation, gradients, nothing, sizeof nothing);
    if (g.da == nullptr && g.db == nullptr && g.d_bias == nullptr)
      fail(ATTIKOS_NULL_ARGUMENT, operation, ": all gradients are null; expected one at least");
    refuse_forward_only(o);
    GemmBackwardCall call{where, gemm_options(o), {}, {}, {}, {}, {}, {}, {}, {}};
    call.a = read_tensor(operation, "A", a, 2, 3, where);
    call.b = read_tensor(operation, "B", b, 2, 3, where);
    call.dout = read_tensor(operation, "dout", dout, 2, 3, where);
    expect_same_dtype(operation, call.b, call.a);
    for (Tensor const* x : {&call.a, &call.b})
      if (call.dout.rank == 2 && x->rank == 3)
        fail(ATTIKOS_SHAPE_MISMATCH, operation, ": ", x->name, " is ", x->describe(),
             " but dout is ", call.dout.describe(), "; a batch needs one in dout");
    auto const gradient = [&](char const* name, attikos_tensor const* given, int rank,
                              Tensor const& like) {
      auto const x = read_optional_tensor(operation, name, given, rank, rank, where);
      if (x.given) expect_same_dtype(operation, x.tensor, like);
      return x;
    };
    call.da = gradient("da", g.da, call.a.rank, call.a);
    call.db = gradient("db", g.db, call.b.rank, call.b);
    call.d_bias = gradient("d_bias", g.d_bias, 1, call.dout);
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
