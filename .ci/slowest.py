# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The ten steps of building and the ten tests of a stage that took longest.

  slowest.py LOG SINCE [BUILD_DIRECTORY]...

LOG is what the stage printed, from which CTest's times are read; of each build directory Ninja's own log tells what
was made since SINCE (seconds of the epoch). Other generators keep no times.
"""

import pathlib
import re
import sys

COUNT = 10


def steps(build, since):
    log = build / ".ninja_log"
    if not log.exists():
        return None
    times = {}
    for line in log.read_text(encoding="utf-8").splitlines()[1:]:
        start, end, modified, output, _ = line.split("\t")
        if not output.startswith("/") and int(modified) >= since * 10**9:
            times[f"{build.name}/{output}"] = (int(end) - int(start)) / 1000
    return times


def tests(log):
    """Seconds of tests by name; a name that comes again is another run of it, whose time is added."""
    times = {}
    for match in re.finditer(r"^ *\d+/\d+ Test +#\d+: (.+?) \.*[ *]*(?:Passed|Failed) +([\d.]+) sec$", log, re.M):
        name = re.sub(r"<(\S+?)\.? .*", r" (\1)", match[1])
        times[name] = times.get(name, 0) + float(match[2])
    return times


def show(what, times):
    if times:
        print(f"--- slowest {what} of {len(times)}, {sum(times.values()):.0f} s in all")
        for name, seconds in sorted(times.items(), key=lambda item: -item[1])[:COUNT]:
            print(f"{seconds:8.1f} s  {name}")


def main(arguments):
    log, since, *builds = arguments
    made = {}
    for build in filter(pathlib.Path.exists, map(pathlib.Path, builds)):
        times = steps(build, int(since))
        if times is None:
            print(f"--- no times of steps in {build.name}: not built by Ninja")
        else:
            made |= times
    show("steps of building", made)
    show("tests", tests(pathlib.Path(log).read_text(encoding="utf-8", errors="replace")))


if __name__ == "__main__":
    main(sys.argv[1:])
