# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Reads Spack's recipe without Spack: it runs against stand-ins for the words of spack.package, and what it says of
Attikos is compared with CMake's files.

  check_spack.py ROOT
"""

import pathlib
import re
import sys
import types


class Recipe:
    """What a recipe said while it was read."""

    def __init__(self):
        self.variants, self.dependencies, self.conflicts, self.defined = set(), [], [], {}

    def words(self):
        class CMakePackage:
            def define(self, name, value):
                return name, value

            def define_from_variant(self, name, variant):
                return name, f"variant {variant}"

        class CudaPackage:
            cuda_arch_values = ("80", "90", "90a")

        return {
            "CMakePackage": CMakePackage,
            "CudaPackage": CudaPackage,
            "license": lambda text: None,
            "version": lambda name, **where: None,
            "variant": lambda name, *, default, description: self.variants.add(name),
            "depends_on": lambda spec, *, when="", type="": self.dependencies.append((spec, when)),
            "conflicts": lambda spec, *, when="", msg: self.conflicts.append((spec, when)),
        }


def main(root: pathlib.Path) -> None:
    recipe = Recipe()
    module = types.ModuleType("spack.package")
    module.__dict__.update(recipe.words())
    sys.modules["spack"], sys.modules["spack.package"] = types.ModuleType("spack"), module
    names = {}
    exec((root / "cmake/spack/packages/attikos/package.py").read_text(encoding="utf-8"), names)  # noqa: S102
    arguments = dict(names["Attikos"]().cmake_args())

    problems = []
    cmake = "\n".join(path.read_text(encoding="utf-8") for path in (root / "cmake").glob("*.cmake"))
    options = set(re.findall(r"^\s*(?:option|set)\((ATTIKOS_\w+)", cmake, re.M))
    problems += [f"{name} is no option of the build" for name in arguments if name not in options]
    known = recipe.variants | {"cuda"}
    for value in arguments.values():
        if isinstance(value, str) and value.startswith("variant ") and value[8:] not in known:
            problems.append(f"{value} is not declared")
    for spec, when in recipe.dependencies + recipe.conflicts:
        for name in re.findall(r"[+~]([\w-]+)", when):
            if name not in known:
                problems.append(f'when="{when}" of {spec}: there is no variant {name}')
    least = {name: version for name, version in (re.match(r"([\w-]+)@([\d.]+):", spec).groups() for spec, when in
             recipe.dependencies if re.match(r"([\w-]+)@([\d.]+):", spec) and not when)}
    text = (root / "CMakeLists.txt").read_text(encoding="utf-8")
    for name, found in {
        "cmake": re.search(r"cmake_minimum_required\(VERSION ([\d.]+)", text)[1],
        "kokkos": re.search(r"ATTIKOS_KOKKOS_MINIMUM ([\d.]+)", cmake)[1],
    }.items():
        if not found.startswith(least.get(name, "?")):
            problems.append(f"the recipe wants {name} {least.get(name)}, the build {found}")
    for problem in problems:
        print("cmake/spack:", problem, file=sys.stderr)
    if problems:
        raise SystemExit(1)
    print(f"{len(arguments)} options, {len(recipe.variants)} variants, {len(recipe.dependencies)} dependencies fit the build")


main(pathlib.Path(sys.argv[1]))
