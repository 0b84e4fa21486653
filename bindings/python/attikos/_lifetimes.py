# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""How long the memory of PyTorch's tensors stays theirs: calls return before the device is done with them."""

from __future__ import annotations

import sys
from typing import Any

# PyTorch's own streams by device and address, which live as long as the process.
_streams: dict[tuple[int, int], Any] = {}


def hold(first: Any, *others: Any) -> None:
    """Tells PyTorch's allocator, as Tensor.record_stream() does, that the current stream uses these tensors, of which the
    first one lies on a CUDA device. Memory that belongs to another stream is then not given out again before the work
    that is queued now is done, even if the caller frees it at once; for that of the current stream nothing changes."""
    torch = sys.modules["torch"]
    device = first.get_device()
    at = (device, torch._C._cuda_getCurrentRawStream(device))
    stream = _streams.get(at)
    if stream is None:
        stream = torch.cuda.current_stream(device)
        # A stream that PyTorch did not make has its address for an id, which is even, and PyTorch would ask it for an event
        # when the tensor is freed, when it may be gone: who brings such streams keeps the tensors.
        if stream.stream_id != 0 and stream.stream_id % 2 == 0:
            return
        _streams[at] = stream
    first.record_stream(stream)
    for x in others:
        if isinstance(x, torch.Tensor) and x.is_cuda:
            x.record_stream(stream)
