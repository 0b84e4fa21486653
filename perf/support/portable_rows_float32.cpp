// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "portable_rows.hpp"

bool attikos_perf::run_float32_rows(Exec const& exec, std::string const& family,
                                    RowCall const& call) {
  return run_rows<float>(exec, family, call);
}
