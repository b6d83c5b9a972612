"""Random histories of tables of other formats: each step is done to twins, with indexes and without.

After each step both tables are compared, and queries of the first one are asked with its indexes and without.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import spark_apps
from spark_apps import IndexedTable
from spark_apps.storage.errors import LakeIndexError
from tests.connectors.comparing import decided, unlike_its_list
from tests.connectors.iceberg_tables import make, registered
from tests.connectors.statements import Statements
from tests.differential.tally import Tally

FILES, ROWS, RIDERS = 4, 200, 40
LEARNED = ("source.commits", "source.compared")
INDEXES: tuple[tuple[str, str, list[str], dict[str, Any]], ...] = (
    ("by_key", "secondary", ["key"], {}),
    ("by_rider", "secondary", ["rider"], {}),
    ("by_n", "skipping", ["values(n)"], {}),
    ("packed", "compact", ["key"], {}),
    ("held", "covering", ["key"], {"included": ["id", "n", "rider"]}),
    ("riders", "covering", ["rider"], {"included": ["key"], "properties": {"layout": "buckets", "buckets": "2"}}),
)


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

    def __init__(self, spark: Any, home: Path, seed: int, tally: Tally) -> None:
        self.spark, self.home, self.tally = spark, home, tally
        self.draw = random.Random(seed)
        self.statements = Statements(self.draw, ROWS, RIDERS)
        self.n, self.next, self.said = "n", ROWS, [f"seed {seed}"]
        spark_apps.disable(spark)
        # A plan that takes the keys of few rows is worth nothing on tables of this size.
        spark.conf.set("spark.lakeindex.joinKeys.worth", "0")
        self.begin(seed)
        table = IndexedTable.load(spark, self.log)
        for name, kind, columns, more in self.draw.sample(INDEXES, self.draw.randint(2, len(INDEXES))):
            table.create_index(name, kind, columns, **more)
        self.versions = [self.newest()]

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

    # --- steps --------------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Do something to both tables."""
        steps = [self.change] * 6 + [self.insert] * 2 + [self.columns, self.layout, self.refresh, self.refresh]
        chosen = self.draw.choice([*steps, self.back] if len(self.versions) > 2 else steps)
        chosen()
        self.tally.add("steps", chosen.__name__)
        self.versions.append(self.newest())

    def both(self, statement: str) -> str:
        """Do a statement to both tables, to the first one with its indexes; return what kind of error both had."""
        self.said.append(statement)
        ended = []
        for name in self.names:
            spark_apps.disable(self.spark)
            if name == self.names[0]:
                spark_apps.enable(self.spark, sources=[self.log])
            ended.append(self.ended(statement, name))
        spark_apps.disable(self.spark)
        assert ended[0] == ended[1], "\n".join([*self.said, *ended])
        return ended[0]

    def ended(self, statement: str, name: str) -> str:
        """Run a statement; return its error without what is of one table alone."""
        short = name.removeprefix("prod.")
        text = statement.replace("{t}", name).replace("{short}", short).replace("{s}", self.source)
        try:
            self.spark.sql(text).collect()
        except Exception as error:  # noqa: BLE001 - which one is what is compared
            said = str(error).split("\n\tat ")[0].splitlines()[0]
            return re.sub(r"\d+|[0-9a-f-]{36}", "#", said.replace(name, "t").replace(short, "t"))[:300]
        return ""

    def insert(self) -> None:
        first, self.next = self.next, self.next + 5
        n = self.draw.choice(["NULL", "3", "id % 97"])
        self.both(
            f"INSERT INTO {{t}} (id, key, {self.n}, rider) SELECT id, id * 7919 % {ROWS}, cast({n} AS int), "
            f"concat('r', id % {RIDERS}) FROM range({first}, {first + 5})"
        )

    def change(self) -> None:
        kind, statement = self.statements.statement(self.n)
        before = self.newest()
        failed = self.both(statement)
        self.tally.add("statements that are refused" if failed else "statements", kind)
        if not failed and self.newest()[0] != before[0]:
            first, second = (self.metrics(name) for name in self.names)
            assert first == second, "\n".join([*self.said, str(first), str(second)])

    def refresh(self) -> None:
        table = IndexedTable.load(self.spark, self.log)
        self.said.append("refresh")
        for name in list(table.indexes):
            try:
                learned = table.refresh_index(name).metrics
                self.tally.add("learned", next((one for one in learned if one in LEARNED), "nothing"))
                assert unlike_its_list(self.spark, self.log) == [], "\n".join([*self.said, str(learned)])
                assert table.verify(name).ok, "\n".join([*self.said, name])
            except LakeIndexError as error:
                self.said.append(str(error))  # of a column that is gone, or of another type

    # --- questions ----------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Compare both tables, and queries of the first one with and without its indexes."""
        first, second = (sorted(map(repr, self.spark.table(name).collect())) for name in self.names)
        assert first == second, "\n".join(self.said)
        keys = ", ".join(map(str, self.statements.some_keys()))
        where = [
            f"key IN ({keys})",
            f"rider = 'r{self.draw.randrange(RIDERS)}'",
            "rider IS NULL",
            f"{self.n} = {self.draw.choice([3, 5, 7, self.draw.randrange(97)])}",
            f"{self.n} IS NULL",
            f"key IN ({keys}) OR rider = 'new'",
        ]
        table = self.names[0]
        for condition in self.draw.sample(where, 2):
            self.compared(f"SELECT * FROM {table} WHERE {condition}")
        of_rider = f"SELECT key, rider FROM {table} WHERE rider IN ('r{self.draw.randrange(RIDERS)}', 'new', 'x')"
        self.compared(self.draw.choice([of_rider, f"{of_rider} AND key < {ROWS // 2}"]))
        source = f"(VALUES {', '.join(f'({key}L)' for key in self.statements.some_keys())}) s(key)"
        join = self.draw.choice(["JOIN", "LEFT SEMI JOIN", "RIGHT JOIN"])
        self.compared(f"SELECT t.* FROM {table} t {join} {source} ON t.key = s.key")
        old = self.draw.choice(self.versions)[0]
        self.compared(f"SELECT count(*), max(id) FROM {table} VERSION AS OF {old} WHERE key IN ({keys})")
        self.compared(
            f"SELECT a.key, b.rider FROM {table} a JOIN {table} b ON a.rider = b.rider WHERE a.key IN ({keys})"
        )

    def compared(self, query: str) -> None:
        self.said.append(query)
        try:
            scans = decided(self.spark, query, self.log)
        except AssertionError as error:
            raise AssertionError("\n".join([*self.said, str(error)])) from error
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
        chosen = self.draw.choice(self.versions)
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

    def newest(self) -> tuple[Any, ...]:
        found = (self.spark.sql(f"SELECT snapshot_id FROM {name}.refs WHERE name = 'main'") for name in self.names)
        return tuple(rows.first()[0] for rows in found)

    def metrics(self, name: str) -> dict[str, Any]:
        rows = self.spark.sql(f"SELECT summary FROM {name}.snapshots ORDER BY committed_at DESC LIMIT 1")
        said = rows.first()[0]
        return {count: said.get(count) for count in self.COUNTS}

    def back(self) -> None:
        chosen = self.draw.choice(self.versions)
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


COLUMNS = ("id", f"id * 7919 % {ROWS} AS key", "cast(id % 97 AS int) AS n", f"concat('r', id % {RIDERS}) AS rider")

HISTORIES: dict[str, Callable[[Any, Path, int, Tally], History]] = {"delta": DeltaHistory, "iceberg": IcebergHistory}
