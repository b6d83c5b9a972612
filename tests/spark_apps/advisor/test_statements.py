"""Statements that are proposed, read again by the grammar: whatever a column is called, they mean what was meant."""

from __future__ import annotations

import pytest

from spark_apps.advisor.statements import create_statement, drop_statement
from spark_apps.sql import parse
from spark_apps.timeline.model import IndexDefinition

NAMES = (
    "plain",
    "of two",
    "a`b",
    "x) USING compact (y",
    "'; DROP TABLE t; --",
    "müßig",
    'q"uote',
    "index",
    "a.b",
    "tab\there",
)
URI = "/lake/`odd` folder/t"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["secondary", "compact", "covering", "mine.zones.ZoneHandler"])
def test_given_any_name_when_a_statement_is_read_then_it_creates_that_index(name: str, kind: str) -> None:
    included = ("other", name + "2") if kind == "covering" else ()
    properties = {"layout": "ranges", "buckets": "8"} if kind == "covering" else {}
    definition = IndexDefinition("by_it", kind, (name, "b"), "id", included, properties=properties)

    [read] = parse(create_statement(URI, definition))

    assert (read.table, read.index, read.kind, tuple(read.columns)) == (URI, "by_it", kind, (name, "b"))
    if included:
        assert (read.include, read.properties) == (included, (("layout", "ranges"),))


def test_given_parts_when_a_statement_is_read_then_they_are_those_of_the_index() -> None:
    parts = ("minmax(ts)", "bloom(`of two`)", "values(lower(city))")
    [read] = parse(create_statement(URI, IndexDefinition("skip", "skipping", parts, "id")))
    assert tuple(read.columns) == parts and read.kind == "skipping"


def test_a_drop_names_the_index_and_the_table() -> None:
    [read] = parse(drop_statement(URI, "by_rider"))
    assert (read.table, read.index) == (URI, "by_rider")
