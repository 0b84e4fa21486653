# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of a wheel that is installed, by what .ci/run nightly_wheel calls:

  installed_wheel.py readme     the README's Python example, which needs no compiler, has the right numbers
  installed_wheel.py openmp     beside PyTorch, whichever comes first, a process has one OpenMP run time and one pool of
                                threads, which both work with
"""

import os
import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parents[3] / "README.md"
THREADS = 4


def readme():
    import numpy as np

    (example,) = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    names = {}
    exec(example, names)
    q = names["q"].astype(np.float64)
    scores = q @ q.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    scores[..., ~np.tri(q.shape[-2], dtype=bool)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights @ q / weights.sum(-1, keepdims=True)
    np.testing.assert_allclose(names["out"], expected, rtol=1e-4, atol=1e-5)
    print("counts: README's example from", names["attikos"].__file__)


# Run times of OpenMP in a process, and its threads.
STATE = """
import os
def state():
    maps = {line.split()[-1] for line in open("/proc/self/maps") if "/" in line}
    of_openmp = {os.path.realpath(x) for x in maps if any(n in x for n in ("libgomp", "libomp.", "libiomp"))}
    return of_openmp, len(os.listdir("/proc/self/task"))
"""
USES = {
    "torch": "torch.exp(torch.ones(1 << 20))",
    "attikos": "attikos.softmax(numpy.ones((256, 4096), numpy.float32))",
}


def openmp():
    for first, second in (("torch", "attikos"), ("attikos", "torch")):
        steps = [STATE, "import numpy", f"import {first}", f"import {second}"]
        steps += [f"torch.set_num_threads({THREADS})", "print(*state())"]
        for name in (first, second, first):
            steps += [USES[name], "print(*state())"]
        run = subprocess.run(
            [sys.executable, "-c", "\n".join(steps)], env={**os.environ, "OMP_NUM_THREADS": str(THREADS)},
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        lines = run.stdout.split("\n")
        print(f"{first}, {second}, {first}:", *lines, sep="\n  ")
        found, counts = zip(*(line.rsplit(" ", 1) for line in lines if line))
        assert len(set(found)) == 1 and found[0].count("'") == 2, f"not one run time: {found}"
        threads = [int(n) for n in counts]
        made = [after - before for before, after in zip(threads, threads[1:])]
        assert made == [THREADS - 1, 0, 0], f"the calls made {made} threads; expected one pool, by the first"
    print("counts: one OpenMP run time with PyTorch first and second")


if __name__ == "__main__":
    {"readme": readme, "openmp": openmp}[sys.argv[1]]()
