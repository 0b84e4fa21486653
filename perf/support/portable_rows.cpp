// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Row operations of a device as C functions, for portable_torch.py.
#include "portable_call.hpp"

namespace {

using namespace attikos;
using namespace attikos_perf;

/// Tensors of one call, in the order of attikos_perf_portable_rows().
enum Operand { x_of, dout_of, out_of, weight_of, bias_of, dweight_of, dbias_of };

struct Call {
  void* const* operands;
  std::int64_t rows, columns;
  std::int64_t const* strides;

  /// x, dout or out: rows that lie `strides` apart.
  template <class T>
  Strided<T**> rows_at(Operand which) const {
    std::int64_t const extents[] = {rows, columns}, of_elements[] = {strides[which], 1};
    return matrix<T>(operands[which], extents, of_elements);
  }
  template <class T>
  auto vector_at(Operand which) const {
    return Kokkos::View<T*, Exec::memory_space, Kokkos::MemoryUnmanaged>(
        static_cast<T*>(operands[which]), static_cast<std::size_t>(columns));
  }
};

template <class T>
bool run(Exec const& exec, std::string const& family, Call const& call) {
  auto const x = call.rows_at<T const>(x_of), dout = call.rows_at<T const>(dout_of);
  auto const out = call.rows_at<T>(out_of);
  auto const weight = call.vector_at<T const>(weight_of), bias = call.vector_at<T const>(bias_of);
  auto const dweight = call.vector_at<T>(dweight_of), dbias = call.vector_at<T>(dbias_of);
  if (family == "rms_norm")
    rms_norm(exec, x, weight, out);
  else if (family == "layer_norm")
    layer_norm(exec, x, weight, bias, out);
  else if (family == "softmax")
    softmax(exec, x, out);
  else if (family == "rms_norm_backward")
    rms_norm_backward(exec, x, weight, dout, out, dweight);
  else if (family == "layer_norm_backward")
    layer_norm_backward(exec, x, weight, dout, out, dweight, dbias);
  else if (family == "softmax_backward")
    softmax_backward(exec, x, dout, out);
  else
    return false;
  return true;
}

}  // namespace

/// A function of rows of neighbors. `operands`: x (what softmax() gave, for its gradient), dout,
/// out or dx, weight, bias, dweight, dbias; `strides`: between rows of the first three.
extern "C" int attikos_perf_portable_rows(char const* family, char const* type,
                                          void* const* operands, std::int64_t rows,
                                          std::int64_t columns, std::int64_t const* strides,
                                          void* stream, char const** reason) {
  return on_stream(stream, reason, [&](Exec const& exec) {
    Call const call{operands, rows, columns, strides};
    bool const known = std::strcmp(type, "bfloat16") == 0 ? run<bfloat16>(exec, family, call)
                                                          : run<float>(exec, family, call);
    if (!known) throw std::runtime_error("unknown family");
  });
}
