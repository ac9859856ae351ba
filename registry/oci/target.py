"""The repository that an `oci://host[:port]/repository[:tag|@digest]` URL names, and the login to it.

The `Authorization` header is made from the credentials that docker, skopeo, podman and oras keep. The server demands
Basic, or Bearer with a token endpoint. The files with credentials, in this order, are `$REGISTRY_AUTH_FILE`,
`$XDG_RUNTIME_DIR/containers/auth.json`, `~/.config/containers/auth.json`, and `config.json` of `$DOCKER_CONFIG` or
`~/.docker`; they may name helper programs. The first file that has an entry counts. Of several entries of a file, the
one for the longest part of `host/path` counts.
"""

import base64
import http.client
import json
import os
import re
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from onnxreg.registry.store.http import PASSING_STATUS, RefusedError, make_opener, read_body
from onnxreg.registry.store.net import http_rules, requests
from onnxreg.registry.store.net.http_rules import is_loopback
from onnxreg.registry.support import environment
from onnxreg.registry.support.disk import read_bounded
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, InputError, RemoteError, why
from onnxreg.schema.core.ref import Version

SCHEME = "oci://"
MAX_TOKEN_BYTES = 2**20
MAX_FILE_BYTES = 2**20
HELPER_SECONDS = 60.0

_URL = re.compile(r"oci://([^/@\s?#]+)/([^:@\s?#]+)(?::([^@/\s]+))?(?:@(\S+))?")
_REPOSITORY = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*")
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_API_HOSTS = {"docker.io": "registry-1.docker.io", "index.docker.io": "registry-1.docker.io"}
_CHALLENGE = re.compile(r"\s*(basic|bearer)\b", re.IGNORECASE)
_PARAMETER = re.compile(r'([a-zA-Z_]+)="([^"]*)"')
_HELPER = re.compile(r"[A-Za-z0-9._-]+")
_TOKEN_USER = "<token>"
"""The user name by which a helper says that the secret is an identity token."""


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
        name = urlsplit(f"//{self.host}").hostname or ""
        scheme = "http" if is_loopback(name) else "https"
        return f"{scheme}://{_API_HOSTS.get(self.host, self.host)}"

    @property
    def api(self) -> str:
        return f"{self.base}/v2/{self.repository}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        return f"{SCHEME}{self.host}/{self.repository}{tag}{f'@{self.digest}' if self.digest else ''}"


def tag_of(version: Version) -> str:
    """The tag of a version. OCI tags have no `+`; like other tools, `_` replaces it."""
    return str(version).replace("+", "_")


@dataclass(frozen=True)
class Credential:
    """A name with its password, or an identity token with which access tokens are requested."""

    user: str = ""
    secret: str = ""
    identity_token: str = ""

    @property
    def basic(self) -> str:
        text = base64.b64encode(f"{self.user}:{self.secret}".encode()).decode()
        return f"Basic {text}"


def find_credential(host: str, repository: str) -> Credential | None:
    """The credential for a repository; None if no file has one. InputError for a file that is not JSON."""
    for path in _credential_files():
        document = _read_credential_file(path)
        if document is not None:
            credential = _credential_in_file(document, path, host, repository)
            if credential is not None:
                return credential
    return None


def _credential_files() -> Iterator[Path]:
    auth_file, runtime = environment.read("REGISTRY_AUTH_FILE"), environment.read("XDG_RUNTIME_DIR")
    if auth_file:
        yield Path(auth_file)
    if runtime:
        yield Path(runtime) / "containers" / "auth.json"
    config = environment.read("XDG_CONFIG_HOME")
    home = Path(os.path.expanduser("~"))  # noqa: PTH111
    yield (Path(config) if config else home / ".config") / "containers" / "auth.json"
    docker = environment.read("DOCKER_CONFIG")
    yield (Path(docker) if docker else home / ".docker") / "config.json"


def _read_credential_file(path: Path) -> Mapping[str, Any] | None:
    try:
        value = json.loads(read_bounded(path, MAX_FILE_BYTES))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostError(f"reading {path} failed: {error.strerror}", "check its permissions") from error
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InputError(f"{path} is not a file of credentials", "log in again: skopeo login HOST")
    return value


def _credential_in_file(
    document: Mapping[str, Any], path: Path, host: str, repository: str
) -> Credential | None:
    helpers, auths = _credential_table(document, "credHelpers"), _credential_table(document, "auths")
    entries = {_credential_key(name): value for name, value in auths.items()}
    for key in _credential_keys(host, repository):
        helper = helpers.get(key)
        credential = _ask_credential_helper(helper, key) if isinstance(helper, str) else None
        if credential is None and isinstance(entries.get(key), dict):
            credential = _credential_of_entry(entries[key], path, key)
        if credential is not None:
            return credential
    store = document.get("credsStore")
    return _ask_credential_helper(store, host) if isinstance(store, str) and store else None


def _credential_table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _credential_keys(host: str, repository: str) -> Iterator[str]:
    """The keys of a repository, the longest first: `host/a/b`, `host/a`, `host`."""
    parts = repository.split("/")
    for count in range(len(parts), 0, -1):
        yield "/".join([host, *parts[:count]])
    yield host
    if host == "docker.io":
        yield "index.docker.io"


def _credential_key(name: str) -> str:
    """A key without its scheme; of an old key with a scheme only the host."""
    scheme, separator, tail = name.partition("://")
    return tail.partition("/")[0] if separator else scheme.rstrip("/")


def _credential_of_entry(entry: Mapping[str, Any], path: Path, key: str) -> Credential | None:
    identity = entry.get("identitytoken")
    encoded = entry.get("auth")
    user, secret = str(entry.get("username") or ""), str(entry.get("password") or "")
    if isinstance(encoded, str) and encoded:
        try:
            user, separator, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:
            separator = ""
        if not separator:
            raise InputError(f"{path}: the entry {key} is malformed", f"log in again: skopeo login {key}")
    if identity:
        return Credential(user, "", str(identity))
    return Credential(user, secret.rstrip("\0")) if user else None


def _ask_credential_helper(helper: str, host: str) -> Credential | None:
    """Ask a helper program for the credential of a host; None if it has none."""
    if not _HELPER.fullmatch(helper):
        raise InputError(f"not the name of a credential helper: {helper[:60]!r}")
    program = f"docker-credential-{helper}"
    try:
        completed = subprocess.run(
            [program, "get"], input=host.encode(), capture_output=True, timeout=HELPER_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"{program} failed: {error}", "install it, or log in again") from error
    if completed.returncode:
        if b"not found" in completed.stdout + completed.stderr:
            return None
        raise HostError(f"{program} failed with status {completed.returncode}", f"try it: {program} get")
    try:
        answer = json.loads(completed.stdout)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (ValueError, KeyError, TypeError):
        raise HostError(f"{program} gave no credential", f"try it: {program} get") from None
    return Credential("", "", secret) if user == _TOKEN_USER else Credential(user, secret)


@dataclass
class Login:
    """The present authorization. `mounts` are repositories whose blobs are mounted."""

    target: OciTarget
    writes: bool = False
    mounts: Sequence[str] = ()
    header: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def renew(self, challenges: Sequence[str], refused: dict[str, str]) -> bool:
        """Log in as the server demands; False if what it refused is the best there is."""
        with self._lock:
            if self.header != refused:
                return True  # another thread did it meanwhile
            for challenge in challenges:
                match = _CHALLENGE.match(challenge)
                if match is None:
                    continue
                credential = find_credential(self.target.host, self.target.repository)
                if match[1].lower() == "basic":
                    if credential is None or credential.identity_token:
                        return False
                    self.header = {"Authorization": credential.basic}
                else:
                    parameters = dict(_PARAMETER.findall(challenge))
                    self.header = {"Authorization": f"Bearer {self._token(parameters, credential)}"}
                return self.header != refused
            return False

    def _scopes(self) -> list[str]:
        actions = "pull,push" if self.writes else "pull"
        own = f"repository:{self.target.repository}:{actions}"
        return [own, *(f"repository:{name}:pull" for name in self.mounts)]

    def _token(self, parameters: dict[str, str], credential: Credential | None) -> str:
        """An access token from the endpoint that the server names."""
        try:
            realm = http_rules.target(f"{self.target.base}/v2/", parameters.get("realm"))
        except RemoteError as error:
            raise RemoteError(
                f"{self.target} names a token endpoint that is not used: {error.message}"
            ) from None
        query: list[tuple[str, str]] = [("scope", scope) for scope in self._scopes()]
        if parameters.get("service"):
            query.append(("service", parameters["service"]))
        if credential is not None and credential.identity_token:
            form = {
                "grant_type": "refresh_token",
                "refresh_token": credential.identity_token,
                "client_id": "onnxreg",
                "service": parameters.get("service", ""),
                "scope": " ".join(self._scopes()),
            }
            request = urllib.request.Request(realm, data=urlencode(form).encode(), method="POST")
        else:
            joint = "&" if "?" in realm else "?"
            request = urllib.request.Request(f"{realm}{joint}{urlencode(query)}")
            if credential is not None:
                request.add_unredirected_header("Authorization", credential.basic)
        try:
            with requests.reading(), make_opener(realm).open(request, timeout=requests.timeout()) as answer:
                value = json.loads(bytes(read_body(answer, realm, MAX_TOKEN_BYTES)))
            token = value.get("token") or value["access_token"]
        except urllib.error.HTTPError as error:
            with error:
                message = f"the token endpoint of {self.target.host} answers {error.code} {error.reason}"
                if error.code in PASSING_STATUS:
                    pause = http_rules.pause_seconds(error.headers)
                    raise RefusedError(message, error.code, "", pause) from None
                raise RemoteError(message, f"log in: skopeo login {self.target.host}") from None
        except (OSError, http.client.HTTPException) as error:
            raise RemoteError(f"the token endpoint of {self.target.host} failed: {why(error)}") from error
        except (ValueError, KeyError, AttributeError, RecursionError):
            raise RemoteError(f"the token endpoint of {self.target.host} gave no token") from None
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise RemoteError(f"the token endpoint of {self.target.host} gave a malformed token")
        return token
