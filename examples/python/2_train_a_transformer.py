# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A small transformer, compiled into one graph by torch.compile, learns to repeat the random letters before a marker.

  python 2_train_a_transformer.py        needs PyTorch; --backend inductor for PyTorch's compiler to C++ or Triton
"""

import argparse

import torch
from torch import nn
from torch.nn import functional

import attikos
from attikos.flash_attn import flash_attn_func

LETTERS, LENGTH, WIDTH, HEADS = 8, 6, 64, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = attikos.nn.RMSNorm(WIDTH), attikos.nn.RMSNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = attikos.nn.SwiGLU(WIDTH, 2 * WIDTH)

    def forward(self, x):
        q, k, v = self.qkv(self.before(x)).unflatten(-1, (3, HEADS, -1)).unbind(2)
        x = x + self.out(flash_attn_func(q, k, v, causal=True).flatten(-2))
        return x + self.mlp(self.between(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.letter, self.position = nn.Embedding(LETTERS + 1, WIDTH), nn.Embedding(2 * LENGTH, WIDTH)
        self.blocks, self.answer = nn.Sequential(Block(), Block()), nn.Linear(WIDTH, LETTERS)

    def forward(self, tokens):
        return self.answer(self.blocks(self.letter(tokens) + self.position.weight[: tokens.shape[1]]))


def main():
    (parser := argparse.ArgumentParser()).add_argument("--backend", default="aot_eager")
    torch.manual_seed(0), torch.set_num_threads(1)  # so small a model has no work for two pools of threads
    model = Model()
    compiled = torch.compile(model, fullgraph=True, backend=parser.parse_args().backend)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for step in range(41):
        read = torch.randint(0, LETTERS, (64, LENGTH))
        logits = compiled(torch.cat([read, torch.full((64, 1), LETTERS), read[:, :-1]], 1))[:, LENGTH:]
        (loss := functional.cross_entropy(logits.flatten(0, 1), read.flatten())).backward()
        optimizer.step(), optimizer.zero_grad()
        if step % 10 == 0:
            print(f"step {step:3}: loss {loss:.3f}, right {(logits.argmax(-1) == read).float().mean():.0%}")
    assert loss < 0.2


if __name__ == "__main__":
    main()
