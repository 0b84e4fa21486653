// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// What all ranks find out together before the first transfer of a call: whether they ask for the
/// same, and whether one of them cannot go on.
#pragma once

#include <algorithm>
#include <array>
#include <attikos/distributed/communicator.hpp>
#include <attikos/distributed/fingerprint.hpp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <new>
#include <string>
#include <vector>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Which operation a call is. Numbers stay what they are: ranks compare them.
enum class DistributedOperation : std::int64_t {
  attention = 1,
  attention_backward = 2,
  decode = 3,
  column_parallel_gemm = 4,
  row_parallel_gemm = 5,
  gated_mlp = 6,
  redistribute = 7
};

inline char const* distributed_name(std::int64_t operation) {
  switch (static_cast<DistributedOperation>(operation)) {
    case DistributedOperation::attention:
      return "distributed::attention";
    case DistributedOperation::attention_backward:
      return "distributed::attention_backward";
    case DistributedOperation::decode:
      return "distributed::decode";
    case DistributedOperation::column_parallel_gemm:
      return "distributed::column_parallel_gemm";
    case DistributedOperation::row_parallel_gemm:
      return "distributed::row_parallel_gemm";
    case DistributedOperation::gated_mlp:
      return "distributed::gated_mlp";
    case DistributedOperation::redistribute:
      return "distributed::redistribute";
  }
  return "another operation";
}

/// What kind of error a rank has, in the order in which types are told apart.
enum class RankFailure : std::int64_t {
  none,
  shape,
  dtype,
  stride,
  device,
  unsupported,
  resource,
  error
};

[[noreturn]] inline void throw_failure(RankFailure failure, std::string const& text) {
  switch (failure) {
    case RankFailure::shape:
      throw ShapeError(text);
    case RankFailure::dtype:
      throw DtypeError(text);
    case RankFailure::stride:
      throw StrideError(text);
    case RankFailure::device:
      throw DeviceError(text);
    case RankFailure::unsupported:
      throw UnsupportedError(text);
    case RankFailure::resource:
      throw ResourceError(text);
    case RankFailure::none:
    case RankFailure::error:
      break;
  }
  throw Error(text);
}

/// An argument that all ranks have to give alike, as a number, and how a message shows it.
struct CommonArgument {
  std::string name;
  std::int64_t value;
  RankFailure failure = RankFailure::shape;  ///< what a difference is
  bool shown = true;                         ///< whether the number says something to the user
};

/// A double as a number of its own.
inline std::int64_t number_of(double value) {
  std::int64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}
inline std::int64_t number_of(char const* text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (; text != nullptr && *text != '\0'; ++text)
    hash = (hash ^ static_cast<unsigned char>(*text)) * 0x100000001b3u;
  return static_cast<std::int64_t>(hash >> 1);
}

/// Runs `prepare` on every rank, which checks the rank's own arguments, gets its memory and fills
/// in what all ranks have to have in common. Then one reduction over all ranks: if one of them
/// failed, or they differ in the operation or an argument, all throw the same error, which names
/// the lowest such rank. Nothing has been sent or written until then.
///
/// This is a message of the same size from every rank whatever it was asked to do, so that ranks
/// that call different operations find out here, and not by waiting for one another.
///
/// Ranks that were told to (CommunicatorOptions::agree) leave the reduction out. They decide so by
/// what they all have in common, never by what one of them alone sees.
class Agreement {
 public:
  static constexpr int max_common = 40;

  template <class Prepare>
  Agreement(QueueRef const& queue, distributed::Communicator& comm, DistributedOperation operation,
            Prepare const& prepare) {
    using distributed::Agree;
    char const* const name = distributed_name(static_cast<std::int64_t>(operation));
    comm.check_alive(name);
    Agree const when = comm.options().agree;
    bool const recording = comm.transport().recording(queue);
    if (recording && when == Agree::every_call)
      raise<UnsupportedError>(
          name,
          ": the call is captured into a graph, and ranks that compare what they are asked for "
          "wait for the device; expected a communicator with agree first_call_alike or never");
    std::vector<CommonArgument> common;
    RankFailure failure = RankFailure::none;
    std::string text;
    auto const failed = [&](RankFailure kind, char const* what) {
      failure = kind;
      text = what;
    };
    try {
      if (comm.failed())
        raise<Error>(name,
                     ": this rank failed in the middle of an earlier call, whose outputs hold "
                     "nothing of use");
      comm.transport().check_queue(name, queue);
      prepare(common);
    } catch (ShapeError const& e) {
      failed(RankFailure::shape, e.what());
    } catch (DtypeError const& e) {
      failed(RankFailure::dtype, e.what());
    } catch (StrideError const& e) {
      failed(RankFailure::stride, e.what());
    } catch (DeviceError const& e) {
      failed(RankFailure::device, e.what());
    } catch (UnsupportedError const& e) {
      failed(RankFailure::unsupported, e.what());
    } catch (ResourceError const& e) {
      failed(RankFailure::resource, e.what());
    } catch (std::bad_alloc const& e) {
      failed(RankFailure::resource, e.what());
    } catch (std::exception const& e) {
      failed(RankFailure::error, e.what());
    }
    comm.failed() = false;
    if (when == Agree::never) {
      if (failure == RankFailure::none) return;
      throw_failure(failure, text);
    }
    // RankFailure, operation, arguments; the negated values give the largest by the same minimum.
    std::array<std::int64_t, max_common + 2> mine{};
    mine[0] = static_cast<std::int64_t>(failure);
    mine[1] = static_cast<std::int64_t>(operation);
    for (std::size_t i = 0; i < common.size() && i < max_common; ++i) mine[i + 2] = common[i].value;
    Fingerprint call;
    for (std::int64_t number : mine) call.mix(number);
    if (when == Agree::first_call_alike && failure == RankFailure::none) {
      if (comm.agreed().count(call.value()) != 0) return;
      if (recording)
        raise<UnsupportedError>(
            name,
            ": the call is captured into a graph, and ranks have not agreed on one with these "
            "arguments yet; expected the same call before the capture");
    }
    std::array<std::int64_t, 2 * (max_common + 2)> both{}, least{};
    for (std::size_t i = 0; i < mine.size(); ++i) {
      both[2 * i] = mine[i];
      both[2 * i + 1] = ~mine[i];
    }
    comm.transport().minimum(both.data(), least.data(), static_cast<int>(both.size()));
    bool const alike = [&] {
      for (std::size_t i = 0; i < mine.size(); ++i)
        if (least[2 * i] != ~least[2 * i + 1]) return false;
      return true;
    }();
    if (alike && failure == RankFailure::none) {
      if (when == Agree::first_call_alike) comm.agreed().insert(call.value());
      return;
    }
    explain_difference(comm, name, common, mine, text);
  }

 private:
  /// Finds the rank, and throws on every rank.
  [[noreturn]] static void explain_difference(distributed::Communicator& comm, char const* name,
                                              std::vector<CommonArgument> const& common,
                                              std::array<std::int64_t, max_common + 2> const& mine,
                                              std::string const& text) {
    std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(comm.size()));
    comm.transport().gather(mine.data(), all.data(), static_cast<int>(sizeof mine));
    auto const of = [&](int rank, std::size_t i) {
      return all[static_cast<std::size_t>(rank) * mine.size() + i];
    };
    // A rank that failed by itself speaks for all; else whoever differs from rank 0 first.
    int speaker = -1;
    std::size_t argument = 0;
    for (int r = 0; r < comm.size() && speaker < 0; ++r)
      if (of(r, 0) != 0) speaker = r;
    for (std::size_t i = 1; i < mine.size() && speaker < 0; ++i)
      for (int r = 1; r < comm.size() && speaker < 0; ++r)
        if (of(r, i) != of(0, i)) speaker = r, argument = i;
    char message[2048] = "";
    RankFailure kind = RankFailure::shape;
    if (speaker == comm.rank()) {
      auto const write = [&](std::string const& words) {
        std::snprintf(message, sizeof message, "%s", words.c_str());
      };
      if (argument == 0) {
        kind = static_cast<RankFailure>(mine[0]);
        write("attikos::" + std::string(name) + ": rank " + std::to_string(speaker) + " of " +
              std::to_string(comm.size()) + " cannot go on: " + text);
      } else if (argument == 1) {
        write("attikos::" + std::string(name) + ": rank " + std::to_string(speaker) + " calls " +
              distributed_name(of(speaker, 1)) + " where rank 0 calls " +
              distributed_name(of(0, 1)) +
              "; expected all ranks to make the same calls in the same order");
      } else {
        CommonArgument const& what = common[argument - 2];
        kind = what.failure;
        write("attikos::" + std::string(name) + ": rank " + std::to_string(speaker) + " has " +
              (what.shown ? what.name + " " + std::to_string(what.value) + " where rank 0 has " +
                                std::to_string(of(0, argument))
                          : "other " + what.name + " than rank 0") +
              "; expected the same on all ranks");
      }
    }
    std::int64_t number = static_cast<std::int64_t>(kind);
    comm.transport().broadcast(&number, sizeof number, speaker);
    comm.transport().broadcast(message, sizeof message, speaker);
    throw_failure(static_cast<RankFailure>(number), message);
  }
};

template <class Exec, class Prepare>
void agree(Exec const& exec, distributed::Communicator& comm, DistributedOperation operation,
           Prepare const& prepare) {
  static_cast<void>(Agreement(QueueRef(exec), comm, operation, prepare));
}

/// What a failure of one rank in the middle of a call comes to: it goes on sending what others wait
/// for, and throws at the end.
class CallFailure {
 public:
  template <class F>
  void unless_failed(F const& f) {
    if (failure_) return;
    try {
      f();
    } catch (CommunicationError const&) {
      throw;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  /// Where others got inputs of this rank alone, which are right.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  /// Where others got results of this rank: all throw. Where a call returns before messages are
  /// there, they do so when they next agree; if they need not, nobody can go on with this rank.
  void throw_if_one_failed(char const* operation, distributed::Communicator& comm) const {
    if (comm.transport().asynchronous()) {
      if (!failure_) return;
      if (comm.options().agree == distributed::Agree::every_call)
        comm.failed() = true;
      else
        comm.transport().abandon();
      rethrow();
    }
    std::int64_t const mine = failure_ ? comm.rank() : comm.size();
    std::int64_t first = 0;
    comm.transport().minimum(&mine, &first, 1);
    rethrow();
    if (first != comm.size())
      raise<Error>(operation, ": rank ", first, " of ", comm.size(),
                   " failed in the middle of the call; outputs hold nothing of use");
  }

 private:
  std::exception_ptr failure_;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
