! SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
program error_stop
  use attikos
  implicit none
  type(attikos_context) :: context
  double precision :: x(3, 2), out(2, 2)
  x = 1
  call attikos_context_create(context, ATTIKOS_SERIAL)
  call attikos_softmax(context, x, out)
  print *, "not reached"
end program error_stop
