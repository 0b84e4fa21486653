# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""attikos-measure writes a machine file that attikos-plan reads, and runs that compare.py sets beside its plans.

  check_measure.py ROOT PLAN MEASURE MPIEXEC…

How far plans are off is printed, not judged: on a machine that does other things at the time it says little.
"""

import json
import pathlib
import subprocess
import sys
import tempfile


def main(root, plan, measure, *launch):
    with tempfile.TemporaryDirectory() as folder:
        machine, runs = pathlib.Path(folder, "machine.json"), pathlib.Path(folder, "runs.json")
        small = ["--heads", "4", "--kv-heads", "2", "--head-dim", "32", "--lengths", "256,301"]
        subprocess.run([*launch, measure, "--out", machine, "--runs", runs, "--name", "here", *small], check=True)
        file = json.loads(machine.read_text(encoding="utf-8"))
        assert file["name"] == "here" and file["node"]["ranks"] == 2, file
        measured = json.loads(runs.read_text(encoding="utf-8"))
        assert len(measured) == 2 * 2 * 3 and all(run["seconds"] > 0 and run["ranks"] == 2 for run in measured), measured
        script = pathlib.Path(root, "perf/plan/compare.py")
        done = subprocess.run([sys.executable, script, plan, machine, runs], check=True, capture_output=True, text=True)
        print(done.stdout)
        assert len(done.stdout.splitlines()) == 2 + len(measured), done.stdout
        wrong = subprocess.run([*launch, measure, "--out"], check=False, capture_output=True, text=True)
        assert wrong.returncode != 0 and "--out and a file are needed" in wrong.stderr, wrong
    print("machine file and runs are as expected")


if __name__ == "__main__":
    main(*sys.argv[1:])
