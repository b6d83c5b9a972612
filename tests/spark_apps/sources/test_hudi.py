"""Hudi tables where no session has Hudi's reader."""

from __future__ import annotations

import pytest

from spark_apps.engine.no_session import NO_SPARK
from spark_apps.sources.hudi import HudiTable
from spark_apps.storage.errors import EnvironmentMismatch, VersionNotFound


def test_given_no_session_with_hudi_then_its_table_is_refused_by_name(tmp_path):
    table = HudiTable(str(tmp_path), None, NO_SPARK, None)

    with pytest.raises(EnvironmentMismatch, match=r"The Hudi table .* is read by Hudi's reader in Spark alone"):
        table.listing()
    with pytest.raises(VersionNotFound, match="no instant of a Hudi table"):
        table.listing("yesterday")
