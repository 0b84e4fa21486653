// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tensor.hpp"

#include <cstdint>

namespace attikos::c {
namespace {

std::size_t at(int r) { return static_cast<std::size_t>(r); }

/// Smallest and largest offset in bytes must be 63-bit numbers, and so must the count of elements.
void check_offsets(char const* operation, Tensor const& t, std::size_t size) {
  std::int64_t elements = 1;
  std::int64_t low = 0;
  std::int64_t high = static_cast<std::int64_t>(size);
  bool overflow = false;
  for (int r = 0; r < t.rank; ++r) {
    std::int64_t const extent = t.extent[at(r)];
    overflow |= __builtin_mul_overflow(elements, extent > 0 ? extent : 1, &elements);
    if (extent < 2) continue;
    std::int64_t reach = 0;
    overflow |= __builtin_mul_overflow(extent - 1, t.stride[at(r)], &reach);
    overflow |= __builtin_mul_overflow(reach, static_cast<std::int64_t>(size), &reach);
    std::int64_t& end = reach < 0 ? low : high;
    overflow |= __builtin_add_overflow(end, reach, &end);
  }
  std::int64_t bytes = 0;
  overflow |= __builtin_mul_overflow(elements, static_cast<std::int64_t>(size), &bytes);
  overflow |= __builtin_sub_overflow(high, low, &bytes);
  if (overflow)
    fail(ATTIKOS_OVERFLOW, operation, ": ", t.name, " is ", t.describe(),
         "; its extents and strides reach beyond 63-bit byte offsets");
}

}  // namespace

bool Tensor::has_elements() const {
  for (int r = 0; r < rank; ++r)
    if (extent[at(r)] == 0) return false;
  return true;
}

std::string Tensor::describe() const {
  std::string text = "[";
  for (int r = 0; r < rank; ++r) text += (r == 0 ? "" : ", ") + std::to_string(extent[at(r)]);
  return text + "] " + attikos_dtype_name(dtype);
}

attikos::detail::AnyTensor Tensor::any() const {
  attikos::detail::AnyTensor x;
  x.data = data;
  x.type = static_cast<DType>(dtype);
  x.rank = rank == 0 ? 1 : rank;
  x.extent[0] = 1;
  for (int r = 0; r < rank && r < x.max_rank; ++r) {
    x.extent[r] = extent[at(r)];
    x.stride[r] = stride[at(r)];
  }
  return x;
}

Tensor read_shape(char const* operation, char const* name, attikos_tensor const* tensor,
                  int min_rank, int max_rank) {
  if (tensor == nullptr)
    fail(ATTIKOS_NULL_ARGUMENT, operation, ": ", name, " is null; expected a tensor");
  Tensor result;
  result.name = name;
  result.data = tensor->data;
  result.dtype = tensor->dtype;
  std::size_t const size = attikos_dtype_size(tensor->dtype);
  if (size == 0)
    fail(ATTIKOS_INVALID_ARGUMENT, operation, ": ", name, " has dtype ", tensor->dtype,
         "; expected an attikos_dtype");
  if (tensor->ndim < 0)
    fail(ATTIKOS_NEGATIVE_EXTENT, operation, ": ", name, " has ", tensor->ndim,
         " dimensions; expected 0 or more");
  if (tensor->ndim > 0 && tensor->shape == nullptr)
    fail(ATTIKOS_NULL_ARGUMENT, operation, ": ", name, " has ", tensor->ndim,
         " dimensions but its shape is null");
  if (tensor->ndim < min_rank || tensor->ndim > max_rank || tensor->ndim > Tensor::max_rank) {
    std::string wanted = std::to_string(min_rank);
    if (max_rank > min_rank)
      wanted += (max_rank == min_rank + 1 ? " or " : " to ") + std::to_string(max_rank);
    fail(ATTIKOS_SHAPE_MISMATCH, operation, ": ", name, " has ", tensor->ndim,
         " dimensions; expected ", wanted);
  }
  result.rank = tensor->ndim;
  std::int64_t dense = 1;
  for (int r = result.rank - 1; r >= 0; --r) {
    std::int64_t const extent = tensor->shape[r];
    if (extent < 0)
      fail(ATTIKOS_NEGATIVE_EXTENT, operation, ": ", name, " has extent ", extent, " in dimension ",
           r, "; expected 0 or more");
    result.extent[at(r)] = extent;
    result.stride[at(r)] = tensor->strides != nullptr ? tensor->strides[r] : dense;
    if (tensor->strides == nullptr &&
        __builtin_mul_overflow(dense, extent > 0 ? extent : 1, &dense) && r > 0)
      fail(ATTIKOS_OVERFLOW, operation, ": ", name, " has extents whose product is beyond 63 bits");
  }
  check_offsets(operation, result, size);
  return result;
}

Tensor read_tensor(char const* operation, char const* name, attikos_tensor const* tensor,
                   int min_rank, int max_rank, attikos_context const& context) {
  Tensor const result = read_shape(operation, name, tensor, min_rank, max_rank);
  if (!result.has_elements()) return result;  // no memory, whatever the pointer holds
  std::size_t const size = attikos_dtype_size(result.dtype);
  if (result.data == nullptr)
    fail(ATTIKOS_NULL_ARGUMENT, operation, ": the data of ", name,
         " is null but it has elements: ", result.describe());
  if (reinterpret_cast<std::uintptr_t>(result.data) % size != 0)
    fail(ATTIKOS_MISALIGNED, operation, ": ", name, " begins at ", result.data,
         "; expected an address divisible by the ", size, " bytes of ",
         attikos_dtype_name(result.dtype));
  context.expect_reach(operation, name, result.data);
  return result;
}

void refuse_dtype(char const* operation, Tensor const& tensor, char const* expected) {
  fail(ATTIKOS_DTYPE_MISMATCH, operation, ": ", tensor.name, " is ", tensor.describe(),
       "; expected ", expected);
}

void expect_same_dtype(char const* operation, Tensor const& tensor, Tensor const& like) {
  if (tensor.dtype != like.dtype)
    fail(ATTIKOS_DTYPE_MISMATCH, operation, ": ", tensor.name, " is ", tensor.describe(),
         "; expected ", attikos_dtype_name(like.dtype), " as in ", like.name);
}

}  // namespace attikos::c

extern "C" {

size_t attikos_dtype_size(int32_t dtype) {
  if (dtype == ATTIKOS_BOOL) return 1;
  if (dtype < 0 || dtype > ATTIKOS_BOOL) return 0;
  return static_cast<size_t>(attikos::dtype_size(static_cast<attikos::DType>(dtype)));
}

char const* attikos_dtype_name(int32_t dtype) {
  if (dtype == ATTIKOS_BOOL) return "bool";
  if (dtype < 0 || dtype > ATTIKOS_BOOL) return "unknown";
  return attikos::dtype_name(static_cast<attikos::DType>(dtype));
}
}
