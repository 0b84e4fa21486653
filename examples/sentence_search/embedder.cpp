// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "embedder.hpp"

#include "bert_embedder.hpp"

namespace sentence_search {

extern template class BertEmbedder<float>;
extern template class BertEmbedder<attikos::bfloat16>;
extern template class BertEmbedder<attikos::float16>;

std::unique_ptr<Embedder> make_embedder(ElementType type, BertTensors const& tensors,
                                        BertConfig const& config, OperationTimes& times) {
  switch (type) {
    case ElementType::bfloat16:
      return std::make_unique<BertEmbedder<attikos::bfloat16>>(tensors, config, times);
    case ElementType::float16:
      return std::make_unique<BertEmbedder<attikos::float16>>(tensors, config, times);
    case ElementType::float32:
      break;
  }
  return std::make_unique<BertEmbedder<float>>(tensors, config, times);
}

std::vector<float> similarities(std::vector<float> const& query, std::vector<float> const& vectors,
                                std::size_t count, OperationTimes& times) {
  using Host =
      Kokkos::View<float const**, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>;
  Exec const exec;
  std::size_t const hidden = query.size();
  auto const all = allocate<float**>("passages", count, hidden);
  auto const one = allocate<float**>("query", 1, hidden);
  auto const scores = allocate<float**>("scores", 1, count);
  Kokkos::deep_copy(exec, all, Host(vectors.data(), count, hidden));
  Kokkos::deep_copy(exec, one, Host(query.data(), 1, hidden));
  exec.fence("sentence_search: end of the copies");
  auto const start = OperationTimes::Clock::now();
  attikos::gemm(exec, one, all, scores, {.trans_b = true});
  exec.fence("sentence_search: end of a measured operation");
  times.add("similarity", OperationTimes::seconds_since(start),
            2.0 * static_cast<double>(count) * static_cast<double>(hidden));
  std::vector<float> result(count);
  Kokkos::deep_copy(
      exec,
      Kokkos::View<float**, Kokkos::LayoutRight, Kokkos::HostSpace, Kokkos::MemoryUnmanaged>(
          result.data(), 1, count),
      scores);
  exec.fence("sentence_search: scores are on the host");
  return result;
}

}  // namespace sentence_search
