"""Holds the documents: run as ``python -m tests.documents``, in a second or two, without Spark and without Airflow.

What a page links to is there, and so is the part of it; every page stands in the list of pages and in the site's menu;
every public name stands in the reference, with a docstring that tells its parameters, what it returns and what it
raises; every block of code can be read. What the blocks do is for ``tests/packaging/test_code_blocks.py``.
"""

from __future__ import annotations

import ast
import configparser
import importlib.util
import json
import re
import sys
import textwrap
import tomllib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from tests.compatibility.recording import documented

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.glob("*.md")))
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
MENU = DOCS / "mkdocs" / "mkdocs.yml"


def _reference() -> ModuleType:
    """Return the module that lists the reference; it stands with the site."""
    spec = importlib.util.spec_from_file_location("reference", DOCS / "mkdocs" / "reference.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


reference = _reference()


# --- blocks of code -------------------------------------------------------------------------------------------------

_BLOCK = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A block of code of a page.

    :param language: the word behind the back-ticks.
    :param title: what stands above the block: "Form" where it has brackets for what may be left out, "Spark's own"
        where it is none of our statements.
    """

    page: Path
    line: int
    language: str
    title: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


@cache
def blocks(page: Path) -> tuple[Block, ...]:
    """Return the blocks of code of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return tuple(
        Block(
            page,
            text.count("\n", 0, match.start()) + 1,
            match[2].partition(" ")[0],
            "".join(re.findall(r'title="([^"]*)"', match[2])),
            textwrap.dedent(match[3]),
        )
        for match in _BLOCK.finditer(text)
    )


@cache
def prose(page: Path) -> str:
    """Return a page without its blocks of code."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def unreadable(block: Block) -> str | None:
    """Say why a block cannot be read; ``None`` if it can."""
    try:
        match block.language:
            case "python" if block.page.name != "CONTRIBUTING.md":  # whose pieces go into files
                ast.parse(block.text)
            case "json":
                json.loads(block.text)
            case "toml":
                tomllib.loads(block.text)
            case "ini":
                configparser.ConfigParser(interpolation=None).read_string(block.text)
            case "sql" if not block.title:
                from spark_apps.sql import parse

                parse(block.text)
            case "console" | "sh":
                return "; ".join(unknown_commands(block.text)) or None
            case "python" | "sql" | "" | "text":
                return None
            case other:
                return f"is in {other!r}, which nothing here reads"
    except (SyntaxError, ValueError, configparser.Error) as error:
        return str(error)
    return None


# --- commands -------------------------------------------------------------------------------------------------------

KNOWN = {"airflow", "pytest", "spark-submit", "kubectl", "apt-get", "cd", "eval", "export", "yarn", "lakeindex"}
"""Commands of others, and ours, whose lines tests/spark_apps/cli reads."""


@cache
def make_targets() -> frozenset[str]:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return frozenset(re.findall(r"^([a-z0-9-]+):", text, flags=re.MULTILINE))


@cache
def extras() -> frozenset[str]:
    """Return the extras of both distributions, each as ``name[extra]``."""
    known = set()
    for file in (ROOT / "setup.cfg", ROOT / "packaging" / "lakeindex" / "setup.cfg"):
        config = configparser.ConfigParser()
        config.read(file)
        known |= {f"{config['metadata']['name']}[{name}]" for name in config["options.extras_require"]}
    return frozenset(known)


def commands(text: str) -> list[str]:
    """Return the commands of a block: the lines behind ``$``, or, where none has one, all of them."""
    lines = text.replace("\\\n", " ").splitlines()
    asked = [line[2:] for line in lines if line.startswith("$ ")] or lines
    return [line.partition(" #")[0].strip() for line in asked if line.strip() and not line.startswith("#")]


def unknown_commands(text: str) -> list[str]:
    """Say which commands of a block are not there: targets of make, modules, extras of the package."""
    unknown = []
    for command in commands(text):
        words = [word for word in command.split() if not re.fullmatch(r"[A-Z_]+=\S*", word)]
        if words[:1] == ["make"]:
            unknown += [f"make has no target {word}" for word in words[1:2] if word not in make_targets()]
        elif words[:2] == ["python", "-m"]:
            path = ROOT / words[2].replace(".", "/")
            if not path.with_suffix(".py").exists() and not (path / "__main__.py").exists() and words[2] != "venv":
                unknown.append(f"there is no module {words[2]} to run")
        elif words[:2] in (["pip", "install"], ["pip", "uninstall"]):
            some = re.findall(r"\b(airflow-provider-index|lakeindex)\[([\w,]+)\]", command)
            asked = {f"{package}[{one}]" for package, names in some for one in names.split(",")}
            unknown += [f"there is no extra {one}" for one in sorted(asked - extras())]
        elif words and words[0] not in KNOWN:
            unknown.append(f"nobody knows the command {words[0]!r}")
    return unknown


# --- links ----------------------------------------------------------------------------------------------------------


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the names of a page's parts, as GitHub and the site make them of headings."""
    slugs: list[str] = []
    for heading in re.findall(r"^#+ +(.+?) *$", prose(page), flags=re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-")
        slugs.append(f"{slug}-{slugs.count(slug)}" if slug in slugs else slug)
    return frozenset(slugs)


def dead_links(page: Path) -> Iterator[str]:
    """Yield what is wrong with the links of a page."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if "://" in target or target.startswith("mailto:"):
            continue
        file, _, part = target.partition("#")
        path = (page.parent / file).resolve() if file else page
        if not path.exists():
            yield f"links to {target}, which is not there"
        elif part and path.suffix == ".md" and part not in anchors(path):
            yield f"links to {target}, and {path.name} has no such part"


# --- docstrings -----------------------------------------------------------------------------------------------------

Function = ast.FunctionDef | ast.AsyncFunctionDef
_RETURNS_NOTHING = {"None", "NoReturn", "Self"}


def described_parameters(text: str) -> set[str]:
    """Return the parameters that a docstring tells of."""
    return set(re.findall(r":param (?:\S+ )?\*{0,2}(\w+):", text)) | set(re.findall(r"``\*{0,2}(\w+)[`=]", text))


def wants(function: Function, around: str = "") -> Iterator[str]:
    """Yield what the docstring of a public function does not tell.

    :param around: the docstrings of its class and of those above, which tell what all their functions have.
    """
    text = ast.get_docstring(function)
    if text is None:
        yield "has no docstring"
        return
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    known = described_parameters(text) | described_parameters(around)
    # What a sentence of a docstring names by its own word is described: "the rows of the batch" of ``rows``.
    said = {word.lower() for word in re.findall(r"\w+", text)}
    missing = [one for one in names if one not in ("self", "cls") and one not in known and one.strip("_") not in said]
    if missing:
        yield f"tells nothing of {', '.join(missing)}"
    returns = ast.unparse(function.returns) if function.returns is not None else "None"
    if returns not in _RETURNS_NOTHING and not tells_result(text, returns, around):
        yield f"does not tell what it returns, {returns}"
    untold = sorted(raised(function) - set(re.findall(r"\b([A-Z]\w+)\b", f"{text} {around}")))
    if untold:
        yield f"does not tell that it raises {', '.join(untold)}"


def tells_result(text: str, returns: str, around: str) -> bool:
    """Tell whether a docstring says what is returned: by a field, by its verb, or for all functions of its class."""
    if ":returns:" in text or re.match(r"(Return|Yield|Say|Tell|List|Give|Make|Open|Load|Find|Count|Create)\b", text):
        return True
    if re.search(r"\b[Rr]eturn(s|ed)?\b", text):
        return True
    return "receipt" in around.lower() and returns in ("Receipt", "Any")


def raised(function: Function) -> set[str]:
    """Return the errors that a function raises in its own body; not those that it hands on."""
    errors = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func).rpartition(".")[2]
            if name[0].isupper() and name not in ("NotImplementedError", "AttributeError", "TypeError"):
                errors.add(name)
    return errors


def is_property(function: Function) -> bool:
    return any(
        ast.unparse(one).rpartition(".")[2] in ("property", "cached_property") for one in function.decorator_list
    )


def docstrings_of_class(module: str, node: ast.ClassDef) -> str:
    """Return the docstrings of a class and of its bases of ours."""
    texts = [ast.get_docstring(node) or ""]
    for base in node.bases:
        try:
            home, above = reference.definition(f"{module}.{ast.unparse(base).partition('[')[0]}")
        except (LookupError, FileNotFoundError, OSError):
            continue
        if isinstance(above, ast.ClassDef):
            texts.append(docstrings_of_class(home, above))
    return "\n".join(texts)


def faults_of_name(name: str, methods: bool) -> Iterator[str]:
    """Yield what the docstring of a public name does not tell, each with its place.

    :param methods: also what those of its methods do not tell.
    """
    module, node = reference.definition(name)
    file = reference.source(module)[0].relative_to(ROOT)
    if isinstance(node, Function):
        yield from (f"{file}:{node.lineno}: {node.name} {fault}" for fault in wants(node))
    if not isinstance(node, ast.ClassDef):
        return
    around = docstrings_of_class(module, node)
    if not ast.get_docstring(node):
        yield f"{file}:{node.lineno}: {node.name} has no docstring"
    for one in node.body:
        if not isinstance(one, Function):
            continue
        if one.name == "__init__":
            if "Made by" in around:
                continue
            names = {arg.arg for arg in (*one.args.args, *one.args.kwonlyargs)} - {"self"}
            missing = sorted(names - described_parameters(around) - described_parameters(ast.get_docstring(one) or ""))
            said = {word.lower() for word in re.findall(r"\w+", around)}
            missing = [arg for arg in missing if arg not in said]
            if missing:
                yield f"{file}:{one.lineno}: {node.name} tells nothing of {', '.join(missing)}"
        elif methods and not one.name.startswith("_") and not is_property(one) and not inherits(module, node, one):
            yield from (f"{file}:{one.lineno}: {node.name}.{one.name} {fault}" for fault in wants(one, around))


def inherits(module: str, node: ast.ClassDef, function: Function) -> bool:
    """Tell a method without a docstring that a base has, of Airflow's or of ours: it is described there."""
    return ast.get_docstring(function) is None and bool(node.bases)


def faults() -> Iterator[str]:
    """Yield everything that is wrong, each with its place."""
    listed = (DOCS / "index.md").read_text(encoding="utf-8")
    menu = MENU.read_text(encoding="utf-8")
    names = {name: page.methods for page in reference.PAGES for name in reference.names(page)}
    last = {name.rpartition(".")[2] for name in names}
    yield from (f"{RESULTS.relative_to(ROOT)}: {fault}" for fault in dead_links(RESULTS))
    for page in PAGES:
        where = page.relative_to(ROOT)
        yield from (f"{where}: {fault}" for fault in dead_links(page))
        for block in blocks(page):
            fault = unreadable(block)
            if fault is not None:
                yield f"{block.place}: this block cannot be read: {fault}"
        if page.parent == DOCS and page.name != "index.md" and f"({page.name})" not in listed:
            yield f"{where}: does not stand in docs/index.md"
        if page.parent == DOCS and page.name not in menu:
            yield f"{where}: does not stand in the menu of {MENU.relative_to(ROOT)}"
        for name in sorted(documented(page.read_text(encoding="utf-8"))):
            if (
                page.name not in ("CHANGELOG.md", "CONTRIBUTING.md")
                and not is_module(name)
                and not is_known(name, names, last)
            ):
                yield f"{where}: names {name}, which the reference lacks"
    for name in sorted(names):
        try:
            yield from faults_of_name(name, names[name])
        except LookupError as error:
            yield f"docs/mkdocs/reference.py: {error}"


def is_module(name: str) -> bool:
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def is_known(name: str, names: Collection[str], last: set[str]) -> bool:
    """Tell whether a name that a page tells of stands in the reference, by this or by the path it is handed on by."""
    if name in names or name in reference.NOT_NAMES:
        return True
    module, _, own = name.rpartition(".")
    return own in last or f"{module}" in names


def main() -> int:
    """Print each fault with its place, and return 1 if there is one."""
    sorted_faults = sorted(set(faults()))
    print("\n".join(sorted_faults))  # noqa: T201
    return 1 if sorted_faults else 0


if __name__ == "__main__":
    sys.exit(main())
