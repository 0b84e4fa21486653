# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attikos.integrations.transformers in small models with random weights.

Every call of attention in a model is compared with the oracle of attention, within its derived bound, on the keys that
transformers' own boolean mask shows. Logits and gradients are compared with a float64 run of the same model whose
attention is written down here: their distance may be twice that of "eager" in the same type, as both round as often; in
float64, where "eager" has a softmax of float32, that of a float32 run times the ratio of the units."""

import importlib.util
import unittest
from unittest import mock

import numpy as np
import oracles
import torch_compiler

import attikos

if importlib.util.find_spec("torch") and importlib.util.find_spec("transformers"):
    import torch
    import transformer_models as models
    import transformers
    from transformer_models import BATCH, CACHE, CAUSAL, LENGTH, build, drawn, inputs, numpy_of, packed, padding, run
    from transformer_models import tokens
    from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

    from attikos.integrations import transformers as integration
else:
    torch = None


def setUpModule():
    if torch is None:
        raise unittest.SkipTest("PyTorch or transformers is not installed")
    torch_compiler.load()
    THREADS.append(torch.get_num_threads())
    torch.set_num_threads(1)  # on few cores two pools of threads that wait for each other take most of the time
    integration.register()
    AttentionInterface.register("plain", models.plain)
    AttentionMaskInterface.register("plain", masking_utils.eager_mask)


THREADS = []


def tearDownModule():
    if THREADS:
        torch.set_num_threads(THREADS.pop())


def unit(found, name):
    """What an error of a gradient is measured in. A bias sums over tokens what its weight sums times an input, whose
    elements are near 1: where the sum of the bias happens to cancel, its own norm says nothing about its rounding."""
    own = found[name].norm()
    if name.endswith("_bias"):  # of experts, whose weights are [experts, in, out]
        weight, axis = found[name.removesuffix("_bias")], -2
    elif name.endswith(".bias") and name.removesuffix("bias") + "weight" in found:
        weight, axis = found[name.removesuffix("bias") + "weight"], -1
    else:
        return own
    return max(own, weight.norm() / weight.shape[axis] ** 0.5)


class Recorder:
    """Compares what every call of the integration gives with the oracle, by the masks that "eager" would have."""

    def __init__(self, test, what, padding=None):
        self.test, self.what, self.padding, self.calls, self.boolean = test, what, padding, 0, {}

    def __enter__(self):
        def make_mask(**given):
            made = integration.make_mask(**given)
            names = ("allow_is_causal_skip", "allow_is_bidirectional_skip")
            dense = masking_utils.sdpa_mask(**{**given, **dict.fromkeys(names, False)})
            self.boolean[id(made)] = made, dense
            return made

        self.changes = [
            mock.patch.dict(AttentionMaskInterface._global_mapping, attikos=make_mask),
            mock.patch.dict(AttentionInterface._global_mapping, attikos=self.call),
        ]
        for change in self.changes:
            change.start()
        return self

    def __exit__(self, *_):
        for change in self.changes:
            change.stop()

    def call(self, module, query, key, value, mask, scaling=None, softcap=None, s_aux=None, **more):
        out, _ = integration.attention(
            module, query, key, value, mask, scaling=scaling, softcap=softcap, s_aux=s_aux, **more
        )
        self.calls += 1
        q, k, v = (numpy_of(x) for x in (query, key, value))
        keep = numpy_of(self.boolean[id(mask)][1])
        seen = keep.any(-1)[:, 0]
        if self.padding is not None:
            seen = seen & numpy_of(self.padding.bool())[:, -q.shape[2] :]
        added = 0.0
        if s_aux is not None:  # a key of zeros with a score of its own and a value of zeros
            k, v = (np.concatenate([x, np.zeros_like(x[:, :, :1])], 2) for x in (k, v))
            keep = np.concatenate([keep, np.ones_like(keep[..., :1])], -1)
            added = np.zeros((1, q.shape[1], 1, k.shape[2]))
            added[0, :, 0, -1] = numpy_of(s_aux.double())
        exact, bound, *_ = oracles.attention(
            q, k, v, scale=scaling, keep=keep, softcap=softcap or 0.0, added=added
        )
        exact, bound = (x.swapaxes(1, 2)[seen] for x in (exact, bound))
        oracles.check(self.test, numpy_of(out)[seen], exact, bound, f"{self.what}, call {self.calls}")
        return out, None


class Models(unittest.TestCase):
    def test_attention_of_every_layer(self):
        for name in CAUSAL:
            model = build(name)
            for dtype in (torch.float64, torch.float32, torch.bfloat16):
                for case in ("whole", "left", "right", "packed"):
                    with Recorder(self, f"{name} {dtype} {case}", inputs(case).get("attention_mask")) as recorder:
                        run(model, dtype, "attikos", case)
                    self.assertEqual(recorder.calls, 3)
            self.assertTrue(torch.isfinite(model.lm_head.weight).all())

    def close(self, got, exact, other, factor, what):
        """Norms of distances, tensor by tensor; those of few elements together, each in units of what it sums, since
        the ratio of two norms of few roundings can be anything."""
        self.assertEqual(got.keys(), exact.keys(), what)
        few = [name for name, x in exact.items() if x.numel() < 256]
        units = {name: unit(exact, name) for name in exact}
        for names in ([name] for name in exact if name not in few), [few]:
            for group in names:
                mine, theirs = (
                    sum(((x[n] - exact[n]).norm() / units[n]).item() ** 2 for n in group) for x in (got, other)
                )
                self.assertLessEqual(mine**0.5, factor * theirs**0.5, f"{what}: {group}")

    def test_logits_and_gradients(self):
        for name in CAUSAL:
            for case in ("whole", "left", "right", "packed"):
                model = build(name)
                exact = run(model, torch.float64, "plain", case, True)
                got = run(model, torch.float64, "attikos", case, True)
                model.float().double()
                rounded = run(model, torch.float64, "plain", case, True)
                for dtype in (torch.float32, torch.bfloat16):
                    if dtype == torch.bfloat16:
                        model.bfloat16()
                        rounded = run(model, torch.float64, "plain", case, True)
                    other = run(model, dtype, "eager", case, True)
                    mine = run(model, dtype, "attikos", case, True)
                    self.close(mine, rounded, other, 2, f"{name} {dtype} {case}")
                    if dtype == torch.float32:
                        moved = {key: exact[key] + (other[key] - rounded[key]) for key in exact}
                        self.close(got, exact, moved, 2.0 * 2.0**-53 / 2.0**-24, f"{name} float64 {case}")

    def test_training_steps(self):
        """Two steps of an optimizer on packed sequences: the weights go where those of the plain model go."""
        for name in ("llama", "gpt_oss"):
            ends = {}
            for implementation in ("plain", "attikos"):
                model = build(name).train()
                model.set_attn_implementation(implementation)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
                for _ in range(2):
                    optimizer.zero_grad()
                    model(tokens(), position_ids=packed(), labels=tokens(), use_cache=False).loss.backward()
                    optimizer.step()
                ends[implementation] = dict(model.named_parameters())
            for key, exact in ends["plain"].items():
                distance = (ends["attikos"][key] - exact).norm() / exact.norm()
                self.assertLess(distance.item(), 1e-12, f"{name}: {key}")

    def test_encoders(self):
        """Bidirectional attention of BERT, and a bias of positions with its gradient in T5."""
        t = transformers
        bert = t.BertConfig(
            vocab_size=61, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            attn_implementation="plain",
        )  # fmt: skip
        t5 = t.T5Config(
            vocab_size=61, d_model=48, d_kv=12, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0,
            attn_implementation="plain",
        )  # fmt: skip
        for config, kind in ((bert, t.BertModel), (t5, t.T5EncoderModel)):
            torch.manual_seed(2)
            model = kind(config).double().eval().to(models.DEVICE)
            for side in ("left", "right"):
                mask = padding(side)
                found = {}
                for implementation in ("plain", "attikos"):
                    model.set_attn_implementation(implementation)
                    model.zero_grad()
                    hidden = model(tokens(), attention_mask=mask).last_hidden_state[mask.bool()]
                    hidden.square().sum().backward()
                    grads = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}
                    found[implementation] = {"hidden": hidden.detach(), **grads}
                self.assertEqual(found["plain"].keys(), found["attikos"].keys())
                scale = max(x.norm().item() for n, x in found["plain"].items() if n != "hidden")
                for name, exact in found["plain"].items():
                    distance = (found["attikos"][name] - exact).norm().item()
                    limit = 1e-12 * (exact.norm().item() if name == "hidden" else scale)
                    self.assertLess(distance, limit, f"{kind.__name__} {side}: {name}")


class Generation(unittest.TestCase):
    def test_caches(self):
        """The tokens and the logits of every step, beyond the window, from prompts of three lengths."""
        mask = padding("left")
        for name in CAUSAL:
            model = build(name)
            for cache in ("dynamic", "static"):
                if (name, cache) == ("llama4", "static"):
                    continue  # this version of transformers has no static cache of chunks
                found = {}
                for implementation in ("plain", "attikos"):
                    model.set_attn_implementation(implementation)
                    found[implementation] = model.generate(
                        tokens(), attention_mask=mask, max_new_tokens=9, do_sample=False, output_logits=True,
                        return_dict_in_generate=True, cache_implementation=cache, disable_compile=True,
                    )  # fmt: skip
                what = f"{name} {cache}"
                exact, got = found["plain"], found["attikos"]
                self.assertTrue(torch.equal(exact.sequences, got.sequences), what)
                for step, (a, b) in enumerate(zip(exact.logits, got.logits)):
                    self.assertLess((a - b).norm().item(), 1e-12 * a.norm().item(), f"{what}, step {step}")

    def test_prompt_in_parts(self):
        """Chunks of a prompt into a cache that holds some already: several queries that see keys before them. Right is
        the model as it is written down on the same chunks: Llama 4, which rotates in float32, is itself 6e-8 away from
        the whole prompt in transformers 5.17."""
        for name in CAUSAL:
            model = build(name)
            for kind in (transformers.DynamicCache, lambda config: transformers.StaticCache(config, max_cache_len=32)):
                found = {}
                for implementation in ("plain", "attikos"):
                    model.set_attn_implementation(implementation)
                    cache = kind(config=model.config)
                    parts = [tokens()[:, begin:end] for begin, end in ((0, 4), (4, 9), (9, 10), (10, 19))]
                    parts = [model(part, use_cache=True, **{CACHE: cache}).logits for part in parts]
                    found[implementation] = torch.cat(parts, 1)
                distance = (found["attikos"] - found["plain"]).norm().item()
                self.assertLess(distance, 1e-12 * found["plain"].norm().item(), f"{name} {kind}")


class Masks(unittest.TestCase):
    def made(self, function, **more):
        return integration.make_mask(2, 8, 8, mask_function=function, device=models.DEVICE, **more)

    def test_what_is_recognized(self):
        """Patterns need no storage of queries times keys; what is none of them is a boolean mask."""
        zeros = torch.zeros(2, 8, dtype=int, device=models.DEVICE)
        made = self.made(masking_utils.causal_mask_function)
        self.assertEqual((made.causal, made.window, made.mask, made.lengths_kv), (True, (-1, -1), None, None))
        made = self.made(masking_utils.sliding_window_causal_mask_function(3))
        self.assertEqual((made.causal, made.window), (True, (2, -1)))
        made = self.made(masking_utils.sliding_window_bidirectional_mask_function(3), allow_is_bidirectional_skip=True)
        self.assertEqual((made.causal, made.window), (False, (3, 3)))
        made = self.made(masking_utils.chunked_causal_mask_function(4, zeros[:, 0]))
        self.assertEqual((made.causal, made.attention_chunk), (True, 4))
        for padded, name in (([1] * 5 + [0] * 3, "lengths_kv"), ([0] * 3 + [1] * 5, "mask")):
            keys = torch.tensor([[1] * 8, padded], device=models.DEVICE).bool()
            made = self.made(masking_utils.causal_mask_function, attention_mask=keys)
            self.assertLessEqual(getattr(made, name).numel(), 16)
            self.assertIsNone(getattr(made, "mask" if name == "lengths_kv" else "lengths_kv"))
        blocks = masking_utils.or_masks(
            masking_utils.causal_mask_function, masking_utils.blockwise_overlay(zeros)
        )
        for made in (
            self.made(blocks), self.made(masking_utils.chunked_causal_mask_function(4, zeros[:, 0] + 1)),
            self.made(masking_utils.causal_mask_function, allow_is_causal_skip=False),
        ):  # fmt: skip
            self.assertEqual((made.dtype, tuple(made.shape)), (torch.bool, (2, 1, 8, 8)))

    def test_masks_of_the_caller(self):
        """Four dimensions: of bools as a mask, of floats as a bias."""
        model = build("llama")
        visible = drawn(torch.rand, BATCH, 1, LENGTH, LENGTH, seed=4) < 0.5
        visible |= torch.eye(LENGTH, dtype=torch.bool, device=models.DEVICE)
        added = torch.zeros_like(visible, dtype=torch.float64).masked_fill(~visible, torch.finfo(torch.float64).min)
        soft = drawn(torch.randn, BATCH, 1, LENGTH, LENGTH, seed=4).double()
        for given, exact in ((visible, added), (added, added), (soft, soft)):
            model.set_attn_implementation("plain")
            right = model(tokens(), attention_mask=exact).logits
            model.set_attn_implementation("attikos")
            distance = (model(tokens(), attention_mask=given).logits - right).norm().item()
            self.assertLess(distance, 1e-12 * right.norm().item())

    def test_no_mask_and_two_terms(self):
        """What layers say themselves counts where there is no mask; a bias of positions is added to one of floats."""
        q, k, v = (drawn(torch.randn, 2, 4, s, 8, seed=s) for s in (5, 9, 7))
        k, v = k[:, :2], v[:, :2].repeat(1, 1, 2, 1)[:, :, :9]
        a, b = (drawn(torch.randn, 1, 4, 5, 9, seed=s) for s in (1, 2))

        def check(query, given, **oracle):
            out, _ = integration.attention(None, query, k, v, **given)
            oracle = {name: numpy_of(x) if isinstance(x, torch.Tensor) else x for name, x in oracle.items()}
            exact, bound, *_ = oracles.attention(*map(numpy_of, (query, k, v)), **oracle)
            oracles.check(self, numpy_of(out.transpose(1, 2)), exact, bound, str(given.keys()))

        check(q, {"attention_mask": None, "is_causal": True}, keep=np.tri(5, 9, dtype=bool))
        check(q, {"attention_mask": None, "is_causal": False})
        check(q[:, :, :1], {"attention_mask": None})
        check(q, {"attention_mask": a, "position_bias": b}, added=a.double() + b.double())
        check(q, {"attention_mask": a > 0, "position_bias": b}, added=b.double(), keep=a > 0)

    def test_compiled(self):
        """One graph of a model and its gradients; one for all steps over a static cache, with masks from outside."""
        model = build("gemma2")
        model.model.layers = model.model.layers[:2]  # one with a window, one without
        gradients = {}
        for implementation in ("plain", "attikos"):
            model.set_attn_implementation(implementation)
            model.zero_grad()
            torch._dynamo.reset()
            called = torch.compile(model, backend="aot_eager", fullgraph=True) if implementation == "attikos" else model
            called(tokens(), use_cache=False).logits.square().sum().backward()
            gradients[implementation] = model.model.embed_tokens.weight.grad.clone()
        distance = (gradients["attikos"] - gradients["plain"]).norm().item()
        self.assertLess(distance, 1e-12 * gradients["plain"].norm().item())
        model = build("llama").requires_grad_(False)
        model.model.layers = model.model.layers[:1]
        model.set_attn_implementation("attikos")
        torch._dynamo.reset()
        step = torch.compile(model.forward, backend="aot_eager", fullgraph=True)
        cache = transformers.StaticCache(config=model.config, max_cache_len=32)
        counted = torch._dynamo.utils.counters
        found = [model(tokens()[:, :10], **{CACHE: cache}).logits]
        counted.clear()
        for at in range(10, LENGTH):
            mask = masking_utils.create_masks_for_generate(
                model.config, torch.empty(BATCH, 1, 0, dtype=torch.float64, device=models.DEVICE), None, cache
            )
            self.assertIsInstance(mask, integration.Pattern)
            found.append(step(tokens()[:, at : at + 1], attention_mask=mask, **{CACHE: cache}).logits)
        self.assertEqual(counted["stats"]["unique_graphs"], 1)
        model.set_attn_implementation("plain")
        exact = model(tokens(), use_cache=False).logits
        self.assertLess((torch.cat(found, 1) - exact).norm().item(), 1e-12 * exact.norm().item())


class Refusals(unittest.TestCase):
    def refused(self, pattern, **given):
        q = torch.randn(1, 2, 4, 8)
        with self.assertRaisesRegex(attikos.UnsupportedError, pattern):
            integration.attention(None, q, q, q, None, is_causal=True, **given)

    def test_by_name(self):
        self.refused("dropout is 0.1; expected 0", dropout=0.1)
        self.refused("output_attentions is set", output_attentions=True)
        self.refused("block_indices is given", block_indices=torch.zeros(1))
        self.refused("cache is given", cache=object())
        q, pattern = torch.randn(1, 2, 4, 8), integration.Pattern((1, 1, 4, 4), causal=True)
        with self.assertRaisesRegex(attikos.ShapeMismatchError, "attention_mask was made for 4 and 4 positions"):
            integration.attention(None, q[:, :, :2], q, q, pattern)
        packed_ones = integration.Pattern((1, 1, 4, 4), cu_seqlens=torch.tensor([0, 4]))
        with self.assertRaisesRegex(attikos.UnsupportedError, "position_bias is given beside packed sequences"):
            integration.attention(None, q, q, q, packed_ones, position_bias=torch.zeros(1, 1, 4, 4))
        with self.assertRaisesRegex(attikos.UnsupportedError, "cu_seq_lens_q is given beside a dense attention_mask"):
            integration.attention(None, q, q, q, torch.ones(1, 1, 4, 4).bool(), cu_seq_lens_q=torch.tensor([0, 4]))

    def test_older_transformers(self):
        with mock.patch.object(masking_utils, "sdpa_mask", lambda cache_position: None):
            with self.assertRaisesRegex(attikos.UnsupportedError, "transformers is .*; expected one that makes masks from"):
                integration.register()

    def test_offsets_of_the_caller(self):
        """cu_seq_lens_q and cu_seq_lens_k without a mask, as encoders of images have it."""
        q = drawn(torch.randn, 1, 2, 9, 8, seed=1)
        offsets = torch.tensor([0, 4, 9], device=models.DEVICE)
        out, _ = integration.attention(
            None, q, q, q, None, is_causal=False, cu_seq_lens_q=offsets, cu_seq_lens_k=offsets, max_length_q=5
        )
        for begin, end in ((0, 4), (4, 9)):
            part = numpy_of(q[:, :, begin:end])
            exact, bound, *_ = oracles.attention(part, part, part)
            oracles.check(self, numpy_of(out[:, begin:end].transpose(1, 2)), exact, bound)


if __name__ == "__main__":
    unittest.main()
