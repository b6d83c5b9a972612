"""The lake of before, of all kinds of tables, and the command line in this process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spark_apps.__main__ import main
from tests.compatibility.lake import unpack


@pytest.fixture(scope="session")
def whole_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables that are only read."""
    return unpack(tmp_path_factory.mktemp("lake"))


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Ask = Callable[..., Answer]


@pytest.fixture
def ask(whole_lake: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Iterator[Ask]:
    """Runs a command over the lake."""
    for name in ("COLUMNS", "NO_COLOR", "LAKEINDEX_CONNECTION", "LAKEINDEX_STORAGE_OPTIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LAKEINDEX_WAREHOUSE", str(whole_lake))

    def run(*arguments: str) -> Answer:
        capsysbinary.readouterr()
        code = main(arguments)
        told = capsysbinary.readouterr()
        return Answer(code, told.out.decode(), told.err.decode())

    yield run
