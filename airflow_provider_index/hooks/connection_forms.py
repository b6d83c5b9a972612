"""Connection forms for Airflow before 3.2, which asks each hook's class for its form.

Newer ones read the same form from the provider info, and warn of these methods.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, TypeVar

from airflow_provider_index.airflow_version import airflow_version

_FIRST_WITHOUT = (3, 2)

H = TypeVar("H", bound=type)


def with_form(hook: H) -> H:
    """Give the class of a hook the methods that return its form, where this Airflow asks for them."""
    if airflow_version() >= _FIRST_WITHOUT:
        return hook
    conn_type = hook.conn_type  # type: ignore[attr-defined]
    hook.get_connection_form_widgets = staticmethod(lambda: _widgets(_declared(conn_type)["conn-fields"]))  # type: ignore[attr-defined]
    hook.get_ui_field_behaviour = staticmethod(  # type: ignore[attr-defined]
        lambda: {name.replace("-", "_"): value for name, value in _declared(conn_type)["ui-field-behaviour"].items()}
    )
    return hook


def _declared(conn_type: str) -> Mapping[str, Any]:
    """Return what the provider info says of a connection type."""
    from airflow_provider_index.provider_info import get_provider_info

    types = get_provider_info()["connection-types"]
    return next(one for one in types if one["connection-type"] == conn_type)


def _widgets(fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    # No requirement: Airflow puts classes of its own in the place of these, also where wtforms is not installed.
    forms, validators = import_module("wtforms"), import_module("wtforms.validators")
    widgets = {}
    for name, field in fields.items():
        schema = field["schema"]
        kind = forms.PasswordField if schema.get("format") == "password" else forms.StringField
        allowed = [validators.any_of(schema["enum"])] if "enum" in schema else []
        widgets[name] = kind(
            field["label"],
            validators=[validators.Optional(), *allowed],
            description=field.get("description", ""),
            default=schema.get("default"),
        )
    return widgets
