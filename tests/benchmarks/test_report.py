"""The page of the benchmarks: verdicts on the targets, and everything in the place where it was said."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import kept
from benchmarks.measure import Answer, Timing, interleaved
from benchmarks.report import Report
from benchmarks.targets import TARGETS, Verdict


def report() -> Report:
    return Report(Console(file=io.StringIO(), width=200))


@pytest.mark.parametrize(
    ("target", "what", "measured", "met"),
    [
        (1, "record", 1.1, True),
        (1, "record", 1.11, False),
        (3, "many", 60, True),
        (4, "1 key", 0.021, False),
        (7, "outside", 0, True),
        (9, "filter: sorted", 1.0, False),  # ahead means ahead
        (9, "filter: sorted", 0.99, True),
        (5, "delta", 7.0, None),  # only stated
    ],
)
def test_a_figure_is_held_against_the_limit_of_its_target(
    target: int, what: str, measured: float, met: bool | None
) -> None:
    assert Verdict(target, what, measured).met is met


def test_a_figure_close_to_its_limit_is_shown_in_as_many_digits_as_tell_it_apart() -> None:
    shown = [Verdict(1, "record", measured).cells()[2] for measured in (1.0951, 1.102, 1.10004)]
    assert shown == ["1.1", "1.102", "1.10004"]


def test_a_key_that_another_begins_with_is_told_from_it() -> None:
    assert TARGETS[12].figure("10 %").limit == 1.9
    assert TARGETS[12].figure("10 % in a tenth: with positions").limit == 1.15


def test_a_figure_that_a_target_does_not_have_is_refused_with_those_that_it_has() -> None:
    with pytest.raises(ValueError, match="'share', 'growth'"):
        report().verdict(2, "shares", 0.02)


def test_the_page_opens_with_all_targets_those_not_measured_too(tmp_path: Path) -> None:
    made = report()
    made.verdict(1, "record", 1.2)
    made.write(tmp_path / "page.md")
    lines = (tmp_path / "page.md").read_text().splitlines()
    first = [line for line in lines if line.startswith("| ")][2:]
    assert {int(line.split("|")[1]) for line in first} == set(TARGETS)
    assert any("record" in line and "1.2" in line and "not met" in line for line in first)
    assert sum("not measured" in line for line in first) == len(TARGETS) - 1


def test_what_was_said_stands_where_it_was_said(tmp_path: Path) -> None:
    made = report()
    made.chapter("A question", "why it is asked")
    made.table("First", ("case", "figure"), [("a|b", "1")])
    made.say("of the first")
    made.curves("Second", {"ours": [(10, 1.0), (100, 9.0)]}, "rows", "seconds")
    made.write(tmp_path / "page.md")
    page = (tmp_path / "page.md").read_text()
    order = ["## A question", "why it is asked", "### First", "a\\|b", "of the first", "### Second", "plots/second.svg"]
    places = [page.index(text) for text in order]
    assert places == sorted(places)
    assert (tmp_path / "plots" / "second.svg").read_text().startswith("<?xml")


def test_a_page_gathered_from_questions_measured_one_by_one_is_that_of_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "_FOLDER", tmp_path)
    measured = report()
    measured.chapter("A question")
    measured.timings(
        "Cases", [Timing("ours", (1.0, 2.0), "a note", 7, {"rows": 3}), Timing("theirs", (2.0,))], "theirs"
    )
    measured.curves("Growing", {"ours": [(10, 1.0), (100, 9.0)]}, "rows", "seconds")
    verdict = measured.verdict(1, "record", 1.05)
    kept.keep("one", "3 rows", measured, [verdict])
    gathered = report()
    kept.gather(["none", "one"], gathered)
    assert gathered.verdicts == [verdict]
    assert gathered.chapters[0].parts[1:] == measured.chapters[0].parts
    assert "3 rows" in str(gathered.chapters[0].parts[0])


def test_cases_run_in_turn_and_are_counted_with_the_seconds_that_they_tell() -> None:
    turns: list[str] = []
    answers = iter([9.0, 1.0, 3.0, 2.0])

    def far() -> Answer:
        turns.append("far")
        return Answer({"rows": 7}, next(answers), peak=len(turns))

    timing, near = interleaved({"far": far, "near": lambda: turns.append("near")}, repeats=3, warm=1)
    assert turns == ["far", "near"] * 4
    assert timing.seconds == (1.0, 3.0, 2.0)  # the first was to warm up
    assert (timing.median, timing.counts, timing.peak) == (2.0, {"rows": 7}, 7)
    assert len(near.seconds) == 3
    assert max(near.seconds) < 1


def test_the_95th_percentile_is_the_time_within_which_19_of_20_runs_ended() -> None:
    timing = Timing("case", tuple(float(n) for n in range(20, 0, -1)))
    assert timing.percentile(0.95) == 19.0
    assert timing.percentile(1.0) == 20.0
