# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The short way of what calls over several ranks are made of: gradients by themselves, and states that are merged."""

import contextlib
import importlib.util
import unittest

import attikos
from attikos import cache, fused
from test_border import long_only, normal, short_only

torch = None
if importlib.util.find_spec("torch"):
    import torch


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Parts(unittest.TestCase):
    def test_gradients_by_themselves(self):
        """attention_backward() of options alone, of lengths, and packed; and that of the gated MLP."""
        q, k, v, dout = (torch.randn(2, h, s, 8) for h, s in ((4, 5), (2, 7), (2, 7), (4, 5)))
        packed = [torch.randn(h, t, 8) for h, t in ((4, 7), (2, 9), (2, 9), (4, 7))]
        lengths, offsets_q, offsets_kv = (torch.tensor(n, dtype=torch.int32) for n in ([5, 3], [0, 3, 7], [0, 4, 9]))
        x, gate, up = torch.randn(5, 8), torch.randn(6, 8), torch.randn(6, 8)
        offsets = dict(cu_seqlens_q=offsets_q, cu_seqlens_kv=offsets_kv)

        def attended(*arrays, **options):
            out, lse = attikos.attention(*arrays[:3], **options, return_lse=True)
            return lambda: attikos.attention_backward(*arrays[:3], out, lse, arrays[3], **options)

        for name, call in {
            "plain": attended(q, k, v, dout),
            "causal": attended(q, k, v, dout, causal=True, scale=0.3, softcap=2.0),
            "window": attended(q, k, v, dout, window=(3, 1), top_left=True, attention_chunk=4, compute="tf32"),
            "lengths": attended(q, k, v, dout, lengths_q=lengths, lengths_kv=lengths),
            "packed": attended(*packed, **offsets),
            "packed, unchecked": attended(*packed, **offsets, causal=True, check=False),
            "gated MLP": lambda: fused.fused_gated_mlp_backward(x, gate, up, torch.ones(5, 6), "gelu"),
        }.items():  # fmt: skip
            with self.subTest(name):
                with long_only():
                    expected = call()
                with short_only():
                    found = call()
                for one, other in zip(found, expected, strict=True):
                    self.assertTrue(torch.equal(one, other))
        wrong = dict(cu_seqlens_q=offsets_q, cu_seqlens_kv=torch.tensor([0, 4, 99], dtype=torch.int32))
        out, lse = attikos.attention(*packed[:3], **offsets, return_lse=True)
        said = []
        for way in (long_only, contextlib.nullcontext):
            with way(), self.assertRaises(attikos.ShapeMismatchError) as raised:
                attikos.attention_backward(*packed[:3], out, lse, packed[3], **wrong)
            said.append(str(raised.exception))
        self.assertEqual(*said)

    def test_states_that_must_not_be_written(self):
        out, lse = normal(2, 3, 4), normal(2, 3)
        for locked in (out, lse):
            arrays = [out.copy(), lse.copy()]
            arrays[0 if locked is out else 1].flags.writeable = False
            with self.assertRaisesRegex(attikos.ArgumentError, "read-only"):
                cache.merge_into(*arrays, out, lse)
        wanted = torch.from_numpy(out).requires_grad_()
        with self.assertRaisesRegex(attikos.UnsupportedError, "requires a gradient"):
            cache.merge_into(wanted, torch.from_numpy(lse), torch.from_numpy(out.copy()), torch.from_numpy(lse.copy()))


if __name__ == "__main__":
    unittest.main()
