// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include <attikos/list_kernels.hpp>
#include <string_view>

#include "entry.hpp"
#include "explanation.hpp"

namespace attikos::c {
namespace {

std::vector<KernelInfo> kernels_of(std::string_view operation) {
  if (operation == "gemm") return list_kernels(op::gemm);
  if (operation == "attention") return list_kernels(op::attention);
  if (operation == "attention_backward") return list_kernels(op::attention_backward);
  if (operation == "decode") return list_kernels(op::decode);
  if (operation == "append_kv") return list_kernels(op::append_kv);
  if (operation == "gated_mlp") return list_kernels(op::gated_mlp);
  fail(ATTIKOS_INVALID_ARGUMENT, "list_kernels: operation is \"", operation,
       "\"; expected \"gemm\", \"attention\", \"attention_backward\", \"decode\", \"append_kv\" or "
       "\"gated_mlp\"");
}

}  // namespace

attikos_status write_kernels(char const* operation, char* text, size_t size,
                             size_t* length) noexcept {
  return guarded([&] {
    if (operation == nullptr)
      fail(ATTIKOS_NULL_ARGUMENT, "list_kernels: the operation is null; expected its name");
    TextResult const result{text, size, length};
    result.check("list_kernels");
    std::string lines;
    for (auto const& kernel : kernels_of(operation))
      lines += kernel.name + ": " + kernel.description + "\n";
    result.put(lines);
  });
}

}  // namespace attikos::c
