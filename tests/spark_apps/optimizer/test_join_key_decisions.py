"""Which keys of joins are taken: by what would be read, by what they cost and by what a table is pruned by."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from spark_apps.optimizer import join_keys
from spark_apps.optimizer.join_keys import JoinKeys, KeySide, filter_of_keys, keys_of
from spark_apps.optimizer.many_keys import groups_of_all, halves_of
from spark_apps.query import planning
from spark_apps.query.planning import prunes_by
from spark_apps.query.predicates import And, Comparison, Filter, In, IsNull, KeySet, Not, keys_for
from spark_apps.timeline.model import Field, IndexDefinition, TableDefinition


def side(columns: str = "k", types: str = "int", kind: str = "files", **more: Any) -> KeySide:
    names, each = tuple(columns.split()), tuple(types.split())
    return KeySide(**{"number": 0, "columns": names, "types": each, "null_safe": (False,) * len(names), "kind": kind,
                      "bytes": 1_000, "filtered": True} | more)  # fmt: skip


def table(*indexes: tuple[str, str], **more: Any) -> Any:
    """A snapshot of a table with indexes: kind and columns of each."""
    fields = tuple(Field(name, "int") for name in "abcdk")
    entries = {
        f"{kind}_{columns}": SimpleNamespace(
            active=True, definition=IndexDefinition("i", kind, tuple(columns.split()), "1" * 32)
        )
        for kind, columns in indexes
    }
    definition = TableDefinition("t", fields, ("a", "b"), **({"bucketed": False} | more))
    return SimpleNamespace(table=definition, state=SimpleNamespace(indexes=entries))


@pytest.mark.parametrize(
    ("snapshot", "columns", "prunes"),
    [
        (table(("secondary", "k")), ["k"], True),
        (table(("secondary", "k")), ["a"], False),
        (table(("secondary", "k c")), ["k"], False),
        (table(("secondary", "k d")), ["k"], True),
        (table(("secondary", "k c")), ["k", "c"], True),
        (table(("record", "a b")), ["a", "b"], True),
        (table(("record", "a b")), ["a"], False),
        (table(("compact", "k c")), ["c"], True),
        (table(("covering", "k c")), ["k"], True),
        (table(("covering", "c k")), ["k"], False),
        (table(("no such kind", "k")), ["k"], False),
        (table(bucketed=True), ["a"], False),
        (table(bucketed=True), ["a", "b"], True),
        (table(bucketed=True, hash_fields=("b",)), ["b"], True),
        (table(partition_by=("c",)), ["c"], True),
        (table(), ["a", "b", "k"], False),
    ],
)
def test_keys_are_of_use_where_something_of_the_table_is_told_apart_by_them(
    snapshot: Any, columns: list[str], prunes: bool
) -> None:
    given = And((Comparison("d", "=", 5), *(Not(IsNull(column)) for column in columns)))

    assert prunes_by(snapshot, given, columns) is prunes


def test_an_index_of_rows_is_of_use_only_for_columns_that_it_holds() -> None:
    snapshot = table(("covering", "k c"), ("secondary", "d"))

    for needed, columns, prunes in ((["k", "c", "a"], ["k"], True), (["k", "d"], ["k"], False), (["k"], ["d"], True)):
        assert prunes_by(snapshot, None, columns, needed) is prunes


class Request:
    """Stands for the ``ScanRequest`` of the rule."""

    def __init__(self, *sides: KeySide, explained: bool = False, keys: Any = ((1,), (2,))) -> None:
        self.described, self.shown, self.distinct, self.asked = sides, explained, keys, 0

    def sides(self, number: int) -> str:
        return json.dumps([vars(one) for one in self.described])

    def explained(self) -> bool:
        return self.shown

    def keys(self, number: int, limit: int, milliseconds: int) -> str:
        self.asked += 1
        return json.dumps({"keys": self.distinct[:limit]})


class Session:
    conf = SimpleNamespace(get=lambda name, default: default)
    sparkContext = SimpleNamespace(defaultParallelism=1)
    client = None


@pytest.fixture(autouse=True)
def seconds(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What the scan takes without keys."""
    estimates = {"scan": 10.0}
    monkeypatch.setattr(join_keys, "plan_seconds", lambda plan: estimates["scan"])
    monkeypatch.setattr(planning, "cores", lambda spark: 1)
    return estimates


def decided(request: Request, snapshot: Any = None) -> tuple[Any, str | None, str | None]:
    snapshot = snapshot or table(("secondary", "k"))
    plan: Any = SimpleNamespace(
        snapshot=snapshot, where=None, predicate=None, nothing_matches=False, used=(), columns=()
    )
    keys = JoinKeys(Session(), request, lambda number: None)  # type: ignore[arg-type]
    return keys.narrowed(0, plan, lambda where, among=None: where.predicate)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (side(bytes=17 << 20), "is the limit"),
        (side(rows=10_001, filtered=False), "about 10,001 rows"),
        (side(kind="cached", loaded=False), "not in memory"),
        (side(kind="cached", deterministic=False), "another one if it were made anew"),
    ],
)
def test_a_side_that_is_not_cheap_or_not_the_same_each_time_is_not_looked_into(one: KeySide, words: str) -> None:
    request = Request(one)

    assert words in (decided(request, table(("covering", "k")))[1] or "")
    assert request.asked == 0


def test_a_side_is_looked_into_where_that_takes_half_of_what_it_may_spare_and_values_always_are(
    seconds: dict[str, float],
) -> None:
    for scan, kind, taken in ((10.0, "files", True), (0.5, "files", False), (0.5, "local", True)):
        seconds["scan"] = scan
        request = Request(side(kind=kind))
        predicate, words, _ = decided(request)
        assert request.asked == taken
        assert (words == "2 of k", isinstance(predicate, In)) == (taken, taken)


def test_explain_takes_only_values_that_stand_in_the_query() -> None:
    assert "EXPLAIN" in (decided(Request(side(), explained=True))[1] or "")
    assert decided(Request(side(kind="local"), explained=True))[1] == "2 of k"


def test_more_keys_than_are_looked_up_prune_nothing_and_none_leave_nothing() -> None:
    many = decided(Request(side(), keys=[(n,) for n in range(10_001)]), table(("covering", "k")))
    words = "they are more than 10,000, and no index of these columns is searched by a job"
    assert many[1] == f"keys of k not taken: {words}"
    assert decided(Request(side(), keys=[(n,) for n in range(10_000)]))[1] == "10,000 of k"
    assert decided(Request(side(), keys=[]))[0] == In("k", frozenset())


@pytest.mark.parametrize(
    ("one", "keys", "condition"),
    [
        (side(), [(2,), (1,)], "(`k` IN (1, 2))"),
        (side(), [(n,) for n in range(12)], "(`k` IN (0, 1, 2, 3, 4, 5, 6, 7, 8, 9) OR `k` IN (10, 11))"),
        (side(), [(n,) for n in range(41)], None),
        (side(types="double"), [(1.5,)], None),
        (side(null_safe=(True,)), [(1,), (None,)], None),
        (side(types="string"), [("a",)], "(`k` IN ('a'))"),
        (side(types="date"), [(19_725,)], "(`k` IN (DATE'2024-01-03'))"),
    ],
)
def test_few_keys_are_a_filter_too_by_which_files_pass_over_pages(
    one: KeySide, keys: list[Any], condition: str | None
) -> None:
    assert decided(Request(one, keys=keys))[2] == condition


def test_keys_become_values_of_the_columns_without_those_that_no_row_can_have() -> None:
    of = lambda types, rows, **more: keys_of(side("k " * len(types.split()), types, **more), rows)  # noqa: E731

    assert of("int", [[1], [None], [2**31]]) == {(1,)}
    assert of("int", [[1], [None]], null_safe=(True,)) == {(1,), (None,)}
    assert of("int string", [[1, None], [2, "x"]]) == {(2, "x")}
    assert of("decimal(12,2)", [["7.50"]]) == {(Decimal("7.5"),)}
    assert of("date", [[19_725]]) == {(dt.date(2024, 1, 3),)}
    assert of("timestamp", [[-1]]) == {(dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),)}
    assert of("timestamp_ntz", [[0]]) == {(dt.datetime(1970, 1, 1),)}
    assert "years 1 to 9999" in str(of("date", [[10_000_000]]))


def test_keys_of_several_columns_are_told_together_beside_what_the_query_asks() -> None:
    two = side("k c", "int int", null_safe=(False, True))
    where = Filter(Comparison("d", "=", 5), "d = 5") & filter_of_keys(two, frozenset({(1, 2), (3, None)}))

    assert str(where) == "(d = 5) AND (k, c IN (2 keys of a join))" and not where.sql
    assert keys_for(where.predicate, ["k", "c", "d"]) == KeySet(
        ("k", "c", "d"), frozenset({(1, 2, 5), (1, None, 5), (3, None, 5)})
    )
    many = filter_of_keys(two, frozenset((n, n) for n in range(1_001)))
    assert isinstance(keys_for(many.predicate, ["k"]), KeySet)


@pytest.mark.parametrize(
    ("first", "second", "both", "left"),
    [
        (0, 0, 0, 0),
        (3, 3, 3, 3),
        (10, 10, 10, 10),
        (63, 63, 40, 99),
        (200, 200, 0, 500),
        (300, 300, 100, 500),
        (1, 0, 0, 500),
    ],
)
def test_two_halves_of_a_sample_tell_how_many_files_all_keys_are_in(
    first: int, second: int, both: int, left: int
) -> None:
    assert int(groups_of_all(first, second, both, 500)) == left


def test_the_halves_of_a_sample_are_taken_from_all_of_it() -> None:
    first, second = halves_of([(n,) for n in range(10_000)])

    assert first.isdisjoint(second) and len(first | second) == 400
    assert max(first | second) == (9_975,)


@pytest.mark.parametrize(("files", "held_by", "worth"), [(100, 100, False), (100, 10, True), (8_000, 8_000, True)])
def test_a_command_s_keys_are_looked_up_unless_a_few_of_them_are_in_nearly_all_files(
    files: int, held_by: int, worth: bool
) -> None:
    snapshot = table(("secondary", "k"))
    snapshot.state.index = lambda name: snapshot.state.indexes["secondary_k"]
    snapshot.state.files = lambda tree: [SimpleNamespace(bytes=60_000_000)]
    snapshot.spark = None
    plan: Any = SimpleNamespace(
        snapshot=snapshot, where=None, predicate=None, nothing_matches=False, used=(), columns=(), groups=range(files)
    )
    asked: list[int] = []

    def planned(where: Filter, among: Any = None) -> Any:
        predicate: Any = where.predicate
        asked.append(len(predicate.values))
        groups = {Random(key).randrange(held_by) for key in predicate.values}
        return SimpleNamespace(**{**vars(plan), "groups": groups, "used": [SimpleNamespace(name="secondary_k")]})

    keys = JoinKeys(Session(), Request(side(), keys=[(n,) for n in range(950)]), lambda number: None)  # type: ignore[arg-type]
    found, words, _ = keys.narrowed(0, plan, planned, lambda of: 5.0, {"files"})

    assert asked == ([34, 34, 950] if worth else [34, 34])
    assert words == ("950 of k" if worth else f"keys of k not taken: {FEW_WORDS}")
    assert len(found.groups) < files or not worth


FEW_WORDS = "a few of them are in so many files that looking up the others saves nothing"
