# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Kills one rank of a program at a random moment, again and again: all of them have to end, and say that they failed.

  lost_rank.py RANKS SECONDS COMMAND...

COMMAND starts RANKS processes of its last word and has to end within SECONDS of the kill. ATTIKOS_TEST_LOST_RANKS says
how often, ATTIKOS_TEST_SEED by which numbers, which are printed. Processes are found in /proc.
"""

import os
import pathlib
import random
import signal
import subprocess
import sys
import time


def descendants(root: int) -> set[int]:
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue  # it has ended
    found, grown = {root}, True
    while grown:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        found |= more
        grown = bool(more)
    return found


def ranks_of(run: subprocess.Popen, program: str) -> list[int]:
    ranks = []
    for pid in descendants(run.pid):
        try:
            if pathlib.Path(f"/proc/{pid}/exe").resolve() == pathlib.Path(program).resolve():
                ranks.append(pid)
        except OSError:
            continue
    return sorted(ranks)


def lose_one(command: list[str], count: int, seconds: float, draw: random.Random) -> str:
    """What came of it; "hangs" is what must not be."""
    run = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        while len(ranks := ranks_of(run, command[-1])) < count and run.poll() is None:
            time.sleep(0.01)
        time.sleep(draw.uniform(0, 2))
        victim = draw.choice(ranks) if ranks else 0
        if run.poll() is not None or victim not in ranks_of(run, command[-1]):
            return "had ended"
        os.kill(victim, signal.SIGKILL)
        return "failed" if run.wait(seconds) != 0 else "went well"
    except subprocess.TimeoutExpired:
        return "hangs"
    finally:
        try:
            os.killpg(run.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        run.wait()


def main(count: int, seconds: float, command: list[str]) -> int:
    times = int(os.environ.get("ATTIKOS_TEST_LOST_RANKS", "3"))
    seed = int(os.environ.get("ATTIKOS_TEST_SEED", random.SystemRandom().randrange(2**32)))
    print(f"{times} times, seed {seed}", flush=True)
    draw = random.Random(seed)
    results: dict[str, int] = {}
    while sum(results.get(x, 0) for x in ("failed", "hangs", "went well")) < times:
        result = lose_one(command, count, seconds, draw)
        results[result] = results.get(result, 0) + 1
        if results.get("had ended", 0) > 10 * times + 20:
            break
    print(", ".join(f"{name}: {n}" for name, n in sorted(results.items())))
    return 0 if results.get("failed") == times else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
