# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Messages between GPUs of one host that their copy engines carry."""

from __future__ import annotations

import socket
from typing import Any, NamedTuple, Sequence

from .._arguments import integer
from ..errors import ArgumentError, CommunicationError, UnsupportedError
from ._cuda_queues import CudaQueues
from ._groups import Messages, TorchGroup, process_group_of
from ._mailboxes import Mailboxes, bytes_of_box, initial_flags, least_bytes


class PeerGroup(TorchGroup):
    """The ranks of a process group of torch.distributed whose GPUs are those of one host, to be given as `group`:
    messages then are copies by the GPUs' copy engines, over NVLink or PCIe, into memory that the ranks share, and the
    order of everything is kept by the GPUs' own queues. No multiprocessor takes part, so that kernels have all of them
    while messages travel; NCCL takes some, and kernels beside its transfers are slower by their share.

    group: the process group, a mesh of one dimension, or None for the default one; NCCL's or Gloo's. With check=True
    ranks compare their arguments over it: on the host where it is Gloo's, while NCCL makes that wait for the device.
    buffer_bytes: memory of each rank that others write to, taken here once and held until the object goes. Longer
    messages go through it in pieces.

    All ranks make one together, each with its device current, and the same buffer_bytes. UnsupportedError on all ranks
    if they are on several hosts, or if GPUs cannot reach each other's memory. Messages of calls from several threads
    must not be under way at once. Calls can be captured into CUDA graphs; replays alternate with other calls only as a
    whole, on all ranks alike.

    A rank that goes away leaves the queues of others waiting, which only the end of their processes ends: start ranks
    by a launcher that ends all with the first, as torchrun does.
    """

    multiprocessors = 0

    def __init__(self, group: Any = None, *, buffer_bytes: int = 256 << 20) -> None:
        super().__init__(process_group_of(group))
        name, torch = "distributed.PeerGroup", self._torch
        buffer_bytes = integer(name, "buffer_bytes", buffer_bytes)
        box = bytes_of_box(buffer_bytes, self.size)
        every = self.gather_objects(name, _place(torch, buffer_bytes))
        _check(name, every, box)
        self.device = torch.device("cuda", torch.cuda.current_device())
        _raise_first(name, self.gather_objects(name, _out_of_reach(torch, every)))
        self._memory, addresses = _shared_memory(torch, name, self._group, self.device, buffer_bytes, self.size)
        self._boxes = Mailboxes(self.rank, CudaQueues(torch, self.device), addresses, box)
        self.gather_objects(name, None)  # nobody writes before all flags are there

    def begin(self, operation: str, sends: Messages, receives: Messages) -> Any:
        """As TorchGroup.begin()."""
        sends = [message for message in sends if message[1].numel()]
        receives = [message for message in receives if message[1].numel()]
        if not sends and not receives:
            return ()
        for _, x in (*sends, *receives):
            if x.device != self.device:
                raise ArgumentError(
                    f"attikos.{operation}: a tensor lies on {x.device}; expected {self.device}, on which the PeerGroup "
                    "was made"
                )
        try:
            begun = self._boxes.begin(
                [(r, x.data_ptr(), x.nbytes) for r, x in sends], [(r, x.data_ptr(), x.nbytes) for r, x in receives]
            )
        except OSError as problem:
            raise CommunicationError(f"attikos.{operation}: a message failed: {problem}") from problem
        return begun, sends, receives  # tensors live until the messages are done

    def finish(self, operation: str, begun: Any) -> None:
        if begun:
            self._boxes.finish(begun[0])


class _Place(NamedTuple):
    """Where a rank is, and what it asked for."""

    host: str
    gpu: str | None
    buffer_bytes: int


def _place(torch: Any, buffer_bytes: int) -> _Place:
    gpu = str(torch.cuda.get_device_properties().uuid) if torch.cuda.is_available() else None
    return _Place(socket.gethostname(), gpu, buffer_bytes)


def _check(name: str, every: Sequence[_Place], box: int) -> None:
    """Raises on all ranks alike."""
    first = every[0]
    for rank, place in enumerate(every):
        if place.gpu is None:
            raise UnsupportedError(f"attikos.{name}: rank {rank} has no CUDA device; expected a GPU for each rank")
        if place.host != first.host:
            raise UnsupportedError(
                f"attikos.{name}: rank {rank} is on host {place.host}, rank 0 on {first.host}; expected one host"
            )
        if place.gpu in [x.gpu for x in every[:rank]]:
            raise UnsupportedError(f"attikos.{name}: rank {rank} shares a GPU with another; expected one for each rank")
        if place.buffer_bytes != first.buffer_bytes:
            raise ArgumentError(
                f"attikos.{name}: rank {rank} has buffer_bytes {place.buffer_bytes} where rank 0 has "
                f"{first.buffer_bytes}; expected the same on all ranks"
            )
    if len(every) > 1 and box == 0:
        raise ArgumentError(
            f"attikos.{name}: buffer_bytes is {first.buffer_bytes}; expected at least {least_bytes(len(every))} for "
            f"{len(every)} ranks"
        )


def _out_of_reach(torch: Any, every: Sequence[_Place]) -> str | None:
    """Why this rank's GPU cannot use the memory of another rank's; of GPUs that this process does not see nothing is
    known."""
    seen = {str(torch.cuda.get_device_properties(i).uuid): i for i in range(torch.cuda.device_count())}
    mine = torch.cuda.current_device()
    for rank, place in enumerate(every):
        there = seen.get(place.gpu or "", mine)
        if there != mine and not torch.cuda.can_device_access_peer(mine, there):
            return f"GPU {mine} has no access to the memory of GPU {there}, that of rank {rank}"
    return None


def _raise_first(name: str, problems: Sequence[str | None]) -> None:
    for rank, problem in enumerate(problems):
        if problem is not None:
            raise UnsupportedError(f"attikos.{name}: on rank {rank} {problem}")


def _shared_memory(torch: Any, name: str, group: Any, device: Any, size: int, ranks: int) -> tuple[Any, list[int]]:
    """Memory of this rank with the flags as they begin, and where this rank finds that of each."""
    import torch.distributed._symmetric_memory as symmetric

    try:
        memory = symmetric.empty(size, dtype=torch.uint8, device=device)
        for offset, count, value in initial_flags(ranks):
            memory[offset : offset + 4 * count].view(torch.int32).fill_(value)
        torch.cuda.synchronize(device)
        handle = symmetric.rendezvous(memory, group)
    except RuntimeError as problem:
        raise UnsupportedError(f"attikos.{name}: the ranks cannot share memory: {problem}") from problem
    return (memory, handle), list(handle.buffer_ptrs)
