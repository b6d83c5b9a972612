"""A skipping index: what it costs, and what it spares.

A thousand Parquet files of events are a registered source: rows come by time, users and notes at random, a rare word
stands in one note, and each event has ids of itself, its session and its trace, as trackers write them; how large the
index is beside rows without these ids, of 94 bytes, is stated too. The index keeps bounds of times, a Bloom filter of
users that is wrong once in 670 times and the cities in lower case; the covering index beside holds the same columns. A
second index keeps the runs of bytes of notes. A keyed table of its own tells what a commit of a delta costs more. One
large file of many row groups is asked for one value, in this process, and for the rare word, by Spark, with records of
row groups and without. Each figure is a ratio of one run, but for the time that the index is asked.
"""

from __future__ import annotations

import itertools
import statistics
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Answer, interleaved, timed
from benchmarks.report import Report
from benchmarks.workplace import workplace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES = 1_000
IDS = ("event_id", "session_id", "trace_id")
PARTS = ["minmax(ts)", "bloom(user_id)", "values(lower(city))"]
RATE = {"false_positive_rate": "0.0015"}
"""Of a thousand files one and a half are read in vain: a mean of three has room for them and for the file asked for."""
VALUES = 201
"""Values that are asked for: of few, the mean is one of chance."""

_COMMITS = 300
"""Single commits differ by half, so that the median of few tells nothing of a few hundredths."""

_WORD = "zanzibar"
_LEAST_ROWS = 500 * FILES
_ROWS_OF_ONE_FILE = 2_500_000
"""As many as take Spark longer to scan than one row group takes it to read by itself."""

_ROW_GROUP_BYTES = 8 << 20


def run(report: Report, arguments: Namespace) -> None:
    """Print what building, keeping and asking the index costs."""
    rows = max(arguments.rows, _LEAST_ROWS)
    with workplace() as (spark, folder):
        table = _source(spark, folder, rows)
        _building(report, folder, table, rows, arguments.repeats)
        _asking(report, table, rows)
        _searching(report, table, arguments.repeats)
        _committing(report, spark, folder, arguments.repeats)
        _within_a_file(report, spark, folder, arguments.repeats)


def _events(spark: SparkSession, rows: int, first: int = 0, ids: bool = False) -> DataFrame:
    """Events in order of their time, each of another user, with notes of some dozen words."""
    frame = spark.range(first, first + rows, 1, FILES)
    words = ", ".join(f"lower(conv(cast(floor(rand({seed}) * 60000) + 10000 as string), 10, 36))" for seed in range(14))
    return frame.selectExpr(
        "id",
        "timestamp_seconds(1700000000 + id) AS ts",
        "cast(floor(rand(100) * 1e12) as bigint) AS user_id",
        "element_at(array('SFO', 'Jfk', 'lhr', 'HND', 'Txl', 'mad', 'ARN'), 1 + cast(rand(101) * 7 as int)) AS city",
        "rand(102) * 100 AS fare",
        *(f"uuid() AS {name}" for name in IDS if ids),
        f"concat_ws(' ', {words}, if(id = {first + rows // 3}, '{_WORD}', 'common')) AS note",
    )


def _source(spark: SparkSession, folder: Path, rows: int) -> Any:
    from spark_apps import IndexedTable

    _events(spark, rows, ids=True).write.parquet(str(folder / "events"))
    return IndexedTable.register(spark, folder / "events", format="parquet")


def _building(report: Report, folder: Path, table: Any, rows: int, repeats: int) -> None:
    from spark_apps import IncludedColumns

    numbers = itertools.count()

    def build(kind: str, columns: list[str], **more: Any) -> Answer:
        name = f"{kind}{next(numbers)}"
        seconds = timed(lambda: table.create_index(name, kind, columns, **more))
        size = table.index_status(name).bytes
        table.drop_index(name)
        return Answer({"bytes": size}, seconds)

    cases = {
        "skipping": lambda: build("skipping", PARTS, properties=RATE),
        "covering": lambda: build("covering", ["user_id"], included=IncludedColumns(include=["ts", "city"])),
    }
    skipping, covering = interleaved(cases, min(repeats, 3))
    report.timings(f"Building over {rows:,} rows in {FILES:,} files", [skipping, covering], "covering")
    data = sum(file.bytes for file in table.snapshot.state.files("data"))
    report.say(f"The data have {data / 1e6:,.1f} MB, the skipping index {skipping.counts['bytes'] / 1e6:,.2f} MB.")
    report.verdict(21, "build", skipping.median / covering.median)
    report.verdict(21, "size", skipping.counts["bytes"] / data)
    narrow = data - sum(map(_bytes_of_ids, (folder / "events").glob("*.parquet")))
    report.verdict(21, "size, narrow", skipping.counts["bytes"] / narrow)


def _bytes_of_ids(path: Path) -> int:
    import pyarrow.parquet as pq

    group = pq.read_metadata(path).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    return sum(column.total_compressed_size for column in columns if column.path_in_schema in IDS)


def _asking(report: Report, table: Any, rows: int) -> None:
    from spark_apps.indexes.handler import IndexContext
    from spark_apps.indexes.registry import find
    from spark_apps.indexes.skipping import records
    from spark_apps.query.planning import ParsedPredicateProbe, parse_for_session

    table.create_index("skip", "skipping", PARTS, properties=RATE)
    values = [row.user_id for row in table.read("id % 997 = 5", ["user_id"]).limit(VALUES).collect()]
    snapshot, handler = table.snapshot, find("skipping")
    context = IndexContext(snapshot, table.indexes["skip"].definition, "")
    seconds, files, first = [], [], []
    for value in values:
        where = f"user_id = {value}"
        probe = ParsedPredicateProbe(parse_for_session(snapshot, where))
        records._OPENED.clear()
        for kept in (first, seconds):
            begun = time.perf_counter()
            handler.prune(context, probe)
            kept.append(time.perf_counter() - begun)
        files.append(table.explain(where).files_read)
    asked, most = statistics.median(seconds), statistics.fmean(files)
    report.table(
        f"One value among {FILES:,} files",
        ("asked the first time, ms", "asked again, ms", "files read, mean", "files read, most"),
        [(f"{statistics.median(first) * 1e3:.1f}", f"{asked * 1e3:.1f}", f"{most:.1f}", str(max(files)))],
    )
    report.verdict(21, "files", most)
    report.verdict(21, "ask", asked * 1e3)
    report.verdict(21, "first ask", statistics.median(first) * 1e3)


def _searching(report: Report, table: Any, repeats: int) -> None:
    where = f"note LIKE '%{_WORD}%'"

    def search() -> Answer:
        found: list[int] = []
        seconds = timed(lambda: found.append(len(table.read(where, ["id"]).collect())))
        assert found == [1], found
        return Answer({"rows": 1}, seconds)

    [scan] = interleaved({"scan": search}, repeats)
    seconds = timed(lambda: table.create_index("words", "skipping", ["ngrams(note)"]))
    [indexed] = interleaved({"with ngrams": search}, repeats)
    status = table.index_status("words")
    report.timings(
        f"LIKE of a rare word (index: {seconds:.1f} s, {status.bytes / 1e6:,.1f} MB)", [indexed, scan], "scan"
    )
    report.verdict(21, "like", indexed.median / scan.median)


def _committing(report: Report, spark: SparkSession, folder: Path, repeats: int) -> None:
    from spark_apps import IndexedTable

    tables = {}
    for name in ("without", "with"):
        ddl = "id bigint, ts timestamp, user_id bigint, city string, fare double, note string"
        table = IndexedTable.create(spark, folder / name, ddl, ["id"], buckets=4)
        table.upsert(_events(spark, 100_000).coalesce(4))
        if name == "with":
            table.create_index("skip", "skipping", ["minmax(ts)", "bloom(user_id)", "values(city)"])
        tables[name] = table
    firsts = itertools.count(50_000, 1_000)

    def commit(name: str) -> Answer:
        batch = _events(spark, 5_000, next(firsts)).coalesce(2)
        return Answer({}, timed(lambda: tables[name].upsert(batch)))

    cases = {name: (lambda name=name: commit(name)) for name in tables}
    timings = interleaved(cases, max(repeats, _COMMITS), 2, turned=True)
    without, with_index = timings
    report.timings("A commit of 5,000 rows as deltas", [with_index, without], "without")
    report.verdict(21, "commit", with_index.median / without.median - 1)


def _within_a_file(report: Report, spark: SparkSession, folder: Path, repeats: int) -> None:
    from spark_apps import IndexedTable, open_table

    place = folder / "one"
    rows = _events(spark, _ROWS_OF_ONE_FILE).coalesce(1)
    rows.write.option("parquet.block.size", _ROW_GROUP_BYTES).parquet(str(place))
    tables, opened, sizes = {}, {}, []
    for granularity in ("file", "row_group"):
        table = IndexedTable.register(spark, place, format="parquet", index_root=str(folder / granularity))
        seconds = timed(
            lambda table=table, granularity=granularity: table.create_index(
                "i", "skipping", ["bloom(user_id)", "ngrams(note)"], properties={"granularity": granularity}
            )
        )
        size = table.index_status("i").bytes
        sizes.append((granularity, f"{seconds:.1f}", f"{size / 1e6:,.1f}", f"{size / _size_of(table):.1%}"))
        tables[granularity] = table
        opened[granularity] = open_table(place, index_root=folder / granularity)
    report.table("An index over one file", ("granularity", "build s", "MB", "of the data"), sizes)
    value = f"user_id = {table.read('id = 1234567', ['user_id']).collect()[0].user_id}"
    columns = ["id", "note"]
    report.say(f"Of one value: {opened['row_group'].explain(value, columns).notes[0]}.")

    def here(granularity: str) -> Answer:
        before = _bytes_read()
        seconds = timed(lambda: opened[granularity].read(value, columns))
        return Answer({"rows": 1, "bytes": _bytes_read() - before}, seconds)

    def by_spark(granularity: str) -> Answer:
        where = f"note LIKE '%{_WORD}%'"
        return Answer({"rows": 1}, timed(lambda: tables[granularity].read(where, columns).collect()))

    timings = []
    for title, ask in (("One value, in process", here), ("LIKE of a rare word, by Spark", by_spark)):
        cases = {name: (lambda ask=ask, name=name: ask(name)) for name in ("row_group", "file")}
        timings.append(interleaved(cases, repeats))
        report.timings(f"{title}, in one file of {_ROWS_OF_ONE_FILE:,} rows", timings[-1], "file")
    [(fine, coarse), (like, scan)] = timings
    report.verdict(21, "row groups, bytes", fine.counts["bytes"] / coarse.counts["bytes"])
    report.verdict(21, "row groups", fine.median / coarse.median)
    report.verdict(21, "row groups, like", like.median / scan.median)


def _size_of(table: Any) -> int:
    return sum(file.bytes for file in table.snapshot.state.files("data"))


def _bytes_read() -> int:
    """Return the bytes that this process has read of files so far."""
    [line] = [line for line in Path("/proc/self/io").read_text().splitlines() if line.startswith("rchar")]
    return int(line.split()[1])
