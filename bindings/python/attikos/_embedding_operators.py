# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Rows of tables as operators of PyTorch; see _operators. padding: the row without gradient, -1 for none."""

from torch import Tensor

from . import embeddings as _embeddings
from ._operator import _gradients, _no_second, _now, _operator
from .rows import arrived


@_operator(lambda table, ids, padding: table.new_empty((*ids.shape, table.shape[1])))
def embedding(table: Tensor, ids: Tensor, padding: int) -> Tensor:
    return _embeddings.embedding(table, ids, padding_idx=None if padding < 0 else padding)


@_operator(lambda ids, dout, rows, padding: dout.new_empty((rows, dout.shape[-1])))
def embedding_backward(ids: Tensor, dout: Tensor, rows: int, padding: int) -> Tensor:
    return _embeddings.embedding_backward(ids, arrived(dout), rows, padding_idx=None if padding < 0 else padding)


_gradients(
    embedding,
    lambda ctx, dout: (_now(embedding_backward)(*ctx.saved_tensors, dout, *ctx.rest), None, None),
    lambda inputs, out: (inputs[1:2], (inputs[0].shape[0], inputs[2])),
)
_gradients(embedding_backward, _no_second, lambda inputs, output: ((), None))
