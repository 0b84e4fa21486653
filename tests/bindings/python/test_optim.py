# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""adamw_step against float64, and attikos.optim.AdamW beside PyTorch's."""

import copy
import importlib.util
import io
import unittest

import attikos
import ml_dtypes
import numpy as np
import oracles

if importlib.util.find_spec("torch"):
    import torch
else:
    torch = None

BF16 = ml_dtypes.bfloat16


def drawn(dtype, shape=(5, 7), gradient=None, seed=0):
    """parameter, gradient, exp_avg and exp_avg_sq."""
    draw, wide = np.random.default_rng(seed), oracles.accumulator(dtype)
    w, g, m = (np.asarray(draw.standard_normal(shape)) for _ in range(3))
    v = np.asarray(draw.random(shape))
    return w.astype(dtype), g.astype(gradient or dtype), np.asarray(0.1 * m).astype(wide), v.astype(wide)


def exact_step(
    w, g, m, v, step, learning_rate=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=1e-2, gradient_scale=1.0
):
    w, g, m, v = (oracles.wide(x) for x in (w, g, m, v))
    g = gradient_scale * g
    m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
    divisor = np.sqrt(v / (1 - beta2**step)) + eps
    quotient = m / (1 - beta1**step) / divisor
    return w - learning_rate * weight_decay * w - learning_rate * quotient, m, v, quotient


def bounds(u, w, g, m, v, after, learning_rate, gradient_scale=1.0, **more):
    """Errors of weight and moments (tests/parity/test_adamw.cpp), where no difference of v is near its own size."""
    w, g, m, v = (np.abs(oracles.wide(x)) for x in (w, g, m, v))
    g = np.abs(gradient_scale) * g
    of_m, of_v = u * (4 * (m + g) + np.abs(after[1])), u * (6 * (v + g * g) + after[2])
    share = of_m / np.maximum(np.abs(after[1]), 1e-30) + of_v / after[2] + 8 * u
    return u * (3.1 * w + np.abs(after[0])) + learning_rate * np.abs(after[3]) * share + 1e-37, of_m, of_v


class Arrays(unittest.TestCase):
    def test_steps(self):
        settings = (
            dict(learning_rate=1e-3),
            dict(learning_rate=0.2, beta1=0.0, beta2=0.5, eps=1e-2, weight_decay=0.3, gradient_scale=0.5),
        )  # fmt: skip
        for dtype in oracles.FLOATING:
            for gradient in {dtype, np.float32 if np.dtype(dtype).itemsize == 2 else dtype}:
                for with_master in (False, True):
                    for step, more in ((1, settings[0]), (9, settings[0]), (2, settings[1])):
                        w, g, m, v = drawn(dtype, gradient=gradient, seed=step)
                        wide = oracles.accumulator(dtype)
                        master = w.astype(wide) * wide(1.01) if with_master else None
                        before = [w.copy() if master is None else master.copy(), g.copy(), m.copy(), v.copy()]
                        after = exact_step(*before, step, **more)
                        errors = bounds(oracles.unit(wide), *before, after, **more)
                        if with_master:
                            w[...] = np.nan  # not read
                        attikos.adamw_step(w, g, m, v, step, master=master, **more)
                        what = f"{dtype} {gradient} {with_master} {more}"
                        factor = 2 if dtype == np.float64 else 1
                        oracles.check(self, m, after[1], factor * errors[1], what)
                        oracles.check(self, v, after[2], factor * errors[2], what)
                        if with_master:
                            oracles.check(self, master, after[0], factor * errors[0], what)
                            self.assertEqual(w.tobytes(), master.astype(dtype).tobytes())
                        else:
                            oracles.check(self, w, after[0], oracles.stored(after[0], errors[0], dtype), what)
                        self.assertEqual(g.tobytes(), before[1].tobytes())

    def test_lists_and_strides(self):
        """The same bits together, and in memory of any order."""
        kinds = ((np.float32, (3, 4)), (BF16, (70,)), (np.float64, (2, 1, 5)), (BF16, (0, 3)), (np.float16, ()))
        alone = [drawn(dtype, shape, seed=i) for i, (dtype, shape) in enumerate(kinds)]
        together = [[np.array(np.copy(x, order="F")) for x in arrays] for arrays in alone]
        together[0] = [np.ascontiguousarray(x.T).T if i % 2 else x for i, x in enumerate(together[0])]
        masters = [None if i % 2 == 0 else np.asarray(x[0].astype(np.float32)) for i, x in enumerate(alone)]
        copies = [None if x is None else x.copy() for x in masters]
        for arrays, master in zip(alone, masters):
            attikos.adamw_step(*arrays, 4, master=master)
        attikos.adamw_step(*map(list, zip(*together)), 4, master=copies)
        for one, other in zip(alone, together):
            for x, y in zip(one, other):
                self.assertEqual(np.ascontiguousarray(x).tobytes(), np.ascontiguousarray(y).tobytes())
        attikos.adamw_step([], [], [], [], 1)

    def test_wrong_arguments(self):
        w, g, m, v = drawn(np.float32)
        before = [x.copy() for x in (w, g, m, v)]
        step = attikos.adamw_step
        frozen = w.copy()
        frozen.flags.writeable = False
        for call, kind, words in (
            (lambda: step(w, g[:3], m, v, 1), attikos.ShapeMismatchError, "gradient is [3, 7]"),
            (lambda: step(w, g, m.astype(np.float64), v, 1), attikos.UnsupportedDtypeError, "exp_avg is"),
            (lambda: step(w.astype(np.int32), g, m, v, 1), attikos.UnsupportedDtypeError, "parameter is"),
            (lambda: step(w, g, m, v, 0), attikos.ArgumentError, "step is 0"),
            (lambda: step(w, g, m, v, 1, beta2=1.0), attikos.ArgumentError, "beta2 is 1"),
            (lambda: step(w, g, m, v, 1, eps=-1.0), attikos.ArgumentError, "eps is -1"),
            (lambda: step(w, g, m, v, 1, learning_rate=np.nan), attikos.ArgumentError, "learning_rate is nan"),
            (lambda: step(w, g, m, m, 1), attikos.ArgumentError, "exp_avg_sq"),
            (lambda: step(w, w, m, v, 1), attikos.ArgumentError, "gradient"),
            (lambda: step(frozen, g, m, v, 1), attikos.ArgumentError, "parameter is read-only"),
            (lambda: step([w], g, [m], [v], 1), attikos.ArgumentError, "gradient is a ndarray"),
            (lambda: step([w], [g, g], [m], [v], 1), attikos.ArgumentError, "gradient is 2 arrays"),
            (lambda: step([w, w[:2].copy()], [g, g], [m, m[:2].copy()], [v, v[:2].copy()], 1),
             attikos.ShapeMismatchError, "parameters[1]"),
        ):  # fmt: skip
            with self.assertRaises(kind) as raised:
                call()
            self.assertIn("attikos.adamw_step: ", str(raised.exception))
            self.assertIn(words, str(raised.exception))
        for x, y in zip((w, g, m, v), before):
            self.assertEqual(x.tobytes(), y.tobytes())
        self.assertEqual(attikos.explain("adamw_step", w, g, m, v, 1), "runs portable")
        self.assertEqual(w.tobytes(), before[0].tobytes())


@unittest.skipUnless(torch, "PyTorch is not installed")
class Tensors(unittest.TestCase):
    def model(self, dtype, seed=0):
        torch.manual_seed(seed)
        return [torch.nn.Parameter(torch.randn(shape).to(dtype)) for shape in ((4, 6), (6,), (2, 3, 3, 3), ())]

    def train(self, parameters, optimizer, steps, seed=5, dtype=None):
        """Gradients between 1/2 and 1 in size, the same for every dtype."""
        draw = torch.Generator().manual_seed(seed)
        for _ in range(steps):
            for x in parameters:
                g = (torch.rand(x.shape, generator=draw) / 2 + 0.5) * (
                    torch.randint(2, x.shape, generator=draw) * 2 - 1
                )
                x.grad = g.to(dtype or x.dtype).to(x.dtype)
            optimizer.step()

    def test_beside_pytorch(self):
        """Each step adds some hundred roundings of a quotient that is at most 3.2 (Kingma and Ba, section 2.1)."""
        for dtype in (torch.float32, torch.float64):
            for more in ({}, dict(lr=0.05, betas=(0.5, 0.9), eps=1e-4, weight_decay=0.1), dict(maximize=True)):
                theirs, mine = self.model(dtype), self.model(dtype)
                if dtype == torch.float32:
                    theirs = [torch.nn.Parameter(x.detach().double()) for x in theirs]
                self.train(theirs, torch.optim.AdamW(theirs, **more), 40, dtype=torch.float32)
                self.train(mine, attikos.optim.AdamW(mine, **more), 40, dtype=torch.float32)
                u, lr = torch.finfo(dtype).eps, more.get("lr", 1e-3)
                for x, y in zip(theirs, mine):
                    bound = 40 * u * (4 * x.abs().max() + 300 * lr)
                    self.assertLess((x.double() - y.double()).abs().max().item(), bound.item())

    def test_master_weights(self):
        for dtype in (torch.bfloat16, torch.float16):
            mine = self.model(dtype)
            exact = [torch.nn.Parameter(x.detach().double()) for x in mine]
            optimizer = attikos.optim.AdamW(mine, lr=1e-4)
            self.train(mine, optimizer, 30)
            self.train(exact, torch.optim.AdamW(exact, lr=1e-4), 30, dtype=dtype)
            for x, y in zip(mine, exact):
                master = optimizer.state[x]["master"]
                self.assertEqual(master.dtype, torch.float32)
                self.assertTrue(torch.equal(master.to(dtype), x.detach()))
                self.assertLess((master.double() - y).abs().max(), 30 * 2**-23 * (4 * y.abs().max() + 300 * 1e-4))
            x = mine[0]
            kept = optimizer.state[x]["master"].clone()
            with torch.no_grad():
                x[0, 0] = 3  # somebody else's: taken anew, and nothing else is
            x.grad = torch.zeros_like(x)
            optimizer.param_groups[0].update(lr=0.0)
            optimizer.step()
            self.assertEqual(optimizer.state[x]["master"][0, 0], 3)
            self.assertTrue(torch.equal(optimizer.state[x]["master"].flatten()[1:], kept.flatten()[1:]))
            plain = attikos.optim.AdamW(self.model(dtype), master_weights=False)
            self.train(plain.param_groups[0]["params"], plain, 2)
            plain = copy.deepcopy(plain)
            self.train(plain.param_groups[0]["params"], plain, 1)
            self.assertNotIn("master", plain.state[plain.param_groups[0]["params"][0]])

    def test_state_dict(self):
        """Ours resumes bit for bit; of PyTorch's and back."""
        for dtype in (torch.float32, torch.bfloat16):
            whole, half = self.model(dtype), self.model(dtype)
            through, first = attikos.optim.AdamW(whole), attikos.optim.AdamW(half)
            for optimizer, parameters in ((through, whole), (first, half)):
                self.train(parameters, optimizer, 5)
            saved = io.BytesIO()
            torch.save((half, first.state_dict()), saved)
            saved.seek(0)
            half, state = torch.load(saved, weights_only=False)
            second = attikos.optim.AdamW(half, lr=0.7)
            second.load_state_dict(state)
            for optimizer, parameters in ((through, whole), (second, half)):
                self.train(parameters, optimizer, 5, seed=6)
            for x, y in zip(whole, half):
                self.assertTrue(torch.equal(x, y))
                for name, value in through.state[x].items():
                    self.assertTrue(torch.equal(value, second.state[y][name]), name)
        theirs = self.model(torch.float32)
        optimizer = torch.optim.AdamW(theirs, lr=0.01)
        self.train(theirs, optimizer, 3)
        mine = [torch.nn.Parameter(x.detach().clone()) for x in theirs]
        ours = attikos.optim.AdamW(mine)
        ours.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        self.assertEqual(ours.param_groups[0]["lr"], 0.01)
        back = torch.optim.AdamW(theirs)
        back.load_state_dict(copy.deepcopy(ours.state_dict()))
        for o, p in ((ours, mine), (back, theirs)):
            self.train(p, o, 3, seed=8)
        for x, y in zip(theirs, mine):
            torch.testing.assert_close(x, y, rtol=1e-5, atol=1e-6)

    def test_groups_and_schedules(self):
        theirs, mine = self.model(torch.float64), self.model(torch.float64)
        made = []
        for kind, p in ((torch.optim.AdamW, theirs), (attikos.optim.AdamW, mine)):
            optimizer = kind([{"params": p[:1], "weight_decay": 0.5}, {"params": p[1:], "lr": 0.1}], lr=0.01)
            schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
            for _ in range(3):
                self.train(p, optimizer, 1)
                schedule.step()
            p[1].grad = None  # stays what it is
            before = p[1].detach().clone()
            loss = optimizer.step(lambda: torch.tensor(3.0))
            self.assertEqual(loss, 3.0)
            self.assertTrue(torch.equal(p[1], before))
            made.append(optimizer)
        for x, y in zip(theirs, mine):
            torch.testing.assert_close(x, y, rtol=1e-12, atol=1e-13)
        scaled = self.model(torch.float64)
        optimizer = attikos.optim.AdamW(scaled)
        for x in scaled:
            x.grad = torch.full_like(x, 8.0)
        optimizer.step(gradient_scale=0.25)
        self.assertTrue(torch.allclose(optimizer.state[scaled[0]]["exp_avg"], torch.tensor(0.2, dtype=torch.float64)))

    def test_refused(self):
        p = torch.nn.Parameter(torch.ones(3))
        optimizer = attikos.optim.AdamW([p])
        p.grad = torch.eye(3).to_sparse()[0]
        with self.assertRaisesRegex(attikos.UnsupportedError, "sparse"):
            optimizer.step()
        p.grad = torch.ones(3)
        for name in ("amsgrad", "capturable", "differentiable"):
            optimizer.param_groups[0][name] = True
            with self.assertRaisesRegex(attikos.UnsupportedError, name):
                optimizer.step()
            optimizer.param_groups[0][name] = False
        self.assertTrue(torch.equal(p, torch.ones(3)))
        with self.assertRaisesRegex(attikos.UnsupportedError, "parameter requires a gradient"):
            attikos.adamw_step(p, p.grad, torch.zeros(3), torch.zeros(3), 1)
        version = p._version
        with torch.no_grad():
            attikos.adamw_step(p, p.grad, torch.zeros(3), torch.zeros(3), 1)
        self.assertGreater(p._version, version)


if __name__ == "__main__":
    unittest.main()
