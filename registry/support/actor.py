"""The claimed author of events: `REG_ACTOR`, else the user and host of this machine. Manifests name neither."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from onnxreg.registry.support import environment

NOBODY = ""
"""The author of events that follow from others, without a decision: such an event has no `actor`."""
MAX_ACTOR_CHARACTERS = 200
"""The limit of an event's `actor`."""
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


def actor_of_event(actor: str | None) -> str | None:
    """The author to record: the given one, "" for nobody, or by default the claimed one."""
    given = environment.read("REG_ACTOR") if actor is None else actor
    return (_machine_actor() if given is None else given) or None


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
