"""Answers to what Airflow asks of a provider: its parts, its connection type and that type's form."""

from __future__ import annotations

from typing import Any


def runner_form() -> dict[str, Any]:
    """Return the connection type ``index_runner``: which Spark, by which runner, and with what."""
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
            "history-server": _text(
                "History server", "Address of the one that reads the event logs; tasks link to their page there."
            ),
            "principal": _text("Kerberos principal", "Of the keytab."),
            "secret_keytab": _text("Keytab", "Its content in base64.", secret=True),
            "namespace": _text("Kubernetes namespace", "Where pods are started."),
            "yarn_resourcemanager_webapp_address": _text(
                "YARN's REST API", "Address of the ResourceManager, such as http://rm:8088, for drivers in the cluster."
            ),
            "bundle": _text(
                "Bundle", "URI of the folder that python -m spark_apps bundle made, for drivers elsewhere."
            ),
            "runner_options": _text("Runner options", "JSON object of what the runner wants to know.", secret=True),
            "secret_runner_options": _text(
                "Secret runner options", "The same, of those that Airflow's API shows to nobody.", secret=True
            ),
        },
    }


def _text(label: str, description: str, *, secret: bool = False, **schema: Any) -> dict[str, Any]:
    """Return a field of a form; ``schema`` adds to its own."""
    hidden = {"format": "password"} if secret else {}
    return {"label": label, "description": description, "schema": {"type": ["string", "null"], **hidden, **schema}}


# --- What Airflow asks of a provider --------------------------------------------------------------------------------


_NAME = "Lake table indexes"
_OPERATORS = (
    "advice",
    "erasure",
    "indexes",
    "maintenance",
    "report",
    "rescale",
    "sql",
    "tables",
    "transactions",
    "windows",
    "write",
)


def get_provider_info() -> dict[str, Any]:
    """Return the dictionary that the entry point ``apache_airflow_provider`` hands to Airflow."""
    return {
        "package-name": "airflow-provider-index",
        "name": _NAME,
        "description": "Builds, keeps, compacts, rescales and verifies indexes on lake tables, with Spark.",
        "integrations": [{"integration-name": _NAME, "tags": ["software"]}],
        "operators": [_modules(*(f"operators.{name}" for name in _OPERATORS))],
        "sensors": [_modules("sensors.timeline")],
        "triggers": [_modules("triggers.timeline", "triggers.jobs", "triggers.events")],
        "hooks": [_modules("hooks.table_store", "hooks.index_runner")],
        "asset-uris": [
            {
                "schemes": ["lakeindex"],
                "handler": "airflow_provider_index.assets.sanitize_uri",
                "factory": "airflow_provider_index.assets.create_asset",
                "to_openlineage_converter": "airflow_provider_index.lineage.asset_to_dataset",
            }
        ],
        "extra-links": [
            "airflow_provider_index.links.SparkUILink",
            "airflow_provider_index.links.DriverLogLink",
            "airflow_provider_index.links.TablePageLink",
        ],
        "config": {
            "lakeindex": {
                "description": "The page that shows lake tables.",
                "options": {
                    "connections": _option(
                        "Ids of table store connections that only a secrets backend knows, with commas between them. "
                        "Those in Airflow's database and environment are found without."
                    ),
                    "page_resource": _option(
                        "Name of a view; the right to read it then opens the page. Without, it is the right to read "
                        "the connection whose tables are shown."
                    ),
                },
            }
        },
        "connection-types": [
            {
                "connection-type": "index_table_store",
                "hook-class-name": "airflow_provider_index.hooks.table_store.TableStoreHook",
                "hook-name": "Index table store",
                "ui-field-behaviour": {
                    "hidden-fields": ["host", "port", "login", "password", "schema"],
                    "relabeling": {},
                    "placeholders": {
                        "warehouse": "s3://lake/warehouse, or /data/warehouse",
                        "storage_options": '{"aws_region": "eu-central-1"}',
                        "listed_tables": '["s3://lake/raw/_indexes"]',
                        "spark_conn_id": "spark_default",
                    },
                },
                "conn-fields": {
                    "warehouse": _text(
                        "Warehouse", "URI or path of the folder below which tables have names (db.table)."
                    ),
                    "storage_options": _text(
                        "Storage options",
                        "JSON object with what is needed to reach the store: region, endpoint, keys.",
                        secret=True,
                    ),
                    "source_roots": _text(
                        "Source roots",
                        "Addresses, as a JSON list, below which a log may name any source: for sources whose log "
                        "stands elsewhere than beside them, and Iceberg catalogs that a log names.",
                    ),
                    "listed_tables": _text(
                        "Listed tables",
                        "Addresses, as a JSON list, that the page Lake tables lists beside the warehouse: of tables, "
                        "registered sources, their logs, or folders _indexes with the logs of several.",
                    ),
                    "secret_storage_options": _text(
                        "Secret storage options",
                        "JSON object with the keys among them; Airflow's API shows it to nobody.",
                        secret=True,
                    ),
                    "spark_conn_id": _text(
                        "Spark connection",
                        "Connection (Spark or Index runner) whose Spark works on these tables.",
                        default="spark_default",
                    ),
                },
            },
            runner_form(),
        ],
    }


def _modules(*names: str) -> dict[str, Any]:
    return {
        "integration-name": _NAME,
        "python-modules": [f"airflow_provider_index.{name}" for name in names],
    }


def _option(description: str) -> dict[str, Any]:
    return {"description": description, "version_added": "0.1.0", "type": "string", "example": None, "default": ""}
