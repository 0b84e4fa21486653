# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Matrix products on a GPU, on shapes drawn at random, through the Python package beside cuBLASLt as PyTorch calls it.

  products_torch.py [--types LIST] [--cases N] [--seconds S] [--seed N] [--out FILE]

M, N and K are log-uniform in 16 ... 8000, six of ten multiples of 8, two of 2 and two of any kind; op(A) and op(B) are
stored in the four ways in turn. Random normal data; operands rotate past L2, and ours and PyTorch's calls are CUDA
graphs that take turns, so that launches do not count. A result is compared with PyTorch's in float64 before it is timed.
"ratio" is PyTorch's time over ours: above 1 ours is faster.

Types, all of them unless a list is given: bfloat16, float16, float32 (IEEE), float64, tf32, int8 and float8_e4m3. What
cuBLASLt takes of the last two have extents that are multiples of 16, and B's unit stride along K; those ours takes
beside them are not drawn. The shapes of a type follow from --seed (printed) alone; --seconds is the time for each type.
Prints geometric mean, tenth percentile and the ten worst with the kernel that ran; FILE is written anew after each case.
ATTIKOS_COMMIT names the state of the library.
"""

import argparse
import json
import math
import random
import time

import attikos
import torch
from companion_torch import context, in_graph, in_turn, times
from report_attention import spread

SMALLEST, LARGEST = 16, 8000
OPERANDS = {
    "bfloat16": torch.bfloat16, "float16": torch.float16, "float32": torch.float32, "float64": torch.float64,
    "tf32": torch.float32, "int8": torch.int8, "float8_e4m3": torch.float8_e4m3fn,
}  # fmt: skip
BYTES = ("int8", "float8_e4m3")


def extent(draw, unit):
    size = math.exp(draw.uniform(math.log(SMALLEST), math.log(LARGEST)))
    return max(unit, round(size / unit) * unit)


def shapes(dtype, seed):
    """Endless (m, n, k, op(A) transposed, op(B) transposed)."""
    draw = random.Random(f"{seed} {dtype}")
    count = 0
    while True:
        units = [16 if dtype in BYTES else draw.choice([8] * 6 + [2] * 2 + [1] * 2) for _ in range(3)]
        extents = [extent(draw, unit) for unit in units]
        ops = (False, True) if dtype in BYTES else ((count & 1) != 0, (count & 2) != 0)
        count += 1
        yield (*extents, *ops)


def stored(rows, columns, transposed, dtype):
    """A matrix of these extents, stored by columns if `transposed`."""
    extents = (columns, rows) if transposed else (rows, columns)
    if dtype == torch.int8:
        matrix = torch.randint(-127, 128, extents, device="cuda", dtype=dtype)
    else:
        matrix = torch.randn(extents, device="cuda", dtype=torch.float64 if dtype == torch.float64 else None).to(dtype)
    return matrix.T if transposed else matrix


def peer_of(dtype):
    if dtype == "int8":
        return torch._int_mm
    if dtype == "float8_e4m3":
        one = torch.ones((), device="cuda")
        return lambda a, b: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    return torch.matmul


def ours_of(dtype):
    if dtype == "int8":
        return lambda a, b: attikos.gemm(a, b, out_dtype="int32")
    if dtype == "float8_e4m3":
        return lambda a, b: attikos.gemm(a, b, out_dtype="bfloat16", accumulate="fast")
    return lambda a, b: attikos.gemm(a, b, compute="tf32" if dtype == "tf32" else "ieee")


def explained(dtype, a, b):
    options = {"int8": {"out_dtype": "int32"}, "float8_e4m3": {"out_dtype": "bfloat16", "accumulate": "fast"},
               "tf32": {"compute": "tf32"}}  # fmt: skip
    return attikos.explain("gemm", a, b, **options.get(dtype, {})).split("\n")[0].removeprefix("runs ")


def require_right(case, dtype, a, b, found):
    """Rows at both ends and between, by as many roundings of the sums' size as there are terms and of the result's."""
    rows = torch.tensor(sorted({0, a.shape[0] // 2, a.shape[0] - 1}), device="cuda")
    exact = a[rows].double() @ b.double()
    size = a[rows].double().abs() @ b.double().abs()
    result = {"bfloat16": 2**-8, "float16": 2**-10, "float8_e4m3": 2**-8, "tf32": 2**-9}.get(dtype, 0)
    unit = 2**-53 if dtype == "float64" else 2**-24 if dtype != "float8_e4m3" else 2**-12
    bound = 0 if dtype == "int8" else unit * a.shape[1] * size + result * (size if dtype == "tf32" else exact.abs())
    error = (found[rows].double() - exact).abs()
    if not bool((error <= bound).all()):
        raise RuntimeError(f"{case}: an error of {error.max().item()}")


def measure(dtype, shape):
    m, n, k, trans_a, trans_b = shape
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    kind = OPERANDS[dtype]
    one = (m * k + k * n) * kind.itemsize + m * n * 4
    sets = max(2, min(64, int(2e8 / one) + 1))
    operands = [(stored(m, k, trans_a, kind), stored(k, n, trans_b, kind)) for _ in range(sets)]
    case = {"type": dtype, "m": m, "n": n, "k": k, "ops": "nt"[trans_a] + "nt"[trans_b]}
    case["kernel"] = explained(dtype, *operands[0])
    require_right(case, dtype, *operands[0], ours_of(dtype)(*operands[0]))
    work = 2 * m * n * k
    count = max(2, min(sets, int(4e10 / work) + 1))
    calls = {}
    for side, function in (("attikos", ours_of(dtype)), ("torch", peer_of(dtype))):
        call = in_turn([lambda a=a, b=b, f=function: f(a, b) for a, b in operands[:count]])
        replay, captured = in_graph(call, count, 2)
        if not captured:
            case[f"{side} timing"] = "not in a graph"
        calls[side] = replay
    seconds = dict(zip(calls, times(list(calls.values()), rounds=5, budget_ms=1.0)))
    for side, taken in seconds.items():
        case[f"{side}:us"] = round(taken / count * 1e6, 2)
    case["TFLOP/s"] = round(work * count / seconds["attikos"] * 1e-12, 2)
    case["ratio"] = float(f"{seconds['torch'] / seconds['attikos']:.4g}")
    return case


def label(case):
    return (f"{case['ratio']:.2f}  {case['m']} x {case['n']} x {case['k']} {case['ops']}  {case['attikos:us']} us"
            f"  {case['kernel']}")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--types", default=",".join(OPERANDS))
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--out")
    given = parser.parse_args()
    report = {"context": {**context(), "seed": given.seed}, "cases": []}
    print(f"seed {given.seed}", flush=True)
    for dtype in given.types.split(","):
        begin, found = time.monotonic(), []
        for _, shape in zip(range(given.cases), shapes(dtype, given.seed)):
            if time.monotonic() - begin > given.seconds:
                break
            found.append(measure(dtype, shape))
            report["cases"].append(found[-1])
            if given.out:
                with open(given.out, "w", encoding="utf-8") as file:
                    json.dump(report, file, indent=1)
        if not found:
            continue
        mean, tenth, least = spread(found)
        print(f"{dtype}: {len(found)} shapes, geometric mean {mean:.2f}, tenth percentile {tenth:.2f}, least {least:.2f}")
        for case in sorted(found, key=lambda c: c["ratio"])[:10]:
            print(f"    {label(case)}", flush=True)


if __name__ == "__main__":
    main()
