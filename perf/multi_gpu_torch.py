# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention over several GPUs of one machine: attikos.distributed over NCCL beside PyTorch's context parallel, in the
same processes.

  multi_gpu_torch.py [--ranks N] [--out FILE] [--lengths 8192,32768,131072] [--seconds 300] [--check-only]
                     [--only packed,mlp]

One process a GPU (--ranks: all there are). Batch 1, 16 heads of 128 features, bfloat16, random normal data; lengths are
those of whole sequences. First results and gradients of every strategy are compared with float64, beside those of one
GPU, and calls are repeated: "error" is the norm of the difference over that of the exact result, "alone" the same of
one GPU, "repeats" whether two calls gave the same bits. Then times: all calls of a case take turns, each a median of
rounds, of which the slowest rank counts; a causal problem counts half the operations, gradients seven for two of the
forward pass. "efficiency" is TFLOP/s a GPU over those of attikos.attention() of the whole problem on one GPU in the
same turn. ", peers": the same over a PeerGroup. PyTorch's calls are scaled_dot_product_attention() under
torch.distributed.tensor.experimental.context_parallel() with cuDNN, its two ways of rotating; "refused" is what it says
where it takes no such problem. "host" is what a call takes the host until it returns, in microseconds, without the
comparison of arguments (check=False). `enqueue`: the same of all calls of 8k positions, one behind the other and
without waiting for the device in between, and of the messages of one step of the ring, by the process group's own calls
and by batch_isend_irecv(); "ring, compared" has check=True, so that it waits for the device. `packed`: 64 sequences of
random lengths as one call, each dealt out to all ranks or, "balanced", as many as possible whole on one. `mlp`:
distributed.gated_mlp() with hidden 8192 and 28672 features in all, beside PyTorch's functional collectives, all-gather,
products and reduce-scatter one after the other, and beside either's products of as many rows without messages. No new
case is begun after --seconds.
"""

import argparse
import contextlib
import json
import random
import socket
import statistics
import time

import attikos
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.multiprocessing
import torch.nn.functional as F
from attikos import distributed, flash_attn
from attikos.distributed import Shards, _groups
from companion_torch import context
from torch.nn.attention import SDPBackend, sdpa_kernel

HEADS, HEAD_DIM = 16, 128
STRATEGIES = ("ring", "all_gather", "all_to_all")
OF_BOTH = ("ours", "ours, peers")


class Ranks:
    def __init__(self, rank, size):
        self.rank, self.size, self.report = rank, size, None
        self.peers = distributed.PeerGroup()

    def ways(self):
        """(name, strategy, group) of what is timed."""
        return [
            (strategy + (", peers" if group else ""), strategy, group)
            for group in (None, self.peers) for strategy in STRATEGIES
        ]  # fmt: skip

    def put(self, kind, case):
        if self.rank == 0:
            self.report[kind].append(case)
            print(*(f"{key} {value}" for key, value in case.items()), flush=True)

    def agreed(self, numbers, how=dist.ReduceOp.MAX):
        """Numbers of the slowest rank, or of the first."""
        found = torch.tensor(numbers, dtype=torch.float64, device="cuda")
        dist.all_reduce(found, how)
        return found.tolist()

    def times(self, calls, rounds=5, budget=0.02, least=4):
        """{name: median seconds} of calls that take turns, several of each one behind the other, and {name: what a call
        that failed said}."""
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

        def measure(call, count):
            dist.barrier()
            begin.record()
            for _ in range(count):
                call()
            end.record()
            end.synchronize()
            return self.agreed([begin.elapsed_time(end) * 1e-3 / count])[0]

        counts, refused = {}, {}
        for name, call in calls.items():
            try:
                call()
                counts[name] = max(least, min(20, int(budget / measure(call, 1))))
            except Exception as problem:
                refused[name] = str(problem).splitlines()[0][:160]
        found = {name: [] for name in counts}
        for _ in range(rounds):
            for name, count in counts.items():
                found[name].append(measure(calls[name], count))
        return {name: statistics.median(x) for name, x in found.items()}, refused

    def efficiency(self, rates):
        ways = [name + placement for name, *_ in self.ways() for placement in ("", ", balanced")]
        return {name: round(rates[name] / rates["one GPU"], 3) for name in ways if name in rates}

    def rates(self, operations, seconds):
        """TFLOP/s a GPU; "one GPU" has all operations to itself."""
        return {
            name: round(operations / x / (1 if "one GPU" in name else self.size) * 1e-12, 1) for name, x in seconds.items()
        }

    def enqueue(self, call, calls=10):
        """Microseconds until a call returns that comes behind others, the device at work: fewer launches than its queue
        holds."""
        found = []
        dist.barrier()
        torch.cuda.synchronize()
        for _ in range(1 + calls):
            start = time.perf_counter()
            call()
            found.append((time.perf_counter() - start) * 1e6)
        torch.cuda.synchronize()
        return round(self.agreed([statistics.median(found[1:])])[0])

    def host(self, call, calls=5):
        """Microseconds until a call returns, the device idle before."""
        found = []
        for _ in range(calls):
            dist.barrier()
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            found.append((time.perf_counter() - start) * 1e6)
        torch.cuda.synchronize()
        return round(self.agreed([statistics.median(found)])[0])


def normal(seed, *shape, dtype=torch.bfloat16):
    generator = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(shape, device="cuda", generator=generator).to(dtype)


# --- correctness ----------------------------------------------------------------------------------------------------


def exact(q, k, v, keep, dout):
    """Attention in float64 with PyTorch's own gradients."""
    wide = [x.double().requires_grad_() for x in (q, k, v)]
    group = q.shape[1] // k.shape[1]
    scores = wide[0] @ wide[1].repeat_interleave(group, 1).transpose(2, 3) * q.shape[-1] ** -0.5
    weights = torch.where(keep, scores, -torch.inf).softmax(-1).nan_to_num()
    out = weights @ wide[2].repeat_interleave(group, 1)
    out.backward(dout.double())
    return [out.detach(), *(x.grad for x in wide)]


def positions_seen(shards, causal, window):
    keep = torch.zeros(shards.total, shards.total, dtype=torch.bool, device="cuda")
    for s in range(shards.sequences):
        first, n = shards.offset(s), shards.length(s)
        i, j = torch.arange(n, device="cuda")[:, None], torch.arange(n, device="cuda")[None]
        seen = (j <= i) if causal else torch.ones(n, n, dtype=torch.bool, device="cuda")
        keep[first : first + n, first : first + n] = seen & (j >= i - window[0]) if window[0] >= 0 else seen
    return keep


def check(ranks):
    n = ranks.size
    lengths = [0, 700, 701, 1500, 2048]
    for name, shards, options in (
        ("causal", Shards.zigzag(4096, n, 128), {"causal": True}), ("full", Shards.contiguous(4096, n), {}),
        ("uneven", Shards.uneven([1000 + 17 * r for r in range(n)]), {"causal": True}),
        ("window", Shards.zigzag(3001, n), {"causal": True, "window": (512, -1)}),
        ("packed", Shards.packed(lengths, n), {"causal": True}),
    ):  # fmt: skip
        for dtype, heads, heads_kv in ((torch.bfloat16, 16, 16), (torch.bfloat16, 16, 2), (torch.float32, 4, 4)):
            q, dout = (normal(s, 1, heads, shards.total, HEAD_DIM, dtype=dtype) for s in (1, 2))
            k, v = (normal(s, 1, heads_kv, shards.total, HEAD_DIM, dtype=dtype) for s in (3, 4))
            keep = positions_seen(shards, options.get("causal", False), options.get("window", (-1, -1)))
            truth = exact(q, k, v, keep, dout)
            alone = [x.clone().requires_grad_() for x in (q, k, v)]
            if shards.sequences == 1:
                out = attikos.attention(*alone, **options)
            else:
                out = attikos.attention(*alone, mask=keep)
            out.backward(dout)
            single = [out.detach(), *(x.grad for x in alone)]
            rows = torch.from_numpy(shards.positions(ranks.rank)).cuda()
            for name_of_way, strategy, group in ranks.ways():
                both = []
                for _ in range(2):
                    mine = [x[:, :, rows].requires_grad_() for x in (q, k, v)]
                    part = distributed.attention(*mine, shards, group, strategy=strategy, **options)
                    part.backward(dout[:, :, rows])
                    both.append([part.detach(), *(x.grad for x in mine)])
                whole = [distributed.gather(x, shards) for x in both[0]]
                norms = [
                    [float(f"{((x.double() - y).norm() / y.norm()).item():.2g}") for x, y in zip(some, truth)]
                    for some in (whole, single)
                ]
                repeats = all(torch.equal(a, b) for a, b in zip(*both))
                repeats = bool(ranks.agreed([float(repeats)], dist.ReduceOp.MIN)[0])
                ranks.put("checks", {
                    "case": name, "dtype": str(dtype).removeprefix("torch."), "heads": f"{heads}:{heads_kv}",
                    "strategy": name_of_way, "error": norms[0], "alone": norms[1], "repeats": repeats,
                })  # fmt: skip
                # Results over different keys are rounded once more before they are joined.
                assert repeats and all(a <= 2 * b + 1e-7 for a, b in zip(*norms)), (name, name_of_way, norms)


# --- times ----------------------------------------------------------------------------------------------------------


WHOLE_SDPA = F.scaled_dot_product_attention  # which PyTorch's context replaces


@contextlib.contextmanager
def parts_of_pytorch(ranks, causal, *buffers):
    """Buffers become this rank's parts, and scaled_dot_product_attention() that of all ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.experimental import _attention, context_parallel

    _attention._cp_options.enable_load_balance = causal  # it refuses to balance a full mask
    mesh = init_device_mesh("cuda", (ranks.size,))
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        with context_parallel(mesh, buffers=list(buffers), buffer_seq_dims=[2] * len(buffers)):
            yield _attention.set_rotate_method


def call_of(attend, backward, *qkv):
    """A call of the forward pass, or of both."""
    if not backward:
        return lambda: attend(*qkv)
    leaves = [x.detach().clone().requires_grad_() for x in qkv]
    dout = torch.randn_like(leaves[0])

    def both():
        attend(*leaves).backward(dout)
        for x in leaves:
            x.grad = None

    return both


@contextlib.contextmanager
def calls_of(ranks, length, causal, backward, compared=False):
    """{name: call} of a problem, ours and PyTorch's."""
    q, k, v = (normal(s, 1, HEADS, length, HEAD_DIM) for s in range(3))
    shards = Shards.zigzag(length, ranks.size, 128) if causal else Shards.contiguous(length, ranks.size, 128)
    rows = torch.from_numpy(shards.positions(ranks.rank)).cuda()
    parts = [x[:, :, rows] for x in (q, k, v)]

    def ours(strategy, group, check=False):
        def attend(*x):
            return distributed.attention(*x, shards, group, causal=causal, strategy=strategy, check=check)

        return call_of(attend, backward, *parts)

    calls = {"one GPU": call_of(lambda *x: attikos.attention(*x, causal=causal), backward, q, k, v)}
    calls |= {name: ours(strategy, group) for name, strategy, group in ranks.ways()}
    if compared:
        calls["ring, compared"] = ours("ring", None, True)
    calls["cuDNN, one GPU"] = call_of(lambda *x: WHOLE_SDPA(*x, is_causal=causal), backward, q, k, v)
    theirs = [x.clone() for x in (q, k, v)]
    with parts_of_pytorch(ranks, causal, *theirs) as rotate_by:

        def of_pytorch(method):
            call = call_of(lambda *x: F.scaled_dot_product_attention(*x, is_causal=causal), backward, *theirs)

            def rotated():
                rotate_by(method)
                call()

            return rotated

        yield calls | {f"PyTorch, {method}": of_pytorch(method) for method in ("allgather", "alltoall")}


def time_case(ranks, length, causal, backward):
    with calls_of(ranks, length, causal, backward) as calls:
        long = length * length * (7 if backward else 2) > 2**34
        seconds, refused = ranks.times(calls, rounds=3 if long else 5, least=3 if long else 4)
        host = {name: ranks.host(calls[name]) for name in ("one GPU", "ring", "ring, peers") if name in seconds}
    operations = 4 * HEADS * length * length * HEAD_DIM / (2 if causal else 1) * (3.5 if backward else 1)
    rates = ranks.rates(operations, seconds)
    best = max((rates[name] for name in rates if name.startswith("PyTorch")), default=None)
    ranks.put("times", {
        "length": length, "causal": causal, "backward": backward, "TFLOP/s a GPU": rates,
        "efficiency": ranks.efficiency(rates),
        "over PyTorch": {name: round(rates[name] / best, 3) for name in ("ring", "ring, peers") if best},
        "refused": refused, "host": host,
    })  # fmt: skip


def time_enqueue(ranks, causal, backward, length=8192):
    with calls_of(ranks, length, causal, backward, compared=True) as calls:
        found, refused = {}, {}
        for name, call in calls.items():
            try:
                call()
                found[name] = ranks.enqueue(call)
            except Exception as problem:
                refused[name] = str(problem).splitlines()[0][:160]
    case = {"length": length, "causal": causal, "backward": backward, "microseconds": found, "refused": refused}
    ranks.put("enqueue", case)


def time_messages(ranks, length=8192):
    """Those of a step of the ring: a block of keys and one of values in either direction."""
    to, source = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size
    sent, found = ([normal(s, 1, HEADS, length // ranks.size, HEAD_DIM) for s in some] for some in ((1, 2), (3, 4)))

    def own(group):
        group.finish("perf", group.begin("perf", [(to, x) for x in sent], [(source, x) for x in found]))

    def batched():
        wanted = [dist.P2POp(dist.isend, x, to) for x in sent] + [dist.P2POp(dist.irecv, x, source) for x in found]
        for work in dist.batch_isend_irecv(wanted):
            work.wait()

    calls = {"the group's own calls": lambda: own(_groups.group_of(None)), "batch_isend_irecv": batched,
             "peers": lambda: own(ranks.peers)}  # fmt: skip
    for call in calls.values():
        call()
    ranks.put("enqueue", {"messages": 4, "microseconds": {name: ranks.enqueue(call) for name, call in calls.items()}})


def calls_of_packed(ranks, backward, count=64, seed=7):
    """{name: call} of random sequences, where they begin, and the pairs of positions that they have."""
    draw = random.Random(seed)
    offsets = [0]
    for _ in range(count):
        offsets.append(offsets[-1] + draw.randint(32, 4096))
    pairs = sum((b - a) ** 2 for a, b in zip(offsets, offsets[1:]))
    q, k, v = (normal(s, 1, HEADS, offsets[-1], HEAD_DIM) for s in range(3))
    starts = torch.tensor(offsets, dtype=torch.int32, device="cuda")
    longest = max(b - a for a, b in zip(offsets, offsets[1:]))

    def whole(q, k, v):
        last = [x[0].transpose(0, 1) for x in (q, k, v)]
        return flash_attn.flash_attn_varlen_func(*last, starts, starts, longest, longest, causal=True).transpose(0, 1)[None]

    def ours(shards, strategy, group):
        rows = torch.from_numpy(shards.positions(ranks.rank)).cuda()

        def attend(*x):
            return distributed.attention(*x, shards, group, causal=True, strategy=strategy, check=False)

        return call_of(attend, backward, *(x[:, :, rows] for x in (q, k, v)))

    dealt_out = Shards.packed(offsets, ranks.size, granularity=16)
    balanced = Shards.balanced(offsets, ranks.size, causal=True, granularity=16)
    calls = {"one GPU": call_of(whole, backward, q, k, v)}
    calls |= {name: ours(dealt_out, strategy, group) for name, strategy, group in ranks.ways()}
    calls |= {f"{name}, balanced": ours(balanced, strategy, group) for name, strategy, group in ranks.ways()}
    return calls, offsets, pairs


def time_enqueue_packed(ranks, backward):
    calls, offsets, _ = calls_of_packed(ranks, backward)
    for call in calls.values():
        call()
    found = {name: ranks.enqueue(call) for name, call in calls.items()}
    ranks.put("enqueue", {"sequences": len(offsets) - 1, "backward": backward, "microseconds": found})


def time_packed(ranks, backward):
    calls, offsets, pairs = calls_of_packed(ranks, backward)
    seconds, refused = ranks.times(calls, rounds=3)
    operations = 2 * HEADS * pairs * HEAD_DIM * (3.5 if backward else 1)
    rates = ranks.rates(operations, seconds)
    ranks.put("packed", {
        "sequences": len(offsets) - 1, "positions": offsets[-1], "backward": backward, "TFLOP/s a GPU": rates,
        "refused": refused,
        "efficiency": ranks.efficiency(rates),
        "host": {name: ranks.host(calls[name]) for name in ("one GPU", "ring")},
    })  # fmt: skip


def time_mlp(ranks, rows, hidden=8192, features=28672):
    own, n = features // ranks.size, ranks.size
    shards = Shards.contiguous(rows, n)
    x = normal(1, rows, hidden)[torch.from_numpy(shards.positions(ranks.rank)).cuda()]
    gate, up = (normal(s, own, hidden) * hidden**-0.5 for s in (2, 3))
    down = normal(4, hidden, own) * features**-0.5

    def theirs():
        whole = funcol.all_gather_tensor(x, 0, dist.group.WORLD)
        inner = F.silu(F.linear(whole, gate)) * F.linear(whole, up)
        return funcol.wait_tensor(funcol.reduce_scatter_tensor(F.linear(inner, down), "sum", 0, dist.group.WORLD))

    def ours(group=None):
        return distributed.gated_mlp(x, gate, up, down, shards, group, check=False)

    whole = x.new_empty(rows, hidden).normal_()
    calls = {
        "ours": ours, "ours, peers": lambda: ours(ranks.peers),
        "ours, no messages": lambda: attikos.gemm(attikos.fused_gated_mlp(whole, gate, up), down, trans_b=True),
        "PyTorch, no messages": lambda: F.linear(F.silu(F.linear(whole, gate)) * F.linear(whole, up), down),
    }  # fmt: skip
    if rows % n == 0:
        calls["PyTorch"] = theirs
    seconds, refused = ranks.times(calls)
    difference = None
    if not refused and "PyTorch" in calls:
        a, b = ours(ranks.peers).float(), theirs().float()
        difference = float(f"{((a - b).norm() / b.norm()).item():.2g}")
    operations = 6 * rows * hidden * features
    ranks.put("mlp", {
        "rows": rows, "TFLOP/s a GPU": ranks.rates(operations, seconds),
        "ratio": {name: round(seconds["PyTorch"] / seconds[name], 3) for name in OF_BOTH if "PyTorch" in seconds},
        "difference": difference, "refused": refused, "host": ranks.host(ours),
    })  # fmt: skip


def run(rank, arguments, port):
    begun = time.monotonic()
    torch.cuda.set_device(rank)
    dist.init_process_group(
        "nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=arguments.ranks,
        device_id=torch.device("cuda", rank),
    )  # fmt: skip
    ranks = Ranks(rank, arguments.ranks)
    if rank == 0:
        ranks.report = {
            **context(), "ranks": ranks.size, "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            "checks": [], "enqueue": [], "times": [], "packed": [], "mlp": [],
        }  # fmt: skip
    if not arguments.only:
        check(ranks)
    cases = []
    if not arguments.check_only:
        lengths = [int(x) for x in arguments.lengths.split(",")]
        for backward in (False, True):
            cases += [(time_enqueue, causal, backward) for causal in (True, False)]
        cases += [(time_enqueue_packed, backward) for backward in (False, True)] + [(time_messages,)]
        for backward in (False, True):
            for length in lengths:
                cases += [(time_case, length, causal, backward) for causal in (True, False)]
            cases.append((time_packed, backward))
        cases += [(time_mlp, rows) for rows in (1024, 4096, 16384)]
    wanted = arguments.only.split(",") if arguments.only else None
    for function, *case in cases:
        if wanted and function.__name__.removeprefix("time_") not in wanted:
            continue
        if ranks.agreed([time.monotonic() - begun])[0] > arguments.seconds:
            if rank == 0:
                print("not begun for want of time:", *case)
            continue
        function(ranks, *case)
        torch.cuda.empty_cache()
        if rank == 0 and arguments.out:
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(ranks.report, file, indent=1)
                file.write("\n")
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=torch.cuda.device_count())
    parser.add_argument("--out")
    parser.add_argument("--lengths", default="8192,32768,131072")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--check-only", action="store_true")
    parser.add_argument("--only", help="of enqueue, enqueue_packed, messages, case, packed, mlp; without comparing results")
    arguments = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(run, (arguments, port), nprocs=arguments.ranks)


if __name__ == "__main__":
    main()
