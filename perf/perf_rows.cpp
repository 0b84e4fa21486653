// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fused operations on rows beside separate calls, or a copy; see support/separate_calls.hpp.
#include <support/separate_calls.hpp>

namespace attikos::measure {
namespace {

template <class T>
struct Logarithm {
  T* x;
  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const {
    x[i] = static_cast<T>(Kokkos::log(static_cast<float>(x[i])));
  }
};

template <class T>
void add_rotary(Settings const& settings, int tokens, int heads, int d) {
  int const hidden = heads * d;
  double const bytes = 2.0 * tokens * hidden * sizeof(T);
  std::string const sizes = text("b1_s", tokens, "_h", heads, "_d", d);
  add_fused(settings, case_name_of<T>("rope", sizes), [=](Exec const& exec) {
    auto const x = tensor<T>(1, 1, heads, tokens, d), out = tensor<T>(1, 1, heads, tokens, d);
    auto const copied = tensor<T>(1, 1, heads, tokens, d);
    auto const cos = tensor<T>(1, tokens, d), sin = tensor<T>(1, tokens, d);
    return FusedCase{[=] { rope(exec, x, cos, sin, out); },
                     [=] { Kokkos::deep_copy(exec, copied, x); },
                     [] {},
                     {bytes, "GB/s"},
                     "copy"};
  });
  auto const by_heads = [=](auto const& x) {
    auto const e = [](int n) { return static_cast<std::size_t>(n); };
    return Kokkos::View<T****, Kokkos::LayoutStride, Memory,
                        Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
        x.data(), Kokkos::LayoutStride(1, e(tokens) * e(hidden), e(heads), e(d), e(tokens),
                                       e(hidden), e(d), 1));
  };
  add_fused(settings, case_name_of<T>("rms_norm_rope", sizes), [=](Exec const& exec) {
    auto const x = tensor<T>(1, 1, tokens, hidden), out = tensor<T>(1, 1, tokens, hidden);
    auto const normed = tensor<T>(1, 1, tokens, hidden), other = tensor<T>(1, 1, tokens, hidden);
    auto const cos = tensor<T>(1, tokens, d), sin = tensor<T>(1, tokens, d);
    auto const weight = tensor<T>(1, hidden);
    return FusedCase{[=] { rms_norm_rope(exec, x, weight, cos, sin, out); },
                     [=] {
                       rms_norm(exec, x, weight, normed);
                       rope(exec, by_heads(normed), cos, sin, by_heads(other));
                     },
                     [=] { require_agreement("rms_norm_rope", out, other, agreement<T>()); },
                     {bytes, "GB/s"}};
  });
  add_fused(settings, case_name_of<T>("rms_norm_rope_backward", sizes), [=](Exec const& exec) {
    auto const x = tensor<T>(1, 1, tokens, hidden), g = tensor<T>(1, 1, tokens, hidden);
    auto const turned = tensor<T>(1, 1, tokens, hidden), dx = tensor<T>(1, 1, tokens, hidden);
    auto const other = tensor<T>(1, 1, tokens, hidden);
    auto const cos = tensor<T>(1, tokens, d), sin = tensor<T>(1, tokens, d);
    auto const weight = tensor<T>(1, hidden), dw = tensor<T>(1, hidden), dw2 = tensor<T>(1, hidden);
    return FusedCase{[=] { rms_norm_rope_backward(exec, x, weight, cos, sin, g, dx, dw); },
                     [=] {
                       rope_backward(exec, by_heads(g), cos, sin, by_heads(turned));
                       rms_norm_backward(exec, x, weight, turned, other, dw2);
                     },
                     [=] {
                       require_agreement("dx", dx, other, agreement<T>());
                       require_agreement("dweight", dw, dw2, agreement<T>());
                     },
                     {1.5 * bytes, "GB/s"}};
  });
}

/// Operations on rows that are one pass or two already: beside a copy of what they read and write.
template <class T>
void add_rows(Settings const& settings, int rows, int cols) {
  std::string const sizes = text("rows", rows, "_hidden", cols);
  double const bytes = static_cast<double>(sizeof(T)) * rows * cols;
  add_fused(settings, case_name_of<T>("log_softmax", sizes), [=](Exec const& exec) {
    auto const x = tensor<T>(1, rows, cols), out = tensor<T>(1, rows, cols);
    auto const other = tensor<T>(1, rows, cols);
    return FusedCase{[=] { log_softmax(exec, x, out); },
                     [=] {
                       softmax(exec, x, other);
                       each_element(exec, other.span(), Logarithm<T>{other.data()});
                     },
                     [=] { require_agreement("log_softmax", out, other, agreement<T>()); },
                     {2 * bytes, "GB/s"}};
  });
  auto const beside_copy = [&](char const* operation, int inputs, auto const& call) {
    add_fused(settings, case_name_of<T>(operation, sizes), [=](Exec const& exec) {
      auto const x = tensor<T>(1, rows, cols), g = tensor<T>(1, rows, cols);
      auto const out = tensor<T>(1, rows, cols), copied = tensor<T>(1, rows, cols);
      auto const weight = tensor<T>(1, cols), dw = tensor<T>(1, cols), db = tensor<T>(1, cols);
      return FusedCase{[=] { call(exec, x, g, weight, out, dw, db); },
                       [=] {
                         Kokkos::deep_copy(exec, copied, x);
                         if (inputs == 2) Kokkos::deep_copy(exec, copied, g);
                       },
                       [=] {
                         require_written(operation, Kokkos::create_mirror_view_and_copy(
                                                        Kokkos::HostSpace{}, out));
                       },
                       {(1 + inputs) * bytes, "GB/s"},
                       "copy"};
    });
  };
  beside_copy("softmax_backward", 2,
              [](auto const& exec, auto const& x, auto const& g, auto const&, auto const& out,
                 auto const&, auto const&) { softmax_backward(exec, x, g, out); });
  beside_copy("log_softmax_backward", 2,
              [](auto const& exec, auto const& x, auto const& g, auto const&, auto const& out,
                 auto const&, auto const&) { log_softmax_backward(exec, x, g, out); });
  beside_copy(
      "rms_norm_backward", 2,
      [](auto const& exec, auto const& x, auto const& g, auto const& weight, auto const& out,
         auto const& dw, auto const&) { rms_norm_backward(exec, x, weight, g, out, dw); });
  beside_copy(
      "layer_norm_backward", 2,
      [](auto const& exec, auto const& x, auto const& g, auto const& weight, auto const& out,
         auto const& dw, auto const& db) { layer_norm_backward(exec, x, weight, g, out, dw, db); });
  add_fused(settings, case_name_of<T>("quantize_e4m3", sizes), [=](Exec const& exec) {
    auto const x = tensor<T>(1, rows, cols), copied = tensor<T>(1, rows, cols);
    auto const codes = tensor<float8_e4m3>(1, rows, cols);
    auto const scales = tensor<float>(1, rows, 1);
    return FusedCase{[=] { quantize(exec, x, codes, scales); },
                     [=] { Kokkos::deep_copy(exec, copied, x); },
                     [] {},
                     {bytes * (1 + 1.0 / sizeof(T)), "GB/s"},
                     "copy"};
  });
  add_fused(settings, case_name_of<T>("dequantize_e4m3", sizes), [=](Exec const& exec) {
    auto const x = tensor<T>(1, rows, cols), copied = tensor<T>(1, rows, cols);
    auto const codes = tensor<float8_e4m3>(1, rows, cols);
    auto const scales = tensor<float>(1, rows, 1);
    return FusedCase{[=] { dequantize(exec, codes, scales, x); },
                     [=] { Kokkos::deep_copy(exec, copied, x); },
                     [] {},
                     {bytes * (1 + 1.0 / sizeof(T)), "GB/s"},
                     "copy"};
  });
}

}  // namespace

void register_cases(Settings const& settings) {
  add_rotary<float>(settings, 2048, 32, 128);
  add_rotary<bfloat16>(settings, 2048, 32, 128);
  add_rows<float>(settings, 2048, 4096);
  add_rows<bfloat16>(settings, 2048, 4096);
}

}  // namespace attikos::measure
