# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Attention of Hugging Face's `transformers` by this library.

    from attikos.integrations import transformers
    transformers.register()
    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="attikos")

Values are those of "eager" up to rounding, gradients as well, on the CPU and on CUDA: causal and bidirectional masks,
grouped heads, padding on either side, sliding windows, chunks, softcap, sinks, position biases, sequences packed by
position_ids, dynamic and static caches, generate(), torch.compile. A mask is recognized by the functions that make it
and then given as options (causal, window, chunk, lengths, offsets, padding as a mask of keys), without storage of
seqlen_q * seqlen_kv; one that is not, an overlay of images' blocks for example, is given as a boolean mask, and a mask
of floats that the caller made as a bias. A query that sees no key at all, as padding on the left makes them, gives 0,
where "eager" gives the mean of all values; so do queries of padding on the right.

Refused by name (UnsupportedError): dropout, output_attentions, continuous batching's paged cache, and every argument of
an attention layer that this module does not know. To decide about padding, one number is read from the device for each
mask of a forward pass."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, Callable

import torch
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils
from transformers.utils.import_utils import is_tracing

from .. import _border
from .._arguments import Caller
from ..attention import attention_settings, differentiable_attention
from ..errors import ShapeMismatchError, UnsupportedError

__all__ = ["NAME", "attention", "make_mask", "register"]

NAME = "attikos"
_OPERATION = Caller(
    "integrations.transformers.attention", q="query", k="key", v="value", scale="scaling", sinks="s_aux",
    mask="attention_mask", bias="attention_mask",
)  # fmt: skip


def register() -> str:
    """Makes `attn_implementation="attikos"` known to transformers and returns that name; once or often is the same.

    Throws UnsupportedError where transformers is too old to make masks from offsets.
    """
    if "q_offset" not in inspect.signature(masking_utils.sdpa_mask).parameters:
        import transformers

        raise UnsupportedError(
            f"attikos.integrations.transformers.register: transformers is {transformers.__version__}; expected one "
            "that makes masks from q_offset, as 5.17 does"
        )
    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, make_mask)
    return NAME


# --- masks ------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class Pattern:
    """A mask as options of attention(): what make_mask() hands to the layers. Lengths, offsets and the mask of keys are
    tensors, and numbers change with shapes alone, so that torch.compile takes it as an input of one graph."""

    shape: tuple[int, int, int, int]  # batch, 1, seqlen_q, seqlen_kv
    causal: bool = False
    window: tuple[int, int] = (-1, -1)
    attention_chunk: int = 0
    lengths_q: Any = None
    lengths_kv: Any = None
    cu_seqlens: Any = None
    mask: Any = None

    ndim = 4  # transformers takes what has 2 dimensions for padding


def _read(function: Callable[..., Any]) -> dict[str, Any] | None:
    """What a mask function of transformers stands for, None of one that is not known here."""
    if function is masking_utils.causal_mask_function:
        return {"causal": True}
    if function is masking_utils.bidirectional_mask_function:
        return {}
    maker = getattr(function, "__qualname__", "").partition(".<locals>.")[0]
    code = getattr(function, "__code__", None)
    if getattr(function, "__module__", None) != masking_utils.__name__ or code is None:
        return None
    cells = {name: cell.cell_contents for name, cell in zip(code.co_freevars, function.__closure__ or ())}
    if maker == "and_masks":
        found: dict[str, Any] = {}
        for part in cells["mask_functions"]:
            more = _read(part)
            if more is None or more.keys() & found.keys():
                return None
            found.update(more)
        return found
    if maker == "remap_positions_for_packed_sequence":
        # Within a sequence positions go up by one, so that causal masks and windows need not know where they begin.
        inner = _read(cells["mask_function"])
        return None if inner is None or inner.keys() & {"chunk", "ids"} else {**inner, "remapped": True}
    if maker == "sliding_window_overlay":
        return {"window": (cells["sliding_window"] - 1, -1)}
    if maker == "sliding_window_bidirectional_overlay":
        return {"window": (cells["sliding_window"], cells["sliding_window"])}
    if maker == "chunked_overlay":
        return {"chunk": cells["chunk_size"], "left_padding": cells["left_padding"]}
    if maker == "packed_sequence_mask_function":
        return {"ids": cells["packed_sequence_mask"]}
    return None


def make_mask(
    batch_size: int, q_length: int, kv_length: int, q_offset: Any = 0, kv_offset: int = 0,
    mask_function: Callable[..., Any] = masking_utils.causal_mask_function, attention_mask: Any = None,
    allow_is_causal_skip: bool = True, allow_is_bidirectional_skip: bool = False, device: Any = "cpu", **more: Any,
) -> Any:  # fmt: skip
    """The mask of a forward pass, called by transformers: a Pattern, or a boolean mask where there is none. Inside a
    graph that is being traced what "sdpa" gets: None or a boolean mask."""
    if isinstance(attention_mask, Pattern):
        return attention_mask
    sizes = dict(
        batch_size=batch_size, q_length=q_length, kv_length=kv_length, q_offset=q_offset, kv_offset=kv_offset,
        mask_function=mask_function, attention_mask=attention_mask, device=device, **more,
    )  # fmt: skip
    skips = allow_is_causal_skip or allow_is_bidirectional_skip
    if is_tracing(attention_mask):
        return masking_utils.sdpa_mask(
            **sizes, allow_is_causal_skip=allow_is_causal_skip, allow_is_bidirectional_skip=allow_is_bidirectional_skip
        )
    found = _read(mask_function)
    pattern = None
    # A model that lets no mask be left out wants to calculate with it. One query over a static cache is no such case.
    if found is not None and (skips or "ids" in found or q_length == 1):
        pattern = _pattern(found, (batch_size, 1, q_length, kv_length), q_offset, kv_offset, attention_mask, device)
    return masking_utils.sdpa_mask(**sizes, allow_is_causal_skip=False) if pattern is None else pattern


def _pattern(
    found: dict[str, Any], shape: tuple[int, int, int, int], q_offset: Any, kv_offset: int, padding: Any, device: Any
) -> Pattern | None:
    """The options for what _read() found, None where they do not say it."""
    batch, _, q_length, kv_length = shape
    causal, window, chunk = found.get("causal", False), found.get("window", (-1, -1)), found.get("chunk", 0)
    options: dict[str, Any] = dict(shape=shape, causal=causal, window=window, attention_chunk=chunk)
    if "ids" in found or "remapped" in found:
        if not {"ids", "remapped"} <= found.keys() or padding is not None or chunk or q_length != kv_length:
            return None
        return Pattern(**options, cu_seqlens=_offsets(found["ids"].expand(batch, -1)))
    # Keys that the last query may see: positions count from the end of those.
    used = kv_length
    if causal or window != (-1, -1) or chunk:
        used = q_offset - kv_offset + q_length
        if isinstance(used, torch.Tensor) and used.device.type == "cpu":
            used = int(used)
        if isinstance(used, int) and not (q_length <= used <= kv_length and (causal or used == kv_length)):
            return None
    if chunk and (not causal or kv_offset % chunk or found["left_padding"].any()):
        return None
    if used is not kv_length and not (isinstance(used, int) and used == kv_length):
        length = used if isinstance(used, torch.Tensor) else torch.tensor(used)
        options["lengths_kv"] = length.to(device=device, dtype=torch.int32).expand(batch).contiguous()
    if padding is not None:
        options.update(_padding(padding[:, kv_offset : kv_offset + kv_length], shape, used, options))
    return Pattern(**options)


def _padding(visible: Any, shape: tuple[int, int, int, int], used: Any, options: dict[str, Any]) -> dict[str, Any]:
    """Lengths for padding behind all sequences, else a mask of keys."""
    _, _, q_length, kv_length = shape
    count = min(used, visible.shape[1]) if isinstance(used, int) else visible.shape[1]
    visible = visible[:, :count]
    whole, behind = torch.stack([visible.all(), (visible[:, 1:] <= visible[:, :-1]).all()]).tolist()
    if whole and (not isinstance(used, int) or count == used):
        return {}
    positional = options["causal"] or options["window"] != (-1, -1) or options["attention_chunk"]
    if behind and "lengths_kv" not in options and (not positional or q_length == kv_length):
        lengths = visible.sum(-1, dtype=torch.int32)
        return {"lengths_kv": lengths, "lengths_q": lengths if positional else None}
    mask = visible.new_zeros((visible.shape[0], 1, 1, kv_length))
    mask[:, 0, 0, :count] = visible
    return {"mask": mask}


def _offsets(ids: Any) -> Any:
    """Offsets of the sequences in all rows behind each other, int32; ids say which of its row's a position is in."""
    begins = torch.ones_like(ids, dtype=torch.bool)
    begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
    found = begins.flatten().nonzero().flatten()
    return torch.cat([found, found.new_tensor([ids.numel()])]).to(torch.int32)


# --- layers -----------------------------------------------------------------------------------------

# What layers hand through from forward() and no value depends on, or what the mask says already.
_WITHOUT_EFFECT = frozenset((
    "position_ids", "cache_position", "use_cache", "output_hidden_states", "output_router_logits", "return_dict",
    "num_items_in_batch", "logits_to_keep", "max_length_q", "max_length_k", "deterministic", "seq_idx",
))  # fmt: skip


def _refuse(what: str, expected: str) -> None:
    raise UnsupportedError(f"attikos.{_OPERATION}: {what}; expected {expected}")


def attention(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any, dropout: float = 0.0,
    scaling: float | None = None, is_causal: bool | None = None, sliding_window: int | None = None,
    softcap: float | None = None, s_aux: Any = None, position_bias: Any = None, cu_seq_lens_q: Any = None,
    cu_seq_lens_k: Any = None, output_attentions: Any = None, **others: Any,
) -> tuple[Any, None]:  # fmt: skip
    """What a layer of transformers calls: query [batch, heads, seqlen_q, d], key and value with heads_kv heads; gives
    ([batch, seqlen_q, heads, d], None). attention_mask: what make_mask() made, or a boolean or floating tensor; without
    one, `is_causal`, or the layer's, counts. position_bias broadcasts to the scores and has a gradient; so has s_aux, a
    sink for each head."""
    if dropout:
        _refuse(f"dropout is {dropout}", "0, model.eval() or attention_dropout=0 in the configuration")
    if output_attentions:
        _refuse("output_attentions is set", 'weights to be asked for with attn_implementation="eager"')
    for name, given in others.items():
        if name not in _WITHOUT_EFFECT and given is not None and given is not False:
            _refuse(f"{name} is given, which it does not know", 'None, or attn_implementation="eager"')
    settings: dict[str, Any] = dict(scale=scaling, softcap=softcap or 0.0)
    packed = None
    if isinstance(attention_mask, Pattern):
        if (query.shape[-2], key.shape[-2]) != attention_mask.shape[2:]:
            raise ShapeMismatchError(
                f"attikos.{_OPERATION}: query is {list(query.shape)}, key is {list(key.shape)}, but attention_mask was "
                f"made for {attention_mask.shape[2]} and {attention_mask.shape[3]} positions"
            )
        packed = attention_mask.cu_seqlens
        for name in ("causal", "window", "attention_chunk", "lengths_q", "lengths_kv", "mask"):
            settings[name] = getattr(attention_mask, name)
    elif attention_mask is not None:
        if cu_seq_lens_q is not None:
            _refuse("cu_seq_lens_q is given beside a dense attention_mask", "one of them")
        settings["mask" if attention_mask.dtype == torch.bool else "bias"] = attention_mask
    else:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        settings["causal"] = bool(causal and query.shape[2] > 1)
        if cu_seq_lens_q is not None:
            packed = cu_seq_lens_q
            if sliding_window is not None:
                settings["window"] = (sliding_window - 1, -1 if causal else sliding_window - 1)
        elif settings["causal"] and key.shape[2] > query.shape[2]:
            # As "sdpa" has it: the first positions of a static cache that nothing was in.
            key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
    if position_bias is not None:
        bias = settings.get("bias")
        settings["bias"] = position_bias if bias is None else position_bias + bias
    if settings.get("bias") is not None:
        settings["bias"] = settings["bias"][..., : key.shape[2]].to(query.dtype)
    if s_aux is not None:
        settings["sinks"] = s_aux.to(torch.promote_types(query.dtype, torch.float32))
    return (_dense if packed is None else _packed)(query, key, value, settings, packed, cu_seq_lens_k), None


def _call(q: Any, k: Any, v: Any, settings: dict[str, Any]) -> Any:
    """[.., seqlen, heads, d], recorded by the short way where that takes it."""
    others = {"scale": None, "causal": False, "window": (-1, -1), **settings}
    if all(others.pop(name, None) is None for name in ("mask", "bias", "sinks")):
        done = _border.attention(q, k, v, True, False, **others, recorded=True)
        if done is not None:
            return done
    full = attention_settings(**settings, heads_last=True, check_device=False)
    return differentiable_attention(_OPERATION, q, k, v, full, False)


def _dense(query: Any, key: Any, value: Any, settings: dict[str, Any], *_: Any) -> Any:
    return _call(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), settings)


def _packed(query: Any, key: Any, value: Any, settings: dict[str, Any], of_q: Any, of_k: Any) -> Any:
    """All rows of the batch behind each other, as the offsets of their sequences have it."""
    for name, given in (("position_bias", settings.get("bias")), ("attention_mask", settings.get("mask"))):
        if given is not None:
            _refuse(f"{name} is given beside packed sequences", "one of them")
    of_q, of_k = (x.to(torch.int32) for x in (of_q, of_q if of_k is None else of_k))
    rows = [x.transpose(1, 2).flatten(0, 1) for x in (query, key, value)]
    out = _call(*rows, {**settings, "cu_seqlens_q": of_q, "cu_seqlens_kv": of_k})
    return out.unflatten(0, (query.shape[0], query.shape[2]))
