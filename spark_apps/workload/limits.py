"""The limits of what this room takes from query logs, Spark's event logs and SQL files, and of a workload in memory.

Whoever may write to a table's folder, or to a folder of logs, may write anything there. No query fails by a limit. What
is not read or kept for one is counted by :attr:`~spark_apps.workload.asked.Workload.refused` or ``left_out``, but for
names, scans and filters of a single query; lines that are not written are not counted. Constants that only one
algorithm understands are beside it.
"""

# --- a query, and a workload in memory --------------------------------------------------------------------------------

MAX_LINE_BYTES = 1 << 20
"""Bytes of one query as it is written: names of columns may be long."""

MAX_PREDICATE_CHARACTERS = 10_000
"""Characters of a predicate; of a longer one only the shape is kept."""

MAX_SHAPE_CHARACTERS = 4_000
"""Characters of a predicate's shape; a longer one is taken for unknown."""

MAX_TOKENIZED_CHARACTERS = 100_000
"""Characters of a predicate up to which its shape is made; that of a longer one is taken for unknown."""

MAX_NAMES = 2_000
"""Columns that a query reads, joins, groups or orders by."""

MAX_NAME_CHARACTERS = 1_000
"""Characters of the name of a column or index."""

MAX_ADDRESS_CHARACTERS = 4_096
"""Characters of a table's address or name."""

MAX_LABEL_CHARACTERS = 512
"""Characters of who asked a query."""

MAX_INDEXES = 64
"""Indexes that a query used, or did not use."""

MAX_GROUPS = 2_000
"""Groups of queries that a workload keeps; of more, those that were asked least are left out, and counted."""

MAX_PREDICATES = 16
"""Predicates that a group keeps, drawn evenly."""

MAX_GROUP_CHARACTERS = 16_000
"""Characters of the predicates that a group keeps; one is kept whatever its length."""

MAX_WORKLOAD_CHARACTERS = 32_000_000
"""Characters of the names, shapes and predicates of all groups."""

MAX_LABELS = 20
"""Askers that a group counts, and reasons for which a workload counts lines that were not used."""

# --- the query log of a table -----------------------------------------------------------------------------------------

MAX_OBJECT_BYTES = 1 << 20
"""Bytes of an object of the log, about; it is followed by another. An object is written anew with all of its lines."""

MAX_OBJECTS = 2_000
"""Objects of a log; the oldest are deleted."""

MAX_WAITING_BYTES = 4 << 20
"""Bytes of a table's lines that wait in memory to be written; later ones are left out."""

MAX_READ_BYTES = 128 << 20
"""Bytes of a log that are read, the newest first."""

MAX_PAGE_OBJECTS, MAX_PAGE_BYTES = 200, 8 << 20
"""Objects and bytes of a log that are read for a page, the newest first: a page should not wait for more."""

# --- Spark's event logs -----------------------------------------------------------------------------------------------

MAX_LOG_FILES = 10_000
"""Files of event logs in a folder."""

MAX_LOG_BYTES = 20 << 30
"""Bytes of all event logs, after they are decompressed."""

SMALL_LOG_BYTES, MAX_LOG_RATIO = 16 << 20, 500
"""Bytes that a compressed file may become in any case, and for each of its own. Event logs become ten to a hundred."""

MAX_LOG_BLOCK_BYTES = 64 << 20
"""Bytes of one compressed block, packed or not."""

MAX_EVENT_BYTES = 64 << 20
"""Bytes of one event."""

MAX_EVENT_OBJECTS = 1_000_000
"""Objects and lists of one event."""

MAX_RUNNING_QUERIES = 1_000
"""Queries that have begun and not ended; the oldest are taken as they are."""

MAX_RUNNING_BYTES = 512 << 20
"""Bytes in memory, about, of the plans of these."""

MAX_COUNTS = 100_000
"""Figures of the driver that are kept for one query."""

MAX_PLAN_DEPTH = 400
"""Nodes of a plan above one another."""

MAX_PLAN_SCANS = 200
"""Scans of one plan."""

MAX_NODE_CHARACTERS = 200_000
"""Characters of a node's text that are searched for columns, keys and filters."""

MAX_FILTERS = 1_000
"""Filters of one scan."""

# --- SQL files --------------------------------------------------------------------------------------------------------

MAX_SQL_FILES = 10_000
"""SQL files in a folder."""

MAX_SQL_FILE_BYTES = 1 << 20
"""Bytes of one SQL file."""

MAX_SQL_BYTES = 200 << 20
"""Bytes of all SQL files."""

MAX_SQL_STATEMENTS = 100_000
"""Statements of all SQL files."""
