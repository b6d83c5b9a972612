"""Puts random questions to a table and to the oracle, and compares the answers."""

from __future__ import annotations

import contextlib
import pickle
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

import duckdb
import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

import spark_apps
from spark_apps.actions.template import TableHandle
from spark_apps.arrow_table import OpenTable
from spark_apps.datasource import IndexedDataSource
from spark_apps.engine.no_session import NO_SPARK
from spark_apps.indexes.keyed import lookup
from spark_apps.indexes.registry import asked_by
from spark_apps.query import arrow_reading, planning
from spark_apps.query import arrow_rows as query_rows
from spark_apps.storage.errors import InvalidInput, InvalidPredicate, LakeIndexError, UnsupportedSource
from spark_apps.storage.parquet import page_index
from tests.differential.oracle import Oracle, Row, connected, rows_of, shown
from tests.differential.plain import Half, PlainQueries, Way
from tests.differential.predicates import Predicate, Predicates
from tests.differential.skipping import asked_columns
from tests.differential.tally import Tally
from tests.differential.values import KINDS


class Questions:
    """Compares tables with raw rows.

    ``place`` gives the data source ``indexed`` its options for a table, ``None`` if it is not to be asked; ``careful``
    keeps to predicates that Spark itself reads rightly over ORC. ``ways`` gives the ways in which a table is named in
    plain queries, of which such a share of the questions is put too.
    """

    place: Callable[[Any], dict[str, str] | None] = staticmethod(lambda _: None)
    careful = False
    ways: Callable[[Any], list[Way]] = staticmethod(lambda _: [])

    def __init__(self, spark: Any, rng: random.Random, tally: Tally, plain: PlainQueries, share: float) -> None:
        self.spark, self.rng, self.tally = spark, rng, tally
        self.plain, self.share = plain, share

    def everything(self, table: Any, rows: Sequence[Row], history: str) -> None:
        """All rows, without a predicate."""
        actual, expected = rows_of(table.read()), shown(rows)
        assert actual == expected, f"{history}: read() differs: {_differ(actual, expected)}"
        self.tally.add("compared", "whole tables")

    def quickly(self, table: Any, rows: Sequence[Row], names: list[str], types: list[str], history: str) -> None:
        """All rows, and those of a predicate, without Spark: a fraction of the time."""
        kinds = dict(zip(names, types, strict=True))
        asked = {name: kind for name, kind in kinds.items() if kind in KINDS}
        raw = [dict(zip(names, row, strict=True)) for row in rows]
        favoured = [columns for columns in asked_columns(table) if columns and set(columns) <= set(asked)]
        try:
            found = arrow_rows(self.opened(table).read())
        except UnsupportedSource as declined:
            self.tally.add("declined in process", f"{type(declined).__name__} of all rows")
            return self.everything(table, rows, history)
        except LakeIndexError as error:
            raise AssertionError(f"{history}, in process: {error}") from error
        assert found == shown(rows), f"{history}: all rows in process: {_differ(found, shown(rows))}"
        predicate = Predicates(self.rng, asked, raw, favoured, self.careful).portable()
        matching = Oracle(self.spark, rows, kinds).matching(predicate) or []
        columns = self.rng.sample(names, self.rng.randrange(1, len(names) + 1))
        expected = shown([tuple(rows[place][names.index(name)] for name in columns) for place in matching])
        context = f"{history}: {predicate.spark!r} of {columns}"
        self._in_process(table, predicate, columns, names, expected, context)
        self.tally.add("compared", "whole tables in process")

    def some(
        self, table: Any, rows: Sequence[Row], names: list[str], types: list[str], history: str, count: int
    ) -> None:
        """Random predicates over these rows."""
        favoured = asked_columns(table)
        favoured += [list(table.definition.record_key)] if table.definition.record_key else []
        favoured = [columns for columns in favoured if columns and set(columns) <= set(names)]
        raw = [dict(zip(names, row, strict=True)) for row in rows]
        kinds = dict(zip(names, types, strict=True))
        oracle = Oracle(self.spark, rows, kinds)
        asked = {name: kind for name, kind in kinds.items() if kind in KINDS}
        for _ in range(count):
            held = self._held(table, names)
            if held is None:
                columns = self.rng.sample(names, self.rng.randrange(1, len(names) + 1))
                predicate = Predicates(self.rng, asked, raw, favoured, self.careful).draw()
                self._one(table, oracle, predicate, names, columns if self.rng.random() < 0.3 else None, history)
            else:
                some = {name: asked[name] for name in held if name in asked}
                self._one(
                    table,
                    oracle,
                    Predicates(self.rng, some, raw, [held[:1]], self.careful).draw(),
                    names,
                    held,
                    history,
                )

    def about(
        self, table: Any, rows: Sequence[Row], names: list[str], types: list[str], history: str, name: str
    ) -> None:
        """One of the rarest values of a column, its rows read block by block where an index tells of blocks."""
        kinds = dict(zip(names, types, strict=True))
        times = Counter(row[names.index(name)] for row in rows)
        value = self.rng.choice([value for value, count in times.items() if count == min(times.values())])
        predicate = Predicates(self.rng, kinds, [], [], self.careful).one(name, value)
        # Files with old days or times are left to Spark, where these are wanted.
        plain = [one for one in names if kinds[one] not in ("date", "timestamp") or one == name]
        self._one(table, Oracle(self.spark, rows, kinds), predicate, names, plain, history, all_blocks=True)

    def _held(self, table: Any, names: list[str]) -> list[str] | None:
        """The columns of an index that holds rows, so that it can answer alone."""
        covering = [info for info in table.indexes.values() if info.kind == "covering"]
        if not covering or self.rng.random() < 0.55:
            return None
        info = self.rng.choice(covering)
        try:
            indexed = asked_by(table.definition, info.definition)
        except InvalidInput:  # over a column that is gone
            return None
        held = [name for name in dict.fromkeys([*indexed, *info.included]) if name in names]
        return held or None

    def _one(
        self,
        table: Any,
        oracle: Oracle,
        predicate: Predicate,
        names: list[str],
        columns: list[str] | None,
        history: str,
        all_blocks: bool = False,
    ) -> None:
        joined = self.rng.random() < 0.15
        where, context = predicate.spark, f"{history}: {predicate.spark!r} of {columns}"
        matching = oracle.matching(predicate)
        if matching is None:
            self.tally.add("compared", "refused by Spark")
            return
        with _borders(1 if joined else None, all_blocks or self.rng.random() < 0.5):
            plan = self.tally.plan(table, where, columns, joined)
            try:
                actual = rows_of(table.read(where, columns))
            except (LakeIndexError, PySparkException) as error:
                raise AssertionError(f"{context}: {error}\n{plan}") from error
        places = [names.index(name) for name in columns or names]
        expected = shown([tuple(oracle.rows[row][at] for at in places) for row in matching])
        assert actual == expected, f"{context}: {_differ(actual, expected)}\n{plan}"
        if self.rng.random() < 0.4:
            self._by_data_source(table, where, columns or names, expected, context)
        self._in_process(table, predicate, columns, names, expected, context)
        if self.plain.rng.random() < self.share:
            self._plainly(table, oracle, Half(predicate, [oracle.rows[row] for row in matching]), names, history)
        self.tally.add("compared", "predicates with DuckDB" if predicate.duck else "predicates with plain Spark")
        self.tally.add("compared", "matching rows", len(matching))

    def _plainly(self, table: Any, oracle: Oracle, first: Half, names: list[str], history: str) -> None:
        """A plain query about the same rows and some others of the table."""
        ways = self.ways(table)
        if not ways:
            return
        raw = [dict(zip(names, row, strict=True)) for row in oracle.rows]
        favoured = [columns for columns in asked_columns(table) if set(columns) <= set(names)]
        asked = {name: kind for name, kind in oracle.types.items() if kind in KINDS}
        other = Predicates(
            self.plain.rng, asked, raw, [columns for columns in favoured if columns], self.careful
        ).portable()
        second = Half(other, [oracle.rows[row] for row in oracle.matching(other) or ()])
        self.plain.ask(self.plain.rng.choice(ways), names, dict(oracle.types), first, second, history)

    def _by_data_source(
        self, table: Any, where: str, columns: Sequence[str], expected: Counter[tuple[str, ...]], context: str
    ) -> None:
        """The same by the data source, whose planning and reading run in this process as they do in Spark's workers."""
        options = self.place(table)
        if options is None:
            return
        source = IndexedDataSource({**options, "where": where})
        try:
            whole = source.schema()
            # A sent copy: what Spark ships to its workers is what reads.
            reader = pickle.loads(pickle.dumps(source.reader(StructType([whole[name] for name in columns]))))
            parts = source.reader(StructType([whole[name] for name in columns])).partitions()
            batches = [batch for part in parts for batch in reader.read(pickle.loads(pickle.dumps(part)))]
        except (UnsupportedSource, InvalidPredicate) as declined:
            self.tally.add("declined by the data source", type(declined).__name__)
            return
        except LakeIndexError as error:
            raise AssertionError(f"{context}, by the data source: {error}") from error
        rows = [row for batch in batches for row in zip(*(one.to_pylist() for one in batch.columns), strict=True)]
        assert shown(rows) == expected, f"{context}, by the data source: {_differ(shown(rows), expected)}"
        self.tally.add("read paths", "data source")

    def _in_process(
        self,
        table: Any,
        predicate: Predicate,
        columns: list[str] | None,
        names: list[str],
        expected: Counter[tuple[str, ...]],
        context: str,
    ) -> None:
        """The same without Spark: by a predicate, by the keys of its rows, and by DuckDB over the table."""
        opened = self.opened(table)
        with _small_is_large(crc32(context.encode()) % 2 == 0):
            self._read_in_process(opened, predicate, columns, names, expected, context)

    def _read_in_process(
        self,
        opened: OpenTable,
        predicate: Predicate,
        columns: list[str] | None,
        names: list[str],
        expected: Counter[tuple[str, ...]],
        context: str,
    ) -> None:
        try:
            found = opened.read(predicate.spark, columns)
            key = list(opened.definition.record_key)
            # Else a key may stand in several partitions.
            if opened.definition.source is None and set(opened.definition.partition_by) <= set(key):
                by_keys = arrow_rows(opened.lookup(opened.read(predicate.spark, key), columns))
                assert by_keys == expected, f"{context}, by keys: {_differ(by_keys, expected)}"
                self.tally.add("read paths", "keys in process")
        except (UnsupportedSource, InvalidPredicate) as declined:
            self.tally.add("declined in process", type(declined).__name__)
        except LakeIndexError as error:
            raise AssertionError(f"{context}, in process: {error}") from error
        else:
            assert arrow_rows(found) == expected, f"{context}, in process: {_differ(arrow_rows(found), expected)}"
            self.tally.add("read paths", "in process")
        if predicate.duck is None:
            return
        try:
            with connected() as connection:
                opened.duckdb(connection, "asked")
                wanted = ", ".join('"' + name.replace('"', '""') + '"' for name in columns or names)
                sql = f"SELECT {wanted} FROM asked WHERE {predicate.duck}"
                by_sql = arrow_rows(connection.sql(sql).to_arrow_table())
        except UnsupportedSource as declined:
            self.tally.add("declined in process", f"{type(declined).__name__} by DuckDB")
            return
        except duckdb.InvalidInputException as declined:
            # What is found in a file while rows are read comes as an error of DuckDB's.
            words = ("only Spark's own reader reads rightly", "Arrow may", "cannot be read without Spark")
            assert any(each in str(declined) for each in words), declined
            self.tally.add("declined in process", "a file by DuckDB")
            return
        assert by_sql == expected, f"{context}, by DuckDB: {_differ(by_sql, expected)}"
        self.tally.add("read paths", "DuckDB over a table")

    def opened(self, table: Any) -> OpenTable:
        options = self.place(table)
        if options is None:
            # A source is shown with the files that the table was loaded with.
            handle = TableHandle(NO_SPARK, table._handle.timeline, table._handle.source_options)
            return OpenTable(handle, replace(table.snapshot, spark=NO_SPARK))
        storage = {name.removeprefix("storage."): text for name, text in options.items() if name.startswith("storage.")}
        version = int(options["version"]) if "version" in options else None
        source_version = options.get("source_version")
        return spark_apps.open_table(options["path"], version, options=storage, source_version=source_version)


@contextlib.contextmanager
def _small_is_large(so: bool) -> Iterator[None]:
    """Sometimes takes ways for large tables: some pages of a row group, file groups side by side."""
    with pytest.MonkeyPatch.context() as patch:
        if so:
            patch.setattr(query_rows, "MIN_PAGED_ROWS", 0)
            patch.setattr(page_index, "_MAX_SHARE_OF_ROWS", 1.0)
            patch.setattr(arrow_reading, "MIN_THREADED_BYTES", 0)
        yield


def arrow_rows(rows: Any) -> Counter[tuple[str, ...]]:
    """The rows of an Arrow table as :func:`shown` shows them."""
    return shown(zip(*(column.to_pylist() for column in rows.columns), strict=True)) if rows.num_rows else Counter()


@contextlib.contextmanager
def _borders(few: int | None, all_blocks: bool) -> Iterator[None]:
    """Sometimes takes ways for small tables that are meant for large ones: keys joined, files read block by block."""
    with pytest.MonkeyPatch.context() as patch:
        if few is not None:
            patch.setattr(lookup, "MAX_DRIVER_KEYS", few)
            patch.setattr(lookup, "MAX_RETURNED_KEYS", few)
            patch.setattr(planning, "MAX_RETURNED_KEYS", few)
        if all_blocks:
            patch.setattr(planning, "MIN_SAVED_BYTES", 1)
        yield


def _differ(actual: Any, expected: Any) -> str:
    missing, more = list((expected - actual).elements()), list((actual - expected).elements())
    return f"{len(missing)} rows missing, such as {missing[:3]}; {len(more)} too many, such as {more[:3]}"
