// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "call.hpp"

#include <algorithm>
#include <cctype>
#include <memory>
#include <utility>

namespace attikos::xla_handlers {
namespace {

std::int32_t dtype_of(ffi::DataType type) {
  switch (type) {
    case ffi::DataType::F64:
      return ATTIKOS_FLOAT64;
    case ffi::DataType::F32:
      return ATTIKOS_FLOAT32;
    case ffi::DataType::F16:
      return ATTIKOS_FLOAT16;
    case ffi::DataType::BF16:
      return ATTIKOS_BFLOAT16;
    case ffi::DataType::S32:
      return ATTIKOS_INT32;
    case ffi::DataType::U8:
      return ATTIKOS_UINT8;
    case ffi::DataType::PRED:
      return ATTIKOS_BOOL;
    default:
      throw Refused{ffi::ErrorCode::kInvalidArgument,
                    "attikos: an element type that no operation takes"};
  }
}

ffi::ErrorCode code_of(attikos_status status) {
  switch (status) {
    case ATTIKOS_DEVICE_ERROR:
      return ffi::ErrorCode::kFailedPrecondition;
    case ATTIKOS_UNSUPPORTED:
      return ffi::ErrorCode::kUnimplemented;
    case ATTIKOS_OUT_OF_MEMORY:
      return ffi::ErrorCode::kResourceExhausted;
    case ATTIKOS_INTERNAL_ERROR:
      return ffi::ErrorCode::kInternal;
    default:
      return ffi::ErrorCode::kInvalidArgument;
  }
}

template <class T>
T value_of(ffi::ErrorOr<T> found) {
  if (!found.has_value()) throw Refused{ffi::ErrorCode::kInternal, found.error().message()};
  return std::move(*found);
}

/// A message without "attikos: " or "attikos::name: " in front.
std::string_view without_origin(std::string_view text) {
  std::string_view const origin = "attikos";
  if (text.substr(0, origin.size()) != origin) return text;
  std::size_t at = origin.size();
  if (text.substr(at, 2) == "::") {
    at += 2;
    while (at < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_'))
      ++at;
  }
  return text.substr(at, 2) == ": " ? text.substr(at + 2) : text;
}

bool contains(std::vector<std::string_view> const& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

Array::Array(std::string_view name, ffi::AnyBuffer buffer, int added)
    : name_(name),
      data_(static_cast<char*>(buffer.untyped_data())),
      dtype_(dtype_of(buffer.element_type())),
      rank_(static_cast<int>(buffer.dimensions().size())),
      added_(added) {
  if (rank_ > max_rank || rank_ < added_ || added_ < 0) {
    throw Refused{ffi::ErrorCode::kInvalidArgument,
                  "attikos: " + std::string(name) + " has " + std::to_string(rank_) +
                      " dimensions, " + std::to_string(added_) +
                      " of them of vmap; expected at most " + std::to_string(max_rank)};
  }
  std::copy(buffer.dimensions().begin(), buffer.dimensions().end(), shape_);
}

bool Array::is_shared() const {
  return std::all_of(shape_, shape_ + added_, [](std::int64_t n) { return n == 1; });
}

bool Array::has_added(std::vector<std::int64_t> const& sizes) const {
  return std::equal(sizes.begin(), sizes.end(), shape_);
}

void Array::see(std::int64_t offset, std::vector<std::int64_t> const& shape) {
  std::copy(shape.begin(), shape.end(), seen_shape_);
  std::int64_t dense = 1;
  for (std::size_t r = shape.size(); r-- > 0;) {
    seen_strides_[r] = dense;
    dense *= std::max<std::int64_t>(shape[r], 1);
  }
  std::int64_t const bytes = offset * static_cast<std::int64_t>(attikos_dtype_size(dtype_));
  seen_.data = data_ == nullptr ? nullptr : data_ + bytes;
  seen_.dtype = dtype_;
  seen_.ndim = static_cast<std::int32_t>(shape.size());
}

void Array::see_part(std::vector<std::int64_t> const& position, bool as_rows) {
  std::vector<std::int64_t> shape(shape_ + added_, shape_ + rank_);
  std::int64_t offset = 0;
  for (int i = 0; i < rank_; ++i) {
    std::int64_t const at =
        i < added_ ? std::min(position[static_cast<std::size_t>(i)], shape_[i] - 1) : 0;
    offset = offset * shape_[i] + at;
  }
  while (as_rows && shape.size() > 2) {
    shape[1] *= shape[0];
    shape.erase(shape.begin());
  }
  see(offset, shape);
}

void Array::see_in_front(std::int64_t count) {
  std::vector<std::int64_t> shape(shape_ + added_ - 1, shape_ + rank_);
  shape[0] = is_shared() ? 1 : count;
  see(0, shape);
}

void Array::see_joined(std::int64_t count) {
  std::vector<std::int64_t> shape(shape_ + added_, shape_ + rank_);
  shape[0] *= count;
  see(0, shape);
  if (is_shared()) seen_strides_[0] = 0;
}

void Array::see_rows(std::int64_t count, bool apart) {
  std::int64_t rows = 1;
  for (int i = added_; i < rank_ - 1; ++i) rows *= shape_[i];
  std::int64_t const columns = shape_[rank_ - 1];
  if (!apart) {
    see(0, {is_shared() ? rows : rows * count, columns});
    return;
  }
  see(0, {count, rows, columns});
  if (is_shared()) seen_strides_[0] = 0;
}

attikos_tensor const* Array::get() {
  seen_.shape = seen_shape_;
  seen_.strides = seen_strides_;
  return &seen_;
}

Call::Call(std::string_view operation, bool on_host, ffi::RemainingArgs arguments,
           ffi::RemainingRets results, ffi::Dictionary settings)
    : operation_(operation), on_host_(on_host), settings_(settings) {
  auto names = value_of(settings_.get<std::string_view>("arguments"));
  auto const ranks = value_of(settings_.get<ffi::Span<std::int64_t const>>("ranks"));
  if (ranks.size() != arguments.size() || results.empty())
    throw Refused{ffi::ErrorCode::kInternal, "attikos: a call that names other arrays than it has"};
  arrays_.reserve(arguments.size());
  results_.reserve(results.size());
  int added = 0;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    auto const buffer = value_of(arguments.get<ffi::AnyBuffer>(i));
    std::size_t const end = std::min(names.find(' '), names.size());
    added = static_cast<int>(buffer.dimensions().size()) - static_cast<int>(ranks[i]);
    arrays_.emplace_back(names.substr(0, end), buffer, added);
    names.remove_prefix(std::min(end + 1, names.size()));
  }
  for (std::size_t i = 0; i < results.size(); ++i)
    results_.emplace_back("", *value_of(results.get<ffi::AnyBuffer>(i)), added);
  for (int i = 0; i < added; ++i) {
    added_.push_back(results_.front().added(i));
    count_ *= added_.back();
  }
}

attikos_tensor const* Call::operator[](std::string_view name) {
  for (Array& x : arrays_)
    if (x.name() == name) return x.get();
  return nullptr;
}

attikos_tensor const* Call::result(std::size_t i) { return results_[i].get(); }

double Call::real(std::string_view name) const { return value_of(settings_.get<double>(name)); }

std::int64_t Call::integer(std::string_view name) const {
  return value_of(settings_.get<std::int64_t>(name));
}

bool Call::is_empty() const { return count_ == 0; }

void Call::see_parts(std::int64_t i, Place place) {
  std::vector<std::int64_t> position(added_.size());
  for (std::size_t r = added_.size(); r-- > 0;) {
    position[r] = i % added_[r];
    i /= added_[r];
  }
  bool const rows = place == Place::rows;
  for (Array& x : arrays_) x.see_part(position, rows && x.name() != "weight" && x.name() != "bias");
  for (Array& x : results_) x.see_part(position, rows);
}

bool Call::join(Place place, std::vector<std::string_view> const& batched, bool shares) {
  if (added_.empty()) {
    see_parts(0, place);
    return true;
  }
  bool apart = false;
  for (Array const& x : arrays_) {
    bool const full = x.has_added(added_);
    if (!contains(batched, x.name())) {
      if (place != Place::rows || !x.is_shared()) return false;
      continue;
    }
    if (place == Place::batch && x.name() == "q" && x.rank() != 4) return false;
    if (place == Place::in_front && x.rank() != 2) return false;
    if (full) continue;
    if (!x.is_shared() || !shares) return false;
    // One array for a joined batch is seen by a stride of 0, which takes a batch of 1.
    if (place == Place::batch && x.own(0) != 1) return false;
    apart = true;
  }
  for (auto* group : {&arrays_, &results_}) {
    for (Array& x : *group) {
      if (group == &arrays_ && !contains(batched, x.name()))
        x.see_part(std::vector<std::int64_t>(added_.size()), false);
      else if (place == Place::rows)
        x.see_rows(count_, apart);
      else if (place == Place::batch)
        x.see_joined(count_);
      else
        x.see_in_front(count_);
    }
  }
  return true;
}

void Call::expect_success(attikos_status status, std::string_view about) const {
  if (status == ATTIKOS_SUCCESS) return;
  std::string words = "attikos." + operation_ + ": ";
  if (!about.empty()) words.append(about).append(": ");
  throw Refused{code_of(status), words.append(without_origin(attikos_last_error()))};
}

namespace {

struct Destroy {
  void operator()(attikos_context* context) const { attikos_context_destroy(context); }
};

struct Known {
  std::int32_t kind, ordinal;
  void* stream;
  std::unique_ptr<attikos_context, Destroy> context;
};

/// So many contexts a thread keeps: streams come and go.
constexpr std::size_t most_contexts = 32;

attikos_context* context_of(Call const& call, std::int32_t kind, std::int32_t ordinal,
                            void* stream) {
  thread_local std::vector<Known> known;  // the one that was wanted last stands first
  auto const found = std::find_if(known.begin(), known.end(), [&](Known const& x) {
    return x.kind == kind && x.ordinal == ordinal && x.stream == stream;
  });
  if (found != known.end()) {
    std::rotate(known.begin(), found, found + 1);
    return known.front().context.get();
  }
  attikos_context* made = nullptr;
  call.expect_success(attikos_context_create(kind, ordinal, stream, &made));
  if (known.size() == most_contexts) known.pop_back();
  known.insert(known.begin(), Known{kind, ordinal, stream, {}});
  known.front().context.reset(made);
  return made;
}

void* allocate(void* user, std::size_t bytes) noexcept {
  try {
    return static_cast<Scratch*>(user)->Allocate(bytes, 64).value_or(nullptr);
  } catch (...) {
    return nullptr;
  }
}

/// XLA's memory goes back when the handler has returned, in the order of the stream.
void release(void* /*user*/, void* /*memory*/) noexcept {}

}  // namespace

attikos_context* host_context(Call const& call) {
  return context_of(call, ATTIKOS_HOST, 0, nullptr);
}

attikos_context* cuda_context(Call const& call, std::int32_t ordinal, void* stream,
                              Scratch& scratch) {
  attikos_context* const context = context_of(call, ATTIKOS_CUDA, ordinal, stream);
  call.expect_success(attikos_context_set_allocator(context, allocate, release, &scratch));
  return context;
}

}  // namespace attikos::xla_handlers
