"""The evaluator of each task."""

from onnxreg.converters.evaluation.tasks.completions import Completions
from onnxreg.converters.evaluation.tasks.embeddings import Embeddings
from onnxreg.converters.evaluation.tasks.extractive_answers import Answers
from onnxreg.converters.evaluation.tasks.labelled_rows import LabelledRows
from onnxreg.converters.evaluation.tasks.task_evaluator import TaskEvaluator
from onnxreg.converters.evaluation.tasks.text_classes import TextClasses
from onnxreg.converters.evaluation.tasks.token_spans import TokenSpans

EVALUATORS: tuple[type[TaskEvaluator], ...] = (
    TokenSpans,
    TextClasses,
    Answers,
    Embeddings,
    LabelledRows,
    Completions,
)


def find(task: str) -> type[TaskEvaluator]:
    """Return the evaluator of a task, by the task's id; every built-in task has one."""
    return next(evaluator for evaluator in EVALUATORS if task in evaluator.tasks)
