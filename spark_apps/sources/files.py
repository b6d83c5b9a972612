"""A file of a source as a listing shows it, and the id that tells its contents from those of any other.

The id is made from everything the listing knows of the file, so a file rewritten under its old name gets another one
wherever size, time or etag differ.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from spark_apps.mergetree.foreign import THROUGH, VALUES, WHY
from spark_apps.storage.errors import StorageError
from spark_apps.timeline.model import DATA_TREE, UNKNOWN_ROWS, AddFile, Field

STATE = "state"
"""In :attr:`AddFile.extra`: what else than its bytes decides on a file's rows."""


@dataclass(frozen=True)
class SourceFile:
    """One file.

    :param path: absolute, with a scheme, as it stands (nothing quoted).
    :param modified: seconds since 1970, ``None`` where nobody tells.
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

    @property
    def lineage(self) -> int:
        """A 63-bit id."""
        modified = "" if self.modified is None else f"{self.modified:.6f}"
        values = [f"{name}={text!r}" for name, text in sorted(self.values.items())]
        known = [self.path, str(self.bytes), modified, self.etag or "", self.partition, *values, self.state]
        digest = hashlib.blake2b("\0".join(known).encode("utf-8", "surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1

    def to_add(self) -> AddFile:
        """The file as the log tells of it: a file group of its own, named by its id."""
        lineage = self.lineage
        told: dict[str, Any] = {"modified": self.modified, "etag": self.etag, VALUES: dict(self.values) or None,
                                STATE: self.state or None, THROUGH: self.through, WHY: self.why}  # fmt: skip
        return AddFile(
            DATA_TREE, self.partition, str(lineage), self.path, "base", self.rows, self.bytes, lineage=lineage,
            extra={name: value for name, value in told.items() if value is not None},
        )  # fmt: skip


@dataclass(frozen=True)
class Listing:
    """The files of a source at one moment.

    :param version: what the source calls this state; ``None`` for plain files.
    :param fields: its columns, and its partition columns, where the source knows them; else those of the registration
        stay.
    """

    files: tuple[SourceFile, ...]
    version: str | None = None
    fields: tuple[Field, ...] | None = None
    partition_by: tuple[str, ...] | None = None


def check_distinct(location: str, files: Iterable[SourceFile]) -> None:
    """:raises StorageError: if two files share a path or an id, which would make one of them invisible."""
    paths: set[str] = set()
    ids: dict[int, str] = {}
    for file in files:
        other = file.path if file.path in paths else ids.get(file.lineage)
        if other is not None:
            raise StorageError(
                f"The source {location} lists {file.path} and {other}, which cannot be told apart.",
                outcome="Nothing was changed.",
                hint="List it again; if it stays so, rename or rewrite one of the two.",
            )
        paths.add(file.path)
        ids[file.lineage] = file.path
