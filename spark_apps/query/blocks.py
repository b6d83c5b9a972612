"""Reading only some blocks of files, where indexes tell which: what that would read, and whether it is worth it.

Spark reads a file as a whole, save what its min and max values rule out. Reading blocks by themselves goes through
Python workers, so it must spare enough; the rest is left to Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_apps.indexes.ranges import Range, range_of
from spark_apps.layout.types import ColumnType, parse_type
from spark_apps.mergetree.blockfiles import BlockFile, read_footers
from spark_apps.mergetree.blocks import BlockRead, readable
from spark_apps.query.planning import ReadPlan
from spark_apps.query.question import PredicateQuestion
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.files import DataFile

# Measured on local disk with 2 cores, 150 MB in 39 row groups: one block through a Python worker that runs already
# takes 0.4 s, 20 blocks 0.5 s, a scan of all of it by Spark 0.7 s. So the scan is the faster one below some 90 MB to be
# spared; on busy cores a worker's start weighs still more, on an object store the bytes do.
WORTH_BYTES = 128 * 1024 * 1024
"""So many bytes must be spared."""

_MOST_FILES = 256
_SAMPLED = 64
_NO_GAIN = 0.9


@dataclass(frozen=True)
class BlockChoice:
    """Files of which some blocks are read.

    :param bytes: of the needed columns in these blocks. :param instead_of: what a scan by Spark would read of them.
    """

    reads: tuple[BlockRead, ...]
    bytes: int
    instead_of: int

    @property
    def lineages(self) -> frozenset[int]:
        return frozenset(read.file.lineage for read in self.reads)

    @property
    def blocks(self) -> int:
        """How many blocks are read."""
        return sum(len(read.blocks) for read in self.reads)

    @property
    def skipped(self) -> int:
        """How many blocks of these files are not."""
        return sum(read.footer.blocks for read in self.reads) - self.blocks


def choose_blocks(plan: ReadPlan, names: Sequence[str], worth: int | None = None) -> BlockChoice | None:
    """The files that are better read block by block, or ``None``.

    :param names: the columns that are needed. :param worth: bytes to be spared, :data:`WORTH_BYTES` by default.
    """
    worth = WORTH_BYTES if worth is None else worth
    files = [file for file in _alone(plan) if file.lineage in plan.blocks]
    files = sorted(files, key=lambda file: -file.bytes)[:_MOST_FILES]
    if not files or sum(file.bytes for file in files) < worth:
        return None
    reads: list[BlockRead] = []
    chosen = scanned = 0
    for footer in _footers(plan, files):
        if not readable(plan.snapshot, plan.snapshot.data, footer, names):
            continue
        left = _by_statistics(plan, footer)
        blocks = tuple(sorted(plan.blocks[footer.file.lineage] & left))
        stored = [plan.snapshot.data.stored(name) for name in names]
        few, all_of_them = footer.bytes(stored, blocks), footer.bytes(stored, left)
        if 2 * few <= all_of_them:
            reads.append(BlockRead(footer, blocks))
            chosen, scanned = chosen + few, scanned + all_of_them
    return BlockChoice(tuple(reads), chosen, scanned) if reads and scanned - chosen >= worth else None


def compared(plan: ReadPlan) -> str | None:
    """Says so if an index that tells blocks leaves about as many as the files' own min and max do; from the footers of
    some files."""
    entries = [plan.snapshot.state.indexes.get(use.name) for use in plan.used if not use.replaces]
    if plan.predicate is None or not any(entry is not None and entry.by_file for entry in entries):
        return None
    groups = plan.snapshot.groups()
    files = [files[0] for files in groups.values() if len(files) == 1 and not files[0].tombstones]
    step = max(1, len(files) // _SAMPLED)
    by_index = by_statistics = total = 0
    for footer in _footers(plan, files[::step]):
        left = _by_statistics(plan, footer)
        total, by_statistics = total + footer.blocks, by_statistics + len(left)
        if footer.file.group_key in plan.groups:
            by_index += len(plan.blocks.get(footer.file.lineage, left) & left)
    if not by_statistics or by_index < _NO_GAIN * by_statistics:
        return None
    return (
        f"no_better_than_statistics: of {total:,} blocks looked at, the files' own min and max leave {by_statistics:,} "
        f"and the indexes {by_index:,}"
    )


def _alone(plan: ReadPlan) -> list[DataFile]:
    """The files over which nothing lies."""
    return [files[0] for files in plan.files().values() if len(files) == 1 and not files[0].tombstones]


def _footers(plan: ReadPlan, files: Sequence[DataFile]) -> list[BlockFile]:
    try:
        return read_footers(plan.snapshot, files)
    except StorageError:
        return []  # Spark will say what is wrong with the file, if it is read


def _by_statistics(plan: ReadPlan, footer: BlockFile) -> frozenset[int]:
    """The blocks that their own min and max do not rule out."""
    assert plan.predicate is not None
    question, tree = PredicateQuestion(plan.predicate), plan.snapshot.data
    kinds = {
        tree.stored(name): (name, parse_type(tree.field(name).dataType.simpleString())) for name in question.columns
    }
    usable = {stored: told for stored, told in kinds.items() if footer.exact({stored: told[1].text})}
    return frozenset(block for block in range(footer.blocks) if question.may_match(_ranges(footer, block, usable)))


def _ranges(footer: BlockFile, block: int, kinds: Mapping[str, tuple[str, ColumnType]]) -> dict[str, Range]:
    found = {name: range_of(footer.statistics(block, stored), kind) for stored, (name, kind) in kinds.items()}
    return {name: held for name, held in found.items() if held is not None}
