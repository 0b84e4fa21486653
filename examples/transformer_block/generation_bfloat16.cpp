// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "generation_impl.hpp"

namespace transformer_block {

template Generation generate<attikos::bfloat16>(Config const&, std::vector<double> const&,
                                                std::vector<std::int32_t> const&, std::size_t);
template Agreement compare_passes<attikos::bfloat16>(Config const&, std::vector<double> const&,
                                                     Generation const&);

}  // namespace transformer_block
