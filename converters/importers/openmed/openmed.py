"""`reg import`: adopting a directory that OpenMed's converter wrote, trusting its files and none of its claims."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.importers.companions import check_labels, describe
from onnxreg.converters.importers.draft_json import Difference
from onnxreg.converters.importers.import_files import Intake
from onnxreg.converters.importers.openmed.artifacts import CONFIG_VERDICTS, check_formats, make_artifacts
from onnxreg.converters.importers.openmed.manifest_claims import artifact_differences, compare, read_segmenter
from onnxreg.converters.importers.openmed.survey import Survey, survey
from onnxreg.converters.source.scrub import scrub
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.manifest.draft import Draft
from onnxreg.schema.manifest.manifest_v1 import ManifestV1
from onnxreg.schema.manifest.rules import FILENAME

PROFILE = "openmed-v1"
_VERDICTS = ("quantization", "quant_recall_delta", "certified", "recall_delta_path", "certification")
_MOMENT = ("generated_at", "created_at", "exported_at")
_READ_AGAIN = (
    "format",
    "format_version",
    "formats",
    "artifacts",
    "config_path",
    "label_map_path",
    "tokenizer",
)


def import_openmed(directory: Path, workspace: Path, *, name: str) -> tuple[Draft, list[Difference]]:
    """Adopt a directory with a version 1 manifest.

    Contracts, operators, opsets, precisions and labels are read from the files again; the returned differences say
    which claims they contradict. A claimed certification becomes `unknown`, because nothing binds it to bytes, and a
    claimed refusal stays one; what was claimed stays under `claimed` of the artifact. Each file is judged as `reg add` judges it. Absolute paths in JSON companions are scrubbed, and the
    recipe says where. Files that the manifest does not name are left out and reported.

    Args:
        directory: what OpenMed wrote; it is not changed.
        workspace: an empty directory, filled with the files of the version.
        name: the model's name.

    Raises:
        InputError: no manifest, or one of another version; a file that is named but missing or outside; files
            of two exports (`survey.refuse_mixture`); labels that are not as many as the classes of the logits.
    """
    check_name(name)
    intake = Intake(workspace, name)
    intake.look_below(directory)
    export = survey(directory)
    check_formats(export.manifest, export.artifacts, export.facts)
    for file in export.companions:
        intake.take(directory / file.path, file.path, CONFIG_VERDICTS if file.role == "config" else ())
    described = describe(workspace, export.companions)
    for path, facts in export.facts.items():
        check_labels(described, facts, path)
    artifacts = tuple(
        make_artifacts(export.manifest, export.artifacts, export.facts, export.base, intake, directory)
    )
    segmenter, wrong_files = read_segmenter(directory, export.manifest)
    claimed = _carried(export.manifest) | segmenter
    fields, scrubbed = scrub(claimed, name, directory)
    intake.scrubbed += [f"{FILENAME}:{at}" for at in scrubbed]
    differences = [*_differences(export, described), *wrong_files]
    differences += [
        Difference(at, claimed[at], fields[at]) for at in scrubbed if at in fields and at in claimed
    ]
    fields |= described | {"source": {"id": fields.get("source_model_id") or name}}
    fields["recipe"] = _recipe(intake.scrubbed, differences)
    return Draft(name, workspace, artifacts, export.companions, fields, intake.file_states), differences


def _differences(export: Survey, described: Mapping[str, Any]) -> list[Difference]:
    claimed = export.manifest.to_json()
    differences = compare(claimed, described, "", ("task", "family", "max_sequence_length"))
    formats = list(dict.fromkeys(item.claim.format for item in export.artifacts))
    differences += compare(claimed, {"formats": formats}, "", ["formats"])
    differences += compare(
        claimed.get("tokenizer") or {}, described.get("tokenizer") or {}, "tokenizer", ["files"]
    )
    for index, item in enumerate(export.artifacts):
        if item.main in export.facts:
            differences += artifact_differences(item.claim, export.facts[item.main], f"artifacts.{index}")
        else:
            differences.append(Difference(f"artifacts.{index}.metadata", item.claim.format, None))
    if export.manifest.certified is not None:
        differences.append(Difference("certified", export.manifest.certified, None))
    left_out = "not an artifact or companion of the manifest; left out"
    differences += [Difference(path, None, left_out) for path in export.left_out]
    weights = f"the weights of {export.base}"
    return differences + [
        Difference(path, weights, "nothing to compare by name") for path in export.incomparable
    ]


def _carried(manifest: ManifestV1) -> dict[str, Any]:
    """The claims that version 2 keeps as they are: neither read again, nor a verdict, nor a moment."""
    excluded = {*_READ_AGAIN, *_VERDICTS, *_MOMENT}
    return {
        key: value for key, value in manifest.to_json().items() if key not in excluded and value is not None
    }


def _recipe(scrubbed: list[str], differences: list[Difference]) -> dict[str, Any]:
    result = {"scrubbed": sorted(scrubbed), "differences": [difference.path for difference in differences]}
    step = {"name": "import", "pass": "import", "version": 1, "params": {}, "result": result}
    return {"profile": PROFILE, "profile_version": 1, "steps": [step], "tools": {}}
