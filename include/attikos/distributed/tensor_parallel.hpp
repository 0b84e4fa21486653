// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
/// \file
/// Products whose matrices are spread over ranks: distributed::column_parallel_gemm(),
/// row_parallel_gemm() and gated_mlp().
#pragma once

#include <attikos/distributed/row_blocks.hpp>
#include <attikos/mlp/gated_mlp.hpp>
#include <optional>

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace detail {

/// Products of rows with one matrix, in pieces.
/// \tparam C of the result
template <class T, class C, class Exec>
void product_of_rows(Exec const& exec, AnyTensor const& rows, AnyTensor const& b,
                     AnyTensor const& result, GemmOptions const& options, bool dry) {
  Explanation explanation;
  if (dry && *wanted_kernel(options.kernel) == '\0') return;
  gemm_dispatch(exec, matrix_view<T const, Exec>(rows), matrix_view<T const, Exec>(b),
                matrix_view<C, Exec>(result), options, dry ? &explanation : nullptr);
}

/// A call of distributed::column_parallel_gemm().
template <class T, class Exec>
class ColumnParallel : private RowExchange<T, Exec> {
  using Base = RowExchange<T, Exec>;

 public:
  static constexpr char const* operation = "distributed::column_parallel_gemm";

  ColumnParallel(Exec const& exec, distributed::Communicator& comm,
                 distributed::Shards const& shards, AnyTensor const& a, AnyTensor const& b,
                 AnyTensor const& c, GemmOptions const& options)
      : Base(operation, exec, comm, shards),
        a_(a.with_rank(4)),
        b_(b.with_rank(4)),
        c_(c.with_rank(4)),
        options_(options) {}

  void prepare() {
    this->prepare_ring(a_.extent[3]);
    for (int r = 0; r < this->comm_.size(); ++r)
      multiply(r, matrix_at(nullptr, a_.type, this->shards_.rows(r), a_.extent[3]), true);
  }
  void run() {
    this->ring(a_, [&](int owner, AnyTensor const& rows) {
      this->failure_.unless_failed([&] { multiply(owner, rows, false); });
    });
    this->failure_.rethrow();
  }

 private:
  void multiply(int owner, AnyTensor const& rows, bool dry) {
    for (auto const& piece : this->shards_.pieces(owner))
      product_of_rows<T, T>(this->exec_, rows_of_matrix(rows, piece.local, piece.rows()), b_,
                            rows_of_matrix(c_, piece.begin, piece.rows()), options_, dry);
  }
  AnyTensor a_, b_, c_;
  GemmOptions options_;
};

/// A call of distributed::row_parallel_gemm().
template <class T, class Exec>
class RowParallel : private RowExchange<T, Exec> {
  using Base = RowExchange<T, Exec>;

 public:
  using typename Base::Acc;
  static constexpr char const* operation = "distributed::row_parallel_gemm";

  RowParallel(Exec const& exec, distributed::Communicator& comm, distributed::Shards const& shards,
              AnyTensor const& a, AnyTensor const& b, AnyTensor const& c,
              GemmOptions const& options)
      : Base(operation, exec, comm, shards),
        a_(a.with_rank(4)),
        b_(b.with_rank(4)),
        c_(c.with_rank(4)),
        options_(options) {}

  void prepare() {
    this->prepare_sums(c_.extent[3]);
    for (int r = 0; r < this->comm_.size(); ++r)
      multiply(r, matrix_at(nullptr, dtype_of<Acc>, this->shards_.rows(r), c_.extent[3]), true);
  }
  void run() {
    int const n = this->comm_.size();
    // This rank's own rows last: the others' are on their way meanwhile.
    for (int step = 1; step <= n; ++step) {
      int const target = (this->comm_.rank() + step) % n;
      AnyTensor const partial = this->partial_for(target);
      this->failure_.unless_failed([&] { multiply(target, partial, false); });
      this->send_partial(target);
    }
    this->finish_sums(c_);
  }

 private:
  void multiply(int target, AnyTensor const& result, bool dry) {
    for (auto const& piece : this->shards_.pieces(target))
      product_of_rows<T, Acc>(this->exec_, rows_of_matrix(a_, piece.begin, piece.rows()), b_,
                              rows_of_matrix(result, piece.local, piece.rows()), options_, dry);
  }
  AnyTensor a_, b_, c_;
  GemmOptions options_;
};

/// A call of distributed::gated_mlp().
template <class T, class Exec>
class SpreadMlp : private RowExchange<T, Exec> {
  using Base = RowExchange<T, Exec>;

 public:
  using typename Base::Acc;
  static constexpr char const* operation = "distributed::gated_mlp";

  SpreadMlp(Exec const& exec, distributed::Communicator& comm, distributed::Shards const& shards,
            AnyTensor const& x, AnyTensor const& gate, AnyTensor const& up, AnyTensor const& down,
            AnyTensor const& out, GatedMlpOptions const& options)
      : Base(operation, exec, comm, shards),
        x_(x.with_rank(4)),
        gate_(gate.with_rank(4)),
        up_(up.with_rank(4)),
        down_(down.with_rank(4)),
        out_(out.with_rank(4)),
        options_(options) {}

  void prepare() {
    this->prepare_ring(x_.extent[3]);
    this->prepare_sums(out_.extent[3]);
    std::int64_t const columns = gate_.extent[2], most = this->shards_.max_rows();
    hidden_ = this->comm_.template buffer<typename Exec::memory_space>(
        operation, 40, static_cast<std::size_t>(most * columns * Base::element));
    if (*wanted_kernel(options_.kernel) == '\0') return;
    for (int r = 0; r < this->comm_.size(); ++r) {
      Explanation explanation;
      std::int64_t const rows = this->shards_.rows(r);
      activate(matrix_at(nullptr, x_.type, rows, x_.extent[3]),
               matrix_at(nullptr, x_.type, rows, columns), &explanation);
    }
  }
  void run() {
    this->ring(x_, [&](int owner, AnyTensor const& rows) {
      AnyTensor const partial = this->partial_for(owner);
      this->failure_.unless_failed([&] {
        AnyTensor const hidden = matrix_at(hidden_, x_.type, rows.extent[2], gate_.extent[2]);
        activate(rows, hidden, nullptr);
        product_of_rows<T, Acc>(this->exec_, hidden, down_, partial, {.trans_b = true}, false);
      });
      this->send_partial(owner);
    });
    this->finish_sums(out_);
  }

 private:
  void activate(AnyTensor const& rows, AnyTensor const& hidden, Explanation* log) {
    gated_mlp_dispatch(this->exec_, matrix_view<T const, Exec>(rows),
                       matrix_view<T const, Exec>(gate_), matrix_view<T const, Exec>(up_),
                       matrix_view<T, Exec>(hidden), options_, log);
  }
  AnyTensor x_, gate_, up_, down_, out_;
  GatedMlpOptions options_;
  void* hidden_ = nullptr;
};

/// What ranks have to give alike of a product.
inline void common_gemm_arguments(std::vector<CommonArgument>& common, DType type,
                                  distributed::Shards const& shards, char const* extent_name,
                                  std::int64_t extent, GemmOptions const& o) {
  auto const add = [&](char const* name, std::int64_t value, bool shown = true) {
    common.push_back({name, value, RankFailure::shape, shown});
  };
  common.push_back({"element type", static_cast<std::int64_t>(type), RankFailure::dtype, false});
  add("shards", shards.fingerprint(), false);
  add(extent_name, extent);
  add("alpha", number_of(o.alpha), false);
  add("beta", number_of(o.beta), false);
  add("scale", number_of(o.scale), false);
  add("activation", static_cast<std::int64_t>(o.activation));
  add("compute", static_cast<std::int64_t>(o.compute));
  add("kernel", number_of(o.kernel), false);
}

template <ExecutionSpace Exec, TensorLike First, TensorLike... Rest>
constexpr void check_matrices() {
  check_tensor<Exec, First>();
  (check_tensor<Exec, Rest>(), ...);
  static_assert(rank_of<First> == 2 && ((rank_of<Rest> == 2) && ...),
                "attikos::distributed: matrices have rank 2");
  static_assert((std::is_same_v<element_t<First>, element_t<Rest>> && ...) &&
                    is_floating_element<element_t<First>> && sizeof(element_t<First>) >= 2,
                "attikos::distributed: matrices are all double, float, float16 or bfloat16");
}

}  // namespace detail

namespace distributed {

/// C = act(scale·(alpha·A·op(B) + beta·C)) with the rows of A, and the columns of B and C, spread
/// over the ranks: all-gather, then product, in pieces.
///
/// \param exec    execution space instance; kernels are asynchronous on it. It is fenced before
///                memory is sent over MPI, and never over NCCL
/// \param comm    communicator
/// \param shards  which rank holds which rows of A: one sequence, as for attention()
/// \param a       [rows, k], this rank's rows
/// \param b       [k, n] ([n, k] with `trans_b`), this rank's columns, any number of them
/// \param c       [m, n] with all rows, in the order of positions
/// \param options those of gemm() but trans_a; the same on all ranks
///
/// Rows of A go round a ring, the next block behind this block's product, so that no rank ever has
/// more than two blocks of it. Where every rank has all of A there is nothing to send: that is
/// gemm(). Types: all double, float, float16 or bfloat16, summed as gemm() sums. Determinism: run
/// to run. All ranks throw the same ShapeError, DtypeError, StrideError, Error, UnsupportedError or
/// ResourceError before anything is sent or written; CommunicationError for a message that fails.
///
/// Source: M. Shoeybi et al., "Megatron-LM", arXiv:1909.08053; V. Korthikanti et al.,
/// arXiv:2205.05198, for rows between products.
template <ExecutionSpace Exec, TensorLike A, TensorLike B, TensorLike C>
void column_parallel_gemm(Exec const& exec, Communicator& comm, Shards const& shards, A const& a,
                          B const& b, C const& c, GemmOptions const& options = {}) {
  namespace d = ::attikos::detail;
  d::check_matrices<Exec, A, B, C>();
  d::check_writable(c);
  using Call = d::ColumnParallel<element_t<A>, Exec>;
  constexpr char const* operation = Call::operation;
  std::optional<Call> call;
  d::agree(exec, comm, d::DistributedOperation::column_parallel_gemm,
           [&](std::vector<d::CommonArgument>& common) {
             auto const x = d::any_tensor(a), y = d::any_tensor(b), z = d::any_tensor(c);
             d::check_row_shards(operation, comm, shards);
             if (options.trans_a)
               d::raise<UnsupportedError>(operation,
                                          ": trans_a is set; expected rows of a that travel");
             int const k = options.trans_b ? 1 : 0;
             d::check_extent(operation, "a", x, 0, shards.rows(comm.rank()),
                             "the rows that the shards have for this rank");
             d::check_extent(operation, "b", y, k, x.extent[1], "as a has columns");
             d::check_extent(operation, "c", z, 0, shards.total(), "all rows of a");
             d::check_extent(operation, "c", z, 1, y.extent[1 - k], "the columns of op(b)");
             d::check_outputs(operation, {{"c", z}}, {{"a", x}, {"b", y}});
             d::common_gemm_arguments(common, x.type, shards, "columns of a", x.extent[1], options);
             call.emplace(exec, comm, shards, x, y, z, options);
             call->prepare();
           });
  call->run();
}

/// C = scale·alpha·A·op(B) with the columns of A and the rows of op(B) spread over the ranks, and
/// the rows of C with them: product, then reduce-scatter, in pieces.
///
/// \param exec, comm as for column_parallel_gemm()
/// \param shards  which rank gets which rows of C
/// \param a       [m, k], all rows in the order of positions, this rank's columns, any number
/// \param b       [k, n] ([n, k] with `trans_b`), the rows that go with them
/// \param c       [rows, n], this rank's rows
/// \param options those of gemm() but trans_a, beta and activation; the same on all ranks
///
/// A rank computes the rows of each other rank in turn, its own last, and sends them on while it
/// computes the next. Partial results are float (double for double), summed in the order of ranks
/// and rounded to the type of C once: the same bits on every run. Everything else as for
/// column_parallel_gemm(); a rank that fails after the first message makes all throw at the end.
template <ExecutionSpace Exec, TensorLike A, TensorLike B, TensorLike C>
void row_parallel_gemm(Exec const& exec, Communicator& comm, Shards const& shards, A const& a,
                       B const& b, C const& c, GemmOptions const& options = {}) {
  namespace d = ::attikos::detail;
  d::check_matrices<Exec, A, B, C>();
  d::check_writable(c);
  using Call = d::RowParallel<element_t<A>, Exec>;
  constexpr char const* operation = Call::operation;
  std::optional<Call> call;
  d::agree(exec, comm, d::DistributedOperation::row_parallel_gemm,
           [&](std::vector<d::CommonArgument>& common) {
             auto const x = d::any_tensor(a), y = d::any_tensor(b), z = d::any_tensor(c);
             d::check_row_shards(operation, comm, shards);
             if (options.trans_a || options.beta != 0 || options.activation != Activation::none)
               d::raise<UnsupportedError>(
                   operation,
                   ": trans_a, beta or activation is set; expected neither, since partial "
                   "results are summed");
             int const k = options.trans_b ? 1 : 0;
             d::check_extent(operation, "a", x, 0, shards.total(), "the rows of the shards");
             d::check_extent(operation, "b", y, k, x.extent[1], "as a has columns");
             d::check_extent(operation, "c", z, 0, shards.rows(comm.rank()),
                             "the rows that the shards have for this rank");
             d::check_extent(operation, "c", z, 1, y.extent[1 - k], "the columns of op(b)");
             d::check_outputs(operation, {{"c", z}}, {{"a", x}, {"b", y}});
             d::common_gemm_arguments(common, x.type, shards, "columns of c", z.extent[1], options);
             call.emplace(exec, comm, shards, x, y, z, options);
             call->prepare();
           });
  call->run();
}

/// out = (act(x·Wgᵀ) ⊙ (x·Wuᵀ))·Wdᵀ with rows of x and out, and the intermediate features, spread
/// over the ranks: the feed-forward block of a transformer as one call.
///
/// \param exec, comm as for column_parallel_gemm()
/// \param shards      which rank holds which rows of x and out
/// \param x           [rows, hidden], this rank's rows
/// \param gate_weight [intermediate, hidden], this rank's part of the features, any number
/// \param up_weight   as gate_weight
/// \param down_weight [hidden_out, intermediate], the columns that go with them
/// \param out         [rows, hidden_out], this rank's rows
/// \param options     those of attikos::gated_mlp(), for its kernels; the same on all ranks
///
/// Rows of x go round a ring; what a rank's features make of a block goes to the rank whose rows
/// they are while the next block is worked on. The intermediate is rounded to the type of x as
/// gated_mlp() rounds its output; partial results are float (double for double), summed in the
/// order of ranks. Everything else as for row_parallel_gemm().
template <ExecutionSpace Exec, TensorLike X, TensorLike W, TensorLike U, TensorLike D,
          TensorLike Out>
void gated_mlp(Exec const& exec, Communicator& comm, Shards const& shards, X const& x,
               W const& gate_weight, U const& up_weight, D const& down_weight, Out const& out,
               GatedMlpOptions const& options = {}) {
  namespace d = ::attikos::detail;
  d::check_matrices<Exec, X, W, U, D, Out>();
  d::check_writable(out);
  using Call = d::SpreadMlp<element_t<X>, Exec>;
  constexpr char const* operation = Call::operation;
  std::optional<Call> call;
  d::agree(
      exec, comm, d::DistributedOperation::gated_mlp, [&](std::vector<d::CommonArgument>& common) {
        auto const rows = d::any_tensor(x), gate = d::any_tensor(gate_weight),
                   up = d::any_tensor(up_weight), down = d::any_tensor(down_weight),
                   result = d::any_tensor(out);
        d::check_row_shards(operation, comm, shards);
        std::int64_t const own = shards.rows(comm.rank());
        d::check_extent(operation, "x", rows, 0, own,
                        "the rows that the shards have for this rank");
        d::check_extent(operation, "gate_weight", gate, 1, rows.extent[1], "as x has columns");
        d::check_extent(operation, "up_weight", up, 0, gate.extent[0], "as gate_weight has rows");
        d::check_extent(operation, "up_weight", up, 1, rows.extent[1], "as x has columns");
        d::check_extent(operation, "down_weight", down, 1, gate.extent[0],
                        "as gate_weight has rows");
        d::check_extent(operation, "out", result, 0, own,
                        "the rows that the shards have for this rank");
        d::check_extent(operation, "out", result, 1, down.extent[0], "as down_weight has rows");
        d::check_outputs(
            operation, {{"out", result}},
            {{"x", rows}, {"gate_weight", gate}, {"up_weight", up}, {"down_weight", down}});
        GemmOptions shown;
        shown.activation = options.activation;
        shown.kernel = options.kernel;
        d::common_gemm_arguments(common, rows.type, shards, "columns of x", rows.extent[1], shown);
        common.push_back({"columns of out", result.extent[1]});
        call.emplace(exec, comm, shards, rows, gate, up, down, result, options);
        call->prepare();
      });
  call->run();
}

}  // namespace distributed
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
