"""The clusters that the tests here share: each is started once, when the first test asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spark.clusters import ConnectServer, Standalone, connect_server, standalone_cluster

HERE = Path(__file__).parent
TOKEN = "planted-c07a9e"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    """A standalone cluster of one worker."""
    with standalone_cluster(tmp_path_factory.mktemp("standalone")) as running:
        yield running


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConnectServer]:
    """A Spark Connect server that asks for a token."""
    with connect_server(tmp_path_factory.mktemp("connect"), token=TOKEN) as running:
        yield running
