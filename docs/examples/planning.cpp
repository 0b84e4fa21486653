// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What reference/cxx-distributed.md shows of plans, part
// by part; a test runs it. Neither MPI nor Kokkos is
// needed.
#include <attikos/distributed/plan/formula.hpp>
#include <attikos/distributed/plan/plan.hpp>
#include <attikos/distributed/schedule.hpp>
#include <attikos/distributed/shards.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace distributed = attikos::distributed;
namespace plan = attikos::distributed::plan;

void expect(bool truth, char const* what) {
  if (truth) return;
  std::printf("wrong: %s\n", what);
  std::exit(1);
}

bool near(double found, double wanted, double error) {
  return std::abs(found - wanted) <=
         error * std::abs(wanted);
}

void shards() {
  // [shards]
  // Who holds which of 80 positions, on 4 ranks. Zigzag
  // leaves all ranks the same work behind a causal mask.
  using distributed::Piece;
  using distributed::Shards;
  Shards const zigzag = Shards::zigzag(80, 4);
  for (Piece const& piece : zigzag.pieces(1))
    std::printf("[%d, %d) ", int(piece.begin),
                int(piece.end));  // [10, 20) [60, 70)
  // Two packed sequences, each dealt out to all ranks.
  Shards const packed = Shards::packed(
      {0, 80, 96}, 4, distributed::Placement::contiguous);
  // Short ones whole, on ranks that balance: the long one
  // is dealt out.
  Shards const balanced = Shards::balanced(
      {0, 400, 410, 420, 430, 440}, 4, true);
  // [shards]
  expect(zigzag.pieces(1)[1] == Piece{0, 60, 70, 10},
         "the second piece of rank 1");
  expect(packed.rows(3) == 20 + 4, "rows of rank 3");
  expect(balanced.pieces(2).size() == 3 &&
             balanced.pieces(2)[2].rows() == 10,
         "two runs of the long sequence, one short one");

  // [ring]
  // A ring of one's own over these pieces: in each step
  // every pair of pieces is a product that attention()
  // takes, or is masked and left out.
  distributed::Visible const causal{.left = -1,
                                    .right = 0};
  std::int64_t rows_of_keys = 0;
  for (int step = 0; step < 4; ++step) {
    distributed::RingStep const ring =
        distributed::ring_step(1, 4, step);
    for (Piece const& q : zigzag.pieces(1))
      for (Piece const& kv : zigzag.pieces(ring.block))
        if (auto const p = distributed::product_of(
                q, kv, causal, 0, 80, 80))
          rows_of_keys += p->kv_rows;
  }
  // [ring]
  // Piece 1 sees pieces 0 and 1, piece 6 sees 0 to 6.
  expect(rows_of_keys == 10 * (2 + 7),
         "keys that are seen");

  // [same-sums]
  // Sums in the order of a tree over blocks of the
  // sequence are the same bits whoever holds which block,
  // and in whatever order results come.
  std::vector<float> slots{1e8f, 1, -1e8f, 1};
  auto const join = [&](int left, int right) {
    slots[std::size_t(left)] += slots[std::size_t(right)];
  };
  distributed::FixedTree tree(4);
  for (int block : {2, 0, 3, 1})
    tree.add(block, block, join);
  float const sum = slots[std::size_t(tree.root())];
  // [same-sums]
  expect(tree.done(), "all blocks have come");
  float const left = 1e8f + 1.0f, right = -1e8f + 1.0f;
  expect(sum == left + right,
         "the sum in the tree's order");

  // [blocks]
  // Pieces cut so that each lies within one such block.
  auto const cut =
      distributed::cut_at_multiples(zigzag.pieces(1), 8);
  // [blocks]
  expect(cut.size() == 2 + 2, "[10, 16) [16, 20) …");
  expect(cut[1].begin == 16, "the second block");
}

plan::Model model() {
  plan::Model m;
  m.layers = 2;
  m.heads = m.kv_heads = 16;
  m.hidden = 2048;
  m.intermediate = 8192;
  m.length = 65536;
  return m;
}

plan::Machine machine() {
  plan::Machine m;
  m.name = "two nodes";
  m.attention = m.gemm = 400e12;
  m.memory_bandwidth = 3e12;
  m.memory = 80e9;
  m.ranks_per_node = 8;
  m.cards = 2;
  m.inside =
      plan::Link{.latency = 5e-6, .bandwidth = 300e9};
  m.outside = {.latency = 8e-6, .bandwidth = 50e9};
  return m;
}

void plans() {
  // [plan]
  // All layouts of a transformer over 16 ranks, and which
  // one is done first of those that fit into memory.
  plan::RankPlan const all =
      plan::plan_ranks(model(), machine(), 16);
  for (plan::Prediction const& p : all.predictions)
    if (p.possible())
      std::printf("%-16s %.3g s, %2.0f %%, %.3g GB\n",
                  plan::layout_name(p.layout), p.seconds,
                  100 * p.efficiency(),
                  p.memory.device() / 1e9);
  plan::Layout const best =
      all.predictions[std::size_t(all.attention)].layout;
  // [plan]
  expect(plan::is_attention(best),
         "a layout of attention");
  for (plan::Prediction const& p : all.predictions)
    if (plan::is_attention(p.layout) && p.possible())
      expect(all.predictions[std::size_t(all.attention)]
                     .seconds <= p.seconds,
             "the fastest is chosen");

  // [predict]
  // One of them, with a card at a tenth of its bandwidth
  // and a rank that is slower than the others.
  plan::Disturbances bad_day;
  bad_day.ranks = {
      plan::SlowRank{.rank = 3, .factor = 1.2}};
  bad_day.cards = {plan::SlowCard{
      .node = 0, .card = 1, .factor = 0.1}};
  plan::check_disturbances(bad_day, machine(), 16);
  plan::Prediction const slow =
      plan::predict(plan::Layout::ring, model(),
                    machine(), 16, bad_day);
  // [predict]
  plan::Prediction const fine = plan::predict(
      plan::Layout::ring, model(), machine(), 16);
  expect(slow.seconds > 1.1 * fine.seconds,
         "it is slower");

  // [formula]
  // The same in closed form, for thousands of ranks,
  // where ranks share evenly: of one layer.
  double const seconds = plan::formula_seconds(
      plan::Layout::ring, model(), machine(), 16);
  // [formula]
  expect(near(seconds * 2, fine.seconds, 0.02),
         "formula and simulation agree");
}

void machine_files() {
  // [machine-file]
  // Machines as files, which attikos-plan reads: any JSON
  // by nlohmann's types. An unknown field is an error.
  using Json = nlohmann::ordered_json;
  Json const written =
      plan::machine_file<Json>(machine());
  std::string const text = written.dump(2);
  plan::Machine const read =
      plan::machine_of(Json::parse(text));
  // [machine-file]
  expect(read.inside.bandwidth == 300e9, "a field");
  Json wrong = written;
  wrong["speed"] = 1;
  bool refused = false;
  try {
    plan::machine_of(wrong);
  } catch (attikos::Error const&) {
    refused = true;
  }
  expect(refused, "an unknown field is refused");
}

// [schedule]
/// A schedule of one's own: each rank computes for a
/// millisecond and hands a megabyte to the next one.
class Neighbors : public plan::Schedule {
 public:
  explicit Neighbors(int ranks) : ranks_(ranks) {}
  int ranks() const override { return ranks_; }
  std::int64_t steps() const override { return 10; }
  void fill(std::int64_t,
            plan::Step& step) const override {
    auto const n = std::size_t(ranks_);
    step = {};
    step.work.assign(n, 1e-3);
    plan::Transfers ring;
    for (int r = 0; r < ranks_; ++r)
      ring.to.push_back((r + 1) % ranks_);
    ring.bytes.assign(n, 1e6);
    step.transfers = {ring};
  }

 private:
  int ranks_;
};
// [schedule]

void simulations() {
  // [simulate]
  // Event by event up to most_events steps of ranks,
  // which share links, and by a recurrence beyond. What
  // is not hidden by work is `exposed`.
  Neighbors const few(16);
  plan::Outcome const told =
      plan::simulate(few, machine());
  plan::Outcome const events =
      plan::simulate_events(few, machine());
  plan::Outcome const steps =
      plan::simulate_steps(few, machine());
  bool const by_events =
      few.ranks() * few.steps() <= plan::most_events;
  std::printf("%g s, of it waiting: %g s\n", told.seconds,
              told.exposed);
  // [simulate]
  expect(by_events && told.seconds == events.seconds,
         "few ranks are simulated by events");
  expect(near(events.seconds, 10e-3, 1e-9),
         "transfers are hidden by the work");
  expect(near(steps.seconds, events.seconds, 1e-9),
         "both simulations agree");

  // [routes]
  // Which way messages take: over another card where one
  // failed, and what that leaves of the bandwidth.
  plan::Disturbances failed;
  failed.cards = {{.node = 0, .card = 1, .factor = 0}};
  plan::Network const network(machine(), 16, failed);
  std::optional<plan::Route> const way =
      network.route(1, 9);  // rank 1 sends by card 1
  if (way)
    std::printf("over %d ports, %g bytes a second\n",
                way->count, way->most);
  else
    std::printf("%s\n",
                network.why_no_route(1, 9).c_str());
  // [routes]
  expect(way && near(way->most, 50e9, 1e-9),
         "a way by the other card");
  failed.cards.push_back({.node = 0, .card = 0});
  failed.cards.back().factor = 0;
  expect(
      !plan::Network(machine(), 16, failed).route(1, 9),
      "no way without cards");

  // [links]
  // Inside a node a message goes over a third rank.
  plan::SlowLink const cut{
      .from = 2, .to = 3, .factor = 0};
  plan::Disturbances severed;
  severed.links = {cut};
  plan::Outcome const around =
      plan::simulate(few, machine(), severed);
  // [links]
  expect(around.failure.empty(), "there is a way around");
}

void schedules() {
  // [steps]
  // The steps that a layout takes, one by one: who sends
  // how much to whom.
  plan::ContextSchedule const ring(
      plan::Layout::ring, model(), machine(), 16);
  plan::Step step;
  double bytes = 0;
  for (std::int64_t i = 0; i < ring.steps(); ++i) {
    ring.fill(i, step);
    for (plan::Transfers const& t : step.transfers)
      for (std::size_t r = 0; r < t.to.size(); ++r)
        if (t.to[r] >= 0) bytes += t.bytes[r];
  }
  plan::MemoryUse const memory = ring.memory();
  std::printf("%g GB sent, %g GB of buffers\n",
              bytes / 1e9, memory.messages / 1e9);
  // [steps]
  // 15 times all keys and values, of 2 bytes.
  expect(
      near(bytes, 15.0 * 2 * 65536 * 16 * 128 * 2, 1e-9),
      "bytes of a ring");

  // [product-steps]
  // A layer's products with weights spread over ranks.
  // Why not, where a layout cannot be.
  using plan::Layout;
  using plan::ProductSchedule;
  std::string const reason = ProductSchedule::why_not(
      Layout::tensor_parallel, model(), 16);
  plan::Outcome const products = plan::simulate(
      ProductSchedule(Layout::tensor_parallel, model(),
                      machine(), 16),
      machine());
  // [product-steps]
  expect(reason.empty(), "weights can be spread");
  double const alone =
      model().product_operations() / 16 / machine().gemm;
  expect(products.seconds > alone, "work takes its time");

  // [grid]
  // How two_level deals out 16 ranks on nodes of 8.
  plan::Grid const grid = plan::ContextSchedule::grid(
      Layout::two_level, machine(), 16);
  // [grid]
  expect(grid.heads == 8 && grid.ring == 2,
         "heads inside nodes, a ring between them");

  // [work]
  // What one block's products cost a rank: exact counts
  // of pairs, and the seconds that a machine has for
  // them.
  plan::check_model(model());
  auto const shards =
      distributed::Shards::zigzag(model().length, 16);
  plan::BlockWork const own = plan::block_work(
      shards.pieces(0), shards.pieces(0), model(), false);
  double const share =
      plan::seconds_of(own, model(), machine(), 16);
  double const one =
      plan::seconds_on_one(model(), machine());
  // [work]
  std::int64_t const rows = model().length / 32;
  expect(own.pairs == rows * (rows + 1) + rows * rows,
         "pairs of a rank's own block");
  expect(share < one / 16, "a part of a rank's share");

  // [pairs]
  // Of a product by itself, in closed form.
  distributed::Product const triangle{
      .q_rows = 100,
      .kv_rows = 100,
      .window = {.left = -1, .right = 0}};
  std::int64_t const pairs = plan::pairs_of(triangle);
  // [pairs]
  expect(pairs == 100 * 101 / 2, "half of a square");
}

int main() {
  shards();
  plans();
  machine_files();
  simulations();
  schedules();
  std::printf("all parts ran\n");
}
