// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What calls ask for beyond their operands, and what a kernel knows of it: whatever it does not
/// name it refuses.
///
/// An operation has an enumeration of its options and two functions beside its arguments:
/// `options_of(args)`, which takes all members of the arguments apart by name, so that a new member
/// does not compile before it is entered there, and `beyond(args, known)`, by which `accepts()` of
/// a kernel refuses every option that is not on the kernel's own list.
#pragma once

#include <attikos/abi/option_tables.h>

#include <attikos/config.hpp>
#include <cstdint>

// A row of a table as a member with its default, and as an assignment between structs `to` and
// `from` that both have it.
#define ATTIKOS_CXX_TYPE_real double
#define ATTIKOS_CXX_TYPE_integer std::int64_t
#define ATTIKOS_CXX_TYPE_flag bool
#define ATTIKOS_CXX_OPTION_MEMBER(kind, name, initial, meaning) \
  ATTIKOS_CXX_TYPE_##kind name = initial;
#define ATTIKOS_CXX_OPTION_COPY(kind, name, initial, meaning) to.name = from.name;

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// Some of the options of an operation. `Option` is an enumeration with fewer than 32 values.
template <class Option>
class OptionSet {
 public:
  constexpr OptionSet() noexcept = default;
  template <class... Options>
  constexpr OptionSet(Option first, Options... more) noexcept
      : bits_((bit(first) | ... | bit(more))) {}

  /// These and another one if `asked`.
  constexpr OptionSet with(Option option, bool asked = true) const noexcept {
    return OptionSet(bits_ | (asked ? bit(option) : 0u));
  }
  /// These but for some.
  constexpr OptionSet without(OptionSet const& some) const noexcept {
    return OptionSet(bits_ & ~some.bits_);
  }
  constexpr bool has(Option option) const noexcept { return (bits_ & bit(option)) != 0; }
  constexpr bool empty() const noexcept { return bits_ == 0; }

 private:
  constexpr explicit OptionSet(std::uint32_t bits) noexcept : bits_(bits) {}
  static constexpr std::uint32_t bit(Option option) noexcept {
    return std::uint32_t{1} << static_cast<unsigned>(option);
  }

  std::uint32_t bits_ = 0;
};

/// An option, and why a kernel that does not know it refuses a call.
template <class Option>
struct OptionReason {
  Option option;
  char const* reason;
};

/// The first reason of those whose option is asked for but not known; null where all are known.
template <class Option, int Count>
constexpr char const* first_unknown(OptionReason<Option> const (&reasons)[Count],
                                    OptionSet<Option> asked, OptionSet<Option> known) noexcept {
  for (OptionReason<Option> const& entry : reasons)
    if (asked.has(entry.option) && !known.has(entry.option)) return entry.reason;
  return asked.without(known).empty() ? nullptr : "it does not know an option of the call";
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
