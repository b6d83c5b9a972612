"""Storage options for both stacks: what ``obstore`` is given, as settings of Hadoop's file systems.

The log is read and written by ``obstore``, rows by Spark. A connection states once how the store is reached; this
module translates it to Hadoop's settings. What has no counterpart there is named, never dropped in silence. No Spark,
no network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from spark_apps.storage.store import SOURCE_ROOTS, WAREHOUSE_ROOT

_S3A = "spark.hadoop.fs.s3a."
_ABFS = "spark.hadoop.fs.azure."
_GS = "spark.hadoop.fs.gs."
_GS_AUTH = "spark.hadoop.google.cloud.auth."
_SIMPLE_KEYS = "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider"
_TEMPORARY_KEYS = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
_ANONYMOUS = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
_ASSUMED_ROLE = "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider"
_WEB_IDENTITY = "software.amazon.awssdk.auth.credentials.WebIdentityTokenFileCredentialsProvider"
_DEFAULT_CHAIN = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
_OF_FIRST_SDK = {
    _WEB_IDENTITY: "com.amazonaws.auth.WebIdentityTokenCredentialsProvider",
    _DEFAULT_CHAIN: "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
}
"""Classes of Amazon's second SDK -> those of its first one, which Hadoop before 3.4 is built with."""
_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2."

FILE_SYSTEMS = {
    "s3a": ("org.apache.hadoop.fs.s3a.S3AFileSystem", "org.apache.hadoop:hadoop-aws:<Spark's Hadoop version>"),
    "abfss": (
        "org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem",
        "org.apache.hadoop:hadoop-azure:<Spark's Hadoop version>",
    ),
    "abfs": (
        "org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem",
        "org.apache.hadoop:hadoop-azure:<Spark's Hadoop version>",
    ),
    "gs": (
        "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "com.google.cloud.bigdataoss:gcs-connector:hadoop3-2.2.31",
    ),
}
"""Scheme that Spark reads -> the class that does it, and the package that holds it."""

_NO_CLASS = re.compile(r"ClassNotFoundException: (?:Class )?([\w.$]+)|No FileSystem for scheme \"?(\w+)\"?")


def missing_file_system(text: str, hadoop: str | None = None) -> tuple[str, str] | None:
    """Say what Spark lacks for a store, and what to do, if an error shows that it lacks something.

    :param text: of the error. :param hadoop: the release of Spark's Hadoop, where it is known.
    """
    match = _NO_CLASS.search(text)
    for scheme, (name, package) in FILE_SYSTEMS.items():
        if match is not None and (match[1] == name or match[2] == scheme):
            package = package if hadoop is None else package.replace("<Spark's Hadoop version>", hadoop)
            return (
                f"Spark has no class for {scheme}:// ({name}).",
                f'Give the Spark connection "packages": "{package}" (spark-submit: --packages), or put its jars where '
                "Spark is.",
            )
    return None


@dataclass
class HadoopSettings:
    """The settings of Spark for a store.

    :param conf: Spark setting -> value; some are secrets (:mod:`spark_apps.storage.secrets`).
    :param unsupported_options: storage options that Hadoop has no setting for.
    """

    conf: dict[str, str] = field(default_factory=dict)
    unsupported_options: list[str] = field(default_factory=list)


def hadoop_settings(location: str, options: Mapping[str, Any], hadoop: str | None = None) -> HadoopSettings:
    """Return the settings by which Spark's Hadoop reaches what ``obstore`` reaches with these options.

    :param location: URI or path of a table or warehouse; its scheme names the file system.
    :param options: the storage options of its connection, in any case, with or without their prefix (``aws_`` …).
    :param hadoop: the release of Spark's Hadoop; that of Spark 4 if it is not known.
    """
    parts = urlsplit(location)
    made = _MAKERS.get(parts.scheme)
    if made is None or not options:
        return HadoopSettings()
    prefixes, make = made
    given = {_plain(name, prefixes): (name, value) for name, value in options.items() if value not in (None, "")}
    settings = HadoopSettings()
    used = make(settings.conf, {name: setting_text(value) for name, (_, value) in given.items()}, parts.netloc)
    if hadoop is not None and tuple(map(int, re.findall(r"\d+", hadoop)[:2])) < (3, 4):
        settings.conf = {name: _OF_FIRST_SDK.get(value, value) for name, value in settings.conf.items()}
    settings.unsupported_options = sorted(
        name for plain, (name, _) in given.items() if plain not in used | _OF_OBSTORE_ALONE
    )
    return settings


# Of the HTTP client of obstore, or of calls that Spark does not make.
_OF_OBSTORE_ALONE = {
    "bucket", "container_name", "timeout", "connect_timeout", "proxy_url", "http1_only", "allow_invalid_certificates",
    "conditional_put", "copy_if_not_exists", "disable_tagging", "disable_bulk_delete", "checksum_algorithm",
    "unsigned_payload", SOURCE_ROOTS, WAREHOUSE_ROOT, "imdsv1_fallback", "default_region", "use_azure_cli",
    "metadata_endpoint",
}  # fmt: skip


def _plain(name: str, prefixes: tuple[str, ...]) -> str:
    plain = name.lower()
    for prefix in prefixes:
        plain = plain.removeprefix(prefix)
    return _SYNONYMS.get(plain, plain)


_SYNONYMS = {
    "endpoint_url": "endpoint",
    "endpoint_url_s3": "endpoint",
    "token": "session_token",
    "access_key": "account_key",
    "master_key": "account_key",
    "sas_token": "sas_key",
    "endpoint_url_sts": "sts_endpoint",
    "authority_id": "tenant_id",
    "service_account_path": "service_account",
    "service_account_file": "service_account",
}


def setting_text(value: Any) -> str:
    """Return a value as Spark and Hadoop read it: true and false in small letters, not Python's words."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _s3(conf: dict[str, str], given: Mapping[str, str], _bucket: str) -> set[str]:
    plain = {
        "access_key_id": "access.key",
        "secret_access_key": "secret.key",
        "session_token": "session.token",
        "region": "endpoint.region",
        "endpoint": "endpoint",
        "role_arn": "assumed.role.arn",
        "role_session_name": "assumed.role.session.name",
        "sts_endpoint": "assumed.role.sts.endpoint",
        "sse_kms_key_id": "encryption.key",
        "sse_customer_key_base64": "encryption.key",
    }
    conf.update({_S3A + name: given[option] for option, name in plain.items() if option in given})
    if "endpoint" in given:
        # Other servers than Amazon's know buckets by path; hadoop-aws needs a setting, obstore does so by itself.
        conf[_S3A + "path.style.access"] = str(given.get("virtual_hosted_style_request", "false") != "true").lower()
        conf[_S3A + "connection.ssl.enabled"] = str(not given["endpoint"].startswith("http://")).lower()
    if given.get("request_payer") == "true":
        conf[_S3A + "requester.pays.enabled"] = "true"
    encryption = {"aws:kms": "SSE-KMS", "aws:kms:dsse": "DSSE-KMS", "AES256": "SSE-S3", "sse-c": "SSE-C"}
    if given.get("server_side_encryption") in encryption:
        conf[_S3A + "encryption.algorithm"] = encryption[given["server_side_encryption"]]
    elif "sse_customer_key_base64" in given:
        conf[_S3A + "encryption.algorithm"] = "SSE-C"
    provider = _s3_provider(given)
    if provider is not None:
        conf[_S3A + "aws.credentials.provider"] = provider
    if "role_arn" in given and provider == _ASSUMED_ROLE:
        keys = "access_key_id" in given
        conf[_S3A + "assumed.role.credentials.provider"] = (
            (_TEMPORARY_KEYS if "session_token" in given else _SIMPLE_KEYS) if keys else _DEFAULT_CHAIN
        )
    if "sts_endpoint" in given and "region" in given:
        # S3A refuses an endpoint of its own choice without a region to sign for.
        conf[_S3A + "assumed.role.sts.endpoint.region"] = given["region"]
    understood = {
        "virtual_hosted_style_request", "request_payer", "allow_http", "skip_signature", "web_identity_token_file",
        "container_credentials_relative_uri", "container_credentials_full_uri", "container_authorization_token_file",
    }  # fmt: skip
    if given.get("server_side_encryption") in encryption:
        understood.add("server_side_encryption")
    return {*plain, *understood}


def _s3_provider(given: Mapping[str, str]) -> str | None:
    if given.get("skip_signature") == "true":
        return _ANONYMOUS
    if "web_identity_token_file" in given:
        # The SDK reads the same file and role from the environment of the pod.
        return _WEB_IDENTITY
    if "role_arn" in given:
        return _ASSUMED_ROLE
    if "access_key_id" in given:
        return _TEMPORARY_KEYS if "session_token" in given else _SIMPLE_KEYS
    return None


def _azure(conf: dict[str, str], given: Mapping[str, str], netloc: str) -> set[str]:
    host = netloc.rpartition("@")[2]
    if not host or "." not in host:
        host = f"{given.get('account_name', host)}.dfs.core.windows.net"
    used = {"account_name", "use_fabric_endpoint"}

    def put(name: str, value: str) -> None:
        conf[f"{_ABFS}{name}.{host}"] = value

    if "account_key" in given:
        put("account.auth.type", "SharedKey")
        put("account.key", given["account_key"])
        return used | {"account_key"}
    if "sas_key" in given:
        put("account.auth.type", "SAS")
        put("sas.fixed.token", given["sas_key"].lstrip("?"))
        return used | {"sas_key"}
    if "client_secret" in given or "federated_token_file" in given:
        authority = given.get("authority_host", "https://login.microsoftonline.com").rstrip("/")
        put("account.auth.type", "OAuth")
        put("account.oauth2.client.id", given.get("client_id", ""))
        if "client_secret" in given:
            put("account.oauth.provider.type", _OAUTH + "ClientCredsTokenProvider")
            put("account.oauth2.client.secret", given["client_secret"])
            put("account.oauth2.client.endpoint", f"{authority}/{given.get('tenant_id', '')}/oauth2/token")
        else:
            put("account.oauth.provider.type", _OAUTH + "WorkloadIdentityTokenProvider")
            put("account.oauth2.token.file", given["federated_token_file"])
            put("account.oauth2.msi.tenant", given.get("tenant_id", ""))
            put("account.oauth2.msi.authority", authority)
        return used | {"client_id", "client_secret", "tenant_id", "authority_host", "federated_token_file"}
    if "msi_endpoint" in given or "client_id" in given:
        put("account.auth.type", "OAuth")
        put("account.oauth.provider.type", _OAUTH + "MsiTokenProvider")
        for option, name in (("msi_endpoint", "endpoint"), ("tenant_id", "tenant")):
            if option in given:
                put(f"account.oauth2.msi.{name}", given[option])
        if "client_id" in given:
            put("account.oauth2.client.id", given["client_id"])
        return used | {"msi_endpoint", "tenant_id", "client_id"}
    return used


def _google(conf: dict[str, str], given: Mapping[str, str], _bucket: str) -> set[str]:
    if "base_url" in given:
        conf[_GS + "storage.root.url"] = given["base_url"]
    if given.get("skip_signature") == "true":
        # Connectors of the third line know the first, those of the second the others.
        conf[_GS + "auth.type"] = "UNAUTHENTICATED"
        conf[_GS_AUTH + "null.enable"] = "true"
        conf[_GS_AUTH + "service.account.enable"] = "false"
    elif "service_account" in given:
        conf[_GS + "auth.type"] = "SERVICE_ACCOUNT_JSON_KEYFILE"
        conf[_GS + "auth.service.account.json.keyfile"] = given["service_account"]
        conf[_GS_AUTH + "service.account.json.keyfile"] = given["service_account"]
    elif "application_credentials" in given:
        conf[_GS + "auth.type"] = "APPLICATION_DEFAULT"
    return {"base_url", "skip_signature", "service_account", "application_credentials", "allow_http"}


_Maker = Callable[[dict[str, str], Mapping[str, str], str], set[str]]
_MAKERS: dict[str, tuple[tuple[str, ...], _Maker]] = {
    "s3": (("aws_",), _s3),
    "s3a": (("aws_",), _s3),
    "abfss": (("azure_", "storage_"), _azure),
    "abfs": (("azure_", "storage_"), _azure),
    "gs": (("google_", "gcp_"), _google),
}
