"""Embeddings: the vectors of texts."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.scores import Floats
from onnxreg.converters.evaluation.tasks.task_evaluator import (
    ModelInput,
    TextEvaluator,
    number_of,
    output,
    plain,
    text_of,
)
from onnxreg.schema.core.errors import InputError

MAX_DOCUMENTS = 1000


@dataclass(frozen=True)
class Texts:
    """Texts to compare with the first: a pair with its `score`, or documents with the `relevance` of each.

    A text alone has neither.
    """

    texts: tuple[str, ...]
    score: float | None = None
    relevance: tuple[float, ...] | None = None


class Embeddings(TextEvaluator):
    """`{text, text_pair, score}`, `{text, documents: [{text, relevance}]}` or `{text}`.

    A prediction is float64 `[texts, size]`. Of the output `last_hidden_state` it is the mean over the tokens.
    """

    tasks = ("pooling", "feature-extraction")

    @classmethod
    def read_item(cls, row: dict[str, Any], position: str) -> Texts:
        text = str(text_of(row, "text", position))
        if row.get("documents") is not None:
            documents = _documents(row["documents"], position)
            return Texts(
                (text, *(name for name, _ in documents)), relevance=tuple(grade for _, grade in documents)
            )
        pair, score = text_of(row, "text_pair", position, required=False), number_of(row, "score", position)
        if (pair is None) != (score is None):
            raise InputError(f"{position}: a pair has both `text_pair` and `score`")
        return Texts((text,)) if pair is None else Texts((text, pair), score)

    @classmethod
    def identity(cls, item: Texts) -> Hashable:
        return frozenset(map(plain, item.texts))

    def inputs(self, items: Sequence[Texts]) -> list[ModelInput]:
        owners = [number for number, item in enumerate(items) for _ in item.texts]
        prompt = self.subject.resolved_options.get("pooling", {}).get("prompt", "")
        feeds = self.feeds([prompt + text for item in items for text in item.texts])
        return [ModelInput(number, feed) for number, feed in zip(owners, feeds, strict=True)]

    def read(self, model_input: ModelInput, outputs: Mapping[str, Any]) -> Floats:
        if "embeddings" in outputs:
            return np.asarray(output(outputs, "embeddings"), dtype=np.float64)
        states = output(outputs, "last_hidden_state")
        mask = model_input.feed["attention_mask"][0].astype(bool)
        return np.asarray(states[mask].astype(np.float64).mean(axis=0))

    def prediction(self, item: Texts, parts: Sequence[Floats]) -> Floats:
        return np.stack(parts)


def _documents(value: Any, position: str) -> list[tuple[str, float]]:
    if not isinstance(value, list) or not 2 <= len(value) <= MAX_DOCUMENTS:
        raise InputError(f"{position}: `documents` must be a list of 2 to {MAX_DOCUMENTS} documents")
    documents = []
    for number, row in enumerate(value, start=1):
        label = f"{position}, document {number}"
        if not isinstance(row, dict):
            raise InputError(f"{label}: not an object")
        relevance = number_of(row, "relevance", label)
        if relevance is None or relevance < 0:
            raise InputError(f"{label}: `relevance` must be a number, 0 or more")
        documents.append((str(text_of(row, "text", label)), relevance))
    if not any(relevance for _, relevance in documents):
        raise InputError(f"{position}: no document is relevant")
    return documents
