"""Plain files as a source: a folder of Parquet, ORC, JSON or CSV, Hive-style partitions below it, or a glob.

Which files there are, and which rows they give, is what Spark's own reading of the location would find, with one
difference: partition columns are all ``name=value`` folders below the part of the location without a pattern.
"""

from __future__ import annotations

import datetime as dt
import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from spark_apps.layout.partitions import NULL_PARTITION, canonical_string, partition_path, unescape, value_of
from spark_apps.layout.types import parse_type
from spark_apps.sources.files import Listing, SourceFile, check_distinct
from spark_apps.sources.listing import Found, check_unchanged, list_files
from spark_apps.sources.locations import Location, locate
from spark_apps.sources.options import RECURSIVE, is_set
from spark_apps.storage.errors import InvalidInput
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import Field, TableDefinition

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

logger = logging.getLogger(__name__)

Texts = tuple[tuple[str, str | None], ...]
"""(column, value as text) of each folder of a path that is one."""

_INTEGER = re.compile(r"-?\d{1,19}\Z")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}\Z")


class PlainFiles:
    """A folder, file or glob.

    :param fields: columns, with the types of the partition columns among them.
    :param storage_options: of the store; never written down.
    """

    def __init__(
        self,
        location: str,
        options: Mapping[str, str],
        fields: Sequence[Field],
        partition_by: Sequence[str],
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        self._location = locate(location)
        self._options = options
        self._types = {field.name: field.type for field in fields}
        self._partition_by = tuple(partition_by)
        self._storage_options = storage_options

    @classmethod
    def of(cls, table: TableDefinition, storage_options: Mapping[str, Any] | None) -> PlainFiles:
        """The source of a registered table."""
        assert table.source is not None
        source = table.source
        return cls(source.location, source.options, table.fields, table.partition_by, storage_options)

    def listing(self, version: str | int | None = None) -> Listing:
        """The files there are now. :raises InvalidInput: if a version is asked for; there are none."""
        if version is not None:
            raise InvalidInput(
                f"{self._location.uri} is a folder of plain files, which has no versions.",
                hint="Load the table with version= or as_of= for the files that the log told of then.",
            )
        recursive, names = is_set(self._options, RECURSIVE), self._partition_by
        files = [self._file(found, texts) for found, texts in placed(self._location, self._listed(), recursive, names)]
        check_distinct(self._location.uri, files)
        return Listing(tuple(files))

    def check(self, files: Sequence[DataFile]) -> None:
        """:raises ObjectNotFound: :raises StorageError: if a file is gone or was rewritten since it was listed."""
        known = [
            (file.path, file.bytes, (file.extra or {}).get("modified"), (file.extra or {}).get("etag"))
            for file in files
        ]
        check_unchanged(self._location, known, self._storage_options)

    def rows(self, file: DataFile, schema: StructType) -> Any:
        """Spark reads plain files itself."""
        raise InvalidInput(f"{file.path} is read by Spark.")

    def _listed(self) -> list[Found]:
        return list_files(self._location, self._storage_options)

    def _file(self, found: Found, texts: Texts) -> SourceFile:
        values: tuple[str | None, ...] = ()
        partition = ""
        if self._partition_by:
            by_name = {name.lower(): text for name, text in texts}
            typed = [self._value(name, by_name[name.lower()]) for name in self._partition_by]
            types = [self._types[name] for name in self._partition_by]
            partition = partition_path(self._partition_by, typed, types)
            values = tuple(canonical_string(v, parse_type(t)) for v, t in zip(typed, types, strict=True))
        return SourceFile(
            found.path, found.bytes, found.modified, found.etag, partition=partition, partition_values=values
        )

    def _value(self, name: str, text: str | None) -> Any:
        return None if text is None else value_of(text, parse_type(self._types[name]), name)


def placed(
    location: Location, files: Sequence[Found], recursive: bool, names: Sequence[str] | None
) -> list[tuple[Found, Texts]]:
    """Files with the values in their paths, without those that Spark passes over too: files beside the partitions,
    and files in folders below where there are no partitions.

    :param names: the partition columns; ``None`` to find out.
    :raises InvalidInput: if folders are of other partition columns.
    """
    told = [(found, () if recursive else _texts(found)) for found in files]
    if names is None:
        names = next((tuple(name for name, _ in texts) for _, texts in told if texts), ())
    wanted = tuple(name.lower() for name in names)
    kept = []
    for found, texts in told:
        there = tuple(name.lower() for name, _ in texts)
        if texts and there != wanted and not (wanted and set(there) == set(wanted)):
            raise InvalidInput(
                f"{found.path} is of the partition columns ({', '.join(name for name, _ in texts)}), other files of "
                f"{location.uri} are of ({', '.join(names)}).",
                hint="Register the part of the location in which all folders are alike.",
            )
        if wanted and not texts:
            logger.warning("%s lies outside of the partitions of %s and is not read.", found.path, location.uri)
        elif not wanted and location.pattern is None and not recursive and "/" in found.relative:
            logger.warning("%s lies in a folder of %s that is no partition and is not read.", found.path, location.uri)
        else:
            kept.append((found, texts))
    return kept


def _texts(found: Found) -> Texts:
    texts: list[tuple[str, str | None]] = []
    for folder in found.relative.split("/")[:-1]:
        name, sign, text = folder.partition("=")
        if not sign or not name:
            continue
        if not text:
            raise InvalidInput(
                f"The folder {folder!r} of {found.path} has no partition value.", hint="Rename or remove it."
            )
        texts.append((unescape(name), None if text == NULL_PARTITION else unescape(text)))
    return tuple(texts)


def inferred_type(texts: Sequence[str | None]) -> str:
    """The type of a partition column from its values: int, bigint, date, else string."""
    known = [text for text in texts if text is not None]
    if known and all(_INTEGER.match(text) for text in known):
        numbers = [int(text) for text in known]
        if all(-(2**31) <= number < 2**31 for number in numbers):
            return "int"
        return "bigint" if all(-(2**63) <= number < 2**63 for number in numbers) else "string"
    if known and all(_is_date(text) for text in known):
        return "date"
    return "string"


def _is_date(text: str) -> bool:
    try:
        return bool(_DATE.match(text)) and bool(dt.date.fromisoformat(text))
    except ValueError:
        return False
