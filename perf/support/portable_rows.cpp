// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Row operations of a device as a C function, for portable_torch.py.
#include "portable_rows.hpp"

using namespace attikos_perf;

/// A function of rows of neighbors. `operands`: x (what softmax() gave, for its gradient), dout,
/// out or dx, weight, bias, dweight, dbias, then of each row its label, int64, its loss, the
/// gradient of that or what it was quantized by, and its logarithm of a sum, float; `strides`:
/// between rows of the first three.
extern "C" int attikos_perf_portable_rows(char const* family, char const* type,
                                          void* const* operands, std::int64_t rows,
                                          std::int64_t columns, std::int64_t const* strides,
                                          void* stream, char const** reason) {
  return on_stream(stream, reason, [&](Exec const& exec) {
    RowCall const call{operands, rows, columns, strides};
    bool const known = std::strcmp(type, "bfloat16") == 0
                           ? run_rows<attikos::bfloat16>(exec, family, call)
                           : run_float32_rows(exec, family, call);
    if (!known) throw std::runtime_error("unknown family");
  });
}
