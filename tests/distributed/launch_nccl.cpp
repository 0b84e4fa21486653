// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ranks over NCCL, a GPU each, without MPI. ATTIKOS_RANK, ATTIKOS_RANKS and ATTIKOS_NCCL_ID, the
// path of a file that is not there yet, say who they are, as run_ranks.py does; under mpiexec the
// third is enough.
#include <cuda_runtime.h>
#include <nccl.h>

#include <attikos/distributed/nccl_transport.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>

#include "distributed/ranks.hpp"

namespace attikos::test {
namespace {

int rank = 0, size = 1;
std::string id_file;

void expect(bool good, char const* what) {
  if (good) return;
  std::fprintf(stderr, "rank %d: %s\n", rank, what);
  std::exit(1);
}
char const* first_of(std::initializer_list<char const*> names) {
  for (char const* name : names)
    if (char const* const value = std::getenv(name)) return value;
  return nullptr;
}

/// Of the first communicator by the file, of others by that.
ncclUniqueId unique_id() {
  ncclUniqueId id{};
  if (rank == 0) expect(ncclGetUniqueId(&id) == ncclSuccess, "ncclGetUniqueId failed");
  if (current_ranks() != nullptr) {
    ranks().transport().broadcast(&id, sizeof id, 0);
  } else if (rank == 0) {
    std::string const part = id_file + ".part";
    std::ofstream(part, std::ios::binary).write(reinterpret_cast<char const*>(&id), sizeof id);
    expect(std::rename(part.c_str(), id_file.c_str()) == 0, "the file of the id was not written");
  } else {
    std::ifstream file;
    for (int turn = 0; turn < 6000 && !file.is_open(); ++turn) {
      file.open(id_file, std::ios::binary);
      if (!file.is_open()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    expect(file.is_open() && file.read(reinterpret_cast<char*>(&id), sizeof id),
           "rank 0 wrote no id within a minute");
  }
  return id;
}

}  // namespace

void begin_ranks(int&, char**&) {
  char const* const mine = first_of({"ATTIKOS_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"});
  char const* const all = first_of({"ATTIKOS_RANKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
  char const* const file = std::getenv("ATTIKOS_NCCL_ID");
  if (mine == nullptr || all == nullptr) return;
  rank = std::atoi(mine);
  size = std::atoi(all);
  expect(file != nullptr, "ATTIKOS_NCCL_ID is not set; expected the path of a file to be written");
  id_file = file;
}
int device_of_this_rank() {
  int devices = 0;
  expect(cudaGetDeviceCount(&devices) == cudaSuccess && devices > 0, "there is no GPU");
  return rank % devices;
}
std::unique_ptr<distributed::Communicator> make_ranks(
    distributed::CommunicatorOptions const& options) {
  ncclUniqueId id{};
  if (size == 1)
    expect(ncclGetUniqueId(&id) == ncclSuccess, "ncclGetUniqueId failed");
  else
    id = unique_id();
  ncclComm_t comm = nullptr;
  expect(ncclCommInitRank(&comm, size, id, rank) == ncclSuccess, "ncclCommInitRank failed");
  auto own = options;
  own.owns_nccl = true;
  return std::make_unique<distributed::Communicator>(comm, own);
}
void end_ranks() {}

}  // namespace attikos::test
