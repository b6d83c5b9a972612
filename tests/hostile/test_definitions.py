"""Definitions of indexes in a log that nobody who builds indexes has written slow queries down, and fail none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spark_apps.datasource import IndexedDataSource
from spark_apps.storage.errors import LogDamaged
from spark_apps.storage.store import Store
from spark_apps.timeline.log import Timeline, commit_key
from tests.hostile import lake


def plant(root: Path, kind: str, properties: dict[str, str], **more: Any) -> str:
    """A table with an index that says it covers the one file there is; returns its address."""
    lake.make(root)
    definition = {"name": "planted", "kind": kind, "columns": ["ts"], "index_id": "9", "properties": properties,
                  "addresses": "file", **more}  # fmt: skip
    tree = "index/planted@9"
    covers = {**lake.COVERS, "columns": ["ts"], "lineages": [6], "bytes": [4]}
    entries = {**lake.ADD, "tree": tree, "path": "_index/indexes/planted/first.1/work/part-0.parquet", "partition": "",
               "kind": "base", "lineage": 9, "tombstones": 0, "extra": {"covers": [covers]}}  # fmt: skip
    index = {"action": "index", "definition": definition, "state": "active", "covered": False}
    cover = {"action": "cover", "tree": tree, "through": 0}
    store = Store(root / "lake" / "table")
    first = {**lake.FIRST, "actions": [*lake.FIRST["actions"], index, entries, cover]}
    store.put(commit_key(0), json.dumps(first).encode())
    return store.uri


DEFINITIONS: list[tuple[str, dict[str, str], dict[str, Any]]] = [
    ("compact", {}, {}),
    *(("compact", {"most_values": text}, {}) for text in ["x", "-1", "1e9", "", "٣", "9" * 30]),
    *(("compact", {"most_values": "10"}, {"columns": columns}) for columns in [["nowhere"], ["ts", "ts"], [""]]),
    *(("secondary", {"tombstones": text}, {"addresses": "key"}) for text in ["x", "lazy"]),
    ("secondary", {}, {"addresses": "key", "hash_function": "ranges:[[", "columns": ["ts"]}),
    ("secondary", {}, {"addresses": "key", "hash_function": "os.system", "columns": ["ts"]}),
    *(
        ("secondary", {"indexed_expressions": text}, {"addresses": "key", "columns": ["abs(ts)"]})
        for text in ["x", "[1]", '{"abs(ts)": 1}', '{"abs(ts)": "blob<"}', "[" * 10000]
    ),
    *(
        (kind, {"indexed_expressions": text, "expression_stamp": "[["}, {"columns": ["abs(ts)"]})
        for kind in ("compact", "covering")
        for text in ["x", '{"abs(ts)": "blob<"}', '{"abs(ts)": "int"}']
    ),
    ("secondary", {"indexed_expressions": '{"sleep(ts)": "int"}'}, {"addresses": "key", "columns": ["sleep(ts)"]}),
    *(
        ("skipping", {"expression_types": text}, {"columns": ["minmax(ts)"]})
        for text in ["x", "{}", '["blob<"]', "[" * 10000]
    ),
    ("record", {}, {"addresses": "key"}),
    ("record", {}, {"addresses": "key", "columns": []}),
    *(("covering", {"layout": "ranges", "bounds": text}, {}) for text in ["x", "ranges:[[", "ranges:{}"]),
    *(
        ("covering", {"excluded": text, "schema": text}, {"included": ["id"]})
        for text in ["x", "struct<<", "[1]", "[" * 10000]
    ),
    *(("covering", {"hybrid_appended_ratio": text}, {}) for text in ["x", "nan"]),
    ("os.system", {}, {}),
    ("tests.hostile.planted.Handler", {}, {}),
]


@pytest.mark.by_turn(4)
@pytest.mark.parametrize(("kind", "properties", "more"), DEFINITIONS)
def test_given_a_definition_that_nobody_wrote_when_a_table_is_asked_then_the_rows_are_those_of_a_scan(
    kind: str, properties: dict[str, str], more: dict[str, Any], tmp_path: Path
) -> None:
    source = IndexedDataSource({"path": plant(tmp_path, kind, properties, **more), "where": "ts = 2"})
    reader = source.reader(source.schema())
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert rows == [{"p": "a", "id": 2, "ts": 2}]
    assert "planted" not in {use.name for use in reader.plan().used}
    assert reader.plan().not_used["planted"].reason


def test_given_a_partition_of_which_no_values_are_told_when_asked_by_them_then_it_is_refused_by_name(
    tmp_path: Path,
) -> None:
    lake.make(tmp_path)
    store = Store(tmp_path / "lake" / "table")
    bare = [{**one, "values": []} if one["action"] == "partition" else one for one in lake.FIRST["actions"]]
    store.put(commit_key(0), json.dumps({**lake.FIRST, "actions": bare}).encode())
    source = IndexedDataSource({"path": store.uri, "where": "p = 'a' AND id = 2"})
    reader = source.reader(source.schema())
    with pytest.raises(LogDamaged, match="'p=a' has 0 'values'") as refused:
        reader.partitions()
    assert store.uri in str(refused.value)


def test_a_table_of_its_own_without_a_record_key_is_refused_by_name(tmp_path: Path) -> None:
    lake.make(tmp_path)
    store = Store(tmp_path / "lake" / "table")
    table = {"action": "table", "definition": {**lake.DEFINITION, "record_key": []}}
    store.put(commit_key(0), json.dumps({**lake.FIRST, "actions": [table, *lake.FIRST["actions"][1:]]}).encode())
    with pytest.raises(LogDamaged, match=r"definition\.record_key"):
        Timeline.load(store)
