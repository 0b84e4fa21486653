// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What calls ask for beyond their operands, and what a kernel knows of it: whatever it does not
/// name it refuses.
///
/// An option is a member of an operation's arguments that a call may leave at its default, and a
/// row X(member, reason) of a table beside them: why a kernel that does not name it refuses a call
/// that sets it. From the table come an enumeration with the members' names, `options_of(args)`,
/// which takes all members of the arguments apart by name, so that a new one does not compile
/// before it is entered there, and `beyond(args, takes)`, by which `accepts()` of a kernel refuses
/// every option that is not on the kernel's own list, `takes`.
#pragma once

#include <attikos/config.hpp>
#include <cstdint>

// A row of a table of kernels' arguments, as an enumerator, a question and a reason.
#define ATTIKOS_ARGUMENT_ENUMERATOR(member, reason) member,
#define ATTIKOS_ARGUMENT_ASKED(member, reason) \
  .with(Option::member, is_asked(args.member, unasked.member))
#define ATTIKOS_ARGUMENT_REASON(member, reason) {Option::member, reason},

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace abi {

/// A set of options of an operation. `Option` is an enumeration with fewer than 32 values.
template <class Option>
class OptionSet {
 public:
  constexpr OptionSet() noexcept = default;
  template <class... Options>
  constexpr OptionSet(Option first, Options... more) noexcept
      : bits_((bit(first) | ... | bit(more))) {}

  /// These and, if `asked`, one more.
  constexpr OptionSet with(Option option, bool asked = true) const noexcept {
    return OptionSet(bits_ | (asked ? bit(option) : 0u));
  }
  constexpr OptionSet operator|(OptionSet const& more) const noexcept {
    return OptionSet(bits_ | more.bits_);
  }
  /// These without some of them.
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

/// Whether a call sets an option: its member is not what it is by default.
template <class T>
constexpr bool is_asked(T const& given, T const& unasked) noexcept {
  return given != unasked;
}

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
