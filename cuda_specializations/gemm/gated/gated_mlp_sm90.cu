// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// gated_mlp/sm90_wgmma_*: the product of gemm/sm90_wgmma_* with the rows of both weights in one
// tile, so that the epilogue finds gate and up projection of an element in one thread.
#include <attikos/abi/gated_mlp.hpp>
#include <cassert>

#include "common/limits.cuh"
#include "gemm/sm90/launch_few.cuh"

namespace attikos {
inline namespace ATTIKOS_VERSION_NAMESPACE {
namespace cuda {
namespace {

/// The product with one of the weights.
abi::GemmArgs product(abi::GatedMlpArgs const& t, void const* weight, std::int64_t row,
                      std::int64_t column) {
  abi::GemmArgs g;
  g.a = t.x, g.b = weight, g.c = t.out;
  g.type_a = t.type_x, g.type_b = t.type_weight, g.type_c = t.type_out;
  g.m = t.tokens, g.n = t.intermediate, g.k = t.hidden, g.batch = t.batch;
  g.a_batch = t.x_batch, g.a_m = t.x_token, g.a_k = t.x_hidden;
  g.b_k = column, g.b_n = row;
  g.c_batch = t.out_batch, g.c_m = t.out_token, g.c_n = t.out_intermediate;
  return g;
}
abi::GemmArgs gate_product(abi::GatedMlpArgs const& t) {
  return product(t, t.gate_weight, t.gate_intermediate, t.gate_hidden);
}
abi::GemmArgs up_product(abi::GatedMlpArgs const& t) {
  return product(t, t.up_weight, t.up_intermediate, t.up_hidden);
}

template <class T>
abi::Verdict accepts(abi::GatedMlpArgs const& t, abi::Device const& device) {
  if (char const* reason = abi::beyond(t, abi::GatedMlpSm90WgmmaF16::takes))
    return abi::refused(reason);
  if (t.type_out != TensorMapElement<T>::dtype && t.type_out != DType::float32)
    return abi::refused("it does not write out's element type");
  abi::GemmArgs const gate = gate_product(t), up = up_product(t);
  for (abi::GemmArgs const& g : {gate, up}) {
    if (char const* reason = refuse_sm90<T, T>(g, device)) {
      // The reasons speak of a product's A, B, C and K.
      if (g.k == 0) return abi::refused("hidden is 0");
      return abi::refused(reason);
    }
    if (g.m == 0 || g.n == 0 || g.batch == 0) return abi::accepted();
    if (major_a(g) != Major::k) return abi::refused("x has no unit stride along hidden");
    if (major_b(g) != Major::k) return abi::refused("a weight has no unit stride along hidden");
  }
  return abi::accepted();
}

template <class T, class Shape>
cudaError_t launch_few_tokens(abi::GemmArgs const& g, abi::Device const& device,
                              CUstream_st* stream, GatedPart const& gated) {
  using Config = Sm90SplitConfig<T, T, layouts::TN, Shape>;
  return launch_split<Config>(g, 1, plan_split<Config>(g, device).wave_rows, stream, &gated);
}

template <class T>
int launch(abi::GatedMlpArgs const& t, abi::Device const& device, CUstream_st* stream) {
  assert(accepts<T>(t, device).ok);
  if (t.batch == 0 || t.tokens == 0 || t.intermediate == 0) return cudaSuccess;
  using namespace sm90_gemm_shapes;
  ScopedDevice const current(device.ordinal);
  if (current.status() != cudaSuccess) return current.status();
  abi::GemmArgs const gate = gate_product(t), up = up_product(t);
  if (t.tokens <= 64) {  // weights as rows
    abi::GemmArgs const gate_transposed = transposed(gate);
    GatedPart const gated{source_a<T>(transposed(up)), t.activation};
    if (t.tokens <= 16)
      return launch_few_tokens<T, Few16Gated>(gate_transposed, device, stream, gated);
    if (t.tokens <= 32)
      return launch_few_tokens<T, Few32Gated>(gate_transposed, device, stream, gated);
    return launch_few_tokens<T, Few64Gated>(gate_transposed, device, stream, gated);
  }
  GatedPart const gated{source_b<T>(up), t.activation};
  return launch_cheapest<Sm90Config<T, T, layouts::TN, N128Gated>,
                         Sm90Config<T, T, layouts::TN, N128PairGated>>(gate, device,
                                                                       {stream, nullptr}, &gated);
}

}  // namespace
}  // namespace cuda

namespace abi {

Verdict GatedMlpSm90WgmmaF16::accepts(GatedMlpArgs const& args, Device const& device) noexcept {
  return cuda::accepts<__half>(args, device);
}
int GatedMlpSm90WgmmaF16::launch(GatedMlpArgs const& args, Device const& device,
                                 CUstream_st* stream) noexcept {
  return cuda::launch<__half>(args, device, stream);
}
Verdict GatedMlpSm90WgmmaBf16::accepts(GatedMlpArgs const& args, Device const& device) noexcept {
  return cuda::accepts<__nv_bfloat16>(args, device);
}
int GatedMlpSm90WgmmaBf16::launch(GatedMlpArgs const& args, Device const& device,
                                  CUstream_st* stream) noexcept {
  return cuda::launch<__nv_bfloat16>(args, device, stream);
}

}  // namespace abi
}  // namespace ATTIKOS_VERSION_NAMESPACE
}  // namespace attikos
