"""What a comparison of an index with the rows found; each kind compares in its own way.

Only what an index covers is compared; the rest is scanned by queries anyway.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_apps.indexes.handler import IndexContext
from spark_apps.timeline.files import DataFile

EXAMPLES = 10


@dataclass(frozen=True)
class Difference:
    """A disagreement. ``fault``: "missing", "too many", "wrong partition", "wrong values", "wrong shard" or
    "unreadable"; ``key`` is that of the entry."""

    fault: str
    key: dict[str, Any]
    partition: str | None = None
    expected: str | None = None


@dataclass(frozen=True)
class VerificationReport:
    """What a comparison found.

    :param rows: rows that the index should tell of: those of the file groups (or files) that it covers.
    :param entries: live entries, wherever they point.
    :param stale: entries that no row bears out and that need not be gone yet.
    :param uncovered: file groups that the index does not cover, which were not compared.
    :param wrong_values: entries of rows that are there with other values, for kinds that hold values.
    :param wrong_shard: entries and tombstones that lie where no lookup of their values reads.
    :param differences: examples, not all of them.
    :param repaired: version of the commit that rebuilt what was wrong.
    """

    index: str
    version: int
    rows: int
    entries: int
    missing: int
    too_many: int
    wrong_partition: int
    stale: int
    uncovered: int
    differences: tuple[Difference, ...] = ()
    wrong_values: int = 0
    wrong_shard: int = 0
    repaired: int | None = field(default=None)

    @property
    def ok(self) -> bool:
        """Whether the index agrees with the rows wherever it claims to."""
        faults = self.missing, self.too_many, self.wrong_partition, self.wrong_values, self.wrong_shard
        return not self.differences and not any(faults)

    def to_dict(self) -> dict[str, Any]:
        """Plain types, for JSON and XCom."""
        found = [{**asdict(d), "key": {k: _plain(v) for k, v in d.key.items()}} for d in self.differences]
        return {**asdict(self), "differences": found, "ok": self.ok}


def unreadable(context: IndexContext, files: Sequence[DataFile], error: Exception) -> VerificationReport:
    """The report on an index with a file that cannot be read; :raises: the error again if it is not the index's."""
    snapshot = context.snapshot
    broken = [
        file.path for file in files if (found := snapshot.store.head(file.path)) is None or found.size != file.bytes
    ]
    text = str(error)
    broken = broken or [file.path for file in files if file.path.rsplit("/", 1)[1] in text]
    if not broken:
        raise error
    return VerificationReport(
        index=context.definition.name, version=snapshot.state.version, rows=0,
        entries=sum(file.rows - file.tombstones for file in files), missing=0, too_many=0, wrong_partition=0, stale=0,
        uncovered=0, differences=tuple(Difference("unreadable", {"file": path}) for path in broken[:EXAMPLES]),
    )  # fmt: skip


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
