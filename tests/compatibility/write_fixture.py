"""Made ``lake_of_0_1_0.tar.gz``: tables of every kind, by version 0.1.0 as it was before names in it were changed.

Every version to come must read, keep and change them. It is not made anew: a later format gets a fixture of its own
beside it. What the rows are is kept in plain Python beside the tables, step by step, and never read from them. Run as
``python -m tests.compatibility.write_fixture <empty folder>``; the folder's name stands in the logs of sources.
"""

from __future__ import annotations

import csv
import json
import sys
import tarfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from spark_apps import IncludedColumns, IndexedTable
from spark_apps.actions.staging import Stage
from spark_apps.job import Outcome
from spark_apps.storage.store import Store
from spark_apps.timeline import checkpoints, maintenance, sidecars, windows
from spark_apps.timeline.jobs import Beat, HeldAttempt, JobFolder
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import partition_scope
from spark_apps.timeline.transactions import abort, begin, resume
from tests.compatibility.recording import HERE
from tests.compatibility.values import plain
from tests.spark.local import local_session

ARCHIVE = HERE / "lake_of_0_1_0.tar.gz"
EXPECTED = HERE / "lake_of_0_1_0.json"

Row = dict[str, Any]
Test = Callable[[Row], bool]


class Written:
    """A table, and its rows as plain Python knows them: record key (with the partition) -> row."""

    def __init__(self, spark: SparkSession, folder: Path, name: str, ddl: str, key: list[str], **options: Any) -> None:
        self.spark, self.uri, self.ddl = spark, folder / name, ddl
        self.key = [*options.get("partition_by", ()), *key]
        self.table = IndexedTable.create(spark, self.uri, ddl, key, **options)
        self.rows: dict[tuple[Any, ...], Row] = {}
        self.queries: list[dict[str, Any]] = []
        self.versions: dict[str, list[Row]] = {}

    @property
    def timeline(self) -> Timeline:
        return Timeline.load(Store(self.uri))

    def frame(self, rows: Iterable[Row], ddl: str | None = None) -> Any:
        from pyspark.sql.pandas.types import to_arrow_schema
        from pyspark.sql.types import DataType

        schema = DataType.fromDDL(ddl or self.ddl)
        arrow = to_arrow_schema(schema, timezone="UTC")
        return self.spark.createDataFrame(pa.Table.from_pylist(list(rows), schema=arrow), schema)

    def put(self, rows: list[Row], keep: Callable[[Row, Row], bool] = lambda old, new: True) -> Any:
        """Merges rows into those known; those with ``gone`` go. ``keep(old, new)``: whether the new one wins."""
        for row in rows:
            key = tuple(row[name] for name in self.key)
            if key in self.rows and not keep(self.rows[key], row):
                continue
            if row.get("gone"):
                self.rows.pop(key, None)
            else:
                self.rows[key] = {name: value for name, value in row.items() if name != "gone"}
        gone = any("gone" in row for row in rows)
        return self.frame(rows, f"{self.ddl}, gone boolean" if gone else None)

    def mark(self) -> None:
        """Notes the rows of the version that the table is at now."""
        self.reload()
        self.versions[str(self.table.version)] = list(map(plain, self.rows.values()))

    def reload(self) -> IndexedTable:
        self.table = IndexedTable.load(self.spark, self.uri)
        return self.table

    def ask(self, where: str, test: Test, index: str | None = None) -> None:
        rows = [plain(row) for row in self.rows.values() if test(row)]
        self.queries.append({"where": where, "index": index, "rows": rows})

    def description(self) -> dict[str, Any]:
        self.mark()
        return {
            "version": self.table.version,
            "rows": [plain(row) for row in self.rows.values()],
            "versions": self.versions,
            "queries": self.queries,
            "indexes": {name: index.kind for name, index in self.table.indexes.items()},
            "operations": [entry.operation for entry in self.table.history()],
            "buckets": {path: info.buckets for path, info in self.table.partitions.items()},
        }


def trip(n: int, dt: str, city: str, fare: int, ts: int, **more: Any) -> Row:
    return {
        "id": n,
        "dt": dt,
        "city": city,
        "fare": fare,
        "note": f"n{n % 3}",
        "seats": n % 4,
        "junk": "x",
        "ts": ts,
    } | more


def newer(old: Row, new: Row) -> bool:
    return bool(new["ts"] >= old["ts"])


DAYS = ("2024-11-10", "2024-11-11", "2024-11-12")
CITIES = ("ams", "ber", "cph", None)


def trips(spark: SparkSession, folder: Path) -> Written:
    """Buckets by rules, an ordering, every kind of index, every kind of commit."""
    made = Written(
        spark, folder, "trips",
        "id bigint, dt string, city string, fare int, note string, seats int, junk string, ts bigint",
        ["id"], partition_by=["dt"], ordering_column="ts", merge_by="ordering", buckets=2,
        bucket_rule="regex", bucket_expressions=r"dt=2024-11-11,3", properties={"comment.fare": "in cents"},
    )  # fmt: skip
    made.table.insert(made.put([trip(n, DAYS[n % 3], CITIES[n % 4], n * 10, 100) for n in range(18)]), txn_id="load")
    table = made.table
    table.create_index("by_id", kind="record")
    table.create_index("by_city", kind="secondary", columns=["city"], comment="where a trip began")
    table.create_index(
        "by_note", kind="secondary", columns=["note", "seats"], deferred=True, properties={"tombstones": "lazy"}
    )
    table.create_index("by_fare", kind="compact", columns=["fare"], deferred=True)
    table.create_index("by_ts", kind="covering", columns=["ts"], included=["city", "junk"], deferred=True)
    table.create_index("passing", kind="secondary", columns=["ts"], deferred=True)
    made.mark()

    # Newer, older and equal ones of the same keys; deletions; a new key.
    changes = [trip(n, DAYS[n % 3], "osl", n * 100, 90 + n * 5) for n in range(6)]
    changes += [trip(7, DAYS[1], "x", 0, 200, gone=True), trip(20, DAYS[2], "ams", 1, 150)]
    # Rows are wanted whole: one that stays beside one that goes says that it does not.
    made.reload().upsert(made.put([{"gone": False} | row for row in changes], newer), deleted="gone")
    made.rows = {key: row for key, row in made.rows.items() if not (row["city"] == "cph" and row["fare"] < 50)}
    made.reload().delete("city = 'cph' AND fare < 50")
    for index in ("by_note", "by_fare", "by_ts"):
        made.reload().refresh_index(index)
    made.mark()

    table = made.reload()
    table.add_columns("tip double", properties={"comment.tip": "in euros"})
    table.rename_column("note", "remark")
    table.refresh_index("by_ts", included=IncludedColumns(exclude=["junk"]), mode="full")
    table.drop_column("junk")
    made.ddl = "id bigint, dt string, city string, fare int, remark string, seats int, ts bigint, tip double"
    for row in made.rows.values():
        row["remark"] = row.pop("note")
        row["tip"] = None
        del row["junk"]
    made.mark()

    def later(n: int, city: str | None, ts: int, **more: Any) -> Row:
        row = trip(n, DAYS[n % 3], city or "", n, ts, tip=n / 2, **more)
        return {"city": city, "remark": row.pop("note")} | {k: v for k, v in row.items() if k not in ("junk", "city")}

    inline, sidecars.INLINE_ACTIONS = sidecars.INLINE_ACTIONS, 1
    made.reload().upsert(made.put([later(n, "rom", 300) for n in (8, 9, 10, 21)], newer), txn_id="with-a-sidecar")
    sidecars.INLINE_ACTIONS = inline

    # A transaction of two stages, whose first attempt is aborted; and one that was never committed.
    for attempt in (1, 2):
        begun = begin(made.timeline, operation="transaction", txn_id="night", stages=("write", "refresh"),
                      inputs={"day": "2024-11-12"}, patience=5.0, fence=True)  # fmt: skip
        assert begun.attempt == attempt
        batch = [later(n, "par", 400) for n in (12, 22)]
        begun.heartbeat("stage", 1, 2, "rows")
        made.reload().in_stage(Stage("night", attempt, "write")).upsert(
            made.put(batch, newer) if attempt == 2 else made.frame(batch)
        )
        if attempt == 1:
            abort(made.timeline, "night", 1, "cleared by its author")
            continue
        staged = made.reload().in_stage(Stage("night", attempt, "refresh", after=("write",), inputs="by_fare"))
        staged.refresh_index("by_fare")
        resume(made.timeline, "night", attempt).commit()
    silent = begin(made.timeline, operation="upsert", txn_id="silent")
    silent.heartbeat("write the rows", 3, 8)
    abort(made.timeline, "silent", 1, "taken for dead")

    # Windows: one over a partition, renewed, worked in and closed; one that its holder let run out.
    window = made.reload().open_window("nightly", partitions=[f"dt={DAYS[0]}"], seconds=60, at_most=600)
    windows.renew(made.timeline, window.epoch, 120)
    made.reload().upsert(made.put([later(3, "osl", 500)], newer), window=window.epoch)
    made.reload().close_window(window.epoch)
    made.reload().open_window("gone", partitions=[f"dt={DAYS[2]}"], seconds=0.2, at_most=0.2)
    time.sleep(0.3)
    windows.end_expired(made.timeline, "the cleaner")

    checkpoints.write(Store(made.uri), made.timeline.refresh())
    table = made.reload()
    table.compact(mode="full", partitions=[f"dt={DAYS[0]}"])
    table.compact(mode="quick", partitions=[f"dt={DAYS[2]}"])
    table.compact("by_city", mode="full")
    table.rescale(bucket_expressions=r"dt=2024-11-10,1;dt=2024-11-11,3")
    table.rescale(add=r"dt=2024-11-1[12],4")
    table.rollback_rescale()
    made.mark()
    made.rows = {key: row for key, row in made.rows.items() if row["dt"] != DAYS[2]}
    made.reload().drop_partition(f"dt={DAYS[2]}")
    over = [later(1, "lon", 600), later(31, "lon", 600)]
    made.rows = {key: row for key, row in made.rows.items() if row["dt"] != DAYS[1]}
    made.reload().insert_overwrite(made.put(over), partitions=[f"dt={DAYS[1]}"])
    made.mark()
    back = made.table.version - 2
    made.reload().restore(back)
    made.rows = {tuple(row[name] for name in made.key): dict(row) for row in made.versions[str(back)]}
    table = made.reload()
    for index in ("by_note", "by_ts"):
        table.refresh_index(index)
    table.alter_index("by_ts", {"hybrid_appended_ratio": "0.5"})
    table.drop_index("passing")
    checkpoints.write(Store(made.uri), made.timeline.refresh())
    # The cleaner lets old versions go, and the files that only they needed.
    oldest = sorted(map(int, made.versions))[2]
    made.reload().clean(retain_versions=made.table.version - oldest + 1, retain_seconds=0)
    made.versions = {version: rows for version, rows in made.versions.items() if int(version) >= oldest}
    # Deltas and tombstones that nothing has folded, and which the deferred indexes do not cover.
    last = [later(5, "ams", 700), later(40, "ber", 700), later(0, "x", 700, gone=True)]
    made.reload().upsert(made.put([{"gone": False} | row for row in last], newer), deleted="gone", txn_id="last")

    made.ask("id IN (3, 5, 0, 999)", lambda row: row["id"] in (3, 5, 0, 999), "by_id")
    made.ask("city = 'ams'", lambda row: row["city"] == "ams", "by_city")
    made.ask("city IS NULL", lambda row: row["city"] is None, "by_city")
    made.ask("remark = 'n1' AND seats = 1", lambda row: (row["remark"], row["seats"]) == ("n1", 1), "by_note")
    made.ask("fare = 140", lambda row: row["fare"] == 140, "by_fare")
    made.ask("ts = 100", lambda row: row["ts"] == 100, "by_ts")
    made.ask(f"dt = '{DAYS[1]}'", lambda row: row["dt"] == DAYS[1])

    store = Store(made.uri)
    job = JobFolder(store, "night.1.0a1b2c3d")
    job.want(600)
    job.show(Beat(time.time(), "write the rows", 3, 8, "tasks", 1.5, 3.0, 4242, "worker-1", "http://localhost:4040"))
    job.hold(HeldAttempt(store.uri, "night", 2))
    job.cancel("cleared")
    job.finish(Outcome("receipt", made.reload().history()[-1].metrics))
    work = (
        maintenance.PlannedWork("compact", "deltas", bytes=1000, seconds=1.5, overdue=2.0, value=1.0),
        maintenance.PlannedWork("refresh", "lags", "by_note", "quick", 10, 0.5, 1.0, 3, 0.5, False, "budget"),
    )
    skipped = (maintenance.SkippedWork("fresh", "It lags in no group.", "refresh", "by_fare"),)
    at = time.time()
    maintenance.write_plan(store, maintenance.TablePlan("nightly", "run-1", at, made.table.version, work, skipped))
    maintenance.write_done(
        store, maintenance.DoneWork("verify", at, 1.5, made.table.version, "by_city", 10, ok=False, metrics={"rows": 1})
    )
    maintenance.write_done(store, maintenance.DoneWork("compact", at, 2.0, 7, bytes=99, version=8))
    return made


def groups(spark: SparkSession, folder: Path) -> Written:
    """No bucket layout: file groups of a few rows each, found through the record index."""
    made = Written(
        spark, folder, "groups", "id string, p int, v string", ["id"], partition_by=["p"], buckets=None,
        properties={"group_rows": "4"},
    )  # fmt: skip
    made.table.upsert(made.put([{"id": f"k{n}", "p": n % 2, "v": f"v{n % 3}"} for n in range(12)]))
    made.table.create_index("by_v", kind="secondary", columns=["v"])
    # A key that moves to another partition: it is one row of the table.
    made.rows = {key: row for key, row in made.rows.items() if row["id"] != "k2"}
    made.reload().upsert(made.put([{"id": "k2", "p": 1, "v": "moved"}, {"id": "k20", "p": 1, "v": "v0"}]))
    made.rows = {key: row for key, row in made.rows.items() if row["id"] != "k5"}
    made.reload().delete(made.frame([{"id": "k5", "p": 1, "v": None}]))
    # A transaction that is not over: its rows are staged, whoever has the next version commits them.
    begun = begin(made.timeline, operation="transaction", txn_id="open", stages=("write", "refresh"),
                  scopes=(partition_scope("p=1"),), inputs={"day": 1}, patience=60.0)  # fmt: skip
    begun.heartbeat("stage write", 1, 2, "rows")
    stage = Stage("open", 1, "write", leave=("by_v",), inputs="abc", number=1)
    made.reload().in_stage(stage).upsert(made.frame([{"id": "k3", "p": 1, "v": "staged"}]))
    names = list(made.reload().indexes)
    [record] = [name for name in names if made.table.indexes[name].kind == "record"]
    made.ask("id = 'k2'", lambda row: row["id"] == "k2", record)
    made.ask("v = 'v0'", lambda row: row["v"] == "v0", "by_v")
    return made


def marked(spark: SparkSession, folder: Path) -> Written:
    """Deltas that tell which rows they replace; no partitions."""
    made = Written(spark, folder, "marked", "id bigint, v string", ["id"], buckets=2, positions=True)
    made.table.upsert(made.put([{"id": n, "v": f"v{n % 4}"} for n in range(16)]))
    made.table.compact()
    made.reload().upsert(made.put([{"id": n, "v": "new"} for n in (1, 2, 30)]))
    made.rows = {key: row for key, row in made.rows.items() if row["id"] != 3}
    made.reload().delete("id = 3")
    made.reload().create_index("by_v", kind="covering", columns=["v"], deferred=True)
    made.table.refresh_index("by_v")
    made.ask("v = 'new'", lambda row: row["v"] == "new", "by_v")
    made.ask("id = 3 OR id = 4", lambda row: row["id"] in (3, 4))
    return made


def whole(spark: SparkSession, folder: Path) -> Written:
    """Written anew by each change; keys of two columns; types that take a care of their own."""
    from datetime import UTC, date, datetime
    from decimal import Decimal

    made = Written(
        spark, folder, "whole",
        "a bigint, b string, d date, t timestamp, m decimal(12,3), x binary, f double, ok boolean, "
        "l array<int>, s struct<u:int,v:string>",
        ["a", "b"], partition_by=["d"], buckets=2, bucket_rule="range",
        bucket_expressions="2024-11-01 <= d < 2024-12-01,3", hash_fields=["b"], hash_function="java",
        write_mode="copy_on_write",
    )  # fmt: skip

    def row(n: int, m: str) -> Row:
        return {
            "a": n, "b": f"b{n % 2}", "d": date(2024, 10 + n % 3, 5), "t": datetime(2024, 1, 1, n, tzinfo=UTC),
            "m": Decimal(m), "x": bytes([n, 255]), "f": n / 4, "ok": None if n == 3 else n % 2 == 0,
            "l": [n, n + 1], "s": {"u": n, "v": "ü"},
        }  # fmt: skip

    made.table.upsert(made.put([row(n, f"{n}.125") for n in range(9)]))
    made.table.create_index("by_m", kind="secondary", columns=["m", "ok"])
    made.table.create_index("by_t", kind="compact", columns=["t"], deferred=True)
    made.table.refresh_index("by_t")
    made.reload().upsert(made.put([row(2, "99.5"), row(11, "99.5")]))
    made.reload().open_window("left open", partitions=["d=2024-12-05"], seconds=3600)
    made.ask("m = 99.5", lambda row: row["m"] == Decimal("99.5"), "by_m")
    made.ask("t = TIMESTAMP '2024-01-01 04:00:00'", lambda row: row["a"] == 4, "by_t")
    made.ask("b = 'b1' AND d = DATE '2024-11-05'", lambda row: row["b"] == "b1" and row["d"].month == 11)
    return made


def dropped(spark: SparkSession, folder: Path) -> None:
    table = IndexedTable.create(spark, folder / "dropped", "id bigint", ["id"], buckets=1)
    table.drop()


RIDE = ("n", "rider", "fare")


def sources(spark: SparkSession, folder: Path) -> dict[str, Any]:
    """Rows that somebody else writes: Parquet in partitions, and a CSV file."""
    rides = [{"n": n, "rider": f"r{n % 3}", "fare": n / 2, "dt": ("one", "two")[n // 5]} for n in range(10)]
    for dt in ("one", "two"):
        path = folder / "raw" / "rides" / f"dt={dt}"
        path.mkdir(parents=True)
        rows = [{name: row[name] for name in RIDE} for row in rides if row["dt"] == dt]
        pq.write_table(pa.Table.from_pylist(rows), path / "rows.parquet")
    table = IndexedTable.register(spark, folder / "raw" / "rides", record_key=["n"])
    table.create_index("by_rider", kind="covering", columns=["rider"], included=["n"], deferred=True)
    table.create_index("by_fare", kind="compact", columns=["fare"], deferred=True)
    table.create_index("by_n", kind="record", deferred=True)
    for index in ("by_rider", "by_fare", "by_n"):
        table.refresh_index(index)
    riders = [{"rider": f"r{n}", "name": name} for n, name in enumerate(("Ann", "Bob; or Rob", "Zoë"))]
    (folder / "raw" / "riders").mkdir()
    with (folder / "raw" / "riders" / "all.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["rider", "name"], delimiter=";")
        writer.writeheader()
        writer.writerows(riders)
    table = IndexedTable.register(
        spark, folder / "raw" / "riders", format="csv", schema="rider string, name string",
        options={"header": True, "sep": ";"}, properties={"team.owner": "lake"},
    )  # fmt: skip
    table.create_index("by_name", kind="covering", columns=["name"], included=["rider"], deferred=True)
    table.refresh_index("by_name")

    def of(rows: list[Row], *queries: tuple[str, Test, str]) -> dict[str, Any]:
        asked = [
            {"where": where, "index": index, "rows": [r for r in rows if test(r)]} for where, test, index in queries
        ]
        return {"rows": rows, "queries": asked}

    return {
        "rides": of(
            rides,
            ("rider = 'r1'", lambda row: row["rider"] == "r1", "by_rider"),
            ("fare = 2.5", lambda row: row["fare"] == 2.5, "by_fare"),
            ("n IN (3, 7)", lambda row: row["n"] in (3, 7), "by_n"),
        ),
        "riders": of(riders, ("name = 'Zoë'", lambda row: row["name"] == "Zoë", "by_name")),
    }


def main(folder: Path) -> None:
    spark = local_session(partitions=2)
    tables = {make.__name__: make(spark, folder).description() for make in (trips, groups, marked, whole)}
    dropped(spark, folder)
    expected = {"written_in": str(folder), "tables": tables, "sources": sources(spark, folder)}
    spark.stop()
    EXPECTED.write_text(json.dumps(expected, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    with tarfile.open(ARCHIVE, "w:gz") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and not path.name.endswith(".crc"):
                archive.add(path, path.relative_to(folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
