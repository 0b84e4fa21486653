# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Messages between ranks: process groups of torch.distributed and communicators of mpi4py, behind one interface."""

from __future__ import annotations

import sys
import weakref
from typing import Any, Callable, Sequence, Tuple

from ..errors import ArgumentError, CommunicationError

# (rank of the group, array) of each message.
Messages = Sequence[Tuple[int, Any]]

# Messages that may be under way in both directions at once have tags of their own.
TAG = 7301


class Failure:
    """The first failure of a rank, which goes on sending what others wait for and throws at the end."""

    def __init__(self) -> None:
        self._first: Exception | None = None

    def unless_failed(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """What `work` gives, or None."""
        if self._first is None:
            try:
                return work(*arguments)
            except Exception as problem:
                self._first = problem
        return None

    def throw(self) -> None:
        if self._first is not None:
            raise self._first


def _in_own_words(operation: str, problem: Exception) -> Exception:
    """What a transport raised, as a caller is to get it."""
    # mpi4py.MPI.Exception is an Exception alone.
    if isinstance(problem, (RuntimeError, OSError, ValueError)) or type(problem).__module__.startswith("mpi4py"):
        told = CommunicationError(f"attikos.{operation}: a message failed: {problem}")
        told.__cause__ = problem
        return told
    return problem


class Numbers:
    """Whole numbers of 64 bits that calls which ask for the same send: on a device once for all of them."""

    def __init__(self, values: Sequence[int]) -> None:
        self.values = list(values)
        self._on: dict[Any, Any] = {}

    def on(self, torch: Any, device: Any) -> Any:
        found = self._on.get(device)
        if found is None:
            found = self._on[device] = torch.tensor(self.values, dtype=torch.int64, device=device)
        return found


class _Facts:
    """What stays of a process group as long as it lives."""

    def __init__(self, dist: Any, group: Any) -> None:
        self.size: int = dist.get_world_size(group)
        self.on_cpu = "nccl" not in dist.get_backend(group)
        # About what NCCL takes. Kernels of a share of tiles for each multiprocessor would wait for those.
        self.multiprocessors = 0 if self.on_cpu else 16
        self._coalesces: dict[Any, bool] = {}

    def coalesces(self, group: Any, device: Any) -> bool:
        """Whether messages of tensors of a device are one launch, as batch_isend_irecv() finds out."""
        found = self._coalesces.get(device)
        if found is None:
            found = self._coalesces[device] = bool(getattr(group._get_backend(device), "supports_coalescing", False))
        return found


# By process group, which may come and go.
_facts: weakref.WeakKeyDictionary[Any, _Facts] = weakref.WeakKeyDictionary()


class TorchGroup:
    """A process group: NCCL orders its transfers with the current stream, Gloo takes tensors of the CPU.

    multiprocessors: how many of a GPU's messages hold while they travel.

    Messages are the group's own send() and recv(), between its own brackets where it launches several at once, which is
    what batch_isend_irecv() comes to: that checks its arguments again and takes several times as long."""

    def __init__(self, group: Any) -> None:
        import torch
        import torch.distributed as dist

        self._torch: Any = torch
        self._dist: Any = dist
        if not dist.is_available() or not dist.is_initialized():
            raise ArgumentError(
                "attikos.distributed: torch.distributed has no process group; expected init_process_group() before, "
                "or a communicator of mpi4py as group"
            )
        self._group: Any = dist.group.WORLD if group is None else group
        self.rank: int = dist.get_rank(self._group)
        if self.rank < 0:
            raise ArgumentError("attikos.distributed: this rank is not in the group")
        facts = _facts.get(self._group)
        if facts is None:
            facts = _facts[self._group] = _Facts(dist, self._group)
        self._of_group, self.size = facts, facts.size
        self.multiprocessors = facts.multiprocessors

    def begin(self, operation: str, sends: Messages, receives: Messages) -> Any:
        """Begins messages of dense tensors to and from ranks of the group; empty ones are none. The tensors stay
        untouched until finish(). Between any two ranks messages keep their order."""
        if sends or receives:
            sends = [message for message in sends if message[1].numel()]
            receives = [message for message in receives if message[1].numel()]
        first = sends or receives
        if not first:
            return ()
        group, device = self._group, first[0][1].device
        try:
            if self._of_group.coalesces(group, device):
                group._start_coalescing(device)
                for rank, x in sends:
                    group.send([x], rank, 0)
                for rank, x in receives:
                    group.recv([x], rank, 0)
                works = [group._end_coalescing(device)]
            else:
                works = [group.send([x], rank, 0) for rank, x in sends]
                works += [group.recv([x], rank, 0) for rank, x in receives]
        except Exception as problem:
            raise _in_own_words(operation, problem)
        return [work for work in works if work is not None]

    def finish(self, operation: str, begun: Any) -> None:
        try:
            for work in begun:
                work.wait()
        except Exception as problem:
            raise _in_own_words(operation, problem)

    def gather_numbers(self, operation: str, numbers: Numbers) -> list[list[int]]:
        """Those of all ranks, as many of each."""
        torch, count = self._torch, len(numbers.values)
        try:
            if self._of_group.on_cpu:
                mine = numbers.on(torch, "cpu")
                parts = [torch.empty_like(mine) for _ in range(self.size)]
                self._dist.all_gather(parts, mine, group=self._group)
                return [x.tolist() for x in parts]
            mine = numbers.on(torch, torch.device("cuda", torch.cuda.current_device()))
            found = mine.new_empty(self.size * count)
            self._dist.all_gather_into_tensor(found, mine, group=self._group)
            every = found.tolist()  # waits for the device, once
        except Exception as problem:
            raise _in_own_words(operation, problem)
        return [every[r * count : (r + 1) * count] for r in range(self.size)]

    def gather_objects(self, operation: str, mine: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        try:
            self._dist.all_gather_object(found, mine, group=self._group)
        except Exception as problem:
            raise _in_own_words(operation, problem)
        return found


class MpiGroup:
    """A communicator of mpi4py and arrays on the host. Its messages have a tag of their own; where the caller's may be
    under way at the same time, a duplicate of the communicator keeps both apart."""

    multiprocessors = 0

    def __init__(self, comm: Any) -> None:
        self._comm = comm
        self.rank, self.size = comm.Get_rank(), comm.Get_size()

    @staticmethod
    def _bytes(x: Any) -> Any:
        """The memory of a dense array of NumPy, or tensor of PyTorch, on the host."""
        if hasattr(x, "__array_interface__"):
            return x.reshape(-1).view("u1")
        torch = sys.modules["torch"]
        if x.device.type != "cpu":
            raise ArgumentError(
                f"attikos.distributed: a tensor lies on {x.device}; expected one of the host with a communicator of "
                "mpi4py, or a process group of torch.distributed"
            )
        return x.detach().reshape(-1).view(torch.uint8).numpy()

    def begin(self, operation: str, sends: Messages, receives: Messages) -> Any:
        """As TorchGroup.begin()."""
        try:
            begun = [self._comm.Irecv(self._bytes(x), source=r, tag=TAG) for r, x in receives if _size(x)]
            begun += [self._comm.Isend(self._bytes(x), dest=r, tag=TAG) for r, x in sends if _size(x)]
        except Exception as problem:
            raise _in_own_words(operation, problem)
        return begun, (sends, receives)  # arrays live until the messages are done

    def finish(self, operation: str, begun: Any) -> None:
        try:
            for request in begun[0]:
                request.Wait()
        except Exception as problem:
            raise _in_own_words(operation, problem)

    def gather_numbers(self, operation: str, numbers: Numbers) -> list[list[int]]:
        return self.gather_objects(operation, numbers.values)

    def gather_objects(self, operation: str, mine: Any) -> list[Any]:
        try:
            return list(self._comm.allgather(mine))
        except Exception as problem:
            raise _in_own_words(operation, problem)


class Part:
    """Some ranks of a group as a group of their own, whose messages are that one's."""

    def __init__(self, group: TorchGroup | MpiGroup, ranks: Sequence[int]) -> None:
        self._group, self._ranks = group, tuple(ranks)
        self.rank, self.size = self._ranks.index(group.rank), len(self._ranks)
        self.multiprocessors = group.multiprocessors

    def begin(self, operation: str, sends: Messages, receives: Messages) -> Any:
        there = self._ranks
        return self._group.begin(operation, [(there[r], x) for r, x in sends], [(there[r], x) for r, x in receives])

    def finish(self, operation: str, begun: Any) -> None:
        self._group.finish(operation, begun)


def _size(x: Any) -> int:
    return int(x.size) if hasattr(x, "__array_interface__") else int(x.numel())


def process_group_of(group: Any) -> Any:
    """That of a mesh of one dimension; anything else as it is."""
    if hasattr(group, "get_group") and hasattr(group, "ndim"):
        if group.ndim != 1:
            raise ArgumentError(
                f"attikos.distributed: the mesh has {group.ndim} dimensions; expected one, such as mesh['context']"
            )
        return group.get_group()
    return group


def group_of(group: Any) -> TorchGroup | MpiGroup:
    """A process group or None for the default one, a mesh of one dimension, a PeerGroup, or a communicator of mpi4py."""
    if isinstance(group, TorchGroup):
        return group
    if hasattr(group, "Get_rank") and hasattr(group, "Isend"):
        return MpiGroup(group)
    return TorchGroup(process_group_of(group))


def exchange(
    group: TorchGroup | MpiGroup | Part, operation: str, sent: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]]
) -> None:
    """The arrays sent[r] go to rank r, those of found[r] come from it; what is this rank's own stays untouched."""
    others = [(group.rank + i) % group.size for i in range(1, group.size)]
    sends = [(r, x) for r in others for x in sent[r]]
    receives = [(r, x) for r in reversed(others) for x in found[r]]
    group.finish(operation, group.begin(operation, sends, receives))
