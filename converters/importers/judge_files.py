"""The judgement of model files from elsewhere. `add` and `import` take only what passes it.

The files beside a model state labels, task, family and length, which are checked against the graph.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from onnxreg.converters.onnx.external_data import external_files
from onnxreg.converters.onnx.facts import LABEL_OUTPUT, GraphFacts, inspect_model, inspect_ort, weight_type
from onnxreg.converters.onnx.mobile_rules import check_contract
from onnxreg.converters.onnx.onnx_graph import check_model, load_onnx
from onnxreg.converters.runtime.sessions import load_session
from onnxreg.converters.source.scrub import read_json
from onnxreg.schema.core.errors import ConversionError, InputError, RegError
from onnxreg.schema.manifest.draft import DraftFile

CORRECT_FORMAT = "leave --format out, or correct it"
_TASKS = {
    "ForTokenClassification": "token-classification",
    "ForSequenceClassification": "text-classification",
    "ForImageClassification": "image-classification",
    "ForQuestionAnswering": "question-answering",
    "ForMaskedLM": "fill-mask",
    "ForCausalLM": "text-generation",
}
_CLASSIFIERS = frozenset({"token-classification", "text-classification", "image-classification"})


def read_model(
    path: Path, config: Path | None = None, look: Callable[[Path], object] = lambda _: None
) -> GraphFacts:
    """The facts of an .onnx or .ort file. Raise InputError if it is not one, or if nothing can run it.

    Args:
        path: the file.
        config: the operator config of an .ort file.
        look: is shown each external data file before it is read.
    """
    if path.suffix == ".ort":
        return inspect_ort(path, config)
    model = load_onnx(path)
    for location in external_files(model, path):
        look(path.parent / location)
    facts = inspect_model(model, path)
    _refuse_unusable(model, path)
    return facts


def default_format(facts: GraphFacts) -> str:
    """The format name that the file itself justifies: `ort`, `onnx-int8`, `onnx-int4` or `onnx`."""
    if facts.ort_format is not None:
        return "ort"
    kind = weight_type(facts.precision)
    return f"onnx-{kind}" if kind in ("int8", "int4") else "onnx"


def check_format(format: str, facts: GraphFacts, path: str, hint: str = CORRECT_FORMAT) -> None:
    """Raise InputError if the file contradicts what a format name promises."""
    actual = default_format(facts)
    wrong_container = (actual == "ort") != format.startswith("ort")
    claims = next((kind for kind in ("int8", "int4") if format.endswith(f"-{kind}")), None)
    if wrong_container or (claims is not None and actual != "ort" and not actual.endswith(claims)):
        raise InputError(f"{path} is not {format}: the file itself says {actual}", hint)
    if format.endswith("-android"):
        check_android(facts, path, "leave --format out to register the model without this promise")


def check_android(facts: GraphFacts, path: str, hint: str) -> None:
    """Raise InputError if a graph breaks the tensor contract of the android profile."""
    try:
        check_contract(facts, path, class_count(facts) or 0)
    except ConversionError as error:
        raise InputError(error.message, hint) from error


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


def _refuse_unusable(model: Any, path: Path) -> None:
    """InputError for what neither ONNX's checker nor ONNX Runtime takes; each knows operators that the other does not."""
    try:
        check_model(model, path)
    except InputError as error:
        try:
            load_session(path, name=path.name)
        except RegError:
            raise error from None


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
