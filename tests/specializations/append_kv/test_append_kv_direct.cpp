// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// append_kv/sm80_simt called directly over memory of cudaMalloc. The suite
// AppendKvSm80Runs fails without a card of compute capability 8.0; AppendKvSm80Refuses needs none.
#include <random>
#include <type_traits>

#include "companion/direct_replay.hpp"
#include "direct_append_kv.hpp"

namespace {

/// Why a call that `change` was done to is refused; "" if it is not.
template <class Change>
std::string refusal(Change change) {
  Device device{0, 9, 0, abi::Architecture::hopper, 132, 232448};
  alignas(16) static char memory[64];
  AppendKvArgs g;
  g.k_new = g.v_new = g.cos = g.sin = g.q = memory;
  g.k_cache = g.v_cache = g.q_out = memory;
  g.type_new = g.type_cache = g.type_q = g.type_q_out = DType::bfloat16;
  g.batch = 2, g.heads = 8, g.seqlen_new = 3, g.head_dim = g.head_dim_v = 128, g.capacity = 100;
  g.heads_q = 32, g.seqlen_q = 3;
  g.table_rows = 100, g.rotary_dim = 128;
  if constexpr (std::is_invocable_v<Change, AppendKvArgs&, Device&>)
    change(g, device);
  else
    change(g);
  auto const verdict = AppendKernel::accepts(g, device);
  EXPECT_EQ(verdict.ok, *verdict.reason == '\0');
  return verdict.reason;
}

TEST(AppendKvSm80Refuses, OtherDevicesAndTypes) {
  SKIP_IF_LEFT_OUT(AppendKernel);
  EXPECT_EQ(refusal([](AppendKvArgs&) {}), "");
  EXPECT_EQ(refusal([](AppendKvArgs&, Device& d) { d = Device{}; }), "no CUDA device");
  EXPECT_EQ(refusal([](AppendKvArgs&, Device& d) { d.compute_major = 7; }),
            "it needs compute capability 8.0");
  for (auto [from, to] : {std::pair{DType::float16, DType::bfloat16},
                          {DType::float16, DType::float32},
                          {DType::float64, DType::float32},
                          {DType::float32, DType::float64},
                          {DType::float8_e4m3, DType::float16},
                          {DType::float8_e4m3, DType::float8_e5m2},
                          {DType::int8, DType::int8}})
    EXPECT_EQ(refusal([&, a = from, b = to](AppendKvArgs& g) { g.type_new = a, g.type_cache = b; }),
              "it takes other element types");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.type_q_out = DType::float32; }),
            "q or its result has another element type than k_new");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.type_q = DType::float32, g.heads_q = 0; }), "");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.type_table = DType::float8_e4m3; }),
            "it does not read the tables' element type");
}

TEST(AppendKvSm80Refuses, ShapesAndPointers) {
  SKIP_IF_LEFT_OUT(AppendKernel);
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.capacity = -1; }), "an extent is negative");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.seqlen_new = std::int64_t{1} << 28; }),
            "an extent is too large");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.seqlen_new = (std::int64_t{1} << 28) - 1; }), "");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.batch = 1 << 20, g.seqlen_new = 1 << 20; }),
            "there are too many rows for one launch");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.capacity = std::int64_t{1} << 40; }), "");
  EXPECT_EQ(refusal([](AppendKvArgs& g) {
              g.page_table = static_cast<int const*>(g.cos), g.num_pages = 4;
            }),
            "page_size is 0");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.rotary_dim = 130; }),
            "rotary_dim is odd or above head_dim");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.rotary_dim = 63; }),
            "rotary_dim is odd or above head_dim");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.table_rows = 0; }), "the tables have no rows");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.sin = nullptr; }), "cos or sin is a null pointer");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.v_new = nullptr; }),
            "k_new, v_new or a cache is a null pointer");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.k_cache = nullptr; }),
            "k_new, v_new or a cache is a null pointer");
  EXPECT_EQ(refusal([](AppendKvArgs& g) { g.q_out = nullptr; }),
            "q or its result is a null pointer");
}

TEST(AppendKvSm80Refuses, NothingWhereThereIsNothing) {
  SKIP_IF_LEFT_OUT(AppendKernel);
  Device const device{0, 9, 0, abi::Architecture::hopper, 132, 232448};
  AppendKvArgs g;
  g.type_new = g.type_cache = DType::float16;
  EXPECT_EQ(AppendKernel::launch(g, device, nullptr), cudaSuccess);
  // No address is wanted where nothing can be written, and none of values without features.
  g.batch = 2, g.heads = 2, g.seqlen_new = 3, g.head_dim = g.head_dim_v = 8;
  EXPECT_EQ(AppendKernel::launch(g, device, nullptr), cudaSuccess);
  g.capacity = 10, g.head_dim_v = 0;
  EXPECT_STREQ(AppendKernel::accepts(g, device).reason,
               "k_new, v_new or a cache is a null pointer");
  g.head_dim = 0;
  EXPECT_EQ(AppendKernel::launch(g, device, nullptr), cudaSuccess);
}

constexpr Order all_orders[] = {Order::heads_first, Order::positions_first, Order::padded,
                                Order::odd};

/// Calls f for every element type.
template <class F>
void for_all_types(F const& f) {
  auto const call = [&]<class T>(std::type_identity<T> type) {
    if (!testing::Test::HasFailure()) f(type);
  };
  call(std::type_identity<__half>{}), call(std::type_identity<__nv_bfloat16>{});
  call(std::type_identity<float>{}), call(std::type_identity<double>{});
  call(std::type_identity<E4>{}), call(std::type_identity<E5>{});
}

template <class T>
void copies() {
  for (std::int64_t d : {1, 2, 3, 7, 8, 12, 16, 24, 33, 64, 80, 96, 128, 192, 256, 520, 1100})
    for (std::int64_t heads : {1, 2, 9}) {
      run_append<T>({.heads = heads, .d = d, .dv = d + d % 3});
      STOP_AT_FAILURE;
    }
  for (Order order : all_orders)
    for (Order order_cache : all_orders)
      for (std::int64_t d : {48, 64}) {
        run_append<T>({.heads = 5, .d = d, .dv = 32, .order = order, .order_cache = order_cache});
        STOP_AT_FAILURE;
      }
  run_append<T>({.heads = 3, .seqlen = 300, .capacity = 333, .lengths = {}});
}
TEST(AppendKvSm80Runs, Copies) {
  for_all_types([]<class T>(std::type_identity<T>) { copies<T>(); });
}

template <class T>
void rotated() {
  std::int64_t const dims[][2] = {{2, 2},    {16, 16},  {33, 32},   {64, 18},    {64, 64},
                                  {64, 32},  {72, 40},  {96, 96},   {80, 80},    {128, 128},
                                  {128, 64}, {128, 20}, {256, 256}, {1056, 1056}};
  for (auto const& e : dims)
    for (int form = 0; form < 4; ++form) {
      AppendCase t{.heads = 3, .d = e[0], .dv = 40, .rotary = e[1]};
      t.interleaved = form % 2 != 0, t.half_width = form >= 2;
      t.heads_q = 6, t.seqlen_q = 4;
      run_append<T>(t);
      STOP_AT_FAILURE;
      t.order = Order::positions_first, t.order_cache = Order::padded, t.in_place = true;
      run_append<T, T, __nv_bfloat16>(t);
      STOP_AT_FAILURE;
    }
  for (Order order : all_orders)
    for (Order order_cache : all_orders)
      for (bool interleaved : {false, true}) {
        run_append<T, T, __half>({.heads = 5,
                                  .rotary = 64,
                                  .interleaved = interleaved,
                                  .heads_q = 3,
                                  .seqlen_q = 6,
                                  .share = order == order_cache,
                                  .order = order,
                                  .order_cache = order_cache});
        STOP_AT_FAILURE;
      }
  run_append<T, T, double>({.rotary = 32, .heads_q = 2, .seqlen_q = 3});
  STOP_AT_FAILURE;
  // Positions before and past the tables take their first and last row.
  run_append<T>(
      {.rotary = 64, .table_rows = 9, .heads_q = 2, .seqlen_q = 9, .lengths = {7, 34, -4}});
}
TEST(AppendKvSm80Runs, Rotated) {
  for_all_types([]<class T>(std::type_identity<T>) { rotated<T>(); });
}

template <class T>
void pages() {
  for (std::int64_t page : {1, 2, 3, 16, 17, 64})
    for (std::int64_t seqlen : {1, 5, 40}) {
      AppendCase t{.seqlen = seqlen, .capacity = page * 6, .page_size = page};
      t.lengths = {0, static_cast<int>(t.capacity) - 2, -1};
      run_append<T>(t);
      STOP_AT_FAILURE;
      t.rotary = 64, t.order_cache = Order::positions_first, t.interleaved = page % 2 == 0;
      t.table_rows = 500;
      run_append<T>(t);
      STOP_AT_FAILURE;
    }
}
TEST(AppendKvSm80Runs, Pages) {
  for_all_types([]<class T>(std::type_identity<T>) { pages<T>(); });
}

template <class T>
void counts_and_offsets() {
  for (bool wide : {false, true})
    for (std::int64_t page : {0, 4})
      for (std::int64_t rotary : {0, 32}) {
        AppendCase t{.heads = 3, .seqlen = 9, .capacity = 24, .page_size = page, .rotary = rotary};
        t.heads_q = 2, t.seqlen_q = 7, t.wide = wide;
        t.counts = {0, 9, 4};
        run_append<T>(t);
        STOP_AT_FAILURE;
        t.counts = {-3, 100, 1};
        run_append<T>(t);
        STOP_AT_FAILURE;
        t.counts = {}, t.cu_q = {1, 1, 5, 6};  // packed queries beside padded tokens
        run_append<T>(t);
        STOP_AT_FAILURE;
        t.seqlen = 30, t.cu = {2, 9, 9, 27}, t.cu_q = {}, t.order = Order::positions_first;
        run_append<T>(t);
        STOP_AT_FAILURE;
        t.cu_q = {0, 3, 3, 7}, t.cu = {0, 0, 30, 30};
        run_append<T>(t);
        STOP_AT_FAILURE;
        t.cu = {0}, t.cu_q = {0}, t.lengths = {};  // all belong to none
        run_append<T>(t);
        STOP_AT_FAILURE;
      }
}
TEST(AppendKvSm80Runs, CountsAndOffsets) {
  for_all_types([]<class T>(std::type_identity<T>) { counts_and_offsets<T>(); });
}

template <class T>
void zero_extents() {
  for (auto [b, h, s, d, dv, capacity] : {std::array<std::int64_t, 6>{0, 2, 3, 8, 8, 12},
                                          {3, 0, 3, 8, 8, 12},
                                          {3, 2, 0, 8, 8, 12},
                                          {3, 2, 3, 8, 0, 12},
                                          {3, 2, 3, 0, 8, 12},
                                          {3, 2, 3, 8, 8, 0}})
    for (std::int64_t page : {0, 4}) {
      AppendCase t{.batch = b, .heads = h, .seqlen = s, .d = d, .dv = dv, .capacity = capacity};
      t.page_size = page;
      if (b == 0) t.lengths = {};
      run_append<T>(t);
      STOP_AT_FAILURE;
      if (d == 0) continue;
      t.rotary = 8, t.heads_q = 2, t.seqlen_q = 2;
      run_append<T>(t);
      STOP_AT_FAILURE;
    }
}
TEST(AppendKvSm80Runs, ZeroExtents) {
  for_all_types([]<class T>(std::type_identity<T>) { zero_extents<T>(); });
}

template <class X, class C>
void converted_cases() {
  for (std::int64_t d : {1, 8, 24, 64, 128})
    for (Order order : {Order::heads_first, Order::odd})
      for (std::int64_t rotary : {std::int64_t{0}, d / 16 * 16}) {
        AppendCase t{.heads = 3, .d = d, .dv = d + 4, .page_size = 8, .rotary = rotary};
        t.order = order, t.heads_q = 2, t.seqlen_q = 5, t.cu_q = {1, 2, 4, 4};
        run_append<X, C>(t);
        STOP_AT_FAILURE;
        t.interleaved = true, t.page_size = 0, t.cu_q = {}, t.in_place = true;
        run_append<X, C, X>(t);
        STOP_AT_FAILURE;
      }
}
TEST(AppendKvSm80Runs, CachesOfFewerBits) {
  converted_cases<float, __half>();
  converted_cases<float, __nv_bfloat16>();
  converted_cases<float, E4>();
  converted_cases<float, E5>();
  converted_cases<__half, E4>();
  converted_cases<__half, E5>();
  converted_cases<__nv_bfloat16, E4>();
  converted_cases<__nv_bfloat16, E5>();
}

/// Copies and conversions of every float16 or bfloat16 number, or of floats near what a smaller
/// type holds, are those of the portable kernel; a NaN may be another.
template <class X, class Own, class C, class OwnC>
void every_number(std::vector<Own> const& numbers) {
  SKIP_IF_LEFT_OUT(AppendKernel);
  Device const device = abi::query_device(abi::current_device());
  auto const n = static_cast<std::int64_t>(numbers.size());
  DeviceArray<Own> const from(numbers);
  DeviceArray<OwnC> const k(std::vector<OwnC>(numbers.size())),
      v(std::vector<OwnC>(numbers.size()));
  AppendKvArgs g;
  g.k_new = g.v_new = from.data, g.k_cache = k.data, g.v_cache = v.data;
  g.type_new = dtype_of<X>(), g.type_cache = dtype_of<C>();
  g.batch = g.heads = 1, g.seqlen_new = g.capacity = n / 64, g.head_dim = g.head_dim_v = 64;
  g.k_new_stride[2] = g.v_new_stride[2] = g.k_cache_stride[2] = g.v_cache_stride[2] = 64;
  g.k_new_stride[3] = g.v_new_stride[3] = g.k_cache_stride[3] = g.v_cache_stride[3] = 1;
  ASSERT_EQ(AppendKernel::launch(g, device, nullptr), cudaSuccess);
  std::vector<OwnC> result(numbers.size());
  OwnC const* const caches[] = {k.data, v.data};
  for (auto const* cache : caches) {
    ASSERT_CUDA(cudaMemcpy(result.data(), cache, result.size() * sizeof(OwnC), cudaMemcpyDefault));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      OwnC const want = static_cast<OwnC>(static_cast<float>(numbers[i]));
      bool const nan = std::isnan(static_cast<float>(want));
      ASSERT_EQ(nan ? std::isnan(static_cast<float>(result[i]))
                    : std::memcmp(&result[i], &want, sizeof want) == 0,
                true)
          << static_cast<float>(numbers[i]) << ": " << static_cast<float>(result[i]);
    }
  }
}
TEST(AppendKvSm80Runs, EveryNumberIsRoundedAsPortably) {
  std::vector<float16> halves;
  std::vector<bfloat16> others;
  std::vector<float> floats;
  for (int code = 0; code < 65536; ++code) {
    halves.push_back(float16::from_bits(static_cast<std::uint16_t>(code)));
    others.push_back(bfloat16::from_bits(static_cast<std::uint16_t>(code)));
    // About every number of 16 bits, at and beside the middle between two.
    for (float x : {static_cast<float>(halves.back()), static_cast<float>(others.back())}) {
      std::uint32_t bits;
      std::memcpy(&bits, &x, 4);
      for (std::uint32_t low : {0x0u, 0x1u, 0xFFFu, 0x1000u, 0x1001u, 0x7FFFu, 0x8000u, 0x8001u}) {
        std::uint32_t const other = bits | low;
        floats.emplace_back();
        std::memcpy(&floats.back(), &other, 4);
      }
    }
  }
  every_number<__half, float16, E4, float8_e4m3>(halves);
  every_number<__half, float16, E5, float8_e5m2>(halves);
  every_number<__nv_bfloat16, bfloat16, E4, float8_e4m3>(others);
  every_number<__nv_bfloat16, bfloat16, E5, float8_e5m2>(others);
  every_number<float, float, __half, float16>(floats);
  every_number<float, float, __nv_bfloat16, bfloat16>(floats);
  every_number<float, float, E4, float8_e4m3>(floats);
  every_number<float, float, E5, float8_e5m2>(floats);
}

TEST(AppendKvSm80Runs, RandomCases) {
  std::mt19937 random(20250811);
  auto const below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 400; ++round) {
    AppendCase t;
    t.batch = 1 + below(4), t.heads = 1 + below(10), t.seqlen = below(12);
    t.d = below(2) == 0 ? 16 * (1 + below(16)) : 1 + below(300);
    t.dv = below(2) == 0 ? t.d : 1 + below(150);
    t.page_size = below(2) == 0 ? 0 : 1 + below(9);
    t.capacity = t.page_size == 0 ? below(30) : t.page_size * below(6);
    if (below(3) > 0)
      t.rotary = below(2) == 0 ? t.d / 16 * 16 : 2 * below(static_cast<int>(t.d / 2) + 1);
    t.interleaved = below(2) == 0, t.half_width = below(2) == 0, t.table_rows = 1 + below(50);
    if (below(2) == 0) t.heads_q = 1 + below(12), t.seqlen_q = 1 + below(7);
    t.share = below(3) == 0, t.in_place = below(3) == 0, t.wide = below(2) == 0;
    t.order = all_orders[below(4)], t.order_cache = all_orders[below(4)];
    t.lengths.clear();
    for (std::int64_t b = 0; b < t.batch; ++b)
      t.lengths.push_back(below(static_cast<int>(t.capacity) + 4) - 2);
    auto const offsets = [&](std::int64_t total) {
      std::vector<int> list;
      for (std::int64_t b = 0; b <= t.batch; ++b)
        list.push_back(below(static_cast<int>(total) + 1));
      std::sort(list.begin(), list.end());
      return list;
    };
    int const storage = below(3);
    if (storage == 1)
      for (std::int64_t b = 0; b < t.batch; ++b) t.counts.push_back(below(14) - 1);
    if (storage == 2) t.cu = offsets(t.seqlen);
    if (t.heads_q != 0 && below(2) == 0) t.cu_q = offsets(t.seqlen_q);
    if (below(8) == 0) t.lengths.clear();
    switch (round % 7) {
      case 0:
        run_append<__half>(t);
        break;
      case 1:
        run_append<__nv_bfloat16>(t);
        break;
      case 2:
        run_append<float>(t);
        break;
      case 3:
        run_append<double, double, double>(t);
        break;
      case 4:
        run_append<float, __nv_bfloat16>(t);
        break;
      case 5:
        run_append<__nv_bfloat16, E4, __nv_bfloat16>(t);
        break;
      default:
        run_append<E5, E5, __half>(t);
    }
    STOP_AT_FAILURE;
  }
}

/// Lengths, counts, offsets and the table of pages are others in each round.
TEST(AppendKvSm80Runs, GraphReplaysWithOtherLengths) {
  SKIP_IF_LEFT_OUT(AppendKernel);
  using T = __nv_bfloat16;
  Device const device = abi::query_device(abi::current_device());
  for (bool packed : {false, true})
    for (std::int64_t rotary : {0, 128}) {
      AppendCase t{.batch = 3, .heads = 4, .seqlen = 24, .d = 128, .dv = 128, .capacity = 160};
      t.page_size = 16, t.rotary = rotary, t.table_rows = 200, t.heads_q = 8, t.seqlen_q = 24;
      if (packed)
        t.cu = t.cu_q = {0, 8, 16, 24};
      else
        t.counts = {24, 24, 24};
      AppendProblem<T, T, float> x(t);
      AppendKvArgs const g = x.arguments();
      captured_equals(
          {{x.k_cache.device, x.k_cache.host.size()},
           {x.v_cache.device, x.v_cache.host.size()},
           {x.q_out.device, x.q_out.host.size()}},
          [&](cudaStream_t stream) { return AppendKernel::launch(g, device, stream); },
          [&](int round) {
            int const starts[3] = {round * 7, 100 + round, 150 - round * 20};
            ASSERT_CUDA(cudaMemcpy(x.lengths.data, starts, 12, cudaMemcpyHostToDevice));
            int const counts[3] = {round, 24 - round, 30 * (round % 2)};
            int const cu[4] = {round, 2 * round, 12, 24 - round};
            if (!packed) {
              ASSERT_CUDA(cudaMemcpy(x.counts.data, counts, 12, cudaMemcpyHostToDevice));
            } else {
              ASSERT_CUDA(cudaMemcpy(x.cu.data, cu, 16, cudaMemcpyHostToDevice));
              ASSERT_CUDA(cudaMemcpy(x.cu_q.data, cu, 16, cudaMemcpyHostToDevice));
            }
            auto table = x.table;
            std::rotate(table.begin(), table.begin() + 3 * round, table.end());
            ASSERT_CUDA(
                cudaMemcpy(x.pages.data, table.data(), table.size() * 4, cudaMemcpyHostToDevice));
          });
    }
}

/// A launch may begin before the one ahead of it is over: what that one writes must be waited for.
TEST(AppendKvSm80Runs, ReadsWhatTheLaunchAheadWrites) {
  SKIP_IF_LEFT_OUT(AppendKernel);
  Device const device = abi::query_device(abi::current_device());
  ASSERT_GE(device.compute_major, 8) << "this suite needs a card of compute capability 8.0";
  std::int64_t const rows = 4096, d = 128, size = 8 * rows * d, links = 8;
  std::vector<std::uint16_t> numbers(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<std::uint16_t>(mix(static_cast<std::uint32_t>(i)));
  DeviceArray<std::uint16_t> const from(numbers),
      memory(std::vector<std::uint16_t>(static_cast<std::size_t>(2 * links * size), 0));
  AppendKvArgs g;
  g.type_new = g.type_cache = DType::float16;
  g.batch = 1, g.heads = 8, g.seqlen_new = g.capacity = rows, g.head_dim = g.head_dim_v = d;
  for (auto* stride : {g.k_new_stride, g.v_new_stride, g.k_cache_stride, g.v_cache_stride})
    stride[1] = rows * d, stride[2] = d, stride[3] = 1;
  for (int turn = 0; turn < 20; ++turn) {
    ASSERT_CUDA(cudaMemset(memory.data, turn, static_cast<std::size_t>(2 * links * size) * 2));
    g.k_new = g.v_new = from.data;
    for (int link = 0; link < links; ++link) {
      g.k_cache = memory.data + 2 * link * size;
      g.v_cache = memory.data + (2 * link + 1) * size;
      ASSERT_EQ(AppendKernel::launch(g, device, nullptr), cudaSuccess);
      g.k_new = g.v_cache, g.v_new = g.k_cache;
    }
    std::vector<std::uint16_t> last(numbers.size());
    for (int which : {1, 2}) {
      ASSERT_CUDA(cudaMemcpy(last.data(), memory.data + (2 * links - which) * size, last.size() * 2,
                             cudaMemcpyDeviceToHost));
      ASSERT_EQ(last == numbers, true) << "turn " << turn;
    }
  }
}

/// Heads lie more than 2^31 elements apart.
TEST(AppendKvSm80Runs, FarHeads) {
  SKIP_IF_LEFT_OUT(AppendKernel);
  Device const device = abi::query_device(abi::current_device());
  ASSERT_GE(device.compute_major, 8) << "this suite needs a card of compute capability 8.0";
  std::int64_t const far = (std::int64_t{1} << 31) + 64, rows = 16, d = 64, block = rows * d;
  unsigned char* memory = nullptr;
  auto const bytes = static_cast<std::size_t>(far + 8 * block) * 2;
  ASSERT_CUDA(cudaMalloc(&memory, bytes));
  ASSERT_CUDA(cudaMemset(memory, 0xFF, bytes));
  std::vector<std::uint16_t> numbers(static_cast<std::size_t>(2 * block)), got(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::uint16_t>(i);
  auto* const at = reinterpret_cast<std::uint16_t*>(memory);
  auto const half = static_cast<std::size_t>(block) * 2;
  for (int h : {0, 1})
    ASSERT_CUDA(cudaMemcpy(at + h * far, numbers.data() + h * block, half, cudaMemcpyDefault));
  AppendKvArgs g;
  g.type_new = g.type_cache = DType::bfloat16;
  g.batch = 1, g.heads = 2, g.seqlen_new = g.capacity = rows, g.head_dim = g.head_dim_v = d;
  for (auto* stride : {g.k_new_stride, g.v_new_stride, g.k_cache_stride, g.v_cache_stride})
    stride[1] = far, stride[2] = d, stride[3] = 1;
  g.k_new = g.v_new = at, g.k_cache = at + 2 * block, g.v_cache = at + 4 * block;
  ASSERT_EQ(AppendKernel::launch(g, device, nullptr), cudaSuccess);
  for (int part : {2, 4}) {
    for (int h : {0, 1})
      ASSERT_CUDA(
          cudaMemcpy(got.data() + h * block, at + part * block + h * far, half, cudaMemcpyDefault));
    EXPECT_EQ(got == numbers, true);
  }
  cudaFree(memory);
}

}  // namespace
