# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Mutation testing of the portable kernels and of the checks of arguments: small faults, one at a time, that the
family's own tests must notice.

  mutate.py BUILD [--sample 200] [--seed N] [--family NAME] [--at FILE:LINE] [--list] [--jobs 2]

BUILD is a configured and built folder of the preset `default` (its flags and libraries are used; nothing of it is
written but BUILD/mutate). Of all faults of the listed operators in the listed headers a sample is drawn, with a seed
that is printed. Each test source is compiled once, without optimization, against headers that have all faults of the
sample, each behind a switch (mutation/switches.hpp), and run once with none of them on, which says what faults each
test comes by. Then, fault by fault, the tests of its family that come by it are run until one fails: a failed test, a
crash, and five times the time kill. A fault that cannot be behind a switch is compiled by itself. One that does not
compile, or that is in no program (code that this build does not have, such as device branches), is not counted.
Survivors are listed with their line; those in tests/mutants.txt are argued there and marked. The score is
killed / (killed + survivors).

Operators: a relation for its neighbour (< and <=, > and >=, == and !=), + and -, * and /, && and ||, a negation left
out, 0 and 1 for each other as operands, min and max for each other, a statement left out (calls, compound
assignments), a condition that is always or never so.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import re
import shlex
import subprocess
import sys
import threading
import time

from mutation.switches import switched

MOST_KIBIBYTES = 6 << 20
ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
ARGUED = ROOT / "tests" / "mutants.txt"

# Headers of include/attikos, the test sources that are to notice, the cheapest first.
FAMILIES = {
    "gemm": (
        ["gemm/gemm_arguments.hpp", "gemm/gemm_portable.hpp", "gemm/gemm_epilogue.hpp", "gemm/gemm_operand.hpp",
         "gemm/gemm_portable_tile.hpp", "gemm/pack_b.hpp", "gemm/packed_b.hpp", "core/tile.hpp"],
        ["unit/gemm/test_error_messages_gemm.cpp", "unit/gemm/test_error_messages_gemm_extras.cpp",
         "parity/test_gemm.cpp", "parity/test_gemm_epilogue.cpp",
         "parity/test_gemm_groups.cpp", "parity/test_gemm_scales.cpp", "parity/test_packed_b.cpp",
         "parity/test_packed_b_extras.cpp"],
    ),
    "attention": (
        ["attention/attention_arguments.hpp", "attention/attention_term_arguments.hpp", "attention/attention_flash.hpp",
         "attention/attention_unfused.hpp", "attention/attention_head.hpp", "attention/attention_scores.hpp",
         "attention/online_softmax.hpp"],
        ["unit/attention/test_error_messages_attention.cpp", "unit/attention/test_error_messages_attention_terms.cpp",
         "parity/test_attention.cpp", "parity/test_attention_options.cpp", "parity/test_attention_terms.cpp",
         "parity/test_attention_storage.cpp"],
    ),
    "decode": (
        ["decode/decode.hpp", "decode/decode_tiles.hpp", "decode/decode_split.hpp", "decode/decode_rows.hpp",
         "decode/merge_states.hpp"],
        ["unit/attention/test_error_messages_attention_terms.cpp", "parity/test_merge_states.cpp",
         "parity/test_decode.cpp", "parity/test_decode_packed.cpp"],
    ),
    "append_kv": (
        ["append_kv/append_kv_arguments.hpp", "append_kv/append_kv_portable.hpp"],
        ["unit/attention/test_error_messages_attention_terms.cpp", "parity/test_append_kv.cpp",
         "parity/test_append_kv_ragged.cpp"],
    ),
    "mlp": (
        ["mlp/gated_mlp_arguments.hpp", "mlp/gated_mlp_portable.hpp", "mlp/gated_mlp_backward.hpp"],
        ["unit/mlp/test_error_messages_gated_mlp.cpp", "parity/test_gated_mlp.cpp", "parity/test_packed_weights.cpp"],
    ),
    "norm": (
        ["norm/norm_rows.hpp", "norm/layer_norm.hpp", "norm/rms_norm.hpp", "norm/layer_norm_backward.hpp",
         "norm/rms_norm_backward.hpp", "core/rows/checks.hpp", "core/rows/sums.hpp"],
        ["unit/norm/test_error_messages_norms.cpp", "parity/test_norm.cpp", "parity/test_norm_backward.cpp"],
    ),
    "rope": (
        ["norm/rope.hpp", "norm/rotation.hpp", "norm/rms_norm_rope.hpp"],
        ["unit/norm/test_error_messages_rows.cpp", "parity/test_rope.cpp", "parity/test_rms_norm_rope.cpp"],
    ),
    "reduce": (
        ["reduce/softmax.hpp", "reduce/log_softmax.hpp", "reduce/softmax_backward.hpp", "reduce/mean_pool.hpp",
         "reduce/cross_entropy.hpp", "reduce/cross_entropy_backward.hpp", "reduce/cross_entropy_rows.hpp",
         "reduce/linear_cross_entropy.hpp", "embedding/embedding.hpp", "embedding/embedding_arguments.hpp",
         "embedding/embedding_backward.hpp", "embedding/id_sort.hpp"],
        ["unit/norm/test_error_messages_rows.cpp", "parity/test_reduce.cpp", "parity/test_softmax.cpp",
         "parity/test_cross_entropy.cpp", "parity/test_linear_cross_entropy.cpp", "parity/test_embedding.cpp"],
    ),
    "optimizer": (
        ["optimizer/adamw.hpp", "optimizer/adamw_arguments.hpp", "optimizer/adamw_portable.hpp"],
        ["parity/test_adamw.cpp"],
    ),
    "quantize": (
        ["quantize/quantize.hpp", "quantize/quantize_portable.hpp", "quantize/scale_grid.hpp",
         "quantize/quantize_value.hpp"],
        ["unit/gemm/test_error_messages_gemm_extras.cpp", "parity/test_quantize.cpp"],
    ),
}  # fmt: skip

# What every operation is tested on, after the family's own.
ACROSS = ["unit/core/test_overlapping_arguments.cpp"]

# (name, what is replaced, by what); a name's pattern stands between spaces as clang-format sets them.
OPERATORS = [
    ("relation", r"(?<= )<(?= )", "<="), ("relation", r"(?<= )<=(?= )", "<"),
    ("relation", r"(?<= )>(?= )", ">="), ("relation", r"(?<= )>=(?= )", ">"),
    ("relation", r"(?<= )==(?= )", "!="), ("relation", r"(?<= )!=(?= )", "=="),
    ("arithmetic", r"(?<= )\+(?= )", "-"), ("arithmetic", r"(?<= )-(?= )", "+"),
    ("arithmetic", r"(?<=[\w)\]] )\*(?= [\w(])", "/"), ("arithmetic", r"(?<= )/(?= )", "*"),
    ("logic", r"(?<= )&&(?= )", "||"), ("logic", r"(?<= )\|\|(?= )", "&&"),
    ("negation", r"(?<=[ (])!(?=[\w(])", ""),
    ("constant", r"(?<=[ (])0(?=[,;)])", "1"), ("constant", r"(?<=[ (])1(?=[,;)])", "0"),
    ("extremum", r"\bstd::min\b", "std::max"), ("extremum", r"\bstd::max\b", "std::min"),
    ("statement", r"^ +[\w.\[\]()>-]+ [+*|/-]?= [^;{}]*;$", ";"),
    ("statement", r"^ +(?:[\w:]+(?:<[\w, :]*>)?)\([^;{}]*\);$", ";"),
    ("condition", r"(?<=\bif )\((?!constexpr)[^{}]*\)(?= \{$|$| return| raise| continue| break)", "(true)"),
    ("condition", r"(?<=\bif )\((?!constexpr)[^{}]*\)(?= \{$|$| return| raise| continue| break)", "(false)"),
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Mutant:
    family: str
    header: str
    line: int  # from 1
    begin: int
    end: int
    operator: str
    by: str

    def text(self) -> str:
        lines = (INCLUDE / "attikos" / self.header).read_text(encoding="utf-8").split("\n")
        old = lines[self.line - 1]
        lines[self.line - 1] = old[: self.begin] + self.by + old[self.end :]
        return "\n".join(lines)

    def __str__(self) -> str:
        lines = (INCLUDE / "attikos" / self.header).read_text(encoding="utf-8").split("\n")
        old = lines[self.line - 1]
        new = old[: self.begin] + self.by + old[self.end :]
        return f"{self.header}:{self.line}: {self.operator}: {old.strip()}  ->  {new.strip()}"

    def key(self) -> str:
        """What stays the same when lines above change."""
        return str(self).replace(f":{self.line}:", ":", 1)


def mutants_of(family: str) -> list[Mutant]:
    found = []
    for header in FAMILIES[family][0]:
        inside_comment, before = False, ";"  # the last character of the code above
        for number, line in enumerate((INCLUDE / "attikos" / header).read_text(encoding="utf-8").split("\n"), 1):
            code = re.sub(r'"(?:[^"\\]|\\.)*"', lambda m: "_" * len(m.group()), line.split("//")[0])
            inside_comment = (inside_comment or "/*" in code) and "*/" not in code
            above, before = before, code.rstrip()[-1:] or before
            if inside_comment or re.match(r"\s*(#|template|static_assert|using|namespace|friend|concept)", code):
                continue
            if "constexpr" in code or "static_cast<" in code and "==" not in code and " = " not in code:
                continue
            for operator, pattern, by in OPERATORS:
                if operator == "statement" and above not in ";{})":  # the end of one
                    continue
                for match in re.finditer(pattern, code):
                    found.append(Mutant(family, header, number, match.start(), match.end(), operator, by))
    return found


@dataclasses.dataclass
class Program:
    """A test source with faults behind switches; what each test of it took and what faults it came by."""

    path: pathlib.Path
    compiled: set[int]
    tests: list[tuple[str, float, set[int]]]

    def tests_of(self, number: int) -> tuple[list[str], float]:
        of_it = [(name, seconds) for name, seconds, met in self.tests if number in met]
        return [name for name, _ in of_it], sum(seconds for _, seconds in of_it)


class Builder:
    """Compiles and runs test sources with the flags of a build, less optimization."""

    def __init__(self, build: pathlib.Path, faults: list[Mutant], jobs: int):
        self.build = build
        self.folder = build / "mutate"
        self.folder.mkdir(exist_ok=True)
        self.faults = faults
        self.alone: set[int] = set()  # faults that cannot be behind a switch
        self.lock, self.verdict_lock = threading.Lock(), threading.Lock()
        commands = json.loads((build / "compile_commands.json").read_text(encoding="utf-8"))
        entry = next(e for e in commands if e["file"].endswith("tests/parity/test_gemm.cpp"))
        self.flags = self.flags_of(entry["command"])
        self.seconds: dict[str, float] = {}
        self.last = ""  # what the last compilation or run said
        (self.folder / "common.hpp").write_text(
            "#include <gtest/gtest.h>\n#include <Kokkos_Core.hpp>\n#include <algorithm>\n#include <array>\n"
            "#include <cmath>\n#include <cstdint>\n#include <functional>\n#include <map>\n#include <sstream>\n"
            "#include <string>\n#include <vector>\n#include <mutation/switches.hpp>\n", encoding="utf-8")  # fmt: skip
        sources = [*INCLUDE.rglob("*.h*"), *(ROOT / "tests").rglob("*.?pp")]
        self.newest = max(path.stat().st_mtime for path in sources)
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
        families = {fault.family for fault in faults}
        wanted = dict.fromkeys(s for family in FAMILIES if family in families for s in FAMILIES[family][1] + ACROSS)
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            self.programs = dict(zip(wanted, pool.map(self.program, wanted)))

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

    def object_of(self, source: str, name: str, *more: str) -> pathlib.Path | None:
        to = self.folder / f"{name}.o"
        to.unlink(missing_ok=True)
        done = self.compile(*more, "-c", str(ROOT / "tests" / source), "-o", str(to))
        self.last = done.stderr
        return to if done.returncode == 0 else None

    def link(self, built: pathlib.Path) -> pathlib.Path:
        program = built.with_suffix("")
        linked = subprocess.run([self.compiler, str(built), *self.mains, "-o", str(program), *self.libraries],
                                capture_output=True, text=True, check=False)  # fmt: skip
        if linked.returncode != 0:
            raise RuntimeError(linked.stderr)
        return program

    def passes(self, program: pathlib.Path, seconds: float, tests: str = "*", **more: str) -> bool:
        """`seconds` that it takes without a fault; five times that is a failure."""
        environment = dict(os.environ, OMP_PROC_BIND="false", OMP_NUM_THREADS="1", OMP_WAIT_POLICY="passive",
                           GTEST_FAIL_FAST="1", GTEST_BRIEF="1", GTEST_FILTER=tests, **more)  # fmt: skip
        for name in ("ATTIKOS_TEST_RATIOS", "ATTIKOS_TEST_RATIOS_TO"):
            environment.pop(name, None)
        try:
            run = subprocess.run(["sh", "-c", f"ulimit -v {MOST_KIBIBYTES}; exec {shlex.quote(str(program))}"],
                                 env=environment, capture_output=True, check=False, text=True, errors="replace",
                                 timeout=10 + 5 * seconds)  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
        self.last = run.stdout + run.stderr
        return run.returncode == 0

    def program(self, source: str) -> Program:
        """The program of a source with all faults that can be behind switches."""
        name = "with_" + source.replace("/", "_").removesuffix(".cpp")
        note, report = self.folder / f"{name}.json", self.folder / f"{name}.tests"
        what = [str(fault) for fault in self.faults]
        made = json.loads(note.read_text(encoding="utf-8")) if note.exists() else {}
        if made.get("faults") != what or note.stat().st_mtime < self.newest:
            begin = time.monotonic()
            note.unlink(missing_ok=True)
            program = self.link(self.switched_object(source, name))
            middle = time.monotonic()
            if not self.passes(program, 600, ATTIKOS_FAULTS_TO=str(report)):
                raise SystemExit(f"mutate.py: {source} does not pass as it is:\n{self.last}")
            note.write_text(json.dumps({"faults": what, "alone": sorted(self.alone)}), encoding="utf-8")
            print(f"  {source}: {middle - begin:.0f} s to compile, {time.monotonic() - middle:.0f} s to run", flush=True)
        with self.lock:
            self.alone |= set(made.get("alone", []))
        result = Program(self.folder / name, set(), [])
        for line in report.read_text(encoding="utf-8").splitlines():
            kind, milliseconds, test, *numbers = line.split(" ")
            if kind == "compiled":
                result.compiled = {int(n) for n in numbers}
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
            done = self.compile(f"-I{overlay}", "-c", str(ROOT / "tests" / source), "-o", str(to))
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
        name = "base_" + source.replace("/", "_").removesuffix(".cpp")
        known, note = self.folder / f"{name}.o", self.folder / f"{name}.json"
        if source not in self.seconds and known.exists() and note.exists() and note.stat().st_mtime > self.newest:
            self.seconds[source] = json.loads(note.read_text(encoding="utf-8"))
        if source not in self.seconds:
            built = self.object_of(source, name)
            begin = time.monotonic()
            if built is None or not self.passes(self.link(built), 600):
                raise SystemExit(f"mutate.py: {source} does not compile or pass as it is:\n{self.last}")
            self.seconds[source] = time.monotonic() - begin
            note.write_text(json.dumps(self.seconds[source]), encoding="utf-8")
        return known.read_bytes()

    def known_verdict(self, number: int) -> str:
        """As verdict(), from an earlier run that was cut off, if no source has changed since."""
        note, what = self.folder / "verdicts.json", str(self.faults[number])
        with self.verdict_lock:
            fresh = note.exists() and note.stat().st_mtime > self.newest
            verdicts = json.loads(note.read_text(encoding="utf-8")) if fresh else {}
        if what in verdicts:
            return verdicts[what]
        if number in self.alone:
            with self.lock:
                verdict = self.verdict_alone(self.faults[number])
        else:
            verdict = self.verdict(number)
        with self.verdict_lock:
            fresh = note.exists() and note.stat().st_mtime > self.newest
            verdicts = json.loads(note.read_text(encoding="utf-8")) if fresh else {}
            note.write_text(json.dumps(verdicts | {what: verdict}, indent=1), encoding="utf-8")
        return verdict

    def verdict(self, number: int) -> str:
        compiled = False
        for source in FAMILIES[self.faults[number].family][1] + ACROSS:
            program = self.programs[source]
            compiled = compiled or number in program.compiled
            tests, seconds = program.tests_of(number)
            chosen = "*" if len(tests) > 500 else ":".join(tests)
            if tests and not self.passes(program.path, seconds, chosen, ATTIKOS_FAULT=str(number)):
                return f"killed by {source}"
        return "survived" if compiled else "not compiled"

    def verdict_alone(self, mutant: Mutant) -> str:
        overlay = self.folder / "overlay"
        changed = overlay / "attikos" / mutant.header
        changed.parent.mkdir(parents=True, exist_ok=True)
        changed.write_text(mutant.text(), encoding="utf-8")
        differs = False
        try:
            for source in FAMILIES[mutant.family][1] + ACROSS:
                before = self.baseline(source)
                built = self.object_of(source, "mutant", f"-I{overlay}")
                if built is None:
                    return "stillborn"
                if built.read_bytes() == before:
                    continue
                differs = True
                if not self.passes(self.link(built), self.seconds[source]):
                    return f"killed by {source}"
        finally:
            changed.unlink()
        return "survived" if differs else "not compiled"


def argued() -> dict[str, str]:
    """Survivors with the argument why no test can kill them, a line each: `key # argument`."""
    if not ARGUED.exists():
        return {}
    lines = [line for line in ARGUED.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    return {key.strip(): why.strip() for key, _, why in (line.partition(" # ") for line in lines)}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--sample", type=int, default=200)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--family", choices=FAMILIES, action="append")
    parser.add_argument("--at", action="append", help="FILE:LINE: all faults there")
    parser.add_argument("--list", action="store_true", help="the sample, nothing compiled")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args(arguments)
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(2**31)
    everything = [m for family in given.family or FAMILIES for m in mutants_of(family)]
    if given.at:
        sample = [m for m in everything if f"{m.header}:{m.line}" in given.at]
    else:
        sample = random.Random(seed).sample(everything, min(given.sample, len(everything)))
    print(f"{len(sample)} of {len(everything)} faults, seed {seed}", flush=True)
    if given.list:
        print(*sample, sep="\n")
        return 0
    builder = Builder(given.build.resolve(), sample, given.jobs)
    print(f"{len(builder.alone)} faults cannot be behind a switch", flush=True)
    known = argued()
    counts = {"killed": 0, "survived": 0, "argued": 0, "stillborn": 0, "not compiled": 0}
    survivors = []
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        for number, (mutant, verdict) in enumerate(zip(sample, pool.map(builder.known_verdict, range(len(sample)))), 1):
            if verdict == "survived" and mutant.key() in known:
                verdict = "argued"
            counts[verdict.split(" by ")[0]] += 1
            if verdict == "survived":
                survivors.append(mutant)
            print(f"{number:4d} {verdict:12s} {mutant}", flush=True)
    alive = counts["killed"] + counts["survived"]
    score = counts["killed"] / alive if alive else 1.0
    print("\nsurvivors:", *survivors, sep="\n  ")
    print(f"score {score:.3f}:", ", ".join(f"{count} {what}" for what, count in counts.items()), f"(seed {seed})")
    return 0 if score >= 0.9 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
