# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs attikos-plan as pages show it, and compares what it prints with what stands there.

  check_pages.py ROOT COMMAND PAGE...

A block of a page that begins with `$ attikos-plan` is a command, run in ROOT, and its output, in which a line `…` stands
for any number of lines. Then some that have to fail.
"""

import pathlib
import re
import shlex
import subprocess
import sys


def run(root, command, words):
    return subprocess.run([command, *words], cwd=root, capture_output=True, text=True, timeout=300, check=False)


def same(shown, printed):
    pattern = r"\n".join(r"(?:.*\n)*.*" if line == "…" else re.escape(line) for line in shown)
    return re.fullmatch(pattern, "\n".join(printed)) is not None


def main(root, command, *pages):
    found, problems = 0, []
    for page in pages:
        text = pathlib.Path(root, page).read_text(encoding="utf-8")
        for block in re.findall(r"^```\w*\n(\$ attikos-plan.*?)^```", text, re.M | re.S):
            first, *shown = block.replace("\\\n", " ").rstrip("\n").split("\n")
            found += 1
            done = run(root, command, shlex.split(first)[2:])
            if done.returncode != 0 or not same(shown, done.stdout.rstrip("\n").split("\n")):
                problems.append(f"{page}: {first}\nprinted\n{done.stdout}{done.stderr}")
    if not found:
        problems.append("no page shows a command")
    machine = "perf/plan/machines/h200x4.json"
    for words, status, message in (
        ([], 2, "--machine is needed"),
        (["--machine", "CMakeLists.txt"], 1, "is no JSON"),
        (["--machine", machine, "--kv-heads", "5"], 1, "expected a multiple of kv_heads"),
        (["--machine", machine, "--ranks", "4", "--slow-rank", "4:2"], 1, "rank of a slow rank is 4"),
    ):
        done = run(root, command, words)
        if done.returncode != status or message not in done.stderr or len(done.stderr.splitlines()) != 1:
            problems.append(f"{words}: status {done.returncode}, expected {status} and {message!r}: {done.stderr}")
    print("\n".join(problems) or f"{found} commands print what their pages show")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
