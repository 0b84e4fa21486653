# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Cases of peers_torch.py --backward: gradients of attention through the Python package beside PyTorch's."""

import random

import torch
import torch.nn.functional as functional
from companion_torch import in_graph, packed_sequences, pairs_of_window, times
from torch.nn.attention import SDPBackend, sdpa_kernel

TOKENS, HIDDEN = 16384, 2048
SIXTEEN_BITS = torch.bfloat16, torch.float16
SHORT = (512, 8, 64, 64), (256, 8, 128, 64), (128, 8, 256, 64), (16, 12, 197, 64)  # batch, heads, length, head_dim


def gradients_of_peer(backend, q, k, v, dout, causal):
    q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
    with sdpa_kernel(backend):
        out = functional.scaled_dot_product_attention(
            q, k, v, is_causal=causal, enable_gqa=q.shape[1] != k.shape[1]
        )
    return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)


def gradients_unfused(q, k, v, dout, causal):
    """Products of whole matrices and the softmax's own gradient."""
    q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
    scores = q @ k.transpose(2, 3) * q.shape[3] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores[0, 0], dtype=torch.bool).triu(1), float("-inf"))
    out = torch.softmax(scores, -1) @ v
    return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True)


def require_close(case, found, expected, most=0.03):
    """The largest difference beside the largest number of a gradient."""
    for name, mine, theirs in zip(("dq", "dk", "dv"), found, expected):
        error = ((mine.float() - theirs.float()).abs().max() / theirs.float().abs().max()).item()
        if not error < most:
            raise RuntimeError(f"{case}: {name} differs from PyTorch's by {error} of its largest number")


def operations_of(batch, heads, length, head_dim, causal):
    return 10 * batch * heads * length * length * head_dim * (0.5 if causal else 1)


def tensors(dtype, batch, heads, heads_kv, length, head_dim):
    """q, k, v, dout."""
    counts = heads, heads_kv, heads_kv, heads
    return [torch.randn(batch, n, length, head_dim, device="cuda", dtype=dtype) for n in counts]


class Package:
    """Ours through the Python package."""

    families = "dense,random,short,packed,options,types,sm80"

    def gradients(self, q, k, v, dout, *, unordered=False, kernel="", **options):
        """A function that returns dq, dk, dv (and a gradient of a bias), and the kernel that it runs."""
        import attikos

        out, lse = attikos.attention(q, k, v, return_lse=True, **options)
        if unordered:
            options["determinism"] = "unordered"
        operands = q, k, v, out, lse, dout
        told = attikos.explain("attention_backward", *operands, **options, kernel=kernel, check=False)
        call = lambda: attikos.attention_backward(*operands, **options, kernel=kernel, check=False)  # noqa: E731
        return call, told.split()[1] if told.startswith("runs") else told

    def recorded(self, q, k, v, dout, **options):
        """Gradients with respect to q, k and v alone, as PyTorch asks for them, and no kernel's name."""
        import attikos

        q, k, v = (t.detach().requires_grad_() for t in (q, k, v))
        out = attikos.attention(q, k, v, **options)
        return lambda: torch.autograd.grad(out, (q, k, v), dout, retain_graph=True), ""

    def product(self, a, b):
        import attikos

        return attikos.gemm(a, b)


class Library:
    """Ours through a library of the companion's kernels, in calls without further options."""

    families = "dense,random,short,types,sm80"
    kernels = {torch.bfloat16: ("sm80_short_bf16", "sm90_wgmma_bf16", "sm80_mma_bf16"),
               torch.float16: ("sm80_short_f16", "sm90_wgmma_f16", "sm80_mma_f16"),
               torch.float32: ("sm80_simt_f32",), torch.float64: ("sm80_mma_f64",)}  # fmt: skip

    def __init__(self, companion):
        self.companion = companion

    def gradients(self, q, k, v, dout, *, unordered=False, kernel="", causal=False, compute=""):
        names = ("sm80_mma_tf32x3",) if compute == "tf32x3" else self.kernels[q.dtype]
        names = (kernel,) if kernel else [f"attention_backward/{name}" for name in names]
        out, lse = attention_by_heads(q, k, v, causal)
        for name in names:
            try:
                call = self.companion.attention_backward(
                    q, k, v, out, lse, dout, kernel=name, causal=causal, unordered=unordered
                )
                call()
            except RuntimeError:  # it does not take the call
                continue
            return lambda: call() or call.gradients, name
        return None, "portable"

    def product(self, a, b):
        """PyTorch's, as the library has none."""
        return a @ b


ours = Package()


def attention_by_heads(q, k, v, causal):
    """The output and its log-sum-exp, of a head at a time in float32 or float64."""
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    out, lse = torch.empty_like(q), torch.empty(q.shape[:3], device=q.device, dtype=wide)
    hidden = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(1) if causal else None
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            keys, values = (x[b, h * k.shape[1] // q.shape[1]].to(wide) for x in (k, v))
            scores = q[b, h].to(wide) @ keys.T * q.shape[3] ** -0.5
            if causal:
                scores.masked_fill_(hidden, float("-inf"))
            lse[b, h] = torch.logsumexp(scores, -1)
            out[b, h] = torch.softmax(scores, -1) @ values
    return out, lse


def rates_of(case, operations, calls):
    """Adds to a case the rates of calls, captured so that launches do not count, and ours over the best other's."""
    count = max(1, min(24, int(1e11 / operations)))
    graphs = {name: in_graph(call, count, 2) for name, call in calls.items()}
    uncaptured = [name for name, (_, captured) in graphs.items() if not captured]
    case["timing"] = ", but not ".join(["graph", *uncaptured])
    seconds = times([graph for graph, _ in graphs.values()])
    rates = {name: count * operations / t * 1e-12 for name, t in zip(graphs, seconds)}
    case.update({f"{name}:TFLOP/s": round(rate, 1) for name, rate in rates.items()})
    others = [rate for name, rate in rates.items() if name not in ("attikos", "unordered")]
    if others:
        case["ratio"] = round(rates["attikos"] / max(others), 3)
    if "unordered" in rates:
        case["unordered ratio"] = round(rates["unordered"] / max(others), 3)
        case["of unordered"] = round(rates["attikos"] / rates["unordered"], 3)
    return rates


def beside_peers(peers, family, dtype, batch, heads, heads_kv, length, head_dim, causal, portable, unordered=False):
    q, k, v, dout = tensors(dtype, batch, heads, heads_kv, length, head_dim)
    mine, kernel = ours.gradients(q, k, v, dout, causal=causal)
    case = {"family": family, "dtype": str(dtype)[6:], "batch": batch, "heads": heads, "heads_kv": heads_kv,
            "length": length, "head_dim": head_dim, "causal": causal, "kernel": kernel}  # fmt: skip
    if kernel == "portable" and not portable:
        return case
    calls, expected = {"attikos": mine}, None
    if unordered:
        calls["unordered"] = ours.gradients(q, k, v, dout, causal=causal, unordered=True)[0]
    for name, backend in peers.items():
        try:
            call = gradients_of_peer(backend, q, k, v, dout, causal)
            expected = call()
        except RuntimeError:  # the back end has no kernel for this case
            continue
        calls[name] = call
    if expected is not None:
        require_close(case, mine(), expected)
    rates_of(case, operations_of(batch, heads, length, head_dim, causal), calls)
    return case


def types_case(dtype, head_dim, causal, length=4096):
    """float32 beside our own IEEE product and PyTorch's memory-efficient kernel, whose products are of 3×TF32, as ours
    of tf32x3 are; float64 beside PyTorch unfused."""
    batch, heads = (1 if dtype == torch.float64 else TOKENS // length), HIDDEN // head_dim
    q, k, v, dout = tensors(dtype, batch, heads, heads, length, head_dim)
    mine, kernel = ours.gradients(q, k, v, dout, causal=causal)
    case = {"family": str(dtype)[6:], "dtype": str(dtype)[6:], "batch": batch, "heads": heads, "heads_kv": heads,
            "length": length, "head_dim": head_dim, "causal": causal, "kernel": kernel}  # fmt: skip
    if kernel == "portable":
        return case
    calls = {"attikos": mine}
    if dtype == torch.float64:
        calls["unfused"] = gradients_unfused(q, k, v, dout, causal)
        require_close(case, mine(), calls["unfused"](), 1e-6)
        rates_of(case, operations_of(batch, heads, length, head_dim, causal), calls)
        return case
    calls["tf32x3"] = ours.gradients(q, k, v, dout, causal=causal, compute="tf32x3")[0]
    calls["efficient"] = gradients_of_peer(SDPBackend.EFFICIENT_ATTENTION, q, k, v, dout, causal)
    require_close(case, mine(), calls["efficient"](), 1e-4)
    require_close(case, calls["tf32x3"](), calls["efficient"](), 1e-4)
    rates = rates_of(case, operations_of(batch, heads, length, head_dim, causal), calls)
    a, b = (torch.randn(4096, 4096, device="cuda") for _ in range(2))
    product = 2e-12 * 4096**3 / times([lambda: ours.product(a, b)])[0]
    del case["ratio"]
    case["product:TFLOP/s"] = round(product, 1)
    case["of product"] = round(rates["attikos"] / product, 3)
    case["tf32x3 ratio"] = round(rates["tf32x3"] / rates["efficient"], 3)
    return case


def packed_case(head_dim, causal):
    """Beside as many tokens in sequences of one length that cost the same."""
    offsets, squares, batch, length = packed_sequences(random.Random(1))
    total, heads = offsets[-1], HIDDEN // head_dim
    cu_seqlens = torch.tensor(offsets, device="cuda", dtype=torch.int32)
    rows = [torch.randn(total, heads, head_dim, device="cuda", dtype=torch.bfloat16).transpose(0, 1) for _ in range(4)]
    packed, kernel = ours.gradients(*rows, causal=causal, cu_seqlens_q=cu_seqlens, cu_seqlens_kv=cu_seqlens)
    dense, _ = ours.gradients(*tensors(torch.bfloat16, batch, heads, heads, length, head_dim), causal=causal)
    factor = 10e-12 * heads * head_dim * (0.5 if causal else 1)
    seconds = times([packed, dense])
    rates = factor * squares / seconds[0], factor * batch * length * length / seconds[1]
    return {"family": "packed", "dtype": "bfloat16", "head_dim": head_dim, "causal": causal,
            "sequences": len(offsets) - 1, "length": length, "kernel": kernel, "attikos:TFLOP/s": round(rates[0], 1),
            "dense:TFLOP/s": round(rates[1], 1), "ratio": round(rates[0] / rates[1], 3)}  # fmt: skip


def options_case(head_dim, name, length=4096):
    """A call with one option beside the same without. A window's operations are those of the 128-key blocks it
    touches, of rows of 128 queries."""
    batch, heads = TOKENS // length, HIDDEN // head_dim
    if name == "window":
        batch, length = 1, TOKENS
    q, k, v, dout = tensors(torch.bfloat16, batch, heads, heads, length, head_dim)
    causal = name == "window"
    # Another one for each pair of batch and head would be larger than all other tensors together.
    bias = torch.randn(length, length, device="cuda", dtype=torch.bfloat16) if "bias" in name else None
    call = ours.recorded if name == "bias" else ours.gradients
    with_option, kernel = call(q, k, v, dout, causal=causal, **{
        "window": {"window": (1024, 0)},
        "softcap": {"softcap": 30.0},
        "alibi": {"alibi_slopes": torch.rand(heads, device="cuda")},
        "bias": {"bias": bias},
        "bias and d_bias": {"bias": bias},
    }[name])  # fmt: skip
    case = {"family": "options", "dtype": "bfloat16", "head_dim": head_dim, "option": name, "length": length,
            "kernel": kernel}  # fmt: skip
    seconds = times([with_option, ours.gradients(q, k, v, dout, causal=causal)[0]])
    factor = 10e-12 * batch * heads * head_dim
    plain = factor * length * length * (0.5 if causal else 1)
    share = plain
    if name == "window":
        share = factor * pairs_of_window(length, 1024)
    rates = share / seconds[0], plain / seconds[1]
    case.update({"attikos:TFLOP/s": round(rates[0], 1), "plain:TFLOP/s": round(rates[1], 1),
                 "ratio": round(rates[0] / rates[1], 3)})  # fmt: skip
    return case


def sm80_case(head_dim, length, causal):
    """The kernels for any strides beside Flash."""
    batch, heads = TOKENS // length, HIDDEN // head_dim
    q, k, v, dout = tensors(torch.bfloat16, batch, heads, heads, length, head_dim)
    mine, kernel = ours.gradients(q, k, v, dout, causal=causal, kernel="attention_backward/sm80_mma_bf16")
    case = {"family": "sm80", "dtype": "bfloat16", "head_dim": head_dim, "length": length, "causal": causal,
            "kernel": kernel}  # fmt: skip
    calls = {"attikos": mine, "flash": gradients_of_peer(SDPBackend.FLASH_ATTENTION, q, k, v, dout, causal)}
    require_close(case, mine(), calls["flash"]())
    rates_of(case, operations_of(batch, heads, length, head_dim, causal), calls)
    return case


def random_shape(draw, head_dim):
    """Batch, heads, heads of k and v, length, head_dim: as many positions in all as TOKENS, or fewer."""
    length = round(40 * 150 ** draw.random())
    batch = draw.randint(1, max(1, min(16, TOKENS // length)))
    group, heads_kv = draw.choice((1, 1, 1, 2, 4, 8)), draw.choice((1, 2, 3, 4, 6, 8, 12))
    return batch, group * heads_kv, heads_kv, length, head_dim


def cases(peers, families, seed, portable, companion=None):
    """Functions of the cases that make up the families, through a library if one is given. A backward pass runs on the
    stream of its forward pass, which the default one cannot be where calls are captured."""
    global ours
    if companion is not None:
        ours = Library(companion)
    families = (families or ours.families).split(",")
    stream = torch.cuda.Stream()
    both = False, True

    def case(function, *arguments, **more):
        def run():
            with torch.cuda.stream(stream):
                return function(*arguments, **more)

        return run

    if "dense" in families:
        for dtype in SIXTEEN_BITS:
            for head_dim in (32, 64, 96, 128, 192, 256) if dtype == torch.bfloat16 else (64, 128, 256):
                for length in (512, 1024, 2048, 4096, 8192, 16384):
                    for causal in both:
                        shape = TOKENS // length, HIDDEN // head_dim, HIDDEN // head_dim, length, head_dim
                        yield case(beside_peers, peers, "dense", dtype, *shape, causal, portable, unordered=True)
    if "random" in families:
        draw = random.Random(seed)
        for number in range(35):
            odd = number >= 30  # apart: no copy engine takes such rows
            head_dim = draw.randrange(25, 128, 2) if odd else 8 * draw.randint(3, 32)
            shape, causal = random_shape(draw, head_dim), draw.random() < 0.5
            yield case(beside_peers, peers, "odd" if odd else "random", torch.bfloat16, *shape, causal, portable)
    if "short" in families:
        for batch, heads, length, head_dim in SHORT:
            for causal in both:
                shape = batch, heads, heads, length, head_dim
                yield case(beside_peers, peers, "short", torch.bfloat16, *shape, causal, portable)
    if "packed" in families:
        for head_dim in (64, 128, 256):
            for causal in both:
                yield case(packed_case, head_dim, causal)
    if "options" in families:
        for head_dim in (64, 128, 256):
            for name in ("window", "softcap", "alibi", "bias", "bias and d_bias"):
                yield case(options_case, head_dim, name)
    if "types" in families:
        for dtype in (torch.float32, torch.float64):
            for head_dim in (64, 128):
                for causal in both:
                    yield case(types_case, dtype, head_dim, causal)
    if "sm80" in families:
        for head_dim in (64, 128, 256):
            for length in (1024, 4096, 16384):
                for causal in both:
                    yield case(sm80_case, head_dim, length, causal)
