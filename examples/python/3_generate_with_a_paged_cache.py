# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Two sequences of different lengths grow in one paged cache: pages are handed out as they are needed, in any order;
append_kv() and decode() find them by a table. A layer with random weights stands for a model.

  python 3_generate_with_a_paged_cache.py        needs NumPy
"""

import numpy as np

import attikos

HEADS_Q, HEADS_KV, FEATURES, PAGE, PAGES, STEPS = 4, 2, 32, 16, 8, 20
DRAW = np.random.default_rng(1)


def normal(*shape):
    return DRAW.standard_normal((2, *shape), np.float32)


class PagedCache:
    def __init__(self):
        self.keys, self.values = (np.zeros((PAGES, HEADS_KV, PAGE, FEATURES), np.float32) for _ in range(2))
        self.free = list(DRAW.permutation(PAGES))  # what a server's pool would give
        self.table, self.owned, self.lengths = np.zeros((2, PAGES // 2), np.int32), [0, 0], np.zeros(2, np.int32)

    def append(self, k, v, new):
        """k and v [batch, heads, seqlen, features], of which sequence b has new[b] positions."""
        for b, count in enumerate(new):
            while self.owned[b] * PAGE < self.lengths[b] + count:
                self.table[b, self.owned[b]] = self.free.pop()
                self.owned[b] += 1
        given = {"cache_lengths": self.lengths, "new_lengths": new, "page_table": self.table}
        attikos.append_kv(k, v, self.keys, self.values, **given)
        self.lengths += new

    def attend(self, q):
        return attikos.decode(q, self.keys, self.values, lengths_kv=self.lengths, page_table=self.table)


def main():
    prompts = np.array([21, 5], np.int32)
    cache = PagedCache()
    k, v = normal(HEADS_KV, 21, FEATURES), normal(HEADS_KV, 21, FEATURES)
    cache.append(k, v, prompts)
    seen = [[(k[b, :, :count], v[b, :, :count])] for b, count in enumerate(prompts)]
    for _ in range(STEPS):
        q, k, v = (normal(heads, 1, FEATURES) for heads in (HEADS_Q, HEADS_KV, HEADS_KV))
        cache.append(k, v, np.ones(2, np.int32))
        out = cache.attend(q)
        for b in range(2):  # the same from keys and values that lie behind each other
            seen[b].append((k[b], v[b]))
            whole = [np.concatenate(parts, 1)[None] for parts in zip(*seen[b])]
            assert np.allclose(out[b : b + 1], attikos.attention(q[b : b + 1], *whole), atol=1e-5)
    for b in range(2):
        print(f"sequence {b}: {cache.lengths[b]} positions in pages {cache.table[b, : cache.owned[b]]}")


if __name__ == "__main__":
    main()
