// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The model in float64, in which the oracle's bounds are sharp.
#include "attention.hpp"
#include "attention_backward.hpp"
#include "products.hpp"
#include "rows.hpp"

namespace llama {

LLAMA_ATTENTION(double);
LLAMA_ATTENTION_BACKWARD(double);
LLAMA_PRODUCTS(double);
LLAMA_ROWS(double);

}  // namespace llama
