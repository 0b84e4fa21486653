# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs llama as a user would: a run that is killed goes on bit for bit, and what is refused.

    python3 test_program.py <executable> [--sizes "OPTION..."] [unittest arguments]
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
SIZES = "--layers 2 --hidden 32 --heads 4 --kv-heads 2 --intermediate 48 --batch 2 --length 16 --learning-rate 0.01"
if sys.argv[1:2] == ["--sizes"]:
    SIZES = sys.argv.pop(2)
    sys.argv.pop(1)
ENVIRONMENT = {"OMP_PROC_BIND": "false", **os.environ}


def run(*arguments):
    return subprocess.run(
        [PROGRAM, *SIZES.split(), *arguments], capture_output=True, text=True, timeout=200, env=ENVIRONMENT
    )


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def succeeds(self, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout

    def refused(self, status, text, *arguments):
        result = run(*arguments)
        self.assertEqual(result.returncode, status, result.stdout)
        self.assertIn(text, result.stderr)

    def check_killed(self, kind):
        def options(name):
            return [
                "--type", kind, "--steps", "10", "--warmup", "1", "--report", "1", "--checkpoint", self.folder / name,
                "--checkpoint-every", "4", "--losses", self.folder / (name + ".csv"),
            ]  # fmt: skip

        self.succeeds(*options("whole"))
        with subprocess.Popen(
            [PROGRAM, *SIZES.split(), *options("killed")], stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
        ) as process:
            for line in process.stdout:
                if line.startswith("step      5 "):
                    process.send_signal(signal.SIGKILL)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        killed = self.folder / "killed"
        self.assertNotEqual(killed.read_bytes(), (self.folder / "whole").read_bytes())
        self.assertFalse((self.folder / "killed.csv").exists())
        (self.folder / "killed.tmp").write_bytes(b"what a run that was killed at the wrong time leaves")
        output = self.succeeds(*options("killed"), "--resume", killed)
        # The killed run may have come to its eighth step before the signal.
        self.assertRegex(output, "resumed behind step [48]\n")
        self.assertEqual(killed.read_bytes(), (self.folder / "whole").read_bytes())
        self.assertEqual((self.folder / "killed.csv").read_text(), (self.folder / "whole.csv").read_text())
        self.assertFalse((self.folder / "killed.tmp").exists())
        losses = [float(line.split(",")[1]) for line in (self.folder / "whole.csv").read_text().splitlines()[1:]]
        self.assertEqual(len(losses), 10)
        self.assertLess(losses[-1], losses[0] - 0.2)  # the text and its order change with the documentation

    def test_killed_float32(self):
        self.check_killed("float32")

    def test_killed_bfloat16(self):
        self.check_killed("bfloat16")

    def test_checkpoint(self):
        path = self.folder / "checkpoint"
        self.succeeds("--steps", "1", "--checkpoint", path)
        data = path.read_bytes()
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        self.assertEqual(header["model.layers.1.self_attn.k_proj.weight"]["shape"], [16, 32])
        self.assertEqual(header["training.state"]["shape"], [11])
        self.assertEqual((8 + size) % 64, 0)
        self.refused(1, "is of a run with seed 1, not 2", "--resume", path, "--seed", "2")
        self.refused(1, "is of a run with layers 2, not 3", "--resume", path, "--layers", "3")
        self.refused(1, "more than there are to make", "--resume", path, "--steps", "0")
        self.refused(1, "optimizer.master is missing", "--resume", path, "--type", "bfloat16", "--steps", "1")
        path.write_bytes(data[:-1])
        self.refused(1, "truncated", "--resume", path)
        self.refused(1, "cannot be written", "--steps", "1", "--checkpoint", self.folder / "no" / "such")

    def test_generation(self):
        options = ["--steps", "2", "--generate", "6", "--generate-batch", "3", "--prompt", "Views and mdspans"]
        for kind in ("float32", "bfloat16"):
            output = self.succeeds(*options, "--type", kind)
            self.assertIn("generated 6 tokens for each of 3 sequences", output)
            self.assertIn("[CLS] views and mdspans |", output)

    def test_usage(self):
        self.refused(2, '--steps needs a number from 0 to 1048576, not "x"', "--steps", "x")
        self.refused(2, "--heads is a multiple of --kv-heads", "--kv-heads", "3")
        self.refused(2, "unknown argument", "--what")
        self.refused(2, "--checkpoint-every needs --checkpoint", "--checkpoint-every", "3")
        self.assertIn("Usage: llama", run("--help").stdout)


if __name__ == "__main__":
    unittest.main()
