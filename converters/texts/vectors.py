"""Texts as vectors: what the graph gives for a text, or for each of its tokens."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onnxreg.converters.evaluation.scores import Floats
from onnxreg.converters.texts.text_model import TextModel, numbers_of
from onnxreg.converters.texts.text_tokenizer import TokenRow
from onnxreg.schema.core.errors import ConversionError

TEXT_OUTPUTS = ("embeddings", "sentence_embedding", "text_embeds")
OF_TOKENS = ("last_hidden_state", "token_embeddings")
"""Outputs that are taken if a graph has several, the first choice first."""


@dataclass(frozen=True)
class TextVector:
    """A text's vector, float64 `[size]`; if the graph gives one for each token, those too, `[tokens, size]`."""

    text: str
    vector: Floats
    row: TokenRow
    tokens: Floats | None = None

    def to_json(self) -> dict[str, Any]:
        value = {"text": self.text, "vector": self.vector.tolist(), "truncated": self.row.is_cut}
        if self.tokens is None:
            return value
        parts = zip(self.row.tokens, self.row.offsets.tolist(), self.tokens.tolist(), strict=True)
        return value | {
            "tokens": [
                {"token": token, "start": start, "end": end, "vector": vector}
                for token, (start, end), vector in parts
            ]
        }


@dataclass(frozen=True)
class TextVectors:
    """The vectors of texts. `pooling` is `graph`, or `mean` if it is over the tokens that the graph gives."""

    vectors: tuple[TextVector, ...]
    pooling: str

    @property
    def similarity(self) -> Floats:
        """The cosine of each text with each, float64 `[texts, texts]`."""
        rows = np.stack([item.vector for item in self.vectors])
        units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float64).tiny)
        return np.asarray(units @ units.T)

    def to_json(self) -> dict[str, Any]:
        embeddings = [item.to_json() for item in self.vectors]
        return {"embeddings": embeddings, "pooling": self.pooling, "similarity": self.similarity.tolist()}


def embed(model: TextModel, texts: Sequence[str]) -> TextVectors:
    """The vectors of texts; what is longer than the model takes is cut at its end.

    Raise ConversionError if the graph does not run, or gives no vectors.
    """
    vectors = tuple(_vector(model, text) for text in texts)
    return TextVectors(vectors, "graph" if vectors[0].tokens is None else "mean")


def _vector(model: TextModel, text: str) -> TextVector:
    row = model.tokenizer.row(text)
    outputs = model.run(row.inputs)
    name = _chosen(outputs, 2, TEXT_OUTPUTS)
    if name is not None:
        return TextVector(text, numbers_of(outputs, name), row)
    name = _chosen(outputs, 3, OF_TOKENS)
    if name is None:
        raise ConversionError(f"{model.graph.name} gives no vectors: {', '.join(outputs)}")
    tokens = numbers_of(outputs, name)
    mask = row.inputs["attention_mask"][0].astype(bool)
    return TextVector(text, tokens[mask].mean(axis=0), row, tokens)


def _chosen(outputs: Mapping[str, Any], axes: int, names: Sequence[str]) -> str | None:
    """The output of one row with so many axes: one of these names, else the only one if it has none of tokens."""
    fitting = [name for name, array in outputs.items() if array.ndim == axes and array.shape[0] == 1]
    named = [name for name in names if name in fitting]
    if named:
        return named[0]
    return fitting[0] if len(outputs) == len(fitting) == 1 else None
