"""Text classification: the class of a text, or of a pair of texts."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnxreg.converters.evaluation.tasks.task_evaluator import (
    ModelInput,
    TextEvaluator,
    output,
    plain,
    text_of,
)
from onnxreg.schema.core.errors import ConversionError, InputError


@dataclass(frozen=True)
class LabelledText:
    """A text, maybe with a second one, and the label that is right."""

    text: str
    text_pair: str | None
    label: str


class TextClasses(TextEvaluator):
    """`{text, text_pair?, label}`. A prediction is the number of the class with the largest logit."""

    tasks = ("text-classification",)

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(self.subject.loaded.labels)

    @classmethod
    def read_item(cls, row: dict[str, Any], position: str) -> LabelledText:
        text, label = (text_of(row, key, position) for key in ("text", "label"))
        return LabelledText(str(text), text_of(row, "text_pair", position, required=False), str(label))

    @classmethod
    def identity(cls, item: LabelledText) -> Hashable:
        return tuple(plain(text) for text in (item.text, item.text_pair or ""))

    def check(self, items: Sequence[LabelledText]) -> None:
        for number, item in enumerate(items, start=1):
            if item.label not in self.labels:
                raise InputError(
                    f"item {number} of the evaluation suite has a label that the model does not have: {item.label[:80]!r}",
                    f"its labels are {', '.join(self.labels[:20])}",
                )
        if len({item.text_pair is None for item in items}) > 1:
            raise InputError("some items of the evaluation suite have a `text_pair`, and others have none")

    def inputs(self, items: Sequence[LabelledText]) -> list[ModelInput]:
        pairs = [item.text_pair for item in items if item.text_pair is not None]
        feeds = self.feeds([item.text for item in items], pairs or None)
        return [ModelInput(number, feed) for number, feed in enumerate(feeds)]

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> int:
        logits = output(outputs, "logits")
        if logits.shape != (len(self.labels),):
            raise ConversionError(
                f"the model gives logits of shape {logits.shape}, expected {(len(self.labels),)}",
                "the number of labels in config.json must be the number of logits",
            )
        return int(logits.argmax())

    def prediction(self, item: LabelledText, parts: Sequence[int]) -> int:
        return parts[0]
