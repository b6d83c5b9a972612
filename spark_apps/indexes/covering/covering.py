"""Covering indexes: some columns of the rows, bucketed and sorted by the indexed ones, read in place of the files.

An index answers for a data file's column only if it holds it or the data file lacks it; rows of files that are gone
are filtered out by lineage, files that came since are scanned, and what lies over a file in its group is merged.
Follows Hyperspace's proposal, whose included columns come and go.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from spark_apps.indexes.covering import build, index_files, scan
from spark_apps.indexes.covering.definition import (
    CHANGEABLE,
    complete_definition,
    evolve_definition,
    held_columns,
    schema_of,
)
from spark_apps.indexes.handler import (
    Candidates,
    CannotPrune,
    Changes,
    CoveringScan,
    IndexContext,
    IndexHandler,
    IndexPlan,
    IndexWork,
    PredicateProbe,
    VerificationReport,
)
from spark_apps.indexes.included_columns import IncludedColumns
from spark_apps.timeline.files import GroupKey
from spark_apps.timeline.model import IndexDefinition, TableDefinition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_HOLDS_ROWS = CannotPrune("it holds rows to read in place of the files, it does not point into them")


class CoveringHandler(IndexHandler):
    """The kind that holds rows of the table with some of its columns."""

    kind: ClassVar[str] = "covering"
    by_key: ClassVar[bool] = False
    maintains: ClassVar[bool] = False
    changeable: ClassVar[frozenset[str]] = CHANGEABLE

    def validate(self, table: TableDefinition, definition: IndexDefinition) -> IndexDefinition:
        return complete_definition(table, definition)

    def evolve(
        self,
        table: TableDefinition,
        definition: IndexDefinition,
        mode: Literal["incremental", "full", "quick"],
        included: IncludedColumns | None,
        schema: str | StructType | None,
    ) -> tuple[IndexDefinition, TableDefinition]:
        return evolve_definition(table, definition, mode, included, schema)

    def tree(self, table: TableDefinition, definition: IndexDefinition) -> None:
        return None

    def holds(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        # Entries written before a column was left out still have it, and would pass for a new column of its name.
        return tuple(dict.fromkeys([*held_columns(table, definition), *schema_of(definition).names]))

    def reads(self, table: TableDefinition, definition: IndexDefinition) -> tuple[str, ...]:
        return ()

    def plan(self, context: IndexContext, mode: str = "full", partitions: Sequence[str] | None = None) -> IndexPlan:
        return build.plan(context, mode, partitions)

    def build(self, context: IndexContext) -> IndexWork:
        return build.build(context)

    def maintain(self, context: IndexContext, changes: Changes) -> IndexWork:
        return IndexWork()

    def refresh(
        self,
        context: IndexContext,
        mode: Literal["incremental", "full", "quick"] = "incremental",
        partitions: Sequence[str] | None = None,
    ) -> IndexWork:
        if mode == "quick":
            lag = context.snapshot.state.index(context.definition.name).lag
            return IndexWork(metrics={"lagging_groups": len(lag)})
        if mode == "full" and partitions is None:
            return build.rebuild(context)
        return build.catch_up(context, partitions, again=mode == "full")

    def compact(self, context: IndexContext, mode: Literal["quick", "full"] = "quick") -> IndexWork:
        return build.compact(context, mode)

    def can_prune(
        self, table: TableDefinition, definition: IndexDefinition, probe: PredicateProbe
    ) -> CannotPrune | None:
        return _HOLDS_ROWS

    def prune(self, context: IndexContext, probe: PredicateProbe) -> Candidates | CannotPrune:
        return _HOLDS_ROWS

    def substitute(
        self,
        context: IndexContext,
        probe: PredicateProbe | None,
        columns: Sequence[str],
        groups: Collection[GroupKey],
    ) -> CoveringScan | CannotPrune:
        return scan.substitute(context, probe, columns, groups)

    def verify(self, context: IndexContext) -> VerificationReport:
        return index_files.verify(context)
