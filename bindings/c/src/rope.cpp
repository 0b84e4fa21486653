// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/norm/rms_norm_rope.hpp>
#include <attikos/norm/rope.hpp>

#include "options.hpp"
#include "rope_table.hpp"
#include "row_call.hpp"

namespace attikos::c {
namespace {

/// Tables, positions and options that all four functions share.
struct RopeSetup {
  attikos_rope_options given;
  Tensor cos, sin, positions;
  bool has_positions = false;

  RopeSetup(char const* operation, attikos_rope_options const* options, attikos_tensor const* c,
            attikos_tensor const* s, attikos_context const& context) {
    given = read_options(operation, options);
    expect_finite(operation, "eps", given.eps);
    cos = read_rope_table(operation, "cos", c, context);
    sin = read_rope_table(operation, "sin", s, context);
    expect_same_dtype(operation, sin, cos);
    if (given.positions == nullptr) return;
    has_positions = true;
    positions = read_tensor(operation, "positions", given.positions, 1, 2, context);
    visit_dtype<std::int32_t>(operation, positions, [](auto) {});
  }

  void refuse_positions(char const* operation) const {
    if (has_positions)
      fail(ATTIKOS_UNSUPPORTED, operation, ": takes no positions; see attikos_rope");
  }

  /// Calls f() or f(positions).
  template <class F>
  void with_positions(F const& f) const {
    if (!has_positions) {
      f();
    } else if (positions.rank == 1) {
      f(attikos::positions(positions.span<std::int32_t const, 1>()));
    } else {
      f(attikos::positions(positions.span<std::int32_t const, 2>()));
    }
  }

  RopeStyle style() const {
    return given.interleaved != 0 ? RopeStyle::interleaved : RopeStyle::half_split;
  }
  RopeOptions rope() const {
    return {
        .style = style(), .position_offset = given.position_offset, .rotary_dim = given.rotary_dim};
  }
  RmsNormRopeOptions rms_norm_rope() const {
    return {.eps = given.eps,
            .num_heads = given.num_heads,
            .norm = given.norm_each_head != 0 ? NormExtent::head : NormExtent::hidden,
            .style = style(),
            .position_offset = given.position_offset,
            .rotary_dim = given.rotary_dim};
  }

  /// Calls f(cos, sin) with tables of type T or, beside 16-bit elements, float.
  template <class T, class F>
  void with_tables(char const* operation, F const& f) const {
    visit_beside<T>(operation, cos, [&]<class Table>(std::type_identity<Table>) {
      f(cos.span<Table const, 2>(), sin.span<Table const, 2>());
    });
  }
};

void run_rope(char const* operation, attikos_context* context, attikos_tensor const* x,
              attikos_tensor const* cos, attikos_tensor const* sin, attikos_tensor const* out,
              attikos_rope_options const* options, bool backward) {
  auto const& where = expect_context(operation, context);
  Tensor const in = read_tensor(operation, backward ? "dout" : "x", x, 4, 4, where);
  Tensor const to = read_tensor(operation, backward ? "dx" : "out", out, 4, 4, where);
  expect_same_dtype(operation, to, in);
  RopeSetup const setup(operation, options, cos, sin, where);
  visit_floating(operation, in, [&]<class T>(std::type_identity<T>) {
    setup.with_tables<T>(operation, [&](auto const& c, auto const& s) {
      setup.with_positions([&](auto const&... extras) {
        run_on(where, [&](auto const& exec) {
          auto const from = in.span<T const, 4>();
          if (backward) {
            attikos::rope_backward(exec, from, c, s, to.span<T, 4>(), setup.rope(), extras...);
          } else {
            attikos::rope(exec, from, c, s, to.span<T, 4>(), setup.rope(), extras...);
          }
        });
      });
    });
  });
}

}  // namespace
}  // namespace attikos::c

extern "C" {

using namespace attikos::c;

attikos_status attikos_rope(attikos_context* context, attikos_tensor const* x,
                            attikos_tensor const* cos, attikos_tensor const* sin,
                            attikos_tensor const* out, attikos_rope_options const* options) {
  return guarded([&] { run_rope("rope", context, x, cos, sin, out, options, false); });
}

attikos_status attikos_rope_backward(attikos_context* context, attikos_tensor const* dout,
                                     attikos_tensor const* cos, attikos_tensor const* sin,
                                     attikos_tensor const* dx,
                                     attikos_rope_options const* options) {
  return guarded([&] { run_rope("rope_backward", context, dout, cos, sin, dx, options, true); });
}

attikos_status attikos_rms_norm_rope(attikos_context* context, attikos_tensor const* x,
                                     attikos_tensor const* weight, attikos_tensor const* cos,
                                     attikos_tensor const* sin, attikos_tensor const* out,
                                     attikos_rope_options const* options) {
  return guarded([&] {
    constexpr char const* operation = "rms_norm_rope";
    auto const& where = expect_context(operation, context);
    Tensor const in = read_tensor(operation, "x", x, 3, 3, where);
    Tensor const w = read_tensor(operation, "weight", weight, 1, 1, where);
    Tensor const to = read_tensor(operation, "out", out, 3, 3, where);
    expect_same_dtype(operation, to, in);
    RopeSetup const setup(operation, options, cos, sin, where);
    setup.refuse_positions(operation);
    visit_floating(operation, in, [&]<class T>(std::type_identity<T>) {
      visit_beside<T>(operation, w, [&]<class W>(std::type_identity<W>) {
        setup.with_tables<T>(operation, [&](auto const& c, auto const& s) {
          run_on(where, [&](auto const& exec) {
            attikos::rms_norm_rope(exec, in.span<T const, 3>(), w.span<W const, 1>(), c, s,
                                   to.span<T, 3>(), setup.rms_norm_rope());
          });
        });
      });
    });
  });
}

attikos_status attikos_rms_norm_rope_backward(attikos_context* context, attikos_tensor const* x,
                                              attikos_tensor const* weight,
                                              attikos_tensor const* cos, attikos_tensor const* sin,
                                              attikos_tensor const* dout, attikos_tensor const* dx,
                                              attikos_tensor const* dweight,
                                              attikos_rope_options const* options) {
  return guarded([&] {
    constexpr char const* operation = "rms_norm_rope_backward";
    auto const& where = expect_context(operation, context);
    Tensor const in = read_tensor(operation, "x", x, 3, 3, where);
    Tensor const w = read_tensor(operation, "weight", weight, 1, 1, where);
    Tensor const given = read_tensor(operation, "dout", dout, 3, 3, where);
    Tensor const to = read_tensor(operation, "dx", dx, 3, 3, where);
    Tensor const dw = read_tensor(operation, "dweight", dweight, 1, 1, where);
    for (Tensor const* tensor : {&given, &to}) expect_same_dtype(operation, *tensor, in);
    expect_same_dtype(operation, dw, w);
    RopeSetup const setup(operation, options, cos, sin, where);
    setup.refuse_positions(operation);
    visit_floating(operation, in, [&]<class T>(std::type_identity<T>) {
      visit_beside<T>(operation, w, [&]<class W>(std::type_identity<W>) {
        setup.with_tables<T>(operation, [&](auto const& c, auto const& s) {
          run_on(where, [&](auto const& exec) {
            attikos::rms_norm_rope_backward(exec, in.span<T const, 3>(), w.span<W const, 1>(), c, s,
                                            given.span<T const, 3>(), to.span<T, 3>(),
                                            dw.span<W, 1>(), setup.rms_norm_rope());
          });
        });
      });
    });
  });
}
}
