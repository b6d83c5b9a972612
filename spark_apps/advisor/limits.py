"""The limits of advice: what of a table is read and held in memory, and how much is asked, tried and compared.

They bound the time and memory of ``explain(hypothetical=…)`` and ``advise``, which run in a program, in a worker of
Airflow's or in the process that shows a page. Constants that only one algorithm understands are beside it.
"""

# --- the sample of a table --------------------------------------------------------------------------------------------

SMALL_GROUPS, SMALL_BYTES, SMALL_ROWS = 256, 64 << 20, 1_000_000
"""A table with no more file groups, bytes of files and rows is small: all of it is read, and indexes are made of it in
memory as a build would make them."""

MAX_GROUPS, MIN_GROUPS = 64, 8
"""File groups that are read of a larger table: at most, and at least, however large they are."""

MAX_BYTES = 128 << 20
"""Bytes of the columns in files that are read of a larger table, about; of larger file groups some row groups are."""

MAX_HELD_BYTES = 1 << 30
"""Bytes of rows in memory, about: of long texts over and over, which take far less in files, fewer are read."""

MIN_ASKED_GROUPS = 8
"""File groups of the sample, among those that a query reads, from which on what is left of the others is judged by them
alone, and not by the whole sample."""

MAX_COUNTS = 2_000
"""Predicates of which it is remembered how many rows of the sample satisfy them; beyond it all are forgotten."""

# --- indexes of a larger table, made of some rows ---------------------------------------------------------------------

MAX_ORDERED_ROWS = 2_000_000
"""Rows or entries that are sorted; of more, these are taken evenly."""

MAX_PACKED_ROWS = 200_000
"""Entries of a keyed or compact index that are packed to know what all take."""

PACKED_BYTES = 16 << 20
"""Bytes of the columns in files that are read for a covering index, which holds more columns than the sample has."""

MAX_FILLER_BYTES = 16 << 20
"""Bytes that are made up for columns of a covering index which only Spark reads; of wide ones fewer rows are taken."""

MAX_HASHED_KEYS = 100_000
"""Different keys that are assigned to buckets by a hash function which Python computes one by one."""

# --- what is asked, tried and compared --------------------------------------------------------------------------------

MAX_QUESTION_GROUPS = 200
"""Groups of queries that are asked about, those with most bytes read; the others are counted."""

MAX_PREDICATES = 4
"""Predicates of a group that are asked about, evenly from those that are known."""

MAX_EXPRESSIONS = 50
"""Expressions of columns that are looked for in predicates."""

MAX_CANDIDATES = 24
"""Indexes that are tried, those that the heaviest queries ask for."""

MAX_KEYS = 10_000
"""Values that a predicate may allow a column for an index of its values to be tried."""

MAX_TABLES = 500
"""Sets of indexes that are remembered as a table that has them; beyond it all are forgotten."""

MAX_COMPARED_MEMBERS, MAX_COMPARED_SETS = 4, 20_000
"""Members of a set up to which all sets are compared, and how many sets at most; larger ones grow from these."""

MAX_COMMITS, DAYS = 1_000, 14
"""Commits, and days back from the newest, by which it is judged what keeping an index takes."""

# --- what is proposed -------------------------------------------------------------------------------------------------

MIN_SAVED_SHARE = 0.01
"""Part of the bytes read that an index saves, for it to be proposed, to stay, or to count as used by a query."""

MAX_SHARE_OF_TABLE, MIN_BUDGET_BYTES = 1 / 3, 1 << 20
"""Where no budget is given: the part of the table's bytes that all indexes may hold together, and bytes that they may
hold in any case, for of a table of a few kilobytes an index holds as much as the table."""

MAX_SHOWN_QUERIES, MAX_SHOWN_CHARACTERS = 5, 200
"""Queries that are shown of those that an index helps, and characters of each."""
