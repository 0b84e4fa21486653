! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
program start
  use, intrinsic :: iso_fortran_env, only: real32
  use attikos
  implicit none
  integer, parameter :: head_dim = 64, seqlen = 128
  type(attikos_context) :: context
  ! (head_dim, seqlen, heads, batch); two key heads serve eight query heads
  real(real32) :: q(head_dim, seqlen, 8, 2), out(head_dim, seqlen, 8, 2)
  real(real32) :: k(head_dim, seqlen, 2, 2), v(head_dim, seqlen, 2, 2)

  call random_number(q)
  call random_number(k)
  call random_number(v)
  call attikos_context_create(context, ATTIKOS_HOST)
  call attikos_attention(context, q, k, v, out, options=attikos_attention_options(causal=1))
  ! The first query sees the first key alone.
  print '(f5.2)', maxval(abs(out(:, 1, 1, :) - v(:, 1, 1, :)))
  call attikos_context_destroy(context)
end program start
