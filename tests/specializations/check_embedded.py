#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks which architectures a library of CUDA kernels carries, and how large it is.

Machine code for one architecture may not load on another, so the lists are a promise worth a test.

    check_embedded.py libattikos_cuda.a --expect gemm_sm75=sm_75,sm_80,sm_90

`sm_NN` is machine code ("NN-real" in CMake), `compute_NN` is PTX ("NN-virtual"). In a static
library the part before `=` is the beginning of the object files' names, and each of them must carry
exactly the list. A shared library or an executable no longer knows its object files: there one
fatbinary with exactly the list must exist.

The fatbinary headers are read here, so that the CUDA toolkit is not needed: containers begin with
0xBA55ED50, entries carry kind, architecture and flags (layout seen in the output of nvcc 13.0; only
headers are read, so compression does not matter). If cuobjdump is on the PATH or given, its list of
machine code must agree.
"""

import argparse
import re
import shutil
import struct
import subprocess
import sys

MAGIC = struct.pack("<I", 0xBA55ED50)
CONTAINER = struct.Struct("<IHHQ")  # magic, version, header size, size of the entries
ENTRY = struct.Struct("<HHIQIIHHIIIQ")  # kind, version, header size, size, ..., architecture, ..., flags
KINDS = {1: "compute_", 2: "sm_"}
FLAG_ACCELERATED, FLAG_FAMILY = 0x100000, 0x200000  # the suffixes a and f


class Malformed(Exception):
    pass


def fatbinaries(data):
    """One list of names such as sm_90a or compute_80 for each fatbinary container in `data`."""
    found = []
    at = data.find(MAGIC)
    while at >= 0:
        end = at + 4
        if at + CONTAINER.size <= len(data):
            _, version, header, size = CONTAINER.unpack_from(data, at)
            # The magic number may also occur by chance, in code that builds it.
            if version == 1 and header == CONTAINER.size and at + header + size <= len(data):
                found.append(entries(data, at + header, at + header + size))
                end = at + header + size
        at = data.find(MAGIC, end)
    return found


def entries(data, at, end):
    names = []
    while at < end:
        if at + ENTRY.size > end:
            raise Malformed("a fatbinary entry is cut off")
        kind, _, header, size, _, _, _, _, architecture, _, _, flags = ENTRY.unpack_from(data, at)
        if header < ENTRY.size or at + header + size > end:
            raise Malformed("a fatbinary entry leaves its container")
        if kind in KINDS:
            suffix = "a" if flags & FLAG_ACCELERATED else "f" if flags & FLAG_FAMILY else ""
            names.append(f"{KINDS[kind]}{architecture}{suffix}")
        at += header + size
    return names


def archive_members(data):
    """(name, content) of each object file in a static library of GNU or BSD form, None if it is none."""
    if not data.startswith(b"!<arch>\n"):
        return None
    members, long_names, at = [], b"", 8
    while at + 60 <= len(data):
        name = data[at : at + 16].decode("ascii", "replace").rstrip()
        try:
            size = int(data[at + 48 : at + 58])
        except ValueError as error:
            raise Malformed("a member header of the static library is damaged") from error
        content = data[at + 60 : at + 60 + size]
        if name == "//":
            long_names = content
        elif name not in ("/", "/SYM64/"):
            if re.fullmatch(r"/\d+", name):
                start = int(name[1:])
                name = long_names[start : long_names.index(b"/\n", start)].decode("utf-8", "replace")
            elif name.startswith("#1/"):
                length = int(name[3:])
                name, content = content[:length].rstrip(b"\0").decode("utf-8", "replace"), content[length:]
            members.append((name.rstrip("/"), content))
        at += 60 + size + size % 2
    return members


def compare_with_cuobjdump(tool, path, containers):
    """None if cuobjdump lists the same machine code, else what differs."""
    done = subprocess.run([tool, "--list-elf", path], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return f"cuobjdump failed: {(done.stderr or done.stdout).strip()}"
    listed = sorted(re.findall(r"\.(sm_\d+a?)f?\.cubin", done.stdout))
    read = sorted(name.rstrip("f") for names in containers for name in names if name.startswith("sm_"))
    return None if listed == read else f"cuobjdump lists {listed}, the headers say {read}"


def expectation(text):
    name, equals, architectures = text.partition("=")
    names = architectures.split(",")
    if not name or not equals or not all(re.fullmatch(r"(sm|compute)_\d+[af]?", n) for n in names):
        raise argparse.ArgumentTypeError(f"'{text}' is not of the form gemm_sm75=sm_75,sm_80,compute_80")
    return name, sorted(set(names))


def check(data, expected):
    """(containers, problems) of a library against a list of (name, architectures)."""
    problems = []
    members = archive_members(data)
    if members is None:
        containers = fatbinaries(data)
        for name, wanted in expected:
            if wanted not in [sorted(set(names)) for names in containers]:
                problems.append(f"{name}: no fatbinary carries exactly {', '.join(wanted)}")
        return containers, problems
    by_member = [(name, fatbinaries(content)) for name, content in members]
    for name, wanted in expected:
        matching = [(m, c) for m, c in by_member if m.startswith(name)]
        if not matching:
            problems.append(f"{name}: no object file of this name")
        for member, containers in matching:
            carried = sorted({n for names in containers for n in names})
            if carried != wanted:
                problems.append(
                    f"{member}: carries {', '.join(carried) or 'nothing'}, expected {', '.join(wanted)}"
                )
    return [names for _, containers in by_member for names in containers], problems


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library")
    parser.add_argument("--expect", type=expectation, action="append", required=True, metavar="NAME=LIST")
    parser.add_argument("--most-megabytes", type=float, default=float("inf"), metavar="MB")
    parser.add_argument("--cuobjdump", help="default: the one on the PATH, if there is one")
    options = parser.parse_args()
    try:
        with open(options.library, "rb") as file:
            data = file.read()
        containers, problems = check(data, options.expect)
    except (OSError, Malformed) as error:
        sys.exit(f"check_embedded: {options.library}: {error}")
    if len(data) > options.most_megabytes * 1e6:
        problems.append(f"{len(data) / 1e6:.1f} MB, expected at most {options.most_megabytes:g}")
    tool = options.cuobjdump or shutil.which("cuobjdump")
    if tool:
        try:
            difference = compare_with_cuobjdump(tool, options.library, containers)
        except OSError as error:
            difference = str(error)
        if difference:
            problems.append(difference)
    for problem in problems:
        print(f"check_embedded: {options.library}: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    for name, wanted in options.expect:
        print(f"{name}: {', '.join(wanted)}")
    print(f"{len(data) / 1e6:.1f} MB")
    print("agrees with cuobjdump" if tool else "cuobjdump not found; read from the fatbinary headers alone")


if __name__ == "__main__":
    main()
