"""The claimed author of events: `REG_ACTOR`, else the user's setting, else the user and host of this machine.

Only events have an author: manifests name neither users nor hosts.
"""

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from onnxreg.registry.support import environment
from onnxreg.schema.core.errors import InputError

NOBODY = ""
"""The author of events that follow from others, without a decision: such an event has no `actor`."""
MAX_ACTOR_CHARACTERS = 200
"""The limit of an event's `actor`."""
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True)
class ClaimedActor:
    """The author, None for nobody, and what decides it: the variable, the settings file, or neither."""

    name: str | None
    source: Literal["REG_ACTOR", "settings", "default"]


def stamp(name: str, actor: str | None = None, reason: str | None = None) -> dict[str, Any]:
    """The common fields of an event about a model. The time is for display; nothing is ordered by it.

    Without an actor the user's default is recorded, with `NOBODY` none.
    """
    return {
        "name": name,
        "time": datetime.now(UTC).strftime(TIME_FORMAT),
        "nonce": os.urandom(16).hex(),
        "actor": actor_of_event(actor),
        "reason": reason,
    }


def actor_of_event(actor: str | None) -> str | None:
    """The author to record: the given one, "" for nobody, or by default the claimed one."""
    return claimed_actor().name if actor is None else actor or None


def claimed_actor() -> ClaimedActor:
    """The user's default. InputError if the settings file is malformed."""
    variable = environment.read("REG_ACTOR")
    if variable is not None:
        return ClaimedActor(variable or None, "REG_ACTOR")
    path = environment.settings_file()
    if path.exists():
        from onnxreg.schema.core.given_file import read_given
        from onnxreg.schema.core.text_files import read_toml

        settings = read_toml(read_given(path), str(path))
        for key in settings.keys() - {"actor"}:
            raise InputError(f"{path} has an unknown setting {key}", "it has one setting: actor")
        if settings:
            return ClaimedActor(_checked(settings["actor"], f"actor in {path}") or None, "settings")
    return ClaimedActor(_machine_actor() or None, "default")


def write_setting(name: str | None) -> None:
    """Store the author, "" for nobody; None removes the setting. InputError for a name that is too long."""
    from onnxreg.registry.support.disk import host_errors, replace_file

    path = environment.settings_file()
    with host_errors(f"writing {path}"):
        if name is None:
            path.unlink(missing_ok=True)
        else:
            text = json.dumps(_checked(name, "an actor"), ensure_ascii=False)
            replace_file(path, f"actor = {text}\n".encode())


def _checked(name: object, label: str) -> str:
    if not isinstance(name, str) or len(name) > MAX_ACTOR_CHARACTERS or not all(map(str.isprintable, name)):
        raise InputError(f"{label} must be one line of at most {MAX_ACTOR_CHARACTERS} characters")
    return name


def _machine_actor() -> str:
    """`user@host`; only one of them if the other is unknown, "" without both."""
    from getpass import getuser
    from socket import gethostname

    parts = []
    for part in (getuser, gethostname):
        with suppress(ImportError, KeyError, OSError):
            parts.append(part())
    name = "@".join(filter(None, parts))
    return "".join(letter if letter.isprintable() else "?" for letter in name)[:MAX_ACTOR_CHARACTERS]
