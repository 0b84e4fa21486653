# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""FlashAttention-3's signatures: each argument means what it means there, or is refused by its name."""

import inspect
import unittest

import attikos
import ml_dtypes
import numpy as np
from attikos import flash_attn as two
from attikos import flash_attn_interface as three

try:
    import torch
except ImportError:
    torch = None


def normal(*shape, seed=1, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def int32(*numbers):
    return np.array(numbers, np.int32)


def turned(x):
    return x.swapaxes(1, 2)


class Interface(unittest.TestCase):
    def setUp(self):
        self.q, self.k, self.v = normal(2, 9, 4, 16), normal(2, 13, 2, 16, seed=2), normal(2, 13, 2, 16, seed=3)

    def test_signatures(self):
        factors = ["q_descale", "k_descale", "v_descale"]
        shape = ["window_size", "attention_chunk", "softcap"]
        hints = ["num_splits", "pack_gqa", "deterministic", "sm_margin", "return_attn_probs"]
        for function, names in {
            three.flash_attn_func: ["q", "k", "v", "softmax_scale", "causal", "qv", *factors, *shape, *hints],
            three.flash_attn_qkvpacked_func: [
                "qkv", "softmax_scale", "causal", *factors, *shape, "deterministic", "num_heads_q", "sm_margin",
                "return_attn_probs",
            ],
            three.flash_attn_varlen_func: [
                "q", "k", "v", "cu_seqlens_q", "cu_seqlens_k", "max_seqlen_q", "max_seqlen_k", "seqused_q", "seqused_k",
                "softmax_scale", "causal", "qv", *factors, *shape, *hints,
            ],
            three.flash_attn_with_kvcache: [
                "q", "k_cache", "v_cache", "k", "v", "qv", "rotary_cos", "rotary_sin", "cache_seqlens", "cache_batch_idx",
                "cache_leftpad", "page_table", "cu_seqlens_q", "cu_seqlens_k_new", "max_seqlen_q", "rotary_seqlens",
                *factors, "softmax_scale", "causal", *shape, "rotary_interleaved", "scheduler_metadata", "num_splits",
                "pack_gqa", "sm_margin", "return_softmax_lse",
            ],
        }.items():  # fmt: skip
            parameters = inspect.signature(function).parameters.values()
            found = [x.name for x in parameters if x.kind is not x.KEYWORD_ONLY]
            self.assertEqual(found, names, function.__name__)

    def test_dense(self):
        expected, lse, _ = two.flash_attn_func(
            self.q, self.k, self.v, 0.0, 0.3, True, (5, -1), 2.0, return_attn_probs=True
        )
        out, got = three.flash_attn_func(
            self.q, self.k, self.v, 0.3, True, window_size=(5, -1), softcap=2.0, num_splits=3, pack_gqa=True, sm_margin=8,
            return_attn_probs=True,
        )  # fmt: skip
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(got, lse)
        chunked = three.flash_attn_func(self.q, self.k, self.v, attention_chunk=4)
        expected = attikos.attention(*map(turned, (self.q, self.k, self.v)), attention_chunk=4)
        np.testing.assert_array_equal(chunked, turned(expected))
        self.assertGreater(np.abs(chunked - three.flash_attn_func(self.q, self.k, self.v)).max(), 0.01)

    def test_factors_of_float8(self):
        eight = [x.astype(ml_dtypes.float8_e4m3fn) for x in (self.q, self.k, self.v)]
        factors = [np.random.default_rng(i).random((2, 2), np.float32) + 0.5 for i in range(3)]
        out = three.flash_attn_func(*eight, q_descale=factors[0], k_descale=factors[1], v_descale=factors[2])
        expected = attikos.attention(
            *map(turned, eight), descale_q=factors[0], descale_k=factors[1], descale_v=factors[2]
        )
        self.assertEqual(out.dtype, ml_dtypes.bfloat16)
        np.testing.assert_array_equal(out, turned(expected))
        with self.assertRaisesRegex(attikos.Error, "q_descale"):
            three.flash_attn_func(self.q, self.k, self.v, q_descale=factors[0])

    def test_packed_in_one(self):
        qkv = normal(2, 7, 3, 4, 8)
        expected = three.flash_attn_func(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], causal=True)
        np.testing.assert_array_equal(three.flash_attn_qkvpacked_func(qkv, causal=True), expected)
        grouped = normal(2, 7, 8, 8)
        expected = three.flash_attn_func(grouped[:, :, :4], grouped[:, :, 4:6], grouped[:, :, 6:])
        np.testing.assert_array_equal(three.flash_attn_qkvpacked_func(grouped, num_heads_q=4), expected)
        with self.assertRaisesRegex(attikos.ShapeMismatchError, "num_heads_q is 5"):
            three.flash_attn_qkvpacked_func(grouped, num_heads_q=5)

    def test_sequences(self):
        q, k, v = normal(7, 4, 8), normal(9, 2, 8, seed=2), normal(9, 2, 8, seed=3)
        offsets = int32(0, 3, 7), int32(0, 4, 9)
        expected, lse, _ = two.flash_attn_varlen_func(q, k, v, *offsets, 4, 5, causal=True, return_attn_probs=True)
        out, got = three.flash_attn_varlen_func(q, k, v, *offsets, 4, 5, causal=True, return_attn_probs=True)
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(got, lse)
        with self.assertRaisesRegex(attikos.ShapeMismatchError, "cu_seqlens_k"):
            three.flash_attn_varlen_func(q, k, v, offsets[0], int32(0, 4, 99), 4, 5)

    def test_keys_in_use(self):
        """As calls on the first keys of each sequence alone."""
        q, k, v = normal(7, 4, 8), normal(9, 2, 8, seed=2), normal(9, 2, 8, seed=3)
        queries, keys, used = (0, 3, 7), (0, 4, 9), (2, 5)
        of_all = {"as arrays": lambda x: x, **({"as tensors": torch.from_numpy} if torch else {})}
        for name, of in of_all.items():
            arrays = [of(x) for x in (q, k, v, int32(*queries), int32(*keys))]
            for options in ({}, {"causal": True}, {"window_size": (1, 1)}):
                with self.subTest(name, **options):
                    out, lse = three.flash_attn_varlen_func(
                        *arrays, 4, 5, seqused_k=of(int32(*used)), return_attn_probs=True, **options
                    )
                    for b in range(2):
                        rows, seen = slice(queries[b], queries[b + 1]), slice(keys[b], keys[b] + used[b])
                        want = three.flash_attn_func(
                            q[None, rows], k[None, seen], v[None, seen], return_attn_probs=True, **options
                        )
                        np.testing.assert_allclose(out[rows], want[0][0], rtol=1e-5, atol=1e-6)
                        np.testing.assert_allclose(lse[:, rows], want[1][0], rtol=1e-5, atol=1e-6)
            for bad, words in (((2, 6), "seqused_k exceeds"), ((-1, 5), "seqused_k"), ((2,), "seqused_k is")):
                with self.subTest(name, bad=bad), self.assertRaisesRegex(attikos.ShapeMismatchError, words):
                    three.flash_attn_varlen_func(*arrays, 4, 5, seqused_k=of(int32(*bad)))
            with self.subTest(name), self.assertRaisesRegex(attikos.ShapeMismatchError, "cu_seqlens_k holds"):
                three.flash_attn_varlen_func(*arrays[:4], of(int32(0, 4, 11)), 4, 7, seqused_k=of(int32(2, 7)))
        if torch:
            leaf = torch.from_numpy(k).requires_grad_()
            with self.assertRaisesRegex(attikos.UnsupportedError, "k requires a gradient"):
                three.flash_attn_varlen_func(arrays[0], leaf, *arrays[2:], 4, 5, seqused_k=torch.tensor([2, 5]))

    def test_cache(self):
        caches = normal(6, 4, 2, 16), normal(6, 4, 2, 16, seed=2)
        table = int32(0, 1, 5, 2, 3, 4).reshape(2, 3)
        new = normal(2, 1, 2, 16, seed=3), normal(2, 1, 2, 16, seed=4)
        found = []
        for function, name in ((two.flash_attn_with_kvcache, "block_table"), (three.flash_attn_with_kvcache, "page_table")):
            given = [x.copy() for x in caches]
            out, lse = function(
                self.q[:, :1], *given, *new, cache_seqlens=int32(5, 9), causal=True, num_splits=2, **{name: table},
                return_softmax_lse=True,
            )  # fmt: skip
            found.append((out, lse, *given))
        for one, other in zip(*found):
            np.testing.assert_array_equal(one, other)

    def test_packed_queries_over_a_cache(self):
        """Sequence by sequence, with pages and without."""
        q, offsets, lengths = normal(5, 4, 16), (0, 2, 5), (5, 9)
        dense = normal(2, 12, 2, 16), normal(2, 12, 2, 16, seed=2)
        table = int32(5, 1, 0, 2, 3, 4).reshape(2, 3)
        pages = [np.zeros((6, 4, 2, 16), np.float32) for _ in range(2)]
        for x, page in zip(dense, pages):
            page[table.reshape(-1)] = x.reshape(6, 4, 2, 16)
        for caches, where in ((dense, None), (pages, table)):
            out, lse = three.flash_attn_with_kvcache(
                q, *caches, cache_seqlens=int32(*lengths), page_table=where, cu_seqlens_q=int32(*offsets), causal=True,
                max_seqlen_q=3, return_softmax_lse=True,
            )  # fmt: skip
            self.assertEqual((out.shape, lse.shape), ((5, 4, 16), (4, 5)))
            for b in range(2):
                rows = slice(offsets[b], offsets[b + 1])
                expected = three.flash_attn_func(q[None, rows], *(x[b : b + 1, : lengths[b]] for x in dense), causal=True)
                np.testing.assert_allclose(out[rows], expected[0], rtol=1e-5, atol=1e-6)
        one = three.flash_attn_with_kvcache(self.q, *dense, cache_seqlens=7, attention_chunk=3)
        expected = three.flash_attn_func(self.q, *(x[:, :7] for x in dense), attention_chunk=3)
        np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)

    def test_what_is_not_offered(self):
        q, k = self.q, self.k
        packed, offsets = q.reshape(-1, 4, 16), int32(0, 9, 18)
        caches = {"cache_seqlens": int32(5, 6)}
        for name, call in {
            "qv": lambda x: three.flash_attn_func(q, k, k, qv=x),
            "seqused_q": lambda x: three.flash_attn_varlen_func(packed, packed, packed, offsets, offsets, 9, 9, seqused_q=x),
            "rotary_seqlens": lambda x: three.flash_attn_with_kvcache(q, k, k, **caches, rotary_seqlens=x),
            "scheduler_metadata": lambda x: three.flash_attn_with_kvcache(q, k, k, **caches, scheduler_metadata=x),
            "cu_seqlens_k_new": lambda x: three.flash_attn_with_kvcache(q, k, k, **caches, cu_seqlens_k_new=x),
            "cache_leftpad": lambda x: three.flash_attn_with_kvcache(q, k, k, **caches, attention_chunk=2, cache_leftpad=x),
            "rotary_cos": lambda x: three.flash_attn_with_kvcache(
                packed, k, k, **caches, cu_seqlens_q=offsets, rotary_cos=x
            ),
        }.items():
            with self.subTest(name), self.assertRaisesRegex(attikos.UnsupportedError, rf"attikos\.flash_attn_\w+: {name} is"):
                call(int32(1, 2))
        for name, value in (("num_splits", -1), ("sm_margin", 0.5), ("pack_gqa", "yes"), ("attention_chunk", -2)):
            with self.subTest(name), self.assertRaisesRegex(attikos.ArgumentError, f"{name} is {value!r}"):
                three.flash_attn_func(q, k, k, **{name: value})
        for name, call in {  # what only attention() refuses has got there
            "flash_attn_func": lambda x: three.flash_attn_func(q, k, k, sm_margin=x),
            "flash_attn_varlen_func": lambda x: three.flash_attn_varlen_func(
                packed, packed, packed, offsets, offsets, 9, 9, sm_margin=x
            ),
        }.items():
            call(8)
            with self.subTest(name), self.assertRaisesRegex(attikos.ArgumentError, "sm_margin is 4294967296"):
                call(2**32)
        with self.assertRaisesRegex(attikos.ArgumentError, "cu_seqlens_k is None"):
            three.flash_attn_varlen_func(packed, packed, packed, offsets, None, 9, 9)


if __name__ == "__main__":
    unittest.main()
