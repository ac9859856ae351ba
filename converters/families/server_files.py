"""The two JSON files that a server of a family reads, made from what the manifest says; nothing is written by hand."""

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
    """The path of the head of each class id, its smallest variant, from where the list is; null if the class has none."""
    precisions = {item.path: item.precision for item in artifacts}
    files: dict[str | None, str | None] = {None: None}
    for member in family.of_role("head"):
        path = min(member.artifacts, key=lambda path: SMALLEST_FIRST.index(precisions[path]))
        files[member.name] = path
    return {class_id: files[head] for class_id, head in family.routing.items()}


def metadata(
    family: ModelFamily,
    artifacts: Sequence[DraftArtifact],
    asked: FamilyFile,
    tools: Mapping[str, str],
    detector: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Of each member its role, files by precision, contract and classes; the routing; how the detector was fitted."""
    by_path = {item.path: item for item in artifacts}
    members = {}
    for member in family.members:
        found = [by_path[path] for path in member.artifacts]
        if not found:
            continue
        facts = found[0].fields
        members[member.name] = {
            "role": member.role,
            "files": {item.precision: item.path for item in found},
            "inputs": _tensors(facts["metadata"]["inputs"]),
            "outputs": _tensors(facts["metadata"]["outputs"]),
            **({"classes": list(member.classes.ids)} if member.classes else {}),
            **({"heads": [head.member for head in member.heads]} if member.heads else {}),
        }
    return {
        "name": asked.name,
        "opset": asked.opset,
        "versions": {name: tools[name] for name in VERSIONS if name in tools},
        "members": members,
        "routing": dict(family.routing),
        **({"ood": dict(detector)} if detector else {}),
    }


def _tensors(specs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """`{name: {dtype, shape}}`; a dynamic axis is its name."""
    return {
        spec["name"]: {
            "dtype": spec["dtype"],
            "shape": [dim.get("value", dim.get("name")) for dim in spec["shape"]],
        }
        for spec in specs
    }


def text(value: Any) -> bytes:
    """JSON as these files have it."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
