"""The clusters that the tests here share: each is started once, when the first test asks for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.folders import kept_for_folder
from tests.spark.clusters import ConnectServer, Standalone, connect_server, standalone_cluster

HERE = Path(__file__).parent
TOKEN = "planted-c07a9e"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Standalone:
    """A standalone cluster of one worker."""
    return kept_for_folder(request, "cluster", lambda _: standalone_cluster(tmp_path_factory.mktemp("standalone")))


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ConnectServer:
    """A Spark Connect server that asks for a token."""
    return kept_for_folder(request, "server", lambda _: connect_server(tmp_path_factory.mktemp("connect"), token=TOKEN))
