"""Folders of plain files that are another format's tables: refused by name, wherever they are met as plain files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps import open_table
from spark_apps.sources.other_formats import ACID, DELTA, HUDI, ICEBERG, OURS, check_above, check_folder, mark_of
from spark_apps.sources.registry import PlainFiles
from spark_apps.storage.errors import OtherFormat
from spark_apps.storage.store import Store
from spark_apps.timeline.locations import locate
from spark_apps.timeline.model import Field
from tests.simulation.s3 import BUCKET, s3_server

pytestmark = pytest.mark.by_turn(8)

FORMATS = {HUDI: "a Hudi table", DELTA: "a Delta table", ICEBERG: "an Iceberg table", ACID: "table of Hive",
           OURS: "a table of this package"}  # fmt: skip


def put(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [1, 2]}), path)


def listed(location: Path | str, recursive: bool = False, options: Any = None) -> list[str]:
    """The names of the files that are read of a source."""
    given = {"recursiveFileLookup": "true"} if recursive else {}
    source = PlainFiles(str(location), given, [Field("id", "bigint")], (), options)
    return [file.path.rpartition("/")[2] for file in source.listing().files]


# What a folder holds, what is registered of it, and as what it is refused.
CASES: dict[str, tuple[list[str], str, str]] = {
    "hudi": ([".hoodie/hoodie.properties", "a.parquet"], "", HUDI),
    "an empty log of Hudi": ([".hoodie/", "a.parquet"], "", HUDI),
    "a partition of Hudi": (["d/.hoodie_partition_metadata", "d/a.parquet"], "d", HUDI),
    "below a table of Hudi": ([".hoodie/hoodie.properties", "d/e/a.parquet"], "d/e", HUDI),
    "delta": (["_delta_log/00000000000000000000.json", "a.parquet"], "", DELTA),
    "a partition of Delta": (["_delta_log/00000000000000000000.json", "d=1/a.parquet"], "d=1", DELTA),
    "a file of Delta": (["_delta_log/00000000000000000000.json", "a.parquet"], "a.parquet", DELTA),
    "a glob in Delta": (["_delta_log/00000000000000000000.json", "d=1/a.parquet"], "d=*/*.parquet", DELTA),
    "a glob over Delta": (["t/_delta_log/00000000000000000000.json", "t/a.parquet"], "*/*.parquet", DELTA),
    "iceberg": (["metadata/v1.metadata.json", "data/a.parquet"], "", ICEBERG),
    "iceberg's data": (["metadata/00001-0b3f.gz.metadata.json", "data/a.parquet"], "data", ICEBERG),
    "below iceberg's data": (["metadata/00001-0b3f.metadata.json", "data/d=1/a.parquet"], "data/d=1", ICEBERG),
    "iceberg's metadata": (["metadata/v1.metadata.json", "data/a.parquet"], "metadata", ICEBERG),
    "acid": (["delta_0000001_0000001_0000/bucket_00000"], "", ACID),
    "acid that was compacted": (["base_0000005_v0000012/bucket_00000", "a.parquet"], "", ACID),
    "deletes of acid": (["delete_delta_5_5/bucket_00000", "base_4/bucket_00000"], "", ACID),
    "one folder of acid": (["base_7/bucket_00000"], "base_7", ACID),
    "one file of acid": (["delta_1_2/000000_0.parquet"], "delta_1_2/000000_0.parquet", ACID),
    "a glob in acid": (["delta_1_2/000000_0.parquet"], "delta_*/*", ACID),
    "ours": (["_index/timeline/00000000000000000000.json", "data/a.parquet"], "", OURS),
    "our data": (["_index/timeline/00000000000000000000.json", "data/b/a.parquet"], "data/b", OURS),
}  # fmt: skip
RECURSIVE: dict[str, tuple[list[str], str]] = {
    "a table of Delta among others": (["a.parquet", "t/_delta_log/0.json", "t/u/b.parquet"], DELTA),
    "a table of Iceberg among others": (["t/metadata/v1.metadata.json", "t/data/b.parquet"], ICEBERG),
    "a keyed table among others": (["t/_index/timeline/00000000000000000000.json", "t/data/b.parquet"], OURS),
    "acid among others": (["t/d=1/delta_1_1/bucket_0", "a.parquet"], ACID),
}
# What is no table of another format, or is not read.
PLAIN: dict[str, tuple[list[str], str, bool]] = {
    "a folder that is named nearly so": (["delta_log/a.parquet", "base_data/b.parquet", "delta_1/c.parquet"], "", True),
    "metadata of another kind": (["metadata/schema.json", "data/a.parquet"], "data", False),
    "tables beside": (["t/_delta_log/0.json", "t/a.parquet", "u/b.parquet"], "u", False),
    "a table below that is not read": (["t/_delta_log/0.json", "t/a.parquet", "b.parquet"], "", False),
    "a table that a glob leaves out": (["t/_delta_log/0.json", "t/a.parquet", "u/b.parquet"], "u*/*.parquet", False),
    "logs of sources": (["_indexes/u/_index/timeline/00000000000000000000.json", "u/b.parquet"], "u", False),
    "logs of sources inside": (["_indexes/u/_index/timeline/00000000000000000000.json", "b.parquet"], "", True),
    "a hidden table": (["_old/_delta_log/0.json", "_old/a.parquet", "b.parquet"], "", True),
}


def make(folder: Path, names: list[str]) -> None:
    for name in names:
        path = folder / name
        if name.endswith("/"):
            path.mkdir(parents=True)
        elif name.endswith(".parquet"):
            put(path)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")


@pytest.mark.by_turn(1)
@pytest.mark.parametrize("case", CASES)
def test_given_a_table_of_another_format_then_its_files_are_refused_by_its_name(tmp_path: Path, case: str) -> None:
    names, location, form = CASES[case]
    make(tmp_path / "lake", names)

    with pytest.raises(OtherFormat, match=f"(?s){FORMATS[form]}.*shows.*old versions") as refused:
        listed(f"{tmp_path}/lake/{location}".rstrip("/"))
    assert refused.value.hint
    with pytest.raises(OtherFormat, match=FORMATS[form]):
        listed(f"{tmp_path}/lake/{location}".rstrip("/"), recursive=True)


@pytest.mark.parametrize(
    "case", ["hudi", "delta", "iceberg", "iceberg's data", "one folder of acid", "ours", "our data"]
)
def test_given_a_location_that_is_not_listed_then_it_is_refused_too(tmp_path: Path, case: str) -> None:
    names, location, form = CASES[case]
    make(tmp_path / "lake", names)

    with pytest.raises(OtherFormat, match=FORMATS[form]):
        check_folder(locate(f"{tmp_path}/lake/{location}".rstrip("/")), None)


@pytest.mark.parametrize("case", RECURSIVE)
def test_given_a_table_below_a_folder_that_is_read_with_all_below_it_then_it_is_refused(
    tmp_path: Path, case: str
) -> None:
    names, form = RECURSIVE[case]
    make(tmp_path / "lake", names)

    with pytest.raises(OtherFormat, match=FORMATS[form]):
        listed(tmp_path / "lake", recursive=True)


@pytest.mark.parametrize("case", PLAIN)
def test_given_files_of_no_other_format_then_they_are_read(tmp_path: Path, case: str) -> None:
    names, location, recursive = PLAIN[case]
    make(tmp_path / "lake", names)

    read = listed(f"{tmp_path}/lake/{location}".rstrip("/"), recursive)
    assert read and "t" not in read and all(name in "a.parquet b.parquet c.parquet" for name in read)


def test_given_a_link_into_a_table_then_it_is_refused_as_the_table_is(tmp_path: Path) -> None:
    make(tmp_path / "lake", ["_delta_log/0.json", "d=1/a.parquet"])
    (tmp_path / "raw").symlink_to(tmp_path / "lake" / "d=1")

    with pytest.raises(OtherFormat, match="a Delta table"):
        listed(tmp_path / "raw")


def test_given_a_name_that_is_hidden_then_what_lies_in_it_shows_nothing() -> None:
    assert mark_of("_tmp/_delta_log/0.json") is None
    assert mark_of("a/_delta_log") is None, "a file of that name"
    assert mark_of("a/_delta_log/0.json") == ("a", DELTA, "_delta_log/")


@pytest.mark.by_turn(1)
@pytest.mark.servers
def test_given_a_store_then_folders_above_are_asked_for_only_when_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A source that is registered or refreshed is looked at from above; one that is read is listed, and no more."""
    asked: list[str] = []
    call = Store._call

    def counted(self: Store, verb: str, key: str, work: Callable[[Any], Any]) -> Any:
        asked.append(f"{verb} {self.uri}/{key}")
        return call(self, verb, key, work)

    put(tmp_path / "a.parquet")
    data = (tmp_path / "a.parquet").read_bytes()
    with s3_server() as options:
        store = Store(f"s3://{BUCKET}/lake", options)
        for key in ("raw/x/a.parquet", "t/_delta_log/0.json", "t/d=1/a.parquet", "i/metadata/v1.metadata.json",
                    "i/data/a.parquet", "h/.hoodie/hoodie.properties", "h/d/a.parquet"):  # fmt: skip
            store.put(key, data)
        monkeypatch.setattr(Store, "_call", counted)
        raw = f"s3://{BUCKET}/lake/raw/x"
        assert listed(raw, options=options) == ["a.parquet"]
        assert asked == [f"list {raw}/"]
        check_above(locate(raw), options)
        above = {line.rpartition("/")[0] for line in asked[1:]}
        assert {f"list s3://{BUCKET}", f"list s3://{BUCKET}/lake", f"list s3://{BUCKET}/lake/raw"} <= above
        assert len(asked) <= 1 + 5 * 3
        for location, form in (("t/d=1", DELTA), ("i/data", ICEBERG), ("h/d", HUDI)):
            assert listed(f"s3://{BUCKET}/lake/{location}", options=options) == ["a.parquet"]
            with pytest.raises(OtherFormat, match=FORMATS[form]):
                check_above(locate(f"s3://{BUCKET}/lake/{location}"), options)
            with pytest.raises(OtherFormat, match=FORMATS[form]):
                listed(f"s3://{BUCKET}/lake/{location.partition('/')[0]}", options=options)


@pytest.fixture
def registered(spark: Any, tmp_path: Path) -> Path:
    """A source of two files with an index, registered and indexed while it was a folder of plain files."""
    from spark_apps import IndexedTable

    source = tmp_path / "raw" / "data"
    for number in range(2):
        source.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": [1, 2 + number], "v": [number, 7]}), source / f"{number}.parquet")
    table = IndexedTable.register(spark, source, record_key=["id"])
    table.create_index("by_v", kind="secondary", columns=["v"])
    return source


@pytest.mark.spark
@pytest.mark.parametrize("where", ["metadata/v1.metadata.json", "data/_delta_log/00000000000000000000.json"])
def test_given_a_source_that_became_another_format_s_then_it_is_shown_and_dropped_and_never_read(
    spark: Any, registered: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    import spark_apps
    from spark_apps import IndexedTable

    assert open_table(registered).read("v = 1").num_rows == 1
    make(registered.parent, [where])
    table, opened = IndexedTable.load(spark, registered), open_table(registered)
    assert list(table.indexes) == ["by_v"] and len(table.history()) == 2 and list(opened.indexes) == ["by_v"]
    copied = f"USING indexed TBLPROPERTIES (primaryKey = 'id') AS SELECT * FROM parquet.`{registered}`"
    refused: list[Callable[[], Any]] = [
        lambda: table.read("v = 1"), lambda: table.explain("v = 1"), table.read, lambda: opened.read("v = 1"),
        opened.read, lambda: table.refresh_index("by_v"), lambda: table.refresh_index("by_v", mode="full"),
        lambda: table.create_index("by_id", kind="record"), lambda: table.verify("by_v"),
        lambda: opened.lookup([1]), lambda: IndexedTable.load(spark, registered, version=1).read(),
        lambda: IndexedTable.register(spark, registered, name="again"),
        lambda: IndexedTable.create(spark, registered.parent.parent / "t", record_key=["id", "v"],
                                    from_source=registered, source_format="parquet"),
        lambda: spark_apps.sql.run(spark, f"CREATE TABLE `{registered.parent.parent}/u` {copied}"),
    ]  # fmt: skip
    for work in refused:
        with pytest.raises(OtherFormat, match=r"shows\. Read as plain files"):
            work()
    spark_apps.enable(spark)
    try:
        frame = spark.read.parquet(str(registered)).where("v = 1")
        assert frame.count() == 1 and spark.read.parquet(str(registered)).where("v = 7").count() == 2
    finally:
        spark_apps.disable(spark)
    assert len([record for record in caplog.records if "is read by Spark's own plan" in record.getMessage()]) == 1
    table.drop_index("by_v")
    assert not table.indexes
    table.drop()


@pytest.mark.spark
def test_given_keys_that_name_several_rows_then_the_build_of_a_record_index_says_so(
    spark: Any, registered: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from spark_apps import IndexedTable

    table = IndexedTable.load(spark, registered)
    metrics = table.create_index("by_id", kind="record").metrics
    assert (metrics["repeated_keys"], metrics["rows_of_repeated_keys"]) == (1, 2)
    assert "id=1 (2 rows)" in caplog.text
    caplog.clear()
    pq.write_table(pa.table({"id": [3, None, None], "v": [8, 8, 8]}), registered / "2.parquet")
    metrics = table.refresh_index("by_id", mode="full").metrics
    assert metrics["repeated_keys"] == 3 and metrics["rows_of_repeated_keys"] == 6
    assert sorted(table.read("id = 1").collect()) == [(1, 0), (1, 1)]
