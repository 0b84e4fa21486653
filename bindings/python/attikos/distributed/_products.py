# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Products whose matrices are spread over the ranks of a group."""

from __future__ import annotations

from typing import Any, Callable

from .. import _autograd
from .._arguments import COMPUTE, choice, flag, text
from .._arrays import operand_of
from ..errors import ShapeMismatchError, UnsupportedDtypeError
from ..fused import GATES, fused_gated_mlp, fused_gated_mlp_backward, fused_gated_mlp_kept
from ..matmul import gemm
from ._agreement import TYPES, bits_of, read_alike, signature_of
from ._groups import Failure, MpiGroup, TorchGroup, exchange, group_of
from ._plan import places_of
from ._shards import Shards
from ._storage import add_up, storage_of, sum_of

# Rows from which products are computed at full speed.
_ROWS_OF_A_PRODUCT = 512


def column_parallel_gemm(
    a: Any, b: Any, shards: Shards, group: Any = None, *, trans_b: bool = False, compute: str = "ieee",
    kernel: str = "", check: bool = True,
) -> Any:  # fmt: skip
    """a * op(b) with the rows of a, and the columns of b and of the result, spread over the ranks of a group:
    all-gather, then product, in pieces. Every rank calls it.

    a [rows, k], the rows that `shards` (of one sequence) gives this rank; b [k, n] ([n, k] with trans_b), this rank's
    columns, any number of them -> [m, n] with all rows, in the order of positions. float64, float32, float16 or
    bfloat16, summed as gemm() sums. group, check: as for attention(); compute, kernel: as for gemm().

    Rows of a go round a ring, the next block behind this block's product, so that no rank ever has more than two blocks
    of it. Where PyTorch records, a and b have gradients, for which every rank has to ask: that of a is a
    row_parallel_gemm(), for that of b the rows travel once more.
    """
    name = "distributed.column_parallel_gemm"
    flag(name, "trans_b", trans_b)

    def run(call: _Call, a: Any, b: Any) -> Any:
        return call.all_rows(a, b, trans_b)

    def back(call: _Call, a: Any, b: Any, dout: Any) -> Any:
        return call.own_rows(dout, b, not trans_b), call.gradient_of_b(call.gathered(a), dout, trans_b)

    return _called(name, shards, group, {"a": (a, True), "b": (b, False)}, trans_b, compute, kernel, check, run, back)


def row_parallel_gemm(
    a: Any, b: Any, shards: Shards, group: Any = None, *, trans_b: bool = False, compute: str = "ieee",
    kernel: str = "", check: bool = True,
) -> Any:  # fmt: skip
    """a * op(b) with the columns of a and the rows of op(b) spread over the ranks of a group, and the rows of the
    result with them: product, then reduce-scatter, in pieces.

    a [m, k], all rows in the order of positions, this rank's columns, any number; b [k, n] ([n, k] with trans_b), the
    rows that go with them -> [rows, n], the rows that `shards` gives this rank. Everything else as for
    column_parallel_gemm().

    A rank computes the rows of each other rank in turn, its own last, and sends them on while it computes the next.
    Partial results are float32 (float64 for float64), summed in the order of ranks and rounded once: the same bits on
    every run.
    """
    name = "distributed.row_parallel_gemm"
    flag(name, "trans_b", trans_b)

    def run(call: _Call, a: Any, b: Any) -> Any:
        return call.own_rows(a, b, trans_b)

    def back(call: _Call, a: Any, b: Any, dout: Any) -> Any:
        whole = call.gathered(dout)
        return call.product(whole, b, False, not trans_b), call.gradient_of_b(a, whole, trans_b)

    return _called(name, shards, group, {"a": (a, False), "b": (b, False)}, trans_b, compute, kernel, check, run, back)


def gated_mlp(
    x: Any, gate_weight: Any, up_weight: Any, down_weight: Any, shards: Shards, group: Any = None, *,
    activation: str = "silu", check: bool = True,
) -> Any:  # fmt: skip
    """(activation(x * gate_weight^T) * (x * up_weight^T)) * down_weight^T with the rows of x and of the result, and the
    intermediate features, spread over the ranks of a group: the feed-forward block of a transformer.

    x [rows, hidden], the rows that `shards` gives this rank; gate_weight and up_weight [intermediate, hidden], this
    rank's part of the features, any number; down_weight [hidden_out, intermediate], the columns that go with them ->
    [rows, hidden_out]. activation: as for fused_gated_mlp(). Everything else as for row_parallel_gemm().

    Rows of x go round a ring; what a rank's features make of a block goes to the rank whose rows they are while the
    next block is worked on, the last while half of this rank's own rows are. Gradients gather x and that of the result
    first, and exchange those of x last.
    """
    name = "distributed.gated_mlp"
    choice(name, "activation", activation, GATES)

    def run(call: _Call, x: Any, gate: Any, up: Any, down: Any) -> Any:
        def work(rows: Any) -> Any:
            return call.product(fused_gated_mlp(rows, gate, up, activation), down, False, True, wide=True)

        return call.round_and_back(x, work, down.shape[0])

    def back(call: _Call, x: Any, gate: Any, up: Any, down: Any, dout: Any) -> Any:
        whole, of_out = call.gathered(x), call.gathered(dout)
        hidden, *projections = fused_gated_mlp_kept(whole, gate, up, activation)
        d_down = call.gradient_of_b(hidden, of_out, True)
        d_hidden = call.product(of_out, down, False, False)
        dx, d_gate, d_up = fused_gated_mlp_backward(whole, gate, up, d_hidden, activation, *projections)
        return call.summed(dx), d_gate, d_up, d_down

    arrays = {
        "x": (x, True), "gate_weight": (gate_weight, False), "up_weight": (up_weight, False),
        "down_weight": (down_weight, False),
    }  # fmt: skip
    return _called(name, shards, group, arrays, True, "ieee", "", check, run, back)


class _Call:
    """What a call of any of them has, and how rows travel."""

    def __init__(
        self, operation: str, storage: Any, shards: Shards, compute: str, kernel: str, group: Any = None
    ) -> None:
        self.operation, self.group, self.storage, self.shards = operation, group, storage, shards
        self.compute, self.kernel = compute, kernel

    def on(self, group: TorchGroup | MpiGroup, kernel: str) -> _Call:
        """The call of this group, of products by this kernel."""
        return _Call(self.operation, self.storage, self.shards, self.compute, kernel, group)

    def product(self, a: Any, b: Any, trans_a: bool, trans_b: bool, wide: bool = False) -> Any:
        """A product of this rank; wide: as partial results are."""
        more = {"out_dtype": self.storage.wide(a)} if wide and self.storage.size_of(a) < 4 else {}
        return gemm(a, b, trans_a=trans_a, trans_b=trans_b, compute=self.compute, kernel=self.kernel, **more)

    def gradient_of_b(self, a: Any, dout: Any, trans_b: bool) -> Any:
        """That of a product of these rows of a."""
        return self.product(dout, a, True, False) if trans_b else self.product(a, dout, True, False)

    def _of(self, rank: int, x: Any) -> Any:
        """The rows of a rank among all of them."""
        return places_of(self.shards, rank).of(self.storage, x, 0)

    def _ring(self, x: Any, work: Callable[[int, Any], None]) -> None:
        """work(owner, rows) for the rows of all ranks, one's own first; the next are on their way meanwhile."""
        group, storage, columns = self.group, self.storage, x.shape[1]
        to, source = (group.rank + 1) % group.size, (group.rank - 1) % group.size
        here = storage.dense(x)
        for step in range(group.size):
            owner, begun, ahead = (group.rank - step) % group.size, None, here
            if step + 1 < group.size:
                ahead = storage.empty((self.shards.rows((owner - 1) % group.size), columns), x)
                begun = group.begin(self.operation, [(to, here)], [(source, ahead)])
            work(owner, here)
            if begun is not None:
                group.finish(self.operation, begun)
            here = ahead

    def gathered(self, x: Any) -> Any:
        """All rows, in the order of positions."""
        whole = self.storage.empty((self.shards.total, x.shape[1]), x)
        self._ring(x, lambda owner, rows: places_of(self.shards, owner).put(self.storage, whole, rows, 0))
        return whole

    def all_rows(self, a: Any, b: Any, trans_b: bool) -> Any:
        """Products of the rows of all ranks."""
        failure = Failure()
        out = self.storage.empty((self.shards.total, b.shape[0 if trans_b else 1]), a)

        def work(owner: int, rows: Any) -> None:
            done = failure.unless_failed(lambda: self.product(rows, b, False, trans_b))
            if done is not None:
                places_of(self.shards, owner).put(self.storage, out, done, 0)

        self._ring(a, work)
        failure.throw()
        return out

    def _sent(self, owner: int, source: int, partial: Any, like: Any, columns: int) -> tuple[Any, Any]:
        """Begins to send what is for the rows of `owner`, and to receive this rank's from `source`."""
        storage, shards, wide = self.storage, self.shards, self.storage.wide(like)
        if partial is None:  # of a rank that failed: others wait for it
            partial = storage.full((shards.rows(owner), columns), 0.0, like, wide)
        coming = storage.empty((shards.rows(self.group.rank), columns), like, wide)
        begun = self.group.begin(self.operation, [(owner, storage.dense(partial))], [(source, coming)])
        return coming, begun

    def own_rows(self, a: Any, b: Any, trans_b: bool) -> Any:
        """This rank's rows of the sum of all ranks' products; those of others first."""
        n, rank, failure = self.group.size, self.group.rank, Failure()
        columns, parts, under_way = b.shape[0 if trans_b else 1], [None] * n, []  # type: int, list[Any], list[Any]
        for step in range(1, n + 1):
            target = (rank + step) % n
            partial = failure.unless_failed(lambda: self.product(self._of(target, a), b, False, trans_b, wide=True))
            if target == rank:
                parts[rank] = partial
            else:
                source = (rank - step) % n
                parts[source], begun = self._sent(target, source, partial, a, columns)
                under_way.append(begun)
        for begun in under_way:
            self.group.finish(self.operation, begun)
        failure.throw()
        return sum_of(self.storage, parts, a)

    def round_and_back(self, x: Any, work: Callable[[Any], Any], columns: int) -> Any:
        """work(rows) for the rows of all ranks; what it gives goes to the rank that they are of, which sums.

        A rank begins with its own rows and, where they are enough for two efficient products, keeps half of them for
        the end: behind the first half the first block is on its way here, behind the second the last result is on its
        way home."""
        n, rank, failure = self.group.size, self.group.rank, Failure()
        parts, under_way = [None] * n, []  # type: list[Any], list[Any]
        runs, own = self._halves(x), []  # type: list[slice], list[Any]

        def step(owner: int, rows: Any) -> None:
            if owner == rank:
                own.append(failure.unless_failed(work, rows[runs[0]]))
                return
            source = (2 * rank - owner) % n  # as many places behind this rank as the owner is in front of it
            parts[source], begun = self._sent(owner, source, failure.unless_failed(work, rows), x, columns)
            under_way.append(begun)

        self._ring(x, step)
        own += [failure.unless_failed(work, x[run]) for run in runs[1:]]
        for begun in under_way:
            self.group.finish(self.operation, begun)
        failure.throw()
        out = self.storage.empty((x.shape[0], columns), x)
        for run, mine in zip(runs, own):
            add_up(self.storage, [mine if r == rank else part[run] for r, part in enumerate(parts)], out[run])
        return out

    def _halves(self, x: Any) -> list[slice]:
        rows = x.shape[0]
        if self.group.size == 1 or rows < 2 * _ROWS_OF_A_PRODUCT:
            return [slice(0, rows)]
        half = rows // 2 // _ROWS_OF_A_PRODUCT * _ROWS_OF_A_PRODUCT
        return [slice(0, half), slice(half, rows)]

    def summed(self, x: Any) -> Any:
        """This rank's rows of the sum of what ranks have for all rows."""
        n, rank, wide = self.group.size, self.group.rank, self.storage.wide(x)
        parts = [self.storage.dense(self.storage.to(self._of(r, x), wide)) for r in range(n)]
        found = [self.storage.empty((self.shards.rows(rank), x.shape[1]), x, wide) for _ in range(n)]
        found[rank] = parts[rank]
        exchange(self.group, self.operation, [[part] for part in parts], [[part] for part in found])
        return sum_of(self.storage, found, x)


def _called(
    operation: str, shards: Any, group: Any, arrays: dict[str, tuple[Any, bool]], trans_b: bool, compute: str,
    kernel: str, check: bool, run: Callable[..., Any], back: Callable[..., Any],
) -> Any:  # fmt: skip
    """run(call, arrays...), of which back(call, arrays..., gradient) has the gradients, once all ranks agree. arrays:
    whether their rows are those of the rank."""
    ranks, given = group_of(group), [x for x, _ in arrays.values()]
    call = read_alike(
        ranks, operation, check, lambda: _read(operation, ranks, shards, arrays, trans_b, compute, kernel),
        lambda call: _described(call, given, trans_b), _FIELDS,
        signature_of(*given, shards, trans_b, compute, kernel, _autograd.wanted(*given)),
    )  # fmt: skip
    call, plain = call.on(ranks, kernel), call.on(ranks, "")  # a kernel by name is that of the forward pass
    plain_of = call.storage.plain  # parts of an array that asks for a gradient would ask for one
    return _autograd.call(
        lambda *x: run(call, *map(plain_of, x)), lambda given, outputs, gradient: back(plain, *given, gradient), *given
    )


def _read(
    operation: str, group: TorchGroup | MpiGroup, shards: Any, arrays: dict[str, tuple[Any, bool]], trans_b: bool,
    compute: str, kernel: str,
) -> _Call:  # fmt: skip
    if not isinstance(shards, Shards) or shards.ranks != group.size or shards.sequences != 1:
        raise ShapeMismatchError(
            f"attikos.{operation}: shards is {shards!r}; expected a Shards of one sequence over {group.size} ranks"
        )
    first = next(iter(arrays))
    storage = storage_of(operation, first, arrays[first][0])
    made = {name: operand_of(operation, name, x) for name, (x, _) in arrays.items()}
    for name, operand in made.items():
        if operand.ndim != 2:
            raise ShapeMismatchError(f"attikos.{operation}: {name} is {operand.describe()}; expected a matrix")
        if operand.dtype.name not in TYPES or operand.dtype is not made[first].dtype:
            raise UnsupportedDtypeError(
                f"attikos.{operation}: {name} is {operand.describe()}; expected one of {', '.join(TYPES)}, as {first} "
                "has it"
            )

    def expect(name: str, dimension: int, extent: int, why: str) -> None:
        if made[name].shape[dimension] != extent:
            raise ShapeMismatchError(
                f"attikos.{operation}: {name} is {made[name].describe()}; expected {extent} in dimension {dimension}, "
                f"{why}"
            )

    if "x" in made:
        features, hidden = made["gate_weight"].shape
        expect("x", 1, hidden, "as gate_weight has columns")
        expect("up_weight", 0, features, "as gate_weight has rows")
        expect("up_weight", 1, hidden, "as gate_weight has columns")
        expect("down_weight", 1, features, "as gate_weight has rows")
    else:
        expect("b", 1 if trans_b else 0, made["a"].shape[1], "as a has columns")
    own = arrays[first][1]
    rows = shards.rows(group.rank) if own else shards.total
    expect(first, 0, rows, "the rows that shards give this rank" if own else "all rows of the shards")
    choice(operation, "compute", compute, COMPUTE)
    text(operation, "kernel", kernel)
    return _Call(operation, storage, shards, compute, kernel)


# What ranks have to give alike.
_FIELDS = 7


def _described(call: _Call, given: list[Any], trans_b: bool) -> dict[str, int]:
    first, last = given[0], given[-1]
    shared = last.shape[0 if trans_b else 1] if call.operation != "distributed.column_parallel_gemm" else 0
    split = call.operation == "distributed.row_parallel_gemm"
    return {
        "dtype": TYPES.index(operand_of(call.operation, "a", first).dtype.name),
        "columns of the first array": 0 if split else first.shape[1], "columns of the result": shared,
        "shards": call.shards.fingerprint, "compute": COMPUTE[call.compute],
        "kernel": bits_of(call.kernel),
        "requires_grad": int(_autograd.wanted(*given)),
    }  # fmt: skip
