"""The session that the tests of this folder share has the connectors' classes."""

from __future__ import annotations


def test_given_the_session_then_its_connectors_write_and_read(spark, connectors, tmp_path):
    for name in connectors & {"delta"}:
        spark.range(3).write.format(name).save(str(tmp_path / name))
        assert spark.read.format(name).load(str(tmp_path / name)).count() == 3
