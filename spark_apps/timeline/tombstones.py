"""The orderings of deletes in the log: which deltas have them, and the files that keep them beyond a fold.

In a table that is merged by its ordering column a delete takes part in that order by a value of its own, so that rows
below it stay deleted however late they come. A delta holds the value in its tombstone, and is marked by
:data:`~spark_apps.timeline.model.ORDERED`. A base holds no tombstones; so whatever folds deltas into one writes the
orderings that still count into a file of the tree :data:`~spark_apps.timeline.model.TOMBSTONES_TREE`, where they stay
for the days that the table's property :data:`DAYS` says. They are read where rows are merged
(:mod:`spark_apps.mergetree.read`) and where rows are written (:mod:`spark_apps.actions.late_rows`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.limits import TOMBSTONE_DAYS
from spark_apps.timeline.model import KEPT, ORDERED, AddFile

DAYS = "tombstone_days"
"""Property of a table: for how many days the ordering of a delete is kept once its tombstone was folded away."""

SECONDS_PER_DAY = 86400.0


def tombstone_days(properties: Mapping[str, str]) -> int:
    """Return the value of :data:`DAYS`.

    :raises InvalidInput: if it is no whole number of days.
    """
    text = properties.get(DAYS, str(TOMBSTONE_DAYS))
    if not re.fullmatch(r"[0-9]{1,5}", text):
        raise InvalidInput(f"The table property {DAYS!r} is {text[:50]!r}.", hint="Give a whole number of days.")
    return int(text)


def is_ordered(file: DataFile) -> bool:
    """Test whether the tombstones of a delta take part in the order of the ordering column."""
    return file.extra is not None and bool(file.extra.get(ORDERED))


def mark_ordered(staged: Iterable[AddFile]) -> list[AddFile]:
    """Return staged deltas, of which those with tombstones say that these have an ordering."""
    return [
        replace(action, extra={**(action.extra or {}), ORDERED: True}) if action.tombstones else action
        for action in staged
    ]


def is_past(file: DataFile, days: int, now: float) -> bool:
    """Test whether the time of all orderings in a file is over. :param now: seconds since 1970."""
    written = (file.extra or {}).get(KEPT)
    return written is not None and written + days * SECONDS_PER_DAY <= now
