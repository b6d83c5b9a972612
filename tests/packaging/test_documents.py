"""What the documents say exists: errors, names, what the quickstart prints; and ``tests/documents.py`` finds faults."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from airflow_provider_index import operators, sensors, task_groups
from spark_apps.cli import quickstart
from spark_apps.storage import errors
from tests import documents
from tests.documents import Block, dead_links, faults, reference, unknown_commands, unreadable, wants

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
README = PAGES[0].read_text(encoding="utf-8")

ERRORS = {
    name: kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, errors.LakeIndexError) and not name.startswith("_")
}


def test_every_error_stands_in_the_tree_that_opens_its_module_and_on_the_page_of_errors() -> None:
    todo, listed = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8").split("## All of them")
    page = set(re.findall(r"`([A-Z]\w+)`", listed))
    tree = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or "")) | {"LakeIndexError"}
    assert page == set(ERRORS)
    assert tree == set(ERRORS)
    asked = {
        name
        for line in todo.splitlines()
        if line.startswith("| `")
        for name in re.findall(r"`(\w+)`", line.split("|")[1])
    }
    assert asked <= set(ERRORS)


def test_the_readme_is_read_in_a_minute() -> None:
    assert len(README.splitlines()) <= 120


def test_the_readme_shows_what_the_quickstart_prints() -> None:
    [shown] = re.findall(r"```console\n\$ make quickstart\n(.*?)```", README, flags=re.DOTALL)
    labels = [line[:10].strip() for line in shown.splitlines()]
    assert labels == ["A table", "The query", "Before", "An index", "After", "Verify", "", ""]
    assert f"The query  {quickstart.QUERY}\n" in shown
    assert f"{quickstart.ROWS:,} trips" in shown


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_and_public_name_of_a_page_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert set(re.findall(r"`make ([a-z0-9-]+)", text)) <= documents.make_targets()
    public = {*operators.__all__, *sensors.__all__, *task_groups.__all__}
    # Airflow's own are named as well.
    assert set(re.findall(r"`(\w+(?:Operator|Sensor))\b", text)) - {"SparkSubmitOperator"} <= public


@pytest.mark.parametrize("page", PAGES[2:], ids=lambda page: page.name)
def test_a_page_says_in_its_first_line_who_it_is_for(page: Path) -> None:
    first = page.read_text(encoding="utf-8").split("\n\n")[1]
    assert first.startswith("For ") and len(first.split(".")[0]) < 260, first


# --- what `make check` finds -----------------------------------------------------------------------------------------


def test_the_documents_have_no_fault() -> None:
    assert list(faults()) == []


def test_given_links_to_what_is_not_there_then_each_is_told(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    (tmp_path / "other.md").write_text("# Other\n\n## `read` and *all* that\n")
    page.write_text("# Page\n\n[a](gone.md) [b](other.md#read-and-all-that) [c](other.md#gone) [d](#page) [e](#gone)\n")

    dead = list(dead_links(page))

    assert [text.split()[2] for text in dead] == ["gone.md,", "other.md#gone,", "#gone,"]


@pytest.mark.parametrize(
    ("language", "text", "good"),
    [
        ("python", "a = 1\n", True),
        ("python", "f(a=1, 2)\n", False),
        ("sql", "SHOW INDEXES ON db.trips;\n", True),
        ("sql", "SHOW INDEXES db.trips;\n", False),
        ("json", '{"a": 1}', True),
        ("json", "{a: 1}", False),
        ("toml", "a = [1, 2", False),
        ("ini", "a = 1", False),
        ("ruby", "puts 1", False),
    ],
)
def test_a_block_of_code_that_cannot_be_read_is_told(language: str, text: str, good: bool) -> None:
    assert (unreadable(Block(PAGES[0], 1, language, "", text)) is None) is good


@pytest.mark.parametrize(
    ("command", "known"),
    [
        ("$ make demo DEMO_ARGS=--all", True),
        ("$ make no-such-target", False),
        ("$ python -m spark_apps quickstart\nwhat it prints", True),
        ("$ python -m spark_apps.gone", False),
        ("$ pip install 'airflow-provider-index[spark,jdk]'", True),
        ("$ pip install 'airflow-provider-index[gone]'", False),
        ("$ pip install 'lakeindex[spark,jdk]'", True),
        ("$ pip install 'lakeindex[demo]'", False),
        ("$ lake-thing --all", False),
    ],
)
def test_a_command_that_is_not_there_is_told(command: str, known: bool) -> None:
    assert (unknown_commands(command) == []) is known


@pytest.mark.parametrize(
    ("code", "missing"),
    [
        ('def f(a, b):\n    """Do it.\n\n    :param a: one.\n    :param b: two.\n    """', []),
        ('def f(first, b):\n    """Do it.\n\n    :param b: two.\n    """', ["tells nothing of first"]),
        ('def f() -> int:\n    """Return how many."""', []),
        ('def f() -> int:\n    """Do it."""', ["does not tell what it returns, int"]),
        (
            'def f() -> None:\n    """Do it."""\n    raise InvalidInput("x")',
            ["does not tell that it raises InvalidInput"],
        ),
        ('def f() -> None:\n    """Do it.\n\n    :raises InvalidInput: so.\n    """\n    raise InvalidInput("x")', []),
        ("def f() -> None:\n    pass", ["has no docstring"]),
    ],
    ids=["all", "a-parameter", "a-verb", "a-result", "an-error", "its-error", "nothing"],
)
def test_what_a_docstring_does_not_tell_is_told(code: str, missing: list[str]) -> None:
    [function] = documents.ast.parse(code).body
    assert list(wants(function)) == missing  # type: ignore[arg-type]


def test_a_public_name_is_found_where_it_is_defined() -> None:
    assert reference.definition("spark_apps.IndexedTable")[0] == "spark_apps.table"
    assert reference.definition("airflow_provider_index.operators.BuildIndexOperator")[0].endswith("operators.indexes")
    with pytest.raises(LookupError, match=r"spark_apps\.Gone is not defined"):
        reference.definition("spark_apps.Gone")
