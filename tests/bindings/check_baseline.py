# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What runs before libattikos knows its processor has no instruction that x86-64 did not have from the start.

    check_baseline.py OBJDUMP LIBRARY OBJECT...

Looked at are the objects of the library's entry, and in the library all that the loader calls and what that calls or
takes the address of. A function that several files instantiate is in the library once, maybe from a file that is
compiled for newer processors. What is called through pointers in data is not followed."""

import re
import subprocess
import sys

# Vectors of AVX and later, whose names begin with v, and what came with them for integers. (tzcnt is how newer
# processors read an instruction that older ones know by another name.)
LATER = re.compile(
    r"\t(v[a-z]\w*|(andn|bextr|bls[a-z]+|bzhi|lzcnt|movbe|mulx|pdep|pext|popcnt|rorx|sarx|shlx|shrx)[lqwb]?)[ \t]"
)
STARTS = re.compile(r"_GLOBAL__(sub_)?[ID]_|_init$")


def functions(objdump, file):
    """{name: its lines}"""
    text = subprocess.run([objdump, "-d", "--no-show-raw-insn", file], check=True, capture_output=True, text=True).stdout
    found, lines = {}, []
    for line in text.splitlines():
        if match := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            lines = found.setdefault(match[1], [])
        elif line.startswith(" "):
            lines.append(line)
    return found


def reached(code):
    """Names of what the loader calls, and of what that leads to."""
    names = [name for name in code if STARTS.match(name)]
    seen = set(names)
    while names:
        for line in code[names.pop()]:
            match = re.search(r"\t(?:call|j[a-z]+|lea)\w*\s.*<([^>+]+)(?:\+0x[0-9a-f]+)?>", line)
            if match and match[1] in code and match[1] not in seen:
                seen.add(match[1])
                names.append(match[1])
    return seen


def main(objdump, library, *objects):
    looked, bad = 0, []
    for file in (*objects, library):
        code = functions(objdump, file)
        names = reached(code) if file == library else code
        if not names:
            bad.append(f"{file}: no functions found")
        for name in sorted(names):
            looked += len(code[name])
            bad += [f"{file}: {name}: {line.strip()}" for line in code[name] if LATER.search(line)][:1]
    if bad:
        print("instructions that older processors lack, before anybody could say so:", *bad, sep="\n  ")
        return 1
    print(f"{looked} instructions looked at")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
