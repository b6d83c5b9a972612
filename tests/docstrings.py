"""Holds the first word of docstrings, which ruff's rules leave open: run as ``python -m tests.docstrings``.

Ruff sees to the form of the first line, and to verbs that it knows in another form than the base form ("Returns").
What it does not know it lets pass: "Whether a commit …", "Rows of …". Here a function or method that is public must
begin with a word that can be a verb in the base form, and nothing at all with a pronoun or a question word.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("airflow_provider_index", "spark_apps")


def words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


PRONOUNS = words(
    "he her his how i it its one others she somebody someone that their them these they this those we what when where "
    "whether which who whoever whom whose why you your"
)
NO_VERBS = PRONOUNS | words(
    "a above after all an and another any as at because before behind below beside between both but by did does each "
    "either every everything false few for from had has have if in into is least less many more most neither newest "
    "next no none not nothing of off on only or out over same several since so some than the then there through to "
    "true two under until up upon was were with within without lagging live plain staged asked airflow spark data"
)
"""Articles, prepositions and their like."""
NOUNS = words(
    "bar bucket card column copy directory entry field file id index key lineage location microsecond number partition "
    "path payload place record row rule shard size storage task text tombstone trigger uri value version work"
)
"""What is a verb only before what it is done to: "Record what …", not "Record key of …"."""
OBJECTS = words("a all an any each every how its one that the these this those what where whether which")
BASE_FORMS = words("access address express guess pass press process discuss focus")
"""Verbs whose base form ends with s."""


def wrong(name: str, node: ast.AST, text: str) -> str | None:
    """Say what is wrong with the first word of a docstring; ``None`` if nothing is."""
    first, second, *_ = [*text.split(None, 2), "", ""]
    word = re.sub(r"[^\w].*$", "", first).lower()
    if word in PRONOUNS:
        return f"begins with {first!r}: name the thing"
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or name.startswith("_") or is_attribute(node):
        return None
    if not re.fullmatch(r"[A-Z][a-z]+(?:-[a-z]+)?[,:]?", first) or word in NO_VERBS:
        return f"begins with {first!r}, which is no verb"
    if word in NOUNS and second.lower() not in OBJECTS:
        return f"begins with {first!r}, which is no verb"
    if word.endswith("s") and word not in BASE_FORMS:
        return f"begins with {first!r}, which is no verb in the base form"
    return None


def is_attribute(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Tell a property, which is described as what it is."""
    names = (ast.unparse(one).rpartition(".")[2] for one in node.decorator_list)
    return any(name in ("property", "cached_property", "setter") for name in names)


def faults_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and fault of each docstring of a module whose first word will not do."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            fault = None if text is None else wrong(getattr(node, "name", ""), node, text)
            if fault is not None:
                yield node.body[0].lineno, fault


def main() -> int:
    """Print each fault with its place, and return 1 if there is one."""
    faults = [
        f"{path.relative_to(ROOT)}:{line}: docstring {fault}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, fault in faults_of(path)
    ]
    print("\n".join(faults))  # noqa: T201
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
