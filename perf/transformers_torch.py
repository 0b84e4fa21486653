# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Tokens per second of a model of Hugging Face's transformers by attn_implementation: "attikos" beside "sdpa" and
"flex_attention", the same random weights in one process.

  transformers_torch.py [--device cpu|cuda] [--length N] [--rounds N] [--seconds S] [--only NAME ...] [--out FILE]

A Llama of 4 layers, 8 heads of 64 over 2 of keys, float32 on the CPU, bfloat16 on CUDA. `prompt`: one forward pass of
2 sequences of that length; `padded`: the second one is half padding, on the left; `step`: forward, backward and
gradients; `generate`: 32 tokens behind prompts of that length, with a dynamic cache. The implementations take turns,
round by round, until there were enough or each of the four cases has had its part of the seconds, which includes what is
compiled. The table has the median round, the file the best one as well, which is what says something of a machine that
others use. What an implementation refuses is a dash and said below the table.
"""

import argparse
import json
import statistics
import time
import warnings

import companion_torch
import peers_torch_cpu
import torch
import transformers
from attikos.integrations import transformers as integration
from transformers import LlamaConfig, LlamaForCausalLM

NAMES = ("attikos", "sdpa", "flex_attention", "eager")


def model_of(device):
    config = LlamaConfig(
        vocab_size=1024, hidden_size=512, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=2, max_position_embeddings=65536, pad_token_id=0, bos_token_id=1, eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config).to(device, torch.bfloat16 if device == "cuda" else torch.float32)


def cases(model, device, length):
    """{name: (tokens of a call, the call)}"""
    batch, new = 2, 32
    tokens = torch.randint(2, 1024, (batch, length), device=device)
    padding = torch.ones_like(tokens)
    padding[1, : length // 2] = 0

    def prompt(mask=None):
        with torch.no_grad():
            model.eval()(tokens, attention_mask=mask, use_cache=False)

    def step():
        model.train()(tokens, labels=tokens, use_cache=False).loss.backward()
        model.zero_grad(set_to_none=True)

    def generate():
        model.eval().generate(tokens, attention_mask=torch.ones_like(tokens), max_new_tokens=new, do_sample=False)

    return {
        "prompt": (batch * length, prompt),
        "padded": (int(padding.sum()), lambda: prompt(padding)),
        "step": (batch * length, step),
        "generate": (batch * new, generate),
    }


def seconds(call, device):
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - begin


def rates(count, times):
    """Of so many in a round, by the seconds of all rounds but the first, which compiles and warms."""
    rounds = times[1:]
    return {
        "per second": round(count / statistics.median(rounds), 1), "best per second": round(count / min(rounds), 1),
        "rounds": len(rounds),
    }  # fmt: skip


def write(path, device, **found):
    """A file of results with what it says of the machine."""
    machine = companion_torch.context() if device == "cuda" else peers_torch_cpu.context(0)
    with open(path, "w", encoding="utf-8") as file:
        json.dump({**machine, "transformers": transformers.__version__, **found}, file, indent=1)
        file.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=50)
    parser.add_argument("--only", nargs="+", default=NAMES, choices=NAMES)
    parser.add_argument("--out")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", module="torch")
    integration.register()
    model = model_of(options.device)
    found, refused = [], []
    print(f"tokens per second, {options.device}, {torch.get_num_threads()} threads, length {options.length}")
    print("| | " + " | ".join(options.only) + " |\n|---|" + "---|" * len(options.only))
    for name, (count, call) in cases(model, options.device, options.length).items():
        times = {implementation: [] for implementation in options.only}
        end = time.perf_counter() + options.seconds / 4
        for at in range(options.rounds + 1):
            if at > 1 and time.perf_counter() > end:
                break
            for implementation in options.only:
                if times[implementation] is None:
                    continue
                model.set_attn_implementation(implementation)
                try:
                    times[implementation].append(seconds(call, options.device))
                except (RuntimeError, ValueError, NotImplementedError) as problem:
                    refused.append(f"{name}, {implementation}: {str(problem).splitlines()[0]}")
                    times[implementation] = None
        measured = {implementation: x and rates(count, x) for implementation, x in times.items()}
        cells = ["-" if x is None else f"{x['per second']:.0f}" for x in measured.values()]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)
        found += [{"case": name, "implementation": i, "length": options.length, **x} for i, x in measured.items() if x]
    print("\n".join(refused))
    if options.out:
        write(options.out, options.device, unit="tokens", cases=found, refused=refused)


if __name__ == "__main__":
    main()
