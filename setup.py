"""Adds to setup.cfg what only who publishes knows: where the project stands (``PROJECT_URL``).

Pages and pictures that the README names by their path are found there; without it a package index shows dead links.
"""

import os
import re
from pathlib import Path

from setuptools import setup


def metadata(url: str) -> dict[str, object]:
    text = "\n\n".join(Path(name).read_text(encoding="utf-8") for name in ("README.md", "CHANGELOG.md"))
    text = re.sub(r"!\[([^]]*)\]\((?!\w+:)", rf"![\1]({url}/raw/main/", text)
    return {
        "long_description": re.sub(r"(?<!!)\[([^]]*)\]\((?!\w+:|#)", rf"[\1]({url}/blob/main/", text),
        "project_urls": {
            "Homepage": url,
            "Documentation": f"{url}/blob/main/docs/index.md",
            "Changelog": f"{url}/blob/main/CHANGELOG.md",
            "Source": url,
            "Issues": f"{url}/issues",
        },
    }


where = os.environ.get("PROJECT_URL", "").rstrip("/")
setup(**(metadata(where) if where else {}))
