"""Independent of the code that is tested: a model of a table with unique keys, and Spark's own figures of what it
read."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spark_apps import IndexedTable
from spark_apps.layout.partitions import partition_path
from spark_apps.mergetree.read import scan
from spark_apps.timeline.files import DataFile
from tests.spark_apps import frames
from tests.spark_apps.small_tables import in_order

DDL = "id bigint, p string, city string, n int"
Row = tuple[int, str | None, str | None, int | None]
CITIES = ["sfo", "aus", "", None, "los angeles", "x/y"]


@dataclass
class Model:
    """Rows by id: ``(id, p, city, n)``, unique in the whole table."""

    rows: dict[int, Row] = field(default_factory=dict)
    versions: dict[int, dict[int, Row]] = field(default_factory=dict)

    def entries(self, *columns: str) -> set[tuple[Any, ...]]:
        """What an index over ``columns`` should hold: their values, the id, the partition."""
        place = {"id": 0, "p": 1, "city": 2, "n": 3}
        return {
            (*(row[place[c]] for c in columns), row[0], partition_path(["p"], [row[1]])) for row in self.rows.values()
        }

    def where(self, matches: Callable[[Row], bool]) -> list[Row]:
        return in_order(filter(matches, self.rows.values()))


def draw(rng: random.Random, ids: range, count: int) -> list[Row]:
    """Rows with different ids."""
    return [
        (i, rng.choice([None, "a", "b/c", ""]), rng.choice(CITIES), rng.choice([None, 1, 2, 3]))
        for i in rng.sample(ids, count)
    ]


def frame(spark: Any, rows: list[Any], ddl: str = DDL) -> Any:
    return frames.frame(spark, rows, ddl)


def entries(table: IndexedTable, name: str) -> list[tuple[Any, ...]]:
    """What the files of an index hold, merged: its columns, the id, the partition."""
    from spark_apps.indexes.registry import find

    definition = table.indexes[name].definition
    handler: Any = find(definition.kind)
    tree = handler.tree(table.definition, definition)
    return [tuple(row) for row in scan(table.snapshot, tree, table.snapshot.groups(tree.name)).collect()]


def index_files(table: IndexedTable, name: str) -> list[DataFile]:
    return table.snapshot.state.files(table.indexes[name].definition.tree)


def local(table: IndexedTable, file: DataFile) -> Path:
    return Path(table.uri) / file.path


@dataclass(frozen=True)
class Scanned:
    """What Spark says it read of files, summed over the scans of one query."""

    files: int
    bytes: int


def scanned(frame: Any) -> Scanned:
    """Runs the query of a DataFrame and adds up its file scans' own metrics."""
    plan = frame._jdf.queryExecution().executedPlan()
    plan.executeCollect()
    scans: list[tuple[int, int]] = []
    _visit(plan, scans)
    return Scanned(sum(files for files, _ in scans), sum(size for _, size in scans))


def _visit(node: Any, scans: list[tuple[int, int]]) -> None:
    name = node.getClass().getSimpleName()
    if name == "AdaptiveSparkPlanExec":
        return _visit(node.executedPlan(), scans)
    if name.endswith("QueryStageExec"):
        return _visit(node.plan(), scans)
    if name == "FileSourceScanExec":
        metrics = node.metrics()
        scans.append((metrics.apply("numFiles").value(), metrics.apply("filesSize").value()))
    children = node.children()
    for place in range(children.size()):
        _visit(children.apply(place), scans)
