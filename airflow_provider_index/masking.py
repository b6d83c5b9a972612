"""Gives Airflow the texts to hide: every secret that a connection or an operator's argument holds.

Airflow hides by names of its own, which know neither Spark's settings nor secrets inside of a text. Every text
that it gets from this module it replaces by ``***`` in logs, rendered fields and whatever else it redacts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow.sdk.log import mask_secret

from spark_apps.storage.secrets import secrets_in

SECRET = "secret_"
"""Begins the names of a connection's extra whose values Airflow's API shows to nobody, whatever they hold: it goes by
names, and hides those with ``secret`` in them."""


def shown_by_airflow(extra: Mapping[str, Any], *names: str) -> str:
    """Return a sentence about secrets that Airflow's connection API shows to readers of connections; empty for none."""
    exposed = [name for name in names if secrets_in({name: _read(extra.get(name))})]
    if not exposed:
        return ""
    better = ", ".join(SECRET + name for name in exposed)
    return f" Airflow's API shows the secrets in {', '.join(exposed)}: move them to {better}."


def _read(value: Any) -> Any:
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def mask_all(*secrets: Any) -> None:
    """Let Airflow hide every secret in these objects and texts from now on."""
    for one in secrets:
        for secret in secrets_in(one):
            mask_secret(secret)


class MaskedFields:
    """A part of operators and sensors that has Airflow hide the secrets of template fields.

    They are hidden as soon as they are set, by the DAG or by rendering, and so before Airflow stores them as rendered.
    """

    template_fields: Any

    def __setattr__(self, name: str, value: Any) -> None:
        if name in type(self).template_fields and isinstance(value, str | dict | list | tuple):
            mask_all(value)
        super().__setattr__(name, value)
