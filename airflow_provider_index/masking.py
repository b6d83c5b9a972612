"""Tells Airflow which texts to hide: every secret that a connection or an operator's argument holds.

Airflow hides by names of its own, which know neither Spark's settings nor what stands inside of a text. What is told
here it replaces by ``***`` in logs, rendered fields and whatever else it redacts.
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
    """A sentence about secrets that Airflow's connection API shows to who may read connections; empty for none."""
    held = [name for name in names if secrets_in({name: _read(extra.get(name))})]
    if not held:
        return ""
    better = ", ".join(SECRET + name for name in held)
    return f" Airflow's API shows the secrets in {', '.join(held)}: move them to {better}."


def _read(told: Any) -> Any:
    try:
        return json.loads(told) if isinstance(told, str) else told
    except ValueError:
        return told


def mask_all(*held: Any) -> None:
    """Has Airflow hide every secret in these objects and texts from here on."""
    for one in held:
        for secret in secrets_in(one):
            mask_secret(secret)


class MaskedFields:
    """Mixed into operators and sensors: has Airflow hide the secrets of template fields as soon as they are set, by the
    DAG or by rendering, and so before Airflow stores them as rendered."""

    template_fields: Any

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.template_fields and isinstance(value, str | dict | list | tuple):
            mask_all(value)
        super().__setattr__(name, value)
