// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Probes of what runs below sm_90 too: matrix products of a warp, loads of fragments, asynchronous
// copies of a thread. Each kernel moves data by the maps that the wrappers document, and the host
// knows the result from the integers.
#include <attikos/ptx/cp_async.hpp>
#include <attikos/ptx/ldmatrix.hpp>
#include <attikos/ptx/mma_sync.hpp>

#include "probe.hpp"
#include "ptx/mbarrier.cuh"
#include "ptx/shared_memory.cuh"
#include "ptx/thread_index.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using ProbeMmaSync = Probe;
using ProbeShared = Probe;
using ProbeCopyAsync = Probe;

using Word = std::uint32_t;

// NAME: the types of A, B and D, and the product under test.
#define PROBE_PRODUCT(NAME, TA, TB, ACC, CALL)                                           \
  struct NAME {                                                                          \
    using A = TA;                                                                        \
    using B = TB;                                                                        \
    using Acc = ACC;                                                                     \
    static __device__ void multiply(ACC (&d)[4], Word const (&a)[4], Word b0, Word b1) { \
      CALL(d, a, b0, b1);                                                                \
    }                                                                                    \
  }
PROBE_PRODUCT(Float16, __half, __half, float, mma_f16);
PROBE_PRODUCT(BFloat16, __nv_bfloat16, __nv_bfloat16, float, mma_bf16);
PROBE_PRODUCT(TFloat32, float, float, float, mma_tf32);
PROBE_PRODUCT(Int8, std::int8_t, std::int8_t, int, mma_s8);
PROBE_PRODUCT(E4E4, E4, E4, float, (mma_f8<false, false>));
PROBE_PRODUCT(E4E5, E4, E5, float, (mma_f8<false, true>));
PROBE_PRODUCT(E5E4, E5, E4, float, (mma_f8<true, false>));
PROBE_PRODUCT(E5E5, E5, E5, float, (mma_f8<true, true>));
#undef PROBE_PRODUCT

/// d[16, 8] += a[16, 32 bytes] · b[8, 32 bytes]ᵀ; `dirt` is set in every word of a and b.
template <class Product>
__global__ void product_kernel(Word const* a, Word const* b, typename Product::Acc* d, Word dirt) {
  int const g = static_cast<int>(threadIdx.x) / 4, q = static_cast<int>(threadIdx.x) % 4;
  Word x[4];
  for (int h = 0; h < 2; ++h)
    for (int l = 0; l < 2; ++l) x[h + 2 * l] = a[(g + 8 * h) * 8 + 4 * l + q] | dirt;
  typename Product::Acc acc[4];
  for (int i = 0; i < 4; ++i) acc[i] = d[(g + i / 2 * 8) * 8 + 2 * q + i % 2];
  Product::multiply(acc, x, b[g * 8 + q] | dirt, b[g * 8 + 4 + q] | dirt);
  for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * q + i % 2] = acc[i];
}

std::vector<Word> words_of(Bytes const& bytes) {
  std::vector<Word> words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  return words;
}

template <class Product>
void check_product(char const* name, Word dirt = 0) {
  using A = typename Product::A;
  using B = typename Product::B;
  using Acc = typename Product::Acc;
  int const depth = 32 / static_cast<int>(sizeof(A));
  for (std::uint32_t seed = 1; seed <= 4; ++seed) {
    Integers const x(16, depth, limit_of<A>(), seed), y(8, depth, limit_of<B>(), seed + 100);
    Integers const start(16, 8, 50, seed + 200);
    std::vector<Acc> begin(start.values.begin(), start.values.end());
    DeviceArray<Word> const a(words_of(rows_of<A>(x))), b(words_of(rows_of<B>(y)));
    DeviceArray<Acc> const d(begin);
    product_kernel<Product><<<1, 32>>>(a.data(), b.data(), d.data(), dirt);
    auto expected = product(x, y, 0, 16, 0, depth, 0);
    for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += start.values[i];
    expect_same(d.host(), expected, name);
  }
}

TEST_F(ProbeMmaSync, SixteenBits) {
  check_product<Float16>("float16");
  check_product<BFloat16>("bfloat16");
}
// The lowest 13 bits of a factor are set: they must not count.
TEST_F(ProbeMmaSync, TFloat32) {
  check_product<TFloat32>("clean");
  check_product<TFloat32>("low bits set", 0x1FFF);
}
TEST_F(ProbeMmaSync, EightBits) {
  check_product<Int8>("int8");
  check_product<E4E4>("e4m3 e4m3");
  check_product<E4E5>("e4m3 e5m2");
  check_product<E5E4>("e5m2 e4m3");
  check_product<E5E5>("e5m2 e5m2");
}

/// d[16, 8] += a[16, 4 Steps] · b[8, 4 Steps]ᵀ.
template <int Steps>
__global__ void float64_kernel(double const* a, double const* b, double* d) {
  int const g = static_cast<int>(threadIdx.x) / 4, q = static_cast<int>(threadIdx.x) % 4;
  double x[2 * Steps], y[Steps], acc[4];
  for (int s = 0; s < Steps; ++s) {
    for (int h = 0; h < 2; ++h) x[2 * s + h] = a[(g + 8 * h) * 4 * Steps + 4 * s + q];
    y[s] = b[g * 4 * Steps + 4 * s + q];
  }
  for (int i = 0; i < 4; ++i) acc[i] = d[(g + i / 2 * 8) * 8 + 2 * q + i % 2];
  mma_f64<Steps>(acc, x, y);
  for (int i = 0; i < 4; ++i) d[(g + i / 2 * 8) * 8 + 2 * q + i % 2] = acc[i];
}

__global__ void float64_8_rows_kernel(double const* a, double const* b, double* d) {
  int const g = static_cast<int>(threadIdx.x) / 4, q = static_cast<int>(threadIdx.x) % 4;
  double acc[2] = {d[g * 8 + 2 * q], d[g * 8 + 2 * q + 1]};
  mma_f64_8_rows(acc, a[g * 4 + q], b[g * 4 + q]);
  for (int j = 0; j < 2; ++j) d[g * 8 + 2 * q + j] = acc[j];
}

// Factors of 24 bits: only float64 keeps their products.
void check_float64(void (*kernel)(double const*, double const*, double*), int rows, int steps) {
  Integers const x(rows, 4 * steps, 1 << 23, 3), y(8, 4 * steps, 1 << 23, 5);
  Integers const start(rows, 8, 1000, 7);
  DeviceArray<double> const a(std::vector<double>(x.values.begin(), x.values.end()));
  DeviceArray<double> const b(std::vector<double>(y.values.begin(), y.values.end()));
  DeviceArray<double> const d(std::vector<double>(start.values.begin(), start.values.end()));
  kernel<<<1, 32>>>(a.data(), b.data(), d.data());
  auto expected = product(x, y, 0, rows, 0, 4 * steps, 0);
  for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += start.values[i];
  expect_same(d.host(), expected, "float64");
}

TEST_F(ProbeMmaSync, Float64) {
  check_float64(float64_kernel<1>, 16, 1);
  check_float64(float64_kernel<2>, 16, 2);
  check_float64(float64_kernel<4>, 16, 4);
  check_float64(float64_8_rows_kernel, 8, 1);
}

/// Element j of row r of matrix i is 64 i + 8 r + j. Rows lie 48 bytes apart, out of order.
__global__ void load_matrices_kernel(Word* plain, Word* transposed) {
  __shared__ __align__(16) std::uint16_t memory[32 * 24];
  int const lane = static_cast<int>(threadIdx.x), row = lane * 5 % 32;
  for (int j = 0; j < 8; ++j) memory[row * 24 + j] = static_cast<std::uint16_t>(lane * 8 + j);
  __syncwarp();
  Word d[4];
  load_matrices(d, shared_address(&memory[row * 24]));
  for (int i = 0; i < 4; ++i) plain[lane * 4 + i] = d[i];
  load_matrices<true>(d, shared_address(&memory[row * 24]));
  for (int i = 0; i < 4; ++i) transposed[lane * 4 + i] = d[i];
}

TEST_F(ProbeShared, LoadMatrices) {
  DeviceArray<Word> const plain(128), transposed(128);
  load_matrices_kernel<<<1, 32>>>(plain.data(), transposed.data());
  std::vector<Word> rows, columns;
  for (Word lane = 0; lane < 32; ++lane)
    for (Word i = 0; i < 4; ++i) {
      Word const g = lane / 4, q = lane % 4, matrix = 64 * i;
      rows.push_back((matrix + 8 * g + 2 * q) | (matrix + 8 * g + 2 * q + 1) << 16);
      columns.push_back((matrix + 16 * q + g) | (matrix + 16 * q + 8 + g) << 16);
    }
  expect_same(plain.host(), rows, "plain");
  expect_same(transposed.host(), columns, "transposed");
}

constexpr int shared_words = 32 * 4;

/// What the wrappers for ordinary accesses read is written by the language, and the reverse.
__global__ void shared_kernel(Word const* values, Word* read, Word* written) {
  __shared__ __align__(16) Word memory[shared_words];
  int const lane = fresh_thread();
  auto const emit = [&](int form, Word const(&words)[4]) {
    for (int i = 0; i < 4; ++i) read[(form * 32 + lane) * 4 + i] = words[i];
  };
  for (int i = 0; i < 4; ++i) memory[lane * 4 + i] = values[lane * 4 + i];
  __syncwarp();
  int const other = (lane + 7) % 32;  // not what this thread may still hold in registers
  Word const at = shared_address(&memory[other * 4]);
  Word words[4];
  load_shared_16(words, at);
  emit(0, words);
  for (int i = 0; i < 4; ++i) words[i] = load_shared_4(at + 4 * static_cast<Word>(i));
  emit(1, words);
  for (int i = 0; i < 2; ++i) {
    double const x = load_shared_8(at + 8 * static_cast<Word>(i));
    words[2 * i] = static_cast<Word>(__double2loint(x));
    words[2 * i + 1] = static_cast<Word>(__double2hiint(x));
  }
  emit(2, words);
  float4 const four = load_shared(at);
  Word const as_bits[4] = {__float_as_uint(four.x), __float_as_uint(four.y),
                           __float_as_uint(four.z), __float_as_uint(four.w)};
  emit(3, as_bits);
  for (int i = 0; i < 4; ++i)
    words[i] = __float_as_uint(load_shared_word(at + 4 * static_cast<Word>(i)));
  emit(4, words);
  for (int i = 0; i < 2; ++i) {
    float2 const two = load_shared_two(at + 8 * static_cast<Word>(i));
    words[2 * i] = __float_as_uint(two.x), words[2 * i + 1] = __float_as_uint(two.y);
  }
  emit(5, words);
  float4 const ordered = load_shared_four(at);
  Word const ordered_bits[4] = {__float_as_uint(ordered.x), __float_as_uint(ordered.y),
                                __float_as_uint(ordered.z), __float_as_uint(ordered.w)};
  emit(6, ordered_bits);
  double2 const pair = load_shared_pair(at);
  Word const pair_bits[4] = {
      static_cast<Word>(__double2loint(pair.x)), static_cast<Word>(__double2hiint(pair.x)),
      static_cast<Word>(__double2loint(pair.y)), static_cast<Word>(__double2hiint(pair.y))};
  emit(7, pair_bits);

  for (int form = 0; form < 4; ++form) {
    __syncwarp();
    for (int i = 0; i < 4; ++i) {
      words[i] = values[lane * 4 + i] + static_cast<Word>(form);
      memory[lane * 4 + i] = 0;
    }
    Word const to = shared_address(&memory[lane * 4]);
    if (form == 0) store_shared_16(to, words);
    for (int i = 0; i < 4; ++i) {
      if (form == 1) store_shared_4(to + 4 * static_cast<Word>(i), words[i]);
      if (form == 2) store_shared(to + 4 * static_cast<Word>(i), __uint_as_float(words[i]));
    }
    if (form == 3)
      store_shared(to, make_float4(__uint_as_float(words[0]), __uint_as_float(words[1]),
                                   __uint_as_float(words[2]), __uint_as_float(words[3])));
    __syncwarp();
    for (int i = 0; i < 4; ++i) written[(form * 32 + lane) * 4 + i] = memory[other * 4 + i];
  }
}

TEST_F(ProbeShared, LoadsAndStores) {
  std::vector<Word> values, read, written;
  for (Word i = 0; i < shared_words; ++i) values.push_back(mix(i) >> 2);  // no NaN
  for (std::size_t form = 0; form < 8; ++form)
    for (std::size_t i = 0; i < shared_words; ++i) read.push_back(values[(i + 28) % shared_words]);
  for (Word form = 0; form < 4; ++form)
    for (std::size_t i = 0; i < shared_words; ++i)
      written.push_back(values[(i + 28) % shared_words] + form);
  DeviceArray<Word> const input(values), loaded(read.size()), stored(written.size());
  shared_kernel<<<1, 32>>>(input.data(), loaded.data(), stored.data());
  expect_same(loaded.host(), read, "loads");
  expect_same(stored.host(), written, "stores");
}

/// Thread t copies the first t % (Size + 1) bytes of its `Size`; where that is none, from nowhere.
template <int Size>
__global__ void copy_kernel(unsigned char const* from, unsigned char* out) {
  __shared__ __align__(16) unsigned char memory[128 * Size];
  int const t = static_cast<int>(threadIdx.x), bytes = t % (Size + 1);
  for (int i = 0; i < Size; ++i) memory[t * Size + i] = 0xEE;
  copy_async<Size>(shared_address(&memory[t * Size]), bytes == 0 ? nullptr : from + t * Size,
                   bytes);
  copy_async_commit();
  copy_async_wait<0>();
  __syncthreads();
  int const other = 127 - t;
  for (int i = 0; i < Size; ++i) out[other * Size + i] = memory[other * Size + i];
}

template <int Size>
void check_copy() {
  Bytes source, expected;
  for (std::uint32_t i = 0; i < 128 * Size; ++i) {
    source.push_back(static_cast<unsigned char>(mix(i) % 255 + 1));
    bool const copied = i % Size < i / Size % (Size + 1);
    expected.push_back(copied ? source.back() : static_cast<unsigned char>(0));
  }
  DeviceArray<unsigned char> const from(source), out(expected.size());
  copy_kernel<Size><<<1, 128>>>(from.data(), out.data());
  expect_same(out.host(), expected, "copies");
}

TEST_F(ProbeCopyAsync, ZerosBehindWhatIsCopied) {
  check_copy<4>();
  check_copy<8>();
  check_copy<16>();
}

constexpr int groups = 8;

/// A ring of two buffers: while group i is waited for, group i + 1 is under way.
__global__ void copy_groups_kernel(Word const* from, Word* out) {
  __shared__ __align__(16) Word memory[2][128 * 8];
  int const t = static_cast<int>(threadIdx.x);
  auto const copy = [&](int group) {
    Word* const to = memory[group % 2];
    Word const* const source = from + group * 128 * 8;
    copy_async_whole(shared_address(to + t * 4), source + t * 4);
    for (int i = 4; i < 8; ++i)
      copy_async_four(shared_address(to + i * 128 + t), source + i * 128 + t);
    copy_async_commit();
  };
  copy(0);
  for (int group = 0; group < groups; ++group) {
    if (group + 1 < groups)
      copy(group + 1), copy_async_wait<1>();
    else
      copy_async_wait<0>();
    __syncthreads();
    for (int i = 0; i < 8; ++i)
      out[group * 128 * 8 + i * 128 + 127 - t] = memory[group % 2][i * 128 + 127 - t];
    __syncthreads();
  }
}

TEST_F(ProbeCopyAsync, GroupsInTurn) {
  std::vector<Word> source;
  for (Word i = 0; i < groups * 128 * 8; ++i) source.push_back(mix(i));
  DeviceArray<Word> const from(source), out(source.size());
  copy_groups_kernel<<<1, 128>>>(from.data(), out.data());
  expect_same(out.host(), source, "groups");
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
