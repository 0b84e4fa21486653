// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Flash attention in about a hundred lines, beside the same attention in three calls and in one.
#include <algorithm>
#include <attikos/attikos.hpp>
#include <attikos/reference/attention_reference.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

using Tensor = Kokkos::View<float****, Kokkos::LayoutRight>;  // [batch, heads, seqlen, head_dim]

// --- The kernel: README.md walks through it. --------------------------------------------------

/// out = softmax(scale·q·kᵀ)·v. A team owns `tile_q` rows of one head and streams all keys and
/// values through its scratch memory, `tile_kv` at a time: scores never leave the team.
struct MinimalFlash {
  using Policy = Kokkos::TeamPolicy<>;
  using Team = Policy::member_type;
  using Scratch = Policy::execution_space::scratch_memory_space;
  using Tile = Kokkos::View<float**, Kokkos::LayoutRight, Scratch, Kokkos::MemoryUnmanaged>;
  using Column = Kokkos::View<float*, Scratch, Kokkos::MemoryUnmanaged>;
  static constexpr int tile_q = 32, tile_kv = 32;

  Tensor q, k, v, out;
  float scale;
  int tiles;          ///< of rows in one head
  int scratch_level;  ///< 0: shared memory of a device; 1: where that is too small

  static int scratch_bytes(int d) {
    return static_cast<int>(2 * Tile::shmem_size(tile_q, d) + Tile::shmem_size(d, tile_kv + 1) +
                            Tile::shmem_size(tile_kv, d) + Tile::shmem_size(tile_q, tile_kv) +
                            2 * Column::shmem_size(tile_q));
  }

  KOKKOS_FUNCTION void operator()(Team const& team) const {
    int const seqlen = q.extent_int(2), d = q.extent_int(3);
    int const head = team.league_rank() / tiles;  // of all heads of all sequences
    int const b = head / q.extent_int(1), h = head % q.extent_int(1);
    int const row0 = team.league_rank() % tiles * tile_q;
    int const rows = seqlen - row0 < tile_q ? seqlen - row0 : tile_q;

    auto const& memory = team.team_scratch(scratch_level);
    Tile const queries(memory, tile_q, d), sums(memory, tile_q, d);
    Tile const keys(memory, d, tile_kv + 1);  // transposed; the odd width keeps banks apart
    Tile const values(memory, tile_kv, d), scores(memory, tile_q, tile_kv);
    Column const maximum(memory, tile_q), total(memory, tile_q);

    // Nothing seen yet: maximum −∞, Σ e^… = 0, Σ e^…·v = 0.
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, d), [&](int c) {
        queries(i, c) = q(b, h, row0 + i, c) * scale;
        sums(i, c) = 0;
      });
      Kokkos::single(Kokkos::PerThread(team), [&] {
        maximum(i) = -Kokkos::Experimental::infinity_v<float>;
        total(i) = 0;
      });
    });

    for (int key0 = 0; key0 < seqlen; key0 += tile_kv) {
      int const cols = seqlen - key0 < tile_kv ? seqlen - key0 : tile_kv;
      team.team_barrier();  // the tile before has been used up
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, cols), [&](int j) {
        Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, d), [&](int c) {
          keys(c, j) = k(b, h, key0 + j, c);
          values(j, c) = v(b, h, key0 + j, c);
        });
      });
      team.team_barrier();  // the new one is there
      Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
        add_tile(team, i, cols, queries, keys, values, scores, maximum, total, sums);
      });
    }

    team.team_barrier();
    Kokkos::parallel_for(Kokkos::TeamThreadRange(team, rows), [&](int i) {
      Kokkos::parallel_for(Kokkos::ThreadVectorRange(team, d),
                           [&](int c) { out(b, h, row0 + i, c) = sums(i, c) / total(i); });
    });
  }

  /// Row i meets one tile of keys and values. One thread with its lanes; nobody else touches row i.
  KOKKOS_FUNCTION void add_tile(Team const& team, int i, int cols, Tile const& queries,
                                Tile const& keys, Tile const& values, Tile const& scores,
                                Column const& maximum, Column const& total,
                                Tile const& sums) const {
    int const d = q.extent_int(3);
    auto const keys_of_tile = Kokkos::ThreadVectorRange(team, cols);
    auto const features = Kokkos::ThreadVectorRange(team, d);
    // S = q·kᵀ: every lane has a key of its own and adds one feature after another.
    Kokkos::parallel_for(keys_of_tile, [&](int j) { scores(i, j) = 0; });
    for (int c = 0; c < d; ++c) {
      float const x = queries(i, c);
      Kokkos::parallel_for(keys_of_tile, [&](int j) { scores(i, j) += x * keys(c, j); });
    }
    float largest = 0;
    Kokkos::parallel_reduce(
        keys_of_tile, [&](int j, float& best) { best = Kokkos::max(best, scores(i, j)); },
        Kokkos::Max<float>(largest));
    // The maximum so far may grow: what was summed with the old one shrinks by e^(old − new).
    float old = 0;
    Kokkos::single(
        Kokkos::PerThread(team), [&](float& value) { value = maximum(i); }, old);
    float const now = Kokkos::max(old, largest);
    float const shrink = Kokkos::exp(old - now);
    // P = e^(S − maximum), and its sum.
    float sum = 0;
    Kokkos::parallel_for(keys_of_tile,
                         [&](int j) { scores(i, j) = Kokkos::exp(scores(i, j) - now); });
    Kokkos::parallel_reduce(
        keys_of_tile, [&](int j, float& part) { part += scores(i, j); }, sum);
    // Σ e^…·v shrinks and grows by P·V: every lane has a feature and adds one key after another.
    Kokkos::parallel_for(features, [&](int c) { sums(i, c) *= shrink; });
    for (int j = 0; j < cols; ++j) {
      float const p = scores(i, j);
      Kokkos::parallel_for(features, [&](int c) { sums(i, c) += p * values(j, c); });
    }
    Kokkos::single(Kokkos::PerThread(team), [&] {
      total(i) = total(i) * shrink + sum;
      maximum(i) = now;
    });
  }
};

void minimal_flash(Kokkos::DefaultExecutionSpace const& exec, Tensor const& q, Tensor const& k,
                   Tensor const& v, Tensor const& out) {
  using Policy = MinimalFlash::Policy;
  int const tiles = (q.extent_int(2) + MinimalFlash::tile_q - 1) / MinimalFlash::tile_q;
  int const bytes = MinimalFlash::scratch_bytes(q.extent_int(3));
  int const level = bytes <= Policy::scratch_size_max(0) ? 0 : 1;
  Policy policy(exec, q.extent_int(0) * q.extent_int(1) * tiles, Kokkos::AUTO,
                std::min(32, Policy::vector_length_max()));
  policy.set_scratch_size(level, Kokkos::PerTeam(bytes));
  float const scale = 1 / std::sqrt(static_cast<float>(q.extent(3)));
  Kokkos::parallel_for("minimal_flash", policy, MinimalFlash{q, k, v, out, scale, tiles, level});
}

// --- What surrounds it: options, data, times, check. ------------------------------------------

struct Options {
  int batch = 16, heads = 12, seqlen = 64, head_dim = 64, repetitions = 20;
};

Options read_options(int argc, char** argv) {
  Options options;
  struct {
    char const* name;
    int* value;
  } const known[] = {{"--batch", &options.batch},
                     {"--heads", &options.heads},
                     {"--seqlen", &options.seqlen},
                     {"--head-dim", &options.head_dim},
                     {"--repetitions", &options.repetitions}};
  for (int a = 1; a < argc; a += 2) {
    auto const* const found = std::find_if(std::begin(known), std::end(known), [&](auto const& o) {
      return std::strcmp(o.name, argv[a]) == 0;
    });
    if (found == std::end(known))
      throw std::invalid_argument(std::string(argv[a]) +
                                  " is no option; expected --batch, --heads, --seqlen, --head-dim "
                                  "or --repetitions, each with a number");
    char* end = nullptr;
    long const value = a + 1 < argc ? std::strtol(argv[a + 1], &end, 10) : 0;
    if (a + 1 == argc || *end != '\0' || value < 1 || value > (1 << 20))
      throw std::invalid_argument(std::string(found->name) +
                                  " expects a whole number from 1 to 1048576");
    *found->value = static_cast<int>(value);
  }
  if (1.0 * options.batch * options.heads * options.seqlen > 2147483647.0)
    throw std::invalid_argument("batch·heads·seqlen exceeds 2147483647");
  return options;
}

/// Uniform in [-1, 1), the same on every machine (splitmix64).
Tensor random_tensor(std::string const& name, Options const& o, std::uint64_t state) {
  Tensor x(name, o.batch, o.heads, o.seqlen, o.head_dim);
  auto const host = Kokkos::create_mirror_view(x);
  for (std::size_t i = 0; i < host.size(); ++i) {
    std::uint64_t z = state += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    host.data()[i] = static_cast<float>((z ^ (z >> 31)) >> 40) * 0x1p-23f - 1;
  }
  Kokkos::deep_copy(x, host);
  return x;
}

/// Median time of a call in milliseconds, after one call to warm up.
double median_ms(Kokkos::DefaultExecutionSpace const& exec, int repetitions,
                 std::function<void()> const& call) {
  std::vector<double> times;
  for (int r = -1; r < repetitions; ++r) {
    auto const start = std::chrono::steady_clock::now();
    call();
    exec.fence("minimal_flash: timing");
    std::chrono::duration<double, std::milli> const time = std::chrono::steady_clock::now() - start;
    if (r >= 0) times.push_back(time.count());
  }
  auto const middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

/// Largest error relative to its bound, against float64 on the host. Above 1: wrong.
///
/// With u = 2^-24, n keys and M the largest scale·Σ|q||k| of a row: a score carries (d + 4) u M,
/// the difference to the maximum twice that and 2 u M; the exponential 8 u; every one of at most
/// n/8 + 1 rescalings 10 u; each of the two sums n u. Weights and their sum share that relative
/// error e, so that out carries 2 e Σ p|v|, and 4 u more for the quotient and storing.
double worst_ratio(Tensor const& q, Tensor const& k, Tensor const& v, Tensor const& out) {
  auto const copy = [](Tensor const& x) {
    return Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), x);
  };
  auto const hq = copy(q), hk = copy(k), hv = copy(v), ho = copy(out);
  std::int64_t const heads = q.extent_int(1), n = q.extent_int(2), d = q.extent_int(3);
  std::int64_t const rows = q.extent_int(0) * heads * n;
  double const u = 0x1p-24;
  // At most about 10^9 products, rows spread evenly over the problem.
  std::int64_t const step = 1 + rows / (1 + (1'000'000'000 / (n * d)));
  double worst = 0;
  for (std::int64_t r = 0; r < rows; r += step) {
    std::int64_t const b = r / n / heads, h = r / n % heads, i = r % n;
    auto const exact = attikos::reference::attention_row(
        n, d, d, 1 / std::sqrt(static_cast<double>(d)),
        [&](std::int64_t c) -> double { return hq(b, h, i, c); },
        [&](std::int64_t j, std::int64_t c) -> double { return hk(b, h, j, c); },
        [&](std::int64_t j, std::int64_t c) -> double { return hv(b, h, j, c); });
    double const M = *std::max_element(exact.score_magnitude.begin(), exact.score_magnitude.end());
    double const keys = static_cast<double>(n), features = static_cast<double>(d);
    double const e =
        std::expm1(2 * (features + 5) * u * M + 8 * u + 10 * u * (keys / 8 + 1) + keys * u);
    for (std::int64_t c = 0; c < d; ++c) {
      double const want = exact.out[static_cast<std::size_t>(c)];
      double magnitude = 0;
      for (std::int64_t j = 0; j < n; ++j)
        magnitude += exact.probability[static_cast<std::size_t>(j)] * std::abs(hv(b, h, j, c));
      double const bound = (2 * e + 4 * u) * magnitude;
      double const ratio = std::abs(ho(b, h, i, c) - want) / bound;
      worst = ratio <= worst ? worst : (std::isnan(ratio) ? HUGE_VAL : ratio);
    }
  }
  return worst;
}

/// Prints the table; true if all three agree with float64.
bool compare(Options const& o) {
  Kokkos::DefaultExecutionSpace const exec;
  auto const tensor = [&](std::string const& name) {
    return Tensor(name, o.batch, o.heads, o.seqlen, o.head_dim);
  };
  Tensor const q = random_tensor("q", o, 1), k = random_tensor("k", o, 2),
               v = random_tensor("v", o, 3);
  Tensor const unfused = tensor("unfused"), minimal = tensor("minimal"), fused = tensor("fused");

  // Unfused, the heads of all sequences are one batch of matrices, and scores are stored.
  int const matrices = o.batch * o.heads;
  auto const joined = [&](Tensor const& x) {
    return Kokkos::View<float***, Kokkos::LayoutRight, Kokkos::MemoryUnmanaged>(
        x.data(), matrices, o.seqlen, o.head_dim);
  };
  Kokkos::View<float***, Kokkos::LayoutRight> const scores("scores", matrices, o.seqlen, o.seqlen);
  double const scale = 1 / std::sqrt(static_cast<double>(o.head_dim));
  auto const time = [&](auto const& call) { return median_ms(exec, o.repetitions, call); };

  double const score_ms = time([&] {
    attikos::gemm(exec, joined(q), joined(k), scores, {.alpha = scale, .trans_b = true});
  });
  // Softmax in place would find its own result in the next repetition: it gets a tensor of its own.
  Kokkos::View<float***, Kokkos::LayoutRight> const weights("weights", matrices, o.seqlen,
                                                            o.seqlen);
  double const softmax_ms = time([&] { attikos::softmax(exec, scores, weights); });
  double const output_ms = time([&] { attikos::gemm(exec, weights, joined(v), joined(unfused)); });
  double const unfused_ms = score_ms + softmax_ms + output_ms;
  double const minimal_ms = time([&] { minimal_flash(exec, q, k, v, minimal); });
  double const fused_ms = time([&] { attikos::attention(exec, q, k, v, fused); });

  double const flops = 2.0 * matrices * o.seqlen * o.seqlen * o.head_dim;  // of one product
  std::printf("batch %d, heads %d, seqlen %d, head_dim %d, float32 on %s, median of %d calls\n\n",
              o.batch, o.heads, o.seqlen, o.head_dim, exec.name(), o.repetitions);
  std::printf("%-34s %10s %9s %14s\n", "operation", "ms", "GFLOP/s", "against unfused");
  auto const row = [&](char const* name, double ms, double work) {
    std::printf("%-34s %10.4f %9.1f %13.2f x\n", name, ms, work / ms * 1e-6, unfused_ms / ms);
  };
  std::printf("%-34s %10.4f %9.1f\n", "gemm: scale q k^T", score_ms, flops / score_ms * 1e-6);
  std::printf("%-34s %10.4f\n", "softmax", softmax_ms);
  std::printf("%-34s %10.4f %9.1f\n", "gemm: weights v", output_ms, flops / output_ms * 1e-6);
  row("unfused: the three together", unfused_ms, 2 * flops);
  row("minimal_flash: this file's kernel", minimal_ms, 2 * flops);
  row("attikos::attention", fused_ms, 2 * flops);
  std::printf("\nstored scores and weights: unfused %.1f MB, flash none\n",
              2e-6 * static_cast<double>(scores.size() * sizeof(float)));

  double const ratios[] = {worst_ratio(q, k, v, unfused), worst_ratio(q, k, v, minimal),
                           worst_ratio(q, k, v, fused)};
  std::printf("largest error / bound: unfused %.3f, minimal_flash %.3f, attikos::attention %.3f\n",
              ratios[0], ratios[1], ratios[2]);
  bool const agree = ratios[0] <= 1 && ratios[1] <= 1 && ratios[2] <= 1;
  std::printf("%s\n", agree ? "all agree" : "DISAGREEMENT");
  return agree;
}

int main(int argc, char** argv) {
  try {
    Kokkos::ScopeGuard const guard(argc, argv);
    return compare(read_options(argc, argv)) ? 0 : 1;
  } catch (std::exception const& error) {
    std::fprintf(stderr, "minimal_flash: %s\n", error.what());
    return 2;
  }
}
