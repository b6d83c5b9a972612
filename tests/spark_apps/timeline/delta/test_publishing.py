"""Tables published as Delta, read by ``deltalake``, which knows nothing of this package; without Spark."""

from __future__ import annotations

import datetime as dt
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from msgspec.structs import replace

from spark_apps.storage.errors import CannotPublish, InvalidInput, PublishRefused, StorageError, StorageUnavailable
from spark_apps.storage.store import Store
from spark_apps.timeline import cleaning
from spark_apps.timeline.delta import checkpoints as delta_checkpoints
from spark_apps.timeline.delta import log as delta_log
from spark_apps.timeline.delta import publishing
from spark_apps.timeline.delta.publishing import publish, published
from spark_apps.timeline.model import DATA_TREE, Field
from tests.simulation.s3 import BUCKET, s3_server
from tests.spark_apps.timeline.plain_rows import FIELDS, PARTITIONS, PlainRows


def theirs(
    folder: Path | str, where: str | None = None, version: int | None = None, options: dict[str, str] | None = None
) -> list[tuple[Any, ...]]:
    """Rows that another engine reads."""
    rows = pa.table(DeltaTable(folder, version, storage_options=options).scan(predicate=where)).to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def log(folder: Path) -> list[list[dict[str, Any]]]:
    """The commits of the Delta log, as they stand there."""
    files = sorted((folder / "_delta_log").glob("*.json"))
    assert [int(file.stem) for file in files] == list(range(len(files)))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def of(commit: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [action[kind] for action in commit if kind in action]


def check(table: PlainRows, folder: Path) -> None:
    """What is published is what a version of the table holds, all of it, and nothing else."""
    state = published(table.log)
    assert state is not None and state.version is not None
    assert theirs(folder) == table.expected(state.version)


@pytest.mark.by_turn(4)
@pytest.mark.parametrize("seed", range(8))
def test_given_a_random_history_then_after_each_step_another_engine_reads_what_is_published(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_checkpoints, "EVERY", 3)
    rng = random.Random(seed)
    partitioned, positions = bool(seed & 1), bool(seed & 2)
    table = PlainRows(tmp_path, partitioned=partitioned, positions=positions)
    check(table, tmp_path)
    for step in range(14):
        before = table.log.head.version
        partition = rng.choice(PARTITIONS) if partitioned else None
        there = [n for p, n in table.rows if p == (partition if partitioned else None)]
        some = rng.sample(there, min(len(there), rng.randint(0, 4)))
        fresh = [1000 * step + n for n in range(rng.randint(1, 9))]
        kind = rng.choice(["insert", "upsert", "upsert", "delete", "compact", "restore", "columns", "drop", "crash"])
        if kind == "insert":
            table.write("insert", partition, [table.row(n, partition, rng) for n in fresh])
        elif kind == "upsert":
            table.write("upsert", partition, [table.row(n, partition, rng) for n in [*some, *fresh]])
        elif kind == "delete" and some:
            table.write("delete", partition, [], some)
        elif kind == "compact":
            table.fold()
        elif kind == "restore":
            table.restore(rng.choice(list(table.versions)))
        elif kind == "drop" and partitioned and there:
            table.drop_partition(partition)
        elif kind == "columns":
            table.define(fields=(*table.table.fields, Field(f"c{step}", "bigint")))
        elif kind == "crash":  # between the commit and that of the Delta log
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(publishing, "publish", lambda _: None)
                table.write("insert", partition, [table.row(n, partition, rng) for n in fresh])
            continue
        check(table, tmp_path)
        if positions and table.log.head.version > before:
            assert published(table.log).behind == 0, published(table.log)
    table.fold()
    state = publish(table.log)
    assert state.behind == 0
    check(table, tmp_path)
    for state_of in {info["txn"]["version"] for commit in log(tmp_path) for info in commit if "txn" in info}:
        assert state_of in table.versions
    assert_read_from_checkpoint(table, tmp_path)


def assert_read_from_checkpoint(table: PlainRows, folder: Path) -> None:
    """Readers need no commit that a checkpoint holds."""
    told = json.loads((folder / delta_checkpoints.LAST).read_text())
    files = pa.parquet.read_table(folder / delta_checkpoints.checkpoint_key(told["version"])).to_pylist()
    assert told["size"] == len(files) and told["numOfAddFiles"] == sum(row["add"] is not None for row in files)
    copy = folder.with_name(f"{folder.name}-copy")
    shutil.copytree(folder, copy)
    for number in range(told["version"] + 1):
        (copy / delta_log.commit_key(number)).unlink()
    check(table, copy)


def test_given_a_hundred_commits_then_a_checkpoint_has_what_they_come_to_and_none_is_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, folder = random.Random(11), tmp_path / "t"
    monkeypatch.setattr(delta_checkpoints, "EVERY", 4)
    table = PlainRows(folder, partitioned=True, positions=True)

    def wrote() -> list[int]:
        return sorted(int(path.name[:20]) for path in (folder / delta_log.FOLDER).glob("*.checkpoint.parquet"))

    def write(count: int) -> None:
        for _ in range(count):
            number = table.log.head.version
            table.write("upsert", "a b", [table.row(n, "a b", rng) for n in (number, 3)])

    write(5)
    table.fold()
    write(4)
    assert wrote() == [4, 8]
    assert_read_from_checkpoint(table, folder)
    rows = pa.parquet.read_table(folder / delta_checkpoints.checkpoint_key(8)).to_pylist()
    assert any(row["remove"] for row in rows) and any((row["add"] or {}).get("deletionVector") for row in rows)
    # Of one that is damaged or was never written the commits before it are read; a failure hinders no commit.
    (folder / delta_checkpoints.checkpoint_key(8)).write_bytes(b"PAR1")
    (folder / delta_checkpoints.LAST).unlink()
    write(2)
    assert wrote() == [4, 8, 12]
    shutil.rmtree(tmp_path / "t-copy")
    assert_read_from_checkpoint(table, folder)

    def down(*_: Any) -> Any:
        raise StorageUnavailable("The store is down.")

    monkeypatch.setattr(delta_checkpoints, "_encode", down)
    write(5)
    assert wrote() == [4, 8, 12] and published(table.log).behind == 0
    check(table, folder)


def test_given_each_commit_that_changes_rows_then_one_of_the_delta_log_follows_with_statistics(tmp_path: Path) -> None:
    rng = random.Random(1)
    table = PlainRows(tmp_path, partitioned=True)
    table.write("insert", "a b", [table.row(n, "a b", rng) for n in range(0, 20, 2)])
    table.fold()
    created, inserted, folded = log(tmp_path)
    assert of(created, "protocol") == [
        {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["airflowProviderIndex"]}
    ]
    assert [of(commit, "txn")[0]["version"] for commit in (created, inserted, folded)] == [0, 1, 2]
    [added] = of(inserted, "add")
    stats = json.loads(added["stats"])
    prices = [row["price"] for row in table.rows.values()]
    assert stats["numRecords"] == 10 and (stats["minValues"]["id"], stats["maxValues"]["id"]) == (0, 18)
    assert stats["nullCount"]["price"] == prices.count(None) and "x" not in stats["minValues"]
    assert stats["minValues"]["price"] == float(min(p for p in prices if p is not None))
    times = [row["at"] for row in table.rows.values()]
    least, most = (dt.datetime.fromisoformat(stats[bound]["at"]) for bound in ("minValues", "maxValues"))
    assert least <= min(times) and max(times) <= most <= max(times) + dt.timedelta(milliseconds=1)
    assert added["partitionValues"] == {"p": "a b"} and added["dataChange"]
    assert [a["dataChange"] for a in (*of(folded, "add"), *of(folded, "remove"))] == [False, False]
    assert of(folded, "remove")[0]["path"] == added["path"] and not of(folded, "metaData")
    assert theirs(tmp_path, "id >= 10") == [row for row in table.expected(2) if row[0] >= 10]
    assert (tmp_path / added["path"]).exists(), "no file was copied"


def test_given_deltas_without_positions_then_the_last_state_stays_and_the_lag_is_told(tmp_path: Path) -> None:
    rng = random.Random(2)
    table = PlainRows(tmp_path, partitioned=False)
    table.write("insert", None, [table.row(n, None, rng) for n in range(10)])
    table.write("upsert", None, [table.row(3, None, rng)])
    table.write("delete", None, [], [4])
    state = published(table.log)
    assert (state.version, state.behind) == (1, 2) and "full compaction folds them" in state.why
    assert theirs(tmp_path) == table.expected(1)
    table.fold()
    assert published(table.log) == publishing.Published("delta", 4, 2, 0)
    assert theirs(tmp_path) == table.expected(4)


def test_given_a_crash_between_both_commits_then_the_next_one_publishes_both_in_order(
    tmp_path: Path, monkeypatch: Any
) -> None:
    rng = random.Random(3)
    table = PlainRows(tmp_path, partitioned=False)

    def down(*_: Any) -> Any:
        raise StorageUnavailable("The store is down.")

    with monkeypatch.context() as patch:
        patch.setattr(publishing, "write_once", down)
        table.write("insert", None, [table.row(n, None, rng) for n in range(4)])
    assert published(table.log).behind == 1 and theirs(tmp_path) == []
    table.write("insert", None, [table.row(9, None, rng)])
    assert [of(commit, "txn")[0]["version"] for commit in log(tmp_path)] == [0, 1, 2]
    assert theirs(tmp_path) == table.expected(2) and theirs(tmp_path, version=1) == table.expected(1)
    before = log(tmp_path)
    assert publish(table.log).log_version == 2 and log(tmp_path) == before, "each once"


def test_given_two_that_publish_at_once_then_each_version_is_published_once(tmp_path: Path, monkeypatch: Any) -> None:
    rng = random.Random(4)
    table = PlainRows(tmp_path, partitioned=False)
    with monkeypatch.context() as patch:
        patch.setattr(publishing, "publish", lambda _: None)
        for number in range(3):
            table.write("insert", None, [table.row(number, None, rng)])
    real, others = publishing.write_once, []

    def after_another(store: Any, key: str, body: bytes, sleep: Any) -> bytes:
        if not others:
            others.append(1)
            publish(table.log)
        return real(store, key, body, sleep)

    monkeypatch.setattr(publishing, "write_once", after_another)
    monkeypatch.setattr(publishing, "_ENGINE", "another release")
    publish(table.log)
    assert [of(commit, "txn")[0]["version"] for commit in log(tmp_path)] == [0, 1, 2, 3]
    assert theirs(tmp_path) == table.expected(3)


def test_given_another_writer_then_it_is_kept_out_and_a_log_that_it_wrote_is_left_as_it_is(tmp_path: Path) -> None:
    rng = random.Random(5)
    table = PlainRows(tmp_path, partitioned=False)
    table.write("insert", None, [table.row(n, None, rng) for n in range(4)])
    with pytest.raises(DeltaError, match="airflowProviderIndex"):
        write_deltalake(tmp_path, pa.table(DeltaTable(tmp_path).scan()), mode="append")
    for foreign in (
        b'{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}\n',
        b"not json",
        b"[" * 100_000,
        b'{"commitInfo": {"airflowProviderIndex": {"log": "another", "version": 1}}}\n',
        b'{"commitInfo": {"airflowProviderIndex": {"log": 3, "version": -1}}}\n',
    ):
        path = tmp_path / "_delta_log" / f"{2:020d}.json"
        path.write_bytes(foreign)
        table.write("insert", None, [table.row(max(n for _, n in table.rows) + 1, None, rng)])
        assert path.read_bytes() == foreign and len(list((tmp_path / "_delta_log").iterdir())) == 3
        with pytest.raises(PublishRefused, match="was not written for this table"):
            publish(table.log)
        assert "was not written for this table" in published(table.log).why
        assert cleaning.plan(table.log, retain_versions=1, retain_seconds=0).files == ()
        path.unlink()
    table.write("insert", None, [table.row(100, None, rng)])
    assert theirs(tmp_path) == table.expected(table.log.head.version)


def test_given_columns_that_are_renamed_widened_or_dropped_then_they_are_mapped_or_declined_by_name(
    tmp_path: Path,
) -> None:
    rng = random.Random(6)
    table = PlainRows(tmp_path / "t", partitioned=False)
    table.write("insert", None, [table.row(n, None, rng) for n in range(4)])

    def changed(column: str, **what: Any) -> None:
        table.define(fields=tuple(replace(f, **what) if f.name == column else f for f in table.table.fields))

    changed("name", name="called", stored="name")
    table.write("insert", None, [table.row(n, None, rng) for n in range(10, 14)])
    check(table, tmp_path / "t")
    [told] = of(log(tmp_path / "t")[2], "protocol")
    assert told["minReaderVersion"] == 2 and "columnMapping" in told["writerFeatures"]
    table.define(fields=tuple(f for f in table.table.fields if f.name != "x"), retired=("x",))
    check(table, tmp_path / "t")
    changed("called", name="name", stored=None)
    check(table, tmp_path / "t")
    assert published(table.log).behind == 0

    table.define(fields=(*table.table.fields, Field("n", "int")))
    table.write("insert", None, [table.row(n, None, rng) for n in range(20, 24)])
    check(table, tmp_path / "t")
    changed("n", type="bigint")
    assert "'n' is bigint, and int32 in files" in publish(table.log).why
    check(table, tmp_path / "t")
    table.fold()
    assert "'n' is bigint" in publish(table.log).why or published(table.log).behind == 0

    other = PlainRows(tmp_path / "u", partitioned=True)
    other.write("insert", "a b", [other.row(1, "a b", rng)])
    other.define(fields=tuple(replace(f, name="q", stored="x") if f.name == "x" else f for f in other.table.fields))
    assert "partitioned" in publish(other.log).why and published(other.log).version == 1
    other.write("insert", "", [other.row(2, "", rng)])
    assert "empty text" in publish(other.log).why
    for kind in ("interval day to second", "variant", "map<string,void>"):
        with pytest.raises(CannotPublish, match="'c"):
            publishing.check_definition(replace(table.table, fields=(*FIELDS, Field("c", kind))))


def test_given_a_drop_and_a_table_made_anew_then_readers_see_none_and_then_its_rows(tmp_path: Path) -> None:
    rng = random.Random(7)
    table = PlainRows(tmp_path, partitioned=False)
    table.write("insert", None, [table.row(n, None, rng) for n in range(4)])
    table.drop()
    assert theirs(tmp_path) == []
    again = PlainRows(tmp_path, partitioned=False)
    again.write("insert", None, [again.row(7, None, rng)])
    assert theirs(tmp_path) == again.expected(again.log.head.version)


def test_given_cleaning_then_files_of_published_versions_stay_for_the_retention(tmp_path: Path) -> None:
    rng = random.Random(8)
    given = {"publish": "delta", "publish.retention_hours": "1"}
    table = PlainRows(tmp_path, partitioned=False, positions=True, properties=given)
    table.write("insert", None, [table.row(n, None, rng) for n in range(8)])
    table.fold()
    for number in range(3):
        table.write("upsert", None, [table.row(number, None, rng)])
    vectors = sorted((tmp_path / "_deletion_vectors").iterdir())
    assert len(vectors) >= 3
    plan = cleaning.plan(table.log, retain_versions=1, retain_seconds=0)
    assert plan.files == () and "readers of the published log" in plan.keeps_for
    table.fold()
    now = table.log.clock() + 90_000
    table.log.clock = lambda: now
    cleaning.clean(table.log, retain_versions=1, retain_seconds=0)
    assert not list((tmp_path / "_deletion_vectors").iterdir())
    assert len(list(tmp_path.glob("data/**/*.parquet"))) == 2
    table.note()
    assert theirs(tmp_path) == table.expected(published(table.log).version)


def test_given_a_table_on_s3_then_another_engine_reads_it_there() -> None:
    rng, uri = random.Random(10), f"s3://{BUCKET}/published"
    with s3_server() as options:
        table = PlainRows(uri, partitioned=True, positions=True, options=options)
        table.write("insert", "x%y/z", [table.row(n, "x%y/z", rng) for n in range(9)])
        table.write("upsert", "x%y/z", [table.row(3, "x%y/z", rng)])
        table.write("delete", "x%y/z", [], [4])
        assert published(table.log) == publishing.Published("delta", 3, 3, 0)
        assert theirs(uri, options=options) == table.expected(3)


def rewritten(table: PlainRows) -> dict[str, int]:
    """Clean with the log, as after an erasure."""
    receipt = cleaning.clean(table.log, retain_versions=1, retain_seconds=0, published_log=True)
    table.note()
    return receipt.metrics


def contents(folder: Path) -> str:
    """Everything that the Delta log says, as text."""
    files = sorted((folder / "_delta_log").iterdir())
    return "".join(
        str(pa.parquet.read_table(file).to_pylist()) if file.suffix == ".parquet" else file.read_text()
        for file in files
    )


@pytest.mark.parametrize(("partitioned", "positions"), [(False, False), (True, True)])
def test_given_an_erased_row_then_a_rewritten_log_tells_no_bound_of_it_and_readers_find_the_others(
    tmp_path: Path, partitioned: bool, positions: bool
) -> None:
    rng, where = random.Random(12), "a b" if partitioned else None
    table = PlainRows(tmp_path, partitioned=partitioned, positions=positions)
    table.write("insert", where, [table.row(n, where, rng) for n in (1, 2, 3, 987654320)])
    table.fold()
    table.write("delete", where, [], [987654320])
    table.fold()
    assert "987654320" in contents(tmp_path) and "987654320" not in str(theirs(tmp_path))
    plan = cleaning.plan(table.log, retain_versions=1, retain_seconds=0, published_log=True)
    before = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}

    metrics = rewritten(table)

    gone = before - {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")}
    assert set(plan.files) == {name for name in gone if not name.startswith("_index")}
    assert metrics["published_log_files_deleted"] == 3 + positions and metrics["files_deleted"] >= 2
    assert "987654320" not in contents(tmp_path)
    assert len(list(tmp_path.glob("_delta_log/*.json"))) == 1, "the newest commit, by which the log is known"
    check(table, tmp_path)
    assert rewritten(table)["published_log_files_deleted"] == 0
    for number in range(20, 23):
        table.write("upsert", where, [table.row(n, where, rng) for n in (1, number)])
    table.fold()
    check(table, tmp_path)
    assert published(table.log).behind == 0
    assert rewritten(table)["published_log_files_deleted"] >= 2
    check(table, tmp_path)


def test_given_a_crash_at_any_call_of_rewriting_a_log_then_readers_find_all_rows_and_the_next_call_ends_it(
    tmp_path: Path,
) -> None:
    for calls in range(8):
        rng, folder = random.Random(calls), tmp_path / str(calls)
        table = PlainRows(folder, partitioned=False)
        for number in range(3):
            table.write("insert", None, [table.row(number, None, rng)])
        left = calls

        def counted(real: Any, *given: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise StorageUnavailable("The store is down.")
            return real(*given)

        with pytest.MonkeyPatch.context() as patch:
            put, delete = table.log.store.put, table.log.store.delete
            patch.setattr(table.log.store, "put", lambda *given, put=put: counted(put, *given))
            patch.setattr(table.log.store, "delete", lambda keys, d=delete: [counted(d, [key]) for key in keys])
            try:
                publishing.rewrite_log(table.log)
                assert calls >= 5, "two files are written and three deleted"
            except StorageUnavailable:
                assert calls < 5
        check(table, folder)
        publishing.rewrite_log(table.log)
        check(table, folder)
        assert [path.name[:20] for path in sorted((folder / "_delta_log").iterdir())] == [f"{3:020d}"] * 2 + [
            "_last_checkpoint"
        ]


def test_given_a_checkpoint_that_is_not_read_back_as_written_then_the_log_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = PlainRows(tmp_path, partitioned=False)
    table.write("insert", None, [table.row(1, None, random.Random(13))])
    encode = delta_checkpoints._encode
    monkeypatch.setattr(delta_checkpoints, "_encode", lambda rows: encode(rows[:-1]))
    with pytest.raises(StorageError, match="not read back"):
        rewritten(table)
    assert len(log(tmp_path)) == 2


def test_given_a_table_no_longer_published_then_its_log_goes_and_another_s_stays(tmp_path: Path) -> None:
    rng = random.Random(14)
    table = PlainRows(tmp_path / "t", partitioned=False)
    table.write("insert", None, [table.row(1, None, rng)])
    assert "published_log_files_deleted" not in cleaning.clean(table.log).metrics
    table.define(properties={})
    assert rewritten(table)["published_log_files_deleted"] == 2
    assert not list((tmp_path / "t" / "_delta_log").iterdir())
    theirs_alone = tmp_path / "t" / "_delta_log" / f"{0:020d}.json"
    theirs_alone.write_bytes(b'{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}')
    with pytest.raises(PublishRefused, match="was not written for this table"):
        rewritten(table)
    assert theirs_alone.exists()

    dropped = PlainRows(tmp_path / "u", partitioned=False)
    dropped.write("insert", None, [dropped.row(1, None, rng)])
    dropped.drop()
    assert publishing.rewrite_log(dropped.log) and theirs(tmp_path / "u") == []


def widened(table: PlainRows) -> None:
    """A column is widened over files from before, which are not published so."""
    table.define(fields=(*table.table.fields, Field("n", "int")))
    table.write("insert", None, [table.row(50, None, random.Random(15))])
    table.define(fields=tuple(replace(f, type="bigint") if f.name == "n" else f for f in table.table.fields))


def test_given_any_state_of_publishing_then_it_is_said_why_it_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(15)
    table = PlainRows(tmp_path / "t", partitioned=False)
    table.write("insert", None, [table.row(1, None, rng)])
    assert published(table.log).why == "" == publish(table.log).why

    widened(table)
    for told in (published(table.log), publish(table.log)):
        assert (told.version, told.behind) == (3, 1), told
        assert "'n' is bigint, and int32 in files" in told.why and "data/insert" in told.why and ".parquet" in told.why
    # What concerns no rows changes nothing of it, also where nobody looks at each commit.
    for limit in (publishing._MAX_COMMITS_SINCE, 0):
        monkeypatch.setattr(publishing, "_MAX_COMMITS_SINCE", limit)
        cleaning.clean(table.log, retain_versions=1, retain_seconds=0)
        assert "'n' is bigint" in published(table.log).why and "'n' is bigint" in publish(table.log).why
    table.fold()
    assert published(table.log).behind == 0

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "publish", lambda *_: None)
        table.write("insert", None, [table.row(7, None, rng)])
    [file] = [file for file in table.log.head.files(DATA_TREE) if file.kind == "delta"]
    assert published(table.log).why == publishing._WILL_BE
    body = table.log.store.get(file.path)
    table.log.store.put(file.path, b"x" * len(body))
    for told in (published(table.log), publish(table.log)):
        assert told.behind == 1 and f"The file {file.path} cannot be read" in told.why
    table.log.store.delete([file.path])
    assert published(table.log).behind == 1 and f"{file.path} does not exist" in published(table.log).why
    table.log.store.put(file.path, body)
    assert publish(table.log).behind == 0

    another = tmp_path / "t" / "_delta_log" / f"{100:020d}.json"
    another.write_bytes(b"{}")
    assert "nothing any more: Version 100 of the Delta log" in published(table.log).text


def test_given_commits_that_change_no_rows_then_however_many_they_are_nothing_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_MAX_COMMITS_SINCE", 1)
    table = PlainRows(tmp_path, partitioned=False)
    for number in range(3):
        table.write("insert", None, [table.row(number, None, random.Random(16))])
    for _ in range(3):
        table.commit("refresh_index", lambda _: ([], []))
    for told in (published(table.log), publish(table.log)):
        assert (told.version, told.behind, told.why) == (3, 0, "")


def test_given_a_commit_that_was_not_published_and_is_expired_then_its_rows_are_all_the_same(tmp_path: Path) -> None:
    table, rng = PlainRows(tmp_path, partitioned=False), random.Random(17)
    table.write("insert", None, [table.row(1, None, rng)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(publishing, "publish", lambda *_: None)
        table.write("insert", None, [table.row(2, None, rng)])
    told = published(table.log)
    assert told.behind == 1 and told.why == publishing._WILL_BE
    table.commit("refresh_index", lambda _: ([], []))
    cleaning.clean(table.log, retain_versions=1, retain_seconds=0)
    table.note()
    assert table.log.head.expired_below > 2
    told = publish(table.log)
    assert (told.behind, told.why) == (0, "") and theirs(tmp_path) == table.expected(table.log.head.version)


def test_given_a_table_that_cannot_be_published_then_files_of_versions_after_the_published_one_are_cleaned(
    tmp_path: Path,
) -> None:
    table, rng = PlainRows(tmp_path, partitioned=True), random.Random(18)
    table.write("insert", "a b", [table.row(1, "a b", rng)])
    table.define(fields=tuple(replace(f, name="q", stored="x") if f.name == "x" else f for f in table.table.fields))
    for number in range(2, 5):
        table.write("upsert", "a b", [table.row(number, "a b", rng)])
        table.fold()
    told = published(table.log)
    assert told.version == 1 and "A column was renamed, and the table is partitioned" in told.why
    there = set(tmp_path.rglob("data/**/*.parquet"))
    shown = {path for path in there if "insert" in str(path)}
    live = {tmp_path / file.path for file in table.log.head.files(DATA_TREE)}
    assert there > live | shown
    cleaning.clean(table.log, retain_versions=1, retain_seconds=0)
    assert set(tmp_path.rglob("data/**/*.parquet")) == live | shown
    table.note()
    assert theirs(tmp_path) == table.expected(1)


def test_given_a_day_that_no_reader_knows_as_a_partition_then_it_is_named(tmp_path: Path) -> None:
    table = PlainRows(tmp_path, partitioned=True).table
    table = replace(table, fields=tuple(replace(f, type="date") if f.name == "p" else f for f in table.fields))
    for text in ("+10000-01-01", "-0001-01-01", "0000-01-01", "99999-01-01"):
        with pytest.raises(CannotPublish, match=r"p=x.*years 1 to 9999 in its column 'p'"):
            publishing._check_days(table, {"p=x": {"p": text}})
    publishing._check_days(table, {"p=x": {"p": "0001-01-01"}, "p=y": {"p": "9999-12-31"}, "p=z": {"p": None}})


def test_given_many_rows_then_a_deletion_vector_of_any_shape_is_read_as_it_was_meant(tmp_path: Path) -> None:
    rng = np.random.default_rng(9)
    for count, share in ((70_000, 0.5), (70_000, 0.01), (200_000, 1.0), (65_537, 0.9), (5, 0.2)):
        hidden = np.flatnonzero(rng.random(count) < share).astype(np.int64)
        if not len(hidden):
            continue
        folder = tmp_path / f"{count}-{share}"
        body = delta_log.encode_vector(hidden)
        assert delta_log.vector_cardinality(body) == len(hidden)
        name = delta_log.vector_name("f.parquet", ["g.parquet"])
        folder.mkdir()
        pa.parquet.write_table(pa.table({"n": np.arange(count)}), folder / "f.parquet")
        Store(folder).put(delta_log.vector_key(name), body)
        table = PlainRows(tmp_path / f"{count}-{share}-t", partitioned=False, positions=True).table
        table = replace(table, fields=(Field("n", "bigint"),), record_key=("n",))
        add = {
            "path": "f.parquet", "partitionValues": {}, "size": (folder / "f.parquet").stat().st_size,
            "modificationTime": 0, "dataChange": True, "stats": json.dumps({"numRecords": count, "tightBounds": False}),
            "deletionVector": delta_log.vector_descriptor(name, body),
        }  # fmt: skip
        actions = [delta_log.protocol(table, False), delta_log.metadata(table, False, 1), {"add": add}]
        Store(folder).put(delta_log.commit_key(0), delta_log.lines(actions))
        read = pa.table(DeltaTable(folder).scan())["n"].to_numpy()
        assert np.array_equal(np.sort(read), np.setdiff1d(np.arange(count), hidden))
    with pytest.raises(CannotPublish, match="damaged"):
        delta_log.vector_cardinality(body[:-1])


@pytest.mark.parametrize(
    "fields",
    [
        [Field("a", "struct<b:int>"), Field("a.b", "int")],
        [Field("yhcbdjwhj", "int"), Field("cfmwjcitz", "int")],  # of one CRC-32
    ],
)
def test_given_columns_whose_paths_or_hashes_are_alike_then_each_has_an_id_of_its_own(
    fields: list[Field], tmp_path: Path
) -> None:
    table = PlainRows(tmp_path / "t", partitioned=False).table
    table = replace(table, fields=(Field("n", "bigint"), *fields), record_key=("n",))
    actions = [delta_log.protocol(table, True), delta_log.metadata(table, True, 1)]
    Store(tmp_path / "u").put(delta_log.commit_key(0), delta_log.lines(actions))

    assert [field.name for field in DeltaTable(tmp_path / "u").schema().fields] == [f.name for f in table.fields]


@pytest.mark.parametrize(
    ("formats", "words"), [(["iceberg"], "needs|catalog"), (["hudi"], "'hudi'"), ("delta", "the text")]
)
def test_given_a_format_that_is_not_written_then_it_is_declined_by_name(formats: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        publishing.check_formats(formats)
