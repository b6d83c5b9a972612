"""Whether a table goes on working: rows written, indexes refreshed and folded, an earlier version brought back."""

from __future__ import annotations

from collections.abc import Iterator

from spark_apps.storage.errors import CommitUndone, InvalidInput, SnapshotExpired
from spark_apps.timeline import transactions
from spark_apps.timeline.log import Timeline
from tests.pairs import checks
from tests.pairs.actions import CHANGED, MOVED
from tests.pairs.expected import Expected
from tests.pairs.shapes import Ground, write_file


def further_differences(ground: Ground, expected: Expected) -> Iterator[str]:
    """What a comparison by Spark finds now, and after a further write, refreshes, compactions and a restore."""
    if expected.dropped:
        return
    if expected.anew:
        yield from _of_the_table_before(ground)
    yield from _labelled("now", checks.spark_differences(ground, expected))
    later = expected.copy()
    for window in list(ground.table()._state.windows):
        ground.table().close_window(window)
    table = ground.table()
    version = table.version
    if ground.source:
        write_file(ground, "b", "further", CHANGED)
    else:
        batch = [*CHANGED, *MOVED]
        later.rows.committed(version)
        table.upsert(_as_now(ground, later, batch))
        later.rows.upsert(later.batch(batch))
        yield from _labelled("after an upsert", checks.differences(ground, later))
    for name in table.indexes:
        ground.table().refresh_index(name)
    yield from _labelled("after refreshes", checks.differences(ground, later))
    if not ground.source:
        ground.table().compact()
    for name in table.indexes:
        ground.table().compact(name, "full")
        ground.table().refresh_index(name)
    yield from _labelled("after compactions", checks.differences(ground, later))
    yield from _labelled("after compactions", checks.spark_differences(ground, later))
    if not ground.source:
        ground.table().restore(version)
        later.rows.restore(version)
        yield from _labelled("after a restore", checks.differences(ground, later))


def _of_the_table_before(ground: Ground) -> Iterator[str]:
    """What a table that was made where one was dropped takes from that one, and must not."""
    timeline = Timeline.load(ground.table_store())
    loaded = next(commit for commit in timeline.commits(until=ground.restored) if commit.operation == "upsert")
    try:
        receipt = transactions.find_receipt(timeline, loaded.txn_id)
        yield f"a load of the dropped table counts for the new one: {receipt}"
    except CommitUndone:
        pass
    try:
        ground.table().restore(ground.restored)
        yield "a version of the dropped table came back as one of the new one"
    except (InvalidInput, SnapshotExpired):
        pass


def _labelled(when: str, differences: Iterator[str]) -> Iterator[str]:
    return (f"{when}: {one}" for one in differences)


def _as_now(ground: Ground, expected: Expected, rows: list[tuple[object, ...]]) -> object:
    from tests.differential.model import ddl_of
    from tests.spark_apps.frames import frame

    return frame(ground.spark, expected.batch(rows), ddl_of(expected.rows.names, expected.rows.types))
