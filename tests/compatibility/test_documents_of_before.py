"""Documents of the lake that version 0.1.0 wrote are read, and written again as they were; without Spark."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Union

import msgspec
import pyarrow.parquet as pq
import pytest

from tests.compatibility.lake import unpack
from tests.compatibility.recording import HERE, shapes

WRITTEN: dict[str, Any] = json.loads((HERE / "documents.json").read_text(encoding="utf-8"))
M = "spark_apps.timeline.model."
KINDS = {  # where a document lies -> what it is, by the name that it had
    r"_index/timeline/\d+\.json": M + "Commit",
    r"_index/transactions/[^/]+/\d+/requested\.json": M + "Requested",
    r"_index/transactions/[^/]+/\d+/heartbeat\.json": M + "Heartbeat",
    r"_index/transactions/[^/]+/\d+/claim-[^/]+\.json": M + "StageClaim",
    r"_index/transactions/[^/]+/\d+/stage-[^/]+\.json": M + "StageManifest",
    r"_index/jobs/[^/]+/beat\.json": "spark_apps.timeline.jobs.Beat",
    r"_index/jobs/[^/]+/attempt-\w+\.json": "spark_apps.timeline.jobs.HeldAttempt",
    r"_index/jobs/[^/]+/wanted\.json": "spark_apps.timeline.jobs._Lease",
    r"_index/jobs/[^/]+/cancelled\.json": "spark_apps.timeline.jobs._Mark",
    r"_index/jobs/[^/]+/outcome\.json": "spark_apps.job.Outcome",
    r"_index/maintenance/last\.json": "spark_apps.timeline.maintenance.LastPlans",
    r"_index/maintenance/done/[^/]+\.json": "spark_apps.timeline.maintenance.DoneWork",
}
CHECKPOINTS = [("trips", 25), ("trips", 40), ("trips", 44)]
CHECKPOINT_COLUMNS = [
    "tree", "partition", "group", "path", "kind", "rows", "bytes", "place", "tombstones", "lineage", "extra",
    "path_hash",
]  # fmt: skip


def of_before(name: str) -> type:
    """Return the class that today writes the documents of a class of before."""
    return next(kind for look, kind in shapes().values() if look == WRITTEN[name])


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("lake"))


def test_every_document_of_the_lake_is_read_and_written_again_alike(lake: Path) -> None:
    counts: Counter[str] = Counter()
    for path, name in documents(lake):
        body = path.read_bytes()
        assert in_pairs(msgspec.json.encode(msgspec.json.decode(body, type=of_before(name)))) == in_pairs(body), path
        counts[name] += 1
    assert counts.keys() == set(KINDS.values())


def test_every_action_of_a_commit_is_in_the_lake_and_in_a_sidecar_it_is_written_again_alike(lake: Path) -> None:
    actions = {kind.__struct_config__.tag: kind for _, kind in shapes().values() if tag_field(kind) == "action"}
    decoder = msgspec.json.Decoder(Union[tuple(actions.values())])  # noqa: UP007
    [sidecar] = lake.glob("*/_index/sidecars/*.parquet")
    bodies = pq.read_table(io.BytesIO(sidecar.read_bytes())).column("action").to_pylist()
    assert bodies and [msgspec.json.encode(decoder.decode(body)) for body in bodies] == bodies
    logged = "".join(path.read_text(encoding="utf-8") for path, name in documents(lake) if name == M + "Commit")
    of_old = {look["action"] for look in WRITTEN.values() if "action" in look}
    assert set(re.findall(r'"action":"(\w+)"', logged)) == of_old == {tag for tag in actions if tag != "Action"}


def test_a_checkpoint_of_the_lake_is_read_and_written_again_alike(lake: Path) -> None:
    from spark_apps.timeline import log

    checkpoints = sorted(lake.rglob("_index/timeline/checkpoints/*.parquet"))
    assert [(path.parents[3].name, int(path.name.partition(".")[0])) for path in checkpoints] == CHECKPOINTS
    for path in checkpoints:
        body = path.read_bytes()
        before, state = pq.ParquetFile(io.BytesIO(body)), log.decode_checkpoint(body)
        assert state is not None
        again = pq.ParquetFile(io.BytesIO(log.encode_checkpoint(state)))
        assert before.schema_arrow.names == again.schema_arrow.names == CHECKPOINT_COLUMNS
        assert json.loads(before.schema_arrow.metadata[b"state"]) == json.loads(again.schema_arrow.metadata[b"state"])
        assert before.read().to_pylist() == again.read().to_pylist()


def test_jobs_and_plans_of_maintenance_of_the_lake_tell_what_they_told(lake: Path) -> None:
    from spark_apps.jobs.job_folder import JobFolder, list_jobs
    from spark_apps.storage.store import Store
    from spark_apps.timeline import maintenance_records

    store = Store(lake / "trips")
    [job_id] = list_jobs(store)
    folder = JobFolder(store, job_id)
    beat, outcome, [held] = folder.heartbeat(), folder.outcome(), folder.attempts()
    assert beat is not None and beat.line() == "write the rows: 3 of 8 tasks, 1.5/s, about 3 s left"
    assert outcome is not None and outcome.kind == "receipt"
    assert (held.txn_id, held.attempt, folder.cancelled()) == ("night", 2, "cleared")
    plan = maintenance_records.read_last(store).plans["nightly"]
    assert [(work.key, work.chosen, work.code) for work in plan.work] == [
        ("compact", True, "due"),
        ("refresh.by_note", False, "budget"),
    ]
    assert [(skip.code, skip.index) for skip in plan.skipped] == [("fresh", "by_fare")]
    done = maintenance_records.read_done(store)
    assert {key: (one.seconds, one.version, one.ok) for key, one in done.items()} == {
        "compact": (2.0, 8, True),
        "verify.by_city": (1.5, None, False),
    }


def in_pairs(body: bytes) -> Any:
    """Return a document with its names in their order; 60 and 60.0 are one number."""
    return json.loads(body, object_pairs_hook=list)


def documents(lake: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(lake.rglob("_index/**/*.json")):
        # A mark, which says nothing; and a copy of what the log says of an index's files.
        if path.name not in ("withdrawn.json", "coverage.json"):
            yield path, next(name for pattern, name in KINDS.items() if re.search(pattern, str(path)))


def tag_field(kind: Any) -> str | None:
    tag: str | None = kind.__struct_config__.tag_field
    return tag
