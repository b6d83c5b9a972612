"""The lake that version 0.1.0 wrote, unpacked into a folder of a test's own."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Any

from tests.compatibility.recording import HERE

EXPECTED: dict[str, Any] = json.loads((HERE / "lake_of_0_1_0.json").read_text(encoding="utf-8"))


def unpack(folder: Path) -> Path:
    """Unpack the lake, and return its folder.

    The logs of sources name the folder that they were registered in, so this one's name takes its place in them, as it
    stands. All other files are left as they were written.
    """
    with tarfile.open(HERE / "lake_of_0_1_0.tar.gz") as archive:
        # Python 3.11.2, which some systems bring, has no filters yet.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    for log in folder.glob("raw/_indexes/*/_index/timeline/*.json"):
        text = log.read_text(encoding="utf-8").replace(EXPECTED["written_in"], str(folder))
        log.write_text(text, encoding="utf-8")
    return folder
