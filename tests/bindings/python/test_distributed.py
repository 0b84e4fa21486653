# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attikos.distributed: descriptions of who holds what, and programs of several ranks (distributed_ranks.py)."""

import copy
import importlib.util
import itertools
import os
import pathlib
import pickle
import random
import shutil
import subprocess
import sys
import types
import unittest
from unittest import mock

import attikos
import numpy as np
from attikos.distributed import Shards
from attikos.distributed import _groups
from attikos.distributed import _shards as schedule
from attikos.distributed._plan import places_of

PROGRAM = pathlib.Path(__file__).with_name("distributed_ranks.py")


class Descriptions(unittest.TestCase):
    def test_every_position_has_one_rank(self):
        for length, ranks, granularity in itertools.product((0, 1, 5, 64, 67), (1, 2, 3, 8), (1, 4)):
            for made in (
                Shards.contiguous(length, ranks, granularity), Shards.zigzag(length, ranks, granularity),
                Shards.packed([0, length, length, 2 * length + 1], ranks, granularity=granularity),
            ):  # fmt: skip
                rows = [made.positions(r) for r in range(ranks)]
                self.assertEqual([len(x) for x in rows], [made.rows(r) for r in range(ranks)])
                np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(made.total))
                self.assertEqual(made.max_rows, max(map(len, rows)))
                np.testing.assert_array_equal(made.whole().positions(0), np.arange(made.total))

    def test_values(self):
        zigzag = Shards.zigzag(16, 2)
        np.testing.assert_array_equal(zigzag.positions(0), [0, 1, 2, 3, 12, 13, 14, 15])
        self.assertEqual(zigzag, Shards.of_pieces([16], [[(0, 0, 4), (0, 12, 16)], [(0, 4, 12)]]))
        self.assertEqual(hash(zigzag), hash(Shards.zigzag(16, 2)))
        self.assertNotEqual(zigzag, Shards.contiguous(16, 2))
        self.assertNotEqual(zigzag.fingerprint, Shards.contiguous(16, 2).fingerprint)
        self.assertNotEqual(Shards.uneven([3, 5]).fingerprint, Shards.uneven([3, 5, 0]).fingerprint)
        self.assertIn("[12, 16)", repr(zigzag))

    def test_ranks_of_a_node(self):
        shards = Shards.zigzag(21, 4)
        nodes = shards.joined(2)
        self.assertEqual(nodes.ranks, 2)
        for node in range(2):
            together, inside = nodes.positions(node), shards.within(node, 2)
            self.assertEqual(inside.total, len(together))
            self.assertEqual(list(together), sorted(together))
            for r in range(2):
                self.assertEqual(list(together[inside.positions(r)]), list(shards.positions(2 * node + r)))
        self.assertEqual(shards.joined(4).positions(0).tolist(), list(range(21)))
        with self.assertRaisesRegex(attikos.ShapeMismatchError, "4 ranks in runs of 3; expected a divisor"):
            shards.joined(3)

    def test_balanced(self):
        draw = random.Random(11)
        for ranks, causal in itertools.product((1, 2, 3, 8), (False, True)):
            for longest in (1, 50, 4000):
                lengths = [draw.randint(0, longest) for _ in range(40)]
                offsets = [0, *itertools.accumulate(lengths)]
                shards = Shards.balanced(offsets, ranks, causal, granularity=2)
                rows = [shards.positions(r) for r in range(ranks)]
                np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(shards.total))
                split = {x.sequence for r in range(ranks) for x in shards.pieces(r) if x.rows < lengths[x.sequence]}
                whole = [n for s, n in enumerate(lengths) if s not in split]
                self.assertLessEqual(max(whole, default=0), min((lengths[s] for s in split), default=longest))
                if longest == 4000:
                    held = [shards.pieces(r) for r in range(ranks)]
                    pairs = [sum(self.pairs(x, lengths[x.sequence], causal) for x in pieces) for pieces in held]
                    self.assertLessEqual(max(pairs) * ranks, 1.03 * sum(pairs))
        # As few as it takes: two of three alike stay whole.
        shards = Shards.balanced([0, 10, 20, 30], 2)
        self.assertEqual([[(x.sequence, x.begin, x.end) for x in shards.pieces(r)] for r in range(2)],
                         [[(0, 0, 5), (1, 0, 10)], [(0, 5, 10), (2, 0, 10)]])
        self.assertEqual(Shards.balanced([0, 9], 3, True), Shards.packed([0, 9], 3))
        for wrong in (([0, 4, 2], 2), ([0, 4], 0), ([], 2), ([0, 4], 2, False, 0), ([0, 4], 2, False, 1, -1.0),
                      ([0, 4], 2, False, 1, float("nan"))):  # fmt: skip
            with self.assertRaises(attikos.ShapeMismatchError):
                Shards.balanced(*wrong)

    @staticmethod
    def pairs(piece, length, causal):
        return sum(range(piece.begin + 1, piece.end + 1)) if causal else piece.rows * length

    def test_sent_to_other_processes(self):
        """Without what a rank keeps beside it, which may lie on its device."""
        shards = Shards.packed([0, 3, 17], 2)
        for _ in range(2):
            self.assertEqual(pickle.loads(pickle.dumps(shards)), shards)
            self.assertEqual(pickle.loads(pickle.dumps(shards))._places, {})
            places_of(shards, 1)
        np.testing.assert_array_equal(copy.deepcopy(shards).positions(1), shards.positions(1))

    def test_wrong_ones(self):
        for make, words in (
            (lambda: Shards.uneven([3, -1]), "-1 rows"), (lambda: Shards.uneven([]), "0 ranks"),
            (lambda: Shards.zigzag(4, 0), "0 ranks"), (lambda: Shards.packed([0, 4, 2], 2), "from 4 to 2"),
            (lambda: Shards.packed([0, 4], 2, "spiral"), "spiral"), (lambda: Shards.packed([], 2), "0 offsets"),
            (lambda: Shards.of_pieces([4], [[(0, 0, 3)], [(0, 2, 4)]]), "position 2 of sequence 0 is held twice"),
            (lambda: Shards.of_pieces([4], [[(0, 0, 3)]]), "3 of 4 positions"),
            (lambda: Shards.of_pieces([4], [[(0, 0, 5)]]), "positions [0, 5)"),
            (lambda: Shards.of_pieces([4], [[(1, 0, 4)]]), "sequence 1"),
        ):  # fmt: skip
            with self.assertRaises(attikos.ShapeMismatchError) as raised:
                make()
            self.assertIn(words, str(raised.exception))

    def test_products_see_what_the_whole_sees(self):
        """Every pair (query, key) that the mask shows is in one product of two pieces, and no other is in any."""
        draw = np.random.default_rng(5)
        for _ in range(300):
            nq, nk = (int(x) for x in draw.integers(1, 14, 2))
            window = tuple(int(x) for x in draw.integers(-1, 6, 2))
            offset = int(draw.integers(-4, 5))
            cuts = [sorted({0, n, *map(int, draw.integers(0, n + 1, 2))}) for n in (nq, nk)]
            pieces = [[schedule.Piece(0, a, b, a) for a, b in zip(c, c[1:])] for c in cuts]
            found = np.zeros((nq, nk), int)
            for q, kv in itertools.product(*pieces):
                product = schedule.product_of(q, kv, window, offset)
                if product is not None:
                    i, j = np.ogrid[: product.q_rows, : product.kv_rows]
                    seen = np.ones((product.q_rows, product.kv_rows), bool)
                    seen &= (product.left < 0) | (j >= i - product.left)
                    seen &= (product.right < 0) | (j <= i + product.right)
                    self.assertTrue(seen.any())
                    found[product.q, product.kv] += seen
            i, j = np.ogrid[:nq, :nk]
            expected = np.ones((nq, nk), bool)
            expected &= (window[0] < 0) | (j >= i + offset - window[0])
            expected &= (window[1] < 0) | (j <= i + offset + window[1])
            np.testing.assert_array_equal(found, expected, f"{nq} {nk} {window} {offset} {cuts}")

    def test_joined_products_see_the_same(self):
        """However rows are dealt out, and each pair once."""
        draw = np.random.default_rng(6)
        for _ in range(300):
            ranks = int(draw.integers(1, 4))
            make = (Shards.zigzag, Shards.contiguous)[int(draw.integers(2))]
            of_q = make(int(draw.integers(1, 40)), ranks)
            of_kv = of_q if draw.integers(2) else make(int(draw.integers(1, 40)), ranks)
            window = tuple(int(x) for x in draw.integers(-1, 9, 2)) if draw.integers(2) else (-1, 0)
            offset = int(draw.integers(-4, 5)) if draw.integers(2) else 0
            for rank, owner in itertools.product(range(ranks), repeat=2):
                found, expected = (np.zeros((of_q.rows(rank), of_kv.rows(owner)), int) for _ in range(2))
                products = [
                    schedule.product_of(q, kv, window, offset)
                    for q in of_q.pieces(rank) for kv in of_kv.pieces(owner)
                ]  # fmt: skip
                for into, some in ((expected, products), (found, schedule.joined(filter(None, products)))):
                    for p in filter(None, some):
                        i, j = np.ogrid[: p.q_rows, : p.kv_rows]
                        into[p.q, p.kv] += ((p.left < 0) | (j >= i - p.left)) & ((p.right < 0) | (j <= i + p.right))
                np.testing.assert_array_equal(found, expected, f"{of_q} {of_kv} {window} {offset} {rank} {owner}")
                self.assertTrue((found <= 1).all())

    def test_a_block_of_zigzag_shards_is_one_product(self):
        for ranks in (1, 2, 4):
            shards = Shards.zigzag(64 * ranks, ranks)
            for rank, owner in itertools.product(range(ranks), repeat=2):
                pieces = itertools.product(shards.pieces(rank), shards.pieces(owner))
                products = schedule.joined(filter(None, (schedule.product_of(*both, (-1, 0), 0) for both in pieces)))
                expected = {
                    "own": schedule.Product(0, 64, 0, 64, -1, 0), "earlier": schedule.Product(0, 64, 0, 32),
                    "later": schedule.Product(32, 32, 0, 64),
                }["own" if rank == owner else "earlier" if owner < rank else "later"]  # fmt: skip
                self.assertEqual(products, [expected])

    def test_heads_are_dealt_out_once(self):
        for kv, group, ranks in itertools.product(range(1, 6), range(1, 6), range(1, 9)):
            dealt = [schedule.heads_of(r, ranks, kv * group, kv) for r in range(ranks)]
            self.assertEqual([h for x in dealt for h in range(kv * group)[x.q]], list(range(kv * group)))
            for x in dealt:
                queries, keys = list(range(kv * group)[x.q]), list(range(kv)[x.kv])
                runs = [(q, keys[run.kv]) for run in x.runs for q in [queries[run.q]]]
                self.assertEqual([q for q, _ in runs for q in q], queries)
                for q, served in runs:  # as attention() pairs them
                    self.assertEqual(len(q) % len(served), 0)
                    size = len(q) // len(served)
                    self.assertEqual([h // group for h in q], [served[i // size] for i in range(len(q))])


class Process:
    """A process group that writes down what it is asked for, of rank 1 of 3."""

    supports_coalescing = True

    def __init__(self, fails=False):
        self.asked, self.fails = [], fails

    def _get_backend(self, device):
        return self

    def _start_coalescing(self, device):
        self.asked.append("begin")

    def _end_coalescing(self, device):
        self.asked.append("end")
        return types.SimpleNamespace(wait=lambda: self.asked.append("wait"))

    def send(self, tensors, rank, tag):
        self.asked.append(("to", rank, *(int(x[0]) for x in tensors)))
        return types.SimpleNamespace(wait=lambda: self.asked.append("sent"))

    def recv(self, tensors, rank, tag):
        if self.fails:
            raise RuntimeError("planted")
        self.asked.append(("from", rank, *(int(x[0]) for x in tensors)))
        return None


@unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
class Messages(unittest.TestCase):
    """What TorchGroup asks of a process group, NCCL's way and Gloo's."""

    def group(self, **what):
        import torch
        from torch import distributed as dist

        process = Process(**what)
        answers = {"is_initialized": True, "get_rank": 1, "get_world_size": 3, "get_backend": "nccl"}
        with mock.patch.multiple(dist, **{name: lambda *g, x=x: x for name, x in answers.items()}):
            made = _groups.group_of(process)
        arrays = [torch.full((2,), float(i)) for i in range(4)] + [torch.empty(0)]
        return process, made, arrays

    def test_one_launch(self):
        process, group, (a, b, c, d, none) = self.group()
        self.assertEqual((group.rank, group.size), (1, 3))
        begun = group.begin("op", [(2, a), (2, none), (0, b)], [(0, c), (2, none), (2, d)])
        expected = ["begin", ("to", 2, 0), ("to", 0, 1), ("from", 0, 2), ("from", 2, 3), "end"]
        self.assertEqual(process.asked, expected)
        group.finish("op", begun)
        self.assertEqual(process.asked, [*expected, "wait"])
        group.finish("op", group.begin("op", [(2, none)], []))
        self.assertEqual(process.asked, [*expected, "wait"])

    def test_one_after_the_other(self):
        process, group, (a, b, *_) = self.group()
        process.supports_coalescing = False
        group.finish("op", group.begin("op", [(2, a)], [(0, b)]))
        self.assertEqual(process.asked, [("to", 2, 0), ("from", 0, 1), "sent"])

    def test_what_fails(self):
        _, group, (a, b, *_) = self.group(fails=True)
        with self.assertRaisesRegex(attikos.CommunicationError, "attikos.op: a message failed: planted") as raised:
            group.begin("op", [(2, a)], [(0, b)])
        self.assertIsInstance(raised.exception.__cause__, RuntimeError)


def launched(command):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_PROC_BIND": "false"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    return done.returncode, done.stdout + done.stderr


def several_gpus():
    if not (attikos.has_cuda() and importlib.util.find_spec("torch")):
        return False
    import torch

    return torch.cuda.device_count() > 1


class Ranks(unittest.TestCase):
    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_process_groups(self):
        for ranks in (1, 2, 4):
            code, said = launched([sys.executable, str(PROGRAM), "torch", str(ranks)])
            self.assertEqual(code, 0, said)
            self.assertIn(f"ranks {ranks}", said)

    @unittest.skipUnless(several_gpus(), "there are not two GPUs, or the build has no CUDA")
    def test_gpus(self):
        code, said = launched([sys.executable, str(PROGRAM), "nccl", "2"])
        self.assertEqual(code, 0, said)
        self.assertIn("ranks 2", said)

    @unittest.skipUnless(
        importlib.util.find_spec("mpi4py") and shutil.which("mpiexec.openmpi"), "mpi4py or Open MPI is not installed"
    )
    def test_mpi(self):
        launch = ["mpiexec.openmpi", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        for ranks in (2, 3):
            code, said = launched([*launch, "-n", str(ranks), sys.executable, str(PROGRAM), "mpi"])
            self.assertEqual(code, 0, said)
            self.assertIn(f"ranks {ranks}", said)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_without_a_group(self):
        from attikos import distributed

        x = np.ones((1, 1, 4, 8), np.float32)
        with self.assertRaisesRegex(attikos.ArgumentError, "init_process_group"):
            distributed.attention(x, x, x, Shards.contiguous(4, 1))


if __name__ == "__main__":
    unittest.main()
