// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Models of one layer as the oracle has them, and models of several.
#pragma once

#include <cstdint>
#include <vector>

#include "config.hpp"
#include "oracle_cases.hpp"
#include "trainer.hpp"

namespace llama::test {

using block_oracle::test::Case;

inline Config config_of(block_oracle::Config const& c) {
  Config config;
  config.vocabulary = c.vocabulary;
  config.layers = 1;
  config.hidden = c.hidden;
  config.heads = c.heads_q;
  config.kv_heads = c.heads_kv;
  config.head_dim = c.head_dim;
  config.intermediate = c.intermediate;
  return config;
}

/// An oracle's case, and the text that it is cut from.
struct TextCase {
  Case oracle;
  std::vector<std::int32_t> text;
  std::vector<std::int64_t> begins;
};

inline std::vector<TextCase> text_cases() {
  std::vector<TextCase> result;
  for (Case const& c : block_oracle::test::cases()) {
    TextCase t{c, c.tokens, {}};
    t.text.push_back(c.targets.back());
    for (std::size_t b = 0; b < c.batch; ++b)
      t.begins.push_back(static_cast<std::int64_t>(b * c.seqlen));
    result.push_back(t);
  }
  return result;
}

inline TrainingOptions options_of(Case const& c, bool keep_mlp) {
  TrainingOptions options;
  options.batch = c.batch;
  options.length = c.seqlen;
  options.steps = 1;
  options.warmup = 0;
  options.keep_mlp = keep_mlp;
  return options;
}

template <class T>
std::vector<double> to_host(Array<T> const& array) {
  auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), array);
  std::vector<double> values(host.size());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(host(i));
  return values;
}

template <class T>
void to_device(Array<T> const& array, std::vector<double> const& values) {
  auto const host = Kokkos::create_mirror_view(Kokkos::HostSpace(), array);
  for (std::size_t i = 0; i < values.size(); ++i) host(i) = static_cast<T>(values[i]);
  Kokkos::deep_copy(array, host);
}

/// Weights of several layers that are large enough for every gradient to matter.
inline Config several_layers() {
  Config config;
  config.vocabulary = 13;
  config.layers = 3;
  config.hidden = 12;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_dim = 2;
  config.intermediate = 10;
  return config;
}

inline std::vector<double> random_weights(Config const& config, double limit) {
  attikos::test::Random random(5);
  std::vector<double> weights(WeightMap(config).size);
  for (double& w : weights) w = limit * static_cast<double>(random.integer(-1000, 1000)) / 1000;
  return weights;
}

}  // namespace llama::test
