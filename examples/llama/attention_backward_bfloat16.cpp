// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attention_backward.hpp"

namespace llama {

LLAMA_ATTENTION_BACKWARD(attikos::bfloat16);

}  // namespace llama
