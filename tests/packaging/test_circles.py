"""No module imports itself by way of others as it is loaded; within a function, or for types alone, it may."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("airflow_provider_index", "spark_apps")


def name_of(file: Path) -> str:
    return ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child
        yield from imports(child)


def imported(text: str, known: frozenset[str]) -> set[str]:
    names: set[str] = set()
    for node in imports(ast.parse(text)):
        for alias in node.names:
            if isinstance(node, ast.Import):
                names.add(alias.name)
            else:
                dotted = f"{node.module}.{alias.name}"
                names.add(dotted if dotted in known else node.module or "")
    return names & known


def check_no_circle(texts: dict[str, str]) -> None:
    known = frozenset(texts)
    list(TopologicalSorter({name: imported(text, known) - {name} for name, text in texts.items()}).static_order())


@pytest.mark.by_turn(4)
def test_no_module_imports_itself_by_way_of_others() -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py")]
    check_no_circle({name_of(file): file.read_text(encoding="utf-8") for file in files})


@pytest.mark.parametrize("inside", ["from p import b", "from p.b import x", "try:\n    import p.b\nfinally:\n    pass"])
def test_given_two_modules_that_import_each_other_then_it_is_seen(inside: str) -> None:
    with pytest.raises(CycleError):
        check_no_circle({"p": "", "p.a": inside, "p.b": "from p.a import y"})


def test_given_an_import_for_types_alone_or_within_a_function_then_it_is_no_circle() -> None:
    check_no_circle({"p.a": "def f():\n    from p.b import x", "p.b": "from p.a import y"})
    check_no_circle({"p.a": "if TYPE_CHECKING:\n    from p.b import x", "p.b": "from p.a import y"})
