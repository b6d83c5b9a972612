"""Which Spark the tests run on, for those few that are of something which came with a later release."""

from __future__ import annotations

import pyspark
import pytest

from spark_apps.storage.supported import spark_release

SPARK = spark_release(pyspark.__version__)[:2]


def since(major: int, minor: int, what: str) -> pytest.MarkDecorator:
    """Leave a test out on a Spark that lacks what it is of."""
    return pytest.mark.skipif((major, minor) > SPARK, reason=f"Spark {major}.{minor} brought {what}")
