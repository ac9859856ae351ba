"""The artifacts of a version 1 directory, read again from their files, and the claims of its manifest beside the facts."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from onnxreg.converters.importers.draft_json import Difference
from onnxreg.converters.importers.import_files import Intake
from onnxreg.converters.importers.judge_files import check_android, check_format, read_model
from onnxreg.converters.onnx.facts import GraphFacts
from onnxreg.converters.onnx.graph_operators import OPERATOR_CONFIG
from onnxreg.converters.onnx.mobile_rules import android_warnings
from onnxreg.converters.source.scrub import read_json, scrub
from onnxreg.converters.source.source_files import below, role_of
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.core.paths import check_path
from onnxreg.schema.manifest.draft import NOT_EVALUATED, DraftArtifact, DraftFile, Verdict
from onnxreg.schema.manifest.manifest import is_number
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
EXPORT_AGAIN = (
    "export the model again; to register single files without this promise: reg add FILE... --name NAME"
)
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

DEFAULT_RECALL_LOSS_LIMIT = 0.005
"""The loss of recall from which on OpenMed refuses, if it states no other."""
_VERDICT = ("certified", "quant_recall_delta", "certification_limit", "certification")


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


def files_in(root: Path, directory: Path) -> list[str]:
    """Every file below `directory`, relative to `root`, sorted."""
    return sorted(path.relative_to(root).as_posix() for path in below(directory) if path.is_file())


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


def artifact_differences(artifact: ArtifactV1, facts: GraphFacts, at: str) -> list[Difference]:
    """Compare the claims of one artifact with the facts of its file. A missing claim is not a difference."""
    claimed = artifact.to_json()
    unsupported, warnings = android_warnings(facts.operator_names)
    actual = {
        **facts.fields()["metadata"],
        "unsupported_ops": list(unsupported),
        "warnings": list(warnings),
    }
    differences = compare(claimed.get("metadata") or {}, actual, f"{at}.metadata", actual)
    return [*compare(claimed, {"precision": facts.precision}, at, ["precision"]), *differences]


def compare(
    claimed: Mapping[str, Any], actual: Mapping[str, Any], at: str, keys: Iterable[str]
) -> list[Difference]:
    """The keys whose claims, if made and not null, differ from what was found. Lists of names compare as sets."""
    prefix = f"{at}." if at else ""
    return [
        Difference(f"{prefix}{key}", claimed[key], actual.get(key))
        for key in keys
        if claimed.get(key) is not None and _canonical(claimed[key]) != _canonical(actual.get(key))
    ]


def claimed_verdict(manifest: ManifestV1, artifact: ArtifactV1) -> dict[str, Any]:
    """The claims of version 1 about the certification of an artifact; empty if it makes none.

    The manifest-wide keys describe the INT8 artifact, the only one that OpenMed evaluates.
    """
    artifact_claims = artifact.metadata.to_json() if artifact.metadata else {}
    manifest_claims = manifest.to_json() if artifact.format == "onnx-int8" else {}
    return {
        key: (manifest_claims | artifact_claims)[key]
        for key in _VERDICT
        if (manifest_claims | artifact_claims).get(key) is not None
    }


def claimed_refusal(manifest: ManifestV1, artifact: ArtifactV1, root: Path) -> str:
    """The reason of version 1 for which an artifact is not certified; "" if it gives none.

    Any of its claims may say so: that of the artifact, of the manifest, of its report, of config.json.
    """
    for claims in _verdicts(manifest, artifact, root):
        delta, limit = (
            claims.get("quant_recall_delta"),
            claims.get("certification_limit", DEFAULT_RECALL_LOSS_LIMIT),
        )
        certified, exceeds = (
            claims.get("certified"),
            is_number(delta) and is_number(limit) and not delta < limit,
        )
        if certified is False or exceeds:
            loss = f", quant_recall_delta {delta}" if is_number(delta) else ""
            return f"refused, as claimed by the source (format version 1: certified {json.dumps(certified)}{loss})"
    return ""


def read_segmenter(root: Path, manifest: ManifestV1) -> tuple[dict[str, Any], list[Difference]]:
    """The segmenter's entry with the sizes and digests of its files as they are; empty if there is none."""
    if manifest.segmenter is None:
        return {}, []
    value = manifest.segmenter.to_json()
    differences = []
    for index, entry in enumerate(value.get("resource_files", ())):
        data = (root / entry["path"]).read_bytes()
        actual = {"size_bytes": len(data), "sha256": f"sha256:{sha256(data).hexdigest()}"}
        differences += compare(entry, actual, f"segmenter.resource_files.{index}", actual)
        entry.update(actual)
    return {"segmenter": value}, differences


def _inside(path: str, role: str) -> str:
    with about(f"the manifest names a {role} that cannot be in its directory", hint="export the model again"):
        return check_path(path)


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


def _is_android(manifest: ManifestV1) -> bool:
    return any(claim.metadata and claim.metadata.profile == "android" for claim in manifest.artifacts)


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


def _verdicts(manifest: ManifestV1, artifact: ArtifactV1, root: Path) -> Iterator[Mapping[str, Any]]:
    """Every object that may say whether an artifact is certified."""
    documents: list[Any] = [artifact.metadata.to_json() if artifact.metadata else {}]
    if artifact.format == "onnx-int8":
        paths = (manifest.recall_delta_path, manifest.config_path)
        documents += [manifest.to_json(), *(read_json(root / path) for path in paths if path is not None)]
    for document in documents:
        if isinstance(document, dict):
            inner = (document.get("quantization"), document.get("_onnx_quantization"))
            yield from (item for item in (document, *inner) if isinstance(item, dict))


def _canonical(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return sorted(value)
    return value
