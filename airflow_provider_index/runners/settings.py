"""Settings of Spark: the fields of a Spark connection and of an operator, brought together once.

The connection is the one that Airflow's Spark provider defines (type ``spark``), so that what a team has
set up keeps working; it is only read, and a connection that is missing is an error, not YARN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import parse_qsl, quote

from airflow_provider_index.arguments import flag, json_object
from spark_apps.jobs.job import HISTORY_SERVER
from spark_apps.storage.credentials import setting_text
from spark_apps.storage.errors import InvalidInput
from spark_apps.storage.secrets import holds_secret, secrets_in, secrets_in_text

CONNECT = "sc://"
"""How the address of a Spark Connect server begins."""


@dataclass(frozen=True)
class SparkSettings:
    """Everything that a submission needs beside the job.

    :param master: Spark's master URL: ``local[2]``, ``spark://host:7077``, ``yarn``, ``k8s://https://…``; or the
        address of a Spark Connect server, ``sc://host:15002``, without its parameters.
    :param deploy_mode: where the driver runs: ``client``, beside the task; ``cluster``, in the cluster, which YARN
        and Kubernetes offer.
    :param conf: Spark settings; those with a secret's name are kept off the command line.
    :param options: ``spark-submit`` options by their long name without dashes: ``packages``,
        ``driver-memory`` ….
    :param environment: variables for the driver and the executors; none of them may hold a secret.
    :param pass_environment: variables of the worker that reach the driver although they look like secrets.
    :param binary: name or path of ``spark-submit``; the one of ``SPARK_HOME`` or of the pyspark package by
        default.
    :param keytab: content of a keytab, in base64.
    :param driver_logs: local folder for the lines of detached drivers.
    :param runner: which runner: ``spark-submit``, ``connect``, or one of a third party.
    :param runner_options: what the connection's extra holds under ``runner_options``, for that runner.
    :param bundle: URI of the folder where ``python -m spark_apps bundle`` put the apps, for drivers that do not run
        on this machine.
    :param connect: parameters of a Spark Connect address but for its token: ``use_ssl``, ``user_id`` ….
    :param token: what a Spark Connect server asks for.
    :param cluster: what the connection says of the cluster's own REST API, by the names of Airflow's provider of Spark.
    """

    master: str = "local[*]"
    deploy_mode: str = "client"
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    pass_environment: tuple[str, ...] = ()
    binary: str | None = None
    keytab: str | None = field(default=None, repr=False)
    driver_logs: str | None = None
    runner: str | None = None
    runner_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    bundle: str | None = None
    connect: Mapping[str, str] = field(default_factory=dict)
    token: str | None = field(default=None, repr=False)
    cluster: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def from_connection(cls, connection: Any) -> SparkSettings:
        """Read an Airflow connection of type ``index_runner``, ``spark`` or ``spark_connect``.

        Beside the provider's own fields (``deploy-mode``, ``queue``, ``namespace``, ``principal``, ``keytab``,
        ``spark-binary``, ``yarn_resourcemanager_webapp_address``; ``use_ssl``) the extra may hold ``conf``,
        ``environment`` and ``runner_options`` (objects; also as ``secret_conf``, ``secret_runner_options`` and
        ``secret_keytab``, which Airflow's API shows to nobody), ``runner``, ``bundle``, ``history-server`` (its
        address), and any of the options in :data:`OPTIONS`. Keys that begin with ``spark.`` are settings, as for
        ``@task.pyspark``. For Spark Connect the login is the user's id and the password the token.

        :raises InvalidInput: for a deploy mode that the master does not offer, or a secret in ``environment``.
        :returns: what runners are made from.
        """
        extra = connection.extra_dejson
        master, parameters = _master(connection)
        own = {name: value for name, value in extra.items() if name.startswith("spark.")}
        conf = _texts({**own, **_object(connection, "conf"), **_object(connection, "secret_conf")})
        if extra.get("namespace"):
            conf.setdefault("spark.kubernetes.namespace", extra["namespace"])
        if extra.get("history-server"):
            conf.setdefault(HISTORY_SERVER, str(extra["history-server"]))
        binary = extra.get("spark-binary")
        settings = cls(
            master=master,
            deploy_mode=extra.get("deploy-mode") or "client",
            conf=conf,
            options={name: str(extra[name]) for name in OPTIONS if extra.get(name)},
            environment=_texts(_object(connection, "environment")),
            pass_environment=_names(connection, "pass-environment"),
            # The connection form fills this in by itself; only another name was chosen by a person.
            binary=None if binary in (None, "", "spark-submit") else binary,
            keytab=extra.get("secret_keytab") or extra.get("keytab") or None,
            driver_logs=extra.get("driver-logs") or None,
            runner=extra.get("runner") or None,
            runner_options={**_object(connection, "runner_options"), **_object(connection, "secret_runner_options")},
            bundle=(extra.get("bundle") or "").rstrip("/") or None,
            cluster={name: str(extra[name]) for name in _OF_CLUSTERS if extra.get(name)},
        )
        if master.startswith(CONNECT):
            token = connection.password or parameters.pop("token", None)
            if connection.login:
                parameters.setdefault("user_id", connection.login)
            if flag(f"use_ssl of the Spark connection {connection.conn_id!r}", extra.get("use_ssl")):
                parameters.setdefault("use_ssl", "true")
            settings = replace(settings, connect=parameters, token=token or None)
        settings.check(connection.conn_id)
        return settings

    def check(self, whose: str) -> None:
        """Refuse settings that cannot be used.

        :raises InvalidInput: for what cannot be, named after the connection ``whose`` it is.
        """
        offered = self.master == "yarn" or self.master.startswith("k8s://")
        if self.deploy_mode not in ("client", "cluster") or (self.deploy_mode == "cluster" and not offered):
            raise InvalidInput(
                f"The Spark connection {whose!r} asks for deploy mode {self.deploy_mode!r} on {self.master}; Python "
                "apps are run there with their driver on the submitting machine, which is 'client'.",
                hint="Set the connection's deploy mode to 'client', or leave it empty. YARN and Kubernetes take "
                "'cluster' as well.",
            )
        self.check_spoken(f" of the Spark connection {whose!r}")
        secret = next((name for name, value in self.environment.items() if holds_secret(name, value)), None)
        if secret is not None:
            raise InvalidInput(
                f"The environment in the Spark connection {whose!r} holds a secret, {secret}; "
                "every process of that machine's user can read another's environment.",
                hint="Give it as a Spark setting in 'conf', which reaches the app by another way, or give the cluster "
                "a role of its own.",
            )

    def check_spoken(self, whose: str = "") -> None:
        """Refuse secrets where others can read them.

        That is in what ``spark-submit`` or an executor takes on a command line only, and in what a cluster shows.

        :param whose: names the connection.
        :raises InvalidInput: names the setting or option.
        """
        spoken = {**self.options, **{name: value for name, value in self.conf.items() if name in _SPOKEN}}
        secret = next((name for name, value in spoken.items() if secrets_in_text(value)), None)
        if secret is not None:
            raise InvalidInput(
                f"{secret}{whose} holds a secret (a password in an address, a signed address, or "
                "-D…Password=…), which would stand on the command line of spark-submit or of executors, for every "
                "user to read.",
                hint="Fetch files from where the machine has a role, keep a repository's password in Ivy's settings "
                "(spark.jars.ivySettings), and give executors secrets as Spark settings (spark.hadoop.…) or in a file "
                "that they read.",
            )
        shown = next((name for name in self.secret_conf if name.startswith(_FOR_EXECUTORS)), None)
        if shown is not None and self.master.startswith("spark://"):
            raise InvalidInput(
                f"{shown}{whose} holds a secret, and a standalone cluster shows the variables of executors to "
                "everybody on the page of the master (/json).",
                hint="Give executors secrets as Spark settings (spark.hadoop.…) or in a file that they read.",
            )

    def secrets(self) -> list[str]:
        """Return every secret that the connection holds, for whoever hides them from logs."""
        credentials = {"token": self.token, "password": self.keytab}
        return secrets_in([credentials, self.conf, self.environment, self.connect, self.runner_options, self.options])

    @property
    def remote(self) -> str:
        """The address of a Spark Connect server with its parameters, but for the token."""
        parameters = "".join(f";{key}={quote(value, safe='')}" for key, value in self.connect.items())
        return f"{self.master}/{parameters}" if parameters else self.master

    def with_conf(self, conf: Mapping[str, Any] | None) -> SparkSettings:
        """Return the same with more settings, which win over those that were there; one that is null takes it away."""
        given = conf or {}
        kept = {key: value for key, value in self.conf.items() if key not in given}
        return replace(self, conf={**kept, **_texts(given)})

    @property
    def deploy_mode_given(self) -> str | None:
        """The deploy mode as ``spark-submit`` is given it: a local master takes none."""
        return None if self.master.startswith("local") else self.deploy_mode

    @property
    def open_conf(self) -> dict[str, str]:
        """The settings that may be on a command line."""
        for_executors = {_FOR_EXECUTORS + name: value for name, value in self.environment.items()}
        return {**for_executors, **{key: value for key, value in self.conf.items() if not holds_secret(key, value)}}

    @property
    def secret_conf(self) -> dict[str, str]:
        """The settings that may not: they go to the app with its job, and it gives them to its session."""
        return {
            key: value
            for key, value in self.conf.items()
            if holds_secret(key, value) and key not in _OF_THE_DRIVERS_JVM
        }

    @property
    def secret_java_options(self) -> dict[str, str]:
        """The options of the driver's Java that hold a secret: they go into a file, since Java is started with them."""
        return {key: self.conf[key] for key in _OF_THE_DRIVERS_JVM if holds_secret(key, self.conf.get(key))}


_OF_CLUSTERS = ("rest-scheme", "rest-port", "yarn_resourcemanager_webapp_address")
_FOR_EXECUTORS = "spark.executorEnv."
_OF_THE_DRIVERS_JVM = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")

_SPOKEN = {
    "spark.executor.extraJavaOptions",
    "spark.executor.defaultJavaOptions",
    "spark.jars",
    "spark.jars.packages",
    "spark.jars.repositories",
    "spark.files",
    "spark.archives",
    "spark.submit.pyFiles",
}
"""Settings that reach nobody when they come with the job, or that Spark itself puts on a command line."""


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


def _object(connection: Any, name: str) -> dict[str, Any]:
    value = json_object(connection.extra_dejson.get(name))
    if value is None:
        raise InvalidInput(
            f"{name!r} in the extra of the Spark connection {connection.conn_id!r} is not an object.",
            hint=f'Write it as {{"{name}": {{"name": "value"}}}}.',
        )
    return value


def _names(connection: Any, name: str) -> tuple[str, ...]:
    """Return a list of names: an array, or text with commas between."""
    value = connection.extra_dejson.get(name) or []
    if isinstance(value, str):
        value = value.split(",")
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise InvalidInput(
            f"{name!r} in the extra of the Spark connection {connection.conn_id!r} is not a list of names.",
            hint=f'Write it as {{"{name}": ["NAME"]}}.',
        )
    return tuple(one.strip() for one in value if one.strip())


def _master(connection: Any) -> tuple[str, dict[str, str]]:
    """Return the master, and the parameters of a Spark Connect address."""
    host = connection.host or ""
    plain = connection.conn_type in ("spark", "index_runner")
    if connection.conn_type == "spark_connect":
        host = CONNECT + host.removeprefix(CONNECT)
    # A connection made from a URI keeps its scheme as the type, one made in the form has all in the host.
    elif plain and host and ("://" in host or not connection.port):
        pass
    elif plain and not host:
        host = "local[*]"
    else:
        host = f"{connection.conn_type}://{host}"
    parameters: dict[str, str] = {}
    if host.startswith(CONNECT):
        host, _, text = host.partition(";")
        host = host.rstrip("/")
        parameters = dict(parse_qsl(text.replace(";", "&")))
    return (f"{host}:{connection.port}" if connection.port else host), parameters


def _texts(given: Mapping[str, Any]) -> dict[str, str]:
    """As Spark reads them; what is null was not given."""
    return {str(key): setting_text(value) for key, value in given.items() if value is not None}
