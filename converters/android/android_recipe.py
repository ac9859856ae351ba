"""The android profile's options, and the recipe that they make."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StrictBool, StrictFloat, StrictInt

from onnxreg.converters.engine.read_recipe import read_document
from onnxreg.converters.evaluation.metrics import MinimumEvidence
from onnxreg.schema.core.document import WrittenDocument
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile

DOCUMENT = Path(__file__).with_name("android.yaml")
MODULES = ("torch", "transformers", "onnx", "onnxruntime")
"""An export needs them."""


class AndroidOptions(WrittenDocument):
    """The options of the profile. `max_seq_length` is in tokens; the last two are those of the gate G4."""

    int8: StrictBool = True
    int8_embeddings: StrictBool = False
    rewrite: StrictBool = True
    max_seq_length: Annotated[StrictInt, Field(ge=1)] = 512
    min_gold_chars: StrictInt = 200
    min_parent_recall: StrictFloat = 0.5


def recipe_of(given: Mapping[str, Any], suite: Path | None = None, is_search: bool = False) -> RecipeFile:
    """The profile's recipe with these options.

    Args:
        suite: judges the INT8 file, by OpenMed's names of labels.
        is_search: True if a search makes the INT8 file.

    Raises InputError for an option that there is not, of another type, or that contradicts another one.
    """
    options = AndroidOptions.from_json(given, "an option of the profile android")
    evidence = MinimumEvidence(options.min_gold_chars, options.min_parent_recall)
    if options.int8_embeddings and not options.int8:
        raise InputError(
            "quantized embeddings are of the INT8 file, which is left out",
            "leave out --int8-embeddings or --no-int8",
        )
    if is_search and (options.int8_embeddings or not options.int8):
        raise InputError(
            "a search makes the INT8 file by itself",
            "leave out --int8-embeddings and --no-int8, or --certify",
        )
    value = read_document(DOCUMENT)
    steps = {step["name"]: step for step in value["steps"]}
    value["options"]["max_seq_length"] = options.max_seq_length
    if suite is not None:
        value["evaluation"] = {**evaluation_of(str(suite.absolute()), evidence), "item_scores": False}
    if options.int8_embeddings:
        steps["int8"]["params"]["op_types_to_quantize"].append("Gather")
    if not options.int8 or is_search:
        del steps["int8"]
        value["outputs"] = [output for output in value["outputs"] if output["step"] != "int8"]
        value["checks"] = [check for check in value["checks"] if check["output"] != "model_int8.onnx"]
    if not options.rewrite:
        del steps["mobile-safe"]
        for item in (*steps.values(), *value["outputs"]):
            item.update({key: "fp32" for key in ("input", "step") if item.get(key) == "mobile-safe"})
    if is_search and suite is not None:
        checks = [{"metric": "argmax_agreement", "min": 0.5}]
        start = {"input": "mobile-safe" if options.rewrite else "fp32", "output": "model.onnx"}
        value["search"] = {**start, "format": "onnx-int8", "checks": checks}
    return RecipeFile.from_json({**value, "steps": list(steps.values())}, DOCUMENT.name)


def evaluation_of(suite: str, minimum: MinimumEvidence) -> dict[str, Any]:
    """The evaluation of the profile, in JSON form: character recall by the gate G4, labels by OpenMed's names."""
    settings = {"min_gold_chars": minimum.gold_chars, "min_parent_recall": minimum.parent_recall}
    metrics = [{"metric": "character_recall", "settings": settings}]
    return {"suite": suite, "metrics": metrics, "label_names": "openmed"}
