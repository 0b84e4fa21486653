# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attikos beside PyTorch (oneDNN, MKL) and NumPy's OpenBLAS on a host's cores, in one process, on random shapes.

  peers_torch_cpu.py [--families LIST] [--types LIST] [--cases N] [--seconds S] [--seed N] [--out FILE]

Random normal data; ours and each peer take turns, medians of rounds of at least 2 ms, all cores. A result is compared
with float64 before it is timed, and one that is wrong ends the run. "ratio" is the time of PyTorch's fastest way over
ours: above 1 ours is faster. Beside medians stands what the least times of all rounds give ("of least"), for machines
that do other work. Families, all of them unless a list is given:

  products    float32, float64, bfloat16, float16, int8; log-uniform M, N, K in 16 ... 4096, the four ways to store a
              and b. float16 beside PyTorch's float32 product too, and OpenBLAS where it has the type, apart from ratio
  packed_products  products with a b that is packed ahead of time (attikos.pack_b), float32, bfloat16, float16, int8, shapes
              as of products; beside PyTorch's with and without packing, and ours without ("of unpacked": the time of that
              over ours)
  few_rows    products of 1 to 8 rows, log-uniform N, K in 256 ... 8192, b as it is and transposed; "of copy" is the rate
              of reading b over that at which a copy of it in the same turns moves bytes, reads and writes
  attention   float32, bfloat16, float64, full and causal in turn; log-uniform batch 1 ... 16, heads 1 ... 32, length
              16 ... 4096, head_dim 16 ... 256, of which what is more than 10^11 operations, or more than 1 GiB of
              scores, is drawn again; beside the fused kernel and products with a softmax
  backward    the same in float32 and bfloat16, gradients alone
  decode      32 query heads on 8 of keys, head_dim 128, caches of 8192 positions that take turns, so that none stays in
              the processor's caches, batch 1 and 4; "of copy" is the rate of reading over that at which a copy of 128
              MiB moves bytes, reads and writes: twice the rate at which it reads
  rows        2048 x 4096, forward and backward, with memory for results given where the function takes it; "of copy" is
              bytes that have to move over time, by that of a copy of x in the same turns
  losses      cross_entropy and its gradient, log-uniform rows and classes, after 256 x 32000
  drawn_rows  the same operations on log-uniform rows of log-uniform sizes, after two of 20000 x 20
  tiny        one head of 4 positions and 16 features, and calls as small: what Python and the launch cost
  cores       one core against two (all): how much faster ours get, over how much a loop that needs no memory gets; two
              processes that take turns

The shapes of a family and type follow from --seed (printed) alone. --cases are those of each family and type, --seconds
the time for all of them: rounds over the families begin until it is over. FILE is written anew after each case;
`python3 perf/report_cpu.py FILE` prints the summary again and plots it. ATTIKOS_COMMIT names the state of the library.
"""

import argparse
import contextlib
import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import time

import attikos
import numpy
import report_cpu
import torch
from host_calls_torch import FAMILIES, ONCE, cases, forward, name, normal, product, row, verify

SETTLE = 0.005  # seconds in which threads of the other side that wait for work go to sleep


def significant(number):
    """Four digits, however small it is: a ratio of 0 has no logarithm."""
    return float(f"{number:.4g}")


def timed(call, count):
    begin = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - begin) / count


def times(calls, budget=2e-3, limit=8.0):
    """(median, least) seconds of each call; the calls take turns, fewer where they would take more than `limit`."""
    counts, once = [], 0.0
    for call in calls:
        one = timed(call, 1)
        if one < budget:
            one = timed(call, 3)
        counts.append(max(1, int(budget / max(one, 1e-7))))
        once += one * counts[-1] + min(one, budget) + SETTLE
    taken = [[] for _ in calls]
    for _ in range(max(3, min(15, int(limit / once)))):
        for call, count, mine in zip(calls, counts, taken):
            time.sleep(SETTLE)
            if count > 1:
                call()
            mine.append(timed(call, count))
    return [(statistics.median(mine), min(mine)) for mine in taken]


def measure(family, case):
    """What there is to say of a case."""
    with torch.no_grad():
        verify(case)
        calls = {"attikos": case.ours, **case.peers}
        if case.unpacked is not None:
            calls["unpacked"] = case.unpacked
        if case.copied is not None:
            target = torch.empty_like(case.copied)
            calls["copy"] = lambda: target.copy_(case.copied)
        for way in list(case.peers):
            try:
                calls[way]()
            except (RuntimeError, NotImplementedError):  # PyTorch has no kernel for this case
                del calls[way]
        found = dict(zip(calls, times(list(calls.values()))))
    labels = {key: value for key, value in case.labels.items() if key != "checked as"}
    result = {"family": family, **labels, **{f"{way}:us": round(1e6 * t[0], 2) for way, t in found.items()}}
    seconds, least = ({way: t[which] for way, t in found.items()} for which in (0, 1))
    ours = seconds["attikos"]
    others = [way for way in seconds if way not in ("attikos", "copy", "openblas", "unpacked")]
    if others:
        result["ratio"] = significant(min(seconds[way] for way in others) / ours)
        result["ratio of least"] = significant(min(least[way] for way in others) / least["attikos"])
    if "unpacked" in seconds:
        result["of unpacked"] = significant(seconds["unpacked"] / ours)
        result["of unpacked of least"] = significant(least["unpacked"] / least["attikos"])
    if "openblas" in seconds:
        result["openblas ratio"] = significant(seconds["openblas"] / ours)
    if case.operations:
        result["GFLOP/s"] = round(case.operations / ours * 1e-9, 2)
    if case.copied is not None:
        copied = 2 * case.copied.numel() * case.copied.element_size()
        result["of copy"] = significant(case.moved / ours / (copied / seconds["copy"]))
        result["of copy of least"] = significant(case.moved / least["attikos"] / (copied / least["copy"]))
    return result


# One core against all


def many_operations():
    """{name: a function that makes a call of 10^8 operations or more}; `register loop` touches 512 KiB a pass."""
    x = torch.rand(1 << 16) + 1
    return {
        "register loop": lambda: lambda: torch.special.digamma(x),
        "gemm float32 512 512 512": lambda: product(torch.float32, 512, 512, 512, "nn").ours,
        "gemm bfloat16 512 512 512": lambda: product(torch.bfloat16, 512, 512, 512, "nt").ours,
        "gemm float32 8 4096 4096": lambda: product(torch.float32, 8, 4096, 4096, "nt").ours,
        "attention float32 1 8 512 64": lambda: forward(torch.float32, 1, 8, 512, 64, False).ours,
        "attention float32 1 1 2048 64": lambda: forward(torch.float32, 1, 1, 2048, 64, True).ours,
        "rms_norm float32 8192 512": lambda: row("rms_norm", torch.float32, 8192, 512).ours,
    }  # fmt: skip


def serve():
    """Answers each name of a call that is read with its seconds."""
    made = {}
    for line in sys.stdin:
        wanted = line.strip()
        call = made.get(wanted)
        if call is None:
            call = made[wanted] = many_operations()[wanted]()
            call()
        with torch.no_grad():
            print(timed(call, max(1, int(0.02 / timed(call, 1)))), flush=True)


def core_cases():
    """Cases of `cores`, each of which asks a process of one thread and one of all in turn."""
    with contextlib.ExitStack() as stack:
        servers = []
        for threads in (1, os.cpu_count()):
            environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
            command = [sys.executable, __file__, "--serve"]
            servers.append(stack.enter_context(subprocess.Popen(
                command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )))  # fmt: skip

        def ask(server, wanted):
            print(wanted, file=server.stdin, flush=True)
            return float(server.stdout.readline())

        gained = {}
        for wanted in many_operations():
            taken = [[ask(server, wanted) for server in servers] for _ in range(9)]
            gained[wanted] = statistics.median(t[0] for t in taken) / statistics.median(t[1] for t in taken)
            result = {"family": "cores", "call": wanted, "cores": os.cpu_count(), "gain": significant(gained[wanted])}
            if wanted != "register loop":
                result["of register loop"] = significant(gained[wanted] / gained["register loop"])
            yield result


def processor():
    """The processor's name and, of its instructions, those that decide what kernels are made of."""
    told = {"model name": platform.processor() or platform.machine(), "flags": ""}
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            told.setdefault(key.strip(), value.strip())
            if key.strip() in ("model name", "flags", "Features"):
                told[key.strip()] = value.strip()
    flags = (told["flags"] or told.get("Features", "")).split()
    prefixes = ("sse4", "avx", "fma", "f16c", "amx", "asimd", "bf16", "i8mm", "sve", "sme")
    return told["model name"], sorted(flag for flag in flags if flag.startswith(prefixes))


def context(seed):
    model, flags = processor()
    host = attikos.detect_host()
    built_with = torch.__config__.show()
    onednn = [line.strip(" -") for line in built_with.splitlines() if "MKL" in line]
    return {
        "device": host.name, "simd": host.simd, "processor": model, "instructions": flags, "cores": os.cpu_count(),
        "threads": torch.get_num_threads(), "attikos": attikos.__version__,
        "attikos_commit": os.environ.get("ATTIKOS_COMMIT", "unknown"),
        "attikos_host_isa": os.environ.get("ATTIKOS_HOST_ISA", ""), "torch": torch.__version__,
        "torch_libraries": onednn, "torch_capability": torch.backends.cpu.get_cpu_capability(),
        "numpy": numpy.__version__, "seed": seed, "load_average": [os.getloadavg()[0]],
    }  # fmt: skip


def drawn(families, types, count, seed):
    """(family, a function that makes a case) of each family and type in turn."""
    rows = []
    for family in families:
        for dtype in FAMILIES[family][0]:
            if types is None or name(dtype) in types:
                made = cases(family, dtype, seed)
                rows.append([(family, make) for make in itertools.islice(made, min(count, ONCE.get(family, count)))])
    return [item for turn in itertools.zip_longest(*rows) for item in turn if item is not None]


def main(given=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", default=",".join([*FAMILIES, "cores"]))
    parser.add_argument("--types", help="element types, all of each family unless a list is given")
    parser.add_argument("--cases", type=int, default=60, help="of each family and type")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="no case begins later")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(given)
    if arguments.serve:
        serve()
        return
    families = arguments.families.split(",")
    unknown = sorted(set(families) - {*FAMILIES, "cores"})
    if unknown:
        parser.error(f"no family {', '.join(unknown)}; there are {', '.join(FAMILIES)} and cores")
    torch.manual_seed(arguments.seed)
    report = {**context(arguments.seed), "cases": []}
    print(f"seed {arguments.seed}, {report['processor']}, {' '.join(report['instructions'])}", flush=True)
    begin = time.monotonic()

    def add(result):
        report["cases"].append(result)
        print(*(f"{key} {value}" for key, value in result.items()), flush=True)
        if arguments.out:
            report["load_average"] = [report["load_average"][0], os.getloadavg()[0]]
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(report, file, indent=1)
                file.write("\n")

    if "cores" in families:
        for result in core_cases():
            add(result)
    types = arguments.types and arguments.types.split(",")
    for family, make in drawn([f for f in families if f != "cores"], types, arguments.cases, arguments.seed):
        if time.monotonic() - begin > arguments.seconds:
            break
        try:
            add(measure(family, make()))
        except attikos.UnsupportedDtypeError as error:
            add({"family": family, "refused": str(error)})
    report_cpu.summary(report)


if __name__ == "__main__":
    main()
