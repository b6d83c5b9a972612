"""Tells Airflow which texts to hide: every secret that a connection or an operator's argument holds.

Airflow hides by names of its own, which know neither Spark's settings nor what stands inside of a text. What is told
here it replaces by ``***`` in logs, rendered fields and whatever else it redacts.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk.log import mask_secret

from spark_apps.storage.secrets import secrets_in, secrets_in_statement


def mask_all(*held: Any) -> None:
    """Has Airflow hide every secret in these objects and texts from here on."""
    for one in held:
        found = secrets_in(one)
        if isinstance(one, str):
            found += secrets_in_statement(one)
        for secret in dict.fromkeys(found):
            mask_secret(secret)


class MaskedFields:
    """Mixed into operators and sensors: has Airflow hide the secrets of template fields as soon as they are set, by the
    DAG or by rendering, and so before Airflow stores them as rendered."""

    template_fields: Any

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.template_fields and isinstance(value, str | dict | list | tuple):
            mask_all(value)
        super().__setattr__(name, value)
