"""The choice of the devices that take part in a rollout. Pure: each device decides for itself, and reports nothing.

When the share grows, devices join and none leaves, because the rollout keeps its random salt. Each rollout has another
salt, and so begins with other devices. Specification: `docs/rollouts.md`; test vectors: `tests/vectors/rollout.json`.
"""

import hashlib
import re
from typing import Any, Final

from onnxreg.schema.core.errors import InputError
from onnxreg.schema.log.state import Rollout
from onnxreg.schema.query.device import Device
from onnxreg.schema.query.expression import Expression, parse
from onnxreg.schema.query.fields import FieldKind

PARTS = 10_000
"""The number of parts in 100 %: a percentage with two decimals is a whole number of parts."""
_SEED = re.compile(r"[0-9a-f]{64}")

DEVICE_FIELDS: Final[dict[str, FieldKind]] = {
    **dict.fromkeys(("name", "build", "platform", "abi", "locale"), FieldKind.TEXT),
    **dict.fromkeys(("ort", "app_version"), FieldKind.VERSION),
    **dict.fromkeys(("ram", "free_space"), FieldKind.SIZE),
    "providers": FieldKind.LIST,
}
"""The keys of a device document that an expression may test."""


def admits(rollout: Rollout, seed: str | None, device: Device | None = None) -> bool:
    """True if the device with this seed takes part; False without a seed. Raise InputError if the seed is malformed."""
    if seed is None or position(rollout.salt, seed) >= round(rollout.percent * 100) * 2**32:
        return False
    if rollout.where is None:
        return True
    return device is not None and parse_cohort(rollout.where).matches(of_device(device))


def position(salt: str, seed: str) -> int:
    """The position of a device among all devices, from 0 to 2^32 * 10,000, exclusive.

    It is `PARTS` times the first 32 bits of the SHA-256 of the text salt + seed, both in hex digits.
    """
    if not _SEED.fullmatch(seed):
        raise InputError("a seed is not 64 lower-case hex digits", "use 32 random bytes, kept on the device")
    return int(hashlib.sha256((salt + seed).encode()).hexdigest()[:8], 16) * PARTS


def parse_cohort(text: str) -> Expression:
    """Read an expression over devices. Raise ExpressionError, an InputError, if the expression is malformed."""
    return parse(text, DEVICE_FIELDS)


def of_device(device: Device) -> dict[str, Any]:
    """The fields of a device that an expression tests. In `ort`, a release without a patch number gets `.0`."""
    values = {key: getattr(device, key) for key in DEVICE_FIELDS}
    padding = ".0" if device.ort.count(".") == 1 else ""
    return values | {"ort": device.ort + padding, "providers": list(device.providers)}
