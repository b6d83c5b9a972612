"""What users are handed prints as tables: each against the text that a person shall see. No Spark session is used."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spark_apps.actions.bucket_rules import rule_versions
from spark_apps.actions.rescale import PartitionRescale, RescalePlan
from spark_apps.indexes.handler import Difference, IndexPlan, VerificationReport
from spark_apps.optimizer.session import QueryExplanation
from spark_apps.query.explain import Explanation, history_of, indexes_of, partitions_of, view_table
from spark_apps.query.planning import IndexUse, NotUsed
from spark_apps.sql.results import CHANGE_COLUMNS, Result, Results
from spark_apps.sql.statements import DropTable, ShowIndexes
from spark_apps.storage.errors import ConcurrentWrite
from spark_apps.storage.printing import as_text
from spark_apps.timeline.cleaning import CleaningPlan
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    Commit,
    Field,
    HashingConfig,
    IndexDefinition,
    PutHashingConfig,
    PutIndex,
    PutPartition,
    PutTable,
    Receipt,
    TableDefinition,
)
from spark_apps.timeline.state import State

INDEX = IndexDefinition("by_city", "secondary", ("city",), "i1", included=("fare",), shards=4)
TABLE = TableDefinition(
    "t", (Field("id", "bigint", False), Field("city", "string"), Field("dt", "date")), ("id",), ("dt",)
)
RULES = HashingConfig("0" * 17, 8, "regex", "-11-,256")
COMMITS = [
    Commit(
        1, 0, "20261120140207000", "create", "create-1", 0, -1,
        actions=(
            PutTable(TABLE), PutIndex(INDEX, covered=True), PutHashingConfig(RULES),
        ),
    ),
    Commit(
        1, 1, "20261121165000123", "upsert", "etl.load", 0, 0,
        actions=(
            PutPartition("dt=2026-11-20", 8, ("2026-11-20",)),
            AddFile(DATA_TREE, "dt=2026-11-20", "0", "data/etl.load.0/a.parquet", "delta", 1_200, 34_000),
        ),
        metrics={"rows": 1200, "files": 1, "bytes": 34_000, "new_partitions": 1},
    ),
]  # fmt: skip


def state() -> State:
    folded = State()
    for commit in COMMITS:
        folded.apply(commit)
    return folded


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print as on a wide terminal, whatever the one of the run is."""
    monkeypatch.setenv("COLUMNS", "200")


def lines(result: object) -> list[str]:
    return str(result).split("\n")


def test_given_a_table_then_it_prints_what_it_is_its_columns_and_its_indexes() -> None:
    assert as_text(view_table("s3://lake/trips", state())) == (
        "s3://lake/trips, version 1\n"
        "  as of           2026-11-21 16:50:00.123 UTC\n"
        "  rows            1,200\n"
        "  size            34.0 kB in 1 file\n"
        "  partitions      1\n"
        "  record key      id\n"
        "  partitioned by  dt\n"
        "  newest by       commit\n"
        "  layout          buckets by xxhash64 of id\n"
        "  writes          merge on read\n"
        "\n"
        "column  type\n"
        "──────  ──────  ──────────\n"
        "id      bigint  never null\n"
        "city    string\n"
        "dt      date\n"
        "\n"
        "index    kind       state                columns  included  kept\n"
        "───────  ─────────  ───────────────────  ───────  ────────  ─────────────\n"
        "by_city  secondary  1 file group behind  city     fare      with the data"
    )


def test_given_partitions_indexes_and_history_then_each_is_a_table_and_equals_what_it_was() -> None:
    partitions, indexes = partitions_of(state()), indexes_of(state())
    assert lines(partitions) == [
        "1 partition",
        "",
        "partition      buckets   rows     size  files",
        "─────────────  ───────  ─────  ───────  ─────",
        "dt=2026-11-20        8  1,200  34.0 kB      1",
    ]
    assert dict(partitions) == partitions and partitions["dt=2026-11-20"].rows == 1200
    assert (
        repr(indexes) == "<ResultMap: 1 index>" and repr(indexes["by_city"]) == "<IndexInfo: secondary index by_city>"
    )
    assert lines(indexes["by_city"]) == [
        "secondary index by_city",
        "  state     active",
        "  covers    all but 1 file group",
        "  columns   city",
        "  included  fare",
        "  kept      with the data",
        "  shards    4",
    ]
    timeline: Any = SimpleNamespace(commits=lambda after, until: COMMITS[after + 1 : until + 1])
    assert lines(history_of(timeline, 1)) == [
        "2 commits",
        "",
        "version  instant (UTC)            operation   rows  files     size  transaction",
        "───────  ───────────────────────  ─────────  ─────  ─────  ───────  ───────────",
        "      0  2026-11-20 14:02:07.000  create                            create-1",
        "      1  2026-11-21 16:50:00.123  upsert     1,200      1  34.0 kB  etl.load",
    ]
    assert lines(rule_versions(state()))[2:] == [
        "since     engine  partitions  buckets",
        "────────  ──────  ──────────  ───────",
        "at first  regex   -11-            256",
        "at first  regex   otherwise         8",
    ]


def test_given_a_receipt_then_it_says_what_was_committed_with_its_figures() -> None:
    receipt = Receipt.of(COMMITS[1])
    assert repr(receipt) == "<Receipt: upsert: committed version 1>"
    assert lines(receipt) == [
        "upsert: committed version 1",
        "  instant         2026-11-21 16:50:00.123",
        "  transaction     etl.load",
        "  rows            1,200",
        "  files           1",
        "  bytes           34.0 kB",
        "  new partitions  1",
    ]
    assert lines(Receipt(None, "t", "compact"))[0] == "compact: nothing to do"
    staged = Receipt(None, "t", "upsert", {"stage": "east", "staged": "ab"})
    assert lines(staged)[0] == "upsert: staged in east"


def test_given_a_plan_of_a_rescale_then_partitions_are_rows_and_costs_stand_above() -> None:
    partitions = tuple(PartitionRescale(f"dt=2024-11-{day}", 8, 256, 16, 1_500_000) for day in range(10, 33))
    plan = RescalePlan(partitions, 342, 8, "regex", "-11-,256", True, 90.0, "the last rescale")
    assert repr(plan) == "<RescalePlan: rescale: 23 partitions, 368 files, 34.5 MB written anew>"
    assert lines(plan)[:9] == [
        "rescale: 23 partitions, 368 files, 34.5 MB written anew",
        "  keep their count  342 partitions",
        "  rules             changed: regex -11-,256",
        "  default           8",
        "  takes about       2 min (the last rescale)",
        "",
        "partition      from buckets   to  files    size",
        "─────────────  ────────────  ───  ─────  ──────",
        "dt=2024-11-10             8  256     16  1.5 MB",
    ]
    assert lines(plan)[-1] == "… and 3 more" and len(lines(plan)) == 29


def test_given_plans_of_a_build_and_a_cleaning_then_they_are_short_whatever_they_hold() -> None:
    groups = tuple((f"dt={day}", str(bucket)) for day in range(3) for bucket in range(8))
    build = IndexPlan("by_city", "full", groups, 24, 9_000_000, "it is new", 120_000, 4.0, "3 earlier builds")
    assert lines(build) == [
        "full of index by_city: 24 file groups",
        "  reads   24 files, 9.0 MB",
        "  writes  about 120.0 kB in 4 s (3 earlier builds)",
        "  why     it is new",
        "",
        "partition  file groups",
        "─────────  ───────────",
        "dt=0                 8",
        "dt=1                 8",
        "dt=2                 8",
    ]
    cleaning = CleaningPlan(1200, tuple(f"data/t.0/{n}.parquet" for n in range(300)), 7_000, ("dead.0",), ())
    assert lines(cleaning)[:6] == [
        "clean: 300 files, 7.0 kB",
        "  expires versions below  1200",
        "  ends attempts           dead.0",
        "",
        "deletes",
        "───────────────────",
    ]
    assert lines(cleaning)[-1] == "… and 280 more"


def test_given_a_report_of_a_verification_then_it_says_whether_index_and_rows_agree() -> None:
    agreeing = VerificationReport("by_city", 12, 5_000, 5_000, 0, 0, 0, 7, 0)
    assert lines(agreeing) == [
        "index by_city agrees with the rows of version 12",
        "  rows compared  5,000",
        "  entries        5,000",
        "  stale          7, which need not be gone yet",
    ]
    faults = (
        Difference("missing", {"city": "sfo", "id": 1234}, "dt=1"),
        Difference("unreadable", {"file": "x.parquet"}),
    )
    differing = VerificationReport("by_city", 12, 5_000, 4_999, 1, 0, 0, 0, 2, faults)
    assert lines(differing) == [
        "index by_city DIFFERS from the rows of version 12",
        "  rows compared  5,000",
        "  entries        4,999",
        "  missing        1",
        "  not covered    2 file groups, not compared",
        "",
        "examples",
        "fault       key                partition  expected",
        "──────────  ─────────────────  ─────────  ────────",
        "missing     city=sfo, id=1234  dt=1",
        "unreadable  file=x.parquet",
    ]


def explanation(**fields: Any) -> Explanation:
    return Explanation(
        version=12, where="city = 'sfo'", columns=("id",), nothing_matches=False, partitions_read=3,
        partitions_skipped=3, groups_read=10, groups_skipped=14, files_read=10, files_skipped=14, bytes_read=109_480,
        bytes_skipped=161_413, record_keys=None, indexes=(IndexUse("by_city", 1, 89_254, 10),),
        not_used={"keys": NotUsed("no_keys", "no finite set of values for column 'id'")}, not_understood=(),
        warnings=(), **fields,
    )  # fmt: skip


def test_given_an_explanation_then_indexes_used_and_not_are_tables() -> None:
    assert repr(explanation()) == "<Explanation: version 12: city = 'sfo'>"
    assert lines(explanation()) == [
        "version 12: city = 'sfo'",
        "  index used   by_city",
        "  partitions   3 read, 3 skipped",
        "  file groups  10 read, 14 skipped",
        "  files        10 read, 14 skipped",
        "  bytes        109.5 kB read, 161.4 kB skipped",
        "",
        "used     files     size  leaves groups",
        "───────  ─────  ───────  ─────────────",
        "by_city      1  89.3 kB             10",
        "",
        "not used  code     why",
        "────────  ───────  ───────────────────────────────────────",
        "keys      no_keys  no finite set of values for column 'id'",
    ]


def test_given_an_explanation_of_a_query_then_each_scan_is_a_row() -> None:
    scans: Any = (
        SimpleNamespace(
            address="s3://lake/trips",
            replaced=True,
            reason=None,
            shuffle="none is needed",
            keys=None,
            scanned=(24, 10),
            held=7,
            explanation=explanation(),
        ),
        SimpleNamespace(
            address="s3://lake/raw",
            replaced=False,
            reason="others may write it",
            shuffle=None,
            keys=None,
            scanned=None,
            held=0,
            explanation=None,
        ),
    )
    assert lines(QueryExplanation(scans)) == [
        "2 scans",
        "",
        "scan             read by        index    files read  skipped  bytes read   skipped",
        "───────────────  ─────────────  ───────  ──────────  ───────  ──────────  ────────",
        "s3://lake/trips  this plan      by_city          10       14    109.5 kB  161.4 kB",
        "s3://lake/raw    left to Spark",
        "",
        "scan             not used  code     why",
        "───────────────  ────────  ───────  ───────────────────────────────────────",
        "s3://lake/trips  keys      no_keys  no finite set of values for column 'id'",
        "s3://lake/trips: none is needed",
        "s3://lake/trips: 10 of 24 files of its connector's own plan are read by it; the rows of 7 come from indexes",
        "s3://lake/raw: others may write it",
    ]
    assert str(QueryExplanation(())) == "No scan of this query is of a registered source or a keyed table."


def test_given_results_of_statements_then_numbers_of_rows_stand_as_they_are() -> None:
    shown = Result(ShowIndexes("t"), ("index", "year"), (("by_city", 2013),))
    dropped = Result(DropTable("t"), CHANGE_COLUMNS, (("drop_table", "t", None, 1234, None),))
    spark: Any = None
    assert lines(Results([shown], spark)) == [
        "SHOW INDEXES: 1 row", "", "index    year", "───────  ────", "by_city  2013",
    ]  # fmt: skip
    both = Results([shown, dropped], spark)
    assert repr(both) == "Results(SHOW INDEXES, DROP TABLE)"
    assert lines(both)[-4:] == [
        "DROP TABLE", "operation   table  index  version  note", "──────────  ─────  ─────  ───────  ────",
        "drop_table  t                1234",
    ]  # fmt: skip


def test_given_an_error_then_a_notebook_shows_what_happened_and_what_to_do() -> None:
    page = ConcurrentWrite("<b>Another</b> was first.", hint="Run it again.")._repr_html_()
    assert page.startswith("<div><strong>ConcurrentWrite: &lt;b&gt;Another&lt;/b&gt; was first.</strong>")
    assert "Nothing was changed." in page and "Run it again." in page
