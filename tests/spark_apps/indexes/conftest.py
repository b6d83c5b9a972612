"""Tables of these tests are tiny: what a footer says of their columns would leave every index out as too dear."""

from __future__ import annotations

import pytest

from spark_apps.query import planning


@pytest.fixture(autouse=True)
def bytes_counted_by_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan as where no footer tells the bytes of columns: a wide text beside them makes an index the less to read."""
    monkeypatch.setattr(planning, "stored_share", lambda *_: None)
