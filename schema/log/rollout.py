"""A staged rollout: the next release of a channel, for a share of its devices first. Pure.

The state line carries it; `schema.query.cohort` says which devices take part. `docs/rollouts.md` is the specification.
"""

import re
from typing import Any, NamedTuple

from onnxreg.schema.core.canonical import count, nullable, number, record, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import Version

_SALT = re.compile(r"[0-9a-f]{32}")


class Rollout(NamedTuple):
    """The rollout of a channel: to which version, for which share of the devices, and the line that said so last.

    `where` is an expression over the device document; `policy` and `evidence` are those of a promotion if the channel
    is governed.
    """

    to: Version
    manifest: Digest
    percent: float
    salt: str
    seq: int
    where: str | None = None
    policy: Digest | None = None
    evidence: Digest | None = None

    def __str__(self) -> str:
        cohort = f" with {self.where}" if self.where else ""
        return f"{self.to} is being rolled out to {self.percent:g} % of the devices{cohort}"

    def to_json(self) -> dict[str, Any]:
        value = {
            "to": str(self.to),
            "manifest": str(self.manifest),
            "percent": self.percent,
            "salt": self.salt,
            "seq": self.seq,
            "where": self.where,
            "policy": None if self.policy is None else str(self.policy),
            "evidence": None if self.evidence is None else str(self.evidence),
        }
        return {key: item for key, item in value.items() if item is not None}

    @classmethod
    def read(cls, value: Any) -> "Rollout":
        """Read the state line's value. InputError if it is malformed."""
        return _ROLLOUT(value)


def percent(value: Any) -> float:
    """A share in percent: more than 0, at most 100, with at most two decimals."""
    share = number(value)
    if not 0 < share <= 100 or round(share * 100) != round(share * 100, 6):
        raise InputError(
            f"not a percentage: {str(value)[:40]}",
            "write a number from 0.01 to 100 with at most two decimals",
        )
    return int(share) if share == int(share) else share


def salt(value: Any) -> str:
    """The random text of a rollout: 32 hex digits."""
    if not isinstance(value, str) or not _SALT.fullmatch(value):
        raise InputError("the salt of a rollout is not 32 lower-case hex digits")
    return value


_ROLLOUT = record(
    Rollout,
    {
        "to": lambda value: Version.parse(text(value)),
        "manifest": Digest.parse,
        "percent": percent,
        "salt": salt,
        "seq": count,
    },
    {"where": nullable(text), "policy": nullable(Digest.parse), "evidence": nullable(Digest.parse)},
)
