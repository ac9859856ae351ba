"""Every metric by name: ours, and those that other packages bring as entry points of the group `onnxreg.metrics`."""

import re
from importlib.metadata import EntryPoint
from typing import Any

from onnxreg.converters.evaluation.metrics import built_in, spans
from onnxreg.converters.evaluation.metrics.metric import Metric
from onnxreg.converters.source.plug_ins import PlugIns

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""The form of a metric's id, which is part of file names."""
METRICS: tuple[Metric, ...] = (
    spans.CharacterRecall(),
    spans.SpanF1(),
    built_in.Accuracy(),
    built_in.MacroF1(),
    built_in.ExactMatch(),
    built_in.AnswerF1(),
    built_in.Spearman(),
    built_in.NormalizedGain(),
    built_in.MeanCosine(),
    built_in.Top1(),
    built_in.Top5(),
    built_in.OutputCosine(),
    built_in.Perplexity(),
    built_in.CompletionMatch(),
)


def _accept(entry: EntryPoint, kind: Any) -> Metric | None:
    metric = kind()
    is_named = isinstance(metric, Metric) and metric.id == entry.name and NAME.fullmatch(entry.name)
    return metric if is_named else None


CATALOG = PlugIns("onnxreg.metrics", "a metric", {metric.id: metric for metric in METRICS}, _accept)
find, names = CATALOG.find, CATALOG.names


def of_task(task: str) -> list[Metric]:
    """The built-in metrics of a task."""
    return [metric for metric in METRICS if task in metric.tasks]
