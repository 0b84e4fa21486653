! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! A short example of each procedure for the reference page of
! Fortran; a test runs it.
program reference
  use, intrinsic :: iso_c_binding, only: c_bool, c_int32_t
  use, intrinsic :: iso_fortran_env, only: real32, real64
  use attikos
  implicit none
  type(attikos_context) :: context

  call contexts()
  call products()
  call attention()
  call norms()
  call softmaxes()
  call attikos_context_destroy(context)
  print '(a)', "all parts ran"

contains

  subroutine contexts()
    ! [contexts]
    integer(c_int32_t) :: status
    real(real64) :: x(4), out(3)
    call attikos_context_create(context, ATTIKOS_HOST)
    x = 1
    call attikos_softmax(context, x, out, stat=status)
    if (status /= ATTIKOS_SUCCESS) print '(a)', attikos_last_error()
    call attikos_synchronize(context)  ! a device's work is done now
    ! [contexts]
    call expect(status == ATTIKOS_SHAPE_MISMATCH, "three places for four numbers")
  end subroutine contexts

  subroutine products()
    ! [products]
    ! c = gelu(2 a b + bias), and its gradients
    real(real64) :: a(64, 96), b(96, 80), c(64, 80), bias(80)
    real(real64) :: da(64, 96), db(96, 80), d_bias(80)
    real(real64) :: dout(64, 80), before(64, 80)
    type(attikos_gemm_options) :: options
    call random_number(a)
    call random_number(b)
    bias = -50
    dout = 1
    options%alpha = 2
    options%activation = ATTIKOS_ACTIVATION_GELU
    call attikos_gemm(context, a, b, c, options, bias=bias, &
                      pre_activation=before)
    call attikos_gemm_backward(context, a, b, dout, da, db, &
                               d_bias, options=options, &
                               pre_activation=before)
    ! [products]
    call expect(all(abs(before - 2 * matmul(a, b) - spread(bias, 1, 64)) < 1e-11_real64), "a product")
    call expect(all(abs(c - before * (1 + erf(before / sqrt(2.0_real64))) / 2) < 1e-11_real64), "gelu")
    ! Those of b and of the bias come of the same gradient of the product's argument.
    call expect(maxval(abs(matmul(da, b) - 2 * matmul(slopes(before), matmul(transpose(b), b)))) < 1e-8_real64, "da")
    call expect(maxval(abs(db - 2 * matmul(transpose(a), slopes(before)))) < 1e-10_real64, "db")
    call expect(maxval(abs(d_bias - sum(slopes(before), 1))) < 1e-10_real64, "d_bias")
  end subroutine products

  !> gelu'(x) = Phi(x) + x phi(x)
  elemental function slopes(x) result(slope)
    real(real64), intent(in) :: x
    real(real64) :: slope
    real(real64), parameter :: pi = acos(-1.0_real64)
    slope = (1 + erf(x / sqrt(2.0_real64))) / 2 + x * exp(-x**2 / 2) / sqrt(2 * pi)
  end function slopes

  subroutine attention()
    ! [attention]
    ! Two key heads for four heads of queries, a window of 32
    ! keys, sequences of different lengths in one array, and the
    ! gradients; (head_dim, seqlen, heads, batch).
    real(real32), dimension(16, 100, 4, 2) :: q, out, dout, dq
    real(real32), dimension(16, 100, 2, 2) :: k, v, dk, dv
    real(real32) :: lse(100, 4, 2)
    integer(c_int32_t) :: lengths(2) = [90, 100]
    type(attikos_attention_options) :: options
    call random_number(q)
    call random_number(k)
    call random_number(v)
    options%causal = 1
    options%window_left = 32
    call attikos_attention(context, q, k, v, out, lse, options, &
                           lengths_q=lengths, lengths_kv=lengths)
    dout = 1
    call attikos_attention_backward( &
      context, q, k, v, out, lse, dout, dq, dk, dv, &
      options=options, lengths_q=lengths, lengths_kv=lengths)
    ! [attention]
    call expect(all(out(:, 91:, :, 1) == 0), "rows past a length are 0")
    call expect(all(out(:, 1, 3, 2) == v(:, 1, 2, 2)), "the first query sees itself alone")
    ! Weights of a query add up to 1, so that dout = 1 gives every column of dv the number of queries.
    call expect(abs(sum(dv(1, :, 1, 1)) - 2 * 90) < 0.01, "dv")
    call expect(all(dk(:, 91:, :, 1) == 0) .and. all(dq(:, 91:, :, 1) == 0), "gradients past a length are 0")
  end subroutine attention

  subroutine norms()
    ! [norms]
    ! The first dimension is the one that is normalized.
    real(real64), dimension(64, 100) :: x, y, dout, dx, stream
    real(real64), dimension(64) :: weight, bias, dweight, dbias
    call random_number(x)
    stream = 1
    dout = 1
    weight = 1
    bias = 0
    call attikos_rms_norm(context, x, weight, y, &
                          eps=1e-6_real64)
    call attikos_rms_norm_backward(context, x, weight, dout, dx, &
                                   dweight)
    call attikos_layer_norm(context, x, weight, bias, y)
    call attikos_layer_norm_backward(context, x, weight, dout, &
                                     dx, dweight, dbias)
    ! stream = stream + x, and y is the norm of it; its gradient
    ! is added to what went past the norm.
    call attikos_rms_norm_residual(context, x, stream, weight, &
                                   stream, y)
    call attikos_rms_norm_backward_residual( &
      context, stream, weight, dout, dx, dx, dweight)
    call attikos_layer_norm_residual(context, x, stream, weight, &
                                     bias, stream, y)
    call attikos_layer_norm_backward_residual( &
      context, stream, weight, dout, dx, dx, dweight, dbias)
    call attikos_l2_normalize(context, x, y)
    call attikos_l2_normalize_backward(context, x, dout, dx)
    ! [norms]
    call expect(all(abs(stream - (1 + 2 * x)) < 1e-15_real64), "a residual stream")
    call expect(all(abs(norm2(y, 1) - 1) < 1e-12_real64), "l2_normalize")
    call expect(all(abs(dbias - 100) < 1e-12_real64), "layer_norm_backward: dbias")
    call expect(all(abs(sum(dx * x, 1)) < 1e-12_real64), "a direction has no gradient along itself")
    call attikos_rms_norm(context, x, weight, y, eps=0.0_real64)
    call expect(all(abs(norm2(y, 1)**2 - 64) < 1e-9_real64), "rms_norm")
    call attikos_layer_norm(context, x, weight, bias, y)
    call expect(all(abs(sum(y, 1)) < 1e-9_real64), "layer_norm")
  end subroutine norms

  subroutine softmaxes()
    ! [softmaxes]
    real(real64), dimension(100, 64) :: x, p, log_p, dout, dx
    call random_number(x)
    call random_number(dout)
    call attikos_softmax(context, x, p, scale=0.5_real64)
    call attikos_softmax_backward(context, p, dout, dx, &
                                  scale=0.5_real64)
    call attikos_log_softmax(context, x, log_p, &
                             scale=0.5_real64)
    call attikos_log_softmax_backward(context, log_p, dout, dx, &
                                      scale=0.5_real64)
    call attikos_softmax(context, x, x)  ! in place
    ! [softmaxes]
    call expect(all(abs(sum(p, 1) - 1) < 1e-12_real64), "softmax")
    call expect(all(abs(exp(log_p) - p) < 1e-12_real64), "log_softmax")
    call expect(maxval(abs(dx - (dout - p * spread(sum(dout, 1), 1, 100)) / 2)) < 1e-12_real64, "log_softmax_backward")
  end subroutine softmaxes

  subroutine expect(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (.not. holds) then
      print '(2a)', "not so: ", what
      error stop
    end if
  end subroutine expect
end program reference
