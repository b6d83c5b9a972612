"""Hudi's own calls in a session that has no Hudi, as every Spark 4: they are refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark_apps.sources.hudi_calls import HudiCalls
from spark_apps.storage.errors import EnvironmentMismatch
from spark_apps.timeline.model import Field, SourceDefinition, TableDefinition


def test_given_a_spark_without_hudi_then_its_indexes_are_refused_by_the_name_of_what_is_missing(
    spark: Any, tmp_path: Path
) -> None:
    source = SourceDefinition("hudi", str(tmp_path / "t"))
    table = TableDefinition("t", (Field("id", "bigint"),), ("id",), source=source)
    with pytest.raises(EnvironmentMismatch, match=r"hudi-spark3\.5-bundle") as refused:
        HudiCalls(spark, table).check()
    assert spark.version in str(refused.value)
    assert spark.version.startswith("3.5.") or "no bundle for Spark" in str(refused.value)
