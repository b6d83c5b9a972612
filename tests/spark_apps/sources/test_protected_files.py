"""Files whose rows not everybody may read who may read an index."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow.parquet import encryption

from spark_apps import IndexedTable
from spark_apps.storage import errors
from tests.spark.local import session_with

pytestmark = pytest.mark.spark


class _OpenKeys(encryption.KmsClient):
    """Hides no key."""

    def wrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, key: bytes, _: str) -> bytes:
        return base64.b64decode(key)


def test_given_a_session_with_keys_and_encrypted_columns_then_no_index_copies_them_unasked(
    spark: Any, tmp_path: Path
) -> None:
    asked = encryption.EncryptionConfiguration("f", column_keys={"k": ["secret"]}, plaintext_footer=True)
    factory = encryption.CryptoFactory(lambda _: _OpenKeys())
    keys = factory.file_encryption_properties(encryption.KmsConnectionConfig(), asked)
    rows = pa.table({"secret": [1, 2, 3], "open": [4, 5, 6]})
    (tmp_path / "people").mkdir()
    with pq.ParquetWriter(tmp_path / "people" / "a.parquet", rows.schema, encryption_properties=keys) as writer:
        writer.write_table(rows)
    table = IndexedTable.register(spark, tmp_path / "people", schema="secret bigint, open bigint")

    with session_with(spark, {"parquet.crypto.factory.class": "org.apache.parquet.crypto.DecryptionPropertiesFactory"}):
        with pytest.raises(errors.PlainCopyRefused, match=r"people: its Parquet files are encrypted.*_indexes/people"):
            table.create_index("by_secret", "secondary", ["secret"])
        with pytest.raises(errors.InvalidInput, match="'allow_plain_copy' is 'yes'"):
            table.create_index("by_secret", "secondary", ["secret"], properties={"allow_plain_copy": "yes"})
    assert not table.indexes
