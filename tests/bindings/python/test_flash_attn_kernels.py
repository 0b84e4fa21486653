# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which kernels the functions of attikos.flash_attn reach, as explain() tells; on a GPU, that these are the fast ones
and compute what they should. Numbers of all types and options are for test_flash_attn, test_kvcache and test_torch."""

import importlib.util
import unittest

import attikos
import ml_dtypes
import numpy as np
import oracles
from attikos import flash_attn as fa

torch = None
if importlib.util.find_spec("torch"):
    import torch

FUNCTIONS = fa.__all__


def normal(*shape, seed=17, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def chosen(function, *arguments, **named):
    """The kernel that a call would run, the last one where it runs several."""
    told = attikos.explain(function, *arguments, **named).splitlines()
    return [line.removeprefix("runs ") for line in told if line.startswith("runs ")][-1]


class OnTheHost(unittest.TestCase):
    """One portable kernel for all: what shows is which operation a function calls, and that explain() runs nothing."""

    def setUp(self):
        self.q, self.k, self.v = normal(2, 40, 4, 16), normal(2, 48, 2, 16, seed=1), normal(2, 48, 2, 16, seed=2)

    def test_every_function_is_explained(self):
        q, k, v = self.q, self.k, self.v
        kv, qkv = np.stack([k, v], 2), normal(2, 40, 3, 4, 16)
        cu_q, cu_k = np.array([0, 40, 80], np.int32), np.array([0, 48, 96], np.int32)
        flat = [x.reshape(-1, *x.shape[2:]) for x in (q, k, v, kv, qkv)]
        calls = {
            "flash_attn_func": (q, k, v),
            "flash_attn_kvpacked_func": (q, kv),
            "flash_attn_qkvpacked_func": (qkv,),
            "flash_attn_varlen_func": (*flat[:3], cu_q, cu_k, 40, 48),
            "flash_attn_varlen_kvpacked_func": (flat[0], flat[3], cu_q, cu_k, 40, 48),
            "flash_attn_varlen_qkvpacked_func": (flat[4], cu_q, 40),
            "flash_attn_with_kvcache": (q, k, v),
        }
        self.assertEqual(sorted(calls), sorted(FUNCTIONS))
        for name, arguments in calls.items():
            self.assertRegex(chosen(name, *arguments), "^portable/flash", name)
        with self.assertRaises(attikos.UnsupportedError):
            attikos.explain("flash_attn_func", q, k, v, 0.5)

    def test_few_queries_are_decoded(self):
        lengths = np.array([30, 20], np.int32)
        for rows, kernel in ((1, "^portable$"), (16, "^portable$"), (17, "^portable/flash")):
            new = [x[:, :rows].copy() for x in (self.k, self.v)]
            before = self.k.copy()
            for more in ((), new):
                found = chosen("flash_attn_with_kvcache", self.q[:, :rows], self.k, self.v, *more, cache_seqlens=lengths)
                self.assertRegex(found, kernel, rows)
            np.testing.assert_array_equal(self.k, before)


@unittest.skipUnless(torch is not None and torch.cuda.is_available() and attikos.has_cuda(), "no CUDA device")
class OnTheDevice(unittest.TestCase):
    """Tensors of PyTorch on a card from compute capability 8.0 on; kernels for Hopper by name only there."""

    TYPES = ("float16", "f16"), ("bfloat16", "bf16")

    def setUp(self):
        self.major = torch.cuda.get_device_capability()[0]
        if self.major < 8:
            self.skipTest("a card without mma.sync for bfloat16")

    def expect(self, hopper, others, suffix, function, *arguments, **named):
        """The kernel of these names; the call's result."""
        kernel = f"{hopper if self.major == 9 else others}_{suffix}"
        found = chosen(function, *arguments, **named)
        self.assertEqual(found, kernel, attikos.explain(function, *arguments, **named))
        return getattr(fa, function)(*arguments, **named)

    def wgmma(self, suffix, function, *arguments, **named):
        return self.expect("attention/sm90_wgmma", "attention/sm80_mma", suffix, function, *arguments, **named)

    def mma(self, suffix, function, *arguments, **named):
        return self.expect("attention/sm80_mma", "attention/sm80_mma", suffix, function, *arguments, **named)

    def decoder(self, suffix, function, *arguments, **named):
        return self.expect("decode/sm80_mma", "decode/sm80_mma", suffix, function, *arguments, **named)

    def tensor(self, name, *shape, seed=17):
        return torch.from_numpy(normal(*shape, seed=seed)).to("cuda", getattr(torch, name))

    def check(self, out, q, k, v, causal=False, parts=0, rounded_weights=True):
        """[batch, positions, heads, d] against float64."""

        def host(x):
            x = x.cpu().contiguous()
            x = x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()
            return x.swapaxes(-3, -2)

        exact, bound, *_ = oracles.attention(*map(host, (q, k, v)), causal, parts=parts, rounded_weights=rounded_weights)
        oracles.check(self, host(out), exact, bound)

    def test_dense(self):
        for name, suffix in self.TYPES:
            for d in (32, 64, 96, 128, 192, 256):
                q, k, v = (self.tensor(name, 1, s, h, d, seed=s) for s, h in ((520, 4), (600, 2), (601, 2)))
                v = v[:, :600]
                for causal in (False, True):
                    self.check(self.wgmma(suffix, "flash_attn_func", q, k, v, causal=causal), q, k, v, causal)
            slopes = torch.full((4,), 0.1, device="cuda")
            for more in (dict(window_size=(100, 0)), dict(softcap=20.0), dict(alibi_slopes=slopes)):
                self.wgmma(suffix, "flash_attn_func", q, k, v, causal=True, **more)

    def test_gradients(self):
        here = "attention_backward/sm90_wgmma" if self.major == 9 else "attention_backward/sm80_mma"
        starts = torch.tensor([0, 100, 101, 300], device="cuda", dtype=torch.int32)
        for name, suffix in self.TYPES:
            for d in (64, 80, 128, 192, 256):
                q, k, v, dout = (self.tensor(name, 1, h, 300, d, seed=h) for h in (4, 2, 1, 4))
                v = v.repeat(1, 2, 1, 1)
                one = q[0], k[0], v[0]
                packed = dict(cu_seqlens_q=starts, cu_seqlens_kv=starts)
                for x, g, settings in (((q, k, v), dout, dict(causal=True)), (one, dout[0], packed)):
                    state = attikos.attention(*x, return_lse=True, **settings)
                    for kernel, more in ((here, {}), (here, dict(softcap=20.0)),
                                         ("attention_backward/sm80_mma", dict(scale=-0.5))):
                        told = attikos.explain("attention_backward", *x, *state, g, **settings, **more)
                        self.assertEqual(told.split("\n")[0], f"runs {kernel}_{suffix}", told)
                    told = attikos.explain("attention", x[0].clone().requires_grad_(), *x[1:], **settings)
                    self.assertIn(f"gradients: runs {here}_{suffix}", told)

    def test_gradients_of_wide_types(self):
        for name, kernel, more in (("float32", "simt_f32", {}), ("float32", "mma_tf32x3", dict(compute="tf32x3")),
                                   ("float64", "mma_f64", {})):
            q, k, v, dout = (self.tensor(name, 1, h, 300, 64, seed=h) for h in (4, 2, 1, 4))
            v = v.repeat(1, 2, 1, 1)
            state = attikos.attention(q, k, v, return_lse=True, causal=True, **more)
            told = attikos.explain("attention_backward", q, k, v, *state, dout, causal=True, **more)
            self.assertEqual(told.split("\n")[0], f"runs attention_backward/sm80_{kernel}", told)

    def test_wide_types(self):
        for name, kernel in (("float32", "attention/sm80_simt_f32"), ("float64", "attention/sm80_mma_f64")):
            q, k, v = (self.tensor(name, 1, s, h, 64, seed=s) for s, h in ((300, 4), (330, 2), (331, 2)))
            v = v[:, :330]
            for causal in (False, True):
                self.assertEqual(chosen("flash_attn_func", q, k, v, causal=causal), kernel)
                out = fa.flash_attn_func(q, k, v, causal=causal)
                self.check(out, q, k, v, causal, rounded_weights=False)

    def test_packed_forms(self):
        for name, suffix in self.TYPES:
            qkv = self.tensor(name, 1, 520, 3, 4, 128)
            q, k, v = qkv.unbind(2)
            self.check(self.wgmma(suffix, "flash_attn_qkvpacked_func", qkv, causal=True), q, k, v, True)
            kv = qkv[:, :, 1:].contiguous()
            self.check(self.wgmma(suffix, "flash_attn_kvpacked_func", q, kv), q, k, v)

    def test_packed_sequences(self):
        for name, suffix in self.TYPES:
            q, k, v = (self.tensor(name, 1400, h, 128, seed=s) for s, h in ((1, 4), (2, 2), (3, 2)))
            offsets = torch.tensor([0, 500, 500, 1400], dtype=torch.int32, device="cuda")
            packed = (q, k, v, offsets, offsets, 900, 900)
            out = self.wgmma(suffix, "flash_attn_varlen_func", *packed, causal=True)
            for a, z in ((0, 500), (500, 1400)):
                self.check(out[None, a:z], *(x[None, a:z] for x in (q, k, v)), True)
            same = self.tensor(name, 1400, 3, 4, 128)
            self.wgmma(suffix, "flash_attn_varlen_qkvpacked_func", same, offsets, 900)
            for page in (1, 12, 16, 24, 256):  # keys in pages, backwards
                blocks = -(-900 // page)
                table = torch.arange(3 * blocks, dtype=torch.int32, device="cuda").flip(0).view(3, blocks)
                pages = [torch.zeros(3 * blocks, page, 2, 128, dtype=q.dtype, device="cuda") for _ in range(2)]
                for b, (a, z) in enumerate(((0, 500), (500, 500), (500, 1400))):
                    at = torch.arange(z - a, device="cuda")
                    for stored, x in zip(pages, (k, v)):
                        stored[table[b, at // page].long(), at % page] = x[a:z]
                paged = self.wgmma(
                    suffix, "flash_attn_varlen_func", q, *pages, offsets, offsets, 900, 900, causal=True, block_table=table
                )
                for a, z in ((0, 500), (500, 1400)):
                    self.check(paged[None, a:z], *(x[None, a:z] for x in (q, k, v)), True)

    def test_short_sequences(self):
        for name, suffix in self.TYPES:
            for length, hopper in ((128, "attention/sm90_short"), (24, "attention/sm80_short")):
                q, k, v = (self.tensor(name, 40, length, 8, 64, seed=s) for s in range(3))
                out = self.expect(hopper, "attention/sm80_short", suffix, "flash_attn_func", q, k, v)
                self.check(out[:2], q[:2], k[:2], v[:2])

    def test_caches(self):
        for name, suffix in self.TYPES:
            k, v = (self.tensor(name, 3, 2048, 2, 128, seed=s) for s in (1, 2))
            lengths = torch.tensor([2000, 1, 777], dtype=torch.int32, device="cuda")
            order = torch.tensor([2, 0, 1], dtype=torch.int32, device="cuda")
            pages = [x.view(3 * 8, 256, 2, 128) for x in (k, v)]
            table = torch.arange(24, dtype=torch.int32, device="cuda").view(3, 8)
            for rows in (1, 4):
                q = self.tensor(name, 3, rows, 16, 128)
                plain = self.decoder(suffix, "flash_attn_with_kvcache", q, k, v, cache_seqlens=lengths)
                for b, n in enumerate(lengths.tolist()):
                    self.check(plain[b : b + 1], q[b : b + 1], k[b : b + 1, :n], v[b : b + 1, :n], parts=64)
                paged = self.decoder(
                    suffix, "flash_attn_with_kvcache", q, *pages, cache_seqlens=lengths, block_table=table
                )
                self.assertTrue(torch.equal(paged, plain))
                self.decoder(suffix, "flash_attn_with_kvcache", q, k, v, cache_seqlens=lengths, cache_batch_idx=order)
                left = torch.tensor([5, 0, 70], dtype=torch.int32, device="cuda")
                self.decoder(suffix, "flash_attn_with_kvcache", q, k, v, cache_seqlens=lengths, cache_leftpad=left)
                new = [self.tensor(name, 3, rows, 2, 128, seed=s) for s in (3, 4)]
                before = [x.clone() for x in (k, v)]
                told = attikos.explain("flash_attn_with_kvcache", q, k, v, *new, cache_seqlens=lengths, causal=True)
                self.assertEqual(told.splitlines()[0], "runs append_kv/sm80_simt", told)
                self.assertTrue(torch.equal(k, before[0]) and torch.equal(v, before[1]))
                out = self.decoder(
                    suffix, "flash_attn_with_kvcache", q, k, v, *new, cache_seqlens=lengths, causal=True
                )
                for b, n in enumerate(lengths.tolist()):
                    self.assertTrue(torch.equal(k[b, n : n + rows], new[0][b]))
                    self.check(out[b : b + 1], q[b : b + 1], k[b : b + 1, : n + rows], v[b : b + 1, : n + rows], True, 64)
            q = self.tensor(name, 3, 200, 16, 128)
            self.wgmma(suffix, "flash_attn_with_kvcache", q, k, v, cache_seqlens=lengths, causal=True)
            self.wgmma(
                suffix, "flash_attn_with_kvcache", q, *pages, cache_seqlens=lengths, block_table=table, causal=True
            )
            self.mma(suffix, "flash_attn_with_kvcache", q, k, v, cache_seqlens=lengths, cache_leftpad=left)

    def test_strides_that_the_copy_engine_cannot_follow(self):
        for name, suffix in self.TYPES:
            q, k, v = (self.tensor(name, 1, 520, 4, 65, seed=s)[..., :64] for s in range(3))
            self.check(self.mma(suffix, "flash_attn_func", q, k, v), q, k, v)

    def test_bits_in_any_batch(self):
        """By the name of determinism, and by a number of splits."""
        for name, suffix in self.TYPES:
            q, k, v = (self.tensor(name, 40, s, h, 128, seed=s) for s, h in ((1, 16), (3000, 2), (3001, 2)))
            v = v[:, :3000]
            first = [x.transpose(1, 2) for x in (q, k, v)]
            calls = {
                "determinism": lambda b: attikos.decode(*(x[b] for x in first), determinism="batch_invariant"),
                "num_splits": lambda b: fa.flash_attn_with_kvcache(q[b], k[b], v[b], num_splits=7),
            }
            for what, call in calls.items():
                together = call(slice(0, 40))
                for b in (slice(0, 1), slice(5, 8), slice(39, 40)):
                    self.assertTrue(torch.equal(call(b), together[b]), f"{what} {b}")


if __name__ == "__main__":
    unittest.main()
