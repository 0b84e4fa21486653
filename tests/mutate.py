# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mutation testing of the portable kernels and of the checks of arguments: small faults, one at a time, that the
family's own tests must notice.

  mutate.py BUILD [--sample 200] [--seed N] [--family NAME] [--at FILE:LINE] [--list] [--jobs 2]
  mutate.py --argued     whether every fault of tests/mutants.txt is still one of the sources; CTest runs it

BUILD is a folder of the preset `default` with Kokkos built in it (its flags and libraries are used; nothing of it is
written but BUILD/mutate). Of all faults of the listed operators in the listed headers (mutation/families.py) a sample
is drawn, with a seed that is printed. Each test source is compiled once, without optimization and with one type of each
suite, against headers that have all faults of the sample, each behind a switch (mutation/switches.hpp), and run once
with none of them on, which says what faults each test comes by. Then, fault by fault, the tests of its family that come
by it are run until one fails, and then those of other families: a failed test, a crash, and five times the time kill.
What survives is run once more under AddressSanitizer, as the suites are. A fault that cannot be behind a switch is
compiled by itself. One that does not compile, that is in no program (code that this build does not have, such as device
branches) or that only the compiler sees, such as a static assertion, is not counted. Survivors are listed with their
line; those in tests/mutants.txt are argued there and marked. The score is killed / (killed + survivors).

A run that is stopped (SIGINT, SIGTERM) prints the score of what it has judged. The same command goes on from there:
programs and verdicts are kept as long as what they come from has not changed, that of a killed fault as long as its
header and the test source that killed it have not.

Operators: a relation for its neighbour (< and <=, > and >=, == and !=), + and -, * and /, && and ||, a negation left
out, 0 and 1 for each other as operands, min and max for each other, a statement left out (calls, compound
assignments), a condition that is always or never so.
"""

import argparse
import os
import pathlib
import random
import signal
import sys
import time

from mutation.builder import Builder
from mutation.families import FAMILIES, sources_of, sources_of_all
from mutation.faults import ROOT, Mutant, mutants_of

ARGUED = ROOT / "tests" / "mutants.txt"


def argued() -> dict[str, str]:
    """Survivors with the argument why no test can kill them, a line each: `key # argument`."""
    if not ARGUED.exists():
        return {}
    lines = [line for line in ARGUED.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {key.strip(): why.strip() for key, _, why in (line.partition(" # ") for line in lines)}


def outdated() -> list[str]:
    """Argued faults that no line has any more: it was changed or moved, and the argument with it."""
    there = {fault.key() for family in FAMILIES for fault in mutants_of(family)}
    return [key for key in argued() if key not in there]


class Score:
    """What is judged so far."""

    def __init__(self, drawn: int, seed: int):
        self.drawn, self.seed, self.begin = drawn, seed, time.monotonic()
        self.verdicts: dict[str, str] = {}  # of each fault
        self.argued = argued()

    def add(self, fault: Mutant, verdict: str, met: int) -> None:
        if verdict == "survived":
            verdict = "argued" if fault.key() in self.argued else f"survived ({met} tests come by it)"
        self.verdicts[str(fault)] = verdict
        print(f"{len(self.verdicts):4d} {verdict:12s} {fault}", flush=True)

    def tell(self) -> float:
        counts = {what: sum(verdict.startswith(what) for verdict in self.verdicts.values())
                  for what in ("killed", "survived", "argued", "stillborn", "not compiled")}  # fmt: skip
        alive = counts["killed"] + counts["survived"]
        score = counts["killed"] / alive if alive else 1.0
        survivors = [f"{fault}  {verdict[9:]}" for fault, verdict in self.verdicts.items() if verdict[:8] == "survived"]
        print("\nsurvivors:", *survivors, sep="\n  ")
        print(f"score {score:.3f}:", ", ".join(f"{count} {what}" for what, count in counts.items()),
              f"(seed {self.seed}, {len(self.verdicts)} of {self.drawn} judged, {time.monotonic() - self.begin:.0f} s)",
              flush=True)  # fmt: skip
        return score


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path, nargs="?")
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--at", action="append", help="FILE:LINE: all faults there")
    parser.add_argument("--list", action="store_true", help="the sample, nothing compiled")
    parser.add_argument("--argued", action="store_true", help="compare tests/mutants.txt with the sources, no more")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(arguments)
    for key in (stale := outdated()):
        print(f"tests/mutants.txt argues what no line of the sources has: {key}", flush=True)
    if given.argued:
        return 1 if stale else 0
    if given.build is None:
        parser.error("BUILD is missing")
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(2**31)
    everything = [m for family in given.family or FAMILIES for m in mutants_of(family)]
    if given.at:
        sample = [m for m in everything if f"{m.header}:{m.line}" in given.at]
    else:
        sample = random.Random(seed).sample(everything, min(given.sample, len(everything)))
    print(f"{len(sample)} of {len(everything)} faults, seed {seed}", flush=True)
    if given.list:
        print(*sample, sep="\n")
        return 0
    score = Score(len(sample), seed)

    def stopped(*_) -> None:  # what runs in threads is not waited for
        score.tell()
        os._exit(1)

    signal.signal(signal.SIGINT, stopped)
    signal.signal(signal.SIGTERM, stopped)
    builder = Builder(given.build.resolve(), sample, given.jobs, sources_of_all({fault.family for fault in sample}))
    print(f"{len(builder.alone)} faults cannot be behind a switch", flush=True)
    left: dict[int, list[str]] = {}  # survivors, and sources whose tests come by them
    for number, verdict in builder.verdicts(range(len(sample))):
        met = builder.tests_that_meet(number)
        score.add(sample[number], verdict, sum(met.values()))
        if verdict == "survived" and met and sample[number].key() not in score.argued:
            own = sources_of(sample[number].family)
            left[number] = [source for source in met if source in own] or list(met)
    print(f"{len(left)} once more under AddressSanitizer", flush=True)
    if left:
        sources = dict.fromkeys(source for met in left.values() for source in met)
        sanitized = Builder(given.build.resolve(), sample, given.jobs, sources, sanitized=True)
        for number, verdict in sanitized.verdicts(left):
            if verdict.startswith("killed"):
                score.add(sample[number], verdict, 0)
    return 0 if score.tell() >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
