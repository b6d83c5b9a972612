"""What a person who can write a table's folder, and nothing else, tried: each is refused by name, and nothing outside
of the table is opened, written or deleted."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xxhash

from spark_apps.storage.errors import InvalidInput, LeadsOutside, LogDamaged
from spark_apps.storage.store import Store
from spark_apps.timeline import log
from spark_apps.timeline.cleaning import clean
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.log import Timeline, commit_key
from spark_apps.timeline.model import (
    DATA_TREE,
    AddFile,
    Field,
    IndexDefinition,
    PutIndex,
    PutPartition,
    SourceDefinition,
    TableDefinition,
    Write,
    partition_scope,
)
from spark_apps.timeline.transactions import begin

pytestmark = pytest.mark.by_turn(6)

TABLE = TableDefinition("t", (Field("id", "bigint", False),), ("id",))
INDEX = PutIndex(IndexDefinition("by_id", "secondary", ("id",), "1"))
ADDED = AddFile(DATA_TREE, "", "0", "data/load.1/work/part-0.parquet", "delta", 1, 4)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "table")
    create_table(store, TABLE, [INDEX])
    return store


def plant(store: Store, **changed: object) -> None:
    """Writes version 1, as nobody of us would."""
    commit = {"format": 1, "version": 1, "instant": "20990101000000000", "operation": "upsert", "txn_id": "load",
              "attempt": 1, "base": 0, **changed}  # fmt: skip
    store.put(commit_key(1), msgspec.json.encode(commit))


def added(**changed: object) -> dict[str, object]:
    return {**msgspec.to_builtins(ADDED), **changed}


PATHS = (
    "/etc/passwd", "file:///etc/passwd", "../../other/data/a.parquet", "data/../../other/a.parquet", "data/a/../../b",
    "s3://other/data/a.parquet", "data//a", "data/", "data", "", "_index/timeline/00000000000000000000.json",
    "data/.a/b", "data/a\x00b", "data/a\nb", "data/a\\..\\b", "data/%2e%2e/b", "data/a b", "data/ä", "hdfs://x/y",
    "data/./a", "C:\\x", "_index/indexes/../timeline/x", "data/a/..", "data/a/", "~/x", "data/" + "a" * 20_000,
)  # fmt: skip


@pytest.mark.by_turn(1)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: repr(path[:40]))
@pytest.mark.parametrize("tree", ["data", "index/by_id@1"])
def test_given_a_path_that_is_none_of_the_table_when_read_then_refused_by_name(
    tree: str, path: str, store: Store
) -> None:
    plant(store, actions=[added(tree=tree, path=path)])
    with pytest.raises(LogDamaged, match=r"path") as refused:
        Timeline.load(store)
    assert store.uri in str(refused.value)


@pytest.mark.parametrize("path", ["/etc/passwd", "file:///etc/passwd", "data/../../x", "_index/indexes/by_id/a"])
def test_given_a_path_that_nobody_would_read_when_committed_then_nothing_is_written(path: str, store: Store) -> None:
    timeline = Timeline.load(store)
    transaction = begin(timeline, operation="upsert")
    with pytest.raises(InvalidInput, match="path"):
        transaction.commit(
            [PutPartition(""), msgspec.structs.replace(ADDED, path=path)], writes=(Write(partition_scope("")),)
        )
    assert Timeline.load(store).head.version == 0


@pytest.mark.parametrize(
    ("form", "location", "path", "fits"),
    [
        ("parquet", "/lake/raw", "file:///lake/raw/a b/ä.parquet", True),
        ("parquet", "/lake/raw", "file:///lake/raw2/a.parquet", False),
        ("parquet", "/lake/raw", "file:///lake/raw/../secret/a.parquet", False),
        ("parquet", "/lake/raw", "/lake/raw/a.parquet", False),
        ("parquet", "/lake/raw", "data/load.1/a.parquet", False),
        ("csv", "s3://lake/raw", "s3://lake/raw/a..b.csv", True),
        ("csv", "s3://lake/raw", "s3://other/raw/a.csv", False),
        ("json", "/lake/raw/a.json", "file:///lake/raw/a.json", True),
        ("parquet", "/lake/raw/*/x?", "file:///lake/raw/7/x1/a", True),
        ("parquet", "/lake/raw/*/x?", "file:///lake/secret/a", False),
        ("delta", "/lake/raw", "file:///etc/passwd", False),
        ("iceberg", "/lake/raw", "s3://elsewhere/a.parquet", True),
        ("iceberg", "/lake/raw", "a.parquet", False),
    ],
)
def test_the_files_of_a_source_lie_below_its_location(
    form: str, location: str, path: str, fits: bool, tmp_path: Path
) -> None:
    store = Store(tmp_path / "log")
    create_table(store, msgspec.structs.replace(TABLE, record_key=(), source=SourceDefinition(form, location)))
    plant(store, actions=[added(path=path)])
    if fits:
        assert [file.path for file in Timeline.load(store).head.files(DATA_TREE)] == [path]
    else:
        with pytest.raises(LogDamaged, match="path"):
            Timeline.load(store)


@pytest.mark.by_turn(1)
def test_given_a_checkpoint_with_a_foreign_path_when_loaded_then_it_is_passed_over(store: Store) -> None:
    state = Timeline.load(store).head.copy()
    for path in ("file:///etc/passwd", "data/../../x"):
        other = state.copy()
        plant(store, actions=[added()])
        commit = Timeline.load(store).read(1)
        assert commit is not None
        other.apply(commit)
        [file] = other.files(DATA_TREE)
        other.file_set.remove(DATA_TREE, file.path)
        other.file_set.add(msgspec.structs.replace(file, path=path))
        log.write_checkpoint(store, other)
        try:
            assert [file.path for file in Timeline.load(store).head.files(DATA_TREE)] == [ADDED.path]
        except LogDamaged as error:
            assert path in str(error)  # it lies below data/ as it is written, and is looked at when it is asked for


@pytest.mark.parametrize("columns", [["x"], ["tree"], ["tree", "partition", "group", "kind"], []])
def test_given_a_checkpoint_without_its_columns_when_loaded_then_it_is_passed_over(
    store: Store, columns: list[str]
) -> None:
    header = log.encode_checkpoint(Timeline.load(store).head)
    metadata = pq.ParquetFile(pa.BufferReader(header)).schema_arrow.metadata
    sink = io.BytesIO()
    pq.write_table(pa.table({name: ["a"] for name in columns}).replace_schema_metadata(metadata), sink)
    name = f"{0:020d}.{xxhash.xxh3_64_hexdigest(sink.getvalue())}.parquet"
    store.put(f"{log.CHECKPOINTS}/{name}", sink.getvalue())
    plant(store)
    assert Timeline.load(store).head.version == 1


def test_given_a_checkpoint_whose_table_lacks_a_column_that_it_names_when_loaded_then_it_is_passed_over(
    store: Store,
) -> None:
    state = Timeline.load(store).head.copy()
    state.definition = msgspec.structs.replace(TABLE, partition_by=("nowhere",))
    log.write_checkpoint(store, state)
    assert Timeline.load(store).head.table == TABLE


# --- memory -----------------------------------------------------------------------------------------------------------


def sidecar(body: bytes, store: Store) -> str:
    key = f"_index/sidecars/{xxhash.xxh3_128_hexdigest(body)}.parquet"
    store.put(key, body)
    return key


def parquet(values: pa.Array, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({"action": values}), sink, compression="zstd", **options)
    return sink.getvalue()


def repeated(text: bytes, times: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), times), pa.array([text]))


BOMBS = {
    "a value said a million times": lambda: parquet(repeated(msgspec.json.encode(ADDED), 1_000_000)),
    "a page of zeros": lambda: parquet(pa.array([b"0" * (1 << 27)], pa.large_binary()), use_dictionary=False),
    "deltas of a long text": lambda: parquet(
        pa.array([b"a" * 20_000] * 10_000), use_dictionary=False, column_encoding={"action": "DELTA_BYTE_ARRAY"}
    ),
    "lists in a list": lambda: parquet(pa.array([b"[" * 2_000_000]), use_dictionary=False),
    "no parquet": lambda: b"PAR1" * 1000,
    "nothing": lambda: b"",
    "another column": lambda: (lambda sink: (pq.write_table(pa.table({"x": [1]}), sink), sink.getvalue())[1])(
        io.BytesIO()
    ),
}


@pytest.mark.by_turn(4)
@pytest.mark.parametrize("bomb", BOMBS)
def test_given_a_small_sidecar_that_becomes_huge_when_read_then_refused_within_little_memory(
    bomb: str, store: Store
) -> None:
    body = BOMBS[bomb]()
    assert len(body) < 1 << 20
    plant(store, sidecar=sidecar(body, store))
    code = f"""
import pathlib, pyarrow.parquet
from spark_apps.storage.store import Store
from spark_apps.storage.errors import LogDamaged
from spark_apps.timeline.log import Timeline
try:
    Timeline(Store({store.uri!r})).read(1)
except LogDamaged as error:
    assert "_index/sidecars" in str(error) and {store.uri!r} in str(error), error
    [peak] = [line.split()[1] for line in pathlib.Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    print("refused", int(peak) // 1024)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    refused, megabytes = done.stdout.split()
    assert refused == "refused"
    assert int(megabytes) < 250


@pytest.mark.parametrize("actions", [1_001, 60_000])
@pytest.mark.parametrize("dictionary", [True, False], ids=["as of old", "as now"])
def test_a_sidecar_of_many_files_is_read(actions: int, dictionary: bool, store: Store) -> None:
    files = [msgspec.structs.replace(ADDED, path=f"data/load.1/work/part-{n}.parquet") for n in range(actions)]
    body = parquet(pa.array([msgspec.json.encode(file) for file in files]), use_dictionary=dictionary)
    plant(store, sidecar=sidecar(body, store))
    commit = Timeline(store).read(1)
    assert commit is not None
    assert commit.actions == tuple(files)


# --- links ------------------------------------------------------------------------------------------------------------


@pytest.mark.by_turn(1)
@pytest.mark.parametrize("place", ["data/gone.1", "data/gone.1/work", "data", "_index/indexes/by_id"])
def test_given_a_link_out_of_the_table_when_cleaned_then_what_it_leads_to_stays(
    place: str, store: Store, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    for name in ("gone.1/work/rows.parquet", "work/rows.parquet", "rows.parquet"):
        (outside / name).parent.mkdir(parents=True, exist_ok=True)
        (outside / name).write_bytes(b"rows")
    timeline = Timeline.load(store)
    transaction = begin(timeline, operation="upsert", txn_id="gone")
    transaction.abort("given up")
    link = Path(store.uri, place)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside, target_is_directory=True)
    clean(timeline)
    assert sum(path.is_file() for path in outside.rglob("*")) == 3


def test_given_a_link_to_a_file_outside_when_it_is_asked_for_then_it_is_not_followed(
    store: Store, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    link = Path(store.uri, "data/a.1/rows.parquet")
    link.parent.mkdir(parents=True)
    link.symlink_to(secret)
    key = "data/a.1/rows.parquet"
    for call in (lambda: store.get(key), lambda: store.get_range(key, 0, 3), lambda: store.spark_path(key),
                 lambda: store.put(key, b"x"), lambda: store.create(key, b"x")):  # fmt: skip
        with pytest.raises(LeadsOutside, match=r"data/a\.1/rows\.parquet is a symbolic link"):
            call()
    store.delete([key])
    assert secret.read_bytes() == b"secret"
    assert not link.is_symlink()


def test_a_link_that_stays_in_the_table_is_followed(store: Store) -> None:
    store.put("data/a.1/rows", b"rows")
    Path(store.uri, "data/b.1").symlink_to(Path(store.uri, "data/a.1"), target_is_directory=True)
    assert store.get("data/b.1/rows") == b"rows"


def test_a_commit_that_is_a_link_outside_is_not_read(store: Store, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_bytes(b"{}")
    Path(store.uri, commit_key(1)).symlink_to(tmp_path / "other.json")
    with pytest.raises(LogDamaged, match="symbolic link"):
        Timeline.load(store)


# --- names ------------------------------------------------------------------------------------------------------------


@pytest.mark.by_turn(1)
@pytest.mark.parametrize(
    "name",
    ["²²².json", "٣.json", "1.json", "-0000000000000000001.json", "99999999999999999999999.json", "x.json", " .json",
     "1e5.json", "0x1.json", "1_000.json", "00000000000000000001.json.tmp", "checkpoints/²²².a.parquet",
     "checkpoints/9999999999999999999999.0123456789abcdef.parquet"],
)  # fmt: skip
def test_a_file_in_the_timeline_that_is_no_version_is_passed_over(name: str, store: Store) -> None:
    Path(store.uri, "_index/timeline/checkpoints").mkdir(exist_ok=True)
    Path(store.uri, "_index/timeline", name).write_bytes(b"{}")
    assert Timeline.load(store).head.version == 0


@pytest.mark.parametrize(
    "instant",
    ["x", "", "2026", "20260101000000000x", "20261301000000000", "20260230000000000", "20260101250000000",
     "20260101006000000", "20260101000061000", "00010101000000000", "٢0260101000000000", "20260101000000000\n"],
)  # fmt: skip
def test_given_an_instant_that_is_none_when_read_then_refused_by_name(instant: str, store: Store) -> None:
    plant(store, instant=instant)
    with pytest.raises(LogDamaged, match="instant"):
        Timeline.load(store)


def test_the_second_60_of_older_logs_is_read(store: Store) -> None:
    plant(store, instant="20990101235960000")
    timeline = Timeline.load(store)
    assert timeline.head.version == 1
    assert timeline.next_instant() == "20990102000000001"
