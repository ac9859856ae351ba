"""The repository that an `oci://host[:port]/repository[:tag|@digest]` URL names."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from onnxreg.registry.store.net.http_rules import is_loopback
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version

_URL = re.compile(r"oci://([^/@\s?#]+)/([^:@\s?#]+)(?::([^@/\s]+))?(?:@(\S+))?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_API_HOSTS = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}


@dataclass(frozen=True)
class OciTarget:
    """A repository of an OCI registry, with a tag or a digest in it if one is named."""

    host: str
    repository: str
    tag: str | None = None
    digest: Digest | None = None

    @classmethod
    def parse(cls, url: str) -> "OciTarget":
        """InputError for anything else than the URL of a repository."""
        match = _URL.fullmatch(url)
        if match is None:
            raise InputError(
                f"not the URL of an OCI repository: {url[:80]!r}", "write oci://host/repository:tag"
            )
        host, repository, tag, digest = match.groups()
        try:
            _ = urlsplit(f"//{host}").port
        except ValueError:
            raise InputError(f"not a host: {host[:80]!r}", "write oci://host:port/repository") from None
        if not _REPOSITORY.fullmatch(repository):
            raise InputError(
                f"not the name of an OCI repository: {repository[:80]!r}",
                "it has lower-case letters, digits and single . _ - between them",
            )
        if tag is not None and not _TAG.fullmatch(tag):
            raise InputError(f"not an OCI tag: {tag[:80]!r}", "it has letters, digits and . _ -")
        return cls(host, repository, tag, None if digest is None else Digest.parse(digest))

    @property
    def base(self) -> str:
        """The URL of the server: plain HTTP only if it is this machine."""
        scheme = "http" if is_loopback(urlsplit(f"//{self.host}").hostname or "") else "https"
        return f"{scheme}://{_API_HOSTS.get(self.host, self.host)}"

    @property
    def api(self) -> str:
        return f"{self.base}/v2/{self.repository}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"oci://{self.host}/{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


def tag_of(version: Version) -> str:
    """The tag of a version. OCI tags have no `+`; like other tools, `_` replaces it."""
    return str(version).replace("+", "_")
