# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which headers get faults, and which tests are to notice.

Not in here: what hosts compute by instructions chosen at run time (host/, gemm_dot.hpp, attention_dot.hpp), which not
every machine has, and what only CUDA compiles.
"""

# A source behind this is compiled for kernels in fragments, as test_device_kernels is.
IN_FRAGMENTS = "in fragments "


def in_fragments(*sources: str) -> list[str]:
    return [f"{IN_FRAGMENTS}parity/test_{source}.cpp" for source in sources]


# Headers of include/attikos, the test sources that are to notice, the cheapest first.
FAMILIES = {
    "gemm": (
        ["gemm/gemm_arguments.hpp", "gemm/gemm_portable.hpp", "gemm/gemm_epilogue.hpp", "gemm/gemm_operand.hpp",
         "gemm/gemm_portable_tile.hpp", "gemm/pack_b.hpp", "gemm/packed_b.hpp", "core/tile.hpp", "gemm/gemm_small.hpp",
         "gemm/gemm_groups.hpp", "gemm/gemm_tile.hpp"],
        ["unit/gemm/test_error_messages_gemm.cpp", "unit/gemm/test_error_messages_gemm_extras.cpp",
         "parity/test_gemm.cpp", "parity/test_gemm_types.cpp", "parity/test_gemm_epilogue.cpp",
         "parity/test_gemm_groups.cpp", "parity/test_gemm_scales.cpp", "parity/test_packed_b.cpp",
         "parity/test_packed_b_extras.cpp", "parity/test_gemm_tile.cpp", "parity/test_host_instructions.cpp"],
    ),
    "gemm_backward": (
        ["gemm/gemm_backward_arguments.hpp", "gemm/gemm_backward_portable.hpp"],
        ["unit/gemm/test_error_messages_gemm_extras.cpp", "parity/test_gemm_backward.cpp",
         "parity/test_gemm_backward_groups.cpp", "parity/test_gemm_backward_differences.cpp"],
    ),
    "attention": (
        ["attention/attention_arguments.hpp", "attention/attention_term_arguments.hpp", "attention/attention_flash.hpp",
         "attention/attention_unfused.hpp", "attention/attention_head.hpp", "attention/attention_scores.hpp",
         "attention/online_softmax.hpp", "attention/attention_blocks.hpp", "attention/attention_small.hpp",
         "attention/attention_split.hpp", "attention/attention_store.hpp", "attention/block_mask.hpp",
         "attention/paged.hpp", "core/lengths.hpp", "core/positions.hpp"],
        ["unit/attention/test_error_messages_attention.cpp", "unit/attention/test_error_messages_attention_terms.cpp",
         "unit/attention/test_attention_split.cpp", "parity/test_attention.cpp", "parity/test_attention_options.cpp",
         "parity/test_attention_terms.cpp", "parity/test_attention_storage.cpp", "parity/test_attention_block_mask.cpp",
         "parity/test_score_parameters.cpp"],
    ),
    "attention_backward": (
        ["attention/backward/arguments.hpp", "attention/backward/pairs.hpp", "attention/backward/portable.hpp",
         "attention/backward/terms.hpp", "attention/backward/tile.hpp"],
        ["unit/attention/test_error_messages_attention_terms.cpp", "parity/test_attention_backward_options.cpp",
         "parity/test_attention_backward.cpp", "parity/test_attention_backward_block_mask.cpp",
         "parity/test_score_parameters.cpp", "parity/test_attention_backward_gradients.cpp"],
    ),
    "team": (
        ["attention/team_attention.hpp", "attention/team_attention_problem.hpp", "gemm/team_gemm.hpp",
         "gemm/team_gemm_device.hpp"],
        ["parity/test_team_gemm.cpp", "parity/test_gemm_device_bodies.cpp", "parity/test_team_attention.cpp",
         *in_fragments("team_gemm")],
    ),
    "decode": (
        ["decode/decode.hpp", "decode/decode_tiles.hpp", "decode/decode_split.hpp", "decode/decode_rows.hpp",
         "decode/decode_launch.hpp", "decode/merge_states.hpp"],
        ["unit/attention/test_error_messages_attention_terms.cpp", "parity/test_merge_states.cpp",
         "parity/test_decode.cpp", "parity/test_decode_packed.cpp"],
    ),
    "append_kv": (
        ["append_kv/append_kv_arguments.hpp", "append_kv/append_kv_portable.hpp"],
        ["unit/attention/test_error_messages_attention_terms.cpp", "parity/test_append_kv.cpp",
         "parity/test_append_kv_ragged.cpp"],
    ),
    "fragments": (
        ["core/fragments/factor.hpp", "core/fragments/fragments.hpp", "core/fragments/fragments_few_rows.hpp",
         "core/fragments/lane_blocks.hpp", "core/fragments/multiply.hpp", "core/fragments/row_stage.hpp",
         "core/fragments/slice_stage.hpp", "core/fragments/stage.hpp", "gemm/gemm_fragment_tiles.hpp",
         "gemm/gemm_fragments.hpp", "gemm/gemm_fragments_kernel.hpp"],
        in_fragments("gemm_fragments", "gemm", "gemm_epilogue", "gemm_groups", "gemm_scales", "team_gemm", "gated_mlp",
                     "decode"),
    ),
    "attention_fragments": (
        ["attention/fragments/attention_fragments.hpp", "attention/fragments/factors.hpp",
         "attention/fragments/gradient_rows.hpp", "attention/fragments/gradients.hpp",
         "attention/fragments/gradients_by_scratch.hpp", "attention/fragments/gradients_in_registers.hpp",
         "attention/fragments/registers.hpp", "attention/fragments/repair.hpp", "attention/fragments/rows.hpp",
         "attention/fragments/scores.hpp", "attention/fragments/scratch.hpp", "attention/fragments/shape.hpp",
         "decode/decode_fragments.hpp"],
        in_fragments("attention", "attention_options", "attention_terms", "attention_storage", "score_parameters",
                     "attention_block_mask", "decode", "decode_packed", "attention_backward_options",
                     "attention_backward", "attention_backward_block_mask", "attention_backward_gradients"),
    ),
    "mlp": (
        ["mlp/gated_mlp_arguments.hpp", "mlp/gated_mlp_portable.hpp", "mlp/gated_mlp_backward.hpp",
         "mlp/gated_mlp_projections.hpp"],
        ["unit/mlp/test_error_messages_gated_mlp.cpp", "parity/test_gated_mlp.cpp", "parity/test_packed_weights.cpp"],
    ),
    "norm": (
        ["norm/norm_rows.hpp", "norm/layer_norm.hpp", "norm/rms_norm.hpp", "norm/layer_norm_backward.hpp",
         "norm/rms_norm_backward.hpp", "norm/residual_norm.hpp", "core/rows/checks.hpp", "core/rows/sums.hpp",
         "core/rows/added_row.hpp", "core/rows/gradient.hpp", "core/rows/held_row.hpp", "core/rows/pointwise.hpp",
         "core/rows/row.hpp", "core/rows/rows.hpp"],
        ["unit/norm/test_error_messages_norms.cpp", "parity/test_norm.cpp", "parity/test_norm_residual.cpp",
         "parity/test_norm_backward.cpp", "unit/core/test_host_rows.cpp"],
    ),
    "device_rows": (
        ["core/rows/device.hpp", "core/rows/device_elements.hpp", "core/rows/gradient_device.hpp",
         "core/rows/lanes.hpp", "norm/norm_device.hpp", "norm/norm_backward_device.hpp", "norm/moments.hpp",
         "reduce/softmax_device.hpp"],
        ["parity/test_row_device_bodies.cpp"],
    ),
    "rope": (
        ["norm/rope.hpp", "norm/rotation.hpp", "norm/rms_norm_rope.hpp"],
        ["unit/norm/test_error_messages_rows.cpp", "parity/test_rope.cpp", "parity/test_rms_norm_rope.cpp"],
    ),
    "reduce": (
        ["reduce/softmax.hpp", "reduce/log_softmax.hpp", "reduce/softmax_backward.hpp", "reduce/mean_pool.hpp",
         "reduce/cross_entropy.hpp", "reduce/cross_entropy_backward.hpp", "reduce/cross_entropy_rows.hpp",
         "reduce/linear_cross_entropy.hpp", "embedding/embedding.hpp", "embedding/embedding_arguments.hpp",
         "embedding/embedding_backward.hpp", "embedding/id_sort.hpp"],
        ["unit/norm/test_error_messages_rows.cpp", "parity/test_reduce.cpp", "parity/test_softmax.cpp",
         "parity/test_cross_entropy.cpp", "parity/test_linear_cross_entropy.cpp", "parity/test_embedding.cpp"],
    ),
    "optimizer": (
        ["optimizer/adamw.hpp", "optimizer/adamw_arguments.hpp", "optimizer/adamw_portable.hpp"],
        ["parity/test_adamw.cpp"],
    ),
    "quantize": (
        ["quantize/quantize.hpp", "quantize/quantize_portable.hpp", "quantize/scale_grid.hpp",
         "quantize/quantize_value.hpp"],
        ["unit/gemm/test_error_messages_gemm_extras.cpp", "parity/test_quantize.cpp"],
    ),
    "overlap": (["core/overlap.hpp"], ["unit/core/test_overlap.cpp"]),
}  # fmt: skip

# What every operation is tested on, after the family's own.
ACROSS = ["unit/core/test_overlapping_arguments.cpp"]


def sources_of(family: str) -> list[str]:
    return FAMILIES[family][1] + ACROSS


def sources_of_all(families: set[str]) -> list[str]:
    return list(dict.fromkeys(s for family in FAMILIES if family in families for s in sources_of(family)))
