// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "products.hpp"

namespace llama {

LLAMA_PRODUCTS(float);

}  // namespace llama
