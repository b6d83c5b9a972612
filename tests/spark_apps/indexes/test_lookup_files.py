"""Entries looked up in files of every form that a writer may give them, beside a plain dictionary of the same rows."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps.indexes.handler import PARTITION
from spark_apps.indexes.keyed import lookup
from spark_apps.indexes.keyed.matching import comparable_type
from spark_apps.layout.hashing import bucket_id
from spark_apps.layout.types import parse_type
from spark_apps.mergetree.tree import DELETED, Tree
from spark_apps.storage.errors import StorageError
from spark_apps.storage.parquet import listed
from spark_apps.storage.parquet.files import footer_bytes
from spark_apps.storage.parquet.pages import snappy_begin
from spark_apps.storage.store import Store
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import Field
from spark_apps.timeline.state import State

SHARDS = 3
_UTC = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
VALUES: dict[str, list[Any]] = {
    "string": [f"key-{n:05}" for n in range(300)],
    "odd string": ["é" * (n % 7) + "\0" * (n % 3) + str(n) for n in range(300)],
    "alike string": [f"the same before {n % 40} and between them {n:05}" for n in range(300)],
    "even binary": [bytes([n // 256, n % 256, 0, n % 2 and 7]) for n in range(300)],
    "binary": [bytes([n % 256, 0]) * (n % 4) for n in range(300)],
    "tinyint": list(range(-100, 100)),
    "smallint": list(range(-150, 150)),
    "int": list(range(-(2**31), -(2**31) + 100)) + list(range(200)),
    "bigint": [n * (2**55) for n in range(-128, 127)],
    "boolean": [True, False],
    "date": [dt.date(1969, 6, 1) + dt.timedelta(days=n) for n in range(300)],
    "timestamp": [_UTC + dt.timedelta(microseconds=n * 7) for n in range(300)],
    "timestamp_ntz": [(_UTC + dt.timedelta(microseconds=n * 7)).replace(tzinfo=None) for n in range(300)],
    "decimal(9,2)": [Decimal(n).scaleb(-2) for n in range(-150, 150)],
    "decimal(30,5)": [Decimal(n * 10**22).scaleb(-5) for n in range(-150, 150)],
    "double": [n / 8 for n in range(-150, 150)],
}
FORMS: dict[str, dict[str, Any]] = {
    "as written here": {"compression": "snappy", "use_dictionary": [PARTITION]},
    "with dictionaries": {"compression": "zstd"},
    "not compressed": {"compression": "none", "use_dictionary": False},
    "newer pages": {"compression": "snappy", "use_dictionary": False, "data_page_version": "2.0"},
}
WRITTEN = [*((form, True) for form in FORMS), ("as written here", False)]
CASES = [((kind,), False) for kind in VALUES] + [
    (("string",), True),
    (("bigint",), True),
    (("int", "odd string"), True),
]


@pytest.fixture(params=["columns", "pages"], autouse=True)
def read_as(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of a few hundred rows are read as a whole for any number of keys, unless told otherwise."""
    if request.param == "pages":
        monkeypatch.setattr(lookup, "MIN_ROWS_PER_KEY", 0)


class _Files:
    """A tree in files that pyarrow wrote, and its live entries as a dictionary."""

    def __init__(self, folder: Path, kinds: tuple[str, ...], nulls: bool, unique: bool, form: dict[str, Any]) -> None:
        self.store, self.state, self.form, self.folder = Store(folder), State(), form, folder
        self.drawn, names = kinds, tuple(f"c{n}" for n in range(len(kinds)))
        self.kinds = kinds = tuple(kind.rpartition(" ")[2] for kind in kinds)
        types = [Field(name, kind, nullable=nulls) for name, kind in zip(names, kinds, strict=True)]
        more = [Field(name, "string", nullable=False) for name in ("id", PARTITION)]
        key = names if unique else (*names, "id")
        self.tree = Tree("index/i@1", (*types, *(more[1:] if unique else more)), key, names)
        self.unique, self.nulls, self.files, self.live = unique, nulls, [], {}  # type: ignore[var-annotated]
        r = random.Random(str(kinds))
        for place in range(3):
            self._write(r, place, 500 if not place else 60)

    def groups(self, _tree: str) -> dict[tuple[str, str], list[DataFile]]:
        return {("", str(n)): [f for f in self.files if f.group == str(n)] for n in range(SHARDS)}

    def _write(self, r: random.Random, place: int, count: int) -> None:
        rows = {}
        for n in range(count):
            key = tuple(None if self.nulls and r.random() < 0.1 else r.choice(VALUES[kind]) for kind in self.drawn)
            rows[key if self.unique else (*key, f"id{r.randrange(40):03}{n % 2}")] = f"p={r.randrange(9)}"
        gone = {key for key in rows if place and r.random() < 0.4}
        for key, partition in rows.items():
            self.live[key] = partition
        for key in gone:
            del self.live[key]
        width = len(self.kinds)
        by_shard: dict[int, list[tuple[Any, ...]]] = {}
        for key in sorted(rows, key=lambda key: [(v is not None, v) for v in key]):
            by_shard.setdefault(bucket_id(key[:width], SHARDS, "xxhash64", self.kinds), []).append(key)
        for shard, keys in by_shard.items():
            self._file(place, shard, keys, [rows[key] for key in keys], [True if key in gone else None for key in keys])

    def _file(self, place: int, shard: int, keys: list[Any], partitions: list[str], gone: list[Any]) -> None:
        types = [comparable_type(parse_type(kind)) for kind in [*self.kinds, "string"]]
        columns = [pa.array(values, type) for values, type in zip(zip(*keys, strict=True), types, strict=False)]
        fields = [pa.field(name, c.type, self.nulls) for name, c in zip(self.tree.key, columns, strict=True)]
        columns, fields = [*columns, pa.array(partitions)], [*fields, pa.field(PARTITION, pa.string(), False)]
        if place:
            columns, fields = [*columns, pa.array(gone, pa.bool_())], [*fields, pa.field(DELETED, pa.bool_())]
        name = f"{place}-{shard}.parquet"
        table = pa.table(columns, schema=pa.schema(fields))
        more = {"use_deprecated_int96_timestamps": "dictionary" in str(self.form)}
        pq.write_table(table, self.folder / name, row_group_size=20, data_page_size=64, write_batch_size=8,
                       write_page_checksum=True, **self.form, **more)  # fmt: skip
        size = (self.folder / name).stat().st_size
        kind: Any = "delta" if place else "base"
        self.files.append(DataFile(self.tree.name, "", str(shard), name, kind, len(keys), size, place))

    @property
    def snapshot(self) -> Any:
        return SimpleNamespace(store=self.store, state=self.state, groups=self.groups)


@pytest.mark.parametrize(("form", "unique"), WRITTEN, ids=str)
@pytest.mark.parametrize(("kinds", "nulls"), CASES, ids=str)
@pytest.mark.by_turn(8)
def test_given_files_then_the_entries_of_keys_are_those_written_last(
    tmp_path: Path, kinds: tuple[str, ...], nulls: bool, form: str, unique: bool
) -> None:
    files = _Files(tmp_path, kinds, nulls, unique, FORMS[form])
    width = len(kinds)
    known = sorted({key[:width] for key in files.live}, key=str)
    random.Random(1).shuffle(known)
    for asked in (known, known[:1], known[:3], known[:25], [*known[:80], *known[:80]], [(None,) * width], []):
        wanted = set(asked)
        expected = {key: partition for key, partition in files.live.items() if key[:width] in wanted}

        looked_up = lookup.lookup(files.snapshot, files.tree, asked, SHARDS)  # type: ignore[arg-type]

        assert len(looked_up.entries) == len(expected)
        assert {key: place[0] for key, place in looked_up.entries} == expected


def test_given_more_files_than_footers_are_kept_of_then_each_is_read_once_a_lookup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, footers = _Files(tmp_path, ("string",), False, True, FORMS["as written here"]), list[Any]()
    monkeypatch.setattr(listed, "MAX_CACHED_FOOTERS", 2)
    monkeypatch.setattr(listed, "FOOTERS", listed._Footers())
    monkeypatch.setattr(listed, "footer_bytes", lambda source: footers.append(source) or footer_bytes(source))

    looked_up = lookup.lookup(files.snapshot, files.tree, list(files.live), SHARDS)

    assert {key: place[0] for key, place in looked_up.entries} == files.live
    assert len(footers) == len(files.files) > 2


def _first_group(files: _Files) -> list[tuple[Any, ...]]:
    """Live keys, those of the first row group of the first file before all others."""
    held = pq.ParquetFile(files.folder / "0-0.parquet").read_row_group(0, ["c0"])["c0"].to_pylist()
    return sorted(files.live, key=lambda key: (key[0] not in held, key))


@pytest.mark.parametrize(
    ("form", "asked"),
    [("as written here", slice(5, 6)), ("as written here", slice(200)), ("not compressed", slice(200))],
    ids=["one", "many", "many, not compressed"],
)
@pytest.mark.by_turn(8)
def test_given_any_byte_of_the_keys_turned_over_then_nothing_is_told_wrongly(
    tmp_path: Path, form: str, asked: slice
) -> None:
    files = _Files(tmp_path, ("string",), False, True, FORMS[form])
    keys = _first_group(files)[asked]
    expected = {key: files.live[key] for key in keys}
    [base] = [file for file in files.files if file.path == "0-0.parquet"]
    whole = (tmp_path / base.path).read_bytes()
    chunk = pq.read_metadata(tmp_path / base.path).row_group(0).column(0)
    start, detected = chunk.data_page_offset, 0
    for place in range(start, start + chunk.total_compressed_size, 2):
        files.state = State()
        (tmp_path / base.path).write_bytes(whole[:place] + bytes([whole[place] ^ 0x41]) + whole[place + 1 :])
        try:
            looked_up = lookup.lookup(files.snapshot, files.tree, keys, SHARDS)
        except StorageError as error:
            assert base.path in error.message
            detected += 1
        else:
            assert {key: entry[0] for key, entry in looked_up.entries} == expected
    assert detected


def test_given_compressed_bytes_then_their_begin_is_what_was_compressed() -> None:
    r, codec = random.Random(1), pa.Codec("snappy")
    for _ in range(300):
        pieces = [r.randbytes(r.randrange(90)), b"ab" * r.randrange(50), b"key"]
        raw = b"".join(r.choice(pieces) for _ in range(r.randrange(1, 300)))
        stored = memoryview(codec.compress(raw, asbytes=True))
        for size in (1, 4, 40, 700):
            begin = bytes(snappy_begin(stored, size))
            assert raw.startswith(begin) and len(begin) >= min(size, len(raw))
