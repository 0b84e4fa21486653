# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases of peers_torch.py --backward: gradients of attention through the Python package beside PyTorch's."""

import random

import attikos
import torch
import torch.nn.functional as functional
from companion_torch import in_graph, times
from torch.nn.attention import sdpa_kernel

MOST_TOKENS = 16384


def gradients_of_peer(backend, q, k, v, dout, causal):
    q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
    with sdpa_kernel(backend):
        out = functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
        )
    return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)


def require_close(case, found, expected, most=0.03):
    """The largest difference beside the largest number of a gradient."""
    for name, mine, theirs in zip(("dq", "dk", "dv"), found, expected):
        error = ((mine.float() - theirs.float()).abs().max() / theirs.float().abs().max()).item()
        if not error < most:
            raise RuntimeError(f"{case}: {name} differs from PyTorch's by {error} of its largest number")


def backward_case(peers, family, dtype, batch, heads, heads_kv, length, head_dim, causal, portable):
    """Calls that PyTorch takes longer to launch than the device to run are captured, those of both sides."""
    q, k, v, dout = (
        torch.randn(batch, h, length, head_dim, device="cuda", dtype=dtype) for h in (heads, heads_kv, heads_kv, heads)
    )
    out, lse = attikos.attention(q, k, v, causal=causal, return_lse=True)
    told = attikos.explain("attention_backward", q, k, v, out, lse, dout, causal=causal, check=False)
    case = {"family": family, "dtype": str(dtype)[6:], "batch": batch, "heads": heads, "heads_kv": heads_kv,
            "length": length, "head_dim": head_dim, "causal": causal, "kernel": told.split()[1]}  # fmt: skip
    if told.startswith("runs portable") and not portable:
        return case

    def mine():
        return attikos.attention_backward(q, k, v, out, lse, dout, causal=causal, check=False)

    calls, expected = {"attikos": mine}, None
    for name, backend in peers.items():
        try:
            call = gradients_of_peer(backend, q, k, v, dout, causal)
            expected = call()
        except RuntimeError:  # the back end has no kernel for this case
            continue
        calls[name] = call
    if expected is not None:
        require_close(case, mine(), expected)
    operations = 10 * batch * heads * length * length * head_dim * (0.5 if causal else 1)
    count = max(1, min(24, int(1e11 / operations)))
    graphs = {name: in_graph(call, count, 2) for name, call in calls.items()}
    uncaptured = [name for name, (_, captured) in graphs.items() if not captured]
    case["timing"] = ", but not ".join(["graph", *uncaptured])
    seconds = times([graph for graph, _ in graphs.values()])
    rates = {name: count * operations / t * 1e-12 for name, t in zip(graphs, seconds)}
    case.update({f"{name}:TFLOP/s": round(rate, 1) for name, rate in rates.items()})
    others = [rate for name, rate in rates.items() if name != "attikos"]
    if others:
        case["ratio"] = round(rates["attikos"] / max(others), 3)
    return case


def random_shape(draw, head_dim):
    """Batch, heads, heads of k and v, length, head_dim: as many positions in all as MOST_TOKENS, or fewer."""
    length = round(40 * 150 ** draw.random())
    batch = draw.randint(1, max(1, min(16, MOST_TOKENS // length)))
    group, heads_kv = draw.choice((1, 1, 1, 2, 4, 8)), draw.choice((1, 2, 3, 4, 6, 8, 12))
    return batch, group * heads_kv, heads_kv, length, head_dim


def cases(peers, families, seed, portable, hidden=2048):
    """Functions of the cases that make up the families `dense` and `random`. A backward pass runs on the stream of its
    forward pass, which the default one cannot be where calls are captured."""
    stream = torch.cuda.Stream()

    def case(*shape):
        def run():
            with torch.cuda.stream(stream):
                return backward_case(peers, *shape, portable)

        return run

    if "dense" in families:
        for dtype in (torch.bfloat16, torch.float16):
            for head_dim in (32, 64, 96, 128, 192, 256):
                for length in (512, 1024, 2048, 4096, 8192, 16384):
                    for causal in (False, True):
                        heads = hidden // head_dim
                        yield case("dense", dtype, MOST_TOKENS // length, heads, heads, length, head_dim, causal)
    if "random" in families:
        draw = random.Random(seed)
        for number in range(35):
            odd = number >= 30  # apart: no copy engine takes such rows
            head_dim = draw.randrange(25, 128, 2) if odd else 8 * draw.randint(3, 32)
            shape, causal = random_shape(draw, head_dim), draw.random() < 0.5
            yield case("odd" if odd else "random", torch.bfloat16, *shape, causal)
