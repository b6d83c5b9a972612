"""Adds to a setup.cfg what it cannot say, for both distributions: this file is linked in packaging/lakeindex.

Where one requires the other, it is the same release. Where the project stands is known to who publishes it
(``PROJECT_URL``): pages and pictures that a README names by their path are found there; without it a package index
shows dead links.
"""

import configparser
import os
import posixpath
import re
from pathlib import Path

from setuptools import setup

FOLDERS = {"airflow-provider-index": "", "lakeindex": "docs"}
"""Where the page stands that is each one's README: its links begin there."""
SISTER = re.compile(r"lakeindex(\[\w+\])?")


def text_of(name: str) -> str:
    return Path(name).read_text(encoding="utf-8")


def at_this_release(requirements: str) -> list[str]:
    """Return the lines of a list of setup.cfg, those of the other distribution at the version of this one."""
    (version,) = re.findall(r'^__version__ = "(.+)"', text_of("spark_apps/version.py"), re.MULTILINE)
    lines = [line for line in requirements.splitlines() if line and not line.startswith("#")]
    return [f"{line}=={version}" if SISTER.fullmatch(line) else line for line in lines]


def with_links(text: str, folder: str, url: str) -> str:
    """Return a page of the repository's folder with its links led to where the project stands."""

    def led(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"
        return f"{link[1]}[{link[2]}]({url}/{kind}/main/{posixpath.normpath(posixpath.join(folder, link[3]))})"

    return re.sub(r"(!?)\[([^]]*)\]\((?!\w+:|#)([^)]*)\)", led, text)


def published(folder: str, url: str) -> dict[str, object]:
    """Return what a package index shows of the project's own place."""
    pages = with_links(text_of("README.md"), folder, url), with_links(text_of("CHANGELOG.md"), "", url)
    return {
        "long_description": "\n\n".join(pages),
        "project_urls": {
            "Homepage": url,
            "Documentation": f"{url}/blob/main/docs/index.md",
            "Changelog": f"{url}/blob/main/CHANGELOG.md",
            "Source": url,
            "Issues": f"{url}/issues",
        },
    }


config = configparser.ConfigParser()
config.read("setup.cfg", encoding="utf-8")
where = os.environ.get("PROJECT_URL", "").rstrip("/")
setup(
    install_requires=at_this_release(config["options"]["install_requires"]),
    extras_require={name: at_this_release(lines) for name, lines in config["options.extras_require"].items()},
    **(published(FOLDERS[config["metadata"]["name"]], where) if where else {}),
)
