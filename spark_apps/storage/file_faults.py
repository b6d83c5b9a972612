"""Reasons for which a file cannot be read: a column of another type, a codec, a checksum, encryption, damage.

They are distinguished by the messages of Spark and Arrow: what is none of the others is damage, or another format. Each
sort has its own hint on what to do.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Sort = Literal["type", "codec", "checksum", "encryption", "damage"]

_OWNER = "Have the owner of the source write the file again or remove it; load the table again then."


@dataclass(frozen=True)
class FileFault:
    """A reason for which a file cannot be read.

    :param what: what the file is or has: the end of a sentence that begins with its name.
    :param hint: what to do about a file of a source.
    :param column: the column of another type, where one is named.
    """

    sort: Sort
    what: str
    hint: str
    column: str | None = None


# What Spark's readers say where a column of a file has another type than the table's.
_TYPES = (
    re.compile(
        r"Data type mismatches when reading Parquet column [`\[<]*(?P<column>[^`\n]*?)[`\]>]*[.,] "
        r"Expected Spark type (?P<wanted>[^\n]*?), actual Parquet type (?P<found>[^\n.]*)"
    ),
    re.compile(r"Column: \[(?P<column>[^\n]*?)\], Expected: (?P<wanted>[^\n]*?), Found: (?P<found>[^\n.]*)"),
    re.compile(
        r"Unable to create a? ?Parquet converter for (?:the )?data type \"?(?P<wanted>[^\n\"]*?)\"? "
        r"whose Parquet type is (?:(?:optional|required|repeated) )?(?P<found>\S+) (?P<column>[^\n]*?)"
        r"(?: \(|\.|\n|$)"
    ),
    re.compile(r"Unable to convert (?P<found>[^\n]*?) of [^\n]*?column (?P<column>\S+) to (?P<wanted>\S+)"),
)
_OTHER_TYPE = re.compile(
    r"SchemaColumnConvertNotSupportedException|PARQUET_COLUMN_DATA_TYPE_MISMATCH|CANNOT_CONVERT_PARQUET"
    r"|PARQUET_CONVERSION_FAILURE|class org\.apache\.spark\.sql\.catalyst\.expressions\.Mutable"
    r"|SchemaEvolution\$IllegalEvolution"
)
_CODEC = re.compile(
    r"[Cc]odec '?(?P<arrow>\w+)'? not built|[Cc]lass (?P<java>[\w.$]*[Cc]odec) was not found"
    r"|[Cc]odec (?P<other>\w+) is not supported|Unsupported.{0,40}codec:? ?(?P<more>\w*)|CODEC_NOT_AVAILABLE"
    r"|UnsatisfiedLinkError"
)
_CHECKSUM = re.compile(
    r"CRC checksum verification failed|could not verify page integrity|ChecksumException|Checksum error", re.IGNORECASE
)
_ENCRYPTED = re.compile(
    r"ParquetCrypto|KeyAccessDenied|[Ee]ncrypted footer|encrypted column|No keys available|no decryption found"
    r"|decryption|is encrypted|are encrypted|cryptographic|PARE\b",
)


def fault_of(text: str) -> FileFault:
    """Return why a file cannot be read, by all that was said of it, causes included."""
    for pattern in _TYPES:
        match = pattern.search(text)
        if match is not None:
            return other_type(match["column"].strip("[]`\"' "), match["wanted"].strip(), match["found"].strip())
    if _OTHER_TYPE.search(text):
        return other_type(None, None, None)
    if _ENCRYPTED.search(text):
        return FileFault(
            "encryption", "is encrypted",
            "A file that is encrypted can be read with its keys alone, which this package is not given: have its owner "
            "write it without encryption, or leave it out.",
        )  # fmt: skip
    match = _CODEC.search(text)
    if match is not None:
        name = next((value for value in match.groupdict().values() if value), "")
        said = f"is compressed by a codec that its reader does not have{f' ({name})' if name else ''}"
        return FileFault(
            "codec", said,
            "The file is whole: install the codec where it is read, or have it written with another one, such as zstd "
            "or snappy.",
        )  # fmt: skip
    if _CHECKSUM.search(text):
        return FileFault(
            "checksum", "holds bytes that do not have the checksum which was written with them",
            f"It was damaged since it was written: bring it back from a copy. {_OWNER}",
        )  # fmt: skip
    return FileFault("damage", "is damaged, encrypted, or of another format", _OWNER)


def other_type(column: str | None, wanted: str | None, found: str | None) -> FileFault:
    """Return the fault of a file that holds a column as another type than the table has it.

    :param wanted: the table's type. :param found: that of the file.
    """
    which = "a column" if column is None else f"the column {column!r}"
    types = "of another type than the table's" if wanted is None else f"as {found}, which the table has as {wanted}"
    return FileFault(
        "type", f"is whole, and holds {which} {types}",
        "Files of one source must agree: have the owner write the column with one type, or register the files of each "
        "type as a source of their own (a glob names some); or register again with schema=… that gives the column the "
        "wider of the types, which Spark reads the narrower as.",
        column,
    )  # fmt: skip
