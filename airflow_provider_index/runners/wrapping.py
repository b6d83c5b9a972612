"""Runs the apps by any other Airflow operator: Livy, EMR, Databricks, Dataproc, or one of a team's own.

All that is needed is a function that makes the operator from the program's address, the zip's, and the arguments. How
the job is doing is read from its folder on storage, and what it did from the table's timeline; the other system is
asked for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from airflow.sdk import get_current_context

from airflow_provider_index.compat import TaskDeferred
from airflow_provider_index.runners.base import JobStatus
from airflow_provider_index.runners.cluster_mode import for_elsewhere
from airflow_provider_index.runners.settings import SparkSettings
from spark_apps.jobs.bundle import make_bundle
from spark_apps.jobs.job import Job, job_argument
from spark_apps.storage.errors import InvalidInput, JobFailed, LakeIndexError

MakeOperator = Callable[[str, str, Sequence[str]], Any]
"""From the address of the program, that of the zip (``--py-files``) and the program's arguments, an operator that
submits them and, best, does not wait."""


class WrappingRunner:
    """A runner that submits by another operator.

    :param settings: with ``bundle``, the URI of the folder that ``python -m spark_apps bundle`` made.
    :param make_operator: makes the operator, for each submission anew.
    :param log: of the task. :param start_seconds: how long the app may leave no sign of life after it was submitted.
    """

    detached = True
    start_seconds = 900.0

    def __init__(
        self, settings: SparkSettings, log: Any, make_operator: MakeOperator, *, start_seconds: float | None = None
    ) -> None:
        self._settings = settings
        self._log = log
        self._make_operator = make_operator
        self._operator: Any = None
        if start_seconds is not None:
            self.start_seconds = start_seconds

    def submit(self, job: Job) -> str:
        """Let the operator submit the app and return what the operator's ``execute`` returned, as text.

        :raises InvalidInput: there is no bundle, or the job would have to carry a secret.
        :raises JobFailed: the operator failed.
        """
        argument = job_argument(for_elsewhere(job, self._settings))
        program, archive = self._addresses(job)
        self._operator = operator = self._make_operator(program, archive, [argument])
        self._log.info("Submitting %s by %s", job.program, type(operator).__name__)
        context: Any = {}
        with suppress(RuntimeError):  # outside of a task
            context = get_current_context()
        try:
            returned = operator.execute(context=context)
        except TaskDeferred:
            # It has submitted; the task waits itself, by the job's signs of life.
            returned = None
        except LakeIndexError:
            raise
        except Exception as error:
            raise JobFailed(
                f"{type(operator).__name__}, which was to submit {job.program}, failed: {error}",
                hint="See its lines above.",
            ) from error
        return "" if returned is None else str(returned)

    def status(self, handle: str) -> JobStatus:
        """Return that the app runs: its signs of life say what it does, the other system is not asked.

        :param handle: what ``submit`` returned.
        """
        return JobStatus(True, handle)

    def cancel(self, handle: str) -> None:
        """Call the operator's ``on_kill``, in the process that submitted.

        The app itself looks every few seconds whether its job was cancelled, and ends.

        :param handle: what ``submit`` returned.
        """
        if self._operator is not None:
            self._operator.on_kill()

    def close(self) -> None:
        """Do nothing: the app runs on."""

    def _addresses(self, job: Job) -> tuple[str, str]:
        at = self._settings.bundle
        if at is None:
            raise InvalidInput(
                "The Spark connection does not say where the apps lie.",
                hint='Run python -m spark_apps bundle --to URI, and put {"bundle": …} into the connection\'s extra.',
            )
        # The installed package knows whether there is such a program, before another system does.
        make_bundle().program(job.program)
        return f"{at}/{job.program}.py", f"{at}/spark_apps.zip"


def wrap_operator(make_operator: MakeOperator, *, start_seconds: float | None = None) -> Callable[..., WrappingRunner]:
    """Return a runner that submits by the operators that ``make_operator`` makes.

    ::

        by_livy = wrap_operator(
            lambda program, archive, arguments: LivyOperator(
                task_id="livy", file=program, py_files=[archive], args=list(arguments)
            )
        )

    Put the result into a module and name it in the Spark connection's extra, ``{"runner": "my_spark.by_livy"}``, or as
    an entry point of the group ``airflow_provider_index.runners``.

    :param start_seconds: for how long after the submission an app may leave no sign of life; 15 minutes by default,
        for systems that first get machines.
    """

    def make(settings: SparkSettings, log: Any, *, detached: bool = True) -> WrappingRunner:
        return WrappingRunner(settings, log, make_operator, start_seconds=start_seconds)

    return make
