"""Which files hold rows that satisfy a predicate: for who must find them, rewrite them or erase a person from them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import functions as F

from spark_apps.mergetree.read import scan
from spark_apps.mergetree.schema import column
from spark_apps.mergetree.tree import GROUP_ID, Snapshot
from spark_apps.query.planning import plan_read
from spark_apps.query.predicates import of_whole_rows
from spark_apps.storage.errors import InvalidInput, InvalidPredicate


@dataclass(frozen=True)
class LocatedFile:
    """A file that can hold matching rows.

    :param path: absolute for a registered source, else below the table.
    :param indexed: whether an index says so; else no index covers the file, and it may hold none.
    :param rows: in the whole file, ``None`` where that is not known.
    :param matches: how many of its rows satisfy the predicate, where they were counted.
    """

    path: str
    partition: str
    bytes: int
    rows: int | None
    indexed: bool
    matches: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON and XCom."""
        return asdict(self)


def locate_files(snapshot: Snapshot, where: str, count: bool = False) -> list[LocatedFile]:
    """The files that can hold rows which satisfy a predicate, by path; every file that holds one is among them.

    :param count: read these files and count; those without a match are left out.
    :raises InvalidPredicate: :raises UnknownColumn: :raises InvalidInput: for counting by file where rows of several
        files are merged.
    """
    tree = snapshot.data
    if count and not tree.by_id:
        raise InvalidInput(
            "Rows of this table are merged from several files, so they cannot be counted by file.",
            hint="Leave count out, or count rows with read(where).",
        )
    plan = plan_read(snapshot, where)
    if count and plan.predicate is not None and of_whole_rows(plan.predicate):
        raise InvalidPredicate(
            f"Rows are not counted by file for {where!r}, which speaks of whole rows.",
            hint="Name the columns in place of *, or leave count out.",
        )
    used = [snapshot.state.index(use.name) for use in plan.used if use.name in snapshot.state.indexes]
    matches: dict[tuple[str, str], int] | None = None
    if count:
        names = [*(name for name in tree.columns if name in plan.columns or name in tree.partition_by), GROUP_ID]
        rows = scan(snapshot, tree, plan.files(), names).where(where) if plan.groups else None
        groups = (
            {}
            if rows is None
            else {row[0]: row[1] for row in rows.groupBy(column(GROUP_ID)).agg(F.count("*")).collect()}
        )
        matches = {key: groups[key[1]] for key in plan.groups if key[1] in groups}
    found = [
        LocatedFile(
            path=file.path,
            partition=file.partition,
            bytes=file.bytes,
            rows=file.rows if file.rows >= 0 else None,
            indexed=any(entry.covers(key) for entry in used),
            matches=None if matches is None else matches[key],
        )
        for key, files in plan.files().items()
        for file in files
        if matches is None or key in matches
    ]
    return sorted(found, key=lambda file: file.path)
