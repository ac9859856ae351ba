"""The records in a model's log that gates need: moves of channels, and attestations of versions."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from onnxreg.registry.log.ledger import Ledger, read_line
from onnxreg.registry.log.lookup import read_manifest
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import InputError, IntegrityError
from onnxreg.schema.log.events import Attest, RolloutStep, Tag, Untag
from onnxreg.schema.signing.dsse import MEDIA_TYPE as ENVELOPE
from onnxreg.schema.signing.dsse import PAYLOAD_TYPE, Envelope

if TYPE_CHECKING:
    from onnxreg.schema.gates.evaluation import Evaluation
    from onnxreg.schema.manifest.manifest import Manifest


def moves(ledger: Ledger, channel: str) -> list[Tag]:
    """Every move of a channel, oldest first."""
    return [event for _, event in ledger.events(Tag) if event.tag == channel]


def rollout_steps(ledger: Ledger, channel: str) -> list[RolloutStep]:
    """Every step of a channel's rollouts, oldest first."""
    return [event for _, event in ledger.events(RolloutStep) if event.tag == channel]


def rollout_hours(ledger: Ledger, channel: str, manifest: Digest, until: datetime) -> float | None:
    """The hours for which a version was rolled out to a channel without interruption, up to a time.

    None if it was not. Times are as claimed by those who wrote the events; a line is not older than the lines before it.
    """
    start: datetime | None = None
    time = datetime.min.replace(tzinfo=UTC)
    for line in ledger.skim():
        event = read_line(line.raw, ledger.name).event
        if (claimed := datetime.fromisoformat(event.time)) > until:
            continue
        time = max(time, claimed)
        if not isinstance(event, RolloutStep | Tag | Untag) or event.tag != channel:
            continue
        is_step = isinstance(event, RolloutStep) and event.manifest == manifest
        start = (start or time) if is_step else None if time < until else start
    return None if start is None else (until - start).total_seconds() / 3600


def compared_with(past: Sequence[Tag], manifest: Digest) -> Digest | None:
    """The manifest to compare a move of a channel with: the last one promoted to it before.

    After the first promotion, only promotions count. Before it, None if the channel holds that manifest, which then
    changes nothing for devices, or held no other.
    """
    others = [event for event in past if event.manifest != manifest]
    promoted = [event for event in others if event.evidence is not None]
    if not any(event.evidence is not None for event in past) and past and past[-1].manifest == manifest:
        return None
    return next((event.manifest for event in reversed(promoted or others)), None)


def promotion_documents(ledger: Ledger) -> set[Digest]:
    """List the documents by which an offline reader can judge governed channels."""
    digests: set[Digest] = set()
    for channel, current in ledger.channels.items():
        promoted = [move for move in moves(ledger, channel) if move.evidence] if current.evidence else []
        digests |= {digest for move in promoted for digest in (move.manifest, move.evidence) if digest}
        if promoted:
            digests |= {
                event.statement
                for event in attestations(ledger, current.manifest, manifest_at(ledger, current.manifest))
            }
    return digests - set(ledger.tombstones)


def manifest_at(ledger: Ledger, digest: Digest) -> Manifest:
    return read_manifest(ledger.fetch(digest), digest, ledger.name)


def attestations(ledger: Ledger, digest: Digest, manifest: Manifest) -> list[Attest]:
    """The attestations of a manifest, or of its artifacts under another one, that were not taken down."""
    tombstones = set(ledger.tombstones)
    artifacts = {artifact.digest for artifact in manifest.artifacts}
    attests = (event for _, event in ledger.events(Attest) if event.statement not in tombstones)
    return [event for event in attests if event.manifest == digest or event.artifact in artifacts]


def evaluation_of(ledger: Ledger, event: Attest) -> Evaluation | None:
    """Read the evaluation of an attest event. Return None for another statement.

    Raise IntegrityError if the event contradicts its statement.
    """
    data = ledger.fetch(event.statement)
    try:
        evaluation = read_attested(event.media_type, data)
    except InputError as error:
        raise IntegrityError(f"{error.message} of {ledger.name}", error.advice) from error
    verdict = (evaluation.artifact, evaluation.state) if evaluation else (None, None)
    if verdict != (event.artifact, event.state):
        raise IntegrityError(
            f"an attest event of {ledger.name} says other things than its statement {event.statement.short}...",
            "its writer made it up: do not rely on this version",
        )
    return evaluation


def read_attested(media_type: str, data: bytes) -> Evaluation | None:
    """Read the evaluation of a statement; None if it states something else. InputError if it is malformed."""
    from onnxreg.schema.gates.evaluation import EVALUATION, RECALL_DELTA, read_evaluation, read_statement

    if media_type == ENVELOPE:
        envelope = Envelope.decode(data)
        return read_statement(envelope.payload) if envelope.payload_type == PAYLOAD_TYPE else None
    return (
        read_evaluation(data, "an attested evaluation")[1]
        if media_type in (RECALL_DELTA, EVALUATION)
        else None
    )
