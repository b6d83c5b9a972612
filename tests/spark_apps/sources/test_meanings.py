"""Settings of a session that decide on what a source's files mean: what is asked with an index and without is what
Spark reads of the files as they were registered, in any session; or the index is not used, and not built, and says so.
Damaged lines are asked for too, of which Spark reads other rows by one query than by another.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.mergetree import reader_settings
from spark_apps.mergetree.reader_settings import SETTINGS
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.model import Field, SourceDefinition, TableDefinition
from tests.spark.local import session_with
from tests.spark_apps.small_tables import in_order, rows_of

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(24, together=4)]

DDL = "id int, n int, ts timestamp, d date, s string, _corrupt_record string"
JSON = r"""{"id":1,"n":5,"ts":"2024-01-01 05:00:00","d":"2024-01-01","s":"a"}
{"id":2,"n":5,"ts":"2024-01-01T05:00:00Z","d":"2024-1-1","s":1.10}
{"id":3,"n":"x","ts":1704085200,"d":"2024-02-30","s":{"a":1}}
{"n":5,"id":4,"s":"b","ts":"20240101 05:00:00",
{"s":"b","id":5,"ts":"2024-01-01 14:00:00","n":99999999999,"d":"x"}
no json
{"n":5,"d":"01/02/2024","ts":"Mon","id":7
{"id":8,"n":"","s":"","ts":"","d":"2024-01-02"}
"""
CSV = """1,5,2024-01-01 05:00:00,2024-01-01,a
2,5,2024-01-01T05:00:00Z,2024-1-1,1.10
3,x,2024-01-01,2024-02-30,b
4,5
5,99999999999,2024-01-01 14:00:00,x,b,more
,,,,
7,5,Mon,01/02/2024,
"""
MOMENT = "TIMESTAMP '2024-01-01 05:00:00'"
ASKED = [f"ts = {MOMENT}", "id IS NULL", "n = 5", f"ts > {MOMENT} AND s = 'b'", "n IS NULL AND s = 'b'", "id = 20"]
OTHERS = {
    "spark.sql.session.timeZone": "Asia/Tokyo", "spark.sql.columnNameOfCorruptRecord": "s",
    "spark.sql.legacy.timeParserPolicy": "LEGACY", "spark.sql.legacy.csv.enableDateTimeParsingFallback": "false",
    "spark.sql.legacy.json.enableDateTimeParsingFallback": "false",
    "spark.sql.legacy.json.allowEmptyString.enabled": "true", "spark.sql.json.enablePartialResults": "false",
    "spark.sql.json.enableExactStringParsing": "false", "spark.sql.legacy.javaCharsets": "true",
    "spark.sql.legacy.codingErrorAction": "true", "spark.sql.caseSensitive": "true",
    "spark.sql.parquet.int96TimestampConversion": "true", "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInRead": "LEGACY",
}  # fmt: skip
HARMLESS = {"spark.sql.ansi.enabled": "false", "spark.sql.timestampType": "TIMESTAMP_NTZ"}


Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module", autouse=True)
def dates_that_are_none(spark: Any) -> Iterator[None]:
    """Which are null, as by default since Spark 4.0; before, a query that met one was refused."""
    with session_with(spark, {"spark.sql.legacy.timeParserPolicy": "CORRECTED"}):
        yield


@pytest.fixture(scope="module", params=["json", "csv"])
def registered(request: Any, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> IndexedTable:
    """A source of damaged text with every kind of index."""
    form, folder = request.param, tmp_path_factory.mktemp("meanings") / "text"
    folder.mkdir()
    (folder / f"a.{form}").write_text(JSON if form == "json" else CSV)
    more = '{"id":20,"n":6,"ts":"2024-01-01 20:00:00","d":"2024-01-03","s":"z"}\n'
    (folder / f"b.{form}").write_text(more if form == "json" else "20,6,2024-01-01 20:00:00,2024-01-03,z\n")
    with session_with(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        table = IndexedTable.register(spark, folder, format=form, schema=DDL)
        for name, kind, columns in (
            ("sec", "secondary", ["ts"]),
            ("com", "compact", ["n"]),
            ("rec", "secondary", ["id"]),
        ):
            table.create_index(name, kind, columns)
        more_columns = IncludedColumns(include=["id", "s"])
        ratio = {"hybrid_appended_ratio": "1", "hybrid_deleted_ratio": "1"}
        table.create_index("cov", "covering", ["n"], included=more_columns, properties=ratio)
    return table


def expected(spark: Any, table: IndexedTable, where: str, columns: list[str]) -> Rows:
    """What Spark alone reads, with what the session of the registration set given as options."""
    source = table.definition.source
    assert source is not None
    options = {"timeZone": "America/New_York", "columnNameOfCorruptRecord": "_corrupt_record"}
    plain = spark.read.schema(DDL).options(**options).format(source.format).load(source.location)
    return in_order(plain.where(where).selectExpr(*columns).collect())


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "UTC"])
def test_given_another_zone_then_rows_are_those_of_the_zone_that_the_source_was_registered_in(
    spark: Any, registered: IndexedTable, zone: str
) -> None:
    table = registered
    used: set[str] = set()
    with session_with(spark, {"spark.sql.session.timeZone": zone}):
        for where in ASKED:
            for columns in (["id"], ["s", "n"]):
                used |= {use.name for use in table.explain(where, columns).indexes}
                assert rows_of(table, where, columns) == expected(spark, table, where, columns), (where, columns)
        assert table.verify("sec").ok
    assert used >= {"sec", "com", "rec"}


@pytest.mark.parametrize("name", [*OTHERS, *HARMLESS])
def test_given_another_setting_then_rows_are_the_same_or_the_index_is_not_used_and_says_so(
    spark: Any, registered: IndexedTable, name: str
) -> None:
    table = registered
    assert table.definition.source is not None
    form = table.definition.source.format
    known = next((one for one in SETTINGS if one.name == name and form in one.formats), None)
    where = "n = 5 AND id = 1"
    with session_with(spark, {name: (OTHERS | HARMLESS)[name]}):
        explanation = table.explain(where, ["id"])
        if known is None or known.option is not None:
            assert explanation.indexes and "session_differs" not in {why.code for why in explanation.not_used.values()}
            for asking in (where, "s = 'b'"):
                assert rows_of(table, asking, ["id", "s"]) == expected(spark, table, asking, ["id", "s"]), asking
        else:
            assert not explanation.indexes
            assert {why.code for why in explanation.not_used.values()} == {"session_differs"}
            assert all(name in why.reason for why in explanation.not_used.values())
            with pytest.raises(InvalidInput, match=name):
                table.create_index("more", "secondary", ["s"])
            with pytest.raises(InvalidInput, match=name):
                table.refresh_index("sec", mode="full")
            with pytest.raises(InvalidInput, match=name):
                table.verify("sec")


def test_given_a_session_in_which_nothing_was_set_then_what_readings_are_given_is_known_all_the_same(
    spark: Any,
) -> None:
    with session_with(spark, dict(OTHERS)):
        for name in OTHERS:
            spark.conf.unset(name)
        for form in ("csv", "json", "parquet", "orc", "delta", "iceberg"):
            settings = reader_settings.session_settings(spark, form)
            options = reader_settings.reader_options(SourceDefinition(form, "/s", session=settings))
            assert len(options) == (0 if form == "orc" else 2), (form, settings)
            assert "<undefined>" not in settings.values()


def test_every_setting_that_is_known_is_tried() -> None:
    assert {one.name for one in SETTINGS} == set(OTHERS)


def test_given_a_log_that_does_not_tell_the_zone_then_indexes_of_times_in_text_are_not_used(
    spark: Any, registered: IndexedTable
) -> None:
    table = registered
    old = table.snapshot.state.copy()
    assert old.table.source is not None
    old.definition = replace(old.table, source=replace(old.table.source, session=None))
    shown = IndexedTable(table._handle, old, external=table._external)
    explanation = shown.explain(f"ts = {MOMENT}", ["id"])
    assert explanation.not_used["sec"].code == "session_unknown"
    assert {use.name for use in shown.explain("n = 5", ["id"]).indexes} & {"com", "cov"}


def test_given_columns_of_times_then_only_those_of_text_files_without_a_known_zone_are_unknown() -> None:
    fields = (
        Field("ts", "timestamp"),
        Field("l", "timestamp_ntz"),
        Field("a", "array<timestamp>"),
        Field("s", "string"),
    )

    def table(form: str, **more: Any) -> TableDefinition:
        return TableDefinition("t", fields, (), source=SourceDefinition(form, "/s", **more))

    assert reader_settings.unknown_time_zone(table("csv"), ["ts"]) and reader_settings.unknown_time_zone(
        table("json"), ["s", "a"]
    )
    assert not reader_settings.unknown_time_zone(table("csv"), ["l", "s"])
    assert not reader_settings.unknown_time_zone(table("parquet"), ["ts"])
    assert not reader_settings.unknown_time_zone(table("csv", options={"timezone": "UTC"}), ["ts"])
    assert not reader_settings.unknown_time_zone(table("csv", session={}), ["ts"])


def test_given_old_dates_of_others_then_the_calendar_is_that_of_the_registration(spark: Any, tmp_path: Path) -> None:
    folder = tmp_path / "old"
    folder.mkdir()
    days = [dt.date(1500, 1, 1), dt.date(1, 1, 1), dt.date(2024, 1, 1)]
    for n, day in enumerate(days):
        pq.write_table(pa.table({"id": pa.array([n], pa.int32()), "d": pa.array([day])}), folder / f"{n}.parquet")
    mode = "spark.sql.parquet.datetimeRebaseModeInRead"
    with session_with(spark, {mode: "LEGACY"}):
        table = IndexedTable.register(spark, folder)
        table.create_index("sec", "secondary", ["d"])
        rows = [
            (row.id, row.text) for row in spark.read.parquet(str(folder)).selectExpr("id", "string(d) text").collect()
        ]
    with session_with(spark, {mode: "CORRECTED"}):
        assert {text for _, text in rows} != {
            row[0] for row in spark.read.parquet(str(folder)).selectExpr("string(d)").collect()
        }
        for number, text in rows:
            where = f"d = DATE '{text}'"
            assert [row.id for row in table.read(where).collect()] == [number], text
            assert table.explain(where).files_read == 1
