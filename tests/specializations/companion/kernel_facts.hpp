// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// How a kernel is asked what it takes: which cards, element types, extents, memory and options. An
/// answer is the text of a cell in docs/kernels.md.
#pragma once

#include <attikos/abi/compute.hpp>
#include <attikos/abi/device.hpp>
#include <attikos/abi/dtype.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace attikos;
namespace abi = attikos::abi;  // the standard library has a global ::abi
using Words = std::vector<std::string>;

std::string joined(Words const& words, char const* separator = ", ") {
  std::string text;
  for (std::string const& word : words) text += (text.empty() ? "" : separator) + word;
  return text;
}

constexpr abi::Device card(int major, int minor, int kilobytes) {
  return {0, major, minor, abi::architecture_of(major, minor), 132, kilobytes * 1024};
}
constexpr abi::Device cards[] = {card(7, 0, 96),   card(7, 5, 64), card(8, 0, 163),
                                 card(8, 6, 99),   card(8, 9, 99), card(9, 0, 227),
                                 card(10, 0, 227), card(12, 0, 99)};
constexpr abi::Device hopper = card(9, 0, 227);  // every kernel takes something there

constexpr DType all_types[] = {
    DType::float64,     DType::float32, DType::float16, DType::bfloat16, DType::float8_e4m3,
    DType::float8_e5m2, DType::int8,    DType::uint8,   DType::int32,    DType::int64};

alignas(128) std::uint64_t somewhere[64];  // what no call here reads or writes
template <class T>
T* pointer() {
  return reinterpret_cast<T*>(somewhere);
}

template <class Kernel, class Args>
bool takes(Args const& args, abi::Device const& device = hopper) {
  return Kernel::accepts(args, device).ok;
}

/// A call with something changed.
template <class Args, class Change>
Args changed(Args args, Change const& change) {
  change(args);
  return args;
}

/// The first of some calls, of every type there is, that a kernel takes.
template <class Kernel, class Args, class SetTypes>
Args taken(std::vector<Args> const& calls, SetTypes const& set_types) {
  for (Args call : calls)
    for (DType const in : all_types)
      for (DType const out : all_types)
        for (Compute const compute : {Compute::ieee, Compute::tf32, Compute::tf32x3}) {
          set_types(call, in, out, compute);
          if (takes<Kernel>(call)) return call;
        }
  throw std::runtime_error(std::string(Kernel::name) + " takes no call of kernel_facts.cpp");
}

/// "sm_80 on" or "sm_90 alone".
template <class Kernel, class Args>
std::string cards_of(Args const& call) {
  Words names;
  bool gap = false, past = false;
  for (abi::Device const& device : cards)
    if (takes<Kernel>(call, device)) {
      gap = gap || past;
      names.push_back("sm_" + std::to_string(device.compute_major) +
                      std::to_string(device.compute_minor));
    } else {
      past = !names.empty();
    }
  if (names.size() == 1) return names[0] + " alone";
  return past || gap ? joined(names) : names[0] + " on";
}

// ---- element types ------------------------------------------------------------------------------

bool has_8_bits(DType type) { return dtype_size(type) == 1 && type != DType::uint8; }

/// Names of types, all of 8 bits as one, both of float8 as one.
std::string types(std::vector<DType> const& list) {
  Words words;
  int float8 = 0, bits8 = 0;
  for (DType const type : list) {
    float8 += type == DType::float8_e4m3 || type == DType::float8_e5m2;
    bits8 += has_8_bits(type);
  }
  for (DType const type : list)
    if (!(has_8_bits(type) && (bits8 == 3 || (float8 == 2 && type != DType::int8))))
      words.emplace_back(dtype_name(type));
  if (bits8 == 3)
    words.emplace_back("8 bits");
  else if (float8 == 2)
    words.emplace_back("float8");
  return joined(words);
}

/// `inputs → outputs` of each set of outputs; `compute` where IEEE arithmetic is not what they get.
template <class Kernel, class Args, class SetTypes>
std::string types_of(Args call, SetTypes const& set_types) {
  std::vector<std::pair<std::string, std::vector<DType>>> by_outputs;
  Words allowed;
  for (auto const& [compute, name] :
       {std::pair{Compute::ieee, "ieee"}, {Compute::tf32, "tf32"}, {Compute::tf32x3, "tf32x3"}}) {
    bool any = false;
    for (DType const in : all_types) {
      std::vector<DType> outputs;
      for (DType const out : all_types) {
        set_types(call, in, out, compute);
        if (takes<Kernel>(call)) outputs.push_back(out);
      }
      if (outputs.empty()) continue;
      any = true;
      bool known = false;
      for (auto& [text, inputs] : by_outputs)
        if (text == types(outputs)) {
          known = true;
          if (inputs.back() < in) inputs.push_back(in);
        }
      if (!known) by_outputs.push_back({types(outputs), {in}});
    }
    if (any) allowed.emplace_back(name);
  }
  Words words;
  for (auto const& [outputs, inputs] : by_outputs) words.push_back(types(inputs) + " → " + outputs);
  std::string const text = joined(words, "; ");
  return allowed[0] == "ieee" ? text : text + "; `compute` " + joined(allowed, " or ");
}

// ---- extents ------------------------------------------------------------------------------------

/// "1 … 256", "8 … 128 by 8": of 1 … `most`, what a call may have as an extent.
template <class Kernel, class Args, class Set>
std::string extents(Args call, int most, Set const& set) {
  int first = 0, last = 0, count = 0;
  for (int i = 1; i <= most; ++i) {
    set(call, i);
    if (!takes<Kernel>(call)) continue;
    if (first == 0) first = i;
    last = i, ++count;
  }
  if (count == most) return "any";
  std::string const range = std::to_string(first) + " … " + std::to_string(last);
  if (count == last - first + 1) return range;
  if (last % first == 0 && count == last / first) return range + " by " + std::to_string(first);
  throw std::runtime_error(std::string(Kernel::name) + " takes extents of no rule");
}

// ---- memory -------------------------------------------------------------------------------------

/// What a kernel wants of its inputs' strides and addresses. `set(call, unit, leading, offset)`
/// gives them a stride along their last dimension, another from row to row and an address.
template <class Kernel, class Args, class Set>
std::string memory(Args call, DType type, Set const& set) {
  std::int64_t const bytes = dtype_size(type);
  set(call, 3, 15361, bytes);
  if (takes<Kernel>(call)) return "any";
  set(call, 1, 5121, bytes);
  if (takes<Kernel>(call)) return "a unit stride";
  set(call, 1, 5120 + 16 / bytes, 16);
  if (takes<Kernel>(call)) return "a unit stride, 16 bytes";
  throw std::runtime_error(std::string(Kernel::name) + " takes inputs of no rule");
}

// ---- options ------------------------------------------------------------------------------------

/// What an option is called in the tables, and a change of a call that asks for it.
template <class Args>
struct Asked {
  std::string name;
  void (*change)(Args&);
};

/// The options that a kernel takes, or those that it does not.
template <class Kernel, class Args>
std::string options(Args const& call, std::vector<Asked<Args>> const& asked, bool taken) {
  Words words;
  for (auto const& [name, change] : asked)
    if (takes<Kernel>(changed(call, change)) == taken && !name.empty()) words.push_back(name);
  return joined(words);
}

template <auto Value>
constexpr std::string_view signature() {
  return __PRETTY_FUNCTION__;
}
/// An enumerator's name as the compiler spells it; empty if there is none.
template <class Option, int Index>
constexpr std::string_view name_of() {
  constexpr std::string_view before = "Value = ";
  std::string_view const text = signature<static_cast<Option>(Index)>();
  std::string_view const value = text.substr(text.find(before) + before.size());
  if (value[0] == '(') return {};  // a number that is cast
  std::string_view const name = value.substr(0, value.find_first_of(";]"));
  return name.substr(name.rfind(':') + 1);
}
/// Throws unless each option of the operation is asked for by a call of the list.
template <class Option, class Args, int... Index>
void check_complete(std::vector<Asked<Args>> const& asked, std::integer_sequence<int, Index...>) {
  static_assert(!name_of<Option, 0>().empty() && name_of<Option, 31>().empty());
  auto const check = [&](Option option, std::string_view name) {
    if (name.empty()) return;
    for (auto const& one : asked)
      if (options_of(changed(Args{}, one.change)).has(option)) return;
    throw std::runtime_error("no call of kernel_facts.cpp asks for the option " +
                             std::string(name));
  };
  (check(static_cast<Option>(Index), name_of<Option, Index>()), ...);
}
template <class Option, class Args>
void check_complete(std::vector<Asked<Args>> const& asked) {
  check_complete<Option>(asked, std::make_integer_sequence<int, 32>());
}

// ---- rows ---------------------------------------------------------------------------------------

template <class Kernel>
void print(Words const& cells) {
  std::printf("| `%s` | %s |\n", Kernel::name, joined(cells, " | ").c_str());
}

/// Calls `row.operator()<Kernel>()` for those of a list of all_kernels.hpp that are in this build.
template <class Kernels, class Args, class Row>
void rows(Row const& row) {
  Kernels::each([&]<class Kernel>() {
    if (std::strstr(Kernel::accepts(Args{}, abi::Device{}).reason, "was left out of this build"))
      std::printf("left out: %s\n", Kernel::name);
    else
      row.template operator()<Kernel>();
  });
}

}  // namespace
