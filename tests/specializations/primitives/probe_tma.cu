// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Probes of the copy engine: boxes of tensors of three and four dimensions with their edges
// outside, into one block and into several, stores and additions; stores of 8 × 8 matrices. The
// host cuts the boxes out byte by byte and swizzles them by the published formula.
#include <array>
#include <string>

#include "common/tensor_map.cuh"
#include "probe.hpp"
#include "ptx/cluster.cuh"
#include "ptx/tma.cuh"
#include "ptx/tma_4d.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using ProbeTma = Probe;
using ProbeStoreMatrices = Probe;

constexpr int threads = 128, max_boxes = 16, max_cluster = 4;
constexpr unsigned char untouched = 0xCC;
using Corner = std::array<int, 4>;

/// A tensor of bytes without a pattern, those between its lines and around it included.
struct Tensor {
  int element;                                 // bytes
  std::array<std::int64_t, 4> extent, stride;  // elements, bytes
  Bytes memory;

  Tensor(int element_, std::array<std::int64_t, 4> const& extent_,
         std::array<std::int64_t, 4> const& stride_)
      : element(element_), extent(extent_), stride(stride_) {
    std::int64_t size = 16;
    for (std::size_t r = 0; r < 4; ++r) size += extent[r] * stride[r];
    for (std::int64_t i = 0; i < size; ++i)
      memory.push_back(static_cast<unsigned char>(mix(static_cast<std::uint32_t>(i)) | 1));
  }
  /// Where byte `byte` of line `y` of the box at `corner` lies, -1 outside.
  std::int64_t find(Corner const& corner, int y, int byte) const {
    std::int64_t const at[4] = {corner[0] + byte / element, corner[1] + y, corner[2], corner[3]};
    std::int64_t offset = byte % element;
    for (std::size_t r = 0; r < 4; ++r) {
      if (at[r] < 0 || at[r] >= extent[r]) return -1;
      offset += at[r] * stride[r];
    }
    return offset;
  }
  Bytes box(Corner const& corner, int lines, bool swizzles = true) const {
    Bytes bytes(static_cast<std::size_t>(lines) * 128);
    for (int y = 0; y < lines; ++y)
      for (int i = 0; i < 128; ++i) {
        std::int64_t const from = find(corner, y, i);
        auto const to = static_cast<std::size_t>(y * 128 + i);
        bytes[swizzles ? swizzled(to) : to] =
            from < 0 ? static_cast<unsigned char>(0) : memory[static_cast<std::size_t>(from)];
      }
    return bytes;
  }
  TensorMapSource source(void const* data, CUtensorMapDataType type) const {
    return {data, type, element, extent[0], extent[1], extent[2], stride[1], stride[2]};
  }
};

struct BoxParams {
  CUtensorMap map;
  int boxes, lines, rank;
  int corner[max_boxes][4];
  unsigned blocks;  // of the cluster, that a box goes to
  unsigned char* out;
};

__device__ void fill(uint4* memory, int bytes, unsigned char value) {
  unsigned const word = value * 0x01010101u;
  for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += threads)
    memory[i] = make_uint4(word, word, word, word);
  fence_proxy_async();
}

/// One box after the other into the same place; `out` receives them as they lie there.
__global__ void load_kernel(__grid_constant__ BoxParams const p) {
  extern __shared__ __align__(1024) uint4 memory[];
  __shared__ std::uint64_t barrier;
  int const bytes = p.lines * 128;
  if (threadIdx.x == 0) {
    prefetch_tensor_map(&p.map);
    mbarrier_init(&barrier, 1);
    fence_mbarrier_init();
  }
  for (int b = 0; b < p.boxes; ++b) {
    fill(memory, bytes, untouched);
    __syncthreads();
    if (threadIdx.x == 0) {
      Keep const keep = b % 3 == 0 ? Keep::normal : b % 3 == 1 ? Keep::briefly : Keep::long_term;
      int const* const c = p.corner[b];
      mbarrier_arrive_expect(&barrier, static_cast<std::uint32_t>(bytes));
      if (p.rank == 4)
        tma_load(memory, &p.map, &barrier, keep, c[0], c[1], c[2], c[3]);
      else
        tma_load(memory, &p.map, &barrier, keep, c[0], c[1], c[2]);
    }
    mbarrier_wait(&barrier, b & 1);
    uint4* const out = reinterpret_cast<uint4*>(p.out + b * bytes);
    for (int i = static_cast<int>(threadIdx.x); i < bytes / 16; i += threads) out[i] = memory[i];
    __syncthreads();
  }
}

/// Block r of a cluster sends box r to all of `blocks`; `out` receives every block's memory.
__global__ void multicast_kernel(__grid_constant__ BoxParams const p) {
  extern __shared__ __align__(1024) uint4 memory[];
  __shared__ std::uint64_t barrier;
  int const rank = static_cast<int>(cluster_rank()), bytes = p.lines * 128;
  fill(memory, p.boxes * bytes, untouched);
  if (threadIdx.x == 0) {
    mbarrier_init(&barrier, 1);
    fence_mbarrier_init();
  }
  cluster_sync();
  bool const receives = (p.blocks >> rank & 1) != 0;
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect(&barrier, receives ? static_cast<std::uint32_t>(p.boxes * bytes) : 0);
    int const* const c = p.corner[rank];
    tma_load_multicast(memory + rank * bytes / 16, &p.map, &barrier,
                       static_cast<std::uint16_t>(p.blocks), Keep::normal, c[0], c[1], c[2]);
  }
  mbarrier_wait(&barrier, 0);
  cluster_sync();
  uint4* const out = reinterpret_cast<uint4*>(p.out + rank * p.boxes * bytes);
  for (int i = static_cast<int>(threadIdx.x); i < p.boxes * bytes / 16; i += threads)
    out[i] = memory[i];
}

/// Stores boxes of bytes without a pattern by way of two buffers, each filled again once it has
/// been read.
__global__ void store_kernel(__grid_constant__ BoxParams const p) {
  extern __shared__ __align__(1024) uint4 memory[];
  int const bytes = p.lines * 128;
  for (int b = 0; b < p.boxes; ++b) {
    uint4* const buffer = memory + b % 2 * bytes / 16;
    if (threadIdx.x == 0) tma_store_wait_read<1>();
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < bytes; i += threads)
      reinterpret_cast<unsigned char*>(buffer)[i] =
          static_cast<unsigned char>(mix(static_cast<unsigned>(b * bytes + i)));
    fence_proxy_async();
    __syncthreads();
    if (threadIdx.x == 0) {
      tma_store(&p.map, buffer, p.corner[b][0], p.corner[b][1], p.corner[b][2]);
      tma_store_commit();
    }
  }
  if (threadIdx.x == 0) tma_store_wait_read<0>();
}

void set_corners(BoxParams& p, std::vector<Corner> const& corners, int lines) {
  p.boxes = static_cast<int>(corners.size()), p.lines = lines;
  for (std::size_t b = 0; b < corners.size(); ++b)
    for (std::size_t r = 0; r < 4; ++r) p.corner[b][r] = corners[b][r];
}

void check_loads(Tensor const& t, BoxParams& p, std::vector<Corner> const& corners, int lines,
                 bool swizzles = true) {
  set_corners(p, corners, lines);
  DeviceArray<unsigned char> const out(corners.size() * static_cast<std::size_t>(lines) * 128);
  p.out = out.data();
  ASSERT_CUDA(launch_clusters(load_kernel, 1, 1, threads, lines * 128, nullptr, p));
  ASSERT_CUDA(cudaDeviceSynchronize());
  auto const got = out.host();
  for (std::size_t b = 0; b < corners.size(); ++b) {
    Corner const& c = corners[b];
    SCOPED_TRACE(testing::Message() << t.element << " bytes, " << lines << " lines from " << c[0]
                                    << ", " << c[1] << ", " << c[2] << ", " << c[3]);
    expect_same(&got[b * static_cast<std::size_t>(lines) * 128], t.box(c, lines, swizzles), "box");
  }
}

/// Corners of boxes of `width` × `lines`: inside, over every edge, wholly outside. The first
/// coordinate counts whole chunks of 16 bytes, of which a line has eight.
std::vector<Corner> corners_of(int width, int lines) {
  int const chunk = width / 8;
  return {{0, 0, 0, 0},
          {width, lines, 1, 1},
          {2 * width, 2 * lines, 2, 0},
          {chunk, 5, 1, 1},
          {-chunk, 0, 0, 1},
          {0, -5, 2, 0},
          {-4 * chunk, -1, 1, 1},
          {-width, 0, 0, 0},
          {0, -lines, 0, 1},
          {1000 * width, 0, 0, 0},
          {0, 1000000, 1, 1},
          {width, 0, 3, 0},
          {0, lines, -1, 1},
          {2 * width + chunk, lines + 3, 0, 1}};
}

void check_load_type(CUtensorMapDataType type, int bytes,
                     CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B) {
  int const width = 128 / bytes;
  std::int64_t const inner = 2 * width + width / 8 + 3;  // the last box is cut in a chunk
  for (int lines : {1, 16, 37, 128}) {
    Tensor const t(bytes, {inner, 2 * lines + 3, 3, 1},
                   {bytes, (inner * bytes + 15) / 16 * 16 + 32, ((2 * lines + 3) + 2) * 512, 0});
    DeviceArray<unsigned char> const memory(t.memory);
    BoxParams p{};
    p.rank = 3;
    auto corners = corners_of(width, lines);
    for (Corner& c : corners) c[3] = 0;
    ASSERT_CUDA(make_tensor_map(&p.map, t.source(memory.data(), type), width, lines, swizzle));
    check_loads(t, p, corners, lines, swizzle != CU_TENSOR_MAP_SWIZZLE_NONE);
  }
}
template <class T>
void check_load_type() {
  check_load_type(TensorMapElement<T>::map, sizeof(T));
}

TEST_F(ProbeTma, LoadsEveryType) {
  check_load_type<__half>();
  check_load_type<__nv_bfloat16>();
  check_load_type<E4>();
  check_load_type<E5>();
  check_load_type<std::int8_t>();
  check_load_type<float>();
  check_load_type(CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8);
  check_load_type(CU_TENSOR_MAP_DATA_TYPE_INT32, 4);
}
TEST_F(ProbeTma, LoadsWithoutSwizzle) {
  check_load_type(CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 4, CU_TENSOR_MAP_SWIZZLE_NONE);
}

// Extents of 1 leave their strides open: the caller's may be anything.
TEST_F(ProbeTma, LoadsWithoutStrides) {
  Tensor const t(2, {50, 1, 1, 1}, {2, 0, 0, 0});
  DeviceArray<unsigned char> const memory(t.memory);
  TensorMapSource source = t.source(memory.data(), TensorMapElement<__half>::map);
  source.outer_stride = -3, source.batch_stride = 7;
  BoxParams p{};
  p.rank = 3;
  ASSERT_CUDA(make_tensor_map(&p.map, source, 64, 8));
  check_loads(t, p, {{0, 0, 0, 0}, {32, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}}, 8);
}

// Positions further apart than heads, as in memory [batch, position, head, feature].
TEST_F(ProbeTma, LoadsFourDimensions) {
  for (int lines : {8, 64}) {
    std::int64_t const heads = 3, features = 136, line = features * 2 + 16;
    Tensor const t(2, {features, 2 * lines + 5, heads, 2},
                   {2, heads * line, line, (2 * lines + 9) * heads * line});
    DeviceArray<unsigned char> const memory(t.memory);
    BoxParams p{};
    p.rank = 4;
    cuuint64_t const extents[4] = {136, static_cast<cuuint64_t>(2 * lines + 5), 3, 2};
    cuuint64_t const strides[3] = {static_cast<cuuint64_t>(t.stride[1]),
                                   static_cast<cuuint64_t>(t.stride[2]),
                                   static_cast<cuuint64_t>(t.stride[3])};
    cuuint32_t const box[4] = {64, static_cast<cuuint32_t>(lines), 1, 1};
    ASSERT_CUDA(encode_tensor_map(&p.map, TensorMapElement<__nv_bfloat16>::map, memory.data(),
                                  extents, strides, box));
    auto corners = corners_of(64, lines);
    corners.push_back({0, 0, 0, 2});
    corners.push_back({0, 0, 0, -1});
    check_loads(t, p, corners, lines);
  }
}

TEST_F(ProbeTma, LoadsIntoSeveralBlocks) {
  int const lines = 24;
  Tensor const t(2, {150, 100, 2, 1}, {2, 320, 40000, 0});
  DeviceArray<unsigned char> const memory(t.memory);
  BoxParams p{};
  ASSERT_CUDA(
      make_tensor_map(&p.map, t.source(memory.data(), TensorMapElement<__half>::map), 64, lines));
  std::vector<Corner> const corners = {
      {0, 0, 0, 0}, {64, 30, 1, 0}, {104, 90, 1, 0}, {-8, 5, 0, 0}};
  for (int size : {1, 2, 4})
    for (unsigned blocks : {1u, 2u, 3u, 5u, 10u, 15u}) {
      if (blocks >> size != 0) continue;
      set_corners(p, {corners.begin(), corners.begin() + size}, lines);
      p.blocks = blocks;
      std::size_t const box = static_cast<std::size_t>(lines) * 128;
      DeviceArray<unsigned char> const out(static_cast<std::size_t>(size * size) * box);
      p.out = out.data();
      ASSERT_CUDA(
          launch_clusters(multicast_kernel, size, size, threads, size * lines * 128, nullptr, p));
      ASSERT_CUDA(cudaDeviceSynchronize());
      Bytes expected;
      for (int to = 0; to < size; ++to)
        for (int from = 0; from < size; ++from) {
          Bytes const part = (blocks >> to & 1) != 0
                                 ? t.box(corners[static_cast<std::size_t>(from)], lines)
                                 : Bytes(box, untouched);
          expected.insert(expected.end(), part.begin(), part.end());
        }
      SCOPED_TRACE(testing::Message() << "cluster of " << size << ", into " << blocks);
      expect_same(out.host(), expected, "memory of all blocks");
    }
}

TEST_F(ProbeTma, StoresWhatLiesInside) {
  int const lines = 16;
  std::pair<CUtensorMapDataType, int> const types[] = {{TensorMapElement<E4>::map, 1},
                                                       {TensorMapElement<__nv_bfloat16>::map, 2},
                                                       {TensorMapElement<float>::map, 4},
                                                       {CU_TENSOR_MAP_DATA_TYPE_INT32, 4},
                                                       {CU_TENSOR_MAP_DATA_TYPE_FLOAT64, 8}};
  for (auto const& [type, bytes] : types) {
    int const width = 128 / bytes;
    // Lines end with a chunk: of one that lies inside in part, all is written.
    Tensor const before(bytes, {2 * width + width / 8, 2 * lines + 5, 2, 1},
                        {bytes, 256 + 48, (2 * lines + 7) * 304, 0});
    DeviceArray<unsigned char> const memory(before.memory);
    BoxParams p{};
    ASSERT_CUDA(make_tensor_map(&p.map, before.source(memory.data(), type), width, lines));
    // No two overlap, none is below zero.
    std::vector<Corner> const corners = {
        {0, 0, 0, 0},      {width, 0, 0, 0},     {2 * width, 0, 0, 0},         {0, lines, 0, 0},
        {width, 32, 0, 0}, {width / 8, 3, 1, 0}, {2 * width, 30, 1, 0},        {4 * width, 0, 1, 0},
        {0, 1000, 1, 0},   {0, 0, 2, 0},         {width + width / 8, 12, 1, 0}};
    set_corners(p, corners, lines);
    ASSERT_CUDA(launch_clusters(store_kernel, 1, 1, threads, 2 * lines * 128, nullptr, p));
    ASSERT_CUDA(cudaDeviceSynchronize());
    Bytes expected = before.memory;
    for (std::size_t b = 0; b < corners.size(); ++b)
      for (int y = 0; y < lines; ++y)
        for (int i = 0; i < 128; ++i) {
          std::int64_t const to = before.find(corners[b], y, i);
          auto const from = swizzled(static_cast<std::size_t>(y * 128 + i));
          if (to >= 0)
            expected[static_cast<std::size_t>(to)] = static_cast<unsigned char>(
                mix(static_cast<std::uint32_t>(b * static_cast<std::size_t>(lines) * 128 + from)));
        }
    SCOPED_TRACE(testing::Message() << bytes << " bytes");
    expect_same(memory.host(), expected, "all memory");
  }
}

struct ReduceParams {
  CUtensorMap map;
  int boxes, lines;
  int corner[max_boxes][4];
  uint4 const* images;  // of the boxes as they lie in shared memory
};

/// One block for each box, so that the additions of several meet.
__global__ void reduce_kernel(__grid_constant__ ReduceParams const p) {
  extern __shared__ __align__(1024) uint4 memory[];
  int const words = p.lines * 8, box = static_cast<int>(blockIdx.x);
  for (int i = static_cast<int>(threadIdx.x); i < words; i += threads)
    memory[i] = p.images[box * words + i];
  fence_proxy_async();
  __syncthreads();
  if (threadIdx.x == 0) {
    int const* const c = p.corner[box];
    tma_reduce_add(&p.map, memory, c[0], c[1], c[2]);
    tma_store_commit();
    tma_store_wait_read<0>();
  }
}

/// Boxes over one another and over the tensor's ends; sums of integers that every type holds.
template <class T>
void check_additions() {
  int const lines = 16, bytes = sizeof(T), width = 128 / bytes;
  std::int64_t const outer = 2 * lines + 5, inner = 2 * width + width / 8;
  Tensor t(bytes, {inner, outer, 2, 1}, {bytes, 256 + 48, (outer + 2) * 304, 0});
  Integers const numbers(1, static_cast<int>(t.memory.size()) / bytes, 7, 11);
  t.memory = rows_of<T>(numbers);
  DeviceArray<unsigned char> const memory(t.memory);
  ReduceParams p{};
  ASSERT_CUDA(
      make_tensor_map(&p.map, t.source(memory.data(), TensorMapElement<T>::map), width, lines));
  std::vector<Corner> const corners = {
      {0, 0, 0, 0},      {0, 0, 0, 0},          {width / 8, 3, 0, 0},  {width, lines, 1, 0},
      {width, 20, 1, 0}, {2 * width, 30, 1, 0}, {4 * width, 0, 0, 0},  {0, 1000, 1, 0},
      {0, 0, 2, 0},      {width, 1, 0, 0},      {width / 4, 30, 0, 0}, {0, 0, 0, 0}};
  Integers const added(static_cast<int>(corners.size()) * lines, width, 7, 12);
  Bytes const rows = rows_of<T>(added);
  Bytes image(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) image[swizzled(i)] = rows[i];
  DeviceArray<unsigned char> const images(image);
  p.boxes = static_cast<int>(corners.size()), p.lines = lines;
  p.images = reinterpret_cast<uint4 const*>(images.data());
  std::vector<int> sums = numbers.values;
  for (std::size_t b = 0; b < corners.size(); ++b) {
    for (std::size_t r = 0; r < 4; ++r) p.corner[b][r] = corners[b][r];
    for (int y = 0; y < lines; ++y)
      for (int x = 0; x < width; ++x) {
        std::int64_t const to = t.find(corners[b], y, x * bytes);
        if (to >= 0)
          sums[static_cast<std::size_t>(to / bytes)] += added(static_cast<int>(b) * lines + y, x);
      }
  }
  ASSERT_CUDA(launch_clusters(reduce_kernel, p.boxes, 1, threads, lines * 128, nullptr, p));
  ASSERT_CUDA(cudaDeviceSynchronize());
  Integers expected = numbers;
  expected.values = sums;
  SCOPED_TRACE(testing::Message() << bytes << " bytes");
  expect_same(memory.host(), rows_of<T>(expected), "all memory");
}

TEST_F(ProbeTma, AddsToWhatLiesThere) {
  check_additions<__half>();
  check_additions<__nv_bfloat16>();
  check_additions<float>();
}

TEST_F(ProbeTma, DescriptionsThatAreRefused) {
  auto const refuse = [](TensorMapSource const& t) {
    char const* const reason = refuse_tensor_map(t, "misaligned", "odd stride", "too large");
    return std::string(reason == nullptr ? "" : reason);
  };
  alignas(16) static unsigned char memory[64];
  auto const type = TensorMapElement<__half>::map;
  std::int64_t const large = std::int64_t{1} << 31;
  TensorMapSource const good{memory, type, 2, 64, 8, 4, 128, 1024};
  EXPECT_EQ(refuse(good), "");
  EXPECT_EQ(refuse({memory + 8, type, 2, 64, 8, 4, 128, 1024}), "misaligned");
  EXPECT_EQ(refuse({memory, type, 2, 64, 8, 4, 130, 1024}), "odd stride");
  EXPECT_EQ(refuse({memory, type, 2, 64, 8, 4, -128, 1024}), "odd stride");
  EXPECT_EQ(refuse({memory, type, 2, 64, 8, 4, 0, 1024}), "odd stride");
  EXPECT_EQ(refuse({memory, type, 2, 64, 8, 4, 128, 1020}), "odd stride");
  EXPECT_EQ(refuse({memory, type, 2, 64, 8, 4, 128, -16}), "odd stride");
  EXPECT_EQ(refuse({memory, type, 2, 64, 8, 4, 128, 0}), "");
  EXPECT_EQ(refuse({memory, type, 2, 64, 1, 1, 3, -5}), "");
  EXPECT_EQ(refuse({memory, type, 2, large, 8, 4, 128, 1024}), "too large");
  EXPECT_EQ(refuse({memory, type, 2, 64, large, 4, 128, 1024}), "too large");
  EXPECT_EQ(refuse({memory, type, 2, 64, 8, large, 128, 1024}), "too large");
  EXPECT_EQ(refuse({memory, type, 2, 64, 8, 4, large * 512, 1024}), "too large");
  // What gets past is the driver's to refuse.
  CUtensorMap map;
  ASSERT_CUDA(cudaFree(nullptr));
  EXPECT_EQ(make_tensor_map(&map, good, 64, 8), cudaSuccess);
  EXPECT_EQ(make_tensor_map(&map, good, 65, 8), cudaErrorInvalidValue);
  EXPECT_EQ(make_tensor_map(&map, good, 64, 257), cudaErrorInvalidValue);
}

constexpr int matrix_pitch = 24;  // elements; rows lie out of order

/// What lies in memory after four 8 × 8 matrices of elements 64 i + 8 r + j have been stored.
__global__ void store_matrices_kernel(std::uint16_t* out, bool transposed) {
  __shared__ __align__(16) std::uint16_t memory[32 * matrix_pitch];
  int const lane = static_cast<int>(threadIdx.x), g = lane / 4, q = lane % 4;
  for (int i = lane; i < 32 * matrix_pitch; i += 32) memory[i] = 0xFFFF;
  __syncwarp();
  std::uint32_t r[4];
  for (int i = 0; i < 4; ++i) {
    int const first = transposed ? 64 * i + 16 * q + g : 64 * i + 8 * g + 2 * q;
    r[i] = static_cast<std::uint32_t>(first | (first + (transposed ? 8 : 1)) << 16);
  }
  std::uint32_t const to = shared_address(&memory[lane * 5 % 32 * matrix_pitch]);
  if (transposed)
    store_matrices_transposed(to, r[0], r[1], r[2], r[3]);
  else
    store_matrices(to, r[0], r[1], r[2], r[3]);
  __syncwarp();
  for (int i = lane; i < 32 * matrix_pitch; i += 32) out[i] = memory[i];
}

TEST_F(ProbeStoreMatrices, PlainAndTransposed) {
  std::vector<int> expected(32 * matrix_pitch, 0xFFFF);
  for (int row = 0; row < 32; ++row)
    for (int j = 0; j < 8; ++j)
      expected[static_cast<std::size_t>(row * 5 % 32 * matrix_pitch + j)] = 8 * row + j;
  for (bool transposed : {false, true}) {
    DeviceArray<std::uint16_t> const out(expected.size());
    store_matrices_kernel<<<1, 32>>>(out.data(), transposed);
    expect_same(out.host(), expected, transposed ? "transposed" : "plain");
  }
}

}  // namespace
}  // namespace cuda
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
