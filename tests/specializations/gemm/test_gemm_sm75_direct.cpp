// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm75_wmma_f16 called directly, over memory of cudaMalloc, so that dispatch cannot hide it.
// The suite GemmSm75WmmaF16Refuses needs no GPU; GemmSm75WmmaF16Runs fails
// without one.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <attikos/abi/gemm.hpp>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "direct_common.hpp"

namespace {

using namespace attikos;
namespace abi = attikos::abi;  // the standard library has a global ::abi
using abi::Device;
using abi::GemmArgs;
using Kernel = abi::GemmSm75WmmaF16;

Device device_of(int major, int minor) {
  return Device{0, major, minor, abi::architecture_of(major, minor), 40, 65536};
}

/// A plain row-major problem that is accepted; the pointers are never followed.
GemmArgs acceptable(std::int64_t m = 48, std::int64_t n = 32, std::int64_t k = 16) {
  static float somewhere[1];
  GemmArgs g;
  g.a = g.b = g.c = somewhere;
  g.type_a = g.type_b = DType::float16;
  g.m = m, g.n = n, g.k = k, g.batch = 1;
  g.a_m = k, g.a_k = 1, g.b_k = n, g.b_n = 1, g.c_m = n, g.c_n = 1;
  return g;
}

std::string reason(GemmArgs const& g, Device const& d = device_of(7, 5)) {
  auto const verdict = Kernel::accepts(g, d);
  EXPECT_EQ(verdict.ok, verdict.reason[0] == '\0');
  return verdict.reason;
}

TEST(GemmSm75WmmaF16Refuses, OtherElementTypes) {
  SKIP_IF_LEFT_OUT(Kernel);
  auto g = acceptable();
  EXPECT_EQ(reason(g), "");
  g.type_a = DType::bfloat16;
  EXPECT_EQ(reason(g), "A is bfloat16; this kernel multiplies float16");
  g = acceptable();
  g.type_b = DType::float32;
  EXPECT_EQ(reason(g), "B is float32; this kernel multiplies float16");
  g = acceptable();
  g.type_c = DType::float16;
  EXPECT_EQ(reason(g), "C is float16; this kernel writes float32");
  g = acceptable();
  g.type_bias = DType::float64;
  EXPECT_EQ(reason(g), "") << "the type of a bias that is not there does not matter";
  g.bias = g.c;
  EXPECT_EQ(reason(g), "bias is float64; this kernel adds float16 or float32");
  g = acceptable();
  g.residual = g.c, g.type_residual = DType::bfloat16;
  EXPECT_EQ(reason(g), "residual is bfloat16; this kernel adds float16 or float32");
}

TEST(GemmSm75WmmaF16Refuses, OlderDevices) {
  SKIP_IF_LEFT_OUT(Kernel);
  EXPECT_EQ(reason(acceptable(), Device{}), "no CUDA device");
  EXPECT_EQ(reason(acceptable(), device_of(6, 1)),
            "device is older than sm_70; needs sm_75 or newer");
  EXPECT_EQ(reason(acceptable(), device_of(7, 0)), "device is sm_70; needs sm_75 or newer");
  EXPECT_EQ(reason(acceptable(), device_of(7, 2)), "device is sm_72; needs sm_75 or newer");
  for (auto [major, minor] : {std::pair{7, 5}, {8, 0}, {8, 9}, {9, 0}, {10, 0}, {12, 0}, {99, 0}}) {
    EXPECT_EQ(reason(acceptable(), device_of(major, minor)), "") << major << '.' << minor;
  }
}

TEST(GemmSm75WmmaF16Refuses, StridesAndExtents) {
  SKIP_IF_LEFT_OUT(Kernel);
  auto g = acceptable();
  g.a_k = 2;
  EXPECT_EQ(reason(g), "A has no unit stride");
  g.m = 1;
  EXPECT_EQ(reason(g), "") << "a dimension of extent 1 is contiguous";
  g = acceptable();
  g.b_n = -1;
  EXPECT_EQ(reason(g), "B has no unit stride");
  g.k = 0;
  EXPECT_EQ(reason(g), "") << "B is empty";
  for (auto member : {&GemmArgs::c_m, &GemmArgs::c_n}) {
    g = acceptable();
    g.*member = 0;
    EXPECT_EQ(reason(g), "C has a zero stride, so its elements overlap");
  }
  g = acceptable();
  g.batch = 2;
  EXPECT_EQ(reason(g), "C has a zero stride, so its elements overlap");
  for (auto member : {&GemmArgs::m, &GemmArgs::n, &GemmArgs::k, &GemmArgs::batch}) {
    g = acceptable();
    g.*member = -1;
    EXPECT_EQ(reason(g), "an extent is negative");
  }
  EXPECT_EQ(reason(acceptable(std::int64_t{1} << 22, std::int64_t{1} << 21)),
            "C is too large for one launch");
  EXPECT_EQ(reason(acceptable(INT64_MAX, 1)), "C is too large for one launch");
}

TEST(GemmSm75WmmaF16Refuses, NullPointers) {
  SKIP_IF_LEFT_OUT(Kernel);
  auto g = acceptable();
  g.c = nullptr;
  EXPECT_EQ(reason(g), "C is a null pointer");
  g.a = nullptr, g.b = nullptr, g.n = 0;
  EXPECT_EQ(reason(g), "") << "nothing is read or written";
  g = acceptable();
  g.b = nullptr;
  EXPECT_EQ(reason(g), "B is a null pointer");
  g.a = nullptr;
  EXPECT_EQ(reason(g), "A is a null pointer");
  g.k = 0;
  EXPECT_EQ(reason(g), "");
}

TEST(GemmSm75WmmaF16Refuses, NoEmptyProduct) {
  SKIP_IF_LEFT_OUT(Kernel);
  auto g = acceptable();
  g.m = 0;
  EXPECT_EQ(Kernel::launch(g, device_of(7, 5), nullptr), cudaSuccess) << "an empty C needs no GPU";
}

/// A matrix in a buffer that is filled with NaN around and between its elements.
template <class T>
struct Matrix {
  std::int64_t batch = 1, rows = 0, columns = 0;
  std::int64_t stride_batch = 0, stride_row = 0, stride_column = 0, origin = 0;
  std::vector<T> host;
  T* device = nullptr;

  Matrix() = default;
  Matrix(Matrix const&) = delete;
  Matrix& operator=(Matrix const&) = delete;
  ~Matrix() { cudaFree(device); }

  static T poison() {
    if constexpr (std::is_same_v<T, __half>)
      return __ushort_as_half(0x7e55);
    else
      return std::nanf("42");
  }

  /// Contiguous along the columns, or along the rows if `transposed`; rows padded and the origin
  /// shifted by elements; every element of the unit dimension `spread` apart; `shared` gives all
  /// batches one matrix.
  void make(std::int64_t batch_, std::int64_t rows_, std::int64_t columns_, bool transposed,
            std::int64_t pad, std::int64_t shift, std::uint32_t seed, std::int64_t spread = 1,
            bool shared = false) {
    batch = batch_, rows = rows_, columns = columns_;
    std::int64_t const inner = transposed ? rows : columns, outer = transposed ? columns : rows;
    std::int64_t const leading = (inner + pad) * spread;
    stride_row = transposed ? spread : leading;
    stride_column = transposed ? leading : spread;
    stride_batch = shared ? 0 : leading * (outer + (pad > 0));
    origin = 64 + shift;
    auto const matrices = shared ? std::min<std::int64_t>(batch, 1) : batch;
    host.assign(static_cast<std::size_t>(origin + matrices * leading * (outer + (pad > 0)) + 64),
                poison());
    for (std::int64_t b = 0; b < matrices; ++b) {
      for (std::int64_t i = 0; i < rows; ++i) {
        for (std::int64_t j = 0; j < columns; ++j) {
          auto const bits =
              mix(seed ^ mix(static_cast<std::uint32_t>((b * rows + i) * columns + j)));
          at(b, i, j) = static_cast<T>(static_cast<float>(bits % 4097) / 2048.0f - 1.0f);
        }
      }
    }
  }
  void upload() {
    cudaFree(std::exchange(device, nullptr));
    ASSERT_CUDA(cudaMalloc(&device, host.size() * sizeof(T)));
    ASSERT_CUDA(cudaMemcpy(device, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice));
  }
  std::vector<T> download() const {
    std::vector<T> result(host.size());
    EXPECT_EQ(cudaMemcpy(result.data(), device, host.size() * sizeof(T), cudaMemcpyDeviceToHost),
              cudaSuccess);
    return result;
  }
  std::int64_t offset(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return origin + b * stride_batch + i * stride_row + j * stride_column;
  }
  T& at(std::int64_t b, std::int64_t i, std::int64_t j) {
    return host[static_cast<std::size_t>(offset(b, i, j))];
  }
  double value(std::int64_t b, std::int64_t i, std::int64_t j) const {
    return static_cast<double>(static_cast<float>(host[static_cast<std::size_t>(offset(b, i, j))]));
  }
  T* begin() const { return device + origin; }
};

struct Case {
  std::int64_t m, n, k, batch = 1;
  bool trans_a = false, trans_b = false, trans_c = false, shared_b = false;
  std::int64_t pad = 0, shift = 0, spread_c = 1;
  double alpha = 1, beta = 0, scale = 1;
  Activation activation = Activation::none;
  bool bias = false, residual = false, half_addends = false;
  BiasAlong bias_along = BiasAlong::n;
};

class GemmSm75WmmaF16Runs : public testing::Test {
 protected:
  void SetUp() override {
    SKIP_IF_LEFT_OUT(Kernel);
    device = abi::query_device(abi::current_device());
    ASSERT_GE(device.ordinal, 0) << "this suite needs a CUDA device";
    ASSERT_EQ(Kernel::accepts(acceptable(), device).reason, std::string());
  }

  /// Lays out the operands of a case and describes them as a call.
  void prepare(Case const& t) {
    a.make(t.batch, t.m, t.k, t.trans_a, t.pad, t.shift, 1);
    b.make(t.batch, t.k, t.n, t.trans_b, t.pad, t.shift, 2, 1, t.shared_b);
    c.make(t.batch, t.m, t.n, t.trans_c, t.pad, t.shift, 3, t.spread_c);
    if (t.beta == 0) std::fill(c.host.begin(), c.host.end(), c.poison());
    auto const bias_size = t.bias_along == BiasAlong::n ? t.n : t.m;
    bias.make(1, 1, bias_size, false, 0, 0, 4, 2);
    residual.make(t.batch, t.m, t.n, !t.trans_c, 3, 1, 5);
    half_bias.make(1, 1, bias_size, false, 0, 0, 4, 2);
    half_residual.make(t.batch, t.m, t.n, !t.trans_c, 3, 1, 5);
    a.upload(), b.upload(), c.upload();
    bias.upload(), residual.upload(), half_bias.upload(), half_residual.upload();

    args = GemmArgs{};
    args.a = a.begin(), args.b = b.begin(), args.c = c.begin();
    args.type_a = args.type_b = DType::float16;
    args.m = t.m, args.n = t.n, args.k = t.k, args.batch = t.batch;
    args.a_batch = a.stride_batch, args.a_m = a.stride_row, args.a_k = a.stride_column;
    args.b_batch = b.stride_batch, args.b_k = b.stride_row, args.b_n = b.stride_column;
    args.c_batch = c.stride_batch, args.c_m = c.stride_row, args.c_n = c.stride_column;
    args.alpha = t.alpha, args.beta = t.beta, args.scale = t.scale, args.activation = t.activation;
    if (t.bias) {
      args.bias = t.half_addends ? static_cast<void*>(half_bias.begin()) : bias.begin();
      args.bias_along = t.bias_along, args.bias_stride = bias.stride_column;
      args.type_bias = t.half_addends ? DType::float16 : DType::float32;
    }
    if (t.residual) {
      args.residual = t.half_addends ? static_cast<void*>(half_residual.begin()) : residual.begin();
      args.type_residual = t.half_addends ? DType::float16 : DType::float32;
      args.residual_batch = residual.stride_batch;
      args.residual_m = residual.stride_row, args.residual_n = residual.stride_column;
    }
    mislead(args);
    poison_shared_memory();
  }

  /// Compares C with float64, and everything around C's elements with what was there.
  ///
  /// With u = 2^-23, which covers the truncating additions of tensor cores as well as float32's
  /// rounding (a product of two float16 is exact in float32), and S = Σ|a||b|, the errors are
  /// - of the sum: u(k + 8)S, the 8 for the additions that join partial sums;
  /// - of x = scale(alpha·sum + beta·c) + bias: |scale|(|alpha|u(k + 8)S + 4u(|alpha|S + |beta·c|))
  /// +
  ///   u|x| + u|bias|, the 4 for rounding alpha, beta, scale and the products;
  /// - of act(x): 1.13 times that, as no activation is steeper, and 8u|x| for its evaluation;
  /// - of adding the residual: u(|act(x)| + |residual|).
  void compare(Case const& t) {
    ASSERT_CUDA(cudaDeviceSynchronize());
    auto const result = c.download();
    auto untouched = c.host;
    double const u = std::ldexp(1.0, -23);
    double worst = -1;
    std::ostringstream where;
    for (std::int64_t l = 0; l < t.batch; ++l) {
      for (std::int64_t i = 0; i < t.m; ++i) {
        for (std::int64_t j = 0; j < t.n; ++j) {
          double sum = 0, size = 0;
          for (std::int64_t p = 0; p < t.k; ++p) {
            double const product = a.value(l, i, p) * b.value(l, p, j);
            sum += product, size += std::abs(product);
          }
          double const old = t.beta == 0 ? 0 : t.beta * c.value(l, i, j);
          auto const at = t.bias_along == BiasAlong::n ? j : i;
          auto const addend = [&](bool on, auto const& wide, auto const& half, auto... index) {
            return !on ? 0.0 : t.half_addends ? half.value(index...) : wide.value(index...);
          };
          double const add = addend(t.bias, bias, half_bias, 0, 0, at);
          double const x = t.scale * (t.alpha * sum + old) + add;
          double const r = addend(t.residual, residual, half_residual, l, i, j);
          double const y = activate(t.activation, x);
          double const error_x =
              std::abs(t.scale) * (std::abs(t.alpha) * u * static_cast<double>(t.k + 8) * size +
                                   4 * u * (std::abs(t.alpha) * size + std::abs(old))) +
              u * std::abs(x) + u * std::abs(add);
          double const bound =
              1.13 * error_x + 8 * u * std::abs(x) + u * (std::abs(y) + std::abs(r)) + 1e-37;
          auto const index = static_cast<std::size_t>(c.offset(l, i, j));
          double const error = std::abs(static_cast<double>(result[index]) - (y + r)) / bound;
          if (!(error <= worst)) {
            worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : error;
            where.str("");
            where << "[" << l << ", " << i << ", " << j << "] is " << result[index] << ", expected "
                  << y + r;
          }
          untouched[index] = result[index];
        }
      }
    }
    EXPECT_LE(worst, 1.0) << where.str() << " (error / bound)";
    EXPECT_EQ(std::memcmp(untouched.data(), result.data(), result.size() * sizeof(float)), 0)
        << "memory around C was written";
  }

  /// Runs a case with each tile configuration: on one multiprocessor large tiles are cheaper, on a
  /// million small ones are.
  void run(Case const& t) {
    std::ostringstream text;
    text << "m" << t.m << " n" << t.n << " k" << t.k << " batch" << t.batch << " trans "
         << t.trans_a << t.trans_b << t.trans_c << " pad" << t.pad << " shift" << t.shift
         << " activation" << static_cast<int>(t.activation);
    SCOPED_TRACE(text.str());
    for (int sm_count : {1, 1000000}) {
      SCOPED_TRACE("multiprocessors " + std::to_string(sm_count));
      prepare(t);
      Device d = device;
      d.sm_count = sm_count;
      ASSERT_EQ(Kernel::accepts(args, d).reason, std::string());
      ASSERT_EQ(Kernel::launch(args, d, nullptr), cudaSuccess);
      compare(t);
    }
  }

  Device device;
  GemmArgs args;
  Matrix<__half> a, b, half_bias, half_residual;
  Matrix<float> c, bias, residual;
};

TEST_F(GemmSm75WmmaF16Runs, ShapesAndTransposes) {
  int const shapes[] = {// m, n, k of each
                        0,   5,   3,  5,   0,   3,  5,   3,   0,  1,   1,   1,  1,  1,   129,
                        1,   131, 7,  131, 1,   7,  2,   3,   5,  16,  16,  16, 15, 17,  31,
                        31,  33,  32, 63,  65,  33, 64,  64,  64, 65,  63,  97, 97, 101, 8,
                        127, 129, 65, 128, 128, 96, 129, 127, 63, 257, 131, 40};
  for (int const* s = shapes; s != std::end(shapes); s += 3) {
    for (int transposes = 0; transposes < 4; ++transposes) {
      Case t{s[0], s[1], s[2]};
      t.trans_a = (transposes & 1) != 0, t.trans_b = (transposes & 2) != 0;
      run(t);
    }
  }
}

TEST_F(GemmSm75WmmaF16Runs, PaddedAndMisalignedOperands) {
  for (int transposes = 0; transposes < 4; ++transposes) {
    for (auto const& [pad, shift] : {std::pair{8, 0}, {8, 1}, {3, 0}, {5, 7}}) {
      Case t{130, 72, 50};
      t.batch = 2;
      t.trans_a = (transposes & 1) != 0, t.trans_b = (transposes & 2) != 0;
      t.pad = pad, t.shift = shift;
      run(t);
    }
  }
}

TEST_F(GemmSm75WmmaF16Runs, StridedOutput) {
  for (bool trans_c : {false, true}) {
    for (std::int64_t spread : {1, 3}) {
      Case t{70, 133, 33};
      t.trans_c = trans_c, t.spread_c = spread, t.pad = 2, t.beta = -0.5, t.batch = 2;
      run(t);
    }
  }
}

TEST_F(GemmSm75WmmaF16Runs, Epilogues) {
  for (auto activation : {Activation::none, Activation::relu, Activation::gelu,
                          Activation::gelu_tanh, Activation::silu}) {
    for (auto along : {BiasAlong::n, BiasAlong::m}) {
      for (bool half : {false, true}) {
        Case t{67, 131, 37};
        t.alpha = 0.7, t.beta = 0.3, t.scale = 1.3, t.batch = 2;
        t.activation = activation, t.bias = t.residual = true, t.bias_along = along,
        t.half_addends = half;
        run(t);
        t.k = 0, t.trans_c = true;
        run(t);
      }
    }
  }
}

TEST_F(GemmSm75WmmaF16Runs, BroadcastBatchAndManyBatches) {
  Case t{33, 40, 24};
  t.batch = 5, t.shared_b = true;
  run(t);
  t = Case{3, 2, 5};
  t.batch = 65537;  // grid.z ends at 65535
  run(t);
}

TEST_F(GemmSm75WmmaF16Runs, ZeroAndNegativeInputStrides) {
  Case t{66, 70, 40};
  prepare(t);
  // Every row of A is its first one; B's rows run backwards. The host's view is changed alike.
  args.a_m = a.stride_row = 0;
  args.b = b.begin() + (t.k - 1) * b.stride_row;
  b.origin += (t.k - 1) * b.stride_row;
  args.b_k = b.stride_row = -b.stride_row;
  ASSERT_EQ(Kernel::launch(args, device, nullptr), cudaSuccess);
  compare(t);
}

TEST_F(GemmSm75WmmaF16Runs, NanStaysInItsRow) {
  Case t{130, 66, 40};
  prepare(t);
  a.at(0, 77, 39) = a.poison();
  ASSERT_CUDA(
      cudaMemcpy(a.device, a.host.data(), a.host.size() * sizeof(__half), cudaMemcpyHostToDevice));
  ASSERT_EQ(Kernel::launch(args, device, nullptr), cudaSuccess);
  auto const result = c.download();
  for (std::int64_t i = 0; i < t.m; ++i) {
    for (std::int64_t j = 0; j < t.n; ++j) {
      ASSERT_EQ(std::isnan(result[static_cast<std::size_t>(c.offset(0, i, j))]), i == 77)
          << i << ", " << j;
    }
  }
}

TEST_F(GemmSm75WmmaF16Runs, SameBitsEveryTime) {
  Case t{300, 257, 511};
  prepare(t);
  ASSERT_EQ(Kernel::launch(args, device, nullptr), cudaSuccess);
  auto const first = c.download();
  for (int repeat = 0; repeat < 10; ++repeat) {
    ASSERT_EQ(Kernel::launch(args, device, nullptr), cudaSuccess);
    auto const again = c.download();
    ASSERT_EQ(std::memcmp(first.data(), again.data(), first.size() * sizeof(float)), 0);
  }
}

TEST_F(GemmSm75WmmaF16Runs, CapturedIntoAGraphOnTheGivenStream) {
  Case t{100, 90, 80};
  prepare(t);
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t instance;
  ASSERT_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  EXPECT_FALSE(abi::stream_is_capturing(stream));
  ASSERT_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  EXPECT_TRUE(abi::stream_is_capturing(stream));
  EXPECT_EQ(Kernel::launch(args, device, stream), cudaSuccess);
  ASSERT_CUDA(cudaStreamEndCapture(stream, &graph));
  std::size_t nodes;
  ASSERT_CUDA(cudaGraphGetNodes(graph, nullptr, &nodes));
  EXPECT_EQ(nodes, 1u);
  ASSERT_CUDA(cudaGraphInstantiate(&instance, graph, 0));
  ASSERT_CUDA(cudaGraphLaunch(instance, stream));
  compare(t);
  ASSERT_CUDA(cudaGraphExecDestroy(instance));
  ASSERT_CUDA(cudaGraphDestroy(graph));
  ASSERT_CUDA(cudaStreamDestroy(stream));
}

TEST_F(GemmSm75WmmaF16Runs, AnErrorOfTheCallersStaysPending) {
  Case t{20, 20, 20};
  prepare(t);
  void* nothing = nullptr;
  EXPECT_NE(cudaMalloc(&nothing, std::numeric_limits<std::size_t>::max() / 2), cudaSuccess);
  EXPECT_EQ(Kernel::launch(args, device, nullptr), cudaSuccess);
  EXPECT_EQ(abi::query_device(12345).ordinal, -1);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(abi::query_device(12345).ordinal, -1);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "its own errors leave no trace";
  EXPECT_STREQ(abi::error_string(cudaErrorInvalidValue), "invalid argument");
  compare(t);
}

}  // namespace
