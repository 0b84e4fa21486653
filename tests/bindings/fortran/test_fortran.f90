! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
! Attikos from Fortran: sections with strides, every procedure beside loops in real64, options beside the library's own
! description of them, errors.
module checks
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int64, real32, real64
  use attikos
  implicit none
  integer :: failures = 0
  type(attikos_context) :: context
contains

  subroutine expect(good, what)
    logical, intent(in) :: good
    character(len=*), intent(in) :: what
    if (good) return
    failures = failures + 1
    print '(2a)', "FAILED: ", what
  end subroutine expect

  !> A bound for sums of n products of numbers below 1 in the precision of epsilon, with room for what follows them.
  pure real(real64) function bound(n, eps)
    integer, intent(in) :: n
    real(real64), intent(in) :: eps
    bound = 4 * (n + 8) * eps
  end function bound

  subroutine test_products()
    integer, parameter :: m = 7, n = 5, k = 9, batches = 3
    type(attikos_gemm_options) :: options
    real(real64) :: a(m, k, batches), b(k, n), c(m, n, batches), wide(2 * m, 2 * n), bias(n), residual(m, n), want(m, n)
    real(real64) :: pre(m, n), da(m, k), db(k, n), d_bias(n), dout(m, n)
    real(real32) :: a4(m, k), b4(n, k), c4(m, n)
    integer :: i
    a = reshape([(sin(1.3_real64 * i), i=1, size(a))], shape(a))
    b = reshape([(cos(real(i, real64)), i=1, size(b))], shape(b))
    bias = [(real(i, real64) / n, i=1, n)]
    residual = reshape([(sin(real(3 * i, real64)), i=1, m * n)], shape(residual))

    c = -7
    call attikos_gemm(context, a, b, c)
    do i = 1, batches
      call expect(maxval(abs(c(:, :, i) - matmul(a(:, :, i), b))) < bound(k, epsilon(1._real64)), "gemm of a batch")
    end do

    ! Sections: rows backwards, columns and rows of the result two apart; nothing else is written.
    wide = 100
    options%alpha = 2
    options%activation = ATTIKOS_ACTIVATION_RELU
    call attikos_gemm(context, a(m:1:-1, :, 1), b, wide(1::2, 2::2), options, bias=bias, residual=residual, &
                      pre_activation=pre)
    want = 2 * matmul(a(m:1:-1, :, 1), b) + spread(bias, 1, m)
    call expect(maxval(abs(pre - want)) < bound(k, epsilon(1._real64)), "gemm, pre_activation")
    call expect(maxval(abs(wide(1::2, 2::2) - (max(want, 0._real64) + residual))) < bound(k, epsilon(1._real64)), &
                "gemm with bias, activation and residual into a section")
    call expect(all(wide(2::2, :) == 100) .and. all(wide(:, 1::2) == 100), "gemm wrote beside its section")

    a4 = real(a(:, :, 2), real32)
    b4 = real(transpose(b), real32)
    options = attikos_gemm_options(trans_b=1)
    call attikos_gemm(context, a4, b4, c4, options)
    call expect(maxval(abs(c4 - matmul(real(a4, real64), transpose(real(b4, real64))))) &
                < bound(k, real(epsilon(1._real32), real64)), "gemm of real32 with trans_b")

    dout = residual
    call attikos_gemm_backward(context, a(:, :, 1), b, dout, da=da, db=db, d_bias=d_bias)
    call expect(maxval(abs(da - matmul(dout, transpose(b)))) < bound(n, epsilon(1._real64)), "gemm_backward, da")
    call expect(maxval(abs(db - matmul(transpose(a(:, :, 1)), dout))) < bound(m, epsilon(1._real64)), "gemm_backward, db")
    call expect(maxval(abs(d_bias - sum(dout, 1))) < bound(m, epsilon(1._real64)), "gemm_backward, d_bias")
    options = attikos_gemm_options(beta=3)
    call attikos_gemm_backward(context, a(:, :, 1), b, dout, d_c=want, options=options)
    call expect(maxval(abs(want - 3 * dout)) < bound(1, epsilon(1._real64)), "gemm_backward, d_c")
    call attikos_gemm(context, a(:, :, 1), b, want, kernel="portable   ")
    call expect(maxval(abs(want - matmul(a(:, :, 1), b))) < bound(k, epsilon(1._real64)), "gemm by a kernel's name")
  end subroutine test_products

  !> Attention of one query row by its definition; weights w.
  subroutine attend(q, k, v, scale, first, last, w, out, lse)
    real(real64), intent(in) :: q(:), k(:, :), v(:, :), scale
    integer, intent(in) :: first, last
    real(real64), intent(out) :: w(:), out(:), lse
    real(real64) :: top
    integer :: j
    w = 0
    do j = first, last
      w(j) = scale * dot_product(q, k(:, j))
    end do
    top = maxval(w(first:last))
    lse = top + log(sum(exp(w(first:last) - top)))
    w(first:last) = exp(w(first:last) - lse)
    out = matmul(v, w)
  end subroutine attend

  subroutine test_attention()
    integer, parameter :: d = 6, s = 11, heads = 4, heads_kv = 2, batch = 2, group = heads / heads_kv
    type(attikos_attention_options) :: options
    real(real64) :: q(d, s, heads, batch), k(d, s, heads_kv, batch), v(d, s, heads_kv, batch), out(d, s, heads, batch)
    real(real64) :: lse(s, heads, batch), dout(d, s, heads, batch), dq(d, s, heads, batch)
    real(real64), dimension(d, s, heads_kv, batch) :: dk, dv, want_k, want_v
    real(real64) :: w(s), row(d), sum_row, scale, ds(s), worst, worst_q, want_q(d)
    integer :: b, h, i, j, g, lengths(batch)
    q = reshape([(sin(1.3_real64 * i), i=1, size(q))], shape(q))
    k = reshape([(cos(2.1_real64 * i), i=1, size(k))], shape(k))
    v = reshape([(sin(0.7_real64 * i + 1), i=1, size(v))], shape(v))
    dout = reshape([(cos(0.9_real64 * i + 2), i=1, size(dout))], shape(dout))
    scale = 1 / sqrt(real(d, real64))
    lengths = [s, s - 4]

    options%causal = 1
    options%causal_top_left = 1
    call attikos_attention(context, q, k, v, out, lse, options, lengths_kv=lengths)
    call attikos_attention_backward(context, q, k, v, out, lse, dout, dq, dk, dv, options=options, lengths_kv=lengths)
    worst = 0
    worst_q = 0
    want_k = 0
    want_v = 0
    do b = 1, batch
      do h = 1, heads
        g = (h - 1) / group + 1
        do i = 1, s
          call attend(q(:, i, h, b), k(:, :, g, b), v(:, :, g, b), scale, 1, min(i, lengths(b)), w, row, sum_row)
          worst = max(worst, maxval(abs(out(:, i, h, b) - row)), abs(lse(i, h, b) - sum_row))
          ds = w * (matmul(dout(:, i, h, b), v(:, :, g, b)) - dot_product(dout(:, i, h, b), row))
          want_q = scale * matmul(k(:, :, g, b), ds)
          worst_q = max(worst_q, maxval(abs(dq(:, i, h, b) - want_q)))
          do j = 1, s
            want_k(:, j, g, b) = want_k(:, j, g, b) + scale * ds(j) * q(:, i, h, b)
            want_v(:, j, g, b) = want_v(:, j, g, b) + w(j) * dout(:, i, h, b)
          end do
        end do
      end do
    end do
    call expect(worst < bound(d + s, epsilon(1._real64)), "attention")
    call expect(worst_q < bound(d + 2 * s, epsilon(1._real64)), "attention_backward, dq")
    call expect(maxval(abs(dk - want_k)) < bound(2 * group * (d + 2 * s), epsilon(1._real64)), "attention_backward, dk")
    call expect(maxval(abs(dv - want_v)) < bound(2 * group * (d + 2 * s), epsilon(1._real64)), "attention_backward, dv")
  end subroutine test_attention

  !> What attention takes beside q, k and v: each has to reach the library.
  subroutine test_attention_terms()
    integer, parameter :: d = 4, s = 5, heads = 2
    real(real64) :: q(d, s, heads, 1), k(d, s, heads, 1), v(d, s, heads, 1), out(d, s, heads, 1), lse(s, heads, 1)
    real(real64) :: bias(s, s, heads, 1), sinks(heads), packed(d, 2 * s, heads), packed_out(d, 2 * s, heads), w(s), row(d), l
    real(real64) :: d_sinks(heads), dq(d, s, heads, 1), dk(d, s, heads, 1), dv(d, s, heads, 1)
    real(real32) :: slopes(heads)
    logical(c_bool) :: mask(s, s, 1, 1)
    integer :: i, h, cu(3)
    q = reshape([(sin(1.7_real64 * i), i=1, size(q))], shape(q))
    k = reshape([(cos(1.1_real64 * i), i=1, size(k))], shape(k))
    v = reshape([(sin(0.3_real64 * i + 1), i=1, size(v))], shape(v))

    bias = 0
    bias(2, :, :, :) = 1e4  ! everything on the second key
    call attikos_attention(context, q, k, v, out, bias=bias)
    call expect(all(out == spread(v(:, 2, :, :), 2, s)), "attention with a bias")
    mask = .false.
    do i = 1, s
      mask(i, i, 1, 1) = .true.  ! each query sees its own key
    end do
    call attikos_attention(context, q, k, v, out, mask=mask)
    call expect(all(out == v), "attention with a mask")
    slopes = 1e4
    call attikos_attention(context, q, k, v, out, alibi_slopes=slopes)
    call expect(all(out == v), "attention with ALiBi")
    sinks = 1e4
    call attikos_attention(context, q, k, v, out, lse, sinks=sinks)
    call expect(all(out == 0), "attention with sinks")
    sinks = 0.5_real64
    call attikos_attention(context, q, k, v, out, lse, sinks=sinks)
    d_sinks = 100
    call attikos_attention_backward(context, q, k, v, out, lse, v, dq, dk, dv, d_sinks=d_sinks, sinks=sinks)
    do h = 1, heads  ! the sink's weight in every row times what it takes from the row's result
      call expect(abs(d_sinks(h) + sum(exp(sinks(h) - lse(:, h, 1)) * sum(v(:, :, h, 1) * out(:, :, h, 1), 1))) &
                  < bound(d * s, epsilon(1._real64)), "attention_backward, d_sinks")
    end do
    call attikos_attention(context, q, k, v, out, lse, lengths_q=[2], lengths_kv=[s])
    call expect(all(out(:, 3:, :, :) == 0), "attention with lengths of queries")
    packed(:, :s, :) = q(:, :, :, 1)
    packed(:, s + 1:, :) = k(:, :, :, 1)
    cu = [0, s, 2 * s]
    call attikos_attention(context, packed, packed, packed, packed_out, cu_seqlens_q=cu, cu_seqlens_kv=cu)
    do h = 1, heads
      call attend(k(:, 1, h, 1), k(:, :, h, 1), k(:, :, h, 1), 0.5_real64, 1, s, w, row, l)
      call expect(maxval(abs(packed_out(:, s + 1, h) - row)) < bound(d + s, epsilon(1._real64)), "packed attention")
    end do
  end subroutine test_attention_terms

  subroutine test_rows()
    integer, parameter :: hidden = 21, n = 4
    real(real64), dimension(hidden, n) :: x, out, want, dout, dx
    real(real64) :: weight(hidden), bias(hidden), dweight(hidden), dbias(hidden), wide(2 * hidden, n), f, mean, tiny_bound
    integer :: i
    x = reshape([(sin(1.9_real64 * i), i=1, size(x))], shape(x))
    dout = reshape([(cos(0.4_real64 * i), i=1, size(x))], shape(x))
    weight = [(1 + cos(real(i, real64)), i=1, hidden)]
    bias = [(sin(real(i, real64)), i=1, hidden)]
    tiny_bound = 8 * bound(hidden, epsilon(1._real64))

    wide = 100
    call attikos_rms_norm(context, x, weight, wide(2::2, :), eps=1e-3_real64)
    call attikos_rms_norm_backward(context, x, weight, dout, dx, dweight, eps=1e-3_real64)
    dbias = 0
    do i = 1, n
      f = 1 / sqrt(sum(x(:, i)**2) / hidden + 1e-3_real64)
      call expect(maxval(abs(wide(2::2, i) - x(:, i) * f * weight)) < tiny_bound, "rms_norm")
      want(:, i) = f * (dout(:, i) * weight - x(:, i) * f**2 * sum(dout(:, i) * weight * x(:, i)) / hidden)
      dbias = dbias + dout(:, i) * x(:, i) * f
    end do
    call expect(all(wide(1::2, :) == 100), "rms_norm wrote beside its section")
    call expect(maxval(abs(dx - want)) < tiny_bound, "rms_norm_backward, dx")
    call expect(maxval(abs(dweight - dbias)) < tiny_bound, "rms_norm_backward, dweight")

    call attikos_layer_norm(context, x, weight, bias, out)
    call attikos_layer_norm_backward(context, x, weight, dout, dx, dweight, dbias)
    do i = 1, n
      mean = sum(x(:, i)) / hidden
      f = 1 / sqrt(sum((x(:, i) - mean)**2) / hidden + 1e-5_real64)
      call expect(maxval(abs(out(:, i) - ((x(:, i) - mean) * f * weight + bias))) < tiny_bound, "layer_norm")
      want(:, i) = f * (dout(:, i) * weight - sum(dout(:, i) * weight) / hidden &
                        - (x(:, i) - mean) * f**2 * sum(dout(:, i) * weight * (x(:, i) - mean)) / hidden)
    end do
    call expect(maxval(abs(dx - want)) < tiny_bound, "layer_norm_backward, dx")
    call expect(maxval(abs(dbias - sum(dout, 2))) < tiny_bound, "layer_norm_backward, dbias")

    call attikos_l2_normalize(context, x, out)
    call attikos_l2_normalize_backward(context, x, dout, dx)
    do i = 1, n
      f = 1 / norm2(x(:, i))
      call expect(maxval(abs(out(:, i) - x(:, i) * f)) < tiny_bound, "l2_normalize")
      want(:, i) = f * (dout(:, i) - x(:, i) * f**2 * sum(dout(:, i) * x(:, i)))
    end do
    call expect(maxval(abs(dx - want)) < tiny_bound, "l2_normalize_backward")

    call attikos_softmax(context, x, out, scale=3._real64)
    call attikos_softmax_backward(context, out, dout, dx, scale=3._real64)
    do i = 1, n
      want(:, i) = exp(3 * x(:, i)) / sum(exp(3 * x(:, i)))
      call expect(maxval(abs(out(:, i) - want(:, i))) < tiny_bound, "softmax")
      want(:, i) = 3 * want(:, i) * (dout(:, i) - sum(want(:, i) * dout(:, i)))
    end do
    call expect(maxval(abs(dx - want)) < tiny_bound, "softmax_backward")

    call attikos_log_softmax(context, x, out)
    call attikos_log_softmax_backward(context, out, dout, dx)
    do i = 1, n
      want(:, i) = x(:, i) - log(sum(exp(x(:, i))))
      call expect(maxval(abs(out(:, i) - want(:, i))) < tiny_bound, "log_softmax")
      want(:, i) = dout(:, i) - exp(want(:, i)) * sum(dout(:, i))
    end do
    call expect(maxval(abs(dx - want)) < tiny_bound, "log_softmax_backward")
  end subroutine test_rows

  !> Norms of a residual stream, into sections and in place, and gradients with what goes past the norm.
  subroutine test_residual_norms()
    integer, parameter :: hidden = 21, n = 4
    real(real64), dimension(hidden, n) :: x, stream, total, out, again, want, dout, past, dx
    real(real64), dimension(hidden) :: weight, bias, dweight, dbias, want_weight
    real(real64) :: wide(2 * hidden, n), wide_sum(hidden, 2 * n), f, mean, tiny_bound
    integer :: i, norm
    integer(c_int32_t) :: stat
    x = reshape([(sin(1.9_real64 * i), i=1, size(x))], shape(x))
    stream = reshape([(cos(1.1_real64 * i), i=1, size(x))], shape(x))
    dout = reshape([(cos(0.4_real64 * i), i=1, size(x))], shape(x))
    past = reshape([(sin(0.6_real64 * i), i=1, size(x))], shape(x))
    weight = [(1 + cos(real(i, real64)), i=1, hidden)]
    bias = [(sin(real(i, real64)), i=1, hidden)]
    tiny_bound = 8 * bound(hidden, epsilon(1._real64))

    do norm = 1, 2  ! rms_norm, layer_norm
      wide = 100
      wide_sum = 100
      again = stream
      if (norm == 1) then
        call attikos_rms_norm_residual(context, x, stream, weight, wide_sum(:, 2::2), wide(2::2, :), eps=1e-3_real64)
        call attikos_rms_norm_residual(context, x, again, weight, again, out, 1e-3_real64, stat)
      else
        call attikos_layer_norm_residual(context, x, stream, weight, bias, wide_sum(:, 2::2), wide(2::2, :), &
                                         eps=1e-3_real64)
        call attikos_layer_norm_residual(context, x, again, weight, bias, again, out, 1e-3_real64, stat)
      end if
      total = wide_sum(:, 2::2)
      call expect(all(total == x + stream), "the sum of a residual norm")
      call expect(all(wide_sum(:, 1::2) == 100) .and. all(wide(1::2, :) == 100), "a residual norm wrote beside its section")
      call expect(stat == ATTIKOS_SUCCESS .and. all(again == total) .and. all(out == wide(2::2, :)), "a stream in place")

      again = past
      if (norm == 1) then
        call attikos_rms_norm_backward_residual(context, total, weight, dout, past, dx, dweight, eps=1e-3_real64)
        call attikos_rms_norm_backward_residual(context, total, weight, dout, again, again, dbias, 1e-3_real64, stat)
        call expect(all(dbias == dweight), "rms_norm_backward_residual, dweight in place")
      else
        call attikos_layer_norm_backward_residual(context, total, weight, dout, past, dx, dweight, dbias, &
                                                  eps=1e-3_real64)
        call attikos_layer_norm_backward_residual(context, total, weight, dout, again, again, dweight, dbias, &
                                                  1e-3_real64, stat)
        call expect(maxval(abs(dbias - sum(dout, 2))) < tiny_bound, "layer_norm_backward_residual, dbias")
      end if
      call expect(stat == ATTIKOS_SUCCESS .and. all(again == dx), "a gradient in place of the residual's")

      want_weight = 0
      do i = 1, n
        mean = 0
        if (norm == 2) mean = sum(total(:, i)) / hidden
        f = 1 / sqrt(sum((total(:, i) - mean)**2) / hidden + 1e-3_real64)
        want(:, i) = (total(:, i) - mean) * f * weight
        if (norm == 2) want(:, i) = want(:, i) + bias
        call expect(maxval(abs(out(:, i) - want(:, i))) < tiny_bound, "a residual norm")
        want_weight = want_weight + dout(:, i) * (total(:, i) - mean) * f
        want(:, i) = f * (dout(:, i) * weight &
                          - (total(:, i) - mean) * f**2 * sum(dout(:, i) * weight * (total(:, i) - mean)) / hidden)
        if (norm == 2) want(:, i) = want(:, i) - f * sum(dout(:, i) * weight) / hidden
      end do
      call expect(maxval(abs(dx - (want + past))) < tiny_bound, "a residual norm's backward, dx")
      call expect(maxval(abs(dweight - want_weight)) < tiny_bound, "a residual norm's backward, dweight")
    end do

    call attikos_rms_norm_residual(context, x, stream(:, :2), weight, total, out, stat=stat)
    call refused(stat, ATTIKOS_SHAPE_MISMATCH, "residual", "a stream of fewer rows")
    again = stream
    call attikos_layer_norm_residual(context, x, again, weight, bias, total, again, stat=stat)
    call expect(stat /= ATTIKOS_SUCCESS .and. all(again == stream), "a result in place of the stream")
  end subroutine test_residual_norms

  subroutine refused(stat, status, words, what)
    integer(c_int32_t), intent(in) :: stat, status
    character(len=*), intent(in) :: words, what
    call expect(stat == status .and. index(attikos_last_error(), words) > 0, &
                what//": "//attikos_last_error())
  end subroutine refused

  subroutine test_errors()
    real(real64) :: a(2, 3), b(4, 2), c(2, 2), six(1, 1, 1, 1, 1, 1)
    complex(real64) :: z(2, 3)
    integer(c_int32_t) :: stat
    type(attikos_context) :: none
    a = 1
    b = 1
    c = 5
    z = 1
    six = 1
    call attikos_gemm(context, a, b, c, stat=stat)
    call refused(stat, ATTIKOS_SHAPE_MISMATCH, "gemm", "extents that do not fit")
    call attikos_gemm(context, z, b(:3, :), c, stat=stat)
    call refused(stat, ATTIKOS_DTYPE_MISMATCH, "gemm: a has elements of a kind", "complex elements")
    call attikos_softmax(context, six, six, stat=stat)
    call refused(stat, ATTIKOS_SHAPE_MISMATCH, "6 dimensions", "too many dimensions")
    call attikos_gemm(context, a, b(:3, :), c, kernel="no such kernel  ", stat=stat)
    call refused(stat, ATTIKOS_UNSUPPORTED, "no such kernel", "a kernel that is not there")
    call attikos_gemm(none, a, b(:3, :), c, stat=stat)
    call refused(stat, ATTIKOS_NULL_ARGUMENT, "context", "a context that was not made")
    call attikos_context_create(none, ATTIKOS_CUDA, ordinal=1000, stat=stat)
    call expect(stat == ATTIKOS_DEVICE_ERROR, "a device that is not there")
    call expect(all(c == 5), "a refused call wrote")
    call attikos_gemm(context, a, b(:3, :), c, stat=stat)
    call expect(stat == ATTIKOS_SUCCESS .and. all(c == 3), "the call after refused ones")
  end subroutine test_errors

  !> The struct is where the library expects it, member by member: its own description, parsed.
  subroutine test_layouts()
    interface
      function describe(operation, text, size, length) bind(C, name="attikos_describe_options")
        import
        character(kind=c_char), intent(in) :: operation(*)
        character(kind=c_char), intent(out) :: text(*)
        integer(c_size_t), value :: size
        integer(c_size_t), intent(out) :: length
        integer(c_int) :: describe
      end function describe
    end interface
    type(attikos_gemm_options), target :: gemm
    type(attikos_attention_options), target :: attention
    character(kind=c_char), allocatable :: text(:)
    integer(c_size_t) :: length
    allocate (text(20000))
    call expect(describe("gemm"//c_null_char, text, size(text, kind=c_size_t), length) == 0, "describing gemm")
    call compare("gemm alpha", offset(c_loc(gemm), c_loc(gemm%alpha)), member(text(:length), "alpha"))
    call compare("gemm trans_b", offset(c_loc(gemm), c_loc(gemm%trans_b)), member(text(:length), "trans_b"))
    call compare("gemm kernel", offset(c_loc(gemm), c_loc(gemm%kernel)), member(text(:length), "kernel"))
    call compare("gemm tile_k", offset(c_loc(gemm), c_loc(gemm%tile_k)), member(text(:length), "tile_k"))
    call expect(c_sizeof(gemm) == first_number(text(:length)), "size of gemm's options")
    call expect(describe("attention"//c_null_char, text, size(text, kind=c_size_t), length) == 0, "describing attention")
    call compare("attention causal", offset(c_loc(attention), c_loc(attention%causal)), member(text(:length), "causal"))
    call compare("attention bias", offset(c_loc(attention), c_loc(attention%bias)), member(text(:length), "bias"))
    call compare("attention chunk", offset(c_loc(attention), c_loc(attention%attention_chunk)), &
                 member(text(:length), "attention_chunk"))
    call expect(c_sizeof(attention) == first_number(text(:length)), "size of attention's options")
  end subroutine test_layouts

  integer(c_intptr_t) function offset(start, member)
    type(c_ptr), intent(in) :: start, member
    offset = transfer(member, 0_c_intptr_t) - transfer(start, 0_c_intptr_t)
  end function offset

  subroutine compare(what, here, there)
    character(len=*), intent(in) :: what
    integer(c_intptr_t), intent(in) :: here
    integer, intent(in) :: there
    call expect(here == there, "offset of "//what)
  end subroutine compare

  integer function first_number(text)
    character(kind=c_char), intent(in) :: text(:)
    character(len=size(text)) :: line
    line = transfer(text, line)
    read (line(:index(line, new_line("a")) - 1), *) first_number
  end function first_number

  !> The offset behind a name in lines of "kind, name, offset, ..." with tabs between them; -1 where there is none.
  integer function member(text, name)
    character(kind=c_char), intent(in) :: text(:)
    character(len=*), intent(in) :: name
    character(len=size(text)) :: all
    integer :: at
    all = transfer(text, all)
    at = index(all, achar(9)//name//achar(9))
    member = -1
    if (at > 0) read (all(at + len(name) + 2:), *) member
  end function member
end module checks

program test_fortran
  use checks
  implicit none
  call attikos_context_create(context, ATTIKOS_HOST)
  call test_products()
  call test_attention()
  call test_attention_terms()
  call test_rows()
  call test_residual_norms()
  call test_errors()
  call test_layouts()
  call attikos_synchronize(context)
  call attikos_context_destroy(context)
  if (failures > 0) error stop "there were failures"
  print '(a)', "all passed"
end program test_fortran
