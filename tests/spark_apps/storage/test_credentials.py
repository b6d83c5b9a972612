"""Storage options in Hadoop's words: each way of signing in, which names are secrets, and which have no setting."""

from __future__ import annotations

from typing import Any

import pytest

from spark_apps.storage.credentials import hadoop_settings

S3A = "spark.hadoop.fs.s3a."
AZURE = "spark.hadoop.fs.azure."
SDK = "software.amazon.awssdk.auth.credentials"
HOST = "acct.dfs.core.windows.net"
ABFSS = f"abfss://lake@{HOST}/wh"


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
@pytest.mark.parametrize("prefix", ["", "aws_", "AWS_"])
def test_given_keys_of_s3_then_hadoop_gets_the_same(scheme: str, prefix: str) -> None:
    options = {f"{prefix}access_key_id": "a", f"{prefix}secret_access_key": "s", f"{prefix}region": "eu-west-1"}

    hadoop = hadoop_settings(f"{scheme}://lake/wh", options)

    assert hadoop.conf == {
        S3A + "access.key": "a",
        S3A + "secret.key": "s",
        S3A + "endpoint.region": "eu-west-1",
        S3A + "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    assert hadoop.unsupported_options == []


@pytest.mark.parametrize(
    ("options", "conf"),
    [
        (
            {"aws_endpoint": "http://h:9000", "allow_http": "true"},
            {"endpoint": "http://h:9000", "path.style.access": "true", "connection.ssl.enabled": "false"},
        ),
        (
            {"aws_endpoint_url": "https://h", "aws_virtual_hosted_style_request": True},
            {"endpoint": "https://h", "path.style.access": "false", "connection.ssl.enabled": "true"},
        ),
        (
            {"aws_session_token": "t", "aws_access_key_id": "a", "aws_secret_access_key": "s"},
            {
                "access.key": "a",
                "secret.key": "s",
                "session.token": "t",
                "aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
            },
        ),
        (
            {"aws_role_arn": "arn:aws:iam::1:role/lake", "aws_role_session_name": "airflow"},
            {
                "assumed.role.arn": "arn:aws:iam::1:role/lake",
                "assumed.role.session.name": "airflow",
                "aws.credentials.provider": "org.apache.hadoop.fs.s3a.auth.AssumedRoleCredentialProvider",
                "assumed.role.credentials.provider": f"{SDK}.DefaultCredentialsProvider",
            },
        ),
        (
            {"aws_skip_signature": "true"},
            {"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
        ),
        (
            {"aws_server_side_encryption": "aws:kms", "aws_sse_kms_key_id": "k"},
            {"encryption.algorithm": "SSE-KMS", "encryption.key": "k"},
        ),
    ],
)
def test_given_options_of_s3_then_each_has_its_setting(options: dict[str, Any], conf: dict[str, str]) -> None:
    hadoop = hadoop_settings("s3://lake/wh", options)

    assert hadoop.conf == {S3A + name: value for name, value in conf.items()}
    assert hadoop.unsupported_options == []


@pytest.mark.parametrize(
    ("options", "conf"),
    [
        ({"azure_storage_account_key": "k"}, {"account.auth.type": "SharedKey", "account.key": "k"}),
        ({"sas_token": "?sv=1&sig=x"}, {"account.auth.type": "SAS", "sas.fixed.token": "sv=1&sig=x"}),
        (
            {"azure_client_id": "c", "azure_client_secret": "s", "azure_tenant_id": "t"},
            {
                "account.auth.type": "OAuth",
                "account.oauth2.client.id": "c",
                "account.oauth2.client.secret": "s",
                "account.oauth2.client.endpoint": "https://login.microsoftonline.com/t/oauth2/token",
                "account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.ClientCredsTokenProvider",
            },
        ),
        (
            {"client_id": "c", "tenant_id": "t"},
            {
                "account.auth.type": "OAuth",
                "account.oauth2.client.id": "c",
                "account.oauth2.msi.tenant": "t",
                "account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider",
            },
        ),
    ],
)
def test_given_options_of_azure_then_they_are_of_that_account(options: dict[str, Any], conf: dict[str, str]) -> None:
    hadoop = hadoop_settings(ABFSS, options)

    assert hadoop.conf == {f"{AZURE}{name}.{HOST}": value for name, value in conf.items()}
    assert hadoop.unsupported_options == []


def test_given_a_service_account_of_google_then_both_connectors_are_told() -> None:
    hadoop = hadoop_settings("gs://lake/wh", {"google_service_account": "/etc/key.json"})

    assert hadoop.conf["spark.hadoop.fs.gs.auth.service.account.json.keyfile"] == "/etc/key.json"
    assert hadoop.conf["spark.hadoop.google.cloud.auth.service.account.json.keyfile"] == "/etc/key.json"
    assert hadoop.conf["spark.hadoop.fs.gs.auth.type"] == "SERVICE_ACCOUNT_JSON_KEYFILE"


def test_given_an_option_without_counterpart_then_it_is_named() -> None:
    assert hadoop_settings("s3://b", {"aws_s3_express": "true", "timeout": "10s"}).unsupported_options == [
        "aws_s3_express"
    ]
    assert hadoop_settings("gs://b", {"google_service_account_key": "{}"}).unsupported_options == [
        "google_service_account_key"
    ]


def test_given_a_local_path_then_there_is_nothing_to_tell() -> None:
    assert hadoop_settings("/data/wh", {"aws_region": "x"}).conf == {}
