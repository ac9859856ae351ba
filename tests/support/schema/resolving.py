"""Resolve by a state line alone, as the vectors and the clients for phones do."""

from typing import Any

from onnxreg.schema.core.errors import NotFoundError
from onnxreg.schema.log.state import State, version_of
from onnxreg.schema.query.device import rollout_versions
from onnxreg.schema.query.resolve import (
    WITHHELD,
    Query,
    ResolveOutcome,
    VersionCandidate,
    resolve_among,
    withheld,
)


def resolve_in(
    state: State,
    query: Query,
    device: Any = None,
    operator_sets: Any = {}.__getitem__,
    tag: str | None = None,
    seed: str | None = None,
) -> ResolveOutcome:
    """NotFoundError if the state line has no such version or channel, or not its summary."""
    versions = state.releases if tag is None else [version_of(state, tag)]
    if tag is not None and seed is not None:
        versions = [*rollout_versions(state, tag, device, seed), *versions]
    candidates = (_candidate(state, version) for version in versions)
    of_device = [device.requirements(operator_sets, query.context)] if device else []
    is_slow = device.is_slow if device else None
    return resolve_among(state, candidates, query, of_device, is_slow, tag is None)


def _candidate(state: State, version: Any) -> VersionCandidate:
    entry, summary = state.versions.get(version), state.effective_summary(version)
    if entry is not None and not entry.usable and not entry.dropped:
        raise NotFoundError(f"{state.name}:{version} {WITHHELD[withheld(version, entry)]}")
    if entry is None or summary is None:
        raise NotFoundError(f"the state line of {state.name} does not hold {version}")
    return VersionCandidate(version, entry, summary)
