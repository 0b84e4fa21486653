# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""That .ci/run keeps its time: runs of it with stages that sleep, and with seconds for its thousands of seconds.

  first_level.py PATH/OF/.ci
"""

import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

STAGES = "tools format docs test cuda asan tidy wheel distributed tsan".split()


def run(folder: pathlib.Path, planned: int, most: int, shares: dict[str, int], **stages: str) -> tuple[int, str, float]:
    """The status, output and seconds of a first level with these stages; others do nothing."""
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)
        shutil.copytree(folder, root / ".ci")
        script = (folder / "run").read_text(encoding="utf-8")
        bodies = "".join(f"stage_{name}() {{ {stages.get(name, ':')}; }}\n" for name in STAGES)
        script, counts = re.subn(r"(?m)^times=\(\)$", lambda _: bodies + "differs() { false; }\ntimes=()", script)
        assert counts == 1
        script, counts = re.subn(r"planned_seconds=\d+ most_seconds=\d+", f"planned_seconds={planned} most_seconds={most}", script)
        assert counts == 1
        for name, share in shares.items():
            script, counts = re.subn(rf"\[{name}\]=\d+ ?", f"[{name}]={share} ", script, count=1)
            assert counts == 1, name
        (root / ".ci" / "run").write_text(script, encoding="utf-8")
        subprocess.run(["git", "init", "-q", root], check=True)
        begin = time.monotonic()
        done = subprocess.run(["bash", ".ci/run"], cwd=root, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr, time.monotonic() - begin


def what_fits(folder):
    status, text, _ = run(folder, 6, 20, {"cuda": 1000, "asan": 9000, "tidy": 0}, test="sleep 2", tidy="echo tidied")
    assert status == 0, text
    assert "\n=== cuda\n" in text and "\n=== asan\n" not in text and "\ntidied\n" in text, text
    assert "all stages passed, left to the second level: asan" in text, text


def what_takes_longer(folder):
    status, text, seconds = run(folder, 4, 5, {}, test="sleep 1", cuda="echo begun; sleep 60; echo ended")
    assert status == 0 and seconds < 20, text
    assert "\nbegun\n" in text and "\nended\n" not in text, text
    assert re.search(r"cuda +\d+ s, stopped", text), text
    assert "left to the second level: the rest of cuda asan tidy wheel distributed tsan" in text, text


def what_fails(folder):
    status, text, _ = run(folder, 90, 90, {}, cuda="false; echo went on")
    assert status != 0 and "went on" not in text and "all stages passed" not in text, text


def what_has_failed_before(folder):
    failed = "echo '1/2 Test #1: a ...***Failed 0.1 sec'; sleep 60"
    status, text, seconds = run(folder, 4, 4, {}, asan=failed)
    assert status != 0 and seconds < 20 and "all stages passed" not in text, text


def main(folder):
    cases = (what_fits, what_takes_longer, what_fails, what_has_failed_before)
    with concurrent.futures.ThreadPoolExecutor(len(cases)) as pool:
        for future in [pool.submit(case, pathlib.Path(folder)) for case in cases]:
            future.result()


if __name__ == "__main__":
    main(*sys.argv[1:])
