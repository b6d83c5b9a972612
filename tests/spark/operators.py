"""Operators that stand for what a team has already, wrapped as runners: they know nothing of this package."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

from airflow.providers.standard.operators.bash import BashOperator

from airflow_provider_index.runners.wrapping import wrap_operator
from spark_apps.jobs import environment


def _by_shell(program: str, archive: str, arguments: Sequence[str]) -> Any:
    """Spark's own ``spark-submit``, in the background of a shell: it returns before the app has begun."""
    home = environment.spark_home()
    submit = [str(home / "bin" / "spark-submit"), "--master", "local[1]", "--driver-memory", "600m"]
    submit += ["--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"]
    submit += ["--conf", "spark.sql.shuffle.partitions=1", "--py-files", archive, program, *arguments]
    java = f"JAVA_HOME={shlex.quote(str(environment.java_home()))} PYSPARK_PYTHON={shlex.quote(sys.executable)}"
    return BashOperator(
        task_id="spark",
        bash_command=f"{java} setsid {shlex.join(submit)} > /dev/null 2>&1 < /dev/null & echo submitted",
        append_env=True,
        # Its own folder is gone when the shell has ended, and no JVM starts in a folder that is not there.
        cwd=tempfile.gettempdir(),
    )


def _by_a_broken_one(program: str, archive: str, arguments: Sequence[str]) -> Any:
    return BashOperator(task_id="spark", bash_command="echo the queue is closed; exit 3")


by_shell = wrap_operator(_by_shell, start_seconds=120)
by_a_broken_one = wrap_operator(_by_a_broken_one)
