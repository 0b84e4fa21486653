! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
!> Attikos from Fortran 2018: products, attention, normalizations and their gradients on arrays of the caller.
!>
!> Arrays are passed as they are, sections with any strides included; nothing is copied. Their elements are real32 or
!> real64, one kind for all floating-point arrays of a call; lengths and offsets are int32, masks logical(c_bool).
!> Order of dimensions: of matrices that of mathematics, a(m, k), with the batch behind, a(m, k, batch). Of everything
!> else the fastest first, which is the reverse of attikos.h: q(head_dim, seqlen, heads, batch), x(hidden, tokens).
!>
!> Every procedure has an optional `stat` as its last argument. It becomes ATTIKOS_SUCCESS or what was wrong, with a
!> sentence in attikos_last_error(); without it an error stops the program with that sentence. Arguments are checked
!> before anything is written. On the host the work is done when a procedure returns; on a device it is asynchronous on
!> the context's stream, and attikos_synchronize() waits. Results are the same bits from run to run.
module attikos
  use, intrinsic :: iso_c_binding
  implicit none
  private

  ! Enumerators and options, from attikos.h.
  include 'attikos_options.inc'

  !> Where operations run; made by attikos_context_create(). One thread at a time uses a context.
  type, bind(C), public :: attikos_context
    type(c_ptr) :: handle = c_null_ptr
  end type attikos_context

  public :: attikos_context_create, attikos_context_destroy, attikos_synchronize, attikos_last_error
  public :: attikos_gemm, attikos_gemm_backward, attikos_attention, attikos_attention_backward
  public :: attikos_rms_norm, attikos_rms_norm_backward, attikos_layer_norm, attikos_layer_norm_backward
  public :: attikos_rms_norm_residual, attikos_rms_norm_backward_residual
  public :: attikos_layer_norm_residual, attikos_layer_norm_backward_residual
  public :: attikos_l2_normalize, attikos_l2_normalize_backward
  public :: attikos_softmax, attikos_softmax_backward, attikos_log_softmax, attikos_log_softmax_backward
  public :: attikos_fortran_error_stop

  interface
    !> kind: ATTIKOS_HOST (all threads), ATTIKOS_SERIAL or ATTIKOS_CUDA; ordinal: the device, 0 if absent; stream: a
    !> cudaStream_t as an address.
    subroutine attikos_context_create(context, kind, ordinal, stream, stat) bind(C, name="attikos_fortran_context_create")
      import
      type(attikos_context), intent(out) :: context
      integer(c_int32_t), intent(in) :: kind
      integer(c_int32_t), intent(in), optional :: ordinal
      type(c_ptr), intent(in), optional :: stream
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_context_create

    !> Does not wait for work under way.
    subroutine attikos_context_destroy(context) bind(C, name="attikos_fortran_context_destroy")
      import
      type(attikos_context), intent(inout) :: context
    end subroutine attikos_context_destroy

    !> Waits for all work queued on the context.
    subroutine attikos_synchronize(context, stat) bind(C, name="attikos_fortran_synchronize")
      import
      type(attikos_context), intent(in) :: context
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_synchronize

    !> c = act(scale (alpha op(a) op(b) + beta c) + bias) + residual.
    !> a(m, k) or (m, k, batch), b(k, n) or (k, n, batch), c(m, n) or (m, n, batch); a or b of two dimensions serves the
    !> whole batch; with options%trans_a a is (k, m), with options%trans_b b is (n, k). bias(n), with
    !> options%bias_along_rows bias(m); residual and pre_activation have the shape of c.
    subroutine attikos_gemm(context, a, b, c, options, bias, residual, pre_activation, kernel, stat) &
        bind(C, name="attikos_fortran_gemm")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: a, b
      type(*), dimension(..), intent(inout) :: c
      type(attikos_gemm_options), intent(in), optional :: options
      type(*), dimension(..), intent(in), optional :: bias, residual
      type(*), dimension(..), intent(inout), optional :: pre_activation
      character(kind=c_char, len=*), intent(in), optional :: kernel
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_gemm

    !> Gradients of attikos_gemm(): a, b and options are those of that call, dout is the gradient of its result; with an
    !> activation pre_activation is what that call wrote there. da, db, d_bias have the shapes of a, b, bias; d_c, the
    !> gradient of the c that beta multiplied, that of dout. At least one is present.
    subroutine attikos_gemm_backward(context, a, b, dout, da, db, d_bias, d_c, options, pre_activation, stat) &
        bind(C, name="attikos_fortran_gemm_backward")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: a, b, dout
      type(*), dimension(..), intent(inout), optional :: da, db, d_bias, d_c
      type(attikos_gemm_options), intent(in), optional :: options
      type(*), dimension(..), intent(in), optional :: pre_activation
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_gemm_backward

    !> out = softmax(s) v over the keys, s = options%softmax_scale k.q, then softcap, bias, ALiBi, masks.
    !> q(d, seqlen_q, heads_q, batch), k(d, seqlen_kv, heads_kv, batch), v(dv, seqlen_kv, heads_kv, batch),
    !> out(dv, seqlen_q, heads_q, batch), lse(seqlen_q, heads_q, batch), the natural logarithm of the sum of
    !> exponentials, real64 beside real64 and else real32. bias and mask (seqlen_kv, seqlen_q, heads_q, batch), or
    !> extents of 1; lengths_q, lengths_kv (batch); packed: cu_seqlens_q, cu_seqlens_kv (batch + 1) and
    !> q(d, total_q, heads_q); alibi_slopes (heads_q); sinks (heads_q).
    subroutine attikos_attention(context, q, k, v, out, lse, options, bias, mask, lengths_q, lengths_kv, cu_seqlens_q, &
        cu_seqlens_kv, alibi_slopes, sinks, kernel, stat) bind(C, name="attikos_fortran_attention")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: q, k, v
      type(*), dimension(..), intent(inout) :: out
      type(*), dimension(..), intent(inout), optional :: lse
      type(attikos_attention_options), intent(in), optional :: options
      type(*), dimension(..), intent(in), optional :: bias, mask, lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv
      type(*), dimension(..), intent(in), optional :: alibi_slopes, sinks
      character(kind=c_char, len=*), intent(in), optional :: kernel
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_attention

    !> Gradients of attikos_attention(): the arguments up to lse and from options on are those of that call; dout has the
    !> shape of out; dq, dk, dv those of q, k, v; d_bias, d_sinks those of bias, sinks.
    subroutine attikos_attention_backward(context, q, k, v, out, lse, dout, dq, dk, dv, d_bias, d_sinks, options, bias, &
        mask, lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv, alibi_slopes, sinks, stat) &
        bind(C, name="attikos_fortran_attention_backward")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: q, k, v, out, lse, dout
      type(*), dimension(..), intent(inout) :: dq, dk, dv
      type(*), dimension(..), intent(inout), optional :: d_bias, d_sinks
      type(attikos_attention_options), intent(in), optional :: options
      type(*), dimension(..), intent(in), optional :: bias, mask, lengths_q, lengths_kv, cu_seqlens_q, cu_seqlens_kv
      type(*), dimension(..), intent(in), optional :: alibi_slopes, sinks
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_attention_backward

    !> out = x / sqrt(mean(x^2) + eps) weight over the first dimension; x(hidden), (hidden, n) or (hidden, n, m);
    !> weight(hidden). out may be x. eps is 1e-6 if absent.
    subroutine attikos_rms_norm(context, x, weight, out, eps, stat) bind(C, name="attikos_fortran_rms_norm")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: x, weight
      type(*), dimension(..), intent(inout) :: out
      real(c_double), intent(in), optional :: eps
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_rms_norm

    !> Gradients of attikos_rms_norm() of the same x, weight and eps: dout and dx have the shape of x, dweight(hidden).
    subroutine attikos_rms_norm_backward(context, x, weight, dout, dx, dweight, eps, stat) &
        bind(C, name="attikos_fortran_rms_norm_backward")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: x, weight, dout
      type(*), dimension(..), intent(inout) :: dx, dweight
      real(c_double), intent(in), optional :: eps
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_rms_norm_backward

    !> out = (x - mean(x)) / sqrt(var(x) + eps) weight + bias over the first dimension; weight(hidden), bias(hidden).
    !> eps is 1e-5 if absent.
    subroutine attikos_layer_norm(context, x, weight, bias, out, eps, stat) bind(C, name="attikos_fortran_layer_norm")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: x, weight, bias
      type(*), dimension(..), intent(inout) :: out
      real(c_double), intent(in), optional :: eps
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_layer_norm

    !> Gradients of attikos_layer_norm() of the same x, weight and eps: dout and dx have the shape of x, dweight(hidden),
    !> dbias(hidden).
    subroutine attikos_layer_norm_backward(context, x, weight, dout, dx, dweight, dbias, eps, stat) &
        bind(C, name="attikos_fortran_layer_norm_backward")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: x, weight, dout
      type(*), dimension(..), intent(inout) :: dx, dweight, dbias
      real(c_double), intent(in), optional :: eps
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_layer_norm_backward

    !> residual_sum = x + residual, rounded to their kind, and out = attikos_rms_norm() of residual_sum as it was rounded,
    !> in one pass; residual, residual_sum and out have the shape of x. residual_sum may be residual, a stream in place, or
    !> x; out is none of them. eps is 1e-6 if absent.
    subroutine attikos_rms_norm_residual(context, x, residual, weight, residual_sum, out, eps, stat) &
        bind(C, name="attikos_fortran_rms_norm_residual")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: x, residual, weight
      type(*), dimension(..), intent(inout) :: residual_sum, out
      real(c_double), intent(in), optional :: eps
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_rms_norm_residual

    !> attikos_rms_norm_backward() that adds residual, of the shape of x, to dx before that is rounded. With x the
    !> residual_sum of attikos_rms_norm_residual() and residual the gradient of it, dx is the gradient of that call's x and
    !> of its residual. dx may be residual.
    subroutine attikos_rms_norm_backward_residual(context, x, weight, dout, residual, dx, dweight, eps, stat) &
        bind(C, name="attikos_fortran_rms_norm_backward_residual")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: x, weight, dout, residual
      type(*), dimension(..), intent(inout) :: dx, dweight
      real(c_double), intent(in), optional :: eps
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_rms_norm_backward_residual

    !> attikos_rms_norm_residual() with attikos_layer_norm(). eps is 1e-5 if absent.
    subroutine attikos_layer_norm_residual(context, x, residual, weight, bias, residual_sum, out, eps, stat) &
        bind(C, name="attikos_fortran_layer_norm_residual")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: x, residual, weight, bias
      type(*), dimension(..), intent(inout) :: residual_sum, out
      real(c_double), intent(in), optional :: eps
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_layer_norm_residual

    !> attikos_layer_norm_backward() that adds residual to dx, as attikos_rms_norm_backward_residual() does.
    subroutine attikos_layer_norm_backward_residual(context, x, weight, dout, residual, dx, dweight, dbias, eps, stat) &
        bind(C, name="attikos_fortran_layer_norm_backward_residual")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: x, weight, dout, residual
      type(*), dimension(..), intent(inout) :: dx, dweight, dbias
      real(c_double), intent(in), optional :: eps
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_layer_norm_backward_residual

    !> out = x / max(|x|, eps) over the first dimension. eps is 1e-12 if absent.
    subroutine attikos_l2_normalize(context, x, out, eps, stat) bind(C, name="attikos_fortran_l2_normalize")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: x
      type(*), dimension(..), intent(inout) :: out
      real(c_double), intent(in), optional :: eps
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_l2_normalize

    !> Gradient of attikos_l2_normalize() of the same x and eps; dout and dx have the shape of x.
    subroutine attikos_l2_normalize_backward(context, x, dout, dx, eps, stat) &
        bind(C, name="attikos_fortran_l2_normalize_backward")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: x, dout
      type(*), dimension(..), intent(inout) :: dx
      real(c_double), intent(in), optional :: eps
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_l2_normalize_backward

    !> out = softmax(scale x) over the first dimension. scale is 1 if absent.
    subroutine attikos_softmax(context, x, out, scale, stat) bind(C, name="attikos_fortran_softmax")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: x
      type(*), dimension(..), intent(inout) :: out
      real(c_double), intent(in), optional :: scale
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_softmax

    !> Gradient of attikos_softmax() from its result `out`.
    subroutine attikos_softmax_backward(context, out, dout, dx, scale, stat) &
        bind(C, name="attikos_fortran_softmax_backward")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: out, dout
      type(*), dimension(..), intent(inout) :: dx
      real(c_double), intent(in), optional :: scale
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_softmax_backward

    !> out = log(softmax(scale x)) over the first dimension. scale is 1 if absent.
    subroutine attikos_log_softmax(context, x, out, scale, stat) bind(C, name="attikos_fortran_log_softmax")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: x
      type(*), dimension(..), intent(inout) :: out
      real(c_double), intent(in), optional :: scale
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_log_softmax

    !> Gradient of attikos_log_softmax() from its result `out`.
    subroutine attikos_log_softmax_backward(context, out, dout, dx, scale, stat) &
        bind(C, name="attikos_fortran_log_softmax_backward")
      import
      type(attikos_context), intent(in) :: context
      type(*), dimension(..), intent(in) :: out, dout
      type(*), dimension(..), intent(inout) :: dx
      real(c_double), intent(in), optional :: scale
      integer(c_int32_t), intent(out), optional :: stat
    end subroutine attikos_log_softmax_backward
  end interface

contains

  !> What was wrong with the last call of this thread that did not succeed; empty before that.
  function attikos_last_error() result(text)
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: letters(:)
    integer(c_size_t) :: length, i
    interface
      function message() bind(C, name="attikos_fortran_last_error")
        import
        type(c_ptr) :: message
      end function message
      function length_of(string) bind(C, name="strlen")
        import
        type(c_ptr), value :: string
        integer(c_size_t) :: length_of
      end function length_of
    end interface
    type(c_ptr) :: string
    string = message()
    length = length_of(string)
    call c_f_pointer(string, letters, [length])
    allocate (character(len=length) :: text)
    do i = 1, length
      text(i:i) = letters(i)
    end do
  end function attikos_last_error

  !> What a procedure calls that failed without a `stat`.
  subroutine attikos_fortran_error_stop() bind(C, name="attikos_fortran_error_stop")
    error stop "attikos: "//attikos_last_error()
  end subroutine attikos_fortran_error_stop
end module attikos
