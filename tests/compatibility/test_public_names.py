"""Names that others wrote down, in DAGs, in plugins, in Airflow's database, mean what they did; without Spark.

``names.json`` holds them as they were before names in the code were changed. They are looked up as an import does, so
that a name handed on from elsewhere will do.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.airflow_provider_index.every_argument import surface
from tests.compatibility import observed
from tests.compatibility.recording import HERE, documented, everything, lacks, pages, public, resolve
from tests.compatibility.write_names import described

WRITTEN: dict[str, Any] = json.loads((HERE / "names.json").read_text(encoding="utf-8"))
EVENTS = ("CommitEventTrigger", "SourceEventTrigger")


def test_every_name_of_before_is_there_and_takes_what_it_took() -> None:
    faults: list[str] = []
    for name, before in WRITTEN["names"].items():
        try:
            faults += lacks(before, described(name), name)
        except (ImportError, AttributeError) as error:
            faults.append(f"{name}: {error}")
    assert faults == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_dotted_name_that_a_page_tells_of_can_be_imported(page: Path) -> None:
    missing = []
    for name in sorted(documented(page.read_text(encoding="utf-8"))):
        try:
            resolve(name)
        except (ImportError, AttributeError) as error:
            missing.append(f"{name}: {error}")
    assert missing == []


def test_what_goes_to_xcom_of_reports_and_plans_has_its_names() -> None:
    everything()
    known = [set(public(kind).get("has", ())) for kind in _classes(object)]
    missing = [name for name, members in WRITTEN["reports"].items() if not any(set(members) <= one for one in known)]
    assert missing == []


def test_a_deferred_task_of_before_finds_its_trigger_and_its_arguments() -> None:
    """A task that was deferred holds the path of its trigger's class, and its arguments."""
    assert set(WRITTEN["triggers"]) >= {*EVENTS, "JobTrigger", "TableCommitTrigger", "WritersDrainedTrigger"}
    for name, (path, arguments) in WRITTEN["triggers"].items():
        kind = resolve(path)
        path_now, kept = kind(**surface.required(kind)).serialize()
        assert set(kept) == set(arguments), name
        assert type(kind(**kept)) is kind and kind(**kept).serialize() == (path_now, kept), name
        # The mark of what a watcher has sent is kept under this path.
        assert name not in EVENTS or path_now == path, name


def test_the_transaction_of_a_task_is_made_of_what_it_was() -> None:
    assert observed.inputs_now() == WRITTEN["inputs"]
    assert observed.kept_now() == WRITTEN["kept"]


def test_assets_and_their_events_are_named_as_before() -> None:
    assert observed.assets_now() == WRITTEN["assets"]


def _classes(kind: type) -> list[type]:
    classes: dict[type, None] = {}
    wanted = [kind]
    while wanted:
        for one in type.__subclasses__(wanted.pop()):
            if one not in classes:
                classes[one] = None
                wanted.append(one)
    return [one for one in classes if str(one.__module__).startswith("spark_apps.")]
