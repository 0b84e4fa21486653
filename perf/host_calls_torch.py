# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What peers_torch_cpu.py measures: problems on a host, ours and PyTorch's ways to compute each.

A case is what is printed of it, ours, {name: one of PyTorch's ways}, and what ours has to give in float64. A family
gives cases without end, of shapes that follow from a seed.
"""

import dataclasses
import inspect
import itertools
import math
import random
from typing import Any, Callable

import attikos
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

# Of the largest number that is expected: what rounding a result of this type, and what it is summed from, may come to.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2, torch.int32: 0,
             torch.int8: 1e-2, torch.float8_e4m3fn: 0.1}  # fmt: skip
LARGEST = 10**11  # operations of a drawn problem
MOST_BYTES = 1 << 30  # of the scores that a peer of attention keeps


@dataclasses.dataclass
class Case:
    labels: dict[str, Any]
    ours: Callable[[], Any]
    peers: dict[str, Callable[[], Any]]
    expected: Callable[[], Any]  #: in float64, or int32, one or a tuple as `ours` gives
    operations: float = 0
    moved: float = 0  #: bytes that have to move
    copied: Any = None  #: a tensor whose copy `moved` is held against
    unpacked: Callable[[], Any] | None = None  #: ours with weights that are not packed ahead of time


def verify(case):
    """Raises RuntimeError where what ours gives is far from what it should be."""
    found, expected = case.ours(), case.expected()
    if not isinstance(expected, tuple):
        found, expected = (found,), (expected,)
    for index, (x, wanted) in enumerate(zip(found, expected)):
        tolerance = TOLERANCE[case.labels.get("checked as", x.dtype)]
        if tuple(x.shape) != tuple(wanted.shape):
            raise RuntimeError(f"{case.labels}: result {index} is {tuple(x.shape)}, not {tuple(wanted.shape)}")
        if wanted.numel() == 0:
            continue
        off = (x.double() - wanted.double()).abs().max().item()
        largest = wanted.double().abs().max().item()
        if not off <= tolerance * largest:
            raise RuntimeError(f"{case.labels}: result {index} is off by {off:.3g}, of {largest:.3g}")


def log_uniform(draw, low, high):
    """An integer of [low, high] whose logarithm is uniform."""
    return min(high, int(math.exp(draw.uniform(math.log(low), math.log(high + 1)))))


def normal(*shape, dtype=torch.float32):
    if dtype == torch.int8:
        return torch.randint(-127, 128, shape, dtype=dtype)
    return torch.randn(shape).to(dtype) if dtype != torch.float64 else torch.randn(shape, dtype=dtype)


def name(dtype):
    return str(dtype).removeprefix("torch.")


def into(function, *arguments, **like):
    """The call, with memory for those of its results given that it takes memory for, by their names: a loop without
    faults no pages in."""
    parameters = inspect.signature(function).parameters
    taken = [name for name in like if name in parameters and parameters[name].default is None]
    results = {name: torch.empty_like(like[name]) for name in taken}
    return lambda: function(*arguments, **results)


# Products


def products(dtype, draw):
    while True:
        for layout in draw.sample(("nn", "nt", "tn", "tt"), 4):
            extents = [log_uniform(draw, 16, 4096) for _ in range(3)]
            yield lambda e=extents, t=layout: product(dtype, *e, t)


def product(dtype, m, n, k, layout):
    """a [m, k] and b [k, n], stored transposed where the layout has a t."""
    a = normal(m, k, dtype=dtype) if layout[0] == "n" else normal(k, m, dtype=dtype).T
    b = normal(k, n, dtype=dtype) if layout[1] == "n" else normal(n, k, dtype=dtype).T
    if dtype == torch.int8:
        peers = {"int_mm": lambda: torch._int_mm(a, b)}
    else:
        peers = {"mm": lambda: a @ b}
    if dtype == torch.float16:  # which has no product of its own on many processors
        peers["float32"] = lambda: (a.float() @ b.float()).half()
    if dtype in (torch.float32, torch.float64):
        x, y = a.numpy(), b.numpy()
        peers["openblas"] = lambda: x @ y
    labels = {"dtype": name(dtype), "m": m, "n": n, "k": k, "layout": layout}

    def expected():
        exact = a.double() @ b.double()
        return exact.to(torch.int32) if dtype == torch.int8 else exact

    return Case(labels, lambda: attikos.gemm(a, b), peers, expected, operations=2 * m * n * k)


def packed_products(dtype, draw):
    """The same with a b that is packed before the clock runs, ours and, where it has a way to, PyTorch's."""
    while True:
        for layout in draw.sample(("nn", "nt"), 2):
            extents = [log_uniform(draw, 16, 4096) for _ in range(3)]
            yield lambda e=extents, t=layout: packed_product(dtype, *e, t)


def packed_product(dtype, m, n, k, layout):
    a = normal(m, k, dtype=dtype)
    b = normal(k, n, dtype=dtype) if layout[1] == "n" else normal(n, k, dtype=dtype)
    turned = layout[1] == "t"
    right, packed = b.T if turned else b, attikos.pack_b(b, trans_b=turned)
    labels = {"dtype": name(dtype), "m": m, "n": n, "k": k, "layout": layout}
    if dtype == torch.int8:
        peers = {"int_mm": lambda: torch._int_mm(a, right)}
    else:
        weight = right.T.contiguous()
        peers = {"mm": lambda: a @ right, "linear": lambda: F.linear(a, weight)}
        try:  # what torch.compile makes of frozen weights
            reordered = torch.ops.mkldnn._reorder_linear_weight(weight.to_mkldnn(), m)
            linear = torch.ops.mkldnn._linear_pointwise
            peers["packed linear"] = lambda: linear(a, reordered, None, "none", [], "")
        except (AttributeError, RuntimeError):  # this build of PyTorch, or this type, has none
            pass

    def expected():
        exact = a.double() @ right.double()
        return exact.to(torch.int32) if dtype == torch.int8 else exact

    return Case(labels, lambda: attikos.gemm(a, packed, trans_b=turned), peers, expected, operations=2 * m * n * k,
                unpacked=lambda: attikos.gemm(a, b, trans_b=turned))  # fmt: skip


def few_rows(dtype, draw):
    """Products of 1 to 8 rows: the larger factor is read once, as a copy of it would."""
    while True:
        for layout in draw.sample(("nn", "nt"), 2):
            extents = draw.randint(1, 8), log_uniform(draw, 256, 8192), log_uniform(draw, 256, 8192)
            yield lambda e=extents, t=layout: beside_copy(product(dtype, *e, t), dtype)


def beside_copy(case, dtype):
    k, n = case.labels["k"], case.labels["n"]
    return dataclasses.replace(case, moved=k * n * dtype.itemsize, copied=normal(k, n, dtype=dtype))


# Attention


def attentions(dtype, draw, make):
    while True:
        for causal in (False, True):
            while True:
                batch, heads = log_uniform(draw, 1, 16), log_uniform(draw, 1, 32)
                length, d = log_uniform(draw, 16, 4096), log_uniform(draw, 16, 256)
                scores = batch * heads * length * length
                if 4 * scores * d <= LARGEST and scores * dtype.itemsize <= MOST_BYTES:
                    break
            yield lambda a=(batch, heads, length, d, causal): make(dtype, *a)


def unfused(q, k, v, causal):
    scores = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
    if causal:
        hidden = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1) @ v


def fused(q, k, v, causal):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def head_by_head(q, k, v, causal):
    """unfused() of float64, which takes the memory of one head."""
    heads = [x.double().flatten(0, 1) for x in (q, k, v)]
    each = [unfused(a[None, None], b[None, None], c[None, None], causal) for a, b, c in zip(*heads)]
    return torch.cat(each).view(*q.shape[:3], v.shape[3])


def attention_labels(dtype, batch, heads, length, d, causal):
    return {"dtype": name(dtype), "batch": batch, "heads": heads, "length": length, "head_dim": d, "causal": causal}


def forward(dtype, batch, heads, length, d, causal):
    q, k, v = (normal(batch, heads, length, d, dtype=dtype) for _ in range(3))
    return Case(
        attention_labels(dtype, batch, heads, length, d, causal), lambda: attikos.attention(q, k, v, causal=causal),
        {"fused": lambda: fused(q, k, v, causal), "matmuls": lambda: unfused(q, k, v, causal)},
        lambda: head_by_head(q, k, v, causal),
        operations=4 * batch * heads * length * length * d * (0.5 if causal else 1),
    )  # fmt: skip


def backward(dtype, batch, heads, length, d, causal):
    """The gradients alone, from what the forward call left."""
    q, k, v, dout = (normal(batch, heads, length, d, dtype=dtype) for _ in range(4))
    out, lse = attikos.attention(q, k, v, causal=causal, return_lse=True)

    def recorded(way, *given):
        with torch.enable_grad():
            return way(*given, causal)

    inputs = [x.clone().requires_grad_() for x in (q, k, v)]
    results = {"fused": recorded(fused, *inputs), "matmuls": recorded(unfused, *inputs)}

    def gradients(result):
        return lambda: torch.autograd.grad(result, inputs, dout, retain_graph=True)

    def expected():
        exact = [x.double().requires_grad_() for x in (q, k, v)]
        return torch.autograd.grad(recorded(head_by_head, *exact), exact, dout.double())

    return Case(
        attention_labels(dtype, batch, heads, length, d, causal),
        lambda: attikos.attention_backward(q, k, v, out, lse, dout, causal=causal),
        {way: gradients(result) for way, result in results.items()}, expected,
        operations=10 * batch * heads * length * length * d * (0.5 if causal else 1),
    )  # fmt: skip


def decodes(dtype, draw):
    """Caches in turn that no cache of the processor holds."""
    while True:
        for batch in (1, 4):
            yield lambda b=batch: decode(dtype, b)


def decode(dtype, batch, heads=32, heads_kv=8, length=8192, d=128):
    moved = 2 * batch * heads_kv * length * d * dtype.itemsize
    exact = torch.bfloat16 if dtype == torch.int8 else dtype
    q = normal(batch, heads, 1, d, dtype=exact)
    sets = [tuple(normal(batch, heads_kv, length, d, dtype=dtype) for _ in "kv") for _ in range(1 + (1 << 28) // moved)]
    scales = {"descale_k": torch.tensor([0.01]), "descale_v": torch.tensor([0.01])} if dtype == torch.int8 else {}
    turns = itertools.cycle(sets)  # the first call, of the first set, is verified

    def expected():
        k, v = (x.double().repeat_interleave(heads // heads_kv, 1) for x in sets[0])
        return unfused(q.double(), k * 0.01, v * 0.01, False) if scales else unfused(q.double(), k, v, False)

    def ours():
        return attikos.decode(q, *next(turns), **scales)

    def peer():
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
            return F.scaled_dot_product_attention(q, *next(turns), enable_gqa=True)

    labels = {"dtype": name(dtype), "batch": batch, "length": length}
    peers = {} if dtype == torch.int8 else {"sdpa": peer}
    return Case(labels, ours, peers, expected, moved=moved, copied=normal((1 << 28) // 8))


# Rows


def rotated(x, cos, sin):
    """x [batch, seqlen, heads · d], the halves of each head as pairs."""
    heads = x.unflatten(2, (-1, cos.shape[1]))
    first, second = heads.chunk(2, -1)
    c, s = cos[:, None], sin[:, None]
    return (heads * c + torch.cat((-second, first), -1) * s).flatten(2)


def row_operations(dtype, rows, size):
    """{name: (ours, its arguments, PyTorch's, ours of the gradients, their first arguments)}"""
    x, weight, bias = normal(rows, size, dtype=dtype), normal(size, dtype=dtype), normal(size, dtype=dtype)
    found = {
        "rms_norm": (attikos.rms_norm, (x, weight), lambda x, w: F.rms_norm(x, w.shape, w, 1e-6),
                     attikos.rms_norm_backward),
        "layer_norm": (attikos.layer_norm, (x, weight, bias), lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5),
                       attikos.layer_norm_backward),
        "softmax": (attikos.softmax, (x,), lambda x: torch.softmax(x, -1), attikos.softmax_backward),
    }  # fmt: skip
    d = 128 if size % 128 == 0 else 2
    if size % d == 0:
        angle = torch.outer(torch.arange(rows), 10000.0 ** (-torch.arange(0, d, 2) / d)).repeat(1, 2)
        tables = angle.cos().to(dtype), angle.sin().to(dtype)
        found["rms_norm_rope"] = (
            attikos.fused_rmsnorm_rope, (x[None], weight, *tables),
            lambda x, w, c, s: rotated(F.rms_norm(x, w.shape, w, 1e-6), c, s), None,
        )  # fmt: skip
    return found


def row(operation, dtype, rows, size, back=False):
    ours, given, theirs, gradient = row_operations(dtype, rows, size)[operation]
    x = given[0]
    labels = {"operation": operation + (" backward" if back else ""), "dtype": name(dtype), "rows": rows, "size": size}
    once = x.numel() * x.element_size()
    if not back:
        return Case(
            labels, into(ours, *given, out=x), {"torch": lambda: theirs(*given)},
            lambda: theirs(*(t.double() for t in given)), moved=2 * once, copied=x,
        )  # fmt: skip
    dout = torch.randn_like(x)
    wanted = [t.clone().requires_grad_() for t in given[: {"softmax": 1, "rms_norm_rope": 2}.get(operation, 3)]]
    tables = given[len(wanted) :]
    with torch.enable_grad():
        result = theirs(*wanted, *tables)

    def peer():
        return torch.autograd.grad(result, wanted, dout, retain_graph=True)

    def expected():
        exact = [t.detach().double().requires_grad_() for t in wanted]
        with torch.enable_grad():
            found = theirs(*exact, *(t.double() for t in tables))
        found = torch.autograd.grad(found, exact, dout.double())
        return found[0] if operation == "softmax" else tuple(found)

    if operation == "softmax":
        mine = into(gradient, result.detach(), dout, dx=x)
    elif operation == "rms_norm_rope":  # has gradients where PyTorch records alone
        with torch.enable_grad():
            recorded = ours(*wanted, *tables)

        def mine():
            return torch.autograd.grad(recorded, wanted, dout, retain_graph=True)
    else:
        mine = into(gradient, *given[:2], dout, dx=x, dweight=given[1], dbias=given[1])
    return Case(labels, mine, {"torch": peer}, expected, moved=3 * once, copied=x)


def quantization(dtype, rows, size, kind, granularity):
    x = normal(rows, size, dtype=dtype)
    limit = 127.0 if kind == torch.int8 else 448.0

    def torchs(x):
        amax = x.abs().amax() if granularity == "tensor" else x.abs().amax(1, keepdim=True)
        scale = amax.float() / limit
        codes = x / scale
        return (codes.round() if kind == torch.int8 else codes).to(kind), scale

    call = into(attikos.quantize, x, name(kind).removesuffix("fn"), granularity, out=x.to(kind))
    labels = {"operation": f"quantize {granularity}", "dtype": f"{name(dtype)} to {name(kind)}", "rows": rows,
              "size": size, "checked as": kind}  # fmt: skip
    read = x.numel() * x.element_size() * (2 if granularity == "tensor" else 1)  # the largest comes first
    return Case(labels, lambda: call()[0], {"torch": lambda: torchs(x)}, lambda: torchs(x)[0].double(),
                moved=read + x.numel(), copied=x)  # fmt: skip


ROW_OPERATIONS = ("rms_norm", "layer_norm", "softmax", "rms_norm_rope")


def goal_rows(dtype, draw):
    """The shape that the goals name, again and again."""
    while True:
        for operation in ROW_OPERATIONS:
            for back in (False, True):
                yield lambda o=operation, b=back: row(o, dtype, 2048, 4096, b)
        for kind in (torch.int8, torch.float8_e4m3fn):
            for granularity in ("row", "tensor"):
                yield lambda a=(kind, granularity): quantization(dtype, 2048, 4096, *a)


def drawn_rows(dtype, draw):
    yield lambda: row("rms_norm", dtype, 20000, 20)
    yield lambda: row("softmax", dtype, 20000, 20, True)
    while True:
        for operation in draw.sample(ROW_OPERATIONS, 4):
            rows, size = 1 << 30, 1
            while rows * size > 1 << 24:
                rows, size = log_uniform(draw, 16, 32768), log_uniform(draw, 8, 8192)
            size += size % 2 if operation == "rms_norm_rope" else 0
            yield lambda a=(operation, dtype, rows, size, draw.random() < 0.5): row(*a)


# Losses of classifications and language models


def losses(dtype, draw):
    """Log-uniform rows and classes, after those of a language model; forward, and backward over the logits."""

    def case(rows, classes, back):
        x = 3 * normal(rows, classes, dtype=dtype)
        labels = torch.randint(classes, (rows,))
        labels[::7] = -100
        once = x.numel() * x.element_size()
        said = {"operation": "cross_entropy" + (" backward" if back else ""), "dtype": name(dtype), "rows": rows,
                "classes": classes}  # fmt: skip

        def loss(logits):
            return F.cross_entropy(logits, labels, reduction="none")

        if not back:
            return Case(
                said, lambda: attikos.cross_entropy(x, labels, reduction="none"), {"torch": lambda: loss(x)},
                lambda: loss(x.double()), moved=once, copied=x,
            )  # fmt: skip
        lse = torch.logsumexp(x.float(), -1)
        dloss = torch.randn(rows)
        with torch.enable_grad():
            recorded, exact = x.clone().requires_grad_(), x.double().requires_grad_()
            theirs, wanted = loss(recorded), loss(exact)
        given = dloss.to(dtype)
        return Case(
            said, into(attikos.cross_entropy_backward, x, labels, lse, given.float(), dlogits=x),
            {"torch": lambda: torch.autograd.grad(theirs, recorded, given, retain_graph=True)},
            lambda: torch.autograd.grad(wanted, exact, given.double(), retain_graph=True)[0], moved=2 * once, copied=x,
        )  # fmt: skip

    for back in (False, True):
        yield lambda b=back: case(256, 32000, b)
    while True:
        rows, classes = 1 << 30, 1
        while rows * classes > 1 << 24:
            rows, classes = log_uniform(draw, 16, 32768), log_uniform(draw, 4, 131072)
        yield lambda a=(rows, classes, draw.random() < 0.5): case(*a)


# Calls that hardly compute


def tiny(dtype, draw):
    while True:
        q, k, v = (normal(1, 1, 4, 16, dtype=dtype) for _ in range(3))
        a, b, x, weight = (normal(*shape, dtype=dtype) for shape in ((16, 16), (16, 16), (4, 16), (16,)))
        pairs = {
            "attention": (lambda: attikos.attention(q, k, v), lambda: F.scaled_dot_product_attention(q, k, v),
                          lambda: unfused(q.double(), k.double(), v.double(), False)),
            "attention causal": (lambda: attikos.attention(q, k, v, causal=True),
                                 lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                                 lambda: unfused(q.double(), k.double(), v.double(), True)),
            "decode": (lambda: attikos.decode(q[:, :, :1], k, v),
                       lambda: F.scaled_dot_product_attention(q[:, :, :1], k, v),
                       lambda: unfused(q[:, :, :1].double(), k.double(), v.double(), False)),
            "gemm": (lambda: attikos.gemm(a, b), lambda: a @ b, lambda: a.double() @ b.double()),
            "rms_norm": (lambda: attikos.rms_norm(x, weight), lambda: F.rms_norm(x, weight.shape, weight, 1e-6),
                         lambda: F.rms_norm(x.double(), weight.shape, weight.double(), 1e-6)),
            "softmax": (lambda: attikos.softmax(x), lambda: torch.softmax(x, -1),
                        lambda: torch.softmax(x.double(), -1)),
        }  # fmt: skip
        for operation, (ours, theirs, expected) in pairs.items():
            labels = {"operation": operation, "dtype": name(dtype)}
            yield lambda a=(labels, ours, {"torch": theirs}, expected): Case(*a)


F32, F64, BF16, F16, I8 = torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int8
# {family: (its types, cases of one of them)}
FAMILIES = {
    "products": ((F32, F64, BF16, F16, I8), products),
    "packed_products": ((F32, BF16, F16, I8), packed_products),
    "few_rows": ((F32, F64, BF16), few_rows),
    "attention": ((F32, BF16, F64), lambda dtype, draw: attentions(dtype, draw, forward)),
    "backward": ((F32, BF16), lambda dtype, draw: attentions(dtype, draw, backward)),
    "decode": ((F32, BF16, F16, I8), decodes),
    "rows": ((F32, BF16), goal_rows),
    "drawn_rows": ((F32, BF16), drawn_rows),
    "losses": ((F32, BF16), losses),
    "tiny": ((F32, BF16), tiny),
}
# Families of which a list is gone through once: how many cases that is.
ONCE = {"decode": 2, "rows": 12, "tiny": 6}


def cases(family, dtype, seed):
    """The shapes of a family and type follow from the seed, whatever else is measured."""
    return FAMILIES[family][1](dtype, random.Random(f"{seed} {family} {name(dtype)}"))
