"""The artifacts of a version 1 directory, read again from their files."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.converters.importers.import_files import Intake
from onnxreg.converters.importers.judge_files import check_android, check_format, read_model
from onnxreg.converters.importers.openmed.manifest_claims import claimed_refusal, claimed_verdict
from onnxreg.converters.onnx.facts import GraphFacts
from onnxreg.converters.onnx.mobile_rules import android_warnings
from onnxreg.converters.onnx.operator_config import OPERATOR_CONFIG
from onnxreg.converters.source.scrub import scrub
from onnxreg.converters.source.source_files import role_of
from onnxreg.schema.core.errors import Advice, InputError
from onnxreg.schema.core.paths import check_path
from onnxreg.schema.manifest.draft import NOT_EVALUATED, DraftArtifact, DraftFile, Verdict
from onnxreg.schema.manifest.manifest_v1 import ArtifactV1, ManifestV1

NO_EVIDENCE = (
    "the claim of format version 1 names no digest of the artifact, its parent or the evaluation suite"
)
CONFIG_VERDICTS = (
    "_onnx_quantization",
    "certified",
    "quant_recall_delta",
    "quantization",
    "recall_delta_path",
)
"""The keys of config.json that repeat a verdict."""
EXPORT_AGAIN = Advice("export-or-add")
_ANDROID = ("onnx-android", "onnx-int8", "ort-android")
_QUANTIZATION = ("scheme", "weight_type", "op_types", "calibration", "target", "output")
_UNCARRIED = frozenset(
    {
        "inputs",
        "outputs",
        "operators",
        "opset",
        "unsupported_ops",
        "warnings",
        "certified",
        "quant_recall_delta",
    }
    | {"certification_limit", "recall_delta_path"}
)
"""Claims that are read again from the file, and verdicts."""


MODEL_SUFFIXES = (".onnx", ".ort", ".xml")
"""The suffixes of an artifact's main file."""


@dataclass(frozen=True)
class LocatedArtifact:
    """One claimed artifact with its files, relative to the directory; `main` is the file that runs."""

    claim: ArtifactV1
    main: str
    sidecars: tuple[DraftFile, ...]


def named_file(root: Path, path: str, role: str) -> str:
    """A path that the manifest names, checked to be safe and there; InputError says by which `role` it is named."""
    file = root / _inside(path, role)
    if not file.is_file():
        raise InputError(
            f"the manifest names the {role} {path}, which is missing",
            "copy the whole directory again, or export the model again",
        )
    if not file.resolve().is_relative_to(root.resolve()):
        raise InputError(
            f"the manifest names the {role} {path}, a link that leads out of the directory",
            "look at who made that directory; an export holds files only",
        )
    return path


def _inside(path: str, role: str) -> str:
    try:
        return check_path(path)
    except ValueError as error:
        raise InputError(
            f"the manifest names a {role} that cannot be in its directory: {error}", "export the model again"
        ) from error


def locate(root: Path, claim: ArtifactV1) -> LocatedArtifact:
    """Find the files of one claimed artifact; a directory counts as its main model and all its other files.

    Raises InputError for a path outside the directory and for a file that is missing.
    """
    role = f"{claim.format[:64]} artifact"
    directory = _inside(claim.path.rstrip("/"), role)
    if (root / directory).is_dir():
        return _locate_directory(root, claim, directory)
    path = Path(named_file(root, claim.path, role))
    if path.suffix not in MODEL_SUFFIXES:
        raise InputError(
            f"the manifest names {path} as {role}, which is not a model file ({', '.join(MODEL_SUFFIXES)})"
        )
    sidecars: list[DraftFile] = []
    config = claim.metadata.op_config_path if claim.metadata else None
    config_path = path.with_name(f"{path.stem}.{OPERATOR_CONFIG}").as_posix()
    if config is not None or (path.suffix == ".ort" and (root / config_path).is_file()):
        sidecars.append(
            DraftFile(
                "operator-config",
                named_file(root, config_path if config is None else config, "operator config"),
            )
        )
    if path.suffix == ".xml":
        weights = named_file(root, path.with_suffix(".bin").as_posix(), "OpenVINO weight file")
        sidecars.append(DraftFile("weights", weights))
    return LocatedArtifact(claim, claim.path, tuple(sidecars))


def _locate_directory(root: Path, claim: ArtifactV1, directory: str) -> LocatedArtifact:
    files = [named_file(root, path, f"{claim.format[:64]} file") for path in files_in(root, root / directory)]
    preferred = (f"{directory}/onnx/model_quantized.onnx", f"{directory}/onnx/model.onnx")
    models = [
        *(path for path in preferred if path in files),
        *(path for path in files if path.endswith(".onnx")),
    ]
    if not models:
        raise InputError(f"the {claim.format} artifact {directory} is a directory without a model")
    roles = {
        path: "model" if path.endswith(".onnx") else role_of(path) for path in files if path != models[0]
    }
    return LocatedArtifact(claim, models[0], tuple(DraftFile(role, path) for path, role in roles.items()))


def files_in(root: Path, directory: Path) -> list[str]:
    """Every file below `directory`, relative to `root`, sorted."""
    return sorted(path.relative_to(root).as_posix() for path in directory.rglob("*") if path.is_file())


def inspect_all(root: Path, located: Sequence[LocatedArtifact]) -> dict[str, GraphFacts]:
    """The facts of every ONNX and ORT-format file among the artifacts, by path; other formats cannot be read."""
    facts: dict[str, GraphFacts] = {}
    for item in located:
        config = next((root / file.path for file in item.sidecars if file.role == "operator-config"), None)
        for path in (item.main, *(file.path for file in item.sidecars)):
            if path.endswith((".ort", ".onnx")):
                facts[path] = read_model(root / path, config)
    return facts


def check_formats(
    manifest: ManifestV1, located: Sequence[LocatedArtifact], facts: Mapping[str, GraphFacts]
) -> None:
    """Raise InputError if a file does not keep what its format promises, or the android profile of the
    directory."""
    android = _is_android(manifest)
    for item in located:
        if item.main not in facts:
            continue
        check_format(item.claim.format, facts[item.main], item.main, EXPORT_AGAIN)
        if android and item.claim.format in _ANDROID:
            check_android(facts[item.main], item.main, EXPORT_AGAIN)


def _is_android(manifest: ManifestV1) -> bool:
    return any(claim.metadata and claim.metadata.profile == "android" for claim in manifest.artifacts)


def make_artifacts(
    manifest: ManifestV1,
    located: Sequence[LocatedArtifact],
    facts: Mapping[str, GraphFacts],
    base: str,
    intake: Intake,
    root: Path,
) -> Iterator[DraftArtifact]:
    """Take every file into the workspace and describe each artifact by what was read from it."""
    bases = {item.main for item in located} & {base}
    android = _is_android(manifest)
    for item in located:
        graph_facts = facts.get(item.main)
        sidecars = {file.path: file for file in (*item.sidecars, *_external(item, facts))}
        intake.take(root / item.main, item.main)
        for path, file in sidecars.items():
            intake.take(root / path, path, CONFIG_VERDICTS if file.role == "config" else ())
        claimed = claimed_verdict(manifest, item.claim)
        yield DraftArtifact(
            item.claim.format,
            graph_facts.precision if graph_facts else item.claim.precision or "unknown",
            item.main,
            tuple(sidecars.values()),
            parent=next(iter(bases - {item.main}), None) if graph_facts else None,
            verdict=_verdict(manifest, item.claim, claimed, root),
            fields=_fields(
                item.claim, claimed, graph_facts, intake, root, android and item.claim.format in _ANDROID
            ),
        )


def _verdict(manifest: ManifestV1, claim: ArtifactV1, claimed: Mapping[str, Any], root: Path) -> Verdict:
    """Without evidence a claim counts against the artifact, never for it."""
    refusal = claimed_refusal(manifest, claim, root)
    if refusal:
        return Verdict("refused", reasons=(refusal,))
    return Verdict("unknown", reasons=(NO_EVIDENCE,)) if claimed else NOT_EVALUATED


def _external(item: LocatedArtifact, facts: Mapping[str, GraphFacts]) -> Iterator[DraftFile]:
    for path in (item.main, *(file.path for file in item.sidecars)):
        for location in facts[path].external_data if path in facts else ():
            yield DraftFile("external-data", (Path(path).parent / location).as_posix())


def _fields(
    claim: ArtifactV1,
    claimed: dict[str, Any],
    facts: GraphFacts | None,
    intake: Intake,
    root: Path,
    android: bool,
) -> dict[str, Any]:
    metadata = claim.metadata.to_json() if claim.metadata else {}
    claims = {key: value for key, value in metadata.items() if key not in _UNCARRIED and value is not None}
    requested = {
        key: value for key, value in (claims.get("quantization") or {}).items() if key in _QUANTIZATION
    }
    if requested:
        claims["quantization"] = requested
    if android and facts is not None:
        unsupported, warnings = android_warnings(facts.operator_names)
        claims |= {"profile": "android", "unsupported_ops": list(unsupported), "warnings": list(warnings)}
    scrubbed, _ = scrub({"metadata": claims} | ({"claimed": claimed} if claimed else {}), intake.name, root)
    if facts is None:
        return dict(scrubbed)
    fields = facts.fields()
    if facts.weights.weights_quantized:
        fields["quantization"] = {"requested": requested, "measured": facts.weights.to_json()}
    if facts.ort_format is not None:
        fields["reproducible"] = False
    return {**fields, **scrubbed, "metadata": scrubbed["metadata"] | fields["metadata"]}
