# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Functions of rows and losses on a GPU through the Python package, beside PyTorch's, eager and compiled, and a copy.

  rows_torch.py [--out FILE] [--families LIST] [--random N --seed S] [--dtype bfloat16] [--without-compile]

families, all of them if none is named:
  rms_norm, layer_norm, softmax, quantize (float8, a factor of each row), cross_entropy, and the gradients
  rms_norm_backward, layer_norm_backward, softmax_backward, cross_entropy_backward (over the logits)
                        with --random N rows and columns drawn, log-uniform from 1 to 10^5 and from 16 to 16384
  linear_cross_entropy  loss and both gradients of a mean, 8192 x 4096 x 128256 and smaller, beside products and loss one
                        after the other and compiled in chunks of 1024 rows; with the memory that each wants

Random normal data. Calls are captured in a graph over tensors that rotate past L2 and take turns with a copy of 1 GiB;
medians of times by events. "of copy" is the bytes that must move over the time and the copy's rate, "of peer" the best
time of PyTorch's over ours.
"""

import argparse
import json
import math
import random
import statistics

import attikos
import torch
import torch.nn.functional as functional
from companion_torch import context, copy_call, in_graph, in_turn, times

SHAPES = (16384, 4096), (32768, 1024), (8192, 8192), (64, 4096), (2048, 4096), (1, 4096)
CLASSES = (8192, 32000), (2048, 128256), (16384, 4096), (64, 32000)
LAST_LAYERS = (8192, 4096, 128256), (4096, 2048, 32000), (1024, 1024, 8192)
L2 = 100_000_000


def normal(*shape, dtype):
    return torch.randn(shape, device="cuda", dtype=dtype)


def quantized(x):
    scale = x.abs().amax(-1, keepdim=True).float() / 448
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


def rows_case(family, rows, columns, dtype):
    """(ours, PyTorch's, their arguments, bytes that must move)"""
    x, dout = normal(rows, columns, dtype=dtype), normal(rows, columns, dtype=dtype)
    weight, bias = normal(columns, dtype=dtype), normal(columns, dtype=dtype)
    whole = x.numel() * x.element_size()
    shape = (columns,)

    def gradients(function, *inputs):
        def run(dout, *inputs):
            inputs = [t.detach().requires_grad_() for t in inputs]
            return torch.autograd.grad(function(*inputs), inputs, dout)

        return run, (dout, *inputs)

    if family == "rms_norm":
        return attikos.rms_norm, lambda x, w: functional.rms_norm(x, shape, w, 1e-6), (x, weight), 2 * whole
    if family == "layer_norm":
        return attikos.layer_norm, lambda x, w, b: functional.layer_norm(x, shape, w, b), (x, weight, bias), 2 * whole
    if family == "softmax":
        return attikos.softmax, lambda x: torch.softmax(x, -1), (x,), 2 * whole
    if family == "quantize":
        return lambda x: attikos.quantize(x, granularity="row"), quantized, (x,), whole + x.numel()
    if family == "rms_norm_backward":
        run, given = gradients(lambda x, w: functional.rms_norm(x, shape, w, 1e-6), x, weight)
        return lambda dout, x, w: attikos.rms_norm_backward(x, w, dout), run, given, 3 * whole
    if family == "layer_norm_backward":
        run, given = gradients(lambda x, w, b: functional.layer_norm(x, shape, w, b), x, weight, bias)
        return lambda dout, x, w, b: attikos.layer_norm_backward(x, w, dout), run, given, 3 * whole
    if family == "softmax_backward":
        out = torch.softmax(x, -1)
        theirs = torch.ops.aten._softmax_backward_data
        return attikos.softmax_backward, lambda out, dout: theirs(dout, out, -1, out.dtype), (out, dout), 3 * whole
    labels = torch.randint(columns, (rows,), device="cuda")
    if family == "cross_entropy":
        ours = lambda x, labels: attikos.cross_entropy(x, labels, reduction="none")  # noqa: E731
        return ours, lambda x, y: functional.cross_entropy(x, y, reduction="none"), (x, labels), whole
    lse, one = x.float().logsumexp(-1), torch.rand(rows, device="cuda")

    def theirs_of_logits(x, labels, lse, one):
        p = (x.float() - lse[:, None]).exp() * one[:, None]
        return p.scatter_add_(1, labels[:, None], -one[:, None]).to(x.dtype)

    ours = lambda x, labels, lse, one: attikos.cross_entropy_backward(x, labels, lse, one)  # noqa: E731
    return ours, theirs_of_logits, (x, labels, lse, one), 2 * whole


def close(ours, theirs, what):
    for a, b in zip(ours if isinstance(ours, tuple) else (ours,), theirs if isinstance(theirs, tuple) else (theirs,)):
        a, b = a.float(), b.float()
        error = (a - b).norm() / b.norm().clamp_min(1e-30)
        if not error < 0.04:
            raise RuntimeError(f"{what}: differs from PyTorch's by {error.item()} in norm")


def measure_rows(family, rows, columns, dtype, compiled):
    ours, theirs, given, moved = rows_case(family, rows, columns, dtype)
    what = {"family": family, "dtype": str(dtype)[6:], "rows": rows, "columns": columns}
    close(ours(*given), theirs(*given), what)
    sets = max(1, min(64, L2 * 2 // moved + 1))
    others = [rows_case(family, rows, columns, dtype)[2] for _ in range(sets - 1)]
    calls = {"attikos": ours, "torch": theirs}
    if compiled:
        torch._dynamo.reset()
        calls["torch.compile"] = torch.compile(theirs, dynamic=False)
    copy, copied = copy_call()
    graphs = {}
    for name, call in calls.items():
        turn = in_turn([lambda call=call, g=g: call(*g) for g in (given, *others)])
        count = max(sets, min(64, L2 * 4 // moved + 1))
        graphs[name] = (*in_graph(turn, count, 1), count)
    seconds = times([g[0] for g in graphs.values()] + [copy])
    each = {name: t / g[2] for (name, g), t in zip(graphs.items(), seconds)}
    rate = copied / seconds[-1]
    best = min(t for name, t in each.items() if name != "attikos")
    return {
        **what, **{f"{name}:us": round(t * 1e6, 2) for name, t in each.items()},
        "of copy": round(moved / each["attikos"] / rate, 3), "of peer": round(best / each["attikos"], 6),
        "graphs": all(g[1] for g in graphs.values()), "copy:GB/s": round(rate * 1e-9),
    }  # fmt: skip


def in_chunks(hidden, weight, labels):
    """The loss of 1024 rows at a time, each with its gradients."""
    total, dweight, parts = hidden.new_zeros((), dtype=torch.float32), torch.zeros_like(weight), []
    for x, y in zip(hidden.split(1024), labels.split(1024)):
        logits = (x @ weight.T).float()
        lse = logits.logsumexp(-1)
        total = total + (lse - logits.gather(1, y[:, None])[:, 0]).sum()
        d = (logits - lse[:, None]).exp().scatter_add(1, y[:, None], -torch.ones_like(lse)[:, None])
        d = (d / len(labels)).to(x.dtype)
        parts.append(d @ weight)
        dweight.addmm_(d.T, x)
    return total / len(labels), torch.cat(parts), dweight


def with_gradients(loss_of):
    """A function that gives the loss and its gradients."""

    def run(hidden, weight, labels):
        hidden, weight = hidden.detach().requires_grad_(), weight.detach().requires_grad_()
        loss = loss_of(hidden, weight, labels)
        return loss.detach(), *torch.autograd.grad(loss, (hidden, weight))

    return run


LAST_LAYER_CALLS = {
    "attikos": with_gradients(attikos.linear_cross_entropy),
    "attikos unfused": with_gradients(lambda h, w, y: attikos.cross_entropy(attikos.gemm(h, w, trans_b=True), y)),
    "torch": with_gradients(lambda h, w, y: functional.cross_entropy(h @ w.T, y)),
    "torch in chunks": in_chunks,
}


def measure_last_layer(rows, width, classes, dtype, compiled):
    hidden, weight = normal(rows, width, dtype=dtype), normal(classes, width, dtype=dtype) / math.sqrt(width)
    labels = torch.randint(classes, (rows,), device="cuda")
    calls = dict(LAST_LAYER_CALLS)
    if compiled:
        torch._dynamo.reset()
        calls["torch.compile in chunks"] = torch.compile(in_chunks, dynamic=False)
    memory, found = {}, {}
    for name, call in calls.items():
        call(hidden, weight, labels)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        found[name] = call(hidden, weight, labels)
        results = sum(t.numel() * t.element_size() for t in found[name])
        memory[name] = (torch.cuda.max_memory_allocated() - before - results) / (rows * classes * dtype.itemsize)
    close(found["attikos"], found["torch"], "linear_cross_entropy")
    del found
    seconds = times([lambda call=call: call(hidden, weight, labels) for call in calls.values()], budget_ms=100)
    each = dict(zip(calls, seconds))
    best = min(t for name, t in each.items() if name != "attikos")
    return {
        "family": "linear_cross_entropy", "dtype": str(dtype)[6:], "rows": rows, "width": width, "classes": classes,
        **{f"{name}:ms": round(t * 1e3, 3) for name, t in each.items()},
        **{f"{name}:memory of logits": round(m, 3) for name, m in memory.items()},
        "TFLOP/s": round(6e-12 * rows * width * classes / each["attikos"], 1), "of peer": round(best / each["attikos"], 6),
    }  # fmt: skip


def log_uniform(draw, low, high):
    return round(math.exp(draw.uniform(math.log(low), math.log(high))))


def shapes_of(family, count, seed):
    if not count:
        return CLASSES if family.startswith("cross") else SHAPES
    draw = random.Random(f"{family} {seed}")
    found = []
    while len(found) < count:
        rows, columns = log_uniform(draw, 1, 10**5), log_uniform(draw, 16, 16384)
        if rows * columns <= 1 << 28:
            found.append((rows, columns // 8 * 8 if draw.random() < 0.75 else columns))
    return found


ROWS = (
    "rms_norm", "layer_norm", "softmax", "quantize", "cross_entropy", "rms_norm_backward", "layer_norm_backward",
    "softmax_backward", "cross_entropy_backward",
)  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out")
    parser.add_argument("--families", default=",".join((*ROWS, "linear_cross_entropy")))
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--without-compile", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    dtype, compiled = getattr(torch, given.dtype), not given.without_compile
    report = {**context(), "seed": given.seed, "cases": []}
    for family in given.families.split(","):
        mine = []
        if family == "linear_cross_entropy":
            todo = [lambda s=s: measure_last_layer(*s, dtype, compiled) for s in LAST_LAYERS]
        else:
            shapes = shapes_of(family, given.random, given.seed)
            todo = [lambda s=s: measure_rows(family, *s, dtype, compiled) for s in shapes]
        for case in todo:
            mine.append(case())
            print(*(f"{key} {value}" for key, value in mine[-1].items()), flush=True)
            torch.cuda.empty_cache()
        report["cases"] += mine
        ratios = sorted(case["of peer"] for case in mine)
        print(f"{family}: of peer geometric mean {statistics.geometric_mean(ratios):.3f}, p10 {ratios[len(ratios) // 10]}",
              flush=True)  # fmt: skip
        if given.out:
            with open(given.out, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
                file.write("\n")


if __name__ == "__main__":
    main()
