// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Checkpoints: safetensors files that are there as a whole or not at all. Knows nothing of Kokkos.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "config.hpp"
#include "safetensors.hpp"

namespace llama {

/// A tensor as the header of a safetensors file has it.
struct FileTensor {
  std::string name, dtype;
  std::vector<std::uint64_t> shape;
};

/// Writes a safetensors file beside its place and puts it there when it is whole and on the disk,
/// so that a program that is killed leaves the file of before.
class SafetensorsWriter {
 public:
  /// Tensors, whose data follow in this order; those of wider elements come first. Throws DataError
  /// if the file cannot be written.
  SafetensorsWriter(std::filesystem::path path, std::vector<FileTensor> const& tensors);
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter const&) = delete;
  SafetensorsWriter& operator=(SafetensorsWriter const&) = delete;

  void append(std::span<std::byte const> data);
  /// Throws DataError unless all data came.
  void commit();

 private:
  [[noreturn]] void fail(char const* what) const;

  std::filesystem::path path_, temporary_;
  std::FILE* file_ = nullptr;
  std::uint64_t missing_ = 0;  // bytes that are still to come
};

/// What a training run is, beside its arrays. All of it is in the checkpoint.
struct TrainingState {
  std::uint64_t step = 0;      ///< steps that were made
  std::uint64_t position = 0;  ///< sequences of the text that were read
  std::uint64_t seed = 0;      ///< of weights and of the order of sequences
  std::uint64_t batch = 0, length = 0;
};

/// The state as numbers, the sizes of the model behind it.
std::vector<std::int64_t> numbers_of(TrainingState const& state, Config const& config);

/// The state that a checkpoint holds. Throws DataError unless it is of this model and has the seed,
/// batch and length of `expected`.
TrainingState read_state(sentence_search::Safetensors const& file,
                         std::filesystem::path const& path, TrainingState const& expected,
                         Config const& config);

/// Tensors of a checkpoint, in their order: "training.state", "training.losses" of the steps that
/// were made, "optimizer.master" where `dtype` of the weights is not F32, "optimizer.exp_avg" and
/// "optimizer.exp_avg_sq", each of the array of all weights, then the weights one by one.
std::vector<FileTensor> checkpoint_tensors(Config const& config, std::string const& dtype,
                                           std::uint64_t steps);

}  // namespace llama
