"""Random histories of tables of other formats: each step is done to twins, with indexes and without.

After each step both tables are compared, and queries of the first one are asked with its indexes. What they should
answer comes from all rows of the other one, which its connector has read: those are kept as rows of the driver, of
which Spark answers most queries without a job.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

import spark_apps
from spark_apps import IndexedTable
from spark_apps.storage.errors import LakeIndexError
from tests.connectors import hudi_tables
from tests.connectors.comparing import unlike_its_list
from tests.connectors.iceberg_tables import make, registered
from tests.connectors.statements import Statements
from tests.differential.plain import decisions_of
from tests.differential.tally import Tally
from tests.spark_apps.small_tables import in_order

FILES, ROWS, RIDERS = 4, 200, 40
MOST_INDEXES, QUESTIONS = 4, 3
"""Of a history; after each step."""
COLUMNS = ("id", f"id * 7919 % {ROWS} AS key", "cast(id % 97 AS int) AS n", f"concat('r', id % {RIDERS}) AS rider")
LEARNED = ("source.commits", "source.compared")
INDEXES: tuple[tuple[str, str, list[str], dict[str, Any]], ...] = (
    ("by_key", "secondary", ["key"], {}),
    ("by_rider", "secondary", ["rider"], {}),
    ("by_n", "skipping", ["values(n)"], {}),
    ("packed", "compact", ["key"], {}),
    ("held", "covering", ["key"], {"included": ["id", "n", "rider"]}),
    ("riders", "covering", ["rider"], {"included": ["key"], "properties": {"layout": "buckets", "buckets": "2"}}),
)


@dataclass(frozen=True)
class Version:
    """What the twins were after a step.

    :param numbers: the format's own name of the version of each. :param rows: of the second one, of the driver.
    """

    numbers: tuple[Any, ...]
    rows: DataFrame


@dataclass(frozen=True)
class Question:
    """A query that is asked with indexes, and what has the same answer without them.

    :param what: its text, for people.
    """

    what: str
    asked: Callable[[], DataFrame]
    plain: Callable[[], DataFrame]


class History:
    """Twin tables, the first one with indexes, and what was done to them.

    :param home: a folder of its own. :param tally: what was done is counted in it.
    """

    names: tuple[str, str]
    """The tables as statements name them."""
    source: str
    """A small table of keys."""
    log: str
    """The address of the log of the first table's indexes."""
    further: tuple[str, ...] = ()
    """Columns beside those of all formats."""

    def __init__(self, spark: Any, home: Path, seed: int, tally: Tally) -> None:
        self.spark, self.home, self.tally = spark, home, tally
        self.draw = random.Random(seed)
        self.statements = Statements(self.draw, ROWS, RIDERS)
        self.n, self.next, self.said = "n", ROWS, [f"seed {seed}"]
        spark_apps.disable(spark)
        # A plan that takes the keys of few rows is worth nothing on tables of this size.
        spark.conf.set("spark.lakeindex.joinKeys.worth", "0")
        # Half of them plan each query at once: with it, each stage of a few rows is a job of its own.
        spark.conf.set("spark.sql.adaptive.enabled", self.draw.choice(["true", "false"]))
        self.begin(seed)
        table = IndexedTable.load(spark, self.log)
        for name, kind, columns, more in self.draw.sample(INDEXES, self.draw.randint(2, MOST_INDEXES)):
            self.said.append(name)
            held = {"included": [*more["included"], *self.further]} if "included" in more else {}
            table.create_index(name, kind, columns, **more | held)
        self.versions = [self.version()]

    def begin(self, seed: int) -> None:
        """Make the tables, and register the first one."""
        raise NotImplementedError

    def newest(self) -> tuple[Any, ...]:
        """Return the newest version of both tables."""
        raise NotImplementedError

    def metrics(self, name: str) -> dict[str, Any]:
        """Return what the newest commit of a table says of its rows."""
        raise NotImplementedError

    def back(self) -> None:
        """Bring both tables back to an earlier version."""
        raise NotImplementedError

    def columns(self) -> None:
        """Change the columns of both tables."""
        raise NotImplementedError

    def layout(self) -> None:
        """Change how both tables lie in files."""
        raise NotImplementedError

    def version(self) -> Version:
        """Return what the twins are now, which has to be the same."""
        session = self.spark._jsparkSession
        each = (f"SELECT {number} AS twin, {self.every} FROM {name}" for number, name in enumerate(self.names))
        read = self.spark.sql(" UNION ALL ".join(each))._jdf
        rows = DataFrame(session.createDataFrame(read.collectAsList(), read.schema()), self.spark)
        first, second = (rows.where(f"twin = {number}").drop("twin") for number in (0, 1))
        assert in_order(first.collect()) == in_order(second.collect()), "\n".join(self.said)
        return Version(self.newest(), second)

    @property
    def every(self) -> str:
        """The columns of the tables."""
        return ", ".join(("id", "key", self.n, "rider", *self.further))

    # --- steps --------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do something to both tables."""
        steps = [self.change] * 6 + [self.insert] * 2 + [self.columns, self.layout, self.refresh, self.refresh]
        chosen = self.draw.choice([*steps, self.back] if len(self.versions) > 2 else steps)
        chosen()
        self.tally.add("steps", chosen.__name__)
        if chosen != self.refresh:  # which is no business of the table
            self.versions.append(self.version())

    def both(self, statement: str) -> str:
        """Do a statement to both tables, to the first one with its indexes; return what kind of error both had."""

        def done(name: str) -> None:
            text = statement.replace("{t}", name).replace("{short}", name.removeprefix("prod."))
            self.spark.sql(text.replace("{s}", self.source)).collect()

        return self.do(statement, done)

    def do(self, what: str, done: Callable[[str], None]) -> str:
        """Do something to both tables, to the first one with its indexes; return what kind of error both had.

        :param what: its text, for people. :param done: does it to the table of a name.
        """
        self.said.append(what)
        spark_apps.enable(self.spark, sources=[self.log])
        try:
            first = self.ended(done, self.names[0])
        finally:
            spark_apps.disable(self.spark)
        second = self.ended(done, self.names[1])
        assert first == second, "\n".join([*self.said, first, second])
        return first

    def ended(self, done: Callable[[str], None], name: str) -> str:
        """Do something to a table; return its error without what is of one table alone."""
        try:
            done(name)
        except Exception as error:  # noqa: BLE001 - which one is what is compared
            said = str(error).split("\n\tat ")[0].splitlines()[0]
            said = said.replace(name, "t").replace(name.removeprefix("prod."), "t")
            return re.sub(r"\d+|[0-9a-f-]{36}", "#", said)[:300]
        return ""

    def insert(self) -> None:
        first, self.next = self.next, self.next + 5
        n = self.draw.choice(["NULL", "3", "id % 97"])
        self.both(
            f"INSERT INTO {{t}} (id, key, {self.n}, rider) SELECT id, id * 7919 % {ROWS}, cast({n} AS int), "
            f"concat('r', id % {RIDERS}) FROM range({first}, {first + 5})"
        )

    def change(self) -> None:
        kind, statement = self.statement()
        before = self.versions[-1].numbers
        failed = self.both(statement)
        self.tally.add("statements that are refused" if failed else "statements", kind)
        if not failed and self.newest()[0] != before[0]:
            first, second = (self.metrics(name) for name in self.names)
            assert first == second, "\n".join([*self.said, str(first), str(second)])
            self.tally.add("pairs whose commits say the same", kind.split()[0])

    def statement(self) -> tuple[str, str]:
        """Return what a statement is of, and its text."""
        return self.statements.statement(self.n)

    def refresh(self) -> None:
        table = IndexedTable.load(self.spark, self.log)
        self.said.append("refresh")
        refreshed = []
        for name in list(table.indexes):
            try:
                learned = table.refresh_index(name).metrics
            except LakeIndexError as error:
                self.said.append(str(error))  # of a column that is gone, or of another type
                continue
            self.tally.add("learned", next((one for one in learned if one in LEARNED), "nothing"))
            refreshed.append(name)
        if refreshed:
            assert unlike_its_list(self.spark, self.log) == [], "\n".join(self.said)
        for name in refreshed:
            assert table.verify(name).ok, "\n".join([*self.said, name])

    # --- questions ----------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask the first table with its indexes."""
        self.versions[-1].rows.createOrReplaceTempView("plain")
        questions = list(self.questions())
        expected = [in_order(question.plain().collect()) for question in questions]
        spark_apps.enable(self.spark, sources=[self.log])
        try:
            for question, answer in zip(questions, expected, strict=True):
                self.said.append(question.what)
                self.compare(question, answer)
        finally:
            spark_apps.disable(self.spark)

    def questions(self) -> list[Question]:
        """Return what is asked after a step."""
        keys = ", ".join(map(str, self.statements.some_keys()))
        where = [
            f"key IN ({keys})",
            f"rider = 'r{self.draw.randrange(RIDERS)}'",
            "rider IS NULL",
            f"{self.n} = {self.draw.choice([3, 5, 7, self.draw.randrange(97)])}",
            f"{self.n} IS NULL",
            f"key IN ({keys}) OR rider = 'new'",
        ]
        of_rider = f"SELECT key, rider FROM {{t}} WHERE rider IN ('r{self.draw.randrange(RIDERS)}', 'new', 'x')"
        source = f"(VALUES {', '.join(f'({key}L)' for key in self.statements.some_keys())}) s(key)"
        join = self.draw.choice(["JOIN", "LEFT SEMI JOIN", "RIGHT JOIN"])
        texts = [
            *(f"SELECT {self.every} FROM {{t}} WHERE {condition}" for condition in self.draw.sample(where, 2)),
            self.draw.choice([of_rider, f"{of_rider} AND key < {ROWS // 2}"]),
            f"SELECT t.* FROM (SELECT {self.every} FROM {{t}}) t {join} {source} ON t.key = s.key",
            f"SELECT a.key, b.rider FROM {{t}} a JOIN {{t}} b ON a.rider = b.rider WHERE a.key IN ({keys})",
        ]
        return self.draw.sample(
            [*(self.question(text) for text in texts), self.of_before(f"key IN ({keys})")], QUESTIONS
        )

    def question(self, text: str) -> Question:
        """Return a query of the table as it is now."""
        asked = text.replace("{t}", self.names[0])
        return Question(asked, lambda: self.spark.sql(asked), lambda: self.spark.sql(text.replace("{t}", "plain")))

    def of_before(self, condition: str) -> Question:
        """Return a query of the table as it was."""
        old = self.draw.choice(self.versions)
        asked = f"SELECT count(*), max(id) FROM {self.names[0]} VERSION AS OF {old.numbers[0]} WHERE {condition}"
        return Question(
            asked,
            lambda: self.spark.sql(asked),
            lambda: old.rows.where(condition).selectExpr("count(*)", "max(id)"),
        )

    def compare(self, question: Question, expected: list[Any]) -> None:
        """Ask with indexes, and compare the answer."""
        answer, scans = decisions_of(self.spark, lambda: in_order(question.asked().collect()))
        decided = [(scan.scanned, scan.held, scan.reason, scan.keys) for scan in scans]
        if answer != expected or any(scan.failed for scan in scans):
            spark_apps.disable(self.spark)
            alone = in_order(question.asked().collect())
            said = (
                f"with indexes {answer}",
                f"of all rows {expected}",
                f"by the connector alone {alone}",
                f"{decided}",
            )
            raise AssertionError("\n".join([*self.said, *said]))
        kept = [scan.scanned for scan in scans if scan.scanned]
        pruned = "pruned" if any(left < all_of_them for all_of_them, left in kept) else "whole"
        self.tally.add("queries", "held" if any(scan.held for scan in scans) else pruned)


class DeltaHistory(History):
    """Twins of Delta, with columns by name, whose deletes are vectors or not."""

    def begin(self, seed: int) -> None:
        self.paths = [self.home / f"{which}_{seed}" for which in ("with", "without", "source")]
        self.names = (f"delta.`{self.paths[0]}`", f"delta.`{self.paths[1]}`")
        self.source = f"delta.`{self.paths[2]}`"
        vectors = str(self.draw.random() < 0.5).lower()
        self.said.append(f"vectors: {vectors}")
        for path in self.paths[:2]:
            rows = self.spark.range(ROWS).selectExpr(*COLUMNS).repartitionByRange(FILES, "id")
            properties = {"delta.enableDeletionVectors": vectors, "delta.columnMapping.mode": "name"}
            rows.write.format("delta").options(**properties).save(str(path))
        drawn = self.statements.values(self.statements.some_keys(6))
        self.spark.sql(f"SELECT * FROM {drawn}").coalesce(1).write.format("delta").save(str(self.paths[2]))
        self.log = str(self.paths[0])
        IndexedTable.register(self.spark, self.log, "delta")

    def commits(self, path: Path) -> list[Path]:
        return sorted(path.joinpath("_delta_log").glob("*[0-9].json"))

    def newest(self) -> tuple[Any, ...]:
        return tuple(int(self.commits(path)[-1].stem) for path in self.paths[:2])

    def metrics(self, name: str) -> dict[str, Any]:
        lines = self.commits(self.paths[self.names.index(name)])[-1].read_text().splitlines()
        said = next(json.loads(line)["commitInfo"] for line in lines if "commitInfo" in line)
        counts = said.get("operationMetrics", {})
        return {count: value for count, value in counts.items() if "Rows" in count or "Vectors" in count}

    def back(self) -> None:
        chosen = self.draw.choice(self.versions).numbers
        self.said.append(f"back to {chosen}")
        for name, version in zip(self.names, chosen, strict=True):
            self.spark.sql(f"RESTORE TABLE {name} TO VERSION AS OF {version}")
        # Columns are as they were then.
        self.n = "m" if "m" in self.spark.table(self.names[0]).columns else "n"

    def columns(self) -> None:
        if self.draw.random() < 0.5:
            self.both("ALTER TABLE {t} DROP COLUMN rider")
            self.both("ALTER TABLE {t} ADD COLUMN (rider string)")
        else:
            old, self.n = self.n, "m" if self.n == "n" else "n"
            self.both(f"ALTER TABLE {{t}} RENAME COLUMN {old} TO {self.n}")

    def layout(self) -> None:
        self.both(self.draw.choice(["OPTIMIZE {t}", "OPTIMIZE {t} ZORDER BY (key)", "REORG TABLE {t} APPLY (PURGE)"]))


class IcebergHistory(History):
    """Twins of Iceberg's format 2 or 3, whose rows are merged on read or copied on write."""

    COUNTS = ("added-records", "deleted-records", "total-records", "added-position-deletes")

    def begin(self, seed: int) -> None:
        self.names = (f"prod.db.history_{seed}", f"prod.db.history_{seed}_twin")
        self.source = f"prod.db.history_{seed}_source"
        mode = self.draw.choice(["merge-on-read", "copy-on-write"])
        properties = {f"write.{command}.mode": mode for command in ("delete", "update", "merge")}
        properties["format-version"] = self.draw.choice(["2", "3"])
        self.said.append(f"{mode}, {properties['format-version']}")
        for name in self.names:
            make(self.spark, name, FILES, ROWS, **properties)
        drawn = self.statements.values(self.statements.some_keys(6))
        self.spark.sql(f"CREATE TABLE {self.source} USING iceberg AS SELECT * FROM {drawn}")
        self.log = registered(self.spark, self.names[0])._handle.timeline.store.uri

    def metadata(self, name: str) -> dict[str, Any]:
        """Return the newest metadata of a table of a Hadoop catalog."""
        folder = Path(self.spark.conf.get("spark.sql.catalog.prod.warehouse"), *name.split(".")[1:], "metadata")
        said: dict[str, Any] = json.loads(max(folder.glob("v*.metadata.json"), key=version_of).read_text())
        return said

    def newest(self) -> tuple[Any, ...]:
        return tuple(self.metadata(name)["current-snapshot-id"] for name in self.names)

    def metrics(self, name: str) -> dict[str, Any]:
        said = self.metadata(name)
        newest = next(one for one in said["snapshots"] if one["snapshot-id"] == said["current-snapshot-id"])
        return {count: newest["summary"].get(count) for count in self.COUNTS}

    def back(self) -> None:
        chosen = self.draw.choice(self.versions).numbers
        self.said.append(f"back to {chosen}")
        for name, snapshot in zip(self.names, chosen, strict=True):
            self.spark.sql(f"CALL prod.system.set_current_snapshot('{name.removeprefix('prod.')}', {snapshot})")

    def columns(self) -> None:
        kind = self.draw.choice(["again", "renamed", "wider"])
        if kind == "again":
            self.both("ALTER TABLE {t} DROP COLUMN rider")
            self.both("ALTER TABLE {t} ADD COLUMN rider string")
        elif kind == "renamed":
            old, self.n = self.n, "m" if self.n == "n" else "n"
            self.both(f"ALTER TABLE {{t}} RENAME COLUMN {old} TO {self.n}")
        else:
            self.both(f"ALTER TABLE {{t}} ALTER COLUMN {self.n} TYPE bigint")

    def layout(self) -> None:
        field = self.draw.choice(["bucket(2, id)", "truncate(100, id)"])
        if self.both(f"ALTER TABLE {{t}} ADD PARTITION FIELD {field}"):  # it has that one
            self.both("CALL prod.system.rewrite_data_files(table => '{short}', options => map('rewrite-all', 'true'))")


def version_of(metadata: Path) -> int:
    """Return the number of an Iceberg table's metadata in a Hadoop catalog."""
    return int(metadata.name.removeprefix("v").partition(".")[0])


class HudiHistory(History):
    """Twins of Hudi, copied on write or merged on read."""

    further = ("p",)

    def begin(self, seed: int) -> None:
        self.kind = self.draw.choice(sorted(hudi_tables.TYPES))
        self.said.append(self.kind)
        self.names = (f"hudi_history_{seed}", f"hudi_history_{seed}_twin")
        self.paths = {name: str(self.home / name) for name in self.names}
        for name, path in self.paths.items():
            hudi_tables.make(self.spark, path, self.kind, FILES, ROWS)
            self.spark.sql(f"DROP TABLE IF EXISTS {name}")
            self.spark.sql(f"CREATE TABLE {name} USING hudi LOCATION '{path}'")
        self.source = f"hudi_history_{seed}_source"
        drawn = self.statements.values(self.statements.some_keys(6))
        self.spark.sql(f"SELECT * FROM {drawn}").coalesce(1).write.parquet(str(self.home / "source"))
        self.spark.read.parquet(str(self.home / "source")).createOrReplaceTempView(self.source)
        self.log = self.paths[self.names[0]]
        IndexedTable.register(self.spark, self.log, "hudi", record_key=["id"])

    def version(self) -> Version:
        for name in self.names:
            self.spark.sql(f"REFRESH TABLE {name}")
        return super().version()

    def newest(self) -> tuple[Any, ...]:
        """Return the instants of the last commits of rows."""
        return tuple(max(self.instants(name)) for name in self.names)

    def instants(self, name: str) -> list[str]:
        """Return the instants of the commits of rows that were completed: files named after them and their ends."""
        found = Path(self.paths[name], ".hoodie", "timeline").glob("*_*.*commit")
        return [path.name.partition("_")[0] for path in found]

    def metrics(self, name: str) -> dict[str, Any]:
        row = self.spark.sql(f"CALL show_commits(table => '{name}', limit => 1)").first()
        return {count: row[count] for count in hudi_tables.COUNTS}

    def statement(self) -> tuple[str, str]:
        if self.draw.random() < 0.2:
            return self.merge()
        return self.draw.choice([self.statements.update, self.statements.delete])(self.n)

    def merge(self) -> tuple[str, str]:
        """Return a MERGE, which Hudi has for keys of records alone; its source may be read by indexes."""
        keys = ", ".join(map(str, self.statements.some_keys()))
        source = self.draw.choice(
            [
                "(SELECT key AS id, m, r FROM {s})",
                f"(SELECT id, cast(n AS int) + 1 AS m, rider AS r FROM {{t}} WHERE key IN ({keys}))",
                "(SELECT o.id, s.m, s.r FROM {s} s JOIN {t} o ON s.key = o.key)",
            ]
        )
        clauses = self.draw.choice(
            [
                "WHEN MATCHED THEN UPDATE SET n = s.m",
                "WHEN MATCHED AND s.m > 1 THEN DELETE",
                "WHEN MATCHED THEN UPDATE SET n = s.m "
                "WHEN NOT MATCHED THEN INSERT (id, key, n, rider, p) VALUES (s.id, s.id, s.m, 'new', 'p0')",
            ]
        )
        return "merge by ids", f"MERGE INTO {{t}} t USING {source} s ON t.id = s.id {clauses}"

    def insert(self) -> None:
        first, self.next = self.next, self.next + 5
        self.written(first, self.next, "insert")

    def columns(self) -> None:
        """Write rows of before anew: Hudi's columns stay as they are."""
        first = self.draw.randrange(ROWS)
        self.written(first, first + 3, "upsert", "id", "key + 1 AS key", "n + 100 AS n", "'x' AS rider", "p")

    def written(self, first: int, last: int, operation: str, *columns: str) -> None:
        """Write rows to both tables."""

        def done(name: str) -> None:
            rows = hudi_tables.rows_of(self.spark, first, last, ROWS)
            hudi_tables.write(rows.selectExpr(*columns or ["*"]), self.paths[name], operation, self.kind)

        assert not self.do(f"{operation} {first}", done), self.said

    def layout(self) -> None:
        if self.kind == "mor" and self.draw.random() < 0.5:
            few = "options => 'hoodie.compact.inline.max.delta.commits=1'"
            self.both(f"CALL run_compaction(op => 'scheduleAndExecute', table => '{{t}}', {few})")
        else:
            self.both("CALL run_clustering(table => '{t}', op => 'scheduleAndExecute', order => 'key')")

    def back(self) -> None:
        """Take the newest commit back, which is what Hudi offers; the first one stays."""
        newest = self.versions[-1].numbers
        if newest == self.versions[0].numbers:
            return
        self.said.append(f"back before {newest}")
        for name, instant in zip(self.names, newest, strict=True):
            self.spark.sql(f"CALL rollback_to_instant(table => '{name}', instant_time => '{instant}')")
        self.versions = [version for version in self.versions if version.numbers != newest]

    def of_before(self, condition: str) -> Question:
        then = self.draw.choice(self.versions).numbers[0]
        options = self.draw.choice([{"as.of.instant": then}, {"hoodie.datasource.query.type": "read_optimized"}])

        def asked() -> DataFrame:
            read: DataFrame = self.spark.read.format("hudi").options(**options).load(self.paths[self.names[0]])
            return read.where(condition)

        return Question(f"{condition} with {options}", asked, asked)


HISTORIES: dict[str, Callable[[Any, Path, int, Tally], History]] = {
    "delta": DeltaHistory, "hudi": HudiHistory, "iceberg": IcebergHistory,
}  # fmt: skip
