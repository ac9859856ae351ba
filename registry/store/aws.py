"""The configuration of AWS as every AWS client reads it: credentials, endpoint, region, certificates, by botocore.

botocore sends no request to S3 here; it asks the login, role or metadata service of AWS for credentials.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import urlsplit

from onnxreg.schema.core.errors import InputError, RemoteError, missing_extra, why

CREDENTIALS_TIME = timedelta(minutes=5)
"""obstore asks botocore for credentials this often; botocore renews those that end soon."""
PROFILE_HINT = "check AWS_PROFILE, ~/.aws/config and the URL"


def settings(
    url: str, bucket: str, options: Mapping[str, str], is_path: bool = False, is_signed: bool = True
) -> dict[str, Any]:
    """Return the arguments of `obstore.store.S3Store` for a URL and its options.

    `is_path`: addresses have the bucket's name in the path; they do so too if the server or its configuration wants it.

    InputError for a configuration that can never work, RemoteError if there are no credentials.
    """
    try:
        from botocore import configprovider
        from botocore import session as sessions
    except ModuleNotFoundError:
        raise missing_extra("botocore", "s3", "a registry in S3") from None
    with errors(url, options):
        session = sessions.Session(profile=options.get("profile"))
        profile: dict[str, Any] = session.get_scoped_config()
        region = (
            options.get("region") or os.environ.get("AWS_REGION") or session.get_config_variable("region")
        )
        region = region or "us-east-1"
        provider = configprovider.ConfiguredEndpointProvider(session.full_config, profile, "s3")
        endpoint = options.get("endpoint") or provider.provide()
        endpoint = endpoint or f"https://s3.{region}.amazonaws.com{'.cn' if region.startswith('cn-') else ''}"
        certificates = session.get_config_variable("ca_bundle")
    check_endpoint(endpoint, "AWS_ENDPOINT_URL")
    is_path = is_path or dict(profile.get("s3") or {}).get("addressing_style") == "path"
    is_path = is_path or "." in bucket or _is_address(urlsplit(endpoint).hostname or "")
    if not is_path:
        endpoint = endpoint.replace("://", f"://{bucket}.", 1)
    arguments: dict[str, Any] = {
        "endpoint": endpoint,
        "region": region,
        "virtual_hosted_style_request": not is_path,
        "checksum_algorithm": "SHA256",
        "disable_bulk_delete": True,
    }
    if certificates:
        arguments["client_options"] = {"root_certificate": _certificates(Path(certificates))}
    if is_signed:
        arguments["credential_provider"] = Credentials(url, options, session)
    return arguments


def check_endpoint(endpoint: str, source: str) -> None:
    """InputError if an endpoint is not the URL of a server."""
    with suppress(ValueError):
        parts = urlsplit(endpoint)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return
    raise InputError(f"{source} is {endpoint[:60]!r}", "write https://HOST:PORT there")


def _is_address(host: str) -> bool:
    """True for a server whose name cannot have the bucket's name before it."""
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def _certificates(path: Path) -> bytes:
    """The certificates of a file. RemoteError if it has none."""
    with suppress(OSError):
        data = path.read_bytes()
        if b"-----BEGIN CERTIFICATE-----" in data:
            return data
    raise RemoteError(f"{path} cannot be read, or holds no certificate", "check the file in AWS_CA_BUNDLE")


class Credentials:
    """The credentials of a session, for obstore; the first ones are fetched at once, so that errors are ours."""

    def __init__(self, url: str, options: Mapping[str, str], session: Any) -> None:
        self._url, self._options, self._session = url, options, session
        self()

    def __call__(self) -> dict[str, Any]:
        with errors(self._url, self._options):
            credentials = self._session.get_credentials()
            frozen = credentials.get_frozen_credentials() if credentials else None
        if frozen is None:
            raise RemoteError(
                f"no credentials for {self._url} were found",
                "set AWS_PROFILE or AWS_ACCESS_KEY_ID; a public bucket is read with ?anonymous=yes",
            )
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + CREDENTIALS_TIME,
        }


@contextmanager
def errors(url: str, options: Mapping[str, str]) -> Iterator[None]:
    """Turn the errors of botocore's configuration and logins into ours."""
    from botocore import exceptions as boto

    failure = f"finding the credentials for {url} failed"
    configuration = (boto.ConfigNotFound, boto.ConfigParseError, boto.InvalidConfigError)
    names = (boto.InvalidRegionError, boto.ProfileNotFound, boto.UnknownCredentialError, boto.ValidationError)
    try:
        yield
    except (boto.SSOError, boto.TokenRetrievalError) as error:
        profile = options.get("profile") or os.environ.get("AWS_PROFILE")
        login = f"run aws sso login{f' --profile {quote(profile)}' if profile else ''}"
        raise RemoteError(f"{failure}: {why(error)}", login) from error
    except (*configuration, *names, ValueError) as error:
        raise InputError(f"{failure}: {why(error)}", PROFILE_HINT) from error
    except (boto.BotoCoreError, boto.ClientError, OSError) as error:
        raise RemoteError(f"{failure}: {why(error)}", PROFILE_HINT) from error
