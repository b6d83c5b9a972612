"""The proof of an erasure: every place below a table that can hold a value of a row, and a search through all of them.

:data:`PLACES` is the one list of these places: what each holds, and which step of an erasure takes a value out of it,
or why it stays. :func:`verify_erasure` reads every file of the table's folder and decodes it (the rows and dictionaries
of Parquet, records of skipping indexes, documents in JSON); it changes nothing and needs no Spark. It does not see what
is outside of the folder, such as backups.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from typing import Any

from spark_apps.actions.limits import (
    MAX_DOCUMENT_BYTES,
    MAX_FINDINGS,
    SEARCH_BATCH_ROWS,
    SEARCH_CHUNK_BYTES,
    SEARCH_THREADS,
)
from spark_apps.indexes.skipping import records
from spark_apps.layout.types import ColumnType
from spark_apps.mergetree.schema import quote
from spark_apps.mergetree.tree import Snapshot
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.predicates import Comparison, In, Predicate, walk
from spark_apps.storage.errors import InvalidPredicate, LakeIndexError, ObjectNotFound
from spark_apps.storage.parquet.files import open_file, read_footer
from spark_apps.storage.printing import Grid, Printed, View, size
from spark_apps.storage.store import ObjectInfo, ObjectStore, RangedFile, open_key
from spark_apps.timeline.files import DataFile

_WORD = re.compile(rb"[0-9A-Za-z_]")


# --- places -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ValuePlace:
    """A place below a table's folder in which values of rows can be.

    :param keys: matches the keys of its files, whole.
    :param holds: which values it can hold.
    :param removed_by: the step of an erasure after which an erased value is not there any more; empty where none is.
    :param stays: why a value can stay there, and until when; empty where it cannot.
    """

    name: str
    keys: re.Pattern[str]
    holds: str
    removed_by: str = ""
    stays: str = ""


def _place(name: str, keys: str, holds: str, removed_by: str = "", stays: str = "") -> ValuePlace:
    return ValuePlace(name, re.compile(keys, re.DOTALL), holds, removed_by, stays)


_CHECKSUM = r"(?:.*/)?\.[^/]+\.crc"

PLACES = (
    _place("checksums", _CHECKSUM, "checksums, from which no value can be read"),
    _place(
        "kept deletes", r"data/(?:.*/)?tombstones/.*",
        "keys and orderings of deletes that compactions keep, where tables are merged by an ordering column",
        "clean(tombstones=True), with the clean of the rows",
        "otherwise until their time is over (tombstone_days)",
    ),
    _place(
        "rows", r"data/.*", "the rows, deletes with the keys of rows that went, and bounds in the footers of both",
        "compact(mode='full'), then clean(retain_versions=1, retain_seconds=0, published_log=True)",
    ),
    _place(
        "index files", r"_index/indexes/.*",
        "keys, indexed and included columns, values of expressions, bounds, values and parts of values (ngrams) of "
        "skipping indexes; hashes and Bloom filters, from which no value can be read",
        "refresh_index(name) and compact(name, mode='full') of each index, then the clean of the rows",
    ),
    _place(
        "published log", r"_delta_log/.*", "bounds and partition values of published files",
        "clean(published_log=True), which writes a checkpoint and removes what is older",
        "the partition values of rows that are left",
    ),
    _place("published deletes", r"_deletion_vectors/.*", "positions of rows, no values"),
    _place(
        "query log", r"_index/queries/.*", "the literals of predicates that were asked",
        "clean(query_log=True); a process that still runs may write its lines of the last half minute",
    ),
    _place(
        "commits", r"_index/timeline/[0-9]{20}\.json", "partition values",
        stays="no commit is ever deleted: partition by no column that names a person",
    ),
    _place(
        "checkpoints", r"_index/timeline/checkpoints/.*", "partition values", stays="as in the commits that they fold"
    ),
    _place("long commits", r"_index/sidecars/.*", "partition values", stays="as in the commits that list them"),
    _place(
        "bucket rules", r"_index/hashing/.*", "partition values in rules and counts",
        stays="they are the rules and counts of partitions: partition by no column that names a person",
    ),
    _place("transactions", r"_index/transactions/.*", "partition values of what is staged",
           "clean, once the transaction has ended"),
    _place("jobs", r"_index/jobs/.*", "messages of jobs that run or ran", "the end of the job, or a day after it"),
    _place("maintenance", r"_index/maintenance/.*", "figures of nightly work, no values of rows"),
    _place("note to people", r"_index/README\.txt", "one fixed text"),
)  # fmt: skip
"""Every place below a table's folder, the first that matches a key counts."""

UNKNOWN_PLACE = _place("unknown files", ".*", "unknown", stays="this package did not write them: ask who did")


def place_of(key: str) -> ValuePlace:
    """Return the place to which a file below a table's folder belongs."""
    return next((place for place in PLACES if place.keys.fullmatch(key)), UNKNOWN_PLACE)


# --- the report -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """A file that holds a value which was looked for.

    :param where: in which part of it: ``rows``, ``dictionary``, ``records``, ``text`` or ``bytes``.
    """

    place: str
    path: str
    value: str
    where: str


@dataclass(frozen=True, repr=False)
class ErasureReport(Printed):
    """The result of a search for values in all files below a table's folder.

    :param files: place -> how many files of it were read.
    :param findings: the files that hold a value, :data:`MAX_FINDINGS` of them at most.
    :param found: place -> how many of its files hold one.
    :param unread: path -> why a file could not be decoded. Its bytes were searched all the same.
    """

    uri: str
    version: int
    values: tuple[str, ...]
    files: Mapping[str, int]
    bytes: int
    findings: tuple[Finding, ...] = ()
    found: Mapping[str, int] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """True if every file was read and none holds a value that was looked for."""
        return not self.found and not self.unread

    def to_dict(self) -> dict[str, Any]:
        """Return plain types, for JSON and XCom; the values themselves are left out."""
        findings = [{k: v for k, v in asdict(finding).items() if k != "value"} for finding in self.findings]
        return {
            "uri": self.uri, "version": self.version, "values": len(self.values), "files": dict(self.files),
            "bytes": self.bytes, "findings": findings, "found": dict(self.found), "unread": dict(self.unread),
            "ok": self.ok,
        }  # fmt: skip

    def view(self) -> View:
        places = {place.name: place for place in (*PLACES, UNKNOWN_PLACE)}
        rows = [
            (name, number, self.found.get(name, 0) or "none", (places[name].removed_by or places[name].stays))
            for name, number in self.files.items()
        ]
        heading = "erased: no file holds a value" if self.ok else "not erased"
        facts = [("files", sum(self.files.values())), ("bytes", size(self.bytes)), ("values", len(self.values))]
        grids = [Grid(("place", "files", "hold a value", "removed by, or why it stays"), rows)]
        if self.findings:
            grids.append(Grid(("place", "file", "in its"), [(f.place, f.path, f.where) for f in self.findings]))
        if self.unread:
            grids.append(Grid(("file that could not be decoded", "why"), list(self.unread.items())))
        return View(f"{self.uri} version {self.version}: {heading}", facts, grids)


# --- what is looked for -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sought:
    """A value that is looked for.

    :param column: the column that held it; ``None`` for a text that may have been in any.
    :param stored: the name of that column in files.
    """

    value: Any
    column: str | None = None
    stored: str | None = None

    @property
    def text(self) -> str:
        """The value as documents have it."""
        return self.value.decode(errors="replace") if isinstance(self.value, bytes) else str(self.value)

    @property
    def is_text(self) -> bool:
        return isinstance(self.value, str | bytes)

    def patterns(self) -> Iterator[re.Pattern[bytes]]:
        """Yield what finds the value in the bytes of a document: as it is, and as JSON escapes it."""
        raw = self.value if isinstance(self.value, bytes) else self.text.encode(errors="surrogatepass")
        spellings = {raw, json.dumps(self.text)[1:-1].encode(), json.dumps(json.dumps(self.text)[1:-1])[1:-1].encode()}
        for spelling in spellings:
            before = rb"(?<![0-9A-Za-z_])" if _WORD.match(spelling[:1]) else b""
            after = rb"(?![0-9A-Za-z_])" if _WORD.match(spelling[-1:]) else b""
            if not self.is_text:
                before, after = rb"(?<![0-9A-Za-z_.\-])", rb"(?![0-9A-Za-z_]|\.[0-9])"
            yield re.compile(before + re.escape(spelling) + after, re.IGNORECASE)


def sought_of(snapshot: Snapshot, where: str | None, values: Iterable[Any] = ()) -> tuple[Sought, ...]:
    """Return the values to look for: those that a predicate compares columns with, and further texts.

    :raises InvalidPredicate: if there are none.
    """
    found: dict[Any, Sought] = {}
    stored = {each.name: each.stored_name for each in snapshot.table.fields}
    if where is not None:
        for column, literal in _compared(parse_predicate(where, snapshot.data.types)):
            found[column, repr(literal)] = Sought(literal, column, stored.get(column))
    for value in values:
        if not isinstance(value, str | bytes) or not value:
            raise InvalidPredicate(
                f"The value {value!r} is no text, so it can be looked for in a column only.",
                hint="Give it by a predicate, as where='id = 17'.",
            )
        found[None, repr(value)] = Sought(value)
    if not found:
        raise InvalidPredicate(
            "No value is given that could be looked for."
            if where is None
            else f"The predicate {where!r} names no value that could be looked for.",
            hint="Give one that compares columns with values (=, IN), or the texts themselves as values=[…].",
        )
    return tuple(found.values())


def _compared(predicate: Predicate) -> Iterator[tuple[str, Any]]:
    """Yield the columns of a predicate with the values that it finds by equality."""
    for node in walk(predicate):
        if isinstance(node, Comparison):
            literals: Collection[Any] = (node.literal,) if node.op in ("=", "<=>") else ()
        elif isinstance(node, In):
            literals = node.values
        else:
            continue
        yield from ((node.column, literal) for literal in literals if literal is not None and literal != "")


# --- the search -------------------------------------------------------------------------------------------------------


def verify_erasure(snapshot: Snapshot, where: str | None = None, values: Iterable[Any] = ()) -> ErasureReport:
    """Search every file below the table's folder for values, and return which hold one.

    Texts are found in any case, as whole words, wherever they are; other values in the columns that held them, and in
    bounds of these. It reads all bytes below the folder once (of Parquet twice) in this process, so it costs what a
    copy of the table to this machine costs.

    :param where: the predicate by which rows were deleted: the values that it compares columns with are looked for.
    :param values: further texts that only the erased rows held, such as a name.
    :raises InvalidPredicate: if no value is given by either.
    :raises StorageUnavailable: if the store does not answer.
    """
    sought = sought_of(snapshot, where, values)
    store = snapshot.store
    infos = store.list("")
    search = _Search(store, sought)
    with ThreadPoolExecutor(SEARCH_THREADS, "erasure") as pool:
        results = list(pool.map(search.file, infos))
    files, found = Counter[str](), Counter[str]()
    findings: list[Finding] = []
    unread: dict[str, str] = {}
    for info, (hits, fault) in zip(infos, results, strict=True):
        place = place_of(info.key).name
        files[place] += 1
        found[place] += bool(hits)
        findings += [Finding(place, info.key, one.text, part) for one, part in hits.items()]
        if fault is not None:
            unread[info.key] = fault
    order = [place.name for place in (*PLACES, UNKNOWN_PLACE) if files[place.name]]
    return ErasureReport(
        store.uri, snapshot.state.version, tuple(one.text for one in sought), {name: files[name] for name in order},
        sum(info.size for info in infos), tuple(findings[:MAX_FINDINGS]),
        {name: found[name] for name in order if found[name]}, unread,
    )  # fmt: skip


Hits = dict[Sought, str]


class _Search:
    """The search for some values in single files of a store."""

    def __init__(self, store: ObjectStore, sought: Sequence[Sought]) -> None:
        self._store, self._sought = store, sought
        self._patterns = {one: tuple(one.patterns()) for one in sought}
        self._longest = max(len(pattern.pattern) for some in self._patterns.values() for pattern in some)

    def file(self, info: ObjectInfo) -> tuple[Hits, str | None]:
        """Return which values a file holds and where, and why it could not be decoded."""
        hits: Hits = {}
        opened = open_key(self._store, info.key, info.size, whole_below=0)
        try:
            self._bytes(opened, info.size, self._texts_of(info.key), hits)
            self._decoded(info, opened, hits)
        except ObjectNotFound:
            return {}, None  # removed meanwhile, as an old object of the query log is
        except (LakeIndexError, OSError, ValueError, RecursionError) as error:
            return hits, str(error).split("\n")[0][:300] or type(error).__name__
        return hits, None

    def _texts_of(self, key: str) -> list[Sought]:
        """Return what may be looked for in the bytes of a file: numbers only where literals are."""
        if key.startswith("_index/queries/"):
            return list(self._sought)
        return [one for one in self._sought if one.is_text]

    def _bytes(self, opened: RangedFile, length: int, sought: Sequence[Sought], hits: Hits) -> None:
        step = SEARCH_CHUNK_BYTES
        for start in range(0, length, step):
            begin = max(0, start - self._longest)
            chunk = opened.range(begin, min(length, start + step))
            for one in sought:
                if one not in hits and any(pattern.search(chunk) for pattern in self._patterns[one]):
                    hits[one] = "bytes"

    def _decoded(self, info: ObjectInfo, opened: RangedFile, hits: Hits) -> None:
        if info.key.endswith(".parquet"):
            self._parquet(opened, hits)
        elif info.key.endswith(".skipping"):
            self._records(info, hits)
        elif info.key.startswith("_delta_log/") and info.key.endswith(".json") and info.size <= MAX_DOCUMENT_BYTES:
            for line in opened.range(0, info.size).splitlines():
                self._bounds(json.loads(line), hits)

    # --- Parquet

    def _parquet(self, opened: RangedFile, hits: Hits) -> None:
        metadata = read_footer(opened)
        # With its dictionary a column also shows values that no row has any more.
        leaves = [metadata.schema.column(number) for number in range(metadata.num_columns)]
        texts = [leaf.path for leaf in leaves if leaf.physical_type == "BYTE_ARRAY"]
        file = open_file(opened, metadata, read_dictionary=texts)
        for batch in file.iter_batches(SEARCH_BATCH_ROWS, use_threads=False):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                for leaf in _leaves(column):
                    self._leaf(name, leaf, hits)
        if metadata.metadata:
            self._text(b"\n".join(metadata.metadata.values()), "text", hits)

    def _leaf(self, column: str, values: Any, hits: Hits) -> None:
        import pyarrow as pa

        part, texts = "rows", values
        if pa.types.is_dictionary(values.type):
            part, texts = "dictionary", values.dictionary
        textual = any(
            test(texts.type)
            for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary)
        )
        for one in self._sought:
            if one in hits and hits[one] != "bytes":
                continue
            if one.is_text:
                found = textual and self._in_texts(texts, one)
            else:
                found = column in (one.column, one.stored) and _has_value(texts, one.value)
            if found:
                hits[one] = part
        if textual and column == "add":
            for text in texts.drop_null().to_pylist():
                if isinstance(text, str | bytes) and text[:1] in ("{", b"{"):
                    self._bounds({"add": {"stats": text}}, hits)

    def _in_texts(self, texts: Any, one: Sought) -> bool:
        import pyarrow as pa
        import pyarrow.compute as pc

        raw = texts.cast(pa.large_binary())
        # Arrow leaves out nearly all of them, and folds the case of ASCII as the patterns do.
        needles = {one.value if isinstance(one.value, bytes) else one.text.encode(errors="surrogatepass")}
        needles.add(json.dumps(one.text)[1:-1].encode())
        for needle in needles:
            for value in raw.filter(pc.match_substring_regex(raw, b"(?i)" + re.escape(needle))).to_pylist():
                if any(pattern.search(value) for pattern in self._patterns[one]):
                    return True
        return False

    # --- other files

    def _text(self, data: bytes, part: str, hits: Hits) -> None:
        for one in self._sought:
            if one.is_text and one not in hits and any(pattern.search(data) for pattern in self._patterns[one]):
                hits[one] = part

    def _records(self, info: ObjectInfo, hits: Hits) -> None:
        """Search what a skipping index keeps of files and row groups: bounds and lists of values."""
        opened = records.RecordFile(self._store, DataFile("", "", "", info.key, "base", 0, info.size, 0))
        for number, of_file in enumerate(opened.header.files):
            for columns in (of_file.columns, *(each.columns for each in opened.row_groups(number))):
                for key, kind, record in zip(opened.header.keys, opened.types, columns, strict=True):
                    held = [data for data in (record.low, record.high, *(record.values or ())) if data is not None]
                    self._recorded(key, kind, held, hits)

    def _recorded(self, key: str, kind: ColumnType, held: Sequence[bytes], hits: Hits) -> None:
        for one in self._sought:
            if one in hits:
                continue
            if one.is_text:
                found = any(pattern.search(data) for data in held for pattern in self._patterns[one])
            else:
                values = (records.value_from(data, kind) for data in held)
                found = key == quote(one.column or "") and one.value in values
            if found:
                hits[one] = "records"

    def _bounds(self, action: Any, hits: Hits) -> None:
        """Search the bounds that an action of a Delta log gives of a file."""
        added = action.get("add") if isinstance(action, dict) else None
        stats = json.loads(added["stats"]) if isinstance(added, dict) and added.get("stats") else {}
        for bounds in (stats.get("minValues"), stats.get("maxValues")) if isinstance(stats, dict) else ():
            for one in self._sought:
                held = bounds.get(one.stored or one.column) if isinstance(bounds, dict) and one.column else None
                if held is not None and one not in hits and (held == one.value or str(held) == one.text):
                    hits[one] = "bounds"


def _leaves(column: Any) -> Iterator[Any]:
    """Yield the arrays of values in a column, however nested."""
    import pyarrow as pa

    if pa.types.is_struct(column.type):
        for part in column.flatten():
            yield from _leaves(part)
    elif pa.types.is_map(column.type):
        yield from _leaves(column.keys)
        yield from _leaves(column.items)
    elif pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        yield from _leaves(column.flatten())
    else:
        yield column


def _has_value(values: Any, value: Any) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        return bool(pc.any(pc.equal(values, pa.scalar(value).cast(values.type))).as_py())
    except (pa.ArrowException, TypeError, OverflowError):
        # No value of this type can be equal.
        return False
