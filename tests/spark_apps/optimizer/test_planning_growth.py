"""What planning a plain query asks for: no more of it as files grow, once for equal scans, in threads side by side."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import MEMORY_COMMAND_NAME, MEMORY_DEL_SUBCOMMAND_NAME

import spark_apps
from spark_apps import IndexedTable
from spark_apps.optimizer import rewriting
from spark_apps.sources import registry
from spark_apps.storage.store import Store
from tests.spark_apps.optimizer.test_plain_queries import used

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.by_turn(8)]

FEW, MANY = 8, 800

_FORGET = f"{MEMORY_COMMAND_NAME}{MEMORY_DEL_SUBCOMMAND_NAME}"


def write(path: Path, first: int, files: int) -> None:
    """Write files of two rows, whose ids begin with twice the number of the file."""
    for number in range(first, first + files):
        folder = path / f"day=d{number % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        ids = [2 * number, 2 * number + 1]
        pq.write_table(pa.table({"id": ids, "text": [f"t{n}" for n in ids]}), folder / f"part-{number:04d}.parquet")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    lake = tmp_path_factory.mktemp("planning-growth")
    for name, files in {"few": FEW, "many": MANY}.items():
        write(lake / name, 0, files)
        IndexedTable.register(spark, lake / name).create_index("by_id", "skipping", ["minmax(id)"])
    return lake


@pytest.fixture
def views(spark: SparkSession, lake: Path) -> Iterator[None]:
    spark_apps.enable(spark)
    for name in ("few", "many"):
        spark.read.parquet(str(lake / name)).createOrReplaceTempView(name)
    yield
    spark_apps.disable(spark)


@contextmanager
def counted(spark: Any) -> Iterator[Counter[str]]:
    """Count calls of the JVM, jobs, listings of stores and of sources, and read plans."""
    counts: Counter[str] = Counter()

    def count(patch: pytest.MonkeyPatch, owner: Any, name: str, what: str) -> None:
        original: Callable[..., Any] = getattr(owner, name)

        def called(*arguments: Any, **named: Any) -> Any:
            # Java is asked to forget an object whenever Python collects its garbage.
            counts[what] += not str(arguments[1] if len(arguments) > 1 else "").startswith(_FORGET)
            return original(*arguments, **named)

        patch.setattr(owner, name, called)

    with pytest.MonkeyPatch.context() as patch:
        count(patch, type(spark._sc._gateway._gateway_client), "send_command", "calls")
        count(patch, Store, "list", "listings")
        count(patch, registry, "list_folder", "listings")
        count(patch, rewriting, "plan_read", "plans")
        spark.sparkContext.setJobGroup("counted", "")
        yield counts
    counts["jobs"] = len(spark.sparkContext.statusTracker().getJobIdsForGroup("counted"))
    spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def plan(spark: SparkSession, query: str) -> None:
    frame: Any = spark.sql(query)
    frame._jdf.queryExecution().executedPlan()


@pytest.mark.usefixtures("views")
@pytest.mark.parametrize("where", ["id = 5", "text = 't5'", "true"])
def test_given_a_hundred_times_the_files_when_a_query_is_planned_then_it_asks_for_no_more(
    spark: SparkSession, where: str
) -> None:
    asked = {}
    for name in ("few", "many"):
        query = f"SELECT id FROM {name} WHERE {where}"
        for _ in range(2):
            plan(spark, query)
        with counted(spark) as asked[name]:
            plan(spark, query)

    assert asked["many"] == asked["few"]
    assert asked["many"]["calls"] > 0 < asked["many"]["plans"]
    assert asked["many"]["listings"] == asked["many"]["jobs"] == 0


@pytest.mark.usefixtures("views")
def test_given_equal_scans_when_a_query_is_planned_then_one_is_decided_on_and_both_are_pruned(
    spark: SparkSession,
) -> None:
    equal = "SELECT a.id FROM many a CROSS JOIN many b WHERE a.id = 5 AND b.id = 5"
    other = "SELECT a.id FROM many a CROSS JOIN many b WHERE a.id = 5 AND b.id = 9"
    counts = {}
    for query in (equal, other):
        with counted(spark) as counts[query]:
            plan(spark, query)
        assert used(spark_apps.explain(query, spark)) == ["by_id", "by_id"]
        assert [row.id for row in spark.sql(query).collect()] == [5]

    assert [counts[equal]["plans"], counts[other]["plans"]] == [1, 2]


def test_given_threads_that_plan_while_refreshes_commit_then_each_answer_is_that_of_its_list(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "grown"
    write(path, 0, FEW)
    table = IndexedTable.register(spark, path)
    table.create_index("by_id", "skipping", ["minmax(id)"])
    spark_apps.enable(spark)
    try:
        frames = [spark.read.parquet(str(path))]

        def ask(number: int) -> list[int]:
            frame = frames[number % len(frames)]
            wanted = [number % (2 * FEW), 2 * FEW + number % 8]
            rows = frame.where(f"id IN ({wanted[0]}, {wanted[1]})").collect()
            there = {2 * FEW + 2 * n + m for n in range(len(frame.inputFiles()) - FEW) for m in (0, 1)}
            assert sorted(row.id for row in rows) == [wanted[0], *({wanted[1]} & there)]
            return wanted

        with ThreadPoolExecutor(8) as pool:
            asked = [pool.submit(ask, number) for number in range(8)]
            for more in range(4):
                write(path, FEW + more, 1)
                frames.append(spark.read.parquet(str(path)))
                table.refresh_index("by_id")
                asked += [pool.submit(ask, number) for number in range(8)]
            assert all(each.result() for each in asked)
        assert used(spark_apps.explain(frames[-1].where("id = 5"))) == ["by_id"]
        assert used(spark_apps.explain(frames[0].where("id = 5"))) == ["by_id"]
    finally:
        spark_apps.disable(spark)


@pytest.mark.by_turn(1)
def test_given_files_rewritten_or_gone_since_then_a_query_reads_what_spark_lists_and_says_what_is_missing(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = tmp_path / "changed"
    write(path, 0, FEW)
    IndexedTable.register(spark, path).create_index("by_id", "skipping", ["minmax(id)"])
    before = (path / "day=d1/part-0001.parquet").stat()
    pq.write_table(pa.table({"id": [72, 73], "text": ["t2", "t3"]}), path / "day=d1/part-0001.parquet")
    assert (path / "day=d1/part-0001.parquet").stat().st_size == before.st_size
    spark_apps.enable(spark)
    try:
        listed = spark.read.parquet(str(path))
        for ids, index in {(72,): "by_id", (72, 9): "by_id", (): None}.items():
            rows = listed.where(f"id IN ({', '.join(map(str, ids))})" if ids else "id >= 0")
            assert used(spark_apps.explain(rows)) == [index]
            assert {row.id for row in rows.collect()} >= set(ids)
        assert listed.where("id = 2").count() == 0

        (path / "day=d0/part-0000.parquet").unlink()
        assert listed.where("id = 9").count() == 1, "a file that is not read is not missed"
        with pytest.raises(Exception, match=r"part-0000\.parquet"):
            listed.where("id = 0").collect()
    finally:
        spark_apps.disable(spark)
