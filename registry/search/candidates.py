"""Candidates of an expression (`schema/query/expression/parser.py`): every artifact of every version of some
models.

An index file summarises a model's newest versions and the holders of its channels; the others are read from
their manifests, which never change: a caller passes the contents that it kept, and they are not read again.
Versions whose files are gone have no candidates.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple, TypeVar

from onnxreg.registry.log import lookup
from onnxreg.registry.log.lookup import LocatedVersion
from onnxreg.registry.search.listing import ModelListing, listing_of
from onnxreg.registry.store.protocol import RegistryReader
from onnxreg.registry.support.parallel import run_parallel
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.errors import HostError, IntegrityError, NotFoundError
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.core.ref import Version
from onnxreg.schema.log.state import State, VersionEntry
from onnxreg.schema.log.summary import effective_state
from onnxreg.schema.query.expression.fields import of_artifact, of_version
from onnxreg.schema.query.expression.parser import Expression

Contents = list[dict[str, Any]]
"""The fields of the artifacts of one manifest, which are equal in every version with it, sorted by path."""
ContentsByManifest = Mapping[str, Contents]
"""The contents of manifests that were read before."""
MANIFEST_FIELDS = ("metric", "profile")
"""The fields for which manifests are read; metrics only if an older build wrote the index file."""
FAILURES = (NotFoundError, IntegrityError, HostError)
BATCH_MODELS = 64
"""Models that are read at a time."""

Answer = TypeVar("Answer")


class ModelCandidates(NamedTuple):
    """A model as of `head`: its candidates by version, then path; and the damages of the missing ones.

    `listing` and `head` are None if the model itself cannot be read.
    """

    name: str
    head: str | None
    candidates: list[dict[str, Any]]
    damages: list[str]
    listing: ModelListing | None = None


def query(
    remote: RegistryReader,
    expression: Expression | None,
    names: Sequence[str],
    take: Callable[[Iterator[dict[str, Any]]], Answer],
    progress: Progress = SILENT,
    profiled: bool = False,
) -> tuple[Answer, list[str]]:
    """Query these models of a remote as `SearchIndex.query` does: reads every index file and older manifest, and
    keeps nothing.
    """
    damages: list[str] = []
    fields: Collection[str] = () if expression is None else expression.fields()
    if profiled:
        fields = MANIFEST_FIELDS

    def fitting() -> Iterator[dict[str, Any]]:
        for batch in batches(names, progress):
            for model in read(remote, batch, {}, fields):
                damages.extend(model.damages)
                yield from (
                    candidate
                    for candidate in model.candidates
                    if expression is None or expression.matches(candidate)
                )

    return take(fitting()), damages


def batches(names: Sequence[str], progress: Progress) -> Iterator[Sequence[str]]:
    """Split names into batches, each announced as a step."""
    for start in range(0, len(names), BATCH_MODELS):
        progress.step(f"reading models {start + 1:,} of {len(names):,}")
        yield names[start : start + BATCH_MODELS]


def read(
    remote: RegistryReader,
    names: Collection[str],
    contents: ContentsByManifest,
    fields: Collection[str] = (),
) -> list[ModelCandidates]:
    """Read the candidates of some models, in order; several requests run at a time.

    `fields`: those that must be known, even if manifests must be read for them.
    """
    models = run_parallel(lambda name: _Model(remote, name, contents, fields), names)
    missing = [(model, version) for model in models for version in model.missing()]
    run_parallel(lambda item: item[0].read(item[1]), missing)
    return [model.result() for model in models]


class _Model:
    """Reader of one model. It raises nothing: errors are among the damages."""

    def __init__(
        self, remote: RegistryReader, name: str, contents: ContentsByManifest, fields: Collection[str]
    ) -> None:
        self._fields = fields
        self._remote = remote
        self._name = name
        self._contents = dict(contents)
        self._damages: list[str] = []
        self._state: State | None = None
        self._listing: ModelListing | None = None
        self._entries: dict[Version, VersionEntry] = {}
        try:
            self._state, entries = lookup.read_versions(remote, name)
        except FAILURES as error:
            self._damages.append(error.message)
        else:
            self._listing = listing_of(self._state, entries)
            self._entries = {
                version: entries[version] for version in sorted(entries) if not entries[version].gone
            }

    def missing(self) -> list[Version]:
        """The versions whose manifests must be read, or their summaries."""
        return [v for v, entry in self._entries.items() if str(entry.manifest) not in self._contents]

    def read(self, version: Version) -> None:
        assert self._state is not None, "a model without a state has no versions"
        entry = self._entries[version]
        target = LocatedVersion(self._name, version, entry)
        try:
            summary = lookup.read_summary(self._remote, self._state, target, self._fields)
        except FAILURES as error:
            self._damages.append(f"{self._name}:{version}: {error.message}")
            return
        artifacts = [of_artifact(summary, artifact, size) for artifact, size in summary.downloads(None)]
        self._contents[str(entry.manifest)] = sorted(artifacts, key=itemgetter("path"))

    def result(self) -> ModelCandidates:
        """The candidates. If the model changed while its manifests were read, so that some are gone, read it
        again.
        """
        if self._state is None:
            return ModelCandidates(self._name, None, [], self._damages)
        if self._damages and lookup.read_state(self._remote, self._name).head != self._state.head:
            return read(self._remote, [self._name], self._contents, self._fields)[0]
        verdicts = self._state.verdicts
        candidates = [
            {**of_version(self._state, version, entry), **_with_verdict(verdicts(entry), artifact)}
            for version, entry in self._entries.items()
            for artifact in self._contents.get(str(entry.manifest), ())
        ]
        head = str(self._state.head)
        return ModelCandidates(self._name, head, candidates, sorted(self._damages), self._listing)


def _with_verdict(verdicts: Mapping[Digest, str], artifact: dict[str, Any]) -> dict[str, Any]:
    """The fields of an artifact, with its effective state."""
    if not verdicts:
        return artifact
    state = effective_state(artifact["state"], verdicts.get(Digest.parse(artifact["digest"])))
    return artifact | {"state": state, "certified": state == "certified"}
