// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The symbol that ties this companion to the headers of its own version; see
// attikos/abi/device.hpp.
#include <attikos/abi/device.hpp>

extern "C" {
int ATTIKOS_COMPANION_TAG = 1;
}
