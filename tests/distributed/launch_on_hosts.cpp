// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks of mpiexec. ATTIKOS_TEST_TRANSPORT=nccl: they send through the NCCL transport, over what
// stands in for NCCL on hosts.
#include <mpi.h>
#include <nccl.h>

#include <attikos/distributed/mpi_transport.hpp>
#include <attikos/distributed/nccl_transport.hpp>
#include <cstdlib>
#include <string_view>

#include "distributed/ranks.hpp"

namespace attikos::test {

void begin_ranks(int& argc, char**& argv) {
  int provided = 0;
  if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) std::exit(1);
}
int device_of_this_rank() { return -1; }

std::unique_ptr<distributed::Communicator> make_ranks(
    distributed::CommunicatorOptions const& options) {
  char const* const transport = std::getenv("ATTIKOS_TEST_TRANSPORT");
  if (transport == nullptr || std::string_view(transport) != "nccl")
    return std::make_unique<distributed::Communicator>(MPI_COMM_WORLD, options);
  auto own = options;
  own.owns_nccl = true;
  return std::make_unique<distributed::Communicator>(nccl_on_hosts::make_communicator(), own);
}
void end_ranks() { MPI_Finalize(); }

}  // namespace attikos::test
