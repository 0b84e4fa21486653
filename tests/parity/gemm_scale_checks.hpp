// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One gemm problem with scales and zero points: build it, run it, compare every element with the
// oracle.
#pragma once

#include <attikos/gemm/gemm.hpp>
#include <sstream>
#include <string>

#include "../support/backends.hpp"
#include "../support/comparison.hpp"
#include "../support/tensors.hpp"
#include "../support/tolerance_gemm.hpp"

namespace attikos::test {

/// How many neighbors along the outer dimension (m or n) and along k share a factor; 0 stands for
/// all.
struct ScaleBlocks {
  std::int64_t outer, k;
};
enum class ScaleForm { full_rank, vector, single };

struct ScaledCase {
  std::int64_t batch, m, n, k;
  GemmOptions options = {};
  ScaleForm form = ScaleForm::full_rank;
  ScaleBlocks a = {0, 0}, b = {0, 0};
  Layout layout = Layout::right;
  double largest = 4;
  bool shared_scales = false;  ///< one set for the whole batch
};

inline std::string describe(ScaledCase const& p) {
  std::ostringstream text;
  text << "batch " << p.batch << " m " << p.m << " n " << p.n << " k " << p.k << " trans "
       << p.options.trans_a << p.options.trans_b << " form " << static_cast<int>(p.form)
       << " blocks a " << p.a.outer << ", " << p.a.k << " b " << p.b.outer << ", " << p.b.k
       << " layout " << layout_name(p.layout);
  return text.str();
}

inline std::int64_t scale_groups(std::int64_t extent, std::int64_t block) {
  return block == 0 ? 1 : (extent + block - 1) / block;
}
inline std::int64_t scale_group(std::int64_t index, std::int64_t block) {
  return block == 0 ? 0 : index / block;
}

/// The scale of one operand in every form, all of the same content.
template <class Exec>
struct OperandScale {
  ScaleBlocks blocks;
  bool transposed;  ///< stored as [k, outer]
  Tensor<float, 3, Exec> full;
  Tensor<float, 2, Exec> vector;
  Tensor<float, 1, Exec> single;

  OperandScale(ScaledCase const& p, ScaleBlocks given, std::int64_t outer, bool k_first)
      : blocks(p.form == ScaleForm::full_rank
                   ? given
                   : (p.form == ScaleForm::vector ? ScaleBlocks{1, 0} : ScaleBlocks{0, 0})),
        transposed(k_first),
        full({p.shared_scales ? 1 : p.batch,
              transposed ? scale_groups(p.k, blocks.k) : scale_groups(outer, blocks.outer),
              transposed ? scale_groups(outer, blocks.outer) : scale_groups(p.k, blocks.k)},
             p.layout == Layout::right ? Layout::padded : p.layout),
        vector({p.shared_scales ? 1 : p.batch, outer}, Layout::left),
        single({1}, Layout::strided) {
    Random random(static_cast<std::uint64_t>(outer + p.k));
    full.fill_uniform(random, 0.25, 2);
    vector.fill_uniform(random, 0.25, 2);
    single.fill(0.375);
    form_ = p.form;
    shared_ = p.shared_scales;
  }
  double at(std::int64_t batch, std::int64_t outer, std::int64_t k) const {
    if (form_ == ScaleForm::single) return single.value(0);
    std::int64_t const bt = shared_ ? 0 : batch;
    if (form_ == ScaleForm::vector) return vector.value(bt, outer);
    std::int64_t const i = scale_group(outer, blocks.outer), j = scale_group(k, blocks.k);
    return transposed ? full.value(bt, j, i) : full.value(bt, i, j);
  }

 private:
  ScaleForm form_{};
  bool shared_ = false;
};

template <class T>
std::string element_name() {
  if constexpr (is_floating_element<T> && sizeof(T) == 1) return QuantizedFormat<T>::name;
  return type_name<T>();
}

/// Elements of an operand: any number of its type that a product of two cannot take past float.
template <class T, class TensorType>
void fill_operand(TensorType& x, Random& random, double largest) {
  if constexpr (std::is_same_v<T, std::int8_t>) {
    x.fill_integers(random, -128, 127);
  } else {
    x.fill_uniform(random, -largest, largest);
  }
}

template <class Exec, class TA, class TB, class TC>
void check_scaled(ScaledCase const& p) {
  using Acc = Accumulator<TA, TB, TC>;
  auto const& o = p.options;
  Tensor<TA, 3, Exec> a({p.batch, o.trans_a ? p.k : p.m, o.trans_a ? p.m : p.k}, p.layout);
  Tensor<TB, 3, Exec> b({p.batch, o.trans_b ? p.n : p.k, o.trans_b ? p.k : p.n}, p.layout);
  Tensor<TC, 3, Exec> c({p.batch, p.m, p.n}, p.layout);
  OperandScale<Exec> sa(p, p.a, p.m, o.trans_a), sb(p, p.b, p.n, !o.trans_b);
  Random random(static_cast<std::uint64_t>(p.m * 1009 + p.n * 31 + p.k));
  fill_operand<TA>(a, random, p.largest);
  fill_operand<TB>(b, random, p.largest);
  if (o.beta != 0) c.fill_uniform(random);
  auto before = c;
  auto const av = a.const_view();
  auto const bv = b.const_view();
  std::string kernel;
  auto const run = [&](auto const& scale_of_a, auto const& scale_of_b) {
    kernel = explain(op::gemm, Exec(), av, bv, c.view(), o, scale_of_a, scale_of_b).kernel;
    gemm(Exec(), av, bv, c.view(), o, scale_of_b, scale_of_a);
  };
  if (p.form == ScaleForm::full_rank)
    run(scale_a(sa.full.const_view()), scale_b(sb.full.const_view()));
  else if (p.form == ScaleForm::vector)
    run(scale_a(sa.vector.const_view()), scale_b(sb.vector.const_view()));
  else
    run(scale_a(sa.single.const_view()), scale_b(sb.single.const_view()));
  bool const tensor_cores = kernel == "gemm/sm90_wgmma_f8";
  c.download();
  EXPECT_EQ(c.writes_outside(), 0u) << describe(p);
  Comparison comparison(std::string("gemm/scaled/") + element_name<TA>() + "_" +
                            element_name<TB>() + "_" + element_name<TC>() + "/" + Exec::name(),
                        describe(p), p.k > 1 ? stored_as<TC>() : Stored{});
  c.for_each([&](auto const& at) {
    auto const [bt, i, j] = at;
    if (!is_compared(i)) return;
    reference::GemmTerms terms;
    terms.alpha = o.alpha;
    terms.beta = o.beta;
    terms.c = o.beta != 0 ? before.value(bt, i, j) : 0.0;
    terms.scale = o.scale;
    std::int64_t const batch = bt, row = i, col = j;
    auto const scaled_a = [&](std::int64_t l) {
      return sa.at(batch, row, l) * (o.trans_a ? a.value(batch, l, row) : a.value(batch, row, l));
    };
    auto const scaled_b = [&](std::int64_t l) {
      return sb.at(batch, col, l) * (o.trans_b ? b.value(batch, col, l) : b.value(batch, l, col));
    };
    auto const want = reference::gemm_element(p.k, scaled_a, scaled_b, terms);
    double error = scaled_gemm_error<Acc>(p.k, want, terms);
    if (tensor_cores)
      error += std::abs(o.scale * o.alpha) *
               float8_tensor_core_error(p.k, o.accumulate == Accumulate::promoted,
                                        [&](std::int64_t l) { return scaled_a(l) * scaled_b(l); });
    comparison.add(c.value(bt, i, j), want.value, stored_gemm_bound<Acc, TC>(want.value, error),
                   {bt, i, j});
  });
}

}  // namespace attikos::test
