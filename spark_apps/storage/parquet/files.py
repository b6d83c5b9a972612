"""The only way into a Parquet file by Arrow: its footer is fetched once, checked, and only then handed on.

Arrow ends the process for some footers (:mod:`spark_apps.storage.parquet.footers` says for which), and no error can be
caught there. So nothing else opens a Parquet file, and nothing else asks for its row groups; a test looks after that.
Files that the log lists are opened through :mod:`spark_apps.storage.parquet.listed`, which keeps their footers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from spark_apps.storage.parquet.footers import END_BYTES, FooterRefused, check_footer_bytes, footer_length
from spark_apps.storage.store import RangedFile

TAIL_BYTES = 64 * 1024
"""What is fetched of the end of a file at once: nearly always all of the footer, and often of the page index."""

Source = bytes | bytearray | memoryview | RangedFile | str | Path
"""A whole file in memory, one that is read by ranges, or the path of one on this machine's disk."""


def footer_bytes(source: Source) -> bytes:
    """Return the footer of a file, with its length and mark.

    :raises FooterRefused: if it has none.
    """
    if isinstance(source, str | Path):
        with Path(source).open("rb") as file:
            size = file.seek(0, 2)
            return _footer_in(lambda wanted: _last(file, size, wanted), size)
    if isinstance(source, RangedFile):
        return _footer_in(source.tail, source.size)
    body = memoryview(source)
    return _footer_in(lambda wanted: bytes(body[max(0, len(body) - wanted) :]), len(body))


def _last(file: Any, size: int, wanted: int) -> bytes:
    file.seek(max(0, size - wanted))
    return bytes(file.read(wanted))


def _footer_in(last: Callable[[int], bytes], size: int) -> bytes:
    """Return the footer of a file. :param last: gives that many of its last bytes, or all there are."""
    tail = last(TAIL_BYTES)
    needed = footer_length(tail[-END_BYTES:]) + END_BYTES
    if needed > size:
        raise FooterRefused("its footer is cut")
    return (tail if needed <= len(tail) else last(needed))[-needed:]


def metadata_of(footer: bytes, size: int | None = None) -> Any:
    """Return what a footer says, as :class:`pyarrow.parquet.FileMetaData`.

    :param footer: with its length and mark. :param size: of the file, in bytes; ``None`` if it is not known.
    :raises FooterRefused: if it is none that Arrow can be given. Arrow's own errors are raised as they are.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_footer_bytes(footer[:-END_BYTES], size)
    return pq.read_metadata(pa.BufferReader(footer))


def read_footer(source: Source) -> Any:
    """Return the metadata of a file, as :class:`pyarrow.parquet.FileMetaData`.

    :raises OSError: if it has none that Arrow can be given.
    """
    if isinstance(source, str | Path):
        size = Path(source).stat().st_size
    else:
        size = source.size if isinstance(source, RangedFile) else len(source)
    return metadata_of(footer_bytes(source), size)


def open_file(source: Source, metadata: Any = None, opened: Any = None, **options: Any) -> Any:
    """Open a file as :class:`pyarrow.parquet.ParquetFile`, whose footer was checked.

    Times that are stored as INT96 are read as microseconds, and the checksums of pages are compared.

    :param metadata: of the file, if :func:`read_footer` gave it before.
    :param opened: the source, if it is opened for Arrow already.
    :param options: more of :class:`pyarrow.parquet.ParquetFile`.
    :raises OSError: if its footer is none that Arrow can be given.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if metadata is None:
        metadata = read_footer(source)
    file: Any
    if opened is not None:
        file = opened
    elif isinstance(source, str | Path):
        file = str(source)
    elif isinstance(source, RangedFile):
        whole = source.whole  # which needs no Python
        file = pa.PythonFile(source, mode="r") if whole is None else pa.BufferReader(whole)
    else:
        file = pa.BufferReader(source)
    return pq.ParquetFile(
        file,
        metadata=metadata,
        **{"page_checksum_verification": True, "coerce_int96_timestamp_unit": "us", "pre_buffer": False, **options},
    )


def read_columns(opened: Any, columns: Sequence[str]) -> Any:
    """Return some columns of a whole file as an Arrow table.

    :param opened: by :func:`open_file`.
    :raises OSError: if it cannot be read. Arrow's own errors are raised as they are.
    """
    held = set(opened.schema_arrow.names)
    if missing := [name for name in columns if name not in held]:
        raise OSError(f"it has no column {missing[0]!r}")
    return opened.read(columns=list(columns)).select(list(columns))  # Arrow takes a name before a dot for a struct's


# --- what a footer says -----------------------------------------------------------------------------------------------


def group_rows(metadata: Any) -> tuple[int, ...]:
    """Return the rows of each row group.

    :param metadata: of a file, as this module gives it; and so for what follows.
    """
    return tuple(metadata.row_group(number).num_rows for number in range(metadata.num_row_groups))


def group_bytes(metadata: Any) -> tuple[int, ...]:
    """Return the bytes of each row group as its pages have them, unpacked."""
    return tuple(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))


def column_chunk(metadata: Any, group: int, column: int) -> Any:
    """Return what the footer says of a column in a row group, as :class:`pyarrow.parquet.ColumnChunkMetaData`."""
    return metadata.row_group(group).column(column)


def column_chunks(metadata: Any, group: int) -> Iterator[Any]:
    """Yield what the footer says of each column in a row group."""
    row_group = metadata.row_group(group)
    for column in range(row_group.num_columns):
        yield row_group.column(column)


def chunk_range(chunk: Any) -> tuple[int, int]:
    """Return where the pages of a column in a row group begin, with its dictionary, and where they end."""
    start, dictionary = chunk.data_page_offset, chunk.dictionary_page_offset or 0
    start = dictionary if 0 < dictionary < start else start
    return start, start + chunk.total_compressed_size
