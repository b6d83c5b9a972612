"""The operator that changes how many buckets partitions have, by rule, while writing stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider_index.operators.base import SparkTableOperator


class BucketRescaleOperator(SparkTableOperator):
    """Gives every partition the bucket count that the rules say, and keeps the rules for partitions to come.

    Partitions that have their count already are left alone. Without ``window`` the app opens a stop-write
    window of its own and closes it; with one it works inside it.

    :param buckets: the count where no expression matches.
    :param bucket_rule: how the expressions are read: ``regex``.
    :param bucket_expressions: ``pattern,count`` pairs joined by ``;``; the first that matches a partition's
        path wins.

    With ``plan_only`` it returns the partitions with counts from and to, files and bytes, and changes
    nothing.
    """

    program = "rescale_buckets"
    can_plan = True
    template_fields: Sequence[str] = (
        *SparkTableOperator.template_fields,
        "buckets",
        "bucket_rule",
        "bucket_expressions",
    )

    def __init__(
        self,
        *,
        buckets: int | str,
        bucket_rule: str = "regex",
        bucket_expressions: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.buckets = buckets
        self.bucket_rule = bucket_rule
        self.bucket_expressions = bucket_expressions

    def arguments(self) -> dict[str, Any]:
        return {
            "buckets": int(self.buckets),
            "bucket_rule": self.bucket_rule,
            "bucket_expressions": self.bucket_expressions or None,
        }
