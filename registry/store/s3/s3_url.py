"""`s3://bucket/prefix?option=value`."""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from onnxreg.schema.core.errors import InputError

MAX_PREFIX_BYTES = 800
"""Bytes. A key of S3 has at most 1024, of which a model's index file needs up to 213."""
OPTIONS = ("anonymous", "endpoint", "path_style", "profile", "region")
FLAGS = ("anonymous", "path_style")
YES, NO = frozenset({"yes", "1", "true"}), frozenset({"no", "0", "false"})

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


@dataclass(frozen=True)
class S3Url:
    """A parsed `s3://bucket/prefix?option=value` URL. It never holds a secret."""

    bucket: str
    prefix: str
    options: tuple[tuple[str, str], ...] = ()

    @classmethod
    def parse(cls, url: str) -> "S3Url":
        """Parse a URL. InputError if it is not an S3 URL, names an impossible bucket, or holds credentials."""
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True)
        endpoints = [value for name, value in options if name == "endpoint"]
        if any("@" in part for part in (parts.netloc, *endpoints)):
            raise InputError(
                "the URL holds credentials, which would be written to disk and shown",
                "leave them out; they are found as every AWS client finds them (AWS_PROFILE, ~/.aws/credentials)",
            )
        if not _BUCKET.fullmatch(parts.netloc) or ".." in parts.netloc:
            raise InputError(
                f"no bucket can be called {parts.netloc!r}",
                "write s3://bucket/prefix; a bucket's name is 3 to 63 of a-z, 0-9, - and .",
            )
        prefix = unquote(parts.path).removeprefix("/").removesuffix("/")
        if parts.fragment or "//" in parts.path or {"", ".", ".."} & set(prefix.split("/") if prefix else ()):
            raise InputError(f"not a prefix of an S3 registry: {prefix!r}", "write s3://bucket/prefix")
        if len(prefix.encode()) > MAX_PREFIX_BYTES:
            raise InputError(f"the prefix is longer than {MAX_PREFIX_BYTES} bytes", "use a shorter prefix")
        for name, value in options:
            if name not in OPTIONS:
                raise InputError(f"an S3 URL has no option {name!r}", f"options: {', '.join(OPTIONS)}")
            if name in FLAGS and value.lower() not in YES | NO:
                raise InputError(
                    f"the option {name} of an S3 URL is yes or no, not {value[:20]!r}", f"write {name}=yes"
                )
        return cls(parts.netloc, prefix, tuple(sorted(options)))

    @property
    def url(self) -> str:
        below = f"/{quote(self.prefix)}" if self.prefix else ""
        options = f"?{urlencode(self.options)}" if self.options else ""
        return f"s3://{self.bucket}{below}{options}"

    def option(self, name: str) -> str | None:
        return dict(self.options).get(name)

    def flag(self, name: str) -> bool:
        return (self.option(name) or "no").lower() in YES
