"""Every task by name."""

import inspect
from collections.abc import Mapping

from pydantic.fields import FieldInfo

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
    "default": "feature-extraction",
    "embedding": "pooling",
    "embeddings": "pooling",
    "text-embedding": "pooling",
    "sentence-embedding": "pooling",
    "sentence-embeddings": "pooling",
    "sentence-similarity": "pooling",
    "similarity": "pooling",
    "sequence-classification": "text-classification",
    "sentiment-analysis": "text-classification",
    "zero-shot-classification": "text-classification",
    "text-ranking": "text-classification",
    "reranking": "text-classification",
    "ner": "token-classification",
    "named-entity-recognition": "token-classification",
    "qa": "question-answering",
    "extractive-question-answering": "question-answering",
    "causal-lm": "text-generation",
    "causal-lm-with-past": "text-generation",
    "text-generation-with-past": "text-generation",
}
"""Other names that people type, with ours, which alone are recorded.

Those of Optimum (`default`, `*-with-past`, `causal-lm`), of pipelines in transformers and Transformers.js
(`ner`, `sentiment-analysis`, `embeddings`), of txtai (`similarity`), and of the Hub and sentence-transformers
(`sentence-similarity`, `text-ranking`). Two of them mean a vector for each token elsewhere: `embeddings` in
Transformers.js, whose callers pool it, and `sentence-similarity` in Optimum.
"""
_OWN = (
    FeatureExtraction,
    Pooling,
    QuestionAnswering,
    TextClassification,
    TokenClassification,
    ImageClassification,
    TextGeneration,
    OnnxFile,
)
MIN_LIKENESS = 0.7
"""The least likeness of each word to one of a suggested name: `audio-classification` means no `token-classification`."""
TASKS: Mapping[str, type[Task]] = {task.id: task for task in _OWN}


def find(name: str, kind: type[Task] = Task) -> type[Task]:
    """Return the task of a name, its own or an alias; case and underscores do not matter.

    InputError for an unknown one suggests the nearest name of a kind, and lists the tasks of that kind.
    """
    typed = name.lower().replace("_", "-")
    task = TASKS.get(ALIASES.get(typed, typed))
    if task is None:
        tasks = [own for own, task in TASKS.items() if issubclass(task, kind)]
        aliases = [alias for alias, own in ALIASES.items() if own in tasks]
        near = [
            f"did you mean {candidate}? "
            for candidate in nearest(typed, [*tasks, *aliases])
            if all(nearest(word, candidate.split("-"), MIN_LIKENESS) for word in typed.split("-"))
        ]
        raise InputError(
            f"no task is called {name[:80]!r}",
            f"{''.join(near[:1])}one of: {', '.join(tasks)}; for another, export with Optimum, then reg import the directory",
        )
    return task


def table() -> str:
    """Format every task in Markdown: its summary, and its options with their defaults."""
    lines = ["| task | what | options |", "| --- | --- | --- |"]
    lines += [f"| `{name}` | {_summary(task)} | {_options(task)} |" for name, task in TASKS.items()]
    return "\n".join(lines) + "\n"


def _summary(task: type[Task]) -> str:
    """Return the first sentence of the docstring."""
    return " ".join((inspect.getdoc(task) or "").split("\n\n")[0].split()).partition(". ")[0].rstrip(".")


def _options(task: type[Task]) -> str:
    return ", ".join(f"`{name}`{_default(field)}" for name, field in task.Options.model_fields.items())


def _default(field: FieldInfo) -> str:
    """Format the default of an option; empty for a required option or an empty default."""
    default = None if field.is_required() else field.get_default(call_default_factory=True)
    if default is None or default in ((), {}):
        return ""
    return f" {('yes' if default else 'no') if isinstance(default, bool) else default}"
