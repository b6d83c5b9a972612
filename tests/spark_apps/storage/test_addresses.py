"""Addresses never show a password, a token or a signature: in errors, on the page, in links."""

from __future__ import annotations

import pytest

from spark_apps.storage.errors import StorageUnavailable
from spark_apps.storage.secrets import hide_address

SHOWN = {
    "s3://key:hunter22@bucket/lake": "s3://key:***@bucket/lake",
    "https://ghp0123456789@host/lake": "https://***@host/lake",
    "https://a.blob.core.windows.net/c?sv=1&sig=ab%2Fc&se=2": "https://a.blob.core.windows.net/c?sv=1&sig=***&se=2",
    "https://h/x?token=abcd1234#y": "https://h/x?token=***#y",
    "gs://b/x?X-Goog-Signature=00ff&a=1": "gs://b/x?X-Goog-Signature=***&a=1",
    "ftp://user:p@ss:w/rd@host/x": "ftp://user:***@host/x",
    "abfss://container@account.dfs.core.windows.net/lake": "abfss://container@account.dfs.core.windows.net/lake",
    "hdfs://nn:8020/lake": "hdfs://nn:8020/lake",
    "s3://bucket/lake/dt=2024-01-01/a=b": "s3://bucket/lake/dt=2024-01-01/a=b",
    "/data/lake?x=1": "/data/lake?x=1",
}


@pytest.mark.parametrize("address", SHOWN)
def test_given_an_address_then_it_is_shown_without_its_secrets(address: str) -> None:
    assert hide_address(address) == SHOWN[address]
    assert SHOWN[address] in str(StorageUnavailable(f"The store failed to get {address}.", hint=f"Look at {address}."))
