"""Coverage: the data files of which an index that addresses files holds entries, by lineage, with the columns of each.

That is written down in ``AddFile.extra["covers"]`` of one small file a stage, the carrier, which holds nothing else: it
comes and goes with the commits that write entries, so that a restored version knows what it knew. Entries of files
that are gone are void wherever they still are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec

from spark_apps.mergetree.tree import Snapshot
from spark_apps.mergetree.write import lineage as id_of
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.files import DataFile, GroupKey, lowest_plain_file
from spark_apps.timeline.model import COVERS, AddFile

LINEAGE = "__index_lineage"
"""Column of entries: the lineage of the data file that a row was read from."""

CARRIER_GROUP = "coverage"
"""File group of the carriers."""


@dataclass(frozen=True)
class Part:
    """Data files whose entries were written together, with the same columns.

    :param stage: what wrote them; entry files name the stages whose entries they can hold.
    :param columns: the columns that the index holds of these files.
    :param lacks: columns that these files were found to lack (or to hold no value in): they are null in their rows.
    :param lineages: the files, with their bytes.
    :param dropped: files that are gone and of whose entries a compaction took some away, not all: neither covered, nor
        to be indexed again before the rest of them is out.
    """

    stage: str
    columns: tuple[str, ...]
    lacks: tuple[str, ...]
    lineages: Mapping[int, int]
    dropped: frozenset[int] = frozenset()

    @cached_property
    def known(self) -> frozenset[str]:
        """The columns whose values the index knows, in lower case."""
        return frozenset(name.lower() for name in (*self.columns, *self.lacks))

    def to_extra(self) -> dict[str, Any]:
        """Return the form in which a carrier keeps this."""
        extra: dict[str, Any] = {
            "stage": self.stage,
            "columns": list(self.columns),
            "lacks": list(self.lacks),
            "lineages": list(self.lineages),
            "bytes": list(self.lineages.values()),
        }
        return extra if not self.dropped else {**extra, "dropped": sorted(self.dropped)}

    @classmethod
    def of(cls, extra: Mapping[str, Any]) -> Part:
        """Return a part as a carrier keeps it."""
        lineages = extra["lineages"]
        sizes = extra.get("bytes") or [0] * len(lineages)
        return cls(
            str(extra.get("stage", "")),
            tuple(extra["columns"]),
            tuple(extra.get("lacks", ())),
            dict(zip(lineages, sizes, strict=True)),
            frozenset(extra.get("dropped", ())),
        )


class Coverage:
    """The data files that an index covers.

    :param parts: what each file of the index covers. Data files are named by their ``lineage``, the id of their
        contents.
    """

    def __init__(self, parts: Iterable[Part] = ()) -> None:
        self.parts = tuple(part for part in parts if part.lineages or part.dropped)
        self._by_lineage = {lineage: part for part in self.parts for lineage in part.lineages}

    @classmethod
    def of(cls, files: Iterable[DataFile | AddFile]) -> Coverage:
        """Return what the files of an index cover, entry files and carriers alike."""
        return cls(Part.of(part) for file in files if file.extra for part in file.extra.get(COVERS, ()))

    @classmethod
    def single(
        cls, stage: str, columns: Iterable[str], lacks: Iterable[str] | None, files: Iterable[DataFile]
    ) -> Coverage:
        """Return the coverage of data files whose entries one stage wrote with the same columns.

        They lack the same others.

        :param lacks: the columns that no file has; ``None`` where that is not known.
        """
        sizes = {file.lineage: file.bytes for file in files}
        return cls([Part(stage, tuple(columns), tuple(lacks or ()), sizes)])

    def __or__(self, other: Coverage) -> Coverage:
        return Coverage((*self.parts, *other.parts))

    def __bool__(self) -> bool:
        return bool(self.parts)

    @cached_property
    def lineages(self) -> frozenset[int]:
        """The data files covered."""
        return frozenset(self._by_lineage)

    @property
    def dropped(self) -> frozenset[int]:
        """The files that are gone and of whose entries some may be left; see :attr:`Part.dropped`."""
        return frozenset(lineage for part in self.parts for lineage in part.dropped)

    @property
    def stages(self) -> frozenset[str]:
        return frozenset(part.stage for part in self.parts)

    def columns(self, lineage: int) -> tuple[str, ...]:
        """Return the columns that the index holds of a file that it covers."""
        return self._by_lineage[lineage].columns

    def bytes(self, lineage: int) -> int:
        """Return the size of a data file that the index covers, gone or not."""
        return self._by_lineage[lineage].lineages[lineage]

    def stage(self, lineage: int) -> str:
        """Return the stage that wrote the entries of a file."""
        return self._by_lineage[lineage].stage

    def part(self, lineage: int) -> Part | None:
        """Return the part that a data file is of, ``None`` if it is not covered."""
        return self._by_lineage.get(lineage)

    def answers(self, lineage: int, column: str) -> bool:
        """Return whether the index knows the values of a column in a file.

        It holds them, or the file lacks the column, so that they are null.
        """
        part = self._by_lineage.get(lineage)
        return part is not None and column.lower() in part.known

    def without(self, lineages: Collection[int]) -> Coverage:
        """Return the coverage of the other files; nothing remains known of these.

        :param lineages: of the files.
        """
        gone = frozenset(lineages)
        return Coverage(
            replace(
                part,
                lineages={lineage: size for lineage, size in part.lineages.items() if lineage not in gone},
                dropped=part.dropped - gone,
            )
            for part in self.parts
        )

    def voiding(self, lineages: Collection[int]) -> Coverage:
        """Return the coverage of the other files, which remembers that entries of these may still exist.

        :param lineages: of the files.
        """
        gone = frozenset(lineages)
        return Coverage(
            replace(
                part,
                lineages={lineage: size for lineage, size in part.lineages.items() if lineage not in gone},
                dropped=part.dropped | (gone & part.lineages.keys()),
            )
            for part in self.parts
        )

    def to_extra(self) -> dict[str, Any]:
        """Return the value of :attr:`AddFile.extra` of a carrier."""
        return {COVERS: [part.to_extra() for part in self.parts]}


def indexable(snapshot: Snapshot) -> dict[GroupKey, DataFile]:
    """Return of each file group the file that an index which addresses files can cover.

    That is the lowest, if it is plain; of a registered source every file.

    :param snapshot: the version that is worked on.
    """
    lowest = {group: lowest_plain_file(files) for group, files in snapshot.groups().items()}
    return {group: file for group, file in lowest.items() if file is not None}


def is_carrier(file: DataFile | AddFile) -> bool:
    """Return whether a file of an index keeps its coverage, and holds no entries."""
    return file.group == CARRIER_GROUP


def entry_files(files: Iterable[DataFile]) -> list[DataFile]:
    """Return the files of an index that hold entries."""
    return [file for file in files if not is_carrier(file)]


def carriers(files: Iterable[DataFile]) -> list[DataFile]:
    """Return the files of an index that keep its coverage."""
    return [file for file in files if is_carrier(file)]


def carrier(store: ObjectStore, tree: str, directory: str, coverage: Coverage, sequence_number: int) -> AddFile:
    """Stage a carrier.

    :param tree: the index's.
    :param directory: key of a folder of this attempt that holds no other carrier.
    :param sequence_number: the version that the entries are of.
    """
    extra = coverage.to_extra()
    path = f"{directory}/coverage.json"
    data = msgspec.json.encode(extra)
    store.put(path, data)
    return AddFile(tree, "", CARRIER_GROUP, path, "base", 0, len(data), sequence_number, 0, id_of(path), extra)


def stage_id(directory: str) -> str:
    """Return a short name for what is written into a folder, for :attr:`Part.stage`.

    :param directory: that an attempt stages its files in.
    """
    return f"{id_of(directory):016x}"[:12]
