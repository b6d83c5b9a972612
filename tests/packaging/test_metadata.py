"""What a package index shows of a release: who it is for, where the project stands, what has changed."""

from __future__ import annotations

import email
import re
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from tests.packaging.building import ROOT, build, copy_sources

URL = "https://forge.example/lake/airflow-provider-index"


# One wheel serves all of them, and takes longer than they do.
pytestmark = pytest.mark.by_turn(4, together=9)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(copy_sources(tmp_path_factory.mktemp("source")), URL)


@pytest.fixture(scope="module")
def metadata(built: tuple[Path, Path]) -> Message:
    archive = zipfile.ZipFile(built[0])
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(archive.read(name))


def test_it_says_for_whom_on_what_and_under_which_licence(metadata: Message) -> None:
    said = metadata.get_all("Classifier") or []

    assert metadata["License-Expression"] == "Apache-2.0" and metadata["License-File"] == "LICENSE"
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= {*said}
    for kind in ("Development Status", "Intended Audience", "Operating System", "Framework :: Apache Airflow"):
        assert any(line.startswith(kind) for line in said), kind


def test_its_pages_pictures_and_links_are_where_the_project_stands(metadata: Message) -> None:
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL") or [])
    text = str(metadata.get_payload())

    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Source", "Issues"}
    assert all(address.startswith(URL) for address in urls.values())
    assert re.findall(r"\]\((?!\w+:|#)[^)]*\)", text) == []
    assert f"]({URL}/raw/main/docs/images/" in text and f"]({URL}/blob/main/docs/install.md)" in text
    for name in re.findall(rf"{URL}/(?:raw|blob)/main/([^)#\s]+)", text):
        assert (ROOT / name).exists(), name


def test_it_tells_what_has_changed(metadata: Message) -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()

    assert next(line for line in changes if line.startswith("## ")) in str(metadata.get_payload())


def test_the_source_distribution_has_what_builds_and_explains_the_package(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert {"CHANGELOG.md", "LICENSE", "README.md", "setup.cfg", "setup.py", "docs/install.md"} <= names
    assert {"spark_apps/optimizer/index_rule.java", "airflow_provider_index/ui/templates/base.html"} <= names
