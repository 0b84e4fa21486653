// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "fuzz_c_calls.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "c_calls.h"

namespace attikos::test {
namespace {

__extension__ using Wide = __int128;
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
constexpr int most_dims = 12;
constexpr std::int64_t most_elements = 4096;

/// The input, a number after the other; zeros behind its end.
class Source {
 public:
  Source(unsigned char const* bytes, std::size_t size) : bytes_(bytes), left_(size) {}
  /// 0 to bound - 1.
  int below(int bound) {
    if (left_ == 0) return 0;
    --left_;
    return *bytes_++ % bound;
  }
  template <class T, std::size_t Count>
  T one_of(std::array<T, Count> const& values) {
    return values[static_cast<std::size_t>(below(Count))];
  }
  /// Once in `times`, and not behind the end.
  bool once_in(int times) { return left_ > 0 && below(times) == times - 1; }

 private:
  unsigned char const* bytes_;
  std::size_t left_;
};

/// What the model knows of a call.
struct Model {
  std::set<int> defects;  ///< one of these statuses has to come, or that of a mismatch
  bool changed = false;   ///< else it has to be accepted
  bool unsure = false;    ///< tensors may have left the call, and their defects with them
  std::string story;

  void defect(int status, std::string const& what) {
    defects.insert(status);
    note(what);
  }
  void note(std::string const& what) {
    changed = true;
    story += (story.empty() ? "" : "; ") + what;
  }
};

/// A tensor of the call and memory of exactly the bytes that its elements span.
struct Operand {
  argument const* is = nullptr;
  attikos_tensor tensor{};
  bool null = false;
  std::array<std::int64_t, most_dims> shape{}, strides{};
  std::unique_ptr<unsigned char[]> memory;  // new[] is aligned for every element
  std::vector<unsigned char> before;
  std::size_t size = 0;
  std::int64_t low = 0;  // of the offsets in bytes
  bool lends = false;    // another one's memory is its memory

  std::size_t element() const { return attikos_dtype_size(tensor.dtype); }
  std::int64_t stride(int r) const {
    if (tensor.strides != nullptr) return strides[static_cast<std::size_t>(r)];
    std::int64_t step = 1;
    for (int s = tensor.ndim - 1; s > r; --s)
      step *= std::max<std::int64_t>(shape[static_cast<std::size_t>(s)], 1);
    return step;
  }
  /// Addresses of the first bytes of all elements, from those of the first one.
  std::vector<std::int64_t> offsets() const {
    std::vector<std::int64_t> all{0};
    for (int r = 0; r < tensor.ndim; ++r) {
      std::vector<std::int64_t> next;
      for (auto const from : all)
        for (std::int64_t i = 0; i < shape[static_cast<std::size_t>(r)]; ++i)
          next.push_back(from + i * stride(r) * static_cast<std::int64_t>(element()));
      all = std::move(next);
    }
    return all;
  }
};

/// How far extents and strides reach, in numbers that hold it.
struct Reach {
  Wide elements = 1, low = 0, high = 0;
  bool empty = false, overflow = false;
};
Reach reach_of(Operand const& o) {
  Reach reach;
  Wide const size = static_cast<Wide>(o.element());
  Wide dense = 1, counted = 1;
  for (int r = o.tensor.ndim - 1; r >= 0; --r) {
    Wide const extent = o.shape[static_cast<std::size_t>(r)];
    reach.empty |= extent == 0;
    // As the interface counts: an extent of 0 is passed over.
    Wide const factor = extent > 0 ? extent : 1;
    Wide step = 0;
    if (o.tensor.strides != nullptr) {
      step = o.strides[static_cast<std::size_t>(r)];
    } else {
      step = dense;
      if (dense <= most) dense *= factor;
      reach.overflow |= dense > most && r > 0;
    }
    if (counted <= most) counted *= factor;
    if (extent > 1 && step <= most && step >= -Wide{most} - 1) {
      Wide const span = (extent - 1) * step;
      // Products of two 63-bit numbers fit; with the size of an element they need not.
      bool const far = span > most || span < -Wide{most};
      reach.overflow |= far;
      if (!far) (span < 0 ? reach.low : reach.high) += span * size;
    }
  }
  reach.elements = counted;
  reach.overflow |= counted > most / size || reach.low < -Wide{most} || reach.high + size > most ||
                    reach.high + size - reach.low > most;
  return reach;
}

class Call {
 public:
  explicit Call(Source& source) : source_(source) {
    constexpr int count = static_cast<int>(std::size(c_calls));
    call_ = &c_calls[source_.below(count)];
    operands_.resize(static_cast<std::size_t>(c_call_count(call_)));
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      auto& o = operands_[i];
      o.is = &call_->arguments[i];
      std::copy(std::begin(o.is->shape), std::end(o.is->shape), o.shape.begin());
      std::fill(o.shape.begin() + o.is->ndim, o.shape.end(), 1);
      o.tensor = {nullptr, o.is->dtype, o.is->ndim, o.shape.data(), nullptr};
    }
  }

  std::string run();

 private:
  void change(Operand& o, bool needed);
  void change_strides(Operand& o);
  void place(Operand& o, bool missing, int misplaced);
  void lend();
  void fill(Operand& o);
  static void change_options(char const* name, void* options);
  std::string verdict(attikos_status status, std::string const& message) const;

  Source& source_;
  c_call const* call_;
  std::vector<Operand> operands_;
  Model model_;
  FuzzCounts* counts_ = nullptr;
  static Call* current_;
  friend std::string attikos::test::fuzz_c_calls(unsigned char const*, std::size_t);
};
Call* Call::current_ = nullptr;

std::array<std::int64_t, 12> const extents{0, 1, 1, 2, 3, 4, 5, 8, 9, 16, 17, 1};
std::array<std::int64_t, 8> const wild{-1,       most,     -most - 1, std::int64_t{1} << 40,
                                       most / 2, most / 4, -2,        std::int64_t{1} << 62};

void Call::change_strides(Operand& o) {
  auto const rank = static_cast<std::size_t>(std::clamp(o.tensor.ndim, 0, most_dims));
  std::int64_t step = 1;
  for (std::size_t r = rank; r-- > 0;) {
    o.strides[r] = step;
    step *= std::clamp<std::int64_t>(o.shape[r], 1, 64);
  }
  int const way = source_.below(6);
  auto const r = rank == 0 ? 0 : static_cast<std::size_t>(source_.below(static_cast<int>(rank)));
  if (way == 1)
    for (std::size_t s = 0; s < rank; ++s) o.strides[s] *= 2;
  if (way == 2) o.strides[r] = -o.strides[r];
  if (way == 3) o.strides[r] = 0;
  if (way == 4 && rank > 1) std::swap(o.strides[r], o.strides[rank - 1]);
  if (way == 5) o.strides[r] = source_.one_of(wild);
  o.tensor.strides = o.strides.data();
  model_.note("strides " + std::to_string(way) + " of " + o.is->name);
}

void Call::change(Operand& o, bool needed) {
  int misplaced = 0;
  bool missing = false;
  std::string const name = o.is->name;
  while (source_.once_in(needed ? 10 : 6)) {
    auto const rank = std::clamp(o.tensor.ndim, 0, most_dims);
    auto const r = rank == 0 ? 0 : static_cast<std::size_t>(source_.below(rank));
    switch (source_.below(10)) {
      case 0:
        o.null = true;
        if (needed)
          model_.defect(ATTIKOS_NULL_ARGUMENT, name + " is null");
        else
          model_.note(name + " is null");
        break;
      case 1:
        missing = true;
        break;
      case 2:
        misplaced = 1 + source_.below(7);
        break;
      case 3:
        o.tensor.dtype = source_.below(14) - 2;
        model_.note(name + " has dtype " + std::to_string(o.tensor.dtype));
        break;
      case 4:
        o.tensor.ndim = source_.one_of(std::array<std::int32_t, 8>{-1, 0, 1, 2, 3, 5, 9, 1 << 30});
        model_.note(name + " has ndim " + std::to_string(o.tensor.ndim));
        break;
      case 5:
        o.tensor.shape = nullptr;
        break;
      case 6:
      case 7:
        o.shape[r] = source_.one_of(extents);
        model_.note("extent " + std::to_string(o.shape[r]) + " in " + name);
        break;
      case 8:
        o.shape[r] = source_.one_of(wild);
        model_.note("extent " + std::to_string(o.shape[r]) + " in " + name);
        break;
      default:
        change_strides(o);
        break;
    }
  }
  if (o.null) {  // what options may name all the same
    std::copy(std::begin(o.is->shape), std::end(o.is->shape), o.shape.begin());
    o.tensor = {nullptr, o.is->dtype, o.is->ndim, o.shape.data(), nullptr};
    missing = false, misplaced = 0;
  }
  place(o, missing, misplaced);
}

/// Memory for a tensor, where it can have any, and what is wrong with it by itself.
void Call::place(Operand& o, bool missing, int misplaced) {
  std::string const name = o.is->name;
  if (o.element() == 0) return model_.defect(ATTIKOS_INVALID_ARGUMENT, "no dtype for " + name);
  if (o.tensor.ndim < 0) return model_.defect(ATTIKOS_NEGATIVE_EXTENT, "ndim of " + name);
  if (o.tensor.shape == nullptr) {
    if (o.tensor.ndim > 0) model_.defect(ATTIKOS_NULL_ARGUMENT, "no shape for " + name);
    if (o.tensor.ndim > 0) return;
    o.tensor.shape = o.shape.data();
    model_.note("no shape for " + name);
  }
  if (o.tensor.ndim > 8) return model_.defect(ATTIKOS_SHAPE_MISMATCH, "ndim of " + name);
  for (int r = 0; r < o.tensor.ndim; ++r)
    if (o.shape[static_cast<std::size_t>(r)] < 0) {
      // Whichever is met first: extents are read from the last one on.
      model_.defects.insert(ATTIKOS_OVERFLOW);
      return model_.defect(ATTIKOS_NEGATIVE_EXTENT, "negative extent in " + name);
    }
  Reach const reach = reach_of(o);
  if (reach.overflow) return model_.defect(ATTIKOS_OVERFLOW, name + " reaches too far");
  if (reach.empty) {  // its data are not looked at
    if (missing) return;
    o.tensor.data = reinterpret_cast<void*>(static_cast<std::uintptr_t>(misplaced));
    return;
  }
  Wide const bytes = reach.high - reach.low + static_cast<Wide>(o.element());
  if (reach.elements > most_elements || bytes > Wide{1} << 20) {
    // It is right and too large to be had: dense and small instead.
    o.tensor.strides = nullptr;
    for (auto& extent : o.shape) extent = std::min<std::int64_t>(extent, 3);
    return place(o, missing, misplaced);
  }
  if (missing) return model_.defect(ATTIKOS_NULL_ARGUMENT, "no data of " + name);
  o.size = static_cast<std::size_t>(bytes);
  o.low = static_cast<std::int64_t>(reach.low);
  bool const misaligned = misplaced % static_cast<int>(o.element()) != 0;
  std::size_t const shift = misaligned ? static_cast<std::size_t>(misplaced) : 0;
  o.memory = std::make_unique<unsigned char[]>(o.size + shift);
  o.tensor.data = o.memory.get() + shift - o.low;
  if (misaligned) {
    // Its data are not touched: the memory need not be there.
    model_.defect(ATTIKOS_MISALIGNED, name + " is misaligned");
  }
  if (o.is->is_output) {
    auto offsets = o.offsets();
    std::sort(offsets.begin(), offsets.end());
    if (std::adjacent_find(offsets.begin(), offsets.end()) != offsets.end())
      model_.defect(ATTIKOS_INVALID_STRIDES, "elements of " + name + " share memory");
  }
}

/// Bytes of memory like those that are met: small integers, or anything.
void Call::fill(Operand& o) {
  if (o.memory == nullptr) return;
  auto* const bytes = static_cast<unsigned char*>(o.tensor.data) + o.low;
  int const way = source_.below(4), value = source_.below(256);
  for (std::size_t i = 0; i < o.size; ++i)
    bytes[i] =
        static_cast<unsigned char>(way == 0   ? (i * 37 + static_cast<std::size_t>(value)) % 251
                                   : way == 1 ? 0
                                   : way == 2 ? (i % 4 == 0 ? value % 5 : 0)
                                              : value);
  o.before.assign(bytes, bytes + o.size);
}

/// Lets one tensor lie where an output does.
void Call::lend() {
  if (!source_.once_in(6) || !model_.defects.empty()) return;
  auto const count = static_cast<int>(operands_.size());
  auto& to = operands_[static_cast<std::size_t>(source_.below(count))];
  auto& from = operands_[static_cast<std::size_t>(source_.below(count))];
  if (&to == &from || !to.is->is_output || to.null || from.null || to.memory == nullptr ||
      from.memory == nullptr)
    return;
  if (to.lends || from.lends || from.size > to.size || from.low != 0 || to.low != 0) return;
  std::size_t const room = (to.size - from.size) / 8;
  std::size_t const shift = 8 * static_cast<std::size_t>(source_.below(
                                    static_cast<int>(std::min<std::size_t>(room, 200)) + 1));
  from.tensor.data = static_cast<unsigned char*>(to.tensor.data) + shift;
  from.lends = to.lends = true;
  from.size = 0;
  from.memory = nullptr;
  std::set<std::int64_t> written;
  for (auto const at : to.offsets())
    for (std::size_t b = 0; b < to.element(); ++b)
      written.insert(at + static_cast<std::int64_t>(b));
  bool meets = false;
  for (auto const at : from.offsets())
    for (std::size_t b = 0; b < from.element(); ++b)
      meets |= written.contains(at + static_cast<std::int64_t>(shift + b));
  std::string const what = std::string(from.is->name) + " lies in " + to.is->name;
  bool const allowed = shift == 0 && from.is->may_be >= 0 &&
                       &operands_[static_cast<std::size_t>(from.is->may_be)] == &to;
  if (meets && !allowed)
    model_.defect(ATTIKOS_INVALID_ARGUMENT, what);
  else
    model_.note(what);
}

/// The members of a struct of options, from the library's own description.
struct Member {
  std::string kind, name;
  std::size_t offset = 0, size = 0;
};
struct Struct {
  std::size_t size = 0, first_size = 0;
  std::vector<Member> members;
};
Struct const& struct_of(std::string_view given) {
  std::string const name(given);
  static auto& known = *new std::map<std::string, Struct>;
  auto& s = known[name];
  if (s.size > 0) return s;
#define ATTIKOS_FIRST_SIZE(operation, type, table, bytes) \
  if (name == #operation) s.first_size = bytes;
  ATTIKOS_OPTION_STRUCTS(ATTIKOS_FIRST_SIZE)
  std::string text(16384, '\0');
  attikos_describe_options(name.c_str(), text.data(), text.size(), nullptr);
  std::istringstream lines(text.c_str());
  std::string line;
  std::getline(lines, line);
  s.size = std::stoul(line);
  while (std::getline(lines, line)) {
    std::istringstream cells(line);
    Member m;
    cells >> m.kind >> m.name >> m.offset >> m.size;
    if (m.kind != "size") s.members.push_back(m);
  }
  return s;
}

void Call::change_options(char const* name, void* options) {
  Source& source = current_->source_;
  Model& model = current_->model_;
  auto* const bytes = static_cast<unsigned char*>(options);
  Struct const& known = struct_of(name);
  auto const put = [&](Member const& m, auto value) {
    // Of a pointer, too, its own size is meant.
    std::memcpy(bytes + m.offset, &value, sizeof value);  // NOLINT(bugprone-sizeof-expression)
  };
  std::set<std::string> changed;
  while (source.once_in(5)) {
    Member const& m = known.members[static_cast<std::size_t>(
        source.below(static_cast<int>(known.members.size())))];
    std::string const what = std::string(name) + "." + m.name;
    if (!changed.insert(m.name).second) model.unsure = true;  // what was wrong may be right now
    if (m.kind == "real") {
      constexpr double infinity = std::numeric_limits<double>::infinity();
      put(m, source.one_of(std::array<double, 8>{0, 1, -1, 0.5, 1e300, infinity, -infinity,
                                                 std::numeric_limits<double>::quiet_NaN()}));
    } else if (m.kind == "integer") {
      put(m,
          source.one_of(std::array<std::int64_t, 10>{0, 1, 2, 3, 5, 64, -1, -5, most, -most - 1}));
    } else if (m.kind == "number") {
      put(m, source.one_of(std::array<std::int32_t, 8>{0, 1, 4, 16, 64, -1, 1 << 30, -(1 << 30)}));
    } else if (m.kind == "flag") {
      put(m, std::int32_t{source.below(3)});
    } else if (m.kind == "choice") {
      auto const value = source.one_of(std::array<std::int32_t, 8>{0, 1, 2, 3, 4, 5, -1, 1 << 30});
      put(m, value);
      if (value < 0 || value > 4) {
        model.defect(ATTIKOS_INVALID_ARGUMENT, what + " is " + std::to_string(value));
        continue;
      }
    } else if (m.kind == "text") {
      put(m, source.one_of(std::array<char const*, 4>{nullptr, "", "portable", "no such kernel"}));
    } else {
      model.unsure = true;
      auto const& all = current_->operands_;
      auto const& other = all[static_cast<std::size_t>(source.below(static_cast<int>(all.size())))];
      bool const written = std::strstr(name, "gradients") != nullptr ||
                           m.name == "pre_activation" || m.name == "q_out";
      bool const none = source.below(2) == 0 || (written && !other.is->is_output);
      put(m, none ? nullptr : &other.tensor);
    }
    model.note(what);
  }
  if (source.once_in(12)) {
    std::size_t const size = static_cast<std::size_t>(source.below(256));
    std::memcpy(bytes, &size, sizeof size);
    model.note(std::string(name) + " of " + std::to_string(size) + " bytes");
    if (size < known.first_size || size % 8 != 0) {
      model.defect(ATTIKOS_INVALID_STRUCT, "a size of no version");
    } else if (size < known.size) {
      model.unsure = true;  // what is wrong may stand behind what is read
    } else if (size > known.size + c_options_later) {
      std::memcpy(bytes, &known.size, sizeof known.size);
    } else if (size > known.size && source.below(2) == 1) {
      std::size_t const room = size - known.size;
      bytes[known.size + static_cast<std::size_t>(source.below(static_cast<int>(room)))] = 1;
      model.defect(ATTIKOS_INVALID_STRUCT, "a member of a later version");
    }
  }
}

bool is_mismatch(int status) {
  return status == ATTIKOS_SHAPE_MISMATCH || status == ATTIKOS_DTYPE_MISMATCH ||
         status == ATTIKOS_INVALID_STRIDES || status == ATTIKOS_INVALID_ARGUMENT ||
         status == ATTIKOS_UNSUPPORTED || status == ATTIKOS_NULL_ARGUMENT;
}

std::string Call::verdict(attikos_status status, std::string const& message) const {
  bool const expected = model_.defects.contains(status) || is_mismatch(status);
  if (!model_.defects.empty() && !expected && !(model_.unsure && status == ATTIKOS_SUCCESS))
    return status == ATTIKOS_SUCCESS ? "is accepted" : "has the wrong status";
  if (!model_.changed && status != ATTIKOS_SUCCESS) return "is refused";
  if (status != ATTIKOS_SUCCESS && !expected) return "fails";
  if (status != ATTIKOS_SUCCESS && message.rfind("attikos::", 0) != 0)
    return "is refused in words that do not name it";
  for (auto const& o : operands_) {
    if (o.memory == nullptr) continue;
    auto const* const bytes = static_cast<unsigned char const*>(o.tensor.data) + o.low;
    if (std::memcmp(bytes, o.before.data(), o.size) == 0) continue;
    if (!o.is->is_output) return std::string("writes to ") + o.is->name;
    if (status != ATTIKOS_SUCCESS)
      return std::string("is refused and has written to ") + o.is->name;
    std::vector<bool> owned(o.size);
    for (auto const at : o.offsets())
      for (std::size_t b = 0; b < o.element(); ++b)
        owned[static_cast<std::size_t>(at - o.low) + b] = true;
    for (std::size_t i = 0; i < o.size; ++i)
      if (!owned[i] && bytes[i] != o.before[i])
        return std::string("writes between the elements of ") + o.is->name;
  }
  return "";
}

std::string Call::run() {
  static attikos_context* context = nullptr;
  if (context == nullptr) attikos_context_create(ATTIKOS_HOST, 0, nullptr, &context);
  for (std::size_t i = 0; i < operands_.size(); ++i) change(operands_[i], i < 2);
  lend();
  for (auto& o : operands_) fill(o);
  std::vector<attikos_tensor const*> tensors;
  for (auto const& o : operands_) tensors.push_back(o.null ? nullptr : &o.tensor);
  current_ = this;
  c_call_mutate = change_options;
  attikos_status const status = call_->call(context, tensors.data());
  std::string const message = status == ATTIKOS_SUCCESS ? "" : attikos_last_error();
  ++(status == ATTIKOS_SUCCESS ? counts_->accepted : counts_->refused);
  std::string const wrong = verdict(status, message);
  if (wrong.empty()) return "";
  return std::string("attikos_") + call_->operation + " " + wrong + ": status \"" +
         attikos_status_string(status) + "\" (" + message + "); changes: " + model_.story;
}

FuzzCounts counts;

}  // namespace

std::string fuzz_c_calls(unsigned char const* bytes, std::size_t size) {
  Source source(bytes, size);
  Call call(source);
  call.counts_ = &counts;
  return call.run();
}

FuzzCounts const& fuzz_counts() { return counts; }

}  // namespace attikos::test
