"""Credentials, region and endpoint of AWS, found where every AWS client finds them; local doubles give out credentials."""

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from support.servers import http, s3servers

from onnxreg.registry.store.bucket_url import BucketUrl, aws_settings

SOON = datetime.now(UTC) + timedelta(hours=1)
EXPIRY = SOON.strftime("%Y-%m-%dT%H:%M:%SZ")
ROLE = {"AccessKeyId": "ROLEKEY", "SecretAccessKey": "ROLESECRET", "Token": "TOKEN", "Code": "Success"}
LOGIN = {"accessKeyId": "ROLEKEY", "secretAccessKey": "ROLESECRET", "sessionToken": "TOKEN"}
STS = f"""<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>ROLESECRET</SecretAccessKey>
<SessionToken>TOKEN</SessionToken><Expiration>{EXPIRY}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""
ANSWERS = {
    "federation/credentials": json.dumps(
        {"roleCredentials": {**LOGIN, "expiration": int(SOON.timestamp() * 1000)}}
    ),
    "/api/token": "token",
    "security-credentials/role": json.dumps({**ROLE, "Expiration": EXPIRY}),
    "/container": json.dumps({**ROLE, "Expiration": EXPIRY}),
    "/security-credentials/": "role",
}
"""Of the metadata service of an instance and of the login service; all else is asked of the service of roles."""


@pytest.fixture
def double() -> Iterator[str]:
    def answer(handler: http.Handler) -> None:
        text = next((text for part, text in ANSWERS.items() if part in handler.path), STS)
        handler.reply(200, text.encode())

    with http.serving(answer=answer) as url:
        yield url


CONFIG = """
[profile lab]
region = eu-west-1
endpoint_url = https://s3.lab.example
aws_access_key_id = LABKEY
aws_secret_access_key = LABSECRET
[profile login]
sso_session = lab
sso_account_id = 123456789012
sso_role_name = reader
region = eu-west-1
[sso-session lab]
sso_start_url = https://lab.example/start
sso_region = eu-west-1
sso_registration_scopes = sso:account:access
"""
PAIR = {"AWS_ACCESS_KEY_ID": "KEY", "AWS_SECRET_ACCESS_KEY": "SECRET"}


@pytest.fixture
def bare(monkeypatch, tmp_path) -> pytest.MonkeyPatch:
    """A machine of which AWS knows nothing but a configuration file."""
    s3servers.Server("", "", "").enter(monkeypatch)
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_EC2_METADATA_DISABLED", *PAIR):
        monkeypatch.delenv(name)
    (tmp_path / "config").write_text(CONFIG)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return monkeypatch


def settings(options: str = "", bucket: str = "models") -> dict[str, Any]:
    parsed = BucketUrl.parse(f"s3://{bucket}/x{options}")
    return aws_settings(parsed.url, parsed.bucket, dict(parsed.options))


def key(options: str = "") -> str:
    return str(settings(options)["credential_provider"]()["access_key_id"])


def test_of_the_environment_and_of_a_profile(bare):
    assert key("?profile=lab") == "LABKEY"
    assert settings("?profile=lab")["endpoint"] == "https://models.s3.lab.example"
    assert settings("?profile=lab")["region"] == "eu-west-1"
    bare.setenv("AWS_PROFILE", "lab")
    assert key() == "LABKEY"
    for name, value in PAIR.items():
        bare.setenv(name, value)
    assert (key(), key("?profile=lab")) == ("KEY", "LABKEY")


def test_of_a_login_in_a_browser(bare, double, tmp_path):
    cache = tmp_path / ".aws/sso/cache"
    cache.mkdir(parents=True)
    token = {"accessToken": "x", "expiresAt": EXPIRY, "region": "eu-west-1"}
    (cache / f"{hashlib.sha1(b'lab').hexdigest()}.json").write_text(json.dumps(token))
    bare.setenv("AWS_ENDPOINT_URL_SSO", double)
    code = """
from onnxreg.registry.store.bucket_url import aws_settings
print(aws_settings("s3://m", "m", {"profile": "login"})["credential_provider"]()["access_key_id"])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "ROLEKEY\n", "botocore finds the home directory when it is imported"


ROLES = {
    "web identity": {
        "AWS_WEB_IDENTITY_TOKEN_FILE": "HOME/token",
        "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/reader",
        "AWS_ENDPOINT_URL_STS": "DOUBLE",
    },
    "instance": {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "DOUBLE"},
    "container": {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "DOUBLE/container"},
}


@pytest.mark.parametrize("variables", ROLES.values(), ids=ROLES)
def test_of_a_role(bare, double, tmp_path, variables):
    (tmp_path / "token").write_text("token")
    for name, value in variables.items():
        bare.setenv(name, value.replace("HOME", str(tmp_path)).replace("DOUBLE", double))
    assert key() == "ROLEKEY"


@pytest.mark.parametrize(
    ("variables", "bucket", "options", "endpoint"),
    [
        ({}, "models", "", "https://models.s3.us-east-1.amazonaws.com"),
        ({}, "models.lab", "?region=eu-west-1", "https://s3.eu-west-1.amazonaws.com"),
        ({"AWS_REGION": "cn-north-1"}, "models", "", "https://models.s3.cn-north-1.amazonaws.com.cn"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "models", "", "http://127.0.0.1:9"),
        ({"AWS_ENDPOINT_URL_S3": "https://lab:9"}, "models", "", "https://models.lab:9"),
    ],
)
def test_the_server_of_a_bucket(bare, variables, bucket, options, endpoint):
    for name, value in {**PAIR, **variables}.items():
        bare.setenv(name, value)
    assert settings(options, bucket)["endpoint"] == endpoint
