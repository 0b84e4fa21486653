# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""All suites in one process, where what one imports or changes would reach the next: in an order drawn by a seed,
which is printed: modules, classes of a module, tests of a class. The generators that all share, from which modules
draw their weights, begin each test in a state that follows from the seed and the test's name.

  together.py [SEED]
"""

import pathlib
import random
import sys
import unittest
import zlib

import numpy as np


def shuffled(suite: unittest.TestSuite, draw: random.Random) -> unittest.TestSuite:
    """In another order on every level; what belongs together stays so, and is set up once."""
    parts = [shuffled(part, draw) if isinstance(part, unittest.TestSuite) else part for part in suite]
    draw.shuffle(parts)
    return unittest.TestSuite(parts)


def seeded(seed: int) -> type[unittest.TextTestResult]:
    """A result that puts the shared generators into their state before each test."""

    class Result(unittest.TextTestResult):
        def startTest(self, test: unittest.TestCase) -> None:
            state = zlib.crc32(test.id().encode(), seed)
            np.random.seed(state)
            if "torch" in sys.modules:
                sys.modules["torch"].manual_seed(state)
            super().startTest(test)

    return Result


def main(arguments: list[str]) -> int:
    seed = int(arguments[0]) if arguments else random.SystemRandom().randrange(2**31)
    print("seed", seed, flush=True)
    names = sorted(path.stem for path in pathlib.Path(__file__).parent.glob("test_*.py"))
    draw = random.Random(seed)
    draw.shuffle(names)  # what is imported first may matter, too
    suite = unittest.TestSuite(unittest.defaultTestLoader.loadTestsFromName(name) for name in names)
    runner = unittest.TextTestRunner(warnings="error", resultclass=seeded(seed))
    passed = runner.run(shuffled(suite, draw)).wasSuccessful()
    if not passed:
        print("again: together.py", seed)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
