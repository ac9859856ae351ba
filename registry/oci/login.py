"""The credentials that docker, skopeo, podman and oras keep for an OCI registry.

The files, in this order, are `$REGISTRY_AUTH_FILE`, `$XDG_RUNTIME_DIR/containers/auth.json`,
`~/.config/containers/auth.json`, and `config.json` of `$DOCKER_CONFIG` or `~/.docker`; they may name helper programs. The
first file that has an entry counts. Of several entries of a file, the one for the longest part of `host/path` counts.
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


@dataclass(frozen=True)
class Credential:
    """A name with its password, or an identity token with which access tokens are requested."""

    user: str = ""
    secret: str = ""
    identity_token: str = ""

    @property
    def basic(self) -> str:
        return f"Basic {base64.b64encode(f'{self.user}:{self.secret}'.encode()).decode()}"


def find_credential(host: str, repository: str) -> Credential | None:
    """The credential for a repository; None if no file has one. InputError for a file that is not JSON."""
    parts = [host, *repository.split("/")]
    keys = ["/".join(parts[:count]) for count in range(len(parts), 0, -1)]
    keys += ["index.docker.io"] if host == "docker.io" else []
    for path, document in _files_of_credentials():
        try:
            helpers, entries = document.get("credHelpers") or {}, document.get("auths") or {}
            # docker login writes URLs, of which the host counts: https://index.docker.io/v1/
            entries = {re.sub(r"^\w+://([^/]*).*", r"\1", name): value for name, value in entries.items()}
            for key in keys:
                credential = _ask_helper(helpers[key], key) if key in helpers else None
                credential = credential or _of_entry(entries.get(key) or {})
                if credential is not None:
                    return credential
            store = document.get("credsStore")
            if store and (credential := _ask_helper(store, host)) is not None:
                return credential
        except (ValueError, TypeError, AttributeError):
            raise InputError(f"{path} is malformed", f"log in again: skopeo login {host}") from None
    return None


def _files_of_credentials() -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Each file that exists, and its content."""
    auth_file, runtime = environment.read("REGISTRY_AUTH_FILE"), environment.read("XDG_RUNTIME_DIR")
    config, docker = environment.read("XDG_CONFIG_HOME"), environment.read("DOCKER_CONFIG")
    for path in (
        *([Path(auth_file)] if auth_file else []),
        *([Path(runtime) / "containers" / "auth.json"] if runtime else []),
        Path(config or "~/.config").expanduser() / "containers" / "auth.json",
        Path(docker or "~/.docker").expanduser() / "config.json",
    ):
        try:
            yield path, json.loads(read_bounded(path, MAX_FILE_BYTES))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise HostError(f"reading {path} failed: {error.strerror}", "check its permissions") from error
        except (ValueError, RecursionError):
            raise InputError(
                f"{path} is not a file of credentials", "log in again: skopeo login HOST"
            ) from None


def _of_entry(entry: Mapping[str, Any]) -> Credential | None:
    """The credential of an entry of `auths`, if there is one in it. ValueError if it is malformed."""
    user, secret = str(entry.get("username") or ""), str(entry.get("password") or "")
    if encoded := entry.get("auth"):
        user, separator, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
        if not separator:
            raise ValueError("no password")
    if identity := entry.get("identitytoken"):
        return Credential(user, "", str(identity))
    return Credential(user, secret.rstrip("\0")) if user else None


def _ask_helper(helper: str, host: str) -> Credential | None:
    """Ask a helper program for the credential of a host; None if it has none."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", helper):
        raise ValueError("not the name of a credential helper")
    command = [f"docker-credential-{helper}", "get"]
    try:
        completed = subprocess.run(
            command, input=host.encode(), capture_output=True, timeout=HELPER_SECONDS, check=False
        )
        if completed.returncode and b"not found" in completed.stdout + completed.stderr:
            return None
        completed.check_returncode()
        answer = json.loads(completed.stdout)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, TypeError) as error:
        raise HostError(
            f"{command[0]} gave no credential: {error}"[:400], "try it, or log in again"
        ) from None
    return Credential("", "", secret) if user == "<token>" else Credential(user, secret)
