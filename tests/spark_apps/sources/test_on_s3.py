"""Sources on an object store: what their listings show there, and that a rewritten object is noticed; without Spark."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog import load_catalog

from spark_apps.sources.delta import DeltaTable
from spark_apps.sources.iceberg import IcebergTable
from spark_apps.sources.logs.commits import CommitInfo, Place
from spark_apps.sources.logs.watching import watched_log
from spark_apps.sources.registry import PlainFiles
from spark_apps.storage import errors
from spark_apps.storage.store import Rewritten, Store, open_by_address
from spark_apps.timeline.files import DataFile
from spark_apps.timeline.model import Field, SourceDefinition
from tests.simulation.s3 import BUCKET, s3_server
from tests.spark_apps.sources.lake import people
from tests.spark_apps.sources.test_watched_logs import OF_COW, TIMELINES


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as options:
        yield options


def test_objects_are_listed_by_prefix_and_glob_and_a_rewritten_one_is_noticed(s3: dict[str, str]) -> None:
    store = Store(f"s3://{BUCKET}/plain", s3)
    for key in ("y=1/a b.csv", "y=1/%20[x].csv", "y=2/ü.csv", "y=2/_SUCCESS", ".hidden/z"):
        store.put(key, key.encode())
    store.put("y=3/empty", b"")
    fields = [Field("x", "string"), Field("y", "int")]
    source = PlainFiles(f"s3a://{BUCKET}/plain", {}, fields, ("y",), s3)
    objects = source.listing().files
    assert [(file.path, file.partition) for file in objects] == [
        (f"s3://{BUCKET}/plain/y=1/%20[x].csv", "y=1"),
        (f"s3://{BUCKET}/plain/y=1/a b.csv", "y=1"),
        (f"s3://{BUCKET}/plain/y=2/ü.csv", "y=2"),
    ]
    assert store.spark_path(objects[0].path) == f"s3a://{BUCKET}/plain/y=1/%20[x].csv"
    some = PlainFiles(f"s3://{BUCKET}/plain/y=*/a?b.csv", {}, fields, ("y",), s3)
    assert [file.path for file in some.listing().files] == [f"s3://{BUCKET}/plain/y=1/a b.csv"]
    one = PlainFiles(f"s3://{BUCKET}/plain/y=1/a b.csv", {}, fields[:1], (), s3)
    assert [file.path for file in one.listing().files] == [f"s3://{BUCKET}/plain/y=1/a b.csv"]

    files = [DataFile.of(file.to_add(), 0) for file in objects]
    source.check(files)
    store.put("y=1/a b.csv", b"y=1/A B.csv")
    with pytest.raises(errors.StorageError, match="rewritten"):
        source.check(files)
    again = source.listing().files
    assert [one.lineage == two.lineage for one, two in zip(objects, again, strict=True)] == [True, False, True]
    store.delete(["y=2/ü.csv"])
    with pytest.raises(errors.ObjectNotFound, match="gone"):
        source.check([DataFile.of(file.to_add(), 0) for file in again])


def test_delta_and_iceberg_tables_are_listed_with_the_same_storage_options(s3: dict[str, str], tmp_path: Path) -> None:
    uri = f"s3://{BUCKET}/delta"
    write_deltalake(uri, people(0, 6), partition_by=["city"], storage_options=s3)
    write_deltalake(uri, people(10, 6), mode="append", storage_options=s3)
    listing = DeltaTable(uri, s3).listing()
    assert listing.version == "1" and len(listing.files) == 6 and sum(file.rows for file in listing.files) == 12
    store = Store(uri, s3)
    assert {store.head(file.path.removeprefix(f"{uri}/")) is not None for file in listing.files} == {True}
    assert len(DeltaTable(uri, s3).listing(0).files) == 3
    look = watched_log(SourceDefinition("delta", uri), s3, "").after(Place())
    assert [(one.version, one.counts) for one in look.seen if isinstance(one, CommitInfo)] == [
        (version, {"files_added": 3, "files_removed": 0, "rows_added": 6}) for version in "01"
    ]
    with pytest.raises(errors.TableNotFound):
        watched_log(SourceDefinition("delta", f"s3://{BUCKET}/nothing"), s3, "").after(look.place)

    io = {"s3.endpoint": s3["endpoint"], "s3.access-key-id": "a", "s3.secret-access-key": "b", "s3.region": "us-east-1"}
    options = {"catalog": "test", "catalog.type": "sql", "catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
               "catalog.warehouse": f"s3://{BUCKET}/warehouse"}  # fmt: skip
    catalog = load_catalog("test", **io, **{name[8:]: value for name, value in options.items() if "." in name})
    catalog.create_namespace("db")
    theirs = catalog.create_table("db.t", schema=people(0, 1).schema)
    theirs.append(people(0, 6))
    source = IcebergTable("", {**options, "identifier": "db.t"}, s3)
    assert source.location.uri == theirs.location().rstrip("/")
    listed = source.listing()
    assert [file.rows for file in listed.files] == [6] and listed.version is not None
    assert pa.table(theirs.scan().to_arrow()).num_rows == 6
    named = SourceDefinition("iceberg", theirs.location(), {**options, "identifier": "db.t"})
    look = watched_log(named, s3, "").after(Place())
    assert [one.version for one in look.seen if isinstance(one, CommitInfo)] == [listed.version]


def test_the_timeline_of_a_hudi_table_is_read_and_none_of_its_data(s3: dict[str, str]) -> None:
    store = Store(f"s3://{BUCKET}/hudi", s3)
    with tarfile.open(TIMELINES) as archive:
        for member in archive:
            if member.isfile() and member.name.startswith(("cow6/", "cow9/")):
                store.put(member.name, archive.extractfile(member).read())  # type: ignore[union-attr]
    for table in ("cow6", "cow9"):
        store.put(f"{table}/.hoodie/metadata/.hoodie/20240101000000000.commit", b"{}")
        look = watched_log(SourceDefinition("hudi", f"{store.uri}/{table}"), s3, "").after(Place())
        assert [one.operation for one in look.seen if isinstance(one, CommitInfo)] == OF_COW


def test_given_an_object_replaced_by_one_of_its_size_then_a_range_of_it_is_not_taken_for_the_old_one_s(
    s3: dict[str, str],
) -> None:
    store = Store(f"s3://{BUCKET}/ranges", s3)
    store.put("a b", b"old bytes")
    path, size = f"{store.uri}/a b", 9
    listed = store.list("")[0].etag
    assert listed is not None and open_by_address(path, size, s3, listed).read() == b"old bytes"
    held = open_by_address(path, size, s3, listed)  # so small that it is fetched at once
    store.put("a b", b"new bytes")
    assert held.read() == b"old bytes" and open_by_address(path, size, s3).read() == b"new bytes"
    with pytest.raises(Rewritten, match="ranges/a b was rewritten"):
        open_by_address(path, size, s3, listed)
