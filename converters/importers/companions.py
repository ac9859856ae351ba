"""The statements of the files beside a model: labels, task, family, length; checked against the graph."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.facts import GraphFacts
from onnxreg.converters.onnx.tensor_contract import LABEL_OUTPUT
from onnxreg.converters.source.scrub import read_json
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.manifest.draft import DraftFile

_TASKS = {
    "ForTokenClassification": "token-classification",
    "ForSequenceClassification": "text-classification",
    "ForImageClassification": "image-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForCausalLM": "text-generation",
}
_CLASSIFIERS = frozenset({"token-classification", "text-classification", "image-classification"})


def describe(root: Path, companions: Iterable[DraftFile]) -> dict[str, Any]:
    """The manifest-level fields that config.json, id2label.json and the tokenizer files give; absent when
    unknown.

    Raises InputError if the two disagree about the labels, or a label map is malformed.
    """
    paths: dict[str, list[str]] = {}
    for companion in companions:
        paths.setdefault(companion.role, []).append(companion.path)
    fields: dict[str, Any] = {}
    if "config" in paths:
        fields |= _from_config(root / paths["config"][0]) | {"config_path": paths["config"][0]}
    if "labels" in paths:
        path = root / paths["labels"][0]
        labels = parse_labels(read_json(path), path.name)
        if fields.get("labels", labels) != labels and fields.get("task") in _CLASSIFIERS:
            raise InputError(
                "id2label.json and config.json name different labels",
                "they come from two models; use the pair that was exported with this one",
            )
        fields |= {"labels": labels, "label_map_path": paths["labels"][0]}
    elif fields.get("task") not in _CLASSIFIERS:
        fields.pop("labels", None)
    if "tokenizer" in paths:
        fields["tokenizer"] = {"path": ".", "files": sorted(paths["tokenizer"])}
    return fields


def parse_labels(value: Any, origin: str) -> list[str]:
    """Labels by class index, from an `id2label` object whose keys are 0, 1, ... as decimal strings."""
    ok = isinstance(value, dict) and all(isinstance(label, str) for label in value.values())
    if ok and set(value) == {str(index) for index in range(len(value))} and value:
        return [value[str(index)] for index in range(len(value))]
    raise InputError(
        f"{origin} is not a label map",
        'expected {"0": "O", "1": "B-NAME", ...} with every class index from 0 on',
    )


def class_count(facts: GraphFacts) -> int | None:
    """The static last dimension of the output `logits`; None if there is none."""
    for output in facts.outputs:
        if output.name == LABEL_OUTPUT and len(output.shape) > 1:
            return output.shape[-1].value
    return None


def check_labels(fields: dict[str, Any], facts: GraphFacts, path: str) -> None:
    """Raise InputError if a classifier's labels are not as many as the classes of its logits."""
    labels, classes = fields.get("labels"), class_count(facts)
    if labels is not None and classes is not None and len(labels) != classes:
        raise InputError(
            f"{path} has {classes} classes, but the labels beside it are {len(labels)}",
            "use the id2label.json and config.json that were exported with this model",
        )


def _from_config(path: Path) -> dict[str, Any]:
    config = read_json(path)
    if not isinstance(config, dict):
        raise InputError(f"{path.name} is not a JSON object")
    fields: dict[str, Any] = {}
    architectures = config.get("architectures")
    names = architectures if isinstance(architectures, list) else []
    task = next((task for name in names[:1] for end, task in _TASKS.items() if str(name).endswith(end)), None)
    if task is not None:
        fields["task"] = task
    if isinstance(config.get("model_type"), str):
        fields["family"] = config["model_type"]
    for key in ("max_position_embeddings", "max_sequence_length"):
        if isinstance(config.get(key), int):
            fields["max_sequence_length"] = config[key]
    if config.get("id2label"):
        fields["labels"] = parse_labels(config["id2label"], f"id2label in {path.name}")
    return fields
