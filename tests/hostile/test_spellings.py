"""No spelling of an address makes a source's reader open a file beside the source: a search with a seed.

Each spelling stands once where the owner of a source, or the writer of a log, can write a path. The library by itself
reads the planted file by some of them, which shows that the search finds such faults.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import types as T

import spark_apps
from spark_apps.sources.delta_places import read_checked
from spark_apps.sources.iceberg_catalog import load_at
from spark_apps.sources.registry import open_source
from spark_apps.storage.errors import LakeIndexError, StorageUnavailable, UnsupportedSource
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.locations import locate
from spark_apps.timeline.model import AddFile, Field, SourceDefinition, TableDefinition
from tests.hostile.spellings import spellings

SECRET = 666
SCHEMA = T.StructType([T.StructField("id", T.LongType())])
COUNT = int(os.environ.get("SPELLINGS", "40"))
SEED = int(os.environ.get("SEED", "0")) or random.randrange(1, 1 << 31)


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "theirs" / "s.parquet"
    path.parent.mkdir()
    pq.write_table(rows(SECRET), path)
    return path


def drawn(table: Path, secret: Path, count: int = COUNT) -> Iterator[str]:
    return spellings(random.Random(SEED), table, secret, count)


def read(form: str, place: Path, between: Callable[[], Any] = lambda: None) -> list[Any]:
    """All values that a source hands out: by the library where it is asked, else from the file that is named."""
    definition = TableDefinition(
        "t", (Field("id", "bigint"),), (), bucketed=False, source=SourceDefinition(form, str(place))
    )
    source = open_source(definition, None, locate(str(place)).default_log())
    values: list[Any] = []
    files = source.listing().files
    between()
    for file in files:
        if file.through is None:
            path = Path(file.path.removeprefix("file://"))
            values += pq.read_table(path)["id"].to_pylist() if path.exists() else []
        else:
            values += source.rows(file.to_add(), SCHEMA)["id"].to_pylist()  # type: ignore[arg-type]
    return values


def outcome(call: Callable[[], Any]) -> Any:
    """What a call returns, or the words that it is refused by."""
    try:
        return call()
    except LakeIndexError as error:
        return str(error)


# --- Delta ------------------------------------------------------------------------------------------------------


def write_log(place: Path, *actions: dict[str, Any], features: tuple[str, ...] = (), mapped: bool = False) -> Path:
    """A log of one commit."""
    field: dict[str, Any] = {"name": "id", "type": "long", "nullable": True, "metadata": {}}
    if mapped:
        field["metadata"] = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "id"}
    every = [*features, *["columnMapping"] * mapped]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": every, "writerFeatures": every}
    metadata = {"id": "0" * 8, "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
                "schemaString": json.dumps({"type": "struct", "fields": [field]}), "createdTime": 1,
                "configuration": {"delta.columnMapping.mode": "name"} if mapped else {}}  # fmt: skip
    path = place / "_delta_log" / f"{0:020d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(f"{json.dumps(one)}\n" for one in ({"protocol": protocol}, {"metaData": metadata}, *actions))
    )
    return path


def add(path: str, size: int, **more: Any) -> dict[str, Any]:
    return {
        "add": {"path": path, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True, **more}
    }


def by_itself(place: Path) -> Any:
    try:
        return pa.table(deltalake.DeltaTable(place).scan())["id"].to_pylist()
    except (Exception, BaseException) as error:  # noqa: BLE001 - a panic of the library is none of Exception
        return str(error)


@pytest.mark.parametrize("mapped", [False, True], ids=["by file", "as a whole"])
def test_given_paths_of_a_delta_log_in_any_spelling_then_no_file_outside_is_read(
    tmp_path: Path, secret: Path, mapped: bool
) -> None:
    place, found, refused = tmp_path / "mine", 0, 0
    size = secret.stat().st_size
    for path in drawn(place, secret):
        write_log(place, add(path, size), mapped=mapped)
        got = outcome(lambda: read("delta", place))
        assert got == [] or isinstance(got, str), f"seed {SEED}: {path!r} gives {got}"
        found += by_itself(place) == [SECRET]
        refused += isinstance(got, str)
        if by_itself(place) == [SECRET]:
            assert "outside" in got, f"seed {SEED}: {path!r}: {got}"
    assert found >= COUNT // 4 and refused >= found, (found, refused)


def test_given_a_delta_log_that_is_written_anew_after_its_files_were_checked_then_it_is_checked_again(
    tmp_path: Path, secret: Path
) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    pq.write_table(rows(1), place / "a.parquet")
    write_log(place, add("a.parquet", (place / "a.parquet").stat().st_size), mapped=True)
    assert read("delta", place) == [1]
    bad = add(f"file:{secret}", secret.stat().st_size)

    with pytest.raises(UnsupportedSource, match=r"s\.parquet, which is outside"):
        read("delta", place, lambda: write_log(place, bad, mapped=True))


def test_given_names_that_only_look_odd_then_their_rows_are_read(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    names = {"a%20b.parquet": "a b.parquet", "p=%252e%252e/x.parquet": "p=%2e%2e/x.parquet",
             "..a/b.parquet": "..a/b.parquet",
             "p=a:b/x..parquet": "p=a:b/x..parquet", f"file://{place}/abs.parquet": "abs.parquet",
             f"file:{place}/one.parquet": "one.parquet", f"{place}/bare.parquet": "bare.parquet"}  # fmt: skip
    for n, name in enumerate(names.values()):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows(n), place / name)
    write_log(place, *(add(path, (place / name).stat().st_size) for path, name in names.items()))

    assert sorted(read("delta", place)) == list(range(len(names)))


def test_given_links_in_a_delta_table_that_lead_out_of_it_then_they_are_not_followed(
    tmp_path: Path, secret: Path
) -> None:
    place = tmp_path / "mine"
    log = write_log(place, add("s.parquet", 1), add("folder/s.parquet", 1))
    inside = place / "real" / "s.parquet"
    inside.parent.mkdir()
    pq.write_table(rows(1), inside)
    (place / "folder").symlink_to(inside.parent, target_is_directory=True)
    (place / "s.parquet").symlink_to(inside)
    assert read("delta", place) == [1, 1], "links that stay in the table"
    for at, target in ((place / "s.parquet", secret), (place / "folder", secret.parent)):
        kept = at.readlink()
        at.unlink()
        at.symlink_to(target)
        with pytest.raises(UnsupportedSource, match="outside"):
            read("delta", place)
        at.unlink()
        at.symlink_to(kept)
    shutil.move(log, secret.parent / "log")
    log.symlink_to(secret.parent / "log")
    with pytest.raises(UnsupportedSource, match=r"0\.json, which is outside"):
        read("delta", place)


_INLINE = {"storageType": "i", "pathOrInlineDv": "0rJua", "sizeInBytes": 4, "cardinality": 0}


def vector(kind: str, place: str) -> dict[str, Any]:
    return {"storageType": kind, "pathOrInlineDv": place, "offset": 1, "sizeInBytes": 36, "cardinality": 2}


def test_given_deletion_vectors_in_any_spelling_then_none_outside_of_the_table_is_opened(
    tmp_path: Path, secret: Path
) -> None:
    place = tmp_path / "mine"
    pq.write_table(rows(1, 2, 3), write_log(place).parents[1] / "a.parquet")
    size = (place / "a.parquet").stat().st_size
    odd = [("x", str(secret)), ("p", "relative.bin"), ("", ""), ("P", f"file://{place}/v.bin")]
    for path in drawn(place, secret):
        odd += [("p", path), ("u", f"{path}{'0' * 20}")]
    for kind, text in odd:
        write_log(place, add("a.parquet", size, deletionVector=vector(kind, text)), features=("deletionVectors",))
        got = outcome(lambda: read("delta", place))
        if kind == "u" and "outside" not in got:  # an odd name below the table
            assert "deletion_vector" in got, f"seed {SEED}: {text!r}: {got}"
        else:
            assert "deletion vector" in got and "outside" in got, f"seed {SEED}: {kind} {text!r}: {got}"


def checkpoint(place: Path, sidecar: str, size: int) -> None:
    """A checkpoint of the newer kind, whose files stand in a sidecar."""
    first = write_log(place, features=("v2Checkpoint",)).read_text().splitlines()
    lines = [json.dumps({"checkpointMetadata": {"version": 0}}), *first,
             json.dumps({"sidecar": {"path": sidecar, "sizeInBytes": size, "modificationTime": 1}})]  # fmt: skip
    name = f"{0:020d}.checkpoint.3a0d65cd-4056-49b8-937b-95f9e3ee90e5.json"
    (place / "_delta_log" / name).write_text("\n".join(lines))


def test_given_sidecars_of_a_checkpoint_in_any_spelling_then_none_outside_of_the_log_is_opened(
    tmp_path: Path, secret: Path
) -> None:
    place, theirs = tmp_path / "mine", secret.parent
    write_log(theirs, add("s.parquet", secret.stat().st_size))
    deltalake.DeltaTable(theirs).create_checkpoint()
    body = next((theirs / "_delta_log").glob("*.checkpoint.parquet")).read_bytes()
    (theirs / "sidecar.parquet").write_bytes(body)
    sidecars = place / "_delta_log/_sidecars"
    sidecars.mkdir(parents=True)
    (sidecars / "one two.parquet").write_bytes(body)
    shutil.copy(secret, place / "s.parquet")
    for good in ("one%20two.parquet", f"file://{sidecars}/one%20two.parquet"):
        checkpoint(place, good, len(body))
        assert read("delta", place) == [SECRET], "its own"
    (place / "s.parquet").unlink()

    for path in drawn(sidecars, theirs / "sidecar.parquet"):
        for text in (path, path.replace("../", "../../../", 1)):
            checkpoint(place, text, len(body))
            got = outcome(lambda: read("delta", place))
            assert isinstance(got, str), f"seed {SEED}: {text!r} gives {got}"
            assert "outside" in got or "_delta_log/_sidecars/" in got, f"seed {SEED}: {text!r}: {got}"


def test_given_a_log_that_changes_while_it_is_read_then_it_is_checked_and_read_again(tmp_path: Path) -> None:
    place = tmp_path / "mine"
    log, loads = write_log(place, add("a.parquet", 1)), []

    def load(version: int | None) -> str:
        loads.append(version)
        if len(loads) == 1:
            log.write_text(f"{log.read_text()}\n")
        return "loaded"

    assert read_checked(Store(place), None, load) == "loaded" and loads == [0, 0]
    with pytest.raises(StorageUnavailable, match="changed each time"):
        read_checked(Store(place), 0, lambda _: log.write_text(f"{log.read_text()}\n"))


# --- Iceberg ----------------------------------------------------------------------------------------------------


def iceberg(tmp_path: Path, name: str, *ids: int) -> tuple[Path, Path, Path, Path]:
    """A table: its folder, its metadata file, its manifest list, its manifest."""
    catalog = SqlCatalog(name, uri=f"sqlite:///{tmp_path}/{name}.db", warehouse=f"file://{tmp_path}/lake")
    catalog.create_namespace("db")
    table = catalog.create_table(f"db.{name}", rows().schema)
    table.append(rows(*ids))
    place = Path(table.location().removeprefix("file://"))
    metadata = Path(table.metadata_location.removeprefix("file://"))
    (place / "metadata/version-hint.text").write_text(metadata.name)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    [manifest] = snapshot.manifests(table.io)
    return (
        place,
        metadata,
        *(Path(uri.removeprefix("file://")) for uri in (snapshot.manifest_list, manifest.manifest_path)),
    )


def with_paths(avro: Path, change: Callable[[dict[str, Any]], None]) -> None:
    with avro.open("rb") as file:
        reader = fastavro.reader(file)
        records, schema, meta = list(reader), reader.writer_schema, reader.metadata
    for record in records:
        change(record)
    kept = {key: value for key, value in meta.items() if not key.startswith("avro.")}
    with avro.open("wb") as file:
        fastavro.writer(file, schema, records, metadata=kept)


@pytest.mark.parametrize("what", ["manifest list", "manifest", "data file"])
def test_given_paths_of_iceberg_metadata_in_any_spelling_then_no_file_outside_is_read(
    tmp_path: Path, what: str
) -> None:
    theirs = iceberg(tmp_path, "theirs", SECRET)
    place, metadata, manifest_list, manifest = iceberg(tmp_path, "mine", 1)
    data = next((theirs[0] / "data").rglob("*.parquet"))
    target = {"manifest list": theirs[2], "manifest": theirs[3], "data file": data}[what]
    found = 0
    for n, path in enumerate(drawn(place, target, COUNT // 2)):
        # pyiceberg remembers manifest lists by their names.
        renamed = [manifest_list.with_name(f"{n}-{manifest_list.name}"), manifest.with_name(f"{n}-{manifest.name}")]
        shutil.copy(manifest_list, renamed[0])
        shutil.copy(manifest, renamed[1])
        document = json.loads(metadata.read_text())
        named = {"manifest list": f"file://{renamed[0]}", "manifest": f"file://{renamed[1]}", what: path}
        document["snapshots"][-1]["manifest-list"] = named["manifest list"]
        metadata_now = metadata.with_name(f"{n}.metadata.json")
        metadata_now.write_text(json.dumps(document))
        (place / "metadata/version-hint.text").write_text(metadata_now.name)
        with_paths(renamed[0], lambda record, named=named: record.update(manifest_path=named["manifest"]))
        if what == "data file":
            with_paths(renamed[1], lambda record, path=path: record["data_file"].update(file_path=path))

        got = outcome(lambda: read("iceberg", place))
        assert isinstance(got, str), f"seed {SEED}: {path!r} gives {got}"
        try:
            found += SECRET in load_at(str(place), None).scan().to_arrow()["id"].to_pylist()
        except Exception:  # noqa: BLE001, S112 - the library cannot read it either
            continue
    assert found >= 3, "the library by itself reads none of them"


def test_given_a_catalog_s_table_that_says_it_lies_above_its_folder_then_it_is_not_registered(tmp_path: Path) -> None:
    from spark_apps.sources.iceberg import IcebergTable

    place, metadata, *_ = iceberg(tmp_path, "mine", 1)
    document = json.loads(metadata.read_text())
    document["location"] = f"file://{tmp_path}/lake"
    metadata.write_text(json.dumps(document))
    named = {"catalog": "mine", "identifier": "db.mine", "catalog.type": "sql",
             "catalog.uri": f"sqlite:///{tmp_path}/mine.db"}  # fmt: skip

    with pytest.raises(LakeIndexError, match="source_roots"):
        IcebergTable("", named).listing()
    allowed = IcebergTable("", named, {"source_roots": [f"{tmp_path}/lake"]}).location
    assert allowed.uri == f"{tmp_path}/lake" and place.exists()


# --- what a log of indexes names --------------------------------------------------------------------------------


def test_given_a_log_of_a_plain_source_whose_files_are_in_any_spelling_then_none_outside_is_read(
    tmp_path: Path, secret: Path
) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    source = SourceDefinition("parquet", str(place))
    for n, path in enumerate(drawn(place, secret, COUNT // 2)):
        full = path if "://" in path or path.startswith(("/", "file:")) else f"file://{place}/{path}"
        log = Store(locate(str(place)).default_log())
        shutil.rmtree(log.uri, ignore_errors=True)
        file = AddFile("data", "", str(n), full, "base", 1, secret.stat().st_size, lineage=n + 1)
        got = outcome(lambda log=log, file=file: create_and_read(log, source, file))
        assert isinstance(got, str), f"seed {SEED}: {full!r} gives {got}"


def create_and_read(log: Store, source: SourceDefinition, file: AddFile) -> list[int]:
    table = TableDefinition("t", (Field("id", "bigint"),), (), bucketed=False, source=source)
    create_table(log, table, [file])
    values: list[int] = spark_apps.open_table(log.uri, version=0).read()["id"].to_pylist()
    return values
