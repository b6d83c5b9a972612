"""What the site has beside the pages of ``docs/``: files of other folders, the reference, the example DAGs.

Pages are written for the repository, where links lead to any file. Here a link to a file that is a page of the site
leads to that page, and one to another file of the repository is shown as its path.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

from reference import PAGES, ROOT, Page, names

MOVED = {"CHANGELOG.md": "CHANGELOG.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "benchmarks/RESULTS.md": "RESULTS.md"}
"""Pages that stand elsewhere in the repository, and where they stand here."""

EXAMPLES = ROOT / "dags_examples"
WITH_EXAMPLES = ("operators", "sensors", "task_groups")
MADE_BY = {
    "BeginTransactionOperator": "index_transaction",
    "CommitTransactionOperator": "index_transaction",
    "IndexTransaction": "index_transaction",
    "RollBackTransactionOperator": "index_transaction",
    "OpenStopWriteWindowOperator": "stop_write_window",
    "CloseStopWriteWindowOperator": "stop_write_window",
    "StopWriteWindow": "stop_write_window",
    "WritersDrainedSensor": "stop_write_window",
    "MaintainTableOperator": "index_maintenance",
    "PlanMaintenanceOperator": "index_maintenance",
}
"""What a DAG gets by a task group or a function that makes it."""


WORKER = re.compile(r"https://[^\"' >]*iframe-worker[^\"' >]*")
"""What the theme would fetch where a page is opened from a folder, so that its search may run."""


# --- pages ----------------------------------------------------------------------------------------------------------


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that stand elsewhere, and those that are made here."""
    for path, name in MOVED.items():
        file = ROOT / path
        files.append(File.generated(config, name, content=_moved(path, file.read_text(encoding="utf-8"))))
    for picture in sorted((ROOT / "benchmarks").glob("*/*.png")) + sorted((ROOT / "benchmarks").glob("*/*.svg")):
        name = picture.relative_to(ROOT / "benchmarks").as_posix()
        files.append(File.generated(config, name, abs_src_path=str(picture)))
    files.append(File.generated(config, "extra.css", abs_src_path=str(Path(__file__).parent / "extra.css")))
    for page in PAGES:
        files.append(File.generated(config, f"reference/{page.file}.md", content=_page(page)))
    files.append(File.generated(config, "reference/examples.md", content=_examples()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links out of ``docs/`` to pages of the site."""
    return markdown if page.file.src_uri in MOVED.values() else _relinked(markdown, "docs")


def on_post_page(output: str, page: Any, config: Any, **_: Any) -> str:
    """Have the search of pages that are opened from a folder run by a script of our own: nothing is fetched."""
    depth = page.url.count("/")
    return WORKER.sub(f"{'../' * depth}search/frame.js", output)


def on_post_template(output_content: str, *, template_name: str, **_: Any) -> str:
    """Do the same for the page of an address that is not there."""
    return WORKER.sub("search/frame.js", output_content) if template_name.endswith(".html") else output_content


def on_post_build(config: Any) -> None:
    """Bring that script, and fail where a page would fetch something from elsewhere.

    :raises PluginError: naming pages and what they would fetch.
    """
    site = Path(config.site_dir)
    copyfile(Path(__file__).parent / "frame.js", site / "search" / "frame.js")
    fetched = [
        f"{page.relative_to(site)}: {address}"
        for page in sorted(site.rglob("*.html"))
        for address in re.findall(
            r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=[\"']?((?:https?:)?//[^\"' >]+)",
            page.read_text(encoding="utf-8"),
        )
    ]
    if fetched:
        raise PluginError("These pages would fetch something from elsewhere:\n" + "\n".join(fetched))


def _moved(path: str, text: str) -> str:
    return _relinked(text, str(Path(path).parent.as_posix()))


def _relinked(text: str, folder: str) -> str:
    """Return a page whose links, given from a folder of the repository, lead to pages of the site."""

    def link(match: re.Match[str]) -> str:
        label, target = match[1], match[2]
        if "://" in target or target.startswith("#"):
            return match[0]
        file, mark, part = target.partition("#")
        path = (ROOT / folder / file).resolve().relative_to(ROOT).as_posix()
        if path in MOVED:
            return f"[{label}]({MOVED[path]}{mark}{part})"
        if path == "README.md":
            return f"[{label}](index.md)"
        if path.startswith("docs/"):
            return f"[{label}]({path.removeprefix('docs/')}{mark}{part})"
        if path.startswith("benchmarks/") and Path(path).suffix in (".png", ".svg"):
            return f"[{label}]({path.removeprefix('benchmarks/')})"
        if path.startswith("dags_examples/"):
            return f"[{label}](reference/examples.md)"
        return label if label.startswith("`") else f"{label} (`{path}`)"

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)|!\[([^\]]*)\]\(([^)\s]+)\)", _either(link, folder), text)


def _either(link: Any, folder: str) -> Any:
    def one(match: re.Match[str]) -> str:
        if match[2] is not None:
            return str(link(match))
        path = (ROOT / folder / match[4]).resolve().relative_to(ROOT).as_posix()
        return f"![{match[3]}]({path.removeprefix('docs/').removeprefix('benchmarks/')})"

    return one


# --- the reference --------------------------------------------------------------------------------------------------


def _page(page: Page) -> str:
    parts = [f"# {page.title}", page.first_line]
    for name in names(page):
        parts.append(f"::: {name}" if page.methods else f"::: {name}\n    options:\n      members: false")
        if page.file in WITH_EXAMPLES:
            parts += _uses(name.rpartition(".")[2])
    return "\n\n".join(parts) + "\n"


# --- example DAGs ---------------------------------------------------------------------------------------------------


def _dags() -> list[Path]:
    return sorted(path for path in EXAMPLES.glob("*/*.py") if path.name != "__init__.py" and path.parent.name != "demo")


def _uses(name: str) -> Iterator[str]:
    """Yield how the example DAGs use an operator: the statement, and the file that it stands in."""
    if name in MADE_BY:
        yield f"Tasks of it are made by `{MADE_BY[name]}`:"
        name = MADE_BY[name]
    for path in _dags():
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.With):
                calls = [item.context_expr for item in node.items]
                lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
            elif isinstance(node, ast.Assign | ast.Expr):
                calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
                lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
            else:
                continue
            if any(_called(call) == name for call in calls):
                file = path.relative_to(ROOT).as_posix()
                code = textwrap.dedent("\n".join(lines))
                yield f'```python title="{file}"\n{code}\n```\n\n[The whole DAG](examples.md#{_slug(path)})'
                return


def _called(node: ast.AST) -> str | None:
    """Return the last word of what is called: ``X`` of ``X(…)`` and of ``X.partial(…).expand(…)``."""
    while isinstance(node, ast.Call):
        node = node.func
        if isinstance(node, ast.Attribute) and node.attr in ("partial", "expand"):
            node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _examples() -> str:
    parts = [
        "# Example DAGs",
        "For those who copy before they write: each of these DAGs is run by the tests. "
        "`python -m airflow_provider_index examples --copy-to dags` copies them out of an installed package.",
    ]
    for path in _dags():
        text = path.read_text(encoding="utf-8")
        docstring = ast.get_docstring(ast.parse(text)) or ""
        parts += [f"## {path.stem}", docstring, f'```python title="{path.relative_to(ROOT).as_posix()}"\n{text}```']
    return "\n\n".join(parts) + "\n"


def _slug(path: Path) -> str:
    return path.stem.lower()
