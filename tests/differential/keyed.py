"""Random histories of a keyed table: every way of writing, every kind of index, columns that change, processes that
die between."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, ClassVar

from spark_apps import IndexedTable
from spark_apps.indexes.registry import asked_by
from spark_apps.storage import errors
from spark_apps.timeline import windows
from spark_apps.timeline.files import NO_ROWS
from spark_apps.timeline.transactions import find_receipt
from tests.differential.asking import Questions
from tests.differential.crashes import dying_at, end_what_died
from tests.differential.model import RawRows, draw_table
from tests.differential.plain import PlainQueries, Way, enabled
from tests.differential.steps import Step, Steps
from tests.differential.tally import Tally
from tests.simulation.store import Crash
from tests.spark_apps.small_tables import within


@dataclass
class Keyed(Steps):
    """One history. ``steps`` are done before the indexes are verified.

    :param path: of the table, two folders below its warehouse: a path, or a URI of a store with these ``options``.
    """

    spark: Any
    path: Any
    seed: int
    tally: Tally
    steps: int = 6
    questions: int = 2
    plain: float = 0.3
    done: list[str] = field(default_factory=list)
    options: dict[str, str] = field(default_factory=dict)
    any_session: ClassVar[bool] = False
    deaths: ClassVar[float] = 0.15
    """The share of steps at which the process dies."""

    def run(self) -> None:
        self.rng = random.Random(f"keyed {self.seed}")
        plain = PlainQueries(self.spark, self.seed, self.tally)
        self.ask = Questions(self.spark, random.Random(f"questions {self.seed}"), self.tally, plain, self.plain)
        self.ask.ways = self.ways
        storage = {f"storage.{name}": value for name, value in self.options.items()}
        self.ask.place = lambda table: {"path": table.uri, "version": str(table.version), **storage}
        self.model, options = self.drawn_table()
        self.said = f"seed {self.seed}, {self.model.ddl}, key {self.model.key}, {options}"
        self.table = IndexedTable.create(
            self.spark, self.path, self.model.ddl, self.model.key, options=self.options, **options
        )
        self.warehouse, *self.name = str(self.path).rsplit("/", 2)
        with enabled(self.spark, self.warehouse, options=self.options):
            self._go_on()
        self.tally.add("histories", "keyed")

    def drawn_table(self) -> tuple[RawRows, dict[str, Any]]:
        """A table of any shape, and the arguments that make it."""
        return draw_table(self.rng)

    def load(self, version: int | None = None) -> IndexedTable:
        return IndexedTable.load(self.spark, self.path, version, options=self.options)

    def ways(self, table: IndexedTable) -> list[Way]:
        """The ways in which the table, perhaps as of a version, is named in plain queries."""
        version = "" if table is self.table else f" VERSION AS OF {table.version}"
        name = f"`{self.name[0]}`.`{self.name[1]}`{version}"
        return [Way("frame", frame=table.frame), Way(f"name{version and ' and version'}", name)]

    def _go_on(self) -> None:
        self.model.unique = bool(self.table.indexes)
        self.record_since = 0
        self.step(self.upsert(25))
        self.step(self.create_index())
        if self.rng.random() < 0.7:
            self.step(self.create_index())
        if self.rng.random() < 0.5:
            self.step(self.upsert(5))
        for number in range(self.steps):
            drawn = self.rng.choice(self._choices())()
            if drawn is not None:
                self.step(drawn)
                self.check(last=number == self.steps - 1)
        self.verify()

    # --- doing --------------------------------------------------------------------------------------------------

    def step(self, step: Step) -> None:
        txn_id = f"step-{len(self.done)}"
        within(self.table, staged_rows=self.limits())
        self.done.append(step.name)
        if self.rng.random() < self.deaths:
            return self._killed(step, txn_id)
        before = self.table.version
        try:
            step.run(self.table, txn_id)
        except step.refusals as error:
            assert self.table.version == before and error.args, self.history
            self.tally.add("steps refused", f"{step.kind}: {type(error).__name__}")
        except Exception as error:
            raise AssertionError(f"{self.history}: {type(error).__name__}: {error}") from error
        else:
            assert not step.must_refuse, f"{self.history}: was to be refused"
            step.effect()
            self.tally.add("steps", step.kind)
        self._committed()

    def limits(self) -> int:
        """Up to how many rows the driver writes: of the small batches every other one is written as large ones are."""
        return 10_000 if (self.seed + len(self.done)) % 2 else 0

    def _killed(self, step: Step, txn_id: str) -> None:
        """The process dies somewhere in the step; another one goes on, and perhaps does the step again."""
        call, after = self.rng.choice([*range(1, 20), *range(20, 80, 3)]), self.rng.random() < 0.5
        try:
            with dying_at(call, after):
                step.run(self.table, txn_id)
            self.tally.add("killed", "not in time")
        except Crash:
            self.done[-1] += f" (killed at call {call})"
            self.tally.add("killed", step.kind)
        except step.refusals:
            pass
        except Exception as error:
            raise AssertionError(f"{self.history}: {type(error).__name__}: {error}") from error
        self.table = self.load()
        for epoch in list(self.table.snapshot.state.windows):
            windows.close(self.table._handle.timeline, epoch)
        self.table = self.load()
        landed = find_receipt(self.table._handle.timeline, step.transaction.format(txn_id)) is not None
        self.tally.add("killed", "after its commit" if landed else "before its commit")
        if not landed and self.rng.random() < 0.6:
            try:
                step.run(self.table, txn_id)
                landed = True
            except step.refusals:
                landed = False
            except Exception as error:
                raise AssertionError(f"{self.history}, tried again: {type(error).__name__}: {error}") from error
            self.tally.add("killed", "tried again")
        if landed:
            step.effect()
        end_what_died(self.table._handle.timeline)
        self.table = self.load()
        self._committed()

    def _committed(self) -> None:
        if self.table.version not in self.model.versions:
            self.model.committed(self.table.version)
        self.model.unique = any(i.kind == "record" and not i.deferred for i in self.table.indexes.values())

    # --- checking -----------------------------------------------------------------------------------------------

    def check(self, last: bool) -> None:
        model = self.model
        self.ask.everything(self.table, list(model.rows.values()), self.history)
        count = sum((partition.count for partition in self.table.partitions.values()), NO_ROWS)
        assert count.least <= len(model.rows) <= (count.most or 0), (
            f"{self.history}: {len(model.rows)} rows, not {count}"
        )
        self.tally.add("counted", "bounds" if count.exact is None else "exactly")
        self.ask.some(self.table, list(model.rows.values()), model.names, model.types, self.history, self.questions)
        compact = [info for info in self.table.indexes.values() if info.kind == "compact"]
        blocks = sorted({asked_by(self.table.definition, info.definition)[0] for info in compact})
        if blocks and model.rows:
            self.ask.about(self.table, list(model.rows.values()), model.names, model.types, self.history, blocks[0])
        if last or self.rng.random() < 0.2:
            version = self.rng.choice(sorted(model.versions))
            old = self.load(version)
            _, names, types = model.shapes[version]
            rows, of_then = list(model.versions[version].values()), f"{self.history}, as of version {version}"
            assert old.schema.names == names, of_then
            self.ask.everything(old, rows, of_then)
            self.ask.some(old, rows, names, types, of_then, 1)
            self.tally.add("compared", "older versions")

    def verify(self) -> None:
        for name, info in self.table.indexes.items():
            try:
                report = self.table.verify(name)
            except errors.InvalidInput as error:
                # Expressions were computed in one of the sessions of an odd history, and this is another.
                assert self.any_session and "by another session" in error.message, f"{self.history}: {error}"
                self.tally.add("verified", "refused in another session")
                continue
            assert report.ok, f"{self.history}: index {name} ({info.kind} over {info.columns}): {report}"
            self.tally.add("verified", info.kind)
            if info.lagging:
                self.tally.add("verified", "lagging")
