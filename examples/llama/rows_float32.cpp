// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "rows.hpp"

namespace llama {

LLAMA_ROWS(float);

}  // namespace llama
