"""Airflow's provider of Spark underneath: what its hook is given, and each of its faults that is covered, shown with
the bare hook, so that a mended release shows. A script in the place of ``spark-submit`` writes down what it gets."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow.exceptions import AirflowException

from airflow_provider_index.runners.by_provider import FOLLOWS_CLUSTERS, follows, provider_release
from airflow_provider_index.runners.settings import OPTIONS, SparkSettings
from airflow_provider_index.runners.spark_submit import SparkSubmitRunner
from spark_apps.jobs.job import Job
from spark_apps.storage.errors import JobFailed

STAND_IN = f"""#!{sys.executable}
import json, os, subprocess, sys, time
child = None
if os.path.exists({{folder!r}} + "/linger"):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
call = dict(given=sys.argv[1:], names=sorted(os.environ), group=os.getpgid(0), pid=os.getpid(), cwd=os.getcwd(),
            stdin=os.readlink("/proc/self/fd/0"), child=child and child.pid)
with open({{folder!r}} + "/call.new", "w") as out:
    json.dump(call, out)
os.rename({{folder!r}} + "/call.new", {{folder!r}} + "/call")
sys.stdout.buffer.write(b"caf\\xe9 is no UTF-8\\n")
sys.stdout.flush()
if child:
    child.wait()
sys.exit(int(open({{folder!r}} + "/code").read()) if os.path.exists({{folder!r}} + "/code") else 0)
"""


class StandIn:
    """A script in the place of ``spark-submit``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.binary = folder / "spark-submit"
        self.binary.write_text(STAND_IN.format(folder=str(folder)))
        self.binary.chmod(0o755)

    def call(self) -> dict[str, Any]:
        """What it was given, once it has started."""
        wait_until((self.folder / "call").exists)
        got: dict[str, Any] = json.loads((self.folder / "call").read_text())
        return got


@pytest.fixture
def stand_in(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path)


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def runs(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"


def bare_hook(**arguments: Any) -> Any:
    """The provider's hook as it is, with the connection ``spark_bare``."""
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    return SparkSubmitHook(conn_id="spark_bare", **arguments)


def submit_in_vain(hook: Any) -> None:
    """Submit by a hook that is killed meanwhile."""
    with contextlib.suppress(AirflowException):
        hook.submit("app.py", errors="replace")


def connected(monkeypatch: pytest.MonkeyPatch, host: str = "local[1]", **extra: Any) -> None:
    connection = {"conn_type": "spark", "host": host, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_BARE", json.dumps(connection))


def submitted(stand_in: StandIn, **fields: Any) -> tuple[SparkSubmitRunner, str]:
    settings = SparkSettings(**{"master": "local[1]", "binary": str(stand_in.binary), **fields})
    runner = SparkSubmitRunner(settings, logging.getLogger("test"))
    return runner, runner.submit(Job("refresh_index", "/table", {"name": "by_city"}))


def ended(runner: SparkSubmitRunner, handle: str) -> str:
    """How it ended, once it has."""
    wait_until(lambda: not runner.status(handle).running)
    return runner.status(handle).detail


# --- what the hook is given -----------------------------------------------------------------------------------------


def test_given_all_options_then_the_hook_starts_what_we_would_have_started(stand_in: StandIn) -> None:
    options = {name: f"{number}" for number, name in enumerate(OPTIONS, 1)}
    runner, handle = submitted(
        stand_in, master="spark://h:7077", conf={"spark.x": "a b", "spark.y": "1"}, options=options
    )
    try:
        call = stand_in.call()
        ended(runner, handle)
        *_, program, pipe = call["given"]
        ours = runner._command("x", Job("refresh_index", "/table"), archive_of(call), [program, pipe], stand_in.folder)
    finally:
        runner.close()

    assert pairs(call["given"][:-2]) == pairs(ours[1:-2])
    assert program.endswith("/refresh_index.py") and Path(program).exists()


def archive_of(call: dict[str, Any]) -> str:
    return str(call["given"][call["given"].index("--py-files") + 1])


def pairs(words: list[str]) -> set[tuple[str, str]]:
    return set(zip(words[::2], words[1::2], strict=True))


def test_given_a_failure_then_its_status_and_last_lines_are_said(stand_in: StandIn) -> None:
    (stand_in.folder / "code").write_text("9")
    runner, handle = submitted(stand_in)
    try:
        said = ended(runner, handle)
    finally:
        runner.close()

    assert "spark-submit ended with status 9" in said and "is no UTF-8" in said


def test_given_a_spark_submit_that_cannot_be_started_then_the_error_says_so(stand_in: StandIn) -> None:
    stand_in.binary.write_text("#!/no/such/interpreter\n")
    runner, handle = submitted(stand_in)
    try:
        assert "FileNotFoundError" in ended(runner, handle)
    finally:
        runner.close()


# --- the provider's faults that are covered -------------------------------------------------------------------------


def test_fault_on_kill_ends_the_first_process_alone_and_ours_ends_the_group(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected(monkeypatch)
    (stand_in.folder / "linger").touch()
    hook = bare_hook(spark_binary=str(stand_in.binary))
    submitting = threading.Thread(target=submit_in_vain, args=(hook,))
    submitting.start()
    call = stand_in.call()
    hook.on_kill()
    wait_until(lambda: not runs(call["pid"]))
    bare = runs(call["child"])
    psutil.Process(call["child"]).kill()
    submitting.join(30)
    (stand_in.folder / "call").unlink()
    runner, handle = submitted(stand_in)
    ours = stand_in.call()
    runner.cancel(handle)

    assert bare, "the provider ends all of it: our group may go"
    assert not runs(ours["pid"]) and not runs(ours["child"])
    assert ours["group"] == ours["pid"] == int(handle)
    runner.close()


def test_fault_the_driver_gets_airflows_variables_and_standard_input(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected(monkeypatch)
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", "aws://key:planted@")
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    bare_hook(spark_binary=str(stand_in.binary)).submit("app.py", errors="replace")
    bare = stand_in.call()
    (stand_in.folder / "call").unlink()
    runner, handle = submitted(stand_in)
    ours = stand_in.call()
    ended(runner, handle)
    runner.close()

    assert "AIRFLOW_CONN_LAKE" in bare["names"], "the provider leaves it out: ours may go"
    assert not [name for name in ours["names"] if name.startswith(("AIRFLOW_CONN_", "AIRFLOW__"))]
    assert "AWS_REGION" in ours["names"] and "JAVA_HOME" in ours["names"]
    assert ours["stdin"] == os.devnull


def test_fault_a_missing_connection_is_yarn_and_a_null_in_one_an_error(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare_hook(spark_binary=str(stand_in.binary)).submit("app.py", errors="replace")
    given = stand_in.call()["given"]
    connected(monkeypatch, **{"rest-port": None, "spark-binary": None})

    assert given[given.index("--master") + 1] == "yarn"
    # Releases that follow no clusters have no port that could be null.
    with pytest.raises(TypeError) if provider_release() >= FOLLOWS_CLUSTERS else contextlib.nullcontext():
        bare_hook()
    runner, handle = submitted(stand_in)
    ended(runner, handle)
    runner.close()


def test_fault_a_line_that_is_no_utf_8_ends_the_hooks_submit(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected(monkeypatch)

    with pytest.raises(UnicodeDecodeError):
        bare_hook(spark_binary=str(stand_in.binary)).submit("app.py")


def test_fault_a_keytab_is_left_in_a_readable_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    connected(monkeypatch, keytab="a2V5dGFi", principal="ann")
    bare_hook()

    [left] = tmp_path.glob("airflow_keytab*")
    assert left.read_bytes() == b"keytab" and left.stat().st_mode & 0o044


def test_fault_secrets_in_settings_are_on_the_command_line(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    connected(monkeypatch)
    secret = {"spark.hadoop.fs.s3a.access.key": "planted"}
    bare_hook(spark_binary=str(stand_in.binary), conf=secret).submit("app.py", errors="replace")
    bare = stand_in.call()["given"]
    (stand_in.folder / "call").unlink()
    runner, handle = submitted(stand_in, conf=secret)
    ours = stand_in.call()["given"]
    ended(runner, handle)
    runner.close()

    assert "planted" in " ".join(bare) and "planted" not in " ".join(ours)


def test_fault_kubernetes_is_refused_without_its_provider_and_ours_submits_there(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected(monkeypatch, "k8s://https://h:6443")
    if find_spec("airflow.providers.cncf") is None:
        with pytest.raises((NameError, RuntimeError)):
            bare_hook()
    runner, handle = submitted(stand_in, master="k8s://https://h:6443")
    given = stand_in.call()["given"]
    ended(runner, handle)
    runner.close()

    assert given[given.index("--master") + 1] == "k8s://https://h:6443"


def test_fault_spark_connect_puts_the_token_into_the_address_and_refuses_parameters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook
    from airflow.sdk import BaseHook

    known = {"conn_type": "spark_connect", "login": "ann", "password": "planted", "extra": {"use_ssl": True}}
    monkeypatch.setenv("AIRFLOW_CONN_PLAIN", json.dumps({**known, "host": "h", "port": 15002}))
    monkeypatch.setenv("AIRFLOW_CONN_MORE", json.dumps({**known, "host": "sc://h:15002/;session_id=1"}))

    url = SparkConnectHook("plain").get_connection_url()
    ours = SparkSettings.from_connection(BaseHook.get_connection("plain"))
    assert url == "sc://h:15002/;user_id=ann;token=planted;use_ssl=True"
    assert (ours.remote, ours.token) == ("sc://h:15002/;user_id=ann;use_ssl=true", "planted")
    with pytest.raises(ValueError):
        SparkConnectHook("more").get_connection_url()
    assert SparkSettings.from_connection(BaseHook.get_connection("more")).connect["session_id"] == "1"


def test_given_yarn_then_the_operator_follows_where_it_can_and_is_asked_by_the_address_of_its_rest_api() -> None:
    asked = SparkSettings(master="yarn", cluster={"yarn_resourcemanager_webapp_address": "rm:8088"})

    assert follows(asked) == (provider_release() >= (6, 2))
    assert not follows(SparkSettings(master="yarn"))


def test_fault_the_operator_writes_into_the_settings_that_it_is_given(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    if provider_release() < FOLLOWS_CLUSTERS:
        assert not hasattr(SparkSubmitOperator, "submit_job") or provider_release() >= (6, 1)
        return
    connected(monkeypatch, "yarn", **{"deploy-mode": "cluster"})
    shared: dict[str, Any] = {"spark.x": "1"}
    operator = SparkSubmitOperator(
        task_id="submit", conn_id="spark_bare", conf=shared, application="a.py", spark_binary=str(stand_in.binary)
    )
    with pytest.raises((RuntimeError, UnicodeDecodeError)):
        operator.submit_job({})  # the stand-in names no application

    assert shared["spark.yarn.submit.waitAppCompletion"] == "false"


def test_given_a_hook_that_fails_before_it_starts_anything_then_the_error_says_so(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider_index.runners.by_provider.launcher.__file__", "/no/such/launcher.py")

    with pytest.raises(JobFailed, match="was not started"):
        submitted(stand_in)


def test_given_a_folder_from_which_nothing_may_be_started_then_our_own_submit_runs(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As access(2) answers below a mount with noexec.
    access = os.access
    monkeypatch.setattr("os.access", lambda path, mode: Path(path).name != "launch" and access(path, mode))
    runner, handle = submitted(stand_in)
    try:
        assert "status 0" in ended(runner, handle)
    finally:
        runner.close()
    assert stand_in.call()["group"] == int(handle)
