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
        helpers, auths = (
            value if isinstance(value := document.get(name), dict) else {}
            for name in ("credHelpers", "auths")
        )
        entries = {_key_of(name): value for name, value in auths.items()}
        for key in keys:
            credential = _ask_helper(helpers[key], key) if isinstance(helpers.get(key), str) else None
            if credential is None and isinstance(entries.get(key), dict):
                credential = _of_entry(entries[key], path, key)
            if credential is not None:
                return credential
        store = document.get("credsStore")
        if isinstance(store, str) and store and (credential := _ask_helper(store, host)) is not None:
            return credential
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
            value = json.loads(read_bounded(path, MAX_FILE_BYTES))
        except FileNotFoundError:
            continue
        except OSError as error:
            raise HostError(f"reading {path} failed: {error.strerror}", "check its permissions") from error
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            raise InputError(f"{path} is not a file of credentials", "log in again: skopeo login HOST")
        yield path, value


def _key_of(name: str) -> str:
    """A key without its scheme; of an old key with a scheme only the host."""
    scheme, separator, tail = name.partition("://")
    return tail.partition("/")[0] if separator else scheme.rstrip("/")


def _of_entry(entry: Mapping[str, Any], path: Path, key: str) -> Credential | None:
    user, secret = str(entry.get("username") or ""), str(entry.get("password") or "")
    if isinstance(encoded := entry.get("auth"), str) and encoded:
        try:
            user, separator, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:
            separator = ""
        if not separator:
            raise InputError(f"{path}: the entry {key} is malformed", f"log in again: skopeo login {key}")
    if identity := entry.get("identitytoken"):
        return Credential(user, "", str(identity))
    return Credential(user, secret.rstrip("\0")) if user else None


def _ask_helper(helper: str, host: str) -> Credential | None:
    """Ask a helper program for the credential of a host; None if it has none."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", helper):
        raise InputError(f"not the name of a credential helper: {helper[:60]!r}")
    program = f"docker-credential-{helper}"
    try:
        completed = subprocess.run(
            [program, "get"], input=host.encode(), capture_output=True, timeout=HELPER_SECONDS, check=False
        )
        if completed.returncode and b"not found" in completed.stdout + completed.stderr:
            return None
        completed.check_returncode()
        answer = json.loads(completed.stdout)
        user, secret = str(answer["Username"]), str(answer["Secret"])
    except (OSError, subprocess.SubprocessError) as error:
        raise HostError(
            f"{program} failed: {error}", f"install it, or log in again; try it: {program} get"
        ) from error
    except (ValueError, KeyError, TypeError):
        raise HostError(f"{program} gave no credential", f"try it: {program} get") from None
    return Credential("", "", secret) if user == "<token>" else Credential(user, secret)
