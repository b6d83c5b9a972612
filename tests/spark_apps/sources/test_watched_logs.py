"""Logs of other formats as watchers follow them: each commit once, in order, and what is gone. Without Spark."""

from __future__ import annotations

import gzip
import json
import random
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pytest
from msgspec.structs import replace

from spark_apps.sources.logs import delta as delta_log
from spark_apps.sources.logs.avro import first_record
from spark_apps.sources.logs.commits import CommitInfo, Gap, Look, Place, WatchedLog, write_mark
from spark_apps.sources.logs.delta import DeltaLog
from spark_apps.sources.logs.hudi_timeline import HudiTimeline
from spark_apps.sources.logs.iceberg import Snapshot, TableMetadata
from spark_apps.sources.logs.watching import watched_log
from spark_apps.storage.errors import LakeIndexError, LogDamaged, TableNotFound, UnsupportedSource
from spark_apps.storage.store import Store
from spark_apps.timeline.model import SourceDefinition
from tests.spark_apps.sources.test_followed_logs import Snapshots

ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


def said(look: Look) -> list[Any]:
    """The versions of the commits, and the ends of the gaps."""
    return [one.version if isinstance(one, CommitInfo) else (one.start, one.end) for one in look.seen]


def by_pages(log: WatchedLog, place: Place, most: int) -> Iterator[CommitInfo | Gap]:
    """All that a log says behind a place, some commits at a time."""
    more = True
    while more:
        look = log.after(place, most)
        assert sum(isinstance(one, CommitInfo) for one in look.seen) <= most
        yield from look.seen
        place, more = look.place, look.more


# --- Delta ------------------------------------------------------------------------------------------------------------


@dataclass
class Delta:
    """A Delta table that ``deltalake`` writes."""

    folder: Path

    def append(self, times: int = 1) -> None:
        for _ in range(times):
            deltalake.write_deltalake(str(self.folder), ROWS, mode="append")

    @property
    def table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(str(self.folder))

    @property
    def log(self) -> DeltaLog:
        return DeltaLog(Store(str(self.folder)))

    def commit(self, version: int) -> Path:
        return self.folder / "_delta_log" / f"{version:020d}.json"

    def clean_up(self, below: int) -> None:
        """Leaves a checkpoint in place of the first commits, as the format's own clean-up does."""
        self.table.create_checkpoint()
        for version in range(below):
            self.commit(version).unlink(missing_ok=True)


@pytest.fixture
def delta(tmp_path: Path) -> Delta:
    return Delta(tmp_path / "delta")


def test_given_commits_of_delta_then_each_comes_once_in_order_as_the_table_s_own_history_has_it(delta: Delta) -> None:
    delta.append(3)
    delta.table.optimize.compact()
    delta.table.delete("id = 1")
    history = {str(one["version"]): one for one in delta.table.history()}

    look = delta.log.after(delta.log.place("0", None))
    assert said(look) == ["1", "2", "3", "4"] and not look.more
    for commit in look.seen:
        assert isinstance(commit, CommitInfo) and commit.time is not None
        its = history[commit.version]
        assert (commit.operation, round(commit.time * 1000)) == (its["operation"], its["timestamp"])
    appended, folded = look.seen[0], look.seen[2]
    assert isinstance(appended, CommitInfo) and isinstance(folded, CommitInfo)
    assert appended.counts == {"files_added": 1, "files_removed": 0, "rows_added": 2}
    assert folded.counts == {"files_added": 1, "files_removed": 3, "rows_added": 6}

    assert said(delta.log.after(look.place)) == []
    delta.append()
    assert said(delta.log.after(look.place)) == ["5"]
    for most in (1, 2, 3, 100):
        pages = [*by_pages(delta.log, Place(), most)]
        assert [one.version for one in pages if isinstance(one, CommitInfo)] == list("012345") and len(pages) == 6


def test_given_commits_of_delta_that_were_cleaned_up_then_there_is_a_gap_only_where_some_are_missing(
    delta: Delta,
) -> None:
    delta.append(3)
    seen, behind = delta.log.after(Place()).place, delta.log.after(Place("0")).place
    first = delta.log.after(Place(), 1).place
    delta.append(3)
    delta.clean_up(3)

    assert said(delta.log.after(seen)) == ["3", "4", "5"], "the first that is there comes right after"
    assert said(delta.log.after(first)) == [("0", "3"), "3", "4", "5"]
    assert said(delta.log.after(Place())) == [(None, "3"), "3", "4", "5"]
    assert [*by_pages(delta.log, first, 1)][:1] == [*delta.log.after(first, 1).seen][:1]
    assert behind == seen

    text = delta.commit(5).read_text()
    delta.clean_up(6)  # a checkpoint alone is left
    newest = Place("5", seen.file)
    assert said(delta.log.after(newest)) == [] and delta.log.after(newest).place == newest
    for version in (6, 7):
        delta.commit(version).write_text(text)
    assert said(delta.log.after(newest)) == ["6", "7"]
    delta.commit(6).unlink()
    assert said(delta.log.after(newest)) == [("5", "7"), "7"]


@pytest.mark.parametrize("commits", [1, 3, 6])
def test_given_a_delta_table_that_was_made_anew_then_that_is_a_gap_and_all_its_commits_come(
    delta: Delta, commits: int
) -> None:
    delta.append(3)
    place = delta.log.after(Place()).place
    shutil.rmtree(delta.folder)
    with pytest.raises(TableNotFound):
        delta.log.after(place)
    delta.append(commits)

    look = delta.log.after(place)
    assert said(look) == [("2", "0"), *map(str, range(commits))]
    assert isinstance(look.seen[0], Gap) and "made anew" in look.seen[0].why
    assert said(delta.log.after(look.place)) == []


def test_given_a_large_or_a_damaged_commit_then_it_is_an_event_of_which_little_is_read(
    delta: Delta, monkeypatch: pytest.MonkeyPatch
) -> None:
    delta.append(5)
    actions = delta.commit(1).read_text().splitlines()
    info = next(line for line in actions if "commitInfo" in line)
    others = [line for line in actions if line != info]
    delta.commit(1).write_text("\n".join([info, *others * 20, ""]))
    delta.commit(2).write_text("\n".join([*others * 20, info]))
    delta.commit(3).write_text("{" * 100_000)
    delta.commit(4).write_bytes(b'{"commitInfo": {"operation": "\\u001b[31m' + b"x" * 1000 + b'", "timestamp": 7}}')
    monkeypatch.setattr(delta_log, "_COUNTED_BYTES", 4000)
    monkeypatch.setattr(delta_log, "_END_BYTES", 1000)

    def refused(*_: Any) -> bytes:
        raise AssertionError("read as a whole")

    with monkeypatch.context() as bounded:
        bounded.setattr(Store, "get", refused)
        first, last = (delta.log.after(Place(str(version)), 1).seen[0] for version in (0, 1))
    assert isinstance(first, CommitInfo) and isinstance(last, CommitInfo)
    assert first.operation == last.operation == "WRITE" and first.counts == last.counts == {}
    damaged, odd = delta.log.after(Place("2")).seen
    assert isinstance(damaged, CommitInfo) and (damaged.id, damaged.operation, damaged.counts) == ("3", "", {})
    assert isinstance(odd, CommitInfo) and odd.operation.isprintable() and len(odd.operation) < 200


# --- Iceberg ----------------------------------------------------------------------------------------------------------


def watched(lake: Snapshots, by: str) -> WatchedLog:
    lake.hint()
    options = lake.options if by == "catalog" else {}
    return watched_log(SourceDefinition("iceberg", lake.table.location(), options), None, "")


def ids(lake: Snapshots) -> list[str]:
    return [str(one.snapshot_id) for one in lake.table.snapshots()]


@pytest.mark.parametrize("by", ["hint", "catalog"])
def test_given_snapshots_then_each_comes_once_in_order_with_its_sequence_number(tmp_path: Path, by: str) -> None:
    lake = Snapshots(tmp_path / "home")
    log = watched(lake, by)
    assert said(log.after(Place())) == [], "a table without a snapshot"
    for n in range(3):
        lake.append(10 * n, 5, "ab"[n % 2])
    lake.table.delete("p = 'b'")
    lake.hint()

    look = log.after(Place())
    assert said(look) == ids(lake)
    for commit, snapshot in zip(look.seen, lake.table.snapshots(), strict=True):
        assert isinstance(commit, CommitInfo) and commit.time is not None and snapshot.summary is not None
        assert (commit.sequence, round(commit.time * 1000)) == (snapshot.sequence_number, snapshot.timestamp_ms)
        assert commit.operation == snapshot.summary.operation.value
    first, last = look.seen[0], look.seen[-1]
    assert isinstance(first, CommitInfo) and isinstance(last, CommitInfo)
    assert first.counts == {"files_added": 1, "rows_added": 5}
    assert last.counts == {"files_removed": 1, "rows_removed": 5}
    assert said(log.after(look.place)) == []
    assert [one.version for one in by_pages(log, Place(), 1) if isinstance(one, CommitInfo)] == ids(lake)


def test_given_snapshots_that_were_expired_then_there_is_a_gap_up_to_the_first_that_is_listed(tmp_path: Path) -> None:
    lake = Snapshots(tmp_path / "home")
    for n in range(6):
        lake.append(n, 1)
    known, log = ids(lake), watched(lake, "hint")
    places = {one: log.after(Place(one)).place for one in known[-1:]} | {
        known[n]: log.after(Place(), n + 1).place for n in range(5)
    }
    lake.table.maintenance.expire_snapshots().by_ids([int(one) for one in known[1:4]]).commit()
    lake.hint()

    assert said(log.after(places[known[0]])) == [(known[0], known[4]), known[4], known[5]]
    assert said(log.after(places[known[2]])) == [(known[2], known[4]), known[4], known[5]]
    assert said(log.after(Place(known[2]))) == [(known[2], known[4]), known[4], known[5]]
    assert said(log.after(places[known[4]])) == [known[5]] and said(log.after(places[known[5]])) == []


def snapshot(number: int, parent: int | None) -> Snapshot:
    return Snapshot(number, 1000 * number, parent, number, {"operation": "append"})


def test_given_metadata_that_says_of_an_expired_snapshot_what_came_from_it_then_what_was_seen_does_not_come_again() -> (
    None
):
    """Java's library keeps the id of a parent that was expired."""
    chain = [snapshot(n, n - 1 if n > 1 else None) for n in range(1, 8)]
    kept = TableMetadata(current=7, snapshots=[one for one in chain if one.id not in (2, 3, 5)])

    assert said(kept.after(chain[4].place)) == ["6", "7"], "none is missing behind the fifth"
    assert said(kept.after(chain[3].place)) == [("4", "6"), "6", "7"]
    assert said(kept.after(chain[1].place)) == [("2", "6"), "6", "7"]
    assert said(kept.after(chain[5].place)) == ["7"]
    assert said(replace(kept, current=None).after(chain[5].place)) == []
    manifests = replace(chain[0], summary={"operation": "replace", "manifests-created": "1"})
    compaction = replace(chain[0], summary={"operation": "replace", "added-data-files": "1"})
    changes = [one.info.may_change_files for one in (manifests, compaction, chain[0])]
    assert changes == [False, True, True], "a rewrite of manifests counts no files"
    odd = [snapshot(8, 9), snapshot(9, 8)]
    with pytest.raises(LogDamaged, match="from itself"):
        TableMetadata(current=8, snapshots=odd).after(Place("1"))


def test_given_a_table_that_went_back_then_that_is_one_event_and_what_came_since_follows(tmp_path: Path) -> None:
    lake = Snapshots(tmp_path / "home")
    for n in range(3):
        lake.append(n, 1)
    known, log = ids(lake), watched(lake, "catalog")
    place = log.after(Place()).place
    lake.table.manage_snapshots().rollback_to_snapshot(int(known[0])).commit()

    look = log.after(place)
    assert said(look) == [known[0]]
    assert isinstance(look.seen[0], CommitInfo) and look.seen[0].operation == "rollback"
    assert look.seen[0].id != known[0], "the snapshot itself has come before"
    assert said(log.after(look.place)) == []
    lake.append(9, 1)
    assert said(log.after(look.place)) == [ids(lake)[-1]]
    assert said(log.after(place)) == [known[0], ids(lake)[-1]]


def test_given_another_table_by_the_name_or_place_then_it_is_not_the_one_that_was_registered(tmp_path: Path) -> None:
    lake = Snapshots(tmp_path / "home")
    lake.append(0, 1)
    lake.hint()
    for options in ({}, lake.options):
        source = SourceDefinition("iceberg", lake.table.location(), options, identity="another")
        with pytest.raises(TableNotFound, match="is gone"):
            watched_log(source, None, "").after(Place())
    elsewhere = SourceDefinition("iceberg", f"{tmp_path}/elsewhere", lake.options)
    with pytest.raises(LakeIndexError, match="source_roots"):
        watched_log(elsewhere, None, "").after(Place())


def test_given_packed_metadata_then_it_is_unpacked_up_to_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "t/metadata"
    folder.mkdir(parents=True)
    body = json.dumps({"current-snapshot-id": 1, "snapshots": [{"snapshot-id": 1, "timestamp-ms": 5}]}).encode()
    (folder / "version-hint.text").write_text("00001-x.gz.metadata.json")
    metadata = folder / "00001-x.gz.metadata.json"
    log = watched_log(SourceDefinition("iceberg", str(tmp_path / "t")), None, "")
    metadata.write_bytes(gzip.compress(body))
    assert said(log.after(Place())) == ["1"]
    for bad in (gzip.compress(body)[:-9], body, b"", gzip.compress(b"{" * 100_000), gzip.compress(b" " * 4_000_000)):
        metadata.write_bytes(bad)
        monkeypatch.setattr("spark_apps.sources.logs.watching.MAX_METADATA_BYTES", 1 << 20)
        with pytest.raises(LogDamaged):
            log.after(Place())


# --- Hudi -------------------------------------------------------------------------------------------------------------

TIMELINES = Path(__file__).with_name("hudi_timelines.tar.gz")
"""What Hudi's own writers left of their tables (``tests/connectors/write_hudi_timelines.py``)."""

WRITES = ["bulk_insert", "upsert", "insert", "delete"]
OF_COW = [*WRITES, "insert_overwrite_table"]
OF_MOR = [*WRITES, "upsert", "compact", "insert_overwrite_table"]


@pytest.fixture
def hudi(tmp_path: Path) -> Path:
    with tarfile.open(TIMELINES) as archive:
        archive.extractall(tmp_path / "hudi", filter="data")
    return tmp_path / "hudi"


def timeline(table: Path) -> HudiTimeline:
    return HudiTimeline(Store(str(table)))


def completed(table: Path) -> list[Path]:
    """The files of completed commits, in the order of their names."""
    folder = table / ".hoodie/timeline" if (table / ".hoodie/timeline").is_dir() else table / ".hoodie"
    return sorted(path for path in folder.iterdir() if path.suffix in (".commit", ".deltacommit", ".replacecommit"))


@pytest.mark.parametrize(
    ("table", "operations"), [("cow6", OF_COW), ("mor6", OF_MOR), ("mor8", OF_MOR), ("cow9", OF_COW)]
)
def test_given_instants_of_hudi_then_each_comes_once_in_order_with_what_it_counts(
    hudi: Path, table: str, operations: list[str]
) -> None:
    log = timeline(hudi / table)
    look = log.after(Place())
    commits = [one for one in look.seen if isinstance(one, CommitInfo)]
    names = [path.name for path in completed(hudi / table)]

    assert [one.operation for one in commits] == operations
    assert [name.partition(".")[0].partition("_")[0] for name in names] == [one.version for one in commits]
    assert all(
        one.completion == (name.partition(".")[0].partition("_")[2] or None)
        for one, name in zip(commits, names, strict=True)
    )
    counted = [(one.counts.get("rows_added"), one.counts.get("rows_removed")) for one in commits[:4]]
    assert counted == [(20, 0), (0, 0), (5, 0), (0, 2)]
    assert commits[1].counts["rows_updated"] == 3 and {one.counts["files_added"] for one in commits} == {1}
    assert said(log.after(look.place)) == []
    assert [*by_pages(log, Place(), 1)] == commits
    assert said(log.after(log.place(commits[1].version, None))) == [one.version for one in commits[2:]]


def test_given_one_instant_more_then_a_look_asks_for_it_alone_beside_the_names(
    hudi: Path, asked: list[tuple[str, str, int]]
) -> None:
    log = timeline(hudi / "cow9")
    look = log.after(Place(), len(OF_COW) - 1)
    asked.clear()
    last = log.after(look.place)
    properties, folder = ".hoodie/hoodie.properties", ".hoodie/timeline"
    newest = f"{folder}/{completed(hudi / 'cow9')[-1].name}"
    assert [call[:2] for call in asked] == [("get", properties), ("list", folder), ("get", newest)]
    asked.clear()
    assert said(log.after(last.place)) == []
    assert [call[:2] for call in asked] == [("get", properties), ("list", folder)]


def test_given_a_mark_of_a_listing_then_what_was_completed_since_comes(hudi: Path) -> None:
    log = timeline(hudi / "mor8")
    commits = [one for one in log.after(Place()).seen if isinstance(one, CommitInfo)]
    mark = write_mark({"latest": commits[2].completion, "oldest": commits[1].version})
    assert said(log.after(log.place(commits[2].version, mark))) == [one.version for one in commits[3:]]


def test_given_archived_instants_then_there_is_a_gap_up_to_the_first_that_is_listed(hudi: Path) -> None:
    log = timeline(hudi / "archived")
    versions = said(log.after(Place()))
    assert len(versions) in (3, 4), "of twelve commits"
    before = Place(str(int(versions[0]) - 10_000))
    look = log.after(before)
    assert said(look) == [(before.version, versions[0]), *versions]
    assert said(log.after(look.place)) == []
    assert [one for one in by_pages(log, before, 1) if isinstance(one, Gap)] == [look.seen[0]]
    assert said(log.after(Place(versions[0]))) == versions[1:]


def test_given_a_table_that_is_looked_after_then_clusterings_and_rollbacks_come_and_savepoints_do_not(
    hudi: Path,
) -> None:
    table = hudi / "looked_after"
    log = timeline(table)
    look = log.after(Place())
    operations = [one.operation for one in look.seen if isinstance(one, CommitInfo)]
    assert operations == ["upsert"] * 4 + ["cluster", "rollback"]
    assert [one.may_change_files for one in look.seen if isinstance(one, CommitInfo)] == [True] * 5 + [False]
    # A commit with a savepoint stays where others are archived.
    for path in [*(table / ".hoodie/timeline").iterdir()]:
        if any(path.name.startswith(one.version) for one in look.seen[1:3]):  # type: ignore[union-attr]
            path.unlink()
    versions = said(look)
    assert said(log.after(Place(versions[0]))) == [(versions[0], versions[3]), *versions[3:]]


@pytest.mark.parametrize("table", ["mor6", "mor8"])
def test_given_an_instant_that_is_completed_after_later_ones_then_it_comes_when_it_is(hudi: Path, table: str) -> None:
    late = completed(hudi / table)[2]
    version = late.name.partition(".")[0].partition("_")[0]
    late.rename(hudi / "aside")
    log = timeline(hudi / table)
    look = log.after(Place())
    assert version not in said(look) and len(look.seen) == len(OF_MOR) - 1
    assert look.place.pending == [version]
    later = f"{version}_{int(look.place.completion) + 1}" if look.place.completion else version
    (hudi / "aside").rename(late.with_name(f"{later}{late.suffix}"))

    after = log.after(look.place)
    assert said(after) == [version]
    assert after.place.pending == [] and said(log.after(after.place)) == []


def test_given_properties_that_lead_elsewhere_or_are_none_then_no_other_folder_is_looked_into(hudi: Path) -> None:
    table = hudi / "cow9"
    properties = table / ".hoodie/hoodie.properties"
    whole = properties.read_text()
    (hudi / "cow9/.hoodie/other").mkdir()
    for name, error in (
        ("../../cow6/.hoodie", UnsupportedSource),
        ("/etc", UnsupportedSource),
        ("a/b", UnsupportedSource),
    ):
        properties.write_text(whole.replace("hoodie.timeline.path=timeline", f"hoodie.timeline.path={name}"))
        with pytest.raises(error, match="timeline"):
            timeline(table).after(Place())
    properties.write_text(whole.replace("hoodie.timeline.path=timeline", "hoodie.timeline.path=other"))
    assert said(timeline(table).after(Place())) == []
    properties.write_text(whole.replace("hoodie.table.version=9", f"hoodie.table.version={'9' * 5000}"))
    with pytest.raises(LogDamaged):
        timeline(table).after(Place())
    properties.write_bytes(b"x" * (2 << 20))
    with pytest.raises(LogDamaged):
        timeline(table).after(Place())
    properties.unlink()
    with pytest.raises(TableNotFound):
        timeline(table).after(Place())
    with pytest.raises(TableNotFound):
        timeline(hudi / "nothing").after(Place())
    assert not (hudi / "nothing").exists(), "a look leaves no folder behind"


# --- what Hudi writes of an instant -----------------------------------------------------------------------------------


def test_given_any_schema_then_the_record_is_what_another_library_reads(tmp_path: Path) -> None:
    inside = {
        "type": "record", "name": "S", "fields": [
            {"name": "f", "type": "float"}, {"name": "b", "type": "bytes"}, {"name": "t", "type": "boolean"},
        ],
    }  # fmt: skip
    schema = {
        "type": "record", "name": "R", "namespace": "n.s", "fields": [
            {"name": "a", "type": ["null", "long", "string"]},
            {"name": "b", "type": {"type": "map", "values": "double"}},
            {"name": "c", "type": {"type": "array", "items": inside}}, {"name": "d", "type": ["null", "S"]},
            {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
            {"name": "g", "type": {"type": "fixed", "name": "F", "size": 3}}, {"name": "h", "type": "int"},
        ],
    }  # fmt: skip
    inner = {"f": 0.5, "b": b"\x00\xff", "t": True}
    records = [
        {"a": -(2**40), "b": {"x": 1.5, "é": -2.0}, "c": [inner, inner], "d": inner, "e": "Y", "g": b"abc", "h": -7},
        {"a": "text", "b": {}, "c": [], "d": None, "e": "X", "g": b"\x00\x01\x02", "h": 2**31 - 1},
        {"a": None, "b": {}, "c": [inner] * 500, "d": None, "e": "X", "g": b"abc", "h": 0},
    ]
    for codec in ("null", "deflate"):
        for record in records:
            with (tmp_path / "a.avro").open("wb") as file:
                fastavro.writer(file, schema, [record], codec=codec)
            assert first_record((tmp_path / "a.avro").read_bytes(), "it") == record


def test_given_mutated_bytes_then_an_instant_is_refused_or_read_and_none_takes_long(hudi: Path) -> None:
    draw = random.Random(5)
    bodies = [path.read_bytes() for path in completed(hudi / "mor8")]
    refused = 0
    for _ in range(1500):
        body = bytearray(draw.choice(bodies))
        for _ in range(draw.randint(1, 4)):
            at = draw.randrange(len(body))
            match draw.randrange(3):
                case 0:
                    body[at] = draw.randrange(256)
                case 1:
                    del body[at : at + draw.randint(1, 9)]
                case 2:
                    body[at:at] = bytes(draw.choice([[255] * 9, [0] * 4, [254, 255, 255, 255, 255, 255, 255, 255, 1]]))
        try:
            first_record(bytes(body), "it")
        except LogDamaged:
            refused += 1
    assert 100 < refused < 1500


def test_given_a_file_that_claims_more_than_it_has_then_it_is_refused_at_once(tmp_path: Path) -> None:
    def file(schema: Any, data: bytes, codec: str = "null") -> bytes:
        text = schema if isinstance(schema, bytes) else json.dumps(schema).encode()
        head = (
            b"Obj\x01" + _long(2) + _text(b"avro.schema") + _text(text) + _text(b"avro.codec") + _text(codec.encode())
        )
        return head + b"\x00" + b"s" * 16 + _long(1) + _text(data) + b"s" * 16

    nulls = {"type": "array", "items": "null"}
    itself: Any = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}
    for body in (
        b"", b"Obj\x01", b"PAR1" * 9, file(nulls, _long(2**60)), file(nulls, _long(-(2**60)) + _long(1)),
        file(itself, b""), file(b"[" * 100_000, b""), file("unknown", b""), file({"type": 7}, b""), file([], _long(0)),
        file(["null"], _long(9)), file("string", _long(2**62)), file("bytes", _long(-5)), file("long", b"\xff" * 20),
        file("long", _long(1), "zstandard"), file("long", b"\x00", "deflate"), file({"type": "record"}, b""),
        file({"type": "fixed", "name": "F", "size": "x"}, b""), file({"type": "fixed", "name": "F", "size": -1}, b""),
        file({"type": "enum", "name": "E", "symbols": []}, _long(0)), file(None, b""), file(7, b""),
    ):  # fmt: skip
        with pytest.raises(LogDamaged):
            first_record(body, "it")


def _long(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    number &= (1 << 64) - 1
    out = b""
    while number > 0x7F:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def _text(data: bytes) -> bytes:
    return _long(len(data)) + data
