# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Plots of what perf/results and the tests have on record, as SVG in the text of a page: the colour of the text is the
page's, so that one picture serves light and dark. Drawn when the site is built; none is committed."""

from __future__ import annotations

import collections
import io
import json
import math
import pathlib
import re
import subprocess
import sys
from typing import Any, Callable

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

INK = "#010203"  # what becomes the colour of the page's text
FAINT = "#808080"
COLOURS = ["#2f7fc1", "#d9822b", "#3a9d5d", "#b04ec0", "#c2474f", "#7a8b99"]
OURS, PEER, OTHER = COLOURS[0], COLOURS[1], COLOURS[5]
STYLE = {
    "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 10, "text.color": INK, "axes.labelcolor": INK,
    "axes.edgecolor": FAINT, "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.titlesize": 10.5,
    "axes.spines.right": False, "axes.grid": True, "grid.color": FAINT, "grid.alpha": 0.25, "legend.frameon": False,
    "figure.constrained_layout.use": True,
    "axes.prop_cycle": matplotlib.cycler(color=COLOURS),
}  # fmt: skip

H200 = "build/cuda/perf"
LIBRARY = "${lib}"  # build/cuda/perf/support/libattikos_perf, as docs/performance.md has it
GEMM, ATTENTION, DECODE = (f"perf/results/h200_{name}.json" for name in ("gemm", "attention", "decode"))
MORE, MEMORY = "perf/results/h200_attention_more.json", "perf/results/h200_memory.json"
ROWS_RANDOM, PORTABLE = "perf/results/h100_rows_random.json", "perf/results/h200_portable.json"
PORTABLE_PRODUCTS = "perf/results/h200_portable_products.json"
CPU_GEMM, CPU_ATTENTION, CPU_NORM = (f"perf/results/cpu_{name}.json" for name in ("gemm", "attention", "norm"))
CPU_FUSED, CPU_ROWS = "perf/results/cpu_fused.json", "perf/results/cpu_rows.json"
RATIOS, GRADIENTS = "tests/worst_ratios.txt", "tests/docs/gradient_maxima.md"

RECORDS = {
    "attention-lengths": [ATTENTION], "attention-sorted": [ATTENTION, MORE], "products-sizes": [GEMM],
    "products-sorted": [GEMM], "rows-random": [ROWS_RANDOM], "portable-random": [PORTABLE_PRODUCTS, PORTABLE], "decode": [DECODE], "memory": [CPU_ATTENTION, MEMORY], "options": [MORE],
    "host-products": [CPU_GEMM], "host-attention": [CPU_ATTENTION], "host-rows": [CPU_NORM, CPU_ROWS],
    "host-fused": [CPU_FUSED], "error-forward": [RATIOS], "error-norms": [RATIOS], "error-gradients": [GRADIENTS],
}  # fmt: skip
COMMANDS = {
    GEMM: f"{H200}/perf_gemm --rounds 5 --benchmark_out={GEMM}",
    ATTENTION: f"python3 perf/peers_torch.py {LIBRARY}_attention.so --families dense --out {ATTENTION}",
    MORE: f"python3 perf/peers_torch.py {LIBRARY}_attention.so --quick --families … --out {MORE}",
    DECODE: f"python3 perf/decode_torch.py {LIBRARY}_decode.so --out {DECODE}",
    MEMORY: f"{H200}/perf_attention --benchmark_filter=/memory --benchmark_out={MEMORY}",
    ROWS_RANDOM: f"python3 perf/rows_torch.py --families … --without-compile --random 60 --seed 20261128 --out {ROWS_RANDOM}",
    PORTABLE_PRODUCTS: f"python3 perf/portable_torch.py {LIBRARY}_portable.so --seed 20261203 --shapes 60"
    f" --families products,batched,gated,random --out {PORTABLE_PRODUCTS}",
    PORTABLE: f"python3 perf/portable_torch.py {LIBRARY}_portable.so --seed 20261202"
    f" --families attention,gradients,functors,random_attention --out {PORTABLE}",
    RATIOS: "python3 tests/ratchet.py --write build/default/tests/test_*",
    GRADIENTS: "python3 tests/docs/gradient_maxima.py test_attention_backward … > tests/docs/gradient_maxima.md",
} | {f"perf/results/cpu_{name}.json": f"build/perf/perf/perf_{name} --benchmark_out=perf/results/cpu_{name}.json"
     for name in ("gemm", "attention", "norm", "fused", "rows")}  # fmt: skip

DRAWN: dict[str, tuple[Callable[[pathlib.Path, Any], str], tuple[float, float], tuple[int, int]]] = {}


def plot(name: str, size: tuple[float, float] = (7.6, 3.6), panels: tuple[int, int] = (1, 1)) -> Callable[..., Any]:
    """Registers what draws a plot and gives the words for those who do not see it."""

    def add(function: Callable[[pathlib.Path, Any], str]) -> Callable[[pathlib.Path, Any], str]:
        DRAWN[name] = (function, size, panels)
        return function

    return add


def draw(name: str, root: pathlib.Path) -> tuple[str, str]:
    function, size, panels = DRAWN[name]
    with matplotlib.rc_context(STYLE | {"svg.hashsalt": name}):
        figure, axes = pyplot.subplots(*panels, figsize=size)
        words = function(root, axes)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
        pyplot.close(figure)
    svg = out.getvalue()
    svg = svg[svg.index("<svg") :].replace(INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\1{name}-", svg)
    width = int(size[0] * 72)
    style = f'<svg style="width: 100%; min-width: {width - 60}px; max-width: {int(width * 1.4)}px"'
    svg = re.sub(r'<svg height="[\d.]+pt"|<svg', style, svg, count=1)
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    return svg, words.replace('"', "'").replace("\n", " ")


def caption(name: str, root: pathlib.Path) -> str:
    """On what, when and by which command the records of a plot were made, in Markdown."""
    return " ".join(origin(root, record) for record in RECORDS[name])


def origin(root: pathlib.Path, record: str) -> str:
    if not record.endswith(".json"):
        kind = re.search(r"^# kind: (.*)$", (root / record).read_text(encoding="utf-8"), re.M)
        on = f" on a host ({kind[1]})" if kind else " on a host"
        return f"`{record}`{on}, {committed(root, record)}, by `{COMMANDS[record]}`."
    data = load(root, record)
    context = data.get("context", data)
    device = str(context.get("device", ""))
    if "execution_space" in context and context["execution_space"] != "Cuda":
        device = f"{context.get('host', 'a host')}, {context['num_cpus']} cores"
    driver = context.get("cuda_driver", context.get("driver_version", ""))
    day = context.get("date", "")[:10] or committed(root, record)
    commit = context.get("attikos_commit", "")
    facts = [device, f"driver {driver}" if driver else "", day, f"commit {commit}" if commit else ""]
    return f"`{record}`: {', '.join(fact for fact in facts if fact)}; `{COMMANDS[record]}`."


def committed(root: pathlib.Path, record: str) -> str:
    """The day on which a record that does not say one was committed."""
    command = ["git", "-C", str(root), "log", "-1", "--format=%cs", "--", record]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "no day on record"


def load(root: pathlib.Path, record: str) -> Any:
    return json.loads((root / record).read_text(encoding="utf-8"))


def benchmarks(root: pathlib.Path, record: str) -> list[dict[str, Any]]:
    return [b for b in load(root, record)["benchmarks"] if not b.get("error_occurred")]


def lengths(axis: Any, values: list[int]) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(values, [f"{v // 1024}k" if v >= 1024 else str(v) for v in values])
    axis.minorticks_off()


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


# --- on a GPU --------------------------------------------------------------------------------------------------------


@plot("attention-lengths", (7.6, 3.8), (1, 2))
def attention_lengths(root: pathlib.Path, axes: Any) -> str:
    cases = [c for c in load(root, ATTENTION)["cases"] if c["family"] == "dense" and c["dtype"] == "bfloat16"]
    for axis, causal in zip(axes, (False, True)):
        for colour, head_dim in zip(COLOURS, (64, 128, 256)):
            group = sorted((c for c in cases if c["causal"] == causal and c["head_dim"] == head_dim and "ratio" in c),
                           key=lambda c: c["length"])  # fmt: skip
            at = [c["length"] for c in group]
            axis.plot(at, [c["attikos:TFLOP/s"] for c in group], marker="o", markersize=4, color=colour,
                      label=f"head_dim {head_dim}")  # fmt: skip
            best = [max(c.get(f"{peer}:TFLOP/s", 0) for peer in ("cudnn", "flash", "efficient")) for c in group]
            axis.plot(at, best, "--", color=colour, linewidth=1.2)
        lengths(axis, at)
        axis.set_title("causal" if causal else "full")
        axis.set_xlabel("sequence length")
        axis.set_ylim(bottom=0)
    axes[0].set_ylabel("TFLOP/s")
    axes[0].legend(title="solid: Attikos\ndashed: best of PyTorch's", loc="lower right", fontsize=9)
    return "TFLOP/s of bfloat16 attention against length beside the best back end of PyTorch, full and causal"


def sorted_line(axis: Any, ratios: list[float], colour: str, label: str) -> None:
    ratios = sorted(ratios)
    share = [(i + 0.5) / len(ratios) for i in range(len(ratios))]
    axis.plot(share, ratios, marker=".", markersize=4, color=colour, linewidth=1.2,
              label=f"{label}: {len(ratios)} cases, mean {mean(ratios):.2f}, least {ratios[0]:.2f}")  # fmt: skip


def finish_sorted(axis: Any, peer: str) -> None:
    axis.axhline(1, color=FAINT, linewidth=1)
    axis.set_xlabel("share of the cases, sorted by their ratio")
    axis.set_ylabel(f"times {peer}")
    axis.legend(fontsize=9, loc="upper left")


@plot("attention-sorted")
def attention_sorted(root: pathlib.Path, axis: Any) -> str:
    cases = [c for c in load(root, ATTENTION)["cases"] if "ratio" in c]
    for colour, dtype in zip(COLOURS, ("bfloat16", "float16")):
        sorted_line(axis, [c["ratio"] for c in cases if c["dtype"] == dtype], colour, dtype)
    grouped = [c["ratio"] for c in load(root, MORE)["cases"] if c["family"] == "grouped" and "ratio" in c]
    if grouped:
        sorted_line(axis, grouped, COLOURS[2], "few queries of shared heads")
    log_ratios(axis, [1, 1.5, 2, 3, 5])
    finish_sorted(axis, "PyTorch's best back end")
    return "Ratios of attention to the best back end of PyTorch, sorted"


@plot("products-sizes")
def products_sizes(root: pathlib.Path, axis: Any) -> str:
    e4 = "float8_e4m3_float8_e4m3_bfloat16"
    types = {"bfloat16_bfloat16_bfloat16": "bfloat16", "float16_float16_float16": "float16", "int8_int8_int32": "int8",
             f"{e4} fast": "float8, fast sums", e4: "float8, promoted sums"}  # fmt: skip
    cases = [c for c in products(root) if c["family"] == "gemm" and c["m"] == c["n"] == c["k"] >= 1024]
    for colour, (type_, label) in zip(COLOURS, types.items()):
        found = {c["m"]: c for c in cases if c["types"] == type_ and c["ops"] == "nt" and "cublaslt:GFLOP/s" in c}
        at = sorted(found)
        axis.plot(at, [found[n]["GFLOP/s"] / 1e3 for n in at], marker="o", markersize=4, color=colour, label=label)
        axis.plot(at, [found[n]["cublaslt:GFLOP/s"] / 1e3 for n in at], "--", color=colour, linewidth=1.2)
    lengths(axis, sorted({c["m"] for c in cases}))
    axis.set_ylim(bottom=0)
    axis.set_xlabel("M = N = K, A row-major, B transposed")
    axis.set_ylabel("TFLOP/s (int8: TOP/s)")
    title = "solid: Attikos\ndashed: cuBLASLt's\nfirst heuristic"
    axis.legend(title=title, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return "Rates of square products against their size, by element type, beside cuBLASLt"


def products(root: pathlib.Path) -> list[dict[str, Any]]:
    """The cases of products as the report of perf/ has them."""
    sys.path.insert(0, str(root / "perf"))
    import report_gemm

    cases: list[dict[str, Any]] = report_gemm.cases(root / GEMM)[0]
    return cases


@plot("products-sorted")
def products_sorted(root: pathlib.Path, axis: Any) -> str:
    groups = [("bfloat16, float16", ("bfloat16", "float16")), ("float8", ("float8_e4m3",)), ("float32", ("float32",)),
              ("float64", ("float64",))]  # fmt: skip
    found = [c for c in products(root) if c["family"] in ("gemm", "gemm_scaled") and "tf32" not in c["types"]]
    for colour, (label, types) in zip(COLOURS, groups):
        ratios = [c["cublaslt:ratio"] for c in found if c.get("cublaslt:ratio") and c["types"].startswith(types)]
        sorted_line(axis, ratios, colour, label)
    finish_sorted(axis, "cuBLASLt's first heuristic")
    return "Ratios of products to cuBLASLt's first heuristic, sorted"


@plot("rows-random", (7.6, 7.4), (2, 1))
def rows_random(root: pathlib.Path, axes: Any) -> str:
    families: dict[str, list[float]] = collections.defaultdict(list)
    for c in load(root, ROWS_RANDOM)["cases"]:
        families[c["family"]].append(c["of peer"])
    for axis, backward in zip(axes, (False, True)):
        found = {name: ratios for name, ratios in families.items() if name.endswith("_backward") == backward}
        for colour, (name, ratios) in zip(COLOURS, found.items()):
            sorted_line(axis, ratios, colour, name)
        log_ratios(axis, [0.33, 0.5, 1, 2, 5, 10, 20])
        finish_sorted(axis, "eager PyTorch")
        axis.set_ylim(top=120)  # the legend's place
    return "Ratios of norms, softmax, quantize and losses of random shapes to PyTorch, sorted; gradients below"


@plot("portable-random", (7.6, 7.4), (2, 1))
def portable_random(root: pathlib.Path, axes: Any) -> str:
    for axis, record, family, peer in zip(
        axes, (PORTABLE_PRODUCTS, PORTABLE), ("random", "random_attention"), ("cuBLAS", "PyTorch's back end")
    ):
        cases = [c for c in load(root, record)["cases"] if c["family"] == family]
        for colour, dtype in zip(COLOURS, ("bfloat16", "float32", "float64")):
            ratios = [c["ratio"] for c in cases if c["dtype"] == dtype]
            if ratios:
                sorted_line(axis, ratios, colour, dtype)
        log_ratios(axis, [0.2, 0.33, 0.5, 0.7, 1, 1.5, 2])
        axis.set_title("products" if family == "random" else "attention and its gradients")
        finish_sorted(axis, peer)
        axis.set_ylim(top=3.5)  # the legend's place
    return "Ratios of portable kernels on random shapes to cuBLAS and to PyTorch's attention, sorted"


def log_ratios(axis: Any, ticks: list[float]) -> None:
    axis.set_yscale("log")
    axis.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.minorticks_off()


@plot("decode", (7.6, 5.0))
def decode(root: pathlib.Path, axis: Any) -> str:
    cases = [c for c in load(root, DECODE)["cases"] if c["queries"] == 1]
    rows = []
    for c in cases:
        dtype, pages = c.get("dtype", "bfloat16"), f"pages of {c['page_size']}" if c["page_size"] else "in one piece"
        rows.append((f"{dtype}, {c['batch']} × {c['length'] // 1024}k, {pages}", c["of copy"]))
    bars(axis, rows, "bytes of keys and values in a second, of what a copy moves")
    return "Bytes of the cache that decoding reads in a second, beside a copy"


@plot("memory", (7.6, 3.4), (1, 2))
def memory(root: pathlib.Path, axes: Any) -> str:
    for axis, record, title in zip(axes, (CPU_ATTENTION, MEMORY), ("host", "H200")):
        found: dict[str, dict[int, float]] = collections.defaultdict(dict)
        for b in benchmarks(root, record):
            if b["name"].endswith("/memory"):
                _, kernel, _, dtype, shape, _ = b["name"].split("/")
                length = re.search(r"_s(\d+)_", shape)
                assert length
                found[f"{kernel}, {dtype}"][int(length[1])] = b["output_and_workspace_MiB"]
        for (label, points), colour in zip(found.items(), COLOURS):
            at = sorted(points)
            axis.plot(at, [points[n] for n in at], marker="o", markersize=4, color=colour, label=label)
        lengths(axis, at)
        axis.set_yscale("log", base=2)
        axis.set_yticks([0.125, 0.5, 2, 8, 32], ["⅛", "½", "2", "8", "32"])
        axis.set_title(title)
        axis.set_xlabel("sequence length")
        axis.legend(fontsize=8)
    axes[0].set_ylabel("MiB of output and workspace")
    return "Memory of attention against length: flash grows linearly, stored scores with the square"


@plot("options")
def options(root: pathlib.Path, axis: Any) -> str:
    cases = [c for c in load(root, MORE)["cases"] if c["family"] == "options"]
    dims, names = sorted({c["head_dim"] for c in cases}), list(dict.fromkeys(c["option"] for c in cases))
    for i, (head_dim, colour) in enumerate(zip(dims, COLOURS)):
        ratios = {c["option"]: c["ratio"] for c in cases if c["head_dim"] == head_dim}
        at = [j + (i - 1) * 0.27 for j in range(len(names))]
        axis.bar(at, [ratios.get(name, 0) for name in names], 0.27, color=colour, label=f"head_dim {head_dim}")
    axis.axhline(1, color=FAINT, linewidth=1)
    axis.set_xticks(range(len(names)), names)
    axis.set_ylabel("rate, of the same call without")
    axis.grid(False, axis="x")
    axis.legend(fontsize=9, ncols=3, loc="upper center", bbox_to_anchor=(0.5, 1.15))
    return "What a window, softcap, ALiBi and a bias leave of the rate"


# --- on a host -------------------------------------------------------------------------------------------------------


def bars(axis: Any, rows: list[tuple[str, float]], label: str) -> None:
    rows = sorted(rows, key=lambda row: row[1])
    colours = [OURS if value >= 1 else PEER for _, value in rows]
    axis.barh(range(len(rows)), [value for _, value in rows], color=colours, height=0.7)
    axis.set_yticks(range(len(rows)), [name for name, _ in rows], fontsize=8)
    axis.axvline(1, color=FAINT, linewidth=1)
    axis.set_xlabel(label)
    axis.grid(False, axis="y")
    for i, (_, value) in enumerate(rows):
        axis.text(value, i, f" {value:.2f}", va="center", fontsize=8)


def shape_words(text: str) -> str:
    text = re.sub(r"^m(\d+)_n(\d+)_k(\d+)_?(\w*)$", r"\1 × \2 × \3 \4", text)
    text = re.sub(r"^rows(\d+)_hidden(\d+)$", r"\1 × \2", text)
    return text.replace("_", " ")


UNSAID = ("OpenMP", "cold", "portable", "portable_flash")  # of a name, what the plot says otherwise


def of_peer(
    root: pathlib.Path, record: str, peers: tuple[str, ...], keep: Callable[[str], bool] = lambda _: True
) -> list[tuple[str, float]]:
    """The cases of a record that have a ratio to one of these peers."""
    rows = []
    for b in benchmarks(root, record):
        key = next((f"{peer}:ratio" for peer in peers if f"{peer}:ratio" in b), None)
        if key and keep(b["name"]):
            parts = [part for part in b["name"].split("/") if part not in UNSAID]
            types = re.split(r"_(?=b?float|int)", parts[1])[0] if parts[0] == "gemm" else parts[1]
            state = " warm" if parts[-1] == "warm" else ""
            rows.append((f"{parts[0]} {types} {shape_words(parts[2])}{state}", b[key]))
    return rows


@plot("host-products", (7.6, 4.6))
def host_products(root: pathlib.Path, axis: Any) -> str:
    rows = of_peer(root, CPU_GEMM, ("openblas", "openblas_float32"), lambda name: "kokkos_kernels" not in name)
    bars(axis, rows, "times OpenBLAS (of 16 and 8 bits: its sgemm)")
    return "Ratios of products on two cores to OpenBLAS"


@plot("host-attention", (7.6, 3.8))
def host_attention(root: pathlib.Path, axis: Any) -> str:
    rows = of_peer(root, CPU_ATTENTION, ("unfused_openblas", "unfused_openblas_float32"))
    bars(axis, rows, "times attention from two products of OpenBLAS and a softmax")
    return "Ratios of attention on two cores to attention on OpenBLAS that is not fused"


@plot("host-rows", (7.6, 5.2))
def host_rows(root: pathlib.Path, axis: Any) -> str:
    rows = []
    for record in (CPU_NORM, CPU_ROWS):
        rows += of_peer(root, record, ("copy",), lambda name: "warm" not in name)
    bars(axis, rows, "times a copy of as many bytes")
    return "Rates of norms, softmaxes and rotations on two cores beside a copy"


@plot("host-fused", (7.6, 3.6))
def host_fused(root: pathlib.Path, axis: Any) -> str:
    rows = of_peer(root, CPU_FUSED, ("separate",), lambda name: "batched" not in name)
    bars(axis, rows, "times the same in separate calls")
    axis.set_xscale("log")
    axis.set_xticks([0.7, 1, 2, 4], ["0.7", "1", "2", "4"])
    axis.minorticks_off()
    return "Ratios of fused calls on two cores to the same in separate calls"


# --- errors ----------------------------------------------------------------------------------------------------------

TYPES = dict(zip(("float64", "float32", "float16", "bfloat16", "8 bits"), (COLOURS[i] for i in (3, 0, 2, 1, 4))))


def worst(root: pathlib.Path, norms: bool) -> dict[str, dict[str, float]]:
    """Of each operation and type the worst ratio of error to bound."""
    found: dict[str, dict[str, float]] = collections.defaultdict(dict)
    for line in (root / RATIOS).read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        ratio, name = line.split(" ", 1)
        parts = name.split("/")
        if ("norms" in parts) != norms:
            continue
        types = [part for part in parts if re.fullmatch(r"b?float\d+(_e\dm\d)?|int8", part)]
        if not types or "difference" in name:
            continue
        narrow = any(t.startswith(("float8", "int8")) for t in types)
        type_ = "8 bits" if narrow else types[-1]
        operation = parts[0].replace("_", " ")
        found[operation][type_] = max(found[operation].get(type_, 0), float(ratio))
    return found


def dots(axis: Any, found: dict[str, dict[str, float]]) -> None:
    names = sorted(found, reverse=True)
    for i, name in enumerate(names):
        axis.plot([0, 1], [i, i], color=FAINT, linewidth=0.5, alpha=0.5)
        for type_, ratio in found[name].items():
            axis.plot(ratio, i, "o", color=TYPES[type_], markersize=6, alpha=0.9)
    for type_, colour in TYPES.items():
        if any(type_ in of for of in found.values()):
            axis.plot([], [], "o", color=colour, label=type_)
    axis.axvline(1, color=COLOURS[4], linewidth=1.4)
    axis.set_xlim(-0.02, 1.08)
    axis.set_yticks(range(len(names)), names, fontsize=8.5)
    axis.set_ylim(-0.7, len(names) - 0.3)
    axis.grid(False, axis="y")
    axis.set_xlabel("largest error over its bound; at 1 a test fails")
    axis.legend(fontsize=9, ncols=5, loc="lower center", bbox_to_anchor=(0.45, 1.0))


@plot("error-forward", (7.6, 7.0))
def error_forward(root: pathlib.Path, axis: Any) -> str:
    dots(axis, worst(root, False))
    return "Largest error of any element over its bound, by operation and type"


@plot("error-norms", (7.6, 5.6))
def error_norms(root: pathlib.Path, axis: Any) -> str:
    dots(axis, worst(root, True))
    return "Largest norm of errors over its bound, by operation and type"


@plot("error-gradients", (7.6, 6.6))
def error_gradients(root: pathlib.Path, axis: Any) -> str:
    text = (root / GRADIENTS).read_text(encoding="utf-8").split("## Against the float64 oracle")[1].split("\n## ")[0]
    found: dict[str, dict[str, float]] = {}
    for name, *cells in re.findall(r"^\| (\w[^|]*?) \| ([^|]*) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|", text, re.M):
        if name != "gradient":
            values = {type_: cell.strip().lstrip("< ") for type_, cell in zip(TYPES, cells)}
            found[name.replace("_", " ")] = {type_: float(value) for type_, value in values.items() if value}
    dots(axis, found)
    return "Largest error of any gradient over its bound, by operation and type"
