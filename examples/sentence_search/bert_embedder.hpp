// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The encoder: every matrix product, attention, normalization, activation and pooling is an
/// Attikos call. Source of the architecture: Devlin et al. 2019 (arXiv:1810.04805); of mean pooling
/// and the final normalization: Reimers and Gurevych 2019 (arXiv:1908.10084) and the model's own
/// modules.json.
#pragma once

#include <Kokkos_Core.hpp>
#include <algorithm>
#include <attikos/attikos.hpp>
#include <cstdint>
#include <string>
#include <utility>

#include "embedder.hpp"

namespace sentence_search {

/// Memory of the default execution space, row after row.
using Exec = Kokkos::DefaultExecutionSpace;
template <class Data>
using Tensor = Kokkos::View<Data, Kokkos::LayoutRight, Exec>;

/// A tensor whose elements nobody has written yet.
template <class Data, class... Extents>
Tensor<Data> allocate(std::string const& label, Extents... extents) {
  return Tensor<Data>(Kokkos::view_alloc(Kokkos::WithoutInitializing, label),
                      static_cast<std::size_t>(extents)...);
}

/// Sum of the word, position and type embeddings of every token; sequences are [seqlen] tokens
/// long.
template <class T>
struct GatherEmbeddings {
  Tensor<std::int32_t*> tokens;  // [rows], padding included
  Tensor<T**> words, positions, types;
  Tensor<T**> out;  // [rows, hidden]
  std::int64_t seqlen;

  using Team = typename Kokkos::TeamPolicy<Exec>::member_type;
  KOKKOS_FUNCTION void operator()(Team const& team) const {
    std::int64_t const row = team.league_rank();
    std::int64_t const position = row % seqlen;
    std::int32_t const word = tokens(row);
    Kokkos::parallel_for(Kokkos::TeamVectorRange(team, out.extent_int(1)), [&](int h) {
      float const sum = static_cast<float>(words(word, h)) + static_cast<float>(types(0, h)) +
                        static_cast<float>(positions(position, h));
      out(row, h) = static_cast<T>(sum);
    });
  }
};

template <class T>
class BertEmbedder final : public Embedder {
 public:
  BertEmbedder(BertTensors const& tensors, BertConfig const& config, OperationTimes& times);

  std::vector<float> embed(std::vector<Tokens> const& texts,
                           std::function<void(std::size_t)> const& progress) override;

 private:
  using Matrix = Tensor<T**>;
  // Biases and the weights of the normalizations stay float32: they are few, and rounding them
  // saves nothing.
  using Vector = Tensor<float*>;
  using Values = BertTensors::Values;
  struct Linear {
    Matrix weight;  // [out, in]
    Vector bias;    // [out]
  };
  struct Norm {
    Vector weight, bias;
  };
  struct Layer {
    Linear qkv, attention_output, intermediate, output;
    Norm attention_norm, output_norm;
  };
  // What lies between the operations. Allocated once for the largest batch; a batch uses the front.
  struct Buffers {
    Tensor<std::int32_t*> tokens, lengths;
    Matrix hidden, qkv, context, intermediate;
    Tensor<float**> pooled;
  };

  static constexpr std::size_t max_batch_tokens = 4096;

  Matrix load(char const* label, std::vector<Values> const& parts, std::int64_t columns);
  template <class Element>
  Tensor<Element*> load_vector(char const* label, std::vector<Values> const& parts);
  Linear load(BertTensors::Linear const& linear, std::int64_t in);
  Norm load(BertTensors::Norm const& norm);

  void reserve(std::vector<Batch> const& batches);
  void run(std::int64_t batch, std::int64_t seqlen, double attended);
  void multiply(Matrix const& x, Linear const& linear, Matrix const& y,
                attikos::Activation activation = attikos::Activation::none);
  void multiply_and_add(Matrix const& x, Linear const& linear, Matrix const& sum);
  void attend(Matrix const& qkv, Matrix const& context, std::int64_t batch, std::int64_t seqlen,
              double attended);
  void normalize(Matrix const& x, Norm const& norm);

  // The operations are asynchronous; the fence is what makes the time measurable.
  template <class Function>
  void timed(char const* operation, double flops, Function const& function) {
    auto const start = OperationTimes::Clock::now();
    function();
    exec_.fence("sentence_search: end of a measured operation");
    times_.add(operation, OperationTimes::seconds_since(start), flops);
  }

  static double flops(Matrix const& x, Linear const& linear) {
    return 2.0 * static_cast<double>(x.extent(0)) * static_cast<double>(linear.weight.size());
  }

  static Kokkos::pair<std::size_t, std::size_t> first(std::int64_t count) {
    return {0, static_cast<std::size_t>(count)};
  }
  static Matrix rows(Matrix const& matrix, std::int64_t count) {
    return Kokkos::subview(matrix, first(count), Kokkos::ALL);
  }

  BertConfig config_;
  OperationTimes& times_;
  Exec exec_;
  Matrix words_, positions_, types_;
  Norm embedding_norm_;
  std::vector<Layer> layers_;
  Buffers buffers_;
};

template <class T>
BertEmbedder<T>::BertEmbedder(BertTensors const& tensors, BertConfig const& config,
                              OperationTimes& times)
    : config_(config), times_(times) {
  timed("load weights", 0, [&] {
    std::int64_t const hidden = config.hidden_size;
    words_ = load("word embeddings", {tensors.word_embeddings}, hidden);
    positions_ = load("position embeddings", {tensors.position_embeddings}, hidden);
    types_ = load("type embeddings", {tensors.type_embeddings}, hidden);
    embedding_norm_ = load(tensors.embedding_norm);
    for (auto const& layer : tensors.layers) {
      // The three projections of one input become one product.
      Linear const qkv{
          load("qkv", {layer.query.weight, layer.key.weight, layer.value.weight}, hidden),
          load_vector<float>("qkv bias", {layer.query.bias, layer.key.bias, layer.value.bias})};
      layers_.push_back({.qkv = qkv,
                         .attention_output = load(layer.attention_output, hidden),
                         .intermediate = load(layer.intermediate, hidden),
                         .output = load(layer.output, config.intermediate_size),
                         .attention_norm = load(layer.attention_norm),
                         .output_norm = load(layer.output_norm)});
    }
  });
}

template <class T>
template <class Element>
Tensor<Element*> BertEmbedder<T>::load_vector(char const* label, std::vector<Values> const& parts) {
  std::size_t size = 0;
  for (auto const part : parts) size += part.size();
  auto view = allocate<Element*>(label, size);
  auto const host = Kokkos::create_mirror_view(view);
  std::size_t at = 0;
  for (auto const part : parts) {
    for (float const value : part) host(at++) = static_cast<Element>(value);
  }
  Kokkos::deep_copy(exec_, view, host);
  exec_.fence("sentence_search: the mirror goes away");
  return view;
}

template <class T>
typename BertEmbedder<T>::Matrix BertEmbedder<T>::load(char const* label,
                                                       std::vector<Values> const& parts,
                                                       std::int64_t columns) {
  // Rows lie one behind the other, so parts stacked along the rows are parts of one vector.
  auto const flat = load_vector<T>(label, parts);
  auto const width = static_cast<std::size_t>(columns);
  auto matrix = allocate<T**>(label, flat.size() / width, width);
  Kokkos::deep_copy(exec_, Tensor<T*>(matrix.data(), flat.size()), flat);
  return matrix;
}

template <class T>
typename BertEmbedder<T>::Linear BertEmbedder<T>::load(BertTensors::Linear const& linear,
                                                       std::int64_t in) {
  return {load("weight", {linear.weight}, in), load_vector<float>("bias", {linear.bias})};
}

template <class T>
typename BertEmbedder<T>::Norm BertEmbedder<T>::load(BertTensors::Norm const& norm) {
  return {load_vector<float>("norm weight", {norm.weight}),
          load_vector<float>("norm bias", {norm.bias})};
}

template <class T>
void BertEmbedder<T>::multiply(Matrix const& x, Linear const& linear, Matrix const& y,
                               attikos::Activation activation) {
  timed("gemm", flops(x, linear), [&] {
    attikos::gemm(exec_, x, linear.weight, y, {.trans_b = true, .activation = activation},
                  attikos::bias(linear.bias));
  });
}

// sum += x·weightᵀ + bias
template <class T>
void BertEmbedder<T>::multiply_and_add(Matrix const& x, Linear const& linear, Matrix const& sum) {
  timed("gemm", flops(x, linear), [&] {
    attikos::gemm(exec_, x, linear.weight, sum, {.trans_b = true}, attikos::bias(linear.bias),
                  attikos::residual(sum));
  });
}

template <class T>
void BertEmbedder<T>::attend(Matrix const& qkv, Matrix const& context, std::int64_t batch,
                             std::int64_t seqlen, double attended) {
  auto const heads = static_cast<std::size_t>(config_.num_attention_heads);
  auto const head_dim = static_cast<std::size_t>(config_.head_dim());
  auto const sequences = static_cast<std::size_t>(batch), length = static_cast<std::size_t>(seqlen);
  // [batch, heads, seqlen, head_dim] as strides over rows of `width` elements: no transposition is
  // ever made.
  auto const by_head = [&](T* data, std::size_t width) {
    return Kokkos::View<T****, Kokkos::LayoutStride, Exec, Kokkos::MemoryUnmanaged>(
        data, Kokkos::LayoutStride(sequences, length * width, heads, head_dim, length, width,
                                   head_dim, 1));
  };
  std::size_t const hidden = heads * head_dim;
  auto const query = by_head(qkv.data(), 3 * hidden);
  auto const key = by_head(qkv.data() + hidden, 3 * hidden);
  auto const value = by_head(qkv.data() + 2 * hidden, 3 * hidden);
  auto const out = by_head(context.data(), hidden);
  auto const lengths = Kokkos::subview(buffers_.lengths, first(batch));
  timed("attention", 4.0 * attended * static_cast<double>(hidden), [&] {
    attikos::attention(exec_, query, key, value, out, {}, attikos::lengths(lengths, lengths));
  });
}

template <class T>
void BertEmbedder<T>::normalize(Matrix const& x, Norm const& norm) {
  timed("layer_norm", 0, [&] {
    attikos::layer_norm(exec_, x, norm.weight, norm.bias, x, {.eps = config_.layer_norm_eps});
  });
}

// One batch whose tokens and lengths are in the buffers. `attended` is the sum of the squared
// lengths.
template <class T>
void BertEmbedder<T>::run(std::int64_t batch, std::int64_t seqlen, double attended) {
  std::int64_t const tokens = batch * seqlen;
  Matrix const hidden = rows(buffers_.hidden, tokens);
  Matrix const qkv = rows(buffers_.qkv, tokens);
  Matrix const context = rows(buffers_.context, tokens);
  Matrix const intermediate = rows(buffers_.intermediate, tokens);
  timed("embedding", 0, [&] {
    Kokkos::parallel_for(
        "sentence_search: embedding",
        Kokkos::TeamPolicy<Exec>(exec_, static_cast<int>(tokens), Kokkos::AUTO),
        GatherEmbeddings<T>{buffers_.tokens, words_, positions_, types_, hidden, seqlen});
  });
  normalize(hidden, embedding_norm_);
  for (auto const& layer : layers_) {
    multiply(hidden, layer.qkv, qkv);
    attend(qkv, context, batch, seqlen, attended);
    multiply_and_add(context, layer.attention_output, hidden);
    normalize(hidden, layer.attention_norm);
    multiply(hidden, layer.intermediate, intermediate, attikos::Activation::gelu);
    multiply_and_add(intermediate, layer.output, hidden);
    normalize(hidden, layer.output_norm);
  }
  Tensor<float**> const pooled = Kokkos::subview(buffers_.pooled, first(batch), Kokkos::ALL);
  Tensor<T***> const sequences(hidden.data(), static_cast<std::size_t>(batch),
                               static_cast<std::size_t>(seqlen), hidden.extent(1));
  timed("mean_pool", 0, [&] {
    attikos::mean_pool(exec_, sequences, pooled, {},
                       attikos::lengths(Kokkos::subview(buffers_.lengths, first(batch))));
  });
  timed("l2_normalize", 0, [&] { attikos::l2_normalize(exec_, pooled, pooled); });
}

template <class T>
void BertEmbedder<T>::reserve(std::vector<Batch> const& batches) {
  std::size_t tokens = 0, texts = 0;
  for (auto const& batch : batches) {
    tokens = std::max(tokens, batch.texts.size() * batch.seqlen);
    texts = std::max(texts, batch.texts.size());
  }
  if (buffers_.tokens.extent(0) >= tokens && buffers_.lengths.extent(0) >= texts) return;
  std::int64_t const hidden = config_.hidden_size;
  buffers_ = {};  // frees the old ones first
  buffers_ = {.tokens = allocate<std::int32_t*>("tokens", tokens),
              .lengths = allocate<std::int32_t*>("lengths", texts),
              .hidden = allocate<T**>("hidden", tokens, hidden),
              .qkv = allocate<T**>("qkv", tokens, 3 * hidden),
              .context = allocate<T**>("context", tokens, hidden),
              .intermediate = allocate<T**>("intermediate", tokens, config_.intermediate_size),
              .pooled = allocate<float**>("pooled", texts, hidden)};
}

template <class T>
std::vector<float> BertEmbedder<T>::embed(std::vector<Tokens> const& texts,
                                          std::function<void(std::size_t)> const& progress) {
  auto const batches = plan_batches(texts, max_batch_tokens);
  reserve(batches);
  auto const tokens = Kokkos::create_mirror_view(buffers_.tokens);
  auto const lengths = Kokkos::create_mirror_view(buffers_.lengths);
  auto const pooled = Kokkos::create_mirror_view(buffers_.pooled);
  auto const width = static_cast<std::size_t>(config_.hidden_size);
  std::vector<float> vectors(texts.size() * width);
  std::size_t done = 0;
  for (auto const& batch : batches) {
    double attended = 0;
    timed("copies", 0, [&] {
      Kokkos::deep_copy(tokens, 0);  // [PAD], any token will do
      for (std::size_t i = 0; i < batch.texts.size(); ++i) {
        Tokens const& text = texts[batch.texts[i]];
        std::copy(text.begin(), text.end(), tokens.data() + i * batch.seqlen);
        lengths(i) = static_cast<std::int32_t>(text.size());
        attended += static_cast<double>(text.size()) * static_cast<double>(text.size());
      }
      Kokkos::deep_copy(exec_, buffers_.tokens, tokens);
      Kokkos::deep_copy(exec_, buffers_.lengths, lengths);
    });
    run(static_cast<std::int64_t>(batch.texts.size()), static_cast<std::int64_t>(batch.seqlen),
        attended);
    timed("copies", 0, [&] {
      Kokkos::deep_copy(exec_, pooled, buffers_.pooled);
      exec_.fence("sentence_search: vectors are on the host");
      for (std::size_t i = 0; i < batch.texts.size(); ++i) {
        std::copy_n(pooled.data() + i * width, width, vectors.data() + batch.texts[i] * width);
      }
    });
    done += batch.texts.size();
    progress(done);
  }
  return vectors;
}

}  // namespace sentence_search
