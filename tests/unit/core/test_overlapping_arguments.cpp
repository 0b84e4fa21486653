// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every operation, every output, every other argument: memory that they share is refused before
// anything is written, but where the argument may be the output itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <attikos/attikos.hpp>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "support/messages.hpp"

namespace attikos::test {
namespace {

using Exec = Kokkos::DefaultExecutionSpace;
template <class T, int Rank>
struct DataOf : DataOf<T*, Rank - 1> {};
template <class T>
struct DataOf<T, 0> {
  using type = T;
};
template <class T, int Rank>
using Strided = Kokkos::View<typename DataOf<T, Rank>::type, Kokkos::LayoutStride, Exec,
                             Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

/// One piece of memory in which all arguments of a call lie, apart or as a test wants them.
class Arena {
 public:
  struct Argument {
    std::string name;
    std::size_t at, bytes;
    std::vector<std::size_t> extents;
    bool is_output;
    std::string may_be;  ///< the output that it may be itself
  };

  Arena() : memory_("arena", 1 << 16) { reset(); }

  template <class T = float, class... Extents>
  auto out(std::string const& name, Extents... extents) {
    return place<T>({name, 0, 0, {}, true, ""}, extents...);
  }
  template <class T = float, class... Extents>
  auto in(std::string const& name, Extents... extents) {
    return place<T>({name, 0, 0, {}, false, ""}, extents...);
  }
  template <class T = float, class... Extents>
  auto updated(std::string const& name, std::string const& may_be, Extents... extents) {
    return place<T>({name, 0, 0, {}, false, may_be}, extents...);
  }

  /// Forgets the last call; the next one has its arguments apart.
  void reset() {
    arguments.clear();
    moved = folded = "";
    end_ = 0;
    Kokkos::deep_copy(memory_, filling);
  }
  bool is_untouched() const {
    auto const host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), memory_);
    return std::all_of(host.data(), host.data() + host.size(),
                       [](std::byte b) { return b == filling; });
  }

  std::vector<Argument> arguments;
  std::string moved, folded;  ///< the argument that lies at `to`; the one of strides 1, or 0
  std::size_t to = 0;

 private:
  // As a float a small number, as an index one beyond everything.
  static constexpr std::byte filling{0x11};

  template <class T, class... Extents>
  auto place(Argument argument, Extents... extents) {
    constexpr int rank = sizeof...(Extents);
    argument.extents = {static_cast<std::size_t>(extents)...};
    std::size_t count = 1;
    std::size_t const step =
        std::count(argument.extents.begin(), argument.extents.end(), 1u) < rank - 1
            ? 1
            : 0;  // of a folded one
    Kokkos::LayoutStride layout;
    for (int r = rank - 1; r >= 0; --r) {
      std::size_t const extent = argument.extents[static_cast<std::size_t>(r)];
      layout.dimension[r] = extent;
      layout.stride[r] = argument.name != folded ? count : step;
      count *= extent;
    }
    argument.bytes = count * sizeof(T);
    argument.at = argument.name == moved ? to : end_;
    end_ += (argument.bytes + 63) / 64 * 64;
    arguments.push_back(argument);
    EXPECT_LE(end_, memory_.extent(0));
    return Strided<T, rank>(reinterpret_cast<T*>(memory_.data() + argument.at), layout);
  }

  Kokkos::View<std::byte*, Exec> memory_;
  std::size_t end_ = 0;
};

/// Tries a call with its arguments apart, and then with each pair of them in one place.
void check(std::string const& operation, std::function<void(Arena&)> const& call) {
  Arena arena;
  call(arena);
  Kokkos::fence();
  auto const arguments = arena.arguments;
  auto const refused = [&](std::string const& what, std::string const& output,
                           std::string const& other) {
    try {
      call(arena);
      ADD_FAILURE() << operation << ": " << what << " is not refused";
    } catch (StrideError const& error) {
      EXPECT_TRUE(other.empty()) << error.what();
      EXPECT_NE(std::string(error.what()).find("attikos::" + operation + ": output " + output),
                std::string::npos)
          << error.what();
    } catch (Error const& error) {
      EXPECT_EQ(typeid(error), typeid(Error)) << error.what();
      std::string const text = error.what();
      EXPECT_EQ(text.find("attikos::" + operation + ": output "), 0u) << text;
      EXPECT_NE(text.find(other), std::string::npos) << text;
      EXPECT_NE(text.find("shares memory with"), std::string::npos) << text;
    }
    EXPECT_TRUE(arena.is_untouched()) << operation << ": " << what << " wrote";
  };
  for (auto const& output : arguments) {
    if (!output.is_output) continue;
    if (output.name != "workspace") {  // contiguous memory, which a message of its own asks for
      arena.reset();
      arena.folded = output.name;
      refused("an overlap of " + output.name + " with itself", output.name, "");
    }
    for (auto const& other : arguments) {
      if (other.name == output.name) continue;
      std::string const pair = output.name + " with " + other.name;
      // At its end, in its middle, and at its very place.
      for (std::size_t const shift : {output.bytes - 4, std::size_t{4}, std::size_t{0}}) {
        if (shift >= output.bytes || (shift == 0 && other.may_be == output.name)) continue;
        arena.reset();
        arena.moved = other.name;
        arena.to = output.at + shift;
        refused("an overlap of " + pair + " by " + std::to_string(shift) + " bytes", output.name,
                other.name);
      }
      arena.reset();
      arena.moved = other.name;
      arena.to = output.at;
      if (other.may_be == output.name && other.extents == output.extents) {
        EXPECT_NO_THROW(call(arena)) << operation << ": " << pair;
        Kokkos::fence();
      }
    }
  }
}

TEST(OverlappingArguments, Gemm) {
  check("gemm", [](Arena& m) {
    gemm(Exec(), m.in("A", 3, 4), m.in("B", 4, 5), m.out("C", 3, 5), {}, bias(m.in("bias", 5)),
         residual(m.updated("residual", "C", 3, 5)), pre_activation(m.out("pre_activation", 3, 5)),
         device_scale(m.in("device_scale", 1)));
  });
  check("gemm", [](Arena& m) {
    gemm(Exec(), m.in<std::int8_t>("A", 3, 16), m.in<std::int8_t>("B", 16, 8),
         m.out<std::int8_t>("C", 3, 8), {}, scale_a(m.in("scale_a", 3, 1)),
         scale_b(m.in("scale_b", 1, 8)), scale_out(m.in("scale_out", 1)),
         zero_point_a(m.in<std::int32_t>("zero_point_a", 1)),
         zero_point_b(m.in<std::int32_t>("zero_point_b", 8)));
  });
  check("gemm", [](Arena& m) {
    gemm(Exec(), m.in("A", 6, 4), m.in("B", 2, 4, 5), m.out("C", 6, 5), {},
         grouped(m.in<std::int32_t>("grouped()", 3)));
  });
  check("gemm", [](Arena& m) {
    gemm(Exec(), m.in("A", 2, 3, 4), m.in("B", 2, 4, 5), m.out("C", 2, 3, 5), {},
         masked(m.in<std::int32_t>("masked()", 2)));
  });
  check("gemm_backward", [](Arena& m) {
    auto const dout = m.updated("dout", "pre_activation_gradient", 2, 3, 5);
    gemm_backward(Exec(), m.in("A", 2, 3, 4), m.in("B", 2, 4, 5), dout, m.out("da", 2, 3, 4),
                  m.out("db", 2, 4, 5), {.activation = Activation::relu},
                  pre_activation(m.in("pre_activation;", 2, 3, 5)),
                  pre_activation_gradient(m.out("pre_activation_gradient", 2, 3, 5)),
                  bias_gradient(m.out("bias_gradient", 5)),
                  c_gradient(m.out("c_gradient", 2, 3, 5)), workspace(m.out("workspace", 512)));
  });
}

struct AllPairs {
  KOKKOS_INLINE_FUNCTION bool operator()(std::int64_t, std::int64_t, std::int64_t,
                                         std::int64_t) const {
    return true;
  }
};

TEST(OverlappingArguments, Attention) {
  for (auto algorithm : {AttentionAlgorithm::flash, AttentionAlgorithm::tiled}) {
    check("attention", [&](Arena& m) {
      attention(
          Exec(), m.in("q", 2, 4, 3, 8), m.in("k", 2, 2, 5, 8), m.in("v", 2, 2, 5, 8),
          m.out("out", 2, 4, 3, 8), m.out("lse", 2, 4, 3), {.algorithm = algorithm},
          lengths(m.in<std::int32_t>("lengths of q", 2), m.in<std::int32_t>("lengths of kv", 2)),
          bias(m.in("bias", 3, 5)), mask(m.in<std::uint8_t>("mask", 3, 5)), alibi(m.in("alibi", 4)),
          sinks(m.in("sinks", 4)), workspace(m.out("workspace", 1024)));
    });
  }
  check("attention", [](Arena& m) {
    attention(Exec(), m.in("q", 4, 6, 8), m.in("k", 2, 10, 8), m.in("v", 2, 10, 8),
              m.out("out", 4, 6, 8), {},
              cu_seqlens(m.in<std::int32_t>("cu_seqlens of q", 3),
                         m.in<std::int32_t>("cu_seqlens of kv", 3)));
  });
  check("attention", [](Arena& m) {
    attention(Exec(), m.in("q", 2, 4, 3, 8), m.in("k", 6, 2, 4, 8), m.in("v", 6, 2, 4, 8),
              m.out("out", 2, 4, 3, 8), {}, paged(m.in<std::int32_t>("page table", 2, 3), 4));
  });
  check("attention", [](Arena& m) {
    attention(
        Exec(), m.in<float8_e4m3>("q", 2, 2, 3, 8), m.in<float8_e4m3>("k", 2, 2, 5, 8),
        m.in<float8_e4m3>("v", 2, 2, 5, 8), m.out("out", 2, 2, 3, 8), {},
        descale(m.in("descale of q", 1), m.in("descale of k", 2, 2), m.in("descale of v", 1)));
  });
  check("attention", [](Arena& m) {
    attention(Exec(), m.in("q", 2, 4, 3, 8), m.in("k", 2, 2, 5, 8), m.in("v", 2, 2, 5, 8),
              m.out("out", 2, 4, 3, 8), {},
              block_mask(m.in<std::int8_t>("block mask", 2, 3), AllPairs{}, {3, 5, 2, 2}));
  });
  check("attention_backward", [](Arena& m) {
    attention_backward(Exec(), m.in("q", 2, 4, 3, 8), m.in("k", 2, 2, 5, 8), m.in("v", 2, 2, 5, 8),
                       m.in("out", 2, 4, 3, 8), m.in("lse", 2, 4, 3), m.in("dout", 2, 4, 3, 8),
                       m.out("dq", 2, 4, 3, 8), m.out("dk", 2, 2, 5, 8), m.out("dv", 2, 2, 5, 8),
                       {}, bias(m.in("bias", 3, 5)), d_bias(m.out("d_bias", 3, 5)),
                       sinks(m.in("sinks", 4)), d_sinks(m.out("d_sinks", 4)),
                       workspace(m.out("workspace", 1024)));
  });
}

TEST(OverlappingArguments, Cache) {
  check("decode", [](Arena& m) {
    decode(Exec(), m.in("q", 2, 4, 1, 8), m.in("k", 2, 2, 20, 8), m.in("v", 2, 2, 20, 8),
           m.out("out", 2, 4, 1, 8), m.out("lse", 2, 4, 1), {},
           lengths(none, m.in<std::int32_t>("lengths of kv", 2)),
           workspace(m.out("workspace", 2048)));
  });
  check("append_kv", [](Arena& m) {
    append_kv(
        Exec(), m.in("k_new", 2, 2, 3, 8), m.in("v_new", 2, 2, 3, 8), m.out("k_cache", 2, 2, 9, 8),
        m.out("v_cache", 2, 2, 9, 8), {}, cache_lengths(m.in<std::int32_t>("cache_lengths", 2)),
        new_lengths(m.in<std::int32_t>("new_lengths", 2)),
        rotary(m.in("cos", 20, 8), m.in("sin", 20, 8)),
        queries(m.updated("q", "out of queries", 2, 4, 3, 8), m.out("out of queries", 2, 4, 3, 8)));
  });
  check("append_kv", [](Arena& m) {
    append_kv(Exec(), m.in("k_new", 2, 6, 8), m.in("v_new", 2, 6, 8), m.out("k_cache", 5, 2, 4, 8),
              m.out("v_cache", 5, 2, 4, 8), {},
              cu_seqlens(none, m.in<std::int32_t>("cu_seqlens of kv", 3)),
              paged(m.in<std::int32_t>("page table", 2, 2), 4));
  });
  check("merge_states", [](Arena& m) {
    merge_states(Exec(), m.updated("out_a", "out", 2, 4, 3, 8), m.updated("lse_a", "lse", 2, 4, 3),
                 m.updated("out_b", "out", 2, 4, 3, 8), m.updated("lse_b", "lse", 2, 4, 3),
                 m.out("out", 2, 4, 3, 8), m.out("lse", 2, 4, 3));
  });
  check("merge_states", [](Arena& m) {
    merge_states(Exec(), m.updated("outs", "out", 3, 2, 4, 5, 8),
                 m.updated("lses", "lse", 3, 2, 4, 5), m.out("out", 2, 4, 5, 8),
                 m.out("lse", 2, 4, 5));
  });
}

TEST(OverlappingArguments, RowsAndHeads) {
  check("softmax",
        [](Arena& m) { softmax(Exec(), m.updated("x", "out", 4, 8), m.out("out", 4, 8)); });
  check("log_softmax",
        [](Arena& m) { log_softmax(Exec(), m.updated("x", "out", 4, 8), m.out("out", 4, 8)); });
  check("rms_norm", [](Arena& m) {
    rms_norm(Exec(), m.updated("x", "out", 4, 8), m.in("weight", 8), m.out("out", 4, 8));
  });
  check("l2_normalize",
        [](Arena& m) { l2_normalize(Exec(), m.updated("x", "out", 4, 8), m.out("out", 4, 8)); });
  check("layer_norm", [](Arena& m) {
    layer_norm(Exec(), m.updated("x", "out", 4, 8), m.in("weight", 8), m.in("bias", 8),
               m.out("out", 4, 8));
  });
  check("softmax_backward", [](Arena& m) {
    softmax_backward(Exec(), m.updated("out", "dx", 4, 8), m.updated("dout", "dx", 4, 8),
                     m.out("dx", 4, 8));
  });
  check("log_softmax_backward", [](Arena& m) {
    log_softmax_backward(Exec(), m.updated("out", "dx", 4, 8), m.updated("dout", "dx", 4, 8),
                         m.out("dx", 4, 8));
  });
  check("cross_entropy", [](Arena& m) {
    cross_entropy(Exec(), m.in("logits", 4, 8), m.in<std::int32_t>("labels", 4), m.out("loss", 4),
                  m.out("lse", 4));
  });
  check("cross_entropy_backward", [](Arena& m) {
    cross_entropy_backward(Exec(), m.updated("logits", "dlogits", 4, 8),
                           m.in<std::int32_t>("labels", 4), m.in("lse", 4), m.in("dloss", 4),
                           m.out("dlogits", 4, 8));
  });
  check("embedding", [](Arena& m) {
    embedding(Exec(), m.in("table", 6, 8), m.in<std::int32_t>("ids", 4), m.out("out", 4, 8));
  });
  check("embedding_backward", [](Arena& m) {
    embedding_backward(Exec(), m.in<std::int32_t>("ids", 4), m.in("dout", 4, 8),
                       m.out("dtable", 6, 8), {}, workspace(m.out("workspace", 1024)));
  });
  check("adamw_step", [](Arena& m) {
    adamw_step(Exec(), m.out("parameter", 6, 8), m.in("gradient", 6, 8), m.out("exp_avg", 6, 8),
               m.out("exp_avg_sq", 6, 8), {}, master(m.out("master", 6, 8)));
  });
  check("linear_cross_entropy", [](Arena& m) {
    linear_cross_entropy(Exec(), m.in("hidden", 4, 8), m.in("weight", 6, 8),
                         m.in<std::int32_t>("labels", 4), m.in("dloss", 4), m.out("loss", 4),
                         m.out("dhidden", 4, 8), m.out("dweight", 6, 8), {},
                         workspace(m.out("workspace", 1024)));
  });
  check("rms_norm_backward", [](Arena& m) {
    rms_norm_backward(Exec(), m.updated("x", "dx", 4, 8), m.in("weight", 8),
                      m.updated("dout", "dx", 4, 8), m.out("dx", 4, 8), m.out("dweight", 8), {},
                      workspace(m.out("workspace", 1024)));
  });
  check("l2_normalize_backward", [](Arena& m) {
    l2_normalize_backward(Exec(), m.updated("x", "dx", 4, 8), m.updated("dout", "dx", 4, 8),
                          m.out("dx", 4, 8));
  });
  check("layer_norm_backward", [](Arena& m) {
    layer_norm_backward(Exec(), m.updated("x", "dx", 4, 8), m.in("weight", 8),
                        m.updated("dout", "dx", 4, 8), m.out("dx", 4, 8), m.out("dweight", 8),
                        m.out("dbias", 8));
  });
  check("rope", [](Arena& m) {
    rope(Exec(), m.updated("x", "out", 2, 3, 4, 8), m.in("cos", 9, 8), m.in("sin", 9, 8),
         m.out("out", 2, 3, 4, 8), {}, positions(m.in<std::int32_t>("positions", 2)));
  });
  check("rope_backward", [](Arena& m) {
    rope_backward(Exec(), m.updated("dout", "dx", 2, 3, 4, 8), m.in("cos", 9, 8), m.in("sin", 9, 8),
                  m.out("dx", 2, 3, 4, 8));
  });
  check("rms_norm_rope", [](Arena& m) {
    rms_norm_rope(Exec(), m.updated("x", "out", 2, 4, 16), m.in("weight", 16), m.in("cos", 9, 8),
                  m.in("sin", 9, 8), m.out("out", 2, 4, 16));
  });
  check("rms_norm_rope_backward", [](Arena& m) {
    rms_norm_rope_backward(Exec(), m.updated("x", "dx", 2, 4, 16), m.in("weight", 16),
                           m.in("cos", 9, 8), m.in("sin", 9, 8), m.updated("dout", "dx", 2, 4, 16),
                           m.out("dx", 2, 4, 16), m.out("dweight", 16));
  });
  check("mean_pool", [](Arena& m) {
    mean_pool(Exec(), m.in("x", 2, 5, 8), m.out("out", 2, 8), {},
              lengths(m.in<std::int32_t>("lengths", 2)));
  });
  check("mean_pool_backward",
        [](Arena& m) { mean_pool_backward(Exec(), m.in("dout", 2, 8), m.out("dx", 2, 5, 8)); });
}

TEST(OverlappingArguments, QuantizationAndGatedMlp) {
  check("quantize", [](Arena& m) {
    quantize(Exec(), m.in("x", 4, 16), m.out<float8_e4m3>("out", 4, 16), m.out("scale", 4, 1));
  });
  check("quantize_with_scale", [](Arena& m) {
    quantize_with_scale(Exec(), m.in("x", 4, 16), m.in("scale", 4, 1),
                        m.out<std::int8_t>("out", 4, 16));
  });
  check("dequantize", [](Arena& m) {
    dequantize(Exec(), m.in<std::int8_t>("x", 4, 16), m.in("scale", 4, 1), m.out("out", 4, 16));
  });
  check("gated_mlp", [](Arena& m) {
    gated_mlp(Exec(), m.in("x", 3, 8), m.in("gate_weight", 6, 8), m.in("up_weight", 6, 8),
              m.out("out", 3, 6));
  });
  check("gated_mlp_backward", [](Arena& m) {
    gated_mlp_backward(Exec(), m.in("x", 3, 8), m.in("gate_weight", 6, 8), m.in("up_weight", 6, 8),
                       m.in("dout", 3, 6), m.out("dx", 3, 8), m.out("dgate_weight", 6, 8),
                       m.out("dup_weight", 6, 8), {}, workspace(m.out("workspace", 1024)));
  });
}

/// Tensors without elements lie nowhere, whatever their addresses and strides.
TEST(OverlappingArguments, WithoutElements) {
  Kokkos::View<float*, Exec> const memory("memory", 64);
  Strided<float, 2> const none(memory.data(), Kokkos::LayoutStride(4, 0, 0, 0));
  Strided<float, 2> const some(memory.data(), Kokkos::LayoutStride(4, 8, 8, 1));
  Strided<float, 2> const wide(memory.data(), Kokkos::LayoutStride(0, 8, 8, 1));
  Strided<float, 2> const tall(memory.data(), Kokkos::LayoutStride(8, 1, 0, 1));
  EXPECT_NO_THROW(softmax(Exec(), none, none));
  EXPECT_NO_THROW(gemm(Exec(), some, tall, none));
  EXPECT_NO_THROW(gemm(Exec(), none, wide, some));  // k = 0: only C has elements
  Kokkos::fence();
}

/// A merged state may be one of the splits.
TEST(OverlappingArguments, MergedIntoASplit) {
  Kokkos::View<float*****, Kokkos::LayoutRight, Exec> const outs("outs", 3, 2, 4, 3, 8);
  Kokkos::View<float****, Kokkos::LayoutRight, Exec> const lses("lses", 3, 2, 4, 3);
  for (int split = 0; split < 3; ++split) {
    auto const out =
        Kokkos::subview(outs, split, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL);
    auto const lse = Kokkos::subview(lses, split, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL);
    EXPECT_NO_THROW(merge_states(Exec(), outs, lses, out, lse));
    Strided<float, 4> const shifted(out.data() + (split < 2 ? 1 : -1),
                                    Kokkos::LayoutStride(2, 96, 4, 24, 3, 8, 8, 1));
    expect_error<Error>([&] { merge_states(Exec(), outs, lses, shifted, lse); },
                        {"attikos::merge_states: output out shares memory with outs"});
  }
  Kokkos::fence();
}

/// Caches of keys and values in one buffer, and queries, keys and values of one projection.
TEST(OverlappingArguments, InterleavedViewsAreApart) {
  Kokkos::View<float*****, Kokkos::LayoutRight, Exec> const cache("cache", 2, 2, 2, 9, 8);
  auto const part = [&](int n) {
    return Kokkos::subview(cache, Kokkos::ALL, n, Kokkos::ALL, Kokkos::ALL, Kokkos::ALL);
  };
  Kokkos::View<float****, Kokkos::LayoutRight, Exec> const fresh("fresh", 2, 2, 3, 8);
  EXPECT_NO_THROW(append_kv(Exec(), fresh, fresh, part(0), part(1)));
  expect_error<Error>([&] { append_kv(Exec(), fresh, fresh, part(0), part(0)); },
                      {"attikos::append_kv: output k_cache shares memory with output v_cache; "
                       "expected memory of its own"});
  Kokkos::View<float****, Kokkos::LayoutRight, Exec> const qkv("qkv", 2, 5, 3 * 2, 8);
  auto const head = [&](int n) {
    return heads_first(Kokkos::subview(qkv, Kokkos::ALL, Kokkos::ALL,
                                       std::pair<int, int>(2 * n, 2 * n + 2), Kokkos::ALL));
  };
  Kokkos::View<float****, Kokkos::LayoutRight, Exec> const q("q", 2, 2, 5, 8);
  EXPECT_NO_THROW(attention(Exec(), q, head(0), head(1), head(2)));
  expect_error<Error>([&] { attention(Exec(), q, head(0), head(1), head(1)); },
                      {"attikos::attention: output out shares memory with v"});
  Kokkos::fence();
}

}  // namespace
}  // namespace attikos::test
