"""Where sources lie and where their logs do: addresses, globs, and the default place of a log.

A registered source may be overwritten by its owner, so its log stands beside it, in ``<parent>/_indexes/<name>``, or
below a root of the user's. Nothing here touches the source.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from spark_apps.storage.errors import InvalidInput, InvalidName
from spark_apps.storage.names import check_name
from spark_apps.storage.store import Store

INDEXES = "_indexes"
_GLOB_CHARS = re.compile(r"[*?\[{]")


@dataclass(frozen=True)
class Location:
    """An address, normalised.

    :param uri: a local path without scheme, or ``s3://…`` and its kin; with the pattern, where there is one.
    :param base: the part before the first segment that is a pattern.
    :param pattern: the rest, ``None`` for a plain folder or file.
    """

    uri: str
    base: str
    pattern: str | None = None

    @property
    def is_local(self) -> bool:
        return "://" not in self.uri

    @property
    def parent(self) -> str:
        """The folder that ``base`` lies in. :raises InvalidInput: if there is none."""
        head, _, name = self.base.rstrip("/").rpartition("/")
        if not name or head.endswith("/") or (self.is_local and not head):
            raise InvalidInput(
                f"{self.uri} lies in no folder that its log could stand in.", hint="Give index_root=…, a folder for it."
            )
        return head

    @property
    def name(self) -> str:
        """A name for it, one a location."""
        last = self.base.rstrip("/").rpartition("/")[2]
        plain = re.sub(r"[^A-Za-z0-9_\-]", "-", last)[:100]
        plain = plain if plain[:1].isalpha() or plain[:1] == "_" else f"t{plain}"
        if plain == last and self.pattern is None:
            return plain
        return f"{plain}-{hashlib.blake2b(self.uri.encode(), digest_size=4).hexdigest()}"

    def default_log(self, index_root: str | None = None, name: str | None = None) -> str:
        """The folder of the log. :raises InvalidName: :raises InvalidInput:"""
        root = f"{self.parent}/{INDEXES}" if index_root is None else Store(index_root).uri
        return f"{root.rstrip('/')}/{check_name('table', name) if name is not None else self.name}"


def locate(uri: str | os.PathLike[str]) -> Location:
    """The location of an address, which may be a glob with ``* ? [] {}``.

    A local path that exists as it is written is no glob, whatever characters it holds.

    :raises InvalidName: if the address cannot be understood.
    """
    text = os.fspath(uri)
    if not text or text != text.strip():
        raise InvalidName(f"{text!r} cannot be a location.", hint="Give a path or a URI.")
    plain = "://" not in text and not text.startswith("file:")
    if not _GLOB_CHARS.search(text) or (plain and Path(text).exists()):
        whole = Store(text).uri
        return Location(whole, whole)
    scheme, sign, rest = text.partition("://")
    if not sign:
        scheme, rest = "", text
    segments = rest.split("/")
    first = next(n for n, segment in enumerate(segments) if _GLOB_CHARS.search(segment))
    head = "/".join(segments[:first])
    base = Store(f"{scheme}{sign}{head}" if sign else (head or ("/" if rest.startswith("/") else "."))).uri.rstrip("/")
    pattern = "/".join(segments[first:]).strip("/")
    return Location(f"{base}/{pattern}", base, pattern)
