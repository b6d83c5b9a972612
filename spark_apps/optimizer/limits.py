"""The limits of this room: the time and memory that planning may take, and when Spark's own scan is kept."""

# --- queries and addresses --------------------------------------------------------------------------------------------

MAX_QUERIES = 32
"""Queries, the last ones, of which the versions that they see and the decisions on their scans are remembered."""

MAX_LISTS = 32
"""Lists of files that Spark has of sources, those that were used last, whose files are kept as they were matched."""

UNREGISTERED_MILLISECONDS = 10_000
"""Milliseconds for which an address without a registered source is not looked up again."""

# --- keys of joins ----------------------------------------------------------------------------------------------------

MAX_KEYS = 10_000
"""Keys of one side of a join that come to the driver; more are looked up by a job."""

MAX_MANY_KEYS = 1_000_000
"""Keys of one side that a job looks up; more prune nothing."""

MAX_NAMED_GROUPS = 1_000_000
"""File groups that such a job may name."""

SAMPLED_KEYS = 400
"""Of so many keys, the files that hold one are counted before a job is asked for all: half of them name nearly all
files where these are a hundred."""

FEW_SAMPLED = 64
"""Of so many keys, the files that hold one are counted before the driver looks up hundreds or thousands of keys for a
command: of a page each, they are found in a tenth of the time."""

MIN_SPARED_SHARE = 0.1
"""The share of files that keys must leave out, by estimate, for a job to look them up."""

MANY_KEYS_WORTH = 2.0
"""How many times as long reading what such keys leave out must take as looking them up: a sample has shown how much."""

DEFAULT_MAX_BYTES = 16 * 1024 * 1024
"""Bytes of a side that is read for its keys, where the session does not say otherwise."""

DEFAULT_MAX_SECONDS = 2.0
"""Seconds that a query waits for keys, where the session does not say otherwise."""

DEFAULT_WORTH = 10.0
"""How many times as long reading what keys may save must take as finding them, for they may save nothing."""

COMMAND_ROW_SECONDS = 6e-7
"""Seconds of a core in which a MERGE finds out that a row of its target has no match, beside reading its columns
(`python -m benchmarks --only connector_merge`)."""

# --- indexes that hold rows, in place of a source's files -------------------------------------------------------------

MAX_INDEX_SHARE = 0.75
"""The share of the files' bytes that such an index may read, by estimate.

Of columnar files Spark reads the needed columns alone too: an index of all rows in another order took twice as long.
"""

SURE_INDEX_SHARE = 1 / 3
"""The share below which it is used in any case; above, it must save :data:`MIN_SAVED_SECONDS` too.

And its rows must not be joined by other columns than it is sorted by. Where rows are in the order of the other table's
key, each finds its match near that of the row before: reading and joining a row was measured to be three times as fast
as where they are in the order of a date.
"""

MIN_SAVED_SECONDS = 0.05
"""Seconds of reading that it must save, which is what planning another scan takes."""
