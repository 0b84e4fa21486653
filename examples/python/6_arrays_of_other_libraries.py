# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Arrays of libraries that know nothing of this one: by NumPy's array interface and DLPack on a host, by the CUDA array
interface on a GPU (CuPy, Numba). Nothing is copied; what a library cannot make comes back as attikos.Array.

  python 6_arrays_of_other_libraries.py     needs NumPy; CuPy and Numba and a GPU for their parts, which else say so
"""

import importlib.util

import numpy as np

import attikos

Q, K, V = np.random.default_rng(5).standard_normal((3, 1, 4, 50, 32), dtype=np.float32)


def exact():
    """Causal attention in float64."""
    scores = Q.astype(np.float64) @ K.astype(np.float64).swapaxes(-1, -2) / np.sqrt(32)
    weights = np.exp(np.where(np.tri(50, dtype=bool), scores, -np.inf))
    return weights / weights.sum(-1, keepdims=True) @ V


def compare(name, put, take):
    """Attention of arrays that `put` makes of NumPy's, a softmax into one of them, both brought back by `take`."""
    q, k, v, square = (put(x.copy()) for x in (Q, K, V, np.zeros((50, 50), np.float32)))
    out = attikos.attention(q, k, v, causal=True)
    attikos.softmax(put(Q[0, 0] @ K[0, 0].T), out=square)  # written where the caller's array lies
    error = abs(take(out) - exact()).max()
    print(f"{name}: {type(q).__name__} gives {type(out).__name__}, error {error:.0e}")
    assert error < 1e-5 and abs(take(square).sum(-1) - 1).max() < 1e-5


class Only:
    """An array of which a caller sees nothing but what is named here."""

    def __init__(self, array, *names):
        self.__dict__.update({name: getattr(array, name) for name in names}, array=array)


def main():
    compare("NumPy", np.asarray, np.asarray)
    compare("array interface", lambda x: Only(x, "__array_interface__"), np.asarray)
    compare("DLPack", lambda x: Only(x, "__dlpack__", "__dlpack_device__"), np.from_dlpack)
    missing = {name: "not installed" for name in ("cupy", "numba") if importlib.util.find_spec(name) is None}
    missing = missing if attikos.has_cuda() else {"cupy": "no GPU", "numba": "no GPU"}
    if "cupy" not in missing:
        import cupy
        compare("cupy, by DLPack", cupy.asarray, cupy.asnumpy)
        hidden = lambda x: Only(cupy.asarray(x), "__cuda_array_interface__")  # noqa: E731
        compare("cupy, by the CUDA array interface", hidden, lambda x: cupy.asnumpy(cupy.asarray(x)))
    if "numba" not in missing:
        from numba import cuda
        compare("numba", cuda.to_device, lambda x: cuda.as_cuda_array(x).copy_to_host())
    print("\n".join(f"{name}: skipped, {reason}" for name, reason in missing.items()))


if __name__ == "__main__":
    main()
