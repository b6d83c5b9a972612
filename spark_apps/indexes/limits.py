"""The limits of indexes: what the driver reads, what is held in memory at once, threads, and sizes of what is written.

Each limit is stated with its unit and its reason. What a user sets for one index (``most_values``, ``small_bytes``, …)
is a property of the index; of these only defaults and bounds are listed.
"""

from __future__ import annotations

# --- Lookups of keys --------------------------------------------------------------------------------------------------

# Measured on local disk with 2 cores, keys at random among 1,000,000 entries, driver against Spark job, medians: 1 key
# 0.01 s against 0.9, 100 keys 0.2 against 0.7, 1,000 keys 0.15 against 0.7, 10,000 keys 0.23 against 0.8, 100,000 keys
# 1.2 against 1.8. From there on the driver works for a second alone, and the more so the larger the index.
MAX_DRIVER_KEYS = 10_000
"""Keys that the driver looks up in an index; a Spark job looks up more."""

MAX_RETURNED_KEYS = 1000
"""Record keys that a lookup hands to readers, which filter by them; of more they get the file groups only."""

MAX_LOOKUP_ROWS = 4_000_000
"""Entries, in row groups that can match, that the driver reads for one query; Spark reads more."""

MAX_LOOKUP_ENTRIES = 100_000
"""Entries found that become Python objects: for more the driver takes longer than Spark."""

MAX_LOCAL_LOOKUP_ROWS = 25_000_000
"""Entries on its own disk among which the driver looks up the keys of a write, or those of one column that a query asks
for. It takes a fifth of the time that Spark's join takes on as many cores; for more, a cluster has more cores."""

MAX_NEW_KEYS = 2_000_000
"""New keys of a write that the driver looks up to see that none exists: as many fit into a small part of its memory."""

MIN_ROWS_PER_KEY = 1_000
"""Rows of a file for each key that is looked up, below which hardly a page can be left out. Arrow then reads columns as
a whole, and other threads run meanwhile: pages, one at a time in Python, would wait for each other."""

MIN_THREADED_ROWS = 200_000
"""Rows of the shards that a lookup reads, from which on it takes several threads."""

LOOKUP_THREADS = 8
"""Threads that read shards for a lookup."""

MAX_GROUPS_AT_ONCE = 16
"""Row groups that a thread of a lookup reads at a time, which bounds its memory."""

MAX_LISTED = 1000
"""Values or lineages that a filter of Spark lists; more become a broadcast join, or are not compared."""

# --- Shards of record and secondary indexes ---------------------------------------------------------------------------

ROWS_PER_SHARD = 1_000_000
"""Rows of the table for each shard of a new index."""

MAX_SHARDS = 256
"""Shards of a new index, unless the user gives a number."""

ENTRY_ROW_GROUP_BYTES = 1 << 20
"""Bytes of a row group of entries: small, so that a lookup of one key reads little."""

MIN_ROWS_TO_SAMPLE = 4_000_000
"""Entries from which on a build looks for shards that are larger than others: fewer are written in the time that
looking takes."""

ROWS_PER_SAMPLE_STEP = 1_000_000
"""Rows for which one more file group is passed over between two that are sampled: of n times as many rows, each n-th
group is."""

MIN_SAMPLED_GROUPS = 4
"""File groups that such a sample has at least, if there are as many."""

# --- Compact indexes --------------------------------------------------------------------------------------------------

ROWS_PER_ENTRY_FILE = 50_000_000
"""Rows of the table for each file of entries in an index partition."""

DEFAULT_MAX_VALUES = 200_000
"""Default of the property ``most_values``: distinct values that are compared with a predicate; with more, the index is
not used."""

MAX_SHARE_OF_BLOCKS = 0.9
"""Part of a table's blocks that may match; beyond it, leaving out the others is not worth the index."""

SMALL_ENTRY_FILE_BYTES = 64 << 20
"""Bytes below which a compaction takes a file of entries."""

ENTRY_FILE_THREADS = 16
"""Threads that open files of entries: requests take the time."""

# --- Covering indexes -------------------------------------------------------------------------------------------------

MAX_COVERING_KEYS = 10_000
"""Values of a predicate whose buckets are computed; for more all buckets are read."""

BOUNDS_SAMPLE_ROWS = 20_000
"""Rows from which the bounds of ranges are taken: of 100 buckets most are right within a fifth."""

MAX_REMEMBERED_RANGES = 20_000
"""Files whose ranges of row groups a process keeps in memory; all are forgotten beyond it."""

# --- Expressions ------------------------------------------------------------------------------------------------------

MAX_EXPRESSION_CHARACTERS = 4_096
"""Characters of an indexed expression: a log names nothing that is longer."""

# --- Skipping indexes: what a record holds ----------------------------------------------------------------------------

MAX_BOUND_LENGTH = 64
"""Characters (bytes of binaries) to which bounds are cut."""

MAX_LISTED_BYTES = 256
"""Bytes of a value in a list of values; a file with a longer one has no list."""

MAX_LISTED_VALUES = 10_000
"""The highest value of the property ``most_values``."""

MAX_GRAMS = 1 << 20
"""Different n-grams of a file for which a filter is made at first, before it is folded to what there are."""

MAX_FILTER_BLOCKS = 1 << 22
"""Blocks of 32 bytes of one filter, 128 MB: of more than about fifty million values it answers less exactly."""

MAX_ROW_GROUPS = 1_000
"""Row groups of a file that have records of their own; of a file with more there is one record alone."""

MAX_RECORDS_SHARE, ALWAYS_RECORDS_BYTES = 0.1, 64 * 1024
"""Records of a file's row groups are kept if they take at most this part of its bytes, or at most these bytes."""

# --- Skipping indexes: building ---------------------------------------------------------------------------------------

MAX_DRIVER_BYTES = 256 << 20
"""Bytes, as stored, of the columns whose records the driver makes; of more, Spark's tasks make them."""

MAX_FILE_ROWS = 8_000_000
"""Rows of a file that the driver reads; tasks, which need no memory for all of them, read larger ones."""

BYTES_AT_ONCE = 64 << 20
"""Bytes of rows, or of files, whose records are made in one step."""

ROWS_AT_ONCE = 2_000_000
"""Rows whose records are made in one step."""

FILES_PER_JOB = 2_000
"""Data files of which one Spark job makes the records."""

MAX_ROW_GROUPS_PER_JOB = 2_000
"""Row groups of which one Spark job makes the records."""

MAX_FILTER_BYTES = 256 << 20
"""Bytes of filters that the tasks of one job hand to the driver."""

MAX_DISTINCT, MAX_DISTINCT_IN_MEMORY = 20_000, 1_000_000
"""Different values for which Spark is asked to evaluate an expression: of rows in files, which it reads itself if there
are more, and of rows that are in memory only."""

SMALL_FILE_BYTES = 1 << 20
"""Bytes of files that one thread reads from a local disk: for smaller ones, several are no quicker."""

BUILD_THREADS = 16
"""Threads that read data files from an object store: requests take the time."""

# --- Skipping indexes: reading ----------------------------------------------------------------------------------------

MAX_FILTER_LOOKUPS = 100_000
"""Lookups in filters for one query, which take some tenths of a second; what is left may match."""

MAX_ROW_GROUPS_ASKED = 20_000
"""Row groups that one query asks about, which takes some tenths of a second; files beyond are read whole."""

RECORD_FILE_THREADS = 16
"""Threads that open files of records: requests take the time."""

KEYS_PER_TASK = 20_000
"""Keys for each task that asks records for many keys: starting one takes as long as sorting this number."""

MAX_LISTED_OF_FILES = 1_000_000
"""Listed values of one column, of all files, that such tasks are handed; files beyond may hold any value."""

MAX_LISTED_BYTES_OF_FILES = 16 << 20
"""Bytes of the different ones among them: a million texts of 256 bytes take 1.9 GB on the driver."""

MIN_RULED_OUT = 0.1
"""The chance of a file without a key to be ruled out by its Bloom filter, from which on that is asked: of more keys
between the ends of the file one is nearly always taken for a value."""

MAX_FILTER_BYTES_ASKED = 64 << 20
"""Bytes of filters that such a task reads; files beyond may hold a key."""

PAGES_BETWEEN = 16
"""Pages of filters, most of 4 kB, that are read along between two that are asked for: a request takes longer."""

MAX_OPENED_FILES = 64
"""Files of records whose headers a process keeps in memory."""

MAX_HEADER_BYTES = 256 << 20
"""Bytes of the header of a file of records, packed or not."""

SMALL_HEADER_BYTES, MAX_UNPACKED_TIMES = 1 << 20, 200
"""Bytes that any header may unpack to, and bytes more for each packed byte. An unpacked byte can become an object of
fifty bytes or more; most headers unpack to ten to fifty times their size."""

MAX_FILTERS = 20_000_000
"""Filters of a file of records for which there may be room beside one for each of its bytes, whether or not they exist.
This bounds the memory of a damaged file's table of filters."""

# --- Estimates of a build ---------------------------------------------------------------------------------------------

MAX_SAMPLED_FILES = 8
"""Data files whose footers an estimate reads."""

MAX_TIMED_BYTES = 16 << 20
"""Bytes of columns in a row group that is read to time reading; a larger one is not read."""
