"""Find a profile by its name: onnxreg's, such as `android` (docs/android.md), or an entry point of another package."""

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from onnxreg.converters.engine.plan import Profile, ProfileOutput, read_document
from onnxreg.converters.onnx.mobile_rules import android_warnings, check_contract
from onnxreg.converters.source.toolchain import PlugIns
from onnxreg.converters.tasks.task import SAVE_TOKENIZER, ExportSubject, LocatedSource
from onnxreg.schema.core.document import WrittenDocument
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.inputs.recipe_file import RecipeFile

INT8 = "model_int8.onnx"


class AndroidOptions(WrittenDocument):
    """The options of the profile android. `max_seq_length` is in tokens; `min_*` are limits of `character_recall`."""

    int8: bool = True
    int8_embeddings: bool = False
    max_seq_length: Annotated[int, Field(ge=1)] = 512
    min_gold_chars: int = 200
    min_parent_recall: float = 0.5


class AndroidProfile(Profile):
    """The profile android. Options change the recipe's steps. The graphs follow the tensor contract of mobile kits."""

    modules = ("torch", "transformers", "onnx", "onnxruntime")

    def option_names(self) -> tuple[str, ...]:
        return tuple(AndroidOptions.model_fields)

    def recipe_for(self, options: Mapping[str, Any], suite: Path | None, is_search: bool) -> RecipeFile:
        """Return the recipe with these options. If there is a suite, the INT8 file is judged on it."""
        chosen = AndroidOptions.from_json(options, "an option of the profile android")
        if chosen.int8_embeddings and not chosen.int8:
            raise InputError("--int8-embeddings is of the INT8 file", "leave it out, or leave out --no-int8")
        if is_search and (chosen.int8_embeddings or not chosen.int8):
            hint = "leave out --int8-embeddings and --no-int8, or --certify"
            raise InputError("a search makes the INT8 file by itself", hint)
        value = read_document(self.document)
        steps = {step["name"]: step for step in value["steps"]}
        value["options"]["max_seq_length"] = chosen.max_seq_length
        settings = chosen.model_dump(include={"min_gold_chars", "min_parent_recall"})
        if suite is None and (unused := settings.keys() & options):
            option = f"--{min(unused).replace('_', '-')}"
            hint = "name a suite: --eval-suite FILE"
            raise InputError(f"{option} is of an evaluation, and no suite is named", hint)
        if suite is not None:
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


def _accept(entry: EntryPoint, profile: Any) -> Profile | None:
    if not isinstance(profile, Profile):
        return None
    kind = type(profile)
    names = (name for name in sorted({*dir(kind)} - {*dir(Profile)}) if not name.startswith("_"))
    if unknown := next((name for name in names if callable(getattr(kind, name))), None):
        raise TypeError(f"{kind.__name__}.{unknown} is not a method of Profile, so nothing calls it")
    return replace(profile, name=entry.name)


ANDROID = AndroidProfile(Path(__file__).with_name("android.yaml"))
CATALOG: PlugIns[Profile] = PlugIns("onnxreg.profiles", "a profile", {"android": ANDROID}, _accept)
find, names = CATALOG.find, CATALOG.names
