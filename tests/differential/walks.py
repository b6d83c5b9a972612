"""Walks over the public API: one keyed table, all features drawn together, all rows compared after each step.

Besides what histories do (:mod:`tests.differential.keyed`): rows are changed in SQL, by streams and by deletes that
arrive late, what was written is written again, and the table is published and read by other engines. Each step draws
from random numbers of its own, so that a walk which fails can be tried without some of its steps.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from benchmarks.peers import Peer
from spark_apps import IndexedTable
from spark_apps.storage import errors
from tests.differential.evolving import SourceWalk
from tests.differential.keyed import Keyed
from tests.differential.model import draw_table
from tests.differential.oracle import Oracle
from tests.differential.published import Question, check_readers, draw_asked
from tests.differential.session import small
from tests.differential.sql_steps import SqlSteps
from tests.differential.steps import Step, _text
from tests.differential.tally import Tally
from tests.differential.values import KINDS, _utc, arrow, draw
from tests.differential.walk_model import WalkRows
from tests.spark_apps.frames import of_arrow
from tests.spark_apps.table_model import Row

_FAR = [_utc("0001-01-01T00:00:00"), _utc("9999-12-31T23:59:59.999999"), _utc("1582-10-04T00:00:00"),
        _utc("2262-04-11T23:47:17"), _utc("1677-09-21T00:12:43")]  # fmt: skip
"""None of the ten days that ``java.sql`` lacks: Spark pushes another day down to Parquet (docs/versions.md)."""

_GONE = "is gone"

_BY_SPARK = 0.3
"""The share of steps after which Spark reads too; half of it is the share of writes that it stages as large ones."""


@dataclass
class Walk(SqlSteps, Keyed):
    """One walk. ``without``: the numbers of steps that are left out; ``peer``: where other engines read."""

    without: Collection[int] = ()
    peer: Peer | None = None
    past: list[tuple[list[int], list[str], list[Row], list[Row]]] = field(default_factory=list)
    seen: int | None = None
    """The version that all engines have read whole."""

    deaths: ClassVar[float] = 0.04

    # --- the table ------------------------------------------------------------------------------------------------

    def drawn_table(self) -> tuple[WalkRows, dict[str, Any]]:
        model, options = draw_table(self.rng)
        while model.merge_by != "ordering" and self.rng.random() < 0.25:
            model, options = draw_table(self.rng)
        names, types = list(model.names), list(model.types)
        if self.rng.random() < 0.3:
            more = [("a.b", "int"), ("a", "struct<b:int>"), ("A.c", self.rng.choice(list(KINDS)))]
            for name, kind in more[: self.rng.choice([1, 2, 3])]:
                names.append(name)
                types.append(kind)
        if self.rng.random() < 0.5:
            options["publish"] = ["delta"]
        drawn = WalkRows(names, types, model.key, model.partition_by, model.ordering, model.merge_by)
        return drawn, options

    def _go_on(self) -> None:
        self.model.unique = bool(self.table.indexes)
        self.record_since = 0
        first: list[Callable[[], Step | None]] = [partial(self.upsert, 20), self.create_index]
        for number in range(self.steps):
            for drawing, name in ((self, ""), (self.ask, "ask "), (self.ask.plain, "plain ")):
                drawing.rng = random.Random(f"walk {self.seed} {name}{number}")
            if number in self.without:
                continue
            drawn = first[number]() if number < len(first) else self._any_step()
            if drawn is not None:
                self.step(drawn)
                self.check(last=number == self.steps - 1)
        self.verify()

    def _any_step(self) -> Step | None:
        """One that can be done now: what was drawn first may not be."""
        for _ in range(5):
            drawn: Step | None = self.rng.choice(self._choices())()
            if drawn is not None:
                return drawn
        return None

    def _committed(self) -> None:
        self.table = self.load()
        before = self.model.unique
        super()._committed()
        now, self.model.unique = self.model.unique, before
        self.model.set_unique(now)

    # --- steps ----------------------------------------------------------------------------------------------------

    def _choices(self) -> list[Callable[[], Step | None]]:
        writes = [self.sql_merge] * 8 + [self.sql_update] * 2 + [self.sql_delete, self.sql_insert, self.stream]
        late = [self.upsert_deleted, self.delete_until, self.replay] * (2 if self.model.ordered else 1)
        return [*super()._choices(), *writes, *late, self.publish]

    def _row(self) -> Row:
        return tuple(
            draw(self.rng, kind, 0.0) if name in self.model.key else self._value(name)
            for name, kind in self.model.typed().items()
        )

    def _value(self, name: str) -> Any:
        kind = self.model.typed()[name]
        if kind not in KINDS:
            return self.rng.choice([None, {"b": None}, {"b": 1}, {"b": 7}])
        if kind == "timestamp" and name not in self.model.partition_by and self.rng.random() < 0.15:
            return self.rng.choice(_FAR)
        return super()._value(name)

    def _batch(self, size: int) -> list[Row]:
        for _ in range(20):
            rows = [row for row in super()._batch(size) if not self.model.is_vague(row)]
            if rows:
                return rows
        return []

    def upsert(self, size: int = 12) -> Step:
        rows = self._batch(size)
        step = Step("upsert", lambda t, x: t.upsert(self._frame(rows), txn_id=x), lambda: self.model.upsert(rows))
        return self._kept(step, rows, [])

    def _kept(self, step: Step, rows: list[Row], gone: list[Row]) -> Step:
        """The step, whose batch may be delivered again later."""
        self.past.append((list(self.model.ids), list(self.model.types), rows, gone))
        return step

    def _with_deletes(self, rows: list[Row]) -> tuple[list[Row], list[Row]]:
        """The rows, and those of them that are deletes."""
        return rows, [row for row in rows if self.rng.random() < 0.5]

    def _deleting_frame(self, rows: list[Row], gone: list[Row]) -> Any:
        flags = pa.array([any(row is one for one in gone) for row in rows], pa.bool_())
        return of_arrow(self.spark, arrow(rows, self.model.typed()).append_column(_GONE, flags))

    def upsert_deleted(self) -> Step:
        rows, gone = self._with_deletes(self._batch(6))

        def run(table: IndexedTable, txn_id: str) -> None:
            table.upsert(self._deleting_frame(rows, gone), deleted=_GONE, txn_id=txn_id)

        step = Step(f"upsert deleted {len(gone)}", run, lambda: self.model.upsert(rows, gone))
        return self._kept(step, rows, gone)

    def replay(self) -> Step | None:
        """A batch of before once more, as a day that is delivered again."""
        shape = (self.model.ids, self.model.types)
        there = [(rows, gone) for ids, types, rows, gone in self.past if (ids, types) == shape]
        if not there:
            return None
        rows, gone = self.rng.choice(there)
        rows = [row for row in rows if not self.model.is_vague(row)]
        return rows and Step(  # type: ignore[return-value]
            "replay", lambda t, x: t.upsert(self._deleting_frame(rows, gone), deleted=_GONE, txn_id=x),
            lambda: self.model.upsert(rows, gone))  # fmt: skip

    def stream(self) -> Step:
        """A micro-batch, delivered twice under one number."""
        rows, gone = self._with_deletes(self._batch(5))

        def run(table: IndexedTable, txn_id: str) -> None:
            for _ in range(2):
                table.upsert_batch("walk", deleted=_GONE, query_id=txn_id)(self._deleting_frame(rows, gone), 0)

        step = Step("stream", run, lambda: self.model.upsert(rows, gone), transaction="walk.{}.0")
        return self._kept(step, rows, gone)

    def delete_rows(self) -> Step:
        """Whole rows, whose ordering is that of the delete, or their keys alone."""
        if not self.model.ordered or self.rng.random() < 0.5:
            rows = [*self._some(), *self._batch(3)]
            rows = list({self.model.identity(row)[1]: row for row in rows}.values())
            effect = partial(self.model.upsert, rows, rows) if self.model.ordered else None
            places = [self.model.identity(row) for row in rows]
            return Step("delete rows", lambda t, x: t.delete(self._frame(rows), txn_id=x),
                        effect or (lambda: self.model.delete_rows(places)))  # fmt: skip
        names = list(dict.fromkeys([*self.model.key, *self.model.partition_by]))
        some = [*self._some(), *self._batch(3)]
        there = [self.model.identity(row) for row in some]
        given = list(dict.fromkeys(self.model._pick(row, names) for row in some))
        return Step("delete rows", lambda t, x: t.delete(self._frame(given, names), txn_id=x),
                    lambda: self.model.delete_rows(there))  # fmt: skip

    def delete_until(self) -> Step | None:
        """By a predicate, with the ordering of the delete."""
        if not self.model.ordered or self.model.ordering is None:
            return self.upsert_deleted()
        predicate, rows = self._matching()
        value = next((one for one in (self._value(self.model.ordering) for _ in range(9)) if one is not None), None)
        if value is None:
            return None
        places = [self.model.identity(row) for row in rows]
        return Step(f"delete where {predicate.spark} until {value!r}",
                    lambda t, x: t.delete(predicate.spark, until=value, txn_id=x),
                    lambda: self.model.delete_until(places, value))  # fmt: skip

    def overwrite(self) -> Step:
        """With rows that are late only beside others: whether a partition is replaced by late rows alone is open."""
        rows = self._batch(6)
        timely = {self.model.identity(row)[0] for row in rows if not self.model.is_late(row)}
        rows = (
            [row for row in rows if not self.model.is_late(row)]
            if self.model.unique
            else [row for row in rows if self.model.identity(row)[0] in timely]
        )
        return Step("insert_overwrite", lambda t, x: t.insert_overwrite(self._frame(rows), txn_id=x),
                    lambda: self.model.overwrite(rows))  # fmt: skip

    def drop_partition(self) -> Step | None:
        if not self.model.partition_by or not self.table.partitions:
            return None
        path = self.rng.choice(sorted(self.table.partitions))
        values = self.table.snapshot.state.partitions[path].values
        gone = [part for part in self.model.every_partition() if tuple(map(_text, part)) == values]
        return Step("drop_partition", lambda t, x: t.drop_partition(path, txn_id=x),
                    lambda: self.model.drop_partitions(gone))  # fmt: skip

    def publish(self) -> Step:
        formats = [] if self.table.published is not None and self.rng.random() < 0.3 else ["delta"]
        return Step(f"publish {formats}", lambda t, _: t.publish(formats), refusals=(errors.InvalidInput,))

    # --- checking -------------------------------------------------------------------------------------------------

    def check(self, last: bool) -> None:
        model = self.model
        rows = list(model.rows.values())
        if last:
            super().check(last)
        else:
            self.ask.quickly(self.table, rows, model.names, model.types, self.history)
        chance = self.rng.random()
        if chance < _BY_SPARK / 2:
            self.ask.everything(self.table, rows, self.history)
        elif chance < _BY_SPARK:
            self.ask.some(self.table, rows, model.names, model.types, self.history, 1)
        elif chance > 0.9:
            self.verify()
        self.check_published()

    def limits(self) -> int:
        return 0 if self.rng.random() < _BY_SPARK / 2 else 10_000

    def check_published(self) -> None:
        """What other engines read is the state of the version that is said to be published."""
        shown = self.table.published
        if shown is None:
            return
        assert shown.behind == 0 or shown.why, f"{self.history}: {shown.behind} commits behind, and no reason"
        if shown.behind:
            self.tally.add("published behind", " ".join(shown.why.split()[:8]))
        if shown.version not in self.model.versions:
            return self.tally.add("published readers", "at a version that is gone, or between two")
        _, names, types = self.model.shapes[shown.version]
        rows = list(self.model.versions[shown.version].values())
        kinds = dict(zip(names, types, strict=True))
        context = f"{self.history}, published {shown.text}"
        questions = list[Question]()
        # All rows, unless they were read by each engine after the step before; what is cleaned may be a file of theirs.
        if shown.version != self.seen or "clean" in self.done[-1]:
            questions.append((None, rows))
            self.seen = shown.version
        asked = draw_asked(self.rng, kinds, [dict(zip(names, row, strict=True)) for row in rows])
        if asked is not None:
            matching = Oracle(self.spark, rows, kinds).matching(asked.predicate) or []
            questions.append((asked, [rows[at] for at in matching]))
        check_readers(str(self.path), names, questions, self.peer, self.tally, context)


def walk(
    spark: Any, folder: Path, seed: int, tally: Tally, *, steps: int = 12, without: Collection[int] = (),
    peer: Peer | None = None,
) -> None:  # fmt: skip
    """Run a walk: three of four are over a keyed table, the fourth over a source whose owner changes its columns.

    :raises AssertionError: telling the seed, the table, the steps and what differs.
    """
    with small(spark, compiled=False, row_groups=seed % 2 and 5):
        path = folder / "lake" / "table"
        if seed % 4 == 3:
            return SourceWalk(spark, path, seed, tally, steps=steps, questions=1, plain=0.5, without=without).run()
        Walk(spark, path, seed, tally, steps=steps, questions=1, plain=0.5, without=without, peer=peer).run()
    return None


def shrunk(spark: Any, folder: Path, seed: int, until: float, peer: Peer | None = None) -> tuple[list[int], str]:
    """Return the steps that a walk which fails can do without, and how it fails without them.

    Each is tried in turn, the last first, as long as there is time (of the clock, in seconds).
    """
    without, failure = list[int](), ""
    for number in reversed(range(12)):
        if time.time() > until:
            break
        place = folder / f"without-{number}"
        try:
            walk(spark, place, seed, Tally(), without=[*without, number], peer=peer)
        except Exception as error:  # noqa: BLE001 - any other failure than the one that is looked for is none
            if isinstance(error, AssertionError):
                without, failure = [*without, number], str(error)
        finally:
            shutil.rmtree(place, ignore_errors=True)
    return sorted(without), failure
