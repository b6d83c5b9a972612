"""Texts of a query log, which others write, do not reach Spark: it opens servers and files that a subquery names."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from spark_apps import IndexedTable
from spark_apps.workload.asked import AskedQuery, Workload

pytestmark = pytest.mark.spark


@contextmanager
def listening() -> Iterator[tuple[int, list[Any]]]:
    """Yield a port of this machine, and who has connected to it."""
    server, seen = socket.create_server(("127.0.0.1", 0)), []

    def accept() -> None:
        while True:
            try:
                connection, address = server.accept()
            except OSError:
                return
            seen.append(address)
            connection.close()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield server.getsockname()[1], seen
    finally:
        server.close()


def build(spark: Any, folder: Any) -> None:
    table = IndexedTable.create(spark, folder, "id bigint, `a.b` int, a struct<b: int>, city string", ["id"], buckets=1)
    rows = "id", "cast(id % 7 as int) AS `a.b`", "struct(cast(id as int) AS b) AS a", "concat('c', id % 3) AS city"
    table.upsert(spark.range(200).selectExpr(*rows))


FROM = (
    "SELECT value FROM text.`ftp://u:p@127.0.0.1:{port}/x`", "SELECT x FROM parquet.`hdfs://127.0.0.1:{port}/x`",
    "SELECT x FROM csv.`webhdfs://127.0.0.1:{port}/x`", "SELECT x FROM json.`ftp://127.0.0.1:{port}/x`",
    "SELECT x FROM read_files('ftp://127.0.0.1:{port}/x')", "SELECT col FROM nowhere",
    "SELECT value FROM text.`file:///etc/passwd`", "SELECT value FROM binaryFile.`/etc/passwd`",
)  # fmt: skip
AROUND = (
    "no_such_column IN ({})", "exists ({})", "id IN ({})", "id = ({}) AND no_such_column = 1",
    "`a.b` = 1 AND x IN ({})", "city LIKE ANY ({})", "id IN ({}) GROUP BY",
)  # fmt: skip
CALLS = (
    "reflect('java.lang.System', 'setProperty', 'planted', '1') = '1' AND no_such_column",
    "java_method('java.lang.System', 'setProperty', 'planted', '1') = '1' AND no_such_column",
    "id = assert_true(java_method('java.lang.System', 'setProperty', 'planted', '1') = '1') :: void",
)


def test_given_texts_of_a_query_log_that_name_servers_and_files_then_advice_opens_none_of_them(
    prepared: Any, spark: Any
) -> None:
    table = prepared(build)
    with listening() as (port, seen):
        both = [*((AROUND[0], query) for query in FROM), *((around, FROM[0]) for around in AROUND[1:])]
        texts = [*(around.format(query.format(port=port)) for around, query in both), *CALLS]
        asked = [
            AskedQuery(table=table.uri, asked=datetime.now(UTC), predicate=text, shape=f"{n}", bytes_read=1_000 + n)
            for n, text in enumerate([*texts, "`a.b` = 3"])
        ]
        advice = table.advise(Workload(asked))
        assert not seen
        with pytest.raises(Exception, match=r"(?i)connect|ftp|unresolved|invalid|direct query"):
            spark.range(1).where(f"id IN ({FROM[0].format(port=port)})").collect()
        assert seen, "Spark itself opens what a text names"
    assert not any("passwd" in statement or "127.0.0.1" in statement for statement in advice.statements)
    if getattr(spark, "_jvm", None) is not None:
        assert spark._jvm.java.lang.System.getProperty("planted") is None
