// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Few queries over many keys: which calls of attention() go to decode()'s kernels, that they have
// the bits of decode(), and what keeps a call from it.
#include <gtest/gtest.h>

#include <Kokkos_Core.hpp>
#include <attikos/attikos.hpp>
#include <cstring>
#include <string>

#include "support/tensors.hpp"

namespace attikos::test::attention_split {
namespace {

using Exec = Kokkos::DefaultHostExecutionSpace;
using Array = Tensor<float, 4, Exec>;

abi::AttentionArgs extents(std::int64_t batch, std::int64_t heads_q, std::int64_t heads_kv,
                           std::int64_t queries, std::int64_t keys) {
  abi::AttentionArgs g{};
  g.batch = batch;
  g.heads_q = heads_q;
  g.heads_kv = heads_kv;
  g.seqlen_q = queries;
  g.seqlen_kv = keys;
  g.head_dim = g.head_dim_v = 64;
  return g;
}

TEST(AttentionSplit, HostsGoByTheProblemAlone) {
  auto const splits = [](auto... n) { return detail::splits_keys_on_host(extents(n...)); };
  EXPECT_TRUE(splits(1, 4, 4, 1, 128));
  EXPECT_TRUE(splits(64, 32, 32, 2, 4096));
  EXPECT_TRUE(splits(1, 32, 8, 8, 512));
  EXPECT_FALSE(splits(1, 4, 4, 3, 4096));
  EXPECT_FALSE(splits(1, 32, 8, 9, 4096));
  EXPECT_FALSE(splits(1, 4, 4, 1, 127));
  EXPECT_FALSE(splits(1, 0, 0, 1, 4096));
}

TEST(AttentionSplit, HostsMakeNoMoreSplitsThanAreWanted) {
  for (std::int64_t keys : {0, 1, 255, 256, 257, 512, 513, 700, 5000})
    for (std::int64_t wanted : {1, 2, 3, 5, 8}) {
      auto const plan = detail::decode_plan_of_host<Exec, float>(extents(1, 4, 2, 1, keys), wanted);
      EXPECT_LE(plan.splits, wanted) << keys;
      EXPECT_GE(plan.splits * plan.chunk, keys) << wanted;
      EXPECT_LE((plan.splits - 1) * plan.chunk, keys) << wanted;
    }
}

TEST(AttentionSplit, DevicesByWhatStandsIdle) {
  auto const splits = [](std::int64_t multiprocessors, auto... n) {
    return detail::splits_keys_on({multiprocessors}, extents(n...));
  };
  EXPECT_TRUE(splits(132, 4, 8, 8, 1, 4096));
  EXPECT_TRUE(splits(132, 4, 32, 8, 16, 1024));
  EXPECT_FALSE(splits(132, 4, 8, 8, 17, 4096));
  EXPECT_FALSE(splits(132, 4, 8, 8, 1, 1023));
  // 64 sequences of 8 heads are 512 blocks.
  EXPECT_FALSE(splits(132, 64, 8, 8, 1, 4096));
  EXPECT_TRUE(splits(257, 64, 8, 8, 1, 4096));
  EXPECT_FALSE(splits(0, 1, 1, 1, 1, 4096));
}

TEST(AttentionSplit, PortableKernelsOfDevicesByRowsThatShareKeys) {
  auto const splits = [](std::int64_t multiprocessors, auto... n) {
    return detail::splits_keys_of_portable({multiprocessors}, extents(n...));
  };
  EXPECT_TRUE(splits(132, 64, 8, 8, 1, 4096));
  EXPECT_TRUE(splits(132, 64, 32, 8, 4, 1024));
  EXPECT_FALSE(splits(132, 64, 32, 8, 5, 4096));
  EXPECT_TRUE(splits(132, 4, 32, 8, 16, 1024));
  EXPECT_FALSE(splits(132, 64, 8, 8, 1, 1023));
  EXPECT_FALSE(splits(132, 64, 8, 8, 17, 4096));
  EXPECT_FALSE(splits(132, 1, 0, 0, 1, 4096));
}

/// One query, or as many as are wanted, over 700 keys.
struct Problem {
  Array q, k, v, out, expected;

  explicit Problem(std::int64_t queries)
      : q({2, 4, queries, 24}),
        k({2, 2, 700, 24}),
        v({2, 2, 700, 16}),
        out({2, 4, queries, 16}),
        expected({2, 4, queries, 16}) {
    Random random(7);
    q.fill_uniform(random);
    k.fill_uniform(random);
    v.fill_uniform(random);
  }

  template <class... Extras>
  std::string kernel(AttentionOptions const& options, Extras const&... extras) {
    return explain(op::attention, Exec(), q.view(), k.view(), v.view(), out.view(), options,
                   extras...)
        .kernel;
  }

  /// Whether out and expected hold the same bits.
  bool equal() {
    out.download();
    expected.download();
    for (std::int64_t b = 0; b < 2; ++b)
      for (std::int64_t h = 0; h < 4; ++h)
        for (std::int64_t i = 0; i < q.extent(2); ++i)
          for (std::int64_t j = 0; j < 16; ++j) {
            float const x = out(b, h, i, j), y = expected(b, h, i, j);
            if (std::memcmp(&x, &y, sizeof x) != 0) return false;
          }
    return true;
  }
};

TEST(AttentionSplit, HasTheBitsOfDecode) {
  for (std::int64_t queries : {1, 8}) {
    Problem p(queries);
    Tensor<std::int32_t, 1, Exec> lengths_kv({2});
    lengths_kv(0) = 700;
    lengths_kv(1) = 301;
    lengths_kv.upload();
    EXPECT_EQ(p.kernel({.causal = true}, lengths(none, lengths_kv.view())), "portable/split");
    attention(Exec(), p.q.view(), p.k.view(), p.v.view(), p.out.view(), {.causal = true},
              lengths(none, lengths_kv.view()));
    decode(Exec(), p.q.view(), p.k.view(), p.v.view(), p.expected.view(), {.causal = true},
           lengths(none, lengths_kv.view()));
    Kokkos::fence("attikos_test");
    EXPECT_TRUE(p.equal()) << queries;
  }
}

TEST(AttentionSplit, StaysWhereItWasAskedFor) {
  Problem few(8), many(9);
  EXPECT_EQ(few.kernel({}), "portable/split");
  EXPECT_EQ(few.kernel({.kernel = "portable"}), "portable/flash");
  EXPECT_EQ(few.kernel({.kernel = "portable/flash"}), "portable/flash");
  EXPECT_EQ(few.kernel({.algorithm = AttentionAlgorithm::naive}), "portable/naive");
  EXPECT_EQ(many.kernel({}), "portable/flash");
  EXPECT_EQ(attention_workspace_size(many.q.view(), many.k.view(), many.v.view()), 0u);
  EXPECT_GT(attention_workspace_size(few.q.view(), few.k.view(), few.v.view()), 0u);
}

}  // namespace
}  // namespace attikos::test::attention_split
