# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs the direct tests under compute-sanitizer, each in a process of its own, and counts what it found.

  sanitize.py PROGRAM [--tools memcheck,synccheck,initcheck,racecheck] [--filter GTEST_FILTER] [--seconds 120]
              [--jobs 8] [--out FILE]

A test is clean, has errors (a finding, or a failure of the test itself), or runs out of its time, in which it found
nothing. racecheck does not follow what the copy engine and wgmma hand over by mbarriers, and needs minutes for most
tests. synccheck wants all warps of a block at one place of the program, also where a barrier counts them: it reports
gemm/sm80_simt_f32, which PTX allows to have two.
"""

import argparse
import collections
import concurrent.futures
import json
import subprocess
import sys

TOOLS = ("memcheck", "synccheck", "initcheck", "racecheck")


def names_of(program, chosen):
    """Full names of the tests of a GoogleTest program."""
    lines = subprocess.run([program, "--gtest_list_tests", f"--gtest_filter={chosen}"], check=True,
                           capture_output=True, text=True).stdout.splitlines()  # fmt: skip
    suite, names = "", []
    for line in lines:
        name = line.split("#")[0].rstrip()
        if name.endswith(".") and not name.startswith(" "):
            suite = name
        elif name.startswith("  "):
            names.append(suite + name.strip())
    return names


def verdict(tool, program, name, seconds):
    # Some tests make calls of CUDA that fail, which is what they look at.
    api = ["--report-api-errors", "no"] if tool == "memcheck" else []
    command = ["compute-sanitizer", "--tool", tool, *api, "--error-exitcode", "99", program, f"--gtest_filter={name}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        found = "=========     " in (error.stdout or b"").decode(errors="replace")
        return ("errors" if found else "out of time"), ""
    if done.returncode == 0 or "terminated before first instrumented API call" in done.stdout:
        return "clean", ""
    return "errors", done.stdout[-2000:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--filter", default="*Runs.*:*Runs/*")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--out")
    given = parser.parse_args()
    names = names_of(given.program, given.filter)
    found = {}
    for tool in given.tools.split(","):
        with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
            verdicts = list(pool.map(lambda name: verdict(tool, given.program, name, given.seconds), names))
        counts = collections.Counter(kind for kind, _ in verdicts)
        print(tool, ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items())), flush=True)
        for name, (kind, text) in zip(names, verdicts):
            if kind != "clean":
                print(f"  {name}: {kind}\n{text}", flush=True)
        found[tool] = {name: kind for name, (kind, _) in zip(names, verdicts)}
        if given.out:
            with open(given.out, "w", encoding="utf-8") as file:
                json.dump(found, file, indent=1)
                file.write("\n")
    return any("errors" in kinds.values() for kinds in found.values())


if __name__ == "__main__":
    sys.exit(main())
