"""Files of a source as a listing shows them: the id that distinguishes their contents, and how many rows they hold.

The id is made from everything the listing knows of the file, so a file rewritten under its old name gets another one
wherever size, time or etag differ.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from spark_apps.mergetree.external_files import THROUGH, VALUES, WHY
from spark_apps.mergetree.write import count_rows
from spark_apps.storage.errors import StorageError, UnsupportedSource
from spark_apps.storage.file_faults import fault_of
from spark_apps.storage.parquet.files import open_file
from spark_apps.storage.store import Store
from spark_apps.timeline.model import DATA_TREE, UNKNOWN_ROWS, AddFile, Field

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


STATE = "state"
"""In :attr:`AddFile.extra`: what else than its bytes decides on a file's rows."""


@dataclass(frozen=True)
class SourceFile:
    """A file of a source.

    :param path: absolute, with a scheme, unquoted.
    :param modified: seconds since 1970, ``None`` where it is unknown.
    :param partition: canonical path of its partition, with the columns' values as text.
    :param values: values as text of other columns that the file does not hold.
    :param state: what else decides on its rows, such as a list of deleted ones.
    :param through: the library that must read it, and ``why``; ``None`` if Spark reads it rightly.
    """

    path: str
    bytes: int
    modified: float | None = None
    etag: str | None = None
    rows: int = UNKNOWN_ROWS
    partition: str = ""
    partition_values: tuple[str | None, ...] = ()
    values: Mapping[str, str | None] = field(default_factory=dict)
    state: str = ""
    through: str | None = None
    why: str | None = None

    @cached_property
    def lineage(self) -> int:
        """A 63-bit id."""
        modified = "" if self.modified is None else f"{self.modified:.6f}"
        values = [f"{name}={text!r}" for name, text in sorted(self.values.items())]
        known = [self.path, str(self.bytes), modified, self.etag or "", self.partition, *values, self.state]
        digest = hashlib.blake2b("\0".join(known).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def to_add(self) -> AddFile:
        """Return the file as the log holds it: a file group of its own, named by its id."""
        lineage = self.lineage
        extra: dict[str, Any] = {"modified": self.modified, "etag": self.etag, VALUES: dict(self.values) or None,
                                STATE: self.state or None, THROUGH: self.through, WHY: self.why}  # fmt: skip
        return AddFile(
            DATA_TREE, self.partition, str(lineage), self.path, "base", self.rows, self.bytes, lineage=lineage,
            extra={name: value for name, value in extra.items() if value is not None},
        )  # fmt: skip


@dataclass(frozen=True)
class Listing:
    """The files of a source at one moment.

    :param version: what the source calls this state; ``None`` for plain files.
    :param fields: its columns, and its partition columns, where the source knows them; else those of the registration
        stay.
    :param identity: the format's own id of the table, where it has one.
    :param mark: what tells the source's own log, the next time, whether it goes on from this version; ``None`` where it
        cannot be asked for what came since.
    """

    files: tuple[SourceFile, ...]
    version: str | None = None
    fields: tuple[Field, ...] | None = None
    partition_by: tuple[str, ...] | None = None
    identity: str | None = None
    mark: str | None = None


@dataclass(frozen=True)
class Changes:
    """Changes of a source's files after a version, as its own log has them.

    :param added: files that are new, or other than they were. :param removed: paths of those that are gone.
    :param mark: as that of a :class:`Listing`. :param commits: how many were read.
    :param fields: its columns; ``None`` if they are those of before.
    """

    added: tuple[SourceFile, ...]
    removed: tuple[str, ...]
    version: str
    mark: str | None
    commits: int
    fields: tuple[Field, ...] | None = None


def check_distinct(location: str, files: Iterable[SourceFile]) -> None:
    """Check that no two files share a path or an id, which would make one of them invisible.

    :raises StorageError: if two files share a path or an id, which would make one of them invisible.
    """
    paths: set[str] = set()
    ids: dict[int, str] = {}
    for file in files:
        other = file.path if file.path in paths else ids.get(file.lineage)
        if other is not None:
            raise StorageError(
                f"The source {location} lists {file.path} and {other}, which cannot be distinguished.",
                outcome="Nothing was changed.",
                hint="List it again; if it stays so, rename or rewrite one of the two.",
            )
        paths.add(file.path)
        ids[file.lineage] = file.path


# --- How many rows files of a source hold ---------------------------------------------------------------------------


logger = logging.getLogger(__name__)

_AT_ONCE = 16


def with_row_counts(form: str, files: Iterable[AddFile], options: Mapping[str, Any] | None) -> list[AddFile]:
    """Return the files with their numbers of rows, as far as their format has them: Parquet by footers.

    A file whose footer cannot be read keeps an unknown number; Spark will say what is wrong with it.
    """
    files = list(files)
    if form != "parquet":
        return files
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        return list(pool.map(lambda file: _counted(file, options), files))


def _counted(file: AddFile, options: Mapping[str, Any] | None) -> AddFile:
    if file.rows >= 0 or THROUGH in (file.extra or {}):
        return file
    head, _, name = file.path.rpartition("/")
    try:
        rows, _ = count_rows(Store(head.removeprefix("file://"), options), name, file.bytes, "base")
    except StorageError as error:
        logger.warning("The rows of %s are not known: %s", file.path, error.__cause__ or error)
        return file
    return replace(file, rows=rows)


# --- rows by Arrow, of formats whose files Spark cannot read by itself ------------------------------------------------


def read_parquet(path: str, options: Mapping[str, Any] | None) -> Any:
    """Read a whole Parquet file as an Arrow table.

    :raises ObjectNotFound: if a file is gone.
    :raises StorageError: if a file is damaged, or was rewritten since it was listed.
    """
    import pyarrow as pa

    head, _, name = path.rpartition("/")
    try:
        return open_file(Store(head.removeprefix("file://"), options).get(name)).read()
    except (pa.ArrowException, OSError) as error:
        fault = fault_of(str(error))
        raise StorageError(
            f"The file {path} cannot be read: it {fault.what}: {error}.",
            outcome="Nothing was changed.",
            hint=fault.hint,
        ) from error


def filter_rows(rows: Any, keep: Sequence[bool]) -> Any:
    """Return the rows that a mask keeps; rows behind its end stay."""
    import pyarrow as pa

    mask = pa.array([*keep, *([True] * (rows.num_rows - len(keep)))], pa.bool_())
    return rows.filter(mask)


def cast_to_schema(rows: Any, schema: StructType) -> Any:
    """Return rows with the columns of a Spark schema, in its order; one that is lacking is null in every row.

    :raises UnsupportedSource: if a column cannot be brought into its type.
    """
    import pyarrow as pa

    from spark_apps.engine.spark_versions import arrow_schema

    target = arrow_schema(schema)
    positions = {name.lower(): n for n, name in enumerate(rows.column_names)}
    columns = []
    for wanted in target:
        position = positions.get(wanted.name.lower())
        if position is None:
            columns.append(pa.nulls(rows.num_rows, wanted.type))
            continue
        try:
            columns.append(rows.column(position).cast(wanted.type))
        except pa.ArrowException as error:
            raise UnsupportedSource(
                f"The column {wanted.name!r} of type {rows.schema.field(position).type} cannot be read as "
                f"{wanted.type}: {error}."
            ) from error
    return pa.Table.from_arrays(columns, schema=target)
