# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes what the Fortran module has in common with attikos.h, from the header itself: enumerators, and the structs of
options that its procedures take, with their defaults.

  generate_options.py OUTPUT COMPILER [FLAG]...

COMPILER is a C++ compiler, FLAG what it needs to find the headers.
"""

import pathlib
import re
import subprocess
import sys

TYPES = {
    "real": "real(c_double)",
    "integer": "integer(c_int64_t)",
    "number": "integer(c_int32_t)",
    "flag": "integer(c_int32_t)",
    "choice": "integer(c_int32_t)",
    "tensor": "type(c_ptr)",
    "text": "type(c_ptr)",
}
STRUCTS = ("attikos_gemm_options", "attikos_attention_options")
STRING = r'"(?:[^"\\]|\\.)*"'
PROGRAM = """
#include <attikos/attikos.h>
#define MEMBER(kind, name, initial, meaning) @@member@kind@name@initial@meaning@@
#define STRUCT(operation, struct_name, table, size) @@struct@struct_name@@ table(MEMBER)
@@begin@@
ATTIKOS_OPTION_STRUCTS(STRUCT)
"""


def default(kind: str, initial: str) -> str:
    if kind in ("tensor", "text"):
        return "c_null_ptr"
    if kind == "real":
        return f"{float(initial)!r}_c_double"
    return initial if initial.startswith("ATTIKOS_") else f"{initial}_{'c_int64_t' if kind == 'integer' else 'c_int32_t'}"


def main(output: str, compiler: list[str]) -> None:
    text = subprocess.run([*compiler, "-E", "-P", "-x", "c++", "-"], input=PROGRAM, capture_output=True, text=True,
                          check=True).stdout
    header, tables = text.split("@@begin@@")
    lines = []
    for name, value in re.findall(r"\b(ATTIKOS_\w+) = (\d+)", header):
        if not name.startswith(("ATTIKOS_FA_", "ATTIKOS_ARCH_")):
            lines.append(f"  integer(c_int32_t), parameter, public :: {name} = {value}")
    for struct in re.split(r"@@struct@", tables)[1:]:
        name = struct[: struct.index("@@")].strip()
        if name not in STRUCTS:
            continue
        lines += ["", f"  type, bind(C), public :: {name}", "    integer(c_size_t) :: struct_size = 0  ! set by the procedures"]
        members = re.findall(rf"@@member@ *(\w+) *@ *(\w+) *@ *([^@]+?) *@ *((?:{STRING} *)+)@@", struct)
        for kind, member, initial, meaning in members:
            words = "".join(part[1:-1] for part in re.findall(STRING, meaning)).replace('\\"', '"')
            if kind in ("tensor", "text"):
                lines.append(f"    {TYPES[kind]} :: {member} = {default(kind, initial)}  ! an argument of its own")
                continue
            line = f"    {TYPES[kind]} :: {member} = {default(kind, initial)}"
            lines += [*(f"    ! {part}" for part in re.findall(r".{1,110}(?:\s|$)", words)), line]
        if not members or len(members) != struct.count("@@member@"):
            raise SystemExit(f"{name}: {len(members)} of {struct.count('@@member@')} members were understood")
        lines.append(f"  end type {name}")
    pathlib.Path(output).write_text("\n".join(lines) + "\n", encoding="utf-8")


main(sys.argv[1], sys.argv[2:])
