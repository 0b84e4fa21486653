// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "rows.hpp"

namespace llama {

LLAMA_ROWS(attikos::bfloat16);

}  // namespace llama
