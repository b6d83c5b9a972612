"""The indexes that a Hudi table has of its own, as its folder ``.hoodie`` says them: neither Hudi nor Spark is needed.

``hoodie.properties`` lists the partitions of the metadata table that are complete, and those that are being built;
``.hoodie/.index_defs/index.json`` has the definitions of secondary and expression indexes. The two may disagree: a
``CREATE INDEX`` that was refused leaves a definition without a partition, and a writer without an index's setting
removes a partition silently. Rules of the bucket index are below ``.hoodie/.bucket_index``. What is read here was
written by others and is bounded and checked. What makes and drops such indexes is
:mod:`spark_apps.actions.hudi_indexing`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from spark_apps.storage.documents import decode, fetch, prepare
from spark_apps.storage.errors import LeadsOutside, LogDamaged, ObjectNotFound, ObjectTooLarge, TableNotFound
from spark_apps.storage.printing import printable
from spark_apps.storage.store import ObjectStore
from spark_apps.timeline.field_types import Buckets, Label, Words
from spark_apps.timeline.model import DATA_TREE, HUDI, IndexDefinition, Struct
from spark_apps.timeline.state import State
from spark_apps.timeline.statistics import PartitionStatistics

FOLDER = ".hoodie"
PROPERTIES = f"{FOLDER}/hoodie.properties"
CONFIGS = f"{FOLDER}/.bucket_index/partition_bucket_index_meta/configs"
"""Where the bucket index keeps its rules, ``<instant>.hashing_config`` each."""

KINDS = ("hudi:record", "hudi:secondary", "hudi:column_stats", "hudi:bloom_filters", "hudi:expression")
"""The kinds of Hudi's own indexes, by the names that operators and ``create_index`` take."""

NOT_COMPARED = frozenset({"hudi:bloom_filters", "hudi:expression"})
"""Kinds whose entries name files by hashes alone, so that they cannot be compared with rows."""

MAX_PROPERTIES_BYTES = 1 << 20
MAX_DEFINITIONS_BYTES = 4 << 20
MAX_CONFIG_BYTES = 1 << 20
MAX_PARTITIONS = 10_000
"""Partitions of a metadata table: one an index, and a few of Hudi's own."""
MAX_CONFIGS = 1000

_SECONDARY, _EXPRESSION = "secondary_index_", "expr_index_"
_FIXED = {"hudi:record": "record_index", "hudi:column_stats": "column_stats", "hudi:bloom_filters": "bloom_filters"}
_OTHERS = frozenset({"files", "partition_stats"})
"""Partitions that are no index of a name: the list of files, and statistics that come and go with ``column_stats``."""

_DEFINITIONS = ".index_defs/index.json"
_BELOW_FOLDER = re.compile(r"\.hoodie/(?!.*\.\.)[A-Za-z0-9_.\-]{1,100}(?:/[A-Za-z0-9_.\-]{1,100}){0,4}")
_PARTITION = re.compile(r"[A-Za-z0-9_\-.]{1,300}")
_BUCKET = re.compile(r"(?P<bucket>\d{8})-")
_CONFIG = re.compile(r"(?P<instant>\d{17})\.hashing_config")
_ESCAPED = re.compile(r"\\(.)")


class _Definition(msgspec.Struct, rename="camel"):
    """An index as Hudi's ``index.json`` defines it."""

    index_type: Label = ""
    index_function: Label | None = None
    source_fields: Annotated[list[Label], msgspec.Meta(max_length=1000)] = []
    index_options: dict[Label, Label] = {}


class _Definitions(msgspec.Struct, rename="camel"):
    index_definitions: dict[Label, _Definition] = {}


class BucketRule(Struct, frozen=True, rename="camel"):
    """A version of the rules of Hudi's bucket index (RFC-89), newest first where they are listed.

    ``expressions`` are ``pattern,count;…``, read by the engine ``rule``; partitions that none matches have
    ``default_bucket_number``. ``instant`` is that of the rescale that brought it.
    """

    default_bucket_number: Buckets
    expressions: Words = ""
    rule: Label = "regex"
    instant: Label = ""
    version: int = 0


prepare(_Definitions, BucketRule)


@dataclass(frozen=True)
class HudiIndex:
    """An index of Hudi's own.

    :param partition: of the metadata table, as ``secondary_index_by_city``.
    :param state: ``active``; ``building`` while Hudi lists the partition as inflight, or since a build was killed;
        ``refused`` for a definition that has no partition, which makes later writes fail until it is dropped.
    :param function: of an expression index, as ``lower``; :param using: its ``column_stats`` or ``bloom_filters``.
    """

    name: str
    kind: str
    partition: str
    columns: tuple[str, ...] = ()
    state: str = "active"
    function: str | None = None
    using: str | None = None
    options: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HudiIndexes:
    """The indexes of a table, as its folder says them.

    :param indexes: by partition of the metadata table.
    :param partitions: all partitions of the metadata table that are complete, ``files`` included.
    :param version: of the table's format.
    :param settings: ``hoodie.properties``.
    """

    indexes: dict[str, HudiIndex]
    partitions: frozenset[str]
    version: int
    record_key: tuple[str, ...]
    settings: dict[str, str]

    def of(self, definition: IndexDefinition) -> HudiIndex | None:
        """Return the index that a log of indexes defines, as the table has it; ``None`` where it has none."""
        return self.indexes.get(partition_of(definition.kind, definition.properties.get(NAME, definition.name)))

    def named(self, name: str) -> HudiIndex | None:
        """Return an index by its own name in Hudi, or by that of its partition."""
        found = [one for one in self.indexes.values() if name in (one.name, one.partition)]
        return found[0] if found else None


NAME = "hudi.name"
"""Property of a definition in the log: the name that the index has in Hudi, where that is another."""


def names_hudi(kind: str) -> bool:
    """Return whether a kind is one of Hudi's own, or was meant to be."""
    return kind.startswith(f"{HUDI}:")


def partition_of(kind: str, name: str) -> str:
    """Return the partition of the metadata table that an index has."""
    if kind in _FIXED:
        return _FIXED[kind]
    return f"{_SECONDARY if kind == 'hudi:secondary' else _EXPRESSION}{name}"


def read_properties(store: ObjectStore) -> dict[str, str]:
    """Return ``hoodie.properties`` of the table in a store's folder.

    :raises TableNotFound: if there is no table.
    :raises LogDamaged: if the file is larger than such files are.
    """
    if "://" not in store.uri and not Path(store.uri, FOLDER).is_dir():
        raise missing(store)  # a look must not leave a folder behind
    try:
        body = store.get(PROPERTIES, MAX_PROPERTIES_BYTES)
    except ObjectNotFound as error:
        raise missing(store) from error
    except (ObjectTooLarge, LeadsOutside) as error:
        raise LogDamaged(error.message) from error
    lines = (line.partition("=") for line in body.decode(errors="replace").splitlines() if line[:1] not in ("#", "!"))
    return {name.strip(): _ESCAPED.sub(r"\1", value.strip()) for name, _, value in lines if name.strip()}


def missing(store: ObjectStore) -> TableNotFound:
    """Return the error for a folder that holds no table."""
    return TableNotFound(f"There is no Hudi table at {store.uri}.", hint="Check the location.")


def table_version(settings: dict[str, str], store: ObjectStore) -> int:
    """Return the version of a table's format. :raises LogDamaged: if it is none."""
    version = settings.get("hoodie.table.version", "0")
    if not (version.isdecimal() and len(version) < 5):
        raise LogDamaged(f"{store.uri}/{PROPERTIES} has the version {printable(version[:40])!r}.")
    return int(version)


def read_indexes(store: ObjectStore) -> HudiIndexes:
    """Return the indexes of the table in a store's folder, by two requests.

    :raises TableNotFound: if there is no table.
    :raises LogDamaged: if what it says of them cannot be read.
    :raises StorageUnavailable: if the store does not answer.
    """
    settings = read_properties(store)
    complete = _partitions(settings, "hoodie.table.metadata.partitions", store)
    inflight = _partitions(settings, "hoodie.table.metadata.partitions.inflight", store)
    definitions = _definitions(settings, store)
    found: dict[str, HudiIndex] = {}
    # A definition whose partition is not there is what breaks writes: it is an index too, of another state.
    for partition in dict.fromkeys((*complete, *inflight, *definitions)):
        kind, name = _kind_of(partition, definitions.get(partition))
        if kind is None:
            continue
        state = "active" if partition in complete else "building" if partition in inflight else "refused"
        if state == "refused" and kind in _FIXED:
            continue  # Hudi keeps definitions of these beside the partition, which a write makes anew
        said = definitions.get(partition, _Definition())
        found[partition] = HudiIndex(
            name, kind, partition, tuple(said.source_fields), state,
            said.index_function if kind == "hudi:expression" else None,
            said.index_type if kind == "hudi:expression" else None, dict(said.index_options),
        )  # fmt: skip
    keys = tuple(key for key in settings.get("hoodie.table.recordkey.fields", "").split(",") if key)
    return HudiIndexes(found, frozenset(complete), table_version(settings, store), keys, settings)


def _kind_of(partition: str, said: _Definition | None) -> tuple[str | None, str]:
    if partition in _OTHERS:
        return None, partition
    for kind, fixed in _FIXED.items():
        if partition == fixed:
            return kind, partition
    for kind, prefix in (("hudi:secondary", _SECONDARY), ("hudi:expression", _EXPRESSION)):
        if partition.startswith(prefix):
            return kind, partition.removeprefix(prefix)
    return (None, partition) if said is None or not said.index_type else (f"{HUDI}:{said.index_type}", partition)


def _partitions(settings: dict[str, str], name: str, store: ObjectStore) -> list[str]:
    parts = [part for part in settings.get(name, "").split(",") if part]
    wrong = next((part for part in parts if _PARTITION.fullmatch(part) is None), None)
    if wrong is not None or len(parts) > MAX_PARTITIONS:
        what = f"{len(parts):,} partitions" if wrong is None else f"the partition {printable(wrong[:100])!r}"
        raise LogDamaged(f"{store.uri}/{PROPERTIES} has {what} of a metadata table.")
    return parts


def _definitions(settings: dict[str, str], store: ObjectStore) -> dict[str, _Definition]:
    path = settings.get("hoodie.table.index.defs.path") or f"{FOLDER}/{_DEFINITIONS}"
    if _BELOW_FOLDER.fullmatch(path) is None:
        raise LogDamaged(
            f"{store.uri}/{PROPERTIES} has its definitions of indexes at {printable(path[:200])!r}, which is no file "
            f"of {FOLDER}.",
            hint="See who wrote it.",
        )
    try:
        said, _ = fetch(store, path, _Definitions, MAX_DEFINITIONS_BYTES)
    except ObjectNotFound:
        return {}
    wrong = next((name for name in said.index_definitions if _PARTITION.fullmatch(name) is None), None)
    if wrong is not None:
        raise LogDamaged(f"{store.uri}/{path} has the index {printable(wrong[:100])!r}.")
    return said.index_definitions


def buckets_of(state: State, partition: str, count: int) -> PartitionStatistics:
    """Return the sizes of a partition's buckets, by the files that a log lists of it as of its last refresh.

    A file group of the bucket index begins with the eight digits of its bucket. The log knows no partitions of a Hudi
    table.

    :param partition: its path below the table, as Hudi says it. :param count: buckets that it has by the rules.
    """
    files = [file for file in state.files(DATA_TREE) if f"/{partition}/" in file.path]
    sizes = dict.fromkeys(range(count), 0)
    for file in files:
        found = _BUCKET.match(file.path.rpartition("/")[2])
        bucket = int(found["bucket"]) if found is not None else 0
        sizes[bucket] = sizes.get(bucket, 0) + file.bytes
    rows = sum(max(file.rows, 0) for file in files)
    each = tuple(sizes[bucket] for bucket in sorted(sizes))
    return PartitionStatistics(partition, count, len(files), sum(each), rows, each)


def read_rules(store: ObjectStore) -> list[BucketRule]:
    """Return the rules of the table's bucket index, the newest first; none where it has one count for all partitions.

    :raises LogDamaged: if they cannot be read.
    """
    keys = [info.key for info in store.list(CONFIGS) if _CONFIG.fullmatch(info.key.rpartition("/")[2])]
    rules = []
    for key in sorted(keys, reverse=True)[:MAX_CONFIGS]:
        try:
            body = store.get(key, MAX_CONFIG_BYTES)
        except (ObjectTooLarge, LeadsOutside) as error:
            raise LogDamaged(error.message) from error
        except ObjectNotFound:
            continue  # archived since
        rules.append(decode(body, BucketRule, f"{store.uri}/{key}"))
    return rules
