"""A small warehouse whose tables are made of commits alone: files are listed in the log and never opened."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from spark_apps.maintenance.policies import MaintenanceConfig, read_config
from spark_apps.maintenance.survey import Missed, TableSurvey, find_tables, survey_tables
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.locations import Warehouse
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    Field,
    HashingConfig,
    IndexDefinition,
    PutHashingConfig,
    PutIndex,
    PutPartition,
    TableDefinition,
    Write,
    group_scope,
    partition_scope,
)
from spark_apps.timeline.transactions import begin

CONN = "lake"


class Table:
    """One table: an index ``by_k`` that is refreshed by hand, and as many small files as are asked for."""

    def __init__(self, root: Path, name: str, *, deferred: bool = True) -> None:
        self.name = name
        self.store = Store(root / name.replace(".", "/"))
        definition = TableDefinition(name, (Field("p", "string"), Field("k", "string")), ("k",), ("p",))
        index = IndexDefinition("by_k", "secondary", ("k",), "1", deferred=deferred)
        actions = (PutIndex(index, covered=True), PutHashingConfig(HashingConfig("", 1)))
        self.timeline, _ = create_table(self.store, definition, actions, txn_id="make")
        self.written = 0

    def write(self, files: int = 1, size: int = 1_000_000, rows: int = 10, tombstones: int = 0) -> None:
        """One commit a file, each a delta of the one bucket of partition ``p=a``."""
        for _ in range(files):
            self.written += 1
            at = f"{self.written:06d}"
            transaction = begin(self.timeline, operation="upsert", txn_id=f"write-{at}")
            add = AddFile(DATA_TREE, "p=a", "0", f"data/{at}", "delta", rows, size, tombstones=tombstones)
            transaction.commit(
                [PutPartition("p=a", 1, ("a",)), add],
                writes=[Write(partition_scope("p=a")), Write(group_scope("p=a", "0"))],
            )


def warehouse(root: Path, **options: Any) -> dict[str, Warehouse]:
    return {CONN: Warehouse(str(root), options)}


def survey(root: Path, given: Any, patience: float = 20) -> tuple[list[TableSurvey], list[Missed]]:
    """Finds and looks at what a description names."""
    config: MaintenanceConfig = read_config(given)
    places, missed = find_tables(config.tables, warehouse(root), CONN, patience)
    seen, unreachable = survey_tables(places, patience)
    return seen, [*missed, *unreachable]


def load(root: Path, name: str) -> Timeline:
    return Timeline.load(Store(root / name.replace(".", "/")))
