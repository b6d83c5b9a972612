"""A store whose calls are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from spark_apps.storage.store import Store


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, int]]:
    """Each call to a store: what for, of which key, and the bytes or entries that it answered with."""
    calls: list[tuple[str, str, int]] = []
    call: Callable[..., Any] = Store._call

    def counted(self: Store, verb: str, key: str, what: Any) -> Any:
        answer = call(self, verb, key, what)
        calls.append((verb, key, len(answer) if isinstance(answer, bytes | list) else 1))
        return answer

    monkeypatch.setattr(Store, "_call", counted)
    return calls
