"""What may be done to a keyed table: each step is drawn together with what it does to the model's rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.storage import errors
from tests.differential.model import RawRows, draw_rules
from tests.differential.oracle import Oracle
from tests.differential.predicates import Predicates
from tests.differential.skipping import draw_expressions, draw_parts, draw_properties
from tests.differential.values import KINDS, WIDER, arrow, draw
from tests.spark.releases import SPARK
from tests.spark_apps.frames import of_arrow
from tests.spark_apps.table_model import Row

_WORDS = {
    "upsert", "insert", "delete", "keys", "rows", "where", "insert_overwrite", "drop_partition", "compact", "table",
    "quick", "full", "incremental", "rescale", "restore", "clean", "create", "record", "secondary", "covering",
    "skipping", "refresh", "drop", "column", "add", "rename", "widen", "sql", "merge", "update", "stream", "publish",
    "replay", "deleted",
}  # fmt: skip


def nothing() -> None:
    """What a step does to the rows if it is about indexes or files alone."""


@dataclass(frozen=True)
class Step:
    """What is done to the table, what that does to the rows, and the errors by which it may be refused instead.

    :param must_refuse: it has to be refused.
    :param transaction: the transaction's id, made of the one that is given.
    """

    name: str
    run: Callable[[IndexedTable, str], Any]
    effect: Callable[[], None] = nothing
    refusals: tuple[type[Exception], ...] = ()
    must_refuse: bool = False
    transaction: str = "{}"

    @property
    def kind(self) -> str:
        """The first words of its name, for the counters."""
        words = [word for word in self.name.split() if word in _WORDS]
        return " ".join(words[:2])


class Steps:
    """Draws steps. What they are drawn for, a history sets: its random numbers, model and table, and what was done."""

    spark: Any
    rng: random.Random
    model: RawRows
    table: IndexedTable
    done: list[str]
    said: str
    record_since: int
    """The version from which on a record index guards keys: nothing older may be restored."""

    def load(self, version: int | None = None) -> IndexedTable:
        """The table anew, perhaps as of a version."""
        raise NotImplementedError

    @property
    def history(self) -> str:
        """The table and all its steps, for the message of a failure."""
        return f"{self.said}\n{' > '.join(self.done)}"

    @property
    def asked(self) -> list[str]:
        """The columns that predicates and indexes may be about."""
        return [name for name, kind in self.model.typed().items() if kind in KINDS]

    # --- rows ---------------------------------------------------------------------------------------------------

    def _choices(self) -> list[Callable[[], Step | None]]:
        return [self.upsert] * 4 + [self.insert, self.delete_keys, self.delete_rows, self.delete_where, self.overwrite,
                self.drop_partition, self.compact_table, self.compact_index, self.compact_index, self.rescale,
                self.refresh, self.refresh, self.refresh, self.create_index, self.create_index, self.drop_index,
                self.restore, self.add_column, self.rename_column, self.widen_column, self.drop_column,
                self.clean]  # fmt: skip

    def _row(self) -> Row:
        never = {*self.model.key}
        return tuple(
            draw(self.rng, kind, 0.0 if name in never else 0.15)
            for name, kind in zip(self.model.names, self.model.types, strict=True)
        )

    def _batch(self, size: int) -> list[Row]:
        """Rows, some of keys that there are; of two with one key the ordering tells which is newer."""
        drawn: dict[Any, Row] = {}
        there = sorted(self.model.rows.values(), key=repr)
        for _ in range(self.rng.randrange(1, size + 1)):
            row = self._row()
            if there and self.rng.random() < 0.4:
                old = self.rng.choice(there)
                same = self.model.key if self.rng.random() < 0.4 else [*self.model.key, *self.model.partition_by]
                row = tuple(old[at] if name in same else row[at] for at, name in enumerate(self.model.names))
            drawn.setdefault((self.model.identity(row)[1], self.model._order(row)), row)
        return list(drawn.values())

    def _frame(self, rows: list[Row], names: list[str] | None = None) -> Any:
        types = self.model.typed()
        return of_arrow(self.spark, arrow(rows, {name: types[name] for name in names or self.model.names}))

    def upsert(self, size: int = 12) -> Step:
        rows = self._batch(size)
        return Step("upsert", lambda t, x: t.upsert(self._frame(rows), txn_id=x), lambda: self.model.upsert(rows))

    def insert(self) -> Step:
        rows, there = self._batch(3), False
        there = self.model.holds_any(rows)
        refusals = (errors.KeysExist,) if there else ()
        return Step("insert", lambda t, x: t.insert(self._frame(rows), txn_id=x), lambda: self.model.upsert(rows),
                    refusals, there)  # fmt: skip

    def _some(self) -> list[Row]:
        there = sorted(self.model.rows.values(), key=repr)
        return self.rng.sample(there, min(len(there), self.rng.randrange(1, 6)))

    def delete_keys(self) -> Step:
        """Keys alone, also some that are not there; wherever they are found."""
        keys = list({self.model.identity(row)[1] for row in [*self._some(), self._row()]})
        given = self.model.key
        if set(self.model.partition_by) & set(given):
            return self.upsert()
        return Step("delete keys", lambda t, x: t.delete(self._frame(keys, given), txn_id=x),
                    lambda: self.model.delete_keys(keys))  # fmt: skip

    def delete_rows(self) -> Step:
        rows = [*self._some(), *self._batch(3)]
        # With the column that orders them they would be deletes with an ordering, as upsert_deleted draws them.
        given = [name for name in self.model.names if name != self.model.ordering or name in self.model.partition_by]
        taken = [self.model.names.index(name) for name in given]
        frame = [tuple(row[at] for at in taken) for row in rows]
        places = [self.model.identity(row) for row in rows]
        return Step("delete rows", lambda t, x: t.delete(self._frame(frame, given), txn_id=x),
                    lambda: self.model.delete_rows(places))  # fmt: skip

    def delete_where(self) -> Step | None:
        rows = list(self.model.rows.values())
        favoured = [self.model.key, *([["city"]] if "city" in self.model.names else [])]
        types = {name: kind for name, kind in self.model.typed().items() if name in self.asked}
        drawn = Predicates(self.rng, types, self.model.dictionaries(), favoured)
        predicate = drawn.draw()
        if self.rng.random() < 0.8:
            predicate = predicate.joined("AND", drawn.draw())
        numbers = Oracle(self.spark, rows, self.model.typed()).matching(predicate)
        if numbers is None:
            return None
        gone = [self.model.identity(rows[at]) for at in numbers]
        return Step(f"delete where {predicate.spark}"[:80], lambda t, x: t.delete(predicate.spark, txn_id=x),
                    lambda: self.model.delete_rows(gone))  # fmt: skip

    def overwrite(self) -> Step:
        rows = self._batch(6)
        return Step("insert_overwrite", lambda t, x: t.insert_overwrite(self._frame(rows), txn_id=x),
                    lambda: self.model.overwrite(rows))  # fmt: skip

    def drop_partition(self) -> Step | None:
        if not self.model.partition_by or not self.table.partitions:
            return None
        path = self.rng.choice(sorted(self.table.partitions))
        values = self.table.snapshot.state.partitions[path].values
        gone = [at for at in self.model.rows if tuple(map(_text, at[0])) == values]
        return Step("drop_partition", lambda t, x: t.drop_partition(path, txn_id=x), lambda: self.model.remove(gone))

    # --- layout and time ----------------------------------------------------------------------------------------

    def compact_table(self) -> Step:
        mode = self.rng.choice(["full", "full", "quick"])
        return Step(f"compact table {mode}", lambda t, x: t.compact(mode=mode, txn_id=x))

    def rescale(self) -> Step | None:
        if not self.table.definition.bucketed:
            return None
        arguments: dict[str, Any] = {"buckets": self.rng.randrange(1, 5)}
        if self.model.partition_by and self.rng.random() < 0.6:
            arguments |= draw_rules(self.rng, self.model.partition_by, self.model.typed())
        return Step("rescale", lambda t, x: t.rescale(**arguments, txn_id=x))

    def restore(self) -> Step | None:
        since = [version for version in self.model.versions if version >= self.record_since]
        if not since:
            return None
        version = self.rng.choice(sorted(since))
        return Step(
            f"restore {version}", lambda t, x: t.restore(version, txn_id=x), lambda: self.model.restore(version)
        )

    def clean(self) -> Step:
        def effect() -> None:
            for version in sorted(self.model.versions):
                try:
                    self.load(version)
                except errors.SnapshotExpired:
                    assert version <= self.table.version - 3, f"{self.history}: version {version} has expired"
                    del self.model.versions[version]

        return Step("clean", lambda t, x: t.clean(retain_versions=3, retain_seconds=0, txn_id=x), effect)

    # --- indexes ------------------------------------------------------------------------------------------------

    def create_index(self) -> Step | None:
        kind = self.rng.choice(
            ["record", "secondary", "secondary", "compact", "covering", "covering", "skipping", "skipping"]
        )
        if kind == "record" and any(info.kind == "record" for info in self.table.indexes.values()):
            kind = "secondary"
        name, deferred = f"{kind}{len(self.done)}", self.rng.random() < 0.2
        if kind == "record":
            return self._create_record(name, deferred)
        columns = self.rng.sample(self.asked, self.rng.choice([1, 1, 2]))
        if self.rng.random() < 0.5:
            columns = ["city"] if "city" in self.model.names else columns
        floating = [name for name, type in self.model.typed().items() if type in ("float", "double")]
        if floating and kind in ("compact", "covering") and self.rng.random() < 0.4:
            columns = [self.rng.choice(floating)]
        more: dict[str, Any] = {}
        refusals: tuple[type[Exception], ...] = (errors.InvalidSchema,)  # types that cannot be indexed
        if kind == "skipping":
            columns = draw_parts(self.rng, self.model.typed(), columns)
            more["properties"], refusals = draw_properties(self.rng), ()
        if kind in ("secondary", "compact"):
            columns = draw_expressions(self.rng, self.model.typed(), columns)
        if kind == "secondary":
            more["properties"] = {"tombstones": self.rng.choice(["eager", "lazy"]), "shards": self.rng.choice([1, 2])}
        if kind == "covering":
            others = [name for name in self.model.names if name not in columns]
            more["included"] = IncludedColumns(
                include=self.rng.sample(others, self.rng.randrange(min(3, len(others)) + 1))
            )
            columns = draw_expressions(self.rng, self.model.typed(), columns)
            refusals = (errors.InvalidInput,)  # binaries and booleans cannot be laid by ranges
            more["properties"] = {"buckets": self.rng.choice([1, 2]), "hybrid_deleted_ratio": "1",
                                  **self.rng.choice([{"lineage": "true"}, {"layout": "ranges"}, {"lineage": "false"}]),
                                  "hybrid_appended_ratio": "1",
                                  "optimize_schema": self.rng.choice(["merge", "same"])}  # fmt: skip
        return Step(f"create {kind} {name} {columns}",
                    lambda t, x: t.create_index(name, kind, columns, deferred=deferred, txn_id=x, **more),
                    refusals=refusals)  # fmt: skip

    def _create_record(self, name: str, deferred: bool) -> Step:
        refused = self.model.repeated_keys() and not deferred

        def effect() -> None:
            self.record_since = self.table.version

        return Step("create record", lambda t, x: t.create_index(name, "record", deferred=deferred, txn_id=x), effect,
                    (errors.VerificationFailed,) if refused else (), refused)  # fmt: skip

    def _index(self) -> str | None:
        return self.rng.choice(sorted(self.table.indexes)) if self.table.indexes else None

    def refresh(self) -> Step | None:
        lagging = sorted(name for name, info in self.table.indexes.items() if info.lagging)
        name = self.rng.choice(lagging) if lagging and self.rng.random() < 0.7 else self._index()
        if name is None:
            return None
        info, mode = self.table.indexes[name], self.rng.choice(["incremental", "incremental", "full", "quick"])
        more: dict[str, Any] = {}
        if info.kind == "covering" and mode != "quick" and self.rng.random() < 0.4:
            more["included"] = self._evolution(info)
        elif self.model.partition_by and self.table.partitions and self.rng.random() < 0.2:
            paths = sorted(self.table.partitions)
            more["partitions"] = self.rng.sample(paths, self.rng.randrange(1, len(paths) + 1))
        # A deferred record index may meet one key in two partitions; without lineage files that went cannot be known.
        refusals: tuple[type[Exception], ...] = ()
        if info.kind == "record" and self.model.repeated_keys():
            refusals = (errors.VerificationFailed,)
        if info.kind == "covering":
            refusals = (errors.InvalidInput,)
        return Step(f"refresh {name} {mode} {more or ''}".strip(),
                    lambda t, x: t.refresh_index(name, mode, txn_id=x, **more), refusals=refusals)  # fmt: skip

    def _evolution(self, info: Any) -> IncludedColumns:
        others = [name for name in self.model.names if name not in (*info.columns, *info.included)]
        include = self.rng.sample(others, min(len(others), self.rng.randrange(2)))
        exclude = self.rng.sample(info.included, min(len(info.included), self.rng.randrange(2)))
        return IncludedColumns(include=include, exclude=exclude)

    def compact_index(self) -> Step | None:
        name, mode = self._index(), self.rng.choice(["quick", "full"])
        return name and Step(f"compact {name} {mode}", lambda t, x: t.compact(name, mode, txn_id=x))  # type: ignore[return-value]

    def drop_index(self) -> Step | None:
        names = sorted(n for n, i in self.table.indexes.items() if self.table.definition.bucketed or i.kind != "record")
        if not names:
            return None
        name = self.rng.choice(names)
        return Step(f"drop {name}", lambda t, x: t.drop_index(name, txn_id=x))

    # --- columns ------------------------------------------------------------------------------------------------

    def _columns(self, *, ordering: bool = True) -> list[str]:
        """Columns that have no part in the layout."""
        taken = {*self.model.key, *self.model.partition_by, *([self.model.ordering] if ordering else [])}
        return [name for name in self.model.names if name not in taken]

    def add_column(self) -> Step:
        name = self.rng.choice(["city", "again", "Zürich", f"new{len(self.done)}"])
        there = name.lower() in [one.lower() for one in self.model.names]
        kind = self.rng.choice(["string", "int", "double", "decimal(10,2)"])
        return Step(f"add {name} {kind}", lambda t, x: t.add_columns(f"`{name}` {kind}", txn_id=x),
                    lambda: self.model.add_column(name, kind), (errors.InvalidSchema,) if there else (),
                    there)  # fmt: skip

    def rename_column(self) -> Step:
        name = self.rng.choice([one for one in self.model.names if one not in self.model.partition_by])
        to = f"renamed{len(self.done)}"
        return Step(f"rename {name} to {to}", lambda t, x: t.rename_column(name, to, txn_id=x),
                    lambda: self.model.rename_column(name, to), (errors.InvalidInput,))  # fmt: skip

    def widen_column(self) -> Step | None:
        names = [name for name in self._columns(ordering=False) if self.model.typed()[name] in WIDER]
        if not names or SPARK < (4, 0):  # which cannot read most of them
            return None
        name = self.rng.choice(names)
        kind = WIDER[self.model.typed()[name]]
        return Step(f"widen {name} to {kind}", lambda t, x: t.widen_column(name, kind, txn_id=x),
                    lambda: self.model.widen_column(name, kind), (errors.InvalidInput,))  # fmt: skip

    def drop_column(self) -> Step | None:
        names = self._columns()
        if len(names) < 2:
            return None
        name = self.rng.choice(names)
        return Step(f"drop column {name}", lambda t, x: t.drop_column(name, txn_id=x),
                    lambda: self.model.drop_column(name), (errors.InvalidInput,))  # fmt: skip


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
