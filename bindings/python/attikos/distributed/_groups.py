# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Messages between ranks: process groups of torch.distributed and communicators of mpi4py, behind one interface."""

from __future__ import annotations

import contextlib
import sys
from typing import Any, Callable, Iterator, Sequence, Tuple

from ..errors import ArgumentError, CommunicationError

# (rank of the group, array) of each message.
Messages = Sequence[Tuple[int, Any]]

# Messages that may be under way in both directions at once have tags of their own.
TAG = 7301


class Failure:
    """The first failure of a rank, which goes on sending what others wait for and throws at the end."""

    def __init__(self) -> None:
        self._first: Exception | None = None

    def unless_failed(self, work: Callable[[], Any]) -> Any:
        """What `work` gives, or None."""
        if self._first is None:
            try:
                return work()
            except Exception as problem:
                self._first = problem
        return None

    def throw(self) -> None:
        if self._first is not None:
            raise self._first


@contextlib.contextmanager
def _told(operation: str) -> Iterator[None]:
    """What a transport raises, in the words of this package."""
    try:
        yield
    except (RuntimeError, OSError, ValueError) as problem:
        raise CommunicationError(f"attikos.{operation}: a message failed: {problem}") from problem
    except Exception as problem:  # mpi4py.MPI.Exception is an Exception alone
        if type(problem).__module__.startswith("mpi4py"):
            raise CommunicationError(f"attikos.{operation}: a message failed: {problem}") from problem
        raise


class TorchGroup:
    """A process group: NCCL orders its transfers with the current stream, Gloo takes tensors of the CPU."""

    def __init__(self, group: Any) -> None:
        import torch
        import torch.distributed

        self._torch: Any = torch
        self._dist: Any = torch.distributed
        if not self._dist.is_available() or not self._dist.is_initialized():
            raise ArgumentError(
                "attikos.distributed: torch.distributed has no process group; expected init_process_group() before, "
                "or a communicator of mpi4py as group"
            )
        self._group: Any = self._dist.group.WORLD if group is None else group
        self.rank, self.size = self._dist.get_rank(self._group), self._dist.get_world_size(self._group)
        if self.rank < 0:
            raise ArgumentError("attikos.distributed: this rank is not in the group")
        self._global = [self._dist.get_global_rank(self._group, r) for r in range(self.size)]
        self._on_cpu = "nccl" not in self._dist.get_backend(self._group)

    def begin(self, operation: str, sends: Messages, receives: Messages) -> Any:
        """Begins messages of dense tensors to and from ranks of the group; empty ones are none. The tensors stay
        untouched until finish(). Between any two ranks messages keep their order."""
        dist = self._dist
        wanted = [dist.P2POp(dist.isend, x, self._global[r], self._group) for r, x in sends if x.numel()]
        wanted += [dist.P2POp(dist.irecv, x, self._global[r], self._group) for r, x in receives if x.numel()]
        with _told(operation):
            return dist.batch_isend_irecv(wanted) if wanted else []

    def finish(self, operation: str, begun: Any) -> None:
        with _told(operation):
            for work in begun:
                work.wait()

    def gather_numbers(self, operation: str, numbers: Sequence[int]) -> list[list[int]]:
        """Numbers of 64 bits of all ranks."""
        device = "cpu" if self._on_cpu else "cuda"
        mine = self._torch.tensor(numbers, dtype=self._torch.int64, device=device)
        found = [self._torch.empty_like(mine) for _ in range(self.size)]
        with _told(operation):
            self._dist.all_gather(found, mine, group=self._group)
        return [x.tolist() for x in found]

    def gather_objects(self, operation: str, mine: Any) -> list[Any]:
        found: list[Any] = [None] * self.size
        with _told(operation):
            self._dist.all_gather_object(found, mine, group=self._group)
        return found


class MpiGroup:
    """A communicator of mpi4py and arrays on the host. Its messages have a tag of their own; where the caller's may be
    under way at the same time, a duplicate of the communicator keeps both apart."""

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
        with _told(operation):
            begun = [self._comm.Irecv(self._bytes(x), source=r, tag=TAG) for r, x in receives if _size(x)]
            begun += [self._comm.Isend(self._bytes(x), dest=r, tag=TAG) for r, x in sends if _size(x)]
        return begun, (sends, receives)  # arrays live until the messages are done

    def finish(self, operation: str, begun: Any) -> None:
        with _told(operation):
            for request in begun[0]:
                request.Wait()

    def gather_numbers(self, operation: str, numbers: Sequence[int]) -> list[list[int]]:
        return self.gather_objects(operation, list(numbers))

    def gather_objects(self, operation: str, mine: Any) -> list[Any]:
        with _told(operation):
            return list(self._comm.allgather(mine))


def _size(x: Any) -> int:
    return int(x.size) if hasattr(x, "__array_interface__") else int(x.numel())


def group_of(group: Any) -> TorchGroup | MpiGroup:
    """A process group or None for the default one, a mesh of one dimension, or a communicator of mpi4py."""
    if hasattr(group, "Get_rank") and hasattr(group, "Isend"):
        return MpiGroup(group)
    if hasattr(group, "get_group") and hasattr(group, "ndim"):
        if group.ndim != 1:
            raise ArgumentError(
                f"attikos.distributed: the mesh has {group.ndim} dimensions; expected one, such as mesh['context']"
            )
        group = group.get_group()
    return TorchGroup(group)


def exchange(
    group: TorchGroup | MpiGroup, operation: str, sent: Sequence[Sequence[Any]], found: Sequence[Sequence[Any]]
) -> None:
    """The arrays sent[r] go to rank r, those of found[r] come from it; what is this rank's own stays untouched."""
    others = [(group.rank + i) % group.size for i in range(1, group.size)]
    sends = [(r, x) for r in others for x in sent[r]]
    receives = [(r, x) for r in reversed(others) for x in found[r]]
    group.finish(operation, group.begin(operation, sends, receives))
