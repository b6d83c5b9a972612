"""What the check says of stores that are right, and of stores that do less than a log needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from spark_apps.storage.errors import LakeIndexError, StorageUnavailable
from spark_apps.storage.store import Store
from spark_apps.storage.store_check import LOG_STACK, ROW_STACK, Reach, hint_for, table_of, try_store
from tests.simulation.poor_s3 import IGNORES, LATE, LOOKS, REFUSES, STALE, poor_s3
from tests.simulation.s3 import BUCKET, s3_server


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as options:
        yield options


def failed(reaches: list[Reach]) -> dict[str, str]:
    return {reach.what: reach.hint for reach in reaches if not reach.ok}


@pytest.mark.parametrize("where", ["local disk", "memory", "S3"])
def test_given_a_store_that_is_right_then_all_is_ok_and_nothing_is_left(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    options = request.getfixturevalue("s3") if where == "S3" else {}
    uri = {"local disk": str(tmp_path / "t"), "memory": "memory:///t", "S3": f"s3://{BUCKET}/right"}[where]
    store = Store(uri, options)

    reaches = try_store(store)

    assert failed(reaches) == {} and len(reaches) == 14
    assert store.list("") == []
    assert table_of(reaches).splitlines()[-1].startswith("all 14 checks ok, ")


@pytest.mark.by_turn(4)
@pytest.mark.parametrize(
    ("fault", "what", "hint"),
    [
        (REFUSES, ["create a file that is not there"], "conditional writes"),
        (
            IGNORES,
            ["be refused to create it again", "have one winner of 8 creations at once"],
            "conditional writes",
        ),
        # Of one creation after the other it tells the truth.
        (LOOKS, ["have one winner of 8 creations at once"], "conditional writes"),
        (STALE, ["read it anew once it is replaced"], "cache"),
    ],
)
def test_given_a_store_that_does_less_then_the_check_names_that_alone_and_says_what_to_do(
    s3: dict[str, str], fault: str, what: list[str], hint: str
) -> None:
    with poor_s3(s3, fault) as options:
        reaches = try_store(Store(f"s3://{BUCKET}/{fault}", options))

    assert list(failed(reaches)) == what
    assert all(hint in message for message in failed(reaches).values())
    assert "FAILED" in table_of(reaches).splitlines()[-1]


def test_given_listings_that_come_late_then_the_check_says_so(s3: dict[str, str]) -> None:
    with poor_s3(s3, LATE) as options:
        failures = failed(try_store(Store(f"s3://{BUCKET}/late", options)))

    assert "listings come late" in failures["see every file listed at once, in order"]
    assert "create a file that is not there" not in failures


def test_given_a_bucket_that_is_not_there_then_the_check_stops_and_says_so(s3: dict[str, str]) -> None:
    reaches = try_store(Store("s3://no-such-bucket/t", s3))

    assert "Create the bucket" in next(iter(failed(reaches).values()))
    assert not reaches[-1].ok and len(reaches) <= 3


def test_given_no_server_then_the_hint_is_about_the_endpoint() -> None:
    options = {"endpoint": "http://127.0.0.1:9", "region": "r", "access_key_id": "a", "secret_access_key": "b"}
    retries = {"allow_http": "true", "connect_timeout": "1s", "timeout": "1s"}

    (only,) = try_store(Store("s3://lake/t", options | retries))

    assert "endpoint" in only.hint


def test_given_a_folder_that_cannot_be_written_then_the_hint_is_about_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    reaches = try_store(Store(tmp_path / "file"))

    assert reaches[-1].detail.endswith("is a file.") and "Give the folder" in reaches[-1].hint


@pytest.mark.parametrize(
    ("stack", "message", "words"),
    [
        (LOG_STACK, "Generic S3 error: 403 Forbidden: <Code>InvalidAccessKeyId</Code>", "storage options"),
        (ROW_STACK, "java.nio.file.AccessDeniedException: s3a://b: No AWS Credentials provided", "spark.hadoop.fs"),
        (ROW_STACK, "UnknownHostException: h", "endpoint"),
        (LOG_STACK, "301 PermanentRedirect", "region"),
    ],
)
def test_given_an_answer_of_a_store_then_the_hint_is_about_its_cause(stack: str, message: str, words: str) -> None:
    assert words in hint_for(stack, StorageUnavailable(message))


def test_given_an_unknown_answer_then_the_error_s_own_hint_is_told() -> None:
    assert hint_for(LOG_STACK, LakeIndexError("odd", hint="Look.")) == "Look."
