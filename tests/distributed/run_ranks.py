# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Starts a test program over NCCL once for each rank, without MPI: run_ranks.py -n RANKS PROGRAM [ARGUMENT...]

Each process is told its rank and where rank 0 leaves NCCL's identification (launch_nccl.cpp). If one fails, or the
time is over, the others are ended.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", type=int, required=True, help="number of ranks, a GPU each")
    parser.add_argument("--seconds", type=float, default=600, help="that they may take")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ranks = [subprocess.Popen(arguments.command, env={
            **os.environ, "ATTIKOS_RANK": str(rank), "ATTIKOS_RANKS": str(arguments.n),
            "ATTIKOS_NCCL_ID": os.path.join(folder, "id")}) for rank in range(arguments.n)]
        last = time.monotonic() + arguments.seconds
        codes = [None] * arguments.n
        while None in codes and not any(codes) and time.monotonic() < last:
            time.sleep(0.05)
            codes = [process.poll() for process in ranks]
        if any(codes):  # others may fail by themselves, and say why
            time.sleep(5)
        codes = [process.poll() for process in ranks]
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.wait()
    for rank, code in enumerate(codes):
        if code != 0:
            print(f"rank {rank} of {arguments.n}", "did not end" if code is None else f"ended with {code}", flush=True)
    return 0 if codes == [0] * arguments.n else 1


if __name__ == "__main__":
    sys.exit(main())
