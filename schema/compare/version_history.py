"""The history of a model: a row for each version, with sizes, figures and verdicts of its artifacts."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec.structs import asdict

from onnxreg.schema.compare.figures import direction_of
from onnxreg.schema.compare.overview import ArtifactSide, artifact_side
from onnxreg.schema.core.canonical import Digest, Record
from onnxreg.schema.core.errors import NotFoundError, suggest
from onnxreg.schema.log.state import RECALL, ArtifactStates
from onnxreg.schema.manifest.manifest import Artifact, Check, Manifest
from onnxreg.schema.manifest.vocabulary import LOSS


class HistoryArtifact(ArtifactSide, frozen=True, kw_only=True):
    """An artifact in a row of the history. `figures` has its measured qualities and losses, by the name of the check."""

    figures: dict[str, float]


class HistoryRow(Record, frozen=True, omit_defaults=False):
    """One version in the history of a model.

    `artifact` is the smallest artifact that has the metric. If no artifact has the metric, it is the smallest of all
    artifacts.
    """

    version: str
    manifest: Digest
    time: str | None
    actor: str | None
    status: str  # such as "yanked"
    channels: tuple[str, ...]
    artifact: HistoryArtifact | None = None
    value: float | None = None  # of the metric; null if not measured
    interval: tuple[float, float] | None = None  # 95 %
    suite: Digest | None = None
    verdict: str | None = None
    artifacts: tuple[HistoryArtifact, ...] = ()


# A row without its artifacts, the manifest (None: it was taken down), the states
HistoryEntry = tuple[HistoryRow, Manifest | None, ArtifactStates]


class ModelHistory(Record, frozen=True):
    """The result of `model_history`: the versions of a model, newest first. `metric` is the name of a check, or null if
    no version has a figure.
    """

    name: str
    metric: str | None
    versions: tuple[HistoryRow, ...]

    def is_charted(self, row: HistoryRow) -> bool:
        """True if a row's figure can be compared with the newest figure, because both have the same suite."""
        suite = next((row.suite for row in self.versions if row.value is not None), None)
        return row.value is not None and row.suite == suite


def model_history(
    name: str,
    records: Sequence[HistoryEntry],
    metric: str | None = None,
    is_wanted: Callable[[Artifact], bool] = lambda artifact: True,
) -> ModelHistory:
    """Make the history of a model. `records` begin with the newest version. `is_wanted` selects artifacts.

    `metric` is the name of a check or a part of the name, such as a label. The default is the loss of recall. If no
    version has a loss of recall, the default is the first figure. Raise NotFoundError if no version has the metric.
    """
    versions = [
        [item for item in (manifest.artifacts if manifest else ()) if is_wanted(item)]
        for _, manifest, _ in records
    ]
    measured = [(item, check) for items in versions for item in items for check in _measured(item)]
    measured.sort(key=lambda pair: pair[1].dataset is None or pair[1].dataset != pair[0].suite)
    chosen = _chosen(list(dict.fromkeys(check.label for _, check in measured)), metric)
    rows = []
    for (row, _, states), items in zip(records, versions, strict=True):
        pairs = []
        for item in items:
            figures = {check.label: check.value for check in _measured(item) if check.value is not None}
            pairs.append((item, HistoryArtifact(**asdict(artifact_side(item, states)), figures=figures)))
        update: dict[str, Any] = {"artifacts": tuple(artifact for _, artifact in pairs)}
        pairs.sort(key=lambda pair: (chosen not in pair[1].figures, pair[1].size))
        for item, artifact in pairs[:1]:
            update["artifact"] = artifact
            for check in (check for check in _measured(item) if check.label == chosen):
                update |= {"value": check.value, "interval": check.interval, "verdict": check.verdict}
                update["suite"] = check.dataset or item.suite
        rows.append(row.replace(**update))
    return ModelHistory(name=name, metric=chosen, versions=tuple(rows))


def _measured(artifact: Artifact) -> Iterable[Check]:
    return (check for check in artifact.checks if check.value is not None and direction_of(check))


def _chosen(names: Sequence[str], metric: str | None) -> str | None:
    if metric is None:
        return next((name for name in names if name.startswith(LOSS)), names[0] if names else None)
    ends = [name for name in names if name.startswith(f"{metric}/") or name.endswith(f"/{metric}")]
    for name in (metric, f"{RECALL}{metric}", *ends):
        if name in names:
            return name
    ends = [*names, *(name.rpartition("/")[2] for name in names)]
    otherwise = f"there are {', '.join(names[:8])}" if names else "no version has any figure"
    raise NotFoundError(f"no version has the figure {metric[:80]!r}", suggest(metric, ends, otherwise))
