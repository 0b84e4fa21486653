# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The messages of PeerGroup without GPUs: queues are threads of this process, and the memory that ranks share is its
own. What GPUs do is in distributed_ranks.py, which wants some."""

import ctypes
import itertools
import queue
import random
import threading
import time
import unittest
from unittest import mock

import attikos
import numpy as np
from attikos.distributed import _mailboxes, _peers
from attikos.distributed._mailboxes import Mailboxes, bytes_of_box, initial_flags, least_bytes

SECONDS = 60  # that anything here may take


class Worker:
    """Does one thing after the other."""

    def __init__(self):
        self._work = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            self._work.get()()

    def put(self, work):
        self._work.put(work)


class HostQueues:
    """shared: the caller's queue and both others are one channel to the device, which waits where any of them does."""

    def __init__(self, shared):
        self.caller = Worker()
        self._own = [self.caller, self.caller] if shared else [Worker(), Worker()]

    def fork(self):
        here = threading.Event()
        self.caller.put(here.set)
        for worker in self._own:
            worker.put(here.wait)

    def flag(self, address):
        return ctypes.c_uint32.from_address(address)

    def move(self, number, taken, to, source, size, given):
        def work():
            while taken.value != 1:
                time.sleep(0)
            taken.value = 0
            ctypes.memmove(to, source, size)
            assert given.value == 0
            given.value = 1

        self._own[number].put(work)

    def join(self):
        found = [threading.Event() for _ in self._own]
        for worker, done in zip(self._own, found):
            worker.put(done.set)
        return found

    def wait(self, joined):
        for done in joined:
            self.caller.put(done.wait)


def ranks_of_hosts(count, buffer_bytes, shared):
    """For each rank its queues and its messages, and the memory of all."""
    memory = [np.full(buffer_bytes + 4096, 0xAB, np.uint8) for _ in range(count)]
    addresses = []
    for x in memory:
        begin = -x.ctypes.data % 4096
        for offset, flags, value in initial_flags(count):
            x[begin + offset : begin + offset + 4 * flags].view(np.uint32)[:] = value
        addresses.append(x.ctypes.data + begin)
    queues = [HostQueues(shared) for _ in range(count)]
    box = bytes_of_box(buffer_bytes, count)
    return queues, [Mailboxes(r, queues[r], addresses, box) for r in range(count)], memory


def drawn(draw, ranks, box):
    """Of each pair of ranks some sizes of messages."""

    def size():
        return draw.choice((0, 1, 7, box - 1, box, box + 1, draw.randint(1, 6 * box)))

    pairs = itertools.permutations(range(ranks), 2)
    return {pair: [size() for _ in range(draw.randint(0, 3))] for pair in pairs}


class Messages(unittest.TestCase):
    def exchange(self, seed, ranks, shared, rounds=4):
        draw, values = random.Random(seed), np.random.default_rng(seed)
        queues, boxes, memory = ranks_of_hosts(ranks, least_bytes(ranks), shared)
        box = bytes_of_box(least_bytes(ranks), ranks)
        self.assertEqual(box, 4096)
        kept, pairs, begun = [memory], [], [[] for _ in range(ranks)]
        for _ in range(rounds):
            sizes = drawn(draw, ranks, box)
            sent = {pair: [np.zeros(n, np.uint8) for n in some] for pair, some in sizes.items()}
            found = {pair: [np.full(n, 0xCD, np.uint8) for n in some] for pair, some in sizes.items()}
            for rank in draw.sample(range(ranks), ranks):
                for (a, _), some in sent.items():
                    for x in some if a == rank else ():  # values that are there only when the queue comes to it
                        y = values.integers(0, 256, x.size, np.uint8)
                        queues[rank].caller.put(lambda x=x, y=y: x.__setitem__(..., y))
                sends = [(b, x.ctypes.data, x.size) for (a, b), some in sent.items() if a == rank for x in some]
                receives = [(a, x.ctypes.data, x.size) for (a, b), some in found.items() if b == rank for x in some]
                begun[rank].append(boxes[rank].begin(sends, receives))
                if draw.random() < 0.5:  # others stay under way beside the next ones
                    for one in begun[rank]:
                        boxes[rank].finish(one)
                    begun[rank].clear()
            pairs += [(x, y) for pair in sizes for x, y in zip(sent[pair], found[pair])]
            kept.append((sent, found))
        for rank in range(ranks):
            for one in begun[rank]:
                boxes[rank].finish(one)
            done = threading.Event()
            queues[rank].caller.put(done.set)
            self.assertTrue(done.wait(SECONDS), f"seed {seed}: rank {rank} of {ranks} waits for ever")
        for x, y in pairs:
            np.testing.assert_array_equal(y, x, err_msg=f"seed {seed}, {ranks} ranks")
        # Boxes are as they were.
        for x in memory:
            begin = -x.ctypes.data % 4096
            for offset, flags, value in initial_flags(ranks):
                lines = x[begin + offset : begin + offset + 4 * flags].view(np.uint32)
                self.assertTrue((lines == value).all(), (seed, ranks))

    def test_any_sizes_in_queues_of_their_own(self):
        for seed, ranks in enumerate((2, 3, 4, 5, 8)):
            self.exchange(seed, ranks, shared=False)

    def test_nobody_waits_for_ever_where_all_queues_are_one(self):
        for seed, ranks in enumerate((2, 2, 2, 3, 4, 5, 8), 100):
            self.exchange(seed, ranks, shared=True)

    def test_memory(self):
        for ranks in (2, 3, 8, 72):
            least = least_bytes(ranks)
            self.assertEqual(bytes_of_box(least, ranks), 4096)
            self.assertEqual(bytes_of_box(least - 1, ranks), 0)
            used = sum(4 * count for _, count, _ in initial_flags(ranks))
            self.assertLessEqual(used + (ranks - 1) * _mailboxes.BOXES * 4096, least)
        self.assertEqual(bytes_of_box(1 << 28, 2), (1 << 27) - 4096)


class Refusals(unittest.TestCase):
    def test_ranks_that_cannot_share_memory(self):
        place = _peers._Place("a", "gpu 0", 1 << 20)
        for others, error, words in (
            ([("a", None, 1 << 20)], attikos.UnsupportedError, "rank 1 has no CUDA device"),
            ([("b", "gpu 1", 1 << 20)], attikos.UnsupportedError, "rank 1 is on host b, rank 0 on a; expected one"),
            ([("a", "gpu 1", 1 << 20), ("a", "gpu 0", 1 << 20)], attikos.UnsupportedError, "rank 2 shares a GPU"),
            ([("a", "gpu 1", 1 << 21)], attikos.ArgumentError, "rank 1 has buffer_bytes 2097152 where rank 0 has 1048"),
        ):  # fmt: skip
            with self.assertRaisesRegex(error, words):
                _peers._check("distributed.PeerGroup", [place, *(_peers._Place(*x) for x in others)], 4096)
        with self.assertRaisesRegex(attikos.ArgumentError, "is 1048576; expected at least 12288 for 2 ranks"):
            _peers._check("distributed.PeerGroup", [place, _peers._Place("a", "gpu 1", 1 << 20)], 0)

    def test_gpus_out_of_reach(self):
        cuda = mock.Mock()
        cuda.device_count.return_value, cuda.current_device.return_value = 2, 1
        cuda.get_device_properties.side_effect = lambda i: mock.Mock(uuid=f"gpu {i}")
        cuda.can_device_access_peer.side_effect = lambda mine, there: False
        torch = mock.Mock(cuda=cuda)
        places = [_peers._Place("a", f"gpu {i}", 1 << 20) for i in (0, 1, 7)]
        problem = _peers._out_of_reach(torch, places)
        self.assertEqual(problem, "GPU 1 has no access to the memory of GPU 0, that of rank 0")
        with self.assertRaisesRegex(attikos.UnsupportedError, "on rank 1 GPU 1 has no access"):
            _peers._raise_first("distributed.PeerGroup", [None, problem])
        self.assertIsNone(_peers._out_of_reach(torch, places[1:]))
        _peers._raise_first("distributed.PeerGroup", [None, None])


if __name__ == "__main__":
    unittest.main()
