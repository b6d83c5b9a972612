"""The limits of actions: what the driver takes on itself, what is held in memory at once, tries and threads.

Each limit is stated with its unit and its reason. The table's property ``group_rows`` and the fields of
:class:`UpsertLimits` can be set for a table; all others hold for every table.
"""

from __future__ import annotations

from dataclasses import dataclass

# --- Writes -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UpsertLimits:
    """The limits up to which the driver finds and writes rows by itself; beyond them Spark does.

    :param lookup_keys: the most keys that the driver looks up in the record index, on any store.
    :param broadcast_keys: the most keys that are broadcast to Spark's tasks, or that the driver searches for in files
        on its own disk; if ``None``, as many as the driver's memory allows.
    :param local_files: whether the driver searches files on its own disk at all.
    :param staged_rows: the most rows of a batch that the driver writes by itself, to its own disk; 0 for none.
    """

    # Measured as for queries (see spark_apps.indexes.limits), driver against a Spark join: 1,000 keys 0.15 s against
    # 1.6, 10,000 keys 0.27 against 1.5, 100,000 keys 1.2 against 2.4.
    lookup_keys: int = 10_000
    broadcast_keys: int | None = None
    local_files: bool = True
    staged_rows: int = 100_000


MAX_BATCH_BYTES = 64 << 20
"""Bytes, as Arrow, of a batch that the driver writes by itself: few rows may still be large."""

MAX_ESTIMATED_BYTES = 16 << 20
"""Bytes that Spark may estimate of a batch which the driver fetches before it is counted. Of files Spark knows the
compressed size only, so this is less than :data:`MAX_BATCH_BYTES`."""

MAX_ROWS_READ_AGAIN = 10_000
"""Staged rows that the driver reads from their files for the indexes; Spark reads more."""

DEFAULT_GROUP_ROWS = 1_000_000
"""Rows of a file group, in a table without buckets, before new keys go into another one."""

MAX_BATCH_TRIES = 5
"""Tries to commit a micro-batch against concurrent writers before its streaming query fails."""

POSITION_THREADS = 16
"""Threads that write the positions of replaced rows: a small file for each delta, so requests take the time."""

INDEX_THREADS = 4
"""Indexes for which a write stages entries at once: most of a small job is waiting for Spark to plan it."""

HEARTBEAT_SECONDS = 10.0
"""Seconds between two signs of life of a running action."""

# --- Builds of indexes ------------------------------------------------------------------------------------------------

MAX_ROUNDS = 8
"""Rounds in which a build follows the writers that commit meanwhile; each round is shorter than the one before."""

MAX_LAST_ROUNDS = 20
"""Further rounds of an index by which keys are unique: it becomes active only if it covers all rows, for the keys of
other rows could repeat those of its own. In each a writer has overtaken the build at its commit."""

# --- Compaction and rescale -------------------------------------------------------------------------------------------

FOOTER_THREADS = 16
"""Threads that read footers before a compaction: requests take the time."""

RESCALE_WINDOW_SECONDS = 900.0
"""Deadline, in seconds, of the stop-write window that a rescale opens. Signs of life move it on, so a driver that died
holds writers up no longer than this."""

MAX_COMMITS_READ = 50
"""The newest commits in which the preview of a rescale looks for the rate of an earlier one."""

MIN_MEASURED_BYTES = 1_000_000
"""Bytes that a rescale must have written for its rate to count: a smaller one is mostly the start of Spark's jobs."""

# --- The check of an erasure ------------------------------------------------------------------------------------------

MAX_FINDINGS = 1_000
"""Files that a report names; it counts all."""

MAX_DOCUMENT_BYTES = 256 << 20
"""Bytes of a JSON document that is decoded; a larger one is searched as it is."""

SEARCH_THREADS = 8
"""Threads that search files, each with one chunk, batch or document in memory."""

SEARCH_CHUNK_BYTES = 8 << 20
"""Bytes that are searched at a time; a value that is cut by the end of a chunk is found in the next one, which begins
before it."""

SEARCH_BATCH_ROWS = 65_536
"""Rows of Parquet that are searched at a time."""
