# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Writes the fixture of the sentence_search tests: texts, tokens and embeddings.

Independent of the library: tokens come from the `tokenizers` package, weights through the `safetensors` package,
and the model is written down here once more in NumPy with float64 throughout.

    pip install numpy safetensors tokenizers
    python make_fixture.py <folder with model.safetensors and tokenizer.json> <folder of this script>
"""

import json
import math
import pathlib
import sys

import numpy
import safetensors.numpy
import tokenizers

MAX_TOKENS = 256
HEADS = 12
LAYERS = 6
EPS = 1e-12

LONG = (
    'Numerical simulation on parallel computers rests on a small number of operations that are repeated very '
    'often: products of dense matrices, reductions along rows, and gathers from tables. ')

TEXTS = [
    'A man is eating food.',
    'Yes',
    'a',
    '?',
    '',
    '   \t ',
    '\x01\x02\x7f\u200b\u200e\ufeff',  # control and format characters only: empty after normalization
    '\u0301\u0308\u0327',  # marks only: empty after normalization
    'The quick brown fox jumps over the lazy dog, twice; then it rests (for 3.5 hours).',
    'Matrix multiplication dominates the running time of transformer inference on most hardware.',
    'How large is the largest prime number known in the year 2024?',
    LONG,
    LONG * 3,
    LONG * 12,  # far over 256 tokens
    'word ' * 254,  # 256 tokens with [CLS] and [SEP]
    'word ' * 253,
    'word ' * 255,
    'Déjà vu à l’école: naïve façade, crème brûlée, garçon, œuvre, Noël.',
    'De\u0301ja\u0300 vu a\u0300 l’e\u0301cole: nai\u0308ve fac\u0327ade.',  # the same, decomposed
    'Größe, Straße, Übermut und Ähnliches; ŁÓDŹ, Čeština, Ærøskøbing, Ísland.',
    'İstanbul’da ılık bir gün; DİYARBAKIR ve Iğdır.',
    'ΣΊΣΥΦΟΣ και Οδυσσεύς μιλούν για την Ιθάκη.',
    'Всё счастливые семьи похожи друг на друга, Йошкар-Ола.',
    '我喜欢在图书馆里学习中文和数学。',
    '東京は日本の首都で、ﾊﾝｶｸカナとひらがながあります。',
    '한국어 문장도 여기에 있습니다.',
    'ภาษาไทยไม่มีช่องว่างระหว่างคำ',
    'اللغةُ العربيّةُ جميلةٌ جدًّا.',
    'हिन्दी में लिखा हुआ एक छोटा वाक्य।',
    'שָׁלוֹם עוֹלָם, מה שלומך?',
    'Tiếng Việt có nhiều dấu thanh điệu khác nhau.',
    'I ❤️ emoji 😀🎉👩‍👩‍👧‍👦🇩🇪 and 𝒻𝒶𝓃𝒸𝓎 letters ①②③.',
    'Wait... what?!?! --- ***really*** <<>> {[()]} $$$ #hash @user 100% a_b a/b\\c',
    'https://example.org/path?query=value&x=1#part and user.name+tag@example.co.uk',
    'x' * 100,
    'x' * 101 + ' after an overlong word',
    'é' * 100 + ' ' + 'e\u0301' * 101,
    'Literal [SEP] and [MASK] and [CLS][PAD] inside, [sep] in lower case, [UNK]nown.',
    'ﬁne ﬂour, eﬃcient oﬄine ligatures, № ½ ™ ² ﷺ',
    'no\u00adbreak\u00a0space\u2003and\u2028line\u0085separators\r\nall over\x00the\ufffdplace',
    'unassigned \u0378 private \ue000 newer marks a\U0001e8d0b a\u0afab \u1ab0c \u08e3d',
    'int main(int argc, char** argv) { return argc > 1 ? 0 : 1; }  // C++',
    'The cat sat on the mat. ' * 5 + '猫はマットの上に座った。',
]


def gelu(x):
    erf = numpy.frompyfunc(math.erf, 1, 1)
    return 0.5 * x * (1.0 + erf(x / math.sqrt(2.0)).astype(numpy.float64))


def layer_norm(x, weight, bias):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / numpy.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPS) * weight + bias


def embed(weights, tokens):
    def norm(x, name):
        return layer_norm(x, weights[name + '.weight'], weights[name + '.bias'])

    def linear(x, name):
        return x @ weights[name + '.weight'].T + weights[name + '.bias']

    x = (weights['embeddings.word_embeddings.weight'][tokens] +
         weights['embeddings.position_embeddings.weight'][:len(tokens)] +
         weights['embeddings.token_type_embeddings.weight'][0])
    x = norm(x, 'embeddings.LayerNorm')
    length, hidden = x.shape

    def by_head(y):
        return y.reshape(length, HEADS, hidden // HEADS).transpose(1, 0, 2)

    for i in range(LAYERS):
        layer = f'encoder.layer.{i}.'
        query, key, value = (by_head(linear(x, layer + 'attention.self.' + name))
                             for name in ('query', 'key', 'value'))
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(hidden // HEADS)
        scores = numpy.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        context = (scores @ value).transpose(1, 0, 2).reshape(length, hidden)
        x = norm(x + linear(context, layer + 'attention.output.dense'), layer + 'attention.output.LayerNorm')
        inner = gelu(linear(x, layer + 'intermediate.dense'))
        x = norm(x + linear(inner, layer + 'output.dense'), layer + 'output.LayerNorm')
    pooled = x.mean(axis=0)
    return pooled / max(numpy.linalg.norm(pooled), 1e-12)


def token_hashes(tokenizer):
    """FNV-1a over the tokens of every code point, alone and inside a word: one number a plane."""
    hashes = []
    for plane in range(17):
        value = 0xcbf29ce484222325
        for start in range(plane << 16, (plane + 1) << 16, 4096):
            codes = [code for code in range(start, start + 4096) if not 0xD800 <= code <= 0xDFFF]
            texts = [chr(code) for code in codes] + ['ab' + chr(code) + 'ing' for code in codes]
            for encoding in tokenizer.encode_batch(texts):
                for token in encoding.ids:
                    value = ((value ^ token) * 0x100000001b3) & 0xFFFFFFFFFFFFFFFF
        hashes.append(f'{value:016x}')
    return hashes


def main():
    model, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    tokenizer = tokenizers.Tokenizer.from_file(str(model / 'tokenizer.json'))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    tokens = [encoding.ids for encoding in tokenizer.encode_batch(TEXTS)]
    weights = {name: tensor.astype(numpy.float64) if tensor.dtype == numpy.float32 else tensor
               for name, tensor in safetensors.numpy.load_file(model / 'model.safetensors').items()}
    vectors = numpy.stack([embed(weights, numpy.array(ids)) for ids in tokens])
    numpy.save(output / 'fixture.npy', vectors.astype(numpy.float32))
    with open(output / 'fixture.json', 'w', encoding='ascii') as out:
        out.write('{"token_hashes": ' + json.dumps(token_hashes(tokenizer)) + ',\n"sentences": [\n')
        rows = (json.dumps({'text': text, 'tokens': ids}, separators=(',', ':'))
                for text, ids in zip(TEXTS, tokens))
        out.write(',\n'.join(rows) + '\n]}\n')
    print(len(TEXTS), 'sentences,', sum(map(len, tokens)), 'tokens, tokenizers', tokenizers.__version__)


if __name__ == '__main__':
    main()
