# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What ranks send, for distributed_ranks.py: keys that others need and no more; and PeerGroup, on GPUs what only its
messages can get wrong, on hosts what it says."""

import attikos
import numpy as np
from attikos import distributed
from attikos.distributed import Shards, _attention, _groups, _strategies
from distributed_cases import case, numpy_itself, random
from distributed_host import STRATEGIES, part_of


@case
def ranks_without_gpus(ranks):
    if ranks.make is numpy_itself or ranks.device != "cpu":
        return
    try:
        distributed.PeerGroup()
    except attikos.UnsupportedError as problem:
        assert "distributed.PeerGroup: rank 0 has no CUDA device" in str(problem), problem
    else:
        raise AssertionError("a PeerGroup of hosts")


@case
def messages_of_peers(ranks):
    """Of all ranks to all at once, with more bytes than there are boxes for, in both orders."""
    group = ranks.group
    if not isinstance(group, distributed.PeerGroup):
        return
    import torch

    for others in (range(1, ranks.size), range(ranks.size - 1, 0, -1)):
        for count in (0, 1, 1000, 300_001):
            sent = [torch.full((count,), 100 * ranks.rank + d, device=ranks.device, dtype=torch.int32) for d in others]
            found = [torch.full_like(x, -1) for x in sent]
            sends = [((ranks.rank + d) % ranks.size, x) for d, x in zip(others, sent)]
            receives = [((ranks.rank - d) % ranks.size, x) for d, x in zip(others, found)]
            group.finish("test", group.begin("test", sends, receives))
            for d, x in zip(others, found):
                assert (x == 100 * ((ranks.rank - d) % ranks.size) + d).all(), (d, count, x)
    elsewhere = torch.zeros(3)
    try:
        group.begin("test", [((ranks.rank + 1) % ranks.size, elsewhere)], [])
    except attikos.ArgumentError as problem:
        assert f"attikos.test: a tensor lies on cpu; expected {group.device}" in str(problem), problem
    else:
        raise AssertionError("a tensor of the host")


@case
def messages_behind_work(ranks):
    """A message carries what kernels before it in the stream write, however late, and nothing after it overtakes."""
    group = ranks.group
    if not isinstance(group, distributed.PeerGroup):
        return
    import torch

    to, source = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size
    sent, found = (torch.zeros(1 << 16, device=ranks.device) for _ in range(2))
    for value in range(1, 30):
        torch.cuda._sleep(2_000_000 if (value + ranks.rank) % 3 == 0 else 1000)
        sent.fill_(100 * ranks.rank + value)
        begun = group.begin("test", [(to, sent)], [(source, found)])
        group.finish("test", begun)
        seen = found.clone()
        sent.fill_(-1)
        found.fill_(-2)
        assert ranks.size == 1 or (seen == 100 * source + value).all(), value


@case
def calls_of_peers_are_captured(ranks):
    """A graph's replays give what the call gives, between calls that are none."""
    group = ranks.group
    if not isinstance(group, distributed.PeerGroup):
        return
    import torch

    shards = Shards.zigzag(257, ranks.size)
    for strategy in STRATEGIES:
        whole = [random((1, h, 257, 64), np.float32, h) for h in (4, 2, 2)]
        arrays = [ranks.make(part_of(x, shards, ranks.rank)) for x in whole]

        def call():
            return distributed.attention(*arrays, shards, group, causal=True, strategy=strategy, check=False)  # noqa: B023

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(2):
                call()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            out = call()
        for repeat in range(3):
            for x in arrays:
                x.mul_(0.9)
            want = call()
            graph.replay()
            if repeat == 1:
                graph.replay()
            assert torch.equal(out, want), (strategy, repeat)


class Listening:
    """A group that counts the bytes this rank sends."""

    def __init__(self, group):
        self._group, self.sent = group, 0

    def __getattr__(self, name):
        return getattr(self._group, name)

    def begin(self, operation, sends, receives):
        self.sent += sum(x.nbytes for _, x in sends)
        return self._group.begin(operation, sends, receives)


@case
def only_keys_that_others_need_are_sent(ranks):
    n, group = ranks.size, Listening(_groups.group_of(ranks.group))
    lengths = [24, 40, 8, 32]
    whole = [[(s, 0, length) for s, length in enumerate(lengths) if s % n == r] for r in range(n)]
    halves = [
        [(0, r * 24 // n, (r + 1) * 24 // n), *(x for x in of_rank if x[0] > 0)] for r, of_rank in enumerate(whole)
    ]  # fmt: skip
    for pieces, rows in ((whole, 0), (halves, 24 // n)):
        shards = Shards.of_pieces(lengths, pieces)
        whole_arrays = [random((1, h, 104, 16), np.float32, h) for h in (4, 2, 2)]
        arrays = [ranks.make(part_of(x, shards, ranks.rank)) for x in whole_arrays]
        for strategy in ("ring", "all_gather"):
            call = _read_call(group, arrays, shards, strategy)
            group.sent = 0
            _strategies.forward(call, *arrays)
            block = rows * 2 * 2 * 16 * 4  # keys and values, two heads of 16 float32 numbers
            assert group.sent == block * (n - 1), (strategy, rows, group.sent)


def _read_call(group, arrays, shards, strategy):
    return _attention._read(
        group, *arrays, shards, None, True, False, (-1, -1), 0.0, "ieee", "", strategy, 0
    ).on(group)  # fmt: skip
