# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The module `kernels.flash_attn`."""

from __future__ import annotations

from typing import Any

import attikos

from ...validation import reference_attention

__all__ = ["flash_attention", "reference_attention"]


def flash_attention(
    q: Any, k: Any, v: Any, causal: bool = False, sm_scale: float | None = None, seq_lens: Any = None
) -> Any:
    """Attention without storage that grows with seqlen^2; rows past a sequence's length are 0."""
    return attikos.flash_attention(q, k, v, causal=causal, sm_scale=sm_scale, seq_lens=seq_lens)
