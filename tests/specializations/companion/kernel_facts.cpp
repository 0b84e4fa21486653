// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Prints what each kernel of the companion takes, as rows for the tables of docs/kernels.md: what
// `accepts` answers, for cards that are described here, to calls that differ in one thing each from
// one that it takes. Needs no GPU. tests/docs/kernel_tables.py reads it. Of a kernel that this
// build leaves out it prints `left out: name`.
#include "kernel_facts.hpp"

#include <algorithm>

#include "all_kernels.hpp"

namespace {

using abi::AppendKvArgs, abi::AttentionArgs, abi::AttentionBackwardArgs, abi::DecodeArgs,
    abi::GatedMlpArgs, abi::GemmArgs;

// ---- attention and decode -----------------------------------------------------------------------

template <class Args>
Args attention(std::int64_t length, std::int64_t queries) {
  Args g;
  g.q = g.k = g.v = g.out = pointer<void>();
  g.batch = 64, g.heads_q = 16, g.heads_kv = 4, g.seqlen_q = queries, g.seqlen_kv = length;
  g.head_dim = g.head_dim_v = 64, g.softmax_scale = 0.125;
  for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride, &g.out_stride})
    (*s)[0] = 1024 * 16384, (*s)[1] = 1024 * 1024, (*s)[2] = 1024, (*s)[3] = 1;
  return g;
}

template <class Args>
std::vector<Asked<Args>> attention_options() {
  static auto const set_pages = [](Args& g, std::int64_t size) {
    g.page_table = pointer<std::int32_t>();
    g.page_table_stride[0] = g.page_table_stride[1] = 1;
    g.page_size = size, g.num_pages = 4096, g.seqlen_kv = g.seqlen_kv / size * size;
    for (auto* s : {&g.k_stride, &g.v_stride})
      (*s)[0] = 1024 * g.heads_kv * size, (*s)[1] = 1024 * size;
  };
  std::vector<Asked<Args>> const asked = {
      {"log-sum-exp",
       [](Args& g) {
         g.lse = somewhere;
         g.lse_stride[0] = g.heads_q * g.seqlen_q, g.lse_stride[1] = g.seqlen_q;
         g.lse_stride[2] = 1;
       }},
      {"softcap", [](Args& g) { g.softcap = 30; }},
      {"causal", [](Args& g) { g.causal = true; }},
      {"top-left causal",
       [](Args& g) { g.causal = true, g.causal_alignment = CausalAlignment::top_left; }},
      {"window", [](Args& g) { g.window_left = g.window_right = 16; }},
      {"lengths",
       [](Args& g) {
         g.lengths_q = g.lengths_kv = pointer<std::int32_t>();
         g.lengths_q_stride[0] = g.lengths_kv_stride[0] = 1;
       }},
      {"packed q",
       [](Args& g) {
         g.cu_seqlens_q.data = somewhere;
         g.seqlen_q *= g.batch, g.q_stride[0] = g.out_stride[0] = 0;
       }},
      {"packed k, v",
       [](Args& g) {
         g.cu_seqlens_kv.data = somewhere;
         g.seqlen_kv *= g.batch, g.k_stride[0] = g.v_stride[0] = 0;
       }},
      {"pages", [](Args& g) { set_pages(g, 16); }},
      {"pages of 5 positions", [](Args& g) { set_pages(g, 5); }},
      {"bias",
       [](Args& g) {
         g.bias = somewhere;
         g.bias_stride[1] = g.seqlen_q * g.seqlen_kv, g.bias_stride[2] = g.seqlen_kv;
         g.bias_stride[3] = 1;
       }},
      {"boolean mask",
       [](Args& g) {
         g.mask = pointer<std::uint8_t>();
         g.mask_stride[2] = g.seqlen_kv, g.mask_stride[3] = 1;
       }},
      {"block mask",
       [](Args& g) {
         g.block_mask = pointer<std::int8_t>();
         g.block_mask_extent[0] = g.seqlen_q, g.block_mask_extent[1] = g.seqlen_kv;
         g.block_size[0] = g.seqlen_q, g.block_size[1] = g.seqlen_kv;
         g.block_mask_tiles[0] = g.block_mask_tiles[1] = 1;
       }},
      {"chunks", [](Args& g) { g.attention_chunk = 64; }},
      {"ALiBi", [](Args& g) { g.alibi = pointer<float>(), g.alibi_stride[1] = 1; }},
      {"sinks", [](Args& g) { g.sinks = somewhere, g.sinks_stride = 1; }},
      {"factors", [](Args& g) { g.descale_q = g.descale_k = g.descale_v = pointer<float>(); }}};
  check_complete<abi::AttentionOption>(asked);
  return asked;
}

/// Kernel, cards, types, head_dim, that of v, longest sequence, memory, what it refuses.
template <class Kernel, class Args>
void attention_row(std::vector<Args> const& calls) {
  auto const set_types = [](Args& g, DType in, DType out, Compute compute) {
    g.type = in, g.type_out = out, g.compute = compute;
  };
  Args const call = taken<Kernel>(calls, set_types);
  std::int64_t longest = call.seqlen_kv;
  bool const self = call.seqlen_q == call.seqlen_kv;
  auto const of_length = [&](std::int64_t length) {
    return changed(call, [&](Args& g) { g.seqlen_kv = length, g.seqlen_q = self ? length : 1; });
  };
  while (longest < 8192 && takes<Kernel>(of_length(longest + 1))) ++longest;
  print<Kernel>({cards_of<Kernel>(call), types_of<Kernel>(call, set_types),
                 extents<Kernel>(call, 1024, [](Args& g, int d) { g.head_dim = d; }),
                 extents<Kernel>(call, 1024, [](Args& g, int d) { g.head_dim_v = d; }),
                 longest == 8192 ? "any" : std::to_string(longest),
                 memory<Kernel>(call, call.type,
                                [](Args& g, int unit, std::int64_t leading, std::int64_t offset) {
                                  g.q = g.k = g.v = pointer<char>() + offset;
                                  for (auto* s : {&g.q_stride, &g.k_stride, &g.v_stride})
                                    (*s)[3] = unit, (*s)[2] = leading;
                                }),
                 options<Kernel>(call, attention_options<Args>(), false)});
}

void attention_rows() {
  rows<test::AttentionKernels, AttentionArgs>([]<class Kernel>() {
    attention_row<Kernel, AttentionArgs>(
        {attention<AttentionArgs>(2048, 2048), attention<AttentionArgs>(64, 64)});
  });
}

void decode_rows() {
  rows<test::DecodeKernels, DecodeArgs>(
      []<class Kernel>() { attention_row<Kernel, DecodeArgs>({attention<DecodeArgs>(4096, 1)}); });
}

// ---- attention's gradients ----------------------------------------------------------------------

/// Kernel, cards, types, head_dim, that of v, memory, what it refuses.
void attention_backward_rows() {
  using Args = AttentionBackwardArgs;
  Args call;
  call.forward = attention<AttentionArgs>(2048, 2048);
  AttentionArgs& g = call.forward;
  call.dout = call.dq = call.dk = call.dv = g.lse = somewhere;
  g.lse_stride[0] = g.heads_q * g.seqlen_q, g.lse_stride[1] = g.seqlen_q, g.lse_stride[2] = 1;
  for (int r = 0; r < 4; ++r)
    call.dout_stride[r] = call.dq_stride[r] = call.dk_stride[r] = call.dv_stride[r] = g.q_stride[r];
  std::vector<Asked<Args>> const beside = {
      {"gradient of a bias",
       [](Args& a) {
         std::int64_t const extent[] = {a.forward.batch, a.forward.heads_q, a.forward.seqlen_q,
                                        a.forward.seqlen_kv};
         std::copy_n(extent, 4, a.d_bias_extent);
         a.forward.bias = a.d_bias = somewhere;
       }},
      {"gradient of sinks", [](Args& a) { a.forward.sinks = a.d_sinks = somewhere; }},
      {"scale of 0 or less", [](Args& a) { a.forward.softmax_scale = -0.5; }},
      {"any order of sums", [](Args& a) { a.ordered = false; }}};
  rows<test::AttentionBackwardKernels, Args>([&]<class Kernel>() {
    auto const set_types = [](Args& a, DType in, DType out, Compute compute) {
      a.forward.type = in, a.forward.type_out = out, a.forward.compute = compute;
    };
    Args const brief =
        changed(call, [](Args& a) { a.forward.seqlen_q = a.forward.seqlen_kv = 64; });
    Args const known = taken<Kernel, Args>({call, brief}, set_types);
    Words refused;
    for (auto const& asked : attention_options<AttentionArgs>())
      if (!takes<Kernel>(changed(known, [&](Args& a) { asked.change(a.forward); })))
        refused.push_back(asked.name);
    if (std::string const more = options<Kernel>(known, beside, false); !more.empty())
      refused.push_back(more);
    print<Kernel>(
        {cards_of<Kernel>(known), types_of<Kernel>(known, set_types),
         extents<Kernel>(known, 1024, [](Args& a, int d) { a.forward.head_dim = d; }),
         extents<Kernel>(known, 1024, [](Args& a, int d) { a.forward.head_dim_v = d; }),
         memory<Kernel>(known, known.forward.type,
                        [](Args& a, int unit, std::int64_t leading, std::int64_t offset) {
                          AttentionArgs& of = a.forward;
                          a.dout = of.q = of.k = of.v = pointer<char>() + offset;
                          for (auto* s : {&of.q_stride, &of.k_stride, &of.v_stride, &a.dout_stride})
                            (*s)[3] = unit, (*s)[2] = leading;
                        }),
         joined(refused)});
  });
}

// ---- append_kv ----------------------------------------------------------------------------------

std::vector<Asked<AppendKvArgs>> append_kv_options() {
  using Args = AppendKvArgs;
  static auto const rotate = [](Args& g, std::int64_t width) {
    g.cos = g.sin = somewhere, g.type_table = g.type_new;
    g.table_rows = 4096, g.rotary_dim = 64;
    for (auto* s : {&g.cos_stride, &g.sin_stride}) (*s)[0] = width, (*s)[1] = 1;
  };
  static auto const ask = [](Args& g) {
    g.q = g.q_out = somewhere, g.type_q = g.type_q_out = g.type_new;
    g.heads_q = 16, g.seqlen_q = 3;
    for (auto* s : {&g.q_stride, &g.q_out_stride})
      (*s)[0] = 16 * 3 * 128, (*s)[1] = 3 * 128, (*s)[2] = 128, (*s)[3] = 1;
    rotate(g, 64);
  };
  std::vector<Asked<Args>> const asked = {
      {"packed tokens",
       [](Args& g) {
         g.cu_seqlens_new.data = somewhere, g.k_new_stride[0] = g.v_new_stride[0] = 0;
       }},
      {"lengths of new tokens",
       [](Args& g) { g.new_lengths = pointer<std::int32_t>(), g.new_lengths_stride = 1; }},
      {"lengths of caches",
       [](Args& g) { g.cache_lengths = pointer<std::int32_t>(), g.cache_lengths_stride = 1; }},
      {"pages",
       [](Args& g) {
         g.page_table = pointer<std::int32_t>();
         g.page_table_stride[0] = 256, g.page_table_stride[1] = 1;
         g.page_size = 16, g.num_pages = 1024;
       }},
      {"RoPE", [](Args& g) { rotate(g, 64); }},
      {"interleaved RoPE", [](Args& g) { rotate(g, 64), g.interleaved = true; }},
      {"tables of half width", [](Args& g) { rotate(g, 32), g.half_width = true; }},
      {"queries", [](Args& g) { ask(g); }},
      {"packed queries",
       [](Args& g) {
         ask(g), g.cu_seqlens_q.data = somewhere, g.q_stride[0] = g.q_out_stride[0] = 0;
       }},
      {"queries of one position", [](Args& g) { ask(g), g.queries_share_position = true; }}};
  check_complete<abi::AppendKvOption>(asked);
  return asked;
}

/// Kernel, cards, types, head_dim, memory, what it refuses.
void append_kv_rows() {
  using Args = AppendKvArgs;
  Args call;
  call.k_new = call.v_new = somewhere, call.k_cache = call.v_cache = somewhere;
  call.batch = 2, call.heads = 4, call.seqlen_new = 3, call.capacity = 4096;
  call.head_dim = call.head_dim_v = 128;
  for (auto* s : {&call.k_new_stride, &call.v_new_stride})
    (*s)[0] = 4 * 3 * 1024, (*s)[1] = 3 * 1024, (*s)[2] = 1024, (*s)[3] = 1;
  for (auto* s : {&call.k_cache_stride, &call.v_cache_stride})
    (*s)[0] = 4 * 4096 * 1024, (*s)[1] = 4096 * 1024, (*s)[2] = 1024, (*s)[3] = 1;
  rows<test::AppendKvKernels, Args>([&]<class Kernel>() {
    auto const set_types = [](Args& g, DType in, DType out, Compute) {
      g.type_new = in, g.type_cache = out;
    };
    Args const known = taken<Kernel, Args>({call}, set_types);
    print<Kernel>(
        {cards_of<Kernel>(known), types_of<Kernel>(known, set_types),
         extents<Kernel>(known, 1024, [](Args& g, int d) { g.head_dim = g.head_dim_v = d; }),
         memory<Kernel>(known, known.type_new,
                        [](Args& g, int unit, std::int64_t leading, std::int64_t offset) {
                          g.k_new = g.v_new = pointer<char>() + offset;
                          for (auto* s : {&g.k_new_stride, &g.v_new_stride})
                            (*s)[3] = unit, (*s)[2] = leading;
                        }),
         options<Kernel>(known, append_kv_options(), false)});
  });
}

// ---- gemm ---------------------------------------------------------------------------------------

/// Square matrices; both operands have their unit stride along K.
void shape(GemmArgs& g, std::int64_t extent, std::int64_t batch) {
  g.m = g.n = g.k = extent, g.batch = batch;
  g.a_m = g.b_n = g.c_m = 4096, g.a_k = g.b_k = g.c_n = 1;
  g.a_batch = g.b_batch = g.c_batch = batch > 1 ? 4096 * extent : 0;
  g.offsets = nullptr, g.groups = 0;
}
void group(GemmArgs& g) {
  shape(g, 4096, 1);
  g.offsets = somewhere, g.offsets_stride = 1, g.groups = 8, g.b_batch = 4096 * 4096;
}
template <class... Parameters>
GemmArgs product(void (*set)(GemmArgs&, Parameters...), Parameters... parameters) {
  GemmArgs g;
  g.a = g.b = g.c = somewhere;
  set(g, parameters...);
  return g;
}

void factors(GemmArgs& g, std::int64_t of_rows, std::int64_t along_k, std::int32_t shift) {
  g.scale_a.data = g.scale_b.data = pointer<float>();
  g.scale_a.row = g.scale_b.col = of_rows, g.scale_a.col = g.scale_b.row = along_k;
  g.scale_a.col_shift = g.scale_b.row_shift = g.scale_b.col_shift = shift;
}

std::vector<Asked<GemmArgs>> gemm_options() {
  using Args = GemmArgs;
  std::vector<Asked<Args>> const asked = {
      {"", [](Args& g) { g.alpha = g.scale = 2, g.beta = 1; }},  // which all take
      {"bias, activation, residual",
       [](Args& g) {
         g.bias = somewhere, g.bias_stride = 1, g.bias_along = BiasAlong::m;
         g.activation = Activation::gelu;
         g.residual = somewhere, g.residual_m = 4096, g.residual_n = 1;
         g.type_bias = g.type_residual = g.type_c;
       }},
      {"functors", [](Args& g) { g.custom_epilogue = true; }},
      {"pointers",
       [](Args& g) {
         shape(g, 64, 20000);
         g.a_pointers = g.b_pointers = pointer<void const*>(), g.c_pointers = pointer<void*>();
         g.a = g.b = nullptr, g.c = nullptr, g.a_batch = g.b_batch = g.c_batch = 1;
       }},
      {"groups", [](Args& g) { group(g); }},
      {"counts of rows",
       [](Args& g) {
         shape(g, 4096, 8);
         g.counts = pointer<std::int32_t>(), g.counts_stride = 1;
       }},
      {"sums of products", [](Args& g) { g.outer = 2, g.a_outer = g.b_outer = 4096 * 4096; }},
      {"pre-activation",
       [](Args& g) {
         g.pre_activation = somewhere, g.pre_activation_m = 4096, g.pre_activation_n = 1;
         g.type_pre_activation = g.type_c;
       }},
      {"scale on the device", [](Args& g) { g.device_scale = pointer<float>(); }},
      {"`scale_out`",
       [](Args& g) { g.scale_out = pointer<float>(), g.type_c = DType::float8_e4m3; }},
      {"factors", [](Args& g) { factors(g, 0, 0, 0); }},
      {"factors of rows and columns", [](Args& g) { factors(g, 1, 0, 0); }},
      {"factors of blocks", [](Args& g) { factors(g, 32, 1, 7); }},
      {"zero points", [](Args& g) { g.zero_point_a = g.zero_point_b = pointer<std::int32_t>(); }},
      {"tiles", [](Args& g) { g.tile.m = 128; }},
      {"packed B", [](Args& g) { g.packed_b = somewhere; }}};
  check_complete<abi::GemmOption>(asked);
  return asked;
}

void set_gemm_types(GemmArgs& g, DType in, DType out, Compute compute) {
  g.type_a = g.type_b = in, g.type_c = out, g.compute = compute;
}

/// Types of operands and C; whether A may be of one type of float8 and B of the other.
template <class Kernel>
std::string gemm_types(GemmArgs call) {
  std::string text = types_of<Kernel>(call, set_gemm_types);
  call.type_a = DType::float8_e4m3, call.type_b = DType::float8_e5m2;
  bool const mixed = takes<Kernel>(call);
  std::swap(call.type_a, call.type_b);
  if (mixed && takes<Kernel>(call)) text.replace(0, std::strlen("float8"), "float8 in any mix");
  return text;
}

/// What is multiplied.
template <class Kernel>
std::string products(GemmArgs call) {
  shape(call, 4096, 1);
  bool const large = takes<Kernel>(call);
  shape(call, 16, 20000);
  bool const small = takes<Kernel>(call);
  if (large) return small ? "any" : "large";
  if (!small) return "groups";
  std::int64_t most = 16;
  while (shape(call, most + 1, 20000), takes<Kernel>(call)) ++most;
  return "batches, extents to " + std::to_string(most);
}

/// Kernel, cards, types, products, memory, options.
template <class Kernel>
void gemm_row() {
  GemmArgs const call =
      taken<Kernel, GemmArgs>({product(shape, std::int64_t{4096}, std::int64_t{1}), product(group),
                               product(shape, std::int64_t{16}, std::int64_t{20000})},
                              set_gemm_types);
  // Exact products of integers have no epilogue.
  GemmArgs rounded = call;
  if (call.type_a == DType::int8) rounded.type_c = DType::float16;
  print<Kernel>(
      {cards_of<Kernel>(call), gemm_types<Kernel>(call), products<Kernel>(call),
       memory<Kernel>(call, call.type_a,
                      [](GemmArgs& g, int unit, std::int64_t leading, std::int64_t offset) {
                        g.a = g.b = pointer<char>() + offset;
                        g.a_k = g.b_k = unit, g.a_m = g.b_n = leading;
                      }),
       options<Kernel>(rounded, gemm_options(), true)});
}

void gemm_rows() {
  rows<test::GemmKernels, GemmArgs>([]<class Kernel>() { gemm_row<Kernel>(); });
}

// ---- gated_mlp ----------------------------------------------------------------------------------

/// Kernel, cards, types, memory, what it takes.
void gated_mlp_rows() {
  using Args = GatedMlpArgs;
  Args call;
  call.x = call.gate_weight = call.up_weight = call.out = somewhere;
  call.batch = 1, call.tokens = 64, call.hidden = call.intermediate = 512;
  call.x_token = call.gate_intermediate = call.up_intermediate = call.out_token = 4096;
  call.x_hidden = call.gate_hidden = call.up_hidden = call.out_intermediate = 1;
  std::vector<Asked<Args>> const activations = {
      {"silu", [](Args& g) { g.activation = Activation::silu; }},
      {"gelu", [](Args& g) { g.activation = Activation::gelu; }},
      {"gelu_tanh", [](Args& g) { g.activation = Activation::gelu_tanh; }},
      {"packed weights", [](Args& g) { g.packed_gate = g.packed_up = somewhere; }}};
  check_complete<abi::GatedMlpOption>(activations);
  rows<test::GatedMlpKernels, Args>([&]<class Kernel>() {
    auto const set_types = [](Args& g, DType in, DType out, Compute) {
      g.type_x = g.type_weight = in, g.type_out = out;
    };
    Args const known = taken<Kernel, Args>({call}, set_types);
    print<Kernel>({cards_of<Kernel>(known), types_of<Kernel>(known, set_types),
                   memory<Kernel>(known, known.type_x,
                                  [](Args& g, int unit, std::int64_t leading, std::int64_t offset) {
                                    g.x = g.gate_weight = g.up_weight = pointer<char>() + offset;
                                    g.x_hidden = g.gate_hidden = g.up_hidden = unit;
                                    g.x_token = g.gate_intermediate = g.up_intermediate = leading;
                                  }),
                   options<Kernel>(known, activations, true)});
  });
}

}  // namespace

int main() {
  try {
    gemm_rows();
    gated_mlp_rows();
    attention_rows();
    attention_backward_rows();
    decode_rows();
    append_kv_rows();
  } catch (std::exception const& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
