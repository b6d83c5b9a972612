"""The policies of docs/rights.md, given to users of an S3 server that refuses whatever a policy does not allow."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_apps import open_table
from spark_apps.storage.errors import LakeIndexError, StorageUnavailable
from spark_apps.storage.store import Store
from spark_apps.timeline.cleaning import clean
from spark_apps.timeline.log import Timeline
from spark_apps.timeline.windows import open_window
from tests.compatibility.lake import unpack
from tests.documents import DOCS, blocks
from tests.simulation.s3 import BUCKET, s3_server

pytestmark = [pytest.mark.servers, pytest.mark.by_turn(8, whole=True)]

TABLE = f"s3://{BUCKET}/trips"
Login = Callable[[dict[str, Any]], dict[str, str]]
READER, WRITER, BUILDER = (json.loads(block.text) for block in blocks(DOCS / "rights.md") if block.language == "json")


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Login]:
    """Make a user with a policy; returns the options by which the store knows it. A table is at ``TABLE``."""
    import boto3

    lake = unpack(tmp_path_factory.mktemp("lake"))
    with s3_server() as options:
        root, endpoint = Store(f"s3://{BUCKET}", options), options["endpoint"]
        for path in (lake / "groups").rglob("*"):
            if path.is_file() and not path.name.endswith(".crc"):
                root.put(f"trips/{path.relative_to(lake / 'groups').as_posix()}", path.read_bytes())
        root.put("raw/rides/a.parquet", b"rows")
        admin = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
        iam, users = boto3.client("iam", endpoint_url=endpoint, **admin), iter(range(99))
        _enforce(endpoint, "inf")

        def login(policy: dict[str, Any]) -> dict[str, str]:
            _enforce(endpoint, "inf")
            name = f"user-{next(users)}"
            iam.create_user(UserName=name)
            iam.put_user_policy(UserName=name, PolicyName="policy", PolicyDocument=json.dumps(_as_moto(policy)))
            key = iam.create_access_key(UserName=name)["AccessKey"]
            _enforce(endpoint, "0")
            return {**options, "access_key_id": key["AccessKeyId"], "secret_access_key": key["SecretAccessKey"]}

        yield login


def _enforce(endpoint: str, after: str) -> None:
    """Have the server check rights after so many calls."""
    url, header = f"{endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
    urllib.request.urlopen(urllib.request.Request(url, data=after.encode(), headers=header, method="POST")).close()


def _as_moto(policy: dict[str, Any]) -> dict[str, Any]:
    """Return a policy as the server reads it: for it, deleting several objects at once is a right on the bucket."""
    deletes = {"Effect": "Allow", "Action": ["s3:DeleteObject"], "Resource": [f"arn:aws:s3:::{BUCKET}"]}
    may = any("s3:DeleteObject" in statement["Action"] for statement in policy["Statement"])
    return {**policy, "Statement": [*policy["Statement"], *([deletes] if may else [])]}


def test_a_reader_reads_rows_and_can_change_nothing(login: Login) -> None:
    reader = login(READER)

    assert open_table(TABLE, options=reader).read().num_rows == 12
    for change in (lambda store: store.put("_index/x", b""), lambda store: store.delete(["_index/README.txt"])):
        with pytest.raises(StorageUnavailable, match=r"privileges|Access Denied"):
            change(Store(TABLE, reader))
    with pytest.raises(LakeIndexError):
        open_window(Timeline(Store(TABLE, reader)), "me")


def test_without_the_right_to_list_nothing_is_read(login: Login) -> None:
    options = login({**READER, "Statement": READER["Statement"][1:]})

    with pytest.raises(StorageUnavailable, match="failed to list"):
        open_table(TABLE, options=options)


def test_a_writer_opens_a_window_and_cleans_and_reaches_no_other_table(login: Login) -> None:
    writer = login(WRITER)
    before = open_table(TABLE, options=writer).version

    open_window(Timeline(Store(TABLE, writer)), "me", partitions=["none=such"], seconds=1)
    clean(Timeline(Store(TABLE, writer)), retain_versions=1, retain_seconds=0)

    assert open_table(TABLE, options=writer).version > before
    assert open_table(TABLE, options=writer).read().num_rows == 12
    with pytest.raises(StorageUnavailable):
        Store(f"s3://{BUCKET}/raw/rides", writer).put("b.parquet", b"")


def test_a_builder_reads_a_folder_of_others_and_writes_only_beside_it(login: Login) -> None:
    builder = login(BUILDER)
    source = Store(f"s3://{BUCKET}/raw/rides", builder)

    assert source.get("a.parquet") == b"rows" and len(source.list("")) == 1
    Store(f"s3://{BUCKET}/raw/_indexes/rides", builder).create("_index/timeline/0.json", b"{}")
    for change in (lambda: source.put("b.parquet", b""), lambda: source.create("c.parquet", b"")):
        with pytest.raises(StorageUnavailable, match="privileges"):
            change()
