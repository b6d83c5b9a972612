"""The limits of tables: times and counts that hold unless the caller gives others, then what a log may take.

This module imports nothing, so that an operator can show the first part as its defaults where a DAG is parsed.

A writer to a table's folder can write anything there, so the second part bounds what is read of it before memory is
made for it. What is larger is refused with an error, or read another way where that is said. Constants that only one
algorithm understands are beside it.
"""

# --- defaults ---------------------------------------------------------------------------------------------------------

WINDOW_SECONDS = 3600.0
"""A stop-write window's deadline, from its opening or renewal on."""
SILENT_WRITER_SECONDS = 600.0
"""Seconds without a sign of life after which a drain of a window ends a writer."""
SILENT_JOB_SECONDS = 60.0
"""After how long a silence a job that is watched on storage is taken for dead."""
RETAIN_VERSIONS = 10
"""How many of the newest versions a cleaning leaves in any case."""
RETAIN_SECONDS = 7 * 86400.0
"""How young a version has to be to stay."""
SMALL_BYTES = 32 * 1024 * 1024
"""Files below this size are small: better folded together."""
TOMBSTONE_DAYS = 30
"""For how many days the ordering of a delete is kept once its tombstone was folded away."""

# --- documents in a table's folder ------------------------------------------------------------------------------------

MAX_COMMIT_BYTES = 256 << 20
"""Bytes of a commit's own JSON. It holds at most a thousand actions; one that lists a million files that an index
covers has 30 MB, and a million file groups as scopes have 70."""

MAX_ACTIONS = 4_000_000
"""Actions of one commit or stage. A million files in one commit is what is measured."""

MAX_MANIFEST_BYTES = 1 << 30
"""Bytes of a stage's manifest, which holds all of its actions: 250 bytes each."""

MAX_SIDECAR_BYTES = 512 << 20
"""Bytes of a sidecar as it is stored: actions take 12 bytes each there."""

MAX_SIDECAR_DECODED_BYTES = 2 << 30
"""Bytes of the JSON in a sidecar. It is decoded in pieces, and never more of it than this."""

MAX_CHECKPOINT_BYTES = 2 << 30
"""Bytes of a checkpoint as it is stored; one of a million files has 20 MB."""

MAX_CHECKPOINT_DECODED_BYTES = 8 << 30
"""Bytes of a checkpoint's columns: 300 bytes a file."""

MAX_FILES = 20_000_000
"""Live files of a table in a checkpoint."""

MAX_NOTE_BYTES = 16 << 20
"""Bytes of what attempts, jobs and maintenance leave beside the log: a request lists its scopes, one a bucket."""

MAX_HEARTBEAT_BYTES = 1 << 20
"""Bytes of a sign of life, a mark, a lease."""

MAX_HASHING_META_BYTES = 256 << 20
"""Bytes of a ``.hashing_meta`` file, unpacked: the counts of some millions of partitions."""

MAX_BUCKETS = 100_000
"""Buckets of a partition, and shards of an index."""

MAX_TYPE_DEPTH = 100
"""Levels of a column's type: readers of types call themselves for each."""

# --- names of catalogs' tables in a warehouse -------------------------------------------------------------------------

MAX_NAME_BYTES = 64 * 1024
"""Bytes of the file that says which log a name has: two addresses and an id."""

MAX_NAMES = 100_000
"""Names of one warehouse whose files are read for a listing."""

MAX_NAME_PARTS = 8
"""Parts of a table's name: the catalog, namespaces in one another, and the table."""

# --- a published Delta log --------------------------------------------------------------------------------------------

MAX_DELTA_CHECKPOINT_BYTES = 1 << 30
"""Bytes of a commit or checkpoint of the published log, as it is stored."""

DELTA_CHECKPOINT_VALUES = 400_000
"""Values that any checkpoint of the published log may hold: each becomes a Python object."""

DELTA_CHECKPOINT_VALUES_PER_BYTE = 8
"""Values that it may hold in addition, for each byte that it has."""

MAX_DELTA_HEAD_BYTES = 64 * 1024
"""Bytes that are read of a commit's beginning, where it names its writer, and of ``_last_checkpoint``."""

MAX_DELTA_ROWS = 20_000_000
"""Rows in the deltas of a file group whose deletion vectors are made on the driver, which compares their keys."""

# --- kept in memory ---------------------------------------------------------------------------------------------------

MAX_RECENT_COMMITS = 1_000
"""Newest commits of a log that are kept once they were read, and commits that are read ahead."""

MAX_CACHED_FILES = 20_000
"""Files of a table up to which those of a tree, and its file groups, are kept once they were asked for."""

MAX_UNPACKED_FILES = 100_000
"""Files of a checkpoint that is unpacked when it is read; of a larger one single files are, when they are asked for."""
