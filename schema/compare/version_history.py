"""The history of a model's sizes, figures and verdicts: one row for each version. Pure: from manifests that were read."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from onnxreg.schema.compare.figures import direction_of, suite_of
from onnxreg.schema.core.digest import Digest
from onnxreg.schema.core.document import Document, Items, Size, Table
from onnxreg.schema.core.errors import NotFoundError, suggest
from onnxreg.schema.log.summary import RECALL, ArtifactStates
from onnxreg.schema.manifest.manifest import Artifact, Manifest
from onnxreg.schema.manifest.parts import Check
from onnxreg.schema.manifest.vocabulary import LOSS

ExchangeRequest = Callable[[Artifact], bool]
"""True for the artifacts that a history may choose from."""


@dataclass(frozen=True)
class HistoryEntry:
    """A published version. `document` is None if its manifest was taken down, `status` a word such as `yanked`, or ""."""

    version: str
    manifest: Digest
    time: str | None
    actor: str | None
    status: str
    channels: tuple[str, ...]
    document: Manifest | None
    states: ArtifactStates = ()


class HistoryArtifact(Document):
    """An artifact of a version. `figures` are its qualities and losses by the names of their checks."""

    path: str
    format: str
    precision: str
    size: Size
    state: str
    figures: Table[float]


class HistoryRow(Document):
    """A version in a line, with its smallest artifact that has the metric, or else its smallest; null if its manifest is gone.

    `value`, its 95 % `interval` and its `suite` are those of the metric on that artifact, null if nothing was measured.
    """

    version: str
    manifest: Digest
    time: str | None
    actor: str | None
    status: str
    channels: Items[str]
    artifact: HistoryArtifact | None = None
    value: float | None = None
    interval: tuple[float, float] | None = None
    suite: Digest | None = None
    verdict: str | None = None
    artifacts: Items[HistoryArtifact] = ()


class ModelHistory(Document):
    """The rows of a model, newest first. `metric` is the name of a check, null if no version has any figure."""

    name: str
    metric: str | None
    versions: Items[HistoryRow]

    def is_charted(self, row: HistoryRow) -> bool:
        """True if the figure of a row can be compared with the newest one: both have the same suite."""
        suite = next((row.suite for row in self.versions if row.value is not None), None)
        return row.value is not None and row.suite == suite

    @property
    def scale(self) -> tuple[float, float] | None:
        """The ends of a chart: the least and the largest of the comparable figures and their intervals."""
        rows = [row for row in self.versions if self.is_charted(row)]
        numbers = [
            number for row in rows for number in (row.value, *(row.interval or ())) if number is not None
        ]
        return (min(numbers), max(numbers)) if numbers else None


def model_history(
    name: str,
    records: Sequence[HistoryEntry],
    metric: str | None = None,
    is_wanted: ExchangeRequest = lambda artifact: True,
) -> ModelHistory:
    """The history of a model.

    Args:
        records: its versions, newest first.
        metric: the name of a check, or the end of it, such as a label; by default the loss of recall, else the
            newest version's first figure of a suite.
        is_wanted: the artifacts to choose from.

    Raises NotFoundError if no version has the metric.
    """
    figures = sorted(
        (figure for record in records for figure in _figures(record, is_wanted)),
        key=lambda figure: not figure[0],
    )
    names = list(dict.fromkeys(name for _, name in figures))
    chosen = _chosen(names, metric)
    return ModelHistory(
        name=name, metric=chosen, versions=tuple(_row(record, chosen, is_wanted) for record in records)
    )


def _figures(record: HistoryEntry, is_wanted: ExchangeRequest) -> Iterator[tuple[bool, str]]:
    """The names of the measured qualities and losses of a version, and if each is of the suite of its artifact."""
    for artifact in record.document.artifacts if record.document else ():
        for check in _measured(artifact) if is_wanted(artifact) else ():
            yield check.dataset is not None and check.dataset == suite_of(artifact), check.label


def _measured(artifact: Artifact) -> Iterable[Check]:
    return (check for check in artifact.checks if check.value is not None and direction_of(check))


def _chosen(names: Sequence[str], metric: str | None) -> str | None:
    if metric is None:
        losses = (name for name in names if name.startswith(LOSS))
        return next(losses, names[0] if names else None)
    for is_meant in (
        lambda name: name == metric,
        lambda name: name == f"{RECALL}{metric}",
        lambda name: name.startswith(f"{metric}/") or name.endswith(f"/{metric}"),
    ):
        if chosen := next(filter(is_meant, names), None):
            return chosen
    raise NotFoundError(
        f"no version has the figure {metric[:80]!r}",
        suggest(metric, [*names, *(name.rpartition("/")[2] for name in names)], "no version has any figure"),
    )


def _row(record: HistoryEntry, metric: str | None, is_wanted: ExchangeRequest) -> HistoryRow:
    states = {artifact.path: artifact.state for artifact in record.states}
    artifacts = [item for item in (record.document.artifacts if record.document else ()) if is_wanted(item)]
    by_size = sorted(artifacts, key=lambda item: item.own_size)
    artifact = next((item for item in by_size if _check(item, metric)), by_size[0] if by_size else None)
    check = _check(artifact, metric) if artifact else None
    return HistoryRow(
        version=record.version,
        manifest=record.manifest,
        time=record.time,
        actor=record.actor,
        status=record.status,
        channels=record.channels,
        artifact=_artifact(artifact, states) if artifact else None,
        value=check.value if check else None,
        interval=check.interval if check else None,
        suite=(check.dataset or suite_of(artifact)) if check else None,
        verdict=check.verdict if check else None,
        artifacts=tuple(_artifact(item, states) for item in artifacts),
    )


def _check(artifact: Artifact, metric: str | None) -> Check | None:
    return next((check for check in _measured(artifact) if check.label == metric), None)


def _artifact(artifact: Artifact, states: dict[str, str]) -> HistoryArtifact:
    return HistoryArtifact(
        path=artifact.path,
        format=artifact.format,
        precision=artifact.precision,
        size=artifact.own_size,
        state=states.get(artifact.path, artifact.certification.state),
        figures={check.label: check.value for check in _measured(artifact) if check.value is not None},
    )
