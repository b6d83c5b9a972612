"""Event logs of Spark, as it wrote them but for what is left out: which queries are read of them, and no secret."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from spark_apps.query.parsing import parse_predicate
from spark_apps.storage.errors import InvalidInput
from spark_apps.workload import event_logs
from spark_apps.workload.asked import Workload
from spark_apps.workload.event_logs import read_event_logs

LOGS = sorted((Path(__file__).parent / "event_logs").iterdir())
SCHEMA = {"id": "bigint", "day": "int", "rider": "bigint", "city": "string", "fare": "double", "at": "timestamp",
          "dt": "date", "price": "decimal(10,2)", "flag": "boolean"}  # fmt: skip

TRIPS = {
    ("city = ? AND fare > ?", "city = 'city 3' AND fare > 10.5D"),
    ("rider IN (?) AND day = ?", "rider IN (1, 2, 3) AND day = 2"),
    ("dt >= DATE ? AND dt < DATE ?", "dt >= DATE'2026-01-10' AND dt < DATE'2026-01-20'"),
    ("(id = ? OR id = ?) AND lower(city) = ?", "(id = 3 OR id = 9) AND lower(city) = 'city 4'"),
    ("contains(city, ?) AND startswith(city, ?) AND flag = ?",
     "contains(city, 'ty 5') AND startswith(city, 'ci') AND flag = true"),
    ("price > ? AND at > TIMESTAMP ? AND NOT (city = ?)",
     "price > 3.25 AND at > TIMESTAMP'2026-01-01 00:05:00.0' AND NOT (city = 'a, b')"),
    ("((city >= ? AND city <= ?) OR city IS NULL) OR NOT (rider = ?)",
     "(((city >= 'a' AND city <= 'd') OR city IS NULL) OR NOT (rider = 4))"),
    ("rider > ?", "rider > 400"),  # of a cached frame, which was filled once and asked twice
    ("?", None),  # city IN ('a, b', …) OR …: what stands in such a list cannot be told
    (None, None),
}  # fmt: skip
"""What was asked of one table: shapes and predicates."""


def of_trips(asked: Workload) -> set[tuple[str | None, str | None]]:
    groups = [group for group in asked if group.shape.table == "/lake/raw/trips"]
    return {(group.shape.shape, one) for group in groups for one in group.predicates or [None]}


@pytest.mark.parametrize("log", LOGS, ids=[log.name for log in LOGS])
def test_given_a_log_when_read_then_each_scan_is_a_query_with_what_was_pushed_to_it(log: Path) -> None:
    asked = read_event_logs(log)

    assert of_trips(asked) == TRIPS and asked.refused == {}
    assert {group.shape.table for group in asked} == {"/lake/raw/trips", "/lake/raw/riders"}
    by_shape = {group.shape.shape: group for group in asked.of_table("lake.trips", "/lake/raw/trips")}
    grouped = by_shape["dt >= DATE ? AND dt < DATE ?"]
    assert grouped.shape.columns == ("city", "fare", "dt", "day") and grouped.shape.group_keys == ("city",)
    assert grouped.files_read == 4 and grouped.bytes_read > 30_000 and grouped.seconds > 0
    assert by_shape["(id = ? OR id = ?) AND lower(city) = ?"].shape.order == ("fare",)
    joined = [group.shape.join_keys for group in asked if "rider" in group.shape.join_keys]
    assert len(joined) == 3
    assert set(grouped.asked_by) == {"trips.daily"}
    for _, predicate in of_trips(asked):  # all of it can be read again
        if predicate is not None:
            parse_predicate(predicate, SCHEMA, time_zone="UTC", timestamps="timestamp")


def test_given_secrets_in_settings_when_read_then_none_is_copied() -> None:
    for log in LOGS:
        assert b"hunter2secret" in log.read_bytes() and b"hunter3secret" in log.read_bytes()
        asked = read_event_logs(log)
        said = json.dumps(asked.to_dict()) + str(asked) + "".join(str(one) for one in asked.queries())
        assert "hunter" not in said
    assert LOGS


def zstd(body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as out:
        for at in range(0, len(body), 9_000):  # as Spark does after each event
            out.write(body[at : at + 9_000])
            out.flush()
    return bytes(sink.getvalue().to_pybytes())


def lz4(body: bytes) -> bytes:
    codec, blocks = pa.Codec("lz4_raw"), b""
    for piece in (body[at : at + 9_000] for at in range(0, len(body), 9_000)):
        packed = codec.compress(piece).to_pybytes()
        blocks += struct.pack("<8sBiii", b"LZ4Block", 0x26, len(packed), len(piece), 0) + packed
    return blocks + struct.pack("<8sBiii", b"LZ4Block", 0x16, 0, 0, 0)


def snappy(body: bytes) -> bytes:
    codec, blocks = pa.Codec("snappy"), b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for piece in (body[at : at + 9_000] for at in range(0, len(body), 9_000)):
        packed = codec.compress(piece).to_pybytes()
        blocks += struct.pack(">i", len(packed)) + packed
    return blocks


@pytest.mark.parametrize("pack", [zstd, lz4, snappy])
def test_given_a_compressed_log_when_read_then_it_says_the_same_and_a_part_of_it_says_a_part(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    body = pack(LOGS[0].read_bytes())
    (tmp_path / f"local-1.{pack.__name__}").write_bytes(body)
    assert of_trips(read_event_logs(tmp_path)) == TRIPS
    for cut in range(len(body) // 7, len(body), len(body) // 7):
        part = tmp_path / "part" / f"app-{cut}.{pack.__name__}.inprogress"
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(body[:cut])
        try:
            assert of_trips(read_event_logs(part)) <= TRIPS
        except InvalidInput:
            assert cut < len(body) // 2
    damaged = bytearray(body)
    for at in range(200, len(damaged), 997):
        damaged[at] ^= 0x55
    (tmp_path / f"local-1.{pack.__name__}").write_bytes(bytes(damaged))
    try:
        assert read_event_logs(tmp_path / f"local-1.{pack.__name__}").refused
    except InvalidInput as error:
        assert "cannot be read" in str(error) or "no event log" in str(error)


def test_given_a_log_that_was_rolled_or_cut_off_when_read_then_its_files_are_one_log(tmp_path: Path) -> None:
    lines = LOGS[0].read_bytes().splitlines(keepends=True)
    folder = tmp_path / "eventlog_v2_app-1"
    folder.mkdir()
    (folder / "appstatus_app-1.inprogress").touch()
    for number in range(0, len(lines), 5):  # the tenth comes after the ninth
        (folder / f"events_{number // 5 + 1}_app-1").write_bytes(b"".join(lines[number : number + 5]))
    assert of_trips(read_event_logs(tmp_path)) == TRIPS

    text = LOGS[0].read_bytes()
    for cut in range(100, len(text), 1_777):
        (tmp_path / "cut").write_bytes(text[:cut])
        assert of_trips(read_event_logs(tmp_path / "cut")) <= TRIPS | {("?", None)}


def event(**more: Any) -> bytes:
    plan = {"nodeName": "Scan parquet ", "simpleString": "FileScan parquet [a#1]", "children": [], "metrics": [],
            "metadata": {"Location": "InMemoryFileIndex(1 paths)[s3a://key:word@lake/t/day=3]", "Format": "Parquet",
                         "ReadSchema": "struct<a:string>", "PushedFilters": "[EqualTo(a,x)]"}}  # fmt: skip
    name = "org.apache.spark.sql.execution.ui.SparkListenerSQLExecutionStart"
    body = {"Event": name, "executionId": 1, "time": 1_795_615_755_907, "sparkPlanInfo": plan, **more}
    return json.dumps(body, separators=(",", ":")).encode() + b"\n"


def test_given_what_no_spark_wrote_when_read_then_it_is_counted_or_refused(tmp_path: Path) -> None:
    deep: Any = {"nodeName": "x"}
    for _ in range(300):
        deep = {"nodeName": "x", "children": [deep]}
    log = tmp_path / "log"
    log.write_bytes(b"".join([
        event(), event(executionId=2, time=-5), event(executionId="x"), event(executionId=3, time=2**62),
        event(executionId=4, sparkPlanInfo=None), event(executionId=5, sparkPlanInfo=deep), b'{"Event":"x', b"\n\xff\n",
        event(executionId=6).replace(b"EqualTo(a,x)", b"And(" * 3_000), event(executionId=7)[:-30],
    ]))  # fmt: skip
    asked = read_event_logs(log)
    assert {group.shape.table for group in asked} == {"s3://lake/t"}
    assert {(group.shape.shape, *group.predicates) for group in asked} == {("a = ?", "a = 'x'"), ("?",)}
    assert asked.refused == {"a damaged event": 3, "a query at no time, or of no table": 1}
    for given in ("nothing", "empty"):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(InvalidInput, match=given):
            read_event_logs(tmp_path / given)
    (tmp_path / "empty" / "app.lzf").write_bytes(b"ZV\x01")
    with pytest.raises(InvalidInput, match="compressed by lzf"):
        read_event_logs(tmp_path / "empty")


def test_given_a_bomb_when_read_then_it_is_left_where_it_takes_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_logs, "MAX_LOG_BYTES", 64 << 20)
    with pa.CompressedOutputStream(str(tmp_path / "line.zstd"), "zstd") as log:
        log.write(event())
        for _ in range(96):  # of a line without an end
            log.write(b"x" * (1 << 20))
    asked = read_event_logs(tmp_path)
    assert asked.refused == {"events beyond what is read": 1} and asked.weight == 1
    # Four kilobytes that would take gigabytes: objects of nothing.
    with pa.CompressedOutputStream(str(tmp_path / "line.zstd"), "zstd") as log:
        log.write(event() + event().replace(b'"children":[]', b'"children":[' + b"{}," * 2_000_000 + b"{}]"))
    asked = read_event_logs(tmp_path)
    assert asked.refused == {"an event that is too long": 1} and asked.weight == 1


def test_given_large_plans_that_do_not_end_when_read_then_few_are_held_and_all_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_logs, "MAX_RUNNING_BYTES", 10 * (len(event()) + 1_000_000))
    held = []
    ended = event_logs._Reader._ended
    monkeypatch.setattr(
        event_logs._Reader, "_ended", lambda *given: (held.append(len(given[0]._running)), ended(*given))
    )
    with (tmp_path / "log").open("wb") as log:
        for number in range(50):
            log.write(event(executionId=number).replace(b"[a#1]", b"[a#1]" + b" " * 1_000_000))
    asked = read_event_logs(tmp_path)
    assert asked.weight == 50 and 0 < max(held) <= 10


@pytest.mark.parametrize(("name", "text"), [
    ("HashAggregate", "HashAggregate(keys=[" + "a" * 99_000 + "], functions=[])"),
    ("Sort", "Sort [" * 16_000),
    ("Scan parquet ", "FileScan parquet [" + "a#" * 90_000 + "]"),
    ("BatchScan t", "BatchScan t" + "[" * 10_000 + "] " * 90_000),
])  # fmt: skip
def test_given_the_text_of_a_node_that_no_spark_wrote_when_read_then_it_takes_no_long_time(
    name: str, text: str, tmp_path: Path
) -> None:
    plan = json.loads(event())["sparkPlanInfo"]
    plan["metadata"]["Location"] = "[" + "/a=b" * 100_000 + "/x]"
    started = time.process_time()
    (tmp_path / "log").write_bytes(
        event(sparkPlanInfo={**plan, "nodeName": name, "simpleString": text, "children": [plan]})
    )
    read_event_logs(tmp_path)
    assert time.process_time() - started < 10


def test_given_a_scan_of_iceberg_when_read_then_its_filters_are_those_of_its_text(tmp_path: Path) -> None:
    text = ("BatchScan lake.db.trips[id#1L, city#2] lake.db.trips (branch=null) [filters=city IS NOT NULL, "
            "city = 'a, b', id IN (1, 2), groupedBy=] RuntimeFilters: []")  # fmt: skip
    plan = {"nodeName": "BatchScan lake.db.trips", "simpleString": text, "children": [], "metadata": {}, "metrics": []}
    (tmp_path / "log").write_bytes(event(sparkPlanInfo=plan))
    [group] = read_event_logs(tmp_path)
    assert (group.shape.table, group.shape.columns) == ("lake.db.trips", ("id", "city"))
    assert group.predicates == ["(city = 'a, b') AND (id IN (1, 2))"] and group.shape.shape == "city = ? AND id IN (?)"


@pytest.mark.parametrize("filters", ["city = , id (", "map(id", "id -> 1BD"])
def test_given_filters_of_iceberg_that_cannot_be_read_then_they_are_left_out(tmp_path: Path, filters: str) -> None:
    text = (
        f"BatchScan lake.db.trips[id#1L] lake.db.trips (branch=null) [filters={filters}, groupedBy=] RuntimeFilters: []"
    )
    plan = {"nodeName": "BatchScan lake.db.trips", "simpleString": text, "children": [], "metadata": {}, "metrics": []}
    (tmp_path / "log").write_bytes(event(sparkPlanInfo=plan))
    [group] = read_event_logs(tmp_path)
    assert group.predicates == [] and group.shape.shape == "?"


@pytest.mark.parametrize("pushed", [
    "EqualTo(a,x') OR ('1'='1)", "EqualTo(a,x\\)", "In(a, [x, y])", "Or(EqualTo(a,),EqualTo(b,1))",
    "EqualTo(b; DROP,1)", "And(EqualTo(a,x)", "Nothing(a)", "EqualTo(a,null)",
])  # fmt: skip
def test_given_a_filter_that_could_be_two_things_when_read_then_it_is_left_out(pushed: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(event().replace(b"EqualTo(a,x)", pushed.encode().replace(b"\\", b"\\\\")))
    [group] = read_event_logs(tmp_path)
    assert group.predicates == [] and group.shape.shape == "?"
