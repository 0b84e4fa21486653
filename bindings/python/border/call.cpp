// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "call.hpp"

#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace attikos::python {
namespace {

/// The attikos_dtype of elements, -1 for those that have none.
std::int32_t dtype_of(DLDataType type) {
  if (type.lanes != 1) return -1;
  switch (type.code << 8 | type.bits) {
    case kDLFloat << 8 | 64:
      return ATTIKOS_FLOAT64;
    case kDLFloat << 8 | 32:
      return ATTIKOS_FLOAT32;
    case kDLFloat << 8 | 16:
      return ATTIKOS_FLOAT16;
    case kDLBfloat << 8 | 16:
      return ATTIKOS_BFLOAT16;
    case kDLInt << 8 | 8:
      return ATTIKOS_INT8;
    case kDLInt << 8 | 32:
      return ATTIKOS_INT32;
    case kDLInt << 8 | 64:
      return ATTIKOS_INT64;
    case kDLUInt << 8 | 8:
      return ATTIKOS_UINT8;
    case kDLBool << 8 | 8:
      return ATTIKOS_BOOL;
    default:
      return -1;
  }
}

}  // namespace

double real(AnyView value) {
  int const index = value.type_index();
  expect(index == ffi::TypeIndex::kTVMFFIFloat || index == ffi::TypeIndex::kTVMFFIInt);
  return value.cast<double>();
}

std::int64_t integer(AnyView value) {
  expect(value.type_index() == ffi::TypeIndex::kTVMFFIInt);
  return value.cast<std::int64_t>();
}

std::int32_t flag(AnyView value) {
  expect(value.type_index() == ffi::TypeIndex::kTVMFFIBool);
  return value.cast<bool>() ? 1 : 0;
}

Array::Array(AnyView given) {
  if (given.type_index() == ffi::TypeIndex::kTVMFFINone) return;
  expect(given.type_index() == ffi::TypeIndex::kTVMFFITensor);
  see(*given.cast<DLTensor*>());
}

void Array::see(DLTensor const& memory) {
  tensor_.dtype = dtype_of(memory.dtype);
  expect(tensor_.dtype >= 0 && memory.ndim >= 0 && memory.ndim <= max_rank);
  expect(memory.device.device_type == kDLCPU || memory.device.device_type == kDLCUDA);
  given_ = true;
  type_ = memory.dtype;
  device_ = memory.device;
  tensor_.data = static_cast<char*>(memory.data) + memory.byte_offset;
  tensor_.ndim = memory.ndim;
  tensor_.shape = shape_;
  tensor_.strides = strides_;
  std::int64_t dense = 1;
  for (int r = memory.ndim - 1; r >= 0; --r) {
    shape_[r] = memory.shape[r];
    // Libraries export any stride for one element, where kernels look for whole rows of 16 bytes.
    strides_[r] = memory.strides != nullptr && shape_[r] > 1 ? memory.strides[r] : dense;
    dense = strides_[r] * std::max<std::int64_t>(shape_[r], 1);
  }
}

void Array::heads_first() {
  int const r = rank();
  expect(r >= 3);
  std::swap(shape_[r - 3], shape_[r - 2]);
  std::swap(strides_[r - 3], strides_[r - 2]);
}

void Array::join_leading() {
  while (tensor_.ndim > 3) {
    bool const apart = shape_[0] != 1 && shape_[1] != 1;
    std::int64_t const joined = shape_[0] * shape_[1];
    expect(!apart || joined == 0 || strides_[0] == shape_[1] * strides_[1]);
    std::int64_t const step = shape_[1] != 1 ? strides_[1] : strides_[0];
    std::copy(shape_ + 2, shape_ + tensor_.ndim, shape_ + 1);
    std::copy(strides_ + 2, strides_ + tensor_.ndim, strides_ + 1);
    shape_[0] = joined;
    strides_[0] = step;
    --tensor_.ndim;
  }
}

Result::Result(AnyView made, DLDevice device, DLDataType type, std::int64_t const* shape, int rank)
    : by_caller_(made.type_index() == ffi::TypeIndex::kTVMFFITensor) {
  if (by_caller_) {
    array_.see(*made.cast<DLTensor*>());
    return;
  }
  made_ = ffi::Tensor::FromEnvAlloc(
      TVMFFIEnvTensorAlloc, ffi::ShapeView(shape, static_cast<std::size_t>(rank)), type, device);
  array_.see(*made_.GetDLTensorPtr());
}

void Result::expect_like(Array const& x) const {
  expect(array_.rank() == x.rank() && array_.dtype() == x.dtype());
  expect(std::equal(x.shape(), x.shape() + x.rank(), array_.shape()));
}

Any Result::finish() const { return by_caller_ ? Any(true) : Any(made_); }

namespace {

/// Results of the thread's last call of several that Python did not fetch yet.
struct Others {
  static constexpr std::size_t most = 2;
  void const* beside = nullptr;  // where the first one lies
  std::size_t count = 0;
  ffi::Tensor left[most] = {};  // from behind
};

Others& others_of_thread() {
  thread_local Others others;
  return others;
}

/// The next result of the call that gave `first`; None if there was another one on this thread
/// since, from a finalizer, say.
Any more(AnyView first) {
  return unless_declined([&] {
    expect(first.type_index() == ffi::TypeIndex::kTVMFFITensor);
    Others& others = others_of_thread();
    expect(others.count > 0 && others.beside == first.cast<DLTensor*>()->data);
    --others.count;
    Any next(std::move(others.left[others.count]));
    others.left[others.count] = ffi::Tensor();
    return next;
  });
}

}  // namespace

Any Result::finish(std::initializer_list<Result const*> results) const {
  Others& others = others_of_thread();
  others.count = 0;
  for (ffi::Tensor& place : others.left) place = ffi::Tensor();
  if (by_caller_) return true;
  expect(results.size() <= Others::most);
  others.beside = made_.data_ptr();
  others.count = results.size();
  std::size_t place = others.count;
  for (Result const* result : results) others.left[--place] = result->made_;
  return Any(made_);
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(more, more);

namespace {

struct Destroy {
  void operator()(attikos_context* context) const { attikos_context_destroy(context); }
};

/// So many contexts a thread keeps: streams come and go, and what belongs to them is theirs to
/// free.
constexpr std::size_t most_contexts = 32;

/// Workspace from the caller's allocator, as the results are: memory of PyTorch's cache, inside a
/// capture of the graph's private pool. Blocks that are released serve what comes later on the
/// stream.
struct Workspaces {
  static constexpr std::size_t most = 8;
  ffi::Tensor lent[most] = {};
  std::int32_t ordinal = 0;
};

struct Known {
  std::int32_t kind, ordinal;
  void* stream;
  std::unique_ptr<Workspaces> workspaces;
  std::unique_ptr<attikos_context, Destroy> context;
};

void* allocate(void* user, std::size_t bytes) noexcept {
  auto& workspaces = *static_cast<Workspaces*>(user);
  for (ffi::Tensor& place : workspaces.lent) {
    if (place.defined()) continue;
    try {
      std::int64_t const shape[] = {static_cast<std::int64_t>(bytes)};
      place = ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, ffi::ShapeView(shape, 1),
                                        DLDataType{kDLUInt, 8, 1},
                                        DLDevice{kDLCUDA, workspaces.ordinal});
    } catch (...) {
      return nullptr;
    }
    return place.data_ptr();
  }
  return nullptr;
}

void release(void* user, void* memory) noexcept {
  for (ffi::Tensor& place : static_cast<Workspaces*>(user)->lent)
    if (place.defined() && place.data_ptr() == memory) place = ffi::Tensor();
}

}  // namespace

attikos_context* context_of(DLDevice device) {
  thread_local std::vector<Known> known;  // the one that was wanted last stands first
  bool const cuda = device.device_type == kDLCUDA;
  std::int32_t const kind = cuda ? ATTIKOS_CUDA : ATTIKOS_HOST;
  std::int32_t const ordinal = cuda ? device.device_id : 0;
  void* const stream = cuda ? TVMFFIEnvGetStream(kDLCUDA, device.device_id) : nullptr;
  auto const is_it = [&](Known const& x) {
    return x.kind == kind && x.ordinal == ordinal && x.stream == stream;
  };
  auto const found = std::find_if(known.begin(), known.end(), is_it);
  if (found != known.end()) {
    std::rotate(known.begin(), found, found + 1);
    return known.front().context.get();
  }
  attikos_context* made = nullptr;
  expect_success(attikos_context_create(kind, ordinal, stream, &made));
  if (known.size() == most_contexts) known.pop_back();
  known.insert(known.begin(), Known{kind, ordinal, stream, {}, {}});
  known.front().context.reset(made);
  if (cuda) {
    auto& workspaces = known.front().workspaces;
    workspaces = std::make_unique<Workspaces>();
    workspaces->ordinal = ordinal;
    expect_success(attikos_context_set_allocator(made, allocate, release, workspaces.get()));
  }
  return made;
}

}  // namespace attikos::python
