"""Which Spark, and with what: the fields of a Spark connection and of an operator, brought together once.

The connection is the one that Airflow's Spark provider defines (type ``spark``), so that what a team has
set up keeps working; it is only read here, and a connection that is missing is an error, not YARN.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_apps.storage.errors import InvalidInput

# What Spark itself redacts in its logs and pages.
_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key|credential")


@dataclass(frozen=True)
class SparkSettings:
    """Everything that a submission needs beside the job.

    :param master: Spark's master URL: ``local[2]``, ``spark://host:7077``, ``yarn``, ``k8s://https://…``.
    :param conf: Spark settings; those with a secret's name are kept off the command line.
    :param options: ``spark-submit`` options by their long name without dashes: ``packages``,
        ``driver-memory`` ….
    :param binary: name or path of ``spark-submit``; the one of ``SPARK_HOME`` or of the pyspark package by
        default.
    :param driver_logs: local folder for the lines of detached drivers.
    """

    master: str = "local[*]"
    deploy_mode: str = "client"
    conf: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    binary: str | None = None
    keytab: str | None = None
    driver_logs: str | None = None

    @classmethod
    def from_connection(cls, connection: Any) -> SparkSettings:
        """Reads an Airflow connection of type ``spark``.

        Beside the provider's own fields (``deploy-mode``, ``queue``, ``namespace``, ``principal``,
        ``keytab``, ``spark-binary``) the extra may hold ``conf`` (an object) and any of the options in
        :data:`OPTIONS`.

        :raises InvalidInput: for a deploy mode other than ``client``.
        """
        extra = connection.extra_dejson
        mode = extra.get("deploy-mode") or "client"
        if mode != "client":
            raise InvalidInput(
                f"The Spark connection {connection.conn_id!r} asks for deploy mode {mode!r}; "
                "the apps are run with their driver in the task, which is 'client'.",
                hint="Set the connection's deploy mode to 'client', or leave it empty.",
            )
        conf = {str(key): _text(value) for key, value in (extra.get("conf") or {}).items()}
        if extra.get("namespace"):
            conf.setdefault("spark.kubernetes.namespace", extra["namespace"])
        options = {name: str(extra[name]) for name in OPTIONS if extra.get(name)}
        binary = extra.get("spark-binary")
        return cls(
            master=_master(connection),
            conf=conf,
            options=options,
            # The connection form fills this in by itself; only another name is somebody's wish.
            binary=None if binary in (None, "", "spark-submit") else binary,
            keytab=extra.get("keytab") or None,
            driver_logs=extra.get("driver-logs") or None,
        )

    def with_conf(self, conf: Mapping[str, Any] | None) -> SparkSettings:
        """The same with more settings, which win over those that were there."""
        return replace(self, conf={**self.conf, **{key: _text(value) for key, value in (conf or {}).items()}})

    @property
    def open_conf(self) -> dict[str, str]:
        """The settings that may stand on a command line."""
        return {key: value for key, value in self.conf.items() if not is_secret(key)}

    @property
    def secret_conf(self) -> dict[str, str]:
        """The settings that may not: they go to the app with its job, and it gives them to its session."""
        return {key: value for key, value in self.conf.items() if is_secret(key)}


OPTIONS = (
    "packages",
    "exclude-packages",
    "repositories",
    "jars",
    "files",
    "archives",
    "driver-memory",
    "driver-class-path",
    "executor-memory",
    "executor-cores",
    "num-executors",
    "total-executor-cores",
    "principal",
    "queue",
    "properties-file",
)
"""Options of ``spark-submit`` that a connection's extra may carry under the same name."""


def is_secret(key: str) -> bool:
    """Whether a setting of that name holds a secret, by the names that Spark itself redacts."""
    return _SECRET.search(key) is not None


def _master(connection: Any) -> str:
    host = connection.host or ""
    # A connection made from a URI keeps its scheme as the type, one made in the form has all in the host.
    if connection.conn_type == "spark" and host and ("://" in host or not connection.port):
        master = host
    elif connection.conn_type == "spark" and not host:
        master = "local[*]"
    else:
        master = f"{connection.conn_type}://{host}"
    return f"{master}:{connection.port}" if connection.port else master


def _text(value: Any) -> str:
    # Spark reads true and false, not Python's words.
    return str(value).lower() if isinstance(value, bool) else str(value)
