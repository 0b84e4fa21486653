# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All suites in one process, where what one imports or changes would reach the next: in the order of their names
backwards, or in one drawn by a seed.

  together.py [SEED]
"""

import pathlib
import random
import sys
import unittest


def main(arguments: list[str]) -> int:
    names = sorted(path.stem for path in pathlib.Path(__file__).parent.glob("test_*.py"))
    names.reverse()
    if arguments:
        random.Random(int(arguments[0])).shuffle(names)
    print("order:", *names, flush=True)
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromName(name) for name in names)
    return 0 if unittest.TextTestRunner(warnings="error").run(suite).wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
