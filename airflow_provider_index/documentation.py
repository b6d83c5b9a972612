"""Shows what a class is for in Airflow's interface: its docstring as the Markdown of the task's documentation."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

_ROLE = re.compile(r":\w+:`~?(?:[^`<]*\.)?([^`.]+)`")
_PARAMETER = re.compile(r"\s*:param (\w+):\s*")
_GIVEN = ("doc", "doc_md", "doc_rst", "doc_json", "doc_yaml")


def with_documentation(kind: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments of an operator, with the documentation of its class where the DAG's author gave none."""
    if not any(arguments.get(name) for name in _GIVEN):
        arguments["doc_md"] = markdown_of(kind)
    return arguments


@cache
def markdown_of(kind: type) -> str:
    """The docstring of a class, or of the nearest of ours above it, with the parameters of all of ours, as Markdown."""
    classes = [
        one
        for one in kind.__mro__
        if one.__dict__.get("__doc__") and (one is kind or one.__module__.startswith("airflow_provider_index."))
    ]
    text, own = _split(classes[0])
    inherited: dict[str, str] = {}
    for one in classes[1:]:
        inherited.update({name: said for name, said in _split(one)[1].items() if name not in inherited})
    parameters = {**own, **{name: said for name, said in inherited.items() if name not in own}}
    lines = [f"- `{name}`: {said}" for name, said in parameters.items()]
    return _plain("\n\n".join([f"**{kind.__name__}**: {text}", *(["\n".join(lines)] if lines else [])]))


def _split(kind: type) -> tuple[str, Mapping[str, str]]:
    """A docstring without its parameters, and these."""
    kept: list[str] = []
    found: dict[str, str] = {}
    name = None
    for line in inspect.cleandoc(kind.__doc__ or "").splitlines():
        # Some docstrings name two on one line.
        parts = _PARAMETER.split(line)
        if len(parts) > 1:
            for name, said in zip(parts[1::2], parts[2::2], strict=True):
                found[name] = said.strip()
        elif name is not None and line.startswith(" "):
            found[name] = f"{found[name]} {line.strip()}"
        else:
            name = None
            kept.append(line)
    return "\n".join(kept).strip(), found


def _plain(text: str) -> str:
    return _ROLE.sub(r"`\1`", text).replace("``", "`")
