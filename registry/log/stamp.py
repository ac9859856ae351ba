"""The fields that every new event carries: who, when, why, and a nonce that makes it unique."""

import secrets
from datetime import UTC, datetime
from typing import Any

TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def stamp(name: str, actor: str | None = None, reason: str | None = None) -> dict[str, Any]:
    """The common fields of an event about a model. The time is for display; nothing is ordered by it."""
    return {
        "name": name,
        "time": datetime.now(UTC).strftime(TIME_FORMAT),
        "nonce": secrets.token_hex(16),
        "actor": actor,
        "reason": reason,
    }
