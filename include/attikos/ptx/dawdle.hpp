// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Where tests that hunt races put their delays: before arrivals at barriers and after waits.
#pragma once

#ifndef ATTIKOS_DAWDLE
#define ATTIKOS_DAWDLE() static_cast<void>(0)
#endif
