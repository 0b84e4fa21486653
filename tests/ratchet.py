# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The worst ratio of error to bound of each suite on record, tests/worst_ratios.txt.

  ratchet.py PROGRAM...           runs test programs; says what has grown, and what is not on record
  ratchet.py --write PROGRAM...   puts what they have into the record in place of what is there; the rest stays
  ratchet.py --widen PROGRAM...   the same, but keeps the larger
  --from FILE                     takes what runs elsewhere wrote, with ATTIKOS_TEST_RATIOS_TO=FILE, instead of running
  --complete                      this is all there is of hosts, direct tests of kernels and suites of CUDA, as far as
                                  some of them is here: what is on record beside is named, or goes with --write

Test programs look the record up themselves and fail by it: CTest names it in ATTIKOS_TEST_RATIOS. A ratio may exceed
the one on record by a tenth and 0.01; by half in host programs of another compiler or length of vectors than those on
record, whose sums are rounded otherwise: these are not written. A host's name that is not on record fails in a build of
that kind with `usual` cases. What runs on a GPU is recorded by the same commands, from FILE, beside what hosts have.
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


def group_of(name: str) -> str:
    return "direct" if name.startswith("direct ") else "Cuda" if "/Cuda" in name else "host"


Ratios = dict[str, float]


def read(path: pathlib.Path) -> dict[str, Ratios]:
    """By the kind of host, \"\" for what is of a GPU."""
    kinds: dict[str, Ratios] = {}
    kind = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(KIND):
            kind = line.removeprefix(KIND)
        if line.startswith("#"):
            continue
        ratio, name = line.split(" ", 1)
        ratios = kinds.setdefault(kind if group_of(name) == "host" else "", {})
        ratios[name] = max(ratios.get(name, 0.0), float(ratio))
    return kinds


def run(programs: list[str], to: pathlib.Path) -> None:
    environment = dict(os.environ, ATTIKOS_TEST_RATIOS_TO=str(to), OMP_PROC_BIND="false")
    environment.pop("ATTIKOS_TEST_RATIOS", None)
    for program in programs:
        print(program, flush=True)
        subprocess.run([program, "--gtest_brief=1"], env=environment, check=True, stdout=subprocess.DEVNULL)


def seen_of(programs: list[str], files: list[str]) -> dict[str, Ratios]:
    seen: dict[str, Ratios] = {}
    with tempfile.TemporaryDirectory() as folder:
        own = pathlib.Path(folder, "ratios")
        run(programs, own)
        for file in [*map(pathlib.Path, files), *([own] if own.exists() else [])]:
            for kind, ratios in read(file).items():
                into = seen.setdefault(kind, {})
                for name, ratio in ratios.items():
                    into[name] = max(ratio, into.get(name, 0.0))
    return seen


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--widen", action="store_true")
    parser.add_argument("--complete", action="store_true")
    parser.add_argument("--from", dest="files", action="append", default=[])
    parser.add_argument("programs", nargs="*")
    given = parser.parse_args(arguments)
    seen = seen_of(given.programs, given.files)
    record = read(FILE) if FILE.exists() else {}
    recorded = {name: ratio for ratios in record.values() for name, ratio in ratios.items()}
    of_record = next((kind for kind in record if kind), next((kind for kind in seen if kind), ""))
    alike = {name: ratio for kind in ("", of_record) for name, ratio in seen.get(kind, {}).items()}
    groups = {group_of(name) for name in alike}
    stale = [name for name in recorded if given.complete and group_of(name) in groups and name not in alike]

    others = {
        name: ratio
        for kind, ratios in seen.items()
        if kind not in ("", of_record)
        for name, ratio in ratios.items()
    }
    if given.write or given.widen:
        for name, ratio in alike.items():
            recorded[name] = max(ratio, recorded.get(name, 0.0)) if given.widen else ratio
        for name in stale:
            del recorded[name]
        kind = f"{KIND}{of_record}\n" if of_record else ""
        lines = [f"{ratio:.3f} {name}\n" for name, ratio in sorted(recorded.items())]
        FILE.write_text(HEAD + kind + "".join(lines), encoding="utf-8")
        print(f"{len(alike)} of {len(recorded)} ratios written, {len(stale)} left out, {len(others)} of other hosts")
        return 0

    grown = []
    for ratios, growth in ((alike, 1.1), (others, 1.5)):
        for name, ratio in sorted(ratios.items()):
            if name not in recorded:
                print(f"not on record: {ratio:.3f} {name}")
            elif ratio > growth * recorded[name] + 0.01:
                grown.append(name)
                print(f"has grown: {ratio:.3f} from {recorded[name]:.3f} {name}")
    for name in sorted(stale):
        print(f"on record, and no test has it: {name}")
    unknown = sum(name not in recorded for name in [*alike, *others])
    print(
        f"{len(alike) + len(others)} ratios, {len(grown)} have grown, {unknown} are not on record, {len(stale)} are stale"
    )
    return 1 if grown or stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
