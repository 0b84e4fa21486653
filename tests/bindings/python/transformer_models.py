# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Small models of transformers with random weights, on the device that DEVICE names, and what they give; for test
modules that have found PyTorch and transformers."""

import inspect

import ml_dtypes
import torch
import transformers

DEVICE = "cpu"


def plain(module, query, key, value, attention_mask, scaling=None, softcap=None, s_aux=None, position_bias=None, **_):
    """Attention as it is written down, in the type that it is given."""
    groups = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    for term in (position_bias, attention_mask):
        scores = scores if term is None else scores + term
    if s_aux is not None:
        scores = torch.cat([scores, s_aux.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)], -1)
    weights = scores.softmax(-1)[..., : key.shape[2]]
    return (weights @ value).transpose(1, 2), None


SIZES = dict(
    vocab_size=61, hidden_size=48, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=None,
)  # fmt: skip
WINDOW = 6
# The cache as an argument of models: newer versions of transformers have renamed it.
CACHE = "past_key_values"
if "cache" in inspect.signature(transformers.LlamaForCausalLM.forward).parameters:
    CACHE = "cache"


def of(name, **more):
    """A configuration and its model's class."""
    sliding = ["sliding_attention", "full_attention", "sliding_attention"]
    t = transformers
    if name == "llama":
        return t.LlamaConfig(**SIZES, **more), t.LlamaForCausalLM
    if name == "gemma2":
        made = t.Gemma2Config(
            **SIZES, sliding_window=WINDOW, layer_types=sliding, attn_logit_softcapping=0.5, query_pre_attn_scalar=9,
            **more,
        )  # fmt: skip
        return made, t.Gemma2ForCausalLM
    if name == "gemma3":
        made = t.Gemma3TextConfig(**SIZES, sliding_window=WINDOW, layer_types=sliding, query_pre_attn_scalar=16, **more)
        return made, t.Gemma3ForCausalLM
    if name == "gpt_oss":  # every expert for every token, so that rounding chooses none
        made = t.GptOssConfig(
            **SIZES, sliding_window=WINDOW, layer_types=sliding, num_local_experts=2, num_experts_per_tok=2,
            rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, **more,
        )  # fmt: skip
        return made, t.GptOssForCausalLM
    assert name == "llama4"
    made = t.Llama4TextConfig(
        **SIZES, intermediate_size_mlp=64, attention_chunk_size=WINDOW, moe_layers=[],
        layer_types=["chunked_attention", "full_attention", "chunked_attention"], use_qk_norm=False, **more,
    )  # fmt: skip
    return made, t.Llama4ForCausalLM


CAUSAL = ("llama", "gemma2", "gemma3", "gpt_oss", "llama4")
BATCH, LENGTH = 3, 19


def build(name, seed=5):
    """In float64, with weights large enough for attention to matter and sinks that are not 0."""
    config, kind = of(name, attn_implementation="plain", experts_implementation="eager")
    torch.manual_seed(seed)
    model = kind(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.15 * torch.randn_like(parameter) + (parameter == 1))
    return model.eval().to(DEVICE)


def drawn(draw, *given, seed, **more):
    """Numbers that do not depend on the device: drawn on the host."""
    return draw(*given, generator=torch.Generator().manual_seed(seed), **more).to(DEVICE)


def tokens(batch=BATCH, length=LENGTH):
    return drawn(torch.randint, 2, 61, (batch, length), seed=3)


def padding(side, length=LENGTH):
    """Of three sequences, one has no padding, one some, one much."""
    mask = torch.ones(BATCH, length, dtype=torch.long)
    for row, count in ((1, 4), (2, 12)):
        mask[row, slice(0, count) if side == "left" else slice(length - count, length)] = 0
    return mask.to(DEVICE)


def packed():
    """Positions of three sequences in each row, which lie otherwise in each."""
    rows = [[7, 1, 11], [2, 9, 8], [10, 8, 1]]
    return torch.tensor([[i for count in row for i in range(count)] for row in rows], device=DEVICE)


def inputs(case):
    if case == "packed":
        return {"position_ids": packed()}
    if case in ("left", "right"):
        mask = padding(case)
        return {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
    return {}


def run(model, dtype, implementation, case, gradients=False):
    """Logits at the positions that count, and gradients of all parameters, as float64."""
    model = model.to(dtype)
    model.set_attn_implementation(implementation)
    model.zero_grad()
    given = inputs(case)
    counts = given.get("attention_mask", torch.ones(BATCH, LENGTH, device=DEVICE)).bool()
    with torch.set_grad_enabled(gradients):
        logits = model(tokens(), use_cache=False, **given).logits[counts]
    found = {"logits": logits.detach().double()}
    if gradients:
        direction = drawn(torch.randn, logits.shape, seed=1, dtype=torch.float64)
        (logits.double() * direction).sum().backward()
        for name, parameter in model.named_parameters():
            if parameter.grad is not None:
                found[name] = parameter.grad.double().clone()
    return found


def numpy_of(x):
    x = x.detach().cpu().contiguous()
    return x.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if x.dtype == torch.bfloat16 else x.numpy()
