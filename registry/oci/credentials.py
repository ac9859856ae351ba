"""The credentials that docker, skopeo, podman and oras keep in files, and the helper programs that these name.

The files, in this order, are `$REGISTRY_AUTH_FILE`, `$XDG_RUNTIME_DIR/containers/auth.json`,
`~/.config/containers/auth.json`, and `config.json` of `$DOCKER_CONFIG` or `~/.docker`. The first that has an entry
counts. Of several entries of a file, the one for the longest part of `host/path` counts.
"""

import base64
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.registry.support import environment
from onnxreg.registry.support.disk import read_bounded
from onnxreg.schema.core.errors import HostError, InputError

MAX_FILE_BYTES = 2**20
HELPER_SECONDS = 60.0
_HELPER = re.compile(r"[A-Za-z0-9._-]+")
_TOKEN_USER = "<token>"
"""The user name by which a helper says that the secret is an identity token."""


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
    for path in _files():
        document = _read(path)
        if document is not None:
            credential = _of_file(document, path, host, repository)
            if credential is not None:
                return credential
    return None


def _files() -> Iterator[Path]:
    auth_file, runtime = environment.read("REGISTRY_AUTH_FILE"), environment.read("XDG_RUNTIME_DIR")
    if auth_file:
        yield Path(auth_file)
    if runtime:
        yield Path(runtime) / "containers" / "auth.json"
    config = environment.read("XDG_CONFIG_HOME")
    yield (Path(config) if config else Path.home() / ".config") / "containers" / "auth.json"
    docker = environment.read("DOCKER_CONFIG")
    yield (Path(docker) if docker else Path.home() / ".docker") / "config.json"


def _read(path: Path) -> Mapping[str, Any] | None:
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


def _of_file(document: Mapping[str, Any], path: Path, host: str, repository: str) -> Credential | None:
    helpers, auths = _table(document, "credHelpers"), _table(document, "auths")
    entries = {_key(name): value for name, value in auths.items()}
    for key in _keys(host, repository):
        helper = helpers.get(key)
        credential = _ask(helper, key) if isinstance(helper, str) else None
        if credential is None and isinstance(entries.get(key), dict):
            credential = _of_entry(entries[key], path, key)
        if credential is not None:
            return credential
    store = document.get("credsStore")
    return _ask(store, host) if isinstance(store, str) and store else None


def _table(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = document.get(name)
    return value if isinstance(value, dict) else {}


def _keys(host: str, repository: str) -> Iterator[str]:
    """The keys of a repository, the longest first: `host/a/b`, `host/a`, `host`."""
    parts = repository.split("/")
    for count in range(len(parts), 0, -1):
        yield "/".join([host, *parts[:count]])
    yield host
    if host == "docker.io":
        yield "index.docker.io"


def _key(name: str) -> str:
    """A key without its scheme; of an old key with a scheme only the host."""
    scheme, separator, tail = name.partition("://")
    return tail.partition("/")[0] if separator else scheme.rstrip("/")


def _of_entry(entry: Mapping[str, Any], path: Path, key: str) -> Credential | None:
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


def _ask(helper: str, host: str) -> Credential | None:
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
