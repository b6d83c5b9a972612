"""Puts the classes of some jars under another package into a jar of their own, as a shading build would.

A class names others only in its constant pool, so it is enough to rewrite the text constants there; the code refers to
them by number. Standard library only: it runs in the environment of the peer that needs it.
"""

from __future__ import annotations

import os
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path

# Bytes behind the tag of an entry of the constant pool (JVM specification, 4.4); text (1) has its length before it.
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
_TEXT, _TWO_PLACES = 1, (5, 6)


def relocate(jars: Iterable[Path], package: str, prefix: str, target: Path) -> None:
    """Writes ``target`` with the classes of ``package`` (dotted) in ``jars``, renamed to begin with ``prefix``."""
    slashed, dotted = package.replace(".", "/").encode(), package.encode()
    above = prefix.replace(".", "/")
    renamed = ((slashed, f"{above}/".encode() + slashed), (dotted, f"{prefix}.".encode() + dotted))
    made = target.with_suffix(f".{os.getpid()}")
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as out:
        for jar in jars:
            with zipfile.ZipFile(jar) as source:
                for name in source.namelist():
                    if name.startswith(slashed.decode()) and name.endswith(".class"):
                        out.writestr(f"{above}/{name}", _renamed(source.read(name), renamed))
    made.replace(target)


def _renamed(code: bytes, renamed: Iterable[tuple[bytes, bytes]]) -> bytes:
    """A class file with names in its text constants replaced."""
    count = struct.unpack(">H", code[8:10])[0]
    parts, at, number = [code[:10]], 10, 1
    while number < count:
        tag = code[at]
        if tag == _TEXT:
            length = struct.unpack(">H", code[at + 1 : at + 3])[0]
            text = code[at + 3 : at + 3 + length]
            for old, new in renamed:
                text = text.replace(old, new)
            parts.append(struct.pack(">BH", tag, len(text)) + text)
            at += 3 + length
        else:
            parts.append(code[at : at + 1 + _SIZES[tag]])
            at += 1 + _SIZES[tag]
        number += 2 if tag in _TWO_PLACES else 1
    return b"".join([*parts, code[at:]])
