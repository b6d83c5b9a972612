"""The worth of indexes to a workload: the bytes a day that its queries would not read, and what keeping them costs.

Each query is planned with sets of indexes as if they were there, and without others as if they were gone. A set saves
what the query reads without any index, less what it reads with the set, bytes of the indexes included.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from spark_apps.advisor.hypothetical import Hypothetical, Trial
from spark_apps.advisor.limits import MAX_TABLES, MIN_SAVED_SHARE
from spark_apps.advisor.questions import Question
from spark_apps.advisor.sample import Sample
from spark_apps.indexes.skipping.records import RecordFile
from spark_apps.indexes.skipping.skipping import SkippingHandler
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.planning import ReadPlan, plan_bytes
from spark_apps.storage.errors import StorageError


@dataclass(frozen=True, eq=False)
class Priced:
    """An index that is to be chosen or not.

    :param trial: what it would be, ``None`` for one that is there. :param bytes: that it holds, or would hold.
    :param build_seconds: that a build would take; 0 for one that is there. :param minutes: of upkeep a day.
    """

    name: str
    kind: str
    trial: Trial | None
    bytes: int
    build_seconds: float
    minutes: float

    @property
    def there(self) -> bool:
        return self.trial is None


class Pricing:
    """A workload priced with sets of indexes.

    :param others: indexes of the table that are never counted out.
    """

    def __init__(
        self, snapshot: Snapshot, questions: Sequence[Question], priced: Sequence[Priced], sample: Sample
    ) -> None:
        self._snapshot = snapshot
        self._questions = questions
        self._priced = tuple(priced)
        self._sample = sample
        self._tables: dict[frozenset[int], Hypothetical] = {}
        self._read: dict[tuple[int, frozenset[int]], int] = {}
        self._plain: dict[int, ReadPlan] = {}
        self._open_records()
        self._helps: list[frozenset[int]] = [
            frozenset(
                number
                for number in range(len(self._priced))
                if self._reads(at, frozenset((number,))) < (1 - MIN_SAVED_SHARE) * self._reads(at, frozenset())
            )
            for at in range(len(questions))
        ]

    def _open_records(self) -> None:
        """Read the headers of skipping indexes, which a process remembers.

        Else the first query that is planned would pay for all.
        """
        for number, one in enumerate(self._priced):
            if one.kind == SkippingHandler.kind:
                snapshot = self._table(frozenset((number,))).snapshot
                for file in snapshot.state.files(snapshot.state.index(one.name).definition.tree):
                    with suppress(StorageError):  # which the planner will say
                        RecordFile(snapshot.store, file)

    @property
    def read(self) -> float:
        """Bytes a day that the workload reads without any of the indexes."""
        return sum(one.a_day * self._reads(at, frozenset()) for at, one in enumerate(self._questions))

    def saved(self, chosen: Collection[int]) -> float:
        """Return the bytes a day that the workload does not read with some of the indexes, and none of the others."""
        return sum(one.a_day * self.saves(at, chosen) for at, one in enumerate(self._questions))

    def saves(self, question: int, chosen: Collection[int]) -> int:
        """Return the bytes that a query does not read with some of the indexes."""
        helping = self._helps[question] & frozenset(chosen)
        return max(0, self._reads(question, frozenset()) - self._reads(question, helping)) if helping else 0

    def reads(self, question: int, chosen: Collection[int]) -> int:
        """Return the bytes that a query reads with some of the indexes."""
        return self._reads(question, frozenset()) - self.saves(question, chosen)

    def helped(self, number: int, chosen: Collection[int]) -> Mapping[int, float]:
        """Return the groups of queries that an index of a set helps, with the bytes a day that it alone saves them."""
        others = frozenset(chosen) - {number}
        groups: dict[int, float] = {}
        for at, one in enumerate(self._questions):
            gain = self.saves(at, {*others, number}) - self.saves(at, others)
            if gain > 0:
                groups[one.group] = groups.get(one.group, 0.0) + one.a_day * gain
        return groups

    def _reads(self, at: int, chosen: frozenset[int]) -> int:
        if (at, chosen) not in self._read:
            question = self._questions[at]
            plan = self._table(chosen).plan(question.where, question.columns, without=self._plain.get(at))
            if not chosen:
                self._plain[at] = plan
            self._read[at, chosen] = plan_bytes(plan)
        return self._read[at, chosen]

    def _table(self, chosen: frozenset[int]) -> Hypothetical:
        """Return the table with some of the indexes and without the others."""
        if chosen not in self._tables:
            if len(self._tables) > MAX_TABLES:
                self._tables.clear()
            gone = [one.name for number, one in enumerate(self._priced) if one.there and number not in chosen]
            trials = [one.trial for number in sorted(chosen) if (one := self._priced[number]).trial is not None]
            self._tables[chosen] = Hypothetical(self._snapshot, [one for one in trials if one], self._sample, gone)
        return self._tables[chosen]
