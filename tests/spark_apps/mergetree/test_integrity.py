"""Which types Arrow compares as Spark does."""

from __future__ import annotations

import pytest

from spark_apps.mergetree.integrity import is_exact


@pytest.mark.parametrize(
    ("kind", "exact"),
    [
        ("bigint", True),
        ("varchar(5)", True),
        ("timestamp", True),
        ("char(5)", False),
        ("double", False),
        ("decimal(10,2)", False),
        ("string collate UTF8_LCASE", False),
        ("array<int>", False),
    ],
)
def test_given_a_type_then_it_is_exact_if_equal_values_are_alike(kind: str, exact: bool) -> None:
    assert is_exact(kind) is exact
