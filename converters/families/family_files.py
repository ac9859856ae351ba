"""The distinct paths of a family's files, and the two JSON files for its server."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from onnxreg.converters.families.head_checkpoints import member_of, plain
from onnxreg.converters.families.precisions import PLAIN, Precision
from onnxreg.schema.core.errors import InputError
from onnxreg.schema.core.paths import check_distinct
from onnxreg.schema.inputs.family_file import FamilyFile
from onnxreg.schema.manifest.draft import DraftArtifact
from onnxreg.schema.manifest.family import ModelFamily

SUFFIXES = {PLAIN: "-fp32", "float16": "-fp16", "int8": "-int8"}
OOD, TENSORS = "ood.onnx", "ood.safetensors"
LIST, METADATA = "disease-heads-list.json", "onnx-metadata.json"
SMALLEST_FIRST = ("int8", "float16", "float32")
SERVER_TOOLS = ("onnx", "onnxruntime", "torch", "transformers")
Paths = Sequence[tuple[Precision, str]]
"""The path of each precision of a member, that of float32 first."""


def backbone_paths(document: FamilyFile) -> Paths:
    """float16 has the plain name, as servers expect it."""
    suffixes = {**SUFFIXES, "float16": ""}
    precisions: Sequence[Precision] = (PLAIN, *document.variants.backbone)
    return [(item, f"{document.backbone.file}{suffixes[item]}.onnx") for item in precisions]


def head_paths(document: FamilyFile, class_id: str) -> Paths:
    precisions: Sequence[Precision] = (PLAIN, *document.variants.head)
    stem = f"{document.heads.file}/{plain(class_id)}"
    return [(item, f"{stem}{SUFFIXES[item]}.onnx") for item in precisions]


def fused_paths(document: FamilyFile) -> Paths:
    return [(item, f"{document.heads.file}{SUFFIXES[item]}.onnx") for item in document.variants.fused]


def check_paths(document: FamilyFile, class_ids: Iterable[str]) -> None:
    """Raise InputError, naming the members, if two files would have one path, or that of a folder.

    Args:
        class_ids: the classes with a head.
    """
    planned = [*_planned(document, class_ids)]
    try:
        check_distinct(path for _, path in planned)
    except InputError as error:
        raise InputError(
            f"{_colliding(planned)}: {error}",
            "let backbone.file and heads.file differ, list each precision once, "
            "and let class ids differ in more than case",
        ) from error


def _planned(document: FamilyFile, class_ids: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the member and the path of each file."""
    yield from (("layout", path) for path in (LIST, METADATA))
    yield from (("backbone", path) for _, path in backbone_paths(document))
    for class_id in class_ids:
        yield from ((member_of(class_id), path) for _, path in head_paths(document, class_id))
    yield from (("fused", path) for _, path in fused_paths(document))
    if document.ood is not None:
        yield from (("ood", path) for path in (OOD, TENSORS))


def _colliding(planned: Sequence[tuple[str, str]]) -> str:
    """Name the members of the first two paths that collide."""
    for one, other in combinations(planned, 2):
        try:
            check_distinct((one[1], other[1]))
        except InputError:
            return " and ".join(dict.fromkeys((one[0], other[0])))
    raise AssertionError("all paths are distinct")


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
        "versions": {name: tools[name] for name in SERVER_TOOLS if name in tools},
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


def json_bytes(value: Any) -> bytes:
    """Encode JSON in the style of these files."""
    return (json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n").encode()
