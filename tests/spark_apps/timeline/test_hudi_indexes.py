"""What a Hudi table's folder says of its own indexes, read without Hudi: whatever stands there, bounded and checked."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from spark_apps.storage.errors import LakeIndexError, LogDamaged, TableNotFound
from spark_apps.storage.store import Store
from spark_apps.timeline import hudi_indexes
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.hudi_indexes import NAME, buckets_of, read_indexes, read_rules
from spark_apps.timeline.model import AddFile, Field, IndexDefinition, SourceDefinition, TableDefinition

PROPERTIES = r"""#Updated at 2026-11-28T10:10:55Z
hoodie.table.version=9
hoodie.table.type=MERGE_ON_READ
hoodie.table.create.schema={"type"\:"record","name"\:"t"}
hoodie.table.recordkey.fields=id
hoodie.table.metadata.partitions=column_stats,expr_index_low,files,record_index,secondary_index_by_city
hoodie.table.metadata.partitions.inflight=secondary_index_by_day
hoodie.table.index.defs.path=.hoodie/.index_defs/index.json
"""


def definition(kind: str, *fields: str, function: str = "identity", **options: str) -> dict[str, Any]:
    return {
        "indexName": "n", "indexType": kind, "indexFunction": function, "sourceFields": fields,
        "indexOptions": options, "version": "V2",
    }  # fmt: skip


DEFINITIONS = {
    "column_stats": definition("column_stats", "id", "v", function="column_stats"),
    "record_index": definition("record_index", function="", isPartitioned="false"),
    "secondary_index_by_city": definition("secondary_index", "city"),
    "secondary_index_by_day": definition("secondary_index", "day"),
    "expr_index_low": definition("column_stats", "city", function="lower", expr="lower"),
    "expr_index_broken": definition("bloom_filters", "city", function="upper"),
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "t/.hoodie/.index_defs").mkdir(parents=True)
    (tmp_path / "t/.hoodie/hoodie.properties").write_text(PROPERTIES)
    (tmp_path / "t/.hoodie/.index_defs/index.json").write_text(json.dumps({"indexDefinitions": DEFINITIONS}))
    return tmp_path / "t"


def test_given_a_table_then_each_index_has_its_kind_columns_and_state(table: Path) -> None:
    said = read_indexes(Store(table))
    assert {p: (one.name, one.kind, one.columns, one.state) for p, one in said.indexes.items()} == {
        "record_index": ("record_index", "hudi:record", (), "active"),
        "column_stats": ("column_stats", "hudi:column_stats", ("id", "v"), "active"),
        "secondary_index_by_city": ("by_city", "hudi:secondary", ("city",), "active"),
        "secondary_index_by_day": ("by_day", "hudi:secondary", ("day",), "building"),
        "expr_index_low": ("low", "hudi:expression", ("city",), "active"),
        # What a CREATE INDEX that was refused leaves, by which later writes fail.
        "expr_index_broken": ("broken", "hudi:expression", ("city",), "refused"),
    }
    low = said.indexes["expr_index_low"]
    assert (low.using, low.function, said.record_key, said.version) == ("column_stats", "lower", ("id",), 9)
    assert said.settings["hoodie.table.create.schema"] == '{"type":"record","name":"t"}'


def test_given_an_index_of_the_log_then_it_is_found_by_its_name_in_hudi_or_is_gone(table: Path) -> None:
    said = read_indexes(Store(table))
    by_id = IndexDefinition("by_id", "hudi:record", ("id",), "1", properties={NAME: "record_index"})
    by_day = IndexDefinition("by_hour", "hudi:secondary", ("hour",), "1")
    assert said.of(by_id) is said.indexes["record_index"] and said.of(by_day) is None
    assert said.named("by_city") is said.named("secondary_index_by_city") is said.indexes["secondary_index_by_city"]
    assert said.named("files") is None
    assert (by_id.engine, IndexDefinition("i", "record", (), "1").engine) == ("hudi", "lakeindex")


def test_given_a_definition_without_a_partition_then_only_one_that_breaks_writes_counts(table: Path) -> None:
    properties = table / ".hoodie/hoodie.properties"
    properties.write_text(PROPERTIES.replace(",record_index", "").replace("column_stats,", ""))
    # Hudi leaves these definitions, and makes the partitions anew with the next write that has their settings.
    assert not {"record_index", "column_stats"} & read_indexes(Store(table)).indexes.keys()


def test_given_no_definitions_or_no_table_then_there_is_none_and_no_folder_is_left_behind(table: Path) -> None:
    (table / ".hoodie/.index_defs/index.json").unlink()
    assert set(read_indexes(Store(table)).indexes) == {
        "column_stats", "expr_index_low", "record_index", "secondary_index_by_city", "secondary_index_by_day",
    }  # fmt: skip
    with pytest.raises(TableNotFound):
        read_indexes(Store(table / "other"))
    assert not (table / "other").exists()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (".hoodie/.index_defs/index.json", "/etc/passwd"),
        (".hoodie/.index_defs/index.json", ".hoodie/../../secret.json"),
        (".hoodie/.index_defs/index.json", "s3://other/index.json"),
        ("files,record_index", "files,../record_index"),
        ("files,record_index", "files,a\\\\b"),
        ("files,record_index", "x" * 301),
        ("hoodie.table.version=9", "hoodie.table.version=99999"),
        ("hoodie.table.version=9", "hoodie.table.version=nine"),
        ("files,record_index", ",".join(map(str, range(10_001)))),
    ],
)
def test_given_properties_that_lead_elsewhere_or_say_nonsense_then_they_are_refused(
    table: Path, tmp_path: Path, old: str, new: str
) -> None:
    (tmp_path / "secret.json").write_text(json.dumps({"indexDefinitions": {"secret": definition("x")}}))
    path = table / ".hoodie/hoodie.properties"
    path.write_text(PROPERTIES.replace(old, new))
    with pytest.raises(LogDamaged) as refused:
        read_indexes(Store(table))
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize("file", [".hoodie/hoodie.properties", ".hoodie/.index_defs/index.json"])
def test_given_a_file_larger_than_such_files_are_or_a_link_then_it_is_not_read(
    table: Path, tmp_path: Path, file: str
) -> None:
    path = table / file
    body = path.read_bytes()
    path.write_bytes(body + b"\n" * (hudi_indexes.MAX_DEFINITIONS_BYTES + 1))
    with pytest.raises(LogDamaged):
        read_indexes(Store(table))
    (tmp_path / "outside").write_bytes(body)
    path.unlink()
    path.symlink_to(tmp_path / "outside")
    with pytest.raises(LogDamaged, match="link"):
        read_indexes(Store(table))


HOSTILE: list[Any] = [
    b"", b"[]", b"null", b'{"indexDefinitions": 7}', b'{"indexDefinitions": {"a": {"sourceFields": "id"}}}',
    b"[" * 100_000, b'{"indexDefinitions": {"../x": {}}}', b'{"indexDefinitions": {"a": {"sourceFields": [' +
    b'"x",' * 1001 + b'"x"]}}}', b"\xff\xfe", b'{"indexDefinitions": {"a": {"indexType": "' + b"x" * 5000 + b'"}}}',
]  # fmt: skip


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_given_definitions_that_are_none_then_they_are_refused_in_our_words(table: Path, body: bytes) -> None:
    (table / ".hoodie/.index_defs/index.json").write_bytes(body)
    with pytest.raises(LogDamaged):
        read_indexes(Store(table))


def test_given_mutated_bytes_then_they_are_read_or_refused_and_none_takes_long(table: Path) -> None:
    draw = random.Random(7)
    for file in (".hoodie/hoodie.properties", ".hoodie/.index_defs/index.json"):
        whole = (table / file).read_bytes()
        for _ in range(150):
            body = bytearray(whole)
            for _ in range(draw.randint(1, 6)):
                body[draw.randrange(len(body))] = draw.randrange(256)
            (table / file).write_bytes(bytes(body[: draw.randint(0, len(body))] if draw.random() < 0.3 else body))
            started = time.monotonic()
            try:
                read_indexes(Store(table))
            except LakeIndexError:
                pass
            assert time.monotonic() - started < 2
        (table / file).write_bytes(whole)


def test_given_rules_of_partitions_then_they_come_newest_first_and_hostile_ones_are_refused(table: Path) -> None:
    assert read_rules(Store(table)) == []
    folder = table / hudi_indexes.CONFIGS
    folder.mkdir(parents=True)
    for instant, text in (("20261128101544225", "p=p1,6"), ("20261128101546740", "p=p0,4;p=p1,6")):
        said = {"expressions": text, "defaultBucketNumber": 2, "rule": "regex", "version": 1, "instant": instant}
        (folder / f"{instant}.hashing_config").write_text(json.dumps(said))
    (folder / "notes.txt").write_text("of no concern")
    assert [(one.instant, one.expressions, one.default_bucket_number) for one in read_rules(Store(table))] == [
        ("20261128101546740", "p=p0,4;p=p1,6", 2),
        ("20261128101544225", "p=p1,6", 2),
    ]
    for body in (b"", b"{}", b'{"defaultBucketNumber": 0}', b'{"defaultBucketNumber": 1e99}', b"x" * (2 << 20)):
        (folder / "20261128101546741.hashing_config").write_bytes(body)
        with pytest.raises(LogDamaged):
            read_rules(Store(table))


def test_given_files_of_the_bucket_index_then_the_buckets_of_a_partition_have_their_sizes(tmp_path: Path) -> None:
    source = SourceDefinition("hudi", str(tmp_path / "t"))
    definition = TableDefinition("t", (Field("id", "bigint"),), ("id",), source=source)
    files = [
        AddFile("data", "", f"g{at}", f"file://{tmp_path}/t/{name}", "base", 5, size, lineage=at + 1)
        for at, (name, size) in enumerate(
            (
                ("p=p1/00000000-bc09-4181-b355-32b16b5e3543-0_2-473-3264_20261128101542406.parquet", 30),
                ("p=p1/00000002-ce7e-4977-a6be-147a7ee8ccd2-0_3-473-3265_20261128101542406.parquet", 20),
                ("p=p10/00000001-ce7e-4977-a6be-147a7ee8ccd2-0_3-473-3265_20261128101542406.parquet", 7),
            )
        )
    ]
    timeline, _ = create_table(Store(tmp_path / "_indexes/t"), definition, files, txn_id="make")
    seen = buckets_of(timeline.head, "p=p1", 4)
    assert (seen.path, seen.buckets, seen.files, seen.bytes, seen.rows) == ("p=p1", 4, 2, 50, 10)
    assert seen.bucket_bytes == (30, 0, 20, 0)
