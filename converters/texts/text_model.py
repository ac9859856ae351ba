"""A graph with the companions of its version that texts need."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from onnxreg.converters.evaluation.predict import Runner, artifact_runner
from onnxreg.converters.passes.tools.samples import Feed
from onnxreg.converters.texts.text_tokenizer import TextTokenizer
from onnxreg.schema.core.errors import Advice, ConversionError, InputError

PER_TOKEN = ("logits", "start_logits", "end_logits", "last_hidden_state", "token_embeddings")
"""Outputs with a value for each token: a graph of fixed shape gives them for its padding too."""


@dataclass(frozen=True)
class TextModel:
    """An ONNX or ORT-format file, a tokenizer, labels in the order of the logits, the checkpoint's config.json.

    Without labels or a config, `labels` or `config` is empty.
    """

    graph: Path
    tokenizer: TextTokenizer
    labels: tuple[str, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def runner(self) -> Runner:
        """Raise ConversionError if ONNX Runtime cannot load the graph."""
        return artifact_runner(self.graph, PER_TOKEN)

    def run(self, feed: Feed) -> Mapping[str, Any]:
        """The outputs for one row. InputError if it has no tokens; ConversionError if the graph does not run."""
        if not feed["input_ids"].size:
            raise InputError("the text has no tokens", "write a text that is not empty")
        try:
            return self.runner(feed)
        except ConversionError as error:
            hint = error.advice or error.message
            raise ConversionError(f"{self.graph.name} does not run on that text", hint) from error

    def check_labels(self, count: int) -> tuple[str, ...]:
        """The labels; `LABEL_0`, ... if the version has none. ConversionError unless there are `count`."""
        labels = self.labels or tuple(f"LABEL_{number}" for number in range(count))
        if len(labels) != count:
            raise ConversionError(
                f"{self.graph.name} gives {count} logits, and the version has {len(labels)} labels",
                "the number of labels in config.json must be the number of logits",
            )
        return labels


def numbers_of(outputs: Mapping[str, Any], name: str) -> Any:
    """An output of one row without its first axis, float64. ConversionError if it is missing, or has NaN."""
    import numpy as np

    from onnxreg.converters.evaluation.tasks.task_evaluator import numbers

    if name not in outputs or outputs[name].shape[:1] != (1,):
        raise ConversionError(f"the model has no output called {name} with one row")
    return np.asarray(numbers(outputs[name][0]), dtype=np.float64)


def refuse(label: str, why: str) -> InputError:
    """The error for a version that no text fits."""
    return InputError(f"{label} {why}", Advice("run-on-tensors"))
