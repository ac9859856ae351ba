"""Credentials, region and endpoint of AWS, found where every AWS client finds them; local doubles give out credentials."""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from support.servers import s3servers

from onnxreg.registry.store.bucket_url import BucketUrl, aws_settings

SOON = datetime.now(UTC) + timedelta(hours=1)
ROLE = {"AccessKeyId": "ROLEKEY", "SecretAccessKey": "ROLESECRET", "Token": "TOKEN", "Code": "Success"}
STS = """<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>ROLEKEY</AccessKeyId><SecretAccessKey>ROLESECRET</SecretAccessKey>
<SessionToken>TOKEN</SessionToken><Expiration>{soon}</Expiration></Credentials></AssumeRoleWithWebIdentityResult>
</AssumeRoleWithWebIdentityResponse>"""


class Double(BaseHTTPRequestHandler):
    """The metadata service of an instance, the login service and the service of roles, in one."""

    def do_GET(self) -> None:
        soon = SOON.strftime("%Y-%m-%dT%H:%M:%SZ")
        if "federation/credentials" in self.path:
            role = {"accessKeyId": "ROLEKEY", "secretAccessKey": "ROLESECRET", "sessionToken": "TOKEN"}
            return self._answer(
                json.dumps({"roleCredentials": role | {"expiration": int(SOON.timestamp() * 1000)}})
            )
        if self.path.endswith("/api/token"):
            return self._answer("token")
        if self.path.endswith("/security-credentials/"):
            return self._answer("role")
        if "security-credentials/role" in self.path or self.path == "/container":
            return self._answer(json.dumps(ROLE | {"Expiration": soon}))
        return self._answer(STS.format(soon=soon))

    do_POST = do_PUT = do_GET  # noqa: N815

    def _answer(self, text: str) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def double() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Double) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


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


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine of which AWS knows nothing but a configuration file."""
    s3servers.Server("", "", "").enter(monkeypatch)
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    (tmp_path / "config").write_text(CONFIG)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    return monkeypatch


def settings(url: str = "s3://models/x") -> dict[str, Any]:
    parsed = BucketUrl.parse(url)
    return aws_settings(parsed.url, parsed.bucket, dict(parsed.options))


def key(url: str = "s3://models/x") -> str:
    return str(settings(url)["credential_provider"]()["access_key_id"])


def test_of_the_environment_and_of_a_profile(bare: pytest.MonkeyPatch) -> None:
    assert key("s3://models/x?profile=lab") == "LABKEY"
    assert settings("s3://models/x?profile=lab")["endpoint"] == "https://models.s3.lab.example"
    assert settings("s3://models/x?profile=lab")["region"] == "eu-west-1"
    bare.setenv("AWS_PROFILE", "lab")
    assert key() == "LABKEY"
    bare.setenv("AWS_ACCESS_KEY_ID", "KEY")
    bare.setenv("AWS_SECRET_ACCESS_KEY", "SECRET")
    assert (key(), key("s3://models/x?profile=lab")) == ("KEY", "LABKEY")


def test_of_a_login_in_a_browser(bare: pytest.MonkeyPatch, double: str, tmp_path: Path) -> None:
    cache = tmp_path / ".aws/sso/cache"
    cache.mkdir(parents=True)
    token = {"accessToken": "x", "expiresAt": SOON.strftime("%Y-%m-%dT%H:%M:%SZ"), "region": "eu-west-1"}
    (cache / f"{hashlib.sha1(b'lab').hexdigest()}.json").write_text(json.dumps(token))
    bare.setenv("AWS_ENDPOINT_URL_SSO", double)
    code = """
from onnxreg.registry.store.bucket_url import aws_settings
print(aws_settings("s3://m", "m", {"profile": "login"})["credential_provider"]()["access_key_id"])
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout == "ROLEKEY\n", "botocore finds the home directory when it is imported"


@pytest.mark.parametrize("source", ["web identity", "instance", "container"])
def test_of_a_role(bare: pytest.MonkeyPatch, double: str, tmp_path: Path, source: str) -> None:
    if source == "web identity":
        (tmp_path / "token").write_text("token")
        bare.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        bare.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/reader")
        bare.setenv("AWS_ENDPOINT_URL_STS", double)
    elif source == "instance":
        bare.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", double)
    else:
        bare.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{double}/container")
    assert key() == "ROLEKEY"


@pytest.mark.parametrize(
    ("environment", "url", "endpoint"),
    [
        ({}, "s3://models/x", "https://models.s3.us-east-1.amazonaws.com"),
        ({}, "s3://models.lab/x?region=eu-west-1", "https://s3.eu-west-1.amazonaws.com"),
        ({"AWS_REGION": "cn-north-1"}, "s3://models/x", "https://models.s3.cn-north-1.amazonaws.com.cn"),
        ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "s3://models/x", "http://127.0.0.1:9"),
        ({"AWS_ENDPOINT_URL_S3": "https://lab:9"}, "s3://models/x", "https://models.lab:9"),
    ],
)
def test_the_server_of_a_bucket(
    bare: pytest.MonkeyPatch, environment: dict[str, str], url: str, endpoint: str
) -> None:
    for name, value in {"AWS_ACCESS_KEY_ID": "KEY", "AWS_SECRET_ACCESS_KEY": "SECRET", **environment}.items():
        bare.setenv(name, value)
    assert settings(url)["endpoint"] == endpoint
