"""Names that Spark's catalog resolves to a plain folder: where it is, its format, columns and options."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from spark_apps.layout.partitions import parse_partition_path
from spark_apps.sources.options import PLAIN_FORMATS
from spark_apps.storage.errors import UnsupportedSource

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){0,2}\Z")


@dataclass(frozen=True)
class CatalogTable:
    """A table of the catalog."""

    location: str
    format: str
    schema: StructType
    options: dict[str, str]


def resolve(spark: SparkSession, name: str) -> CatalogTable | None:
    """Return the folder behind a name, or ``None`` if it is no name of a table (a path, or nothing in the catalog).

    :raises UnsupportedSource: for a view, a format that is not plain files, or partitions that lie elsewhere.
    """
    if not _NAME.match(name) or Path(name).exists() or not _exists(spark, name):
        return None
    quoted = ".".join(f"`{part}`" for part in name.split("."))
    details = _described(spark, quoted)
    form = details.get("Provider", "").lower()
    if details.get("Type", "").upper() == "VIEW" or form not in PLAIN_FORMATS or not details.get("Location"):
        what = "a view" if "VIEW" in details.get("Type", "").upper() else f"a table of the format {form or 'unknown'!r}"
        raise UnsupportedSource(
            f"{name} is {what} in Spark's catalog, not a folder of plain files.",
            hint=f"Names stand for {', '.join(PLAIN_FORMATS)}; give other tables by their address.",
        )
    location = _path(details["Location"])
    if details.get("Partition Provider", "").lower() == "catalog":
        _check_partitions(spark, name, quoted, location)
    return CatalogTable(location, form, spark.table(quoted).schema, _options(details.get("Storage Properties", "")))


def _exists(spark: SparkSession, name: str) -> bool:
    try:
        return bool(spark.catalog.tableExists(name))
    except PySparkException:
        return False  # no such catalog or database


def _described(spark: SparkSession, quoted: str) -> dict[str, str]:
    rows: list[Any] = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted}").collect()
    start = next((n for n, row in enumerate(rows) if row[0].startswith("# Detailed Table")), len(rows))
    return {row[0].strip(): (row[1] or "").strip() for row in rows[start + 1 :]}


def _path(location: str) -> str:
    # A catalog shows local folders as file:/path, and nothing in it quoted.
    return "/" + location.removeprefix("file:").lstrip("/") if location.startswith("file:") else location


def _options(text: str) -> dict[str, str]:
    pairs = dict(re.findall(r"([\w.]+)=([^,\]]*)", text.strip("[]")))
    return {name: value for name, value in pairs.items() if name not in ("serialization.format", "path")}


def _check_partitions(spark: SparkSession, name: str, quoted: str, location: str) -> None:
    """Check that all partitions lie in the table's folder.

    The catalog knows partitions that a listing of the folder might not find, or the other way round.
    """
    paths = {row[0] for row in spark.sql(f"SHOW PARTITIONS {quoted}").collect()}
    for path in paths:
        spec = ", ".join(f"`{k}`={json.dumps(v)}" for k, v in parse_partition_path(path).items())
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted} PARTITION ({spec})").collect()
        details = {row[0].strip(): (row[1] or "") for row in rows}
        if not _path(details.get("Location", location)).startswith(location):
            raise UnsupportedSource(
                f"The partition {path} of {name} lies outside of {location}.", hint="Register its folder by itself."
            )
