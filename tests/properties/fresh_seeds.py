# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Properties of inputs drawn anew, beside those of the fixed seed, until the time is up.

  fresh_seeds.py PROGRAM SECONDS INPUTS [SEED]

Runs PROGRAM with INPUTS inputs for each property, again and again with seeds that are printed. SEED replays one.
"""

import os
import random
import subprocess
import sys
import time


def main(program: str, seconds: str, inputs: str, *seed: str) -> int:
    end, rounds = time.monotonic() + float(seconds), 0
    while rounds == 0 or (not seed and time.monotonic() < end):
        number = int(seed[0]) if seed else random.SystemRandom().randrange(2**31)
        print(f"round {rounds}, seed {number}", flush=True)
        environment = dict(os.environ, RC_PARAMS=f"seed={number} max_success={inputs}", OMP_PROC_BIND="false")
        environment.pop("ATTIKOS_TEST_RATIOS", None)  # the record is that of fixed inputs
        if subprocess.run([program, "--gtest_brief=1"], env=environment, check=False).returncode != 0:
            print(f"again: {sys.argv[0]} {program} {seconds} {inputs} {number}")
            return 1
        rounds += 1
    print(f"counts: {rounds} rounds of {inputs} inputs for each property")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
