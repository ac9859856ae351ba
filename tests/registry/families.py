"""Families made of a few bytes: the registry does not look inside files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from onnxreg.schema.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.family import classes_digest

NAME = "acme/crops"
VARIANTS = (("onnx", "float32", ""), ("onnx", "float16", "-fp16"), ("onnx-int8", "int8", "-int8"))
CLASSES = ["healthy", "sick"]


def tensor(name: str, width: int) -> dict[str, Any]:
    shape = [{"kind": "dynamic", "name": "batch_size"}, {"kind": "static", "value": width}]
    return {"name": name, "dtype": "float32", "axes": ["batch_size", ""], "shape": shape}


def artifacts(
    root: Path, stem: str, seed: str, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]
) -> tuple[DraftArtifact, ...]:
    """The three variants of one graph, each with facts as long as real ones."""
    made = []
    for format_name, precision, suffix in VARIANTS:
        path = f"{stem}{suffix}.onnx"
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).write_bytes(f"{stem} {precision} {seed} ".encode() * 50)
        operators = [{"domain": "ai.onnx", "name": "Gemm", "opset": 13, "inputs": {"0": ["float"]}}]
        fields = {"metadata": {"opset": 18, "inputs": inputs, "outputs": outputs}, "operators": operators}
        made.append(DraftArtifact(format_name, precision, path, fields=fields | {"ir_version": 10}))
    return tuple(made)


def classes(output: str, ids: list[str]) -> dict[str, Any]:
    return {"output": output, "ids": ids, "digest": str(classes_digest(ids))}


def write_family(
    root: Path, heads: int, seeds: Mapping[str, str] | None = None, folder: str = "heads"
) -> Draft:
    """A backbone and so many heads in three variants each, which lie in `folder`; `seeds` are those of heads with other bytes, by
    class id."""
    root.mkdir()
    species = [f"species{number:03}" for number in range(heads)]
    embedding = tensor("embedding", 16)
    found = list(
        artifacts(root, "swin", "a", [tensor("input", 4)], [tensor("species_logits", heads), embedding])
    )
    backbone = {"name": "backbone", "role": "backbone", "artifacts": [item.path for item in found]}
    members: list[dict[str, Any]] = [backbone | {"classes": classes("species_logits", species)}]
    for class_id in species:
        seed = (seeds or {}).get(class_id, "a")
        made = artifacts(root, f"{folder}/{class_id}", seed, [embedding], [tensor("disease_logits", 2)])
        found += made
        head = {"name": f"head:{class_id}", "role": "head", "artifacts": [item.path for item in made]}
        members.append(head | {"classes": classes("disease_logits", CLASSES)})
    (root / "onnx-metadata.json").write_bytes(b"{}")
    members.append({"name": "layout", "role": "metadata", "files": ["onnx-metadata.json"]})
    edge = {"source": "backbone", "output": "embedding", "target": "head", "input": "embedding"}
    routing = {class_id: f"head:{class_id}" for class_id in species}
    family = {"members": members, "edges": [edge], "routing": routing}
    companions = (DraftFile("metadata", "onnx-metadata.json"),)
    return Draft(NAME, root, tuple(found), companions, {"model_family": family})
