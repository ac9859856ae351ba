"""The bill of materials of a version, made from the manifest: CycloneDX 1.6 (ECMA-424) with model cards.

Equal input gives an equal bill. Facts without a key in the standard are properties named `onnxreg:...`.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from onnxreg.schema.core import canonical
from onnxreg.schema.core.canonical import Digest
from onnxreg.schema.core.ref import Version
from onnxreg.schema.gates.statements import RecordedProof
from onnxreg.schema.log.state import ArtifactState
from onnxreg.schema.manifest.manifest import MEDIA_TYPE, Artifact, Check, FileEntry, Manifest, Recipe
from onnxreg.schema.manifest.vocabulary import spdx_expression

Json = dict[str, Any]
Facts = Iterable[tuple[str, object]]


def bill(
    manifest: Manifest,
    digest: Digest,
    version: Version,
    states: Mapping[str, ArtifactState] = {},
    timestamp: str | None = None,
    proofs: Mapping[str, RecordedProof] = {},
) -> Json:
    """Make the bill of materials as JSON. `digest` is the manifest's digest. `states` and `proofs` have the path of an
    artifact as key.

    Without `states`, the states in the manifest are used. `timestamp` is a text such as `2026-01-31T12:00:00Z`.
    """
    ref = f"{manifest.name}:{version}@{digest}"
    sidecars = [entry for artifact in manifest.artifacts for entry in artifact.files]
    files = {entry.path: entry for entry in reversed([*sidecars, *manifest.files])}
    artifacts = {_ref_of(artifact): artifact for artifact in manifest.artifacts}
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, f'onnxreg:{ref}')}",
        "version": 1,
        "metadata": {
            **({} if timestamp is None else {"timestamp": timestamp}),
            "tools": {"components": [{"type": "application", "name": "onnxreg"}]},
            "component": _version(manifest, digest, version),
        },
        "components": [
            *(_artifact(item, states.get(item.path), proofs.get(item.path)) for item in artifacts.values()),
            *(
                _component("file", f"file:{path}", path, entry.digest)
                | _properties([("role", entry.role), ("size", entry.size)])
                for path, entry in files.items()
            ),
        ],
        "dependencies": [
            {"ref": "version", "dependsOn": [*artifacts, *_refs(manifest.files)]},
            *({"ref": ref, "dependsOn": _refs(item.files)} for ref, item in artifacts.items()),
        ],
        **({} if manifest.recipe is None else {"formulation": [_formula(manifest.recipe)]}),
    }


def _version(manifest: Manifest, digest: Digest, version: Version) -> Json:
    group, _, name = manifest.name.rpartition("/")
    parameters = {"task": manifest.task, "architectureFamily": manifest.family}
    limits = []
    if manifest.max_sequence_length is not None:
        limits.append(f"inputs of at most {manifest.max_sequence_length} tokens")
    if manifest.labels is not None:
        limits.append(f"finds only these labels: {', '.join(manifest.labels)}")
    value = _component("machine-learning-model", "version", name, digest) | {
        **({"group": group} if group else {}),
        "version": str(version),
        "mime-type": MEDIA_TYPE,
        "modelCard": {
            "modelParameters": {key: text for key, text in parameters.items() if text is not None},
            **_limitations(limits),
            **_properties([("minimum_opset", manifest.minimum_opset)]),
        },
    }
    if manifest.license is not None:
        expression = spdx_expression(manifest.license)
        license: Json = {"expression": expression} if expression else {"license": {"name": manifest.license}}
        if re.fullmatch(r"(?!LicenseRef-)[A-Za-z0-9.-]+", expression or ""):
            license = {"license": {"id": expression}}
        value["licenses"] = [license]
    if manifest.description is not None:
        value["description"] = manifest.description
    if (source := manifest.source) is not None:
        # The source's digest is over all its files (see `manifest.Source`), so it is not written as the hash of a file.
        ancestor = {
            "type": "machine-learning-model",
            "bom-ref": "source",
            "name": source.public_id(manifest.name) or "local files",
            **({"version": source.revision} if source.revision else {}),
            **_properties([("source:digest", source.digest)]),
        }
        value["pedigree"] = {"ancestors": [ancestor]}
    return value


def _artifact(artifact: Artifact, effective: ArtifactState | None, proof: RecordedProof | None) -> Json:
    metadata, stated = artifact.metadata, artifact.certification
    evidence, state = stated.evidence, effective.state if effective else stated.state
    datasets = dict.fromkeys([*(check.dataset for check in artifact.checks), artifact.suite])
    about_verdict: list[tuple[str, object]] = [
        ("certification:state", state),
        ("certification:stated", stated.state if stated.state != state else None),
        ("certification:rule", stated.rule),
        ("certification:parent", evidence and evidence.parent),
        ("certification:suite", artifact.suite),
        ("certification:report", evidence and evidence.report),
    ]
    for check in artifact.checks:
        keys = ("verdict", "limit", "samples", "dataset", "direction")
        about_verdict += [(f"check:{check.label}:{key}", getattr(check, key)) for key in keys]
    card = {
        "modelParameters": {
            "datasets": [
                {"type": "dataset", "name": f"evaluation data {digest}"} for digest in datasets if digest
            ],
            **{
                side: [{"format": f"{item.name}: {item.dtype}{item.shape_text}"} for item in specs]
                for side, specs in (("inputs", metadata.inputs), ("outputs", metadata.outputs))
            },
        },
        "quantitativeAnalysis": {"performanceMetrics": [_metric(check) for check in artifact.checks]},
        **_limitations([*(stated.reasons if stated.state == "refused" else ()), *metadata.warnings]),
        **_properties(about_verdict),
    }
    facts: list[tuple[str, object]] = [
        ("role", "artifact"),
        *((key, getattr(artifact, key)) for key in ("size", "format", "precision", "parent", "reproducible")),
    ]
    if (quantization := artifact.quantization) is not None:
        facts.append(("quantization:requested", quantization.requested))
        facts += [(f"quantization:{key}", value) for key, value in quantization.measured.to_json().items()]
    if proof is not None:
        report = proof.report
        facts += [("faithfulness", report.verdict), ("faithfulness:parent", report.parent)]
        facts += [("faithfulness:rules", report.rules), ("faithfulness:authority", proof.authority)]
    component = _component("machine-learning-model", _ref_of(artifact), artifact.path, artifact.digest)
    return component | {"modelCard": card, **_properties(facts)}


def _metric(check: Check) -> Json:
    head, _, label = check.name.partition("/")
    is_part = check.direction is None and head == check.metric  # `character_recall/NAME`: the recall of NAME
    value: Json = {"type": head, "slice": label} if is_part and label else {"type": check.label}
    if check.value is not None:
        value["value"] = _text(check.value)
    if check.interval is not None:
        low, high = map(_text, check.interval)
        value["confidenceInterval"] = {"lowerBound": low, "upperBound": high}
    return value


def _formula(recipe: Recipe) -> Json:
    facts: Facts = [
        ("recipe:profile_version", recipe.profile_version),
        ("recipe:parameters", recipe.parameters),
        ("recipe:isa", recipe.tools.get("isa")),
        ("recipe:trust_remote_code", recipe.trust_remote_code),
        ("recipe:code", None if recipe.code is None else recipe.code.to_json()),
    ]
    steps = [
        {
            "name": step.name,
            **_properties(
                (f"step:{key.rstrip('_')}", getattr(step, key))
                for key in ("pass_", "version", "params", "input", "skipped")
            ),
        }
        for step in recipe.steps
    ]
    workflow = {"bom-ref": "recipe", "uid": "recipe", "name": recipe.profile, "taskTypes": ["build"]}
    return {
        "components": [
            {"type": "application", "bom-ref": f"tool:{name}", "name": name, "version": version}
            for name, version in sorted(recipe.tools.items())
            if name != "isa"
        ],
        "workflows": [{**workflow, "steps": steps, **_properties(facts)}],
    }


def _component(kind: str, ref: str, name: str, digest: Digest) -> Json:
    return {"type": kind, "bom-ref": ref, "name": name, "hashes": [{"alg": "SHA-256", "content": digest.hex}]}


def _limitations(limits: list[str]) -> Json:
    return {"considerations": {"technicalLimitations": limits}} if limits else {}


def _properties(facts: Facts) -> Json:
    entries = [{"name": f"onnxreg:{key}", "value": _text(value)} for key, value in facts if value is not None]
    return {"properties": entries} if entries else {}


def _text(value: object) -> str:
    return str(value) if isinstance(value, str) else canonical.encode(value).decode()


def _ref_of(artifact: Artifact) -> str:
    return f"artifact:{artifact.format}/{artifact.precision}/{artifact.path}"


def _refs(entries: Iterable[FileEntry]) -> list[str]:
    return list(dict.fromkeys(f"file:{entry.path}" for entry in entries))
