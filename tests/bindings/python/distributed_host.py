# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What calls over ranks take the host, and what it keeps from one to the next, for distributed_ranks.py."""

import gc
import sys
import weakref

import attikos
import numpy as np
from attikos import distributed
from attikos.distributed import Shards
from distributed_cases import case, numpy_itself, random

STRATEGIES = ("ring", "all_gather", "all_to_all")


def part_of(x, shards, rank):
    return x[:, :, shards.positions(rank)]


@case
def arguments_that_equal_others(ranks):
    """Calls that were read once are not read again, but values of other types that are equal are none of them."""
    shards = Shards.zigzag(12, ranks.size)
    q, k, v = (ranks.make(part_of(random((1, 4, 12, 16), np.float32, s), shards, ranks.rank)) for s in range(3))

    def call(shards=shards, **options):
        return ranks.back(distributed.attention(q, k, v, shards, ranks.group, **options))

    for right, wrong, words in (
        (dict(scale=1.0), dict(scale=True), "scale is True"), (dict(softcap=0.0), dict(softcap=False), "softcap is False"),
        (dict(window=(1, 0)), dict(window=(True, 0)), "window"), (dict(window=(0, 1)), dict(window=(0, 1.0)), "window"),
        (dict(causal=True), dict(causal=1.0), "causal is 1.0"),
        (dict(shards=(shards, shards)), dict(shards=(shards, shards, shards)), "shards is"),
    ):
        for _ in range(2):
            first = call(**right)
        try:
            call(**wrong)
        except attikos.ArgumentError as problem:
            assert words in str(problem), problem
        else:
            raise AssertionError(wrong)
        assert (call(**right) == first).all()
    first = call(causal=True)
    assert (call(causal=1) == first).all() and (call([shards, shards], causal=True) == first).all()
    assert (call(Shards.zigzag(12, ranks.size), causal=True) == first).all()
    assert ranks.size == 1 or not (call(causal=True, scale=0.5) == first).all()


# Of a strategy, of shards and of a pass: calls of functions, and more of them for each rank. They are a sixth above what
# there were when this was written.
BOUNDS = {
    ("ring", "causal", "forward"): (30, 100), ("ring", "causal", "both"): (130, 255),
    ("ring", "packed", "forward"): (0, 190), ("ring", "packed", "both"): (60, 430),
    ("all_gather", "causal", "forward"): (40, 100), ("all_gather", "causal", "both"): (120, 270),
    ("all_gather", "packed", "forward"): (0, 190), ("all_gather", "packed", "both"): (30, 445),
    ("all_to_all", "causal", "forward"): (60, 200), ("all_to_all", "causal", "both"): (150, 560),
    ("all_to_all", "packed", "forward"): (120, 200), ("all_to_all", "packed", "both"): (330, 520),
}  # fmt: skip
# More for each rank where messages go through a PeerGroup.
OF_PEERS = 95


def counted(work):
    """Functions of Python that `work` calls, and of C, PyTorch's operators among them."""
    found = {"call": 0, "c_call": 0}

    def count(frame, event, argument):
        if event in found:
            found[event] += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found["call"], found["c_call"]


@case
def work_of_the_host(ranks):
    """Of a call that was made before, in calls of functions: no clock has a part in it. Kernels of GPUs wait for the
    host where a call has many short ones, so that what a step of the ring costs has a bound."""
    if ranks.make is numpy_itself:
        return
    n = ranks.size
    lengths = [0, 40, 88, 152]
    for name, shards in (("causal", Shards.zigzag(64, n)), ("packed", Shards.packed(lengths, n))):
        arrays = [random((1, h, shards.total, 16), np.float32, h) for h in (4, 2, 2)]
        plain = [ranks.make(part_of(x, shards, ranks.rank)) for x in arrays]
        wanted = [x.clone().requires_grad_() for x in plain]

        def call(arrays, strategy):
            return distributed.attention(*arrays, shards, ranks.group, causal=True, strategy=strategy, check=False)

        for strategy in STRATEGIES:
            def both():
                call(wanted, strategy).sum().backward()  # noqa: B023

            for what, work in (
                ("forward", lambda: call(plain, strategy)), ("both", both),  # noqa: B023
            ):  # fmt: skip
                for _ in range(2):
                    work()
                found = sum(counted(work))
                bound = BOUNDS[strategy, name, what]
                if isinstance(ranks.group, distributed.PeerGroup):
                    bound = (bound[0], bound[1] + OF_PEERS)
                assert found <= bound[0] + n * bound[1], f"{name} {strategy} {what} of {n}: {found}"


@case
def groups_that_end(ranks):
    """Nothing of this package keeps them."""
    if ranks.make is numpy_itself:
        return
    import torch.distributed as dist

    group = dist.new_group(list(range(ranks.size)))
    shards = Shards.contiguous(12, ranks.size)
    x = ranks.make(part_of(random((1, 2, 12, 16), np.float32, 1), shards, ranks.rank))
    distributed.attention(x, x, x, shards, group)
    gone = weakref.ref(group)
    dist.destroy_process_group(group)
    del group
    gc.collect()
    assert gone() is None
