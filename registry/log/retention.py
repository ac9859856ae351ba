"""The versions that a retention policy gives up. Pure."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from onnxreg.registry.log.ledger import Ledger
from onnxreg.registry.log.references import present_versions
from onnxreg.registry.log.stamp import TIME_FORMAT
from onnxreg.schema.core.errors import Advice, InputError
from onnxreg.schema.core.version import Version
from onnxreg.schema.log.events import Publish
from onnxreg.schema.log.state import newest_of


@dataclass(frozen=True)
class RetentionPolicy:
    """Keep so many of the newest releases, their pre-releases, and the versions of the last days.

    A version is kept by either; so are pinned versions and those that a channel holds. The newest release is
    always kept. A yanked version takes no place among the newest, and is kept if it would be one of them
    if it were not yanked. Raise InputError if a number makes no sense.
    """

    versions: int | None = None
    days: float | None = None

    def __post_init__(self) -> None:
        if self.versions is not None and self.versions < 1:
            raise InputError(
                "the number of versions to keep must be at least 1", "untag and drop or purge what must go"
            )
        if self.days is not None and not 0 <= self.days <= 36500:
            raise InputError("the number of days to keep must be from 0 to 36500", Advice("keep-days"))

    def __bool__(self) -> bool:
        return self.versions is not None or self.days is not None

    def __str__(self) -> str:
        parts = (("versions", self.versions), ("days", self.days))
        return " ".join(f"--keep-{unit} {value:g}" for unit, value in parts if value is not None)

    def expiring(self, ledger: Ledger, now: datetime) -> list[Version]:
        """The versions to give up, in the order of their publication."""
        unyanked = {version: entry._replace(yanks=frozenset()) for version, entry in ledger.entries.items()}
        keeping = {*newest_of(ledger.entries, self.versions or 1), *newest_of(unyanked, self.versions or 1)}
        keeping |= self._young(ledger, now)
        keeping |= {channel.version for channel in ledger.channels.values()}
        gone = [
            (entry.seq, version)
            for version, entry in present_versions(ledger)
            if self and version not in keeping and not entry.pinned
        ]
        return [version for _, version in sorted(gone, key=lambda pair: pair[0])]

    def _young(self, ledger: Ledger, now: datetime) -> set[Version]:
        """By the time that the publisher claimed: the one place where a clock decides."""
        if self.days is None:
            return set()
        since = (now - timedelta(days=self.days)).astimezone(UTC).strftime(TIME_FORMAT)
        events = (line.event for line in ledger.lines())
        return {event.version for event in events if isinstance(event, Publish) and event.time >= since}
