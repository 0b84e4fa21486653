# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""embedding, which is exact, its gradient against float64, and attikos.nn.Embedding beside PyTorch's."""

import importlib.util
import itertools
import unittest

import attikos
import numpy as np
import oracles
import torch_compiler

if importlib.util.find_spec("torch"):
    import torch
else:
    torch = None


def drawn(rows, width, shape, dtype, id_dtype=np.int64, seed=0):
    """A table, ids, and a row for each of them."""
    draw = np.random.default_rng(seed)
    table = draw.standard_normal((rows, width)).astype(dtype)
    return table, draw.integers(0, rows, shape).astype(id_dtype), draw.standard_normal((*shape, width)).astype(dtype)


def exact_gradient(ids, dout, rows, padding=None, beta=0.0, before=None):
    """The sums, and the bounds of them (tests/parity/test_embedding.cpp)."""
    u = oracles.unit(oracles.accumulator(dout.dtype))
    d, to = oracles.wide(dout).reshape(-1, dout.shape[-1]), ids.reshape(-1)
    kept = (to >= 0) & (to < rows) & (to != (-1 if padding is None else padding))
    sums, magnitude, terms = (np.zeros((rows, n)) for n in (d.shape[1], d.shape[1], 1))
    np.add.at(sums, to[kept], d[kept])
    np.add.at(magnitude, to[kept], np.abs(d[kept]))
    np.add.at(terms, to[kept], 1)
    held = 0 if beta == 0 else beta * oracles.wide(before)
    error = np.where(terms > 1, np.vectorize(oracles.growth)(terms) * u * magnitude, 0)
    error = error + (0 if beta == 0 else 2 * u * (magnitude + np.abs(held)))
    return sums + held, error


class Arrays(unittest.TestCase):
    def test_rows(self):
        for dtype, id_dtype, shape in itertools.product(
            oracles.FLOATING, (np.int32, np.int64), ((7,), (2, 3), (2, 3, 4), (0,), (3, 0), ())
        ):
            table, ids, _ = drawn(11, 19, shape, dtype, id_dtype)
            want = table[ids]
            got = attikos.embedding(table, ids)
            self.assertEqual((got.shape, got.dtype), (want.shape, want.dtype))
            self.assertEqual(got.tobytes(), want.tobytes())
            wide = np.full((*want.shape[:-1], 2 * want.shape[-1]), 3, dtype)
            self.assertIs(attikos.embedding(table, ids, padding_idx=-1, out=wide[..., ::2]).base, wide)
            self.assertEqual(wide[..., ::2].tobytes(), want.tobytes())
            self.assertTrue((oracles.wide(wide[..., 1::2]) == 3).all())

    def test_ids_of_other_kinds_and_strides(self):
        table, ids, _ = drawn(9, 8, (2, 3, 4), np.float32)
        want = table[ids]
        for kind in (np.int8, np.int16, np.uint8, np.uint64):
            np.testing.assert_array_equal(attikos.embedding(table, ids.astype(kind)), want)
        np.testing.assert_array_equal(attikos.embedding(table, ids.tolist()), want)
        np.testing.assert_array_equal(attikos.embedding(table, ids.T), want.transpose(2, 1, 0, 3))
        np.testing.assert_array_equal(
            attikos.embedding(table[:, ::-1], ids[0].T), want[0].transpose(1, 0, 2)[..., ::-1]
        )
        np.testing.assert_array_equal(attikos.embedding(np.asfortranarray(table), ids), want)

    def test_gradients(self):
        for dtype, (rows, shape), padding in itertools.product(
            oracles.FLOATING, ((5, (300,)), (40, (2, 33)), (700, (3, 2, 5)), (4, ())), (None, 2, -1)
        ):
            _, ids, dout = drawn(rows, 21, shape, dtype, seed=rows)
            index = None if padding is None else padding % rows
            exact, error = exact_gradient(ids, dout, rows, index)
            got = attikos.embedding_backward(ids, dout, rows, padding_idx=padding)
            self.assertEqual((got.shape, got.dtype), ((rows, 21), dtype))
            oracles.check(self, got, exact, oracles.stored(exact, error, dtype), f"{dtype} {rows} {padding}")
            if index is not None:
                self.assertFalse(oracles.wide(got[index]).any())
            wide = np.full((rows, 21), 0.5, oracles.accumulator(dtype))
            before = wide.copy()
            exact, error = exact_gradient(ids, dout, rows, index, 2.0, wide)
            self.assertIs(attikos.embedding_backward(ids, dout, rows, padding_idx=padding, beta=2.0, dtable=wide), wide)
            oracles.check(self, wide, exact, oracles.stored(exact, error, wide.dtype), f"{dtype} {rows} {padding}")
            if index is not None:  # what was there, and no more
                np.testing.assert_array_equal(wide[index], 2 * before[index])

    def test_gradients_of_strides(self):
        _, ids, dout = drawn(6, 8, (2, 3, 4), np.float32)
        want = attikos.embedding_backward(ids, dout, 6)
        turned = np.ascontiguousarray(dout.transpose(3, 0, 1, 2)).transpose(1, 2, 3, 0)
        np.testing.assert_array_equal(attikos.embedding_backward(ids, turned, 6), want)
        np.testing.assert_array_equal(
            attikos.embedding_backward(ids[0], np.broadcast_to(dout[0, 0, 0], (3, 4, 8)), 6),
            attikos.embedding_backward(ids[0], np.tile(dout[0, 0, 0], (3, 4, 1)), 6),
        )

    def test_ids_that_are_no_row(self):
        table, _, dout = drawn(5, 6, (5,), np.float32)
        ids = np.array([4, 5, -1, 2**40, 0])
        out = attikos.embedding(table, ids)
        np.testing.assert_array_equal(np.isnan(out).all(-1), [False, True, True, True, False])
        np.testing.assert_array_equal(out[[0, 4]], table[[4, 0]])
        sums = attikos.embedding_backward(ids, dout, 5)
        np.testing.assert_array_equal(sums[[4, 0]], dout[[0, 4]])
        self.assertFalse(sums[1:4].any())

    def test_wrong_arguments(self):
        table, ids, dout = drawn(5, 6, (4,), np.float32)
        forward, backward = attikos.embedding, attikos.embedding_backward
        for call, kind, words in (
            (lambda: forward(table[0], ids), attikos.ShapeMismatchError, "rows, width"),
            (lambda: forward(table, table), attikos.IntegerError, "ids is"),
            (lambda: forward(table.astype(np.int32), ids), attikos.UnsupportedDtypeError, "table is"),
            (lambda: forward(table, ids, padding_idx=5), attikos.ArgumentError, "padding_idx is 5"),
            (lambda: forward(table, ids, padding_idx=-6), attikos.ArgumentError, "padding_idx is -6"),
            (lambda: forward(table, ids, padding_idx=1.5), attikos.ArgumentError, "padding_idx"),
            (lambda: forward(table, ids, out=dout[:3]), attikos.ShapeMismatchError, "out is"),
            (lambda: backward(ids, dout[:3], 5), attikos.ShapeMismatchError, "dout is"),
            (lambda: backward(ids, dout[0], 5), attikos.ShapeMismatchError, "dout is"),
            (lambda: backward(ids, dout, -1), attikos.ArgumentError, "rows"),
            (lambda: backward(ids, dout, 5, beta=1.0), attikos.ArgumentError, "without dtable"),
            (lambda: backward(ids, dout, 5, beta=np.inf, dtable=table), attikos.ArgumentError, "beta is inf"),
            (lambda: backward(ids, dout, 4, dtable=table), attikos.ShapeMismatchError, "dtable is"),
            (lambda: backward(ids, dout, 4, dtable=dout), attikos.Error, "dtable"),
            (lambda: backward(ids, dout, 5, dtable=table.astype(np.float16)), attikos.UnsupportedDtypeError, "dtable is"),
        ):  # fmt: skip
            with self.assertRaises(kind) as raised:
                call()
            self.assertIn(words, str(raised.exception))
        self.assertEqual(attikos.explain("embedding", table, ids), "runs portable")
        self.assertEqual(attikos.explain("embedding_backward", ids, dout, 5), "runs portable")


@unittest.skipUnless(torch, "PyTorch is not installed")
class Tensors(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch_compiler.load()

    def given(self, dtype=torch and torch.float32):
        table, ids, dout = (torch.from_numpy(x) for x in drawn(13, 10, (3, 40), np.float64, seed=4))
        return table.to(dtype), ids, dout.to(dtype)

    def test_gradients(self):
        for dtype, padding, id_dtype in itertools.product(
            (torch.float64, torch.float32, torch.bfloat16, torch.float16), (None, 3, -2), (torch.int64, torch.int32)
        ):
            table, ids, dout = self.given(dtype)
            theirs, mine = (x.clone().requires_grad_() for x in (table.double(), table))
            exact = torch.nn.functional.embedding(ids, theirs, padding)
            found = attikos.embedding(mine, ids.to(id_dtype), padding_idx=padding)
            self.assertTrue(torch.equal(found.double(), exact))
            exact.backward(dout.double())
            found.backward(dout)
            self.assertEqual(mine.grad.dtype, dtype)
            unit = torch.finfo(dtype).eps
            bound = unit * theirs.grad.abs() + 120 * min(unit, 2**-23) * dout.double().abs().max()
            self.assertTrue(((mine.grad.double() - theirs.grad).abs() <= bound).all())
            if padding is not None:
                self.assertFalse(mine.grad[padding].any())
            again = torch.autograd.grad(attikos.embedding(mine, ids, padding_idx=padding), mine, dout)[0]
            self.assertTrue(torch.equal(again, mine.grad))

    def test_gradients_that_lie_otherwise(self):
        """One number for all, and ids of four dimensions whose gradient is turned."""
        table, ids, _ = self.given()
        leaf = table.requires_grad_()
        attikos.embedding(leaf, ids).sum().backward()
        self.assertTrue(
            torch.equal(leaf.grad, torch.bincount(ids.flatten(), minlength=13)[:, None].expand(13, 10).float())
        )
        many = ids.reshape(3, 2, 4, 5)
        direction = torch.randn(10, 5, 4, 2, 3).permute(4, 3, 2, 1, 0)
        found, exact = (
            torch.autograd.grad(f(leaf), leaf, direction)[0]
            for f in (lambda t: attikos.embedding(t, many), lambda t: torch.nn.functional.embedding(many, t))
        )
        torch.testing.assert_close(found, exact)

    def test_graphs_and_transforms(self):
        table, ids, dout = self.given()

        def total(table, ids):
            return (attikos.embedding(table, ids, padding_idx=2) * dout[: ids.shape[0]]).sum()

        eager = torch.func.grad(lambda t: (torch.nn.functional.embedding(ids, t, 2) * dout).sum())(table)
        leaf = table.clone().requires_grad_()
        total(leaf, ids).backward()
        torch.testing.assert_close(leaf.grad, eager)
        traced = table.clone().requires_grad_()
        torch.compile(total, fullgraph=True, backend="aot_eager")(traced, ids).backward()
        self.assertTrue(torch.equal(traced.grad, leaf.grad))
        self.assertTrue(torch.equal(torch.func.grad(total)(table, ids), leaf.grad))
        for dims, tables in (((None, 0), table), ((0, 0), torch.stack([table, table + 1, table + 2]))):
            many = torch.func.vmap(attikos.embedding, dims)(tables, ids)
            one = torch.stack([attikos.embedding(tables if dims[0] is None else tables[i], ids[i]) for i in range(3)])
            self.assertTrue(torch.equal(many, one))
        per_sample = torch.func.vmap(torch.func.grad(lambda t, i, d: (attikos.embedding(t, i) * d).sum()), (None, 0, 0))
        found = per_sample(table, ids, dout)
        for i in range(3):
            self.assertTrue(torch.equal(found[i], attikos.embedding_backward(ids[i], dout[i], 13)))
        with torch.autocast("cpu", torch.bfloat16):  # rows are copied, of the table's type
            self.assertTrue(torch.equal(attikos.embedding(table, ids), attikos.embedding(table, ids)))
            self.assertEqual(attikos.embedding(table, ids).dtype, torch.float32)
        twice = torch.autograd.grad((attikos.embedding(leaf, ids) ** 2).sum(), leaf, create_graph=True)[0]
        with self.assertRaisesRegex(attikos.UnsupportedError, "second derivatives"):
            twice.sum().backward()
        with self.assertRaisesRegex(attikos.UnsupportedError, "requires a gradient"):
            attikos.embedding(leaf, ids, out=torch.empty(3, 40, 10))
        told = attikos.explain("embedding", leaf, ids)
        self.assertEqual(told, "runs portable\ngradients: runs portable")

    def test_module(self):
        torch.manual_seed(3)
        for padding in (None, 2, -1):
            theirs = torch.nn.Embedding(9, 6, padding_idx=padding)
            mine = attikos.nn.Embedding(9, 6, padding_idx=padding)
            mine.load_state_dict(theirs.state_dict())
            ids = torch.randint(9, (4, 7))
            found, exact = mine(ids), theirs(ids)
            self.assertTrue(torch.equal(found, exact))
            direction = torch.randn(found.shape)
            found.backward(direction), exact.backward(direction)
            torch.testing.assert_close(mine.weight.grad, theirs.weight.grad)
        for more in (dict(max_norm=1.0), dict(scale_grad_by_freq=True), dict(sparse=True)):
            theirs, mine = torch.nn.Embedding(9, 6, **more), attikos.nn.Embedding(9, 6, **more)
            mine.load_state_dict(theirs.state_dict())
            found, exact = mine(ids), theirs(ids)
            self.assertTrue(torch.equal(found, exact))
            found.sum().backward(), exact.sum().backward()
            self.assertTrue(torch.equal(mine.weight.grad.to_dense(), theirs.weight.grad.to_dense()))

    def test_patch(self):
        class Own(torch.nn.Embedding):
            pass

        model = torch.nn.ModuleDict(
            {"words": torch.nn.Embedding(9, 6), "own": Own(9, 6), "sparse": torch.nn.Embedding(9, 6, sparse=True),
             "limited": torch.nn.Embedding(9, 6, max_norm=1.0),
             "scaled": torch.nn.Embedding(9, 6, scale_grad_by_freq=True)}
        )  # fmt: skip
        told = {change.name: change for change in attikos.patch(model)}
        self.assertEqual(told["words"].became, "attikos.nn.Embedding")
        self.assertIs(type(model["words"]), attikos.nn.Embedding)
        for name, word in {
            "own": "subclass", "sparse": "sparse", "limited": "max_norm", "scaled": "scale_grad_by_freq"
        }.items():  # fmt: skip
            self.assertIn(word, told[name].reason)
        self.assertFalse([change for change in attikos.patch(model) if change.became])


if __name__ == "__main__":
    unittest.main()
