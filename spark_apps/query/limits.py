"""The limits of this room: the memory and time that a query may take, and the sizes at which it is read another way.

Rates and sizes from which costs are estimated are beside the estimates; so are constants of one algorithm alone.
"""

# --- planning ---------------------------------------------------------------------------------------------------------

ALWAYS_KEYS = 100
"""Keys for which an index is asked whatever the answer may save: that takes some hundredths of a second."""

ALWAYS_CHARACTERS = 8_000
"""Characters of a predicate that is always parsed: that is some 200 keys of 36 characters."""

MAX_REMEMBERED_CHARACTERS = 2_000
"""Characters of a predicate whose tree is remembered for the next query."""

MAX_KEYS = 100_000
"""Keys that a predicate is solved for; if it allows more, they rule nothing out."""

MAX_BUCKET_KEYS = 10_000
"""Keys whose buckets are computed."""

MAX_EQUAL_VALUES = 1_000
"""Values of an ``IN`` that are held one by one against the summary of each file."""

MAX_EXPRESSION_VALUES = 1_000
"""Values of an ``IN`` whose expressions are computed one by one; of more, the lowest and the highest."""

MIN_SAVED_BYTES = 128 * 1024 * 1024
"""Bytes that reading files by blocks must save in Spark, where it goes through Python workers.

Measured on local disk with 2 cores, 150 MB in 39 row groups: one block through a running worker takes 0.4 s, 20 blocks
0.5 s, a scan of all by Spark 0.7 s. So the scan is faster below some 90 MB saved; on busy cores the start of a worker
costs more, on an object store the bytes do.
"""

MAX_BLOCK_FILES = 256
"""Files, the largest first, whose footers are read to choose blocks."""

MAX_SAMPLED_FILES = 64
"""Files whose footers are compared with what indexes leave, for a note in ``explain``."""

MAX_SIZED_STATES = 16
"""Tables whose number of files and bytes is kept between queries, for the query log."""

# --- reading by Spark -------------------------------------------------------------------------------------------------

MAX_PUSHED_VALUES = 10
"""Values of an ``IN`` that Spark hands to Parquet; of a longer one only the lowest and the highest, which rules no page
out."""

MAX_FILTER_VALUES = 40
"""Values that are put into several such lists; each row that is read is compared with all of them."""

MAX_FILTER_PARTITIONS = 32
"""Partitions that a filter of record keys tells apart."""

# --- reading by Arrow -------------------------------------------------------------------------------------------------

MAX_READ_THREADS = 8
"""Threads that read parts of one query side by side."""

MIN_THREADED_BYTES = 4 * 1024 * 1024
"""Bytes from which on threads are worth their start."""

BATCH_ROWS = 65_536
"""Rows of a record batch."""

MIN_PAGED_ROWS = 2_000
"""Rows of a row group that is read by pages; a smaller one is read as a whole."""

MAX_PAGED_NODES = 300
"""Nodes of a predicate that is held against each page."""

MAX_SINGLE_VALUES = 10_000
"""Values of a column by which rows are filtered before the rest of the predicate is."""

MAX_KEY_ALTERNATIVES = 1_000
"""Keys of several columns that a predicate names one by one; of more, the values of each column."""

MAX_LOOKUP_KEYS = 10_000
"""Keys that a lookup plans with; for more, all rows are compared."""

MIN_ROWS_PER_LOOKUP_KEY = 8_192
"""Rows of the table for each of them: with fewer, most pages of rows and of an index hold one, and none is asked."""

MAX_UNSORTED_KEYS = 64
"""Wanted keys that Arrow looks up sooner than they are sorted."""

MAX_BOUNDED_KEYS = 1_000
"""Wanted keys that are compared one by one with the bounds of a page; of more, the lowest and the highest."""

MAX_KEYS_PER_BUCKET = 16
"""Wanted keys for each bucket: with more, nearly all buckets hold some."""

# --- reading lines ----------------------------------------------------------------------------------------------------

TEXT_CHUNK_BYTES = 16 * 1024 * 1024
"""Bytes of a file of lines that are in memory at a time."""

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Bytes of one line; a file with a longer one is left to Spark."""
