"""Index files and sealed segments: split into lines, and compared with the state line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from onnxreg.schema.core import canonical
from onnxreg.schema.core.errors import Advice, InputError, IntegrityError
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.logline import LogLine, LogLineHeader, verify_chain
from onnxreg.schema.log.state import SEGMENT_LINES, State, VersionEntry, known_part
from onnxreg.schema.log.summary import completed

REWRITTEN = "history was rewritten or damaged: compare with a mirror before you trust this registry"


def decode_index(data: bytes, name: str) -> tuple[State, list[LogLine]]:
    """Split an index file into its state and the lines of its tail.

    Raise IntegrityError if it is malformed.
    """
    try:
        if not data.endswith(b"\n") or data.count(b"\n") > SEGMENT_LINES + 1:
            raise InputError("it is cut short or too long")
        first, *lines = data.split(b"\n")
        return State.decode(first), [LogLine.decode(line) for line in lines[:-1]]
    except InputError as error:
        hint = error.advice or Advice("restore-index")
        raise IntegrityError(f"the index of {name} cannot be read: {error.message}", hint) from error


def is_same(index: bytes, replayed: bytes) -> bool:
    """Compare an index file with the one that follows from its log; True if both say the same.

    Keys of the state line that this build does not know are not compared: a later build wrote them. Nor are keys of
    summaries that an older build did not write.
    """
    (first, _, lines), (expected, _, tail) = index.partition(b"\n"), replayed.partition(b"\n")
    try:
        value = canonical.decode_canonical(first, "state line")
        state, derived = known_part(value), canonical.decode(expected, "state line")
        state["summaries"] = {
            version: completed(summary, derived["summaries"].get(version, summary))
            for version, summary in state["summaries"].items()
        }
        if not _same_deltas(value, derived.pop("deltas", None)):
            return False
        return lines == tail and canonical.encode(state) == canonical.encode(derived)
    except InputError:
        return False


def _same_deltas(state: Mapping[str, Any], derived: Any) -> bool:
    """Compare the key `deltas`. One that a build without deltas left behind belongs to an earlier line."""
    stated = state.get("deltas")
    is_current = isinstance(stated, dict) and stated.get("seq") == state.get("seq")
    return not is_current or stated == derived


def read_segment(data: bytes, name: str) -> Sequence[LogLine]:
    """The lines of a sealed segment. Raise IntegrityError if it is malformed."""
    return [read_line(line, name) for line in split_segment(data, name)]


def split_segment(data: bytes, name: str) -> list[bytes]:
    """The raw lines of a sealed segment. Raise IntegrityError if there are not as many as a segment has."""
    if not data.endswith(b"\n") or data.count(b"\n") != SEGMENT_LINES:
        raise IntegrityError(f"a segment of the log of {name} does not hold {SEGMENT_LINES} lines", REWRITTEN)
    return data.split(b"\n")[:-1]


def read_line(raw: bytes, name: str) -> LogLine:
    """One line of a model's log. Raise IntegrityError if it is malformed."""
    try:
        return LogLine.decode(raw)
    except InputError as error:
        raise IntegrityError(f"the log of {name} cannot be read: {error.message}", error.advice) from error


def skim_lines(lines: Iterable[bytes], name: str) -> Iterator[LogLineHeader]:
    """Skim the lines of a model's log. Raise IntegrityError if one is malformed."""
    try:
        yield from map(LogLineHeader.read, lines)
    except InputError as error:
        raise IntegrityError(f"the log of {name} cannot be read: {error.message}", error.advice) from error


def check_tail(state: State, lines: Sequence[LogLine]) -> None:
    """Raise IntegrityError if the lines do not follow each other up to the head that the state names."""
    seq = len(state.segments) * SEGMENT_LINES
    prev = lines[0].prev if lines else state.head
    verify_chain(lines, state.name, prev, REWRITTEN, seq, (state.seq, state.head))


def check_channels(state: State, entries: Mapping[Version, VersionEntry]) -> None:
    """Raise IntegrityError if a channel holds what no version is."""
    for tag, channel in state.channels.items():
        entry = entries.get(channel.version)
        if entry is None or entry.manifest != channel.manifest:
            raise IntegrityError(
                f"channel {tag} of {state.name} holds {channel.version}, which is not published", REWRITTEN
            )
