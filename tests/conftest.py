"""What every test may use: one Spark session for the whole run, and the profiles of the property tests."""

from __future__ import annotations

import compileall
import gc
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from tests import unit
from tests.durations import Recorder
from tests.turns import of_this_turn, rotated

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One profile for all property tests; HISTORIES says how many examples, `make model` sets it to 10,000.
settings.register_profile(
    "run",
    max_examples=int(os.environ.get("HISTORIES", "100")),
    deadline=None,
    derandomize="HISTORIES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("run")


# Tests that share what takes long to set up: an Airflow, and an empty database of Airflow's.
SHARING = (
    ("tests/airflow/",),
    ("tests/airflow_provider_index/every_argument/test_xcoms.py", "tests/airflow_provider_index/testing/"),
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--in-turns", action="store_true", help="of the heavy tests only those of this turn (tests/turns.py)"
    )
    parser.addoption("--unit", action="store_true", help="only tests without Spark, Airflow, servers (tests/unit.py)")


def pytest_configure(config: pytest.Config) -> None:
    """Have what each test took written into a report, where one is asked for.

    Until all tests are collected nothing is garbage, and looking for some takes a third of that time.
    """
    gc.disable()
    if sys.dont_write_bytecode and not hasattr(config, "workerinput"):
        # Hundreds of processes that tests start would compile the packages anew, a second each.
        for package in ("spark_apps", "airflow_provider_index"):
            compileall.compile_dir(config.rootpath / package, quiet=2)
    if config.getoption("xmlpath"):
        config.pluginmanager.register(Recorder())
    if config.getoption("--unit"):
        folder = tempfile.TemporaryDirectory(prefix="no-java-")
        config.add_cleanup(folder.cleanup)
        unit.forbid_the_rest(Path(folder.name))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out folders without unit tests in a run of these alone: importing them takes seconds."""
    if not config.getoption("--unit") or not collection_path.is_relative_to(config.rootpath):
        return None
    folder = f"{collection_path.relative_to(config.rootpath).as_posix()}/"
    return True if folder.startswith(unit.FOLDERS) else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the unit tests, and leave out what this run does not ask for and what another turn runs.

    A test that is named by its id runs in any turn.
    """
    unit.mark(items)
    if config.getoption("--unit"):
        keep(config, items, [item for item in items if item.get_closest_marker("unit")])
    if not any("::" in asked for asked in config.args):
        keep(config, items, in_this_turn(items))
    if not config.getoption("--in-turns"):
        return
    # Tests of one file share what it sets up, so they stay together.
    heavy = sorted({item.path for item in items if item.get_closest_marker("heavy")})
    of_turn = {path: place for place, path in enumerate(rotated(of_this_turn(heavy)))}
    kept = [item for item in items if not item.get_closest_marker("heavy") or item.path in of_turn]
    keep(config, items, sorted(kept, key=lambda item: of_turn.get(item.path, -1)))


def in_this_turn(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the tests without those that another commit runs: of the cases of a test marked ``by_turn(n)``, and of the
    tests of a module so marked, this one runs every n-th; of a module marked ``by_turn(n, whole=True)`` all or none.

    Each test that has the mark itself begins at a commit of its own, unless it names others that it shares something
    long with: ``by_turn(n, group="…")``. With ``first=k`` it is the commits k, k + n, k + 2n that run the first case:
    so what takes longest is laid apart. With ``together=m`` each m cases, or tests of a module, come in one commit, as
    where a fixture takes longer than they do.
    """
    drawn_from: dict[tuple[str, int, int | None], dict[object, list[pytest.Item]]] = {}
    seen: Counter[str] = Counter()
    for item in items:
        for node, mark in item.iter_markers_with_node("by_turn"):
            turns, first, group = mark.args[0], mark.kwargs.get("first"), mark.kwargs.get("group")
            # Tests of one file share what it sets up, and files of one folder are drawn among each other.
            place = item.nodeid.partition("::")[0]
            one: object = group or item
            if mark.kwargs.get("whole"):
                place, one = place.rpartition("/")[0] if first is None else place, item.path
            elif node is item:
                place += f"::{group or getattr(item, 'originalname', item.name)}"
            if "together" in mark.kwargs:
                one = seen[place] // mark.kwargs["together"]
                seen[place] += 1
            drawn_from.setdefault((place, turns, first), {}).setdefault(one, []).append(item)
            break
    left = {id(item) for some in drawn_from.values() for together in some.values() for item in together}
    for (place, turns, first), some in drawn_from.items():
        drawn = of_this_turn(list(some.values()), turns, place, first=first)
        left -= {id(item) for together in drawn for item in together}
    return [item for item in items if id(item) not in left]


def _end_if_interrupted() -> Generator[None]:
    """Around a part of a test: one that was interrupted ends the run, as what has no failure of its own.

    Where py4j waits for the JVM an interrupt becomes an error of py4j's, which would make a failed test of the one that
    a run's limit cut off.
    """
    try:
        return (yield)
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, KeyboardInterrupt):
            cause = cause.__cause__ or cause.__context__
        if cause is not None:
            raise KeyboardInterrupt from error
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup() -> Generator[None]:
    """End a run that is interrupted while a fixture is made."""
    yield from _end_if_interrupted()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """End a run that is interrupted in a test."""
    yield from _end_if_interrupted()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None]:
    """End a run that is interrupted while a fixture is taken down."""
    yield from _end_if_interrupted()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Leave the modules and tests that stay to the end out of what is looked through for garbage."""
    gc.freeze()
    gc.enable()


def keep(config: pytest.Config, items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    """Leave out all but some tests, and have pytest say how many were left out."""
    named = {id(item) for item in kept}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in named])
    items[:] = kept


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Tests of one file run in one worker, since they share what the file sets up; those that share more, too.

    A scheduler of our own, because the marks of ``--dist loadgroup`` do nothing in pytest 9 with pytest-xdist 3.8.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            shared = [some[0] for some in SHARING if nodeid.startswith(some)]
            return shared[0] if shared else nodeid.partition("::")[0]

    return ByFile(config, log)


@pytest.fixture(autouse=True)
def no_jvm_for_unit_tests(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Let no unit test start a JVM in a run of all tests either."""
    if request.node.get_closest_marker("unit"):
        monkeypatch.setenv("JAVA_HOME", str(unit.java_that_fails(tmp_path_factory.getbasetemp() / "no-java")))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session as a user would have it, but small: two threads, four shuffle partitions, no UI. With
    ``TESTS_OVER=connect`` one over Spark Connect."""
    from pyspark.sql import SparkSession

    from tests.spark.clusters import connect_server
    from tests.spark.local import local_session, set_environment

    home: Path = tmp_path_factory.mktemp("spark")
    set_environment()
    if os.environ.get("TESTS_OVER") == "connect":
        with connect_server(home) as server:
            session = SparkSession.builder.remote(server.address).create()
            yield session
            session.stop()
        return
    places = {"spark__local__dir": str(home / "local"), "spark__sql__warehouse__dir": str(home / "warehouse")}
    session = local_session(partitions=4, **places)
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def no_view_outlives_its_module() -> Iterator[None]:
    """Drop the temporary views that a module's tests left in the session: Spark resolves a name by them first, so the
    next module's table of that name would not be found."""
    yield
    if "pyspark.sql" not in sys.modules:
        return
    from pyspark.sql import SparkSession

    # By the JVM: SHOW VIEWS takes 50 ms.
    if (java := getattr(SparkSession.getActiveSession(), "_jsparkSession", None)) is None:
        return
    views = java.sessionState().catalog().listLocalTempViews("*")
    for name in [views.apply(number).table() for number in range(views.size())]:
        java.catalog().dropTempView(name)


@pytest.fixture
def compiled(spark: SparkSession) -> Iterator[SparkSession]:
    """The session with the code that Spark generates, for tests of which that code is the subject."""
    from tests.spark.local import COMPILED, session_with

    with session_with(spark, COMPILED):
        yield spark
