"""UPDATE and DELETE of Hudi tables: the read that finds rows is pruned, and what they do is as without indexes."""

from __future__ import annotations

import random
from typing import Any

import pytest

import spark_apps
from spark_apps import IndexedTable
from tests.connectors.comparing import watched
from tests.connectors.hudi_tables import COUNTS, FILES, ROWS, key, make
from tests.connectors.statements import Statements
from tests.spark_apps.small_tables import in_order
from tests.turns import commits

DRAWN = 3

STATEMENTS = [
    ("UPDATE {t} SET rider = 'x' WHERE key IN ({110}, {210})", (FILES, 2)),
    ("DELETE FROM {t} WHERE key = {310}", (FILES, 3)),
    ("UPDATE {t} SET n = n + 1 WHERE key IN (SELECT key FROM {s} WHERE m < 2)", (FILES, 4)),
    ("DELETE FROM {t} WHERE rider = 'r150' AND n > 0", (FILES, 6)),
    ("DELETE FROM {t} WHERE key = 100000", (FILES, 6)),
    ("UPDATE {t} SET n = 0 WHERE n + 1 = 8", None),
]
"""Each with the slices of its target that it has and reads; ``None`` where no index is of use. {110} is the key of row
110. A slice that one statement has changed is another, which the index does not know, to the next ones."""


class Twins:
    """Two equal tables, the first of them indexed, and a small one of keys."""

    def __init__(self, spark: Any, home: Any, kind: str) -> None:
        self.spark, self.names = spark, (f"hudi_with_{kind}", f"hudi_without_{kind}")
        self.paths = [str(home / name) for name in self.names]
        for name, path in zip(self.names, self.paths, strict=True):
            make(spark, path, kind)
            spark.sql(f"CREATE TABLE {name} USING hudi LOCATION '{path}'")
        rows = ", ".join(f"({each}L, {place}, 'r')" for place, each in enumerate((key(410), 100_000, key(510))))
        spark.sql(f"SELECT * FROM VALUES {rows} v(key, m, r)").coalesce(1).write.parquet(str(home / "keys"))
        spark.read.parquet(str(home / "keys")).createOrReplaceTempView("hudi_keys")
        table = IndexedTable.register(spark, self.paths[0], "hudi", record_key=["id"])
        for index, of, columns in (
            ("by_key", "secondary", ["key"]),
            ("by_rider", "compact", ["rider"]),
            ("by_n", "skipping", ["values(n)"]),
        ):
            table.create_index(index, of, columns)

    def run(self, statement: str) -> None:
        """Run a statement on both, on the first one with its indexes, and compare the tables and their commits."""
        ended = []
        for name, path in zip(self.names, self.paths, strict=True):
            if path == self.paths[0]:
                spark_apps.enable(self.spark, sources=[path])
            try:
                self.spark.sql(statement.replace("{t}", name).replace("{s}", "hudi_keys")).collect()
                ended.append("")
            except Exception as error:  # noqa: BLE001 - which one is what is compared
                ended.append(str(error).splitlines()[0].replace(name, "t")[:200])
            spark_apps.disable(self.spark)
            self.spark.sql(f"REFRESH TABLE {name}")
        assert ended[0] == ended[1], statement
        first, second = (in_order(self.rows(name).collect()) for name in self.names)
        assert first == second, statement
        assert self.commits(self.names[0]) == self.commits(self.names[1]), statement

    def rows(self, name: str) -> Any:
        return self.spark.sql(f"SELECT id, key, n, rider, p FROM {name}")

    def commits(self, name: str) -> list[tuple[Any, ...]]:
        """Return what the commits of a table say of files and rows, the newest first."""
        said = self.spark.sql(f"CALL show_commits(table => '{name}', limit => 100)").collect()
        return [tuple(one[count] for count in COUNTS) for one in said]


@pytest.mark.parametrize("kind", ["cow", "mor"])
def test_given_indexes_then_updates_and_deletes_read_fewer_slices_and_do_what_they_do_without(
    hudi, tmp_path, kind, monkeypatch
):
    seen, twins = watched(monkeypatch), Twins(hudi, tmp_path, kind)
    hudi.conf.set("spark.lakeindex.joinKeys.worth", "0")
    try:
        for statement, scanned in STATEMENTS:
            for row in (110, 210, 310):
                statement = statement.replace(f"{{{row}}}", str(key(row)))
            del seen[:]
            twins.run(statement)
            assert not any(one.failed for one in seen), (statement, seen)
            kept = {one.scanned for one in seen if one.address.endswith(twins.names[0]) and one.scanned}
            reasons = [(one.address, one.scanned, one.reason, one.keys) for one in seen]
            assert kept == ({scanned} if scanned else set()), (statement, reasons)
        assert twins.rows(twins.names[0]).where("id = 310 OR rider = 'r150' AND n > 0").count() == 0
        assert twins.rows(twins.names[0]).where("rider = 'x'").count() == 2
        drawn = Statements(random.Random(commits()), ROWS, 200)
        for _ in range(DRAWN):
            twins.run(drawn.draw.choice([drawn.update, drawn.delete])("n")[1])
    finally:
        hudi.conf.unset("spark.lakeindex.joinKeys.worth")
        for name in twins.names:
            hudi.sql(f"DROP TABLE {name}")
