# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Calls that work of every public function that takes arrays, for tests that hold all of them to one rule: each array
parameter of each function is given in one of them. test_calls.py sees to that."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import attikos
import ml_dtypes
import numpy as np
from attikos import flash_attn

E4M3 = np.dtype(ml_dtypes.float8_e4m3fn)
NARROW = {np.dtype(ml_dtypes.bfloat16), E4M3, np.dtype(ml_dtypes.float8_e5m2)}

# Functions of __all__ that compute nothing on arrays, or give none: pack_b has a suite of its own.
TOOLS = {
    "benchmark_fn", "check_hopper_features", "detect_gpu", "detect_host", "explain", "get_attention_config",
    "get_matmul_config", "get_optimal_attention", "get_optimal_matmul", "has_cuda", "list_kernels", "pack_b",
    "patch", "print_gpu_info", "stream", "supports_fp8", "validate_attention", "validate_matmul",
}  # fmt: skip
# Parameters annotated Any that take no array.
NO_ARRAYS = {"dtype", "out_dtype", "output_dtype"}


@dataclasses.dataclass
class Example:
    name: str
    arrays: dict[str, np.ndarray]
    settings: dict[str, Any] = dataclasses.field(default_factory=dict)
    written: tuple[str, ...] = ()
    brings: tuple[str, ...] = ()  #: arrays whose gradients the result carries

    @property
    def function(self):
        return getattr(flash_attn if self.name in flash_attn.__all__ else attikos, self.name)

    def floating(self):
        return [n for n, a in self.arrays.items() if a.dtype.kind == "f" or a.dtype in NARROW]

    def copies(self):
        return {name: array.copy() for name, array in self.arrays.items()}


def functions():
    """{name: function} of every function that takes arrays."""
    public = {n: getattr(attikos, n) for n in attikos.__all__ if n not in TOOLS and inspect.isfunction(getattr(attikos, n))}
    return {**public, **{n: getattr(flash_attn, n) for n in flash_attn.__all__}}


def annotated(function, kind):
    """Names of a function's parameters whose annotation has this word."""
    parameters = inspect.signature(function).parameters.values()
    return [p.name for p in parameters if kind in str(p.annotation).replace("|", " ").replace("[", " ").split()]


def outputs(result):
    """The arrays of a result, whatever it is."""
    return [x for x in (result if isinstance(result, tuple) else (result,)) if x is not None]


def into(names, *calls):
    """The same calls with arrays for their first results, of these names."""
    given = names.split()
    for call in calls:
        places = dict(zip(given, (np.zeros_like(x) for x in outputs(call.function(**call.copies(), **call.settings)))))
        yield Example(call.name, {**call.arrays, **places}, call.settings, written=tuple(given))


def examples(dtype=np.float64):
    """Elements of `dtype`, where the function leaves a choice."""
    rng = np.random.default_rng(5)

    def n(*shape, kind=dtype):
        return np.asarray(rng.standard_normal(shape)).astype(kind)

    def f8(*shape):
        return n(*shape, kind=E4M3)

    def f32(*shape):
        return np.asarray(rng.random(shape) + 0.5, np.float32)

    def i32(*numbers):
        return np.array(numbers, np.int32)

    angle = rng.standard_normal((9, 4))
    cos, sin = (np.concatenate([f(angle)] * 2, 1).astype(dtype) for f in (np.cos, np.sin))
    half_cos, half_sin = cos[:, :4], sin[:, :4]
    q, k, v, dout = (n(2, h, s, d) for h, s, d in ((4, 5, 8), (2, 7, 8), (2, 7, 6), (4, 5, 6)))
    out, lse = attikos.attention(q, k, v, return_lse=True)
    pages = {"k": n(6, 2, 4, 8), "v": n(6, 2, 4, 6), "page_table": i32(0, 1, 2, 3).reshape(2, 2)}
    last = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
    packed = [n(h, t, d) for h, t, d in ((4, 7, 8), (2, 9, 8), (2, 9, 6), (4, 7, 6))]
    packed_out, packed_lse = attikos.attention(
        *packed[:3], return_lse=True, cu_seqlens_q=i32(0, 3, 7), cu_seqlens_kv=i32(0, 4, 9)
    )
    offsets = {"cu_seqlens_q": i32(0, 3, 7), "cu_seqlens_kv": i32(0, 4, 9)}
    eight = {"q": f8(2, 4, 5, 8), "k": f8(2, 2, 7, 8), "v": f8(2, 2, 7, 6), "descale_q": f32(2), "descale_k": f32(1),
             "descale_v": f32(2, 2)}  # fmt: skip
    terms = {"bias": n(4, 5, 7), "sinks": n(4), "mask": rng.random((2, 1, 5, 7)) > 0.2, "alibi_slopes": f32(4)}
    lengths = {"lengths_q": i32(5, 3), "lengths_kv": i32(7, 6)}
    new = {"k_new": n(2, 2, 3, 8), "v_new": n(2, 2, 3, 6), "k_cache": n(2, 2, 9, 8), "v_cache": n(2, 2, 9, 6)}
    caches = ("k_cache", "v_cache")
    flash_new = {"q": last[0][:, :3].copy(), "k_cache": n(2, 9, 2, 8), "v_cache": n(2, 9, 2, 6), "k": n(2, 3, 2, 8),
                 "v": n(2, 3, 2, 6), "cache_seqlens": i32(2, 6)}  # fmt: skip
    x, weight, bias = n(3, 4, 16), n(16), n(16)
    classes = np.arange(12).reshape(3, 4)
    ids = np.array([[3, 0, 3, 1], [4, 2, 3, 0], [1, 1, 4, 3]])
    of_rows = {name: n(3, 4, kind=np.float64 if dtype == np.float64 else np.float32) for name in ("lse", "dloss")}
    moments = {name: np.asarray(rng.random((3, 4, 16)), of_rows["lse"].dtype) for name in ("exp_avg", "exp_avg_sq", "master")}
    attended = ("q", "k", "v")
    E = Example
    return [
        E("gemm", {"a": n(5, 6), "b": n(6, 4), "c": n(5, 4), "bias": n(4), "residual": n(5, 4)},
          {"alpha": 0.5, "beta": -0.7, "activation": "gelu", "scale": 1.5, "return_pre_activation": True},
          brings=("a", "b", "c", "bias", "residual")),
        E("gemm", {"a": n(3, 6, 5), "b": n(4, 6), "c": n(3, 5, 4)}, {"beta": 2.0, "trans_a": True, "trans_b": True},
          brings=("a", "b", "c")),
        E("gemm", {"a": f8(5, 6), "b": f8(6, 4), "scale_a": f32(1), "scale_b": f32(1, 4), "scale_out": f32(1)},
          {"out_dtype": "float8_e4m3"}),
        E("gemm", {"a": n(5, 6, kind=np.int8), "b": n(6, 4, kind=np.int8), "zero_point_a": i32(1), "zero_point_b": i32(2)}),
        E("grouped_gemm", {"a": n(9, 6), "b": n(3, 6, 4), "offsets": i32(1, 3, 3, 8), "bias": n(4)},
          {"activation": "silu"}, brings=("a", "b", "bias")),
        E("grouped_gemm", {"a": f8(9, 6), "b": f8(3, 6, 4), "offsets": i32(1, 3, 3, 8), "scale_a": f32(1), "scale_b": f32(1)}),
        E("masked_gemm", {"a": n(3, 5, 6), "b": n(3, 4, 6), "counts": i32(3, 0, 5), "bias": n(4)},
          {"activation": "gelu_tanh", "trans_b": True}, brings=("a", "b", "bias")),
        E("masked_gemm", {"a": f8(3, 5, 6), "b": f8(3, 6, 4), "counts": i32(3, 0, 5), "scale_a": f32(1), "scale_b": f32(1)}),
        E("gemm_backward", {"a": n(5, 6), "b": n(6, 4), "dout": n(5, 4), "pre_activation": n(5, 4)},
          {"activation": "relu", "bias": True, "beta": 2.0}),
        E("gemm_backward", {"a": n(9, 6), "b": n(3, 6, 4), "dout": n(9, 4), "offsets": i32(1, 3, 3, 8)}),
        E("gemm_backward", {"a": n(3, 5, 6), "b": n(3, 6, 4), "dout": n(3, 5, 4), "counts": i32(3, 0, 5)}),
        E("tensor_core_gemm", {"a": n(5, 6, kind=np.float32), "b": n(6, 4, kind=np.float32), "c": n(5, 4, kind=np.float32)},
          {"alpha": 0.5, "beta": 2.0}, brings=("a", "b", "c")),
        E("tensor_core_gemm_int8", {"a": n(5, 6, kind=np.int8), "b": n(6, 4, kind=np.int8)}),
        E("triton_matmul", {"a": n(5, 6), "b": n(6, 4)}, brings=("a", "b")),
        E("attention", {"q": q, "k": k, "v": v, **{t: terms[t] for t in ("bias", "sinks", "mask")}},
          {"causal": True, "softcap": 3.0, "return_lse": True}, brings=(*attended, "bias", "sinks")),
        E("attention", {"q": q, "k": k, "v": v, "alibi_slopes": terms["alibi_slopes"], **lengths}, brings=attended),
        E("attention", {"q": packed[0], "k": packed[1], "v": packed[2], **offsets}, {"return_lse": True}, brings=attended),
        E("attention", {"q": q, **pages}), E("attention", eight),
        E("attention_backward", {"q": q, "k": k, "v": v, "out": out, "lse": lse, "dout": dout, **terms, **lengths}),
        E("attention_backward", {**dict(zip(attended, packed)), "out": packed_out, "lse": packed_lse, "dout": packed[3],
                                 **offsets}),
        E("decode", {"q": q, "k": k, "v": v, **terms, **lengths}, {"return_lse": True}),
        E("decode", {"q": packed[0], "k": packed[1], "v": packed[2], **offsets}),
        E("decode", {"q": q, **pages}), E("decode", eight),
        E("flash_attention", {"q": q, "k": q + 1, "v": q - 1, "seq_lens": i32(5, 3)}, {"causal": True}, brings=attended),
        E("tiled_attention", {"q": q, "k": k, "v": v}, brings=attended),
        E("naive_attention", {"q": q, "k": k, "v": v}, brings=attended),
        E("reference_attention", {"q": q, "k": q + 1, "v": q - 1}, {"causal": True}, brings=attended),
        E("append_kv", {**new, "cache_lengths": i32(2, 6), "cos": cos, "sin": sin, "q": q, "new_lengths": i32(3, 1)},
          {"check": True}, caches),
        E("append_kv", {"k_new": n(2, 5, 8), "v_new": n(2, 5, 6), "k_cache": n(6, 2, 4, 8), "v_cache": n(6, 2, 4, 6),
                        "page_table": pages["page_table"], "cu_seqlens_kv": i32(0, 2, 5), "cu_seqlens_q": i32(0, 3, 7),
                        "q": packed[0], "cos": cos, "sin": sin}, {}, caches),
        E("merge_states", {"out_a": out, "lse_a": lse, "out_b": out + 1, "lse_b": lse - 1}),
        E("merge_split_states", {"outs": np.stack([out, out + 1]), "lses": np.stack([lse, lse - 1])}),
        E("rope", {"x": n(2, 3, 7, 8), "cos": cos, "sin": sin, "positions": i32(0, 2)}, brings=("x",)),
        E("fused_rmsnorm_rope", {"x": x, "weight": weight, "cos": cos[:4], "sin": sin[:4]}, brings=("x", "weight")),
        E("fused_gated_mlp", {"x": x, "gate_weight": n(5, 16), "up_weight": n(5, 16)},
          brings=("x", "gate_weight", "up_weight")),
        E("rms_norm", {"x": x, "weight": weight}, brings=("x", "weight")),
        E("layer_norm", {"x": x, "weight": weight, "bias": bias}, brings=("x", "weight", "bias")),
        E("rms_norm", {"x": x, "weight": weight, "residual": x + 1}, brings=("x", "weight", "residual")),
        E("layer_norm", {"x": x, "weight": weight, "bias": bias, "residual": x + 1},
          brings=("x", "weight", "bias", "residual")),
        E("l2_normalize", {"x": x}, brings=("x",)), E("softmax", {"x": x}, {"scale": 0.7}, brings=("x",)),
        E("log_softmax", {"x": x}, {"scale": 0.7}, brings=("x",)),
        E("cross_entropy", {"logits": x, "labels": classes}, {"label_smoothing": 0.1}, brings=("logits",)),
        E("cross_entropy_backward", {"logits": x, "labels": classes, **of_rows}),
        E("linear_cross_entropy", {"hidden": x, "weight": n(15, 16), "labels": classes}, {"label_smoothing": 0.1},
          brings=("hidden", "weight")),
        E("linear_cross_entropy_backward", {"hidden": x, "weight": n(15, 16), "labels": classes, "dloss": of_rows["dloss"]}),
        E("adamw_step", {"parameter": n(3, 4, 16), "gradient": n(3, 4, 16), **moments}, {"step": 3},
          ("parameter", "exp_avg", "exp_avg_sq", "master")),
        E("embedding", {"table": n(6, 16), "ids": ids}, {"padding_idx": 5}, brings=("table",)),
        E("embedding_backward", {"ids": ids, "dout": x}, {"rows": 5, "padding_idx": 1}),
        E("mean_pool", {"x": x, "lengths": i32(4, 1, 2)}, brings=("x",)),
        E("rms_norm_backward", {"x": x, "weight": weight, "dout": x + 1}),
        E("layer_norm_backward", {"x": x, "weight": weight, "dout": x + 1}),
        E("rms_norm_backward", {"x": x, "weight": weight, "dout": x + 1, "residual": x - 1}),
        E("layer_norm_backward", {"x": x, "weight": weight, "dout": x + 1, "residual": x - 1}),
        E("l2_normalize_backward", {"x": x, "dout": x + 1}), E("softmax_backward", {"out": x, "dout": x + 1}),
        E("log_softmax_backward", {"out": x, "dout": x + 1}),
        E("mean_pool_backward", {"dout": n(3, 16), "lengths": i32(4, 1, 2)}, {"seqlen": 4}),
        E("quantize", {"x": x, "scale": f32(1)}), E("quantize", {"x": x}, {"granularity": "row"}),
        *into("out", E("rms_norm", {"x": x, "weight": weight}), E("layer_norm", {"x": x, "weight": weight, "bias": bias}),
              E("l2_normalize", {"x": x}), E("softmax", {"x": x}, {"scale": 0.7}), E("log_softmax", {"x": x}),
              E("mean_pool", {"x": x, "lengths": i32(4, 1, 2)}), E("rope", {"x": n(2, 3, 7, 8), "cos": cos, "sin": sin}),
              E("fused_rmsnorm_rope", {"x": x, "weight": weight, "cos": cos[:4], "sin": sin[:4]}),
              E("quantize", {"x": x}, {"granularity": "row"}), E("quantize", {"x": x, "scale": f32(1)}, {"dtype": "int8"}),
              E("dequantize", {"x": f8(3, 4, 16), "scale": f32(1)}, {"out_dtype": "float64"})),
        *into("dx dweight dbias", E("layer_norm_backward", {"x": x, "weight": weight, "dout": x + 1})),
        *into("dx dweight", E("rms_norm_backward", {"x": x, "weight": weight, "dout": x + 1})),
        *into("out residual_sum", E("rms_norm", {"x": x, "weight": weight, "residual": x + 1}),
              E("layer_norm", {"x": x, "weight": weight, "bias": bias, "residual": x + 1})),
        *into("dx dweight", E("rms_norm_backward", {"x": x, "weight": weight, "dout": x + 1, "residual": x - 1})),
        *into("dlogits", E("cross_entropy_backward", {"logits": x, "labels": classes, **of_rows})),
        *into("dhidden dweight", E("linear_cross_entropy_backward", {"hidden": x, "weight": n(15, 16), "labels": classes,
                                                                    "dloss": of_rows["dloss"]})),
        *into("out", E("embedding", {"table": n(5, 16), "ids": ids})),
        *into("dtable", E("embedding_backward", {"ids": ids, "dout": x}, {"rows": 5, "padding_idx": 1})),
        *into("dx", E("l2_normalize_backward", {"x": x, "dout": x + 1}), E("softmax_backward", {"out": x, "dout": x + 1}),
              E("log_softmax_backward", {"out": x, "dout": x + 1}),
              E("mean_pool_backward", {"dout": n(3, 16), "lengths": i32(4, 1, 2)}, {"seqlen": 4})),
        E("quantize_fp8", {"x": x}), E("dequantize", {"x": f8(3, 4, 16), "scale": f32(1)}),
        E("dequantize_fp8", {"x": f8(3, 4, 16), "scale": f32()}),
        E("fp8_gemm", {"a": n(5, 6), "b": n(6, 4)}),
        E("fp8_gemm", {"a": f8(5, 6), "b": f8(6, 4), "a_scale": f32(1), "b_scale": f32()}),
        E("flash_attn_func", {**dict(zip(attended, last)), "alibi_slopes": f32(4)}, {"causal": True, "softcap": 2.0,
          "return_attn_probs": True}, brings=attended),
        E("flash_attn_kvpacked_func", {"q": last[0], "kv": n(2, 7, 2, 2, 8), "alibi_slopes": f32(4)}, brings=("q", "kv")),
        E("flash_attn_qkvpacked_func", {"qkv": n(2, 7, 3, 4, 8), "alibi_slopes": f32(4)}, brings=("qkv",)),
        E("flash_attn_varlen_func", {"q": n(7, 4, 8), "k": n(9, 2, 8), "v": n(9, 2, 8), "cu_seqlens_q": i32(0, 3, 7),
                                     "cu_seqlens_k": i32(0, 4, 9), "alibi_slopes": f32(4)},
          {"max_seqlen_q": 4, "max_seqlen_k": 5, "return_attn_probs": True}, brings=attended),
        E("flash_attn_varlen_func", {"q": n(7, 4, 8), "k": n(6, 4, 2, 8), "v": n(6, 4, 2, 8), "cu_seqlens_q": i32(0, 3, 7),
                                     "cu_seqlens_k": i32(0, 4, 9), "block_table": pages["page_table"]},
          {"max_seqlen_q": 4, "max_seqlen_k": 5}),
        E("flash_attn_varlen_kvpacked_func", {"q": n(7, 4, 8), "kv": n(9, 2, 2, 8), "cu_seqlens_q": i32(0, 3, 7),
                                              "cu_seqlens_k": i32(0, 4, 9), "alibi_slopes": f32(4)},
          {"max_seqlen_q": 4, "max_seqlen_k": 5}, brings=("q", "kv")),
        E("flash_attn_varlen_qkvpacked_func", {"qkv": n(7, 3, 4, 8), "cu_seqlens": i32(0, 3, 7), "alibi_slopes": f32(4)},
          {"max_seqlen": 4}, brings=("qkv",)),
        E("flash_attn_with_kvcache", {**flash_new, "rotary_cos": half_cos, "rotary_sin": half_sin, "alibi_slopes": f32(4),
                                      "cache_batch_idx": i32(1, 0), "cache_leftpad": i32(1, 0)},
          {"causal": True, "return_softmax_lse": True}, caches),
        E("flash_attn_with_kvcache", {**flash_new, "k_cache": n(6, 4, 2, 8), "v_cache": n(6, 4, 2, 6),
                                      "block_table": pages["page_table"], "cache_seqlens": i32(2, 5)}, {}, caches),
    ]  # fmt: skip
