"""A kind that another package brings: found by entry point or by its allowed path, and used like the built-in ones."""

from __future__ import annotations

import inspect
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

import spark_apps
from spark_apps import IndexedTable
from spark_apps.actions.indexing import DropIndexAction
from spark_apps.advisor.candidates import candidates
from spark_apps.advisor.questions import questions_of, workload_of
from spark_apps.indexes import registry
from spark_apps.storage.errors import ConcurrentWrite, InvalidInput, StorageError, StorageUnavailable, TableNotFound
from spark_apps.timeline.model import AddFile, RemoveFile, Write, definition_scope
from spark_apps.timeline.transactions import begin
from spark_apps.workload.asked import AskedQuery
from tests.spark_apps.frames import frame
from tests.spark_apps.indexes import third_party
from tests.spark_apps.racing import go
from tests.spark_apps.small_tables import in_order, rows_of

PATH = "tests.spark_apps.indexes.third_party.ZoneHandler"
DDL = "id bigint, p string, n int"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry._KINDS, "_loaded", {})
    monkeypatch.setattr(registry._KINDS, "_allowed", set())
    monkeypatch.delenv(registry.ALLOWED, raising=False)


def test_given_the_page_on_handlers_then_its_example_is_the_one_that_is_tested() -> None:
    page = (Path(__file__).parents[3] / "docs" / "handlers.md").read_text()
    source = inspect.getsource(third_party)
    assert source[source.index("class ZoneHandler") :].strip() in page


def test_given_an_installed_package_with_an_entry_point_then_its_kind_is_known_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InvalidInput, match="zone"):
        registry.find("zone")
    about = tmp_path / "zones-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: zones\nVersion: 1.0\n")
    target = PATH.rpartition(".")
    (about / "entry_points.txt").write_text(f"[{registry.GROUP}]\nzone = {target[0]}:{target[2]}\n")
    monkeypatch.syspath_prepend(os.fspath(tmp_path))
    assert isinstance(registry.find("zone"), third_party.ZoneHandler)


class Elsewhere(third_party.ZoneHandler):
    """Keeps something outside of the table, and cannot get at it any more when it is to go."""

    kind = "tests.spark_apps.indexes.test_third_party.Elsewhere"
    own_storage = False
    asked: ClassVar[list[str]] = []

    def drop(self, context: Any) -> None:
        self.asked.append(context.definition.location)
        raise StorageUnavailable("The other store is gone.")


@pytest.mark.spark
def test_given_an_index_kept_elsewhere_then_it_is_deferred_and_never_stops_its_table_from_being_dropped(
    spark: Any, tmp_path: Path
) -> None:
    registry.allow(Elsewhere.kind)
    table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"])
    with pytest.raises(InvalidInput, match="deferred=True"):
        table.create_index("out", Elsewhere.kind, ["n"])
    table.create_index("out", Elsewhere.kind, ["n"], deferred=True, location="redis://there/0")
    assert table.indexes["out"].definition.location == "redis://there/0"
    # Nothing goes before the drop is committed; then the index is gone whatever fails, and a retry asks once more.
    with pytest.raises(ConcurrentWrite):
        go(table, DropIndexAction("out"), lambda other: other.restore(0))
    assert Elsewhere.asked == []
    table = IndexedTable.load(spark, table.uri)
    for tries in (1, 2):
        with pytest.raises(StorageError, match=r"is gone\. The index is dropped, as version 4\. .*'drop-out'"):
            table.drop_index("out", txn_id="drop-out")
        assert Elsewhere.asked == ["redis://there/0"] * tries
    assert "out" not in IndexedTable.load(spark, table.uri).indexes
    table = IndexedTable.load(spark, table.uri)
    table.create_index("out", Elsewhere.kind, ["n"], deferred=True, location="redis://there/1")
    table.drop()
    assert Elsewhere.asked[2:] == ["redis://there/1"]
    with pytest.raises(TableNotFound):
        IndexedTable.load(spark, table.uri)


def misstate_a_zone(table: IndexedTable) -> None:
    """Commits another lowest value of a file in place of its own."""
    file = table.snapshot.state.files(table.indexes["zones"].definition.tree)[0]
    zones = json.loads(table.snapshot.store.get(file.path))
    next(zone for zone in zones if zone[1] == 0)[1] = -1
    transaction = begin(table._handle.timeline, operation="spoil")
    path, data = f"{transaction.index_folder('zones', 'spoiled')}/zones.json", json.dumps(zones).encode()
    table.snapshot.store.put(path, data)
    added = AddFile(file.tree, "", file.group, path, "base", 4, len(data), file.sequence_number, 0, 4711, file.extra)
    writes = [Write(definition_scope("zones"), "fold")]
    table._moved_to(transaction.commit([RemoveFile(file.tree, file.path), added], writes=writes))


@pytest.mark.by_turn(8)
@pytest.mark.spark
def test_given_an_allowed_class_then_its_index_is_built_used_left_behind_refreshed_and_dropped(
    spark: Any, tmp_path: Path
) -> None:
    registry.allow(PATH)
    table = IndexedTable.create(spark, tmp_path / "t", DDL, ["id"], partition_by=["p"], buckets=1)
    rows = {i: (i, "abcd"[i // 10], None if i % 10 == 3 else i) for i in range(40)}
    table.upsert(frame(spark, list(rows.values()), DDL))
    with pytest.raises(InvalidInput, match="one column"):
        table.create_index("zones", PATH, ["p", "n"])

    # Before it is there it is tried and proposed as one of ours.
    between = "n BETWEEN 12 AND 24"
    tried = table.explain(between, hypothetical=[{"kind": PATH, "columns": ["n"], "name": "zones"}])
    assert (tried.files_read, tried.index_used, tried.hypothetical) == (2, "zones", ("zones",))
    workload = [AskedQuery(table=table.uri, asked=datetime(2024, 5, 1, tzinfo=UTC), columns=None, predicate=between,
                           shape=between, weight=9, bytes_read=1_000_000)]  # fmt: skip
    proposed = candidates(table.snapshot, questions_of(table.snapshot, workload_of(workload)))
    assert ["n"] in [one["columns"] for one in proposed if one["kind"] == PATH]
    table.create_index("zones", PATH, ["n"])

    def check(where: str, matches: Any, files: int) -> None:
        answer = rows_of(table, where)
        assert answer == in_order(row for row in rows.values() if matches(row[2])), where
        explanation = table.explain(where)
        assert (explanation.files_read, explanation.index_used) == (files, "zones")

    check("n BETWEEN 12 AND 24", lambda n: n is not None and 12 <= n <= 24, 2)
    check("n > 30 AND length(p) = 1", lambda n: n is not None and n > 30, 1)
    check("n = 1000", lambda n: n == 1000, 0)
    assert table.explain("n = 12 OR length(p) = 2").not_used["zones"].code == "no_keys"

    for report in (table.verify("zones"), spark_apps.open_table(table.uri).verify("zones")):
        assert report.ok and report.rows == report.entries == 4
    misstate_a_zone(table)
    for report in (table.verify("zones"), spark_apps.open_table(table.uri).verify("zones")):
        assert (report.wrong_values, report.missing, report.too_many, report.ok) == (1, 0, 0, False)
        assert [(one.fault, one.partition, one.expected) for one in report.differences] == [
            ("wrong values", "-1, 9", "0, 9")
        ]

    rows[50] = (50, "a", 12)
    table.upsert(frame(spark, [rows[50]], DDL))
    check("n = 12", lambda n: n == 12, 3)
    table.compact()
    assert table.refresh_index("zones").metrics["files"] == 1
    check("n = 12", lambda n: n == 12, 2)
    check("n = 25", lambda n: n == 25, 1)
    assert table.refresh_index("zones").version is None
    table.drop_index("zones")
    assert table.indexes == {}
