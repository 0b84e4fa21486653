# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Programs with faults, and what their tests say of each."""

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator

from mutation.families import IN_FRAGMENTS, sources_of
from mutation.faults import INCLUDE, ROOT, Mutant
from mutation.switches import switched

MOST_KIBIBYTES = 6 << 20


@dataclasses.dataclass
class Program:
    """A test source with faults behind switches; what each test of it took and what faults it came by."""

    path: pathlib.Path
    newest: float  # of the files it is made of
    compiled: set[int]
    tests: list[tuple[str, float, set[int]]]

    def tests_of(self, number: int) -> tuple[list[str], float]:
        of_it = [(name, seconds) for name, seconds, met in self.tests if number in met]
        return [name for name, _ in of_it], sum(seconds for _, seconds in of_it)


class Builder:
    """Compiles and runs test sources with the flags of a build, less optimization."""

    def __init__(self, build: pathlib.Path, faults: list[Mutant], jobs: int, sources: Iterable[str], sanitized=False):
        self.build = build
        self.sanitized = sanitized
        self.folder = build / "mutate" / ("sanitized" if sanitized else "plain")
        self.folder.mkdir(parents=True, exist_ok=True)
        self.faults = faults
        self.alone: set[int] = set()  # faults that cannot be behind a switch
        self.lock, self.verdict_lock = threading.Lock(), threading.Lock()
        commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
        entry = next(e for e in commands if e["file"].endswith("tests/support/main.cpp"))
        self.flags = self.flags_of(entry["command"]) + sanitized * ["-fsanitize=address", "-fno-omit-frame-pointer"]
        self.seconds: dict[str, float] = {}
        self.last = ""  # what the last compilation or run said
        (self.folder / "common.hpp").write_text(
            "#include <gtest/gtest.h>\n#include <Kokkos_Core.hpp>\n#include <algorithm>\n#include <array>\n"
            "#include <cmath>\n#include <cstdint>\n#include <functional>\n#include <map>\n#include <sstream>\n"
            "#include <string>\n#include <vector>\n#include <mutation/switches.hpp>\n", encoding="utf-8")  # fmt: skip
        self.compile("-x", "c++-header", str(self.folder / "common.hpp"), "-o", str(self.folder / "common.hpp.gch"))
        self.flags = ["-include", str(self.folder / "common.hpp"), *self.flags]
        self.mains = []
        for source in ("support/main.cpp", "mutation/switches.cpp"):
            self.mains.append(str(self.folder / (pathlib.Path(source).stem + ".o")))
            done = self.compile("-c", str(ROOT / "tests" / source), "-o", self.mains[-1])
            if done.returncode != 0:
                raise SystemExit(done.stderr)
        kokkos = sorted(str(p) for p in build.glob("_deps/kokkos-build/**/libkokkos*.a"))
        self.libraries = [*kokkos, *kokkos, "-lgtest", "-ldl", "-lpthread", "-fopenmp"]
        self.libraries += sanitized * ["-fsanitize=address"]
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            self.programs = dict(zip(sources, pool.map(self.program, sources)))
        self.jobs = jobs

    def flags_of(self, command: str) -> list[str]:
        words, flags = shlex.split(command), []
        skip = False
        self.compiler = next(w for w in words if re.search(r"/(?:c\+\+|g\+\+|clang\+\+)[-\d]*$", w))
        for word, after in zip(words, [*words[1:], ""]):
            if skip:
                skip = False
            elif word == "-isystem":
                flags += [word, after]
                skip = True
            elif re.match(r"-(I|D|f(?!pch)|m|std|pthread)", word) and "TEST_" not in word:
                flags.append("-I" + os.path.abspath(self.build / word[2:]) if word[:2] == "-I" else word)
        return ["-DATTIKOS_TEST_FEW_CASES", "-O0", "-w", f"-I{ROOT / 'tests'}", *flags]

    def compile(self, *arguments: str, seconds: float = 1800) -> subprocess.CompletedProcess:
        first = [a for a in arguments if a.startswith("-I")]
        rest = [a for a in arguments if not a.startswith("-I")]
        return subprocess.run([self.compiler, *self.flags[:2], *first, *self.flags[2:], *rest], capture_output=True,
                              text=True, timeout=seconds, check=False)  # fmt: skip

    def compile_test(self, source: str, to: pathlib.Path, *more: str) -> subprocess.CompletedProcess:
        device = ["-include", str(ROOT / "tests/support/device_on_host.hpp")] if source.startswith(IN_FRAGMENTS) else []
        source = str(ROOT / "tests" / source.removeprefix(IN_FRAGMENTS))
        to.unlink(missing_ok=True)
        return self.compile(*more, *device, "-MD", "-MF", str(to.with_suffix(".d")), "-c", source, "-o", str(to))

    def newest(self, built: pathlib.Path) -> float:
        """Of what an object was made of, or infinity. What is in an overlay stands for the header that it copies."""
        made_of = built.with_suffix(".d")
        if not made_of.exists():
            return float("inf")
        words = made_of.read_text(encoding="utf-8").replace("\\\n", " ").split()[1:]
        paths = {re.sub(rf"^{re.escape(str(self.folder))}/overlay[^/]*", str(INCLUDE), word) for word in words}
        try:
            return max(os.stat(path).st_mtime for path in paths if not path.startswith(str(self.folder)))
        except FileNotFoundError:
            return float("inf")

    def called(self, built: pathlib.Path) -> set[int]:
        """The faults that functions of an object refer to, which are not all whose switches it has."""
        listed = subprocess.run(["readelf", "--relocs", "--wide", str(built)], capture_output=True, text=True,
                                check=True)  # fmt: skip
        numbers: set[int] = set()
        inside = False
        for line in listed.stdout.splitlines():
            if line.startswith("Relocation section"):
                inside = ".text" in line and "14attikos_faults" not in line.split("'")[1][:40]
            elif inside and "_ZN14attikos_faults" in line and "4siteILi" not in line:
                numbers |= {int(number) for number in re.findall(r"Li(\d+)E", line)}
        return numbers

    def link(self, built: pathlib.Path) -> pathlib.Path:
        program = built.with_suffix("")
        linked = subprocess.run([self.compiler, str(built), *self.mains, "-o", str(program), *self.libraries],
                                capture_output=True, text=True, check=False)  # fmt: skip
        if linked.returncode != 0:
            raise RuntimeError(linked.stderr)
        return program

    def passes(self, program: pathlib.Path, seconds: float, tests: str = "*", **more: str) -> bool:
        """`seconds` that it takes without a fault; five times that of a processor is a failure, as is waiting."""
        most = int(10 + 5 * seconds)
        environment = dict(os.environ, OMP_PROC_BIND="false", OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive",
                           ASAN_OPTIONS=f"hard_rss_limit_mb={MOST_KIBIBYTES >> 10}:detect_leaks=0",
                           GTEST_FAIL_FAST="1", GTEST_BRIEF="1", GTEST_FILTER=tests, **more)  # fmt: skip
        for name in ("ATTIKOS_TEST_RATIOS", "ATTIKOS_TEST_RATIOS_TO"):
            environment.pop(name, None)
        try:
            # AddressSanitizer reserves more addresses than there is memory.
            limits = f"ulimit -t {most}" if self.sanitized else f"ulimit -t {most} -v {MOST_KIBIBYTES}"
            command = ["sh", "-c", f"{limits}; exec {shlex.quote(str(program))}"]
            run = subprocess.run(command, env=environment, capture_output=True, check=False, text=True,
                                 errors="replace", timeout=4 * most)  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
        self.last = run.stdout + run.stderr
        return run.returncode == 0

    def program(self, source: str) -> Program:
        """The program of a source with all faults that can be behind switches."""
        name = "with_" + re.sub(r"[/ ]", "_", source).removesuffix(".cpp")
        note, report = self.folder / f"{name}.json", self.folder / f"{name}.tests"
        what = [str(fault) for fault in self.faults]
        made = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {}
        if made.get("faults") != what or note.stat().st_mtime < self.newest(self.folder / f"{name}.o"):
            begin = time.monotonic()
            note.unlink(missing_ok=True)
            program = self.link(self.switched_object(source, name))
            middle = time.monotonic()
            if not self.passes(program, 600, ATTIKOS_FAULTS_TO=str(report)):
                raise SystemExit(f"mutate.py: {source} does not pass as it is:\n{self.last}")
            note.write_text(json.dumps({"faults": what, "alone": sorted(self.alone)}), encoding="utf-8")
            took = middle - begin, time.monotonic() - middle
            print(f"  {source}: {took[0]:.0f} s to compile, {took[1]:.0f} s to run", flush=True)
        with self.lock:
            self.alone |= set(made.get("alone", []))
        result = Program(self.folder / name, self.newest(self.folder / f"{name}.o"), set(), [])
        for line in report.read_text(encoding="utf-8").splitlines():
            kind, milliseconds, test, *numbers = line.split(" ")
            if kind == "compiled":  # of these some are in templates that nothing instantiates
                result.compiled = {int(n) for n in numbers} & self.called(self.folder / f"{name}.o")
            else:
                result.tests.append((test, int(milliseconds) / 1000, {int(n) for n in numbers}))
        return result

    def switched_object(self, source: str, name: str) -> pathlib.Path:
        overlay = self.folder / f"overlay_{name}"
        for _ in range(20):
            for header in {fault.header for fault in self.faults}:
                changed = overlay / "attikos" / header
                changed.parent.mkdir(parents=True, exist_ok=True)
                text = (INCLUDE / "attikos" / header).read_text(encoding="utf-8")
                begins = [0]
                for line in text.split("\n"):
                    begins.append(begins[-1] + len(line) + 1)
                changed.write_text(switched(text, [
                    (number, begins[f.line - 1] + f.begin, begins[f.line - 1] + f.end, f.operator, f.by)
                    for number, f in enumerate(self.faults) if f.header == header and number not in self.alone
                ]), encoding="utf-8")  # fmt: skip
            to = self.folder / f"{name}.o"
            done = self.compile_test(source, to, f"-I{overlay}")
            if done.returncode == 0:
                return to
            # Lines with an error, or else all that the compiler names, or those next to them.
            guilty: set[int] = set()
            for pattern, reach in ((r"(\d+)(?::\d+)?: error", 0), (r"(\d+)", 0), (r"(\d+)", 3)):
                named = re.finditer(rf"{re.escape(str(overlay))}/attikos/([\w/.]+):{pattern}", done.stderr)
                at = {(m[1], int(m[2]) + step) for m in named for step in range(-reach, reach + 1)}
                guilty = {number for number, f in enumerate(self.faults) if (f.header, f.line) in at} - self.alone
                if guilty:
                    break
            if not guilty:
                break
            with self.lock:
                self.alone |= guilty
        raise SystemExit(f"mutate.py: {source} does not compile:\n{done.stderr[-4000:]}")

    def baseline(self, source: str) -> bytes:
        """The object of the unchanged headers, whose tests must pass."""
        name = "base_" + re.sub(r"[/ ]", "_", source).removesuffix(".cpp")
        known, note = self.folder / f"{name}.o", self.folder / f"{name}.json"
        if source not in self.seconds and note.exists() and note.stat().st_mtime > self.newest(known):
            self.seconds[source] = json.loads(note.read_text(encoding="utf-8"))
        if source not in self.seconds:
            done = self.compile_test(source, known)
            begin = time.monotonic()
            if done.returncode != 0 or not self.passes(self.link(known), 600):
                raise SystemExit(f"mutate.py: {source} does not compile or pass as it is:\n{done.stderr}\n{self.last}")
            self.seconds[source] = time.monotonic() - begin
            note.write_text(json.dumps(self.seconds[source]), encoding="utf-8")
        return known.read_bytes()

    def verdicts(self, numbers: Iterable[int]) -> Iterator[tuple[int, str]]:
        numbers = list(numbers)
        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            yield from zip(numbers, pool.map(self.known_verdict, numbers))

    def tests_that_meet(self, number: int) -> dict[str, int]:
        """How many tests of each source come by a fault."""
        met = {source: len(program.tests_of(number)[0]) for source, program in self.programs.items()}
        return {source: count for source, count in met.items() if count}

    def known_verdict(self, number: int) -> str:
        """As verdict(), from an earlier run if what it came from has not changed since."""
        note, fault = self.folder / "verdicts.json", self.faults[number]
        if fault.is_of_compile_time():
            return "not compiled"
        with self.verdict_lock:
            verdicts = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {}
        verdict, at = verdicts.get(str(fault), ("", 0))
        killer = verdict.partition("killed by ")[2].removeprefix("AddressSanitizer, ")
        of = [killer] if killer else self.programs
        if verdict and all(s in self.programs and at > self.programs[s].newest for s in of):
            return verdict
        begin = time.time()
        if number in self.alone:
            with self.lock:
                verdict = self.verdict_alone(fault)
        else:
            verdict = self.verdict(number)
        with self.verdict_lock:
            verdicts = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {}
            note.write_text(json.dumps(verdicts | {str(fault): (verdict, begin)}, indent=1), encoding="utf-8")
        return verdict

    def verdict(self, number: int) -> str:
        own = sources_of(self.faults[number].family)
        met = self.tests_that_meet(number)
        sources = sorted(met, key=lambda source: source not in own)
        if self.sanitized and sources and sources[0] in own:  # others have what they have from these
            sources = [source for source in sources if source in own]
        for source in sources:
            program = self.programs[source]
            tests, seconds = program.tests_of(number)
            chosen = "*" if len(tests) > 500 else ":".join(tests)
            if not self.passes(program.path, seconds, chosen, ATTIKOS_FAULT=str(number)):
                return f"killed by {self.sanitized * 'AddressSanitizer, '}{source}"
        return "survived" if any(number in p.compiled for p in self.programs.values()) else "not compiled"

    def verdict_alone(self, mutant: Mutant) -> str:
        overlay = self.folder / "overlay"
        changed = overlay / "attikos" / mutant.header
        changed.parent.mkdir(parents=True, exist_ok=True)
        changed.write_text(mutant.text(), encoding="utf-8")
        differs = False
        try:
            for source in sources_of(mutant.family):
                before = self.baseline(source)
                built = self.folder / "mutant.o"
                if self.compile_test(source, built, f"-I{overlay}").returncode != 0:
                    return "stillborn"
                if built.read_bytes() == before:
                    continue
                differs = True
                if not self.passes(self.link(built), self.seconds[source]):
                    return f"killed by {source}"
        finally:
            changed.unlink()
        return "survived" if differs else "not compiled"
