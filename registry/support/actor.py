"""The claimed author of events: `REG_ACTOR`, else the user's setting, else the user and host of this machine.

Only events have an author: manifests name neither users nor hosts.
"""

import json
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from onnxreg.registry.support import environment
from onnxreg.schema.core.errors import InputError

VARIABLE = "REG_ACTOR"
NOBODY = ""
"""The author of events that follow from others, without a decision: such an event has no `actor`."""
MAX_ACTOR_CHARACTERS = 200
"""The limit of an event's `actor`."""

Source = Literal["REG_ACTOR", "settings", "default"]


@dataclass(frozen=True)
class ClaimedActor:
    """The author, None for nobody, and what decides it: the variable, the settings file, or neither."""

    name: str | None
    source: Source


tell: Callable[[str], None] = lambda name: None
"""Called with the name whenever an event gets the author by default. A command line may replace it."""


def actor_of_event(actor: str | None) -> str | None:
    """The author to record: the given one, "" for nobody, or by default the claimed one."""
    if actor is not None:
        return actor or None
    claimed = claimed_actor()
    if claimed.source == "default" and claimed.name is not None:
        tell(claimed.name)
    return claimed.name


def claimed_actor() -> ClaimedActor:
    """The user's default. InputError if the settings file is malformed."""
    named = environment.read(VARIABLE)
    if named is not None:
        return ClaimedActor(named or None, "REG_ACTOR")
    stored = read_setting()
    if stored is not None:
        return ClaimedActor(stored or None, "settings")
    return ClaimedActor(_machine_actor() or None, "default")


def read_setting() -> str | None:
    """The author that the settings file names, "" for nobody; None if it names none. InputError if malformed."""
    path = environment.settings_file()
    if not path.exists():
        return None
    from onnxreg.schema.core.given_file import read_given
    from onnxreg.schema.core.text_files import read_toml

    data = read_given(path)
    settings = read_toml(data, str(path))
    for key in settings.keys() - {"actor"}:
        raise InputError(f"{path} has an unknown setting {key}", "it has one setting: actor")
    return _checked(settings["actor"], f"actor in {path}") if settings else None


def write_setting(name: str | None) -> Path:
    """Store the author, "" for nobody; None removes the setting. InputError for a name that is too long."""
    from onnxreg.registry.support.disk import host_errors, replace_file

    path = environment.settings_file()
    with host_errors(f"writing {path}"):
        if name is None:
            path.unlink(missing_ok=True)
        else:
            replace_file(
                path, f"actor = {json.dumps(_checked(name, 'an actor'), ensure_ascii=False)}\n".encode()
            )
    return path


def _checked(name: object, label: str) -> str:
    if not isinstance(name, str) or len(name) > MAX_ACTOR_CHARACTERS or not all(map(str.isprintable, name)):
        raise InputError(f"{label} must be one line of at most {MAX_ACTOR_CHARACTERS} characters")
    return name


def first_use(name: str) -> bool:
    """Record in the user's state directory that this name was announced; False if it was before.

    If that cannot be written, the name is announced again.
    """
    from onnxreg.registry.support.disk import replace_file

    path = environment.state_directory() / "announced-actor"
    with suppress(OSError, UnicodeDecodeError):
        if path.read_text() == name:
            return False
    with suppress(OSError):
        replace_file(path, name.encode())
    return True


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


TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


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
