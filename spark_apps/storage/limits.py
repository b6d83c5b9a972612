"""The limits of what this room takes from a store, a document or a Parquet file, and of what it keeps in memory.

A log, a file's metadata and a store's answer are input: each is measured against these numbers before memory is made
for it. They are generous to every file that this package or a known writer makes; what is larger is refused with an
error, or read another way where that is said. Constants that only one algorithm understands are beside it.
"""

# --- documents and objects --------------------------------------------------------------------------------------------

MAX_VALUES = 16_000_000
"""Objects and lists in one JSON document. Each takes two characters there and sixty bytes or more in memory, so that a
limit on the bytes of a document would not bound its memory; a manifest of a million files has two million."""

MAX_READ_BACK_BYTES = 256 << 20
"""Bytes of an object that is read back after an unclear answer: as many as a commit may have."""

# --- footers of Parquet files -----------------------------------------------------------------------------------------

MAX_FOOTER_BYTES = 64 << 20
"""Bytes of one footer; one of a thousand columns and a hundred row groups has fifteen megabytes."""

MAX_COLUMNS = 100_000
"""Columns (leaves of the schema) of one file."""

MAX_CHUNKS = 500_000
"""Columns times row groups of one file: Arrow keeps about a kilobyte of each, whatever its bytes in the file are."""

MAX_SCHEMA_DEPTH = 250
"""Groups nested in one another in a schema: each is a nested call in Arrow."""

MAX_SKIPPED_DEPTH = 32
"""Structs and lists nested in one another, in a Thrift field that is skipped: each is a nested call."""

MAX_ACCEPTED_FOOTERS = 50_000
"""Accepted footers that are remembered, by a digest of 20 bytes each, and not checked again."""

MAX_CACHED_FOOTERS = 4_000
"""Parsed footers that are kept for the next reader."""

MAX_CACHED_FOOTER_BYTES = 64 << 20
"""Bytes of the footers that are kept, as they are in their files; parsed by Arrow they take several times as much."""

# --- pages of Parquet files -------------------------------------------------------------------------------------------

MAX_PAGE_BYTES = 256 << 20
"""Bytes of one page, unpacked: writers make pages of a megabyte, or of a whole column of a row group."""

UNPACKED_BYTES = 32 << 20
"""Bytes that any file may take in memory once it is unpacked, however small it is."""

UNPACKED_BYTES_PER_BYTE = 1_000
"""Bytes that it may take there in addition, for each byte that the file has."""

MAX_ROWS_BY_PAGE = 1 << 26
"""Rows of a row group that is read by single pages; a larger one is read as a whole, for each wanted row takes nine
bytes."""
