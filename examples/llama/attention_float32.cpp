// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention.hpp"

namespace llama {

LLAMA_ATTENTION(float);

}  // namespace llama
