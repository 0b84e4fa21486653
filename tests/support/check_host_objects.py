# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Vector instructions beyond x86-64 stand in functions that are chosen at run time alone.

    check_host_objects.py OBJDUMP OBJECT

The object was compiled for x86-64, so that all that is newer comes from `target` attributes. A function outside
attikos::detail::host's namespaces of instruction sets that has any would be kept by the linker, if it is inline, for
everybody."""

import re
import subprocess
import sys

CHOSEN = re.compile(r"attikos::(\w+::)?detail::host::(avx2|avx512|amx)::")
NEWER = re.compile(r"%(?:[yz]mm|tmm|k[0-7])|\tv[a-z]")


def main(objdump, file):
    command = [objdump, "-d", "-C", "--no-show-raw-insn", file]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    name, chosen, bad = "", set(), {}
    for line in text.splitlines():
        if match := re.match(r"[0-9a-f]+ <(.+)>:$", line):
            name = match[1]
        elif line.startswith(" ") and NEWER.search(line):
            # The name of a function template begins with its result.
            if CHOSEN.search(re.sub(r"\(.*", "", name)):
                chosen.add(name)
            else:
                bad.setdefault(name, line.strip())
    if bad:
        print("instructions of newer processors in functions that everybody may get:")
        print(*(f"  {name}: {line}" for name, line in bad.items()), sep="\n")
        return 1
    if not chosen:
        print(f"{file}: no function for newer processors found")
        return 1
    print(f"{len(chosen)} functions for newer processors, none elsewhere")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
