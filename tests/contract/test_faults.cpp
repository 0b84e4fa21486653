// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory that cannot be had, by count: the n-th allocation of a call fails, for n = 0, 1, … until
// the call wants fewer. Each time the call says so, has written nothing and has left nothing
// behind, and the next one works. A call whose workspace is there wants none.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <new>
#include <string>

#include "../support/backends.hpp"
#include "../support/failing_allocator.hpp"
#include "operations.hpp"

namespace attikos::test {
namespace {

/// Whether a call met the fault and threw what it should.
template <class F>
bool runs_out(long nth, F const& call, std::string const& what) {
  try {
    EXPECT_FALSE(fails(nth, call)) << what << " did not say that memory could not be had";
    return false;
  } catch (ResourceError const&) {
  } catch (std::bad_alloc const&) {
  } catch (std::exception const& error) {
    ADD_FAILURE() << what << " threw " << error.what();
  }
  return true;
}

template <class C>
class Faults : public testing::Test {};
using FaultTypes = List<float, bfloat16>;
TYPED_TEST_SUITE(Faults, Cases<FaultTypes>, CaseName);

TYPED_TEST(Faults, OfMemoryLeaveEverythingAsItWas) {
  using Exec = typename TypeParam::Exec;
  Exec const exec;
  long faults = 0;
  for (auto const& operation : operations<Exec, typename TypeParam::T>()) {
    // Kokkos's scratch of teams grows in the first call. It is not the library's: an instance of
    // Kokkos 4.7 whose scratch cannot grow is lost, with what was freed for it still in use.
    operation.output.clear();
    operation.call(exec);
    auto const right = operation.output.bytes();
    operation.output.clear();
    EXPECT_FALSE(runs_out(
        0, [&] { operation.call(exec); }, operation.name))
        << operation.name << " wants memory in each call";
    operation.output.clear();
    auto const untouched = operation.output.bytes();
    for (long n = 0; n < 100 && !this->HasFailure(); ++n, ++faults) {
      std::string const what = operation.name + ", allocation " + std::to_string(n);
      detail::forget_workspaces(exec);
      long const before = alive;
      bool const failed = runs_out(
          n, [&] { operation.call(exec); }, what);
      exec.fence();
      if (!failed) break;
      detail::forget_workspaces(exec);
      EXPECT_EQ(alive, before) << what << " left memory behind";
      EXPECT_TRUE(operation.output.bytes() == untouched) << what << " has written";
      operation.call(exec);
      EXPECT_TRUE(operation.output.bytes() == right) << what << ": the call after it is wrong";
      operation.output.clear();
    }
  }
  EXPECT_GT(faults, 0) << "nothing wanted memory; is this program's operator new in use?";
}

}  // namespace
}  // namespace attikos::test
