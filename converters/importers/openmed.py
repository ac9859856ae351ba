"""Import directories that OpenMed's converter wrote (format version 1).

Facts are read from the files, and compared with the manifest's claims. A claimed certification becomes `unknown`,
because it does not say which bytes were certified; a claimed refusal stays.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from onnxreg.converters.importers import survey
from onnxreg.converters.importers.intake import Difference, Found, Intake
from onnxreg.converters.onnx.facts import GraphFacts, read_weights
from onnxreg.converters.onnx.mobile_rules import android_warnings
from onnxreg.converters.source.source_files import below, read_json, role_of, scrub
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.errors import InputError, about
from onnxreg.schema.core.ref import check_path
from onnxreg.schema.manifest.draft import NOT_EVALUATED, Verdict
from onnxreg.schema.manifest.manifest import TensorSpec, read_manifest
from onnxreg.schema.manifest.manifest_v1 import ArtifactV1, ManifestV1
from onnxreg.schema.manifest.vocabulary import FILENAME

NO_EVIDENCE = (
    "the claim of format version 1 names no digest of the artifact, its parent or the evaluation suite"
)
EXPORT_AGAIN = "export the model again; single files go in without this promise: reg add FILE... --name NAME"
ONE_EXPORT = "the directory mixes files of two exports; export again into an empty directory"
DEFAULT_RECALL_LOSS_LIMIT = 0.005
"""The limit if the documents do not state a limit. OpenMed refuses a model that loses this much recall or more."""
_MODELS = (*survey.GRAPHS, ".xml")
_ANDROID = ("onnx-android", "onnx-int8", "ort-android")
_QUANTIZATION_VERDICTS = ("certified", "quant_recall_delta", "quantization", "recall_delta_path")
_CONFIG_VERDICTS = ("_onnx_quantization", *_QUANTIZATION_VERDICTS)
_VERDICT = ("certified", "quant_recall_delta", "certification_limit", "certification")
_QUANTIZATION = ("scheme", "weight_type", "op_types", "calibration", "target", "output")
_UNCARRIED = {
    *("inputs", "outputs", "operators", "opset", "unsupported_ops", "warnings", "quantization"),
    *("certified", "quant_recall_delta", "certification_limit", "recall_delta_path"),
}
"""The claims about an artifact that are not copied: verdicts, and facts that are read from the file instead."""
_UNCARRIED_OF_MANIFEST = {
    *("format", "format_version", "formats", "artifacts", "config_path", "label_map_path", "tokenizer"),
    *(*_QUANTIZATION_VERDICTS, "certification", "generated_at", "created_at", "exported_at"),
}
"""The manifest's claims that are not copied: verdicts, times, and facts that are read from the files instead."""


def survey_openmed(directory: Path, data: bytes, intake: Intake) -> survey.Survey:
    """Survey a directory whose manifest is `data`. Raise InputError for a missing file, or for files of two exports."""
    for existing in below(directory):
        intake.look(existing)
    manifest = read_manifest(data)
    if not isinstance(manifest, ManifestV1) or not manifest.artifacts:
        raise InputError(f"{FILENAME} names no artifacts", "export the model again")
    facts: dict[str, GraphFacts] = {}
    located = [list(_locate(directory, claim)) for claim in manifest.artifacts]
    for files in located:
        for file in [file for file in files if file.path.endswith(survey.GRAPHS)]:
            facts[file.path], external = survey.read_graph(file, intake)
            files += external
    companions = _companions(directory, manifest)
    named = {FILENAME, *(file.path for files in (*located, companions) for file in files)}
    left_out = [path for path in survey.files_below(directory) if path not in named]
    full = [path for path, item in facts.items() if item.ort_format is None and item.precision == "float32"]
    base = next(iter([*full, *facts]), "")  # other files were made from this file
    incomparable = _refuse_mixture(directory, facts, base) if facts else []
    for path in (*_reports(manifest), *(path for path in left_out if role_of(path) == "report")):
        report = read_json(directory / path)
        source = report.get("source_model_id") if isinstance(report, dict) else None
        if None not in (source, manifest.source_model_id) and source != manifest.source_model_id:
            raise InputError(f"{path} is about another model than {FILENAME}", ONE_EXPORT)
    is_adopted = base in {files[0].path for files in located}
    is_android = any(claim.metadata and claim.metadata.profile == "android" for claim in manifest.artifacts)
    models, contradicted = [], list[Difference]()
    for index, (claim, (main, *others)) in enumerate(zip(manifest.artifacts, located, strict=True)):
        at, model_facts = f"artifacts.{index}", facts.get(main.path)
        is_promised = is_android and claim.format in _ANDROID
        stated = claim.metadata.to_json() if claim.metadata else {}
        if model_facts is None:
            contradicted.append(Difference(f"{at}.metadata", claim.format, None))
        else:
            actual = model_facts.fields()["metadata"] | android_warnings(model_facts.operator_names)
            precision = {"precision": model_facts.precision}
            contradicted += survey.compare(claim.to_json(), precision, at, ["precision"])
            contradicted += survey.compare(stated, actual, f"{at}.metadata", actual)
        # the manifest's top-level keys describe the INT8 artifact, since OpenMed evaluates only this artifact
        verdicts = (manifest.to_json() if claim.format == "onnx-int8" else {}) | stated
        claimed = {key: verdicts[key] for key in _VERDICT if verdicts.get(key) is not None}
        metadata = _without(stated, _UNCARRIED)
        quantization = stated.get("quantization") or {}
        if requested := {key: quantization[key] for key in _QUANTIZATION if key in quantization}:
            metadata["quantization"] = requested
        if is_promised and model_facts is not None:
            metadata["profile"] = "android"
        values = {"metadata": metadata, **({"claimed": claimed} if claimed else {})}
        fields, _ = scrub(values, intake.name, directory)
        if model_facts is not None and model_facts.ort_format is not None:
            fields["reproducible"] = False
        models.append(
            survey.describe_model(
                [main, *{file.path: file for file in others}.values()],
                model_facts,
                claim.format,
                None if model_facts else claim.precision,
                parent=base if model_facts and is_adopted and base != main.path else None,
                verdict=_verdict(manifest, claim, claimed, directory),
                is_android=is_promised,
                stated=fields,
                hint=EXPORT_AGAIN,
            )
        )
    claims, wrong_files = manifest.to_json(), list[Difference]()
    carried = _without(claims, _UNCARRIED_OF_MANIFEST)
    if manifest.segmenter is not None:  # with the real sizes and digests of its files
        carried["segmenter"] = manifest.segmenter.to_json()
        for index, entry in enumerate(carried["segmenter"].get("resource_files", ())):
            data = (directory / entry["path"]).read_bytes()
            actual = {"size_bytes": len(data), "sha256": str(Digest.of(data))}
            wrong_files += survey.compare(entry, actual, f"segmenter.resource_files.{index}", actual)
            entry.update(actual)
    fields, scrubbed = scrub(carried, intake.name, directory)
    reason, weights = "not an artifact or companion of the manifest; left out", f"the weights of {base}"
    intake.scrubbed += [f"{FILENAME}:{at}" for at in scrubbed]
    differences = [
        *contradicted,
        *([] if manifest.certified is None else [Difference("certified", manifest.certified, None)]),
        *(Difference(path, None, reason) for path in left_out),
        *(Difference(path, weights, "nothing to compare by name") for path in incomparable),
        *wrong_files,
        *(Difference(at, carried[at], fields[at]) for at in scrubbed if at in fields and at in carried),
    ]
    return survey.Survey(
        tuple(models),
        companions,
        "openmed-v1",
        fields={**fields, "source": {"id": fields.get("source_model_id") or intake.name}},
        claims=claims,
        differences=tuple(differences),
    )


def _without(claims: Mapping[str, Any], keys: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in claims.items() if key not in keys and value is not None}


def _found(root: Path, path: str, role: str, label: str | None = None) -> Found:
    label = label or role
    _check_inside(path, label)
    file = survey.named_file(root, path, label)
    return Found(role, file, path, _CONFIG_VERDICTS if role == "config" else ())


def _check_inside(path: str, label: str) -> None:
    prefix = f"the manifest names a {label} that cannot be in its directory"
    with about(prefix, hint="export the model again"):
        check_path(path)


def _locate(root: Path, claim: ArtifactV1) -> Iterator[Found]:
    """Yield the files of an artifact that the manifest names, its graph first. The artifact may be a directory."""
    label = f"{claim.format[:64]} artifact"
    folder = claim.path.rstrip("/")
    _check_inside(folder, label)
    if (root / folder).is_dir():
        files = survey.files_below(root, folder)
        preferred = [f"{folder}/onnx/model_quantized.onnx", f"{folder}/onnx/model.onnx", *files]
        main = next((path for path in preferred if path in files and path.endswith(".onnx")), None)
        if main is None:
            raise InputError(f"the {claim.format} artifact {folder} is a directory without a model")
        for path in (main, *(path for path in files if path != main)):
            role = "model" if path.endswith(".onnx") else role_of(path)
            yield _found(root, path, role, f"{claim.format[:64]} file")
        return
    yield _found(root, claim.path, "model", label)
    file = Path(claim.path)
    if file.suffix not in _MODELS:
        message = f"the manifest names {file} as {label}, which is not a model file ({', '.join(_MODELS)})"
        raise InputError(message)
    config = claim.metadata.op_config_path if claim.metadata else None
    usual = file.with_name(f"{file.stem}.required_operators_and_types.config").as_posix()
    if config is not None or (file.suffix == ".ort" and (root / usual).is_file()):
        yield _found(root, usual if config is None else config, "operator-config", "operator config")
    if file.suffix == ".xml":
        yield _found(root, file.with_suffix(".bin").as_posix(), "weights", "OpenVINO weight file")


def _companions(root: Path, manifest: ManifestV1) -> tuple[Found, ...]:
    """Return the files of a manifest beside its artifacts. A file with several roles gets the first."""
    files = []
    for path, role in ((manifest.config_path, "config"), (manifest.label_map_path, "labels")):
        if path is not None:
            files.append(_found(root, path, role))
    files += [_found(root, path, "claimed-report", "report") for path in _reports(manifest)]
    for path in (manifest.tokenizer.files if manifest.tokenizer else None) or ():
        file = _found(root, path, "tokenizer", "tokenizer file")
        if path != FILENAME and role_of(path) != "report":
            files.append(file)
    for item in manifest.segmenter.resource_files if manifest.segmenter else ():
        files.append(_found(root, item.path, "segmenter", "segmenter file"))
    first: dict[str, Found] = {}
    for file in files:
        first.setdefault(file.path, file)
    return tuple(first.values())


def _reports(manifest: ManifestV1) -> list[str]:
    claims = (manifest, *(item.metadata for item in manifest.artifacts if item.metadata))
    return list(dict.fromkeys(claim.recall_delta_path for claim in claims if claim.recall_delta_path))


def _refuse_mixture(root: Path, models: Mapping[str, GraphFacts], base: str) -> list[str]:
    """Raise InputError if a model is not from `base`'s export. Return the models whose weights cannot be compared."""
    expected = models[base]
    for path, facts in models.items():
        sides = {"inputs": (facts.inputs, expected.inputs), "outputs": (facts.outputs, expected.outputs)}
        for side, (specs, others) in sides.items():
            if len(specs) != len(others) or not all(map(_compatible, specs, others)):
                lines = " and ".join(
                    "; ".join(f"{spec.name} {spec.dtype}{spec.shape_text}" for spec in item)
                    for item in (specs, others)
                )
                raise InputError(f"{path} and {base} have different {side}: {lines}", ONE_EXPORT)
    if expected.weights.weights_total == expected.weights.weights_quantized:
        return [path for path in models if path != base]
    reference = read_weights(root / base)
    unknown = []
    for path, facts in models.items():
        if path != base and not survey.compare_weights(reference, read_weights(root / path), path, base):
            if facts.ort_format is None:
                raise InputError(f"no weight of {path} has a counterpart in {base}", ONE_EXPORT)
            unknown.append(path)
    return unknown


def _compatible(a: TensorSpec, b: TensorSpec) -> bool:
    """Return True if two specs are equal. An axis that is dynamic in one of them matches any size."""
    axes = zip(a.shape, b.shape, strict=False)
    same = all(x.value == y.value for x, y in axes if x.kind == y.kind == "static")
    have_ranks = len(a.shape) == len(b.shape) or not (a.shape and b.shape)
    return (a.name, a.dtype) == (b.name, b.dtype) and same and have_ranks


def _verdict(manifest: ManifestV1, claim: ArtifactV1, claimed: Mapping[str, Any], root: Path) -> Verdict:
    """Make a verdict from an artifact's claims. Claims can refuse an artifact, but cannot certify it."""
    documents: list[Any] = [claim.metadata.to_json() if claim.metadata else {}]
    if claim.format == "onnx-int8":
        paths = (manifest.recall_delta_path, manifest.config_path)
        documents += [manifest.to_json(), *(read_json(root / path) for path in paths if path is not None)]
    documents = [item for item in documents if isinstance(item, dict)]
    documents += [item.get(key) for item in documents for key in ("quantization", "_onnx_quantization")]
    for claims in (item for item in documents if isinstance(item, dict)):
        delta, certified = claims.get("quant_recall_delta"), claims.get("certified")
        limit = claims.get("certification_limit", DEFAULT_RECALL_LOSS_LIMIT)
        has_delta, has_limit = (type(value) in (int, float) for value in (delta, limit))
        if certified is False or (has_delta and has_limit and not delta < limit):
            loss = f", quant_recall_delta {delta}" if has_delta else ""
            reason = f"refused, as claimed by the source (format version 1: certified {json.dumps(certified)}{loss})"
            return Verdict("refused", reasons=(reason,))
    return Verdict("unknown", reasons=(NO_EVIDENCE,)) if claimed else NOT_EVALUATED
