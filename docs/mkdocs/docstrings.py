"""Turns what docstrings and signatures have for other tools into what people read, for the reference of the site."""

from __future__ import annotations

import re
from typing import Any

from griffe import Expr, ExprSubscript, ExprTuple, Extension, Function, Object

_ROLE = re.compile(r":(?:class|meth|func|mod|data|attr|exc):`~?([\w.]+)`")


class PlainDocstrings(Extension):
    """Gives each docstring in Markdown."""

    def on_instance(self, *, node: Any, obj: Object, **_: Any) -> None:
        """Rewrite the docstring of one module, class, function or attribute."""
        if obj.docstring is None:
            return
        text = _ROLE.sub(lambda match: f"`{match[1].rpartition('.')[2]}`", obj.docstring.value)
        text = re.sub(r"(?m)^(?:::|\.\. code-block:: \w+)\n", "", text)  # Markdown knows code by its indent
        text = re.sub(r"``([^`]+)``", r"`\1`", text)
        # Some describe two parameters on one line.
        text = re.sub(r"(?<=\S) (:(?:param|raises) [\w]+:)", r"\n\1", text)
        obj.docstring.value = text

    def on_function_instance(self, *, func: Function, **_: Any) -> None:
        """Show of ``Annotated[type, reader]`` the type."""
        for parameter in func.parameters:
            parameter.annotation = _plain(parameter.annotation)


def _plain(annotation: str | Expr | None) -> str | Expr | None:
    if isinstance(annotation, ExprSubscript) and annotation.canonical_name == "Annotated":
        parts = annotation.slice
        return parts.elements[0] if isinstance(parts, ExprTuple) else parts
    return annotation
