"""The jars of the demo's last part: of the release that is tested, and not waited for where there is no repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from dags_examples.demo import connector
from dags_examples.demo.connector import PACKAGES, Connector
from tests.connectors.releases import CONNECTORS


def test_each_release_of_the_demo_is_one_that_the_connector_s_tests_run() -> None:
    tested = CONNECTORS["delta"].packages
    assert {spark: ":".join(parts) for spark, parts in PACKAGES.items()} == {spark: tested[spark] for spark in PACKAGES}


@pytest.mark.spark
@pytest.mark.by_turn(16)
@pytest.mark.parametrize("repository", ["http://127.0.0.1:1", "http://{silent}"])
def test_given_a_repository_that_does_not_answer_then_the_demo_says_so_and_goes_on(
    repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    monkeypatch.setattr(connector, "SILENT_SECONDS", 3)
    monkeypatch.setattr(connector, "_spark_release", lambda: "4.2")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = repository.format(silent=f"127.0.0.1:{silent.getsockname()[1]}")
        missing = Connector(tmp_path / "home", address)
        assert missing.settings() == {}
        left = Connector(tmp_path / "left", address)
        left.close()
        assert left._jars is not None and left._jars._process.poll() is not None, (
            "nothing goes on that nobody waits for"
        )
    assert missing._jars is not None and not missing._jars.reached
    why = "did not answer" if "silent" in repository else "could not be fetched"
    assert why in missing.missing and not (tmp_path / "home" / "jars").exists()


def test_given_a_spark_without_a_release_then_nothing_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "_spark_release", lambda: "3.5")
    missing = Connector(tmp_path / "home")
    assert missing.settings() == {} and "3.5" in missing.missing and not (tmp_path / "home").exists()
