"""The state line: tables about one model, computed from its log. With these, most queries need only one small request.

Sealing moves `SEGMENT_LINES` lines of the log into a blob; `segments` lists these blobs in order. It also writes all
versions to another blob, the checkpoint. After sealing, `versions` has only the newest versions, the versions of channels
and rollouts, and versions that changed since. `summaries` describes the newest versions and the versions of channels and
rollouts. Each summary follows from the version's manifest (`summarize`), so `reg verify` can check it.

`tombstones` are blobs that were taken down and must not return. `refused` are artifacts that a later evaluation refused; they
are refused in every version that has them. `speeds` are measured latencies by manifest and artifact; a checkpoint has none.
Keys that a later build added are kept and written back (see `registry.log.log`).

A staged rollout gives the next release of a channel first to a share of the channel's devices; `schema.query.device` decides
which devices take part. `docs/rollouts.md` is the specification.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from msgspec import Meta

from onnxreg.schema.core import canonical
from onnxreg.schema.core.bounds import MAX_MACHINE_CHARS, MAX_METRICS
from onnxreg.schema.core.canonical import Count, Digest, Record
from onnxreg.schema.core.errors import InputError, NotFoundError, suggest
from onnxreg.schema.core.ref import Version, check_name, check_path, check_registry_id, check_tag

if TYPE_CHECKING:
    from onnxreg.schema.manifest.manifest import Artifact, Check, FileEntry, Manifest

STATES = ("certified", "unknown", "refused")
"""The states from best to worst; a refused artifact is chosen only if no other artifact of its version fits."""


def effective_state(stated: str, *verdicts: str | None) -> str:
    """Return the effective state of an artifact: `refused` if a later verdict on its bytes refuses it, else `stated`.

    A later certificate never improves the manifest's state, because all who can write to the registry could attest one.
    """
    return "refused" if "refused" in verdicts else stated


def worst(states: Iterable[str]) -> str:
    """Return the worst of several verdicts on the same bytes: a refusal wins."""
    return max(states, key=STATES.index)


_Positive = Annotated[float, Meta(gt=0, le=1e9)]
_Word = Annotated[str, Meta(min_length=1, max_length=MAX_MACHINE_CHARS)]


class Speed(Record, frozen=True):
    """The latency of an artifact on a class of machine: the median in milliseconds, and the `ratio` to full precision.

    A class of machine is the widest instruction set, the runtime with its version, and the number of threads. Of several
    inputs, the input with the largest ratio counts. `low` is the low end of the ratio's 95 % interval. `seq` is the number
    of the line in the log; the event itself states 0.
    """

    isa: _Word
    runtime: _Word
    threads: Count
    ratio: _Positive
    low: _Positive
    median_ms: _Positive | None = None
    seq: Count = 0

    @property
    def machine(self) -> str:
        """The class of machine, such as `x86_64+avx2, onnxruntime 1.31.1, 1 thread`."""
        return f"{self.isa}, {self.runtime}, {self.threads} thread{'' if self.threads == 1 else 's'}"

    def __str__(self) -> str:
        median = "" if self.median_ms is None else f"{self.median_ms:.3g} ms, "
        return f"{median}{self.ratio:.2f} x, {self.isa}"


class ArtifactState(NamedTuple):
    """The state of an artifact, from three sources, and its speeds in the log, the newest last.

    `stated` is the manifest's state. `attested` is the worst verdict of this version's later evaluations (None without any).
    `refused_elsewhere` is True if the same bytes were refused in another version.
    """

    path: str
    stated: str
    attested: str | None = None
    refused_elsewhere: bool = False
    speeds: tuple[Speed, ...] = ()

    @property
    def latency(self) -> str:
        """The newest speed in words, such as `12.3 ms, 0.57 x, x86_64+avx2`; empty if nothing was measured."""
        return str(self.speeds[-1]) if self.speeds else ""

    @property
    def state(self) -> str:
        return effective_state(self.stated, self.attested, "refused" if self.refused_elsewhere else None)

    @property
    def remark(self) -> str:
        """A sentence if the effective state or a later evaluation differs from the manifest; else empty."""
        if self.state != self.stated:
            is_own = self.attested == self.state
            why = "by a later evaluation" if is_own else "with the bytes of another version"
            return f"{self.state} {why}: {self.path} (its manifest says {self.stated})"
        if self.attested not in (None, "refused", self.stated):
            return f"{self.state} as its manifest says: {self.path} (a later evaluation says {self.attested})"
        return ""


ArtifactStates = Mapping[str, ArtifactState]
"""The states of all artifacts of a version by path, in the manifest's order."""


RECALL = "character_recall/"
"""The prefix of a check's name if the check measures the recall of one label."""
CERTIFICATE, ITEM_SCORES = "certificate", "item-scores"
EVIDENCE = frozenset({CERTIFICATE, ITEM_SCORES})
"""The roles of companion files that are evidence for a verdict. Downloads omit these files: no artifact needs them to run."""


class FileSummary(Record, frozen=True):
    """The summary of a file of a version."""

    role: str
    path: str
    digest: Digest
    size: Count

    def __post_init__(self) -> None:
        check_path(self.path)


class KvCacheSummary(Record, frozen=True):
    """The memory that a decoder needs for keys and values; see `manifest.KvCache`."""

    bytes_per_token: Count
    max_tokens: Count


class ArtifactSummary(Record, frozen=True):
    """The summary of one artifact: all that a device must know before a download.

    `operators` is the digest of the operator-set blob (the canonical JSON of the manifest's `operators`); `domains` are the
    domains of these operators except `ai.onnx`. `ir_version` is read from the ONNX file. `recall` maps a label to its
    measured recall. `metrics` maps the name of a check on the certification's suite to the check's value. `member` is the
    pipeline stage of the artifact. `contrib` lists the operators and features that the artifact needs and that a release of
    ONNX Runtime may lack. `contract` is the digest of all that an app's code relies on. `kv_cache` is set for a decoder.
    `preferred` is True for the winner of the search that made the version. If a later evaluation refused the artifact,
    `state` is `refused` and `stated` is the manifest's state. An index file stores neither `stated` nor `speeds`.
    """

    format: str
    precision: str
    path: str
    digest: Digest
    size: Count
    state: str
    files: tuple[FileSummary, ...] = ()
    opset: Count | None = None
    ort_format: Count | None = None
    operators: Digest | None = None
    providers: tuple[str, ...] = ()
    recall: dict[str, float] = {}
    ir_version: Count | None = None
    domains: tuple[str, ...] = ()
    stated: str | None = None
    member: str | None = None
    metrics: dict[str, float] = {}
    contrib: tuple[str, ...] = ()
    contract: Digest | None = None
    kv_cache: KvCacheSummary | None = None
    preferred: bool = False
    speeds: tuple[Speed, ...] = ()

    def __post_init__(self) -> None:
        check_path(self.path)


class VersionSummary(Record, frozen=True, dict=True):
    """The summary of a version: manifest, artifacts, shared companion files. `size` is the manifest's size in bytes."""

    manifest: Digest
    size: Count
    artifacts: tuple[ArtifactSummary, ...]
    files: tuple[FileSummary, ...]
    task: str | None = None
    family: str | None = None
    license: str | None = None
    profile: str | None = None

    @property
    def shared_files(self) -> tuple[FileSummary, ...]:
        """The companion files that every download includes: all but the evidence."""
        return tuple([entry for entry in self.files if entry.role not in EVIDENCE])

    @cached_property
    def download_sizes(self) -> tuple[int, ...]:
        """The bytes to fetch for each artifact: its own files and the shared companion files. Equal files count once."""
        shared, sizes = {entry.digest: entry.size for entry in self.shared_files}, []
        for artifact in self.artifacts:
            own = {artifact.digest: artifact.size, **{entry.digest: entry.size for entry in artifact.files}}
            sizes.append(sum((own | shared).values()))
        return tuple(sizes)

    def downloads(self, paths: Collection[str] | None) -> Iterator[tuple[ArtifactSummary, int]]:
        """Yield each artifact with one of these paths (None: every artifact) and its download size in bytes."""
        for artifact, size in zip(self.artifacts, self.download_sizes, strict=True):
            if paths is None or artifact.path in paths:
                yield artifact, size

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The names of a pipeline's stages, in the manifest's order; empty for a model that is not a pipeline."""
        named = (artifact.member for artifact in self.artifacts)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def after(
        self, attested: Mapping[Digest, str], speeds: Mapping[Digest, tuple[Speed, ...]] = {}
    ) -> "VersionSummary":
        """Return a copy with the artifacts' effective states and speeds. `attested` has later verdicts by artifact."""
        if (attested.keys() | speeds.keys()).isdisjoint(artifact.digest for artifact in self.artifacts):
            return self
        artifacts = []
        for item in self.artifacts:
            state = effective_state(item.state, attested.get(item.digest))
            stated = item.stated if state == item.state else item.state
            artifacts.append(item.replace(state=state, stated=stated, speeds=speeds.get(item.digest, ())))
        return self.replace(artifacts=tuple(artifacts))


def operator_set(artifact: "Artifact") -> bytes | None:
    """Return the operator-set blob of an artifact; None if the artifact lists no operators.

    Versions with equal sets share one blob.
    """
    operators = [operator.to_json() for operator in artifact.operators]
    return canonical.encode(operators) if operators else None


def summarize(
    manifest: "Manifest", digest: Digest, size: int, *, every: bool = False, member: str | None = None
) -> VersionSummary:
    """Summarize a manifest. `digest` and `size` (bytes) describe the manifest itself.

    A family's summary has only the `entry_artifacts`, because hundreds of members would not fit into an index file. With
    `every` it has all artifacts. With `member` it also has the artifacts of this member, and each artifact names its member.
    """
    stages = manifest.stages if member is None else manifest.members
    first = {artifact.path for artifact in manifest.entry_artifacts}
    return VersionSummary(
        digest,
        size,
        tuple(
            _artifact(manifest, artifact, stages.get(artifact.path))
            for artifact in manifest.artifacts
            if every or artifact.path in first or (member is not None and stages.get(artifact.path) == member)
        ),
        tuple(map(_file, manifest.files)),
        manifest.task,
        manifest.family,
        manifest.license,
        None if manifest.recipe is None else manifest.recipe.profile,
    )


def _file(entry: "FileEntry") -> FileSummary:
    return FileSummary(entry.role, entry.path, entry.digest, entry.size)


def suite_checks(artifact: "Artifact") -> list["Check"]:
    """Return an artifact's measured checks on the suite that judged it, except the recalls of single labels."""
    return [
        check
        for check in artifact.checks
        if check.dataset is not None
        and check.dataset == artifact.suite
        and check.value is not None
        and not check.name.startswith(RECALL)
    ]


def recalls(artifact: "Artifact") -> list[tuple[str, "Check"]]:
    """Return an artifact's measured recalls of single labels, each with the label."""
    checks = [check for check in artifact.checks if check.name.startswith(RECALL) and check.value is not None]
    return [(check.name.removeprefix(RECALL), check) for check in checks]


def _artifact(manifest: "Manifest", artifact: "Artifact", member: str | None) -> ArtifactSummary:
    from onnxreg.schema.manifest.manifest import contract_of

    operators, cache = operator_set(artifact), artifact.kv_cache
    search = manifest.recipe and manifest.recipe.parameters.get("search")
    return ArtifactSummary(
        artifact.format,
        artifact.precision,
        artifact.path,
        artifact.digest,
        artifact.size,
        artifact.certification.state,
        files=tuple(map(_file, artifact.files)),
        opset=artifact.metadata.opset,
        ort_format=artifact.ort_format,
        operators=None if operators is None else Digest.of(operators),
        providers=tuple(artifact.metadata.execution_providers),
        recall={label: check.value for label, check in recalls(artifact) if check.value is not None},
        ir_version=artifact.ir_version,
        domains=tuple(sorted({operator.domain for operator in artifact.operators} - {"ai.onnx"})),
        member=member,
        contrib=tuple(artifact.contrib),
        contract=contract_of(manifest, artifact),
        kv_cache=None if cache is None else KvCacheSummary(cache.bytes_per_token, cache.max_tokens),
        metrics={
            check.name: check.value
            for check in suite_checks(artifact)[:MAX_METRICS]
            if check.value is not None
        },
        preferred=isinstance(search, Mapping) and search.get("output") == artifact.path,
    )


SEGMENT_LINES = 64
SUMMARIZED_RELEASES = 4
"""The number of newest releases with a summary in the state line, besides the versions of channels and rollouts."""
MAX_LISTED_VERSIONS = 5
Percent = Annotated[int, Meta(gt=0, le=100)] | Annotated[float, Meta(gt=0, le=100)]
Salt = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]
"""The random text of a rollout; it decides which devices take part."""


def check_held(paths: tuple[str, ...]) -> None:
    """Raise InputError unless there is at least one path, and the paths are valid, sorted and different."""
    if not paths or list(paths) != sorted(set(map(check_path, paths))):
        raise InputError("not a sorted list of different paths")


class Gone(Record, frozen=True):
    """The reason why a version has no files: `how` (expired, purged or dropped), and the id of the event that says so."""

    how: Literal["expired", "purged", "dropped"]
    event: Digest


class VersionEntry(Record, frozen=True):
    """One version: its manifest, the manifest's size in bytes, and the number of the line that published the version.

    `yanks` has the ids of the yanks in effect on the manifest, ascending; a version with a yank is yanked. `held` has the
    paths of the artifacts that this registry has; None means all. `attested` maps an artifact's digest to the worst
    verdict of later evaluations. `deltas` is the digest of the table of deltas.
    """

    manifest: Digest
    size: Count
    seq: Count
    yanks: tuple[Digest, ...] = ()
    pinned: bool = False
    gone: Gone | None = None
    held: tuple[str, ...] | None = None
    attested: dict[Digest, str] = {}
    deltas: Digest | None = None

    def __post_init__(self) -> None:
        if self.held:
            check_held(self.held)

    @property
    def yanked(self) -> bool:
        return bool(self.yanks)

    @property
    def usable(self) -> bool:
        return not self.yanks and self.gone is None

    @property
    def dropped(self) -> bool:
        return self.gone is not None and self.gone.how == "dropped"

    def status(self, summary: VersionSummary | None) -> str:
        """Return the status of the version in one word, or "" for a usual version.

        The words are expired, purged, dropped, yanked, refused (an artifact is refused), pinned and partial. The first
        that applies is returned. `summary` is the version's summary with effective states; None if it is not known.
        """
        if self.gone is not None:
            return self.gone.how
        words = {"yanked": self.yanked, "refused": self.is_refused(summary)}
        words |= {"pinned": self.pinned, "partial": self.held is not None}
        return next((word for word, holds in words.items() if holds), "")

    def is_refused(self, summary: VersionSummary | None) -> bool:
        """True if the manifest or a later evaluation refuses an artifact. For `summary` see `status`."""
        states = {artifact.state for artifact in summary.artifacts} if summary else set()
        return effective_state("", *states, *self.attested.values()) == "refused"


class Channel(Record, frozen=True):
    """The version of a channel, and the number of the line that moved the channel to this version.

    `policy` and `evidence` are copied from the line's event (`Tag`); None if the event lacks them.
    """

    version: Version
    manifest: Digest
    seq: Count
    policy: Digest | None = None
    evidence: Digest | None = None


class Rollout(Record, frozen=True):
    """A rollout of a channel: the new version, the percentage of devices, and the number of the rollout's latest line.

    `where` is an expression over the device document that limits the devices; for `policy` and `evidence` see
    `RolloutStep`.
    """

    to: Version
    manifest: Digest
    percent: Percent
    salt: Salt
    seq: Count
    where: str | None = None
    policy: Digest | None = None
    evidence: Digest | None = None

    def __post_init__(self) -> None:
        check_percent(self.percent)

    def __str__(self) -> str:
        cohort = f" with {self.where}" if self.where else ""
        return f"{self.to} is being rolled out to {self.percent:g} % of the devices{cohort}"


def check_percent(share: float) -> float:
    """Return a share in percent unchanged; raise InputError unless 0 < share <= 100 with at most two decimals."""
    if not 0 < share <= 100 or round(share * 100) != round(share * 100, 6):
        hint = "write a number from 0.01 to 100 with at most two decimals"
        raise InputError(f"not a percentage: {str(share)[:40]}", hint)
    return share


Speeds = dict[Digest, dict[Digest, tuple[Speed, ...]]]
"""The speeds by manifest and artifact: the newest on each class of machine, in the order of the log lines."""


class Checkpoint(Record, frozen=True):
    """The tables of a model up to its last sealed line, stored as a blob. `versions` has every version but dropped ones."""

    versions: dict[Version, VersionEntry] = {}
    channels: dict[str, Channel] = {}
    tombstones: tuple[Digest, ...] = ()
    refused: tuple[Digest, ...] = ()
    rollouts: dict[str, Rollout] = {}


class State(Record, frozen=True, dict=True):
    """The state line of an index file; the module explains its keys."""

    registry: str
    name: str
    seq: Count
    head: Digest
    channels: dict[str, Channel]
    versions: dict[Version, VersionEntry]
    summaries: dict[Version, VersionSummary]
    segments: tuple[Digest, ...]
    checkpoint: Digest | None = None
    tombstones: tuple[Digest, ...] = ()
    refused: tuple[Digest, ...] = ()
    rollouts: dict[str, Rollout] = {}
    speeds: Speeds = {}

    def __post_init__(self) -> None:
        check_registry_id(self.registry)
        check_name(self.name)
        for tag in (*self.channels, *self.rollouts):
            check_tag(tag)

    def verdicts(self, entry: VersionEntry | None) -> Mapping[Digest, str]:
        """Return the verdict of later evaluations on each artifact, by the artifact's digest. A refusal wins.

        `entry` is the version's entry, or None if only the checkpoint has the entry. With None, only refusals are known.
        """
        attested = {} if entry is None else entry.attested
        return {**attested, **dict.fromkeys(self.refused, "refused")} if self.refused else attested

    def effective_summary(self, version: Version) -> VersionSummary | None:
        """Return a version's summary with the effective states of its artifacts; None if the state line lacks the summary."""
        summary = self.summaries.get(version)
        if summary is None:
            return None
        verdicts = self.verdicts(self.versions.get(version))
        return summary.after(verdicts, self.speeds.get(summary.manifest, {}))

    def artifact_states(self, manifest: "Manifest | None", entry: VersionEntry) -> ArtifactStates:
        """Return the states of a version's artifacts after later evaluations; empty without a manifest."""
        states, speeds = dict[str, ArtifactState](), self.speeds.get(entry.manifest, {})
        for item in manifest.artifacts if manifest else ():
            verdict, timed = entry.attested.get(item.digest), speeds.get(item.digest, ())
            is_refused = item.digest in self.refused and verdict != "refused"
            stated = item.certification.state
            states[item.path] = ArtifactState(item.path, stated, verdict, is_refused, timed)
        return states

    def speeds_until(self, seq: int) -> Speeds:
        """Return the speeds that the log lines up to line `seq` recorded."""
        tables: Speeds = {}
        for manifest, table in self.speeds.items():
            for artifact, speeds in table.items():
                if earlier := tuple(speed for speed in speeds if speed.seq <= seq):
                    tables.setdefault(manifest, {})[artifact] = earlier
        return tables

    @cached_property
    def releases(self) -> list[Version]:
        """The newest usable releases, the newest first: the versions that a ref without a tag may mean."""
        return [version for version in newest_of(self.versions) if not version.is_prerelease]

    def newest_release(self) -> Version | None:
        """Return the newest usable release; None if no release is usable."""
        return next(iter(self.releases), None)


def newest_of(
    entries: Mapping[Version, VersionEntry], count: int = SUMMARIZED_RELEASES
) -> tuple[Version, ...]:
    """Return the `count` newest usable releases and, before them, at most `count` pre-releases that are newer than all releases.

    Versions are sorted by SemVer precedence, then by the number of the publishing line; never by time.
    """
    ranked = [(version.precedence, entry.seq, version) for version, entry in entries.items() if entry.usable]
    usable = [version for _, _, version in sorted(ranked, reverse=True)]
    releases = [version for version in usable if not version.pre][:count]
    above = usable[: usable.index(releases[0])] if releases else usable
    return tuple(above[:count] + releases)


def version_of(state: State, tag: str) -> Version:
    """Return the version of a tag. If the tag is a version, it need not exist. Raise NotFoundError for an unknown channel."""
    if Version.is_version(tag):
        return Version.parse(tag)
    if tag not in state.channels and tag[:1].isdigit():
        raise no_version(state.name, f"version {tag}", state.versions, "a version has three numbers; ")
    if tag not in state.channels:
        bare = f"; without a tag the newest is meant: {state.name}"
        raise no_channel(state.name, tag, state.channels, bare)
    return state.channels[tag].version


def no_version(
    name: str, subject: str, entries: Mapping[Version, VersionEntry], rule: str = ""
) -> NotFoundError:
    """Make the error for a model that lacks `subject`, such as `version 9.0.0`.

    The hint is `rule`, followed by the newest versions among `entries`.
    """
    newest = sorted((version for version, entry in entries.items() if not entry.dropped), reverse=True)
    shown = newest[:MAX_LISTED_VERSIONS]
    names = [f"{version} (yanked)" if entries[version].yanked else str(version) for version in shown]
    are = "its only version is" if len(names) == 1 else "its newest are"
    return NotFoundError(f"{name} has no {subject}", f"{rule}{are} {', '.join(names)}" if names else "")


def no_channel(name: str, tag: str, channels: Collection[str], more: str = "") -> NotFoundError:
    """Make the error for a model that lacks a channel. The hint lists the model's channels, followed by `more`."""
    listed = f"its channels: {', '.join(channels)}" if channels else "it has none yet: `reg tag` makes one"
    return NotFoundError(f"{name} has no channel {tag}", suggest(tag, channels, listed + more))
