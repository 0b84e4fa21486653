# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The record of the second level, .ci/nightly.json: of each stage's last good run the commit, date, seconds, counts.

  nightly.py record STAGE SECONDS COUNTS    writes an entry for the commit that is checked out
  nightly.py show                           prints how old the entries are
  nightly.py commit STAGE                   prints an entry's commit where this clone has it, else nothing
"""

import datetime
import json
import pathlib
import subprocess
import sys

FILE = pathlib.Path(__file__).with_name("nightly.json")
FORMAT = "%Y-%m-%d"


def git(*arguments):
    run = subprocess.run(["git", *arguments], cwd=FILE.parent, capture_output=True, text=True, check=False)
    return run.stdout.strip() if run.returncode == 0 else None


def entries():
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def record(stage, seconds, counts):
    if git("status", "--porcelain", "--untracked-files=no", "--", ":!nightly.json"):
        print(f"nightly.py: {stage} is not recorded: files differ from the commit", file=sys.stderr)
        return
    data = entries()
    data[stage] = {"commit": git("rev-parse", "HEAD"), "date": datetime.date.today().strftime(FORMAT),
                   "seconds": int(seconds), "counts": counts}  # fmt: skip
    FILE.write_text(json.dumps(dict(sorted(data.items())), indent=1) + "\n", encoding="utf-8")


def show():
    data = entries()
    if not data:
        print("nightly stages: none has a recorded run")
    for stage, entry in data.items():
        days = (datetime.date.today() - datetime.datetime.strptime(entry["date"], FORMAT).date()).days
        behind = git("rev-list", "--count", f"{entry['commit']}..HEAD")
        commits = f"{behind} commits" if behind is not None else "a commit that is not here"
        print(f"{stage:18s} {days:3d} days and {commits} ago, {entry['seconds']} s: {entry['counts']}")


def main(arguments):
    if arguments[0] == "record":
        record(*arguments[1:])
    elif arguments[0] == "show":
        show()
    else:
        commit = entries().get(arguments[1], {}).get("commit", "")
        if commit and git("merge-base", "--is-ancestor", commit, "HEAD") is not None:
            print(commit)


if __name__ == "__main__":
    main(sys.argv[1:])
