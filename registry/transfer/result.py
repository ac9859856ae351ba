"""Results of a transfer: one model's, and a whole mirror's."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from onnxreg.registry.delta import Arrival
from onnxreg.registry.log.collect import CollectResult
from onnxreg.registry.log.contents import ArtifactPaths
from onnxreg.registry.log.ledger import Ledger
from onnxreg.schema.core.errors import (
    ConflictError,
    ForkError,
    HostError,
    IntegrityError,
    NotFoundError,
    RegError,
    RemoteError,
)
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.events import Tag

ERRORS_BY_SEVERITY = (IntegrityError, ConflictError, NotFoundError)
"""Error families, the worst first."""


@dataclass(frozen=True)
class SkippedVersion:
    """A version, channel or (with neither) model that did not travel, and why. `error` is set if somebody must act."""

    name: str
    tag: str | None
    reason: str
    error: RegError | None = None

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "tag": self.tag, "reason": self.reason}


@dataclass(frozen=True)
class TransferResult:
    """Outcome for one model: its versions at the destination now, how many of them are new, and what moved.

    `ledger` is the destination's log now, None if it could not be read; `held` are the artifacts of each version that
    the destination has now, `channels` the moves of channels. `has_copied` is False if no copy was necessary or
    possible. `arrivals`: how each blob came.
    """

    name: str
    versions: tuple[Version, ...] = ()
    new: int = 0
    events: int = 0
    blobs: int = 0
    size: int = 0
    ledger: Ledger | None = None
    held: Mapping[Version, ArtifactPaths] = field(default_factory=dict)
    channels: tuple[Tag, ...] = ()
    skipped: list[SkippedVersion] = field(default_factory=list)
    has_copied: bool = False
    arrivals: tuple[Arrival, ...] = ()

    @property
    def is_current(self) -> bool:
        """True if there was nothing left to do, and no error."""
        failed = any(item.tag is None or item.error is not None for item in self.skipped)
        return not self.has_copied and bool(self.versions) and not failed


@dataclass
class MirrorResult:
    """Outcome of mirroring: models read, versions new at the destination, blobs and bytes moved, and blobs deleted."""

    source: str
    destination: str
    models: int = 0
    versions: int = 0
    events: int = 0
    blobs: int = 0
    size: int = 0
    freed: CollectResult = field(default_factory=lambda: CollectResult({}, 0))
    skipped: list[SkippedVersion] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "destination": self.destination,
            "models": self.models,
            "versions": self.versions,
            "events": self.events,
            "blobs": self.blobs,
            "bytes": self.size,
            "freed": {"blobs": len(self.freed.freed), "bytes": self.freed.size},
            "skipped": [skipped.to_json() for skipped in self.skipped],
        }

    def add(self, result: TransferResult) -> None:
        """Add the outcome for one model."""
        self.versions += result.new
        self.events += result.events
        self.blobs += result.blobs
        self.size += result.size
        self.skipped += result.skipped


@contextmanager
def skip_on_error(name: str, skipped: list[SkippedVersion]) -> Iterator[None]:
    """Collect the errors of one model in `skipped`; errors of a registry or of this machine are raised."""
    try:
        yield
    except (ForkError, HostError, RemoteError):
        raise
    except RegError as error:
        skipped.append(SkippedVersion(name, None, error.message, error))


def worst(skipped: Iterable[SkippedVersion]) -> RegError | None:
    """The most severe error, if somebody must act."""
    errors = [item.error for item in skipped if item.error is not None]
    return min(errors, key=_rank, default=None)


def _rank(error: RegError) -> int:
    return next(
        (rank for rank, kind in enumerate(ERRORS_BY_SEVERITY) if isinstance(error, kind)),
        len(ERRORS_BY_SEVERITY),
    )
