# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention and products over the ranks of a process group of torch.distributed or a communicator of mpi4py.

`from attikos import distributed`: the package itself does not import it, nor it PyTorch before a group of PyTorch's is
used.
"""

from __future__ import annotations

from ._attention import attention
from ._context_parallel import context_parallel, gather
from ._peers import PeerGroup
from ._products import column_parallel_gemm, gated_mlp, row_parallel_gemm
from ._shards import Piece, Shards

__all__ = [
    "PeerGroup", "Piece", "Shards", "attention", "column_parallel_gemm", "context_parallel", "gated_mlp", "gather",
    "row_parallel_gemm",
]  # fmt: skip
