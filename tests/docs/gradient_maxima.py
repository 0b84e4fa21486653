# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How close the gradients of the suites came to their bounds, as tests/docs/gradient_maxima.md.

  gradient_maxima.py FILE... > tests/docs/gradient_maxima.md

Each FILE is a test program, which is run, or what one printed. From the default build:

  cd build/default/tests && python3 ../../../tests/docs/gradient_maxima.py test_attention_backward test_gemm_backward \
      test_gated_mlp test_norm test_reduce test_rope test_limits

Every test program ends with the worst error/bound of each comparison; those of gradients are kept.
"""

import collections
import os
import re
import subprocess
import sys

TYPES = ["float64", "float32", "float16", "bfloat16"]
SPACES = ["Serial", "OpenMP", "Threads", "Cuda"]
DIFFERENCES = re.compile(r"finite differences/|differences/|central difference|complex step")

HEAD = """# Gradients against their bounds

Worst |error|/bound over all cases of the suites and all elements; 1 is the bound. The bounds are derived in
`tests/support/tolerance_*.hpp`. Rounding a result to a 16-bit type is most of its bound, and the worst of many roundings
is half a unit: there a ratio close to 1 is what a correctly rounded result has. Made by `tests/docs/gradient_maxima.py`.

## Against the float64 oracle

"""

DIFFERENCE_HEAD = """
## Oracles and float64 kernels against differences

Complex steps, and central differences whose error is estimated from a second step. An oracle that agrees with
differences stands for the float64 gradient in the table above.

| gradient | worst error/bound |
|---|---|
"""


def lines_of(name):
    if os.access(name, os.X_OK):
        path = os.path.abspath(name)
        environment = {**os.environ, "OMP_PROC_BIND": "false"}
        result = subprocess.run([path], capture_output=True, text=True, env=environment, check=False)
        if result.returncode != 0:
            sys.exit(f"{name} failed:\n{result.stdout[-2000:]}")
        return result.stdout.splitlines()
    with open(name, encoding="utf-8") as file:
        return file.read().splitlines()


def ratios(names):
    for name in names:
        lines = lines_of(name)
        if "worst error/bound ratios:" not in lines:
            sys.exit(f"{name}: no worst error/bound ratios")
        for line in lines[lines.index("worst error/bound ratios:") + 1:]:
            match = re.fullmatch(r"  (.+?)\s+(\S+)", line)
            if match:
                yield match[1], float(match[2])


def number(ratio):
    return "< 0.001" if ratio < 0.0005 else f"{ratio:.3f}"


def main(names):
    oracle = collections.defaultdict(dict)
    differences = {}
    for name, ratio in ratios(names):
        if name.endswith("/norms"):  # of many elements together
            continue
        parts = [p for p in name.split("/") if p not in SPACES]
        if DIFFERENCES.search(name):
            label = re.sub(r"^finite differences/", "", "/".join(p for p in parts if p not in TYPES))
            differences[label] = max(ratio, differences.get(label, 0))
            continue
        if not any("_backward" in p for p in parts):
            continue
        types = [p for p in parts if p in TYPES]
        column = types[0] if len(types) == 1 and "mixed" not in parts else "mixed"
        # "extremes/attention_backward dv/float16" as "attention_backward dv (extremes)".
        words = [p for p in parts if p not in TYPES and p != "mixed" and not re.match(r"b?float\d+_", p)]
        special = [p for p in words if p in ("long", "extremes")]
        row = " ".join(p for p in words if p not in special)
        if special:
            row += " (16384 terms)" if special == ["long"] else " (edge of the range)"
        oracle[row][column] = max(ratio, oracle[row].get(column, 0))
    columns = [*TYPES, "mixed"]
    print(HEAD + "| gradient | " + " | ".join(columns) + " |\n" + "|---" * (len(columns) + 1) + "|")
    for row, cells in sorted(oracle.items()):
        print(f"| {row} | " + " | ".join(number(cells[c]) if c in cells else "" for c in columns) + " |")
    print(DIFFERENCE_HEAD, end="")
    for label, ratio in sorted(differences.items()):
        print(f"| {label} | {number(ratio)} |")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
