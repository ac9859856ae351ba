"""Parse URLs of buckets (`s3://`, `gs://`, `az://`), and make an obstore client for each.

    s3://bucket/prefix
    s3://bucket/prefix?profile=lab&endpoint=https://minio.lab:9000&region=eu-central-1&path_style=yes
    s3://bucket/prefix?anonymous=yes            read a public bucket, unsigned
    gs://bucket/prefix    az://container/prefix?account=name

For S3, botocore finds credentials, endpoint, region and profile as in every AWS client (`AWS_PROFILE`, `~/.aws/config`,
single sign-on, ...), without a request to S3. Options in the URL take precedence. For other services, obstore finds the
credentials (`GOOGLE_APPLICATION_CREDENTIALS`, ...). A URL with credentials in it is an InputError.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from shlex import quote as shell_quote
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from msgspec import Struct

from onnxreg.schema.core.errors import InputError, RemoteError, missing_extra, why

SCHEMES: dict[str, tuple[str, ...]] = {
    "s3": ("anonymous", "endpoint", "path_style", "profile", "region"),
    "gs": ("anonymous", "endpoint"),
    "az": ("account", "anonymous", "endpoint"),
}
CONNECT_SECONDS = 10
FLAGS = ("anonymous", "path_style")
MAX_PREFIX_BYTES = 800
"""Maximum length of a prefix in bytes.

A key in S3 has at most 1024 bytes, and the key of a model's index file needs up to 213 bytes after the prefix.
"""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")


class BucketUrl(Struct, frozen=True):
    """A parsed URL `scheme://bucket/prefix?option=value`, which never contains a secret."""

    scheme: str
    bucket: str
    prefix: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, url: str) -> "BucketUrl":
        """Parse a URL. Raises InputError if it is malformed, has credentials or an impossible bucket name."""
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        endpoints = [value for name, value in options if name == "endpoint"]
        if any("@" in part for part in (parts.netloc, *endpoints)):
            raise InputError(
                "the URL holds credentials, which would be written to disk and shown",
                "leave them out; they are found as every client of the service finds them (AWS_PROFILE, ...)",
            )
        form = f"write {parts.scheme}://bucket/prefix"
        if not _BUCKET.fullmatch(parts.netloc) or ".." in parts.netloc:
            raise InputError(f"no bucket can be called {parts.netloc!r}", form)
        prefix = unquote(parts.path).removeprefix("/").removesuffix("/")
        is_odd = parts.fragment or "//" in parts.path or {".", ".."} & {*prefix.split("/")}
        if is_odd or len(prefix.encode()) > MAX_PREFIX_BYTES:
            raise InputError(f"not a prefix of a registry in a bucket, or too long: {prefix[:80]!r}", form)
        allowed = SCHEMES[parts.scheme]
        for name, value in options:
            if name not in allowed or (name in FLAGS and value not in ("yes", "no")):
                hint = f"options, some yes or no: {', '.join(allowed)}"
                raise InputError(f"such a URL has no option {name}={value[:20]}", hint)
        for endpoint in endpoints:
            check_endpoint(endpoint, "the option endpoint")
        return cls(parts.scheme, parts.netloc, prefix, tuple(sorted(options)))

    @property
    def url(self) -> str:
        below = f"/{quote(self.prefix)}" if self.prefix else ""
        options = f"?{urlencode(self.options)}" if self.options else ""
        return f"{self.scheme}://{self.bucket}{below}{options}"

    @property
    def endpoint_setting(self) -> str:
        return "base_url" if self.scheme == "gs" else "endpoint"

    def settings(self) -> dict[str, Any]:
        """Return the settings for obstore. Raises InputError, HostError or RemoteError if a setting cannot work."""
        options = dict(self.options)
        if self.scheme == "s3":
            settings = aws_settings(self.url, self.bucket, options)
        else:
            named = {"account_name": options.get("account"), self.endpoint_setting: options.get("endpoint")}
            settings = {name: value for name, value in named.items() if value}
        if options.get("anonymous") == "yes":
            settings["skip_signature"] = True
        endpoint = settings.get(self.endpoint_setting, "")
        settings.setdefault("client_options", {})["allow_http"] = endpoint.startswith("http:")
        return settings

    def client(
        self, settings: dict[str, Any], limit: float, silence: float | None = None, retries: int = 0
    ) -> Any:
        """Return an obstore client. A request fails after `limit` seconds, or after `silence` seconds without data."""
        from obstore import store as stores

        options = {"timeout": f"{limit * 1000:.0f}ms", "connect_timeout": f"{CONNECT_SECONDS}s"}
        if silence:
            options["read_timeout"] = f"{silence * 1000:.0f}ms"
        second = timedelta(seconds=1)
        backoff = {"init_backoff": 0.1 * second, "max_backoff": 5 * second, "base": 2}
        retry = {"max_retries": retries, "retry_timeout": timedelta(hours=1), "backoff": backoff}
        limits = {"client_options": settings["client_options"] | options, "retry_config": retry}
        kind = {"s3": stores.S3Store, "gs": stores.GCSStore, "az": stores.AzureStore}[self.scheme]
        return kind(self.bucket, prefix=self.prefix or None, **(settings | limits))


CREDENTIALS_TIME = timedelta(minutes=5)  # the time after which obstore asks botocore for credentials again
PROFILE_HINT = "check AWS_PROFILE, ~/.aws/config and the URL"


def aws_settings(url: str, bucket: str, options: Mapping[str, str]) -> dict[str, Any]:
    """Return arguments for `S3Store`. Raises InputError for a wrong option, and RemoteError without credentials."""
    try:
        from botocore import configprovider
        from botocore import session as sessions
    except ModuleNotFoundError:
        raise missing_extra("botocore", "s3", "a registry in S3") from None
    with _errors(url, options):
        session = sessions.Session(profile=options.get("profile"))
        profile: dict[str, Any] = session.get_scoped_config()
        region = options.get("region") or os.environ.get("AWS_REGION")
        region = region or session.get_config_variable("region") or "us-east-1"
        provider = configprovider.ConfiguredEndpointProvider(session.full_config, profile, "s3")
        endpoint = options.get("endpoint") or provider.provide()
        endpoint = endpoint or f"https://s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
        certificates = session.get_config_variable("ca_bundle")
    check_endpoint(endpoint, "AWS_ENDPOINT_URL")
    has_path_style = options.get("path_style") == "yes" or "." in bucket
    has_path_style |= dict(profile.get("s3") or {}).get("addressing_style") == "path"
    with suppress(ValueError):  # an IP address cannot follow a bucket's name
        host = urlsplit(endpoint).hostname
        has_path_style |= host == "localhost" or bool(ip_address(host or ""))
    if not has_path_style:
        endpoint = endpoint.replace("://", f"://{bucket}.", 1)
    arguments: dict[str, Any] = {
        "endpoint": endpoint,
        "region": region,
        "virtual_hosted_style_request": not has_path_style,
        "checksum_algorithm": "SHA256",
        "disable_bulk_delete": True,
    }
    if certificates:
        arguments["client_options"] = {"root_certificate": _certificates(Path(certificates))}

    def credentials() -> dict[str, Any]:
        with _errors(url, options):
            credentials = session.get_credentials()
            frozen = credentials.get_frozen_credentials() if credentials else None
        if frozen is None:
            hint = "set AWS_PROFILE or AWS_ACCESS_KEY_ID; a public bucket is read with ?anonymous=yes"
            raise RemoteError(f"no credentials for {url} were found", hint)
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + CREDENTIALS_TIME,
        }

    if options.get("anonymous") != "yes":
        credentials()  # errors are converted here
        arguments["credential_provider"] = credentials
    return arguments


def check_endpoint(endpoint: str, source: str) -> None:
    """Raise InputError if an endpoint is not a server's URL. `source` names the setting, such as AWS_ENDPOINT_URL."""
    with suppress(ValueError):
        parts = urlsplit(endpoint)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return
    raise InputError(f"{source} is {endpoint[:60]!r}", "write https://HOST:PORT there")


def _certificates(path: Path) -> bytes:
    with suppress(OSError):
        data = path.read_bytes()
        if b"-----BEGIN CERTIFICATE-----" in data:
            return data
    raise RemoteError(f"{path} cannot be read, or holds no certificate", "check the file in AWS_CA_BUNDLE")


@contextmanager
def _errors(url: str, options: Mapping[str, str]) -> Iterator[None]:
    from botocore import exceptions as boto

    failure = f"finding the credentials for {url} failed"
    configuration = (boto.ConfigNotFound, boto.ConfigParseError, boto.InvalidConfigError)
    names = (boto.InvalidRegionError, boto.ProfileNotFound, boto.UnknownCredentialError, boto.ValidationError)
    try:
        yield
    except (boto.SSOError, boto.TokenRetrievalError) as error:
        profile = options.get("profile") or os.environ.get("AWS_PROFILE")
        login = f"run aws sso login{f' --profile {shell_quote(profile)}' if profile else ''}"
        raise RemoteError(f"{failure}: {why(error)}", login) from error
    except (*configuration, *names, ValueError) as error:
        raise InputError(f"{failure}: {why(error)}", PROFILE_HINT) from error
    except (boto.BotoCoreError, boto.ClientError, OSError) as error:
        raise RemoteError(f"{failure}: {why(error)}", PROFILE_HINT) from error
