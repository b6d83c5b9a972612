"""Bounds, values and filters of the rows of several files at once, from Arrow arrays, without Spark.

The rows of all files follow each other in one array, so that numpy compares, sorts and hashes those of a thousand small
files in one call. What is found of pieces of a file can be joined, and is that of the whole file then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any

from msgspec.structs import replace

from spark_apps.indexes.handler import estimated_rows
from spark_apps.indexes.limits import MAX_BOUND_LENGTH, MAX_FILTER_BLOCKS, MAX_GRAMS, MAX_LISTED_BYTES
from spark_apps.indexes.skipping.definition import Part, Settings
from spark_apps.indexes.skipping.records import WORDS, ColumnRecord, FilterKind, blocks_for, folded
from spark_apps.layout.hashing import hashes_of, hashes_of_bytes, hashes_of_numbers
from spark_apps.layout.types import ColumnType
from spark_apps.timeline.files import DataFile

_GRAM_FALSE_POSITIVES = 0.05
"""A text has several n-grams, each of which is looked for."""

_DENSE = 1 << 16
"""Possible codes, beside two for each code that occurs, up to which codes are numbered by a table of all possible ones;
beyond it they are sorted."""

_BLOCKS_AT_ONCE = 1 << 17
"""Blocks whose bits are set at a time: each bit is a byte meanwhile, which takes 32 MB."""

_VALUES_AT_ONCE = 1 << 14
"""Values whose bits are set at a time, so that their numbers stay in a core's own cache."""

_BLOCK_BITS = 256
_EIGHTHS = 8
_WORD_GRAM = 8
"""Bytes of n-grams up to which they are compared as numbers."""


@dataclass(frozen=True)
class Summaries:
    """Records and filters of an expression in each of some files, in their order."""

    records: list[ColumnRecord]
    filters: dict[FilterKind, list[Any]] = field(default_factory=dict)


def rate_of(kind: FilterKind, settings: Settings) -> float:
    """Return how often a filter may be wrong on what is not in it."""
    return settings.false_positives if kind == "bloom" else _GRAM_FALSE_POSITIVES


def blocks_at_first(file: DataFile, kind: FilterKind, settings: Settings) -> int:
    """Return the blocks of a file's filter before it is folded: enough for whatever the file may hold."""
    most = max(estimated_rows(file), 1) if kind == "bloom" else min(max(file.bytes, 1024) * 4, MAX_GRAMS)
    return min(blocks_for(most, rate_of(kind, settings)), MAX_FILTER_BLOCKS)


def summarize(
    values: Any,
    rows: Sequence[int],
    part: Part,
    settings: Settings,
    blocks: Mapping[FilterKind, Sequence[int]],
    whole: Sequence[bool] | None = None,
) -> Summaries:
    """Return what is to be known of an expression in each of some files, or in the pieces of them that there are.

    :param values: of all files, one behind the other, as an Arrow array of the type in which Spark exchanges them.
    :param rows: how many of them are of each file.
    :param blocks: of each file's filters, before they are folded.
    :param whole: of which files these are all rows; by default of all. What is known of the others is to be joined with
        that of their other rows, by :func:`joined`.
    """
    column = _Column.of(values, rows, part.type)
    files = len(rows)
    lows: list[bytes | None] = [None] * files
    highs: list[bytes | None] = [None] * files
    listed: list[tuple[bytes, ...] | None] = [None] * files
    if "minmax" in part.kinds:
        column.bound(lows, highs)
    if "values" in part.kinds:
        listed = column.listed(settings.most_values)
    filled, all_of = [int(count) for count in column.filled], [True] * files if whole is None else whole
    records = [ColumnRecord(*known) for known in zip(filled, lows, highs, listed, strict=True)]
    records = [finished(one, part.type) if of else one for one, of in zip(records, all_of, strict=True)]
    filters: dict[FilterKind, list[Any]] = {}
    if "bloom" in part.kinds:
        bits = _filters(column.hashes, column.starts, blocks["bloom"])
        filters["bloom"] = _folded(bits, all_of, rate_of("bloom", settings))
    if "ngrams" in part.kinds:
        grams = zip(column.grams(settings.gram_bytes), blocks["ngrams"], strict=True)
        bits = (_filter(hashes, size) for hashes, size in grams)
        filters["ngrams"] = _folded(bits, all_of, rate_of("ngrams", settings))
    return Summaries(records, filters)


def _folded(filters: Iterable[Any], whole: Sequence[bool], rate: float) -> list[Any]:
    return [folded(bits, rate) if of else bits for bits, of in zip(filters, whole, strict=True)]


def joined(one: ColumnRecord, other: ColumnRecord, kind: ColumnType, most: int) -> ColumnRecord:
    """Return what is known of two pieces of a file together, to be finished once all are.

    :param most: the most different values that are listed.
    """
    lows = [record.low for record in (one, other) if record.low is not None]
    # A piece of as many rows as the log knows of the file was finished: its highest may be missing.
    missing = any(record.low is not None and record.high is None for record in (one, other))
    highs = [] if missing else [record.high for record in (one, other) if record.high is not None]
    values = None if one.values is None or other.values is None else tuple(sorted({*one.values, *other.values}))
    return ColumnRecord(
        one.filled + other.filled,
        min(lows, key=lambda data: _order_of(data, kind), default=None),
        max(highs, key=lambda data: _order_of(data, kind), default=None),
        None if values is None or len(values) > most else values,
    )


def finished(record: ColumnRecord, kind: ColumnType) -> ColumnRecord:
    """Return what is known of all rows of a file: without a highest value that is longer than bounds are."""
    # A highest value that is cut would be below the real one.
    if record.high is None or record.high == _start(record.high, kind, MAX_BOUND_LENGTH):
        return record
    return replace(record, high=None)


def _order_of(data: bytes, kind: ColumnType) -> Any:
    """Return what values are compared by, of which the records hold the bytes."""
    if kind.kind in ("string", "binary"):
        return data
    if kind.kind in ("float", "double"):
        number = float(data)
        return number != number, number  # NaN is above all others
    return Decimal(data.decode()) if kind.kind == "decimal" else int(data)


def _start(data: bytes, kind: ColumnType, most: int) -> bytes:
    """Return the beginning of a text or binary: at most this number of characters (or bytes), as Spark counts them."""
    if kind.kind == "binary":
        return data[:most]
    if kind.kind != "string" or len(data) <= most:
        return data
    end = 0
    for _ in range(most):
        first = data[end] if end < len(data) else 0
        end += 1 if first < 0xC2 or first > 0xF4 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    return data[:end]


@dataclass(frozen=True)
class _Column:
    """The values of several files that are not null.

    :param filled: how many there are in each file. :param starts: where those of each file begin, and the end.
    """

    values: Any
    kind: ColumnType
    filled: Any
    starts: Any

    @classmethod
    def of(cls, values: Any, rows: Sequence[int], kind: ColumnType) -> _Column:
        import numpy as np

        ends = np.cumsum(rows)
        if values.null_count:
            valid = np.concatenate([[0], np.cumsum(values.is_valid().to_numpy(zero_copy_only=False))])
            ends = valid[ends]
            values = values.drop_null()
        starts = np.concatenate([[0], ends]).astype(np.int64)
        return cls(values, kind, np.diff(starts), starts)

    @cached_property
    def _numbers(self) -> Any:
        """Values that are numbers to the machine as a numpy array; ``None`` for others. There is one zero."""
        import numpy as np

        kind, values = self.kind.kind, self.values
        if kind in ("float", "double"):
            return values.to_numpy(zero_copy_only=False) + np.dtype(f"f{4 if kind == 'float' else 8}").type(0.0)
        if kind in ("string", "binary", "decimal"):
            return None
        if kind == "boolean":
            values = values.cast("int8")
        elif kind == "date":
            values = values.cast("int32")
        return values.cast("int64").to_numpy(zero_copy_only=False)

    @cached_property
    def _coded(self) -> tuple[Any, Any]:
        """The number of each value among those that are distinct, and these, in any order."""
        import numpy as np

        if self._numbers is not None:
            numbers = self._numbers
            if self.kind.kind in ("float", "double"):  # NaN equals NaN, as to Spark
                bits = np.where(np.isnan(numbers), numbers.dtype.type(np.nan), numbers)
                bits = bits.view(f"i{bits.dtype.itemsize}")
                distinct, codes = np.unique(bits, return_inverse=True)
                return codes.reshape(-1), distinct.view(numbers.dtype)
            distinct, codes = np.unique(numbers, return_inverse=True)
            return codes.reshape(-1), distinct
        values = self.values.cast("binary") if self.kind.kind == "string" else self.values
        encoded = values.dictionary_encode()
        return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary

    def _bytes(self, value: Any) -> bytes:
        """Return a value as records have it."""
        match self.kind.kind:
            case "string" | "binary":
                data: bytes = value.as_py()
                return data
            case "decimal":
                return str(value.as_py()).encode()
            case "float" | "double":
                return b"NaN" if value != value else repr(float(value)).encode()
        return str(int(value)).encode()

    def bound(self, lows: list[bytes | None], highs: list[bytes | None]) -> None:
        """Write down the lowest and highest value of each file that has one."""
        import numpy as np

        some = np.flatnonzero(self.filled)
        if not len(some):
            return
        begin = self.starts[:-1][some]
        if self._numbers is not None:  # NaN is above all others
            least, most = np.fmin.reduceat(self._numbers, begin), np.maximum.reduceat(self._numbers, begin)
            distinct: Any = None
        else:
            codes, distinct = self._coded
            order = _order(distinct)
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            ranks = rank[codes]
            least, most = order[np.minimum.reduceat(ranks, begin)], order[np.maximum.reduceat(ranks, begin)]
        for file, low, high in zip(some.tolist(), least.tolist(), most.tolist(), strict=True):
            if distinct is None:
                lows[file], highs[file] = self._bytes(low), self._bytes(high)
            else:
                lows[file] = _start(self._bytes(distinct[low]), self.kind, MAX_BOUND_LENGTH)
                # One more, by which it is known that the highest is longer.
                highs[file] = _start(self._bytes(distinct[high]), self.kind, MAX_BOUND_LENGTH + 1)

    @cached_property
    def _pairs(self) -> tuple[Any, Any]:
        """The distinct values of each file, by their numbers, one file behind the other, and where each begins."""
        import numpy as np

        codes, distinct = self._coded
        files = np.repeat(np.arange(len(self.filled)), self.filled)
        width = max(len(distinct), 1)
        first, _ = first_of_each(files * width + codes, len(self.filled) * width)
        pairs = files[first] * width + codes[first]
        return pairs % width, np.searchsorted(pairs, np.arange(len(self.filled) + 1) * width)

    def listed(self, most: int) -> list[tuple[bytes, ...] | None]:
        """Return all values of each file, where they are few and short."""
        pairs, starts = self._pairs
        distinct = self._coded[1]
        known: dict[int, bytes] = {}

        def data_of(code: int) -> bytes:
            data = known.get(code)
            if data is None:
                data = known[code] = self._bytes(distinct[code])
            return data

        found: list[tuple[bytes, ...] | None] = []
        for begin, end in zip(starts.tolist(), starts[1:].tolist(), strict=False):
            values = None if end - begin > most else [data_of(code) for code in pairs[begin:end].tolist()]
            short = values is not None and all(len(data) <= MAX_LISTED_BYTES for data in values)
            found.append(tuple(sorted(values)) if values is not None and short else None)
        return found

    @cached_property
    def hashes(self) -> Any:
        """The hash of each value."""
        import numpy as np
        import pyarrow as pa

        kind = self.kind
        if self._numbers is None:  # each that is distinct is hashed once
            codes, distinct = self._coded
            return hashes_of(distinct, kind)[codes] if len(distinct) else np.zeros(0, np.uint64)
        if kind.kind in ("float", "double"):
            return hashes_of(pa.array(self._numbers), kind)
        return hashes_of(self.values, kind)

    def grams(self, size: int) -> list[Any]:
        """Return the hashes of all n-grams, runs of ``size`` bytes, in the texts of each file."""
        import numpy as np

        texts = self.values.cast("binary")
        offsets = np.frombuffer(texts.buffers()[1], np.int32, len(texts) + 1, texts.offset * 4) if len(texts) else None
        content = np.frombuffer(texts.buffers()[2] or b"", np.uint8) if len(texts) else None
        found = []
        for begin, end in zip(self.starts.tolist(), self.starts[1:].tolist(), strict=False):
            if begin == end or offsets is None or content is None:
                found.append(np.zeros(0, np.uint64))
                continue
            first = int(offsets[begin])
            found.append(_gram_hashes(content[first : offsets[end]], offsets[begin + 1 : end + 1] - first, size))
        return found


def first_of_each(codes: Any, bound: int) -> tuple[Any, Any]:
    """Return the position at which each code occurs first, in the order of codes, and the codes numbered in that order.

    :param codes: whole numbers below ``bound``.
    """
    import numpy as np

    if bound > _DENSE + 2 * len(codes):
        _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
        return first, numbers.reshape(-1)
    places = np.full(bound, -1, np.int64)
    places[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)  # of those in one place the last one stays
    there = places >= 0
    return places[there], (np.cumsum(there) - 1)[codes]


def _order(distinct: Any) -> Any:
    """Return the positions of values in ascending order; strings are given as bytes, by which Spark compares them."""
    import pyarrow.compute as pc

    return pc.array_sort_indices(distinct).to_numpy()


def _gram_hashes(content: Any, ends: Any, size: int) -> Any:
    """Return the hashes of the n-grams of texts that follow each other in one array of bytes."""
    import numpy as np

    count = len(content) - size + 1
    if count <= 0:
        return np.zeros(0, np.uint64)
    inside = np.ones(count, np.bool_)  # runs that do not begin in one text and end in another
    for back in range(1, size):
        across = ends - back
        inside[across[(across >= 0) & (across < count)]] = False
    if size <= _WORD_GRAM:
        words = np.zeros(count, np.uint64)
        for at in range(size):
            words |= content[at : at + count].astype(np.uint64) << np.uint64(8 * at)
        different = np.unique(words[inside])
        return hashes_of_bytes(np.ascontiguousarray(different).view(np.uint8).reshape(-1, 8)[:, :size])
    runs = np.lib.stride_tricks.sliding_window_view(content, size)[inside]
    return hashes_of_bytes(np.ascontiguousarray(runs))


# --- Filters ----------------------------------------------------------------------------------------------------------


def _filters(hashes: Any, starts: Any, blocks: Sequence[int]) -> Iterator[Any]:
    """Yield a filter of each file: those of many small files are made in one go."""
    import numpy as np

    begin = 0
    while begin < len(blocks):
        end, total = begin + 1, blocks[begin]
        while end < len(blocks) and total + blocks[end] <= _BLOCKS_AT_ONCE:
            total += blocks[end]
            end += 1
        mine = hashes[starts[begin] : starts[end]]
        if end == begin + 1:
            yield _filter(mine, total)
        else:
            sizes = np.array(blocks[begin:end], np.uint64)
            firsts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.uint64)
            each = np.diff(starts[begin : end + 1])
            block = (mine >> np.uint64(32)) * np.repeat(sizes, each) >> np.uint64(32)
            whole = _marked(block + np.repeat(firsts, each), _places(mine), total)
            yield from np.split(whole, np.cumsum(sizes)[:-1].astype(np.int64))
        begin = end


def _filter(hashes: Any, blocks: int) -> Any:
    """Return a filter of this number of blocks: an array of blocks by words."""
    import numpy as np

    block = (hashes >> np.uint64(32)) * np.uint64(blocks) >> np.uint64(32)
    places = _places(hashes)
    if blocks <= _BLOCKS_AT_ONCE:
        return _marked(block, places, blocks)
    pieces = []
    for first in range(0, blocks, _BLOCKS_AT_ONCE):
        within = (block >= first) & (block < first + _BLOCKS_AT_ONCE)
        pieces.append(_marked(block[within] - np.uint64(first), places[within], min(_BLOCKS_AT_ONCE, blocks - first)))
    return np.concatenate(pieces)


def _places(hashes: Any) -> Any:
    """Return the numbers that choose the bits of values in their blocks: the hashes of their hashes."""
    return hashes_of_numbers(hashes)


def _marked(block: Any, places: Any, blocks: int) -> Any:
    """Return blocks by words with the bits of all values set."""
    import numpy as np

    bits = np.zeros(blocks * _BLOCK_BITS, np.bool_)
    for start in range(0, len(block), _VALUES_AT_ONCE):
        some = slice(start, start + _VALUES_AT_ONCE)
        first, place = block[some].astype(np.int64) * _BLOCK_BITS, places[some].view(np.int64)
        for number in range(_EIGHTHS):
            bits[first + 32 * number + (place >> 5 * number & 31)] = True
    return np.packbits(bits, bitorder="little").view("<i8").reshape(blocks, WORDS)
