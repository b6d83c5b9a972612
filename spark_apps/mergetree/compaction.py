"""Folding the files of file groups into fewer: a whole group into a base, or its deltas alone into one delta.

A folded file takes the highest sequence number of the files it replaces, so deltas that land meanwhile stay on top of
it. Deltas folded without the base under them keep their tombstones; a base never holds one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spark_apps.mergetree.buckets import Target
from spark_apps.mergetree.read import scan
from spark_apps.mergetree.tree import FileGroups, Snapshot, Tree
from spark_apps.mergetree.write import stage_rows
from spark_apps.timeline.files import DataFile, GroupKey, is_merged, lowest_files
from spark_apps.timeline.model import AddFile, AnyAction, RemoveFile

CompactMode = Literal["quick", "full"]
"""``full``: every group into one base. ``quick``: only deltas with deltas, so that no base is written
again."""


@dataclass(frozen=True)
class FoldPlan:
    """The files that are folded: ``whole`` groups into a base, ``deltas`` of groups into a delta."""

    whole: dict[GroupKey, list[DataFile]]
    deltas: dict[GroupKey, list[DataFile]]

    @property
    def groups(self) -> dict[GroupKey, list[DataFile]]:
        return {**self.whole, **self.deltas}

    @property
    def inputs(self) -> list[DataFile]:
        return [file for files in self.groups.values() for file in files]


def plan_fold(groups: FileGroups, mode: CompactMode = "full") -> FoldPlan:
    """Return what a compaction of these groups would fold.

    A group that is a base alone is left alone.
    """
    whole: dict[GroupKey, list[DataFile]] = {}
    deltas: dict[GroupKey, list[DataFile]] = {}
    for key, files in groups.items():
        if is_merged(files):
            continue
        above = [file for file in files if file.kind == "delta"]
        if mode == "full" or len(above) == len(files):
            whole[key] = list(files)
        elif len(above) > 1 and files[0].kind == "base" and len(above) == len(files) - len(lowest_files(files)):
            deltas[key] = above
    return FoldPlan(whole, deltas)


def fold(
    snapshot: Snapshot,
    tree: Tree,
    plan: FoldPlan,
    directory: str,
    targets: Sequence[Target],
    parts: Mapping[GroupKey, int] | None = None,
) -> tuple[list[AnyAction], dict[str, Any]]:
    """Stage the folded files below ``directory``; return the actions that swap them for their inputs, and metrics.

    :param targets: the partitions of the groups, with their bucket counts.
    :param parts: of groups too large for one task, into how many files their base is split.
    """
    added: list[AddFile] = []
    for name, kind, groups in (("whole", "base", plan.whole), ("deltas", "delta", plan.deltas)):
        if groups:
            rows = scan(snapshot, tree, groups, tree.given, tombstones=kind == "delta")
            sequence_numbers = {key: max(file.sequence_number for file in files) for key, files in groups.items()}
            paths = {key[0] for key in groups}
            added += stage_rows(
                snapshot.store,
                tree,
                rows,
                f"{directory}/{name}",
                [target for target in targets if target.path in paths],
                kind=kind,  # type: ignore[arg-type]
                one_per_key=False,
                sequence_numbers=sequence_numbers,
                expected=sum(file.rows for files in groups.values() for file in files),
                parts=parts if kind == "base" else None,
            )
    removed = [RemoveFile(tree.name, file.path) for file in plan.inputs]
    return [*removed, *added], folding_metrics(plan.inputs, added, len(plan.groups))


def folding_metrics(inputs: Sequence[DataFile], added: Sequence[AddFile], groups: int) -> dict[str, Any]:
    """Return what the receipt of a compaction holds: groups, files, bytes and rows."""
    return {
        "groups": groups,
        "files_before": len(inputs),
        "files_after": len(added),
        "bytes_before": sum(file.bytes for file in inputs),
        "bytes_after": sum(file.bytes for file in added),
        "rows": sum(file.rows - file.tombstones for file in added),
    }
