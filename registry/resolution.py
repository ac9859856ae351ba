"""Resolve a query: find the artifact that a device, or each device of a fleet, should load, and check its version.

`schema.query.resolve` picks the artifact. Its version must have the signatures that the trust file demands. If the
query names a channel, the version must also meet the policy. This module imports few others, so that it loads fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from onnxreg.registry.log.log import LocatedVersion, Log, consult, read_blob, read_deltas
from onnxreg.registry.store.directory import DirectoryRegistry
from onnxreg.registry.store.protocol import RegistryReader, StoredObject, innermost
from onnxreg.registry.trust.known_heads import KnownHeads, trust_if_any
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import GateError, IntegrityError, NotFoundError, RegError, about
from onnxreg.schema.core.ref import POLICY_LOG, Ref, Version
from onnxreg.schema.log.state import ArtifactSummary, FileSummary, Rollout

if TYPE_CHECKING:
    from onnxreg.schema.delta.delta_format import Delta
    from onnxreg.schema.inputs.trust_file import Trust
    from onnxreg.schema.log.events import LogLine
    from onnxreg.schema.manifest.operators import Need
    from onnxreg.schema.query.device import Device
    from onnxreg.schema.query.resolve import Query, ResolveOutcome, VersionCandidate

ARTIFACT_KEYS = "format precision path digest size state stated member contract kv_cache speeds"
"""The keys of an artifact in `Resolution.to_json`. The keys from `stated` on are omitted if they have no value."""

MAX_NAMED_MEMBERS = 3
PRECISIONS = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16"}
"""Common names of precisions, each with its name in manifests."""


class Resolution(Struct, frozen=True):
    """The artifact that answers a query, the URLs of its files, and the reasons why other artifacts were not chosen."""

    located: LocatedVersion
    artifact: ArtifactSummary
    size: int  # in bytes, of all files; equal files count once
    files: tuple[tuple[FileSummary, str], ...]
    outcome: ResolveOutcome
    index: StoredObject | None = None  # the index file that was read
    deltas: tuple[tuple[Delta, str], ...] = ()  # from earlier files, with their URLs
    rollout: Rollout | None = None  # of the query's channel

    @property
    def warnings(self) -> Iterator[str]:
        """Yield a warning if a newer version was rejected, and a warning if an evaluation refused the artifact."""
        own, ref = self.located.version, self.located.ref
        others = (item.version for item in self.outcome.rejected if item.artifact)
        if newer := next((other for other in others if other.precedence > own.precedence), None):
            yield f"warning: {ref} is older than {newer}, of which no artifact answers"
        if self.artifact.state == "refused":
            yield f"warning: {self.artifact.path} of {ref} is refused: it lost too much; --certified leaves it out"

    def to_json(self) -> dict[str, Any]:
        """Return the document that `reg resolve --json` prints."""
        artifact, rollout = self.artifact.to_json(), self.rollout
        is_by_rollout = rollout is not None and rollout.manifest == self.located.entry.manifest
        deltas = [{**delta.to_json(), "url": url} for delta, url in self.deltas]
        return {
            "name": self.located.name,
            "version": str(self.located.version),
            "manifest": str(self.located.entry.manifest),
            "size": self.size,
            "artifact": {key: artifact[key] for key in ARTIFACT_KEYS.split() if key in artifact},
            "files": [{**file.to_json(), "url": url} for file, url in self.files],
            "rejected": [rejection.to_json() for rejection in self.outcome.rejected],
            **({"deltas": deltas} if deltas else {}),
            **({"rollout": {**rollout.to_json(), "in": is_by_rollout}} if rollout else {}),
        }


class NoAnswerError(NotFoundError):
    """No artifact matches a query. `outcome` says for each artifact why it does not match."""

    def __init__(self, ref: Ref, outcome: ResolveOutcome, query: Query) -> None:
        artifacts = [item for candidate, _ in outcome.looked_at for item in candidate.summary.artifacts]
        self.name, self.outcome, self.members = ref.name, outcome, {item.member for item in artifacts}
        nearest = outcome.nearest()
        if query.member is None and (names := sorted(filter(None, self.members))[:MAX_NAMED_MEMBERS]):
            nearest += f"; name one, such as --member {' or '.join(names)}"
        if word := next((item.precision for item in artifacts if item.precision in query.formats), None):
            nearest = f"did you mean --precision {word}? {nearest}"
        if precision := PRECISIONS.get(query.precision or ""):
            nearest = f"did you mean --precision {precision}? {nearest}"
        super().__init__(f"no artifact of {ref} answers the query", nearest)

    def to_json(self) -> dict[str, Any]:
        """Return the document of `Resolution.to_json` for a query without an answer."""
        nothing = dict.fromkeys(("version", "manifest", "size", "artifact"))
        rejected = [rejection.to_json() for rejection in self.outcome.rejected]
        return {"name": self.name, **nothing, "files": [], "rejected": rejected}


def resolve(
    reader: RegistryReader,
    ref: Ref,
    query: Query,
    device: Device | None = None,
    verify: bool = False,
    known_heads: KnownHeads | None = None,
    seed: str | None = None,
) -> Resolution:
    """Pick the artifact that answers a query, with the files that it needs, and check its version (docs/resolve.md).

    `reader` comes from `checked_reader`. If `verify` is set, the index file is also compared with the version's
    manifest. `seed` is the device's random text. Without a seed, the device takes part in no rollout. Raise
    NoAnswerError, with all reasons, if no artifact matches. Raise the errors of `check_version_trust` too.
    """

    def read(log: Log) -> Resolution:
        resolution = resolve_in(reader, log, ref, query, device, seed)
        if verify:
            log.check_summary(resolution.located)
        return resolution

    resolution = consult(reader, ref.name, read)
    check_version_trust(reader, ref, resolution.located, resolution.index, known_heads)
    return resolution


def check_version_trust(
    reader: RegistryReader,
    ref: Ref,
    located: LocatedVersion,
    index: StoredObject | None,
    known_heads: KnownHeads | None = None,
    look_for_policy: bool = False,
) -> None:
    """Check the version that a query found.

    Raises IntegrityError if the version lacks a signature that the trust file demands. Raises GateError if the ref
    names a governed channel, and the version was not promoted or fails the policy. `index` is the index file, if it was
    read already. If `look_for_policy` is set, the log of policies is requested even if nothing suggests that the
    registry has policies.
    """
    trust, registry = trust_if_any(), reader.registry_id
    if trust and any(need.versions for need in trust.required(registry, located.name)):
        from onnxreg.registry.trust.signatures import require_signed

        require_signed(reader, located, trust)
    if ref.tag is None or located.channel is None:
        return
    is_governed = located.channel.policy is not None or (trust is not None and trust.governs(registry))
    is_needed = is_governed or (known_heads or KnownHeads()).knows(registry, POLICY_LOG)
    if not (is_needed or look_for_policy or isinstance(innermost(reader), DirectoryRegistry)):
        return
    policies = reader.read_index(POLICY_LOG)
    if policies is None and is_needed:
        hint = "policy.jsonl was removed: ask the registry's owner; or run `reg index fetch`, if --offline"
        raise GateError(f"{reader.url} has no policy, and must have one", hint)
    if policies is not None:
        from onnxreg.registry.gates import check_holder

        check_holder(reader, ref.tag, located, index, policies)


def resolve_in(
    reader: RegistryReader,
    log: Log,
    ref: Ref,
    query: Query,
    device: Device | None = None,
    seed: str | None = None,
) -> Resolution:
    """Resolve a query in a log. If the device takes part in a rollout, the rollout's version is tried first."""
    from onnxreg.schema.query.resolve import VersionCandidate, resolve_among

    versions = [*log.state.releases] if ref.is_bare else []
    if seed is not None:
        from onnxreg.schema.query.device import rollout_versions

        versions += rollout_versions(log.state, ref.tag, device, seed, ref.digest)
    refs = [Ref(log.name, str(version)) for version in versions]
    carried = innermost(reader).carried

    def candidates() -> Iterator[VersionCandidate]:
        for candidate in refs if ref.is_bare and refs else [*refs, ref]:
            name, version, entry, _ = located = log.find(candidate)
            summary = log.summary(located, query.member)
            if carried is not None and version not in carried.get(name, ()):
                entry = entry.replace(held=())  # an archive lacks the files
            yield VersionCandidate(version, entry, summary)

    def operators(digest: Digest) -> tuple[Need, ...]:
        from onnxreg.schema.manifest.operators import read_operator_set

        with about(f"blob {digest.short}... is not an operator set", IntegrityError):
            return read_operator_set(read_blob(reader, digest))

    of_device = [device.requirements(operators, query.context)] if device else []
    is_slow = device.is_slow if device else None
    outcome = resolve_among(log.state, candidates(), query, of_device, is_slow, ref.is_bare)
    artifact = outcome.artifact
    if artifact is None or outcome.candidate is None:
        raise NoAnswerError(ref, outcome, query)
    version, entry, summary = outcome.candidate
    main = FileSummary("artifact", artifact.path, artifact.digest, artifact.size)
    needed = (main, *artifact.files, *summary.shared_files)
    files = tuple((file, reader.blob_url(file.digest)) for file in needed)
    digests = {file.digest for file in needed}
    offered = [delta for delta in read_deltas(log.fetch, entry.deltas) if delta.new in digests]
    deltas = tuple((delta, reader.blob_url(delta.digest)) for delta in offered)
    located = LocatedVersion(log.name, version, entry, log.state.channels.get(ref.tag or ""))
    rollout = log.state.rollouts.get(ref.tag or "")
    return Resolution(located, artifact, outcome.size, files, outcome, log.index, deltas, rollout)


def contracts_of(reader: RegistryReader, ref: Ref) -> tuple[Digest, ...]:
    """Return the digests of the contracts that a version's artifacts have. Raises NotFoundError if none is recorded."""

    def read(log: Log) -> tuple[Digest, ...]:
        located = log.find(ref)
        contracts = (artifact.contract for artifact in log.summary(located).artifacts)
        if not (recorded := tuple(dict.fromkeys(item for item in contracts if item is not None))):
            hint = "its inputs and outputs are not known"
            raise NotFoundError(f"{located.ref} has no recorded contract", hint)
        return recorded

    return consult(reader, ref.name, read)


class DeviceCoverage(Struct, frozen=True):
    """The answer to a query for one device. If `member` is set, the answer is about this member of a pipeline."""

    device: Device
    answer: Resolution | NoAnswerError
    member: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON of `reg resolve`, with the device's name, but without the model's name and the files."""
        answer = self.answer.to_json()
        keys = ("version", "manifest", "size", "artifact", "rejected", "rollout")
        member = {} if self.member is None else {"member": self.member}
        return {"device": self.device.name, **member} | {key: answer[key] for key in keys if key in answer}


def coverage(
    reader: RegistryReader, ref: Ref, query: Query, devices: Sequence[Device]
) -> list[DeviceCoverage]:
    """Resolve a query for each device, and for each member of a pipeline. Raise the errors of `check_version_trust`."""

    def answer(log: Log, device: Device, question: Query) -> Resolution | NoAnswerError:
        try:
            return resolve_in(reader, log, ref, question, device)
        except NoAnswerError as nothing:
            return nothing

    def read(log: Log) -> list[DeviceCoverage]:
        newest = log.find(ref)
        members = log.summary(newest).members if query.member is None else ()
        questions = [replace(query, member=name) for name in members] or [query]
        rows = [
            DeviceCoverage(device, answer(log, device, question), question.member)
            for device in devices
            for question in questions
        ]
        located = [row.answer.located for row in rows if isinstance(row.answer, Resolution)]
        if not located and ref.tag is not None:
            located = [newest]
        for target in {target.version: target for target in located}.values():
            check_version_trust(reader, ref, target, log.index)
        return rows

    return consult(reader, ref.name, read)


class ChannelStatus(NamedTuple):
    """A channel of a model, and the results of its checks."""

    tag: str
    version: Version
    line: LogLine  # that moved the channel
    signed: str  # who signed the move and the version
    gate: str  # "met" if the version meets the policy, "" without a policy, else why the channel does not resolve
    rollout: Rollout | None


def channel_statuses(reader: RegistryReader, log: Log, trust: Trust) -> Iterator[ChannelStatus]:
    """Yield the status of each channel. `trust` judges signatures. Raises IntegrityError if the log is damaged."""
    from onnxreg.registry.trust import signatures

    lines = list(log.lines())
    judge = signatures.judge_for(log, trust)
    for tag, channel in sorted(log.channels.items()):
        line, version = lines[channel.seq - 1], channel.version
        verdicts = dict.fromkeys(map(str, signatures.signatures_of(log, trust, version, channel.manifest)))
        signers = {"the move": str(judge.line(line)), "the version": ", ".join(verdicts)}
        signed = ", ".join(f"{part} by {signer}" for part, signer in signers.items() if signer)
        yield ChannelStatus(tag, version, line, signed, _gate(reader, log, tag, trust), log.rollouts.get(tag))


def _gate(reader: RegistryReader, log: Log, tag: str, trust: Trust) -> str:
    version = log.channels[tag].version
    if log.versions[version].yanked:
        return f"{version} is yanked"
    try:
        if (policy := reader.read_index(POLICY_LOG)) is None:
            return ""
        from onnxreg.registry.gates import ChannelGate, policies_in

        gate = ChannelGate(log, policies_in(policy, reader.registry_id), tag, trust)
        gate.check()
    except RegError as error:
        return error.message
    return "met" if gate.rules else ""
