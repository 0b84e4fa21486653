// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every operation once, on prepared operands: what contract tests do to one call they do to all.
#pragma once

#include <array>
#include <attikos/attikos.hpp>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../support/tensors.hpp"

namespace attikos::test {

/// What a call writes.
struct Output {
  std::function<std::vector<std::byte>()> bytes;
  std::function<void()> clear;
  std::span<std::byte const> memory;  ///< the same bytes, if dense, where the call writes them
};

/// One call that can be made again and again on the same operands.
template <class Exec>
struct Operation {
  std::string name;
  std::function<void(Exec const&)> call;
  Output output;
};

template <class TensorType>
Output output_of(std::shared_ptr<TensorType> const& tensor) {
  return {[tensor] {
            tensor->download();
            auto const elements = tensor->elements();
            std::vector<std::byte> bytes(elements.size() * sizeof(elements[0]));
            std::memcpy(bytes.data(), elements.data(), bytes.size());
            return bytes;
          },
          [tensor] { tensor->fill(3); },
          std::as_bytes(std::span(tensor->view().data(), tensor->elements().size()))};
}

template <class T, int Rank, class Exec>
auto filled(std::array<std::int64_t, sz(Rank)> extents, std::uint64_t seed) {
  auto tensor = std::make_shared<Tensor<T, Rank, Exec>>(extents);
  Random random(seed);
  tensor->fill_uniform(random);
  return tensor;
}

/// The operations for one element type; more than one tile in every direction, more keys than a
/// block. operations.cpp compiles them for float and bfloat16 on every space that is tested.
template <class Exec, class T>
std::vector<Operation<Exec>> operations();

}  // namespace attikos::test
