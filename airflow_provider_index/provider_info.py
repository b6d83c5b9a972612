"""What Airflow asks of a provider: its parts, its connection type and that type's form."""

from __future__ import annotations

from typing import Any

from airflow_provider_index.connection_forms import runner_form

_NAME = "Lake table indexes"
_OPERATORS = (
    "cleaning",
    "compaction",
    "indexes",
    "maintenance",
    "register",
    "rescale",
    "rescale_preview",
    "sql",
    "transactions",
    "windows",
    "write",
)


def get_provider_info() -> dict[str, Any]:
    """The dictionary that the entry point ``apache_airflow_provider`` hands to Airflow."""
    return {
        "package-name": "airflow-provider-index",
        "name": _NAME,
        "description": "Builds, keeps, compacts, rescales and verifies indexes on lake tables, with Spark.",
        "integrations": [{"integration-name": _NAME, "tags": ["software"]}],
        "operators": [_modules(*(f"operators.{name}" for name in _OPERATORS))],
        "sensors": [_modules("sensors.timeline", "sensors.windows")],
        "triggers": [_modules("triggers.timeline", "triggers.jobs", "triggers.events", "triggers.windows")],
        "hooks": [_modules("hooks.table_store", "hooks.index_runner")],
        "asset-uris": [
            {
                "schemes": ["lakeindex"],
                "handler": "airflow_provider_index.assets.sanitize_uri",
                "factory": "airflow_provider_index.assets.create_asset",
                "to_openlineage_converter": "airflow_provider_index.lineage.asset_to_dataset",
            }
        ],
        "extra-links": ["airflow_provider_index.links.SparkUILink", "airflow_provider_index.links.TablePageLink"],
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
                        "spark_conn_id": "spark_default",
                    },
                },
                "conn-fields": {
                    "warehouse": {
                        "label": "Warehouse",
                        "description": "URI or path of the folder below which tables have names (db.table).",
                        "schema": {"type": ["string", "null"]},
                    },
                    "storage_options": {
                        "label": "Storage options",
                        "description": "JSON object with what is needed to reach the store: region, endpoint, keys.",
                        "schema": {"type": ["string", "null"], "format": "password"},
                    },
                    "source_roots": {
                        "label": "Source roots",
                        "description": (
                            "Addresses, as a JSON list, below which a log may name any source: for sources whose log "
                            "stands elsewhere than beside them, and Iceberg catalogs that a log names."
                        ),
                        "schema": {"type": ["string", "null"]},
                    },
                    "secret_storage_options": {
                        "label": "Secret storage options",
                        "description": "JSON object with the keys among them; Airflow's API shows it to nobody.",
                        "schema": {"type": ["string", "null"], "format": "password"},
                    },
                    "spark_conn_id": {
                        "label": "Spark connection",
                        "description": "Connection (Spark or Index runner) whose Spark works on these tables.",
                        "schema": {"type": ["string", "null"], "default": "spark_default"},
                    },
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
