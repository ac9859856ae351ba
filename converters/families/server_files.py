"""The two JSON files that a server of a family reads, made from the facts of the manifest."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.manifest.draft import DraftArtifact
from onnxreg.schema.manifest.family import ModelFamily

LIST, METADATA = "disease-heads-list.json", "onnx-metadata.json"
SMALLEST_FIRST = ("int8", "float16", "float32")
VERSIONS = ("onnx", "onnxruntime", "torch", "transformers")


def heads_list(family: ModelFamily, artifacts: Sequence[DraftArtifact]) -> dict[str, str | None]:
    """Map each class id to the path of its head in its smallest precision; null if the class has no head."""
    precisions = {item.path: item.precision for item in artifacts}
    files: dict[str | None, str | None] = {None: None}
    for member in family.of_role("head"):
        path = min(member.artifacts, key=lambda path: SMALLEST_FIRST.index(precisions[path]))
        files[member.name] = path
    return {class_id: files[head] for class_id, head in family.routing.items()}


def metadata(
    family: ModelFamily,
    artifacts: Sequence[DraftArtifact],
    document: FamilyFile,
    tools: Mapping[str, str],
    detector: Mapping[str, Any],
) -> dict[str, Any]:
    """Describe the members (files by precision, contract, classes), the routing, the fit of the detector."""
    by_path = {item.path: item for item in artifacts}
    members = {}
    for member in family.members:
        files = [by_path[path] for path in member.artifacts]
        if not files:
            continue
        facts = files[0].fields
        members[member.name] = {
            "role": member.role,
            "files": {item.precision: item.path for item in files},
            "inputs": _tensors(facts["metadata"]["inputs"]),
            "outputs": _tensors(facts["metadata"]["outputs"]),
            **({"classes": list(member.classes.ids)} if member.classes else {}),
            **({"heads": [head.member for head in member.heads]} if member.heads else {}),
        }
    return {
        "name": document.name,
        "opset": document.opset,
        "versions": {name: tools[name] for name in VERSIONS if name in tools},
        "members": members,
        "routing": dict(family.routing),
        **({"ood": dict(detector)} if detector else {}),
    }


def _tensors(specs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Describe tensors as `{name: {dtype, shape}}`; a dynamic axis is its name."""
    return {
        spec["name"]: {
            "dtype": spec["dtype"],
            "shape": [dim.get("value", dim.get("name")) for dim in spec["shape"]],
        }
        for spec in specs
    }


def text(value: Any) -> bytes:
    """Encode JSON in the style of these files."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
