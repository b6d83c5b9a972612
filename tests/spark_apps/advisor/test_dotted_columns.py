"""Advice on a table with a column whose name holds a dot, beside a struct of that path; no Spark session."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from spark_apps.arrow_table import open_table
from spark_apps.storage.store import Store
from spark_apps.timeline.creation import create_table
from spark_apps.timeline.locations import locate
from spark_apps.timeline.model import Field, SourceDefinition, TableDefinition
from spark_apps.workload.asked import AskedQuery, Workload


def test_given_a_column_with_a_dot_in_its_name_then_advice_takes_it_for_the_column(tmp_path: Path) -> None:
    place, count = tmp_path / "s", 5_000
    place.mkdir()
    for number in range(4):
        rows = {
            "id": range(number * count, (number + 1) * count),
            "a.b": pa.array([row % 700 for row in range(count)], pa.int32()),
            "a": [{"b": row} for row in range(count)],
        }
        pq.write_table(pa.table(rows), place / f"{number}.parquet")
    fields = (Field("id", "bigint"), Field("a.b", "int"), Field("a", "struct<b:bigint>"))
    source = SourceDefinition("parquet", str(place))
    create_table(
        Store(locate(str(place)).default_log()), TableDefinition("t", fields, (), bucketed=False, source=source), []
    )
    table = open_table(place)
    asked = [
        AskedQuery(
            table=table.uri, asked=datetime.now(UTC), predicate=where, shape=where, columns=("id", "a.b"),
            weight=1000.0, bytes_read=1_000_000, join_keys=("a.b",), order=("a.b",),
        )
        for where in ("`a.b` = 3", "`a.b` > 600")
    ]  # fmt: skip

    advice = table.advise(Workload(asked), {"bytes": None})

    assert not advice.left_out and advice.candidates
    assert any(one.columns == ("a.b",) and "(`a.b`)" in str(one.statement) for one in advice.proposals)
