"""The kind of answer that a graph gives for texts, decided by its inputs and outputs."""

from collections.abc import Sequence

from onnxreg.converters.tasks.task_catalog import ALIASES
from onnxreg.converters.texts import answers, classes, completion, spans, vectors
from onnxreg.converters.texts.text_model import TextModel, refuse
from onnxreg.schema.core.errors import Advice, InputError

TextAnswer = (
    list[spans.TaggedSpan]
    | classes.ClassScores
    | answers.ContextAnswer
    | vectors.TextVectors
    | completion.GreedyCompletion
    | None
)
"""Spans of a token classifier, scores of a text classifier, a part of a context (None: no answer), vectors, or
the text that follows."""


def run_texts(
    model: TextModel,
    texts: Sequence[str],
    context: str | None = None,
    max_tokens: int = 32,
    task: str | None = None,
) -> TextAnswer:
    """Run a graph on texts.

    Args:
        texts: one, or several for vectors.
        context: the text that a question is about, or the second text of a pair.
        task: the version's, for a graph that does not say enough by itself.

    Raise InputError if the texts do not fit the kind of graph; ConversionError if the graph does not run.
    """
    model.tokenizer.limit(model.runner.length)
    gives, task = model.runner.gives, ALIASES.get(task or "", task)
    if {"start_logits", "end_logits"} <= gives.keys():
        if context is None:
            raise InputError("a question needs the text that it is about", Advice("add-context"))
        return answers.answer(model, _one(texts), context)
    is_classifier = gives.get("logits") == 2 or (gives.get("logits") == 0 and task == "text-classification")
    if context is not None and not is_classifier:
        raise InputError(f"{model.graph.name} takes no second text", Advice("omit-context"))
    if is_classifier:
        return classes.classify(model, _one(texts), context)
    if "logits" not in gives:
        return vectors.embed(model, texts)
    if task == "text-generation" or model.runner.has_past:
        return completion.complete(model, _one(texts), max_tokens)
    if not model.labels:
        raise refuse(model.graph.name, "gives a value for each token, and its version has no labels for them")
    return spans.tag(model, _one(texts))


def _one(texts: Sequence[str]) -> str:
    if len(texts) != 1:
        raise InputError(
            "this model takes one text at a time", "several are compared by models that give embeddings"
        )
    return texts[0]
