# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The example llama beside the same model in PyTorch.

  llama_torch.py compare PROGRAM [--out FILE] [--plot FILE] [--device cpu] -- OPTION...
  llama_torch.py train PROGRAM [--out FILE] [SIZES]
  llama_torch.py generate [PROGRAM] [--out FILE] [SIZES] [--batches 1,64] [--context N] [--tokens N]
  llama_torch.py plot RESULT --plot FILE

compare runs PROGRAM with the given options in float32, which writes its first weights, the tokens of all steps and its
losses. PyTorch then does the same from the same weights, tokens and settings of AdamW, in float32 without TF32 and in
float64. Of each step the farthest that the losses so far were from those of float64 is taken; Attikos's may be at most
FACTOR times PyTorch's, and ULPS of a loss in float32 more. plot draws what compare wrote.

train times steps in bfloat16: the whole model under torch.compile, attention by the fastest of PyTorch's back ends,
AdamW fused, either of float32 master weights, whose gradients and roundings are copied, or of the bfloat16 weights
alone; PROGRAM with either way of its MLP. generate times one token after another in a CUDA graph, of a compiled step and
of its single calls, over a cache in one piece for each layer, with attention in each of the ways DECODERS; PROGRAM, if it
is given, call by call and as a graph.
"""

import argparse
import contextlib
import csv
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import numpy
import torch
import torch.nn.functional as functional
from companion_torch import context
from torch.nn.attention import SDPBackend, sdpa_kernel

FACTOR, ULPS = 4, 4
BACKENDS = (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION)
SIZES = {"layers": 8, "hidden": 2048, "heads": 16, "kv-heads": 4, "intermediate": 5632, "batch": 8, "length": 2048}
BETAS, EPSILON, NORM_EPSILON, ROPE_BASE = (0.9, 0.95), 1e-8, 1e-5, 10000
VOCABULARY = 30528


def read_safetensors(path):
    """{name: array}; bfloat16 is not wanted here."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    types = {"F32": "<f4", "I64": "<i8", "I32": "<i4"}
    return {
        name: numpy.frombuffer(
            data, types[t["dtype"]], (t["data_offsets"][1] - t["data_offsets"][0]) // int(types[t["dtype"]][2]),
            8 + size + t["data_offsets"][0],
        ).reshape(t["shape"])
        for name, t in header.items()
        if name != "__metadata__"
    }  # fmt: skip


def rotary_tables(head_dim, positions, device, dtype):
    half = torch.arange(head_dim // 2, dtype=torch.float64)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * ROPE_BASE ** -(half / (head_dim // 2))
    # As the program rounds them, whatever they are used in.
    return [torch.cat([f(angle)] * 2, -1).float().to(device, dtype) for f in (torch.cos, torch.sin)]


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    return (x * cos + torch.cat((-second, first), -1) * sin).to(x.dtype)


def layer(x, w, sizes, attend):
    """One layer of x [batch, length, hidden]; w: its weights by the last parts of their names."""
    batch, length, hidden = x.shape
    head_dim = hidden // sizes["heads"]
    h = functional.rms_norm(x, (hidden,), w["input_layernorm"], NORM_EPSILON)
    q, k, v = (
        functional.linear(h, w[f"self_attn.{name}_proj"]).view(batch, length, -1, head_dim).transpose(1, 2)
        for name in "qkv"
    )
    x = x + functional.linear(attend(q, k, v).transpose(1, 2).flatten(2), w["self_attn.o_proj"])
    h = functional.rms_norm(x, (hidden,), w["post_attention_layernorm"], NORM_EPSILON)
    gated = functional.silu(functional.linear(h, w["mlp.gate_proj"])) * functional.linear(h, w["mlp.up_proj"])
    return x + functional.linear(gated, w["mlp.down_proj"])


def layer_weights(weights, index):
    prefix = f"model.layers.{index}."
    return {n[len(prefix) : -len(".weight")]: w for n, w in weights.items() if n.startswith(prefix)}


def loss_of(weights, tokens, targets, sizes, cos, sin):
    x = functional.embedding(tokens, weights["model.embed_tokens.weight"])

    def attend(q, k, v):
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)

    for i in range(sizes["layers"]):
        x = layer(x, layer_weights(weights, i), sizes, attend)
    x = functional.rms_norm(x, (sizes["hidden"],), weights["model.norm.weight"], NORM_EPSILON)
    logits = functional.linear(x, weights["lm_head.weight"])
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def run_steps(first, batches, sizes, settings, dtype, device):
    """Losses of all steps and the last weights."""
    weights = {n: torch.tensor(w, dtype=dtype, device=device, requires_grad=True) for n, w in first.items()}
    cos, sin = rotary_tables(sizes["hidden"] // sizes["heads"], sizes["length"], device, dtype)
    optimizer = torch.optim.AdamW(weights.values(), betas=BETAS, eps=EPSILON, weight_decay=settings["weight-decay"])
    losses = []
    for step, batch in enumerate(batches):
        batch = torch.tensor(batch, dtype=torch.int64, device=device)
        for group in optimizer.param_groups:
            group["lr"] = settings["learning-rate"] * min(1, (step + 1) / max(1, settings["warmup"]))
        optimizer.zero_grad()
        loss = loss_of(weights, batch[:, :-1], batch[:, 1:], sizes, cos, sin)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses).double().cpu().numpy(), {n: w.detach().double().cpu() for n, w in weights.items()}


def compare(arguments):
    options = dict(zip(arguments.options[::2], arguments.options[1::2]))
    settings = {"learning-rate": 3e-4, "weight-decay": 0.1, "warmup": 20}
    settings = {n: float(options.get("--" + n, value)) for n, value in settings.items()}
    sizes = {n: int(options.get("--" + n, value)) for n, value in SIZES.items()}
    torch.backends.cuda.matmul.allow_tf32 = False
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        files = ["--checkpoint", folder / "last", "--batches", folder / "batches", "--losses", folder / "losses"]
        begin = time.monotonic()
        subprocess.run([arguments.program, *arguments.options, *files], check=True)
        seconds = time.monotonic() - begin
        with open(folder / "losses", encoding="ascii") as file:
            ours = numpy.array([float(row["loss"]) for row in csv.DictReader(file)])
        batches = read_safetensors(folder / "batches")["tokens"]
        first, last = (
            {n: w for n, w in read_safetensors(folder / file).items() if n.endswith(".weight")}
            for file in ("last.first", "last")
        )
    runs = {}
    for dtype in (torch.float32, torch.float64):
        begin = time.monotonic()
        runs[dtype] = run_steps(first, batches, sizes, settings, dtype, arguments.device)
        print(f"PyTorch, {dtype}: {time.monotonic() - begin:.1f} s; the program took {seconds:.1f} s", flush=True)
    (theirs, their_last), (exact, exact_last) = runs.values()
    farthest = [numpy.maximum.accumulate(abs(losses - exact)) for losses in (ours, theirs)]
    allowed = FACTOR * farthest[1] + ULPS * 2.0**-23 * exact
    # Weights far from where they began, in norms.
    moved = sum(((w - torch.tensor(first[n])) ** 2).sum() for n, w in exact_last.items()) ** 0.5
    off = [
        float(sum(((torch.tensor(of[n], dtype=w.dtype) - w) ** 2).sum() for n, w in exact_last.items()) ** 0.5 / moved)
        for of in (last, {n: w.numpy() for n, w in their_last.items()})
    ]
    machine = {"device": f"CPU, {torch.get_num_threads()} threads", "torch": torch.__version__}
    result = (context() if arguments.device == "cuda" else machine) | {
        "options": " ".join(arguments.options),
        "steps": len(ours),
        "first loss": ours[0],
        "last losses": {"attikos float32": ours[-1], "torch float32": theirs[-1], "torch float64": exact[-1]},
        "farthest from float64": {"attikos": farthest[0][-1], "torch": farthest[1][-1]},
        "farthest of the two float32": float(abs(ours - theirs).max()),
        "worst of allowed": float((farthest[0] / allowed).max()),
        "last weights from float64's, of their way": {"attikos": off[0], "torch": off[1]},
        "losses": {
            "attikos float32": ours.tolist(),
            "torch float32": theirs.tolist(),
            "torch float64": exact.tolist(),
        },
    }
    if arguments.plot:
        plot(arguments.plot, result)
    print(json.dumps({n: v for n, v in result.items() if n != "losses"}, indent=1))
    assert len(ours) == len(batches) and (farthest[0] <= allowed).all(), "the losses are not those of PyTorch"
    return result


def plot(path, result):
    import matplotlib.pyplot as plt  # which not every machine with a GPU has

    names = ("attikos float32", "torch float32", "torch float64")
    ours, theirs, exact = (numpy.array(result["losses"][name]) for name in names)
    figure, (above, below) = plt.subplots(2, 1, sharex=True, figsize=(7, 6), height_ratios=(2, 1))
    above.plot(exact, color="0.8", linewidth=5, label="PyTorch, float64")
    above.plot(theirs, label="PyTorch, float32")
    above.plot(ours, "--", label="Attikos, float32")
    above.set_ylabel("loss")
    above.legend()
    below.semilogy(abs(theirs - exact), label="PyTorch, float32")
    below.semilogy(abs(ours - exact), "--", label="Attikos, float32")
    below.set_ylabel("distance from float64")
    below.set_xlabel("step")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def random_weights(sizes, dtype):
    hidden, head_dim = sizes["hidden"], sizes["hidden"] // sizes["heads"]
    kv, wide = sizes["kv-heads"] * head_dim, sizes["intermediate"]
    shapes = {"model.embed_tokens.weight": (VOCABULARY, hidden), "lm_head.weight": (VOCABULARY, hidden)}
    for i in range(sizes["layers"]):
        of_layer = {
            "input_layernorm": (hidden,), "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden),
            "post_attention_layernorm": (hidden,), "mlp.gate_proj": (wide, hidden), "mlp.up_proj": (wide, hidden),
            "mlp.down_proj": (hidden, wide),
        }  # fmt: skip
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in of_layer.items()}
    shapes["model.norm.weight"] = (hidden,)
    where = {"device": "cuda", "dtype": dtype}
    return {n: torch.ones(s, **where) if len(s) == 1 else 0.02 * torch.randn(s, **where) for n, s in shapes.items()}


def milliseconds(call, warm=3, count=10):
    for _ in range(warm):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(count):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / count


def fastest_backend(sizes):
    """Of attention forward and backward at these sizes, and the times of all, ms."""
    batch, heads, kv, length = (sizes[n] for n in ("batch", "heads", "kv-heads", "length"))
    q, k, v = (
        torch.randn(batch, length, h, sizes["hidden"] // heads, device="cuda", dtype=torch.bfloat16)
        .transpose(1, 2)
        .requires_grad_()
        for h in (heads, kv, kv)
    )
    times = {}
    for backend in BACKENDS:
        with contextlib.suppress(RuntimeError), sdpa_kernel(backend):

            def call():
                out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
                out.backward(out)

            times[backend] = milliseconds(call)
    return min(times, key=times.get), {b.name: t for b, t in times.items()}


def run_program(program, sizes, options, pattern):
    """What a run in bfloat16 prints of its speed."""
    command = [program, "--type", "bfloat16", *(str(x) for n, v in sizes.items() for x in ("--" + n, v)), *options]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return {name: float(value) for name, value in re.findall(pattern, output)}


def train(arguments, sizes):
    speed = r"(trained) at (\d+) tokens"
    ours = {}
    for way, options in {
        "projections kept": (),
        "projections kept, all logits at once": ("--logits-rows", "1000000"),
        "projections computed again": ("--mlp", "recompute"),
    }.items():
        run = run_program(arguments.program, sizes, ["--steps", "60", "--report", "20", *options], speed)
        ours["attikos tokens/s, " + way] = run["trained"]
    return ours | train_torch(sizes)


def train_torch(sizes):
    backend, times = fastest_backend(sizes)
    weights = {n: w.requires_grad_() for n, w in random_weights(sizes, torch.bfloat16).items()}
    cos, sin = rotary_tables(sizes["hidden"] // sizes["heads"], sizes["length"], "cuda", torch.bfloat16)
    shape = (sizes["batch"], sizes["length"] + 1)
    tokens = torch.randint(0, VOCABULARY, shape, device="cuda")
    compiled = torch.compile(lambda w, x, y: loss_of(w, x, y, sizes, cos, sin))
    master = [w.detach().float().requires_grad_() for w in weights.values()]
    plain = list(weights.values())

    def gradients():
        for w in plain:
            w.grad = None
        compiled(weights, tokens[:, :-1], tokens[:, 1:]).backward()

    def step_of(parameters):
        optimizer = torch.optim.AdamW(parameters, lr=3e-4, betas=BETAS, weight_decay=0.1, fused=True)

        def step():
            gradients()
            if parameters is master:
                for m, w in zip(master, plain):
                    m.grad = torch.empty_like(m) if m.grad is None else m.grad
                torch._foreach_copy_([m.grad for m in master], [w.grad for w in plain])
            optimizer.step()
            if parameters is master:
                with torch.no_grad():
                    torch._foreach_copy_(plain, master)

        return step

    with sdpa_kernel(backend):
        begin = time.monotonic()
        gradients()
        torch.cuda.synchronize()
        seconds = time.monotonic() - begin
        result = {
            "attention": backend.name, "attention, ms": times, "compiled in, s": seconds,
            "forward and backward, ms": milliseconds(gradients), "step, ms": milliseconds(step_of(master)),
            "step without master weights, ms": milliseconds(step_of(plain)),
        }  # fmt: skip
    for name in ("step", "step without master weights"):
        result[name.replace("step", "tokens/s")] = shape[0] * sizes["length"] / result[name + ", ms"] * 1e3
    return result


def decode_gqa(q, k, v, mask):
    return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def decode_products(q, k, v, mask):
    """Query heads that share a key head as rows of one product."""
    grouped = q.reshape(q.shape[0], k.shape[1], -1, q.shape[3])
    scores = (grouped @ k.transpose(2, 3)).float() * q.shape[3] ** -0.5
    weights = scores.masked_fill(~mask, -torch.inf).softmax(-1).to(q.dtype)
    return (weights @ v).reshape(q.shape)


DECODERS = {"gqa": decode_gqa, "products": decode_products}


def decode_step(weights, sizes, tables, positions, attention):
    def step(token, position, cache):
        x = functional.embedding(token, weights["model.embed_tokens.weight"])
        cos, sin = (t[position] for t in tables)
        mask = (positions <= position)[None, None, None]
        for i in range(sizes["layers"]):

            def attend(q, k, v, i=i):
                keys, values = cache[i]
                keys[:, :, position] = rotate(k, cos, sin)
                values[:, :, position] = v
                return attention(rotate(q, cos, sin), keys, values, mask)

            x = layer(x, layer_weights(weights, i), sizes, attend)
        x = functional.rms_norm(x, (sizes["hidden"],), weights["model.norm.weight"], NORM_EPSILON)
        token.copy_(functional.linear(x, weights["lm_head.weight"]).argmax(-1))
        position.add_(1).clamp_(max=len(positions) - 1)

    return step


def generate(arguments, sizes):
    head_dim, capacity = sizes["hidden"] // sizes["heads"], arguments.context + arguments.tokens
    batches = [int(n) for n in arguments.batches.split(",")]
    result = {f"batch {batch}": {} for batch in batches}
    prompt = " ".join(["the"] * (arguments.context - 1))  # behind [CLS]
    for batch in batches if arguments.program else ():
        options = ["--steps", "0", "--batch", "1", "--length", "16", "--generate", str(arguments.tokens)]
        options += ["--generate-batch", str(batch), "--prompt", prompt]
        times = run_program(arguments.program, sizes, options, r"(call by call|as a graph): ([\d.]+) us")
        result[f"batch {batch}"] |= {f"attikos, {way}, us": time_of for way, time_of in times.items()}
    weights = random_weights(sizes, torch.bfloat16)
    tables = rotary_tables(head_dim, capacity, "cuda", torch.bfloat16)
    positions = torch.arange(capacity, device="cuda")
    for batch in batches:
        # A tensor of each layer: writes to parts of one for all make torch.compile copy the whole.
        shape, where = (batch, sizes["kv-heads"], capacity, head_dim), {"device": "cuda", "dtype": torch.bfloat16}
        cache = [tuple(torch.randn(shape, **where) for _ in range(2)) for _ in range(sizes["layers"])]
        token = torch.zeros((batch, 1), device="cuda", dtype=torch.int64)
        position = torch.full((1,), arguments.context, device="cuda")
        for name, attention in DECODERS.items():
            step = decode_step(weights, sizes, tables, positions, attention)
            torch._dynamo.reset()  # which would make the second size a dynamic one
            for way, call in {"compiled": torch.compile(step, fullgraph=True), "call by call": step}.items():
                with torch.no_grad():
                    for _ in range(3):
                        call(token, position, cache)
                    graph = torch.cuda.CUDAGraph()
                    with torch.cuda.graph(graph):
                        call(token, position, cache)
                    position.fill_(arguments.context)
                    time_of_step = milliseconds(graph.replay, 3, arguments.tokens - 4)
                result[f"batch {batch}"][f"torch, {name}, {way}, us"] = 1e3 * time_of_step
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("compare", "train", "generate", "plot"))
    parser.add_argument("program", nargs="?", help="of compare; a result, of plot")
    parser.add_argument("--out", help="where the result goes as JSON")
    parser.add_argument("--plot", help="where the curves of compare go as PNG")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batches", default="1,64")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=256)
    for name, value in SIZES.items():
        parser.add_argument("--" + name, type=int, default=value)
    ours, options = sys.argv[1:], []
    if "--" in ours:
        at = ours.index("--")
        ours, options = ours[:at], ours[at + 1 :]
    arguments = parser.parse_args(ours)
    arguments.options = options
    if arguments.command == "plot":
        return plot(arguments.plot, json.loads(pathlib.Path(arguments.program).read_text(encoding="utf-8")))
    if arguments.command == "compare":
        result = compare(arguments)
    else:
        sizes = {n: getattr(arguments, n.replace("-", "_")) for n in SIZES}
        result = context() | {"sizes": sizes}
        result |= (train if arguments.command == "train" else generate)(arguments, sizes)
        print(json.dumps(result, indent=1))
    if arguments.out:
        pathlib.Path(arguments.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
