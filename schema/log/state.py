"""The state line: the first line of an index file. It has tables about one model, which are computed from the log.

After every `SEGMENT_LINES` lines, the log is sealed: the lines move to a new blob, which `segments` lists. All versions
move to another blob, the checkpoint. In the state line, `versions` has only the newest versions, the versions of
channels and rollouts, and the versions that changed after the last checkpoint. `summaries` has the newest versions and
the versions of channels and rollouts.

`tombstones` are blobs that were taken down and must not return. `refused` are artifacts that a later evaluation
refused. They are refused in every version. `speeds` are measured latencies. Unknown keys are kept, because a later
build may have written them.
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

# From best to worst. A refused artifact is chosen only if no other artifact of its version fits.
STATES = ("certified", "unknown", "refused")


def effective_state(stated: str, *verdicts: str | None) -> str:
    """Return `refused` if a later verdict on the artifact's bytes refuses it. Otherwise return `stated`, the state in
    the manifest.

    A later certificate does not improve the state, because everyone who can write to the registry can add a
    certificate.
    """
    return "refused" if "refused" in verdicts else stated


def worst(states: Iterable[str]) -> str:
    return max(states, key=STATES.index)


_Positive = Annotated[float, Meta(gt=0, le=1e9)]
_Word = Annotated[str, Meta(min_length=1, max_length=MAX_MACHINE_CHARS)]


class Speed(Record, frozen=True):
    """The latency of an artifact on a class of machine. `ratio` is relative to the artifact in full precision."""

    isa: _Word  # the widest instruction set, such as "x86_64+avx2"
    runtime: _Word
    threads: Count
    ratio: _Positive  # to the latency in full precision
    low: _Positive  # the low end of the ratio's 95 % interval
    median_ms: _Positive | None = None
    seq: Count = 0  # the number of the log line; 0 in the event itself

    @property
    def machine(self) -> str:
        """The class of machine, such as `x86_64+avx2, onnxruntime 1.31.1, 1 thread`."""
        return f"{self.isa}, {self.runtime}, {self.threads} thread{'' if self.threads == 1 else 's'}"

    def __str__(self) -> str:
        median = "" if self.median_ms is None else f"{self.median_ms:.3g} ms, "
        return f"{median}{self.ratio:.2f} x, {self.isa}"


class ArtifactState(NamedTuple):
    """An artifact's state as `stated` in the manifest and as `attested` by later evaluations, and its latencies."""

    path: str
    stated: str  # in the manifest
    attested: str | None = None  # the worst verdict of this version's later evaluations
    refused_elsewhere: bool = False  # in another version
    speeds: tuple[Speed, ...] = ()  # the newest last

    @property
    def latency(self) -> str:
        """The newest speed in words, such as `12.3 ms, 0.57 x, x86_64+avx2`, or "" if nothing was measured."""
        return str(self.speeds[-1]) if self.speeds else ""

    @property
    def state(self) -> str:
        return effective_state(self.stated, self.attested, "refused" if self.refused_elsewhere else None)

    @property
    def remark(self) -> str:
        """A sentence about a later evaluation that differs from the manifest, or "" if there is none."""
        if self.state != self.stated:
            is_own = self.attested == self.state
            why = "by a later evaluation" if is_own else "with the bytes of another version"
            return f"{self.state} {why}: {self.path} (its manifest says {self.stated})"
        if self.attested not in (None, "refused", self.stated):
            return f"{self.state} as its manifest says: {self.path} (a later evaluation says {self.attested})"
        return ""


ArtifactStates = Mapping[str, ArtifactState]  # by path, in the manifest's order


RECALL = "character_recall/"  # + a label: the name of a check
CERTIFICATE, ITEM_SCORES = "certificate", "item-scores"
# Roles of files that downloads omit: no artifact needs them to run
EVIDENCE = frozenset({CERTIFICATE, ITEM_SCORES})


class FileSummary(Record, frozen=True):
    role: str
    path: str
    digest: Digest
    size: Count

    def __post_init__(self) -> None:
        check_path(self.path)


class KvCacheSummary(Record, frozen=True):
    """The cache of keys and values of a decoder: its bytes for each token, and the maximum number of tokens in it."""

    bytes_per_token: Count
    max_tokens: Count


class ArtifactSummary(Record, frozen=True):
    """The summary of one artifact: all that a device must know before a download.

    If a later evaluation refused the artifact, `state` is `refused` and `stated` is the manifest's state. `stated` and
    `speeds` are not stored in index files.
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
    operators: Digest | None = None  # the digest of the operator-set blob
    providers: tuple[str, ...] = ()
    recall: dict[str, float] = {}  # by label
    ir_version: Count | None = None
    domains: tuple[str, ...] = ()  # of its operators, without ai.onnx
    stated: str | None = None
    member: str | None = None  # the stage of a pipeline
    metrics: dict[str, float] = {}  # checks on the suite, by name
    contrib: tuple[str, ...] = ()  # operators and features that a release of ONNX Runtime may lack
    contract: Digest | None = None  # the digest of what an app's code relies on
    kv_cache: KvCacheSummary | None = None
    preferred: bool = False  # the winner of a search
    speeds: tuple[Speed, ...] = ()

    def __post_init__(self) -> None:
        check_path(self.path)


class VersionSummary(Record, frozen=True, dict=True):
    """The summary of a version: manifest, artifacts, companion files. `size` is the manifest's size in bytes."""

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
        """The companion files that are part of every download: all except evidence."""
        return tuple([entry for entry in self.files if entry.role not in EVIDENCE])

    @cached_property
    def download_sizes(self) -> tuple[int, ...]:
        """The bytes to fetch for each artifact, with companion files. Equal files count once."""
        shared, sizes = {entry.digest: entry.size for entry in self.shared_files}, []
        for artifact in self.artifacts:
            own = {artifact.digest: artifact.size, **{entry.digest: entry.size for entry in artifact.files}}
            sizes.append(sum((own | shared).values()))
        return tuple(sizes)

    def downloads(self, paths: Collection[str] | None) -> Iterator[tuple[ArtifactSummary, int]]:
        """Yield the artifacts at `paths` (None: all), each with its download size in bytes."""
        for artifact, size in zip(self.artifacts, self.download_sizes, strict=True):
            if paths is None or artifact.path in paths:
                yield artifact, size

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The names of a pipeline's stages, in the manifest's order. Empty if the model is not a pipeline."""
        named = (artifact.member for artifact in self.artifacts)
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def with_verdicts(
        self, verdicts: Mapping[Digest, str], speeds: Mapping[Digest, tuple[Speed, ...]] = {}
    ) -> "VersionSummary":
        """Return a copy with these speeds and later verdicts. Both have the digests of artifacts as keys."""
        if (verdicts.keys() | speeds.keys()).isdisjoint(artifact.digest for artifact in self.artifacts):
            return self
        artifacts = []
        for item in self.artifacts:
            state = effective_state(item.state, verdicts.get(item.digest))
            stated = item.stated if state == item.state else item.state
            artifacts.append(item.replace(state=state, stated=stated, speeds=speeds.get(item.digest, ())))
        return self.replace(artifacts=tuple(artifacts))


def operator_set(artifact: "Artifact") -> bytes | None:
    """Return an artifact's operators as the bytes of a blob, or None if the manifest does not list them."""
    operators = [operator.to_json() for operator in artifact.operators]
    return canonical.encode(operators) if operators else None


def summarize(
    manifest: "Manifest", digest: Digest, size: int, *, every: bool = False, member: str | None = None
) -> VersionSummary:
    """Summarize a manifest. `digest` and `size` (in bytes) are those of the manifest.

    The summary of a family has only the `entry_artifacts`, because hundreds of members would not fit into an index
    file. With `every`, the summary has all artifacts. With `member`, it also has the artifacts of this member, and
    every artifact has the name of its member.
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
    """Return an artifact's measured checks on the suite that judged it, without the recalls of single labels."""
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
    search = search if isinstance(search, Mapping) and search.get("output") == artifact.path else {}
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
        preferred=artifact.suite is not None and search.get("confirm") == artifact.suite,
    )


SEGMENT_LINES = 64
# The newest releases have a summary in the state line, and so have the versions of channels and rollouts.
SUMMARIZED_RELEASES = 4
MAX_LISTED_VERSIONS = 5
Percent = Annotated[int, Meta(gt=0, le=100)] | Annotated[float, Meta(gt=0, le=100)]
Salt = Annotated[str, Meta(pattern=r"\A[0-9a-f]{32}\Z")]  # decides which devices take part in a rollout


def check_held(paths: tuple[str, ...]) -> None:
    """Raise InputError unless `paths` is a sorted list of at least one path. Paths must be valid and different."""
    if not paths or list(paths) != sorted(set(map(check_path, paths))):
        raise InputError("not a sorted list of different paths")


class Gone(Record, frozen=True):
    """The reason why a version has no files. `how` is the version's status. `event` is the id of the `GiveUp` event."""

    how: Literal["expired", "purged", "dropped"]
    event: Digest


class VersionEntry(Record, frozen=True):
    """The entry of one version in the state line. `size` is the manifest's size in bytes. `seq` is the number of the
    line that published the version.
    """

    manifest: Digest
    size: Count
    seq: Count
    yanks: tuple[Digest, ...] = ()  # ids of the yanks in effect
    pinned: bool = False
    gone: Gone | None = None
    held: tuple[str, ...] | None = None  # paths of artifacts in this registry; None: all
    attested: dict[Digest, str] = {}  # artifact -> worst later verdict
    deltas: Digest | None = None  # the table of deltas

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

    def status(self, states: Iterable[str]) -> str:
        """Return the status of the version in one word, or "" if there is nothing to say.

        The first word that applies is returned: expired, purged, dropped, yanked, refused (an artifact is refused),
        pinned or partial. `states` are the effective states of the artifacts, if known.
        """
        if self.gone is not None:
            return self.gone.how
        words = {"yanked": self.yanked, "refused": self.is_refused(states)}
        words |= {"pinned": self.pinned, "partial": self.held is not None}
        return next((word for word, holds in words.items() if holds), "")

    def is_refused(self, states: Iterable[str]) -> bool:
        return effective_state("", *states, *self.attested.values()) == "refused"


class Channel(Record, frozen=True):
    """A channel and its version, in the state line. `policy` and `evidence` mean the same as in the event `Tag`."""

    version: Version
    manifest: Digest
    seq: Count  # the number of the line that moved the channel
    policy: Digest | None = None
    evidence: Digest | None = None


class Rollout(Record, frozen=True):
    """A rollout of a channel (docs/rollouts.md). A share of the channel's devices gets the version in the field `to`
    before the other devices.
    """

    to: Version
    manifest: Digest
    percent: Percent  # of the devices
    salt: Salt
    seq: Count  # the number of its latest line
    where: str | None = None  # an expression over the device document
    policy: Digest | None = None
    evidence: Digest | None = None

    def __post_init__(self) -> None:
        check_percent(self.percent)

    def __str__(self) -> str:
        cohort = f" with {self.where}" if self.where else ""
        return f"{self.to} is being rolled out to {self.percent:g} % of the devices{cohort}"


def check_percent(share: float) -> float:
    """Return a percentage unchanged. Raise InputError unless 0 < share <= 100 with at most two decimals."""
    if not 0 < share <= 100 or round(share * 100) != round(share * 100, 6):
        hint = "write a number from 0.01 to 100 with at most two decimals"
        raise InputError(f"not a percentage: {str(share)[:40]}", hint)
    return share


# By manifest and artifact: the newest on each class of machine, in the order of the log lines.
Speeds = dict[Digest, dict[Digest, tuple[Speed, ...]]]


class Checkpoint(Record, frozen=True):
    """A blob with a model's tables, as computed from the model's log up to the last sealed line. `versions` has every
    version that was not dropped.
    """

    versions: dict[Version, VersionEntry] = {}
    channels: dict[str, Channel] = {}
    tombstones: tuple[Digest, ...] = ()
    refused: tuple[Digest, ...] = ()
    rollouts: dict[str, Rollout] = {}


class State(Record, frozen=True, dict=True):
    """The first line of a model's index file: tables computed from the log up to line `seq`, whose digest is `head`."""

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
        """Return the verdicts on a version's artifacts that were added after the publication. The keys are digests of
        artifacts. An artifact that was refused in any version of the model is refused.

        `entry` is None if the state line lacks the version. Then only refusals are known.
        """
        attested = {} if entry is None else entry.attested
        return {**attested, **dict.fromkeys(self.refused, "refused")} if self.refused else attested

    def effective_summary(self, version: Version) -> VersionSummary | None:
        """Return a version's summary with all verdicts and speeds, or None if the state line lacks the summary."""
        summary = self.summaries.get(version)
        if summary is None:
            return None
        verdicts = self.verdicts(self.versions.get(version))
        return summary.with_verdicts(verdicts, self.speeds.get(summary.manifest, {}))

    def artifact_states(self, manifest: "Manifest | None", entry: VersionEntry) -> ArtifactStates:
        """Return the states of a version's artifacts. They include the evaluations after the publication. Return {} if
        `manifest` is None.
        """
        states, speeds = dict[str, ArtifactState](), self.speeds.get(entry.manifest, {})
        for item in manifest.artifacts if manifest else ():
            verdict, timed = entry.attested.get(item.digest), speeds.get(item.digest, ())
            is_refused = item.digest in self.refused and verdict != "refused"
            states[item.path] = ArtifactState(item.path, item.certification.state, verdict, is_refused, timed)
        return states

    def speeds_until(self, seq: int) -> Speeds:
        """Return the speeds that the log lines up to `seq` recorded."""
        tables: Speeds = {}
        for manifest, table in self.speeds.items():
            for artifact, speeds in table.items():
                if earlier := tuple(speed for speed in speeds if speed.seq <= seq):
                    tables.setdefault(manifest, {})[artifact] = earlier
        return tables

    @cached_property
    def releases(self) -> list[Version]:
        """The newest usable releases, newest first. A ref without a tag can mean only these."""
        return [version for version in newest_of(self.versions) if not version.is_prerelease]

    def newest_release(self) -> Version | None:
        return next(iter(self.releases), None)


def newest_of(
    entries: Mapping[Version, VersionEntry], count: int = SUMMARIZED_RELEASES
) -> tuple[Version, ...]:
    """Return the newest usable versions: first at most `count` pre-releases that are newer than every release, then the
    `count` newest releases.

    If versions have equal SemVer precedence, the last published version comes first.
    """
    ranked = [(version.precedence, entry.seq, version) for version, entry in entries.items() if entry.usable]
    usable = [version for _, _, version in sorted(ranked, reverse=True)]
    releases = [version for version in usable if not version.pre][:count]
    above = usable[: usable.index(releases[0])] if releases else usable
    return tuple(above[:count] + releases)


def version_of(state: State, tag: str) -> Version:
    """Return the version of a channel, or the tag itself as a version. Raise NotFoundError for an unknown channel."""
    if Version.is_version(tag):
        return Version.parse(tag)
    if tag not in state.channels and tag[:1].isdigit():
        raise no_version(state.name, f"version {tag}", state.versions, "a version has three numbers; ")
    if tag not in state.channels:
        bare = f"; without a tag the newest is meant: {state.name}"
        raise no_channel(state.name, tag, state.channels, bare)
    return state.channels[tag].version


def no_version(
    name: str, subject: str, entries: Mapping[Version, VersionEntry], advice: str = ""
) -> NotFoundError:
    """Return the error `<name> has no <subject>`. `subject` is a text such as `version 9.0.0`. The hint is `advice`,
    followed by the newest versions.
    """
    newest = sorted((version for version, entry in entries.items() if not entry.dropped), reverse=True)
    shown = newest[:MAX_LISTED_VERSIONS]
    names = [f"{version} (yanked)" if entries[version].yanked else str(version) for version in shown]
    are = "its only version is" if len(names) == 1 else "its newest are"
    return NotFoundError(f"{name} has no {subject}", f"{advice}{are} {', '.join(names)}" if names else "")


def no_channel(name: str, tag: str, channels: Collection[str], more: str = "") -> NotFoundError:
    """Return the error for an unknown channel. The hint names similar channels, or all channels and then `more`."""
    listed = f"its channels: {', '.join(channels)}" if channels else "it has none yet"
    more = more if channels or "reg tag" in more else f": `reg tag` makes one{more}"
    return NotFoundError(f"{name} has no channel {tag}", suggest(tag, channels, listed + more))
