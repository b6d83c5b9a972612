"""Where the code of a kind may come from, and where never."""

from __future__ import annotations

import pytest

from spark_apps.indexes import registry
from spark_apps.indexes.keyed.secondary import SecondaryHandler
from spark_apps.storage.errors import InvalidInput

HERE = "tests.spark_apps.indexes.test_registry.Mine"


class Mine(SecondaryHandler):
    kind = HERE


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry._KINDS, "_loaded", {})
    monkeypatch.setattr(registry._KINDS, "_allowed", set())
    monkeypatch.delenv(registry.ALLOWED, raising=False)


def test_given_a_class_path_that_nobody_allowed_then_it_is_not_loaded() -> None:
    with pytest.raises(InvalidInput, match=registry.ALLOWED):
        registry.find(HERE)
    assert registry.available(HERE) is None


def test_given_a_class_path_that_this_process_allows_then_it_is_the_handler() -> None:
    registry.allow(HERE)
    assert type(registry.find(HERE)).__name__ == "Mine"


def test_given_a_class_path_in_the_environment_then_it_is_the_handler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(registry.ALLOWED, f"other.Class, {HERE}")
    assert registry.find(HERE).kind == HERE


@pytest.mark.parametrize("path", ["json.JSONDecoder", "no.such.module.Class"])
def test_given_an_allowed_path_that_is_no_handler_then_the_error_names_it(path: str) -> None:
    registry.allow(path)
    with pytest.raises(InvalidInput, match=path.rpartition(".")[0]):
        registry.find(path)


def test_given_a_name_that_is_taken_then_no_other_handler_gets_it() -> None:
    class Impostor(SecondaryHandler):
        kind = "record"

    with pytest.raises(InvalidInput, match="already"):
        registry.register(Impostor())
