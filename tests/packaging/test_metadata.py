"""What a package index shows of a release: who it is for, where the project stands, what has changed."""

from __future__ import annotations

import email
import re
import tarfile
import zipfile
from email.message import Message

import pytest

from spark_apps.jobs.environment import LIBRARIES
from spark_apps.version import __version__
from tests.packaging.building import ROOT, Built, build, copy_sources

URL = "https://forge.example/lake/airflow-provider-index"


NOT_ON_CLUSTERS = ("click", "pyyaml")
"""What reads the command line, and the policies of maintenance."""

# One build serves all of them, and takes longer than they do.
pytestmark = pytest.mark.by_turn(4, together=12)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Built, Built]:
    return build(copy_sources(tmp_path_factory.mktemp("source")), URL)


@pytest.fixture(params=["airflow-provider-index", "lakeindex"])
def metadata(built: tuple[Built, Built], request: pytest.FixtureRequest) -> Message:
    return metadata_of(built[request.param == "lakeindex"])


def metadata_of(built: Built) -> Message:
    archive = zipfile.ZipFile(built.wheel)
    (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(archive.read(name))


def test_both_have_one_version_and_the_one_for_airflow_requires_the_other_at_it(built: tuple[Built, Built]) -> None:
    provider, lake = map(metadata_of, built)
    required = provider.get_all("Requires-Dist") or []
    sisters = [line for line in required if line.startswith("lakeindex")]

    assert (provider["Version"], lake["Version"]) == (__version__, __version__)
    assert f"lakeindex=={__version__}" in sisters
    extras = {*(lake.get_all("Provides-Extra") or [])}
    assert extras == {"spark", "lake", "sql", "jdk"}
    assert {*sisters[1:]} == {f'lakeindex[{name}]=={__version__}; extra == "{name}"' for name in extras}


def test_the_lake_s_asks_for_what_a_cluster_needs_and_for_what_reads_its_command_line(
    built: tuple[Built, Built],
) -> None:
    always = [line for line in metadata_of(built[1]).get_all("Requires-Dist") or [] if "extra ==" not in line]

    assert {re.split("[<>=]", line)[0] for line in always} == {*LIBRARIES, *NOT_ON_CLUSTERS}
    [shown] = re.findall(
        r"<!-- lakeindex libraries -->\n\n```text\n(.*?)```", (ROOT / "docs/install.md").read_text(), re.DOTALL
    )
    assert shown.split() == sorted(line for line in always if not line.startswith(NOT_ON_CLUSTERS))


def test_it_says_for_whom_on_what_and_under_which_licence(metadata: Message) -> None:
    said = metadata.get_all("Classifier") or []

    assert metadata["License-Expression"] == "Apache-2.0" and metadata["License-File"] == "LICENSE"
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in (11, 12, 13)} <= {*said}
    for kind in ("Development Status", "Intended Audience", "Operating System"):
        assert any(line.startswith(kind) for line in said), kind
    assert any(line.startswith("Framework :: Apache Airflow") for line in said) is (metadata["Name"] != "lakeindex")


def test_its_pages_pictures_and_links_are_where_the_project_stands(metadata: Message) -> None:
    urls = dict(line.split(", ") for line in metadata.get_all("Project-URL") or [])
    text = str(metadata.get_payload())

    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Source", "Issues"}
    assert all(address.startswith(URL) for address in urls.values())
    assert re.findall(r"\]\((?!\w+:|#)[^)]*\)", text) == []
    assert f"]({URL}/blob/main/docs/install.md)" in text
    assert (f"]({URL}/raw/main/docs/images/" in text) is (metadata["Name"] != "lakeindex")
    for name in re.findall(rf"{URL}/(?:raw|blob)/main/([^)#\s]+)", text):
        assert (ROOT / name).exists(), name


def test_it_tells_what_has_changed(metadata: Message) -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()

    assert next(line for line in changes if line.startswith("## ")) in str(metadata.get_payload())


def test_the_source_distributions_have_what_builds_and_explains_the_packages(built: tuple[Built, Built]) -> None:
    provider, lake = map(names_in, built)

    assert {"CHANGELOG.md", "LICENSE", "README.md", "setup.cfg", "setup.py"} <= provider & lake
    assert {"airflow_provider_index/ui/templates/base.html", "docs/install.md", "spark_apps/version.py"} <= provider
    assert "spark_apps/optimizer/index_rule.java" in lake
    assert not [name for name in lake if "airflow_provider_index" in name]


def names_in(built: Built) -> set[str]:
    with tarfile.open(built.archive) as archive:
        assert all(entry.isfile() or entry.isdir() for entry in archive), "a link leads nowhere once it is unpacked"
        return {name.partition("/")[2] for name in archive.getnames()}
