// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The communicator of a test program, whatever it sends through. How ranks come to be is said by
// the launch_*.cpp that a program is linked with.
#pragma once

#include <attikos/distributed/communicator.hpp>
#include <cstring>
#include <memory>
#include <vector>

namespace attikos::test {

inline distributed::Communicator*& current_ranks() {
  static distributed::Communicator* communicator = nullptr;
  return communicator;
}
inline distributed::Communicator& ranks() { return *current_ranks(); }

/// Before Kokkos. What is left of the arguments is GoogleTest's.
void begin_ranks(int& argc, char**& argv);
/// Number of the rank's device, -1 where there is none to choose.
int device_of_this_rank();
/// A communicator over all ranks, which all of them make together.
std::unique_ptr<distributed::Communicator> make_ranks(
    distributed::CommunicatorOptions const& options = {});
/// After Kokkos.
void end_ranks();

/// While it lives ranks() is another communicator over them.
class OtherRanks {
 public:
  explicit OtherRanks(distributed::CommunicatorOptions const& options)
      : others_(make_ranks(options)), before_(current_ranks()) {
    current_ranks() = others_.get();
  }
  ~OtherRanks() { current_ranks() = before_; }
  OtherRanks(OtherRanks const&) = delete;
  OtherRanks& operator=(OtherRanks const&) = delete;

 private:
  std::unique_ptr<distributed::Communicator> others_;
  distributed::Communicator* before_;
};

/// What rank 0 has.
template <class T>
std::vector<T> of_first_rank(std::vector<T> values) {
  ranks().transport().broadcast(values.data(), static_cast<int>(values.size() * sizeof(T)), 0);
  return values;
}
/// Of what all ranks have.
inline std::int64_t largest(std::int64_t mine) {
  std::int64_t const negative = -mine;
  std::int64_t least = 0;
  ranks().transport().minimum(&negative, &least, 1);
  return -least;
}
inline void wait_for_all_ranks() { largest(0); }
/// Element by element, in the order of ranks.
inline std::vector<float> sum_over_ranks(std::vector<float> const& mine) {
  std::vector<float> all(mine.size() * static_cast<std::size_t>(ranks().size()));
  ranks().transport().gather(mine.data(), all.data(),
                             static_cast<int>(mine.size() * sizeof(float)));
  std::vector<float> sum(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(mine.size()));
  for (std::size_t i = mine.size(); i < all.size(); ++i) sum[i % mine.size()] += all[i];
  return sum;
}

}  // namespace attikos::test
