# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Seconds of compiled calls in JAX on the CPU: by the handlers of attikos.integrations.jax, by a callback into Python on
the same kernels, and by JAX's own formulas. Numbers are the least of several rounds in which the three take turns, in
microseconds.

  python3 perf/jax_calls.py [--rounds 20]
"""

import argparse
import time

import attikos
import jax
import jax.numpy as jnp
import numpy as np
from attikos.integrations import jax as attikos_jax


def by_callback(function):
    """The same call by jax.pure_callback, on NumPy's view of XLA's buffers."""

    def call(*arrays):
        shape = jax.eval_shape(lambda *a: getattr(attikos_jax, function)(*a), *arrays)
        return jax.pure_callback(lambda *a: getattr(attikos, function)(*map(np.asarray, a)), shape, *arrays)

    return call


def attention(q, k, v):
    return jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) * q.shape[-1] ** -0.5) @ v


def rms_norm(x, weight):
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight


OWN = {"attention": attention, "gemm": jnp.matmul, "rms_norm": rms_norm, "softmax": jax.nn.softmax}


def normal(*shape):
    return jax.random.normal(jax.random.key(len(shape)), shape, jnp.float32)


def cases():
    for rows in (8, 4096):
        x = normal(rows, 1024)
        yield f"softmax [{rows}, 1024]", "softmax", (x,)
        yield f"rms_norm [{rows}, 1024]", "rms_norm", (x, normal(1024))
    for n in (64, 1024):
        yield f"gemm [{n}, {n}]", "gemm", (normal(n, n), normal(n, n))
    for length in (64, 1024):
        yield f"attention [1, 8, {length}, 64]", "attention", (normal(1, 8, length, 64),) * 3


def seconds(program, arrays):
    start = time.perf_counter()
    jax.block_until_ready(program(*arrays))
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    print(f"{'':32}{'handlers':>12}{'callback':>12}{'JAX':>12}")
    for label, name, arrays in cases():
        ways = (getattr(attikos_jax, name), by_callback(name), OWN[name])
        programs = [jax.jit(way).lower(*arrays).compile() for way in ways]
        results = [np.asarray(program(*arrays)) for program in programs]
        for result in results[:2]:
            np.testing.assert_allclose(result, results[2], rtol=1e-3, atol=1e-3)
        times = [[seconds(program, arrays) for program in programs] for _ in range(rounds)]
        best = [f"{1e6 * min(column):12.1f}" for column in zip(*times)]
        print(f"{label:32}{''.join(best)}", flush=True)


if __name__ == "__main__":
    main()
