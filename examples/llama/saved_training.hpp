// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// A training run's arrays, to a checkpoint and back.
#pragma once

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <vector>

#include "checkpoint.hpp"
#include "trainer.hpp"

namespace llama {

/// Copies arrays piece by piece, through one buffer that is allocated before the first step.
template <class T>
class SavedTraining {
 public:
  explicit SavedTraining(Config const& config) : config_(config), buffer_(std::size_t{1} << 24) {}

  /// Waits for the steps so far.
  void write(std::filesystem::path const& path, Trainer<T> const& trainer,
             TrainingState const& state) {
    trainer.fence();
    SafetensorsWriter file(path, checkpoint_tensors(config_, dtype, state.step));
    auto const numbers = numbers_of(state, config_);
    file.append(std::as_bytes(std::span(numbers)));
    append(file, trainer.losses().data(), state.step);
    if constexpr (Trainer<T>::has_master)
      append(file, trainer.master().data(), trainer.master().size());
    append(file, trainer.moments().data(), trainer.moments().size());
    append(file, trainer.weights().all.data(), trainer.weights().all.size());
    file.commit();
  }

  /// The state, after the arrays have what the file holds. Throws DataError.
  TrainingState read(std::filesystem::path const& path, Trainer<T> const& trainer,
                     TrainingState const& expected) {
    sentence_search::Safetensors const file(path);
    TrainingState const state = read_state(file, path, expected, config_);
    if (state.step > trainer.losses().size())
      throw sentence_search::DataError(path.string() + ": has made " + std::to_string(state.step) +
                                       " steps, more than there are to make");
    std::vector<FileTensor> const tensors = checkpoint_tensors(config_, dtype, state.step);
    auto* const moments = reinterpret_cast<unsigned char*>(trainer.moments().data());
    auto* weights = reinterpret_cast<unsigned char*>(trainer.weights().all.data());
    for (std::size_t i = 1; i < tensors.size(); ++i) {
      auto const& [name, type, shape] = tensors[i];
      auto const bytes = file.bytes(name, type, shape);
      if (name == "training.losses") {
        place(trainer.losses().data(), bytes);
      } else if (name == "optimizer.master") {
        place(trainer.master().data(), bytes);
      } else if (name == "optimizer.exp_avg") {
        place(moments, bytes);
      } else if (name == "optimizer.exp_avg_sq") {
        place(moments + bytes.size(), bytes);
      } else {
        place(weights, bytes);
        weights += bytes.size();
      }
    }
    return state;
  }

 private:
  static constexpr char const* dtype = Trainer<T>::has_master ? "BF16" : "F32";
  using HostBytes = Kokkos::View<unsigned char*, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;

  template <class Element>
  void append(SafetensorsWriter& file, Element const* data, std::size_t count) {
    auto* const from = reinterpret_cast<unsigned char*>(const_cast<Element*>(data));
    std::size_t const size = count * sizeof(Element);
    for (std::size_t at = 0; at < size; at += buffer_.size()) {
      std::size_t const piece = std::min(buffer_.size(), size - at);
      Kokkos::deep_copy(HostBytes(buffer_.data(), piece), Bytes(from + at, piece));
      file.append(std::as_bytes(std::span(buffer_.data(), piece)));
    }
  }

  template <class Element>
  void place(Element* data, std::span<std::byte const> bytes) {
    auto* const to = reinterpret_cast<unsigned char*>(data);
    for (std::size_t at = 0; at < bytes.size(); at += buffer_.size()) {
      std::size_t const piece = std::min(buffer_.size(), bytes.size() - at);
      std::memcpy(buffer_.data(), bytes.data() + at, piece);
      Kokkos::deep_copy(Bytes(to + at, piece), HostBytes(buffer_.data(), piece));
    }
  }

  Config config_;
  std::vector<unsigned char> buffer_;
};

}  // namespace llama
