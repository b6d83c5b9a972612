"""A hostile log: every field of every document in a table's folder holds values of a grammar of bad ones, and every
reader reads it. Nothing outside of the table is touched, memory and time stay small, and an error is one of ours.

A part is drawn by a seed; ``HOSTILE=all`` (``make hostile``) tries all.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from spark_apps.indexes.lineage import Coverage
from spark_apps.storage.errors import LakeIndexError, LogDamaged
from spark_apps.storage.store import Store
from spark_apps.timeline import cleaning, restore, statistics, windows
from spark_apps.timeline.attempts import live_requests
from spark_apps.timeline.jobs import JobFolder
from spark_apps.timeline.log import Timeline, commit_key
from spark_apps.timeline.maintenance import read_done, read_last
from spark_apps.timeline.positions import Positions
from spark_apps.timeline.transactions import Transaction, begin
from spark_apps.timeline.warehouse import Warehouse
from tests.hostile.grammar import VALUES, Place, places, planted

SEED = int(os.environ.get("SEED", "0")) or int(time.time()) // 3600
DRAWN = None if os.environ.get("HOSTILE") == "all" else 250

TREE = "index/by_id@1"
HEAD = {"format": 1, "version": 1, "instant": "20260101000000001", "operation": "upsert", "txn_id": "load",
        "attempt": 1, "base": 0, "maintained": [TREE], "metrics": {"rows": 1}}  # fmt: skip
ADD = {"action": "add", "tree": "data", "partition": "p=a", "group": "0", "path": "data/load.1/work/part-0.parquet",
       "kind": "delta", "rows": 1, "bytes": 4, "place": 0, "tombstones": 0, "lineage": 7,
       "extra": {"positions": {"over": 6, "hidden": 0, "bytes": 0}}}  # fmt: skip
COVERS = {"stage": "s", "columns": ["id"], "lacks": [], "lineages": [7], "bytes": [4]}
SCOPES = [
    {"kind": "bucket", "partition": "p=a", "group": "0"},
    {"kind": "shard", "name": TREE, "group": "0"},
    {"kind": "definition", "name": "by_id"},
]
DEFINITION = {
    "table_id": "t", "fields": [{"name": "p", "type": "string"}, {"name": "id", "type": "bigint", "nullable": False}],
    "record_key": ["id"], "partition_by": ["p"], "properties": {"a": "b"}, "hash_fields": ["id"],
}  # fmt: skip
INDEX = {"name": "by_id", "kind": "secondary", "columns": ["id"], "index_id": "1", "included": [], "shards": 2,
         "hash_function": "xxhash64", "properties": {"a": "b"}, "comment": "c", "addresses": "file"}  # fmt: skip
CONFIG = {"instant": "0" * 17, "default": 4, "rule": "regex", "expressions": "a,8"}
SOURCE = {"format": "parquet", "location": "/lake/raw", "options": {"mergeSchema": "true"}, "version": "1"}
ACTIONS: dict[str, Any] = {
    "add": ADD,
    "entries": {**ADD, "tree": TREE, "path": "_index/indexes/by_id/load.1/coverage.json", "group": "coverage",
                "kind": "base", "extra": {"covers": [COVERS]}},
    "remove": {"action": "remove", "tree": "data", "path": "data/first.1/work/part-0.parquet"},
    "partition": {"action": "partition", "path": "p=b", "buckets": 2, "values": ["b"]},
    "drop_partition": {"action": "drop_partition", "path": "p=a"},
    "table": {"action": "table", "definition": DEFINITION},
    "source": {"action": "table", "definition": {**DEFINITION, "source": SOURCE}},
    "drop_table": {"action": "drop_table"},
    "index": {"action": "index", "definition": INDEX, "state": "active", "covered": False},
    "drop_index": {"action": "drop_index", "name": "by_id"},
    "cover": {"action": "cover", "tree": TREE, "through": 0, "partitions": ["p=a"], "groups": [["p=a", "0"]]},
    "hashing_config": {"action": "hashing_config", "config": CONFIG,
                       "path": f"_index/hashing/config/{'1' * 17}.hashing_config"},
    "drop_hashing_config": {"action": "drop_hashing_config", "instant": "0" * 17,
                            "path": f"_index/hashing/config/{'1' * 17}.hashing_config"},
    "hashing_meta": {"action": "hashing_meta", "path": f"_index/hashing/meta/{'1' * 17}.hashing_meta"},
    "open_window": {"action": "open_window", "holder": "me", "deadline": 2e9, "last_moment": 2e9,
                    "partitions": ["p=a"]},
    "renew_window": {"action": "renew_window", "epoch": 0, "deadline": 2e9},
    "close_window": {"action": "close_window", "epoch": 0},
    "end_window": {"action": "end_window", "epoch": 0, "ended_by": "me"},
    "abort": {"action": "abort", "txn_id": "gone", "attempt": 1, "reason": "so"},
    "expire": {"action": "expire", "below": 1},
    "restore": {"action": "restore", "to": 0},
    "lag": {"action": "lag", "tree": TREE, "groups": [["p=a", "0", 0]]},
}  # fmt: skip
FOLDER = "_index/transactions/open/000001"
BESIDE: dict[str, Any] = {
    f"{FOLDER}/requested.json": {
        "txn_id": "open", "attempt": 1, "base": 0, "operation": "upsert", "stages": ["work"], "requested_at": 1.0,
        "nonce": "ab", "scopes": SCOPES, "epoch": 0, "protects": 0, "inputs": {"a": 1}, "patience": 1.0,
    },
    f"{FOLDER}/heartbeat.json": {"at": 1.0, "phase": "p", "done": 1, "total": 2, "note": "n"},
    f"{FOLDER}/claim-work.000001.json": {"token": "ab", "at": 1.0},
    f"{FOLDER}/stage-work.ab.json": {
        "stage": "work", "actions": [ADD, ACTIONS["remove"]], "reads": SCOPES, "writes": [{"scope": SCOPES[0]}],
        "maintained": [TREE], "made_from": {"work": "ab"}, "metrics": {"a": 1}, "operation": "o", "inputs": "i",
        "unique": {TREE: ["id"]}, "sole": True,
    },
    "_index/jobs/j/beat.json": {"at": 1.0, "phase": "p", "done": 1, "total": 2, "unit": "u", "rate": 1.0, "left": 1.0,
                                "pid": 1, "host": "h", "ui": "u"},
    "_index/jobs/j/attempt-1.json": {"log": "/nowhere", "txn_id": "open", "attempt": 1},
    "_index/jobs/j/cancelled.json": {"at": 1.0, "reason": "r"},
    "_index/jobs/j/wanted.json": {"until": 1.0},
    "_index/maintenance/last.json": {"format": 1, "plans": {"d": {
        "dag_id": "d", "run_id": "r", "at": 1.0, "version": 0, "work": [{"kind": "clean", "reason": "r", "bytes": 1}],
        "skipped": [{"code": "c", "reason": "r"}]}}},
    "_index/maintenance/done/clean.json": {"kind": "clean", "at": 1.0, "seconds": 1.0, "seen": 0, "bytes": 1},
}  # fmt: skip


def commit(*actions: Any) -> dict[str, Any]:
    return {**HEAD, "reads": SCOPES, "writes": [{"scope": SCOPES[0], "mode": "replace"}], "actions": list(actions)}


DOCUMENTS: dict[str, tuple[str, Any]] = {
    **{f"commit with {name}": (commit_key(1), commit(action)) for name, action in ACTIONS.items()},
    **{key: (key, document) for key, document in BESIDE.items()},
}


# --- the readers ------------------------------------------------------------------------------------------------------


def everything(state: Any) -> None:
    """What is told of a table from its log alone."""
    if state.dropped:
        return
    statistics.table_statistics(state)
    statistics.partition_statistics(state)
    for file in state.file_set:
        Positions.of(file)
    for entry in state.indexes.values():
        Coverage.of(state.files(entry.definition.tree))


def read_manifests(store: Store) -> None:
    timeline = Timeline.load(store)
    for requested in live_requests(timeline):
        transaction = Transaction(timeline, requested, timeline.head)
        for stage in requested.stages:
            transaction.staged(stage)


def read_jobs(store: Store) -> None:
    folder = JobFolder(store, "j")
    for ask in (folder.attempts, folder.cancelled, folder.wanted_until):
        ask()
    beat = folder.beat()
    if beat is not None:
        beat.line()


READERS: dict[str, Callable[[Store], object]] = {
    "load": lambda store: everything(Timeline.load(store).head),
    "warehouse": lambda store: [everything(found.state()) for found in Warehouse(str(Path(store.uri).parent)).tables()
                                if found.state() is not None],
    "history": lambda store: list(Timeline.load(store).commits()),
    "age": lambda store: statistics.age_of_version((timeline := Timeline.load(store)), timeline.head.version),
    "as of": lambda store: Timeline.load(store).at(as_of="2026-01-01T12:00Z"),
    "windows": lambda store: windows.end_expired(Timeline.load(store), "me"),
    "manifests": read_manifests,
    "jobs": read_jobs,
    "notes": lambda store: (read_last(store), read_done(store)),
    "begin": lambda store: begin(Timeline.load(store), operation="upsert", txn_id="open"),
    "restore": lambda store: restore.restore(Timeline.load(store), 0),
    "plan of cleaning": lambda store: cleaning.plan(Timeline.load(store), retain_versions=1, retain_seconds=0.0),
    "clean": lambda store: cleaning.clean(
        Timeline.load(store), retain_versions=1, retain_seconds=0.0, presumed_dead_seconds=0.0
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table with rows, an index, an attempt that is open, a job; and something beside it that is nobody's affair."""
    root = tmp_path_factory.mktemp("hostile")
    store = Store(root / "lake" / "table")
    files = [{**ADD, "path": "data/first.1/work/part-0.parquet", "lineage": 6, "extra": {}}]
    first = [ACTIONS["table"], ACTIONS["index"], {**ACTIONS["partition"], "path": "p=a", "values": ["a"]}, *files]
    head = {**HEAD, "version": 0, "instant": "20260101000000000", "txn_id": "first", "base": -1}
    store.put(commit_key(0), json.dumps({**head, "actions": first}).encode())
    for key, document in BESIDE.items():
        store.put(key, json.dumps(document).encode())
    store.put("data/first.1/work/part-0.parquet", b"rows")
    outside = root / "outside"
    outside.mkdir()
    (outside / "rows").write_bytes(b"secret")
    (root / "lake" / "table" / "data" / "linked").symlink_to(outside, target_is_directory=True)
    return root


def cases() -> list[tuple[str, Place, Any, str]]:
    every = [
        (name, place, value, reader)
        for name, (_, document) in DOCUMENTS.items()
        for place in places(document)
        for value, reader in itertools.product(VALUES, READERS)
    ]
    return every if DRAWN is None else random.Random(SEED).sample(every, DRAWN)


def test_given_a_document_with_a_bad_value_when_read_then_refused_by_name_or_harmless(
    template: Path, tmp_path: Path
) -> None:
    """Each case that goes wrong is told, with the seed."""
    wrong, slowest = [], 0.0
    for number, (name, place, value, reader) in enumerate(cases()):
        root = tmp_path / str(number)
        shutil.copytree(template, root, symlinks=True)
        link = root / "lake" / "table" / "data" / "linked"
        link.unlink()
        link.symlink_to(root / "outside", target_is_directory=True)
        store = Store(root / "lake" / "table")
        key, document = DOCUMENTS[name]
        store.put(key, msgspec.json.encode(planted(document, place, value)))
        began = time.process_time()
        told = asked(READERS[reader], store, name)
        slowest = max(slowest, time.process_time() - began)
        outside = {path.name: path.read_bytes() for path in (root / "outside").iterdir()}
        if outside != {"rows": b"secret"} or {path.name for path in root.iterdir()} != {"lake", "outside"}:
            told = f"touched what lies outside: {outside}"
        if told:
            wrong.append(f"{name}: {'.'.join(map(str, place))} = {value!r:.60}, read by {reader}: {told}")
        shutil.rmtree(root)
    assert not wrong, f"seed {SEED}: " + "\n".join(wrong[:40])
    assert slowest < 5.0


def asked(read: Callable[[Store], object], store: Store, name: str) -> str:
    """What is wrong with how a reader takes it; nothing, if it reads it or refuses it as it should."""
    try:
        read(store)
    except LogDamaged as error:
        if store.uri not in str(error) and "Version" not in str(error) and "is missing" not in str(error):
            return f"the error names no table: {error}"
    except LakeIndexError:
        return ""
    except Exception as error:  # noqa: BLE001 - what must not be
        return f"{type(error).__name__}: {error!s:.200}"
    return ""


def test_the_survey_of_a_warehouse_survives_a_bad_table(template: Path, tmp_path: Path) -> None:
    shutil.copytree(template, tmp_path / "w", symlinks=True)
    good, bad = tmp_path / "w" / "lake" / "table", tmp_path / "w" / "lake" / "bad"
    shutil.copytree(good, bad, symlinks=True)
    Store(bad).put(commit_key(1), msgspec.json.encode({**commit(), "instant": "x"}))
    found = {one.name: one for one in Warehouse(str(good.parent)).tables()}
    assert found["table"].state() is not None
    with pytest.raises(LogDamaged, match="instant"):
        found["bad"].state()


# --- that no reader is left out ---------------------------------------------------------------------------------------

DECODERS = {"decode", "loads", "ParquetFile", "read_table", "Decoder", "reader"}
KNOWN = {
    ("spark_apps/storage/documents.py", "decode"): "the one place",
    ("spark_apps/storage/documents.py", "prepare"): "reads nothing",
    ("spark_apps/storage/page_headers.py", "open_parquet"): "the one place for Parquet",
    ("spark_apps/timeline/sidecars.py", "_actions"): "after open_parquet, within its bounds",
    ("spark_apps/timeline/hashing.py", "read_config"): "what a user gives",
    ("spark_apps/timeline/hashing.py", "read_meta"): "asked by people; no reader of tables does",
    ("spark_apps/timeline/keys.py", "_keys"): "entries of an index, whose files the commit lists",
    ("spark_apps/timeline/keys.py", "read"): "entries of an index, whose files the commit lists",
    ("spark_apps/timeline/sources.py", "source_roots"): "storage options of the reader himself",
    ("spark_apps/storage/secrets.py", "secrets_in_text"): "a setting of the caller",
}


def test_whatever_decodes_in_the_timeline_goes_through_the_one_place() -> None:
    root = Path(__file__).parents[2]
    found = set()
    for file in sorted([*root.glob("spark_apps/timeline/*.py"), *root.glob("spark_apps/storage/*.py")]):
        for function in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in DECODERS:
                    whose = ast.unparse(call.func.value)
                    if whose in ("msgspec.json", "json", "pq", "fastavro", "pickle", "yaml", "decoder"):
                        found.add((str(file.relative_to(root)), function.name))
    assert found - KNOWN.keys() == set(), "reads what others wrote, past storage/documents.py and its bounds"
