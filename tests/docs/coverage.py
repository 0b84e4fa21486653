# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The table of what is tested in docs/tests.md, made from CTest's own list of cases.

  coverage.py PAGE CTEST BUILD_DIRECTORY            fails if the table on the page is not what the list gives
  coverage.py PAGE CTEST BUILD_DIRECTORY --write    rewrites it
  coverage.py PAGE --record DEVICE FILE...          takes the counts of a device from GoogleTest's XML reports, one
                                                    or more of each program, PROGRAM.xml or PROGRAM.anything.xml

A row is a suite; `S` and `O` say that its cases run on Serial and OpenMP in this build, `C` that they ran on a CUDA
device, as tests/docs/cuda_suite.json records it.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

BEGIN = "<!-- coverage: made by tests/docs/coverage.py -->\n"
END = "<!-- end of coverage -->\n"
EMULATED = "test_device_kernels"  # kernels of devices, whose lanes a host runs
TYPES = ["float64", "float32", "float16", "bfloat16"]
RECORD = pathlib.Path(__file__).with_name("cuda_suite.json")


def words(suite):
    """`AttentionBackward` as `attention backward`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", suite).lower()


def place(instance):
    """(suite, space, type) of `Suite/Space_type`, `Suite/Space` or `Suite`."""
    suite, _, rest = instance.partition("/")
    space, _, element = rest.partition("_")
    return suite, space, element


def host_cases(ctest, build):
    listing = subprocess.run([ctest, "--test-dir", build, "--show-only=json-v1"], check=True, capture_output=True,
                             text=True).stdout
    table = collections.defaultdict(collections.Counter)
    for test in json.loads(listing)["tests"]:
        match = re.fullmatch(r"(test_\w+)\.(\w+)\.\w+(?:<(\S+?)\..*>)?", test["name"], re.S)
        if not match or not match[3]:
            continue
        suite, space, element = place(match[3])
        table[(match[1], suite)][(space[:1], element)] += 1
    return table


def recorded():
    if not RECORD.exists():
        return {}, ""
    data = json.loads(RECORD.read_text(encoding="utf-8"))
    cases = {tuple(key.split("/", 1)): value for key, value in data["cases"].items()}
    return cases, (
        f"{data['total']} CUDA cases on {data['device']} and {sum(data['direct'].values())} that call kernels and their "
        f"building blocks directly, {data['failed']} failed"
    )


def table_text(ctest, build):
    cuda, device = recorded()
    host = host_cases(ctest, build)
    lines = ["| suite | " + " | ".join(TYPES) + " | untyped | host cases |", "|---" * (len(TYPES) + 3) + "|"]
    total = 0
    for (executable, suite), cases in sorted(host.items()):
        cells = []
        for element in [*TYPES, ""]:
            spaces = "".join(s for s in "SO" if cases[(s, element)])
            others = "" if element else "".join(
                s for s in "SO" if any(n and e and e not in TYPES for (space, e), n in cases.items() if space == s))
            mark = spaces or others
            if mark and executable != EMULATED and cuda.get((suite, element)):
                mark += "C"
            cells.append(mark)
        count = sum(cases.values())
        total += count
        kind = ", in fragments" if executable == EMULATED else ""
        lines.append(f"| {words(suite)}{kind} | " + " | ".join(cells) + f" | {count} |")
    lines.append("")
    note = f"{total} typed cases on the host"
    lines.append(f"S Serial, O OpenMP, C CUDA: {note}{'; ' + device if device else ''}.")
    return "\n".join(lines) + "\n"


def record(device, files):
    cases, direct = collections.Counter(), collections.Counter()
    total = failed = 0
    for name in files:
        root = xml.etree.ElementTree.parse(name).getroot()
        failed += int(root.get("failures")) + int(root.get("errors"))
        program = pathlib.Path(name).name.split(".")[0]
        if program.endswith("_direct"):
            direct[program] += int(root.get("tests"))
            continue
        total += int(root.get("tests"))
        for group in root:
            suite, _, element = place(group.get("name"))
            cases[f"{suite}/{element}"] += int(group.get("tests"))
    data = {"device": device, "total": total, "failed": failed, "direct": dict(direct),
            "cases": dict(sorted(cases.items()))}  # fmt: skip
    RECORD.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")


def main(arguments):
    page = pathlib.Path(arguments[0])
    if arguments[1] == "--record":
        record(arguments[2], arguments[3:])
        return 0
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    old, after = rest.split(END, 1)
    new = "\n" + table_text(arguments[1], arguments[2]) + "\n"
    if "--write" in arguments:
        page.write_text(before + BEGIN + new + END + after, encoding="utf-8")
    elif old != new:
        print(f"{page.name}: its table is not what CTest lists; run "
              "python3 tests/docs/coverage.py docs/tests.md ctest build/default --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
