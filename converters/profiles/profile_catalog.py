"""The recipes of onnxreg: a task's recipe (`task_recipe`), and profiles by name, also of other packages.

Other packages register profiles as entry points of the group `onnxreg.profiles`. The profile `android` turns a trained
token classifier into the files that mobile kits load: docs/android.md.
"""

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from onnxreg.converters.engine.plan import Profile, ProfileOutput, read_document
from onnxreg.converters.onnx.mobile_rules import android_warnings, check_contract
from onnxreg.converters.passes.conversion import NEWEST, OLDEST
from onnxreg.converters.passes.transformers_export import DEFAULT
from onnxreg.converters.passes.transformers_export import OLDEST as OLDEST_OF_NEW
from onnxreg.converters.source.toolchain import PlugIns
from onnxreg.converters.tasks import task_catalog
from onnxreg.converters.tasks.onnx_file import OnnxFile
from onnxreg.converters.tasks.task import SAVE_TOKENIZER, ExportSubject, LocatedSource
from onnxreg.schema.core.document import WrittenDocument
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile

PATH, INT8 = "model.onnx", "model_int8.onnx"


class AndroidOptions(WrittenDocument):
    """The options of the android profile. `max_seq_length` is in tokens; the last two belong to the gate G4."""

    int8: bool = True
    int8_embeddings: bool = False
    max_seq_length: Annotated[int, Field(ge=1)] = 512
    min_gold_chars: int = 200
    min_parent_recall: float = 0.5


class AndroidProfile(Profile):
    """The android profile: its options change the steps, and its graphs follow the tensor contract of mobile kits."""

    modules = ("torch", "transformers", "onnx", "onnxruntime")

    def option_names(self) -> tuple[str, ...]:
        return tuple(AndroidOptions.model_fields)

    def recipe_for(self, options: Mapping[str, Any], suite: Path | None, is_search: bool) -> RecipeFile:
        """Return the recipe with these options. If a suite is given, the INT8 file is judged, with OpenMed's label names."""
        chosen = AndroidOptions.from_json(options, "an option of the profile android")
        if chosen.int8_embeddings and not chosen.int8:
            raise InputError("--int8-embeddings is of the INT8 file", "leave it out, or leave out --no-int8")
        if is_search and (chosen.int8_embeddings or not chosen.int8):
            hint = "leave out --int8-embeddings and --no-int8, or --certify"
            raise InputError("a search makes the INT8 file by itself", hint)
        value = read_document(self.document)
        steps = {step["name"]: step for step in value["steps"]}
        value["options"]["max_seq_length"] = chosen.max_seq_length
        if suite is not None:
            settings = chosen.model_dump(include={"min_gold_chars", "min_parent_recall"})
            metrics = [{"metric": "character_recall", "settings": settings}]
            judging = {"suite": str(suite.absolute()), "label_names": "openmed"}
            value["evaluation"] = {**judging, "metrics": metrics}
        if chosen.int8_embeddings:
            steps["int8"]["params"]["op_types_to_quantize"].append("Gather")
        if not chosen.int8 or is_search:
            del steps["int8"]
            value["outputs"] = [output for output in value["outputs"] if output["step"] != "int8"]
            value["checks"] = [check for check in value["checks"] if check["output"] != INT8]
        if is_search and suite is not None:
            search = {"input": "mobile-safe", "output": "model.onnx", "format": "onnx-int8"}
            value["search"] = {**search, "checks": [{"metric": "argmax_agreement", "min": 0.5}]}
        return RecipeFile.from_json({**value, "steps": list(steps.values())}, self.document.name)

    def check_source(self, source: LocatedSource) -> None:
        if source.lacks_tokenizer:
            raise InputError("a phone reads texts, and the checkpoint has no tokenizer", SAVE_TOKENIZER)

    def check(self, output: ProfileOutput, subject: ExportSubject) -> None:
        check_contract(output.facts, output.path, len(subject.fields["labels"]))

    def fields(self, output: ProfileOutput) -> Mapping[str, Any]:
        metadata = {"profile": "android", "execution_providers": ["NNAPI", "XNNPACK"]}
        metadata |= android_warnings(output.facts.operator_names)
        tables = [step.result["embeddings"] for step in output.steps if "embeddings" in step.result]
        if output.path != INT8 or not tables:
            return {"metadata": metadata}
        check = {"name": "embeddings", "metric": "min_row_cosine", "value": tables[0]["min_row_cosine"]}
        checks = [{**check, "samples": tables[0]["tables_quantized"], "verdict": "info"}]
        return {"metadata": metadata, "checks": checks}


def task_recipe(
    task: str,
    quantize: bool = False,
    opset: int | None = None,
    max_seq_length: int | None = None,
    path: str = PATH,
    int8_embeddings: bool = False,
    source: str | None = None,
) -> RecipeFile:
    """Return the recipe of a task: a graph in full precision at `path`; with `quantize`, also an INT8 graph (`*_int8.onnx`).

    By default, the opset is 14 and `max_seq_length` (in tokens) the task's own. `int8_embeddings` quantizes embedding tables
    too. Raises InputError for an unknown task, a task that needs more options, an opset that PyTorch does not export to, and
    `int8_embeddings` without `quantize`.
    """
    kind = task_catalog.of_source(task_catalog.find(task), source or "", {})
    if not kind.exporter:
        message = f"the task {kind.id} has no recipe of its own"
        raise InputError(message, "write a recipe: reg export --recipe FILE; docs/recipes.md has examples")
    if kind is OnnxFile and (opset, max_seq_length) != (None, None):
        hint = "leave --opset and --max-seq-length out; OnnxOpVersionConversion in a recipe changes the opset"
        raise InputError("an ONNX file keeps its opset and its inputs", hint)
    if int8_embeddings and not quantize:
        raise InputError("--int8-embeddings is of the INT8 artifact, which is not made", "add --quantize")
    if max_seq_length is not None and "max_seq_length" not in kind.Options.model_fields:
        raise InputError("--max-seq-length is of texts, and the task takes none", "leave it out")
    default, oldest = (14, OLDEST) if kind.exporter == "OnnxConversion" else (DEFAULT, OLDEST_OF_NEW)
    target = default if opset is None else opset
    if not oldest <= target <= NEWEST:
        message = f"there is no opset {target} to export to"
        raise InputError(message, f"PyTorch's exporters support {oldest} to {NEWEST}")
    steps: list[dict[str, Any]] = []
    outputs: list[dict[str, Any]] = []
    products = [*kind.products, *(["Gather"] if int8_embeddings else [])]
    quantization = {"params": {"op_types_to_quantize": products}} if len(products) > 2 else {}
    for member, file in kind.members.items() or [(None, path)]:
        named, part = ({}, {}) if member is None else ({"member": member}, {"part": member})
        params: dict[str, Any] = {"target_opset": target, **part}
        first: dict[str, Any] = {"name": member or "fp32", "pass": kind.exporter, "params": params}
        if kind is OnnxFile:
            first = {"name": "original", "pass": kind.exporter}
        small: dict[str, Any] = {"name": f"{member}_int8" if member else "int8"}
        small |= {"pass": kind.quantizer, "input": first["name"], **quantization}
        for step, mark in ((first, ""), (small, "_int8")) if member in kind.merged else ():
            one, other = kind.merged[str(member)]  # the quantizer skips weights in branches
            params = {"with_past": f"{other}{mark}", "part": member}
            step |= {"pass": "MergeDecoders", "input": f"{one}{mark}", "params": params}
        steps.append(first)
        outputs.append({"step": first["name"], "path": file, **named})
        if quantize:
            steps.append(small)
            quantized = f"{file.removesuffix('.onnx')}_int8.onnx"
            outputs.append({"step": small["name"], "path": quantized, **named})
    full = [output["path"] for output in outputs if not output["step"].endswith("int8")]
    value = {
        "task": kind.id,
        "options": {} if max_seq_length is None else {"max_seq_length": max_seq_length},
        "steps": steps,
        "outputs": outputs,
        "checks": [{"output": file, "metric": "max_abs_diff", "share": 0.001} for file in full],
    }
    return RecipeFile.from_json(value, f"the recipe of {task}")


def _accept(entry: EntryPoint, profile: Any) -> Profile | None:
    if not isinstance(profile, Profile):
        return None
    kind = type(profile)
    names = (name for name in sorted({*dir(kind)} - {*dir(Profile)}) if not name.startswith("_"))
    if unknown := next((name for name in names if callable(getattr(kind, name))), None):
        raise TypeError(f"{kind.__name__}.{unknown} is not a method of Profile, so nothing calls it")
    return replace(profile, name=entry.name, package=None if entry.dist is None else entry.dist.name)


ANDROID = AndroidProfile(Path(__file__).with_name("android.yaml"))
CATALOG: PlugIns[Profile] = PlugIns("onnxreg.profiles", "a profile", {"android": ANDROID}, _accept)
find, names = CATALOG.find, CATALOG.names
