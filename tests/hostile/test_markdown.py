"""No name, predicate or reason leaves its place in what a person approves: a search with a seed, parsed as Markdown."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt

from airflow_provider_index.compat import AirflowFailException
from airflow_provider_index.maintenance import advice_picture, rescale_picture
from airflow_provider_index.operators import PreviewErasureOperator
from spark_apps.arrow_table import open_table
from spark_apps.query.parsing import parse_predicate
from spark_apps.query.predicate_text import lines_of_predicate
from spark_apps.storage.printing import code, fence, markdown_text, plain
from tests.compatibility.lake import unpack

SEED = int(os.environ.get("SEED", "0")) or random.randrange(1, 1 << 31)
COUNT = int(os.environ.get("TEXTS", "150"))

PIECES = [
    "`", "``", "```", "````\n", "~~~", "\n", "\r\n", "\n\n", "\u2028", "\x85", "\u202e", "\u2066", "\u200b", "\ufeff",
    "\x1b[2J", "\x00", "\t", "    ", " ", "*", "**", "_", "~~", "[a](http://e.x)", "![a](x)", "<img src=x>", "<!--",
    "-->", "</code>", "</pre>", "<b>", "&lt;", "&#96;", "\\", "\\`", "|", "# ", "- ", "> ", "1. ", "===", "---",
    "http://e.x/a", "www.e.x", "a@e.x", "$$", "{{ x }}", "a", "rider = 'r-17'", "'", '"', ":smile:", "[^1]", "[x]: /y",
]  # fmt: skip

PARSER = MarkdownIt("gfm-like")


def texts() -> Iterator[str]:
    die = random.Random(SEED)
    yield from PIECES
    for _ in range(COUNT):
        yield "".join(die.choice(PIECES) for _ in range(die.randint(1, 8)))


def inline(text: str) -> list[Any]:
    """What the one paragraph of a text is made of."""
    tokens = PARSER.parse(text)
    assert [token.type for token in tokens] == ["paragraph_open", "inline", "paragraph_close"], text
    return list(tokens[1].children or ())


def test_given_any_text_when_it_is_shown_as_code_then_it_is_all_in_one_piece_of_code() -> None:
    for text in texts():
        before, shown, behind = inline(f"The table {code(text)} is it.")
        assert (before.content, shown.type, behind.content) == ("The table ", "code_inline", " is it."), (
            f"{SEED} {text!r}"
        )
        assert shown.content.strip() == plain(text).strip() and shown.content.isprintable(), f"{SEED} {text!r}"


def test_given_any_lines_when_they_are_shown_in_a_fence_then_no_line_ends_it() -> None:
    for text in texts():
        lines = [text, "AND x = 1", f"   {text}"]
        tokens = PARSER.parse("\n".join(["Before:", "", *fence(lines), "", "Behind."]))
        kinds = [token.type for token in tokens]
        assert kinds == [*["paragraph_open", "inline", "paragraph_close"], "fence",
                         *["paragraph_open", "inline", "paragraph_close"]], f"seed {SEED}: {text!r}"  # fmt: skip
        assert len(tokens[3].content.splitlines()) == 3 and tokens[5].content == "Behind.", f"seed {SEED}: {text!r}"


def test_given_any_text_when_it_is_shown_as_words_then_it_is_words() -> None:
    for text in texts():
        children = inline(f"It {markdown_text(text)}.")
        assert {child.type for child in children} <= {"text", "text_special"}, f"seed {SEED}: {text!r}"
        assert "".join(child.content for child in children) == f"It {plain(text)}.", f"seed {SEED}: {text!r}"


def only_as_given(shown: str, given: str) -> None:
    """Nothing stands in a form but what its author meant: paragraphs, lists, code."""
    plain_kinds = {
        "text", "text_special", "softbreak", "code_inline", "fence", "inline", "paragraph_open", "paragraph_close",
        "bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close",
    }  # fmt: skip
    for token in PARSER.parse(shown):
        for one in (token, *(token.children or ())):
            assert one.type in plain_kinds, f"seed {SEED}: {given!r} makes {one.type}"
            assert one.type != "text" or "e.x" not in one.content or markdown_text(given) in shown, given
    assert all(char.isprintable() for char in shown.replace("\n", "")), given


def test_given_any_names_then_the_form_of_an_advice_shows_them_and_nothing_of_what_they_say() -> None:
    for text in texts():
        one = {"action": "create", "index": text, "kind": text, "reason": text, "spared_a_day": 1.0}
        advice = {"read_a_day_now": 2.0, "read_a_day_then": 1.0, "queries": 1, "days": 1.0, "proposals": [one],
                  "statements": [f"CREATE INDEX {text}"]}  # fmt: skip
        only_as_given(advice_picture.markdown(text, advice, [text]), text)
        judged = {"index": text, "verdict": "kept", "promised_a_day": 1, "measured_a_day": 2.0, "reason": text}
        only_as_given(advice_picture.measured_markdown(text, [judged]), text)
        plan = {"partitions": [], "expressions": text, "rule": text, "default": 4, "unchanged": 1}
        only_as_given(rescale_picture.markdown(text, plan, []), text)
        assert rescale_picture.svg_text(1, 1, text, 1).isprintable()


# --- what an erasure shows --------------------------------------------------------------------------------------


SCHEMA = {"id": "bigint", "rider": "string", "a b": "string", "day": "date", "x": "double"}


def shown(where: str) -> list[str]:
    return lines_of_predicate(parse_predicate(where, SCHEMA))


def test_given_a_predicate_then_all_that_was_read_of_it_is_shown_each_part_in_a_line() -> None:
    assert shown("rider = 'r-17'") == ["rider = 'r-17'"]
    assert shown("rider = 'r-17' OR id > 0") == ["rider = 'r-17'", "OR id > 0"]
    assert shown("NOT (rider = 'a' AND (id IN (3, 1, null) OR `a b` IS NULL))") == [
        "NOT (", "    rider = 'a'", "    AND (", "        id IN (1, 3, NULL)", "        OR `a b` IS NULL", "    )", ")",
    ]  # fmt: skip
    assert shown("day = DATE'2024-01-01' AND x = CAST('NaN' AS DOUBLE)")[0] == "day = DATE'2024-01-01'"
    assert shown("id = 1 OR true") == ["id = 1", "OR TRUE"]


def test_given_a_long_predicate_then_no_part_of_it_is_out_of_sight() -> None:
    hidden = f"rider = 'r-17{' ' * 300}' OR id IS NOT NULL"
    lines = shown(hidden)
    assert lines[-1] == "OR NOT (id IS NULL)" and all(len(line) <= 104 for line in lines)
    assert "\\x20" in "".join(lines), "blanks that would push the rest out of sight are shown"
    many = ", ".join(map(str, range(1000)))
    assert all(len(line) <= 104 for line in shown(f"id IN ({many})"))
    assert "999" in shown(f"id IN ({many})")[-1]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    connection = {"conn_type": "index_table_store", "extra": {"warehouse": str(tmp_path)}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    unpack(tmp_path)
    return tmp_path


class Pushed(dict[str, Any]):
    def xcom_push(self, key: str, value: Any) -> None:
        self[key] = value


def preview(where: str) -> Pushed:
    pushed = Pushed()
    operator = PreviewErasureOperator(task_id="preview", table="trips", table_conn_id="lake", where=where)
    pushed["returned"] = operator.execute({"ti": pushed})
    return pushed


COMMENTED = [
    "tip = 1.5 -- AND id = 3\n OR true", "tip = 1.5 /* only one */ OR true", "/* a */ tip = 1.5", "tip /**/ = 1.5",
    "tip = 1.5 --", "tip = 1.5 OR true -- `", "tip = 1.5 /*+ x */", "tip = 1.5 -- \\\n x", "tip = ${x}",
]  # fmt: skip


def test_given_a_predicate_with_a_comment_then_it_is_not_shown_for_approval(lake: Path) -> None:
    for where in COMMENTED:
        with pytest.raises(AirflowFailException, match="comment"):
            preview(where)


def test_given_a_predicate_then_the_form_shows_what_was_read_with_its_rows_and_files(lake: Path) -> None:
    opened = open_table(lake / "trips")
    every = opened.read(columns=["tip"])["tip"].to_pylist()
    tip = next(value for value in every if value is not None)

    pushed = preview(f"tip = {tip!r} OR tip IS NULL")

    rows = sum(value == tip or value is None for value in every)
    assert pushed["returned"] == {"rows": rows, "files": pushed["returned"]["files"], "version": opened.version}
    assert 0 < pushed["returned"]["files"] <= opened.explain().files_read
    fences = [token.content for token in PARSER.parse(pushed["markdown"]) if token.type == "fence"]
    assert fences == [f"tip = {tip!r}D\nOR tip IS NULL\n"]
    assert f"{rows:,} row" in pushed["markdown"] and pushed["where"] == f"tip = {tip!r} OR tip IS NULL"
    assert not list((lake / "trips").glob("_index/queries/*")), "the person stands in no query log"


def test_given_texts_in_a_predicate_then_the_form_holds_them_in_one_fence(lake: Path) -> None:
    held = [column.name for column in open_table(lake / "trips").schema if str(column.type) == "string"][:1]
    assert held
    for text in [*PIECES[:8], *list(texts())[-12:]]:
        if set(text) & set("'\\\0"):
            continue
        try:
            pushed = preview(f"{held[0]} = '{text}'")
        except AirflowFailException:
            continue  # only Spark can read it
        only_as_given(pushed["markdown"], text)
        assert [token.type for token in PARSER.parse(pushed["markdown"])].count("fence") == 1
