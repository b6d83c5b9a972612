"""Random histories of a registered source: its owner adds, removes and rewrites files, and indexes are refreshed now
and then, by processes that sometimes die."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.storage import errors
from tests.differential.asking import Questions
from tests.differential.crashes import dying_at, end_what_died
from tests.differential.plain import PlainQueries, Way, enabled, files_way
from tests.differential.skipping import draw_expressions, draw_parts, draw_properties
from tests.differential.tally import Tally
from tests.differential.writers import OWNERS, Orc, Owner, Plain
from tests.simulation.store import Crash


@dataclass
class Registered:
    """One history."""

    spark: Any
    path: Path
    seed: int
    tally: Tally
    steps: int = 6
    questions: int = 2
    plain: float = 0.3
    done: list[str] = field(default_factory=list)
    asked_version: Any = None
    owners: ClassVar[Sequence[type[Owner]]] = OWNERS

    def run(self) -> None:
        self.rng = random.Random(f"source {self.seed}")
        plain = PlainQueries(self.spark, self.seed, self.tally)
        self.ask = Questions(self.spark, random.Random(f"questions {self.seed}"), self.tally, plain, self.plain)
        self.ask.ways = self.ways
        kind = self.owners[self.seed // 3 % len(self.owners)]
        self.owner: Owner = kind(self.path / "source", self.rng)
        self.ask.careful = kind is Orc
        self.ask.place = self.place
        self.table = IndexedTable.register(self.spark, index_root=self.log.parent, name="t", **self.owner.arguments)
        self.said = f"seed {self.seed}, {kind.__name__}, partitioned {self.owner.partitioned}"
        with enabled(self.spark, self.path.parent):
            self._go_on(kind)
        self.tally.add("histories", "sources")
        self.tally.add("formats", kind.format)

    @property
    def log(self) -> Path:
        """Where the log of the source stands: below a folder that has a name in SQL."""
        return self.path / "log" / "t"

    def ways(self, table: IndexedTable) -> list[Way]:
        """The ways in which the source as it is now is named in plain queries."""
        if self.asked_version is not None:
            return []
        name = f"`{self.path.name}`.log.t"
        ways = [Way(f"name of {self.owner.format}", name), Way(f"frame of {self.owner.format}", frame=table.frame)]
        if isinstance(self.owner, Plain):
            arguments = self.owner.arguments
            files = files_way(
                self.spark, self.owner.format, self.owner.folder, arguments.get("schema"), arguments.get("options", {})
            )
            ways.append(files)
        return ways

    def _go_on(self, kind: type[Owner]) -> None:
        self.owner.change()
        self.act(partial(self.create_index, "compact", ["city"]) if kind is Plain else self.create_index)
        self.act(self.create_index)
        for _ in range(self.steps):
            if self.rng.random() < 0.5:
                self.done.append(self.owner.change())
                self.tally.add("steps", f"source: {self.done[-1]}")
            else:
                self.act(self.rng.choice([self.refresh, self.refresh, self.refresh, self.create_index, self.compact,
                                          self.drop_index]))  # fmt: skip
            self.load()
            self.check()
        self.verify()

    @property
    def history(self) -> str:
        return f"{self.said}\n{' > '.join(self.done)}"

    def place(self, table: Any) -> dict[str, str]:
        """The options of the data source: the log, and which version of the source where it is an old one."""
        options = {"path": str(self.log)}
        return options if self.asked_version is None else {**options, "source_version": str(self.asked_version)}

    def load(self) -> None:
        self.table = IndexedTable.load(self.spark, self.log)

    def act(self, what: Any) -> None:
        """Does something to the indexes; sometimes the process dies of it, and another one goes on."""
        self.load()
        name = getattr(what, "func", what).__name__
        call, after = self.rng.choice([*range(1, 20), *range(20, 80, 3)]), self.rng.random() < 0.5
        try:
            if self.rng.random() < 0.15:
                with dying_at(call, after):
                    what()
            else:
                what()
            self.tally.add("steps", f"source: {name}")
        except Crash:
            self.done[-1] += f" (killed at call {call})"
            self.tally.add("killed", f"source: {name}")
            end_what_died(self.table._handle.timeline)
            self.load()
        except Exception as error:
            raise AssertionError(f"{self.history}: {type(error).__name__}: {error}") from error

    def create_index(self, kind: str | None = None, columns: list[str] | None = None) -> None:
        kind = kind or self.rng.choice(["record", "secondary", "compact", "covering", "covering", "skipping"])
        if kind == "record" and any(info.kind == "record" for info in self.table.indexes.values()):
            kind = "compact"
        choices = [["city"], ["n"], ["day"], ["city", "n"], ["id"]]
        if "x" in self.owner.names and kind in ("compact", "covering"):
            choices += [["x"], ["x"], ["x", "n"]]
        columns = columns or self.rng.choice([one for one in choices if set(one) <= set(self.owner.names)])
        name = f"{kind}{len(self.done)}"
        more: dict[str, Any] = {}
        if kind == "covering":
            others = [name for name in self.owner.names if name not in (*columns, "part")]
            more["included"] = IncludedColumns(include=self.rng.sample(others, self.rng.randrange(3)))
            more["properties"] = {"buckets": 2, "hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1",
                                  "lineage": self.rng.choice(["true", "true", "false"])}  # fmt: skip
        if kind in ("secondary", "compact", "covering"):
            columns = draw_expressions(self.rng, dict(zip(self.owner.names, self.owner.types, strict=True)), columns)
        if kind == "skipping":
            columns = draw_parts(self.rng, dict(zip(self.owner.names, self.owner.types, strict=True)), columns)
            row_groups = self.owner.format in ("parquet", "delta", "iceberg")
            more["properties"] = draw_properties(self.rng, row_groups)
        deferred = self.rng.random() < 0.15
        self.done.append(f"create {name} {columns} {more}{' deferred' if deferred else ''}")
        self.table.create_index(name, kind, () if kind == "record" else columns, deferred=deferred, **more)

    def _name(self) -> str | None:
        return self.rng.choice(sorted(self.table.indexes)) if self.table.indexes else None

    def refresh(self) -> None:
        name = self._name()
        if name is None:
            return self.create_index()
        info, mode = self.table.indexes[name], self.rng.choice(["incremental", "incremental", "full", "quick"])
        self.done.append(f"refresh {name} {mode}")
        more: dict[str, Any] = {}
        if info.kind == "covering" and mode != "quick" and self.rng.random() < 0.4:
            others = [one for one in self.owner.names if one not in (*info.columns, *info.included, "part")]
            include = self.rng.sample(others, min(len(others), self.rng.randrange(2)))
            exclude = self.rng.sample(info.included, min(len(info.included), self.rng.randrange(2)))
            more["included"] = IncludedColumns(include=include, exclude=exclude)
            self.done[-1] += f" {more}"
        try:
            self.table.refresh_index(name, mode, **more)
        except errors.InvalidInput:
            # Without lineage nobody knows which entries are those of files that are gone.
            if info.properties.get("lineage") != "false" or mode != "incremental":
                raise
            self.tally.add("steps refused", "source: refresh without lineage")

    def compact(self) -> None:
        name, mode = self._name(), self.rng.choice(["quick", "full"])
        if name is None:
            return self.create_index()
        self.done.append(f"compact {name} {mode}")
        self.table.compact(name, mode)

    def drop_index(self) -> None:
        name = self._name()
        if name is None:
            return self.create_index()
        self.done.append(f"drop {name}")
        self.table.drop_index(name)

    def check(self) -> None:
        owner = self.owner
        assert self.table.schema.names == owner.names, self.history
        self.ask.everything(self.table, owner.rows, self.history)
        self.ask.some(self.table, owner.rows, owner.names, owner.types, self.history, self.questions)
        if isinstance(owner, Plain):
            self.ask.about(self.table, owner.rows, owner.names, owner.types, self.history, "city")
        if owner.versions and self.rng.random() < 0.4:
            version = self.rng.choice(sorted(owner.versions))
            rows, of_then = owner.versions[version], f"{self.history}, source version {version}"
            old = IndexedTable.load(self.spark, self.log, source_version=version)
            self.ask.everything(old, rows, of_then)
            self.asked_version = version
            self.ask.some(old, rows, owner.names, owner.types, of_then, 1)
            self.asked_version = None
            self.tally.add("compared", "older versions of sources")

    def verify(self) -> None:
        for name, info in self.table.indexes.items():
            report = self.table.verify(name)
            assert report.ok, f"{self.history}: index {name} ({info.kind} over {info.columns}): {report}"
            self.tally.add("verified", info.kind)
