"""The claims of a version 1 manifest, beside the facts."""

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from onnxreg.converters.importers.draft_json import Difference
from onnxreg.converters.onnx.facts import GraphFacts
from onnxreg.converters.onnx.mobile_rules import android_warnings
from onnxreg.converters.source.scrub import read_json
from onnxreg.schema.manifest.manifest_v1 import ArtifactV1, ManifestV1
from onnxreg.schema.manifest.mirrored_keys import is_number

DEFAULT_RECALL_LOSS_LIMIT = 0.005
"""The loss of recall from which on OpenMed refuses, if it states no other."""
_VERDICT = ("certified", "quant_recall_delta", "certification_limit", "certification")


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


def _canonical(value: Any) -> Any:
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return sorted(value)
    return value
