"""Names of columns that are kept for what is added to rows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import spark_apps
from spark_apps.storage.errors import InvalidName
from spark_apps.storage.names import check_column_name, check_source_column_name

ADDED = re.compile(r"""["']((?:__|_metadata\b)[a-z_]+)""")
OF_PYTHON = re.compile(r"__[a-z_]+__")


RESERVED = ("__index_deleted", "__INDEX_x", "__lakeindex_action", "__LakeIndex_Old_id", "_METADATA", "__number")


@pytest.mark.parametrize("name", RESERVED)
def test_given_a_reserved_name_in_any_case_then_no_column_has_it(name: str) -> None:
    with pytest.raises(InvalidName, match="are kept for"):
        check_column_name(name)


@pytest.mark.parametrize(
    "name", ["index_deleted", "metadata", "_metadata2", "__numbers", "_index_x", "a.__index_b", "_"]
)
def test_given_a_name_that_is_like_a_reserved_one_then_it_is_taken(name: str) -> None:
    assert check_column_name(name) == check_source_column_name(name) == name


def test_given_rows_of_others_then_only_names_are_declined_that_something_is_added_under() -> None:
    for name in ("__number", "__lakeindex_x"):
        assert check_source_column_name(name) == name
    for name in ("with `tick", "\n", " "):
        with pytest.raises(InvalidName, match="cannot be the name"):
            check_source_column_name(name)
    for name in ("__Index_row", "_Metadata"):
        with pytest.raises(InvalidName, match="are kept for"):
            check_source_column_name(name)


def test_given_the_names_that_the_code_adds_to_rows_then_each_is_reserved() -> None:
    [folder] = spark_apps.__path__
    found = {
        match[1]
        for path in Path(folder).rglob("*.py")
        for match in ADDED.finditer(path.read_text(encoding="utf-8"))
        if not OF_PYTHON.match(match[1])
    }
    assert len(found) > 50
    for name in found:
        with pytest.raises(InvalidName, match="are kept for"):
            check_column_name(name)
