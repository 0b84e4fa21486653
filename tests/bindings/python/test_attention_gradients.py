# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Gradients of attention as PyTorch judges them: by differences of float64 calls, and in 16 bits beside a plain
computation of as many bits."""

import importlib.util
import unittest

if importlib.util.find_spec("torch"):
    import torch
else:
    torch = None
import attikos


def setUpModule():
    if torch is None:
        raise unittest.SkipTest("PyTorch is not installed")


def devices():
    return ["cpu"] + (["cuda"] if attikos.has_cuda() and torch.cuda.is_available() else [])


class Differences(unittest.TestCase):
    """torch.autograd.gradcheck: of the output and of its log-sum-exp, with respect to all that has a gradient."""

    def check(self, device, queries=5, keys=7, heads=4, heads_kv=2, head_dim=8, head_dim_v=8, also=(), **options):
        source = torch.Generator().manual_seed(11)

        def draw(*shape):
            return torch.randn(shape, generator=source, dtype=torch.float64).to(device).requires_grad_()

        shapes = (2, heads, queries, head_dim), (2, heads_kv, keys, head_dim), (2, heads_kv, keys, head_dim_v)
        if "cu_seqlens_q" in options:
            shapes = tuple(shape[1:] for shape in shapes)
        tensors = [draw(*shape) for shape in shapes]
        names = [name for name, _ in also]
        tensors += [draw(*shape) for _, shape in also]
        options = {name: x.to(device) if torch.is_tensor(x) else x for name, x in options.items()}

        def call(q, k, v, *rest):
            return attikos.attention(q, k, v, return_lse=True, **dict(zip(names, rest)), **options)

        self.assertTrue(torch.autograd.gradcheck(call, tensors, eps=1e-6, atol=1e-7, rtol=1e-6))

    def test_masks(self):
        for device in devices():
            for options in (
                {}, {"causal": True}, {"causal": True, "top_left": True}, {"window": (2, 1)}, {"scale": 0.7},
                {"softcap": 1.5}, {"causal": True, "softcap": 0.8, "window": (3, 0)}, {"heads": 3, "heads_kv": 1},
                {"head_dim": 24, "head_dim_v": 16}, {"queries": 1}, {"keys": 1}, {"attention_chunk": 3, "keys": 5},
            ):  # fmt: skip
                with self.subTest(device=device, **options):
                    self.check(device, **options)

    def test_more_queries_than_keys(self):
        """Whose first rows see nothing: the log-sum-exp is minus infinity there, and has no difference."""
        for device in devices():
            q, k, v = (torch.randn(1, 2, n, 8, dtype=torch.float64, device=device, requires_grad=True) for n in (6, 4, 4))
            self.assertTrue(torch.autograd.gradcheck(lambda *x: attikos.attention(*x, causal=True), (q, k, v)))

    def test_biases_and_sinks(self):
        """A bias that is the same along any of its dimensions has a gradient that is a sum along them."""
        for device in devices():
            for shape in ((2, 4, 5, 7), (1, 4, 5, 7), (2, 1, 5, 7), (5, 7), (2, 1, 1, 7), (1, 4, 5, 1), (1, 1, 1, 1)):
                for causal in (False, True):
                    with self.subTest(device=device, bias=shape, causal=causal):
                        self.check(device, also=[("bias", shape)], causal=causal)
            with self.subTest(device=device, sinks=True):
                self.check(device, also=[("sinks", (4,))], causal=True)
                self.check(device, also=[("bias", (5, 7)), ("sinks", (4,))], softcap=2.0)

    def test_lengths(self):
        """Rows behind a sequence's end have no log-sum-exp to differ."""
        q_ends, k_ends = (torch.tensor(n, dtype=torch.int32) for n in ([0, 3, 5], [0, 4, 7]))
        for device in devices():
            for causal in (False, True):
                with self.subTest(device=device, causal=causal):
                    self.check(device, cu_seqlens_q=q_ends, cu_seqlens_kv=k_ends, causal=causal)
                    self.check(device, lengths_kv=torch.tensor([7, 3], dtype=torch.int32))


def plain(q, k, v, causal):
    """Each step rounded to the type of its tensors, as a model without a fused kernel computes it."""
    group = q.shape[1] // k.shape[1]
    scores = q @ k.repeat_interleave(group, 1).transpose(2, 3) * q.shape[3] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu(1 + k.shape[2] - q.shape[2])
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1) @ v.repeat_interleave(group, 1)


class SixteenBits(unittest.TestCase):
    def gradients(self, function, tensors, dout):
        tensors = [x.detach().requires_grad_() for x in tensors]
        return torch.autograd.grad(function(*tensors), tensors, dout)

    def test_no_further_from_float64_than_a_plain_computation(self):
        """The error of each gradient, as a root of mean squares, is at most 1.2 times the plain one's."""
        worst = 0.0
        for device in devices():
            lengths = (70, 200) if device == "cpu" else (70, 200, 1024)
            for dtype in (torch.float16, torch.bfloat16):
                for head_dim in (32, 64, 96, 128, 192, 256):
                    for length in lengths:
                        for causal, heads_kv in ((False, 4), (True, 2)):
                            source = torch.Generator().manual_seed(length + head_dim)
                            tensors = [torch.randn(2, h, length, head_dim, generator=source).to(device, dtype)
                                       for h in (4, heads_kv, heads_kv, 4)]  # fmt: skip
                            *tensors, dout = tensors
                            exact = self.gradients(
                                lambda *x: plain(*x, causal), [x.double() for x in tensors], dout.double())
                            beside = self.gradients(lambda *x: plain(*x, causal), tensors, dout)
                            ours = self.gradients(lambda *x: attikos.attention(*x, causal=causal), tensors, dout)
                            for name, mine, theirs, right in zip(("dq", "dk", "dv"), ours, beside, exact):
                                ratio = ((mine - right).square().mean() / (theirs - right).square().mean()).sqrt().item()
                                worst = max(worst, ratio)
                                self.assertLessEqual(
                                    ratio, 1.2, f"{name} of {device} {dtype} {length} × {head_dim}, causal {causal}")
        print(f"worst error beside a plain computation's: {worst:.2f}")


if __name__ == "__main__":
    unittest.main()
