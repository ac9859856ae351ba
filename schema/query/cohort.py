"""The devices that take part in a rollout. Pure: each device decides alone, and nothing is reported to anybody.

The share only grows for a device (`advance` keeps the salt), and differs from rollout to rollout (each has a salt of
its own). `docs/rollouts.md` is the specification, `tests/vectors/rollout.json` its vectors.
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
"""A share is a whole number of these parts: percent have at most two decimals."""
_SEED = re.compile(r"[0-9a-f]{64}")

DEVICE_FIELDS: Final[dict[str, FieldKind]] = {
    "name": FieldKind.TEXT,
    "ort": FieldKind.VERSION,
    "build": FieldKind.TEXT,
    "providers": FieldKind.LIST,
    "platform": FieldKind.TEXT,
    "abi": FieldKind.TEXT,
    "ram": FieldKind.SIZE,
    "free_space": FieldKind.SIZE,
    "locale": FieldKind.TEXT,
    "app_version": FieldKind.VERSION,
}
"""The keys of a device document that an expression may test."""


def admits(rollout: Rollout, seed: str | None, device: Device | None = None) -> bool:
    """True if the device with this seed takes part. Without a seed it does not. InputError if the seed is malformed."""
    if seed is None or position(rollout.salt, seed) >= round(rollout.percent * 100) * 2**32:
        return False
    if rollout.where is None:
        return True
    return device is not None and parse_cohort(rollout.where).matches(of_device(device))


def position(salt: str, seed: str) -> int:
    """The position of a device among all, from 0 to 2^32 * 10,000, exclusive.

    The first 32 bits of SHA-256 over the two texts (hex digits in ASCII), times the parts of a whole.
    """
    if not _SEED.fullmatch(seed):
        raise InputError("a seed is not 64 lower-case hex digits", "use 32 random bytes, kept on the device")
    return int(hashlib.sha256((salt + seed).encode()).hexdigest()[:8], 16) * PARTS


def parse_cohort(text: str) -> Expression:
    """Read an expression over devices. ExpressionError, an InputError, if it is malformed."""
    return parse(text, DEVICE_FIELDS)


def of_device(device: Device) -> dict[str, Any]:
    """The fields of a device. A release of ONNX Runtime without a patch number counts as its `.0`."""
    values = {key: getattr(device, key) for key in DEVICE_FIELDS}
    padding = ".0" if device.ort.count(".") == 1 else ""
    return values | {"ort": device.ort + padding, "providers": list(device.providers)}
