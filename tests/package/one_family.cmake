# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Initial cache of a consumer that compiles as little of the companion as there can be: gemm_small, for one architecture.
set(ATTIKOS_CUDA_QUICK ON CACHE BOOL "")
set(ATTIKOS_CUDA_LEAVE_OUT
    append_kv attention decode gated_mlp gemm_sm75 gemm_sm80 gemm_sm89 gemm_sm90 CACHE STRING "")
