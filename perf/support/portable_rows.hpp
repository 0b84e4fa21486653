// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Row operations of a device by name, of one element type.
#pragma once

#include "portable_call.hpp"

namespace attikos_perf {

/// Tensors of one call, in the order of attikos_perf_portable_rows().
enum Operand {
  x_of,
  dout_of,
  out_of,
  weight_of,
  bias_of,
  dweight_of,
  dbias_of,
  labels_of,
  loss_of,
  lse_of
};

struct RowCall {
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
    return line<T>(which, columns);
  }
  /// A number of each row.
  template <class T>
  auto values_at(Operand which) const {
    return line<T>(which, rows);
  }

 private:
  template <class T>
  auto line(Operand which, std::int64_t size) const {
    return Kokkos::View<T*, Exec::memory_space, Kokkos::MemoryUnmanaged>(
        static_cast<T*>(operands[which]), static_cast<std::size_t>(size));
  }
};

/// False where there is no such function.
template <class T>
bool run_rows(Exec const& exec, std::string const& family, RowCall const& call) {
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
  else if (family == "quantize")
    quantize(exec, x, call.rows_at<float8_e4m3>(out_of), call.values_at<float>(loss_of));
  else if (family == "cross_entropy")
    cross_entropy(exec, x, call.values_at<std::int64_t const>(labels_of),
                  call.values_at<float>(loss_of), call.values_at<float>(lse_of));
  else if (family == "cross_entropy_backward")
    cross_entropy_backward(exec, x, call.values_at<std::int64_t const>(labels_of),
                           call.values_at<float const>(lse_of),
                           call.values_at<float const>(loss_of), out);
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

/// run_rows() of float, which is compiled beside that of other types.
bool run_float32_rows(Exec const& exec, std::string const& family, RowCall const& call);

}  // namespace attikos_perf
