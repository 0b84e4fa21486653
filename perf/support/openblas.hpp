// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// OpenBLAS as a peer.
#pragma once

#include <benchmark/benchmark.h>
#include <cblas.h>

#include <support/settings.hpp>
#include <support/text.hpp>

namespace attikos::measure {

inline void prepare_openblas(int threads) {
  openblas_set_num_threads(threads);
  benchmark::AddCustomContext("openblas",
                              text(openblas_get_config(), ", core ", openblas_get_corename(), ", ",
                                   openblas_get_num_threads(), " threads"));
}

/// C = op(A)·op(B), row-major and contiguous.
template <class T>
void openblas_gemm(int m, int n, int k, bool trans_a, bool trans_b, T alpha, T const* a, T const* b,
                   T* c) {
  auto const ta = trans_a ? CblasTrans : CblasNoTrans;
  auto const tb = trans_b ? CblasTrans : CblasNoTrans;
  int const lda = trans_a ? m : k;
  int const ldb = trans_b ? k : n;
  if constexpr (std::is_same_v<T, double>) {
    cblas_dgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, 0, c, n);
  } else {
    cblas_sgemm(CblasRowMajor, ta, tb, m, n, k, alpha, a, lda, b, ldb, 0, c, n);
  }
}

}  // namespace attikos::measure
