// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// The gradient of attention sinks where rows are spread over ranks.
#pragma once

#include <attikos/distributed/context_transfers.hpp>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// What a row of queries adds to the gradient of its head's sink: −e^(sink − lse)·(dout·out).
template <class T, class Acc>
struct SinkTerm {
  TensorRef<T const, 4> out, dout;
  TensorRef<Acc const, 3> lse;
  DType type;
  void const* sinks;
  std::int64_t stride;
  TensorRef<Acc, 3> to;

  struct Row {
    std::int64_t b, h, i;
  };
  KOKKOS_INLINE_FUNCTION Row row_of(std::int64_t index) const {
    std::int64_t const bh = index / to.extent[2];
    return {bh / to.extent[1], bh % to.extent[1], index % to.extent[2]};
  }
  KOKKOS_INLINE_FUNCTION Acc product(Row const& r, std::int64_t c) const {
    return static_cast<Acc>(out(r.b, r.h, r.i, c)) * static_cast<Acc>(dout(r.b, r.h, r.i, c));
  }
  KOKKOS_INLINE_FUNCTION void put(Row const& r, Acc sum) const {
    Acc const total = lse(r.b, r.h, r.i);
    Acc const sink = load_any<Acc>(type, sinks, r.h * stride);
    to(r.b, r.h, r.i) =
        total == negative_infinity<Acc>() ? Acc(0) : -Kokkos::exp(sink - total) * sum;
  }
  void host_row(std::int64_t index) const {
    Row const r = row_of(index);
    Acc sum = 0;
    for (std::int64_t c = 0; c < out.extent[3]; ++c) sum += product(r, c);
    put(r, sum);
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t index) const {
    Row const r = row_of(index);
    Acc sum = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, out.extent[3]),
        [&](std::int64_t c, Acc& part) { part += product(r, c); }, sum);
    Kokkos::single(Kokkos::PerThread(team), [&] { put(r, sum); });
  }
};

/// Sums, one for each of `heads`, of terms [outer, heads, inner], stored as any type.
template <class Acc>
struct SumOfHead {
  Acc const* terms;
  std::int64_t outer, heads, inner;
  DType type;
  void* to;
  std::int64_t stride;

  KOKKOS_INLINE_FUNCTION Acc term(std::int64_t head, std::int64_t n) const {
    return terms[(n / inner * heads + head) * inner + n % inner];
  }
  void host_row(std::int64_t head) const {
    Acc sum = 0;
    for (std::int64_t n = 0; n < outer * inner; ++n) sum += term(head, n);
    store_any(type, to, head * stride, sum);
  }
  template <class Team>
  KOKKOS_INLINE_FUNCTION void device_row(Team const& team, std::int64_t head) const {
    Acc sum = 0;
    Kokkos::parallel_reduce(
        Kokkos::ThreadVectorRange(team, outer * inner),
        [&](std::int64_t n, Acc& part) { part += term(head, n); }, sum);
    Kokkos::single(Kokkos::PerThread(team), [&] { store_any(type, to, head * stride, sum); });
  }
};

/// Each rank sums what its rows add, and all ranks what all have, in the order of ranks.
template <class T, class Exec>
class SinkGradients {
 public:
  using Acc = AttentionAccumulator<T>;
  using Space = typename Exec::memory_space;

  SinkGradients(char const* operation, Exec const& exec, distributed::Communicator& comm,
                distributed::ContextShards const& shards, ContextProblem const& problem)
      : operation_(operation), exec_(exec), comm_(comm), shards_(shards), problem_(problem) {}

  /// Gets memory. \param number of its first message \param plain of its buffer of terms
  void prepare(int number, int plain) {
    std::int64_t const heads = problem_.heads_q;
    std::int64_t const rows = shards_.q.rows(comm_.rank());
    own_ = MessageBuffer<Exec>(operation_, comm_, number, heads * size);
    all_ = MessageBuffer<Exec>(operation_, comm_, number + 1, heads * size * comm_.size());
    terms_ = static_cast<Acc*>(comm_.template buffer<Space>(
        operation_, plain, static_cast<std::size_t>(problem_.batch * heads * rows * size)));
  }

  void run(AnyTensor const& out, AnyTensor const& dout, AnyTensor const& lse,
           AnyTensor const& d_sinks) {
    std::int64_t const heads = problem_.heads_q;
    if (heads == 0) return;
    std::int64_t const batch = problem_.batch, rows = shards_.q.rows(comm_.rank());
    AnyTensor const terms = dense_rows(terms_, dtype_of<Acc>, batch, heads, rows, 1, 1);
    // Rows past a length are never read, and add nothing.
    Kokkos::deep_copy(exec_,
                      Kokkos::View<Acc*, Space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                          terms_, static_cast<std::size_t>(batch * heads * rows)),
                      Acc(0));
    for (distributed::Piece const& piece : shards_.q.pieces(comm_.rank()))
      for (BatchRun const& run : batch_runs(problem_, shards_.q.length(piece.sequence),
                                            shards_.kv.length(piece.sequence))) {
        std::int64_t const count =
            std::clamp<std::int64_t>(run.length_q - piece.begin, 0, piece.rows());
        Box const box{{run.first, 0, piece.local}, {run.count, heads, count}};
        add(part_of(out, box), part_of(dout, box), part_of(as_rows_of_one(lse), box),
            part_of(terms, box));
      }
    sum(terms_, batch, rows, dtype_of<Acc>, own_.data, 1);
    own_.to_wire(exec_, heads * size);
    comm_.transport().gather_rows(
        QueueRef(exec_), "attikos::distributed: gradients of sinks are there", heads * size,
        own_.wire, all_.wire, RowParts::one_of_each(comm_.size()));
    all_.from_wire(exec_, heads * size * comm_.size());
    sum(static_cast<Acc const*>(all_.data), comm_.size(), 1, d_sinks.type, d_sinks.output(),
        d_sinks.stride[0]);
  }

 private:
  static constexpr auto size = static_cast<std::int64_t>(sizeof(Acc));

  void add(AnyTensor const& out, AnyTensor const& dout, AnyTensor const& lse,
           AnyTensor const& terms) {
    launch_rows(exec_, operation_,
                SinkTerm<T, Acc>{ref_of<T const, 4>(out), ref_of<T const, 4>(dout),
                                 ref_of<Acc const, 3>(as_lse(lse)), problem_.sinks.type,
                                 problem_.sinks.data, problem_.sinks.stride[0],
                                 ref_of<Acc, 3>(as_lse(terms))},
                terms.extent[0] * terms.extent[1] * terms.extent[2], problem_.head_dim_v);
  }
  void sum(Acc const* terms, std::int64_t outer, std::int64_t inner, DType type, void* to,
           std::int64_t stride) {
    launch_rows(exec_, operation_,
                SumOfHead<Acc>{terms, outer, problem_.heads_q, inner, type, to, stride},
                problem_.heads_q, outer * inner);
  }

  char const* operation_;
  Exec const& exec_;
  distributed::Communicator& comm_;
  distributed::ContextShards const& shards_;
  ContextProblem const& problem_;
  MessageBuffer<Exec> own_, all_;
  Acc* terms_ = nullptr;
};

}  // namespace detail
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
