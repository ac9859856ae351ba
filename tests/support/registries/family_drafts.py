"""Families made of a few bytes: the registry does not look inside files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxreg.schema.manifest.draft import Draft, DraftArtifact, DraftFile
from onnxreg.schema.manifest.family import classes_digest

NAME = "acme/crops"
Variant = tuple[str, str, str]
"""Format, precision, and what the file's name ends on."""
VARIANTS: tuple[Variant, ...] = (
    ("onnx", "float32", ""),
    ("onnx", "float16", "-fp16"),
    ("onnx-int8", "int8", "-int8"),
)
CLASSES = ["healthy", "sick"]


def tensor(name: str, width: int) -> dict[str, Any]:
    shape = [{"kind": "dynamic", "name": "batch_size"}, {"kind": "static", "value": width}]
    return {"name": name, "dtype": "float32", "axes": ["batch_size", ""], "shape": shape}


@dataclass(frozen=True)
class Kind:
    """What the files of a family have in common: where they are written, how many bytes each has, and in which variants."""

    root: Path
    size: int
    variants: Sequence[Variant]

    def artifacts(
        self, stem: str, seed: str, inputs: list[dict[str, Any]], outputs: list[dict[str, Any]]
    ) -> tuple[DraftArtifact, ...]:
        """The variants of one graph, each with facts as long as real ones."""
        made = []
        for format_name, precision, suffix in self.variants:
            path = f"{stem}{suffix}.onnx"
            (self.root / path).parent.mkdir(parents=True, exist_ok=True)
            (self.root / path).write_bytes(f"{stem} {precision} {seed} ".encode().ljust(self.size))
            operators = [{"domain": "ai.onnx", "name": "Gemm", "opset": 13, "inputs": {"0": ["float"]}}]
            fields = {"metadata": {"opset": 18, "inputs": inputs, "outputs": outputs}, "operators": operators}
            made.append(DraftArtifact(format_name, precision, path, fields=fields | {"ir_version": 10}))
        return tuple(made)


def classes(output: str, ids: list[str]) -> dict[str, Any]:
    return {"output": output, "ids": ids, "digest": str(classes_digest(ids))}


def write_family(
    root: Path,
    heads: int,
    seeds: Mapping[str, str] | None = None,
    folder: str = "heads",
    size: int = 1_000,
    variants: Sequence[Variant] = VARIANTS,
) -> Draft:
    """A backbone and so many heads in these variants, which lie in `folder` and have `size` bytes each; `seeds` are those of heads
    with other bytes, by class id."""
    root.mkdir()
    kind = Kind(root, size, variants)
    species = [f"species{number:03}" for number in range(heads)]
    embedding = tensor("embedding", 16)
    found = list(
        kind.artifacts("swin", "a", [tensor("input", 4)], [tensor("species_logits", heads), embedding])
    )
    backbone = {"name": "backbone", "role": "backbone", "artifacts": [item.path for item in found]}
    members: list[dict[str, Any]] = [backbone | {"classes": classes("species_logits", species)}]
    for class_id in species:
        seed = (seeds or {}).get(class_id, "a")
        made = kind.artifacts(f"{folder}/{class_id}", seed, [embedding], [tensor("disease_logits", 2)])
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
