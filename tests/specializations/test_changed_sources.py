# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Which of the companion's sources cmake/changed_sources.py says a change touches, in a repository made for it.

  test_changed_sources.py PATH/OF/changed_sources.py
"""

import pathlib
import subprocess
import sys
import tempfile

FILES = {
    "include/attikos/abi/gemm.hpp": "#include <attikos/config.hpp>\n#include <attikos/abi/dtype.hpp>\n",
    "include/attikos/abi/dtype.hpp": "#include <cstdint>\n",
    "include/attikos/core/error.hpp": "",
    "cmake/config.hpp.in": "",
    "cmake/check_ptxas_log.cmake": "",
    "cuda_specializations/common/version.cu": "#include <attikos/config.hpp>\n",
    "cuda_specializations/common/check.cuh": "",
    "cuda_specializations/common/shared.cu": '#include "check.cuh"\n',
    "cuda_specializations/gemm/shapes.cuh": '#include "../common/check.cuh"\n#include "store.cuh"\n',
    "cuda_specializations/gemm/store.cuh": "#  include <attikos/abi/dtype.hpp>\n",
    "cuda_specializations/gemm/gemm_a.cu": '#include <attikos/abi/gemm.hpp>\n#include "shapes.cuh"\n',
    "cuda_specializations/gemm/gemm_a_part.cu": '#include "shapes.cuh"\n',
    "cuda_specializations/mlp/mlp.cu": '#include "../gemm/store.cuh"\n',
    "README.md": "",
}


def main(script):
    with tempfile.TemporaryDirectory() as directory:
        root = pathlib.Path(directory)

        def git(*command):
            subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@example.invalid", "-C", root, *command],
                           check=True, capture_output=True)  # fmt: skip

        def touched(*options):
            done = subprocess.run([sys.executable, script, "HEAD", "--root", root, *options], check=True,
                                  capture_output=True, text=True)  # fmt: skip
            return done.stdout.strip()

        git("init", "-q")
        for name, text in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        git("add", ".")
        git("commit", "-qm", "base")
        assert touched() == "", touched()
        everything = "gemm_a;gemm_a_part;mlp"
        for name, expected in {
            "README.md": "",
            "include/attikos/core/error.hpp": "",
            "cuda_specializations/gemm/gemm_a_part.cu": "gemm_a_part",
            "cuda_specializations/gemm/shapes.cuh": "gemm_a;gemm_a_part",
            "cuda_specializations/common/check.cuh": "gemm_a;gemm_a_part",
            "cuda_specializations/gemm/store.cuh": everything,
            "include/attikos/abi/dtype.hpp": everything,
            "include/attikos/abi/gemm.hpp": "gemm_a",
            "cmake/config.hpp.in": "gemm_a",
            "cmake/check_ptxas_log.cmake": everything,
        }.items():
            before = (root / name).read_text()
            (root / name).write_text(before + "// changed\n")
            assert touched() == expected, (name, touched(), expected)
            git("add", ".")  # staged is as good
            assert touched() == expected, (name, touched(), expected)
            git("reset", "-q", "--hard")
        # Of a change that reaches too many, the files that touch fewest.
        for name in ("mlp/mlp.cu", "gemm/store.cuh", "gemm/gemm_a_part.cu"):
            with open(root / "cuda_specializations" / name, "a") as changed:
                changed.write("// changed\n")
        for count, expected in {"3": everything, "2": "gemm_a_part;mlp", "1": "gemm_a_part", "0": ""}.items():
            assert touched("--at-most", count) == expected, (count, touched("--at-most", count))
        git("reset", "-q", "--hard")
        (root / "cuda_specializations/mlp/new.cu").write_text('#include "new.cuh"\n')
        assert touched() == "new", touched()
        # Against an older revision, what was committed since counts.
        git("add", ".")
        git("commit", "-qm", "new")
        done = subprocess.run([sys.executable, script, "HEAD~1", "--root", root], check=True, capture_output=True,
                              text=True)  # fmt: skip
        assert done.stdout.strip() == "new", done.stdout


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]).resolve())
