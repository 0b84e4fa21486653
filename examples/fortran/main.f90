! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! A product with its bias and activation, attention, and attention's gradients, on arrays of this program.
program first_steps
  use, intrinsic :: iso_fortran_env, only: real32, real64
  use attikos
  implicit none
  integer, parameter :: tokens = 64, hidden = 128, heads = 4, head_dim = hidden / heads
  type(attikos_context) :: context
  type(attikos_gemm_options) :: product
  type(attikos_attention_options) :: options
  real(real64) :: a(3, 2), b(2, 3), c(3, 3), bias(3)
  real(real32) :: x(hidden, tokens), weight(hidden), normed(hidden, tokens)
  real(real32), dimension(head_dim, tokens, heads, 1) :: q, k, v, out, dout, dq, dk, dv
  real(real32) :: lse(tokens, heads, 1)

  call attikos_context_create(context, ATTIKOS_HOST)

  ! c = max(2 a b + bias, 0), with the bias along columns
  a = reshape([1, 2, 3, 4, 5, 6], shape(a))
  b = reshape([1, 0, 0, -1, 1, 1], shape(b))
  bias = [0, 1, -20]
  product%alpha = 2
  product%activation = ATTIKOS_ACTIVATION_RELU
  call attikos_gemm(context, a, b, c, options=product, bias=bias)
  print '(a, 3f7.1)', "first row of the product:", c(1, :)

  ! Causal self-attention over normalized rows, which serve as queries, keys and values.
  call random_number(x)
  weight = 1
  call attikos_rms_norm(context, x, weight, normed)
  q = reshape(normed, shape(q), order=[1, 3, 2, 4])  ! (head_dim, heads, tokens) as (head_dim, tokens, heads)
  k = q
  v = q
  options%causal = 1
  call attikos_attention(context, q, k, v, out, lse, options)
  print '(a, es9.1)', "the first query sees itself alone, difference:", maxval(abs(out(:, 1, :, :) - v(:, 1, :, :)))

  dout = 1
  call attikos_attention_backward(context, q, k, v, out, lse, dout, dq, dk, dv, options=options)
  print '(a, f8.2)', "weights of every query add up to 1, sum of dv per head and feature:", &
    sum(dv) / (heads * head_dim)
  call attikos_context_destroy(context)
end program first_steps
