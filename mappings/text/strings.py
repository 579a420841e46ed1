"""Text: TfIdfVectorizer on integers and strings, StringNormalizer without case change, SKIP_GRAM.

TFLite's kernels compare, gather, slice and reshape strings. Ops that create other strings only ONNX can express: the
only kernel that does so, SKIP_GRAM, reads one string and splits it at whitespace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from onnxtfl.build.qlinear import lift_op
from onnxtfl.build.rows import row
from onnxtfl.build.sequences import select_by_if
from onnxtfl.build.sizes import slice_axes
from onnxtfl.errors import UnsupportedError
from onnxtfl.ir import ops
from onnxtfl.ir.budget import check_count, check_elements
from onnxtfl.ir.builder import Builder
from onnxtfl.ir.data import Array
from onnxtfl.ir.formula import Term
from onnxtfl.ir.graph import Node, Value, constant
from onnxtfl.ir.reshape import concatenated, reshape, unsqueezed
from onnxtfl.ir.types import DType
from onnxtfl.rewriting.registry import lift_onnx, lift_tfl, only_onnx, requires_opset

_FIRST = "run it before the model and make its result an input (`inputs`)"
only_onnx(ops.StringConcat, ops.StringSplit, ops.RegexFullMatch, hint=_FIRST)
row(ops.StringSplit, onnx="StringSplit", since=(20,), attributes="delimiter maxsplit")
row(ops.StringConcat, onnx="StringConcat", since=(20,))
row(ops.RegexFullMatch, onnx="RegexFullMatch", since=(20,), attributes="pattern")


@requires_opset(ops.StringSplit)
@requires_opset(ops.StringConcat)
@requires_opset(ops.RegexFullMatch)
def _opset_of_strings(node: Node) -> int:
    return 20


@lift_onnx("StringNormalizer", since=(10,))
def _string_normalizer(b: Builder, node: Node) -> Value:
    """Return the strings [C] or [1, C] without stopwords; one empty string if none is left."""
    x, words = node.operand(0), [str(word) for word in node.attr("stopwords", ())]
    if x.rank not in (1, 2):
        raise ValueError(f"strings of rank {x.rank}, 1 or 2 expected")
    if node.attr("case_change_action", "NONE") != "NONE":
        raise UnsupportedError("TFLite has no kernel that changes the case of strings", hint=_FIRST)
    if not words:
        return x
    if not node.attr("is_case_sensitive", 0) and any(word.lower() != word.upper() for word in words):
        raise UnsupportedError("TFLite has no kernel for case-insensitive comparison of strings", hint=_FIRST)
    flat = x if x.rank == 1 else reshape(b, x, (*x.shape[1:],), x)
    found = Term(b, unsqueezed(b, flat, [1])).equals(Term(b, constant(np.asarray(words, object)))).to(DType.INT32)
    stopped = found.reduce("max", [1], keepdims=False)
    kept = lift_op(b, "Compress", 11, [flat, stopped.equals(0).value], {"axis": 0})
    some = stopped.reduce("min", [0], keepdims=True).equals(0).value
    result = select_by_if(b, some, kept, constant(np.asarray([""], object)))
    return result if x.rank == 1 else unsqueezed(b, result, [0])


@lift_onnx("TfIdfVectorizer", since=(9,))
def _tf_idf(b: Builder, node: Node) -> Value:
    """Count each n-gram of the pool in each row, by comparing the shifted row with all n-grams of one length.

        count[g] = sum over lengths n, distances d, places p of and over j < n of x[p + j d] == pool[g, j]

    Result [rows,] columns: n-gram g is counted in column `ngram_indexes`[g]. x: [rows,] C, integers or strings.
    """
    x = node.operand(0)
    if x.rank not in (1, 2):
        raise ValueError(f"sequences of rank {x.rank}, 1 or 2 expected")
    pool = _Pool(node)
    rows = x if x.rank == 2 else reshape(b, x, (1, *x.shape), x)
    tokens = _numbered(b, rows, pool)
    counts = [term for n in range(pool.shortest, pool.longest + 1) for term in _counts(tokens, pool, n)]
    if not counts:
        raise UnsupportedError("a pool without n-grams of the counted lengths", code="E-OP-006")
    result = _columns(b, _weighted(b, counts, pool), pool)
    return result if x.rank == 2 else reshape(b, result, (pool.columns,))


class _Pool:
    """The attributes of a node. `tokens`: the n-grams of all lengths, concatenated, as int64 or strings."""

    def __init__(self, node: Node) -> None:
        strings, integers = node.attr("pool_strings", None), node.attr("pool_int64s", None)
        if (strings is None) == (integers is None):
            raise ValueError("one of pool_strings and pool_int64s expected")
        if (node.operand(0).dtype is DType.STRING) != (strings is not None):
            raise ValueError("the pool and the elements differ in type")
        self.tokens = np.asarray(integers if strings is None else strings, np.int64 if strings is None else object)
        self.shortest, self.longest = int(node.attr("min_gram_length")), int(node.attr("max_gram_length"))
        self.skips, self.mode = int(node.attr("max_skip_count")), node.attr("mode")
        self.indexes = np.asarray(node.attr("ngram_indexes"), np.int64)
        self.starts = [*node.attr("ngram_counts"), len(self.tokens)]
        self.weights = np.asarray(node.attr("weights", None) or np.ones(len(self.indexes)), np.float32)
        self._check()
        self.columns = int(self.indexes.max()) + 1
        check_elements(self.columns * len(self.indexes), "the columns of the n-grams")

    def _check(self) -> None:
        """Raise ValueError if the attributes are inconsistent."""
        lengths = enumerate(pairwise(self.starts), 1)
        whole = all(0 <= a <= z and (z - a) % n == 0 for n, (a, z) in lengths)
        if self.mode not in ("TF", "IDF", "TFIDF"):
            raise ValueError(f"mode is {self.mode!r}, not TF, IDF or TFIDF")
        if not 0 < self.shortest <= self.longest < len(self.starts) or self.skips < 0:
            raise ValueError("lengths of n-grams that the pool does not have")
        count = sum((z - a) // n for n, (a, z) in enumerate(pairwise(self.starts), 1)) if whole else -1
        if len(self.indexes) != count or not count or self.indexes.min() < 0 or len(self.weights) != count:
            raise ValueError("ngram_indexes, weights and ngram_counts do not fit the pool")

    def grams(self, length: int) -> Array:
        """Return the n-grams of one length as rows."""
        return self.tokens[self.starts[length - 1] : self.starts[length]].reshape(-1, length)

    def counted(self, vector: Array) -> Array:
        """Return the elements of `vector` (one per n-gram) whose n-grams have a counted length."""
        sizes = [(z - a) // n for n, (a, z) in enumerate(pairwise(self.starts), 1)]
        return vector[sum(sizes[: self.shortest - 1]) : sum(sizes[: self.longest])]


def _numbered(b: Builder, rows: Value, pool: _Pool) -> Term:
    """Return tokens [n, c] as int32: 1 + their index among the distinct tokens of the pool, 0 if absent."""
    distinct = np.asarray(sorted(set(pool.tokens.tolist())), pool.tokens.dtype)
    pool.tokens = np.searchsorted(distinct, pool.tokens) + 1
    x = Term(b, rows) if rows.dtype is DType.STRING else Term(b, rows).to(DType.INT64)
    found = Term(b, unsqueezed(b, x.value, [2])).equals(Term(b, constant(distinct))).to(DType.INT32)
    numbered = found.apply(ops.Mul, np.arange(1, len(distinct) + 1, dtype=np.int32))
    return numbered.reduce("sum", [2], keepdims=False)


def _counts(tokens: Term, pool: _Pool, length: int) -> list[Term]:
    """Return counts as floats [rows, n-grams of one length], summed over the distances of tokens."""
    grams = pool.grams(length)
    if not len(grams):
        return []
    found = [_count(tokens, grams, d) for d in range(1, (1 if length == 1 else pool.skips + 1) + 1)]
    total = found[0]
    for term in found[1:]:
        total = total + term
    return [total]


def _count(tokens: Term, grams: Array, distance: int) -> Term:
    """Count each n-gram [g, n] in rows [r, c] of tokens at one distance: floats [r, g].

    Rows are padded with 0, which is not a token, so that shifted rows keep their length.
    """
    b, reach = tokens.b, (grams.shape[1] - 1) * distance
    zeros = np.asarray([[0, 0], [0, reach]])
    padded = b(ops.Pad, tokens.value, zeros) if reach else tokens.value
    found: Term | None = None
    for j, column in enumerate(grams.T):
        end = j * distance - reach
        shifted = slice_axes(b, padded, {1: slice(j * distance, end or None)})
        same = Term(b, unsqueezed(b, shifted, [2])).equals(Term(b, constant(column.astype(np.int32))))
        found = same if found is None else found & same
    assert found is not None
    return found.to(DType.FLOAT32).reduce("sum", [1], keepdims=False)


def _weighted(b: Builder, counts: Sequence[Term], pool: _Pool) -> Term:
    """Return counts (IDF: at most 1) times the weights as floats [rows, n-grams]."""
    joined = Term(b, concatenated(b, [term.value for term in counts], 1))
    if pool.mode == "TF":
        return joined
    places = pool.counted(pool.indexes)
    if pool.mode == "IDF" and len(set(places.tolist())) < len(places):
        raise UnsupportedError("several n-grams with the same column in mode IDF", code="E-OP-006")
    found = joined.min(1.0) if pool.mode == "IDF" else joined
    return found.apply(ops.Mul, pool.counted(pool.weights))


def _columns(b: Builder, grams: Term, pool: _Pool) -> Value:
    """Scatter the values of all n-grams to their columns: the sum if several share one, 0 for a column without any."""
    places = pool.counted(pool.indexes)
    if np.array_equal(places, np.arange(pool.columns)):
        return grams.value
    if len(set(places.tolist())) < len(places):
        matrix = np.zeros((len(places), pool.columns), np.float32)
        matrix[np.arange(len(places)), places] = 1
        return grams.dot(matrix, (1,), (0,)).value
    sources = np.full(pool.columns, len(places), np.int64)
    sources[places] = np.arange(len(places))
    if len(places) < pool.columns:
        grams = grams.apply(ops.Pad, np.asarray([[0, 0], [0, 1]]))
    return grams.apply(ops.Gather, sources, axis=1).value


# --- SKIP_GRAM -------------------------------------------------------------------------------------------------------

_SPACE = r" \t\n\v\f\r"
"""The whitespace characters of C's isspace, as a regular expression."""
_ONE_WORD = f"[{_SPACE}][^{_SPACE}]*"
_WITHOUT_FIRST = f"[{_SPACE}][^{_SPACE}]+[{_SPACE}](?s:.*)"
_MOST_WORDS = 256
"""The most words of an n-gram: each takes an op to concatenate."""


@lift_tfl("SKIP_GRAM")
def _skip_gram(b: Builder, node: Node) -> Value:
    """Return the n-grams [n] of the words in the first string, ordered by their first word.

    There are none if there are fewer than `ngram_size` words, even with `include_all_ngrams`. Source: LiteRT's
    skip_gram.cc.
    """
    x, longest = node.operand(0), int(node.attr("ngram_size") or 0)
    if 0 in x.shape:
        raise UnsupportedError("an operand without the string that the kernel reads", code="E-OP-006")
    patterns = _patterns(longest, int(node.attr("max_skip_size") or 0) + 1, bool(node.attr("include_all_ngrams")))
    if not len(patterns):
        return constant(np.zeros(0, object), DType.STRING)
    words, first, end = _words(b, slice_axes(b, b(ops.Reshape, x, [-1]), {0: slice(0, 1)}))
    starts = Term(b, b(ops.Range, first.value, end.value, _int64(1)))
    column = Term(b, unsqueezed(b, starts.value, [1]))
    fits = (column.apply(ops.Add, patterns.max(axis=1)) < end) & (end - first >= longest)
    found = Term(b, b(ops.NonZero, fits.value))
    return _joined(words, found.at(0, 0) + first, found.at(1, 0), patterns)


def _patterns(longest: int, reach: int, every: bool) -> Array:
    """Return the distances of an n-gram's words from its first word [patterns, longest], sorted; -1 for no word.

    Consecutive words are at most `reach` apart; `every`: also n-grams of fewer words than `longest`.
    """
    check_count(longest, "the words of an n-gram", _MOST_WORDS)
    if longest <= 0:
        return np.zeros((0, 1), np.int64)
    lengths = range(longest) if every else (longest - 1,)
    check_elements(longest * sum(max(reach, 0) ** length for length in lengths), "the patterns of n-grams")
    found = [row + [-1] * (longest - len(row)) for row in _grown([0], longest, reach) if every or len(row) == longest]
    return np.asarray(found, np.int64).reshape(-1, longest)


def _grown(row: list[int], longest: int, reach: int) -> Iterator[list[int]]:
    """Return all extensions of `row`, then `row`."""
    for distance in range(1, reach + 1) if len(row) < longest else ():
        yield from _grown([*row, row[-1] + distance], longest, reach)
    yield row


def _words(b: Builder, text: Value) -> tuple[Term, Term, Term]:
    """Return a vector of strings, the index of the first word of `text` [1] in it, and the index after the last.

    If the text starts with a single whitespace character, the kernel skips the first word; if no other whitespace
    follows, both together are the only word.
    """
    pieces = text
    for delimiter in _SPACE.encode().decode("unicode_escape"):
        parts = b(ops.Reshape, b.many(ops.StringSplit, pieces, delimiter=delimiter)[0], [-1])
        some = Term(b, parts).differs(Term(b, constant(np.asarray("", object), DType.STRING)))
        pieces = b(ops.Gather, parts, b(ops.Reshape, b(ops.NonZero, some.value), [-1]), axis=0)
    count = Term(b, reshape(b, b(ops.Shape, pieces), ()))
    whole, later = (
        Term(b, reshape(b, b(ops.RegexFullMatch, text, pattern=pattern), ())) for pattern in (_ONE_WORD, _WITHOUT_FIRST)
    )
    first = whole.choose(count, later.to(DType.INT64))
    return Term(b, b(ops.Concatenate, pieces, text, axis=0)), first, count + whole.to(DType.INT64)


def _joined(words: Term, places: Term, numbers: Term, patterns: Array) -> Value:
    """Return each n-gram: its first word, and the words at the distances of its pattern, joined by spaces."""
    b = words.b
    space, empty = (constant(np.asarray([text], object), DType.STRING) for text in (" ", ""))
    after = b(ops.Concatenate, b(ops.StringConcat, space, words.value), empty, axis=0)
    none = Term(b, reshape(b, b(ops.Shape, words.value), ()))
    result = words.apply(ops.Gather, places, axis=0)
    for distances in patterns.T[1:]:
        distance = Term(b, constant(distances)).apply(ops.Gather, numbers, axis=0)
        place = (distance < 0).choose(none, places + distance)
        result = result.apply(ops.StringConcat, b(ops.Gather, after, place.value, axis=0))
    return result.value


def _int64(number: int) -> Value:
    return constant(np.asarray(number, np.int64))
