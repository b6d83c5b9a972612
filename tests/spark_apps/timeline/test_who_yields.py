"""The table of docs/operating.md, cell by cell: what becomes of a commit that comes second in the same file group."""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_apps.timeline.commit import Intent, conflict
from spark_apps.timeline.model import Commit, Scope, Write, group_scope, partition_scope

PAGE = Path(__file__).parents[3] / "docs" / "operating.md"
GROUP, OTHER, PARTITION = group_scope("p=a", "0"), group_scope("p=a", "1"), partition_scope("p=a")
# What each reads and writes, as the actions declare it.
WORKS: dict[str, tuple[tuple[Scope, ...], tuple[Write, ...]]] = {
    "upsert": ((), (Write(GROUP, "append"),)),
    "compaction": ((), (Write(GROUP, "fold"),)),
    "overwrite": ((), (Write(PARTITION, "replace"),)),
}


def refused(second: str, first: str, group: Scope = GROUP) -> bool:
    reads, writes = WORKS[second]
    landed = Commit(1, 1, "", first, "first", 0, 0, writes=tuple(Write(group, w.mode) for w in WORKS[first][1]))
    return conflict(Intent(second, "second", 0, 0, (), reads, writes), landed) is not None


def cells() -> dict[tuple[str, str], str]:
    """(second, first) -> what the page says."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith(("| second", "| **"))
    ]
    head = rows[0][1:4]
    names = {name: next(work for work in WORKS if name.replace("*", "").startswith(work)) for name in head}
    seconds = {row[0]: next(work for work in WORKS if row[0].strip("*").startswith(work)) for row in rows[1:4]}
    return {
        (seconds[row[0]], names[first]): cell for row in rows[1:4] for first, cell in zip(head, row[1:4], strict=True)
    }


@pytest.mark.parametrize(("second", "first"), [(second, first) for second in WORKS for first in WORKS])
def test_given_two_works_in_one_group_when_the_second_commits_then_it_is_as_the_page_says(
    second: str, first: str
) -> None:
    assert refused(second, first) == (not cells()[second, first].startswith("commits"))


def test_given_an_upsert_that_looked_at_old_rows_when_another_came_first_then_only_its_rows_stand_in_the_way() -> None:
    looking = Intent("upsert", "second", 0, 0, (), (GROUP,), (Write(GROUP, "append"),))
    for mode, stands_in_the_way in (("append", True), ("fold", False), ("replace", True)):
        landed = Commit(1, 1, "", "x", "first", 0, 0, writes=(Write(GROUP, mode),))  # type: ignore[arg-type]
        assert (conflict(looking, landed) is not None) == stands_in_the_way


@pytest.mark.parametrize("second", [work for work in WORKS if work != "overwrite"])
def test_given_another_group_when_the_second_commits_then_nobody_is_in_its_way(second: str) -> None:
    assert not any(refused(second, first, OTHER) for first in WORKS)
