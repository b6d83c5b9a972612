"""Decides of which data files the rows are read from an index that holds them, by estimated bytes.

Each index is asked what it can give for the files that are left; the one that saves most is taken, then the others for
what remains. An index that would read as much as the files do is not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from spark_apps.indexes.handler import CannotPrune, IndexContext, IndexHandler, Substitute
from spark_apps.indexes.registry import available
from spark_apps.indexes.shares import share
from spark_apps.mergetree.meanings import differing
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.costs import KEY_BYTES
from spark_apps.query.planning import UNREADABLE, IndexUse, NotUsed, ReadPlan, not_meant, plan_read, unreadable
from spark_apps.query.question import PredicateQuestion
from spark_apps.timeline.files import DataFile, GroupKey
from spark_apps.timeline.state import IndexEntry

_BLOCK_BYTES = 32 * 1024 * 1024
"""What a block of a file holds, about."""

_BY_LINE = ("json", "csv", "text", "xml", "avro")
"""Formats that are read whole, whatever columns are wanted."""


def plan_rows(snapshot: Snapshot, where: str | None, columns: Sequence[str]) -> ReadPlan:
    """What is read for the rows which satisfy a predicate: file groups, and indexes in place of files.

    :param columns: those wanted of the rows.
    :raises InvalidPredicate: :raises UnknownColumn:
    """
    plan = plan_read(snapshot, where)
    needed = [name for name in snapshot.data.columns if name in plan.columns or name in columns]
    open_to = [entry for _, entry in sorted(snapshot.state.indexes.items()) if entry.active]
    if open_to and snapshot.table.source is not None:
        differs = differing(snapshot)
        unfit = {entry.definition.name: not_meant(snapshot, entry, differs) for entry in open_to}
        plan.not_used.update({name: why for name, why in unfit.items() if why is not None})
        open_to = [entry for entry in open_to if unfit[entry.definition.name] is None]
    while open_to and plan.groups:
        offers = [offer for entry in list(open_to) if (offer := _ask(plan, entry, needed, open_to)) is not None]
        if not offers:
            break
        best = max(offers, key=lambda offer: (offer.saves, offer.name))
        open_to = [entry for entry in open_to if entry.definition.name != best.name]
        try:
            best.found.check()
        except UNREADABLE as error:
            plan.not_used[best.name] = unreadable(plan, best.name, error)
            continue
        plan.substitutes.append(best.found)
        plan.used.append(
            IndexUse(
                best.name, best.found.files, best.found.bytes, len(plan.files()), len(best.found.lineages),
                best.instead_of,
            )
        )  # fmt: skip
        plan.not_used.pop(best.name, None)
    return plan


@dataclass(frozen=True)
class _Offer:
    name: str
    found: Substitute
    instead_of: int

    @property
    def saves(self) -> int:
        return self.instead_of - self.found.bytes


def _ask(plan: ReadPlan, entry: IndexEntry, needed: Sequence[str], open_to: list[IndexEntry]) -> _Offer | None:
    """What an index gives in place of the files that are left; if nothing, it is not asked again."""
    name, handler = entry.definition.name, available(entry.definition.kind)
    question = None if plan.predicate is None else PredicateQuestion(plan.predicate)
    refused: NotUsed | None = None
    if handler is not None and type(handler).substitute is not IndexHandler.substitute:
        left = _left(plan)
        try:
            context = IndexContext(plan.snapshot, entry.definition, "")
            found = handler.substitute(context, question, needed, list(left))
        except UNREADABLE as error:
            found = CannotPrune("")
            refused = unreadable(plan, name, error)
        if isinstance(found, Substitute):
            offer = _Offer(name, found, _cost(plan, left, needed, found.lineages))
            if offer.saves > 0:
                return offer
            text = f"it would read about {found.bytes:,} bytes, the files that it stands for {offer.instead_of:,}"
            refused = NotUsed("costs_more", text)
        elif refused is None and not left:
            refused = NotUsed("nothing_left", "other indexes hold all rows that are left to read")
        elif refused is None:
            refused = NotUsed(found.code, found.reason)
    if refused is not None:
        plan.not_used[name] = refused
    open_to.remove(entry)
    return None


def _left(plan: ReadPlan) -> dict[GroupKey, list[DataFile]]:
    """The file groups that are still read with all their files."""
    groups = plan.snapshot.groups()
    return {key: files for key, files in plan.files().items() if len(files) == len(groups[key])}


def _cost(plan: ReadPlan, left: dict[GroupKey, list[DataFile]], needed: Iterable[str], lineages: frozenset[int]) -> int:
    """The bytes that the query would read of data files, about."""
    source = plan.snapshot.table.source
    part = 1.0
    if source is None or source.format not in _BY_LINE:
        part = share(plan.snapshot.data.schema, set(needed))
    total = 0.0
    for group, files in left.items():
        for file in files:
            if file.lineage in lineages:
                total += _bytes(plan, group, file, part)
    return round(total)


def _bytes(plan: ReadPlan, group: GroupKey, file: DataFile, part: float) -> float:
    size, keys, blocks = file.bytes * part, plan.groups[group], plan.blocks.get(file.lineage)
    if keys is not None:
        size = min(size, KEY_BYTES * len(keys))
    if blocks is not None:
        size = min(size, _BLOCK_BYTES * len(blocks) * part)
    return size
