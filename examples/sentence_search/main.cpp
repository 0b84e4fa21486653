// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// sentence_search: finds the passages of a text that are nearest in meaning to a query.
///
/// Everything that can be wrong with files and arguments is checked before Kokkos starts; then the
/// passages are embedded batch by batch, and one matrix product gives the scores.
#include <Kokkos_Core.hpp>
#include <algorithm>
#include <exception>
#include <iomanip>
#include <iostream>
#include <new>
#include <numeric>

#include "bert_config.hpp"
#include "bert_tensors.hpp"
#include "corpus.hpp"
#include "default_paths.hpp"
#include "embedder.hpp"
#include "failure.hpp"
#include "npy.hpp"
#include "operation_times.hpp"
#include "options.hpp"
#include "progress.hpp"
#include "safetensors.hpp"
#include "utf8.hpp"
#include "wordpiece.hpp"

namespace sentence_search {
namespace {

constexpr std::size_t model_max_tokens = 256;  // max_seq_length of sentence_bert_config.json

struct Corpus {
  std::vector<Passage> passages;
  std::vector<Tokens> tokens;
  std::size_t token_count = 0;
};

Corpus tokenize(std::vector<Passage> passages, WordPiece const& vocabulary,
                std::size_t max_tokens) {
  Corpus corpus;
  for (auto const& passage : passages) {
    corpus.tokens.push_back(vocabulary.encode(passage.text, max_tokens));
    corpus.token_count += corpus.tokens.back().size();
  }
  corpus.passages = std::move(passages);
  return corpus;
}

void print_nearest(Corpus const& corpus, std::vector<float> const& scores, std::size_t top) {
  constexpr std::size_t width = 100;
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  order.resize(std::min(order.size(), top));
  std::cout << std::fixed << std::setprecision(4);
  for (std::size_t rank = 0; rank < order.size(); ++rank) {
    auto const& passage = corpus.passages[order[rank]];
    std::cout << std::setw(3) << rank + 1 << ". " << scores[order[rank]] << "  "
              << one_line(passage.origin, width) << "\n     " << one_line(passage.text, width)
              << '\n';
  }
}

void search(Options const& options) {
  auto const start = OperationTimes::Clock::now();
  OperationTimes times;
  BertConfig const config = BertConfig::from_file(options.model / "config.json");
  WordPiece const vocabulary = WordPiece::from_file(options.model / "vocab.txt");
  if (vocabulary.size() != static_cast<std::size_t>(config.vocab_size)) {
    throw DataError((options.model / "vocab.txt").string() + ": holds " +
                    std::to_string(vocabulary.size()) + " tokens but config.json says " +
                    std::to_string(config.vocab_size));
  }
  Safetensors const weights(options.model / "model.safetensors");
  BertTensors const tensors(weights, config);
  auto passages =
      options.corpus ? passages_of_lines(*options.corpus) : passages_of_documentation(options.docs);
  std::size_t const max_tokens =
      std::min(model_max_tokens, static_cast<std::size_t>(config.max_position_embeddings));
  Tokens const query = vocabulary.encode(options.query, max_tokens);
  if (query.size() <= 2) {  // [CLS] and [SEP]
    throw DataError("the query holds nothing but control characters");
  }
  std::optional<NpyWriter> output;
  if (options.embeddings) output.emplace(*options.embeddings);
  times.add("read files", OperationTimes::seconds_since(start));

  auto arguments = options.kokkos_arguments;
  static char name[] = "sentence_search";
  arguments.insert(arguments.begin(), name);
  arguments.push_back(nullptr);
  int count = static_cast<int>(arguments.size()) - 1;
  auto const kokkos_start = OperationTimes::Clock::now();
  Kokkos::ScopeGuard const kokkos(count, arguments.data());
  times.add("start Kokkos", OperationTimes::seconds_since(kokkos_start));
  auto const embedder = make_embedder(options.dtype, tensors, config, times);

  auto const work_start = OperationTimes::Clock::now();
  Corpus const corpus = tokenize(std::move(passages), vocabulary, max_tokens);
  times.add("tokenize", OperationTimes::seconds_since(work_start));
  std::vector<float> vectors;
  {
    Progress progress(corpus.tokens.size());
    vectors = embedder->embed(corpus.tokens, [&](std::size_t done) { progress.update(done); });
  }
  double const work_seconds = OperationTimes::seconds_since(work_start);

  auto const query_vector = embedder->embed({query}, [](std::size_t) {});
  auto const scores = similarities(query_vector, vectors, corpus.tokens.size(), times);
  if (output) output->write(vectors, corpus.tokens.size(), query_vector.size());

  std::cout << "Query: " << one_line(options.query, 100) << "\n\n";
  print_nearest(corpus, scores, options.top);
  auto const per_second = [&](std::size_t n) { return static_cast<double>(n) / work_seconds; };
  std::cout << '\n'
            << corpus.tokens.size() << " sentences, " << corpus.token_count << " tokens in "
            << std::setprecision(3) << work_seconds << " s: " << std::setprecision(1)
            << per_second(corpus.tokens.size()) << " sentences per second, " << std::setprecision(0)
            << per_second(corpus.token_count) << " tokens per second (" << name_of(options.dtype)
            << " on " << Kokkos::DefaultExecutionSpace::name() << ", "
            << Kokkos::DefaultExecutionSpace().concurrency() << " threads)\n\n";
  times.print(std::cout, OperationTimes::seconds_since(start));
}

}  // namespace
}  // namespace sentence_search

int main(int argc, char* argv[]) {
  using namespace sentence_search;
  auto const fail = [](std::exception const& error, int status) {
    // One line, whatever a file was named.
    std::string message = error.what();
    std::replace_if(
        message.begin(), message.end(), [](unsigned char c) { return c < 0x20; }, ' ');
    std::cerr << "sentence_search: " << message << '\n';
    return status;
  };
  try {
    Options defaults;
    defaults.docs = default_docs;
    defaults.model = default_model;
    Options const options = parse_options({argv + 1, argv + argc}, defaults);
    if (options.help) {
      std::cout << help_text;
    } else {
      search(options);
    }
    if (!std::cout.flush()) throw DataError("standard output cannot be written");
  } catch (UsageError const& error) {
    return fail(error, 2);
  } catch (std::bad_alloc const&) {
    return fail(DataError("out of memory"), 1);
  } catch (std::exception const& error) {
    return fail(error, 1);
  }
  return 0;
}
