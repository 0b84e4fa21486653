// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Before loops of a device over what is to stay in registers. Hosts vectorize them instead.
#pragma once

#if defined(__CUDA_ARCH__) || defined(__HIP_DEVICE_COMPILE__)
#define ATTIKOS_UNROLL_DEVICE _Pragma("unroll")
#define ATTIKOS_UNROLL_DEVICE_BY_8 _Pragma("unroll 8")
#define ATTIKOS_DO_NOT_UNROLL_DEVICE _Pragma("unroll 1")
#else
#define ATTIKOS_UNROLL_DEVICE
#define ATTIKOS_UNROLL_DEVICE_BY_8
#define ATTIKOS_DO_NOT_UNROLL_DEVICE
#endif
