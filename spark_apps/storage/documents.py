"""Documents in JSON, and what has to be done before several threads read them."""

from __future__ import annotations

from typing import Any

import msgspec


def prepare(*kinds: Any) -> None:
    """Looks through types of documents, to be called by the module that defines them.

    Otherwise the first reading of a type does so, and where two threads do that at once msgspec ends the whole process
    by a segmentation fault. While a module is imported no other thread has its types.
    """
    for kind in kinds:
        msgspec.json.Decoder(kind)
