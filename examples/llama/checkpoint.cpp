// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "checkpoint.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <sstream>
#include <utility>

#include "failure.hpp"

namespace llama {
namespace {

using sentence_search::DataError;

std::uint64_t element_size(std::string const& dtype) {
  return dtype == "I64" ? 8 : dtype == "BF16" ? 2 : 4;
}

constexpr std::array<char const*, 11> state_names{"step",   "position",   "seed",        "batch",
                                                  "length", "vocabulary", "layers",      "hidden",
                                                  "heads",  "kv_heads",   "intermediate"};

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path,
                                     std::vector<FileTensor> const& tensors)
    : path_(std::move(path)), temporary_(path_.string() + ".tmp") {
  std::string header = R"({"__metadata__":{"format":"pt"})";
  for (FileTensor const& tensor : tensors) {
    std::uint64_t size = element_size(tensor.dtype);
    std::ostringstream shape, entry;
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      shape << (i == 0 ? "" : ",") << tensor.shape[i];
      size *= tensor.shape[i];
    }
    entry << ",\"" << tensor.name << R"(":{"dtype":")" << tensor.dtype << R"(","shape":[)"
          << shape.str() << R"(],"data_offsets":[)" << missing_ << ',' << missing_ + size << "]}";
    header += entry.str();
    missing_ += size;
  }
  header += "}";
  header.resize((header.size() + 8 + 63) / 64 * 64 - 8, ' ');  // data begin at a multiple of 64
  std::array<unsigned char, 8> length{};
  for (std::size_t i = 0; i < length.size(); ++i)
    length[i] = static_cast<unsigned char>(header.size() >> (8 * i));
  file_ = std::fopen(temporary_.c_str(), "wb");
  if (file_ == nullptr) fail("cannot be written");
  if (std::fwrite(length.data(), 1, length.size(), file_) != length.size() ||
      std::fwrite(header.data(), 1, header.size(), file_) != header.size())
    fail("cannot be written");
}

SafetensorsWriter::~SafetensorsWriter() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(temporary_.c_str());
}

void SafetensorsWriter::fail(char const* what) const {
  throw DataError(temporary_.string() + ": " + what + ": " + std::strerror(errno));
}

void SafetensorsWriter::append(std::span<std::byte const> data) {
  if (data.size() > missing_) throw DataError(temporary_.string() + ": too many data");
  if (std::fwrite(data.data(), 1, data.size(), file_) != data.size()) fail("cannot be written");
  missing_ -= data.size();
}

void SafetensorsWriter::commit() {
  if (missing_ != 0) throw DataError(temporary_.string() + ": data are missing");
  // First the data, then the name: after a loss of power, too, the name leads to a whole file.
  if (std::fflush(file_) != 0 || ::fsync(::fileno(file_)) != 0) fail("cannot be written");
  int const closed = std::fclose(file_);
  file_ = nullptr;
  if (closed != 0) fail("cannot be written");
  std::filesystem::rename(temporary_, path_);
  auto const folder = path_.parent_path();
  int const directory = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (directory < 0) return;
  ::fsync(directory);
  ::close(directory);
}

std::vector<std::int64_t> numbers_of(TrainingState const& s, Config const& c) {
  std::vector<std::int64_t> numbers;
  for (std::uint64_t const number :
       {s.step, s.position, s.seed, s.batch, s.length, std::uint64_t{c.vocabulary},
        std::uint64_t{c.layers}, std::uint64_t{c.hidden}, std::uint64_t{c.heads},
        std::uint64_t{c.kv_heads}, std::uint64_t{c.intermediate}})
    numbers.push_back(static_cast<std::int64_t>(number));
  return numbers;
}

TrainingState read_state(sentence_search::Safetensors const& file,
                         std::filesystem::path const& path, TrainingState const& expected,
                         Config const& config) {
  auto const wanted = numbers_of(expected, config);
  auto const bytes = file.bytes("training.state", "I64", {wanted.size()});
  std::vector<std::int64_t> numbers(wanted.size());
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  for (std::size_t i = 2; i < numbers.size(); ++i) {
    if (numbers[i] != wanted[i])
      throw DataError(path.string() + ": is of a run with " + state_names[i] + " " +
                      std::to_string(numbers[i]) + ", not " + std::to_string(wanted[i]));
  }
  TrainingState state = expected;
  state.step = static_cast<std::uint64_t>(numbers[0]);
  state.position = static_cast<std::uint64_t>(numbers[1]);
  if (numbers[0] < 0 || state.position != state.step * state.batch)
    throw DataError(path.string() + ": step and position do not fit together");
  return state;
}

std::vector<FileTensor> checkpoint_tensors(Config const& config, std::string const& dtype,
                                           std::uint64_t steps) {
  std::uint64_t const size = WeightMap(config).size;
  std::vector<FileTensor> tensors{{"training.state", "I64", {state_names.size()}},
                                  {"training.losses", "F32", {steps}}};
  if (dtype != "F32") tensors.push_back({"optimizer.master", "F32", {size}});
  tensors.push_back({"optimizer.exp_avg", "F32", {size}});
  tensors.push_back({"optimizer.exp_avg_sq", "F32", {size}});
  for (NamedWeight const& weight : named_weights(config))
    tensors.push_back({weight.name, dtype, weight.shape});
  return tensors;
}

}  // namespace llama
