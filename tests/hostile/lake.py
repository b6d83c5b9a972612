"""A table with one of everything that its folder can hold, as documents into which a test puts other values."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

from spark_apps.jobs import job_folder
from spark_apps.mergetree.tree import DELETED
from spark_apps.storage.store import Store
from spark_apps.timeline import files, log, maintenance_records
from spark_apps.timeline.log import Timeline, commit_key
from spark_apps.timeline.model import Commit, Heartbeat, Requested, StageClaim, StageManifest
from spark_apps.workload.asked import AskedQuery


def _parquet(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", **options)
    return sink.getvalue()


_ROWS = {"p": ["a", "a"], "id": pa.array([1, 2], pa.int64()), "was": pa.array([1, 2], pa.int64())}
BASE = _parquet(pa.table(_ROWS))
DELTA = _parquet(pa.table({**_ROWS, DELETED: pa.array([None, True])}))

TREE = "index/by_id@1"
HEAD = {"format": 1, "version": 1, "instant": "20260101000000001", "operation": "upsert", "txn_id": "load",
        "attempt": 1, "base": 0, "epoch": 0, "maintained": [TREE], "metrics": {"rows": 1}}  # fmt: skip
ADD = {"action": "add", "tree": "data", "partition": "p=a", "group": "0", "path": "data/load.1/work/part-0.parquet",
       "kind": "delta", "rows": 2, "bytes": len(DELTA), "place": 0, "tombstones": 1, "lineage": 7,
       "extra": {"positions": {"over": 6, "hidden": 0, "bytes": 0}}}  # fmt: skip
COVERS = {"stage": "s", "columns": ["id"], "lacks": [], "lineages": [7], "bytes": [4]}
EXTRA = {"covers": [{**COVERS, "dropped": [8]}], "positions": {"over": 6, "hidden": 0, "bytes": 0}, "new_keys": True,
         "replaced": 1, "ordered": True, "kept": 1.0, "modified": 1.0, "etag": "e", "values": {"p": "a"}, "state": "s",
         "through": "delta", "why": "w", "footer": "f", "page_index": [1, "p"]}  # fmt: skip
SCOPES = [
    {"kind": "bucket", "partition": "p=a", "group": "0"},
    {"kind": "shard", "name": TREE, "group": "0"},
    {"kind": "definition", "name": "by_id"},
]
DEFINITION = {
    "table_id": "t", "fields": [{"name": "p", "type": "string"}, {"name": "id", "type": "bigint", "nullable": False},
                                {"name": "ts", "type": "bigint", "stored": "was"}],
    "record_key": ["id"], "partition_by": ["p"], "properties": {"a": "b"}, "hash_fields": ["id"],
    "ordering_column": "ts", "merge_by": "commit", "write_mode": "merge_on_read", "hash_function": "xxhash64",
    "bucketed": True, "retired": ["gone"], "positions": True,
}  # fmt: skip
INDEX = {"name": "by_id", "kind": "secondary", "columns": ["id"], "index_id": "1", "included": [], "shards": 2,
         "hash_function": "xxhash64", "properties": {"tombstones": "eager"}, "comment": "c", "addresses": "key",
         "deferred": True, "partition_by": ["p"], "index_table": "it", "location": "l"}  # fmt: skip
CONFIG = {"instant": "0" * 17, "default": 4, "rule": "regex", "expressions": "a,8"}
SOURCE = {
    "format": "parquet",
    "location": "/lake/raw",
    "options": {"mergeSchema": "true"},
    "version": "1",
    "session": {"spark.sql.session.timeZone": "UTC"},
    "identity": "5b8f",
    "mark": "812 1732800000.000000",
}
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
                    "partitions": ["p=a"], "seconds": 60.0},
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
        "unique": {TREE: ["id"]}, "sole": True, "unique_by": TREE,
    },
    "_index/queries/20260101T000000-0123456789abcdef.jsonl": {
        "table": "t", "asked": "2026-01-01T00:00:00Z", "seconds": 1.0, "columns": ["id"], "predicate": "id = 1",
        "shape": "id = ?", "join_keys": ["id"], "group_keys": ["id"], "order": ["id"], "used": [["by_id", "secondary"]],
        "unused": [["cov", "covering", "no_keys"]], "files_read": 1, "files_skipped": 1, "bytes_read": 1,
        "bytes_skipped": 1, "spared": {"by_id": 1}, "asked_by": "d.t", "weight": 1.0,
    },
    "_index/jobs/j/beat.json": {"at": 1.0, "phase": "p", "done": 1, "total": 2, "unit": "u", "rate": 1.0, "left": 1.0,
                                "pid": 1, "host": "h", "ui": "u"},
    "_index/jobs/j/attempt-1.json": {"log": "/nowhere", "txn_id": "open", "attempt": 1},
    "_index/jobs/j/cancelled.json": {"at": 1.0, "reason": "r"},
    "_index/jobs/j/wanted.json": {"until": 1.0},
    "_index/maintenance/last.json": {"format": 1, "plans": {"d": {
        "dag_id": "d", "run_id": "r", "at": 1.0, "version": 0, "work": [
            {"kind": "clean", "reason": "r", "index": "by_id", "mode": "quick", "bytes": 1, "seconds": 1.0,
             "overdue": 1.0, "waited": 1, "value": 1.0, "chosen": True, "code": "due"}],
        "skipped": [{"code": "c", "reason": "r", "kind": "clean", "index": "by_id"}]}}},
    "_index/maintenance/done/clean.json": {"kind": "clean", "at": 1.0, "seconds": 1.0, "seen": 0, "bytes": 1,
                                          "index": "by_id",
                                          "version": 0, "ok": True, "metrics": {"a": 1}},
}  # fmt: skip


def commit(*actions: Any) -> dict[str, Any]:
    return {**HEAD, "reads": SCOPES, "writes": [{"scope": SCOPES[0], "mode": "replace"}], "actions": list(actions)}


FEATURES = {"format": 2, "reader_features": [], "writer_features": []}


@dataclass(frozen=True)
class Document:
    """A document of the table's folder.

    :param kind: its type. :param value: as plain types. :param files: what such a value is stored as, by key.
    """

    kind: Any
    value: Any
    files: Callable[[Any], dict[str, bytes]]


_KINDS = {"requested": Requested, "heartbeat": Heartbeat, "claim-work": StageClaim, "stage-work": StageManifest,
          "20260101T000000-0123456789abcdef": AskedQuery,
          "beat": job_folder.JobHeartbeat, "attempt-1": job_folder.BegunAttempt, "cancelled": job_folder._Mark,
          "wanted": job_folder._Lease,
          "last": maintenance_records.LastPlans, "clean": maintenance_records.DoneWork}  # fmt: skip


def _json(key: str) -> Callable[[Any], dict[str, bytes]]:
    return lambda value: {key: msgspec.json.encode(value)}


def _sidecar(action: Any) -> dict[str, bytes]:
    """A commit whose one action stands in a sidecar, which is named as it has to be."""
    body = _parquet(pa.table({"action": [msgspec.json.encode(action)]}), use_dictionary=False)
    key = f"_index/sidecars/{xxhash.xxh3_128_hexdigest(body)}.parquet"
    return {key: body, commit_key(1): msgspec.json.encode({**commit(), "sidecar": key})}


def _checkpoint_body(table: pa.Table, header: Any) -> dict[str, bytes]:
    """A checkpoint, which is named as it has to be, and the version that it is of."""
    body = _parquet(
        table.replace_schema_metadata({b"state": msgspec.json.encode(header)}), use_dictionary=list(files.REPEATED)
    )
    name = f"{1:020d}.{xxhash.xxh3_64_hexdigest(body)}.parquet"
    return {f"_index/timeline/checkpoints/{name}": body, commit_key(1): msgspec.json.encode(FULL)}


FULL = commit(*(ACTIONS[name] for name in ("add", "entries", "index", "hashing_config", "hashing_meta", "open_window",
                                           "abort", "lag", "partition")))  # fmt: skip


def _checkpoint() -> tuple[Any, Any]:
    """The files and the header of a checkpoint of version 1."""
    store = Store("memory:///hostile")
    for version, document in enumerate((FIRST, FULL)):
        store.put(commit_key(version), msgspec.json.encode(document))
    body = log.encode_checkpoint(Timeline.load(store).head)
    table = pq.ParquetFile(pa.BufferReader(body), read_dictionary=list(files.REPEATED)).read().unify_dictionaries()
    header = msgspec.json.decode(table.schema.metadata[b"state"])
    header["restores"], header["ended_windows"] = [[0, 0]], {"0": "ended"}
    header.update(FEATURES)
    index = header["indexes"]["by_id"]
    index["entry"].update({"state": "active", "created": 1, "refreshed": 1})
    index["gone"] = [["p=a", "0", 1]]
    return table, header


def _with_row(table: pa.Table, row: Any) -> pa.Table:
    """The files of a checkpoint with other values in the first row, if that can be stored at all."""
    if not isinstance(row, dict):
        return pa.table({"rows": [repr(row)]})
    arrays = {}
    for name in table.column_names:
        kind, values = table.schema.field(name).type, table[name].to_pylist()
        values[0] = row.get(name)
        if isinstance(values[0], str) and name == "extra":
            values[0] = values[0].encode(errors="surrogatepass")
        try:
            arrays[name] = pa.array(values, kind)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            arrays[name] = pa.array([repr(value) for value in values])
    return pa.table(arrays)


def first() -> Any:
    files = [
        {
            **ADD,
            "path": "data/first.1/work/part-0.parquet",
            "lineage": 6,
            "extra": {},
            "kind": "base",
            "bytes": len(BASE),
            "tombstones": 0,
        }
    ]
    actions = [ACTIONS["table"], {**ACTIONS["index"], "covered": True},
               {**ACTIONS["partition"], "path": "p=a", "values": ["a"]}, *files]  # fmt: skip
    head = {**HEAD, "epoch": None, "version": 0, "instant": "20260101000000000", "txn_id": "first", "base": -1}
    return {**head, "reads": [], "writes": [], "maintained": [], "actions": actions}


FIRST = first()


def documents() -> dict[str, Document]:
    """By name, everything that others write and a reader reads."""
    by_name = {
        f"commit with {name}": Document(Commit, commit(action), _json(commit_key(1)))
        for name, action in ACTIONS.items()
    }
    by_name["commit with features"] = Document(Commit, {**commit(ADD), **FEATURES}, _json(commit_key(1)))
    for key, value in BESIDE.items():
        by_name[key] = Document(_KINDS[Path(key).name.partition(".")[0]], value, _json(key))
    for name in ("add", "partition", "index", "table", "cover"):
        by_name[f"sidecar with {name}"] = Document(None, ACTIONS[name], _sidecar)
    table, header = _checkpoint()
    by_name["checkpoint"] = Document(log._CheckpointHeader, header, lambda value: _checkpoint_body(table, value))
    row = {name: column[0] for name, column in table.to_pydict().items()}
    by_name["files of a checkpoint"] = Document(
        None, row, lambda value: _checkpoint_body(_with_row(table, value), header)
    )
    by_name["extra of a file of a checkpoint"] = Document(
        None, EXTRA, lambda value: _checkpoint_body(
            _with_row(table, {**row, "extra": msgspec.json.encode(value)}), header)
    )  # fmt: skip
    return by_name


def make(root: Path) -> None:
    """Makes the table with rows, an index, an attempt that is open, a job; and beside it what is nobody's affair."""
    store = Store(root / "lake" / "table")
    store.put("data/first.1/work/part-0.parquet", BASE)
    store.put("data/load.1/work/part-0.parquet", DELTA)
    store.put(commit_key(0), json.dumps(FIRST).encode())
    for key, document in BESIDE.items():
        store.put(key, json.dumps(document).encode())
    outside = root / "outside"
    outside.mkdir()
    (outside / "rows").write_bytes(b"secret")
    (root / "lake" / "table" / "data" / "linked").symlink_to(outside, target_is_directory=True)
