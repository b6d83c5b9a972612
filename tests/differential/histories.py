"""One history by its seed: two of three of keyed tables, the third of a source that another writer owns. Seeds from
:data:`ODD` on are of tables and sources that are easily misread."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.differential.keyed import Keyed
from tests.differential.odd import OddKeyed, OddRegistered, OddSource
from tests.differential.registered import Registered
from tests.differential.session import small
from tests.differential.tally import Tally

ODD = 100_000
"""The first seed of the odd ones (:mod:`tests.differential.odd`); those below stay what they were."""


def history(spark: Any, folder: Path, seed: int, tally: Tally, *, long: bool) -> None:
    """Runs a history of eight steps or three.

    :raises AssertionError: telling the seed, the table, the steps and what differs.
    """
    kind: Any = Registered if seed % 3 == 2 else Keyed
    if seed >= ODD:
        kind = {2: OddKeyed, 3: OddRegistered, 5: OddKeyed}.get(seed % 6, OddSource)
    with small(spark, compiled=long and seed % 20 == 4, row_groups=seed % 2 and 5):
        # Many short ones find more in an hour than few long ones; what takes many steps is found by these alone.
        steps, questions = (8, 3) if long and seed % 11 == 0 else (3, 2)
        # A folder in a folder: the name of a table in plain queries.
        path, plain = folder / "lake" / "table", 0.7 if long else 0.3
        kind(spark, path, seed, tally, steps=steps, questions=questions, plain=plain).run()
