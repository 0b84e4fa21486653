// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "operations.hpp"

#include <utility>

#include "../support/backends.hpp"

namespace attikos::test {
namespace {

template <class Exec>
using Operations = std::vector<Operation<Exec>>;

/// What log-sum-exps of elements of T are stored as.
template <class T>
using LseOf = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Two sequences, one of which is shorter than the tensors.
template <class Exec, class T>
struct Sequences {
  std::shared_ptr<Tensor<T, 4, Exec>> q = filled<T, 4, Exec>({2, 2, 39, 40}, 7),
                                      k = filled<T, 4, Exec>({2, 1, 300, 40}, 8),
                                      v = filled<T, 4, Exec>({2, 1, 300, 24}, 9);
  std::shared_ptr<Tensor<std::int32_t, 1, Exec>> len_q = lengths_of(39, 20),
                                                 len_kv = lengths_of(300, 130);

 private:
  static auto lengths_of(std::int32_t first, std::int32_t second) {
    auto made = std::make_shared<Tensor<std::int32_t, 1, Exec>>(std::array<std::int64_t, 1>{2});
    (*made)(0) = first;
    (*made)(1) = second;
    made->upload();
    return made;
  }
};

template <class Exec, class T>
void add_products(Operations<Exec>& list) {
  {
    auto a = filled<T, 3, Exec>({2, 67, 300}, 1), b = filled<T, 3, Exec>({2, 300, 45}, 2);
    auto c = filled<T, 3, Exec>({2, 67, 45}, 3), residuals = filled<T, 3, Exec>({2, 67, 45}, 4);
    auto biases = filled<T, 1, Exec>({45}, 5);
    GemmOptions const options{.alpha = 0.5, .activation = Activation::gelu};
    list.push_back({"gemm",
                    [=](Exec const& exec) {
                      gemm(exec, a->const_view(), b->const_view(), c->view(), options,
                           bias(biases->const_view()), residual(residuals->const_view()));
                    },
                    output_of(c)});
    // One row: whatever splits the sum over threads would show in determinism.
    auto row = filled<T, 3, Exec>({1, 1, 45}, 6);
    list.push_back(
        {"gemm",
         [=](Exec const& exec) {
           gemm(exec, Kokkos::subview(a->const_front(), std::pair<int, int>(0, 1), Kokkos::ALL),
                b->const_front(), row->front());
         },
         output_of(row)});
  }
  if constexpr (is_host_space<Exec>) {
    auto a = filled<T, 2, Exec>({40, 300}, 84), b = filled<T, 2, Exec>({300, 50}, 85);
    auto c = filled<T, 2, Exec>({40, 50}, 86);
    auto const size = static_cast<std::int64_t>(pack_b_size(b->const_view()));
    auto memory =
        std::make_shared<Tensor<std::uint8_t, 1, Exec>>(std::array<std::int64_t, 1>{size});
    list.push_back({"pack_b",
                    [=](Exec const& exec) { pack_b(exec, b->const_view(), memory->view()); },
                    output_of(memory)});
    auto const packed = pack_b(Exec(), b->const_view());
    list.push_back({"gemm",
                    [=](Exec const& exec) { gemm(exec, a->const_view(), packed, c->view()); },
                    output_of(c)});
  }
  {
    auto a = filled<T, 2, Exec>({70, 90}, 79), b = filled<T, 2, Exec>({90, 50}, 80);
    auto dc = filled<T, 2, Exec>({70, 50}, 81);
    auto da = filled<T, 2, Exec>({70, 90}, 82), db = filled<T, 2, Exec>({90, 50}, 83);
    for (auto const& result : {output_of(da), output_of(db)}) {
      list.push_back({"gemm_backward",
                      [=](Exec const& exec) {
                        gemm_backward(exec, a->const_view(), b->const_view(), dc->const_view(),
                                      da->view(), db->view());
                      },
                      result});
    }
  }
}

template <class Exec, class T>
void add_gated_mlp(Operations<Exec>& list) {
  auto input = filled<T, 3, Exec>({2, 35, 300}, 30), dinput = filled<T, 3, Exec>({2, 35, 300}, 31);
  auto gate = filled<T, 2, Exec>({45, 300}, 32), up = filled<T, 2, Exec>({45, 300}, 33);
  auto dgate = filled<T, 2, Exec>({45, 300}, 34), dup = filled<T, 2, Exec>({45, 300}, 35);
  auto out = filled<T, 3, Exec>({2, 35, 45}, 36), dout = filled<T, 3, Exec>({2, 35, 45}, 37);
  list.push_back({"gated_mlp",
                  [=](Exec const& exec) {
                    gated_mlp(exec, input->const_view(), gate->const_view(), up->const_view(),
                              out->view(), {.activation = Activation::gelu});
                  },
                  output_of(out)});
  for (auto const& result : {output_of(dinput), output_of(dgate), output_of(dup)}) {
    list.push_back({"gated_mlp_backward",
                    [=](Exec const& exec) {
                      gated_mlp_backward(exec, input->const_view(), gate->const_view(),
                                         up->const_view(), dout->const_view(), dinput->view(),
                                         dgate->view(), dup->view(), {.kernel = "portable"});
                    },
                    result});
  }
}

template <class Exec, class T>
void add_attention(Operations<Exec>& list, Sequences<Exec, T> const& sequences) {
  auto const q = sequences.q;
  auto const k = sequences.k;
  auto const v = sequences.v;
  auto const len_q = sequences.len_q;
  auto const len_kv = sequences.len_kv;
  for (auto algorithm :
       {AttentionAlgorithm::flash, AttentionAlgorithm::tiled, AttentionAlgorithm::naive}) {
    AttentionOptions const options{.causal = true, .algorithm = algorithm};
    auto out = filled<T, 4, Exec>({2, 2, 39, 24}, 10);
    using Lse = LseOf<T>;
    auto lse = filled<Lse, 3, Exec>({2, 2, 39}, 11);
    Kokkos::View<std::byte*, typename Exec::memory_space> const memory(
        "attikos_test", attention_workspace_size(q->view(), k->view(), v->view(), options));
    list.push_back({"attention",
                    [=](Exec const& exec) {
                      attention(exec, q->const_view(), k->const_view(), v->const_view(),
                                out->view(), lse->view(), options, workspace(memory),
                                lengths(len_q->const_view(), len_kv->const_view()));
                    },
                    output_of(out)});
  }
  {
    // Many short sequences.
    auto out = filled<T, 4, Exec>({37, 4, 9, 24}, 16);
    auto queries = filled<T, 4, Exec>({37, 4, 9, 40}, 17),
         keys = filled<T, 4, Exec>({37, 2, 13, 40}, 18);
    auto values = filled<T, 4, Exec>({37, 2, 13, 24}, 19);
    list.push_back({"attention",
                    [=](Exec const& exec) {
                      attention(exec, queries->const_view(), keys->const_view(),
                                values->const_view(), out->view(), {.causal = true});
                    },
                    output_of(out)});
  }
  {
    // One head, few queries: threads must share the keys or stand idle.
    auto out = filled<T, 4, Exec>({1, 1, 3, 24}, 12);
    auto one = filled<T, 4, Exec>({1, 1, 3, 40}, 13),
         keys = filled<T, 4, Exec>({1, 1, 1500, 40}, 14);
    auto values = filled<T, 4, Exec>({1, 1, 1500, 24}, 15);
    list.push_back({"attention",
                    [=](Exec const& exec) {
                      attention(exec, one->const_view(), keys->const_view(), values->const_view(),
                                out->view());
                    },
                    output_of(out)});
  }
}

/// Keys of the query's own third of the sequence.
struct SameThird {
  KOKKOS_INLINE_FUNCTION bool operator()(std::int64_t, std::int64_t, std::int64_t i,
                                         std::int64_t j) const {
    return i / 13 == j / 100;
  }
};

/// The tiles of a mask, and attention with it.
template <class Exec, class T>
void add_block_mask(Operations<Exec>& list, Sequences<Exec, T> const& sequences) {
  auto const q = sequences.q;
  auto const k = sequences.k;
  auto const v = sequences.v;
  BlockMaskShape const shape{39, 300, 16, 64};
  auto tiles = std::make_shared<Tensor<std::int8_t, 2, Exec>>(
      std::array<std::int64_t, 2>{shape.tiles_q(), shape.tiles_kv()});
  list.push_back(
      {"make_block_mask",
       [=](Exec const& exec) { make_block_mask(exec, SameThird{}, tiles->view(), shape); },
       output_of(tiles)});
  auto ready = std::make_shared<Tensor<std::int8_t, 2, Exec>>(
      std::array<std::int64_t, 2>{shape.tiles_q(), shape.tiles_kv()});
  ready->fill(static_cast<double>(BlockKind::partial));
  auto out = filled<T, 4, Exec>({2, 2, 39, 24}, 20);
  list.push_back({"attention",
                  [=](Exec const& exec) {
                    attention(exec, q->const_view(), k->const_view(), v->const_view(), out->view(),
                              AttentionOptions{},
                              block_mask(ready->const_view(), SameThird{}, shape));
                  },
                  output_of(out)});
}

template <class Exec, class T>
void add_attention_backward(Operations<Exec>& list, Sequences<Exec, T> const& sequences) {
  auto const q = sequences.q;
  auto const k = sequences.k;
  auto const v = sequences.v;
  auto const len_q = sequences.len_q;
  auto const len_kv = sequences.len_kv;
  using Lse = LseOf<T>;
  auto out = filled<T, 4, Exec>({2, 2, 39, 24}, 70), dout = filled<T, 4, Exec>({2, 2, 39, 24}, 71);
  auto lse = filled<Lse, 3, Exec>({2, 2, 39}, 72);
  auto dq = filled<T, 4, Exec>({2, 2, 39, 40}, 73), dk = filled<T, 4, Exec>({2, 1, 300, 40}, 74),
       dv = filled<T, 4, Exec>({2, 1, 300, 24}, 75);
  for (auto const& result : {output_of(dq), output_of(dk), output_of(dv)}) {
    list.push_back({"attention_backward",
                    [=](Exec const& exec) {
                      attention_backward(exec, q->const_view(), k->const_view(), v->const_view(),
                                         out->const_view(), lse->const_view(), dout->const_view(),
                                         dq->view(), dk->view(), dv->view(), {.causal = true},
                                         lengths(len_q->const_view(), len_kv->const_view()));
                    },
                    result});
  }
}

template <class Exec, class T>
void add_quantize(Operations<Exec>& list) {
  auto rows = filled<T, 2, Exec>({70, 300}, 76);
  auto codes = filled<float8_e4m3, 2, Exec>({70, 300}, 77);
  auto scales = filled<float, 2, Exec>({70, 3}, 78);
  list.push_back(
      {"quantize",
       [=](Exec const& exec) { quantize(exec, rows->const_view(), codes->view(), scales->view()); },
       output_of(codes)});
}

template <class Exec>
auto labels_of(std::int64_t classes) {
  auto labels = std::make_shared<Tensor<std::int64_t, 2, Exec>>(std::array<std::int64_t, 2>{2, 70});
  Random random(23);
  labels->fill_integers(random, 0, classes - 1);
  return labels;
}

template <class Exec, class T>
void add_rows(Operations<Exec>& list, Sequences<Exec, T> const& sequences) {
  auto const len_q = sequences.len_q;
  auto x = filled<T, 3, Exec>({2, 70, 385}, 16);
  auto weight = filled<T, 1, Exec>({385}, 17);
  auto const rows = [&](char const* name, auto op) {
    auto out = filled<T, 3, Exec>({2, 70, 385}, 18);
    list.push_back({name, [=](Exec const& exec) { op(exec, out->view()); }, output_of(out)});
  };
  rows("layer_norm", [=](Exec const& exec, auto const& out) {
    layer_norm(exec, x->const_view(), weight->const_view(), weight->const_view(), out);
  });
  rows("rms_norm", [=](Exec const& exec, auto const& out) {
    rms_norm(exec, x->const_view(), weight->const_view(), out);
  });
  rows("softmax", [=](Exec const& exec, auto const& out) { softmax(exec, x->const_view(), out); });
  rows("l2_normalize",
       [=](Exec const& exec, auto const& out) { l2_normalize(exec, x->const_view(), out); });
  auto pooled = filled<T, 2, Exec>({2, 385}, 19);
  list.push_back({"mean_pool",
                  [=](Exec const& exec) {
                    mean_pool(exec, x->const_view(), pooled->view(), MeanPoolOptions{},
                              lengths(len_q->const_view()));
                  },
                  output_of(pooled)});
  rows("log_softmax",
       [=](Exec const& exec, auto const& out) { log_softmax(exec, x->const_view(), out); });
  auto const labels = labels_of<Exec>(385);
  auto loss = filled<T, 2, Exec>({2, 70}, 20);
  list.push_back({"cross_entropy",
                  [=](Exec const& exec) {
                    cross_entropy(exec, x->const_view(), labels->const_view(), loss->view(),
                                  CrossEntropyOptions{.label_smoothing = 0.1});
                  },
                  output_of(loss)});
  auto const table = filled<T, 2, Exec>({385, 40}, 85);
  auto const embedded = filled<T, 3, Exec>({2, 70, 40}, 86);
  list.push_back({"embedding",
                  [=](Exec const& exec) {
                    embedding(exec, table->const_view(), labels->const_view(), embedded->view());
                  },
                  output_of(embedded)});
}

template <class Exec, class T>
void add_rows_backward(Operations<Exec>& list) {
  auto x = filled<T, 3, Exec>({2, 70, 385}, 16);
  auto weight = filled<T, 1, Exec>({385}, 17);
  auto const rows = [&](char const* name, auto op) {
    auto out = filled<T, 3, Exec>({2, 70, 385}, 18);
    list.push_back({name, [=](Exec const& exec) { op(exec, out->view()); }, output_of(out)});
  };
  auto g = filled<T, 3, Exec>({2, 70, 385}, 40);
  auto dweight = filled<T, 1, Exec>({385}, 41), dbias = filled<T, 1, Exec>({385}, 42);
  auto dx = filled<T, 3, Exec>({2, 70, 385}, 43);
  rows("l2_normalize_backward", [=](Exec const& exec, auto const& out) {
    l2_normalize_backward(exec, x->const_view(), g->const_view(), out);
  });
  rows("softmax_backward", [=](Exec const& exec, auto const& out) {
    softmax_backward(exec, x->const_view(), g->const_view(), out);
  });
  rows("log_softmax_backward", [=](Exec const& exec, auto const& out) {
    log_softmax_backward(exec, x->const_view(), g->const_view(), out);
  });
  auto const labels = labels_of<Exec>(385);
  auto const lse = filled<LseOf<T>, 2, Exec>({2, 70}, 21);
  auto const dloss = filled<T, 2, Exec>({2, 70}, 22);
  rows("cross_entropy_backward", [=](Exec const& exec, auto const& out) {
    cross_entropy_backward(exec, x->const_view(), labels->const_view(), lse->const_view(),
                           dloss->const_view(), out);
  });
  auto const hidden = filled<T, 2, Exec>({70, 40}, 23), layer = filled<T, 2, Exec>({385, 40}, 24);
  auto const of_rows = filled<LseOf<T>, 1, Exec>({70}, 25),
             losses = filled<LseOf<T>, 1, Exec>({70}, 26);
  auto const dhidden = filled<T, 2, Exec>({70, 40}, 27), dlayer = filled<T, 2, Exec>({385, 40}, 28);
  for (auto const& result : {output_of(losses), output_of(dhidden), output_of(dlayer)}) {
    list.push_back({"linear_cross_entropy",
                    [=](Exec const& exec) {
                      linear_cross_entropy(exec, hidden->const_view(), layer->const_view(),
                                           Kokkos::subview(labels->const_view(), 0, Kokkos::ALL),
                                           of_rows->const_view(), losses->view(), dhidden->view(),
                                           dlayer->view(), {.rows_at_once = 32});
                    },
                    result});
  }
  // Most ids are there several times.
  auto const ids = labels_of<Exec>(9);
  auto const dtable = filled<T, 2, Exec>({9, 385}, 87);
  list.push_back({"embedding_backward",
                  [=](Exec const& exec) {
                    embedding_backward(exec, ids->const_view(), x->const_view(), dtable->view());
                  },
                  output_of(dtable)});
  auto const weights = filled<T, 2, Exec>({9, 385}, 88), slopes = filled<T, 2, Exec>({9, 385}, 89);
  auto const first = filled<attikos::detail::AdamWState<T>, 2, Exec>({9, 385}, 90);
  auto const second = filled<attikos::detail::AdamWState<T>, 2, Exec>({9, 385}, 91);
  // A step that a second one does not add to.
  list.push_back({"adamw_step",
                  [=](Exec const& exec) {
                    adamw_step(exec, weights->view(), slopes->const_view(), first->view(),
                               second->view(),
                               {.learning_rate = 0, .beta1 = 0, .beta2 = 0, .weight_decay = 0});
                  },
                  output_of(first)});
  auto const dpooled = filled<T, 2, Exec>({2, 385}, 84);
  rows("mean_pool_backward", [=](Exec const& exec, auto const& out) {
    mean_pool_backward(exec, dpooled->const_view(), out);
  });
  for (auto const& result : {output_of(dx), output_of(dweight)}) {
    list.push_back({"rms_norm_backward",
                    [=](Exec const& exec) {
                      rms_norm_backward(exec, x->const_view(), weight->const_view(),
                                        g->const_view(), dx->view(), dweight->view());
                    },
                    result});
  }
  for (auto const& result : {output_of(dx), output_of(dweight), output_of(dbias)}) {
    list.push_back({"layer_norm_backward",
                    [=](Exec const& exec) {
                      layer_norm_backward(exec, x->const_view(), weight->const_view(),
                                          g->const_view(), dx->view(), dweight->view(),
                                          dbias->view());
                    },
                    result});
  }
}

template <class Exec, class T>
void add_rotary(Operations<Exec>& list, Sequences<Exec, T> const& sequences) {
  auto const q = sequences.q;
  auto const len_q = sequences.len_q;
  auto cos = filled<T, 2, Exec>({39, 40}, 44), sin = filled<T, 2, Exec>({39, 40}, 45);
  auto turned = filled<T, 4, Exec>({2, 2, 39, 40}, 46);
  list.push_back({"rope",
                  [=](Exec const& exec) {
                    rope(exec, q->const_view(), cos->const_view(), sin->const_view(),
                         turned->view(), RopeOptions{}, positions(len_q->const_view()));
                  },
                  output_of(turned)});
  list.push_back({"rope_backward",
                  [=](Exec const& exec) {
                    rope_backward(exec, q->const_view(), cos->const_view(), sin->const_view(),
                                  turned->view());
                  },
                  output_of(turned)});
  auto tokens = filled<T, 3, Exec>({2, 39, 160}, 47),
       dtokens = filled<T, 3, Exec>({2, 39, 160}, 48);
  auto scales = filled<T, 1, Exec>({160}, 49), dscales = filled<T, 1, Exec>({160}, 50);
  list.push_back({"rms_norm_rope",
                  [=](Exec const& exec) {
                    rms_norm_rope(exec, tokens->const_view(), scales->const_view(),
                                  cos->const_view(), sin->const_view(), dtokens->view());
                  },
                  output_of(dtokens)});
  for (auto const& result : {output_of(dtokens), output_of(dscales)}) {
    list.push_back({"rms_norm_rope_backward",
                    [=](Exec const& exec) {
                      rms_norm_rope_backward(exec, tokens->const_view(), scales->const_view(),
                                             cos->const_view(), sin->const_view(),
                                             tokens->const_view(), dtokens->view(),
                                             dscales->view());
                    },
                    result});
  }
}

template <class Exec, class T>
void add_caches(Operations<Exec>& list, Sequences<Exec, T> const& sequences) {
  auto const len_kv = sequences.len_kv;
  auto one = filled<T, 4, Exec>({2, 4, 2, 40}, 51), keys = filled<T, 4, Exec>({2, 2, 1500, 40}, 52);
  auto values = filled<T, 4, Exec>({2, 2, 1500, 24}, 53),
       out = filled<T, 4, Exec>({2, 4, 2, 24}, 54);
  list.push_back({"decode",
                  [=](Exec const& exec) {
                    decode(exec, one->const_view(), keys->const_view(), values->const_view(),
                           out->view(), {.causal = true}, lengths(none, len_kv->const_view()));
                  },
                  output_of(out)});
  auto new_k = filled<T, 4, Exec>({2, 2, 5, 40}, 55), new_v = filled<T, 4, Exec>({2, 2, 5, 24}, 56);
  auto k_cache = filled<T, 4, Exec>({2, 2, 400, 40}, 64),
       v_cache = filled<T, 4, Exec>({2, 2, 400, 24}, 65);
  k_cache->fill(3), v_cache->fill(3);  // as Output::clear leaves what is not written
  auto table_cos = filled<float, 2, Exec>({1500, 40}, 57),
       table_sin = filled<float, 2, Exec>({1500, 40}, 58);
  for (auto const& result : {output_of(k_cache), output_of(v_cache)}) {
    list.push_back({"append_kv",
                    [=](Exec const& exec) {
                      append_kv(exec, new_k->const_view(), new_v->const_view(), k_cache->view(),
                                v_cache->view(), {}, cache_lengths(len_kv->const_view()),
                                rotary(table_cos->const_view(), table_sin->const_view()));
                    },
                    result});
  }
  using Lse = LseOf<T>;
  auto lse = filled<Lse, 3, Exec>({2, 4, 2}, 59), other_lse = filled<Lse, 3, Exec>({2, 4, 2}, 60);
  auto part = filled<T, 4, Exec>({2, 4, 2, 24}, 61), other = filled<T, 4, Exec>({2, 4, 2, 24}, 62);
  auto merged = filled<T, 4, Exec>({2, 4, 2, 24}, 63);
  list.push_back({"merge_states",
                  [=](Exec const& exec) {
                    merge_states(exec, part->const_view(), lse->const_view(), other->const_view(),
                                 other_lse->const_view(), merged->view());
                  },
                  output_of(merged)});
}

}  // namespace

template <class Exec, class T>
std::vector<Operation<Exec>> operations() {
  Operations<Exec> list;
  Sequences<Exec, T> const sequences;
  add_products<Exec, T>(list);
  add_gated_mlp<Exec, T>(list);
  add_attention(list, sequences);
  add_block_mask(list, sequences);
  add_attention_backward(list, sequences);
  add_quantize<Exec, T>(list);
  add_rows(list, sequences);
  add_rows_backward<Exec, T>(list);
  add_rotary(list, sequences);
  add_caches(list, sequences);
  return list;
}

#define ATTIKOS_TEST_OPERATIONS(Space, T) \
  template std::vector<Operation<Space>> operations<Space, T>();
#if defined(KOKKOS_ENABLE_CUDA)
using DefaultSpace = Kokkos::Cuda;
#else
using DefaultSpace = Kokkos::DefaultExecutionSpace;
#endif
ATTIKOS_TEST_OPERATIONS(DefaultSpace, float)
ATTIKOS_TEST_OPERATIONS(DefaultSpace, bfloat16)
#if !defined(KOKKOS_ENABLE_CUDA) && defined(KOKKOS_ENABLE_SERIAL) && defined(KOKKOS_ENABLE_OPENMP)
#if !defined(ATTIKOS_TEST_FEW_CASES)
ATTIKOS_TEST_OPERATIONS(Kokkos::Serial, float)
#endif
#if defined(ATTIKOS_TEST_ALL_CASES)
ATTIKOS_TEST_OPERATIONS(Kokkos::Serial, bfloat16)
#endif
#endif

}  // namespace attikos::test
