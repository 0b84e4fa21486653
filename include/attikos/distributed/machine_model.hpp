// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// MachineModel: what the choice between strategies goes by.
#pragma once

#include <attikos/config.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace distributed {

/// What the caller knows of processors and links; the same on all ranks. The defaults are those of
/// a few processor cores on a network of 10 GB/s.
struct MachineModel {
  double latency = 5e-6;         ///< seconds a message
  double bandwidth = 10e9;       ///< bytes a second that a rank sends, and receives, at once
  double operations = 100e9;     ///< floating-point operations a second of a rank's attention
  double copy_bandwidth = 10e9;  ///< bytes a second of a copy within a rank's memory
  int ranks_per_node = 1;        ///< neighboring ranks that have faster links among themselves
  double node_latency = 0;       ///< seconds a message within a node; 0: as between nodes
  double node_bandwidth = 0;     ///< bytes a second within a node; 0: as between nodes
};

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
