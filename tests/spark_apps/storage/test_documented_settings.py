"""Each setting that Spark is given for a store is one that its file system documents, under that very name."""

from __future__ import annotations

import itertools
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from spark_apps.storage.credentials import FILE_SYSTEMS, hadoop_settings

# Names are what Hadoop's pages document: core-default.xml and the pages of hadoop-aws (S3A: its index, authentication,
# assumed roles, encryption, troubleshooting), hadoop-azure's page on ABFS, and the configuration pages of Google's
# connector, lines 2 and 3. Only those of signing in, encryption and addresses: no others are set here.
_S3A = """
access.key secret.key session.token aws.credentials.provider endpoint endpoint.region endpoint.fips path.style.access
connection.ssl.enabled requester.pays.enabled encryption.algorithm encryption.key encryption.context
assumed.role.arn assumed.role.session.name assumed.role.session.duration assumed.role.policy
assumed.role.external.id assumed.role.sts.endpoint assumed.role.sts.endpoint.region
assumed.role.credentials.provider security.credential.provider.path signing-algorithm ssl.channel.mode
"""
_ABFS = """
account.auth.type account.key account.oauth.provider.type account.oauth2.client.id account.oauth2.client.secret
account.oauth2.client.endpoint account.oauth2.msi.tenant account.oauth2.msi.endpoint account.oauth2.msi.authority
account.oauth2.user.name account.oauth2.user.password account.oauth2.refresh.token
account.oauth2.refresh.token.endpoint account.oauth2.token.file sas.token.provider.type sas.fixed.token
"""
_GCS = """
fs.gs.storage.root.url fs.gs.storage.service.path fs.gs.auth.type fs.gs.auth.null.enable
fs.gs.auth.service.account.enable fs.gs.auth.service.account.json.keyfile fs.gs.project.id
google.cloud.auth.null.enable google.cloud.auth.service.account.enable
google.cloud.auth.service.account.json.keyfile
"""
S3A = frozenset(f"fs.s3a.{name}" for name in _S3A.split())
ABFS = frozenset(f"fs.azure.{name}" for name in _ABFS.split())
GCS = frozenset(_GCS.split())

# Values that are names themselves.
S3A_PROVIDERS = frozenset(
    f"org.apache.hadoop.fs.s3a.{name}"
    for name in (
        "SimpleAWSCredentialsProvider", "TemporaryAWSCredentialsProvider", "AnonymousAWSCredentialsProvider",
        "auth.AssumedRoleCredentialProvider", "auth.IAMInstanceCredentialsProvider",
    )
)  # fmt: skip
SECOND_SDK = frozenset(
    f"software.amazon.awssdk.auth.credentials.{name}"
    for name in (
        "DefaultCredentialsProvider", "WebIdentityTokenFileCredentialsProvider", "ContainerCredentialsProvider",
        "InstanceProfileCredentialsProvider", "EnvironmentVariableCredentialsProvider",
    )
)  # fmt: skip
FIRST_SDK = frozenset(
    f"com.amazonaws.auth.{name}"
    for name in ("DefaultAWSCredentialsProviderChain", "WebIdentityTokenCredentialsProvider")
)
ABFS_PROVIDERS = frozenset(
    f"org.apache.hadoop.fs.azurebfs.oauth2.{name}"
    for name in (
        "ClientCredsTokenProvider", "UserPasswordTokenProvider", "MsiTokenProvider", "RefreshTokenBasedTokenProvider",
        "WorkloadIdentityTokenProvider",
    )
)  # fmt: skip
DOCUMENTED_VALUES: Mapping[str, frozenset[str]] = {
    "fs.s3a.aws.credentials.provider": S3A_PROVIDERS | SECOND_SDK,
    "fs.s3a.assumed.role.credentials.provider": S3A_PROVIDERS | SECOND_SDK,
    "fs.s3a.encryption.algorithm": frozenset(
        ("AES256", "SSE-S3", "SSE-KMS", "SSE-C", "CSE-KMS", "CSE-CUSTOM", "DSSE-KMS")
    ),
    "fs.azure.account.auth.type": frozenset(("SharedKey", "OAuth", "Custom", "SAS")),
    "fs.azure.account.oauth.provider.type": ABFS_PROVIDERS,
    "fs.gs.auth.type": frozenset(
        ("ACCESS_TOKEN_PROVIDER", "APPLICATION_DEFAULT", "COMPUTE_ENGINE", "SERVICE_ACCOUNT_JSON_KEYFILE",
         "UNAUTHENTICATED", "USER_CREDENTIALS")
    ),
}  # fmt: skip

HOST = "acct.dfs.core.windows.net"

# Every storage option that is translated, one value each; all subsets up to three of them are asked about.
OPTIONS: Mapping[str, Mapping[str, str]] = {
    "s3://lake/wh": {
        "access_key_id": "a", "secret_access_key": "s", "session_token": "t", "region": "eu-west-1",
        "endpoint": "https://h", "virtual_hosted_style_request": "true", "request_payer": "true",
        "server_side_encryption": "aws:kms", "sse_kms_key_id": "k", "sse_customer_key_base64": "k",
        "role_arn": "arn:aws:iam::1:role/lake", "role_session_name": "n", "sts_endpoint": "https://sts",
        "web_identity_token_file": "/t", "skip_signature": "true", "allow_http": "true",
    },
    f"abfss://lake@{HOST}/wh": {
        "account_name": "acct", "account_key": "k", "sas_key": "sv=1", "client_id": "c", "client_secret": "s",
        "tenant_id": "t", "authority_host": "https://h", "federated_token_file": "/t", "msi_endpoint": "http://m",
        "use_fabric_endpoint": "false",
    },
    "gs://lake/wh": {
        "base_url": "http://h", "skip_signature": "true", "service_account": "/key.json",
        "application_credentials": "/c",
    },
}  # fmt: skip
DOCUMENTED = {"s3": S3A, "abfss": ABFS, "gs": GCS}


def all_settings(location: str, hadoop: str | None = None) -> Iterator[tuple[str, str]]:
    """The settings, by Hadoop's names, of every subset of up to three storage options."""
    options = OPTIONS[location]
    for count in (1, 2, 3):
        for names in itertools.combinations(options, count):
            settings = hadoop_settings(location, {name: options[name] for name in names}, hadoop)
            for name, value in settings.conf.items():
                assert name.startswith("spark.hadoop."), name
                yield name.removeprefix("spark.hadoop.").removesuffix(f".{HOST}"), value


@pytest.mark.parametrize("location", OPTIONS)
def test_given_any_storage_options_then_each_setting_has_a_documented_name(location: str) -> None:
    names = {name for name, _ in all_settings(location)}

    assert names and names - DOCUMENTED[location.partition(":")[0]] == set()


@pytest.mark.parametrize("location", OPTIONS)
def test_given_any_storage_options_then_each_class_and_each_word_is_a_documented_one(location: str) -> None:
    settings = {(name, value) for name, value in all_settings(location) if name in DOCUMENTED_VALUES}

    assert settings and {(name, value) for name, value in settings if value not in DOCUMENTED_VALUES[name]} == set()


@pytest.mark.parametrize("hadoop", ["3.3.4", "3.3.6-amzn-2"])
def test_given_a_hadoop_of_the_first_sdk_then_no_class_of_the_second_is_named(hadoop: str) -> None:
    values = {value for _, value in all_settings("s3://lake/wh", hadoop)}

    assert values >= FIRST_SDK and not {value for value in values if value.startswith("software.amazon")}
    assert not FIRST_SDK & {value for _, value in all_settings("s3://lake/wh", "3.4.1")}


def test_given_an_sts_of_its_own_then_s3a_is_told_the_region_that_it_requires_with_it() -> None:
    settings = hadoop_settings("s3://lake", {"sts_endpoint": "https://sts.h", "region": "r", "role_arn": "arn:x"})

    assert settings.conf["spark.hadoop.fs.s3a.assumed.role.sts.endpoint.region"] == "r"


def test_given_the_documented_defaults_of_spark_s_own_hadoop_then_these_lists_agree_with_them() -> None:
    """``core-default.xml`` of the jar at hand is a page of Hadoop's too, though it does not name every setting."""
    import pyspark

    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar")
    with zipfile.ZipFile(jar) as packed:
        names = set(re.findall(r"<name>\s*([^<\s]+)\s*</name>", packed.read("core-default.xml").decode()))
    used = {name for name, _ in all_settings("s3://lake/wh")}

    assert used - names <= {"fs.s3a.endpoint.region", "fs.s3a.requester.pays.enabled"}


def test_given_a_scheme_then_its_class_and_package_are_the_published_ones() -> None:
    assert {scheme: (name, package.rpartition(":")[0]) for scheme, (name, package) in FILE_SYSTEMS.items()} == {
        "s3a": ("org.apache.hadoop.fs.s3a.S3AFileSystem", "org.apache.hadoop:hadoop-aws"),
        "abfss": ("org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem", "org.apache.hadoop:hadoop-azure"),
        "abfs": ("org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem", "org.apache.hadoop:hadoop-azure"),
        "gs": (
            "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            "com.google.cloud.bigdataoss:gcs-connector",
        ),
    }
