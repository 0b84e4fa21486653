# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The tables of kernels in docs/kernels.md, made from what each kernel's `accepts` answers.

  kernel_tables.py PAGE PROGRAM            fails if a row on the page is not what the program prints
  kernel_tables.py PAGE PROGRAM --write    rewrites the tables

PROGRAM is tests/specializations/companion/kernel_facts.cpp, which needs no GPU. Kernels that its build leaves out are
not looked at; --write wants all of them.
"""

import pathlib
import re
import subprocess
import sys

BEGIN = "<!-- kernels: made by tests/docs/kernel_tables.py -->\n"
END = "<!-- end of kernels -->\n"
ATTENTION = "kernel | cards | q, k, v → out | head_dim | of v | longest | q, k, v in memory | does not take"
COLUMNS = {
    "gemm": "kernel | cards | A, B → C | products | A, B in memory | takes beside alpha, beta and scale",
    "gated_mlp": "kernel | cards | x, weights → out | x, weights in memory | activations",
    "attention": ATTENTION,
    "attention_backward": "kernel | cards | q, k, v, dout → gradients | head_dim | of v | q, k, v, dout in memory"
    " | does not take",
    "decode": ATTENTION,
    "append_kv": "kernel | cards | new → cache | head_dim | new in memory | does not take",
}


def printed(program):
    """Rows by the kernels' names in their order, and names of kernels that the program's build left out."""
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{program}: {done.stderr}")
    rows, left_out = {}, []
    for line in done.stdout.splitlines():
        row = re.match(r"\| `([a-z_]+/[a-z0-9_]+)` \|", line)
        if row:
            rows[row[1]] = re.sub(r"\|  \|", "| |", line)
        else:
            left_out.append(line.removeprefix("left out: "))
    return rows, left_out


def tables(rows):
    lines = []
    for operation, columns in COLUMNS.items():
        lines += ["", f"### {operation}", "", f"| {columns} |", "|---" * (columns.count("|") + 1) + "|"]
        lines += [row for name, row in rows.items() if name.split("/")[0] == operation]
    return "\n".join(lines) + "\n\n"


def main(page, program, *options):
    page = pathlib.Path(page)
    text = page.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    old, after = rest.split(END, 1)
    rows, left_out = printed(program)
    if options == ("--write",):
        if left_out:
            sys.exit(f"{program} was built without {', '.join(left_out)}")
        page.write_text(before + BEGIN + tables(rows) + END + after, encoding="utf-8")
        return 0
    if left_out:
        there = {name: line for line, name in re.findall(r"^(\| `([a-z_]+/[a-z0-9_]+)` .*)$", old, re.M)}
        new = tables(there | rows)
    else:
        new = tables(rows)
    if old == new:
        print(f"{len(rows)} kernels take what {page.name} says; {len(left_out)} are left out of this build")
        return 0
    print(f"{page.name}: its tables are not what the kernels accept:")
    shown, made = old.splitlines(), new.splitlines()
    for line in shown:
        if line not in made:
            print(f"- {line}")
    for line in made:
        if line not in shown:
            print(f"+ {line}")
    print(f"run python3 tests/docs/kernel_tables.py {page} {program} --write in a build of all kernels")
    return 1


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
