/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** \file
 * Norms of rows and their gradients. attikos.h includes this and says what holds of every function.
 *
 * x and out have 1 to 3 dimensions and one shape and type: float64, float32, float16 or bfloat16; out may be x itself, and
 * dx may be x or dout. Weights have that type or, beside 16-bit elements, float32. */
#ifndef ATTIKOS_ATTIKOS_NORM_H
#define ATTIKOS_ATTIKOS_NORM_H

#include <attikos/attikos_base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** out = x / sqrt(mean(x^2) + eps) * weight over the last dimension; weight [hidden]. */
ATTIKOS_API attikos_status attikos_rms_norm(attikos_context* context, attikos_tensor const* x,
                                            attikos_tensor const* weight, attikos_tensor const* out,
                                            double eps);
/** out = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dimension. */
ATTIKOS_API attikos_status attikos_layer_norm(attikos_context* context, attikos_tensor const* x,
                                              attikos_tensor const* weight, attikos_tensor const* bias,
                                              attikos_tensor const* out, double eps);
/** out = x / max(|x|, eps) over the last dimension. */
ATTIKOS_API attikos_status attikos_l2_normalize(attikos_context* context, attikos_tensor const* x,
                                                attikos_tensor const* out, double eps);
/** Gradient of attikos_rms_norm: dx the shape and type of x, dweight those of weight (overwritten). */
ATTIKOS_API attikos_status attikos_rms_norm_backward(attikos_context* context, attikos_tensor const* x,
                                                     attikos_tensor const* weight, attikos_tensor const* dout,
                                                     attikos_tensor const* dx, attikos_tensor const* dweight,
                                                     double eps);
/** Gradient of attikos_layer_norm. */
ATTIKOS_API attikos_status attikos_layer_norm_backward(attikos_context* context, attikos_tensor const* x,
                                                       attikos_tensor const* weight,
                                                       attikos_tensor const* dout, attikos_tensor const* dx,
                                                       attikos_tensor const* dweight,
                                                       attikos_tensor const* dbias, double eps);
/** Gradient of attikos_l2_normalize: x, dout and dx of one shape and type. */
ATTIKOS_API attikos_status attikos_l2_normalize_backward(attikos_context* context, attikos_tensor const* x,
                                                         attikos_tensor const* dout, attikos_tensor const* dx,
                                                         double eps);

/* --- with the residual stream ------------------------------------------------------------------- */
/* residual and residual_sum have the shape and type of x. */

/** residual_sum = x + residual, rounded to their type, and out = attikos_rms_norm of residual_sum as it was rounded, in
 * one pass. residual_sum may be x or residual itself; out may be none of them. */
ATTIKOS_API attikos_status attikos_rms_norm_residual(attikos_context* context, attikos_tensor const* x,
                                                     attikos_tensor const* residual, attikos_tensor const* weight,
                                                     attikos_tensor const* residual_sum, attikos_tensor const* out,
                                                     double eps);
/** The same with attikos_layer_norm. */
ATTIKOS_API attikos_status attikos_layer_norm_residual(attikos_context* context, attikos_tensor const* x,
                                                       attikos_tensor const* residual,
                                                       attikos_tensor const* weight, attikos_tensor const* bias,
                                                       attikos_tensor const* residual_sum,
                                                       attikos_tensor const* out, double eps);
/** attikos_rms_norm_backward that adds residual to dx before that is rounded. With x the residual_sum of
 * attikos_rms_norm_residual and residual the gradient of it, dx is the gradient of that call's x and of its residual.
 * residual may be dx itself. */
ATTIKOS_API attikos_status attikos_rms_norm_backward_residual(
    attikos_context* context, attikos_tensor const* x, attikos_tensor const* weight, attikos_tensor const* dout,
    attikos_tensor const* residual, attikos_tensor const* dx, attikos_tensor const* dweight, double eps);
/** The same with attikos_layer_norm_backward. */
ATTIKOS_API attikos_status attikos_layer_norm_backward_residual(
    attikos_context* context, attikos_tensor const* x, attikos_tensor const* weight, attikos_tensor const* dout,
    attikos_tensor const* residual, attikos_tensor const* dx, attikos_tensor const* dweight,
    attikos_tensor const* dbias, double eps);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATTIKOS_ATTIKOS_NORM_H */
