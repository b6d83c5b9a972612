"""Sources as their owners write them: folders of plain files, Delta and Iceberg tables, by the libraries of others.

Each keeps the raw rows of what it wrote, and tells which rows stood at each of its own versions.
"""

from __future__ import annotations

import json
import math
import os
import random
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv
import pyarrow.orc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog
from pyiceberg.transforms import IdentityTransform

from tests.differential.model import ddl_of
from tests.differential.values import STRINGS, arrow, draw
from tests.spark_apps.table_model import Row

_PLAIN = [text for text in STRINGS if text.isprintable() and text.strip() == text and text not in ("", "null")]
_PLAIN = [text for text in _PLAIN if not set(text) & {"\\", '"'}]
"""What CSV holds without a doubt, whoever reads it."""


class Owner(ABC):
    """The writer of a source. ``changes`` are the ways in which it writes."""

    format: ClassVar[str]
    columns: ClassVar[dict[str, str]] = {
        "id": "bigint", "city": "string", "n": "int", "day": "date", "x": "double", "ok": "boolean", "part": "string",
    }  # fmt: skip
    changes: ClassVar[tuple[str, ...]] = ("append", "append", "append", "remove", "rewrite")
    declares: ClassVar[bool] = False

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self.folder, self.rng = folder, rng
        self.versions: dict[Any, list[Row]] = {}
        self.partitioned = rng.random() < 0.6

    names = property(lambda self: list(self.columns))
    types = property(lambda self: list(self.columns.values()))

    @property
    @abstractmethod
    def rows(self) -> list[Row]:
        """All rows that stand now, with columns in declared order."""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of a registration."""
        registered: dict[str, Any] = {"uri": self.folder, "format": self.format, "record_key": ["id"]}
        return registered | ({"schema": ddl_of(self.names, self.types)} if self.declares else {})

    def change(self) -> str:
        done = self.rng.choice(self.changes)
        getattr(self, done)()
        return done

    def draw(self, part: str | None) -> list[Row]:
        """Rows of one file: ids close together, a city or two, as files mostly are."""
        start, many = self.rng.randrange(60), not self.versions and self.rng.random() < 0.5
        cities = [self._text() for _ in range(24 if many else self.rng.choice([1, 2]))]
        return [
            (start + n, self.rng.choice(cities), *(self._value(kind) for kind in self.types[2:-1]), part)
            for n in range(40 if many else self.rng.randrange(1, 20))
        ]

    def _value(self, kind: str) -> Any:
        """A value, but no NaN: Arrow leaves it out of min and max, and Spark's own filter then does not find it."""
        value = draw(self.rng, kind, 0.1)
        return None if isinstance(value, float) and math.isnan(value) else value

    def part(self) -> str | None:
        return self.rng.choice(["a", "b c", "ü%2F", None]) if self.partitioned else "a"

    def _text(self) -> str | None:
        return draw(self.rng, "string")

    def arrow(self, rows: list[Row]) -> pa.Table:
        return arrow(rows, self.columns)


class Plain(Owner):
    """A folder of files, in folders named after the partition or not."""

    format = "parquet"

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self.files: dict[Path, list[Row]] = {}
        self.clock = 1_700_000_000
        self.append()

    @property
    def rows(self) -> list[Row]:
        return [row for rows in self.files.values() for row in rows]

    def append(self) -> None:
        part = self.part()
        name = "__HIVE_DEFAULT_PARTITION__" if part is None else part.replace("%", "%25")
        folder = self.folder / f"part={name}" if self.partitioned else self.folder
        self._write(folder / f"f{self.clock} %.{self.format}", self.draw(part))

    def remove(self) -> None:
        if len(self.files) > 1:
            path = self.rng.choice(sorted(self.files))
            path.unlink()
            del self.files[path]

    def rewrite(self) -> None:
        path = self.rng.choice(sorted(self.files))
        self._write(path, self.draw(self.files[path][0][-1]))

    def _write(self, path: Path, rows: list[Row]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        table = self.arrow(rows)
        self.write(path, table.drop_columns("part") if self.partitioned else table)
        self.clock += 10
        os.utime(path, (self.clock, self.clock))
        self.files[path] = rows

    def write(self, path: Path, rows: pa.Table) -> None:
        pq.write_table(rows, path, row_group_size=4)


class Orc(Plain):
    format = "orc"

    def part(self) -> str | None:
        # Spark's own reader of ORC fails where all files are of the null partition: a column without a type.
        return super().part() or "a"

    def draw(self, part: str | None) -> list[Row]:
        # Arrow writes days before the Gregorian calendar in another one than Spark reads them in.
        at = self.names.index("day")
        rows = super().draw(part)
        return [row if row[at] is None or row[at].year > 1582 else (*row[:at], None, *row[at + 1 :]) for row in rows]

    def _value(self, kind: str) -> Any:
        """A value, but no -0.0: Spark's own filter of ORC does not find it if 0.0 is asked for."""
        value = super()._value(kind)
        return 0.0 if isinstance(value, float) and value == 0 else value

    def write(self, path: Path, rows: pa.Table) -> None:
        pyarrow.orc.write_table(rows, path)


class Json(Plain):
    format = "json"
    columns = {name: kind for name, kind in Owner.columns.items() if name not in ("x",)}
    declares = True

    def write(self, path: Path, rows: pa.Table) -> None:
        lines = [json.dumps({k: v for k, v in row.items() if v is not None}, default=str) for row in rows.to_pylist()]
        path.write_text("".join(f"{line}\n" for line in lines))


class Csv(Plain):
    format = "csv"
    columns = {name: kind for name, kind in Owner.columns.items() if name not in ("x",)}
    declares = True

    @property
    def arguments(self) -> dict[str, Any]:
        return super().arguments | {"options": {"header": True, "sep": "|"}}

    def _text(self) -> str | None:
        return self.rng.choice([None, *_PLAIN])

    def write(self, path: Path, rows: pa.Table) -> None:
        pyarrow.csv.write_csv(rows, path, pyarrow.csv.WriteOptions(delimiter="|", quoting_style="needed"))


class Delta(Owner):
    format = "delta"
    changes = ("append", "append", "append", "delete", "optimize", "overwrite")

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        self._rows: list[Row] = []
        self.append()

    @property
    def rows(self) -> list[Row]:
        return self._rows

    def append(self) -> None:
        rows = self.draw(self.part())
        write_deltalake(
            self.folder, self.arrow(rows), mode="append", partition_by=["part"] if self.partitioned else None
        )
        self._now([*self._rows, *rows])

    def overwrite(self) -> None:
        rows = self.draw(self.part())
        write_deltalake(self.folder, self.arrow(rows), mode="overwrite")
        self._now(rows)

    def delete(self) -> None:
        low = self.rng.randrange(60)
        DeltaTable(self.folder).delete(f"id >= {low} AND id < {low + 5}")
        self._now([row for row in self._rows if not low <= row[0] < low + 5])

    def optimize(self) -> None:
        DeltaTable(self.folder).optimize.compact()
        self._now(self._rows)

    def _now(self, rows: list[Row]) -> None:
        self._rows = rows
        self.versions[DeltaTable(self.folder).version()] = rows


class Iceberg(Owner):
    format = "iceberg"
    changes = ("append", "append", "append", "delete", "overwrite")

    def __init__(self, folder: Path, rng: random.Random) -> None:
        super().__init__(folder, rng)
        folder.mkdir(parents=True)
        self.options = {"catalog": "test", "catalog.type": "sql", "catalog.uri": f"sqlite:///{folder}/catalog.db",
                        "catalog.warehouse": f"file://{folder}"}  # fmt: skip
        catalog = load_catalog("test", **{key.partition(".")[2]: v for key, v in self.options.items() if "." in key})
        catalog.create_namespace("db")
        self.table = catalog.create_table("db.t", schema=self.arrow([]).schema)
        if self.partitioned:
            with self.table.update_spec() as update:
                update.add_field("part", IdentityTransform())
        self._rows: list[Row] = []
        self.append()

    @property
    def arguments(self) -> dict[str, Any]:
        return super().arguments | {"uri": "db.t", "options": self.options}

    @property
    def rows(self) -> list[Row]:
        return self._rows

    def append(self) -> None:
        rows = self.draw(self.part())
        self.table.append(self.arrow(rows))
        self._now([*self._rows, *rows])

    def overwrite(self) -> None:
        rows = self.draw(self.part())
        self.table.overwrite(self.arrow(rows))
        self._now(rows)

    def delete(self) -> None:
        low = self.rng.randrange(60)
        self.table.delete(f"id >= {low} AND id < {low + 5}")
        self._now([row for row in self._rows if not low <= row[0] < low + 5])

    def _now(self, rows: list[Row]) -> None:
        self._rows = rows
        self.versions[self.table.current_snapshot().snapshot_id] = rows


OWNERS: tuple[type[Owner], ...] = (Plain, Delta, Iceberg, Json, Plain, Csv, Orc)
