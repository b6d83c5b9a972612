"""Names that stand in stores stay as they are, whatever the code calls them; without Spark.

``documents.json`` tells what each document looks like on disk: fields, types, the words that a field may hold.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.compatibility.recording import HERE, differences, shapes
from tests.compatibility.write_names import NOT_ON_DISK

WRITTEN: dict[str, Any] = json.loads((HERE / "documents.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", WRITTEN)
def test_a_document_has_the_names_on_disk_that_it_had(name: str) -> None:
    nearest = min((differences(WRITTEN[name], look) for look, _ in shapes().values()), key=len)
    assert nearest == [], (
        f"No document looks like {name} of before. Give a field that has another name in the code its "
    )
    "name on disk: msgspec.field(name=…), or rename= of the class."


def test_every_document_of_this_version_is_written_down() -> None:
    """A new kind of document, or a new field, is added to ``documents.json`` knowingly."""
    known = [json.dumps(look, sort_keys=True) for look in WRITTEN.values()]
    left_out = {json.dumps(shapes()[name][0], sort_keys=True) for name in NOT_ON_DISK if name in shapes()}
    new = [
        name for name, (look, _) in shapes().items()
        if (text := json.dumps(look, sort_keys=True)) not in known and text not in left_out
    ]  # fmt: skip
    assert new == []
