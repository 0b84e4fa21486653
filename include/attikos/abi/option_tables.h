/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/** \file
 * The options of the operations, each written down once: C11 and C++17.
 *
 * A row is X(kind, name, default, what it means). From these tables come
 *  - the structs of attikos.h and their initializers, in the order of the table after `struct_size`. The order is the
 *    binary interface: new rows go to the end, where those of 4 bytes come in pairs, since a struct of an earlier
 *    version may have padding there;
 *  - members of AttentionOptions, DecodeOptions, GemmOptions, AppendKvOptions and of the kernels' arguments in C++,
 *    what copies them from one to the other, and the options that a kernel has to name or refuses (abi/options.hpp);
 *  - what attikos_describe_options() says, and by it the structs and the documentation of the Python package.
 *
 * The kinds, what they are in C, and what in C++:
 *   real     double                  double
 *   integer  int64_t                 std::int64_t
 *   number   int32_t                 int
 *   flag     int32_t, not 0: yes     bool
 *   choice   int32_t, an enumerator  an enumeration
 *   tensor   attikos_tensor const*, null: there is none
 *   text     char const*
 *
 * CONTRIBUTING.md has the recipe by which an option is added.
 */
#ifndef ATTIKOS_ABI_OPTION_TABLES_H
#define ATTIKOS_ABI_OPTION_TABLES_H

/* --- attention and decode ------------------------------------------------------------------------ */

#define ATTIKOS_OPTION_SOFTMAX_SCALE(X) \
  X(real, softmax_scale, 0, "factor of q*k; 0: 1/sqrt(head_dim)")
#define ATTIKOS_OPTION_SOFTCAP(X) \
  X(real, softcap, 0, "c > 0: scores become c * tanh(score / c) before bias and masks; 0: none")
#define ATTIKOS_OPTION_WINDOW(X)                                                     \
  X(integer, window_left, -1, "keys before i + offset that query i sees; -1: all")   \
  X(integer, window_right, -1, "keys after i + offset that query i sees; -1: all")
#define ATTIKOS_OPTION_CAUSAL(X) \
  X(flag, causal, 0, "query i sees key j only if j <= i + offset, offset = len_kv - len_q")

/* What came later, in the order in which it came, so that the next one is the last member of each struct. SCORE: of
 * both, which no compiled kernel takes before it says so. ATTENTION: of attention alone. */
#define ATTIKOS_LATER_OPTIONS(SCORE, ATTENTION)                                                                    \
  SCORE(integer, attention_chunk, 0, "c > 0: query i sees key j only if floor((i + offset) / c) = floor(j / c),"   \
                                     " keys of its own chunk of c positions; 0: all")                              \
  ATTENTION(choice, determinism, ATTIKOS_RUN_TO_RUN, "an attikos_determinism, of gradients: unordered leaves the"  \
                                                     " order of sums to the device; batch-invariant is refused")   \
  ATTENTION(number, sm_margin, 0, "multiprocessors of a device that other kernels use meanwhile, such as"          \
                                  " transfers between GPUs: > 0 deals tiles to multiprocessors as they get free;"  \
                                  " 0: each gets its share at once")
#define ATTIKOS_LATER_SCORE_OPTIONS(X) ATTIKOS_LATER_OPTIONS(X, ATTIKOS_NO_OPTION)
#define ATTIKOS_NO_OPTION(kind, name, initial, meaning)

/* What shapes the scores of both, by one name in C and C++. */
#define ATTIKOS_SCORE_OPTIONS(X)  \
  ATTIKOS_OPTION_SOFTMAX_SCALE(X) \
  ATTIKOS_OPTION_SOFTCAP(X)       \
  ATTIKOS_OPTION_WINDOW(X)        \
  ATTIKOS_OPTION_CAUSAL(X)        \
  ATTIKOS_LATER_SCORE_OPTIONS(X)

/* What both have beside it, in runs that stand together in both. */
#define ATTIKOS_TOP_LEFT(X) X(flag, causal_top_left, 0, "the offset is 0")
#define ATTIKOS_CHECK(X)                                                                                     \
  X(flag, check, 0, "lengths, cu_seqlens and pages in use are read and checked, which waits for the stream;" \
                    " else kernels clamp them")
#define ATTIKOS_KERNEL(X) \
  X(text, kernel, NULL, "null or \"\": automatic; a name demands that kernel and never falls back")
#define ATTIKOS_OPTION_COMPUTE(X) X(choice, compute, ATTIKOS_COMPUTE_IEEE, "an attikos_compute") /* of gemm, too */
#define ATTIKOS_LENGTHS(X)                                                                                    \
  X(tensor, lengths_q, NULL, "int32, one per sequence, or null: every query counts")                          \
  X(tensor, lengths_kv, NULL, "likewise, of keys, of a cache positions in use; not null beside lengths_q")
#define ATTIKOS_CU_SEQLENS(X)                                                                                   \
  X(tensor, cu_seqlens_q, NULL, "int32 [batch + 1], or null: q and out are [heads_q, total_q, d], lse"          \
                                " [heads_q, total_q]; decode also over padded keys")                            \
  X(tensor, cu_seqlens_kv, NULL, "int32 [batch + 1] beside those of q, or null: k and v are"                    \
                                 " [heads_kv, total_kv, d]")
#define ATTIKOS_TERMS(X)                                                                                      \
  X(tensor, page_table, NULL, "int32 [batch, max_pages], or null: k and v are [num_pages, heads_kv,"          \
                              " page_size, d]")                                                               \
  X(tensor, bias, NULL, "2 to 4 dimensions that broadcast to [batch, heads_q, seqlen_q, seqlen_kv]; the type" \
                        " of out")                                                                            \
  X(tensor, mask, NULL, "bool or uint8, broadcasts like bias; 0 excludes")                                    \
  X(tensor, alibi_slopes, NULL, "float32 [heads_q] or [batch, heads_q]")                                      \
  X(tensor, sinks, NULL, "float32 (float64 beside float64) [heads_q]: logits in the denominator only")
#define ATTIKOS_FACTORS(X)                                                                                       \
  X(tensor, descale_q, NULL, "float8 only: float32 [1], [heads_kv] or [batch, heads_kv] factors of the elements" \
                             " of q, or null for 1")                                                             \
  X(tensor, descale_k, NULL, "likewise, of k")                                                                   \
  X(tensor, descale_v, NULL, "likewise, of v")

#define ATTIKOS_ATTENTION_OPTIONS(X)                                     \
  ATTIKOS_OPTION_SOFTMAX_SCALE(X)                                        \
  ATTIKOS_OPTION_SOFTCAP(X)                                              \
  ATTIKOS_OPTION_WINDOW(X)                                               \
  ATTIKOS_OPTION_CAUSAL(X)                                               \
  ATTIKOS_TOP_LEFT(X)                                                    \
  X(choice, algorithm, ATTIKOS_FLASH, "an attikos_attention_algorithm")  \
  ATTIKOS_CHECK(X)                                                       \
  ATTIKOS_LENGTHS(X)                                                     \
  ATTIKOS_CU_SEQLENS(X)                                                  \
  ATTIKOS_TERMS(X)                                                       \
  ATTIKOS_KERNEL(X)                                                      \
  ATTIKOS_FACTORS(X)                                                     \
  ATTIKOS_OPTION_COMPUTE(X)                                              \
  ATTIKOS_LATER_OPTIONS(X, X)

#define ATTIKOS_ATTENTION_GRADIENTS(X)                                       \
  X(tensor, dq, NULL, "the shape and type of q; like dk and dv not null")    \
  X(tensor, dk, NULL, "the shape and type of k")                             \
  X(tensor, dv, NULL, "the shape and type of v")                             \
  X(tensor, d_bias, NULL, "the shape and type of the bias, or null")         \
  X(tensor, d_sinks, NULL, "the shape and type of the sinks, or null")

#define ATTIKOS_DECODE_OPTIONS(X)                                                                               \
  ATTIKOS_OPTION_SOFTMAX_SCALE(X)                                                                               \
  ATTIKOS_OPTION_SOFTCAP(X)                                                                                     \
  ATTIKOS_OPTION_WINDOW(X)                                                                                      \
  X(integer, splits, 0, "the cache is worked on in at most this many parts; 0: as many as are worth while."     \
                        " Given, it makes bits batch-invariant")                                                \
  ATTIKOS_OPTION_CAUSAL(X)                                                                                      \
  ATTIKOS_TOP_LEFT(X)                                                                                           \
  ATTIKOS_CHECK(X)                                                                                              \
  ATTIKOS_LENGTHS(X)                                                                                            \
  ATTIKOS_TERMS(X)                                                                                              \
  ATTIKOS_FACTORS(X)                                                                                            \
  ATTIKOS_KERNEL(X)                                                                                             \
  X(choice, determinism, ATTIKOS_RUN_TO_RUN, "an attikos_determinism; batch-invariant leaves splits of 0 to"    \
                                             " what does not depend on the batch: 16 on a device")              \
  ATTIKOS_CU_SEQLENS(X)                                                                                         \
  ATTIKOS_LATER_SCORE_OPTIONS(X)

/* --- append_kv ----------------------------------------------------------------------------------- */

/* What C and C++ have by one name; kernels are told the first, and work out the second from it. */
#define ATTIKOS_OPTION_QUERIES_SHARE_POSITION(X)                                                                  \
  X(flag, queries_share_position, 0, "every query is rotated as the first one, which suits attention without a"   \
                                     " causal mask or window; else query i as position length + i")
#define ATTIKOS_OPTION_APPENDED_ROTARY_DIM(X)                                                                     \
  X(integer, rotary_dim, 0, "how many features are rotated: 0 for the width of the tables, or twice that for"     \
                            " tables with one entry to a pair")

#define ATTIKOS_APPEND_KV_OPTIONS(X)                                                                              \
  X(flag, interleaved, 0, "rotary features 2i and 2i + 1 form pairs, else i and i + half")                        \
  ATTIKOS_OPTION_QUERIES_SHARE_POSITION(X)                                                                        \
  X(flag, check, 0, "lengths and pages are read and it is checked that all new positions fit into the cache,"     \
                    " which waits for the stream; else those that do not are left out")                           \
  X(tensor, cache_lengths, NULL, "int32 [batch], positions in use before the call, or null for 0")                \
  X(tensor, page_table, NULL, "int32 [batch, max_pages], or null: the caches are [num_pages, heads_kv,"           \
                              " page_size, d]")                                                                   \
  X(tensor, rotary_cos, NULL, "[positions, rotary_dim] or [1, positions, 1, rotary_dim] as for attikos_rope, or"  \
                              " null: new keys are not rotated")                                                  \
  X(tensor, rotary_sin, NULL, "likewise")                                                                         \
  X(tensor, q, NULL, "[batch, heads_q, seqlen_q, d], rotated into q_out, or null")                                \
  X(tensor, q_out, NULL, "the shape of q and the type of the caches; of one type it may be q itself")             \
  ATTIKOS_OPTION_APPENDED_ROTARY_DIM(X)                                                                           \
  X(tensor, new_lengths, NULL, "int32 [batch], how many of the seqlen_new positions of each sequence are new"     \
                               " tokens, or null: all; the others are not read")                                  \
  X(tensor, cu_seqlens_q, NULL, "int32 [batch + 1], or null: q and q_out are [heads_q, total_q, d]")              \
  X(tensor, cu_seqlens_kv, NULL, "int32 [batch + 1], or null: k_new and v_new are [heads_kv, total_new, d]")      \
  ATTIKOS_KERNEL(X)

/* --- gemm ---------------------------------------------------------------------------------------- */

/* What C and C++ have by one name, in runs that stand together in all structs. */
#define ATTIKOS_OPTION_FACTORS(X)                     \
  X(real, alpha, 1, "factor of the product")          \
  X(real, beta, 0, "factor of what c holds; 0 never reads c")
#define ATTIKOS_OPTION_SCALE(X) X(real, scale, 1, "factor of the result before the bias")
#define ATTIKOS_OPTION_TRANSPOSES(X)        \
  X(flag, trans_a, 0, "a is [.., k, m]")    \
  X(flag, trans_b, 0, "b is [.., n, k]")
#define ATTIKOS_OPTION_ACTIVATION(X) X(choice, activation, ATTIKOS_ACTIVATION_NONE, "an attikos_activation")
#define ATTIKOS_OPTION_ACCUMULATE(X) X(choice, accumulate, ATTIKOS_ACCUMULATE_PROMOTED, "an attikos_accumulate")
#define ATTIKOS_OPTION_TILE(X)                                                                                     \
  X(number, tile_m, 0, "extents of the tile; a compiled kernel that has it, else the portable one; 0: the"         \
                       " library's")                                                                               \
  X(number, tile_n, 0, "likewise")                                                                                 \
  X(number, tile_k, 0, "likewise")

/* Those of them that kernels are told. */
#define ATTIKOS_GEMM_KERNEL_OPTIONS(X) \
  ATTIKOS_OPTION_FACTORS(X)            \
  ATTIKOS_OPTION_SCALE(X)              \
  ATTIKOS_OPTION_ACTIVATION(X)         \
  ATTIKOS_OPTION_COMPUTE(X)            \
  ATTIKOS_OPTION_ACCUMULATE(X)

#define ATTIKOS_GEMM_OPTIONS(X)                                                                                    \
  ATTIKOS_OPTION_FACTORS(X)                                                                                        \
  ATTIKOS_OPTION_SCALE(X)                                                                                          \
  ATTIKOS_OPTION_TRANSPOSES(X)                                                                                     \
  ATTIKOS_OPTION_ACTIVATION(X)                                                                                     \
  X(flag, bias_along_rows, 0, "the bias has one entry per row of c instead of per column")                         \
  X(tensor, bias, NULL, "[n] (or [m]), or null")                                                                   \
  X(tensor, residual, NULL, "the shape of c, which it may be itself, or null")                                     \
  X(tensor, scale_a, NULL, "float8 and int8: float32 factors of a's elements as attikos_quantize writes them"      \
                           " ([1], per row of op(a), or in blocks of 128 along k), or null for 1")                 \
  X(tensor, scale_b, NULL, "likewise, per column of op(b)")                                                        \
  ATTIKOS_KERNEL(X)                                                                                                \
  ATTIKOS_OPTION_COMPUTE(X)                                                                                        \
  ATTIKOS_OPTION_ACCUMULATE(X)                                                                                     \
  X(tensor, zero_point_a, NULL, "int32 [1] or [m], subtracted from int8 elements of a, or null")                   \
  X(tensor, zero_point_b, NULL, "int32 [1] or [n]")                                                                \
  X(tensor, device_scale, NULL, "float32 [1], a factor of `scale` that the device holds, or null")                 \
  X(tensor, scale_out, NULL, "float32 [1]: an 8-bit c gets round(result / scale_out), or null")                    \
  X(tensor, pre_activation, NULL, "output: what goes into the activation, of c's shape and type (float32 beside"   \
                                  " an 8-bit c), or null")                                                         \
  X(tensor, group_offsets, NULL, "int32 or int64 [groups + 1], or null: rows [offset g, offset g + 1) of a"        \
                                 " [total, k] and c [total, n] go with matrix g of b [groups, k, n]; read on the"  \
                                 " device and clamped")                                                            \
  X(tensor, row_counts, NULL, "int32 [batch], or null: rows of a [batch, m, k] and c [batch, m, n] past these"     \
                              " counts are neither read nor written")                                              \
  ATTIKOS_OPTION_TILE(X)                                                                                           \
  X(tensor, packed_b, NULL, "on hosts b as attikos_pack_b packed it, uint8, or null; b then says type and extents" \
                            " alone and has no data")

#define ATTIKOS_GEMM_GRADIENTS(X)                                                                           \
  X(tensor, da, NULL, "the shape and type of a, or null; summed over the batch where a has none")           \
  X(tensor, db, NULL, "the shape and type of b, or null")                                                   \
  X(tensor, d_bias, NULL, "[n] (or [m]) of the type of dout, or null")                                      \
  X(tensor, d_c, NULL, "gradient of the c that beta multiplied, the shape and type of dout, or null")

/* --- rotary embedding ---------------------------------------------------------------------------- */

#define ATTIKOS_ROPE_OPTIONS(X)                                                                                    \
  X(real, eps, 1e-6, "of the norm; attikos_rope does not look at it")                                              \
  X(integer, num_heads, 0, "of attikos_rms_norm_rope; 0: hidden / head_dim")                                       \
  X(integer, position_offset, 0, "added to every position")                                                        \
  X(flag, norm_each_head, 0, "one norm per head (QK-norm), the weight is [head_dim]")                              \
  X(flag, interleaved, 0, "features 2i and 2i + 1 form pairs, else i and i + half")                                \
  X(tensor, positions, NULL, "of attikos_rope: int32 [batch] or [batch, seqlen], or null")                         \
  X(integer, rotary_dim, 0, "how many features are rotated: 0 for the width of the tables, or twice that for"      \
                            " tables with one entry to a pair. attikos_rms_norm_rope: with num_heads beside it"    \
                            " heads may be wider, and what is not rotated is normalized only")

/* --- the structs -------------------------------------------------------------------------------- */

/* X(name of attikos_describe_options, struct, its table, its size in bytes when it was introduced). A caller's struct that
 * is shorter is of no version; one that is longer, but shorter than today's, gets the defaults of what it lacks. So a size
 * never changes here, and a row that comes later has the default 0: a library that does not know it takes a longer
 * struct whose unknown bytes are 0. tests/bindings/abi_v1 holds the structs of version 1 to where they were. */
#define ATTIKOS_OPTION_STRUCTS(X)                                                            \
  X(gemm, attikos_gemm_options, ATTIKOS_GEMM_OPTIONS, 88)                                    \
  X(gemm_gradients, attikos_gemm_gradients, ATTIKOS_GEMM_GRADIENTS, 32)                      \
  X(attention, attikos_attention_options, ATTIKOS_ATTENTION_OPTIONS, 136)                    \
  X(attention_gradients, attikos_attention_gradients, ATTIKOS_ATTENTION_GRADIENTS, 48)       \
  X(decode, attikos_decode_options, ATTIKOS_DECODE_OPTIONS, 152)                             \
  X(append_kv, attikos_append_kv_options, ATTIKOS_APPEND_KV_OPTIONS, 80)                     \
  X(rope, attikos_rope_options, ATTIKOS_ROPE_OPTIONS, 48)

#endif /* ATTIKOS_ABI_OPTION_TABLES_H */
