"""Finds the data files that hold one of many keys, by records: each task of Spark has some keys and asks all records.

What records say of a column is put into arrays, by file, which go to the tasks. A task sorts its keys, so those between
the ends of a file follow each other: how many they are says whether the file is ruled out by its ends, and whether its
Bloom filter is worth asking. Of filters the tasks read pages themselves. Only numbers of files come back.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Any

from spark_apps.engine.pyspark_names import DataFrame, T
from spark_apps.engine.spark_utils import cores
from spark_apps.indexes.limits import (
    KEYS_PER_TASK,
    MAX_FILTER_BYTES_ASKED,
    MAX_LISTED_BYTES_OF_FILES,
    MAX_LISTED_OF_FILES,
    MIN_RULED_OUT,
    PAGES_BETWEEN,
    RECORD_FILE_THREADS,
)
from spark_apps.indexes.skipping.definition import Part
from spark_apps.indexes.skipping.records import WORDS, ColumnRecord, FilterPages, RecordFile, Section
from spark_apps.layout.hashing import hashes_of, hashes_of_numbers
from spark_apps.layout.types import ColumnType, arrow_type
from spark_apps.storage.arrow_keys import in_one_piece

_COLUMN, _FILE = "__index_column", "__index_number"
_WHOLE = ("tinyint", "smallint", "int", "bigint", "boolean", "date", "timestamp", "timestamp_ntz")
"""Types whose values are whole numbers to the machine, in records too."""

_BY_BYTES = ("string", "binary", "decimal")
"""Types whose values are compared one with another."""


def files_with_keys(keys: DataFrame, asked: Sequence[Kept], count: int) -> DataFrame:
    """Return which files hold one of some keys: rows of the number of a column and that of a file.

    :param keys: with the columns asked, in their order. :param count: how many they are at most.
    """
    tasks = max(1, min(cores(keys.sparkSession), count // KEYS_PER_TASK))
    number = T.IntegerType()
    schema = T.StructType([T.StructField(_COLUMN, number), T.StructField(_FILE, number)])
    some = keys.distinct().coalesce(tasks)
    return some.mapInArrow(partial(numbers_of_files, asked, tasks), schema).distinct()


def numbers_of_files(asked: Sequence[Kept], tasks: int, batches: Iterable[Any]) -> Iterator[Any]:
    """Yield, in a task, what :func:`files_with_keys` returns, for the keys that it has.

    :param tasks: among which all keys are dealt.
    """
    import numpy as np
    import pyarrow as pa

    some = list(batches)
    if not some:
        return
    keys = pa.Table.from_batches(some)
    for number, kept in enumerate(asked):
        files = kept.holding(in_one_piece(keys.column(number)), tasks)
        numbers = [np.full(len(files), number), files]
        yield pa.record_batch([pa.array(each, pa.int32()) for each in numbers], names=[_COLUMN, _FILE])


def is_found(part: Part) -> bool:
    """Return whether records tell by the values of a part which files hold a key."""
    return not part.kinds.isdisjoint(("minmax", "values", "bloom")) and part.type.kind in (*_WHOLE, *_BY_BYTES)


def bytes_asked(records: RecordFile, parts: Sequence[Part]) -> int:
    """Return how many bytes of a file of records say where keys are, about."""
    places = {place for part in parts if (place := _place(part, records)) is not None}
    filters = sum(one.bytes for one in records.header.sections if one.kind == "bloom" and one.column in places)
    return records.start + min(filters, MAX_FILTER_BYTES_ASKED)


# --- What records say of a column -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kept:
    """A column as records know it, by file. A file of which they do not tell may hold anything.

    :param nulls: whether a row is null. :param filled: whether one is not.
    :param lows: nothing is less: an array of whole numbers, else a list with ``None`` where that is not known.
    :param highs: nothing is more.
    """

    kind: ColumnType
    nulls: Any
    filled: Any
    lows: Any
    highs: Any
    listed: _Listed
    filters: _Filters

    @classmethod
    def of(
        cls, part: Part, files: Sequence[tuple[RecordFile, int]], false_positives: float, with_filters: bool
    ) -> Kept:
        """Return what is kept of a column of files.

        :param files: each by its number among the records of a file.
        :param with_filters: whether tasks can read filters.
        :raises StorageError: if a value is none of its type.
        """
        places = {id(records): _place(part, records) for records, _ in files}
        known: list[ColumnRecord | None] = []
        rows: list[int] = []
        for records, number in files:
            place, record = places[id(records)], records.header.files[number]
            known.append(None if place is None else record.columns[place])
            rows.append(record.rows)
        try:
            lows, highs = _ends(part.type, [None if one is None else (one.low, one.high) for one in known])
            listed = _Listed.of(part.type, [None if one is None else one.values for one in known])
        except (ValueError, ArithmeticError) as error:
            raise files[0][0].damaged(f"a value in it is none of type {part.type.text}") from error
        return cls(
            part.type,
            _flags([one is None or one.filled < of for one, of in zip(known, rows, strict=True)]),
            _flags([one is None or one.filled > 0 for one in known]),
            lows,
            highs,
            listed,
            _Filters.of(files, places if with_filters else {}, false_positives),
        )

    def holding(self, keys: Any, tasks: int = 1) -> Any:
        """Return the numbers of the files that can hold one of some keys.

        :param keys: an Arrow array of the type in which Spark exchanges them. :param tasks: that have keys.
        """
        import numpy as np

        found = self.nulls.copy() if keys.null_count else np.zeros(len(self.nulls), bool)
        ordered = _Ordered.of(keys.drop_null(), self.kind)
        first, end = ordered.between(self.lows, self.highs)
        left = self.filled & ~found & (end > first)
        by_list = left & self.listed.known
        found[by_list] = self.listed.among(ordered)[by_list]
        left &= ~self.listed.known
        asked = left & self.filters.known & (end - first <= self.filters.most // tasks)
        found |= left & ~asked
        if asked.any():
            hashes = hashes_of(ordered.values, self.kind)
            found[self.filters.holding(np.flatnonzero(asked), hashes, first, end)] = True
        return np.flatnonzero(found)


def _place(part: Part, records: RecordFile) -> int | None:
    """Return where records have a column as it is now; ``None`` if they do not."""
    header, text = records.header, part.expression.text
    if text not in header.keys or header.types[header.keys.index(text)] != part.type.text:
        return None
    return header.keys.index(text)


def _flags(values: Sequence[bool]) -> Any:
    import numpy as np

    return np.array(values, bool)


def _ends(kind: ColumnType, known: Sequence[tuple[bytes | None, bytes | None] | None]) -> tuple[Any, Any]:
    """Return the lowest and highest values of files, whatever a value can be where they are not known."""
    import numpy as np

    lows = [None if ends is None or ends[0] is None else _value(ends[0], kind) for ends in known]
    highs = [None if ends is None or ends[1] is None else _value(ends[1], kind) for ends in known]
    if kind.kind not in _WHOLE:
        return lows, highs
    all_of = np.iinfo(np.int64)
    return (
        np.array([all_of.min if low is None else low for low in lows], np.int64),
        np.array([all_of.max if high is None else high for high in highs], np.int64),
    )


def _value(data: bytes, kind: ColumnType) -> Any:
    """Return a value of a record, as :class:`_Ordered` has those of keys."""
    if kind.kind in _WHOLE:
        return int(data.decode("ascii"))
    if kind.kind != "decimal":
        return data
    number = Decimal(data.decode("ascii"))
    if not number.is_finite():
        raise ValueError(f"{number} is no decimal")
    return number


@dataclass(frozen=True)
class _Ordered:
    """Keys, each once and in order.

    :param values: an Arrow array. :param numbers: the same, of types that are whole numbers; else ``None``.
    """

    values: Any
    numbers: Any

    @classmethod
    def of(cls, keys: Any, kind: ColumnType) -> _Ordered:
        import pyarrow.compute as pc

        exchanged = arrow_type(kind)
        keys = keys if keys.type == exchanged else keys.cast(exchanged)
        distinct = pc.unique(keys.cast("binary") if kind.kind == "string" else keys)
        values = distinct.take(pc.array_sort_indices(distinct))
        numbers = None
        if kind.kind in _WHOLE:
            narrow = {"boolean": "int8", "date": "int32"}.get(kind.kind)
            numbers = (values if narrow is None else values.cast(narrow)).cast("int64").to_numpy(zero_copy_only=False)
        return cls(values, numbers)

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, at: int) -> Any:
        return self.values[at].as_py()

    def between(self, lows: Any, highs: Any) -> tuple[Any, Any]:
        """Return where the keys between the ends of each file begin and end."""
        import numpy as np

        if self.numbers is not None:
            return np.searchsorted(self.numbers, lows, "left"), np.searchsorted(self.numbers, highs, "right")
        first = [0 if low is None else bisect_left(self, low) for low in lows]
        end = [len(self) if high is None else bisect_right(self, high) for high in highs]
        return np.array(first, np.int64), np.array(end, np.int64)


@dataclass(frozen=True)
class _Listed:
    """The values of files that records list.

    :param known: which files have a list. :param values: an Arrow array of those listed, each once.
    :param codes: the numbers of the values in each list, one list behind the other. :param files: the file of each.
    """

    known: Any
    values: Any
    codes: Any
    files: Any

    @classmethod
    def of(cls, kind: ColumnType, lists: Sequence[tuple[bytes, ...] | None]) -> _Listed:
        import numpy as np
        import pyarrow as pa

        known, numbers, codes, files = np.zeros(len(lists), bool), dict[bytes, int](), list[int](), list[int]()
        left = MAX_LISTED_BYTES_OF_FILES
        for file, listed in enumerate(lists):
            if listed is None or len(codes) + len(listed) > MAX_LISTED_OF_FILES:
                continue
            new = sum(len(data) for data in listed if data not in numbers)
            if new > left:
                continue
            left -= new
            known[file] = True
            codes += [numbers.setdefault(data, len(numbers)) for data in listed]
            files += [file] * len(listed)
        values = [_value(data, kind) for data in numbers]
        if kind.kind in _WHOLE:
            held = pa.array(values, pa.int64())
        else:
            held = pa.array(values, arrow_type(kind) if kind.kind == "decimal" else pa.binary())
        return cls(known, held, np.array(codes, np.int64), np.array(files, np.int64))

    def among(self, keys: _Ordered) -> Any:
        """Return of each file whether a value of its list is a key."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        found = np.zeros(len(self.known), bool)
        wanted = keys.values if keys.numbers is None else pa.array(keys.numbers)
        is_key = pc.is_in(self.values, value_set=wanted).to_numpy(zero_copy_only=False)
        found[self.files[is_key[self.codes]]] = True
        return found


@dataclass(frozen=True)
class _Filters:
    """The Bloom filters of files.

    :param known: which files have one.
    :param most: keys of one file about which its filter is asked: of more, one is nearly always taken for a value.
    :param pages: of the files that hold filters, with the sections of each that are asked.
    :param at: of each file the number of its section among all of these, and its place there.
    """

    known: Any
    most: int
    pages: Sequence[tuple[FilterPages, Section]] = ()
    at: Mapping[int, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, files: Sequence[tuple[RecordFile, int]], places: Mapping[int, int | None], false_positives: float
    ) -> _Filters:
        known, at, sections = [], dict[int, tuple[int, int]](), dict[tuple[int, int], int]()
        pages: list[tuple[FilterPages, Section]] = []
        for file, (records, number) in enumerate(files):
            place = places.get(id(records))
            found = None if place is None else records.bloom(number, place)
            known.append(found is not None)
            if found is None:
                continue
            if (id(records), found[0]) not in sections:
                sections[id(records), found[0]] = len(pages)
                pages.append((records.filters, records.header.sections[found[0]]))
            at[file] = sections[id(records), found[0]], found[1]
        most = int(math.log(MIN_RULED_OUT) / math.log1p(-false_positives))
        return cls(_flags(known), most, pages, at)

    def holding(self, files: Any, hashes: Any, first: Any, last: Any) -> list[int]:
        """Return those of some files whose filter may have one of the keys between their ends.

        :param hashes: of all keys, in their order.
        """
        by_section: dict[int, list[int]] = {}
        for file in files.tolist():
            by_section.setdefault(self.at[file][0], []).append(file)
        marks, found, left = marks_of(hashes), list[int](), MAX_FILTER_BYTES_ASKED
        for number, members in sorted(by_section.items()):
            pages, section = self.pages[number]
            blocks = {file: _blocks(hashes[first[file] : last[file]], section.blocks) for file in members}
            runs = _runs({page for each in blocks.values() for page in (each // section.page).tolist()})
            left -= sum(end - begin for begin, end in runs) * section.page * section.stripe
            if left < 0:
                found += members
                continue
            words = _read(pages, section, runs)
            for file in members:
                mine, wanted = words(blocks[file], self.at[file][1]), marks[first[file] : last[file]]
                if ((mine & wanted) == wanted).all(axis=1).any():
                    found.append(file)
        return found


def _runs(pages: Iterable[int]) -> list[tuple[int, int]]:
    """Return the runs of pages, from one to another, by which some of them are read."""
    runs: list[tuple[int, int]] = []
    for number in sorted(pages):
        if runs and number - runs[-1][1] <= PAGES_BETWEEN:
            runs[-1] = runs[-1][0], number + 1
        else:
            runs.append((number, number + 1))
    return runs


def _read(pages: FilterPages, section: Section, runs: Sequence[tuple[int, int]]) -> Callable[[Any, int], Any]:
    """Read runs of pages, and return what returns blocks in them, by their numbers, of the file at a place."""
    import numpy as np

    with ThreadPoolExecutor(min(RECORD_FILE_THREADS, len(runs))) as pool:
        read = np.concatenate([page for some in pool.map(lambda run: pages.read(section, *run), runs) for page in some])
    first = np.array([begin for begin, _ in runs]) * section.page
    before = np.cumsum([0, *(end - begin for begin, end in runs[:-1])]) * section.page

    def words(blocks: Any, place: int) -> Any:
        run = np.searchsorted(first, blocks, "right") - 1
        return read[blocks - first[run] + before[run], place]

    return words


def _blocks(hashes: Any, blocks: int) -> Any:
    """Return the block of each hash in a filter of this number of blocks."""
    import numpy as np

    return ((hashes >> np.uint64(32)) * np.uint64(blocks) >> np.uint64(32)).astype(np.int64)


def marks_of(hashes: Any) -> Any:
    """Return the bits of values in their blocks, as words: what :class:`~…skipping.records.Marks` has of one."""
    import numpy as np

    second, one = hashes_of_numbers(hashes), np.uint64(1)
    bits = [second >> np.uint64(5 * number) & np.uint64(31) for number in range(2 * WORDS)]
    return np.stack([one << bits[2 * n] | one << bits[2 * n + 1] + np.uint64(32) for n in range(WORDS)], axis=1)
