// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Fused products and attention beside separate calls; see support/separate_calls.hpp.
#include <support/separate_calls.hpp>

namespace attikos::measure {
namespace {

template <class T>
struct Product {
  T const* a;
  T* out;
  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const {
    out[i] = static_cast<T>(static_cast<float>(a[i]) * static_cast<float>(out[i]));
  }
};

/// dgate and dup from gate and up, in their places.
template <class T>
struct GateGradients {
  T const* dout;
  T* gate;
  T* up;
  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const {
    auto const d = static_cast<float>(dout[i]);
    auto const g = static_cast<float>(gate[i]);
    gate[i] = static_cast<T>(d * static_cast<float>(up[i]) *
                             apply_activation_gradient(Activation::silu, g));
    up[i] = static_cast<T>(d * apply_activation(Activation::silu, g));
  }
};

/// out = gelu(out + bias) + residual, row by row.
template <class T>
struct Finish {
  T const* bias;
  T const* residual;
  T* out;
  std::size_t cols;
  KOKKOS_INLINE_FUNCTION void operator()(std::size_t row) const {
    for (std::size_t j = 0; j < cols; ++j) {
      std::size_t const i = row * cols + j;
      out[i] =
          static_cast<T>(apply_activation(Activation::gelu_tanh, static_cast<float>(out[i]) +
                                                                     static_cast<float>(bias[j])) +
                         static_cast<float>(residual[i]));
    }
  }
};

template <class T>
struct ActivationSlope {
  T const* pre;
  T const* dout;
  T* out;
  KOKKOS_INLINE_FUNCTION void operator()(std::size_t i) const {
    out[i] =
        static_cast<T>(static_cast<float>(dout[i]) *
                       apply_activation_gradient(Activation::silu, static_cast<float>(pre[i])));
  }
};

constexpr double flop_of(double a, double b, double c) { return 2 * a * b * c; }

template <class T>
void add_attention(Settings const& settings, int heads, int s, int d) {
  std::string const sizes = text("b1_h", heads, "_s", s, "_d", d);
  float const scale = 1 / std::sqrt(static_cast<float>(d));
  double const product = flop_of(s, s, d) * heads;
  add_fused(settings, case_name_of<T>("attention", sizes), [=](Exec const& exec) {
    auto const q = tensor<T>(1, heads, s, d), k = tensor<T>(1, heads, s, d);
    auto const v = tensor<T>(1, heads, s, d), out = tensor<T>(1, heads, s, d);
    auto const p = tensor<T>(1, heads, s, s), other = tensor<T>(1, heads, s, d);
    return FusedCase{[=] { attention(exec, q, k, v, out); },
                     [=] {
                       gemm(exec, q, k, p, {.trans_b = true});
                       softmax(exec, p, p, {.scale = scale});
                       gemm(exec, p, v, other);
                     },
                     [=] { require_agreement("attention", out, other, agreement<T>()); },
                     {2 * product, "GFLOP/s"}};
  });
  add_fused(settings, case_name_of<T>("attention_backward", sizes), [=](Exec const& exec) {
    auto const q = tensor<T>(1, heads, s, d), k = tensor<T>(1, heads, s, d);
    auto const v = tensor<T>(1, heads, s, d), dout = tensor<T>(1, heads, s, d);
    auto const out = tensor<T>(1, heads, s, d);
    auto const lse = tensor<float>(1, heads, s);
    auto const dq = tensor<T>(1, heads, s, d), dk = tensor<T>(1, heads, s, d);
    auto const dv = tensor<T>(1, heads, s, d), dq2 = tensor<T>(1, heads, s, d);
    auto const dk2 = tensor<T>(1, heads, s, d), dv2 = tensor<T>(1, heads, s, d);
    auto const p = tensor<T>(1, heads, s, s), dp = tensor<T>(1, heads, s, s);
    attention(exec, q, k, v, out, lse);
    return FusedCase{[=] { attention_backward(exec, q, k, v, out, lse, dout, dq, dk, dv); },
                     [=] {
                       gemm(exec, q, k, p, {.trans_b = true});
                       softmax(exec, p, p, {.scale = scale});
                       gemm(exec, p, dout, dv2, {.trans_a = true});
                       gemm(exec, dout, v, dp, {.trans_b = true});
                       softmax_backward(exec, p, dp, dp, {.scale = scale});
                       gemm(exec, dp, k, dq2);
                       gemm(exec, dp, q, dk2, {.trans_a = true});
                     },
                     [=] {
                       require_agreement("dq", dq, dq2, agreement<T>());
                       require_agreement("dk", dk, dk2, agreement<T>());
                       require_agreement("dv", dv, dv2, agreement<T>());
                     },
                     {5 * product, "GFLOP/s"}};
  });
}

template <class T>
void add_decode(Settings const& settings, int heads, int heads_kv, int s, int d) {
  std::string const sizes = text("b1_h", heads, "_", heads_kv, "_s", s, "_d", d);
  double const bytes = 2.0 * heads_kv * s * d * sizeof(T);
  add_fused(settings, case_name_of<T>("decode", sizes), [=](Exec const& exec) {
    auto const q = tensor<T>(1, 1, heads, 1, d), k = tensor<T>(1, 1, heads_kv, s, d);
    auto const v = tensor<T>(1, 1, heads_kv, s, d), out = tensor<T>(1, 1, heads, 1, d);
    auto const other = tensor<T>(1, 1, heads, 1, d);
    return FusedCase{[=] { decode(exec, q, k, v, out); },
                     [=] { attention(exec, q, k, v, other); },
                     [=] { require_agreement("decode", out, other, agreement<T>()); },
                     {bytes, "GB/s"}};
  });
  // 512 new positions of keys and values into a cache, the keys turned on the way.
  int const fresh = 512;
  add_fused(
      settings, case_name_of<T>("append_kv", text(sizes, "_new", fresh)), [=](Exec const& exec) {
        auto const k = tensor<T>(1, 1, heads_kv, fresh, d), v = tensor<T>(1, 1, heads_kv, fresh, d);
        auto const turned = tensor<T>(1, 1, heads_kv, fresh, d);
        auto const k_cache = tensor<T>(1, 1, heads_kv, s, d),
                   v_cache = tensor<T>(1, 1, heads_kv, s, d);
        auto const k_other = tensor<T>(1, 1, heads_kv, s, d),
                   v_other = tensor<T>(1, 1, heads_kv, s, d);
        auto const cos = tensor<float>(1, s, d), sin = tensor<float>(1, s, d);
        Tensor<std::int32_t, 1> const length("length", 1);
        Kokkos::deep_copy(length, s / 2);
        Kokkos::deep_copy(exec, k_other, k_cache);
        Kokkos::deep_copy(exec, v_other, v_cache);
        return FusedCase{[=] {
                           append_kv(exec, k, v, k_cache, v_cache, {}, cache_lengths(length),
                                     rotary(cos, sin));
                         },
                         [=] {
                           rope(exec, k, cos, sin, turned, {}, positions(length));
                           append_kv(exec, turned, v, k_other, v_other, {}, cache_lengths(length));
                         },
                         [=] { require_agreement("append_kv", k_cache, k_other, agreement<T>()); },
                         {4.0 * heads_kv * fresh * d * sizeof(T), "GB/s"}};
      });
}

template <class T>
void add_mlp(Settings const& settings, int tokens, int hidden, int wide) {
  std::string const sizes = text("t", tokens, "_h", hidden, "_i", wide);
  double const product = flop_of(tokens, hidden, wide);
  auto const count = static_cast<std::size_t>(tokens) * static_cast<std::size_t>(wide);
  double const size = 1 / std::sqrt(hidden);
  GatedMlpOptions const portable{.kernel = "portable"};
  add_fused(settings, case_name_of<T>("gated_mlp", sizes), [=](Exec const& exec) {
    auto const x = tensor<T>(1, tokens, hidden), gate = tensor<T>(size, wide, hidden);
    auto const up = tensor<T>(size, wide, hidden), out = tensor<T>(1, tokens, wide);
    auto const a = tensor<T>(1, tokens, wide), other = tensor<T>(1, tokens, wide);
    return FusedCase{[=] { gated_mlp(exec, x, gate, up, out, portable); },
                     [=] {
                       gemm(exec, x, gate, a, {.trans_b = true, .activation = Activation::silu});
                       gemm(exec, x, up, other, {.trans_b = true});
                       each_element(exec, count, Product<T>{a.data(), other.data()});
                     },
                     [=] { require_agreement("gated_mlp", out, other, agreement<T>()); },
                     {2 * product, "GFLOP/s"}};
  });
  add_fused(settings, case_name_of<T>("gated_mlp_backward", sizes), [=](Exec const& exec) {
    auto const x = tensor<T>(1, tokens, hidden), gate = tensor<T>(size, wide, hidden);
    auto const up = tensor<T>(size, wide, hidden), dout = tensor<T>(1, tokens, wide);
    auto const dx = tensor<T>(1, tokens, hidden), dx2 = tensor<T>(1, tokens, hidden);
    auto const dgate = tensor<T>(1, wide, hidden), dup = tensor<T>(1, wide, hidden);
    auto const dgate2 = tensor<T>(1, wide, hidden), dup2 = tensor<T>(1, wide, hidden);
    auto const a = tensor<T>(1, tokens, wide), b = tensor<T>(1, tokens, wide);
    return FusedCase{[=] { gated_mlp_backward(exec, x, gate, up, dout, dx, dgate, dup, portable); },
                     [=] {
                       gemm(exec, x, gate, a, {.trans_b = true});
                       gemm(exec, x, up, b, {.trans_b = true});
                       each_element(exec, count, GateGradients<T>{dout.data(), a.data(), b.data()});
                       gemm(exec, a, gate, dx2);
                       gemm(exec, b, up, dx2, {.beta = 1});
                       gemm(exec, a, x, dgate2, {.trans_a = true});
                       gemm(exec, b, x, dup2, {.trans_a = true});
                     },
                     [=] {
                       require_agreement("dx", dx, dx2, agreement<T>());
                       require_agreement("dgate_weight", dgate, dgate2, agreement<T>());
                       require_agreement("dup_weight", dup, dup2, agreement<T>());
                     },
                     {6 * product, "GFLOP/s"}};
  });
}

template <class T>
void add_gemm(Settings const& settings, int m, int n, int k) {
  std::string const sizes = text(m, "x", n, "x", k);
  double const product = flop_of(m, n, k);
  double const size = 1 / std::sqrt(k);
  add_fused(settings, case_name_of<T>("gemm_bias_gelu_residual", sizes), [=](Exec const& exec) {
    auto const a = tensor<T>(1, m, k), b = tensor<T>(size, k, n), c = tensor<T>(1, m, n);
    auto const other = tensor<T>(1, m, n), r = tensor<T>(1, m, n);
    auto const add_to = tensor<T>(1, n);
    return FusedCase{
        [=] {
          gemm(exec, a, b, c, {.activation = Activation::gelu_tanh}, bias(add_to), residual(r));
        },
        [=] {
          gemm(exec, a, b, other);
          each_element(
              exec, static_cast<std::size_t>(m),
              Finish<T>{add_to.data(), r.data(), other.data(), static_cast<std::size_t>(n)});
        },
        [=] { require_agreement("gemm", c, other, agreement<T>()); },
        {product, "GFLOP/s"}};
  });
  add_fused(settings, case_name_of<T>("gemm_backward_silu", sizes), [=](Exec const& exec) {
    auto const a = tensor<T>(1, m, k), b = tensor<T>(size, k, n), dc = tensor<T>(1, m, n);
    auto const pre = tensor<T>(1, m, n), dx = tensor<T>(1, m, n);
    auto const da = tensor<T>(1, m, k), db = tensor<T>(1, k, n);
    auto const da2 = tensor<T>(1, m, k), db2 = tensor<T>(1, k, n);
    return FusedCase{
        [=] {
          gemm_backward(exec, a, b, dc, da, db, {.activation = Activation::silu},
                        pre_activation(pre));
        },
        [=] {
          each_element(exec, dx.span(), ActivationSlope<T>{pre.data(), dc.data(), dx.data()});
          gemm(exec, dx, b, da2, {.trans_b = true});
          gemm(exec, a, dx, db2, {.trans_a = true});
        },
        [=] {
          require_agreement("da", da, da2, agreement<T>());
          require_agreement("db", db, db2, agreement<T>());
        },
        {2 * product, "GFLOP/s"}};
  });
}

/// float8 with a factor for each row and column, beside float32 copies of its operands.
void add_float8_gemm(Settings const& settings, int m, int n, int k) {
  add_fused(settings, case_name_of<float8_e4m3>("gemm_scaled", text(m, "x", n, "x", k)),
            [=](Exec const& exec) {
              auto const x = tensor<float>(1, m, k), w = tensor<float>(1, n, k);
              auto const xs = tensor<float>(1, m, 1), ws = tensor<float>(1, n, 1);
              auto const xw = tensor<float>(1, m, k), ww = tensor<float>(1, n, k);
              auto const x8 = tensor<float8_e4m3>(1, m, k), w8 = tensor<float8_e4m3>(1, n, k);
              auto const c = tensor<float>(1, m, n), other = tensor<float>(1, m, n);
              quantize(exec, x, x8, xs);
              quantize(exec, w, w8, ws);
              return FusedCase{
                  [=] { gemm(exec, x8, w8, c, {.trans_b = true}, scale_a(xs), scale_b(ws)); },
                  [=] {
                    dequantize(exec, x8, xs, xw);
                    dequantize(exec, w8, ws, ww);
                    gemm(exec, xw, ww, other, {.trans_b = true});
                  },
                  [=] { require_agreement("gemm_scaled", c, other, 1e-4); },
                  {flop_of(m, n, k), "GFLOP/s"}};
            });
}

/// Thousands of tiny products in one call, and one call each.
template <class T>
void add_small(Settings const& settings, int batch, int n) {
  add_fused(settings, case_name_of<T>("gemm_batched", text("b", batch, "_", n, "x", n, "x", n)),
            [=](Exec const& exec) {
              auto const a = tensor<T>(1, batch, n, n), b = tensor<T>(1, batch, n, n);
              auto const c = tensor<T>(1, batch, n, n), other = tensor<T>(1, batch, n, n);
              return FusedCase{[=] { gemm(exec, a, b, c); },
                               [=] {
                                 auto const one = [&](auto const& x, int i) {
                                   return Kokkos::subview(x, i, Kokkos::ALL, Kokkos::ALL);
                                 };
                                 for (int i = 0; i < batch; ++i)
                                   gemm(exec, one(a, i), one(b, i), one(other, i));
                               },
                               [=] { require_agreement("gemm_batched", c, other, agreement<T>()); },
                               {flop_of(n, n, n) * batch, "GFLOP/s"}};
            });
}

}  // namespace

void register_cases(Settings const& settings) {
  add_attention<float>(settings, 8, 1024, 64);
  add_attention<bfloat16>(settings, 8, 1024, 64);
  for (int d : {64, 128})
    if (!on_host) add_attention<bfloat16>(settings, 2048 / d, 4096, d);
  add_decode<float>(settings, 32, 8, 8192, 128);
  add_decode<bfloat16>(settings, 32, 8, 8192, 128);
  add_mlp<float>(settings, 512, 1024, 2816);
  add_mlp<bfloat16>(settings, 512, 1024, 2816);
  add_gemm<float>(settings, 1024, 1024, 512);
  add_gemm<bfloat16>(settings, 1024, 1024, 512);
  add_float8_gemm(settings, 512, 1024, 1024);
  for (int n : {4, 8, 16, 32}) add_small<float>(settings, 4096, n);
}

}  // namespace attikos::measure
