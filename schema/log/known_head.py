"""Rollback protection: compare a freshly read index file with the last one that this user accepted. Pure.

A log only grows. So a log that is read must be the known one, with or without new lines, or an earlier state of
it. The state line may differ from the known one only as the new lines say. Light, since `resolve` imports it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from onnxreg.schema.core.canonical import array_of, count, items, mapping, nullable, record, table_of, text
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import VERIFY_ADVICE, Advice, ForkError, InputError, IntegrityError
from onnxreg.schema.log.consistency import check_claims
from onnxreg.schema.log.logline import LogLineHeader, verify_chain
from onnxreg.schema.log.state import SEGMENT_LINES, State

MAX_REMEMBERED_LINES = 256
"""The most digests of lines that are kept. They tell a log that is behind from another log."""
MAX_PLACES = 32
"""The most places that are remembered."""

Sealed = Callable[[int], list[bytes]]
"""The raw lines of a sealed segment, by its number from 0, its digest checked."""
ARTIFACT_FIELDS = ("path", "format", "precision", "digest", "size", "state")
"""The fields of an artifact in a summary that every later build writes alike."""
SUMMARY_FIELDS = (*ARTIFACT_FIELDS, "files", "opset", "ort_format", "operators", "providers", "recall")
"""The fields of an artifact in a summary that every build writes."""
STAGE_FIELD = "member"
"""The stage of a pipeline that an artifact is of.

Other models do not have the key: what is remembered of them stays valid.
"""


@dataclass(frozen=True)
class ObservedIndex:
    """An index file: its digest (hex), its state, and the lines of its tail."""

    index: str
    state: State
    lines: tuple[LogLineHeader, ...]

    @classmethod
    def read(cls, data: bytes, name: str) -> "ObservedIndex":
        """Raise IntegrityError if the lines do not follow each other up to the head that the state names."""
        first, *raw_lines = data.removesuffix(b"\n").split(b"\n")
        try:
            state = State.decode(first)
            lines = tuple(LogLineHeader.read(line) for line in raw_lines)
        except InputError as error:
            raise IntegrityError(
                f"the index of {name} is damaged: {error.message}", error.advice or VERIFY_ADVICE
            ) from error
        if state.name != name:
            raise IntegrityError(f"the index of {name} belongs to {state.name}", VERIFY_ADVICE)
        observed = cls(Digest.of(data).hex, state, lines)
        head = lines[0].prev if lines else state.head
        verify_chain(lines, name, head, VERIFY_ADVICE, observed.base, (state.seq, state.head))
        return observed

    @property
    def base(self) -> int:
        """The number of the last sealed line."""
        return len(self.state.segments) * SEGMENT_LINES

    def since(self, seq: int, sealed: Sealed) -> tuple[Digest, Sequence[LogLineHeader]]:
        """Return the digest of a line, and the lines after it. Their chain to the head is verified.

        The digest of line 0 is what the first line names as its predecessor.
        """
        name, lines = self.state.name, self.lines
        first = min(seq, self.base) // SEGMENT_LINES
        if seq < self.base:
            raw = [line for number in range(first, len(self.state.segments)) for line in sealed(number)]
            try:
                lines = (*map(LogLineHeader.read, raw), *lines)
            except InputError as error:
                raise IntegrityError(
                    f"the log of {name} cannot be read: {error.message}", error.advice
                ) from error
            verify_chain(lines, name, lines[0].prev, VERIFY_ADVICE, first * SEGMENT_LINES)
        skip = seq - first * SEGMENT_LINES
        if skip:
            return lines[skip - 1].digest, lines[skip:]
        return (lines[0].prev if lines else self.state.head), lines


@dataclass(frozen=True)
class KnownHead:
    """The memory of a model in a registry.

    Digests are in hex.

    Args:
        index: the digest of the index file that was accepted last.
        lines: the digests of the newest lines. The last one is the head.
        channels, versions: tables of the state as JSON.
        files: a digest of each version's artifacts in the state.
        sealed: the segments and at last the catalog.
        places: the number of lines at each URL.
        trust_digest: the digest of the trust file with which the index file was checked.
        gates: proofs that a governed channel of this index file met its policy (`deliver/resolution.py`).
    """

    seq: int
    index: str
    lines: tuple[str, ...]
    channels: Mapping[str, Any]
    versions: Mapping[str, Any]
    files: Mapping[str, str]
    sealed: tuple[str, ...]
    places: Mapping[str, int] = field(default_factory=dict)
    trust_digest: str = ""
    gates: Mapping[str, str] = field(default_factory=dict)
    tombstones: tuple[str, ...] | None = None
    refused: tuple[str, ...] = ()
    summaries: Mapping[str, str] = field(default_factory=dict)
    rollouts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def has_state(self) -> bool:
        """True if the whole state is remembered."""
        return self.tombstones is not None

    @property
    def segments(self) -> tuple[str, ...]:
        return self.sealed[:-1]

    @property
    def facts(self) -> tuple[object, ...]:
        """The facts of a state that this build knows."""
        tables = self.channels, self.versions, self.rollouts, self.summaries
        return *tables, self.sealed, self.tombstones, self.refused

    def state_json(self) -> dict[str, Any]:
        """The remembered state as a state line has it, without summaries."""
        return {
            "seq": self.seq,
            "head": str(self.head),
            "channels": dict(self.channels),
            "versions": dict(self.versions),
            "summaries": {},
            "segments": list(self.segments),
            "tombstones": list(self.tombstones or ()),
            "refused": list(self.refused),
            "rollouts": dict(self.rollouts),
            **({"catalog": self.sealed[-1]} if self.sealed else {}),
        }

    @property
    def head(self) -> Digest:
        return Digest(self.lines[-1])

    def digest_at(self, seq: int) -> Digest | None:
        """The digest of a line, if it is remembered."""
        position = len(self.lines) - 1 - (self.seq - seq)
        return Digest(self.lines[position]) if 0 <= position < len(self.lines) else None

    def at(self, url: str, seq: int) -> "KnownHead":
        """Return this head with the number of lines that a place has."""
        places = {other: seq for other, seq in self.places.items() if other != url}
        while len(places) >= MAX_PLACES:
            places.pop(next(iter(places)))
        return replace(self, places={**places, url: max(seq, self.places.get(url, 0))})

    def to_json(self) -> dict[str, Any]:
        return {
            "seq": self.seq,
            "index": self.index,
            "policy": self.trust_digest,
            "lines": list(self.lines),
            "channels": dict(self.channels),
            "versions": dict(self.versions),
            "files": dict(self.files),
            "sealed": list(self.sealed),
            "places": dict(self.places),
            "gates": dict(self.gates),
            **self._state_fields(),
        }

    def _state_fields(self) -> dict[str, Any]:
        if self.tombstones is None:
            return {}
        return {
            "tombstones": list(self.tombstones),
            "refused": list(self.refused),
            "summaries": dict(self.summaries),
            **({"rollouts": dict(self.rollouts)} if self.rollouts else {}),
        }

    @classmethod
    def from_json(cls, value: Any) -> "KnownHead":
        """Raise InputError if it is malformed."""
        return _KNOWN_HEAD(value)


def _lines(value: Any) -> tuple[str, ...]:
    lines = items(value, lambda line: Digest(text(line)).hex)
    if not lines:
        raise InputError("no line is known")
    return lines


def _make(*needed: Any, policy: str = "", **more: Any) -> KnownHead:
    return replace(KnownHead(*needed, **more), trust_digest=policy)


_KNOWN_HEAD = record(
    _make,
    {
        "seq": count,
        "index": text,
        "lines": _lines,
        "channels": mapping,
        "versions": mapping,
        "files": table_of(text, text),
        "sealed": array_of(text),
        "places": table_of(text, count),
    },
    {
        "policy": text,
        "gates": table_of(text, text),
        "tombstones": nullable(array_of(text)),
        "refused": array_of(text),
        "summaries": table_of(text, text),
        "rollouts": mapping,
    },
)


def follow(
    known_head: KnownHead | None,
    index: str,
    lines: Sequence[LogLineHeader],
    registry: str,
    name: str,
    url: str,
) -> KnownHead:
    """Return the known head after a whole log without a state, such as that of policies, was read.

    Raise IntegrityError if it does not continue the known log. An earlier state of it is refused too.
    """
    if not lines:
        raise IntegrityError(f"the log of {name} has no line", reset_hint(registry, name))
    verify_chain(lines, name, lines[0].prev, VERIFY_ADVICE)
    digests = tuple(line.digest.hex for line in lines)
    if known_head is not None and digests[known_head.seq - 1 : known_head.seq] != (known_head.head.hex,):
        before = known_head.digest_at(len(lines))
        if before == lines[-1].digest and known_head.places.get(url, 0) <= len(lines):
            raise IntegrityError(
                f"{url} has policy {len(lines)} of the {known_head.seq} that the registry is known to have",
                "have this copy brought up to date, or ask another place",
            )
        raise IntegrityError(
            f"the policy log was put back or rewritten: it has {len(lines)} lines that are not the {known_head.seq} seen before",
            reset_hint(registry, name),
        )
    places = known_head.places if known_head else {}
    return KnownHead(len(lines), index, digests[-MAX_REMEMBERED_LINES:], {}, {}, {}, (), places).at(
        url, len(lines)
    )


@dataclass(frozen=True)
class StaleIndex:
    """An earlier state of the known log: how many lines it lacks."""

    lines: int


def compare(known_head: KnownHead | None, observed: ObservedIndex, sealed: Sealed) -> KnownHead | StaleIndex:
    """Return the known head after an index file was read, or the lines by which it is behind.

    Raise ForkError if neither log is the beginning of the other. Raise IntegrityError if that cannot be decided,
    or if the state line contradicts the lines.
    """
    name, state = observed.state.name, observed.state
    # First contact: there is nothing to compare with.
    if known_head is None:
        return _learn(None, observed, observed.lines)
    # A shorter log must be a beginning of the known one: then it is stale, else it is a fork.
    if state.seq < known_head.seq:
        before = known_head.digest_at(state.seq)
        if before is None:
            raise IntegrityError(
                f"the log of {name} ends at line {state.seq}, {known_head.seq} were seen before, and it is too far back to "
                "tell whether it is the same log",
                reset_hint(state.registry, name),
            )
        if before != state.head:
            raise fork(state.registry, name, state.seq, state.head, before)
        _learn(None, observed, observed.lines)
        return StaleIndex(known_head.seq - state.seq)
    # A log of the same length or more must contain the known head.
    digest, lines = observed.since(known_head.seq, sealed)
    if digest != known_head.head:
        raise fork(state.registry, name, known_head.seq, digest, known_head.head)
    # A state may change only by new lines.
    learned = _learn(known_head, observed, lines)
    if known_head.has_state and known_head.seq == learned.seq and known_head.facts != learned.facts:
        raise IntegrityError(
            f"the log of {name} is as it was, and its state is not", reset_hint(state.registry, name)
        )
    return learned


def relearn(known_head: KnownHead, observed: ObservedIndex, sealed: Sealed) -> KnownHead:
    """Keep the known lines and places, and take the state of an index file that its whole log proves.

    The known state was damaged: no line proved it. Raise ForkError if the log is another one.
    """
    digest, lines = observed.since(known_head.seq, sealed)
    if digest != known_head.head:
        raise fork(observed.state.registry, observed.state.name, known_head.seq, digest, known_head.head)
    digests = (*known_head.lines, *(line.digest.hex for line in lines))
    return replace(
        _learn(None, observed, observed.lines),
        lines=digests[-MAX_REMEMBERED_LINES:],
        places=known_head.places,
    )


def reset_hint(registry: str, name: str) -> Advice:
    """The hint for a log that is not the one seen before."""
    return Advice("reset-trust", registry=registry, name=name)


def fork(registry: str, name: str, seq: int, digest: Digest, remembered: Digest) -> ForkError:
    """The error if a log has another line than was seen before."""
    return ForkError(
        f"history of {name} was rewritten: line {seq} is {digest.short}..., and was {remembered.short}... when last seen",
        reset_hint(registry, name),
    )


def _learn(
    known_head: KnownHead | None, observed: ObservedIndex, lines: Sequence[LogLineHeader]
) -> KnownHead:
    state = observed.state
    channels = {tag: channel.to_json() for tag, channel in state.channels.items()}
    versions = {str(version): entry.to_json() for version, entry in state.versions.items()}
    since = observed.base if known_head is None else known_head.seq
    rollouts = {tag: rollout.to_json() for tag, rollout in state.rollouts.items()}
    before = (
        (_older(channels, since), _older(versions, since), _older(rollouts, since))
        if known_head is None
        else (known_head.channels, known_head.versions, known_head.rollouts)
    )
    check_claims(state.name, before, (channels, versions, rollouts), state.refused, lines, since)
    if known_head is not None:
        _check_unchanged(known_head, state)
    digests = [line.digest.hex for line in lines]
    remembered = known_head.lines if known_head else (() if digests else (state.head.hex,))
    places = known_head.places if known_head else {}
    return KnownHead(
        state.seq,
        observed.index,
        (*remembered, *digests)[-MAX_REMEMBERED_LINES:],
        channels,
        versions,
        {version: artifacts_digest(state, version) for version in state.summaries},
        _sealed(state),
        places,
        tombstones=tuple(map(str, state.tombstones)),
        refused=tuple(map(str, state.refused)),
        summaries={version: summary_digest(state, version) for version in state.summaries},
        rollouts=rollouts,
    )


def _sealed(state: State) -> tuple[str, ...]:
    return (*map(str, state.segments), str(state.catalog)) if state.catalog else ()


def _check_unchanged(known_head: KnownHead, state: State) -> None:
    """Raise IntegrityError if a fact of a manifest, or the sealed part of the log, changed."""
    for version, entry in state.versions.items():
        key = str(version)
        same = known_head.versions.get(key, {}).get("manifest") == str(entry.manifest)
        if not same or key not in state.summaries:
            continue
        is_changed = known_head.files.get(key, artifacts_digest(state, key)) != artifacts_digest(state, key)
        if is_changed or known_head.summaries.get(key, summary_digest(state, key)) != summary_digest(
            state, key
        ):
            raise IntegrityError(
                f"the index says other things of {state.name}:{version} than before", VERIFY_ADVICE
            )
    sealed, segments = _sealed(state), known_head.sealed[:-1]
    unchanged = sealed[: len(segments)] == segments
    if not unchanged or (len(sealed) == len(known_head.sealed) and sealed != known_head.sealed):
        raise IntegrityError(f"the sealed part of the log of {state.name} is not what it was", VERIFY_ADVICE)


def _older(table: Mapping[str, Any], seq: int) -> dict[str, Any]:
    """The entries that came before the lines in view: accepted at first sight."""
    return {key: value for key, value in table.items() if value["seq"] <= seq}


def artifacts_digest(state: State, version: str) -> str:
    """The digest of a version's summary: its manifest, its artifacts, and their states."""
    summary = mapping(state.summaries[version])
    artifacts = [
        [item.get(key) for key in ARTIFACT_FIELDS] for item in items(summary.get("artifacts", []), mapping)
    ]
    encoded = json.dumps([summary.get("manifest"), artifacts, summary.get("files")], sort_keys=True)
    return Digest.of(encoded.encode()).hex


def summary_digest(state: State, version: str) -> str:
    """All that every build says of a version in its summary."""
    summary = mapping(state.summaries[version])
    artifacts = items(summary.get("artifacts", []), _artifact)
    facts = [summary.get(key) for key in ("manifest", "size", "files", "task", "family", "license")]
    return Digest.of(json.dumps([facts, artifacts], sort_keys=True).encode()).hex


def _artifact(value: Any) -> list[Any]:
    item = mapping(value)
    keys = SUMMARY_FIELDS if item.get(STAGE_FIELD) is None else (*SUMMARY_FIELDS, STAGE_FIELD)
    return [item.get(key) for key in keys]
