"""Compare the state line with the log, as far as a reader knows that log.

A reader with a known head replays the new lines on the known state. A reader of a whole log replays it. A new
reader of a log with sealed lines believes what only these lines decide.
"""

from collections.abc import Iterable

from onnxreg.registry.log.ledger import Fetch, Ledger
from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import mapping
from onnxreg.schema.core.errors import (
    VERIFY_ADVICE,
    ConflictError,
    InputError,
    IntegrityError,
    NotFoundError,
    RegError,
)
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.consistency import check_visible
from onnxreg.schema.log.events import decode_event
from onnxreg.schema.log.known_head import KnownHead, ObservedIndex, Sealed
from onnxreg.schema.log.logline import LogLine, LogLineHeader
from onnxreg.schema.log.state import SEGMENT_LINES, State


def check_state(known_head: KnownHead | None, observed: ObservedIndex, fetch: Fetch, sealed: Sealed) -> None:
    """Raise IntegrityError if the state line does not follow from the known head and the lines after it.

    Keys that this build does not know are not compared. Summaries do not follow from lines: each must be of its
    version's manifest.

    Args:
        known_head: the head that `observed` continues; None if the log is new to this user. Two states of one
            head are compared by `known_head.compare`.
    """
    _check_summarized(observed.state)
    if known_head is not None and known_head.has_state:
        if known_head.seq < observed.state.seq:
            _check_replay(observed, _remembered(known_head, observed, fetch, sealed))
    elif observed.base:
        check_visible(observed.state, observed.lines)
    else:
        _check_replay(
            observed,
            _replay(Ledger.empty(observed.state.registry, observed.state.name, fetch), observed.lines),
        )


def _check_summarized(state: State) -> None:
    """IntegrityError if a summary is that of another manifest than its version has."""
    manifests = {str(version): (str(entry.manifest), entry.size) for version, entry in state.versions.items()}
    for version, value in state.summaries.items():
        summary = mapping(value)
        if (summary.get("manifest"), summary.get("size")) != manifests.get(version):
            raise IntegrityError(
                f"the state of {state.name} has a summary of {version} that is not of its manifest",
                VERIFY_ADVICE,
            )


def is_proven(observed: ObservedIndex, fetch: Fetch, sealed: Sealed) -> bool:
    """Return True if the state line follows from the whole log and the summarised manifests.

    The known head is not used: the earlier state may have been damaged on its way.
    """
    from onnxreg.registry.log.lookup import check_summary

    state = observed.state
    try:
        empty = Ledger.empty(state.registry, state.name, fetch)
        _check_replay(observed, _replay(empty, observed.since(0, sealed)[1]))
        for version, summary in state.summaries.items():
            manifest = state.versions[Version.parse(version)].manifest
            check_summary(summary, fetch(manifest), manifest, state.name)
    except (RegError, KeyError):
        return False
    return True


def _check_replay(observed: ObservedIndex, ledger: Ledger) -> None:
    ledger.summaries, ledger.more = observed.state.summaries, observed.state.more
    expected = ledger.state()
    if expected.to_json() != observed.state.to_json():
        raise IntegrityError(f"the state of {observed.state.name} is not what its log says", VERIFY_ADVICE)


def _remembered(known_head: KnownHead, observed: ObservedIndex, fetch: Fetch, sealed: Sealed) -> Ledger:
    """Replay the new lines on the known state. If its catalog was collected since, replay the whole log."""
    name, registry = observed.state.name, observed.state.registry
    base = len(known_head.segments) * SEGMENT_LINES
    try:
        _, lines = observed.since(base, sealed)
        old, new = lines[: known_head.seq - base], lines[known_head.seq - base :]
        rows = [
            canonical.encode(known_head.state_json() | {"registry": registry, "name": name}),
            *(line.raw for line in old),
        ]
        return _replay(Ledger.read(b"".join(row + b"\n" for row in rows), registry, name, fetch), new)
    except NotFoundError:
        return _replay(Ledger.empty(registry, name, fetch), observed.since(0, sealed)[1])


def _replay(ledger: Ledger, lines: Iterable[LogLineHeader]) -> Ledger:
    """Append lines whose chain is verified. Only `reg verify` checks their encoding."""
    try:
        for line in lines:
            event = decode_event(line.event())
            ledger.append_line(LogLine(line.seq, line.prev, event, None, line.raw))
    except (ConflictError, InputError) as error:
        raise IntegrityError(
            f"the log of {ledger.name} cannot be read: {error.message}", error.advice or VERIFY_ADVICE
        ) from error
    return ledger
