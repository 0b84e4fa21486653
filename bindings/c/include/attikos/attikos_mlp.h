/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** \file
 * The gated MLP and its gradients. attikos.h includes this and says what holds of every function. */
#ifndef ATTIKOS_ATTIKOS_MLP_H
#define ATTIKOS_ATTIKOS_MLP_H

#include <attikos/attikos_base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** out = act(x * gate_weight^T) * (x * up_weight^T). x [tokens, hidden] or [batch, seqlen, hidden], weights
 * [intermediate, hidden], out [.., intermediate], all of one floating type; activation:
 * ATTIKOS_ACTIVATION_SILU, _GELU or _GELU_TANH. */
ATTIKOS_API attikos_status attikos_gated_mlp(attikos_context* context, attikos_tensor const* x,
                                             attikos_tensor const* gate_weight, attikos_tensor const* up_weight,
                                             attikos_tensor const* out, int32_t activation);
/** What attikos_gated_mlp would run, as text; see attikos_explain_gemm. */
ATTIKOS_API attikos_status attikos_explain_gated_mlp(attikos_context* context, attikos_tensor const* x,
                                                     attikos_tensor const* gate_weight,
                                                     attikos_tensor const* up_weight,
                                                     attikos_tensor const* out, int32_t activation, char* text,
                                                     size_t size, size_t* length);
/** Gradient of attikos_gated_mlp with respect to x and both weights. Gate and up are computed again;
 * they and their gradients are rounded to the type of x. */
ATTIKOS_API attikos_status attikos_gated_mlp_backward(attikos_context* context, attikos_tensor const* x,
                                                      attikos_tensor const* gate_weight,
                                                      attikos_tensor const* up_weight,
                                                      attikos_tensor const* dout, attikos_tensor const* dx,
                                                      attikos_tensor const* dgate_weight,
                                                      attikos_tensor const* dup_weight, int32_t activation);
/** attikos_gated_mlp that also stores gate = x * gate_weight^T and up = x * up_weight^T, of out's extents and x's
 * type, for attikos_gated_mlp_backward_kept: two products of attikos_gemm, and out of both as they were rounded. */
ATTIKOS_API attikos_status attikos_gated_mlp_keep(attikos_context* context, attikos_tensor const* x,
                                                  attikos_tensor const* gate_weight,
                                                  attikos_tensor const* up_weight, attikos_tensor const* out,
                                                  attikos_tensor const* gate, attikos_tensor const* up,
                                                  int32_t activation);
/** attikos_gated_mlp_backward by the gate and up that attikos_gated_mlp_keep stored: four products in place of six. */
ATTIKOS_API attikos_status attikos_gated_mlp_backward_kept(
    attikos_context* context, attikos_tensor const* x, attikos_tensor const* gate_weight,
    attikos_tensor const* up_weight, attikos_tensor const* dout, attikos_tensor const* gate,
    attikos_tensor const* up, attikos_tensor const* dx, attikos_tensor const* dgate_weight,
    attikos_tensor const* dup_weight, int32_t activation);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATTIKOS_ATTIKOS_MLP_H */
