"""Covering indexes that are tried where a column of theirs is read by Spark alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_apps import open_table
from spark_apps.advisor.hypothetical import columns_to_sample, definition_of
from spark_apps.advisor.in_memory import covering_files
from spark_apps.advisor.sample import read_sample
from spark_apps.arrow_table import OpenTable
from spark_apps.indexes.handler import IndexContext
from tests.compatibility.lake import unpack

GIVEN = {"kind": "covering", "columns": ["rider"], "included": ["fare"], "name": "x"}


def source(folder: Path, **fares: str) -> OpenTable:
    """Return a source of CSV files, each with 40 rows or 10: how each writes its fares, of which Spark alone reads +1.

    Its log is one of the version before, for registering takes a session.
    """
    root = unpack(folder)
    uri = root / "raw/_indexes/riders"
    first, *others = sorted((uri / "_index/timeline").glob("*.json"))
    for other in others:
        other.unlink()
    commit = json.loads(first.read_text(encoding="utf-8"))
    definition, partition, add = commit["actions"]
    definition["definition"]["fields"][1] = {"name": "fare", "type": "int"}
    commit["actions"] = [definition, partition]
    (root / "raw/riders/all.csv").unlink()
    for number, (name, form) in enumerate(fares.items(), 1):
        file = root / f"raw/riders/{name}.csv"
        lines = (f"r{row};{form.format(row)}" for row in range(10 if number == 1 else 40))
        file.write_text("\n".join(["rider;fare", *lines]), encoding="utf-8")
        stat = file.stat()
        etag = f"{stat.st_ino:x}-{stat.st_mtime_ns:x}-{stat.st_size:x}"
        extra = {"modified": stat.st_mtime, "etag": etag}
        added = {"path": f"file://{file}", "bytes": stat.st_size, "group": f"{number}", "lineage": number}
        commit["actions"].append({**add, **added, "extra": extra})
    first.write_text(json.dumps(commit), encoding="utf-8")
    return open_table(uri)


def test_given_a_column_that_only_spark_reads_in_some_files_when_tried_then_the_index_is_estimated(
    tmp_path: Path,
) -> None:
    table = source(tmp_path, plain="{}", others="+{}")
    explained = table.explain("rider = 'r3'", ["rider", "fare"], [GIVEN])
    assert [(use.name, use.replaces) for use in explained.indexes] == [("x", 2)] and explained.files_read == 0


def test_given_a_wide_column_that_only_spark_reads_when_tried_over_a_sample_then_bytes_for_it_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_apps.advisor.sample.SMALL_GROUPS", 0)
    monkeypatch.setattr("spark_apps.advisor.in_memory.MAX_FILLER_BYTES", 30)
    snapshot = source(tmp_path, one="+{}", others="+{}")._snapshot
    definition = definition_of(snapshot, GIVEN)
    sample = read_sample(snapshot, columns_to_sample(snapshot, [definition]))
    _, made, columns = covering_files(IndexContext(snapshot, definition, ""), sample, 0)
    assert 0 < sum(file.rows for file in made.files) <= 30
    made_bytes, of_all = columns["fare"]
    assert of_all > made_bytes
