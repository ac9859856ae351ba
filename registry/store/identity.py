"""`registry.json`: which registry a tree is, and which builds may read and write it."""

import json
import os
from typing import Any

from onnxreg.registry.store.layout import LAYOUT_VERSION
from onnxreg.schema.core.errors import Advice, HostError, IntegrityError
from onnxreg.schema.core.ref import REGISTRY_ID

UPGRADE = "upgrade onnxreg: pip install --upgrade onnxreg"


def new_identity(registry_id: str | None = None, **more: Any) -> bytes:
    """The bytes of a new `registry.json`; the id is random unless given."""
    value = {
        "id": registry_id or os.urandom(16).hex(),
        "layout": "onnxreg",
        "layout_version": LAYOUT_VERSION,
        "min_reader": LAYOUT_VERSION,
        "min_writer": LAYOUT_VERSION,
        **more,
    }
    return json.dumps(value, indent=2).encode() + b"\n"


def other_registry(url: str, actual_id: str, known_id: str) -> IntegrityError:
    """The error for a URL that now holds another registry than before."""
    return IntegrityError(
        f"{url} holds another registry than before: id {actual_id[:12]}..., was {known_id[:12]}...",
        Advice("accept-registry", registry=known_id),
    )


def read_identity(data: bytes, url: str) -> dict[str, Any]:
    """Decode `registry.json`. HostError for a layout that this build cannot read, IntegrityError for garbage."""
    try:
        value: dict[str, Any] = json.loads(data)
        layout, reader, identity = value["layout"], value["min_reader"], value["id"]
        writer = value.get("min_writer", LAYOUT_VERSION)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise IntegrityError(
            f"registry.json of {url} is damaged", "restore it from a mirror or a backup"
        ) from None
    are_integers = isinstance(reader, int) and isinstance(writer, int)
    has_id = isinstance(identity, str) and REGISTRY_ID.fullmatch(identity) is not None
    if layout != "onnxreg" or not are_integers or not has_id:
        raise IntegrityError(f"registry.json of {url} does not describe an onnxreg registry")
    if reader > LAYOUT_VERSION:
        raise HostError(
            f"{url} has layout {str(reader)[:20]}, this onnxreg reads up to {LAYOUT_VERSION}",
            UPGRADE,
        )
    return value


def check_writer(identity: dict[str, Any], url: str) -> None:
    """HostError if only newer builds may write to the registry."""
    if identity.get("min_writer", LAYOUT_VERSION) > LAYOUT_VERSION:
        raise HostError(f"{url} is written by a newer onnxreg only", UPGRADE)
