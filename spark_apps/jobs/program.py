"""The main that all programs share: take the job, watch the task, start Spark, do the work, answer.

A program is a function from a session and a job to a receipt, a plan or a report; :func:`main` does the rest. What
counts as success is the commit in the table's timeline; the answer carries what is not in there, above all the error.

The session is the one that ``spark-submit`` prepared, or one of a Spark Connect server: the job names which, and the
programs do not know. Versions are compared before any work is done.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from spark_apps.jobs.environment import (
    DISTRIBUTION,
    FIRST_CLIENT,
    check_app_environment,
    hadoop_version,
    spark_versions,
)
from spark_apps.jobs.heartbeat import BEFORE_END, Reporting, end_process_group
from spark_apps.jobs.job import (
    PREFIX,
    ErrorDocument,
    Job,
    Outcome,
    RedactingFilter,
    TaskGone,
    describe_error,
    read_job_argument,
    receive_job,
)
from spark_apps.storage.credentials import hadoop_settings
from spark_apps.storage.errors import AlreadyCommitted, EnvironmentMismatch, InvalidInput, JobFailed, LakeIndexError
from spark_apps.storage.secrets import (
    SPARKS_REDACTION,
    hide,
    holds_secret,
    not_hidden,
    paths_of_secrets,
    redaction_regex,
    secrets_in,
)
from spark_apps.timeline.model import Receipt
from spark_apps.workload.query_log import set_asker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_apps.table import IndexedTable
    from spark_apps.timeline.log import Timeline

# --- the session ------------------------------------------------------------------------------------------------------


log = logging.getLogger("spark_apps")

REMOTE = "spark.remote"
"""In :attr:`Job.spark_conf`: the address of a Spark Connect server."""

TOKEN = "spark.connect.authenticate.token"
"""In :attr:`Job.spark_conf`: what that server asks for, apart from its address since it is a secret."""

WITHOUT_TLS = "spark.lakeindex.connect.secretsWithoutTls"
"""In :attr:`Job.spark_conf`: ``true`` lets secrets go to a Spark Connect server of another host in clear."""

ON_ITS_PAGE = "spark.lakeindex.connect.secretsOnPage"
"""In :attr:`Job.spark_conf`: ``true`` lets them go to a server that shows them on its page and in its event log."""

REDACTED = "spark.redaction.regex"
"""Spark's setting: whose names and values it hides on its page and in its event log."""

EVENT_LOG = "spark.eventLog.enabled"

_KEYS = {f"spark.hadoop.fs.s3a.{name}" for name in ("access.key", "secret.key", "session.token")}
_PROVIDER = "spark.hadoop.fs.s3a.aws.credentials.provider"
_INTERRUPT_SECONDS = 0.7


def start_session(job: Job) -> SparkSession:
    """Return the Spark session of a job.

    :raises EnvironmentMismatch: if Spark, libraries or versions do not fit.
    :raises JobFailed: if the Spark Connect server does not answer.
    """
    check_app_environment(job.version)
    silence_statements()
    if REMOTE in job.spark_conf:
        return _connect(job)
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(job.app_name or job.program)
    configured = SparkConf()
    conf = {**_of_storage(job, configured.contains), **job.spark_conf}
    # Of the settings of spark-submit, and of those that come with the job.
    conf[REDACTED] = redaction_regex(
        {**dict(configured.getAll()), **conf}, conf.get(REDACTED) or configured.get(REDACTED)
    )
    for key, value in conf.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    check_session(spark.version)
    log.info("%s: Spark %s, application %s", job.program, spark.version, spark.sparkContext.applicationId)
    return spark


def silence_statements() -> None:
    """Silence the logger by which pyspark writes failed statements, secrets included, past all filters.

    The error that it raises holds the same.
    """
    try:
        from pyspark.logger import PySparkLogger
    except ImportError:  # Spark 3.5 writes none
        return
    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


def _of_storage(job: Job, is_set: Callable[[str], Any]) -> dict[str, str]:
    """Return the job's storage options as Hadoop's settings, but for those that are set by their own names."""
    hadoop = None if REMOTE in job.spark_conf else hadoop_version()  # a server's Hadoop is not known on the client
    settings = hadoop_settings(job.table, job.storage_options, hadoop)
    if settings.unsupported_options:
        log.warning(
            "Spark has no setting for the storage options %s; the log alone uses them.",
            ", ".join(settings.unsupported_options),
        )
    conf = dict(settings.conf)
    keys = {name: value for name, value in conf.items() if name not in job.spark_conf and not is_set(name)}
    if _PROVIDER in keys and len(_KEYS & keys.keys()) < len(_KEYS & conf.keys()):
        # Keys of their own choice come with their own way of signing in.
        keys = {name: value for name, value in keys.items() if name != _PROVIDER and name not in _KEYS}
    return keys


def check_session(running: str, remote: bool = False) -> None:
    """Compare the Spark that runs with the Python code that drives it.

    :param running: the version that Spark itself reports.
    :param remote: over Spark Connect a server may be newer than its client; it only may not be older.
    :raises EnvironmentMismatch: if they do not fit; names both versions.
    """
    import pyspark

    installed, served = (tuple(map(int, re.findall(r"\d+", version)[:3])) for version in (pyspark.__version__, running))
    if remote and installed < FIRST_CLIENT:
        raise EnvironmentMismatch(
            f"The Python code of Spark beside {DISTRIBUTION} is {pyspark.__version__}; over Spark Connect the apps "
            f"need that of 4.0 or newer, which takes Arrow tables. The server runs Spark {running}.",
            hint="Install the pyspark-client of a Spark 4 there, and no pyspark beside it.",
        )
    if installed == served or (remote and installed[:2] <= served[:2]):
        return
    what = "The Spark Connect server runs" if remote else "The jars that run are of"
    raise EnvironmentMismatch(
        f"{what} Spark {running}, and the Python code of Spark beside {DISTRIBUTION} is {pyspark.__version__}.",
        hint="Install the same release on both sides: pip install "
        + (f"pyspark-client=={running}" if remote else f"pyspark=={running}")
        + (f" pyspark-client=={running}" if not remote and spark_versions().pyspark_client else "")
        + " where the app's Python is.",
    )


def interrupt(spark: Any) -> None:
    """Ask a Spark Connect server to end what runs for this session, which would go on for minutes else.

    Never raises and never waits for more than a second.
    """
    # The server may be what hangs, and this process may have to end soon.
    thread = threading.Thread(target=_interrupt_all, args=(spark,), daemon=True)
    thread.start()
    thread.join(_INTERRUPT_SECONDS)


def _interrupt_all(spark: Any) -> None:
    try:
        spark.interruptAll()
    except Exception as error:  # noqa: BLE001 - this process is about to end, whatever the answer
        log.warning("The Spark Connect server could not be asked to end the app's jobs: %s", type(error).__name__)


def _end_politely(spark: Any) -> None:
    """Register the interruption of the server for when this process ends before its work does."""
    BEFORE_END.append(lambda: interrupt(spark))
    if threading.current_thread() is not threading.main_thread():
        return

    def terminated(_number: int, _frame: Any) -> None:
        interrupt(spark)
        os._exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminated)


def _connect(job: Job) -> SparkSession:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    conf = dict(job.spark_conf)
    remote, token = conf.pop(REMOTE), conf.pop(TOKEN, None)
    without_tls, on_its_page = (conf.pop(name, "") == "true" for name in (WITHOUT_TLS, ON_ITS_PAGE))
    if not without_tls:
        check_tls(remote, token, {**hadoop_settings(job.table, job.storage_options).conf, **conf}, job.arguments)
    if not on_its_page:
        check_statements(job.arguments)
    if token is not None:
        remote += f"{';' if ';' in remote else '/;'}token={quote(token, safe='')}"
    shown = hide(remote)
    try:
        spark = SparkSession.builder.remote(remote).create()
        running = spark.version
    except Exception as error:  # noqa: BLE001
        # pyspark words this in as many ways as there are reasons: gRPC's, Python's and its own.
        raise JobFailed(
            f"The Spark Connect server at {shown} does not answer: {_reason(error, remote)}",
            hint="See whether it runs, whether its address and token in the Spark connection are right, and whether "
            "this machine reaches it.",
        ) from None
    _end_politely(spark)
    check_session(running, remote=True)
    conf = {**_of_storage(job, lambda name: spark.conf.get(name, "") != ""), **conf}
    conf.pop(REDACTED, None)  # the server's own
    if not on_its_page:
        event_log = (spark.conf.get(EVENT_LOG, "") or "").strip().lower() == "true"
        check_redaction(spark.conf.get(REDACTED, SPARKS_REDACTION) or SPARKS_REDACTION, event_log, conf)
    left_out = []
    for key, value in sorted(conf.items()):
        try:
            spark.conf.set(key, value)
        except PySparkException:
            left_out.append(key)
    if left_out:
        log.warning(
            "These settings are the server's own and were left out: %s. They are set where the server is started.",
            ", ".join(left_out),
        )
    # Python code runs in the server's workers as well, which get the apps from the client.
    spark.addArtifacts(str(_archive()), pyfile=True)
    log.info("%s: Spark %s at %s, session %s", job.program, running, shown, spark.session_id)
    return spark


def check_tls(remote: str, token: str | None, conf: Mapping[str, str], arguments: Mapping[str, Any]) -> None:
    """Refuse to send secrets to another host in clear.

    :param remote: address of a Spark Connect server.
    :param token: with one, pyspark's client speaks TLS.
    :param conf: the settings for the session.
    :param arguments: of the job.
    :raises InvalidInput: for such secrets; names the settings, and how to allow it.
    """
    address = urlsplit(remote)
    parameters = dict(parse_qsl(address.path.lstrip("/").lstrip(";").replace(";", "&")))
    secure = token is not None or "token" in parameters or parameters.get("use_ssl", "").lower() == "true"
    secret_names = sorted(name for name, value in conf.items() if holds_secret(name, value))
    secret_names += ["the job's arguments"] if secrets_in(dict(arguments)) else []
    if secure or not secret_names or _is_loopback(address.hostname or ""):
        return
    raise InvalidInput(
        f"Secrets would go to the Spark Connect server at {hide(remote)} in clear: {', '.join(secret_names)}.",
        hint="Set use_ssl in the Spark connection (a proxy before the server speaks TLS), or give the server a role "
        f'of its own. Where the network is safe, allow it in the connection\'s conf: {{"{WITHOUT_TLS}": "true"}}.',
    )


def check_redaction(pattern: str, event_log: bool, conf: Mapping[str, str]) -> None:
    """Refuse to give secrets to a Spark Connect server whose page or event log would show them.

    :param pattern: the server's ``spark.redaction.regex``, which no session can change.
    :param event_log: whether the server writes one. Spark hides in it what the server was started with, and writes the
        settings of a session beside each job and stage as they are, whatever the pattern is.
    :raises InvalidInput: for such secrets; names the settings, and how to have them hidden.
    """
    shown = not_hidden(pattern, conf)
    written = sorted(name for name, value in conf.items() if holds_secret(name, value)) if event_log else []
    if not shown and not written:
        return
    wider = f"{REDACTED}={redaction_regex({name: conf[name] for name in shown}, pattern)}" if shown else ""
    raise InvalidInput(
        "The Spark Connect server would show these on its page or in its event log, which have a session's settings "
        f"as they are: {', '.join(written or shown)}.",
        hint=f"Start the server with {' and '.join(filter(None, (f'{EVENT_LOG}=false' if written else '', wider)))} or "
        "give it a role of its own. Where nobody else sees both, allow it in the connection's conf: "
        f'{{"{ON_ITS_PAGE}": "true"}}.',
    )


def check_statements(arguments: Mapping[str, Any]) -> None:
    """Refuse secrets in what a Spark Connect server shows as it is: statements, readers' options and paths.

    :param arguments: of the job.
    :raises InvalidInput: for such secrets, naming where they are.
    """
    secret_names = paths_of_secrets(dict(arguments))
    if secret_names:
        raise InvalidInput(
            "The Spark Connect server would show secrets on its page and in its event log, which have statements and "
            f"readers' options as they are: {', '.join(secret_names)}.",
            hint="Keep them where the server reads them (a catalog's settings, Hadoop's credential store), or take a "
            "Spark connection for spark-submit. Where nobody else sees both, allow it in the connection's conf: "
            f'{{"{ON_ITS_PAGE}": "true"}}.',
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _archive() -> Path:
    import spark_apps

    beside = Path(spark_apps.__file__).parent.parent
    if beside.is_file():
        return beside
    from spark_apps.jobs.bundle import make_bundle

    return make_bundle().archive


def _reason(error: BaseException, remote: str) -> str:
    text = str(error).replace(remote, "").strip()
    details = re.search(r'details = "([^"]*)"', text)
    line = details[1] if details else (text.splitlines() or [""])[0]
    return hide(line)[:300] or type(error).__name__


# --- the main of a program --------------------------------------------------------------------------------------------


_STOP_SECONDS = 60.0

JobFunction = Callable[["SparkSession", Job], Any]


def main(work: JobFunction) -> None:
    """Run a program and end the process: status 0 if it answered with anything but an error.

    The one command line argument is the path of the pipe (or file) that carries the job, or a job without secrets
    itself (:mod:`spark_apps.jobs.job`).
    """
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s", force=True)
    logging.getLogger("py4j").setLevel(logging.WARNING)
    if len(sys.argv) != 2:
        log.error("Usage: %s <path of the job>", sys.argv[0])
        sys.exit(2)
    try:
        is_argument = sys.argv[1].startswith(PREFIX)
        job, lifeline = (read_job_argument(sys.argv[1]), None) if is_argument else receive_job(sys.argv[1])
    except (TaskGone, EnvironmentMismatch) as error:
        log.error("%s", error)
        sys.exit(1)
    if lifeline is not None and job.detached:
        os.close(lifeline)
    elif lifeline is not None:
        watch(lifeline, job.process_group)
    set_asker(job.app_name)  # for the query logs of tables that it reads
    code = run(work, job)
    if job.scratch is not None:
        shutil.rmtree(job.scratch, ignore_errors=True)
    sys.exit(code)


def watch(lifeline: int, process_group: int | None) -> threading.Thread:
    """End this process, its JVM and all of ``process_group`` when the other side of ``lifeline`` closes.

    The other side is held by the Airflow task alone. So a driver does not outlive a task that was killed by
    -9, and cannot commit behind the back of the try that follows.
    """

    def wait() -> None:
        os.set_blocking(lifeline, True)
        while os.read(lifeline, 1):
            continue
        log.error("The task that submitted this app is gone; the app ends and commits nothing more.")
        end_process_group(process_group)

    thread = threading.Thread(target=wait, name="lifeline", daemon=True)
    thread.start()
    return thread


def load_table(spark: SparkSession, job: Job) -> IndexedTable:
    """Return the newest version of the job's table, to be worked on in the job's stage if it has one.

    :raises TableNotFound: if there is none.
    """
    from spark_apps.table import IndexedTable

    table = IndexedTable.load(spark, job.table, options=job.storage_options)
    if job.transaction is None:
        return table
    from spark_apps.actions.template import Stage

    entry = job.transaction
    after, leave = tuple(entry.get("after", ())), tuple(entry.get("leave", ()))
    inputs = entry.get("inputs") or ""
    stage = Stage(entry["txn_id"], entry["attempt"], entry["stage"], after, leave, inputs, entry.get("number"))
    return table.in_stage(stage)


def log_of(table: IndexedTable, job: Job) -> Timeline:
    """Return the log of a table that the job works on."""
    from spark_apps.storage.store import Store
    from spark_apps.timeline.log import Timeline

    return Timeline.load(Store(table.uri, job.storage_options))


def use_indexes(spark: SparkSession, job: Job, warehouse: str | None) -> None:
    """Let the job's queries use indexes, in a classic session; what prevents that is logged, and no more."""
    from spark_apps.engine.spark_utils import over_connect
    from spark_apps.optimizer.session import enable

    if over_connect(spark):
        return
    try:
        enable(spark, warehouse, options=job.storage_options)
    except Exception:
        log.warning("Plain queries of this job are planned without indexes.", exc_info=True)


def arguments_of(job: Job) -> dict[str, Any]:
    """Return the job's arguments that have a value; what is left out takes the action's default.

    ``included``, where it was given, becomes an :class:`IncludedColumns`.
    """
    arguments = {name: value for name, value in job.arguments.items() if value is not None}
    if "included" not in arguments:
        return arguments
    from spark_apps.indexes.included_columns import IncludedColumns

    return {**arguments, "included": IncludedColumns(**arguments["included"])}


def plan_or_commit(job: Job, action: Callable[..., Any], arguments: dict[str, Any]) -> Any:
    """Run an action of a table, or where the job asks for a plan only, return that."""
    if job.plan_only:
        return Outcome("plan", plain(action(**arguments, plan_only=True)))
    return action(**arguments, **commit_options(job))


def commit_options(job: Job, txn_id: str | None = None) -> dict[str, Any]:
    """Return the transaction, and the stop-write window, under which the action commits."""
    return {"txn_id": txn_id or job.txn_id, "window": job.window}


def run(work: JobFunction, job: Job) -> int:
    """Run a program on a job, write how it ended, and return the status to exit with."""
    started = time.monotonic()
    spark = None
    with Reporting(job) as reporting:
        _redact_logs(reporting.secrets)
        try:
            reporting.check_not_cancelled()
            spark = start_session(job)
            reporting.watch(spark)
            outcome = answer(work(spark, job))
        except AlreadyCommitted as error:
            outcome = answer(error.receipt)
        except Exception as error:  # noqa: BLE001 - what it is, the log and the answer say
            outcome = Outcome("error", error=(described := describe_error(error)))
            log.error("%s: %s", type(error).__name__, _said(error, described))
        reporting.finish(outcome)
    log.info("%s: %s after %.1f s", job.program, _describe(outcome), time.monotonic() - started)
    if spark is not None:
        _stop(spark, job)
    return 1 if outcome.kind == "error" else 0


def _said(error: Exception, described: ErrorDocument) -> str:
    """Return what the log says of an error: of one that was not foreseen also where in Python it came from.

    The stack of Java stays in the error's document: it is long, and speaks of Spark's own code alone.
    """
    if isinstance(error, LakeIndexError):
        return str(error)
    places = "".join(traceback.format_tb(error.__traceback__))
    return f"{described.message}\n{places}".rstrip()


def _redact_logs(secrets: list[str]) -> None:
    for handler in logging.getLogger().handlers:
        handler.addFilter(RedactingFilter(secrets))


def _stop(spark: SparkSession, job: Job) -> None:
    """End the session. That of a detached app, which no task watches any more, is ended by force where it hangs."""
    timer = threading.Timer(_STOP_SECONDS, end_process_group, (job.process_group,))
    timer.daemon = True
    if job.detached:
        timer.start()
    spark.stop()
    timer.cancel()


def answer(value: Any) -> Outcome:
    """Return the outcome that carries what a program returned."""
    if isinstance(value, Outcome):
        return value
    if isinstance(value, Receipt):
        return Outcome("receipt", value.to_dict())
    if isinstance(value, list) and value and all(isinstance(one, Receipt) for one in value):
        return Outcome("receipts", [one.to_dict() for one in value])
    return Outcome("report", plain(value))


def plain(value: Any) -> Any:
    """Return plans and reports as JSON types: by their own ``to_dict`` where they have one."""
    return value.to_dict() if hasattr(value, "to_dict") else msgspec.to_builtins(value, str_keys=True)


def _describe(outcome: Outcome) -> str:
    if outcome.kind == "receipt":
        version = outcome.value.get("version")
        if version is None:
            staged = outcome.value.get("metrics", {}).get("stage")
            return "nothing to do" if staged is None else f"staged {staged}"
        return f"committed version {version}"
    return {"error": "failed", "plan": "planned", "report": "reported"}.get(outcome.kind, "committed")
