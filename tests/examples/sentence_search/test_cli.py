# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Runs sentence_search as a user would: what it prints, what it refuses, and with which exit status.

    python3 test_cli.py <executable> <model folder> [unittest arguments]
"""

import array
import ast
import os
import pathlib
import re
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
MODEL = pathlib.Path(sys.argv.pop(1)).resolve()

INSTRUMENTED = b'__asan_init' in PROGRAM.read_bytes() or b'__tsan_init' in PROGRAM.read_bytes()

PASSAGES = [
    'The cat sat quietly on the warm windowsill.',
    'Matrix multiplication is a sum of outer products.',
    'Der Zug nach Zürich fährt um acht Uhr ab.',
    'Volcanoes erupt when magma rises to the surface.',
    '猫はマットの上に座った。',
]


def run(*arguments, **options):
    environment = dict(os.environ, OMP_PROC_BIND='false')
    return subprocess.run([PROGRAM, *arguments], capture_output=True, timeout=300, env=environment, **options)


class CommandLine(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.corpus = self.write('corpus.txt', '\n'.join(PASSAGES) + '\n')

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    def search(self, *arguments):
        result = run('--model', MODEL, '--corpus', self.corpus, *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stdout.decode()

    def refused(self, status, text, *arguments, model=MODEL, memory=None, **options):
        """memory: GiB of address space that must do (sanitizers take more for themselves)."""
        if memory and not INSTRUMENTED:
            limit = memory << 30
            options['preexec_fn'] = lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        result = run('--model', model, *arguments, **options)
        # A slow machine reports its progress first.
        message = re.sub(r'\A(embedded \d+ of \d+ passages \(\d+ %\)\n)+', '', result.stderr.decode())
        self.assertEqual(result.returncode, status, message)
        self.assertRegex(message, r'\Asentence_search: [^\n]+\n\Z')
        self.assertIn(text, message)
        self.assertEqual(result.stdout, b'')

    def model_with(self, **files):
        """A copy of the model (links, but for the files given as name=content; None leaves one out)."""
        folder = self.folder / 'model'
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name in ('model.safetensors', 'vocab.txt', 'config.json'):
            key = name.split('.')[0]
            if key not in files:
                (folder / name).symlink_to(MODEL / name)
            elif files[key] is not None:
                (folder / name).write_bytes(files[key])
        return folder

    # --- what it does -------------------------------------------------------------------------------------

    def test_nearest_passage_comes_first(self):
        for dtype in ('float32', 'bfloat16', 'float16'):
            for passage in (PASSAGES[1], PASSAGES[4]):
                lines = self.search('--query', passage, '--dtype', dtype).splitlines()
                first = next(i for i, line in enumerate(lines) if line.startswith('  1. '))
                score = float(lines[first].split()[1])
                self.assertAlmostEqual(score, 1.0, delta=1e-3)
                self.assertIn(f'line {PASSAGES.index(passage) + 1}', lines[first])
                self.assertEqual(lines[first + 1].strip(), passage)

    def test_meaning_beats_wording(self):
        output = self.search('--query', 'A feline rests beside the window', '--top', '1')
        self.assertIn(PASSAGES[0], output)

    def test_top(self):
        for top, shown in (('1', 1), ('3', 3), ('100', len(PASSAGES))):
            output = self.search('--top', top)
            self.assertEqual(len(re.findall(r'^ +\d+\. -?\d\.\d{4} ', output, re.MULTILINE)), shown)
        scores = [float(s) for s in re.findall(r'^ +\d+\. (-?\d\.\d{4}) ', output, re.MULTILINE)]
        self.assertEqual(scores, sorted(scores, reverse=True))

    def test_report(self):
        output = self.search()
        self.assertRegex(output, r'5 sentences, \d+ tokens in [\d.]+ s: [\d.]+ sentences per second')
        for operation in ('gemm', 'attention', 'layer_norm', 'mean_pool', 'l2_normalize', 'embedding', 'tokenize'):
            self.assertRegex(output, rf'(?m)^{operation} +\d+\.\d+ +\d+\.\d %')
        self.assertRegex(output, r'(?m)^gemm .* \d+\.\d$')

    def read_npy(self, path):
        content = path.read_bytes()
        self.assertEqual(content[:8], b'\x93NUMPY\x01\x00')
        size, = struct.unpack('<H', content[8:10])
        self.assertEqual((10 + size) % 64, 0)
        header = ast.literal_eval(content[10:10 + size].decode())
        self.assertEqual(header['fortran_order'], False)
        self.assertEqual(header['descr'], '<f4' if sys.byteorder == 'little' else '>f4')
        values = array.array('f', content[10 + size:])
        rows, columns = header['shape']
        self.assertEqual(len(values), rows * columns)
        return [values[row * columns:(row + 1) * columns] for row in range(rows)]

    def test_embeddings(self):
        out = self.folder / 'vectors.npy'
        self.search('--embeddings', out)
        vectors = self.read_npy(out)
        self.assertEqual(len(vectors), len(PASSAGES))
        self.assertEqual(sorted(os.listdir(self.folder)), ['corpus.txt', 'vectors.npy'])
        for vector in vectors:
            self.assertEqual(len(vector), 384)
            self.assertAlmostEqual(sum(x * x for x in vector), 1, delta=1e-5)
        # The rows are in the corpus's order, whatever order the passages were embedded in.
        self.corpus = self.write('reversed.txt', '\n'.join(reversed(PASSAGES)))
        self.search('--embeddings', out)
        for one, other in zip(vectors, reversed(self.read_npy(out))):
            self.assertLess(max(abs(a - b) for a, b in zip(one, other)), 2e-5)

    def test_lines(self):
        """Byte order mark, CR LF, blank lines and a missing last line end."""
        self.corpus = self.write('windows.txt', b'\xef\xbb\xbffirst passage\r\n\r\n  \t\r\nsecond passage')
        output = self.search('--query', 'second passage')
        self.assertRegex(output, r'1\. \d\.\d+  line 4\n +second passage\n')
        self.assertIn('2 sentences', output)

    def test_long_passage_is_shown_in_one_line(self):
        self.corpus = self.write('long.txt', 'many words \x1b[31m ' * 300)
        for line in self.search().splitlines():
            self.assertLess(len(line), 130)
            self.assertNotIn('\x1b', line)

    def test_documentation(self):
        docs = self.folder / 'project'
        (docs / 'examples' / 'one').mkdir(parents=True)
        (docs / 'README.md').write_text(
            '# Heading that is left out\n\nA paragraph about swimming\nin cold northern lakes.\n\n'
            '```\ncode that is left out entirely\n```\n\n| a | table that is left out |\n'
            '- An item about baking fresh rye bread.\n- Another one about repairing old clocks.\n')
        (docs / 'examples' / 'one' / 'README.md').write_text('This example explains how to tune a violin.\n')
        (docs / 'docs').mkdir()
        (docs / 'docs' / 'page.md').write_text('A page about the moons of Jupiter.\n')
        result = run('--model', MODEL, '--docs', docs, '--query', 'swimming in a lake', '--top', '9')
        output = result.stdout.decode()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn('5 sentences', output)
        self.assertNotIn('left out', output)
        self.assertRegex(output, r'1\. \d\.\d+  README.md:3\n +A paragraph about swimming in cold northern lakes\.')

    def test_help(self):
        result = run('--help')
        self.assertEqual(result.returncode, 0)
        self.assertTrue(result.stdout.startswith(b'Usage: sentence_search'))
        self.assertEqual(result.stderr, b'')

    def test_kokkos_arguments(self):
        self.search('--kokkos-num-threads=1')

    # --- what it refuses ----------------------------------------------------------------------------------

    def test_usage(self):
        self.refused(2, 'unknown argument "--quary"', '--quary', 'x')
        self.refused(2, 'unknown argument "stray"', 'stray')
        self.refused(2, '--query needs a value', '--query')
        self.refused(2, '--dtype is float32, bfloat16 or float16, not "float8"', '--dtype', 'float8')
        for top in ('0', '-1', 'five', '3x', '1.5', '', '99999999999999999999999'):
            self.refused(2, '--top needs a whole number from 1 on', '--top', top)
        self.refused(2, '--corpus needs a path', '--corpus', '')
        self.refused(2, 'exclude each other', '--corpus', self.corpus, '--docs', self.folder)

    def test_query(self):
        for query in ('', '  ', ' \t\n'):
            self.refused(2, 'the query is empty', '--corpus', self.corpus, '--query', query)
        self.refused(1, 'control characters', '--corpus', self.corpus, '--query', '\x01\x02')
        self.refused(1, 'the query is no valid UTF-8 at byte offset 2', '--corpus', self.corpus,
                     '--query', b'ab\xff')

    def test_corpus(self):
        self.refused(1, 'no such file', '--corpus', self.folder / 'missing.txt')
        self.refused(1, 'is a directory', '--corpus', self.folder)
        for content in ('', '\n', ' \n\t\r\n'):
            self.refused(1, 'holds no passage', '--corpus', self.write('empty.txt', content))
        self.refused(1, 'line 2 is no valid UTF-8 at byte offset 3',
                     '--corpus', self.write('invalid.txt', b'fine\nabc\xe2\x28\xa1\n'))
        self.refused(1, 'no such file', '--corpus', self.folder / 'two\nlines')
        if os.geteuid() != 0:
            secret = self.write('secret.txt', 'text')
            secret.chmod(0)
            self.refused(1, 'Permission denied', '--corpus', secret)

    def test_endless_and_huge_inputs(self):
        """One line that names the limit, within the memory of a small machine."""
        corpus = ('--corpus', self.corpus)
        self.refused(1, '/dev/zero: line 1 is longer than 1 MiB', '--corpus', '/dev/zero', memory=1)
        self.refused(1, 'line 2 is longer than 1 MiB', '--corpus', self.write('long.txt', b'a\n' + b'b' * (2 << 20)))
        for command, reason in (('yes', 'there are more than 1000000 passages'),
                                ('yes ""', 'is larger than 256 MiB')):
            with subprocess.Popen(command, shell=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as endless:
                self.refused(1, reason, '--corpus', '/dev/stdin', memory=1, stdin=endless.stdout)
                endless.stdout.close()
        docs = self.folder / 'project'
        docs.mkdir()
        (docs / 'README.md').write_text('a line of a paragraph\n' * 60000)
        self.refused(1, 'README.md: the paragraph from line 1 on is longer than 1 MiB', '--docs', docs)
        model = self.model_with(config=None)
        (model / 'config.json').symlink_to('/dev/zero')
        self.refused(1, 'config.json: is larger than 1 MiB', *corpus, model=model, memory=1)
        model = self.model_with(vocab=None)
        (model / 'vocab.txt').symlink_to('/dev/zero')
        self.refused(1, 'vocab.txt: line 1 is longer than 1 MiB', *corpus, model=model, memory=1)
        self.refused(1, 'vocab.txt: holds more than 1048576 tokens', *corpus,
                     model=self.model_with(vocab=b'\n'.join(b'%d' % i for i in range(1100000))))
        model = self.model_with(model=None)
        (model / 'model.safetensors').symlink_to('/dev/zero')
        self.refused(1, 'model.safetensors: is not a regular file', *corpus, model=model)

    def test_a_long_line_without_spaces_is_cut(self):
        for text in ('[SEP]', 'a,', '\u4e2d'):
            self.corpus = self.write('long.txt', text * (1000000 // len(text.encode())))
            self.assertIn('1 sentences, 256 tokens', self.search())

    def test_docs(self):
        self.refused(1, 'no such directory', '--docs', self.folder / 'missing')
        self.refused(1, 'no such directory', '--docs', self.corpus)
        empty = self.folder / 'nothing'
        empty.mkdir()
        self.refused(1, 'holds no documentation', '--docs', empty)

    def test_embeddings_that_cannot_be_written(self):
        for out in (self.folder, self.folder / 'missing' / 'out.npy', self.corpus / 'out.npy'):
            self.refused(1, str(out), '--corpus', self.corpus, '--embeddings', out)
        if pathlib.Path('/dev/full').exists():
            self.refused(1, 'cannot be written', '--corpus', self.corpus, '--embeddings', '/dev/full')
        # A run that fails later leaves nothing behind.
        self.refused(1, 'UTF-8', '--corpus', self.write('invalid.txt', b'\xff'),
                     '--embeddings', self.folder / 'out.npy')
        self.assertEqual(sorted(os.listdir(self.folder)), ['corpus.txt', 'invalid.txt'])

    def test_model(self):
        corpus = ('--corpus', self.corpus)
        self.refused(1, 'config.json: no such file', *corpus, model=self.folder)
        self.refused(1, 'no such file', *corpus, model=self.folder / 'missing')
        self.refused(2, '--model needs a path', *corpus, model='')
        self.refused(1, 'vocab.txt: no such file', *corpus, model=self.model_with(vocab=None))
        self.refused(1, 'the token [UNK] is missing', *corpus, model=self.model_with(vocab=b'[PAD]\na\nb\n'))
        self.refused(1, 'line 3 repeats a token', *corpus, model=self.model_with(vocab=b'[PAD]\na\na\n'))
        self.refused(1, 'but config.json says 30522', *corpus,
                     model=self.model_with(vocab=b'[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n'))
        self.refused(1, 'no valid JSON', *corpus, model=self.model_with(config=b'{'))
        deeper = (MODEL / 'config.json').read_bytes().replace(b'"num_hidden_layers": 6', b'"num_hidden_layers": 7')
        self.refused(1, 'encoder.layer.6.attention.self.query.weight is missing', *corpus,
                     model=self.model_with(config=deeper))
        wider = (MODEL / 'config.json').read_bytes().replace(b'"hidden_size": 384', b'"hidden_size": 768')
        self.refused(1, 'but must be', *corpus, model=self.model_with(config=wider))

    def test_weights(self):
        with open(MODEL / 'model.safetensors', 'rb') as file:
            start = file.read(20000)
        for content, reason in ((b'', 'is truncated'), (b'\x10\0\0', 'is truncated'), (start[:5000], 'is truncated'),
                                (start, 'truncated?'), (b'\xff' * 64, 'header length'),
                                (b'\x08' + bytes(7) + b'not JSON', 'no valid JSON'),
                                (b'\x08' + bytes(7) + b'{}      ', 'is missing')):
            self.refused(1, reason, '--corpus', self.corpus, model=self.model_with(model=content))
        self.refused(1, 'model.safetensors: no such file', '--corpus', self.corpus,
                     model=self.model_with(model=None))


if __name__ == '__main__':
    unittest.main()
