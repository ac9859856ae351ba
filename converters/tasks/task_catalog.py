"""Every task by name."""

from collections.abc import Mapping

from onnxreg.converters.tasks.image_classification import ImageClassification
from onnxreg.converters.tasks.onnx_file import OnnxFile
from onnxreg.converters.tasks.task import Task
from onnxreg.converters.tasks.text import (
    FeatureExtraction,
    Pooling,
    QuestionAnswering,
    TextClassification,
    TextGeneration,
    TokenClassification,
)
from onnxreg.schema.core.errors import InputError, nearest

ALIASES: Mapping[str, str] = {
    alias: task
    for task, aliases in {
        "feature-extraction": ("default",),
        "pooling": (
            *("embedding", "embeddings", "text-embedding", "sentence-embedding", "sentence-embeddings"),
            *("sentence-similarity", "similarity"),
        ),
        "text-classification": (
            *("sequence-classification", "sentiment-analysis", "zero-shot-classification"),
            *("text-ranking", "reranking"),
        ),
        "token-classification": ("ner", "named-entity-recognition"),
        "question-answering": ("qa", "extractive-question-answering"),
        "text-generation": ("causal-lm", "causal-lm-with-past", "text-generation-with-past"),
    }.items()
    for alias in aliases
}
"""Other names that people type, with ours, which alone are recorded.

Those of Optimum (`default`, `*-with-past`, `causal-lm`), of pipelines in transformers and Transformers.js
(`ner`, `sentiment-analysis`, `embeddings`), of txtai (`similarity`), and of the Hub and sentence-transformers
(`sentence-similarity`, `text-ranking`). Two of them mean a vector for each token elsewhere: `embeddings` in
Transformers.js, whose callers pool it, and `sentence-similarity` in Optimum.
"""
TASKS: Mapping[str, type[Task]] = {
    task.id: task
    for task in (
        *(FeatureExtraction, Pooling, QuestionAnswering, TextClassification, TokenClassification),
        *(ImageClassification, TextGeneration, OnnxFile),
    )
}


def find(name: str, kind: type[Task] = Task) -> type[Task]:
    """Return the task of a name, its own or an alias; case and underscores do not matter.

    InputError for an unknown one suggests the nearest name of a kind, and lists the tasks of that kind.
    """
    typed = name.lower().replace("_", "-")
    task = TASKS.get(ALIASES.get(typed, typed))
    if task is None:
        tasks = [own for own, task in TASKS.items() if issubclass(task, kind)]
        names = [*tasks, *(alias for alias, own in ALIASES.items() if own in tasks)]
        near = "".join(
            f"did you mean {name}? " for name in nearest(typed, names, 0.85 if "-" in typed else 0.7, most=1)
        )
        raise InputError(
            f"no task is called {name[:80]!r}",
            f"{near}one of: {', '.join(tasks)}; for another, export with Optimum, then reg import the directory",
        )
    return task
