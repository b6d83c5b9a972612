"""The page of operators: each operator and sensor of this package with its text and arguments.

The texts are the docstrings of the installed release. The DAGs of users are not known to the API server.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass
from functools import cache
from importlib import import_module

from airflow.sdk import BaseOperator
from markupsafe import Markup, escape

from airflow_provider_index.arguments import DeclaresArguments
from airflow_provider_index.documentation import documentation_of
from airflow_provider_index.provider_info import get_provider_info

PACKAGE = "airflow_provider_index"
_BLANK = re.compile(r"\n\s*\n")


@dataclass(frozen=True)
class Block:
    """A paragraph of a text, or an example in it."""

    text: str
    is_code: bool


@dataclass(frozen=True)
class Argument:
    """An argument, what it means, and how its default is written: "" if it has to be given."""

    name: str
    meaning: str
    default: str


@dataclass(frozen=True)
class OperatorPage:
    """An operator or sensor as its page shows it."""

    name: str
    module: str
    blocks: tuple[Block, ...]
    arguments: tuple[Argument, ...]


@cache
def _all_operators() -> dict[str, type[DeclaresArguments]]:
    """Return the operators and sensors of this package by their names, in order, and the classes that they derive from.

    A user's own operators derive from them too, and link to their pages.
    """
    parts = get_provider_info()
    modules = [import_module(one) for key in ("operators", "sensors") for one in parts[key][0]["python-modules"]]
    found = {
        base.__name__: base
        for module in modules
        for _, one in inspect.getmembers(module, inspect.isclass)
        if one.__module__ == module.__name__
        for base in one.__mro__
        if _is_operator(base)
    }
    return dict(sorted(found.items()))


def _is_operator(one: type) -> bool:
    ours = one.__module__.startswith(f"{PACKAGE}.")
    return ours and issubclass(one, BaseOperator) and issubclass(one, DeclaresArguments)


@cache
def known_operators() -> list[str]:
    """Return the names of the operators and sensors that a DAG's author imports, in order."""
    found = _all_operators()
    return [name for name, one in found.items() if not any(one in of.__mro__[1:] for of in found.values())]


@cache
def operator_page(name: str) -> OperatorPage:
    """Return the page of an operator, of one that only others derive from as well.

    :raises KeyError: if there is none of that name.
    """
    kind = _all_operators()[name]
    text, meanings = documentation_of(kind)  # type: ignore[arg-type]
    arguments = (
        Argument(one, meanings.get(one, ""), repr(kind.defaults[one]) if one in kind.defaults else "")
        for one in sorted(kind.readers, key=lambda one: (one in kind.defaults, list(meanings).index(one)))
    )
    return OperatorPage(name, kind.__module__, _blocks(text), tuple(arguments))


def _blocks(text: str) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for part in filter(str.strip, _BLANK.split(text)):
        is_code = part.lstrip("\n").startswith("    ")
        if is_code and blocks and blocks[-1].is_code:
            blocks[-1] = Block(f"{blocks[-1].text}\n\n{textwrap.dedent(part)}", True)
        else:
            blocks.append(Block(textwrap.dedent(part.strip("\n")), is_code))
    return tuple(blocks)


def with_code(text: str) -> Markup:
    """Return a text as HTML, what is between backticks as code."""
    parts = (escape(part) if at % 2 == 0 else Markup("<code>{}</code>").format(part) for at, part in
             enumerate(text.split("`")))  # fmt: skip
    return Markup("").join(parts)
