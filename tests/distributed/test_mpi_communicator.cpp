// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a communicator does with the caller's MPI_Comm.
#include <mpi.h>

#include "context_checks.hpp"
#include "thrown.hpp"

namespace attikos::test {
namespace {

TEST(MpiCommunicator, LeavesTheCallersAlone) {
  MPI_Errhandler before = MPI_ERRHANDLER_NULL, after = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &before);
  distributed::Communicator const own(MPI_COMM_WORLD);
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &after);
  EXPECT_EQ(before, after);
  MPI_Errhandler mine = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(own.handle(), &mine);
  EXPECT_EQ(mine, MPI_ERRORS_RETURN);
  int same = MPI_IDENT;
  MPI_Comm_compare(MPI_COMM_WORLD, own.handle(), &same);
  EXPECT_EQ(same, MPI_CONGRUENT);
  EXPECT_EQ(own.handle<MPI_Comm>(), own.handle());
}

TEST(MpiCommunicator, IsEndedByAnErrorOfMpi) {
  distributed::Communicator own(MPI_COMM_WORLD);
  auto const text = thrown<CommunicationError>([&] {
    own.check("MPI_Send", MPI_Send(nullptr, 0, MPI_BYTE, own.size() + 5, 0, own.handle()));
  });
  EXPECT_NE(text.find("MPI_Send on rank"), std::string::npos) << text;
  EXPECT_FALSE(own.alive());
  Shards const shards = Shards::zigzag(40, ranks().size());
  ContextCase const usual{2, 4, 4, 8, 8, shards, {.strategy = Strategy::ring}};
  ContextRun<float> run(usual);
  EXPECT_NE(thrown<CommunicationError>([&] {
              distributed::attention(Kokkos::DefaultExecutionSpace(), own, shards,
                                     run.q.const_view(), run.k.const_view(), run.v.const_view(),
                                     run.out.view(), usual.options);
            }).find("the communicator is dead"),
            std::string::npos);
}

}  // namespace
}  // namespace attikos::test
