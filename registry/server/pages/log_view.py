"""A model's log for pages: the chain is verified from the first line, and a line is decoded when it is shown."""

from collections.abc import Sequence

from onnxreg.registry.log.ledger import Ledger
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.log.logline import LogLine, LogLineHeader


class LogView:
    """Every line of a ledger. IntegrityError if the chain is broken."""

    def __init__(self, ledger: Ledger) -> None:
        self._lines = list(ledger.skim())
        self._seq_by_event = {line.event_id: line.seq for line in self._lines}

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def head(self) -> Digest:
        return self._lines[-1].digest

    def at(self, seq: int) -> LogLine | None:
        """A line by its number, which begins at 1."""
        return _decoded(self._lines[seq - 1]) if 1 <= seq <= len(self._lines) else None

    def of(self, event: Digest) -> LogLine | None:
        """The line with an event, by the event's id."""
        return self.at(self._seq_by_event.get(event, 0))

    def before(self, seq: int | None, count: int) -> Sequence[LogLine]:
        """The last `count` lines before one (None: of the whole log), newest first."""
        end = len(self._lines) if seq is None else max(0, min(len(self._lines), seq - 1))
        return [_decoded(line) for line in reversed(self._lines[max(0, end - count) : end])]


def _decoded(line: LogLineHeader) -> LogLine:
    try:
        return LogLine.decode(line.raw)
    except InputError as error:
        raise IntegrityError(
            f"line {line.seq} of the log cannot be read: {error.message}", error.advice
        ) from error
