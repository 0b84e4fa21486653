# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""flash_attn_with_kvcache: all that the flash-attn package's function takes."""

import itertools
import unittest

import attikos
import ml_dtypes
import numpy as np
import oracles
from attikos import flash_attn_interface as version_3
from attikos.flash_attn import flash_attn_varlen_func, flash_attn_with_kvcache

try:
    import torch
except ImportError:
    torch = None


def normal(*shape, seed=17, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32).astype(dtype)


def first(x):
    return x.swapaxes(1, 2)


class Case:
    """Caches of 3 sequences of at most 24 positions, 2 key heads for 4 query heads, and what the call is to give."""

    def __init__(self, dtype=np.float32, seqlen_q=3, new=3, storage="plain"):
        self.q = normal(3, seqlen_q, 4, 16, seed=1, dtype=dtype)
        self.new_k, self.new_v = (normal(3, new, 2, 16, seed=s, dtype=dtype) for s in (2, 3))
        self.cache_k, self.cache_v = (normal(3, 24, 2, 16, seed=s, dtype=dtype) for s in (4, 5))
        self.lengths = np.array([5, 0, 21], np.int32)
        self.storage = storage
        self.options = {}
        self.k, self.v = self.cache_k.copy(), self.cache_v.copy()
        if storage == "index":  # the sequences are rows 4, 0, 2 of a cache of five
            self.rows = np.array([4, 0, 2], np.int32)
            self.k, self.v = (self.spread(x) for x in (self.k, self.v))
            self.options["cache_batch_idx"] = self.rows
        elif storage == "pages":
            self.table = np.random.default_rng(0).permutation(14)[:12].reshape(3, 4).astype(np.int32)
            self.k, self.v = (self.paged(x) for x in (self.k, self.v))
            self.options["block_table"] = self.table

    def spread(self, cache):
        wide = np.full((5, *cache.shape[1:]), 7).astype(cache.dtype)
        wide[self.rows] = cache
        return wide

    def paged(self, cache):
        pages = np.full((14, 6, *cache.shape[2:]), 7).astype(cache.dtype)
        pages[self.table] = cache.reshape(3, 4, 6, *cache.shape[2:])
        return pages

    def stored(self, cache):
        """A cache of the call as [batch, positions, heads, d]."""
        if self.storage == "index":
            return cache[self.rows]
        return cache[self.table].reshape(3, 24, *cache.shape[2:]) if self.storage == "pages" else cache

    def others_untouched(self):
        unused = np.ones(len(self.k), bool)
        if self.storage == "plain":
            return True
        unused[self.rows if self.storage == "index" else self.table.ravel()] = False
        return (self.k[unused] == 7).all() and (self.v[unused] == 7).all()


class WithCache(unittest.TestCase):
    def check_attention(self, case, q, got, lengths, what, causal=False, window=(-1, -1), left=None, **terms):
        """Output and log-sum-exp against float64 on what now stands in the caches."""
        out, lse = got
        i, j = np.arange(q.shape[1])[:, None], np.arange(24)[None]
        n = lengths[:, None, None, None]
        off = n - q.shape[1]
        keep = j < n
        if causal:
            keep = keep & (j <= i + off)
        if window[0] >= 0:
            keep = keep & (j >= i + off - window[0])
        if window[1] >= 0:
            keep = keep & (j <= i + off + window[1])
        if left is not None:
            keep = keep & (j >= left[:, None, None, None])
        if "alibi_slopes" in terms:
            terms["added"] = -terms.pop("alibi_slopes")[:, None, None] * np.abs(i + off - j)
        exact, bound, exact_lse, lse_bound = oracles.attention(
            first(q), first(case.stored(case.k)), first(case.stored(case.v)), keep=keep, parts=24, **terms
        )
        self.assertTrue(out.flags.c_contiguous)
        oracles.check(self, first(out), exact, bound, what)
        oracles.check(self, lse, exact_lse, lse_bound, what + " lse")

    def check_appended(self, case, what, tables=None, interleaved=True):
        """New keys and values stand behind the old ones, and nothing else has changed."""
        new = case.new_k.shape[1]
        k, v = case.stored(case.k), case.stored(case.v)
        positions = case.lengths[:, None] + np.arange(new)
        exact, bound = oracles.wide(first(case.new_k)), 0 * oracles.wide(first(case.new_k))
        if tables is not None:
            exact, bound = oracles.rope(first(case.new_k), *tables, interleaved, positions)
        for b, n in enumerate(case.lengths):
            oracles.check(self, first(k)[b, :, n : n + new], exact[b], bound[b], what)
            np.testing.assert_array_equal(v[b, n : n + new], case.new_v[b], what)
            for now, before in ((k, case.cache_k), (v, case.cache_v)):
                np.testing.assert_array_equal(now[b, :n], before[b, :n], what)
                np.testing.assert_array_equal(now[b, n + new :], before[b, n + new :], what)
        self.assertTrue(case.others_untouched(), what)

    def rotated_queries(self, case, tables, interleaved, local):
        """The queries as the call has them: the very bits, from the function that test_cache.py holds to bounds."""
        full = [np.repeat(t, 2, 1) if interleaved else np.concatenate([t, t], 1) for t in tables]
        none = np.zeros((3, 1, 24, 16), case.q.dtype)
        rotated = attikos.append_kv(
            none[:, :, :0], none[:, :, :0], none, none.copy(), cache_lengths=case.lengths, cos=full[0], sin=full[1],
            interleaved=interleaved, q=first(case.q), queries_share_position=not local,
        )  # fmt: skip
        at = case.lengths[:, None] + (np.arange(case.q.shape[1]) if local else np.zeros(case.q.shape[1], int))
        oracles.check(self, rotated, *oracles.rope(first(case.q), *tables, interleaved, at), "queries")
        return first(rotated)

    def test_appending(self):
        for storage, dtype in itertools.product(("plain", "index", "pages"), oracles.FLOATING):
            case = Case(dtype, storage=storage)
            lengths = case.lengths.copy()
            got = flash_attn_with_kvcache(
                case.q, case.k, case.v, case.new_k, case.new_v, cache_seqlens=lengths, causal=True,
                return_softmax_lse=True, **case.options,
            )  # fmt: skip
            what = f"{storage} {np.dtype(dtype)}"
            np.testing.assert_array_equal(lengths, case.lengths)
            self.check_appended(case, what)
            self.check_attention(case, case.q, got, case.lengths + 3, what, causal=True)

    def test_rotary(self):
        masks = (dict(), dict(causal=True), dict(window_size=(4, 1)))
        kinds = ((np.float32, 8), (np.float32, 3), (np.float16, 8), (ml_dtypes.bfloat16, 3))
        for storage, interleaved, mask, (dtype, width) in itertools.product(
            ("plain", "index", "pages"), (True, False), masks, kinds
        ):
            case = Case(dtype, storage=storage)
            tables = [normal(30, width, seed=s, dtype=dtype) for s in (6, 7)]
            q = case.q.copy()
            got = flash_attn_with_kvcache(
                q, case.k, case.v, case.new_k, case.new_v, *tables, case.lengths, rotary_interleaved=interleaved,
                return_softmax_lse=True, **mask, **case.options,
            )  # fmt: skip
            what = f"{storage} {interleaved} {mask} {np.dtype(dtype)} {width}"
            np.testing.assert_array_equal(q, case.q, what)
            self.check_appended(case, what, tables, interleaved)
            rotated = self.rotated_queries(case, tables, interleaved, bool(mask))
            options = {"causal": mask.get("causal", False), "window": mask.get("window_size", (-1, -1))}
            self.check_attention(case, rotated, got, case.lengths + 3, what, **options)

    def test_terms_and_many_queries(self):
        """One query, a few, and more than are decoded."""
        slopes = np.array([0.5, 0.25, 1, 2], np.float32)
        for storage, seqlen_q in itertools.product(("plain", "index", "pages"), (1, 3, 20)):
            for given, mine in (
                (dict(), dict()),
                (dict(causal=True, softmax_scale=0.2), dict(causal=True, scale=0.2)),
                (dict(window_size=(3, 0)), dict(window=(3, 0))),
                (dict(window_size=(-1, 2)), dict(window=(-1, 2))),
                (dict(softcap=0.7), dict(softcap=0.7)),
                (dict(alibi_slopes=slopes, causal=True), dict(alibi_slopes=slopes, causal=True)),
                (dict(num_splits=4), dict()),
                (dict(num_splits=1), dict()),
            ):
                case = Case(seqlen_q=seqlen_q, storage=storage)
                got = flash_attn_with_kvcache(
                    case.q, case.k, case.v, cache_seqlens=case.lengths, return_softmax_lse=True, **given, **case.options
                )
                self.check_attention(case, case.q, got, case.lengths, f"{storage} {seqlen_q} {given}", **mine)
                self.assertTrue(case.others_untouched())
        a, b = (
            flash_attn_with_kvcache(case.q, case.k, case.v, cache_seqlens=case.lengths, alibi_slopes=s, **case.options)
            for s in (slopes, np.stack([slopes] * 3))
        )
        np.testing.assert_array_equal(a, b)

    def test_one_length(self):
        for n in (7, np.int64(7)):
            case = Case()
            case.lengths = np.full(3, 7, np.int32)
            got = flash_attn_with_kvcache(
                case.q, case.k, case.v, case.new_k, case.new_v, cache_seqlens=n, causal=True, return_softmax_lse=True
            )
            self.check_appended(case, "number")
            self.check_attention(case, case.q, got, case.lengths + 3, "number", causal=True)
        case = Case()
        got = flash_attn_with_kvcache(case.q, case.k, case.v, return_softmax_lse=True)
        self.check_attention(case, case.q, got, np.full(3, 24), "whole cache")

    def test_padding_on_the_left(self):
        for storage, seqlen_q in itertools.product(("plain", "index", "pages"), (2, 20)):
            for left in (np.array([2, 0, 21], np.int32), [0, 0, 0], np.array([5, 0, 3])):
                case = Case(seqlen_q=seqlen_q, storage=storage)
                tables = [normal(44, 8, seed=s) for s in (6, 7)]
                given = np.asarray(left)
                if storage == "plain":  # what lies before the first position is poison
                    for b, n in enumerate(given):
                        case.k[b, :n] = case.v[b, :n] = np.nan
                got = flash_attn_with_kvcache(
                    case.q, case.k, case.v, case.new_k, case.new_v, *tables, case.lengths, cache_leftpad=left, causal=True,
                    return_softmax_lse=True, **case.options,
                )  # fmt: skip
                case.k, case.v = np.nan_to_num(case.k), np.nan_to_num(case.v)
                rotated = self.rotated_queries(case, tables, True, True)
                self.check_attention(case, rotated, got, case.lengths + 3, f"{storage} {left}", causal=True, left=given)

    def test_decoding_step_by_step_is_one_causal_pass(self):
        """Token by token into a paged cache, against one pass over the whole sequence."""
        q, k, v = normal(2, 13, 4, 16), normal(2, 13, 2, 16, seed=1), normal(2, 13, 2, 16, seed=2)
        cos, sin = np.cos(a := np.outer(np.arange(16), 1 / 100 ** (np.arange(8) / 8))), np.sin(a)
        cos, sin = cos.astype(np.float32), sin.astype(np.float32)
        pages_k, pages_v = np.full((8, 4, 2, 16), np.nan, np.float32), np.full((8, 4, 2, 16), np.nan, np.float32)
        table = np.array([[3, 1, 7, 0], [2, 6, 4, 5]], np.int32)
        steps = [
            flash_attn_with_kvcache(
                q[:, t : t + 1], pages_k, pages_v, k[:, t : t + 1], v[:, t : t + 1], cos, sin, cache_seqlens=t,
                block_table=table, causal=True, rotary_interleaved=False,
            )
            for t in range(13)
        ]  # fmt: skip
        full = [np.concatenate([t, t], 1) for t in (cos, sin)]
        rotated = [attikos.rope(first(x), *full) for x in (q, k)]
        exact, bound, *_ = oracles.attention(*rotated, first(v), True, parts=13)
        oracles.check(self, first(np.concatenate(steps, 1)), exact, bound)

    def test_refusals_leave_the_cache(self):
        case = Case()
        tables = [normal(24, 8, seed=s) for s in (6, 7)]
        base = dict(q=case.q, k_cache=case.k, v_cache=case.v, k=case.new_k, v=case.new_v, cache_seqlens=case.lengths)
        frozen = case.k.copy()
        frozen.flags.writeable = False
        with_table = dict(block_table=np.zeros((3, 1), np.int32))
        for error, change in (
            (attikos.ArgumentError, dict(v=None)),
            (attikos.ArgumentError, dict(cache_seqlens=None)),
            (attikos.ArgumentError, dict(k=None, v=None, rotary_cos=tables[0], rotary_sin=tables[1])),
            (attikos.ArgumentError, dict(rotary_cos=tables[0])),
            (attikos.ShapeMismatchError, dict(rotary_cos=tables[0][:23], rotary_sin=tables[1][:23])),
            (attikos.ShapeMismatchError, dict(rotary_cos=tables[0], rotary_sin=tables[1][:, :7])),
            (attikos.ShapeMismatchError, dict(cache_seqlens=[5, 0, 22])),
            (attikos.ShapeMismatchError, dict(cache_seqlens=[5, 0, -1])),
            (attikos.ShapeMismatchError, dict(cache_seqlens=[5, 0])),
            (attikos.ShapeMismatchError, dict(cache_seqlens=22)),
            (attikos.ArgumentError, dict(cache_batch_idx=[0, 1, 3])),
            (attikos.ShapeMismatchError, dict(cache_batch_idx=[0, 1])),
            (attikos.UnsupportedError, dict(cache_batch_idx=[0, 1, 2], **with_table)),
            (attikos.ShapeMismatchError, dict(k=None, v=None, cache_seqlens=None, **with_table)),
            (attikos.ShapeMismatchError, dict(cache_leftpad=[0, 0, 25])),
            (attikos.ShapeMismatchError, dict(q=case.q[0])),
            (attikos.ShapeMismatchError, dict(k=case.new_k[:, :, :1])),
            (attikos.UnsupportedDtypeError, dict(k=case.new_k.astype(np.float16))),
            # what attention finds wrong is found before the cache is written
            (attikos.ShapeMismatchError, dict(alibi_slopes=np.ones(3, np.float32))),
            (attikos.ArgumentError, dict(softcap=-1.0)),
            (attikos.ShapeMismatchError, dict(q=case.q[:, :, :3])),
            (attikos.UnsupportedDtypeError, dict(q=case.q.astype(np.float64))),
            (attikos.ArgumentError, dict(k_cache=frozen)),
            (attikos.ArgumentError, dict(v_cache=case.k)),
        ):  # fmt: skip
            with self.assertRaises(error, msg=str(change)):
                flash_attn_with_kvcache(**{**base, **change})
        with self.assertRaisesRegex(attikos.ArgumentError, "flash_attn_with_kvcache: output v_cache shares memory with k;"):
            flash_attn_with_kvcache(**{**base, "k": case.v[:, 4:7]})
        np.testing.assert_array_equal(case.k, case.cache_k)
        np.testing.assert_array_equal(case.v, case.cache_v)
        np.testing.assert_array_equal(frozen, case.cache_k)

    def test_other_kinds_of_arrays(self):
        """Arrays that only speak DLPack come through every step, and results are of their kind."""
        case, again = Case(storage="pages"), Case(storage="pages")
        tables = [normal(24, 4, seed=s) for s in (6, 7)]
        expected = flash_attn_with_kvcache(
            again.q, again.k, again.v, again.new_k, again.new_v, *tables, again.lengths, block_table=again.table
        )

        class Foreign:
            def __init__(self, array):
                self.array, self.shape = array, array.shape

            def __dlpack__(self, **options):
                return self.array.__dlpack__(**options)

            def __dlpack_device__(self):
                return self.array.__dlpack_device__()

        arrays = [Foreign(x) for x in (case.q, case.k, case.v, case.new_k, case.new_v, *tables, case.lengths)]
        out = flash_attn_with_kvcache(*arrays, block_table=Foreign(case.table))
        np.testing.assert_array_equal(np.from_dlpack(out), expected)
        np.testing.assert_array_equal(case.k, again.k)
        with self.assertRaises(attikos.ArgumentError):
            case.k.flags.writeable = False
            flash_attn_with_kvcache(*arrays, block_table=Foreign(case.table))


POOL = 4


def paged_calls(array, **checked):
    """name of the table: functions of a page table [2, 2] over a pool of four pages of 6 positions, and the caches; `array`
    makes the caller's kind of array, the table's included. Sequences end at 10 and 4, with new keys at 11 and 5."""
    pools = [normal(POOL, 6, 2, 16, seed=s) for s in (1, 2)]
    heads_first = [np.ascontiguousarray(first(x)) for x in pools]
    ours, theirs = [array(x) for x in heads_first], [array(x) for x in pools]
    new = array(normal(2, 1, 2, 16, seed=3))
    new_first = array(np.ascontiguousarray(first(normal(2, 1, 2, 16, seed=3))))
    lengths = array(np.array([10, 4], np.int32))
    starts = array(np.arange(3, dtype=np.int32))
    ends = array(np.array([0, 10, 14], np.int32))

    few, many = array(normal(2, 1, 4, 16)), array(normal(2, 20, 4, 16))
    few_first = array(np.ascontiguousarray(first(normal(2, 1, 4, 16))))
    packed = array(normal(2, 4, 16))
    calls = {
        "page_table": [
            lambda t: attikos.attention(few_first, *ours, lengths_kv=lengths, page_table=t),
            lambda t: attikos.attention(few_first, *ours, lengths_kv=lengths, page_table=t, kernel="portable"),
            lambda t: attikos.decode(few_first, *ours, lengths_kv=lengths, page_table=t),
            lambda t: attikos.append_kv(new_first, new_first, *ours, cache_lengths=lengths, page_table=t),
            lambda t: version_3.flash_attn_with_kvcache(
                packed, *theirs, cache_seqlens=lengths, page_table=t, cu_seqlens_q=starts, **checked
            ),
            lambda t: version_3.flash_attn_with_kvcache(few, *theirs, cache_seqlens=lengths, page_table=t,
                                                        attention_chunk=8, **checked),
        ],
        "block_table": [
            lambda t: flash_attn_with_kvcache(few, *theirs, cache_seqlens=lengths, block_table=t, **checked),
            lambda t: flash_attn_with_kvcache(many, *theirs, cache_seqlens=lengths, block_table=t, **checked),
            lambda t: flash_attn_with_kvcache(few, *theirs, new, new, cache_seqlens=lengths, block_table=t, **checked),
            lambda t: flash_attn_varlen_func(packed, *theirs, starts, ends, 1, 10, block_table=t, **checked),
        ],
    }  # fmt: skip
    return calls, [*ours, *theirs]


class PageNumbers(unittest.TestCase):
    """Numbers of pages that the cache does not have, where a sequence has positions."""

    def check_all(self, array, numbers, **checked):
        """array: of NumPy's; numbers: the other way."""
        calls, caches = paged_calls(array, **checked)
        before = [numbers(x).copy() for x in caches]
        for name, functions in calls.items():
            for at, call in enumerate(functions):
                for (b, i), bad in itertools.product(((0, 0), (0, 1), (1, 0)), (9, POOL, -3, 2**31 - 1)):
                    table = np.array([[3, 1], [0, -7]], np.int32)  # behind a sequence's end there may be anything
                    table[b, i] = bad
                    words = rf"{name} holds {bad} at \[{b}, {i}\]; expected numbers in \[0, {POOL}\)"
                    with self.assertRaisesRegex(attikos.ShapeMismatchError, words, msg=f"{name} {at}"):
                        call(array(table))
        for now, then in zip(caches, before):
            np.testing.assert_array_equal(numbers(now), then)
        for call in itertools.chain(*calls.values()):
            call(array(np.array([[3, 1], [0, -7]], np.int32)))

    def test_of_numpy(self):
        self.check_all(lambda x: x, lambda x: x)

    @unittest.skipIf(torch is None, "needs PyTorch")
    def test_of_torch(self):
        self.check_all(torch.from_numpy, lambda x: x.numpy())

    @unittest.skipUnless(torch and torch.cuda.is_available() and attikos.has_cuda(), "needs a CUDA device and PyTorch")
    def test_on_a_device_with_check(self):
        self.check_all(lambda x: torch.from_numpy(x).cuda(), lambda x: x.cpu().numpy(), check=True)

    def test_lists(self):
        case = Case(storage="pages")
        with self.assertRaisesRegex(attikos.ShapeMismatchError, r"flash_attn_with_kvcache: block_table holds 14 at \[2, 0\]"):
            flash_attn_with_kvcache(
                case.q, case.k, case.v, cache_seqlens=[5, 0, 21], block_table=[[0, 1, 2, 3], [-1] * 4, [14, 5, 6, 7]]
            )

    def test_without_lengths_every_page_is_in_use(self):
        k = normal(POOL, 2, 6, 16)
        with self.assertRaisesRegex(attikos.ShapeMismatchError, r"decode: page_table holds 4 at \[0, 1\]"):
            attikos.decode(normal(1, 4, 1, 16), k, k, page_table=np.array([[0, 4]], np.int32))
        with self.assertRaisesRegex(attikos.ShapeMismatchError, r"attention: page_table holds -1 at \[0, 0\]"):
            attikos.attention(normal(1, 4, 1, 16), k, k, page_table=np.array([[-1, 3]], np.int32))

    def test_unchecked_pages_are_clamped(self):
        k, q = normal(POOL, 2, 6, 16), normal(1, 4, 1, 16)
        one, other = (
            attikos.decode(q, k, k, page_table=np.array([pages], np.int32), check=False) for pages in ([9, -3], [3, 0])
        )
        np.testing.assert_array_equal(one, other)


if __name__ == "__main__":
    unittest.main()
