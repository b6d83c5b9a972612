"""A footer that does not agree with itself is refused before Arrow is asked for it, and one that does never is."""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_apps.storage.parquet import files as parquet_files
from spark_apps.storage.parquet import footers as parquet_footers
from spark_apps.storage.parquet.footers import FooterEncrypted, FooterRefused
from spark_apps.storage.parquet.page_index import PageIndex
from tests.hostile import thrift_tree as thrift

ROOT = Path(__file__).parents[4]
ROWS = pa.table(
    {
        "n": pa.array([1, 2, None], pa.int64()),
        "t": ["a", "b" * 200, None],
        "f": pa.array([b"abc", b"def", None], pa.binary(3)),
        "l": [[1], [2, None], None],
        "s": [{"x": 1, "y": "z"}, None, {"x": None, "y": "z"}],
        "m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        "ä.b": [True, False, None],
    }
)


def parquet(rows: pa.Table = ROWS, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


# --- what is refused --------------------------------------------------------------------------------------------------


def _sizes(footer: list[Any], number: int, field: int, levels: int) -> None:
    thrift.put(thrift.column(footer, number), 16, 12, [[field, 9, [6, [2] * levels]]])


def _bound(footer: list[Any], number: int, field: int, bound: bytes) -> None:
    thrift.put(thrift.get(thrift.column(footer, number), 12), field, 8, bound)


def _deep(footer: list[Any]) -> None:
    """A schema of groups in groups, and a column in the innermost."""
    groups = [[[3, 5, 0], [4, 8, b"g"], [5, 5, 2]] for _ in range(5_000)]
    schema = thrift.get(footer, 2)[1]
    schema[:] = [schema[0], *groups, [[1, 5, 4], [3, 5, 0], [4, 8, b"n"]]]
    thrift.put(schema[0], 5, 5, 2)


def _more_children(footer: list[Any]) -> None:
    thrift.put(thrift.get(footer, 2)[1][0], 5, 5, 2 * 1000)


def _wrapped(footer: list[Any]) -> None:
    """The encryption of a column under a number that comes round to its field again in sixteen bits."""
    thrift.chunk_of(footer)[3:] = [[2**16 + 8, 12, []]]


BAD: dict[str, Callable[[list[Any]], object]] = {
    "a histogram of another length": lambda footer: _sizes(footer, 0, 3, 7),
    "a histogram of repetitions where there are none": lambda footer: _sizes(footer, 0, 2, 3),
    "bytes of texts of a number": lambda footer: thrift.put(thrift.column(footer), 16, 12, [[1, 6, 2]]),
    "an encrypted column": lambda footer: thrift.put(
        thrift.chunk_of(footer, 1), 8, 12, [[2, 12, [[1, 9, [8, [b"t"]]]]]]
    ),
    "encrypted bytes of a column": lambda footer: thrift.put(thrift.chunk_of(footer, 1), 9, 8, b"x"),
    "a bound of fewer bytes": lambda footer: _bound(footer, 0, 5, b"\1\2\3"),
    "a bound of no bytes": lambda footer: _bound(footer, 0, 6, b""),
    "a bound of fewer bytes than the schema says": lambda footer: _bound(footer, 2, 5, b"ab"),
    "a codec that there is not": lambda footer: thrift.put(thrift.column(footer), 4, 5, 2 * 8),
    "another type than the schema says": lambda footer: thrift.put(thrift.column(footer), 1, 5, 2 * 6),
    "a schema that says another type": lambda footer: thrift.put(thrift.get(footer, 2)[1][1], 1, 5, 2 * 5),
    "no metadata of a column": lambda footer: thrift.chunk_of(footer).pop(),
    "fewer columns than the schema": lambda footer: thrift.get(thrift.get(footer, 4)[1][0], 1)[1].pop(),
    "more columns than the schema": lambda footer: thrift.get(thrift.get(footer, 4)[1][0], 1)[1].append(
        thrift.chunk_of(footer)
    ),
    "a column behind the end of the file": lambda footer: thrift.put(thrift.column(footer), 9, 6, 2 * 10**9),
    "a column of less than no bytes": lambda footer: thrift.put(thrift.column(footer), 7, 6, 1),
    "less than no rows": lambda footer: thrift.put(thrift.get(footer, 4)[1][0], 3, 6, 1),
    "a schema nested too deep": _deep,
    "a group of more columns than there are": _more_children,
    "a name that is no text": lambda footer: thrift.put(thrift.get(footer, 2)[1][1], 4, 8, b"\xff"),
    "a writer that is no text": lambda footer: thrift.put(footer, 6, 8, b"\xff"),
    "a number of more bits than its type": lambda footer: thrift.put(thrift.column(footer), 1, 5, 2**32 + 4),
    "a list of other elements": lambda footer: thrift.put(footer, 4, 9, [5, [1, 2]]),
    "a field that comes round again": _wrapped,
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_given_a_footer_that_does_not_agree_with_itself_then_it_is_refused(fault: str) -> None:
    before, footer = thrift.footer_of(parquet())
    assert parquet_files.read_footer(thrift.with_footer(before, footer)).num_rows == 3
    BAD[fault](footer)

    with pytest.raises(FooterEncrypted if "encrypted" in fault else FooterRefused):
        parquet_files.read_footer(thrift.with_footer(before, footer))


def test_given_these_footers_then_arrow_ends_the_process_that_asks_them_for_a_column() -> None:
    """Else the refusals would be for nothing."""
    ends = ("a histogram of another length", "an encrypted column", "a bound of no bytes", "a codec that there is not")
    asks = (
        "import os, sys, pyarrow as pa, pyarrow.parquet as pq\n"
        "for body in sys.stdin.buffer.read().split(b'|next|'):\n"
        "    if not (child := os.fork()):\n"
        "        group = pq.read_metadata(pa.BufferReader(body)).row_group(0)\n"
        "        [(group.column(n).statistics, group.column(n).compression) for n in range(group.num_columns)]\n"
        "        os._exit(0)\n"
        "    print(os.waitpid(child, 0)[1] & 127)\n"
    )
    bodies = []
    for fault in ends:
        before, footer = thrift.footer_of(parquet())
        BAD[fault](footer)
        bodies.append(thrift.with_footer(before, footer))
    done = subprocess.run([sys.executable, "-c", asks], input=b"|next|".join(bodies), capture_output=True, check=True)

    assert done.stdout.split() == [b"6"] * len(ends)


def test_given_many_fields_in_few_bytes_then_they_take_little_time() -> None:
    before, footer = thrift.footer_of(parquet())
    nothing = [9, [12, [[]] * 300_000]]
    began = time.process_time()
    for bomb in ([*footer[:4], [5, *nothing], *footer[5:]], b"\x1c" * 100_000, b"\x19" * 100_000):
        with pytest.raises(FooterRefused):
            parquet_files.read_footer(thrift.with_footer(before, bomb))
    assert parquet_files.read_footer(thrift.with_footer(before, [*footer, [90, *nothing]])).num_rows == 3
    with pytest.raises(FooterRefused, match="may have"):
        parquet_files.read_footer(b"PAR1" + (2**31).to_bytes(4, "little") + b"PAR1")
    assert time.process_time() - began < 3


# --- what is not ------------------------------------------------------------------------------------------------------

WRITTEN: dict[str, dict[str, Any]] = {
    "as it is": {},
    "with a page index": {"write_page_index": True, "row_group_size": 1},
    "as version 1": {"version": "1.0", "use_dictionary": False},
    "with pages of version 2": {"data_page_version": "2.0", "compression": "zstd"},
    "without a schema of Arrow's": {"store_schema": False, "compression": "brotli"},
    "with Bloom filters": {"bloom_filter_options": {"n": {"ndv": 10}}} if pa.__version__ >= "24" else {},
    "without statistics": {"write_statistics": False},
    "sorted": {"sorting_columns": [pq.SortingColumn(0)]},
}


@pytest.mark.parametrize("how", WRITTEN)
def test_given_files_of_all_kinds_then_each_is_opened(how: str) -> None:
    body = parquet(ROWS, **WRITTEN[how])

    assert parquet_files.open_file(body).read().equals(pq.ParquetFile(io.BytesIO(body)).read())
    opened = parquet_files.open_file(body)
    assert parquet_files.read_columns(opened, ["ä.b", "n"]).column_names == ["ä.b", "n"]
    with pytest.raises(OSError, match="no column 'x'"):
        parquet_files.read_columns(opened, ["n", "x"])


def test_given_a_table_without_columns_or_rows_then_it_is_opened() -> None:
    assert parquet_files.open_file(parquet(pa.table({}))).read().num_columns == 0
    assert parquet_files.open_file(parquet(ROWS.slice(0, 0))).read().num_rows == 0


def test_given_a_name_that_is_no_text_then_pages_are_not_looked_for_either() -> None:
    before, footer = thrift.footer_of(parquet())
    BAD["a name that is no text"](footer)

    with pytest.raises(FooterRefused, match="the name of a column is no UTF-8"):
        PageIndex(parquet_files.footer_bytes(thrift.with_footer(before, footer)))


def test_given_a_file_that_is_none_then_it_is_told(tmp_path: Path) -> None:
    for body in (b"", b"PAR1", b"x" * 100, parquet()[:-3], parquet()[-20:], parquet()[:-4] + b"PARE"):
        (tmp_path / "f").write_bytes(body)
        for source in (body, tmp_path / "f"):
            with pytest.raises(FooterRefused):
                parquet_files.read_footer(source)


def test_given_a_thousand_columns_and_many_row_groups_then_most_are_read_by_patterns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    columns = {f"c{n}": pa.array([n, n + 1] * 5) if n % 2 else [f"v{n}", None] * 5 for n in range(100)}
    body, slow = parquet(pa.table(columns), row_group_size=1), []
    check = parquet_footers._Check._check_column
    monkeypatch.setattr(parquet_footers._Check, "_check_column", lambda *arguments: slow.append(1) or check(*arguments))
    monkeypatch.setattr(parquet_footers, "_SHAPES", [])
    monkeypatch.setattr(parquet_footers, "_KNOWN_SHAPES", set())
    parquet_footers._ACCEPTED.clear()
    parquet_files.read_footer(body)
    assert len(slow) < 500  # of a thousand
    slow.clear()
    parquet_files.read_footer(body)
    assert slow == []  # it is the same


@pytest.mark.parametrize("fault", BAD)
def test_given_a_bad_footer_among_good_ones_then_no_pattern_lets_it_pass(fault: str) -> None:
    """The patterns are made of good columns; the bad one is the last of many that are like them."""
    before, footer = thrift.footer_of(parquet())
    for number in range(8):
        for _ in range(parquet_footers._BETWEEN_SHAPES):
            written = thrift.write(thrift.chunk_of(footer, number))
        parquet_footers.learn_shape(written, 0)
    BAD[fault](footer)

    with pytest.raises(FooterRefused):
        parquet_files.read_footer(thrift.with_footer(before, footer))


# --- the only way in --------------------------------------------------------------------------------------------------

DOORS = {"ParquetFile", "read_metadata", "read_table", "read_schema", "ParquetDataset", "read_pandas", "row_group",
         "ParquetFileFormat", "ParquetFileFragment", "ParquetReader", "FileMetaData"}  # fmt: skip
"""Names of pyarrow's by which a Parquet file, or what its footer says of a row group, can be reached."""
MODULES = {"pyarrow.dataset", "pyarrow._parquet", "pyarrow._dataset_parquet"}
ALLOWED = {
    "spark_apps/storage/parquet/files.py": DOORS,
    "spark_apps/query/arrow_dataset.py": {"pyarrow.dataset"},  # a class of ours, which opens no file by it
}


def _uses(tree: ast.AST) -> set[str]:
    used = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in DOORS:
            used.add(node.attr)
        elif isinstance(node, ast.Import):
            used |= {alias.name for alias in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("pyarrow"):
            names = {alias.name for alias in node.names}
            used |= names & DOORS | {node.module or "", *(f"{node.module}.{name}" for name in names)} & MODULES
    return used


def test_parquet_files_are_opened_in_one_module_alone() -> None:
    found = {}
    for package in ("spark_apps", "airflow_provider_index"):
        for file in sorted((ROOT / package).rglob("*.py")):
            name = str(file.relative_to(ROOT))
            if more := _uses(ast.parse(file.read_text(encoding="utf-8"))) - ALLOWED.get(name, set()):
                found[name] = more
    assert found == {}, "open Parquet files themselves; spark_apps/storage/parquet/files.py checks their footers first"
    assert _uses(ast.parse("import pyarrow.parquet as pq\npq.ParquetFile(x).metadata.row_group(0)")) != set()
