// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "parameters.hpp"

#include <cmath>

namespace block_oracle {
namespace {

// splitmix64: the distributions of the standard library differ between machines.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  double uniform(double limit) {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return limit * (static_cast<double>(z >> 11) * 0x1p-52 - 1);
  }

 private:
  std::uint64_t state_;
};

double in_float(double value) { return static_cast<double>(static_cast<float>(value)); }

}  // namespace

WeightMap::WeightMap(Config const& c)
    : shapes{{{"embedding", c.vocabulary, c.hidden, 0},
              {"attention norm", 1, c.hidden, 0},
              {"qkv", c.qkv_width(), c.hidden, 0},
              {"attention out", c.hidden, c.context_width(), 0},
              {"mlp norm", 1, c.hidden, 0},
              {"gate", c.intermediate, c.hidden, 0},
              {"up", c.intermediate, c.hidden, 0},
              {"down", c.hidden, c.intermediate, 0},
              {"final norm", 1, c.hidden, 0},
              {"head", c.vocabulary, c.hidden, 0}}} {
  std::size_t offset = 0;
  for (WeightShape& shape : shapes) {
    shape.offset = offset;
    offset += shape.size();
  }
}

std::vector<double> initial_weights(Config const& config, std::uint64_t seed) {
  WeightMap const map(config);
  Random random(seed);
  std::vector<double> weights(map.size(), 1.0);  // the normalizations' stay 1
  for (WeightShape const& shape : map.shapes) {
    if (shape.rows == 1) continue;
    // Rows of a matrix have unit length on average; so have the features of a token.
    bool const embedding = shape.offset == map[Weight::embedding].offset;
    double const limit = std::sqrt(3.0 / (embedding ? 1.0 : static_cast<double>(shape.cols)));
    for (std::size_t i = 0; i < shape.size(); ++i)
      weights[shape.offset + i] = in_float(random.uniform(limit));
  }
  return weights;
}

RotaryTables::RotaryTables(Config const& config) {
  std::size_t const half = config.head_dim / 2;
  for (std::size_t position = 0; position < config.max_positions; ++position) {
    for (std::size_t i = 0; i < config.head_dim; ++i) {
      double const exponent = static_cast<double>(i % half) / static_cast<double>(half);
      double const angle = static_cast<double>(position) * std::pow(config.rope_base, -exponent);
      cos.push_back(in_float(std::cos(angle)));
      sin.push_back(in_float(std::sin(angle)));
    }
  }
}

}  // namespace block_oracle
