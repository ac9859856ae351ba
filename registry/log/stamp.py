"""The fields that every new event carries: who, when, why, and a nonce that makes it unique."""

import secrets
from datetime import UTC, datetime
from typing import Any

from onnxreg.registry.support.actor import actor_of_event

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def stamp(name: str, actor: str | None = None, reason: str | None = None) -> dict[str, Any]:
    """The common fields of an event about a model. The time is for display; nothing is ordered by it.

    Without an actor the user's default is recorded, with `NOBODY` none.
    """
    return {
        "name": name,
        "time": datetime.now(UTC).strftime(TIME_FORMAT),
        "nonce": secrets.token_hex(16),
        "actor": actor_of_event(actor),
        "reason": reason,
    }
