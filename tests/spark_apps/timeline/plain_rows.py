"""A keyed table whose rows Arrow writes by the rules of the Spark side, with a model of what each version holds."""

from __future__ import annotations

import datetime as dt
import decimal
import io
import random
from collections.abc import Callable, Iterable
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace

from spark_apps.layout.partitions import path_of_texts
from spark_apps.mergetree.read import encode_positions, positions_target
from spark_apps.mergetree.tree import DELETED
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.files import Positions, positions_path
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    DATA_TREE,
    NEW_KEYS,
    SCHEMA_SCOPE,
    AddFile,
    AnyAction,
    DropPartition,
    DropTable,
    Field,
    HashingConfig,
    PutHashingConfig,
    PutPartition,
    PutTable,
    RemoveFile,
    TableDefinition,
    Write,
    group_scope,
    partition_scope,
    table_scope,
)
from spark_apps.timeline.restore import restore
from spark_apps.timeline.transactions import begin

FIELDS = (
    Field("id", "bigint", False),
    Field("name", "string"),
    Field("at", "timestamp"),
    Field("price", "decimal(10,2)"),
    Field("x", "double"),
    Field("tags", "array<string>"),
    Field("must", "bigint", False),
    Field("p", "string"),
)
TYPES = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
    "decimal(10,2)": pa.decimal128(10, 2),
    "double": pa.float64(),
    "array<string>": pa.list_(pa.string()),
}
BUCKETS = 2
PARTITIONS = ("a b", "x%y/z", None)

Row = dict[str, Any]
Rows = dict[tuple[str | None, int], Row]
"""(partition, id) -> row by stored names."""


class PlainRows:
    """The table, its log, and for each version the rows that it must hold."""

    def __init__(
        self,
        folder: Path | str,
        *,
        partitioned: bool,
        positions: bool = False,
        properties: dict[str, str] | None = None,
        options: dict[str, str] | None = None,
    ) -> None:
        self.store = Store(folder, options)
        self.partition_by = ("p",) if partitioned else ()
        given = {"publish": "delta"} if properties is None else properties
        definition = TableDefinition(
            "t", FIELDS, ("id",), self.partition_by, positions=positions, properties=given, hash_fields=("id",)
        )
        create_table(self.store, definition, (PutHashingConfig(HashingConfig("", BUCKETS)),))
        self.log = Timeline.load(self.store)
        self.rows: Rows = {}
        self.versions: dict[int, tuple[TableDefinition, Rows]] = {}
        self.note()

    @property
    def table(self) -> TableDefinition:
        return self.log.head.table

    def reopened(self, store: Store) -> PlainRows:
        """The same table by another process, at another folder perhaps, and with a model of its own."""
        again = copy(self)
        again.store, again.log = store, Timeline.load(store)
        again.rows, again.versions = dict(self.rows), dict(self.versions)
        return again

    def note(self) -> None:
        """Remember what the newest version holds."""
        self.log.refresh()
        self.versions[self.log.head.version] = (self.table, dict(self.rows))

    def expected(self, version: int) -> list[tuple[Any, ...]]:
        """Rows of a version, as any reader must find them."""
        table, rows = self.versions[version]
        return sorted((tuple(row.get(f.stored_name) for f in table.fields) for row in rows.values()), key=repr)

    def row(self, number: int, partition: str | None, rng: random.Random) -> Row:
        """A row of every type, with nulls and numbers that are none."""
        value = {
            "id": number,
            "name": rng.choice([None, f"n{number}", "ü" * rng.randint(0, 200)]),
            "at": dt.datetime(2024, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=rng.randint(0, 10**12)),
            "price": rng.choice([None, decimal.Decimal(rng.randint(-(10**9), 10**9)).scaleb(-2)]),
            "x": rng.choice([None, 0.5, float(number), float("inf")]),
            "tags": rng.choice([None, [], ["a", None]]),
            "p": partition,
        }
        return {f.stored_name: value.get(f.stored_name, number) for f in self.table.fields}

    # --- files --------------------------------------------------------------------------------------------------------

    def _file(self, rows: Iterable[Row], path: str, gone: Iterable[int] = (), kind: str = "delta") -> tuple[int, int]:
        live = [{**row, DELETED: None} for row in rows]
        dead = [{"id": number, DELETED: True} for number in gone]
        ordered = sorted([*live, *dead], key=lambda row: row["id"])
        fields = [(f.stored_name, TYPES[f.type]) for f in self.table.fields]
        schema = pa.schema([*fields, *([(DELETED, pa.bool_())] if kind == "delta" else [])])
        table = pa.Table.from_pylist([{n: row.get(n) for n in schema.names} for row in ordered], schema)
        sink = io.BytesIO()
        pq.write_table(table, sink, row_group_size=3)
        self.store.put(path, sink.getvalue())
        return table.num_rows, len(sink.getvalue())

    def commit(self, operation: str, make: Callable[[Any], tuple[list[AnyAction], list[Write]]]) -> None:
        """One transaction, whose model is in ``self.rows`` already."""
        self.log.refresh()
        transaction = begin(self.log, operation=operation)
        actions, writes = make(transaction)
        transaction.commit(actions, writes=list(dict.fromkeys(writes)))
        self.note()

    def _path(self, partition: str | None) -> str:
        return path_of_texts(self.table, (partition,) if self.partition_by else ())

    def _put(self, partition: str | None) -> list[AnyAction]:
        path = self._path(partition)
        if path in self.log.head.partitions:
            return []
        return [PutPartition(path, BUCKETS, (partition,) if self.partition_by else ())]

    def _by_group(self, numbers: Iterable[int]) -> dict[int, list[int]]:
        groups: dict[int, list[int]] = {}
        for number in numbers:
            groups.setdefault(number % BUCKETS, []).append(number)
        return groups

    def write(self, operation: str, partition: str | None, rows: list[Row], gone: list[int] = []) -> None:  # noqa: B006
        """An insert, upsert or delete, as deltas."""
        where = partition if self.partition_by else None
        for row in rows:
            self.rows[where, row["id"]] = row
        for number in gone:
            self.rows.pop((where, number), None)

        def make(transaction: Any) -> tuple[list[AnyAction], list[Write]]:
            actions, writes = self._put(partition), []
            for group, numbers in self._by_group([*(row["id"] for row in rows), *gone]).items():
                path = f"{transaction.data_folder('rows')}/part=0/group={group}/f-{len(actions)}.parquet"
                live = [row for row in rows if row["id"] in numbers]
                dead = [number for number in gone if number in numbers]
                there, size = self._file(live, path, dead)
                under = self.log.head.groups(DATA_TREE).get((self._path(partition), str(group)), [])
                extra: dict[str, Any] = {NEW_KEYS: True} if operation == "insert" else {}
                extra |= self._positions(path, under, numbers) if self.table.positions else {}
                actions.append(
                    AddFile(DATA_TREE, self._path(partition), str(group), path, "delta", there, size, None, len(dead),
                            hash(path) & 0x7FFFFFFFFFFFFFFF, extra or None)
                )  # fmt: skip
                writes.append(Write(group_scope(self._path(partition), str(group)), "append"))
            return actions, writes

        self.commit(operation, make)

    def _positions(self, path: str, under: Any, numbers: list[int]) -> dict[str, Any]:
        bottom = positions_target(under) if under else None
        if bottom is None:
            return {}
        keys = pq.read_table(io.BytesIO(self.store.get(bottom.path)), columns=["id"])["id"].to_pylist()
        hidden = np.array([n for n, key in enumerate(keys) if key in numbers], np.int64)
        if not len(hidden):
            return Positions(bottom.lineage).to_extra()
        body = encode_positions(bottom.lineage, bottom.rows, hidden)
        self.store.put(positions_path(path), body)
        return Positions(bottom.lineage, len(hidden), len(body)).to_extra()

    def fold(self, operation: str = "compact") -> None:
        """A full compaction."""

        def make(transaction: Any) -> tuple[list[AnyAction], list[Write]]:
            actions: list[AnyAction] = []
            writes = []
            for (partition, group), files in self.log.head.groups(DATA_TREE).items():
                if len(files) == 1 and files[0].kind == "base":
                    continue
                values = self.log.head.partitions[partition].values
                where = values[0] if self.partition_by else None
                rows = [r for (p, n), r in self.rows.items() if p == where and n % BUCKETS == int(group)]
                actions += [RemoveFile(DATA_TREE, file.path) for file in files]
                writes.append(Write(group_scope(partition, group), "fold"))
                if rows:
                    path = f"{transaction.data_folder('folded')}/part={len(actions)}/group={group}/f.parquet"
                    there, size = self._file(rows, path, kind="base")
                    number = max(file.sequence_number for file in files)
                    actions.append(AddFile(DATA_TREE, partition, group, path, "base", there, size, number, 0,
                                           hash(path) & 0x7FFFFFFFFFFFFFFF))  # fmt: skip
            return actions, writes

        self.commit(operation, make)

    def drop_partition(self, partition: str | None) -> None:
        self.rows = {key: row for key, row in self.rows.items() if key[0] != partition}
        path = self._path(partition)
        self.commit("drop_partition", lambda _: ([DropPartition(path)], [Write(partition_scope(path), "replace")]))

    def define(self, **changes: Any) -> None:
        """A change of the definition."""
        table = replace(self.table, **changes)
        self.commit("change_columns", lambda _: ([PutTable(table)], [Write(SCHEMA_SCOPE, "replace")]))

    def restore(self, version: int) -> None:
        """Go back: rows, not columns."""
        self.rows = dict(self.versions[version][1])
        restore(self.log, version)
        self.note()

    def drop(self) -> None:
        self.log.refresh()
        transaction = begin(self.log, operation="drop_table")
        transaction.commit([DropTable()], writes=[Write(table_scope(), "replace")])
