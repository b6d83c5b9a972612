"""Results as tables: aligned text of any width, HTML, and lists and mappings that print like them."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping, Sequence

import pytest

from spark_apps.storage.printing import (
    Figure,
    Grid,
    Printed,
    ResultList,
    ResultMap,
    View,
    as_html,
    as_text,
    exact,
    plain,
    size,
    span,
)

PARTITIONS = [("dt=2024-11-11", 8, 1234567, size(12_300_000)), ("dt=2024-11-12", None, 7, size(900))]
VIEW = View(
    "rescale: 2 partitions",
    [("rule", "regex"), ("takes back", None), ("note", "")],
    [Grid(("partition", "buckets", "rows", "size"), PARTITIONS)],
    ["warning: a file is missing"],
)


def view_of_numbers(numbers: Sequence[int]) -> View:
    return View(f"{len(numbers)} numbers", grids=[Grid(("number",), [(n,) for n in numbers], newest_last=True)])


def view_of_names(names: Mapping[str, int]) -> View:
    return View(f"{len(names)} names", grids=[Grid(("name", "n"), list(names.items()))])


def test_given_a_view_then_columns_are_aligned_figures_to_the_right_and_empty_facts_left_out() -> None:
    assert as_text(VIEW) == (
        "rescale: 2 partitions\n"
        "  rule  regex\n"
        "\n"
        "partition      buckets       rows     size\n"
        "─────────────  ───────  ─────────  ───────\n"
        "dt=2024-11-11        8  1,234,567  12.3 MB\n"
        "dt=2024-11-12                   7    900 B\n"
        "warning: a file is missing"
    )


def test_given_forty_columns_then_each_row_is_a_record_and_no_line_is_longer() -> None:
    text = as_text(VIEW, width=40)
    assert text.split("\n\n", 1)[1] == (
        "partition  dt=2024-11-11\n"
        "buckets    8\n"
        "rows       1,234,567\n"
        "size       12.3 MB\n"
        "\n"
        "partition  dt=2024-11-12\n"
        "buckets\n"
        "rows       7\n"
        "size       900 B\n"
        "warning: a file is missing"
    )
    assert max(map(len, text.split("\n"))) <= 40


def test_given_a_narrow_line_then_paths_lose_their_middle_and_sentences_go_on_below() -> None:
    rows = [("s3://lake/warehouse/raw/trips_of_2024", "it covers none of the file groups")]
    assert as_text(View("", grids=[Grid(("scan", "why"), rows)]), width=42) == (
        "scan                  why\n"
        "────────────────────  ────────────────────\n"
        "s3://lake/wa…of_2024  it covers none of\n"
        "                      the file groups"
    )


def test_given_more_rows_than_are_shown_then_their_number_is_told() -> None:
    grid = Grid(("n",), [(n,) for n in range(30)])
    assert as_text(View("x", grids=[grid]), most=2) == "x\n\n n\n──\n 0\n 1\n… and 28 more".replace(
        " n\n──\n 0\n 1", "n\n─\n0\n1"
    )
    newest = Grid(("n",), [(n,) for n in range(30)], newest_last=True)
    assert as_text(View("x", grids=[newest]), most=1) == "x\n\n n\n──\n29\n… and 29 before"


def test_given_the_width_of_a_terminal_then_it_is_kept_and_without_one_nothing_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    view = View("y", [("where", "a word " * 40)])
    monkeypatch.setenv("COLUMNS", "50")
    assert max(map(len, as_text(view).split("\n"))) <= 50
    monkeypatch.setattr("shutil.get_terminal_size", lambda fallback: os.terminal_size(fallback))
    assert len(as_text(view).split("\n")) == 2


def test_given_names_that_a_terminal_or_a_browser_would_obey_then_they_are_shown_as_text() -> None:
    evil = "\x1b[2J<script>alert('x')</script>\u202egnp\n\ud800"
    view = View(evil, [(evil, evil)], [Grid((evil,), [(evil,)], evil)], [evil])
    text = as_text(view)
    assert text.replace("\n", "").isprintable() and "\\x1b[2J<script>" in text and "\\u202e" in text
    page = as_html(view)
    assert "<script" not in page and "&lt;script&gt;alert(&#x27;x&#x27;)" in page
    assert page.isprintable()
    page.encode()


def test_given_a_statement_then_it_stands_whole_in_one_line_whatever_the_width_and_nothing_in_it_is_obeyed() -> None:
    names = ", ".join(f"`of two  {number}`" for number in range(500))
    view = View(
        "advice", statements=(f"CREATE INDEX `i` ON `/t` USING covering (`a`) INCLUDE ({names});", "`\x1b[1m<b>`;")
    )
    *_, first, second = as_text(view, width=40).splitlines()
    assert first == view.statements[0] and second == "`\\x1b[1m<b>`;"
    assert first in as_html(view) and "<b>" not in as_html(view)


def test_given_rows_without_columns_then_only_the_heading_is_shown() -> None:
    empty = View("SELECT: 1 row", grids=[Grid((), [()]), Grid(("n",), [])])
    assert as_text(empty) == "SELECT: 1 row" and as_html(empty) == "<div><strong>SELECT: 1 row</strong></div>"


def test_given_a_value_of_any_length_then_its_text_is_bounded() -> None:
    assert len(plain("x" * 10**6)) == 2001
    assert len(as_text(View("", grids=[Grid(("a", "b"), [("x" * 10**6, 1)])]), width=80)) < 400


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""), (True, "yes"), (False, "no"), (12345, "12,345"), (1.23456, "1.235"), (123456.7, "123,457"),
        (("a", 2), "a, 2"), ({"year": 2013, "v": None}, "year=2013, v="), (exact(2013), "2013"), (exact(True), "yes"),
        (span(4000), "67 min"), (size(None), ""), (Figure("7"), "7"),
    ],
)  # fmt: skip
def test_given_a_value_then_its_text_is_that_of_people(value: object, text: str) -> None:
    assert plain(value) == text


def test_given_wide_characters_then_columns_stay_aligned() -> None:
    lines = as_text(View("", grids=[Grid(("名前", "n"), [("東京", 1), ("Zu\u0308rich", 2)])])).split("\n")
    assert lines == ["名前    n", "──────  ─", "東京    1", "Zu\u0308rich  2"]


def test_given_a_view_then_html_is_a_table_without_colours() -> None:
    assert as_html(View("h", [("a", 1)], [Grid(("n", "s"), [(1, "x")], "t")], ["r"])) == (
        "<div><strong>h</strong>"
        '<table><tr><th style="text-align:left">a</th><td style="text-align:left">1</td></tr></table>'
        "<p>t</p><table><thead><tr><th>n</th><th>s</th></tr></thead>"
        '<tbody><tr><td style="text-align:right">1</td><td style="text-align:left">x</td></tr></tbody></table>'
        "<p>r</p></div>"
    )


def test_given_a_list_of_results_then_it_is_a_list_and_a_part_of_it_prints_like_it() -> None:
    numbers = ResultList(range(30), view_of_numbers)
    assert numbers == list(range(30)) and isinstance(numbers, list)
    assert repr(numbers) == "<ResultList: 30 numbers>" and str(numbers).endswith("… and 10 before")
    assert numbers[-1] == 29
    assert str(numbers[-2:]) == "2 numbers\n\nnumber\n──────\n    28\n    29"
    assert str(pickle.loads(pickle.dumps(numbers))) == str(numbers)


def test_given_a_mapping_of_results_then_it_equals_a_dict_and_cannot_be_changed() -> None:
    items = {"a": 1, "b": 2}
    names = ResultMap(items, view_of_names)
    assert names == items and items == names and names != {"a": 1}
    assert isinstance(names, Mapping) and dict(names) == {"a": 1, "b": 2} and list(names) == ["a", "b"]
    assert names.get("c") is None and "a" in names and len(names) == 2
    with pytest.raises(TypeError):
        names["c"] = 3  # type: ignore[index]
    assert repr(names) == "<ResultMap: 2 names>"
    assert pickle.loads(pickle.dumps(names)) == names


def test_given_a_printed_result_then_str_is_its_table_repr_a_line_and_a_notebook_gets_html() -> None:
    class Plan(Printed):
        def view(self) -> View:
            return VIEW

    assert repr(Plan()) == "<Plan: rescale: 2 partitions>"
    assert str(Plan()) == as_text(VIEW) and Plan()._repr_html_() == as_html(VIEW)
