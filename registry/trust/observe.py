"""Rollback protection: compare a freshly read index file with the last one that this user accepted. Pure.

A log only grows. So a log that is read must be the known one, with or without new lines, or an earlier state of it, and
its state line must follow from the lines. The rules are numbered in `observe`; each has its error.
"""

from contextlib import suppress
from dataclasses import dataclass, field

from onnxreg.registry.log.log import Fetch, Log, StateError, read_line
from onnxreg.registry.store.protocol import MissingBlobError
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import VERIFY_ADVICE, ForkError, IntegrityError, RegError
from onnxreg.schema.core.record import Count, Record
from onnxreg.schema.core.ref import POLICY_LOG
from onnxreg.schema.log.logline import genesis, walk_chain
from onnxreg.schema.log.state import SEGMENT_LINES, State

MAX_REMEMBERED_LINES = 256
"""The most digests of lines that are kept. They tell a log that is behind from another log."""
MAX_PLACES = 32
"""The most places that are remembered."""


class RollbackError(IntegrityError):
    """A place has fewer lines than it had before."""


class UnknownPastError(IntegrityError):
    """A log ends so far back that it may be another log."""


class ChangedStateError(IntegrityError):
    """A state changed without a new line, or the sealed part of the log did."""


class ChangedSummaryError(IntegrityError):
    """A summary of a manifest changed to something that the manifest does not say."""


class StalePolicyError(IntegrityError):
    """A place has not all policies that the registry is known to have."""


class KnownHead(Record, frozen=True):
    """The memory of a log: its last accepted index file.

    Args:
        seq: its number of lines.
        index: the digest of the file.
        lines: the digests of the newest lines; the last one is the head.
        state: line 1; None for the log of policies.
        places: the number of lines at each URL.
        trust: the digest (hex) of the trust file that the index file met, or "".
        gates: proofs that a governed channel of this index file met its policy (`deliver/resolution.py`).
    """

    seq: Count
    index: Digest
    lines: tuple[Digest, ...]
    state: State | None = None
    places: dict[str, Count] = {}
    trust: str = ""
    gates: dict[str, str] = {}

    @property
    def head(self) -> Digest:
        return self.lines[-1]

    def digest_at(self, seq: int) -> Digest | None:
        """The digest of a line, if it is remembered."""
        position = len(self.lines) - 1 - (self.seq - seq)
        return self.lines[position] if 0 <= position < len(self.lines) else None

    def at(self, url: str, seq: int) -> "KnownHead":
        """This head with the number of lines that a place has; it never shrinks."""
        places = [item for item in self.places.items() if item[0] != url][-MAX_PLACES + 1 :]
        return self.replace(places=dict([*places, (url, max(seq, self.places.get(url, 0)))]))


@dataclass
class ServedIndex:
    """An index file that a place serves.

    Args:
        registry, name: the log that it must be.
        data: its bytes; None if the place has no such file.
        url: the place.
        fetch: reads a blob that the log names, and checks its digest.
        shown: the place as errors name it; default: its URL.
    """

    registry: str
    name: str
    url: str
    data: bytes | None
    fetch: Fetch = field(repr=False)
    shown: str = ""

    def __post_init__(self) -> None:
        self.shown = self.shown or self.url


def observe(before: KnownHead | None, served: ServedIndex) -> KnownHead | None:
    """Accept an index file: return what is known from now on. None if there is no file, and never was.

    The result has more lines than the file if the place is only behind another one: that raises nothing.

    Raises:
        IntegrityError: rule 1.
        RollbackError, UnknownPastError, ForkError, ChangedStateError, ChangedSummaryError: see the rules.
    """
    if served.name == POLICY_LOG:
        return observe_policies(before, served)
    registry, name, url, data = served.registry, served.name, served.url, served.data
    reset = reset_hint(registry, name)
    had = 0 if before is None else before.places.get(url, 0)
    # 1. The file is an index file of this log: its lines follow each other up to the head that its state names.
    if data is None:
        if had:
            raise RollbackError(
                f"{served.shown} went back in time: {name} is gone, {had} were there before", reset
            )
        return before
    if before is not None and before.index == Digest.of(data):
        return before.at(url, before.seq)
    log = Log.decode(data, registry, name, served.fetch, served.shown)
    # 2. At first contact, the state is what the lines say: all of them, or those after the sealed ones.
    if before is None or before.state is None:
        if log.base:
            log.check_visible()
        else:
            log.check()
        lines = tuple(line.digest for line in log.tail) or (log.head,)
        return KnownHead(log.seq, Digest.of(data), lines, log.state).at(url, log.seq)
    # 3. A shorter log is a beginning of the known one, and this place never had more.
    if log.seq < before.seq:
        remembered = before.digest_at(log.seq)
        if remembered not in (None, log.head):
            raise fork(registry, name, log.seq, log.head, remembered)
        if log.seq < had:
            raise RollbackError(
                f"{served.shown} went back in time: the log of {name} ends at line {log.seq}, {had} were there before",
                reset,
            )
        if remembered is None:
            raise UnknownPastError(
                f"the log of {name} ends at line {log.seq}, {before.seq} were seen before, and it is too far back to "
                "tell whether it is the same log",
                reset,
            )
        log.check()
        state = before.state
        is_sealed_alike = (log.state.segments, log.state.checkpoint) == (state.segments, state.checkpoint)
        if not is_sealed_alike or not log.state.summaries.items() <= state.summaries.items():
            log.prove()  # what was true then follows from the lines and the manifests
        return before.at(url, log.seq)
    # 4. A log of the same length or more has the known head.
    if (digest := log.digest_at(before.seq)) != before.head:
        raise fork(registry, name, before.seq, digest, before.head)
    try:
        # 5. What was sealed stays, and what is sealed now follows from it.
        _check_sealed(before.state, log)
        # 6. The state follows from the checkpoint and the lines; without new lines it is the known one.
        log.check()
        if log.seq == before.seq and log.state.replace(summaries=before.state.summaries) != before.state:
            raise ChangedStateError(f"the log of {name} is as it was, and its state is not", reset)
        # 7. A summary of a manifest stays.
        for version, summary in log.state.summaries.items():
            former = before.state.summaries.get(version, summary)
            if summary != former and summary.manifest == former.manifest:
                raise ChangedSummaryError(
                    f"the index says other things of {name}:{version} than before", VERIFY_ADVICE
                )
    except (StateError, ChangedStateError, ChangedSummaryError):
        # 8. If not, the known state may be of a place that was damaged: the whole log and the manifests decide.
        with suppress(RegError):
            log.prove()
            before = before.replace(state=None)
        if before.state is not None:
            raise
    lines = (*before.lines, *(line.digest for line in log.lines(before.seq)))[-MAX_REMEMBERED_LINES:]
    return KnownHead(log.seq, Digest.of(data), lines, log.state, before.places).at(url, log.seq)


def _check_sealed(before: State, log: Log) -> None:
    """Rule 5. ChangedStateError if segments changed, or the checkpoint is not what the lines since the known one give."""
    state, error = log.state, f"the sealed part of the log of {log.name} is not what it was"
    if state.segments[: len(before.segments)] != before.segments:
        raise ChangedStateError(error, VERIFY_ADVICE)
    if len(state.segments) == len(before.segments):
        if state.checkpoint != before.checkpoint:
            raise ChangedStateError(error, VERIFY_ADVICE)
        return
    base = len(before.segments) * SEGMENT_LINES
    try:
        replay = log.replay_from(before.checkpoint, log.lines(base, log.base))
    except MissingBlobError:  # a collector freed the checkpoint
        replay = log.replay_from(None, log.lines(0, log.base))
    if log.attach(replay.checkpoint().encode()) != state.checkpoint:
        raise ChangedStateError(f"the checkpoint of {log.name} is not what its log says", VERIFY_ADVICE)


def observe_policies(before: KnownHead | None, served: ServedIndex) -> KnownHead | None:
    """Accept a registry's log of policies, as `observe`. It has no state, and an earlier one is refused at any place.

    Raises RollbackError if it is gone, put back or rewritten; StalePolicyError if the place is behind another one.
    """
    reset = reset_hint(served.registry, POLICY_LOG)
    if served.data is None:
        if before is not None:
            raise RollbackError(f"the policy log of {served.shown} is gone: it had {before.seq} lines", reset)
        return None
    digest = Digest.of(served.data)
    if before is not None and before.index == digest:
        return before.at(served.url, before.seq)
    first = genesis(served.registry, POLICY_LOG)
    lines = [read_line(raw, POLICY_LOG) for raw in served.data.removesuffix(b"\n").split(b"\n")]
    if lines[0].prev != first:
        raise IntegrityError(f"the policy log of {served.shown} is another registry's", reset)
    digests = tuple(line.digest for line in walk_chain(lines, POLICY_LOG, first, VERIFY_ADVICE))
    if before is not None and digests[before.seq - 1 : before.seq] != (before.head,):
        is_prefix = before.digest_at(len(lines)) == digests[-1]
        if is_prefix and before.places.get(served.url, 0) <= len(lines):
            raise StalePolicyError(
                f"{served.shown} has policy {len(lines)} of the {before.seq} that the registry is known to have",
                "have this copy brought up to date, or ask another place",
            )
        raise RollbackError(
            f"the policy log was put back or rewritten: it has {len(lines)} lines that are not the {before.seq} seen before",
            reset,
        )
    places = {} if before is None else before.places
    newest = digests[-MAX_REMEMBERED_LINES:]
    return KnownHead(len(lines), digest, newest, places=places).at(served.url, len(lines))


def reset_hint(registry: str, name: str) -> str:
    """The hint for a log that is not the one seen before."""
    return f"ask its owner; after a backup was restored: reg trust reset {registry} {name}"


def fork(registry: str, name: str, seq: int, digest: Digest, remembered: Digest | None) -> ForkError:
    """The error if a log has another line than was seen before."""
    was = "" if remembered is None else remembered.short
    return ForkError(
        f"history of {name} was rewritten: line {seq} is {digest.short}..., and was {was}... when last seen",
        reset_hint(registry, name),
    )
