"""Runs the blocks of Python of the documents, page by page, in their order, each page in one namespace.

A page says what its reader types and nothing else. The tables that it speaks of are those of ``lakeindex example``, in
a folder that takes the place of the addresses that it names. Blocks for DAGs are run inside of one, without a
scheduler: every operator reads its arguments. What is not run is named with its reason, and what runs elsewhere with
its test.
"""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_apps.cli import example
from tests.documents import DOCS, PAGES, Block, blocks

pytestmark = pytest.mark.by_turn(8)

ELSEWHERE = {
    ("handlers.md", 0): "tests/spark_apps/indexes/test_third_party.py",
    ("iceberg.md", 0): "tests/connectors/test_iceberg_names.py",
    ("iceberg.md", 1): "tests/connectors/conftest.py",
    ("rescale.md", 1): "tests/spark_apps/layout/test_engines.py",
    ("testing.md", 0): "tests/airflow_provider_index/testing/test_temporary_lake.py",
    ("testing.md", 1): "tests/airflow_provider_index/testing/test_temporary_lake.py",
}
"""Page and number of a block -> the test that runs it."""

ONLY_READ = {
    ("airflow.md", 1): "starts a whole Airflow, as tests/airflow does",
    ("testing.md", 2): "starts a whole Airflow, as tests/airflow does",
    ("testing.md", 3): "starts a whole Airflow and a Spark Connect server, as tests/airflow does",
    ("runners.md", 0): "needs the provider of Livy",
    ("runners.md", 1): "needs the providers of EMR, Databricks and Dataproc",
    ("measuring.md", 0): "is one more benchmark, and measures",
}
"""Page and number of a block -> why it is not run: that it can be read is all that is known."""

_OF_A_DAG = re.compile(r"\b\w+(Operator|Sensor)\(|airflow|stop_write_window\(|index_transaction\(")
_STORES = re.compile(r"^(s3://|/tmp/(warehouse|lake|logs|own)\b|/data/|/lake|/landing)")


def numbered(page: Path) -> list[tuple[int, Block]]:
    """The blocks of Python of a page, each with its number."""
    return list(enumerate(block for block in blocks(page) if block.language == "python"))


def run_here(page: Path, of_a_dag: bool) -> list[Block]:
    """The blocks of a page that are run by the tests of this module, those of DAGs or the others."""
    return [
        block
        for number, block in numbered(page)
        if not {(page.name, number)} & {*ELSEWHERE, *ONLY_READ} and bool(_OF_A_DAG.search(block.text)) is of_a_dag
    ]


WRITTEN = [page for page in PAGES if page.name not in ("CONTRIBUTING.md", "CHANGELOG.md")]
OF_SPARK = [page for page in WRITTEN if run_here(page, of_a_dag=False)]
OF_DAGS = [page for page in WRITTEN if run_here(page, of_a_dag=True)]


# --- running a block ------------------------------------------------------------------------------------------------


class InFolder(ast.NodeTransformer):
    """Has addresses of stores lead into a folder, and takes settings of stores out."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        for text, other in OTHERWISE.items():
            if isinstance(node.value, str) and text in node.value:
                return ast.copy_location(ast.Constant(node.value.replace(text, other)), node)
        if isinstance(node.value, str) and _STORES.match(node.value):
            rest = re.sub(r"^s3://|^/", "", node.value)
            return ast.copy_location(ast.Constant(f"{self.folder}/{rest}"), node)
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        kept = [
            pair
            for pair in zip(node.keys, node.values, strict=True)
            if not (isinstance(pair[0], ast.Constant) and str(pair[0].value).startswith("aws_"))
        ]
        node.keys, node.values = [key for key, _ in kept], [value for _, value in kept]
        return self.generic_visit(node)


def run(block: Block, names: dict[str, Any], folder: Path) -> None:
    """Run a block; what goes wrong is reported with the line of the page."""
    tree = InFolder(folder).visit(ast.parse(block.text))
    ast.increment_lineno(tree, block.line)
    ast.fix_missing_locations(tree)
    exec(compile(tree, str(block.page), "exec"), names)


# --- what pages speak of --------------------------------------------------------------------------------------------


def rows(spark: Any, select: str, count: int = 60) -> Any:
    return spark.sql(f"SELECT {select} FROM range({count})")


def covering(spark: Any, folder: Path) -> dict[str, Any]:
    from spark_apps import IndexedTable

    files = "id, id % 5 AS c0, id AS c1, id AS c2, date_add(DATE '2026-11-01', cast(id as int)) AS day, id / 2 AS fare"
    rows(spark, files).write.parquet(f"{folder}/raw")
    rows(spark, "id, concat('r', id) AS rider, 'sfo' AS city").write.parquet(f"{folder}/trips")
    rows(spark, "id, concat('r', id) AS rider, 'nyc' AS city").write.parquet(f"{folder}/riders")
    schema = "id bigint, c0 bigint, c1 bigint, c2 bigint, c3 bigint, day date, fare double"
    return {
        "table": IndexedTable.register(spark, folder / "raw", schema=schema),
        "trips": IndexedTable.register(spark, folder / "trips"),
        "riders": IndexedTable.register(spark, folder / "riders"),
    }


OWN: dict[str, Callable[[Any, Path], dict[str, Any]]] = {"covering.md": covering}
"""Pages that are not on the example lake -> what makes their tables, and the names that they use."""

OTHERWISE = {"2026-11-20T00:00Z": "2999-12-31T00:00Z", "range(1000000)": "range(100000)"}
"""What is said otherwise here: a moment after the table was made, and fewer rows."""

# --- what a page promises -------------------------------------------------------------------------------------------


def found_and_verified(names: dict[str, Any], printed: str) -> None:
    """The first index: the row of the key, and an index that agrees. Of fewer rows than the page's it may read more."""
    assert names["trips"].read("id = 4711").count() == 1
    assert "files " in printed and printed.rstrip().endswith("True")


def answered_by_its_index(names: dict[str, Any], printed: str) -> None:
    assert re.search(r"^used .*\n.*\nby_rider ", printed, re.MULTILINE), printed
    [read, skipped] = map(int, re.search(r"files +(\d+) read, (\d+) skipped", printed).groups())  # type: ignore[union-attr]
    assert read <= 5 and skipped >= 12, printed


def answered_by_its_first_index(names: dict[str, Any], printed: str) -> None:
    assert re.search(r"^used .*\n.*\nby_city ", printed, re.MULTILINE) and printed.rstrip().endswith("1000"), printed


def erased(names: dict[str, Any], printed: str) -> None:
    assert names["trips"].read("rider = 'r-17'").count() == 0 and names["trips"].read().count() == 19_996


def read_in_process(names: dict[str, Any], printed: str) -> None:
    assert sorted(row["id"] for row in names["rows"].to_pylist()) == ["k1", "k2"] and names["some"].num_rows == 2_250
    assert sorted(names["late"]["id"].to_pylist()) == ["r1", "r2"]  # from 21:00 UTC on
    assert "osl" in printed


def found_where_it_is(names: dict[str, Any], printed: str) -> None:
    assert set(names["found"]["id"].to_pylist()) == {"k1", "k7"}
    assert names["trips"].count() == 2_500 and names["plan"].files > 0


def the_page_s_rules(names: dict[str, Any], printed: str) -> None:
    assert names["plan"].rules_change and names["plan"].default == 10


def both_in_one_commit(names: dict[str, Any], printed: str) -> None:
    from spark_apps import IndexedTable

    table = IndexedTable.load(names["spark"], names["uri"])
    assert names["receipt"].version == table.version and table.verify("by_city").ok


def a_row_an_index(names: dict[str, Any], printed: str) -> None:
    assert [row["index"] for row in names["results"].to_df().collect()] == ["by_city"]


def once(names: dict[str, Any], printed: str) -> None:
    names["spark"].streams.active[0].processAllAvailable()
    for query in names["spark"].streams.active:
        query.stop()
    assert names["orders"].load(names["spark"], names["orders"].uri).read().count() == 1


PROMISES: dict[str, Callable[[dict[str, Any], str], None]] = {
    "README.md": answered_by_its_index,
    "erasure.md": erased,
    "first-index.md": found_and_verified,
    "lakeindex.md": answered_by_its_first_index,
    "in-process.md": read_in_process,
    "reading.md": found_where_it_is,
    "rescale.md": the_page_s_rules,
    "sql.md": a_row_an_index,
    "streaming.md": once,
    "transactions.md": both_in_one_commit,
}


@pytest.fixture
def as_it_was(spark: Any) -> Iterator[Any]:
    """The session, in which no query uses indexes before and after, and no stream goes on."""
    import spark_apps

    yield spark
    for query in spark.streams.active:
        query.stop()
    spark_apps.disable(spark)
    for view in ("riders", "sfo"):
        spark.catalog.dropTempView(view)


@pytest.fixture(scope="module")
def example_lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("example") / "lake"
    example.make(spark, folder)
    return folder


@pytest.mark.by_turn(8)
@pytest.mark.parametrize("page", OF_SPARK, ids=lambda page: page.stem)
def test_what_a_page_types_into_spark_works(
    as_it_was: Any, example_lake: Path, page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"__name__": page.stem, "spark": as_it_was}
    shutil.copytree(example_lake, tmp_path / "tmp" / "lake")
    names |= OWN.get(page.name, lambda *_: {})(as_it_was, tmp_path)
    for block in run_here(page, of_a_dag=False):
        run(block, names, tmp_path)
        for other in blocks(page):
            if other.title == "Spark's own" and names.get("__line__", 0) < other.line < _next(page, block):
                names["__line__"] = other.line
                for statement in filter(str.strip, other.text.split(";")):
                    as_it_was.sql(statement.replace("/tmp/lake", f"{tmp_path}/tmp/lake")).collect()
    if page.name in PROMISES:
        PROMISES[page.name](names, capsys.readouterr().out)


def _next(page: Path, block: Block) -> int:
    """The line of the block of Python behind one."""
    return min((one.line for _, one in numbered(page) if one.line > block.line), default=1_000_000)


@pytest.mark.by_turn(8)
def test_the_statements_about_indexes_and_rows_work_in_their_order(as_it_was: Any, tmp_path: Path) -> None:
    from spark_apps import IndexedTable, sql

    scripts = [block for block in blocks(DOCS / "sql.md") if block.language == "sql" and not block.title]
    spark, schema = as_it_was, "id bigint, city string, fare double, rider string, dt date"
    more = "last_name string, first_name string, tip double, c3 bigint"
    select = "id, concat('c', id % 4) AS city, id / 2.0D AS fare, concat('r', id % 9) AS rider, DATE '2024-11-11' AS dt"
    named = "'a' AS last_name, 'b' AS first_name, 1.0D AS tip, id AS c3"
    for name, columns, chosen in (("db/trips", schema, select), ("trips", f"{schema}, {more}", f"{select}, {named}")):
        table = IndexedTable.create(spark, tmp_path / name, columns, ["id"], partition_by=["dt"], buckets=1)
        table.upsert(rows(spark, f"{chosen} ".replace("id,", "id + 1000 AS id,", 1)))
    changed = f"{select}, if(id % 3 = 0, 'D', 'U') AS op".replace("id,", "id + 1050 AS id,", 1)
    new = select.replace("id,", "id + 5000 AS id,", 1).replace("2024-11-11", "2024-11-12")
    others = {"riders": "concat('r', id) AS id", "changes": changed, "new": new, "dear": "'c1' AS city"}
    for name, chosen in others.items():
        rows(spark, chosen, 1 if name == "dear" else 20).write.parquet(f"{tmp_path}/raw/{name}")
        IndexedTable.register(spark, tmp_path / "raw" / name)

    for text in (scripts[0].text, scripts[1].text, scripts[-1].text):
        sql.run(spark, text, warehouse=str(tmp_path))

    trips = IndexedTable.load(spark, tmp_path / "db/trips")
    # What the partition was overwritten with, less what the merge deleted; and what came by name.
    assert trips.read("dt = '2024-11-11'").count() == 13 and trips.read("dt = '2024-11-12'").count() == 20
    totals = IndexedTable.load(spark, tmp_path / "db/totals").read()
    assert sorted(row.city for row in totals.collect()) == ["c0", "c1", "c2", "c3"]
    assert "by_city" not in IndexedTable.load(spark, tmp_path / "trips").indexes


@pytest.mark.parametrize("page", OF_DAGS, ids=lambda page: page.stem)
def test_the_operators_of_a_page_take_what_they_are_given(page: Path, tmp_path: Path) -> None:
    from airflow.sdk import DAG

    from airflow_provider_index import operators, sensors, task_groups, testing

    offered = (operators, sensors, task_groups, testing)
    names: dict[str, Any] = {"__name__": page.stem, "__file__": str(tmp_path / "dag.py")}
    names |= {name: getattr(module, name) for module in offered for name in module.__all__}
    exec("from datetime import timedelta", names)
    for number, block in enumerate(run_here(page, of_a_dag=True)):
        with DAG(f"{page.stem}_{number}") as dag:
            # What a block is put before or behind, where its page speaks of a task of the reader's.
            names["write"] = operators.CleanTableOperator(task_id="theirs", table="/lake/t")
            run(block, names, tmp_path)
        for task in dag.tasks:
            if hasattr(task, "check_arguments"):
                task.check_arguments()


def test_every_page_s_blocks_are_run_or_named_with_the_reason_why_not() -> None:
    known = {(page.name, number) for page in WRITTEN for number, _ in numbered(page)}
    assert {*ELSEWHERE, *ONLY_READ} <= known
    assert set(OWN) <= {page.name for page in OF_SPARK}
    for (page, _), test in ELSEWHERE.items():
        text = (DOCS.parent / test).read_text(encoding="utf-8")
        assert page in text, f"{test} does not name {page}"
