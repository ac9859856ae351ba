"""The android profile's options, the recipe that they make, and its export: the files that mobile kits load."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from pydantic import StrictBool, StrictFloat, StrictInt, TypeAdapter, ValidationError

from onnxreg.converters.android.android_profile import AndroidPromises
from onnxreg.converters.engine.plan import plan_export
from onnxreg.converters.engine.read_recipe import read_document
from onnxreg.converters.engine.run_plan import execute
from onnxreg.converters.evaluation.metrics.spans import MinimumEvidence
from onnxreg.converters.onnx.mobile_rules import OPSET
from onnxreg.converters.source.toolchain import require
from onnxreg.schema.core.document import InvalidValueError
from onnxreg.schema.core.errors import InputError, suggest
from onnxreg.schema.core.progress import SILENT, Progress
from onnxreg.schema.inputs.recipe_file import RecipeFile
from onnxreg.schema.manifest.draft import Draft

DOCUMENT = Path(__file__).with_name("android.yaml")
MODULES = ("torch", "transformers", "onnx", "onnxruntime")
"""An export needs them."""
TRUST = "trust_remote_code"


@dataclass(frozen=True)
class AndroidOptions:
    """The options of the profile. `max_seq_length` in tokens; `eval_suite` is a file of golden fixtures.

    `label_map` gives a label of the gold one of the model, or excludes it (None).
    """

    opset: StrictInt = OPSET
    int8: StrictBool = True
    int8_embeddings: StrictBool = False
    rewrite: StrictBool = True
    max_seq_length: StrictInt = 512
    trust_remote_code: bool = False
    eval_suite: Path | None = None
    min_gold_chars: StrictInt = 200
    min_parent_recall: StrictFloat = 0.5
    item_scores: StrictBool = False
    margin: StrictBool = False
    label_map: Mapping[str, str | None] = field(default_factory=dict)

    def minimum_evidence(self) -> MinimumEvidence:
        """The smallest evidence by which a label is judged; InputError if that is out of range."""
        return MinimumEvidence(self.min_gold_chars, self.min_parent_recall)


def option_names() -> tuple[str, ...]:
    """The options that people and job files may set. Trust in code is not one of them."""
    return tuple(field.name for field in fields(AndroidOptions) if field.name != TRUST)


def read_options(given: Mapping[str, Any]) -> AndroidOptions:
    """The options in a mapping, such as a row of a job file, which has no say in whose code may run.

    Raises InputError for an option that there is not, or of another type.
    """
    names = option_names()
    if unknown := next((key for key in given if key not in names), None):
        raise InputError(f"the profile android has no option {unknown[:80]!r}", suggest(unknown, names))
    try:
        return TypeAdapter(AndroidOptions).validate_python(dict(given))
    except ValidationError as error:
        raise InvalidValueError(error, "an option of the profile android", names) from error


def check_options(options: AndroidOptions) -> None:
    """Raise InputError for a combination that the profile does not have."""
    options.minimum_evidence()
    if options.opset != OPSET:
        raise InputError(
            f"the android profile has opset {OPSET}; {options.opset} was asked for", "leave --opset out"
        )
    if options.max_seq_length < 1:
        raise InputError(
            f"the maximum sequence length must be at least 1, not {options.max_seq_length}",
            "leave --max-seq-length out, or write what your texts need, such as 256",
        )
    if options.eval_suite is None:
        for name in ("item_scores", "margin", "label_map"):
            if getattr(options, name):
                message = f"{name} is of an evaluation, and no suite is named"
                raise InputError(message, "name a suite: --eval-suite FILE")
    if options.int8_embeddings and not options.int8:
        raise InputError(
            "quantized embeddings are of the INT8 file, which is left out",
            "leave out --int8-embeddings or --no-int8",
        )


def recipe_of(
    options: AndroidOptions,
    evaluation: Mapping[str, Any] | None = None,
    search: Mapping[str, Any] | None = None,
) -> RecipeFile:
    """The profile's recipe with the requested options.

    Args:
        evaluation: in place of that of the options, in JSON form.
        search: finds the INT8 file, in JSON form; its `input`, `output` and `format` are the profile's.
    """
    if search is not None and (options.int8_embeddings or not options.int8):
        raise InputError(
            "a search makes the INT8 file by itself",
            "leave out --int8-embeddings and --no-int8, or --certify",
        )
    if search is not None and evaluation is None and options.eval_suite is None:
        raise InputError(
            "a search needs a suite to choose on, and none is named", "name a suite: --eval-suite FILE"
        )
    value = read_document(DOCUMENT)
    value["options"]["max_seq_length"] = options.max_seq_length
    if options.eval_suite is not None:
        own = evaluation_of(str(options.eval_suite.absolute()), options.minimum_evidence())
        value["evaluation"] = {**own, "item_scores": options.item_scores}
        value["evaluation"] |= {"margin": True} if options.margin else {}
        value["evaluation"] |= {"label_map": dict(options.label_map)} if options.label_map else {}
    if options.int8_embeddings:
        _step(value, "int8")["params"]["op_types_to_quantize"].append("Gather")
    if not options.int8 or search is not None:
        _leave_out(value, "int8", "model_int8.onnx")
    if not options.rewrite:
        value["steps"].remove(_step(value, "mobile-safe"))
        for item in (*value["steps"], *value["outputs"]):
            for key in ("input", "step"):
                if item.get(key) == "mobile-safe":
                    item[key] = "fp32"
    if evaluation is not None:
        value["evaluation"] = evaluation
    if search is not None:
        value["search"] = {
            **search,
            "input": "mobile-safe" if options.rewrite else "fp32",
            "output": "model.onnx",
            "format": "onnx-int8",
            "checks": [{"metric": "argmax_agreement", "min": 0.5}],
        }
    return RecipeFile.from_json(value, DOCUMENT.name)


def evaluation_of(suite: str, minimum: MinimumEvidence) -> dict[str, Any]:
    """The evaluation of the profile, in JSON form: character recall by the gate G4, labels by OpenMed's names."""
    settings = {"min_gold_chars": minimum.gold_chars, "min_parent_recall": minimum.parent_recall}
    metrics = [{"metric": "character_recall", "settings": settings}]
    return {"suite": suite, "metrics": metrics, "label_names": "openmed"}


def _step(value: dict[str, Any], name: str) -> Any:
    return next(step for step in value["steps"] if step["name"] == name)


def _leave_out(value: dict[str, Any], step: str, path: str) -> None:
    value["steps"].remove(_step(value, step))
    value["outputs"] = [output for output in value["outputs"] if output["step"] != step]
    value["checks"] = [check for check in value["checks"] if check["output"] != path]


def export_android(
    source: str,
    workspace: Path,
    *,
    name: str | None = None,
    options: AndroidOptions | None = None,
    progress: Progress = SILENT,
) -> Draft:
    """Export a checkpoint into `workspace` and return the draft of a version.

    Args:
        source: a checkpoint directory, or a hub id with an optional `@revision`.
        workspace: a fresh directory for everything that is written.
        name: the model's name; the lower-cased hub id if absent.
        progress: gets each step as it begins.

    Raises InputError, NotFoundError or RemoteError for a source or option that cannot be used, ConversionError
    if a graph breaks the profile's contract or is not what was asked for, HostError for a missing extra.
    """
    options = options or AndroidOptions()
    check_options(options)
    require(*MODULES)
    trusted, promises = options.trust_remote_code, AndroidPromises()
    plan = plan_export(recipe_of(options), source, name, trust_remote_code=trusted, promises=promises)
    return execute(plan, workspace, progress=progress)
