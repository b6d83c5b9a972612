"""Types for the fields of everything that is read from a table's folder: what they may hold.

A writer to that folder can write anything there: a path of a file of another owner, a number that fills the memory, a
name that is a path. So every field has one of these types, which each decoding checks
(:mod:`spark_apps.storage.documents`), for readers, writers, Spark, workers, triggerer, page and cleaner alike. What
several fields hold together is checked by :mod:`spark_apps.timeline.validation`; how large a document may be is in
:mod:`spark_apps.timeline.limits`.
"""

from __future__ import annotations

import re
from typing import Annotated

from msgspec import Meta

from spark_apps.storage.documents import text
from spark_apps.timeline.limits import MAX_BUCKETS

# --- numbers ----------------------------------------------------------------------------------------------------------

_INT64 = 2**63 - 1
_LAST_MOMENT = 253_402_300_799  # 9999-12-31T23:59:59, the last that a calendar in Python knows

LAST_VERSION = 10**18
Version = Annotated[int, Meta(ge=0, le=LAST_VERSION)]
VersionOrNone = Annotated[int, Meta(ge=-1, le=LAST_VERSION)]
"""A version, or -1 for "none"."""
Count = Annotated[int, Meta(ge=0, le=_INT64)]
Rows = Annotated[int, Meta(ge=-1, le=10**15)]
"""-1: the format has no count."""
Bytes = Annotated[int, Meta(ge=0, le=10**15)]
"""Of a file: a petabyte at most, so that sums stay numbers that every engine knows."""
Buckets = Annotated[int, Meta(ge=1, le=MAX_BUCKETS)]
Moment = Annotated[float, Meta(ge=0, le=_LAST_MOMENT)]
"""Seconds since 1970."""
Seconds = Annotated[float, Meta(ge=0, le=_LAST_MOMENT)]

# --- text -------------------------------------------------------------------------------------------------------------

_PRINTED = r"[^\x00-\x1f\x7f]"
_NAME = r"[A-Za-z_][A-Za-z0-9_\-]{0,127}"
# What a partition's path escapes is never in it unescaped.
_PART = r"[^\x00-\x1f\x7f\"#'*/:=?\\\[\]{^]"
# Of keys that this package makes: the same file in every reader, and no segment that leads upwards.
_SEGMENTS = r"(?:/[A-Za-z0-9_=\-][A-Za-z0-9_=.\-]*)+"
_OWN_KEY = rf"(?:data|_index/indexes){_SEGMENTS}"
_ADDRESS = r"[a-z][a-z0-9+.\-]{1,15}://(?!.*/\.\.?(?:/|\Z))[^\x00]+"

Instant = Annotated[
    str,
    text(
        "an instant (yyyyMMddHHmmssSSS)",
        # Logs hold a second 60 where two hashing files of one millisecond had to differ.
        r"(?:19[7-9][0-9]|[2-9][0-9]{3})(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])"
        r"(?:[01][0-9]|2[0-3])[0-5][0-9](?:[0-5][0-9]|60)[0-9]{3}",
        17,
    ),
]
ConfigInstant = Annotated[str, text("an instant (17 digits)", r"[0-9]{17}", 17)]
InstantOrNone = Annotated[str, text("an instant (17 digits), or nothing", r"(?:[0-9]{17})?", 17)]
TxnId = Annotated[str, text("a transaction id", rf"(?:(?![/\\]){_PRINTED})+", 256)]
FolderTxnId = Annotated[str, text("a transaction id", r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9._\-]{0,127}", 128)]
"""Of a transaction that has a folder of that name."""
Name = Annotated[str, text("a name of letters, digits, '_' and '-'", _NAME, 128)]
Id = Annotated[str, text("an id of letters, digits, '.', '_' and '-'", r"[A-Za-z0-9._\-]+", 128)]
Feature = Annotated[str, text("the name of a feature", r"[a-z][a-z0-9._\-]*", 64)]
Token = Annotated[str, text("a token of letters and digits", r"[A-Za-z0-9]+", 64)]
Hash = Annotated[str, text("a hash in hexadecimal digits", r"[0-9a-f]+", 64)]
Tree = Annotated[str, text("the name of a merge tree", rf"data|tombstones|index/{_NAME}@[A-Za-z0-9._\-]{{1,128}}", 300)]
ScopeName = Annotated[
    str, text("the name of an index or a merge tree", rf"{_NAME}|data|index/{_NAME}@[A-Za-z0-9._\-]{{1,128}}", 300)
]
Group = Annotated[str, text("the id of a file group", rf"(?:(?![/\\]){_PRINTED})*", 256)]
Partition = Annotated[
    str, text("the path of a partition (column=value/…)", rf"(?:{_PART}+={_PART}*(?:/{_PART}+={_PART}*)*)?", 16_384)
]
OperationName = Annotated[str, text("the name of an operation", rf"{_PRINTED}*", 256)]
Words = Annotated[str, Meta(max_length=100_000)]
"""Words of people: reasons, holders, comments."""
Label = Annotated[str, Meta(max_length=4096)]
"""A column, a kind, a key of properties: names that others may make as they like."""
Setting = Annotated[str, Meta(max_length=10_000_000)]
"""A property's value: some are schemas, or bounds of ranges."""
TypeText = Annotated[str, Meta(max_length=1_000_000)]
Short = Annotated[str, Meta(max_length=16_384)]
"""A text of which there are millions: it is matched with its pattern by :mod:`spark_apps.timeline.validation`, which
checks the same text once."""
ConfigPath = Annotated[
    str, text("a hashing config of the table", r"_index/hashing/config/[0-9]{17}\.hashing_config", 100)
]
MetaPath = Annotated[str, text("a hashing meta of the table", r"_index/hashing/meta/[0-9]{17}\.hashing_meta", 100)]
SidecarPath = Annotated[str, text("a sidecar of the table", r"_index/sidecars/[0-9a-f]{32}\.parquet", 100)]

INDEX_FILES = "_index/indexes/"
KEY_CHARACTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_=.-/"
KEY_NAME = re.compile(r"[A-Za-z0-9_=\-][A-Za-z0-9_=.\-]*")
FILE_PATH = re.compile(rf"(?:{_OWN_KEY}|{_ADDRESS})")
"""A key below ``data/`` or ``_index/indexes/``, or the address of a source's file."""
TREE, PARTITION, GROUP = (re.compile(kind.__metadata__[0].pattern) for kind in (Tree, Partition, Group))  # type: ignore[attr-defined]
