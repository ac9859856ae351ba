"""`reg import`: adopting a directory that OpenMed's converter wrote, trusting its files and none of its claims.

A `Survey` of the directory reads its files, and checks that they are one export.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.importers.draft_json import Difference
from onnxreg.converters.importers.import_files import Intake
from onnxreg.converters.importers.judge_files import check_labels, describe
from onnxreg.converters.importers.openmed.artifacts import (
    CONFIG_VERDICTS,
    LocatedArtifact,
    artifact_differences,
    check_formats,
    compare,
    files_in,
    inspect_all,
    locate,
    make_artifacts,
    named_file,
    read_segmenter,
)
from onnxreg.converters.importers.weight_compare import compare_weights
from onnxreg.converters.onnx.facts import GraphFacts, inspect_onnx, inspect_ort, read_weights
from onnxreg.converters.source.scrub import read_json, scrub
from onnxreg.converters.source.source_files import role_of
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.ref import check_name
from onnxreg.schema.manifest.draft import Draft, DraftFile
from onnxreg.schema.manifest.manifest import read_manifest
from onnxreg.schema.manifest.manifest_v1 import ManifestV1
from onnxreg.schema.manifest.parts import TensorSpec
from onnxreg.schema.manifest.vocabulary import FILENAME

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
_HINT = "the directory mixes files of two exports; export again into an empty directory"


@dataclass(frozen=True)
class Survey:
    """One consistent export.

    `facts` are by path, of every model file that an artifact needs; `base` is the one the others were made from, ""
    if no model could be read. `left_out` are files that the manifest does not name as an artifact or companion,
    `incomparable` models whose weights have no counterpart by name in the base.
    """

    root: Path
    manifest: ManifestV1
    artifacts: tuple[LocatedArtifact, ...]
    companions: tuple[DraftFile, ...]
    facts: Mapping[str, GraphFacts]
    base: str
    left_out: tuple[str, ...]
    incomparable: tuple[str, ...]


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


def survey(directory: Path) -> Survey:
    """Read a directory and raise InputError if it is not one whole export (see `openmed.import_openmed`)."""
    manifest = _read_manifest(directory)
    located = tuple(locate(directory, claim) for claim in manifest.artifacts)
    facts = inspect_all(directory, located)
    companions = _companions(directory, manifest)
    named_paths = _named(located, facts, companions)
    left_out = tuple(path for path in files_in(directory, directory) if path not in named_paths)
    incomparable = refuse_mixture(directory, facts | _leftovers(directory, left_out)) if facts else []
    _refuse_foreign_report(directory, manifest, left_out)
    base = base_of(facts) if facts else ""
    return Survey(directory, manifest, located, companions, facts, base, left_out, tuple(incomparable))


def base_of(models: Mapping[str, GraphFacts]) -> str:
    """The path of the full-precision ONNX file that the others were made from; else the first file."""
    full = [
        path for path, facts in models.items() if facts.ort_format is None and facts.precision == "float32"
    ]
    return next(iter([*full, *models]))


def refuse_mixture(root: Path, models: Mapping[str, GraphFacts]) -> list[str]:
    """Raise InputError if two model files cannot come from one export.

    All must have the inputs and outputs of the base (`base_of`), in name, type and static axes, and its
    weights, within the tolerances of `weight_compare`. Returns the paths of files whose weights have no
    counterpart by name and shape, so that nothing could be compared: for an .ort file the optimizer may
    explain that; for a float ONNX file it is refused.
    """
    base = base_of(models)
    for path, facts in models.items():
        _check_same_contract(facts.inputs, models[base].inputs, path, base, "inputs")
        _check_same_contract(facts.outputs, models[base].outputs, path, base, "outputs")
    if models[base].weights.weights_total == models[base].weights.weights_quantized:
        return [path for path in models if path != base]
    reference = read_weights(root / base)
    unknown = []
    for path, facts in models.items():
        if path == base or compare_weights(reference, read_weights(root / path), path, base):
            continue
        if facts.ort_format is None:
            raise InputError(f"no weight of {path} has a counterpart in {base}", _HINT)
        unknown.append(path)
    return unknown


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


def _read_manifest(directory: Path) -> ManifestV1:
    path = directory / FILENAME
    if not path.is_file():
        raise InputError(
            f"{directory.name} has no {FILENAME}: it is not a finished export",
            "the converter writes the manifest last; to register single model files use: reg add FILE... --name NAME",
        )
    manifest = read_manifest(path.read_bytes())
    if not isinstance(manifest, ManifestV1):
        raise InputError(
            f"{FILENAME} has format version 2: this directory comes from onnxreg",
            "take it back with: reg import DIRECTORY --name NAME",
        )
    if not manifest.artifacts:
        raise InputError(f"{FILENAME} names no artifacts", "export the model again")
    return manifest


def _companions(root: Path, manifest: ManifestV1) -> tuple[DraftFile, ...]:
    """The files that the manifest names beside its artifacts, each once, by role."""
    roles: dict[str, str] = {}
    for path, role in ((manifest.config_path, "config"), (manifest.label_map_path, "labels")):
        if path is not None:
            roles.setdefault(named_file(root, path, role), role)
    for path in _reports(manifest):
        roles.setdefault(named_file(root, path, "report"), "claimed-report")
    for path in (manifest.tokenizer.files if manifest.tokenizer else None) or ():
        if named_file(root, path, "tokenizer file") != FILENAME and role_of(path) != "report":
            roles.setdefault(path, "tokenizer")
    for item in manifest.segmenter.resource_files if manifest.segmenter else ():
        roles.setdefault(named_file(root, item.path, "segmenter file"), "segmenter")
    return tuple(DraftFile(role, path) for path, role in roles.items())


def _reports(manifest: ManifestV1) -> list[str]:
    claims = [
        manifest.recall_delta_path,
        *(a.metadata.recall_delta_path for a in manifest.artifacts if a.metadata),
    ]
    return list(dict.fromkeys(path for path in claims if path is not None))


def _named(
    located: tuple[LocatedArtifact, ...], facts: Mapping[str, GraphFacts], companions: tuple[DraftFile, ...]
) -> set[str]:
    paths = {FILENAME, *(file.path for file in companions), *facts}
    paths |= {path for item in located for path in (item.main, *(file.path for file in item.sidecars))}
    return paths | {
        (Path(path).parent / at).as_posix()
        for path, model_facts in facts.items()
        for at in model_facts.external_data
    }


def _leftovers(root: Path, left_out: tuple[str, ...]) -> dict[str, GraphFacts]:
    """Models that the manifest does not name: they are not taken, but a foreign one shows a mixed directory."""
    facts = {path: inspect_ort(root / path) for path in left_out if path.endswith(".ort")}
    return facts | {path: inspect_onnx(root / path) for path in left_out if path.endswith(".onnx")}


def _refuse_foreign_report(root: Path, manifest: ManifestV1, left_out: tuple[str, ...]) -> None:
    for path in (*_reports(manifest), *(path for path in left_out if role_of(path) == "report")):
        report = read_json(root / path)
        source = report.get("source_model_id") if isinstance(report, dict) else None
        if None not in (source, manifest.source_model_id) and source != manifest.source_model_id:
            raise InputError(
                f"{path} is about another model than {FILENAME}",
                "the directory mixes files of two exports; export again into an empty directory",
            )


def _check_same_contract(
    specs: tuple[TensorSpec, ...], expected: tuple[TensorSpec, ...], path: str, base: str, side: str
) -> None:
    if len(specs) != len(expected) or not all(map(_compatible, specs, expected)):
        raise InputError(
            f"{path} and {base} have different {side}: {_line(specs)} and {_line(expected)}", _HINT
        )


def _compatible(a: TensorSpec, b: TensorSpec) -> bool:
    """Equal but for axes that are dynamic in one of them: the ORT converter fixes those it can infer."""
    axes = zip(a.shape, b.shape, strict=False)
    same = all(x.value == y.value for x, y in axes if x.kind == y.kind == "static")
    return (
        (a.name, a.dtype) == (b.name, b.dtype)
        and same
        and (len(a.shape) == len(b.shape) or not (a.shape and b.shape))
    )


def _line(specs: tuple[TensorSpec, ...]) -> str:
    return "; ".join(f"{spec.name} {spec.dtype}{spec.shape_text}" for spec in specs)
