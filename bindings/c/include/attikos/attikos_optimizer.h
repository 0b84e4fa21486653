/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** \file
 * Steps of optimizers. attikos.h includes this and says what holds of every function. */
#ifndef ATTIKOS_ATTIKOS_OPTIMIZER_H
#define ATTIKOS_ATTIKOS_OPTIMIZER_H

#include <attikos/attikos_base.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A step of AdamW (Loshchilov and Hutter, ICLR 2019, algorithm 2) of `count` parameters, in place: with
 * g = gradient_scale * gradient, m = exp_avg, v = exp_avg_sq and w the master weights, or the parameter where there are
 * none,
 *   m = beta1 * m + (1 - beta1) * g,   v = beta2 * v + (1 - beta2) * g^2,
 *   w = (1 - learning_rate * weight_decay) * w
 *       - learning_rate * (m / (1 - beta1^step)) / (sqrt(v / (1 - beta2^step)) + epsilon);
 * a parameter with master weights becomes their rounding, and is not read. `step` counts from 1.
 *
 * Each argument is an array of `count` tensors; those of one number have one shape, of up to 5 dimensions and any
 * strides. Parameters are of any of the four floating types, and need not be of one; gradients have the type of their
 * parameter, or float32 beside 16 bits; moments and master weights are float32, of float64 parameters float64.
 * `masters`, or a pointer in it, may be null. Tensors that are written share no memory with another one. A launch takes
 * 48 parameters of one type whose tensors lie dense and alike; each other parameter has its own. */
ATTIKOS_API attikos_status attikos_adamw_step(
    attikos_context* context, int32_t count, attikos_tensor const* const* parameters,
    attikos_tensor const* const* gradients, attikos_tensor const* const* exp_avgs,
    attikos_tensor const* const* exp_avg_sqs, attikos_tensor const* const* masters, double learning_rate,
    double beta1, double beta2, double epsilon, double weight_decay, double gradient_scale, int64_t step);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ATTIKOS_ATTIKOS_OPTIMIZER_H */
