// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Rows of option_tables.h in C++: members of structs, copies from one to another, options that
/// kernels name or refuse.
#pragma once

#include <attikos/abi/option_tables.h>

#include <attikos/abi/options.hpp>
#include <cstdint>

// A row of a table as a member with its default, and as an assignment between structs `to` and
// `from` that both have it. The enumeration of a choice is named after it; its default is the
// enumerator 0 in both languages, as the C library asserts.
#define ATTIKOS_CXX_MEMBER_real(name, initial) double name = initial;
#define ATTIKOS_CXX_MEMBER_integer(name, initial) std::int64_t name = initial;
#define ATTIKOS_CXX_MEMBER_number(name, initial) int name = initial;
#define ATTIKOS_CXX_MEMBER_flag(name, initial) bool name = initial;
#define ATTIKOS_CXX_MEMBER_choice(name, initial) ATTIKOS_CXX_CHOICE_##name name{};
#define ATTIKOS_CXX_CHOICE_activation Activation
#define ATTIKOS_CXX_CHOICE_compute Compute
#define ATTIKOS_CXX_CHOICE_accumulate Accumulate
#define ATTIKOS_CXX_OPTION_MEMBER(kind, name, initial, meaning) \
  ATTIKOS_CXX_MEMBER_##kind(name, initial)
#define ATTIKOS_CXX_OPTION_COPY(kind, name, initial, meaning) to.name = from.name;
// The same of an option that the arguments of kernels have by that name.
#define ATTIKOS_CXX_OPTION_NAME(kind, name, initial, meaning) , name
#define ATTIKOS_CXX_OPTION_ENUMERATOR(kind, name, initial, meaning) name,
#define ATTIKOS_CXX_OPTION_ASKED(kind, name, initial, meaning) ATTIKOS_ARGUMENT_ASKED(name, )
#define ATTIKOS_CXX_OPTION_REASON(kind, name, initial, meaning) {Option::name, "it has no " #name},
