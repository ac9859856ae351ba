"""Every metric by name: ours, and those that other packages bring as entry points of the group `onnxreg.metrics`."""

import re
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

from onnxreg.converters.evaluation.metrics.answers import AnswerF1, ExactMatch
from onnxreg.converters.evaluation.metrics.classification import Accuracy, MacroF1, Top1, Top5
from onnxreg.converters.evaluation.metrics.embeddings import (
    MeanCosine,
    NormalizedGain,
    OutputCosine,
    Spearman,
)
from onnxreg.converters.evaluation.metrics.generation import CompletionMatch, Perplexity
from onnxreg.converters.evaluation.metrics.metric import Metric
from onnxreg.converters.evaluation.metrics.spans import CharacterRecall, SpanF1
from onnxreg.schema.core.errors import ConflictError, HostError, InputError, suggest

GROUP = "onnxreg.metrics"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""The form of a metric's id, which is part of file names."""
BUILT_IN: Mapping[str, Metric] = {
    metric.id: metric
    for metric in (
        CharacterRecall(),
        SpanF1(),
        Accuracy(),
        MacroF1(),
        ExactMatch(),
        AnswerF1(),
        Spearman(),
        NormalizedGain(),
        MeanCosine(),
        Top1(),
        Top5(),
        OutputCosine(),
        Perplexity(),
        CompletionMatch(),
    )
}


def names() -> list[str]:
    """The names of all metrics; ours come first, then others' in order. Nothing of theirs is imported."""
    return [*BUILT_IN, *sorted(_others())]


def of_task(task: str) -> list[Metric]:
    """The built-in metrics of a task."""
    return [metric for metric in BUILT_IN.values() if task in metric.tasks]


def find(name: str) -> Metric:
    """Return the metric of this name.

    Raises InputError, with the nearest names, for a name that none has, ConflictError if two packages give it, HostError
    if another package's metric does not load.
    """
    if name in BUILT_IN:
        return BUILT_IN[name]
    others = _others()
    if name not in others:
        raise InputError(f"no metric is called {name[:80]!r}", suggest(name, names()))
    return _load(others[name])


def _others() -> dict[str, EntryPoint]:
    entries: dict[str, EntryPoint] = {}
    for entry in entry_points(group=GROUP):
        if entry.name in BUILT_IN or entries.get(entry.name, entry).value != entry.value:
            raise ConflictError(
                f"two packages bring a metric called {entry.name}: {entry.value} is one of them",
                "uninstall one of them",
            )
        entries[entry.name] = entry
    return entries


def _load(entry: EntryPoint) -> Metric:
    try:
        kind = entry.load()
        metric = kind()
    except Exception as error:
        raise HostError(f"the metric {entry.name} ({entry.value}) does not load: {error}") from error
    is_named = getattr(metric, "id", None) == entry.name and NAME.fullmatch(entry.name)
    if not isinstance(metric, Metric) or not is_named:
        raise HostError(
            f"{entry.value} is not a metric with the id {entry.name}",
            "report it to the authors of its package",
        )
    return metric
