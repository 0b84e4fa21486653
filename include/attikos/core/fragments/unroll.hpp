// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Before loops of a device over what is to stay in registers, which hosts vectorize instead; and
/// before functions of a device that are seldom called.
#pragma once

#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define ATTIKOS_UNROLL_DEVICE _Pragma("unroll")
#define ATTIKOS_UNROLL_DEVICE_BY_8 _Pragma("unroll 8")
#define ATTIKOS_DO_NOT_UNROLL_DEVICE _Pragma("unroll 1")
#define ATTIKOS_DO_NOT_INLINE_DEVICE __noinline__
#else
#define ATTIKOS_UNROLL_DEVICE
#define ATTIKOS_UNROLL_DEVICE_BY_8
#define ATTIKOS_DO_NOT_UNROLL_DEVICE
#define ATTIKOS_DO_NOT_INLINE_DEVICE
#endif
