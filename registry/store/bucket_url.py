"""URLs of buckets, and the client of obstore for each: `s3://`, `gs://` and `az://`.

    s3://bucket/prefix
    s3://bucket/prefix?profile=lab&endpoint=https://minio.lab:9000&region=eu-central-1&path_style=yes
    s3://bucket/prefix?anonymous=yes            read a public bucket, unsigned
    gs://bucket/prefix    az://container/prefix?account=name

For S3, credentials, endpoint, region and profile are found as every AWS client finds them (`AWS_PROFILE`,
`AWS_ENDPOINT_URL`, `~/.aws/config`, roles, single sign-on, ...), by botocore; an option of the URL comes before them.
For the others obstore finds them (`GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_STORAGE_ACCOUNT_NAME`, ...). A URL with
credentials in it is refused.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from onnxreg.registry.store import aws
from onnxreg.schema.core.errors import InputError

SCHEMES: dict[str, tuple[str, ...]] = {
    "s3": ("anonymous", "endpoint", "path_style", "profile", "region"),
    "gs": ("anonymous", "endpoint"),
    "az": ("account", "anonymous", "endpoint"),
}
"""The options of each kind of URL."""
SERVERS = {"s3": "", "gs": "https://storage.googleapis.com", "az": "https://blob.core.windows.net"}
CONNECT_SECONDS = 10
FLAGS = ("anonymous", "path_style")
MAX_PREFIX_BYTES = 800
"""Bytes. A key of S3 has at most 1024, of which a model's index file needs up to 213."""
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]")


@dataclass(frozen=True)
class BucketUrl:
    """A parsed `scheme://bucket/prefix?option=value` URL. It never holds a secret."""

    scheme: str
    bucket: str
    prefix: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, url: str) -> "BucketUrl":
        """Parse a URL. InputError if it is malformed, names an impossible bucket, or holds credentials."""
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
        is_odd = (
            parts.fragment or "//" in parts.path or {"", ".", ".."} & set(prefix.split("/") if prefix else ())
        )
        if is_odd or len(prefix.encode()) > MAX_PREFIX_BYTES:
            raise InputError(f"not a prefix of a registry in a bucket, or too long: {prefix[:80]!r}", form)
        allowed = SCHEMES[parts.scheme]
        for name, value in options:
            if name not in allowed or (name in FLAGS and value not in ("yes", "no")):
                raise InputError(
                    f"such a URL has no option {name}={value[:20]}",
                    f"options, some yes or no: {', '.join(allowed)}",
                )
        for endpoint in endpoints:
            aws.check_endpoint(endpoint, "the option endpoint")
        return cls(parts.scheme, parts.netloc, prefix, tuple(sorted(options)))

    @property
    def url(self) -> str:
        below = f"/{quote(self.prefix)}" if self.prefix else ""
        options = f"?{urlencode(self.options)}" if self.options else ""
        return f"{self.scheme}://{self.bucket}{below}{options}"

    @property
    def endpoint_setting(self) -> str:
        """The setting of obstore for the server's address."""
        return "base_url" if self.scheme == "gs" else "endpoint"

    def option(self, name: str) -> str:
        """The value of an option; empty if the URL does not have it."""
        return dict(self.options).get(name, "")

    def flag(self, name: str) -> bool:
        return self.option(name) == "yes"

    def settings(self) -> dict[str, Any]:
        """Return the settings of obstore's client. InputError, HostError or RemoteError for those that cannot work."""
        is_signed = not self.flag("anonymous")
        if self.scheme == "s3":
            options = dict(self.options)
            settings = aws.settings(self.url, self.bucket, options, self.flag("path_style"), is_signed)
        else:
            named = {"account_name": self.option("account"), self.endpoint_setting: self.option("endpoint")}
            settings = {name: value for name, value in named.items() if value}
        endpoint = settings.get(self.endpoint_setting) or SERVERS[self.scheme]
        if not is_signed:
            settings["skip_signature"] = True
        settings.setdefault("client_options", {})["allow_http"] = endpoint.startswith("http:")
        return settings

    def client(
        self, settings: dict[str, Any], limit: float, silence: float | None = None, retries: int = 0
    ) -> Any:
        """Make a client of obstore whose keys are below the prefix.

        A request may take `limit` seconds, its answer may be silent for `silence` seconds (None: no limit).
        """
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
