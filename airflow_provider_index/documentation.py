"""Documentation of a task in Airflow's interface: a sentence on its operator, and a link to the page of its arguments.

A DAG's serialized form holds the text of each task, so the descriptions of the arguments are not in it. The page
:data:`PAGE` of the plugin shows them, as the docstrings of the installed release have them.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from typing import Any
from urllib.parse import quote

from airflow_provider_index.compat import conf

PAGE = "/lakeindex/operators"
"""Route of the plugin page that shows what an operator does and takes."""

_OURS = "airflow_provider_index."
_ROLE = re.compile(r":\w+:`~?(?:[^`<]*\.)?([^`.]+)`")
_CODE_FOLLOWS = re.compile(r"^(?:::|\.\. code-block:: \w+)\n", re.MULTILINE)
_PARAMETER = re.compile(r"\s*:param (\w+):\s*")
_SENTENCE = re.compile(r"(?s)(.+?[.!?])(?:\s|$)")
_GIVEN = ("doc", "doc_md", "doc_rst", "doc_json", "doc_yaml")


def with_documentation(kind: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operator, with the documentation of its class where the DAG's author gave none."""
    given = {**(arguments.get("default_args") or {}), **arguments}
    if not any(given.get(name) for name in _GIVEN):
        arguments["doc_md"] = summary_of(kind)
    return arguments


@cache
def summary_of(kind: type) -> str:
    """Return the first sentence of a class's docstring as Markdown, and the link to the page of its arguments."""
    text, _ = documentation_of(kind)
    sentence = _SENTENCE.match(text)
    ours = next(one for one in kind.__mro__ if one.__module__.startswith(_OURS))
    base = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    address = f"{base}{PAGE}?name={quote(ours.__name__)}"
    return f"**{kind.__name__}**: {' '.join((sentence[1] if sentence else text).split())} [Arguments]({address})"


@cache
def documentation_of(kind: type) -> tuple[str, Mapping[str, str]]:
    """Return the docstring of a class, and what it says of each parameter: its own and those of all of ours above it.

    A class without one has that of the nearest of ours above it. Both are Markdown; examples are indented.
    """
    classes = [
        one for one in kind.__mro__ if one.__dict__.get("__doc__") and (one is kind or one.__module__.startswith(_OURS))
    ]
    text, own = _split(classes[0])
    parameters = dict(own)
    for one in classes[1:]:
        parameters = {**parameters, **{name: said for name, said in _split(one)[1].items() if name not in parameters}}
    return _markdown(text), {name: _markdown(said) for name, said in parameters.items()}


def _markdown(text: str) -> str:
    return _CODE_FOLLOWS.sub("", _ROLE.sub(r"`\1`", text)).replace("``", "`")


def _split(kind: type) -> tuple[str, Mapping[str, str]]:
    """Return a docstring without its parameters, and these."""
    kept: list[str] = []
    parameters: dict[str, str] = {}
    name = None
    for line in inspect.cleandoc(kind.__doc__ or "").splitlines():
        # Some docstrings name two on one line.
        parts = _PARAMETER.split(line)
        if len(parts) > 1:
            for name, meaning in zip(parts[1::2], parts[2::2], strict=True):
                parameters[name] = meaning.strip()
        elif name is not None and line.startswith(" "):
            parameters[name] = f"{parameters[name]} {line.strip()}"
        else:
            name = None
            kept.append(line)
    return "\n".join(kept).strip(), parameters
