#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What a file that includes attikos/attikos.hpp and makes one call costs to compile.

    python3 perf/compile_cost.py --build build/perf [--json cost.json]
    python3 perf/compile_cost.py -- g++ -std=c++20 -O3 -Iinclude -I<build>/include -I<Kokkos>/include

With --build, compiler and flags are those of a source of that build tree that uses Attikos, less its warnings
and output options (Ninja and Makefiles: compile_commands.json if the tree has one, else Ninja is asked). Each
program is compiled --repeat times; the shortest time and the largest peak memory of one compiler process are
reported.
"""

import argparse
import json
import os
import platform
import resource
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MAIN = "int main(int argc, char** argv) {{ Kokkos::ScopeGuard guard(argc, argv); {} }}\n"
MATRICES = 'Kokkos::View<float**> a("a", 8, 8), b("b", 8, 8), c("c", 8, 8); '
TENSORS = 'Kokkos::View<float****> q("q", 1, 2, 8, 8), out("out", 1, 2, 8, 8); '

PROGRAMS = {
    "Kokkos alone": "#include <Kokkos_Core.hpp>\n" + MAIN.format(""),
    "attikos.hpp, no call": "#include <attikos/attikos.hpp>\n" + MAIN.format(""),
    "attikos.hpp, one gemm": "#include <attikos/attikos.hpp>\n" + MAIN.format(MATRICES + "attikos::gemm(a, b, c);"),
    "attikos.hpp, one attention": "#include <attikos/attikos.hpp>\n"
    + MAIN.format(TENSORS + "attikos::attention(q, q, q, out);"),
}

# Options that belong to the one source the flags were taken from. Those of the first set take an argument.
DROP_WITH_ARGUMENT = {"-o", "-c", "-MF", "-MT", "-MQ"}
DROP = {"-MD", "-MMD", "--"}


def fail(message):
    sys.exit(f"compile_cost.py: {message}")


def compile_commands(build):
    """Entries of the build tree, as CMake writes them to compile_commands.json."""
    file = build / "compile_commands.json"
    if file.is_file():
        return json.loads(file.read_text())
    if (build / "build.ninja").is_file() and shutil.which("ninja"):
        run = subprocess.run(["ninja", "-C", str(build), "-t", "compdb"], capture_output=True, text=True, check=False)
        if run.returncode == 0:
            return json.loads(run.stdout)
    fail(f"{build} has neither compile_commands.json nor build.ninja; configure with Ninja or with "
         "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")


def flags_of(build):
    """Compiler and flags of the first source in the tree that is compiled with Attikos's headers."""
    for entry in compile_commands(build):
        command = entry.get("arguments") or shlex.split(entry.get("command", ""))
        source = entry["file"]
        uses_attikos = any(part.startswith("-I") and part.rstrip("/").endswith("include") for part in command)
        if not source.endswith((".cpp", ".cu")) or "_deps" in source or not uses_attikos:
            continue
        if "Kokkos" not in entry.get("command", " ".join(command)) and "KOKKOS" not in " ".join(command):
            continue
        kept = []
        skip = False
        for part in command:
            if skip:
                skip = False
            elif part in DROP_WITH_ARGUMENT:
                skip = True
            elif part not in DROP and part != source and not part.startswith("-W"):
                kept.append(part)
        return kept, entry.get("directory", str(build))
    fail(f"no source of {build} is compiled with Attikos")


def compile_once(command, directory):
    """Seconds and the peak resident memory of the largest compiler process in bytes."""
    # A process of its own, so that getrusage speaks of this compilation's children only.
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        start = time.perf_counter()
        run = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - start
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        scale = 1 if platform.system() == "Darwin" else 1024
        answer = {"code": run.returncode, "log": run.stderr[-4000:], "seconds": seconds,
                  "cpu_seconds": usage.ru_utime + usage.ru_stime, "bytes": usage.ru_maxrss * scale}
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        answer = json.loads(stream.read())
    os.waitpid(child, 0)
    if answer["code"] != 0:
        fail("the compiler refused:\n" + shlex.join(command) + "\n" + answer["log"])
    return answer


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, help="build tree to take compiler and flags from")
    parser.add_argument("--repeat", type=int, default=3, help="compilations per program (default 3)")
    parser.add_argument("--json", type=Path, help="file to write the figures to")
    parser.add_argument("command", nargs="*", help="compiler and flags, behind --")
    arguments = parser.parse_args()
    if bool(arguments.build) == bool(arguments.command) or arguments.repeat < 1:
        parser.error("give either --build or, behind --, compiler and flags; --repeat is at least 1")
    command, directory = flags_of(arguments.build) if arguments.build else (arguments.command, os.getcwd())

    version = subprocess.run([command[0], "--version"], capture_output=True, text=True, check=False).stdout
    # Without folders: the record says how it was compiled, not where.
    flags = [part for part in command if part.startswith("-") and not part.startswith(("-I", "-isystem"))]
    report = {"compiler": (version.splitlines() or ["unknown"])[0], "flags": flags, "programs": []}
    print(report["compiler"])
    print(f"{'program':<28} {'seconds':>8} {'CPU s':>8} {'peak MiB':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in PROGRAMS.items():
            # nvcc, and CMake's language CUDA, want to be told; the host compiler looks at the suffix.
            source = Path(folder) / "call.cpp"
            source.write_text(text)
            full = [*command, "-c", str(source), "-o", str(Path(folder) / "call.o")]
            runs = [compile_once(full, directory) for _ in range(arguments.repeat)]
            entry = {
                "program": name,
                "seconds": min(run["seconds"] for run in runs),
                "seconds_median": statistics.median(run["seconds"] for run in runs),
                "cpu_seconds": min(run["cpu_seconds"] for run in runs),
                "peak_bytes": max(run["bytes"] for run in runs),
            }
            report["programs"].append(entry)
            print(f"{name:<28} {entry['seconds']:8.2f} {entry['cpu_seconds']:8.2f} "
                  f"{entry['peak_bytes'] / 2**20:9.0f}", flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
