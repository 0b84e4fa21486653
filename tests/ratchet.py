# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The worst ratio of error to bound of each suite on record, tests/worst_ratios.txt.

  ratchet.py PROGRAM...           runs test programs; says what has grown, and what is not on record
  ratchet.py --write PROGRAM...   puts what they have into the record in place of what is there
  ratchet.py --widen PROGRAM...   the same, but keeps the larger
  --from FILE                     takes what a run elsewhere wrote, with ATTIKOS_TEST_RATIOS_TO=FILE, instead of running

Test programs look the record up themselves and fail by it: CTest names it in ATTIKOS_TEST_RATIOS. A ratio may exceed
the one on record by a tenth and 0.01; by half in host programs of another compiler or length of vectors than those on
record, whose sums are rounded otherwise. Differences of finite steps are not on record: their error is the step's.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

FILE = pathlib.Path(__file__).with_name("worst_ratios.txt")
HEAD = "# Worst error/bound of each suite, written by tests/ratchet.py: a growth of more than a tenth fails.\n"
KIND = "# kind: "  # what roundings on a host depend on, as test programs say it


kinds: set[str] = set()


def read(path: pathlib.Path) -> dict[str, float]:
    ratios: dict[str, float] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(KIND):
            kinds.add(line.removeprefix(KIND))
        if line.startswith("#"):
            continue
        ratio, name = line.split(" ", 1)
        if "difference" not in name:
            ratios[name] = max(ratios.get(name, 0.0), float(ratio))
    return ratios


def run(programs: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        to = pathlib.Path(folder, "ratios")
        environment = dict(os.environ, ATTIKOS_TEST_RATIOS_TO=str(to), OMP_PROC_BIND="false")
        environment.pop("ATTIKOS_TEST_RATIOS", None)
        for program in programs:
            print(program, flush=True)
            subprocess.run([program, "--gtest_brief=1"], env=environment, check=True, stdout=subprocess.DEVNULL)
        return read(to) if to.exists() else {}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--widen", action="store_true")
    parser.add_argument("--from", dest="files", action="append", default=[])
    parser.add_argument("programs", nargs="*")
    given = parser.parse_args(arguments)
    seen = run(given.programs)
    for file in given.files:
        for name, ratio in read(pathlib.Path(file)).items():
            seen[name] = max(seen.get(name, 0.0), ratio)
    of_run = sorted(kinds)
    kinds.clear()
    recorded = read(FILE) if FILE.exists() else {}
    if given.write or given.widen:
        for name, ratio in seen.items():
            recorded[name] = max(ratio, recorded.get(name, 0.0)) if given.widen else ratio
        lines = [f"{ratio:.3f} {name}\n" for name, ratio in sorted(recorded.items())]
        kind = "".join(f"{KIND}{kind}\n" for kind in ((sorted(kinds) if given.widen else []) + of_run)[:1])
        FILE.write_text(HEAD + kind + "".join(lines), encoding="utf-8")
        print(f"{len(seen)} of {len(recorded)} ratios written")
        return 0
    unknown = [name for name in seen if name not in recorded]
    grown = [name for name, ratio in seen.items() if name in recorded and ratio > 1.1 * recorded[name] + 0.01]
    for name in sorted(unknown):
        print(f"not on record: {seen[name]:.3f} {name}")
    for name in sorted(grown):
        print(f"has grown: {seen[name]:.3f} from {recorded[name]:.3f} {name}")
    print(f"{len(seen)} ratios, {len(grown)} have grown, {len(unknown)} are not on record")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
