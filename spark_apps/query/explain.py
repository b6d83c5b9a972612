"""Tells how a query would be answered: the indexes used, what is read and what is skipped, and why others are not
used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from spark_apps.mergetree.foreign import not_as_it_stands
from spark_apps.mergetree.schema import resolve
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.blocks import choose_blocks, compared
from spark_apps.query.planning import IndexUse, NotUsed
from spark_apps.query.predicates import reasons
from spark_apps.query.substituting import plan_rows
from spark_apps.timeline.model import DATA_TREE


@dataclass(frozen=True)
class Explanation:
    """How :meth:`~spark_apps.table.IndexedTable.read` would answer. Files and bytes are those of the table's rows;
    within a file that is read, Parquet may skip more. A file group whose rows an index holds is not read; of one with
    deltas over such rows these are.

    :param nothing_matches: the predicate is false or null whatever the row.
    :param indexes: what was asked, with the files and bytes read of each.
    :param not_used: index -> why.
    :param not_understood: parts of the predicate that only the rows can decide.
    :param blocks_read: blocks (row groups, stripes) that are read of files of which not all are; ``bytes_read`` counts
        what the columns take in them. ``blocks_skipped``: the others of these files.
    :param notes: what else there is to say, each beginning with a word for it: ``no_better_than_statistics``.
    """

    version: int
    where: str | None
    columns: tuple[str, ...]
    nothing_matches: bool
    partitions_read: int
    partitions_skipped: int
    groups_read: int
    groups_skipped: int
    files_read: int
    files_skipped: int
    bytes_read: int
    bytes_skipped: int
    record_keys: int | None
    indexes: tuple[IndexUse, ...]
    not_used: dict[str, NotUsed]
    not_understood: tuple[str, ...]
    warnings: tuple[str, ...]
    blocks_read: int = 0
    blocks_skipped: int = 0
    notes: tuple[str, ...] = ()

    @property
    def index_used(self) -> str | None:
        """The indexes used, by name; ``None`` if the rows are scanned."""
        return ", ".join(use.name for use in self.indexes) or None

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON and XCom."""
        return {**asdict(self), "index_used": self.index_used}

    def __str__(self) -> str:
        lines = [
            f"version {self.version}: {self.where if self.where is not None else 'all rows'}",
            f"  partitions  {self.partitions_read} read, {self.partitions_skipped} skipped",
            f"  file groups {self.groups_read} read, {self.groups_skipped} skipped",
            f"  files       {self.files_read} read, {self.files_skipped} skipped",
            f"  bytes       {self.bytes_read:,} read, {self.bytes_skipped:,} skipped",
        ]
        if self.blocks_skipped:
            lines.append(f"  blocks      {self.blocks_read} read, {self.blocks_skipped} skipped")
        if self.nothing_matches:
            lines.append("  no row can satisfy the predicate")
        for use in self.indexes:
            lines.append(f"  used {use.name}: {use.files} files, {use.bytes:,} bytes, leaves {use.groups} file groups")
            if use.replaces:
                lines.append(f"    in place of {use.replaces} files, of which about {use.instead_of:,} bytes were read")
        for name, why in self.not_used.items():
            lines.append(f"  not used {name} ({why.code}): {why.reason}")
        lines.extend(f"  only the rows can tell: {part}" for part in self.not_understood)
        lines.extend(f"  note: {text}" for text in self.notes)
        lines.extend(f"  warning: {text}" for text in self.warnings)
        return "\n".join(lines)


def explain(snapshot: Snapshot, where: str | None = None, columns: Sequence[str] | None = None) -> Explanation:
    """How a query would be answered. It asks the indexes, and reads no rows.

    :raises InvalidPredicate: :raises UnknownColumn:
    """
    names = snapshot.data.columns if columns is None else resolve(columns, snapshot.data.columns, "columns")
    plan = plan_rows(snapshot, where, names)
    there, left = snapshot.state.files(DATA_TREE), plan.files()
    read = [file for files in left.values() for file in files]
    bytes_read, partitions = sum(file.bytes for file in read), len(snapshot.state.partitions)
    choice = choose_blocks(plan, [name for name in snapshot.data.columns if name in {*names, *plan.columns}])
    if choice is not None:
        bytes_read += choice.bytes - sum(one.file.bytes for one in choice.reads)
    gained = compared(plan)
    partitions_read = len({group[0] for group in plan.groups})
    keys = None if any(k is None for k in plan.groups.values()) else sum(len(k or ()) for k in plan.groups.values())
    return Explanation(
        version=snapshot.state.version,
        where=where,
        columns=tuple(names),
        nothing_matches=plan.nothing_matches,
        partitions_read=partitions_read,
        partitions_skipped=partitions - partitions_read,
        groups_read=len(left),
        groups_skipped=len(snapshot.groups()) - len(left),
        files_read=len(read),
        files_skipped=len(there) - len(read),
        bytes_read=bytes_read,
        bytes_skipped=sum(file.bytes for file in there) - bytes_read,
        record_keys=keys,
        indexes=tuple(plan.used),
        not_used=dict(plan.not_used),
        not_understood=() if plan.predicate is None else reasons(plan.predicate),
        warnings=tuple(plan.warnings),
        blocks_read=0 if choice is None else choice.blocks,
        blocks_skipped=0 if choice is None else choice.skipped,
        notes=(*(() if gained is None else (gained,)), *not_as_it_stands(read)),
    )
