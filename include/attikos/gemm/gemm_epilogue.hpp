// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// From a finished sum to an element of C, in registers on a host, one by one on a device.
#pragma once

#include <Kokkos_Core.hpp>
#include <attikos/abi/gemm.hpp>
#include <attikos/core/extras.hpp>
#include <attikos/core/rows/row.hpp>
#include <attikos/gemm/gemm_types.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Where a tile's elements lie: the matrix of C, and what the caller's function is told.
struct GemmBatch {
  std::int64_t c, shown;
};

/// Pointer to the first element of one matrix of a batch.
template <class T>
KOKKOS_INLINE_FUNCTION T* gemm_matrix(void const* data, void const* const* pointers,
                                      std::int64_t batch, std::int64_t stride) {
  if (pointers != nullptr) return static_cast<T*>(const_cast<void*>(pointers[batch * stride]));
  return static_cast<T*>(const_cast<void*>(data)) + batch * stride;
}

template <class C>
KOKKOS_INLINE_FUNCTION C* gemm_c(abi::GemmArgs const& g, std::int64_t batch) {
  return gemm_matrix<C>(g.c, g.c_pointers, batch, g.c_batch);
}

/// Factor of the whole product: what the host gave times what the device has.
template <class Scalar>
KOKKOS_INLINE_FUNCTION Scalar gemm_factor(abi::GemmArgs const& g) {
  Scalar const scale = static_cast<Scalar>(g.scale);
  return g.device_scale == nullptr ? scale : scale * static_cast<Scalar>(*g.device_scale);
}

/// One element. `Function` is the caller's in place of the activation, or Absent.
template <class C, class Scalar, class Function>
KOKKOS_INLINE_FUNCTION void gemm_store_element(abi::GemmArgs const& g, Function const& function,
                                               GemmBatch batch, std::int64_t row, std::int64_t col,
                                               Scalar x) {
  C* const to = gemm_c<C>(g, batch.c) + row * g.c_m + col * g.c_n;
  x *= static_cast<Scalar>(g.alpha);
  if (!is_quantized<C> && g.beta != 0) x += static_cast<Scalar>(g.beta) * static_cast<Scalar>(*to);
  if constexpr (std::is_floating_point_v<Scalar>) {
    x *= gemm_factor<Scalar>(g);
    if (g.bias != nullptr)
      x += load_any<Scalar>(g.type_bias, g.bias,
                            (g.bias_along == BiasAlong::m ? row : col) * g.bias_stride);
    if (g.pre_activation != nullptr)
      store_any(
          g.type_pre_activation, g.pre_activation,
          batch.c * g.pre_activation_batch + row * g.pre_activation_m + col * g.pre_activation_n,
          x);
    if constexpr (is_present<Function>) {
      x = static_cast<Scalar>(function(x, batch.shown, row, col));
    } else {
      x = apply_activation(g.activation, x);
    }
    if (g.residual != nullptr)
      x += load_any<Scalar>(g.type_residual, g.residual,
                            batch.c * g.residual_batch + row * g.residual_m + col * g.residual_n);
  }
  Scalar const undivided = x;
  if constexpr (is_quantized<C>) {
    if (g.scale_out != nullptr) x /= static_cast<Scalar>(*g.scale_out);
  }
  *to = scalar_to_element<C>(x, undivided);
}

/// Whether nothing happens to a sum but its conversion.
template <class C, class Scalar, class Function>
KOKKOS_INLINE_FUNCTION bool stores_sums_alone(abi::GemmArgs const& g) {
  return !is_present<Function> && !is_quantized<C> && g.alpha == 1 && g.beta == 0 && g.scale == 1 &&
         g.device_scale == nullptr && g.bias == nullptr && g.pre_activation == nullptr &&
         g.activation == Activation::none && g.residual == nullptr;
}

namespace host {

/// Stores `count` lanes in a tensor whose type is known only at run time.
template <class Acc>
inline void gemm_put_any(DType type, void* data, std::int64_t offset, std::int64_t stride,
                         int count, Vec<Acc> v) {
  auto const store_as = [&]<class T>(T* p) { put<Acc>(p + offset, stride, count, v); };
  switch (type) {
    case DType::float64:
      return store_as(static_cast<double*>(data));
    case DType::float32:
      return store_as(static_cast<float*>(data));
    case DType::float16:
      return store_as(static_cast<float16*>(data));
    case DType::bfloat16:
      return store_as(static_cast<bfloat16*>(data));
    default:
      return;
  }
}

/// gemm_store_element() for `n` neighbors in a row.
template <class C, class Scalar, class Function>
inline void gemm_store_row(abi::GemmArgs const& g, Function const& function, GemmBatch batch,
                           std::int64_t row, std::int64_t col, int n, Scalar const* sums) {
  constexpr int W = lanes<Scalar>;
  C* const c = gemm_c<C>(g, batch.c) + row * g.c_m + col * g.c_n;
  if constexpr (!is_quantized<C>) {
    if (g.c_n == 1 && stores_sums_alone<C, Scalar, Function>(g)) {
      int j = 0;
      for (; j + W <= n; j += W) store<Scalar, W>(c + j, load<Scalar, W>(sums + j));
      if (j < n) store_partial<Scalar, W>(c + j, 1, n - j, load<Scalar, W>(sums + j));
      return;
    }
  }
  Scalar const alpha = static_cast<Scalar>(g.alpha);
  Scalar const beta = static_cast<Scalar>(g.beta);
  Scalar const scale = gemm_factor<Scalar>(g);
  bool const bias_per_row = g.bias != nullptr && g.bias_along == BiasAlong::m;
  Scalar const row_bias =
      bias_per_row ? load_any<Scalar>(g.type_bias, g.bias, row * g.bias_stride) : Scalar(0);
  for (int j = 0; j < n; j += W) {
    int const count = n - j < W ? n - j : W;
    Vec<Scalar> x = load<Scalar, W>(sums + j) * alpha;
    C* const to = c + j * g.c_n;
    if (!is_quantized<C> && g.beta != 0) {
      x = multiply_add<Scalar, W>(load_row<Scalar>(to, g.c_n, count), beta, x);
    }
    if constexpr (std::is_floating_point_v<Scalar>) {
      x *= scale;
      if (bias_per_row) {
        x += row_bias;
      } else if (g.bias != nullptr) {
        x += load_vector_any<Scalar>(g.type_bias, g.bias, (col + j) * g.bias_stride, g.bias_stride,
                                     count);
      }
      if (g.pre_activation != nullptr)
        gemm_put_any<Scalar>(g.type_pre_activation, g.pre_activation,
                             batch.c * g.pre_activation_batch + row * g.pre_activation_m +
                                 (col + j) * g.pre_activation_n,
                             g.pre_activation_n, count, x);
      if constexpr (is_present<Function>) {
        for (int l = 0; l < count; ++l)
          x[l] = static_cast<Scalar>(
              function(static_cast<Scalar>(x[l]), batch.shown, row, col + j + l));
      } else {
        x = activate<Scalar>(g.activation, x);
      }
      if (g.residual != nullptr) {
        x += load_vector_any<Scalar>(
            g.type_residual, g.residual,
            batch.c * g.residual_batch + row * g.residual_m + (col + j) * g.residual_n,
            g.residual_n, count);
      }
    }
    if constexpr (is_quantized<C>) {
      Vec<Scalar> const undivided = x;
      if (g.scale_out != nullptr) x /= static_cast<Scalar>(*g.scale_out);
      for (int l = 0; l < count; ++l)
        to[l * g.c_n] =
            scalar_to_element<C>(static_cast<Scalar>(x[l]), static_cast<Scalar>(undivided[l]));
    } else {
      put<Scalar>(to, g.c_n, count, x);
    }
  }
  (void)scale;
  (void)row_bias;
  (void)function;
}

}  // namespace host
}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
