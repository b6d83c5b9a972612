"""Sources whose owner changes their columns, and walks over them: a column that is dropped, renamed, or there again as
another one under its old name harms no index over the others, and no answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from spark_apps import IndexedTable
from spark_apps.indexes.registry import asked_by
from spark_apps.storage.errors import InvalidInput, LakeIndexError
from tests.differential.registered import Registered
from tests.differential.skipping import asked_columns
from tests.differential.values import arrow
from tests.differential.writers import Delta, Iceberg, Owner, Plain
from tests.spark_apps.table_model import Row

_MORE = {"n": "int", "day": "date", "x": "double", "ok": "boolean", "m": "int", "note": "string"}
"""Names and types of columns that come and go; a name always has its type, whatever column bears it."""


class Evolving(Owner):
    """An owner whose columns are its own. ``shapes``: names and types by version.

    ``indexed`` are columns that indexes are over now: these go more often than others.
    """

    indexed: Collection[str] = ()

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.columns = dict(Owner.columns)  # type: ignore[misc]
        self.shapes: dict[Any, tuple[list[str], list[str]]] = {}
        super().__init__(folder, rng)

    def draw(self, part: str | None) -> list[Row]:
        start, cities = self.rng.randrange(60), [self._text() for _ in range(2)]
        fixed = {"id": lambda n: start + n, "city": lambda _: self.rng.choice(cities), "part": lambda _: part}
        return [
            tuple(fixed[name](n) if name in fixed else self._value(kind) for name, kind in self.columns.items())
            for n in range(self.rng.randrange(1, 12))
        ]

    def arrow(self, rows: list[Row]) -> pa.Table:
        return arrow(rows, self.columns)

    def _absent(self) -> str | None:
        """A name that no column has now, though one may have had it."""
        names = [name for name in _MORE if name not in self.columns]
        return self.rng.choice(names) if names else None

    def _present(self) -> str | None:
        names = [name for name in self.columns if name in _MORE]
        if len(names) < 2:
            return None
        favoured = [name for name in names if name in self.indexed]
        return self.rng.choice(favoured if favoured and self.rng.random() < 0.7 else names)

    def _without(self, name: str) -> list[Row]:
        at = self.names.index(name)
        del self.columns[name]
        return [(*row[:at], *row[at + 1 :]) for row in self.rows]

    def _with(self, name: str) -> list[Row]:
        self.columns[name] = _MORE[name]
        return [(*row, None) for row in self.rows]

    def _renamed(self, name: str, to: str) -> None:
        """Give a column another name, and the place that it has."""
        columns = [(to if one == name else one, kind) for one, kind in self.columns.items()]
        self.columns.clear()
        self.columns.update(columns)

    def _alike(self, name: str) -> str | None:
        """A free name that may be given to a column, which keeps its type."""
        names = [one for one in _MORE if one not in self.columns and _MORE[one] == self.columns[name]]
        return self.rng.choice(names) if names else None


class EvolvingDelta(Evolving, Delta):
    changes = ("append", "append", "delete", "optimize", "overwrite", "add_column", "drop_column", "drop_column",
               "rename_column")  # fmt: skip

    def overwrite(self) -> None:
        self._replace(self.draw(self.part()))

    def add_column(self) -> None:
        if (name := self._absent()) is not None:
            self._replace(self._with(name))

    def drop_column(self) -> None:
        if (name := self._present()) is not None:
            self._replace(self._without(name))

    def rename_column(self) -> None:
        name = self._present()
        to = self._alike(name) if name is not None else None
        if name is not None and to is not None:
            self._renamed(name, to)
            self._replace(self.rows)

    def _replace(self, rows: list[Row]) -> None:
        by = ["part"] if self.partitioned else None
        write_deltalake(self.folder, self.arrow(rows), mode="overwrite", schema_mode="overwrite", partition_by=by)
        self._now(rows)

    def _now(self, rows: list[Row]) -> None:
        super()._now(rows)
        self.shapes[DeltaTable(self.folder).version()] = (self.names, self.types)


class EvolvingIceberg(Evolving, Iceberg):
    changes = ("append", "append", "delete", "add_column", "drop_column", "drop_column", "rename_column")

    def add_column(self) -> None:
        if (name := self._absent()) is not None:
            rows = self._with(name)
            with self.table.update_schema() as update:
                update.union_by_name(self.arrow([]).schema)
            self._now(rows)

    def drop_column(self) -> None:
        if (name := self._present()) is not None:
            rows = self._without(name)
            with self.table.update_schema() as update:
                update.delete_column(name)
            self._now(rows)

    def rename_column(self) -> None:
        name = self._present()
        to = self._alike(name) if name is not None else None
        if name is not None and to is not None:
            self._renamed(name, to)
            with self.table.update_schema() as update:
                update.rename_column(name, to)
            self._now(self._rows)

    def _now(self, rows: list[Row]) -> None:
        """A change of columns makes no snapshot: what was read before is read by the columns of now."""
        self._rows = rows
        self.versions = {self.table.current_snapshot().snapshot_id: rows}
        self.shapes = dict.fromkeys(self.versions, (self.names, self.types))


class EvolvingPlain(Evolving, Plain):
    """Files of which some lack a column, or have one more, or have them in another order."""

    def write(self, path: Path, rows: pa.Table) -> None:
        if not self.files:  # by which Spark tells the columns
            return super().write(path, rows)
        more = rows.select(self.rng.sample(rows.column_names, len(rows.column_names)))
        if self.rng.random() < 0.3:
            more = more.append_column("unknown", pa.array(range(rows.num_rows), pa.int64()))
        return super().write(path, more)

    def _write(self, path: Path, rows: list[Row]) -> None:
        lacking = self.rng.choice(["n", "x", "day", None, None, None]) if self.files else None
        if lacking is None:
            return super()._write(path, rows)
        at, kind = self.names.index(lacking), self.columns[lacking]
        items = list(self.columns.items())
        del self.columns[lacking]
        super()._write(path, [(*row[:at], *row[at + 1 :]) for row in rows])
        self.columns.clear()
        self.columns.update(items)
        assert self.columns[lacking] == kind
        self.files[path] = [(*row[:at], None, *row[at + 1 :]) for row in rows]
        return None


@dataclass
class SourceWalk(Registered):
    """A walk over a source whose columns change. ``without``: the numbers of steps that are left out."""

    without: Collection[int] = ()
    owners: ClassVar[Any] = (EvolvingDelta, EvolvingIceberg, EvolvingPlain)

    def _go_on(self, kind: type[Owner]) -> None:
        for number in range(self.steps):
            for drawing, name in ((self, ""), (self.owner, "owner "), (self.ask, "ask "), (self.ask.plain, "plain ")):
                drawing.rng = random.Random(f"walk {self.seed} {name}{number}")
            if number in self.without:
                continue
            if number in (0, 1, 3):
                self.act(self.create_index)
            elif number == 2 or self.rng.random() < 0.5:
                assert isinstance(self.owner, Evolving)
                self.owner.indexed = {name for columns in asked_columns(self.table) for name in columns}
                self.done.append(self.owner.change())
                self.tally.add("steps", f"source: {self.done[-1]}")
            else:
                self.act(
                    self.rng.choice([self.refresh, self.refresh, self.create_index, self.compact, self.drop_index])
                )
            self.load()
            self.check()
        self.verify()

    def create_index(self, kind: str | None = None, columns: list[str] | None = None) -> None:
        """Create an index, every other time over a column that stays and one that may go."""
        going = [name for name in self.owner.names if name in ("n", "day", "m", "note")]
        if columns is None and going and self.rng.random() < 0.5:
            columns = [self.rng.choice(["id", "city"]), self.rng.choice(going)]
        super().create_index(kind, columns)

    # --- what a column that is gone may refuse ----------------------------------------------------------------------

    def lost(self, table: Any, name: str) -> bool:
        """Whether an index is about a column that is gone, or that may be another one under its name."""
        info = table.indexes[name]
        try:
            about = {*asked_by(table.definition, info.definition), *info.included}
        except InvalidInput:
            return True
        return bool(about & set(_MORE)) and any(step.endswith("_column") for step in self.done)

    def refresh(self) -> None:
        self._of_index(super().refresh)

    def compact(self) -> None:
        self._of_index(super().compact)

    def _of_index(self, what: Any) -> None:
        """What is done to an index; only one over a column that has changed may refuse it."""
        before = len(self.done)
        try:
            what()
        except LakeIndexError:
            words = self.done[before].split() if len(self.done) > before else ["", ""]
            if not (words[1] in self.table.indexes and self.lost(self.table, words[1])):
                raise
            self.tally.add("steps refused", "source: column changed")

    # --- checking ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        owner = self.owner
        assert self.table.schema.names == owner.names, f"{self.history}: {self.table.schema.names}, not {owner.names}"
        self.ask.quickly(self.table, owner.rows, owner.names, owner.types, self.history)
        self._check_gone()
        chance = self.rng.random()
        if chance < 0.2:
            self.ask.everything(self.table, owner.rows, self.history)
        elif chance < 0.5:
            self.ask.some(self.table, owner.rows, owner.names, owner.types, self.history, self.questions)
        elif owner.versions and chance > 0.9:
            self._check_older(self.rng.choice(sorted(owner.versions)))

    def _check_gone(self) -> None:
        """An index over a column that the table does not have any more is not used, and says so."""
        not_used = self.ask.opened(self.table).explain().not_used
        for name, info in self.table.indexes.items():
            over = {one for one in _MORE for text in info.columns if re.search(rf"\b{one}\b", text)}
            if over - set(self.owner.names):
                code = not_used[name].code if name in not_used else "used"
                assert code in ("column_gone", "not_active"), f"{self.history}: index {name} over {over}: {code}"
                self.tally.add("verified", "not used: column gone")

    def _check_older(self, version: Any) -> None:
        rows, of_then = self.owner.versions[version], f"{self.history}, source version {version}"
        names, types = self.owner.shapes[version]
        old = IndexedTable.load(self.spark, self.log, source_version=version)
        assert old.schema.names == names, f"{of_then}: {old.schema.names}, not {names}"
        self.ask.everything(old, rows, of_then)
        self.asked_version = version
        self.ask.some(old, rows, names, types, of_then, 1)
        self.asked_version = None
        self.tally.add("compared", "older versions of sources")

    def verify(self) -> None:
        for name, info in self.table.indexes.items():
            try:
                report = self.table.verify(name)
            except LakeIndexError:
                if not self.lost(self.table, name):
                    raise
                self.tally.add("verified", "refused: column changed")
                continue
            assert report.ok, f"{self.history}: index {name} ({info.kind} over {info.columns}): {report}"
            self.tally.add("verified", info.kind)
