// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-quantize.md shows, part by part; a
// test runs it.
#include <attikos/attikos.hpp>

#include "common.hpp"

using Matrix = Kokkos::View<float**>;
using Vector = Kokkos::View<float*>;
using Integers = Kokkos::View<std::int32_t*>;
using Codes = Kokkos::View<attikos::float8_e4m3**>;
using Bytes = Kokkos::View<std::int8_t**>;

void quantize(Space const& exec) {
  auto const x = random<Matrix>(256, 512);
  // [quantize]
  // The shape of the scales says what shares one: here
  // 128 neighbors in a row. Powers of two scale back
  // exactly.
  Codes codes("codes", 256, 512);
  Matrix scale("scale", 256, 4), back("back", 256, 512);
  attikos::QuantizeOptions const options{
      .power_of_two_scale = true};
  attikos::quantize(exec, x, codes, scale, options);
  attikos::dequantize(exec, codes, scale, back);
  // [quantize]
  expect_near(on_host(back)(200, 300),
              on_host(x)(200, 300), 1.0 / 16,
              "a number in float8");
  expect(
      std::log2(on_host(scale)(200, 2)) ==
          std::floor(std::log2(on_host(scale)(200, 2))),
      "scales are powers of two");
}

void calibrated(Space const& exec) {
  auto const x = random<Matrix>(8, 16);
  // [calibrated]
  // A scale from calibration instead of one from the
  // data: what is beyond 127·0.005 saturates.
  auto const scale = list<Vector>({0.005f});
  Bytes codes("codes", 8, 16);
  attikos::quantize_with_scale(exec, x, scale, codes);
  // [calibrated]
  double const wanted = std::clamp(
      std::nearbyint(on_host(x)(3, 4) / 0.005f), -128.0f,
      127.0f);
  expect(on_host(codes)(3, 4) == wanted, "a code");
}

void scaled_product(Space const& exec) {
  auto const x = random<Matrix>(64, 256),
             w = random<Matrix>(96, 256);
  Matrix y("y", 64, 96);
  // [scaled-product]
  // Activations with a scale for 1 × 128 elements,
  // weights for 128 × 128, as DeepSeek-V3 has them. A
  // factor that an earlier kernel found is read on the
  // device.
  Codes x8("x8", 64, 256), w8("w8", 96, 256);
  Matrix x_scale("x_scale", 64, 2),
      w_scale("w_scale", 1, 2);
  attikos::quantize(exec, x, x8, x_scale);
  attikos::quantize(exec, w, w8, w_scale);
  auto const factor = list<Vector>({0.5f});
  attikos::gemm(exec, x8, w8, y, {.trans_b = true},
                attikos::scale_a(x_scale),
                attikos::scale_b(w_scale),
                attikos::device_scale(factor));
  // [scaled-product]
  Matrix xb("xb", 64, 256), wb("wb", 96, 256);
  attikos::dequantize(exec, x8, x_scale, xb);
  attikos::dequantize(exec, w8, w_scale, wb);
  auto const hx = on_host(xb), hw = on_host(wb);
  double sum = 0;
  for (int l = 0; l < 256; ++l)
    sum += double(hx(9, l)) * hw(70, l);
  expect_near(on_host(y)(9, 70), 0.5 * sum, 1e-5,
              "a product of scaled elements");
}

void integers(Space const& exec) {
  Bytes a("a", 4, 32), b("b", 32, 8);
  for (int i = 0; i < 4 * 32; ++i)
    a.data()[i] = std::int8_t(i % 19);
  for (int i = 0; i < 32 * 8; ++i)
    b.data()[i] = std::int8_t(i % 23 - 9);
  // [integers]
  // int8 layers: x = 0.02·(a − 12), w = 0.01·(b − 3).
  // What comes out is int8 again, of scale 0.05.
  auto const zero_a = list<Integers>({12}),
             zero_b = list<Integers>({3});
  auto const out_scale = list<Vector>({0.05f});
  Bytes c("c", 4, 8);
  attikos::gemm(exec, a, b, c, {.scale = 0.02 * 0.01},
                attikos::zero_point_a(zero_a),
                attikos::zero_point_b(zero_b),
                attikos::scale_out(out_scale));
  // [integers]
  exec.fence();
  int sum = 0;
  for (int l = 0; l < 32; ++l)
    sum += (a(2, l) - 12) * (b(l, 5) - 3);
  expect(c(2, 5) == std::nearbyint(sum * 2e-4 / 0.05),
         "a product of integers");
}

int main(int argc, char** argv) {
  Kokkos::ScopeGuard const guard(argc, argv);
  Space const exec;
  quantize(exec);
  calibrated(exec);
  scaled_product(exec);
  integers(exec);
  std::printf("all parts ran\n");
}
