"""The forms of this package's connection types, as Airflow's page for connections takes them."""

from __future__ import annotations

from typing import Any


def runner_form() -> dict[str, Any]:
    """The connection type ``index_runner``: which Spark, by which runner, and with what."""
    return {
        "connection-type": "index_runner",
        "hook-class-name": "airflow_provider_index.hooks.index_runner.IndexRunnerHook",
        "hook-name": "Index runner (Spark)",
        "ui-field-behaviour": {
            "hidden-fields": ["schema"],
            "relabeling": {
                "host": "Master",
                "login": "User id (Spark Connect)",
                "password": "Token (Spark Connect)",
            },
            "placeholders": {
                "host": "local[4], spark://host, yarn, k8s://https://host, or sc://host",
                "packages": "org.apache.hadoop:hadoop-aws:3.5.0",
                "conf": '{"spark.sql.shuffle.partitions": "64"}',
                "bundle": "s3a://lake/apps/0.1.0-…",
            },
        },
        "conn-fields": {
            "runner": _text(
                "Runner",
                "spark-submit, connect, the name of an entry point, or the dotted path of a runner. Left empty, the "
                "master decides.",
            ),
            "deploy-mode": {
                "label": "Deploy mode",
                "description": "Where the driver runs: client, beside the task; cluster, on YARN or Kubernetes.",
                "schema": {"type": "string", "enum": ["client", "cluster"], "default": "client"},
            },
            "conf": _text("Spark settings", "JSON object; its secrets belong into the next field.", secret=True),
            "secret_conf": _text(
                "Secret Spark settings",
                "JSON object. They reach the app alone, and Airflow's API shows them to nobody.",
                secret=True,
            ),
            "packages": _text("Packages", "Maven coordinates of jars, with commas between them."),
            "driver-memory": _text("Driver memory", "For example 2g."),
            "executor-memory": _text("Executor memory", "For example 4g."),
            "num-executors": _text("Number of executors", "On YARN and Kubernetes."),
            "environment": _text("Environment", "JSON object of variables for driver and executors; no secrets."),
            "principal": _text("Kerberos principal", "Of the keytab."),
            "secret_keytab": _text("Keytab", "Its content in base64.", secret=True),
            "namespace": _text("Kubernetes namespace", "Where pods are started."),
            "bundle": _text(
                "Bundle", "URI of the folder that python -m spark_apps bundle made, for drivers elsewhere."
            ),
            "runner_options": _text("Runner options", "JSON object of what the runner wants to know.", secret=True),
            "secret_runner_options": _text(
                "Secret runner options", "The same, of those that Airflow's API shows to nobody.", secret=True
            ),
        },
    }


def _text(label: str, description: str, secret: bool = False) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": ["string", "null"]}
    return {
        "label": label,
        "description": description,
        "schema": {**schema, **({"format": "password"} if secret else {})},
    }
