// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A file of its own, so that the element types compile beside each other.
#include "bert_embedder.hpp"

namespace sentence_search {

template class BertEmbedder<attikos::bfloat16>;

}  // namespace sentence_search
