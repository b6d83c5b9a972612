"""No reader and no field is left out of the search of ``test_log.py``, and what watches the reads sees what happens."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from spark_apps.storage.store import Store
from spark_apps.timeline import validation
from spark_apps.timeline.files import Positions
from tests.hostile import lake
from tests.hostile.readers import READERS, connected
from tests.hostile.test_log import DOCUMENTS
from tests.hostile.watching import Watch

ROOT = Path(__file__).parents[2]
OPENS = {"load", "Timeline", "open_log", "fetch", "decode", "decode_checkpoint", "open_parquet"}
"""Calls that open a log, or decode what stands in a table's folder."""
SHARED = ("spark_apps.storage.documents", "spark_apps.storage.parquet.headers", "spark_apps.timeline.log",
          "spark_apps.actions.register")  # fmt: skip
ELSEWHERE = {
    ("spark_apps/actions/register.py", "_of_source"): "the log of a source: hostile/test_sources.py",
    ("spark_apps/actions/register.py", "find_registration"): "the log of a source: hostile/test_sources.py",
    ("spark_apps/actions/register.py", "_named_log"): "the log of a source by its name: hostile/test_sources.py",
    ("spark_apps/timeline/catalog_names.py", "_checked"): "the file of a name: timeline/test_catalog_names.py",
    ("spark_apps/timeline/locations.py", "_check_alone"): "whether there is a table: timeline/test_catalog_names.py",
    ("spark_apps/actions/template.py", "_renew"): "the log that the action has read already",
    ("spark_apps/actions/take_over.py", "_last_drop"): "the log of a table that was dropped: actions/test_take_over.py",
    ("spark_apps/cli/lake.py", "timeline"): "as the hook does, for a person: cli/",
    ("spark_apps/programs/register_table.py", "register_table"): "the log that it has just made",
    ("spark_apps/jobs/heartbeat.py", "_was_ended"): "one commit after the other, as history does",
    ("spark_apps/sql/executor.py", "register_source"): "the log that it has just made",
    ("spark_apps/sql/executor.py", "_check_location_is_free"): "by Spark: test_spark_readers.py",
    ("spark_apps/optimizer/rewriting.py", "__init__"): "by Spark: test_spark_readers.py",
    ("spark_apps/optimizer/rewriting.py", "_keyed_snapshot"): "by Spark: test_spark_readers.py",
    ("spark_apps/optimizer/rewriting.py", "_know_by_name"): "by Spark: connectors/test_iceberg_names.py",
    ("spark_apps/optimizer/rewriting.py", "_newest"): "by Spark: test_spark_readers.py",
    ("spark_apps/optimizer/rewriting.py", "_sources_at"): "by Spark: test_spark_readers.py",
    ("spark_apps/table.py", "load"): "by Spark: test_spark_readers.py",
    ("spark_apps/programs/write_table.py", "_take_over"): "the log that it has just made",
    ("spark_apps/jobs/job.py", "decode_outcome"): "what a job answers: hostile/test_mutated.py",
    ("spark_apps/jobs/program.py", "log_of"): "the log of the table that the app has loaded",
    ("spark_apps/sources/delta_places.py", "_of_lines"): "the log of a Delta table: hostile/test_spellings.py",
    ("spark_apps/sources/logs/delta.py", "_actions"): "the log of a Delta table: sources/test_followed_logs.py",
    ("spark_apps/sources/logs/delta.py", "_said_at_ends"): "the log of a Delta table: sources/test_watched_logs.py",
    ("spark_apps/sources/logs/delta.py", "_statistics"): "the log of a Delta table: sources/test_followed_logs.py",
    ("spark_apps/sources/logs/hudi_timeline.py", "_said"): "an instant of Hudi: sources/test_watched_logs.py",
    ("spark_apps/sources/logs/iceberg.py", "of"): "the metadata of Iceberg: sources/test_watched_logs.py",
    ("spark_apps/timeline/hudi_indexes.py", "_definitions"): "Hudi's definitions: timeline/test_hudi_indexes.py",
    ("spark_apps/timeline/hudi_indexes.py", "read_rules"): "Hudi's bucket rules: timeline/test_hudi_indexes.py",
    ("spark_apps/workload/event_logs.py", "_take"): "event logs that a person gives: workload/test_event_logs.py",
    ("spark_apps/timeline/creation.py", "create_table"): "a log that is not there yet",
    ("airflow_provider_index/operators/sql.py", "timelines"): "as the operator does, by the same hook",
    ("airflow_provider_index/testing/lake.py", "timeline"): "for tests of those who use the package",
}
"""What a test of its own holds, or what reads a log that it has itself written."""


def _opening() -> dict[tuple[str, str], int]:
    """(file, function) that opens a log or decodes a document -> its line."""
    lines = {}
    for package in ("spark_apps", "airflow_provider_index"):
        for file in sorted((ROOT / package).rglob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            known = {
                alias.asname or alias.name
                for node in ast.walk(tree)
                if isinstance(node, ast.ImportFrom) and node.module in SHARED
                for alias in node.names
            } | ({"decode_checkpoint"} if file.name == "log.py" else set())
            for function in ast.walk(tree):
                if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(
                    isinstance(call, ast.Call) and _opens(call.func, known) for call in ast.walk(function)
                ):
                    lines[str(file.relative_to(ROOT)), function.name] = function.lineno
    return lines


def _opens(called: ast.expr, known: set[str]) -> bool:
    if isinstance(called, ast.Name):
        return called.id in OPENS & known
    if not isinstance(called, ast.Attribute) or called.attr not in OPENS - {"Timeline"}:
        return False
    whose = ast.unparse(called.value)
    return whose in ("Timeline", "documents", "register", "files", "parquet_headers", "self.timeline", "timeline")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[str, str]]:
    """(file, function) of all that ran while each reader read the table with all of its documents."""
    root = tmp_path_factory.mktemp("readers")
    lake.make(root)
    codes: set[Any] = set()

    def note(frame: Any, event: str, _argument: Any) -> None:
        if event == "call":
            codes.add(frame.f_code)

    threading.setprofile(note)
    for name in ("commit with add", "checkpoint", "sidecar with add"):
        for key, body in DOCUMENTS[name].files(DOCUMENTS[name].value).items():
            Path(root, "lake/table", key).parent.mkdir(parents=True, exist_ok=True)
            Path(root, "lake/table", key).write_bytes(body)
        with connected(root / "lake"):
            for read in READERS.values():
                sys.setprofile(note)
                try:
                    read(Store(root / "lake" / "table"))
                except Exception as error:
                    if not type(error).__module__.startswith("spark_apps."):
                        raise
                finally:
                    sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]
    return {
        (str(Path(code.co_filename).relative_to(ROOT)), code.co_name)
        for code in codes
        if code.co_filename.startswith(f"{ROOT}/") and ".venv" not in code.co_filename
    }


@pytest.mark.by_turn(4)
def test_whoever_opens_a_log_or_decodes_a_document_is_run_by_a_reader_of_the_search(ran: set[tuple[str, str]]) -> None:
    """A new one is in the search as soon as a reader comes by it; until then this fails."""
    opening = _opening()
    assert len(opening) > 25
    assert sorted(opening.keys() - ran - ELSEWHERE.keys()) == [], "read a log, and no reader of the search runs them"
    assert sorted(ELSEWHERE.keys() - opening.keys()) == [], "are on the list, and open nothing any more"
    assert sorted(ELSEWHERE.keys() & ran) == [], "are on the list, and a reader of the search runs them"


# --- fields -----------------------------------------------------------------------------------------------------------

NOT_READ = {
    "Receipt": "what a caller is handed",
    "Registration": "the file of a name: timeline/test_catalog_names.py",
    "FormatOnly": "a field of the commit",
    "Origin": "of a published log: test_published.py",
    "_CommitInfo": "of a published log: test_published.py",
    "_Line": "of a published log: test_published.py",
    "_Definition": "Hudi's: timeline/test_hudi_indexes.py",
    "_Definitions": "Hudi's: timeline/test_hudi_indexes.py",
    "BucketRule": "Hudi's: timeline/test_hudi_indexes.py",
    "DataFile": "made of an action, or of the columns of a checkpoint",
}
IN_ANOTHER_FORM = {
    "IndexEntry.lag": "lag of the checkpoint's index", "IndexEntry.dirty": "lag of the checkpoint's index",
    "IndexEntry.gone": "gone of the checkpoint's index", "Commit.sidecar": "the documents of sidecars",
    "IndexEntry.state": "left out where it is active",
}  # fmt: skip


def _structs() -> Iterator[type[msgspec.Struct]]:
    """Every type of the timeline that is written down."""
    for file in sorted((ROOT / "spark_apps/timeline").rglob("*.py")):
        module = import_module(".".join(file.relative_to(ROOT).with_suffix("").parts))
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__:
                yield value


def _seen(info: Any, value: Any, fields: set[tuple[type, str]]) -> None:
    """Notes the fields of structs that a value holds, with something in them."""
    match info:
        case inspect.StructType():
            if isinstance(value, dict):
                for one in info.fields:
                    if value.get(one.encode_name) is not None:
                        fields.add((info.cls, one.name))
                        _seen(one.type, value[one.encode_name], fields)
            elif isinstance(value, list):  # structs that are written as lists
                for one, inner in zip(info.fields, value, strict=False):
                    fields.add((info.cls, one.name))
                    _seen(one.type, inner, fields)
        case inspect.UnionType():
            for one in info.types:
                if not isinstance(one, inspect.StructType) or one.tag is None or one.tag == value.get(one.tag_field):
                    _seen(one, value, fields)
        case inspect.ListType() | inspect.VarTupleType():
            for inner in value if isinstance(value, list) else ():
                _seen(info.item_type, inner, fields)
        case inspect.TupleType():
            for one, inner in zip(info.item_types, value if isinstance(value, list) else (), strict=False):
                _seen(one, inner, fields)
        case inspect.DictType():
            for inner in value.values() if isinstance(value, dict) else ():
                _seen(info.value_type, inner, fields)


def test_every_field_of_every_type_that_is_written_down_stands_in_a_document_of_the_search() -> None:
    fields: set[tuple[type, str]] = set()
    for document in DOCUMENTS.values():
        if document.kind is not None:
            _seen(inspect.type_info(document.kind), document.value, fields)
    _seen(inspect.type_info(validation._Extra), lake.EXTRA, fields)
    _seen(inspect.type_info(Positions), lake.EXTRA["positions"], fields)
    missing = [
        f"{kind.__name__}.{name}"
        for kind in _structs()
        if kind.__name__ not in NOT_READ
        for name in kind.__struct_fields__
        if (kind, name) not in fields and f"{kind.__name__}.{name}" not in IN_ANOTHER_FORM
    ]
    assert missing == [], "no document of the search holds them"


# --- what watches -----------------------------------------------------------------------------------------------------


def _by_arrow(path: Path) -> None:
    import pyarrow as pa

    pa.OSFile(str(path)).read()


DEEDS: dict[str, Callable[[Path], object]] = {
    "a file read": lambda outside: (outside / "rows").read_bytes(),
    "a file read by Arrow": lambda outside: _by_arrow(outside / "rows"),
    "a file read by the store's library": lambda outside: Store(outside).get("rows"),
    "a file written": lambda outside: (outside / "new").write_bytes(b""),
    "a file written by the store's library": lambda outside: Store(outside).put("new", b""),
    "a file deleted": lambda outside: (outside / "rows").unlink(),
    "a file elsewhere": lambda _: Path("/etc/passwd").read_bytes(),
    "a store far away": lambda _: Store("s3://outside/rows", {"aws_region": "x", "timeout": "1ms"})._open(),
    "a program": lambda _: subprocess.run(["true"], check=False),
    "a shell": lambda _: os.system("true"),
    "a host": lambda _: __import__("socket").create_connection(("127.0.0.1", 9), 0.1),
    "a module": lambda _: import_module("tests.hostile.planted"),
}  # fmt: skip


@pytest.mark.parametrize("deed", DEEDS)
def test_what_watches_the_reads_sees(deed: str, tmp_path: Path) -> None:
    lake.make(tmp_path)
    watch = Watch(tmp_path / "lake" / "table", [tmp_path / "outside"])
    try:
        with watch.on():
            Store(tmp_path / "lake" / "table").get("data/first.1/work/part-0.parquet")
        assert watch.seen == []
        with watch.on():
            try:
                DEEDS[deed](tmp_path / "outside")
            except Exception:  # noqa: BLE001 - that it is seen is the question, not that it works
                assert deed in ("a host", "a store far away")
        assert watch.seen != []
    finally:
        watch.close()


def test_memory_that_a_read_takes_for_a_moment_is_seen(tmp_path: Path) -> None:
    lake.make(tmp_path)
    watch = Watch(tmp_path / "lake" / "table", [tmp_path / "outside"])
    with watch.on():
        len(bytearray(100 << 20))
    assert watch.kilobytes > 90 << 10
    watch.close()
