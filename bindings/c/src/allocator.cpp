// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "context.hpp"

extern "C" {

using namespace attikos::c;

attikos_status attikos_context_set_allocator(attikos_context* context,
                                             attikos_allocate_function allocate,
                                             attikos_release_function release, void* user) {
  return guarded([&] {
    if (context == nullptr) fail(ATTIKOS_NULL_ARGUMENT, "context: the context is null");
    if ((allocate == nullptr) != (release == nullptr))
      fail(ATTIKOS_NULL_ARGUMENT,
           "context: of allocate and release one is null; expected both functions or none");
    context->memory = {allocate, release, user};
  });
}
}
