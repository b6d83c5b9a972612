"""The store's few calls on local disk, in memory and on S3, with the errors of our own tree."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_apps.storage.errors import InvalidInput, InvalidName, ObjectExists, ObjectNotFound, StorageUnavailable
from spark_apps.storage.store import OutcomeUnknown, Store, open_by_address, write_once
from tests.simulation.s3 import BUCKET, s3_server
from tests.simulation.store import ERROR_AFTER, ERROR_BEFORE, EXISTS, LATE, OK, Objects, SimulatedStore

pytestmark = pytest.mark.by_turn(4)


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as options:
        yield options


@pytest.fixture(params=["local disk", "memory", "S3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "local disk":
        return Store(tmp_path / "a folder = with % signs")
    if request.param == "memory":
        return Store("memory:///table")
    return Store(f"s3://{BUCKET}/db/{tmp_path.name}", request.getfixturevalue("s3"))


def test_what_was_written_is_read(store: Store) -> None:
    store.put("a/b", b"one")
    store.put("a/b", b"another")
    assert store.get("a/b") == b"another"
    assert store.get_range("a/b", 2, 5) == b"oth"
    info = store.head("a/b")
    assert info is not None
    assert (info.key, info.size) == ("a/b", 7)


@pytest.mark.by_turn(1)
def test_of_two_creations_the_first_wins(store: Store) -> None:
    store.create("a/b", b"one")
    with pytest.raises(ObjectExists, match="a/b exists already"):
        store.create("a/b", b"two")
    assert store.get("a/b") == b"one"


def test_what_is_not_there_is_told(store: Store) -> None:
    assert store.head("nothing") is None
    assert store.list("nothing") == []
    store.delete(["nothing"])
    with pytest.raises(ObjectNotFound, match="nothing does not exist"):
        store.get("nothing")


def test_a_listing_is_sorted_complete_and_of_the_folder_only(store: Store) -> None:
    keys = [f"a/{number:04d}.json" for number in range(1100)]
    for key in reversed(keys[:1100:100]):
        store.put(key, b"")
    store.put("a2/x", b"")
    store.put("a/sub/x", b"")
    assert [info.key for info in store.list("a")] == [*keys[::100], "a/sub/x"]
    assert [info.key for info in store.list("a", after=keys[500])] == [*keys[600::100], "a/sub/x"]
    store.delete([keys[0]])
    assert store.list("a")[0].key == keys[100]


def test_a_listing_goes_on_behind_the_first_page(s3: dict[str, str]) -> None:
    store = Store(f"s3://{BUCKET}/pages", s3)
    for number in range(1005):
        store.put(f"a/{number:04d}", b"")
    assert len(store.list("a")) == 1005


def test_a_store_can_be_handed_to_another_process(store: Store) -> None:
    if store.uri.startswith("memory:"):
        return
    store.put("a", b"one")
    assert pickle.loads(pickle.dumps(store)).get("a") == b"one"


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/lake/t", "file:///lake/t/data/dt=1%20a"),
        ("file:///lake/a%20b", "file:///lake/a b/data/dt=1%20a"),
        ("s3://bucket/t/", "s3a://bucket/t/data/dt=1%20a"),
        ("s3a://bucket/t", "s3a://bucket/t/data/dt=1%20a"),
        ("gs://bucket/t", "gs://bucket/t/data/dt=1%20a"),
    ],
)
def test_spark_finds_the_same_object(uri: str, path: str) -> None:
    assert Store(uri).spark_path("data/dt=1%20a") == path


@pytest.mark.parametrize(
    "uri", ["", "a\nb", "ftp://host/x", "hdfs://host/x", "s3://bucket/../other", "s3://", "gs:///x"]
)
def test_a_location_that_cannot_be_is_refused(uri: str) -> None:
    with pytest.raises(InvalidName, match="Nothing was changed"):
        Store(uri)


def test_an_option_that_the_store_does_not_know_is_named() -> None:
    with pytest.raises(InvalidInput, match="'nonsense'"):
        Store("s3://bucket/t", {"nonsense": "1", "region": "us-east-1"}).get("a")


def test_secrets_do_not_appear_when_a_store_is_shown() -> None:
    assert "hush" not in repr(Store("s3://bucket/t", {"secret_access_key": "hush"}))


def test_a_store_that_does_not_answer_is_told_from_a_missing_object(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageUnavailable, match="failed to get"):
        Store(tmp_path).get("file/below/a/file")


# --- writing once -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [OK, ERROR_BEFORE, ERROR_AFTER, EXISTS, LATE])
def test_an_object_written_once_is_ones_own_whatever_the_store_answers(fault: str) -> None:
    answers = [fault]
    objects = Objects()
    store = SimulatedStore(objects, lambda _verb, _key: answers.pop() if answers else OK)
    assert write_once(store, "k", b"mine", lambda _: objects.land()) == b"mine"
    assert objects.bodies["k"][0] == b"mine"


@pytest.mark.parametrize("fault", [OK, ERROR_BEFORE, ERROR_AFTER, EXISTS, LATE])
def test_an_object_that_somebody_else_wrote_first_is_told(fault: str) -> None:
    answers = [fault]
    objects = Objects()
    SimulatedStore(objects).create("k", b"theirs")
    store = SimulatedStore(objects, lambda _verb, _key: answers.pop() if answers else OK)
    assert write_once(store, "k", b"mine", lambda _: objects.land()) == b"theirs"


@pytest.mark.parametrize("verb", ["create", "get"])
def test_a_store_that_keeps_failing_leaves_the_outcome_unknown(verb: str) -> None:
    store = SimulatedStore(Objects(), lambda asked, _key: ERROR_BEFORE if asked in (verb, "create") else OK)
    with pytest.raises(OutcomeUnknown):
        write_once(store, "k", b"mine", lambda _: None)


@pytest.mark.by_turn(1)
@pytest.mark.parametrize("name", ["a#b", "a?b", "a%20b", "a b", "dt=1", "é+x"])
def test_a_key_is_taken_as_it_stands_by_both_stacks(name: str) -> None:
    store = Store(f"s3a://bucket/x/{name}/", {"region": "x"})

    assert store.uri == f"s3://bucket/x/{name}"
    assert store.spark_path("k") == f"s3a://bucket/x/{name}/k"
    assert store._open().prefix == f"x/{name}"


@pytest.mark.parametrize("uri", ["file:{}/a#b", "file://{}/a#b", "file://localhost{}/a%23b"])
def test_a_local_address_keeps_what_is_a_fragment_elsewhere(uri: str, tmp_path: Path) -> None:
    Store(uri.format(tmp_path)).put("k", b"1")

    assert (tmp_path / "a#b" / "k").read_bytes() == b"1"


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"rows")
    with pytest.raises(InvalidInput, match=r"rows\.parquet is a file\. .*Give the folder that it is in"):
        Store(tmp_path / "rows.parquet").list("metadata")


def test_given_a_local_file_when_read_by_ranges_then_it_is_opened_once_and_closed_with_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = os.urandom(1 << 20)
    path = tmp_path / "a #1%20.parquet"
    path.write_bytes(content)
    opened: list[int] = []
    open_file = os.open
    monkeypatch.setattr(os, "open", lambda *given: (opened.append(open_file(*given)), opened[-1])[1])

    ranged = open_by_address(f"file://{path}", len(content))
    assert not opened  # until the first range is asked for
    assert [ranged.range(*ends) for ends in ((9, 700_000), (0, 4), (5, 5))] == [content[9:700_000], content[:4], b""]
    ranged.seek(-8, os.SEEK_END)
    assert ranged.read() == content[-8:] and len(opened) == 1
    with pytest.raises(OSError, match="ends before"):
        open_by_address(str(path), len(content) + 1).range(0, len(content) + 1)

    del ranged
    for descriptor in opened:
        with pytest.raises(OSError, match="Bad file"):
            os.fstat(descriptor)
