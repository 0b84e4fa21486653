// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gemm/sm75_wmma_f16: what it accepts, which shape it takes, and its launch.
#include <cassert>
#include <type_traits>

#include "common/check.cuh"
#include "common/limits.cuh"
#include "kernel.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

using Large = sm75_gemm_shapes::M128N128;
using Small = sm75_gemm_shapes::M64N64;

constexpr std::int64_t tiles(std::int64_t m, std::int64_t n, int tile_m, int tile_n) {
  // Rounded up without overflow for any extent.
  std::int64_t const rows = m / tile_m + (m % tile_m != 0),
                     columns = n / tile_n + (n % tile_n != 0);
  return rows > most_blocks_x || columns > most_blocks_x ? most_blocks_x + 1 : rows * columns;
}

/// Text of a refusal that names an element type, made at compile time so that it is static.
struct Text {
  char characters[96];
};
struct TypeTexts {
  static constexpr int count = static_cast<int>(DType::int64) + 1;
  Text text[count];
  constexpr char const* operator[](DType type) const {
    int const index = static_cast<int>(type);
    return text[index < count ? index : count - 1].characters;
  }
};
constexpr TypeTexts make_type_texts(char const* before, char const* after) {
  TypeTexts texts{};
  for (int type = 0; type < TypeTexts::count; ++type) {
    int at = 0;
    char const* const parts[] = {before, dtype_name(static_cast<DType>(type)), after};
    for (char const* part : parts) {
      for (; *part != '\0'; ++part) texts.text[type].characters[at++] = *part;
    }
  }
  return texts;
}
constexpr TypeTexts a_texts = make_type_texts("A is ", "; this kernel multiplies float16");
constexpr TypeTexts b_texts = make_type_texts("B is ", "; this kernel multiplies float16");
constexpr TypeTexts c_texts = make_type_texts("C is ", "; this kernel writes float32");
constexpr TypeTexts bias_texts =
    make_type_texts("bias is ", "; this kernel adds float16 or float32");
constexpr TypeTexts residual_texts =
    make_type_texts("residual is ", "; this kernel adds float16 or float32");

/// Which of an operand's two dimensions to walk contiguously: 0, 1, or -1 if neither has unit
/// stride. A dimension of extent 1 is contiguous whatever its stride says, but a longer one is the
/// better choice.
constexpr int unit_dimension(std::int64_t extent0, std::int64_t stride0, std::int64_t extent1,
                             std::int64_t stride1) {
  if (extent1 > 1 && stride1 == 1) return 1;
  if (extent0 > 1 && stride0 == 1) return 0;
  return extent1 <= 1 ? 1 : extent0 <= 1 ? 0 : -1;
}

constexpr int a_unit(abi::GemmArgs const& g) { return unit_dimension(g.m, g.a_m, g.k, g.a_k); }
constexpr int b_unit(abi::GemmArgs const& g) { return unit_dimension(g.k, g.b_k, g.n, g.b_n); }

constexpr bool addable(DType type) { return type == DType::float16 || type == DType::float32; }

char const* refuse_device(abi::Device const& device) {
  if (device.at_least(7, 5)) return nullptr;
  if (device.compute_major == 0) return "no CUDA device";
  if (device.compute_major == 7 && device.compute_minor == 0) {
    return "device is sm_70; needs sm_75 or newer";
  }
  if (device.compute_major == 7 && device.compute_minor == 2) {
    return "device is sm_72; needs sm_75 or newer";
  }
  return "device is older than sm_70; needs sm_75 or newer";
}

/// First reason not to take the call, null if there is none.
char const* refuse(abi::GemmArgs const& g, abi::Device const& device) {
  if (g.type_a != DType::float16) return a_texts[g.type_a];
  if (g.type_b != DType::float16) return b_texts[g.type_b];
  if (g.type_c != DType::float32) return c_texts[g.type_c];
  if (g.bias != nullptr && !addable(g.type_bias)) return bias_texts[g.type_bias];
  if (g.residual != nullptr && !addable(g.type_residual)) return residual_texts[g.type_residual];
  if (char const* reason = abi::beyond(g, abi::GemmSm75WmmaF16::takes)) return reason;
  if (char const* reason = refuse_device(device)) return reason;
  if (g.m < 0 || g.n < 0 || g.k < 0 || g.batch < 0) return "an extent is negative";
  if (g.m == 0 || g.n == 0 || g.batch == 0) return nullptr;  // nothing is read or written
  if (g.c == nullptr) return "C is a null pointer";
  if ((g.m > 1 && g.c_m == 0) || (g.n > 1 && g.c_n == 0) || (g.batch > 1 && g.c_batch == 0)) {
    return "C has a zero stride, so its elements overlap";
  }
  // The smaller tiles need the most blocks.
  if (tiles(g.m, g.n, Small::tile_m, Small::tile_n) > most_blocks_x) {
    return "C is too large for one launch";
  }
  if (g.k == 0) return nullptr;  // A and B are empty
  if (g.a == nullptr) return "A is a null pointer";
  if (g.b == nullptr) return "B is a null pointer";
  if (a_unit(g) < 0) return "A has no unit stride";
  if (b_unit(g) < 0) return "B has no unit stride";
  return nullptr;
}

WmmaOperand make_operand(void const* data, std::int64_t batch, std::int64_t batch_stride,
                         std::int64_t stride, std::int64_t outer_extent) {
  bool const aligned = reinterpret_cast<std::uintptr_t>(data) % 16 == 0 &&
                       (batch <= 1 || batch_stride % 8 == 0) &&
                       (outer_extent <= 1 || stride % 8 == 0);
  return WmmaOperand{static_cast<__half const*>(data), batch_stride, stride, aligned};
}

constexpr std::int64_t magnitude(std::int64_t x) { return x < 0 ? -x : x; }

WmmaParams make_params(abi::GemmArgs const& g) {
  WmmaParams p{};
  p.a = a_unit(g) == 1 ? make_operand(g.a, g.batch, g.a_batch, g.a_m, g.m)
                       : make_operand(g.a, g.batch, g.a_batch, g.a_k, g.k);
  p.b = b_unit(g) == 1 ? make_operand(g.b, g.batch, g.b_batch, g.b_k, g.k)
                       : make_operand(g.b, g.batch, g.b_batch, g.b_n, g.n);
  p.c = static_cast<float*>(g.c);
  p.c_batch = g.c_batch;
  p.c_m = g.c_m;
  p.c_n = g.c_n;
  p.m = g.m;
  p.n = g.n;
  p.k = g.k;
  p.alpha = static_cast<float>(g.alpha);
  p.beta = static_cast<float>(g.beta);
  p.scale = static_cast<float>(g.scale);
  p.read_c = g.beta != 0;
  p.c_along_m = g.n == 1 || (g.m > 1 && magnitude(g.c_m) < magnitude(g.c_n));
  p.activation = g.activation;
  if (g.bias != nullptr) {
    bool const along_n = g.bias_along == BiasAlong::n;
    p.bias = WmmaAddend{g.bias, g.type_bias == DType::float16, 0, along_n ? 0 : g.bias_stride,
                        along_n ? g.bias_stride : 0};
  }
  if (g.residual != nullptr) {
    p.residual = WmmaAddend{g.residual, g.type_residual == DType::float16, g.residual_batch,
                            g.residual_m, g.residual_n};
  }
  return p;
}

/// Rounds of blocks over the device times the work of a block. A large tile costs as much as four
/// small ones but loads half the bytes per product, which the factor 13/10 (a guess) stands for.
bool prefer_small(abi::GemmArgs const& g, abi::Device const& device) {
  std::int64_t const sms = device.sm_count > 0 ? device.sm_count : 1;
  auto const rounds = [&]<class Shape>(Shape) {
    double const blocks = static_cast<double>(tiles(g.m, g.n, Shape::tile_m, Shape::tile_n)) *
                          static_cast<double>(g.batch);
    double const whole = blocks / static_cast<double>(sms);
    return whole < 1e15 ? static_cast<double>(
                              static_cast<std::int64_t>(whole) +
                              (static_cast<double>(static_cast<std::int64_t>(whole)) < whole))
                        : whole;
  };
  return rounds(Small{}) * 13 < rounds(Large{}) * 40;
}

template <class Config>
cudaError_t launch_config(abi::GemmArgs const& g, CUstream_st* stream) {
  WmmaParams params = make_params(g);
  auto const blocks = tiles(g.m, g.n, Config::tile_m, Config::tile_n);
  for (; params.first_batch < g.batch; params.first_batch += most_blocks_yz) {
    std::int64_t const left = g.batch - params.first_batch;
    dim3 const grid(static_cast<unsigned>(blocks), 1,
                    static_cast<unsigned>(left < most_blocks_yz ? left : most_blocks_yz));
    cudaError_t const status =
        launch_kernel(wmma_f16_kernel<Config>, grid, Config::threads, stream, params);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

template <class Shape>
cudaError_t launch_shape(abi::GemmArgs const& g, CUstream_st* stream) {
  return layouts::with_layout(a_unit(g) != 1, b_unit(g) == 1, [&]<class Layout>(Layout) {
    return launch_config<WmmaConfig<Layout, Shape>>(g, stream);
  });
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GemmSm75WmmaF16::accepts(GemmArgs const& args, Device const& device) noexcept {
  char const* const reason = cuda::refuse(args, device);
  return reason == nullptr ? accepted() : refused(reason);
}

int GemmSm75WmmaF16::launch(GemmArgs const& args, Device const& device,
                            CUstream_st* stream) noexcept {
  assert(cuda::refuse(args, device) == nullptr);
  if (args.m == 0 || args.n == 0 || args.batch == 0) return cudaSuccess;
  cuda::ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  return cuda::prefer_small(args, device) ? cuda::launch_shape<cuda::Small>(args, stream)
                                          : cuda::launch_shape<cuda::Large>(args, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
