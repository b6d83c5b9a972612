"""The limits of what this room takes of the driver's memory, and of a Spark job's tasks.

Constants that only one algorithm understands are beside it.
"""

# --- kept in memory ---------------------------------------------------------------------------------------------------

MAX_SEALED_FILES = 200_000
"""Index files that are remembered as having the end that was written; beyond it all are forgotten and checked anew."""

MAX_UNDAMAGED_FILES = 200_000
"""Index files that are remembered as having no damaged page; beyond it all are forgotten and checked anew."""

MAX_MEASURED_FILES = 20_000
"""Files whose bytes are remembered by column; beyond it all are forgotten."""

# --- the driver's memory ----------------------------------------------------------------------------------------------

BROADCAST_KEYS = 300_000
"""Keys that are broadcast whatever Spark thinks of their size: it does not know how few rows a footer states."""

BROADCAST_SHARE = 0.1
"""Share of the driver's memory up to which more keys are broadcast, all of which pass through it."""

BYTES_PER_BROADCAST_KEY = 160
"""Bytes that a key takes there, about."""

MAX_BROADCAST_POSITIONS_BYTES = 128 << 20
"""Bytes of positions (one bit per row of the files) that are broadcast; with more, rows are merged by key."""

MAX_DRIVER_PAGE_BYTES = 256 << 20
"""Bytes of pages whose checksums the driver compares by itself; with more, a Spark job does."""

# --- a Spark job's tasks ----------------------------------------------------------------------------------------------

ROWS_PER_TASK = 50_000
"""Rows of a file group from which on each group is written by a task of its own, in which there is no other."""

MAX_TASKS = 1_000
"""Tasks of such a job; with more file groups, rows are shuffled by group as Spark likes."""
